"""The user's program under a setting: one copy of it, or several that live and end together.

A single copy is not watched: this process becomes it. Each of several runs behind a guard (`tuner.child.guard`), in a
session of its own, so that nothing of it outlives this process, however that ends.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import IO, NoReturn

from tuner import inherited
from tuner.child.guard import default_signals
from tuner.devices import registry as devices
from tuner.errors import BadInputError
from tuner.frameworks import registry
from tuner.machine.cgroup import read_limits
from tuner.machine.coresets import are_shared, core_sets, unlike
from tuner.machine.cpulist import format_list, parse_list
from tuner.machine.exits import ended_text
from tuner.machine.host import detect
from tuner.paths import CHILD, boot_arguments
from tuner.report.emit import BATCH_SIZE, own_variables
from tuner.space.carrier import Option
from tuner.space.deployment import Deployment
from tuner.workload.command import placeholders, started_by

_NUMBER, _NAME, BATCH = "{instance}", "{model}", "{batch_size}"
_SUM = re.compile(r"\{(?:(\d+)\+instance|instance\+(\d+))\}")
_AFTER_DIGITS = re.compile(rf"(?:(?<![\w.])|(?<=-\w))(\d+){re.escape(_NUMBER)}(?![\w.])")  # and no part of a name
_DIGITS = 10  # the numbers of so many copies have one digit each
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)  # whoever sends these wants all to end
_LONGEST_LINE = 1 << 16  # bytes: what goes on without an end of line is printed in parts of so many
GRACE_S = 10.0
"""How long copies may take to end after SIGTERM, before they are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy of the program: its number from 0, its words, what is added to its environment, and its CPUs.

    The CPUs are None where it may use all that this process may.
    """

    number: int
    words: tuple[str, ...]
    env: Mapping[str, str]
    cpus: frozenset[int] | None

    def apply_mask(self) -> None:
        """Keep the calling process to the copy's CPUs; raises BadInputError where they are gone."""
        if self.cpus is None:
            return
        try:
            os.sched_setaffinity(0, self.cpus)
        except OSError as error:
            raise BadInputError(
                f"copy {self.number} cannot be kept to CPUs {format_list(self.cpus)}: {error.strerror}",
                "search again on this machine, or allow these CPUs",
            ) from error


def copies(deployment: Deployment, words: Sequence[str]) -> list[Copy]:
    """Return the copies of a program that a deployment asks for.

    Their numbers are put in the place of `{instance}`, sums with them in the place of such as `{8500+instance}`, and
    the names of an ensemble's models in the place of `{model}`. What the program's own code has to be given, such as
    `{batch_size}`, is put in its place too. A variable that the user's environment sets to another value than the
    measurement had stays. Raises BadInputError if they are to use CPUs that this process may not, for a number of two
    digits after other digits, and for a batch size that is not known.
    """
    _check_numbers(words, deployment.processes)
    allowed = os.sched_getaffinity(0)
    result = []
    for number in range(deployment.processes):
        text = deployment.cpus_of(number)
        cpus = None if text is None else parse_list(text)
        part = deployment.of(number)
        own = {_NUMBER: str(number)} | ({_NAME: part.name} if part.name else {})
        own |= {place(name): str(value) for name, value in part.arguments.items()}
        if BATCH not in own and BATCH_SIZE in placeholders(words):
            raise BadInputError(
                f"{BATCH} has no value, as the answer changes no batch size", "write the number instead"
            )
        if cpus is not None and cpus - allowed:
            raise BadInputError(
                f"the setting uses CPUs {text}, and this process may use {format_list(frozenset(allowed))}",
                "search again on this machine, or allow these CPUs",
            )
        result.append(
            Copy(
                number=number,
                words=tuple(_filled(_summed(word, number), own) for word in words),
                env={**_gpu_env(deployment), **_own_env(part), **own_variables(deployment, number)},
                cpus=cpus,
            )
        )
    return result


def place(name: str) -> str:
    """Return what stands for the value of an argument among the words of a program."""
    return f"{{{name}}}"


def unfilled(deployment: Deployment, words: Sequence[str]) -> set[str]:
    """Return the framework's knobs that stand in braces among the words of a program, and have no value.

    A batch size that has none is refused.
    """
    if deployment.framework not in registry.names() or deployment.members:
        return set()
    knobs = registry.find(deployment.framework).catalogue.knobs
    return (placeholders(words) & knobs.keys()) - {BATCH_SIZE, *deployment.arguments}


def without(deployment: Deployment, names: set[str]) -> Deployment:
    """Return a deployment without the arguments and options of knobs that stand among the words of a program."""
    is_known = deployment.framework in registry.names()
    knobs = registry.find(deployment.framework).catalogue.knobs if is_known else {}
    carriers = [knobs[name].carrier for name in names & knobs.keys()]
    options = {each.name for each in carriers if isinstance(each, Option)}
    return replace(
        deployment,
        arguments={name: value for name, value in deployment.arguments.items() if name not in names},
        options={name: value for name, value in deployment.options.items() if name not in options},
    )


def placed(deployment: Deployment) -> tuple[Deployment, list[str]]:
    """Return a deployment with its copies on cores that are here, and a note where these are not those of the study.

    A container is given other CPUs at each start. One with a share of a node's time owns none: its copies float.
    """
    if not deployment.cpu_sets:
        return deployment, []
    here, wanted = detect(), frozenset[int]().union(*map(parse_list, deployment.cpu_sets))
    is_quota = are_shared(here.cores, here.cpu_quota)
    if wanted <= os.sched_getaffinity(0) and not is_quota:
        return deployment, []
    nodes = list(here.numa_nodes.values())
    cpu_sets = core_sets(here.cores, nodes, deployment.processes, here.kind_by_core, quota=here.cpu_quota)
    if not cpu_sets and not is_quota:  # there are fewer cores than copies
        return deployment, []
    where = f"kept to CPUs {' | '.join(cpu_sets)}" if cpu_sets else "kept to no cores, as a CPU quota is less than all"
    note = f"the copies are {where} here, and were to {' | '.join(deployment.cpu_sets)} in the measurement"
    return replace(deployment, cpu_sets=cpu_sets), [note]


def _check_numbers(words: Sequence[str], n_copies: int) -> None:
    """Raise BadInputError for a word whose digits go on with the number of a copy where that has two digits."""
    for word in words:
        joined = _AFTER_DIGITS.search(word)
        if joined is not None and n_copies > _DIGITS:
            last = n_copies - 1
            raise BadInputError(
                f"{joined[0]} becomes {joined[1]}{last} for copy {last} of {n_copies}",
                f"write the sum {{{int(joined[1]) * 10}+instance}} instead of {joined[0]}",
            )


def _summed(word: str, number: int) -> str:
    """Return a word with the sums of numbers and that of its copy in their places."""
    return _SUM.sub(lambda found: str(int(found[1] or found[2]) + number), word)


def differences(deployment: Deployment) -> list[str]:
    """Return in what this process has less, or other, than what was measured, a note each; none where it is alike."""
    here = inherited.environment()
    parts = [deployment.of(number) for number in range(deployment.processes)]
    measured = {name: value for part in parts for name, value in part.inherited_env.items()}
    notes = [
        f"{name} is {here[name]} here, and was {value} in the measurement: unset it, or search again with it"
        for name, value in measured.items()
        if here.get(name, value) != value
    ]
    notes += left_out(deployment)
    own_sets = [deployment.cpus_of(number) for number in range(deployment.processes)]
    own_cpus = frozenset[int]().union(*(parse_list(text) for text in own_sets if text is not None))
    n_used = deployment.measured_cpus or 0.0
    n_used = n_used if None in own_sets else min(n_used, len(own_cpus))
    n_cpus, quota = len(os.sched_getaffinity(0)), read_limits().cpu_quota
    n_busy = n_cpus if quota is None else min(n_cpus, quota)
    used, busy = (f"{n:g} CPU{'' if n == 1 else 's'}" for n in (n_used, n_busy))
    if n_busy < n_used:
        notes.append(f"measured on {used}, and only {busy} may be busy here: search again under this limit")
    if n_busy > n_used > 0 and None in own_sets:
        limit = f"docker run --cpus={n_used:g}"
        notes.append(f"measured on {used}, and {busy} may be busy here: give it no more, e.g. {limit}")
    return notes


def not_passed_on(deployment: Deployment, words: Sequence[str]) -> list[str]:
    """Return which variables of a setting may not reach the program that a command starts, a note for each reason."""
    text = " ".join(words)
    names = sorted({name for number in range(deployment.processes) for name in _own_env(deployment.of(number))})
    own = [name for name in names if re.search(rf"(?<![\w$]){name}=(?!['\"]?\$)", text)]
    notes = [f"the command itself sets {' and '.join(own)}: remove that, or the setting does not apply"] if own else []
    dropped, starter = [name for name in names if name not in text], started_by(words)
    if starter and dropped:
        notes.append(f"{starter} may not pass on {', '.join(dropped)}: see that your program gets them")
    return notes


def left_out(deployment: Deployment) -> list[str]:
    """Return which variables this process has that trials did not inherit, as a note; none if the setting has them."""
    if deployment.framework not in registry.names():  # an earlier file does not say it
        return []
    _, names = registry.find(deployment.framework).catalogue.scrub(inherited.environment())
    parts = [deployment.of(number) for number in range(deployment.processes)]
    others = [name for name in names if any(name not in part.env for part in parts)]
    them = "them" if len(others) > 1 else "it"
    return [f"set here, and left out of the measurement: {', '.join(others)}; unset {them}"] if others else []


def unlike_copies(deployment: Deployment) -> list[str]:
    """Return how the cores of copies differ on this machine, as a note; none where they are alike."""
    differ = unlike(deployment.cpu_sets, detect().kind_by_core) if deployment.cpu_sets else None
    return [] if differ is None else [differ]


def _own_env(part: Deployment) -> dict[str, str]:
    """Return the variables of a process, without the inherited ones for which the user's environment has a value."""
    here = inherited.environment()
    return part.own_env | {name: value for name, value in part.inherited_env.items() if name not in here}


def _gpu_env(deployment: Deployment) -> dict[str, str]:
    """Return what shows a program its GPU; nothing where a scheduler or the user has said already which it may see."""
    is_shown = devices.named(deployment.device).visible in inherited.environment()
    return {} if is_shown else deployment.gpu_env


def _filled(word: str, values: Mapping[str, str]) -> str:
    """Return a word with values in their places."""
    for name, value in values.items():
        word = re.sub(rf"(?<!\$){re.escape(name)}", functools.partial(_value, value), word)  # ${…} is a shell's own
    return word


def _value(value: str, _: re.Match[str]) -> str:
    return value


def become(copy: Copy) -> NoReturn:
    """Go on as the program; raises BadInputError where it cannot be started."""
    copy.apply_mask()
    default_signals()
    try:
        os.execvpe(copy.words[0], copy.words, {**inherited.environment(), **copy.env})
    except OSError as error:
        raise BadInputError(f"cannot start {copy.words[0]}: {error.strerror}", "check its name and path") from error


def run_together(group: Sequence[Copy], *, keep_going: bool) -> int:
    """Run copies at the same time and return the worst of their exit codes, 128 + n for one that signal n ended.

    Their lines are printed with their numbers, and signals are passed on to all. Where one fails the others are ended,
    unless they are to `keep_going`; how those end does not count.
    """
    with Supervisor(group, keep_going=keep_going) as supervisor:
        return supervisor.run()


@dataclass(slots=True, kw_only=True)
class _Running:
    """A copy that was started: its guard, its process group once that is known, and how it ended."""

    copy: Copy
    guard: subprocess.Popen[bytes]
    lifeline: int
    group: int = 0
    code: int | None = None
    is_ended_for_another: bool = False
    """Whether it was ended because another copy had failed."""
    unread: dict[int, bytes] = field(default_factory=dict)


class Supervisor:
    """Runs several copies of a program."""

    def __init__(self, group: Sequence[Copy], *, keep_going: bool) -> None:
        self._copies = group
        self._keep_going = keep_going
        self._running: list[_Running] = []
        self._selector = selectors.DefaultSelector()
        self._is_ending = False
        self._sent: list[signal.Signals] = []
        """What all copies are to be sent, those that are yet to start as well."""
        self._kill_at_s: float | None = None
        """When copies that were asked to end are killed."""
        self._restored: dict[int, object] = {}

    def __enter__(self) -> Supervisor:
        for number in _FORWARDED:
            self._restored[number] = signal.signal(number, self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running:
            with contextlib.suppress(OSError):
                os.close(running.lifeline)
            running.guard.wait()
        for number, handler in self._restored.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from there
        self._selector.close()

    def run(self) -> int:
        """Start all, and wait until all have ended."""
        for copy in self._copies:
            self._start(copy)
        while self._selector.get_map():
            timeout = None if self._kill_at_s is None else max(0.0, self._kill_at_s - time.monotonic())
            ready = self._selector.select(timeout)
            for key, _ in ready:
                key.data()
            if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
                self._kill()
        return max(_exit_code(each.code) for each in self._running if not each.is_ended_for_another)

    def _start(self, copy: Copy) -> None:
        original_mask = os.sched_getaffinity(0)
        copy.apply_mask()  # its guard and the program inherit it
        lifeline_read, lifeline = os.pipe()
        status, status_write = os.pipe()
        guard = [sys.executable, "-I", "-S", *boot_arguments(CHILD, "guard"), str(lifeline_read), str(status_write)]
        try:
            process = subprocess.Popen(
                [*guard, "0", *copy.words],
                env={**inherited.environment(), **copy.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(lifeline_read, status_write),
                start_new_session=True,
            )
        finally:
            os.sched_setaffinity(0, original_mask)
            os.close(lifeline_read)
            os.close(status_write)
        running = _Running(copy=copy, guard=process, lifeline=lifeline)
        self._running.append(running)
        assert process.stdout is not None  # they are pipes
        assert process.stderr is not None
        self._watch(status, lambda: self._read_status(running, status))
        for source, target in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
            self._watch(source.fileno(), self._reader(running, source, target))

    def _watch(self, descriptor: int, read: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, read)

    def _reader(self, running: _Running, source: IO[bytes], target: IO[bytes]) -> Callable[[], None]:
        """Return what reads more of an output and prints the whole lines that are there."""
        descriptor = source.fileno()

        def read() -> None:
            chunk = os.read(descriptor, 1 << 16)
            *lines, rest = (running.unread.get(descriptor, b"") + chunk).split(b"\n")
            if not chunk:
                self._selector.unregister(descriptor)
                source.close()
            if rest and (not chunk or len(rest) >= _LONGEST_LINE):
                lines, rest = [*lines, rest], b""
            running.unread[descriptor] = rest
            try:
                for line in lines:
                    target.write(b"[%d] %s\n" % (running.copy.number, line))
                target.flush()
            except OSError:  # nobody reads it any more, and the program goes on
                _discard(target)

        return read

    def _read_status(self, running: _Running, descriptor: int) -> None:
        """Take note of where a copy runs, and of how it ended."""
        chunk = os.read(descriptor, 1 << 16)
        for line in chunk.splitlines():
            message = json.loads(line)
            if "pid" in message:
                running.group = int(message["pid"])
                for number in self._sent:
                    self._send_to(running, number)
            else:
                self._ended(running, message.get("returncode"))
        if not chunk:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            if running.code is None:  # the guard was killed, and the program with it, but not what that has started
                self._send_to(running, signal.SIGKILL)
                self._ended(running, -signal.SIGKILL)

    def _ended(self, running: _Running, code: int | None) -> None:
        """Take note of how a copy ended, and let the others end where it failed and nobody has asked all to end."""
        running.code = 1 if code is None else code
        if running.code and not self._keep_going and not set(_ENDING) & set(self._sent):
            self._end(running)

    def _end(self, failed: _Running) -> None:
        """Let the others end after one that failed."""
        if not self._is_ending:
            self._is_ending = True
            others = [running for running in self._running if running.code is None]
            self._kill_at_s = time.monotonic() + GRACE_S
            for running in others:
                running.is_ended_for_another = True
            if others:
                how = f"copy {failed.copy.number} {ended_text(failed.code)}"
                sys.stderr.write(f"tftune: {how}; tftune now ends the others (--keep-going lets them run)\n")
                sys.stderr.flush()
            self._send(signal.SIGTERM)

    def _forward(self, number: int, _: FrameType | None) -> None:
        """Pass a signal on."""
        self._send(signal.Signals(number))

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to all copies; those whose process is not known yet get it when it is."""
        self._sent.append(number)
        for running in self._running:
            self._send_to(running, number)

    def _send_to(self, running: _Running, number: signal.Signals) -> None:
        if running.group and running.code is None:
            with contextlib.suppress(ProcessLookupError):
                try:
                    os.killpg(running.group, number)
                except ProcessLookupError:  # it has not made a group of its own yet
                    os.kill(running.group, number)

    def _kill(self) -> None:
        """Kill what has not ended in time."""
        self._kill_at_s = None
        for running in self._running:
            if running.code is None:
                os.close(running.lifeline)
                running.lifeline = os.open(os.devnull, os.O_RDONLY)


def _discard(stream: IO[bytes]) -> None:
    """Let what is yet written to a stream vanish."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)


def _exit_code(code: int | None) -> int:
    """Return an exit code as a shell has it; a copy of which nothing is known has failed."""
    if code is None:
        return 1
    return 128 - code if code < 0 else code
