"""Snippets that apply a setting: one function a format, each accepted by what reads it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tuner.devices import registry as devices
from tuner.devices.device import Container
from tuner.errors import BadInputError
from tuner.machine.coresets import unlike
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.space.deployment import PRELOAD, Deployment

INSTANCE = "TFTUNE_INSTANCE"
"""The variable that tells a process of several its number, from 0."""
MODEL = "TFTUNE_MODEL"
"""The variable that tells a process of an ensemble the name of its model."""
_FUNCTION, _CPUS = "tftune_instances", "TFTUNE_CPUS"
_NOTHING = "Keep the defaults: there is nothing to set."
_ONE_PROCESS = "A single process keeps the defaults."
_ONLY_INHERITED = "Keep the defaults: there is nothing to set but the variables that they were measured with."
_ONLY_GPU = "Keep the defaults: there is nothing to set but the GPU that it was measured on."
_OWN_SESSION = "For the code that makes such a session, use --format python."

Session = Callable[[Deployment], list[str]]
"""Gives the lines of Python that make a framework's session as a deployment says."""
_BINDING = frozenset({"KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})
"""Variables that bind threads to CPUs, so that two programs on the same CPUs get into each other's way."""
_DOTENV_PLAIN = re.compile(r"[\w.,:/@%+=-]*")


def no_session(_: Deployment) -> list[str]:
    """Return nothing: of a framework whose settings are all variables."""
    return []


class Format(StrEnum):
    """What reads the snippet."""

    SH = "sh"
    DOTENV = "dotenv"
    DOCKER = "docker"
    COMPOSE = "compose"
    K8S = "k8s"
    SYSTEMD = "systemd"
    TFSERVING = "tfserving"
    PYTHON = "python"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """A framework's own ways to apply a setting: see `tuner.frameworks.framework`."""

    session: Session = no_session
    server_flags: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLimit:
    """What limited the processes that were measured: `quota` (CPUs), and `mask` where it is less than the host.

    `n_cpus` is how many CPUs that leaves, of whatever host; all are None where that is not known.
    """

    quota: float | None = None
    mask: str | None = None
    n_cpus: float | None = None

    @classmethod
    def of(cls, machine: Machine | None) -> CpuLimit:
        """Return the limit of a machine, none where it is not known."""
        if machine is None:
            return cls()
        mask = machine.affinity if machine.logical_cpus < machine.online_cpus else None
        return cls(quota=machine.cpu_quota, mask=mask, n_cpus=machine.logical_cpus)

    @property
    def busy_cpus(self) -> float | None:
        """Return how many CPUs could be busy at once; None where that is not known."""
        return min((each for each in (self.quota, self.n_cpus) if each is not None), default=None)

    def cpus_each(self, deployment: Deployment) -> list[float | None]:
        """Return how many CPUs each process of a deployment could keep busy: no more than it was kept to, or its share.

        Those that have the same CPUs share them, and a quota is shared in proportion to their CPUs. In thousandths.
        """
        sets = [deployment.cpus_of(number) for number in range(deployment.processes)]
        widths = [self.n_cpus if cpus is None else len(parse_list(cpus)) for cpus in sets]
        total = math.inf if self.busy_cpus is None else self.busy_cpus
        whole = sum(width or 0 for width in widths)
        return [None if width is None else _thousandths(min(width, total * (width / whole))) for width in widths]

    def of_member(self, ensemble: Deployment, name: str) -> CpuLimit:
        """Return the limit of one member of an ensemble: its share."""
        share = dict(zip((each.name for each in ensemble.members), self.cpus_each(ensemble), strict=True))[name]
        return CpuLimit(quota=None if self.quota is None else share, mask=self.mask, n_cpus=share)

    def least(self, deployment: Deployment) -> float | None:
        """Return the least of what each process could keep busy; None where that is not known."""
        return min((share for share in self.cpus_each(deployment) if share is not None), default=None)

    def docker_options(self, deployment: Deployment) -> list[str]:
        """Return the options of `docker run` that limit a container as its process was limited, beside its own CPUs."""
        options = [] if self.quota is None else [f"--cpus={self.least(deployment):g}"]
        has_own = bool(deployment.cpus or deployment.cpu_sets)
        return options + ([] if self.mask is None or has_own else [f"--cpuset-cpus={self.mask}"])


def _thousandths(cpus: float) -> float:
    """Return a number of CPUs to the thousandth below, beside what was only a rounding error."""
    return math.floor(round(1000 * cpus, 6)) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snippet:
    """What a snippet is written from.

    `heading` says what the setting is, what it gains, and what is left to do; `options` is what is left to do about
    options of the session. `limit` limits the process, `container` gives it its device, and `cpu_limited` are variables
    whose value is the number of CPUs.
    """

    deployment: Deployment
    heading: list[str]
    options: list[str] = field(default_factory=list)
    limit: CpuLimit
    container: Container | None = None
    ways: Ways = field(default_factory=Ways)
    cpu_limited: Collection[str] = ()

    @property
    def notes(self) -> list[str]:
        """Return the comments of a format that makes no session."""
        return self.heading + self.options + ([_OWN_SESSION] if self.options else [])


@dataclass(frozen=True, slots=True)
class _Writer:
    """How a format is written.

    `gpu_env` gives the variables that show the program its GPU. A format that `is_whole` has them, and the name of the
    model, in its own words. One that `speaks_of_several` programs can have all members of an ensemble.
    """

    write: Callable[[_Snippet], str]
    gpu_env: Callable[[Deployment, Container], Mapping[str, str]] = lambda deployment, _: deployment.gpu_env
    is_whole: bool = False
    speaks_of_several: bool = False


def emit(
    deployment: Deployment,
    format_: Format,
    *,
    title: str,
    facts: Sequence[str] = (),
    ways: Ways = Ways(),  # frozen
    machine: Machine | None = None,
    cpu_limited: Collection[str] = (),
    better: str = "",
    whole: Deployment | None = None,
) -> str:
    """Return the snippet for `deployment`, ending in a newline; `title` is its first comment, where it can have one.

    `facts` are further comments: what is gained, and where that holds. `ways` are the framework's own, of which most
    formats have no use. `machine` is what the setting was measured on, whose limits containers and services are given,
    and `cpu_limited` are variables whose value is the number of CPUs, whatever that is. `better` is what was proven to
    be better, and `whole` the ensemble that is one member of. Raises BadInputError for a format that cannot carry it.
    """
    writer = _WRITERS[format_]
    if deployment.members and not writer.speaks_of_several:
        names = ", ".join(each.name for each in deployment.members)
        raise BadInputError(
            f"--format {format_} speaks of one program, and an ensemble has several",
            f"add --model with one of: {names}",
        )
    if machine is not None and machine.core_kinds and (differ := unlike(deployment.cpu_sets, machine.kind_by_core)):
        facts = [*facts, differ[0].upper() + differ[1:]]
    limit = CpuLimit.of(machine) if whole is None else CpuLimit.of(machine).of_member(whole, deployment.name)
    if deployment.members:
        heading = [title, *facts, *code_notes(deployment)]
        return writer.write(_Snippet(deployment=deployment, heading=heading, limit=limit))
    if deployment.name and not writer.is_whole:
        deployment = replace(deployment, env={**deployment.env, MODEL: deployment.name})
    heading = [title, *facts, *([better] if better else []), *_notes(deployment, is_best=not better)]
    container = None if deployment.gpu is None else devices.named(deployment.device).container(deployment.gpu)
    if container is not None and not writer.is_whole:
        deployment = replace(deployment, env={**writer.gpu_env(deployment, container), **deployment.env})
    return writer.write(
        _Snippet(
            deployment=deployment,
            heading=heading,
            options=[option_note(name, value) for name, value in deployment.options.items()],
            limit=limit,
            container=container,
            ways=ways,
            cpu_limited=cpu_limited,
        )
    )


def own_variables(deployment: Deployment, number: int) -> dict[str, str]:
    """Return the variables by which a process of several knows which one it is; none where there is only one."""
    own = {INSTANCE: str(number)} if deployment.processes > 1 else {}
    name = deployment.of(number).name
    return own | ({MODEL: name} if name else {})


def _starts(deployment: Deployment) -> list[str]:
    """Return a shell function that starts a program in each of several processes, and ends them all with itself.

    Without job control the shell lets what runs in the background ignore Ctrl-C, so that it is passed on as SIGTERM.
    """
    lines = []
    for number in range(deployment.processes):
        cpus = deployment.cpus_of(number)
        own = own_variables(deployment, number) | dict(deployment.of(number).env if deployment.members else {})
        words = [f"{name}={shlex.quote(value)}" for name, value in own.items()]
        words += [] if cpus is None else ["taskset", "-c", cpus]
        lines.append("  " + " ".join([*words, '"$@" & pids="$pids $!"']))
    return [
        f"{_FUNCTION}() (",
        "  pids= code=0",
        "  trap 'kill $pids 2>/dev/null' INT TERM HUP EXIT",
        *lines,
        '  for pid in $pids; do wait "$pid" || code=$?; done',
        '  exit "$code"',
        ")",
    ]


def option_note(name: str, value: int | str) -> str:
    """Return what to do about an option of the session: no variable carries it."""
    return f"Let your own code make the session with {name}: {value}"


def argument_note(name: str, value: int | str) -> str:
    """Return what to do about an argument: no variable carries it, so that the program itself has to be changed."""
    return f"Set the {name.replace('_', ' ')} in your own code: {value}"


def processes_note(deployment: Deployment) -> str:
    """Return what to do about several processes."""
    kept = f" and kept to its own CPUs: {', '.join(deployment.cpu_sets)}" if deployment.cpu_sets else ""
    return f"Run {deployment.processes} processes of the program at the same time, each with these settings{kept}."


def streams_note(n: int) -> str:
    """Return what to do about the number of concurrent calls."""
    return f"Let {n} threads of your own code call the model at the same time."


def shared_note(deployment: Deployment) -> str:
    """Return what to do about a batch that several processes share."""
    return (
        f"Split each batch of {deployment.shared_batch} items among the {deployment.processes} processes: it is "
        "answered when all have answered."
    )


def _notes(deployment: Deployment, *, is_best: bool) -> list[str]:
    """Return what is to be done; that nothing is, only of what `is_best`."""
    if not deployment:
        nothing = _ONLY_INHERITED if deployment.inherited else _NOTHING if deployment.gpu is None else _ONLY_GPU
        return [nothing if is_best else _ONE_PROCESS]
    notes = [] if deployment.own_env or deployment.options or deployment.cpus else ["Keep the default threads."]
    notes += [processes_note(deployment)] if deployment.processes > 1 else []
    notes += [streams_note(deployment.streams)] if deployment.streams > 1 else []
    notes += [shared_note(deployment)] if deployment.shared_batch else []
    return notes + [argument_note(name, value) for name, value in deployment.arguments.items()]


def code_notes(deployment: Deployment) -> list[str]:
    """Return what is left to do in the program's own code once its variables, CPUs and copies are there."""
    notes = [option_note(name, value) for name, value in deployment.options.items()]
    for member in deployment.members:
        notes += [f"{member.name}: {option_note(name, value)}" for name, value in member.options.items()]
    notes += [streams_note(deployment.streams)] if deployment.streams > 1 else []
    notes += [shared_note(deployment)] if deployment.shared_batch else []
    return notes + [argument_note(name, value) for name, value in deployment.arguments.items()]


def _cpu_notes(deployment: Deployment, how: str) -> list[str]:
    """Return the note on how to keep the program to its CPUs, if it is to be; `{}` is their list."""
    cpus = deployment.cpus
    return [] if cpus is None else [f"Restrict the program to CPUs {cpus}: " + how.format(cpus)]


def _commented(notes: list[str], lines: list[str]) -> str:
    return "\n".join([f"# {' '.join(note.split())}" for note in notes] + lines) + "\n"


def _sh(snippet: _Snippet) -> str:
    deployment = snippet.deployment
    notes = snippet.notes + _cpu_notes(deployment, "start it with taskset -c {}.")
    lines = [f"export {name}={shlex.quote(value)}" for name, value in deployment.env.items()]
    if deployment.cpu_sets or deployment.members:
        notes.append(f"Then start your program with: {_FUNCTION} python serve.py")
        lines += _starts(deployment)
    return _commented(notes, lines)


def _dotenv(snippet: _Snippet) -> str:
    """Single quotes where a value has characters that readers of the format take differently."""
    deployment = snippet.deployment
    notes = snippet.notes + _cpu_notes(deployment, "start it with taskset -c {}.")
    lines = [
        f"{name}={value if _DOTENV_PLAIN.fullmatch(value) else _single(value)}"
        for name, value in deployment.env.items()
    ]
    return _commented(notes, lines)


def _single(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _docker(snippet: _Snippet) -> str:
    deployment = snippet.deployment
    notes = snippet.notes + _cpu_notes(deployment, "docker run --cpuset-cpus={}.")
    options = snippet.limit.docker_options(deployment)
    if options:
        which = "Each container" if deployment.processes > 1 else "The container"
        notes.append(f"{which} needs no more than was measured: docker run {' '.join(options)}")
    if snippet.container is not None:
        notes.append(f"Give it its GPU, by its number there or here: docker run {snippet.container.docker}")
    lines = [f"ENV {name}={_double(value, escape_dollar=True)}" for name, value in deployment.env.items()]
    return _commented(notes, lines)


def _compose(snippet: _Snippet) -> str:
    """A service for each process; a `$` begins a variable in such a file and is doubled."""
    deployment, limit, container = snippet.deployment, snippet.limit, snippet.container
    lines = ["services:"]
    for number, share in enumerate(limit.cpus_each(deployment)):
        part, cpus = deployment.of(number), deployment.cpus_of(number) or limit.mask
        name = f"instance-{number}" if deployment.processes > 1 else "program"
        name = re.sub(r"[^\w.-]", "-", part.name) or name
        env = {**part.env, **own_variables(deployment, number)}
        lines += [f"  {name}:", "    image: YOUR_IMAGE"]
        lines += [] if cpus is None else [f'    cpuset: "{cpus}"']
        lines += [] if limit.quota is None else [f"    cpus: {share:g}"]
        lines += [] if container is None else [f"    {line}" for line in container.compose]
        lines += ["    environment:"] if env else []
        lines += [f"      {key}: {json.dumps(value).replace('$', '$$')}" for key, value in env.items()]
    return _commented(snippet.notes, lines)


def _double(value: str, *, escape_dollar: bool = False) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (text.replace("$", "\\$") if escape_dollar else text) + '"'


def _k8s(snippet: _Snippet) -> str:
    """An `env:` list for a container and its CPUs; every value is a string, as Kubernetes demands.

    What is to be the number of CPUs is taken from the container's limit (rounded up), so that it follows a change of
    it.
    """
    deployment, limit, container = snippet.deployment, snippet.limit, snippet.container
    notes = snippet.notes + _cpu_notes(deployment, "let its command begin with taskset -c {}.")
    bound = [name for name in deployment.env if name in _BINDING]
    if bound:
        notes.append(
            f"{' and '.join(bound)}: only where the pod has CPUs of its own (static CPU manager); else leave it out."
        )
    n_cpus = limit.least(deployment)
    lines = ["env:"] if deployment.env else ["env: []"]
    for name, value in deployment.env.items():
        lines.append(f"  - name: {name}")
        if name in snippet.cpu_limited:
            lines += ["    valueFrom:", "      resourceFieldRef: {resource: limits.cpu}"]
        else:
            lines.append(f"    value: {json.dumps(value)}")
    if deployment.cpu_sets:
        # The number of a pod of a StatefulSet is one of its labels, from Kubernetes 1.28 on.
        number = "metadata.labels['apps.kubernetes.io/pod-index']"
        lines = lines if deployment.env else ["env:"]
        lines += [f"  - name: {INSTANCE}", "    valueFrom:", "      fieldRef:", f'        fieldPath: "{number}"']
        nodes = ", on nodes whose CPU manager is static" if n_cpus == int(n_cpus or 0) else ""
        notes = [*notes, f"A pod each: a StatefulSet with replicas: {deployment.processes}{nodes}."]
    notes = [*notes, container.note] if container is not None and container.note else notes
    gpu = "" if container is None else f", {container.kubernetes}: 1"
    if n_cpus is not None:
        # Whole CPUs, and as much requested as allowed, are what the static policy keeps for one pod alone.
        lines += ["resources:"]
        lines += [f'  {part}: {{cpu: "{n_cpus:g}", memory: YOUR_MEMORY{gpu}}}' for part in ("requests", "limits")]
    elif gpu:
        lines += ["resources:", f"  limits: {{{gpu.lstrip(', ')}}}"]
    return _commented(notes, lines)


def _systemd(snippet: _Snippet) -> str:
    """`Environment=` lines; % begins a specifier there and is doubled. Of several processes a whole template unit."""
    deployment, limit, notes = snippet.deployment, snippet.limit, snippet.notes
    lines = [f"Environment={_double(f'{n}={v}').replace('%', '%%')}" for n, v in deployment.env.items()]
    if limit.quota is not None:
        lines.append(f"CPUQuota={100 * (limit.least(deployment) or 0.0):g}%")
    if not deployment.cpu_sets:
        cpus = deployment.cpus or limit.mask
        return _commented(notes, [*lines, *([] if cpus is None else [f"CPUAffinity={cpus}"])])
    numbers = range(deployment.processes)
    # Specifiers are replaced when the unit is read, variables when it starts: each instance finds its own CPUs.
    own_cpus = [f'Environment="{_CPUS}_{number}={cpus}"' for number, cpus in enumerate(deployment.cpu_sets)]
    unit = [
        "[Unit]",
        "Description=Instance %i of YOUR_PROGRAM",
        "",
        "[Service]",
        *lines,
        f'Environment="{INSTANCE}=%i"',
        *own_cpus,
        f"ExecStart=/usr/bin/taskset -c ${{{_CPUS}_%i}} YOUR_PROGRAM",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    starts = " ".join(f"NAME@{number}" for number in numbers)
    return _commented([*notes, f"Save this as NAME@.service, and start it with: systemctl start {starts}"], unit)


def _tfserving(snippet: _Snippet) -> str:
    """The command line of TensorFlow Serving: its flags make session options, which go before the variables."""
    deployment, ways = snippet.deployment, snippet.ways
    if not ways.server_flags:
        raise BadInputError("--format tfserving is for TensorFlow's settings", "use another --format")
    notes = snippet.heading + snippet.options + _cpu_notes(deployment, "start it with taskset -c {}.")
    notes.append("TensorFlow Serving makes a session of its own, so that its flags are what counts, not the variables.")
    if "batch_size" in deployment.arguments:
        size = deployment.arguments["batch_size"]
        notes = [note for note in notes if note != argument_note("batch_size", size)]
        notes.append(f"Start it with --enable_batching; set max_batch_size to {size} in --batching_parameters_file.")
    if deployment.cpu_sets:
        starts = ", ".join(f"taskset -c {cpus}" for cpus in deployment.cpu_sets)
        notes.append(f"Start {deployment.processes} of it, each with a --port of its own, by: {starts}.")
    flags = [f"{flag}={deployment.env[name]}" for name, flag in ways.server_flags.items() if name in deployment.env]
    others = {name: value for name, value in deployment.env.items() if name not in ways.server_flags}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in others.items()]
    lines.append(" \\\n  ".join(["tensorflow_model_server", *flags, '"$@"']))
    return _commented(notes, lines)


def _python(snippet: _Snippet) -> str:
    deployment, ways, notes = snippet.deployment, snippet.ways, snippet.heading
    session = ways.session(deployment)
    calls = [call.format(deployment.env[name]) for name, call in ways.calls.items() if name in deployment.env]
    if calls:
        notes = [*notes, f"Where the variables cannot be set: {'; '.join(calls)}"]
    lines = [f"os.environ[{json.dumps(name)}] = {json.dumps(value)}" for name, value in deployment.env.items()]
    if deployment.cpus is not None:
        lines.append(f"os.sched_setaffinity(0, {sorted(parse_list(deployment.cpus))})")
    if deployment.cpu_sets:
        sets = [sorted(parse_list(cpus)) for cpus in deployment.cpu_sets]
        lines.append(f'os.sched_setaffinity(0, {sets}[int(os.environ["{INSTANCE}"])])')
        notes = [*notes, f"Start each process with its number, from 0, in {INSTANCE}."]
    before = ["Run this before the framework is imported: it reads the variables once."] if lines else []
    if PRELOAD in deployment.env:
        before.append(f"{PRELOAD} has no effect from here: set it where the interpreter is started.")
    lines = ["import os", "", *lines] if lines else []
    return _commented(notes + before, [*lines, *([""] if lines and session else []), *session])


def _json(snippet: _Snippet) -> str:  # which has no comments
    return json.dumps(snippet.deployment.to_dict(), indent=2) + "\n"


_WRITERS = {
    Format.SH: _Writer(_sh, speaks_of_several=True),
    Format.DOTENV: _Writer(_dotenv),
    Format.DOCKER: _Writer(_docker, gpu_env=lambda _, container: container.env),
    Format.COMPOSE: _Writer(_compose, gpu_env=lambda _, container: container.env, speaks_of_several=True),
    Format.K8S: _Writer(_k8s, gpu_env=lambda *_: {}),  # its plugin shows a container the GPU that it asks for
    Format.SYSTEMD: _Writer(_systemd),
    Format.TFSERVING: _Writer(_tfserving),
    Format.PYTHON: _Writer(_python),
    Format.JSON: _Writer(_json, is_whole=True, speaks_of_several=True),
}
