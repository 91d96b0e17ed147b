"""Snippets that apply a setting: one function a format, each accepted by what reads it."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tuner.devices import registry as devices
from tuner.devices.device import Container
from tuner.errors import BadInputError
from tuner.machine.coresets import unlike
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.quantity import gib_text
from tuner.space.deployment import PRELOAD, Deployment

INSTANCE = "TFTUNE_INSTANCE"
"""The variable that tells a process of several its number, from 0."""
MODEL = "TFTUNE_MODEL"
"""The variable that tells a process of an ensemble the name of its model."""
_FUNCTION, _CPUS = "tftune_instances", "TFTUNE_CPUS"
_XLA, _BATCHING_FOLDER = "TF_XLA_FLAGS", "/etc/batching"
BATCH_SIZE = "batch_size"
_MEMORY_MARGIN = 1.25  # of the measured peak
_FEWEST_CALLERS = 64
_USUAL_ENQUEUED = 10  # the server's own default
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


class Format(StrEnum):
    """What reads the snippet."""

    SH = "sh"
    DOTENV = "dotenv"
    DOCKER = "docker"
    COMPOSE = "compose"
    K8S = "k8s"
    SYSTEMD = "systemd"
    TFSERVING = "tfserving"
    TFSERVING_K8S = "tfserving-k8s"
    PYTHON = "python"
    JSON = "json"


SERVING = frozenset({Format.TFSERVING, Format.TFSERVING_K8S})
"""The formats of TensorFlow's own server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """A framework's own ways to apply a setting: see `tuner.frameworks.framework`."""

    session: Session = lambda _: []  # of a framework whose settings are all variables
    server_flags: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How TensorFlow Serving makes batches of requests: `BatchingParameters` of its session_bundle_config.proto.

    A batch has `max_batch_size` items at most. One that is not full begins once a thread is free and its first request
    has waited for `timeout_us`; None where no wait was measured. `threads` is how many batches run at once. What comes
    when `enqueued` batches wait for that is refused; None for a queue that holds what all threads can have taken.
    """

    max_batch_size: int
    timeout_us: int | None = None
    threads: int = 1
    enqueued: int | None = None

    @property
    def parameters(self) -> list[str]:
        """Return the lines of its --batching_parameters_file; the last of the allowed sizes has to be the maximum."""
        doubled = (1 << n for n in range((self.max_batch_size - 1).bit_length()))
        held = max(_USUAL_ENQUEUED, math.ceil(2 * self.callers / self.max_batch_size))  # gRPC's and REST's
        return [
            f"max_batch_size {{ value: {self.max_batch_size} }}",
            f"batch_timeout_micros {{ value: {self.timeout_us or 0} }}",
            f"num_batch_threads {{ value: {self.threads} }}",
            f"max_enqueued_batches {{ value: {self.enqueued or held} }}",
            *(f"allowed_batch_sizes: {size}" for size in (*doubled, self.max_batch_size)),
        ]

    @property
    def callers(self) -> int:
        """Return how many threads take requests, as each waits for its batch: enough for two of each batch thread."""
        return max(_FEWEST_CALLERS, 2 * self.max_batch_size * self.threads)


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

    def whole(self, deployment: Deployment) -> float | None:
        """Return how many CPUs all processes of a deployment together could keep busy; None where that is not known."""
        sets = [deployment.cpus_of(number) for number in range(deployment.processes)]
        own = None if None in sets else len(frozenset[int]().union(*(parse_list(cpus) for cpus in sets if cpus)))
        return min((each for each in (self.busy_cpus, own) if each is not None), default=None)

    def cpus_each(self, deployment: Deployment) -> list[float | None]:
        """Return how many CPUs each process of a deployment could keep busy: no more than it was kept to, or its share.

        Those that have the same CPUs share them, and a quota is shared in proportion to their CPUs, or to their shares
        of the cores. In thousandths.
        """
        total = self.whole(deployment)
        parts = [(deployment.cpus_of(number), deployment.of(number).share) for number in range(deployment.processes)]
        widths = [share or self.n_cpus if cpus is None else len(parse_list(cpus)) for cpus, share in parts]
        sum_of_widths = sum(width or 0 for width in widths)
        if total is None:
            return widths
        return [None if width is None else _thousandths(total * (width / sum_of_widths)) for width in widths]

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
    whose value is the number of CPUs. `model` is the name of the workload. `memory_bytes`, the most that a process was
    seen to hold, and `batching`, how a server makes batches, are None where that is not known.
    """

    deployment: Deployment
    heading: list[str]
    options: list[str] = field(default_factory=list)
    limit: CpuLimit
    container: Container | None = None
    ways: Ways = field(default_factory=Ways)
    cpu_limited: Collection[str] = ()
    model: str = ""
    memory_bytes: float | None = None
    batching: Batching | None = None

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
    model: str = "",
    memory_bytes: float | None = None,
    batching: Batching | None = None,
) -> str:
    """Return the snippet for `deployment`, ending in a newline; `title` is its first comment, where it can have one.

    `facts` are further comments: what is gained, and where that holds. `ways` are the framework's own, of which most
    formats have no use. `machine` is what the setting was measured on, whose limits containers and services are given,
    and `cpu_limited` are variables whose value is the number of CPUs, whatever that is. `better` is what was proven to
    be better, and `whole` the ensemble that is one member of. `model`, `memory_bytes` and `batching` are those of
    `_Snippet`; without the last a batch size that is set makes one.
    Raises BadInputError for a format that cannot carry it.
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
            model=deployment.name or model,
            memory_bytes=memory_bytes,
            batching=_batching(deployment) if batching is None else batching,
        )
    )


def _batching(deployment: Deployment) -> Batching | None:
    """Return how batches of the size that is set are made; None where none is set."""
    size = deployment.arguments.get(BATCH_SIZE)
    return None if size is None else Batching(max_batch_size=int(size), threads=deployment.streams)


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
    if name != BATCH_SIZE:
        return f"Give the program {name} = {value} among its words, in place of {{{name}}}"
    return f"Set the batch size in your own code: {value}"


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
    return notes + _call_notes(deployment)


def code_notes(deployment: Deployment) -> list[str]:
    """Return what is left to do in the program's own code once its variables, CPUs and copies are there."""
    notes = [option_note(name, value) for name, value in deployment.options.items()]
    for member in deployment.members:
        notes += [f"{member.name}: {option_note(name, value)}" for name, value in member.options.items()]
    return notes + _call_notes(deployment)


def _call_notes(deployment: Deployment) -> list[str]:
    """Return what to do about calls at the same time, a batch that is shared, and arguments."""
    notes = [streams_note(deployment.streams)] if deployment.streams > 1 else []
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
    if deployment.processes > 1:
        notes.append(f"Then start your program with: {_FUNCTION} python serve.py")
        port = f"$((8500 + {INSTANCE}))"
        notes.append(f"For a port each: {_FUNCTION} sh -c 'exec python serve.py --port {port}'")
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
    ports = ["All listen on the same port, each in a network of its own: publish it under one each, as 8500, 8501, …"]
    return _commented(snippet.notes + (ports if deployment.processes > 1 else []), lines)


def _double(value: str, *, escape_dollar: bool = False) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (text.replace("$", "\\$") if escape_dollar else text) + '"'


def _k8s(snippet: _Snippet) -> str:
    """An `env:` list for a container and its CPUs; every value is a string, as Kubernetes demands.

    What is to be the number of CPUs is taken from the container's limit (rounded up), so that it follows a change of
    it.
    """
    deployment, limit = snippet.deployment, snippet.limit
    notes = snippet.notes + _cpu_notes(deployment, "let its command begin with taskset -c {}.")
    notes += _container_notes(snippet)
    n_cpus = limit.least(deployment)
    lines = ["env:"] if deployment.env else ["env: []"]
    lines += _pod_env(deployment.env, snippet.cpu_limited)
    if deployment.processes > 1:
        # The number of a pod of a StatefulSet is one of its labels, from Kubernetes 1.28 on.
        number = "metadata.labels['apps.kubernetes.io/pod-index']"
        lines = lines if deployment.env else ["env:"]
        lines += [f"  - name: {INSTANCE}", "    valueFrom:", "      fieldRef:", f'        fieldPath: "{number}"']
        notes = [*notes, *_pod_notes(deployment, n_cpus)]
    lines += _resources(snippet, n_cpus)
    if deployment.processes > 1:
        one_pod = ["env: []", *_resources(snippet, limit.whole(deployment), deployment.processes)]
        lines += ["#", *(f"# {note}" for note in _ONE_POD), *(f"#   {line}" for line in one_pod)]
    return _commented(notes, lines)


def _container_notes(snippet: _Snippet) -> list[str]:
    """Return what to know of a container: what binds threads, its memory, and its device."""
    bound = " and ".join(name for name in snippet.deployment.env if name in _BINDING)
    notes = [f"{bound}: only if the pod has CPUs of its own (static CPU manager), else leave it out."] if bound else []
    if snippet.memory_bytes is not None:
        notes.append(f"Memory: the peak of a process, {gib_text(snippet.memory_bytes)}, and a quarter more.")
    return notes + ([snippet.container.note] if snippet.container is not None and snippet.container.note else [])


def _pod_env(env: Mapping[str, str], cpu_limited: Collection[str]) -> Iterator[str]:
    """Yield the entries of an `env:` list."""
    for name, value in env.items():
        yield f"  - name: {name}"
        if name in cpu_limited:
            yield from ("    valueFrom:", "      resourceFieldRef: {resource: limits.cpu}")
        else:
            yield f"    value: {json.dumps(value)}"


_ONE_POD = (
    "Or all processes in one pod, as they were measured: write the setting to a file of the image with",
    "tftune emit --instances --json > setting.json, let the container's command be",
    "tftune run setting.json -- YOUR_PROGRAM --port {8500+instance}, and instead of the above:",
)


def _resources(snippet: _Snippet, n_cpus: float | None, n_processes: int = 1) -> list[str]:
    """Return what a container of so many processes asks for.

    Whole CPUs, and as much requested as allowed, are what the static policy keeps for one pod alone.
    """
    gpu = "" if snippet.container is None else f", {snippet.container.kubernetes}: 1"
    if n_cpus is None:
        return ["resources:", f"  limits: {{{gpu.lstrip(', ')}}}"] if gpu else []
    peak = snippet.memory_bytes
    memory = "YOUR_MEMORY" if peak is None else f"{math.ceil(_MEMORY_MARGIN * n_processes * peak / 2**20)}Mi"
    return [
        "resources:",
        *(f'  {part}: {{cpu: "{n_cpus:g}", memory: {memory}{gpu}}}' for part in ("requests", "limits")),
    ]


def _pod_notes(deployment: Deployment, n_cpus: float | None) -> list[str]:
    """Return what pods of a process each are, and how their number relates to what was measured."""
    n, is_whole = deployment.processes, n_cpus is not None and n_cpus == int(n_cpus)
    nodes = ", on nodes whose CPU manager is static" if deployment.cpu_sets and is_whole else ""
    return [
        f"A pod each: a StatefulSet with replicas: {n}{nodes}.",
        _replicas_note(deployment, n_cpus),
        "All pods listen on the same port, each at an address of its own.",
    ]


def _replicas_note(deployment: Deployment, n_cpus: float | None) -> str:
    each = "" if n_cpus is None else f", each on its share of the CPUs: {n_cpus:g}"
    n = deployment.processes
    return f"The {n} were measured together{each}. An autoscaler may change their number: no other one was measured."


def _systemd(snippet: _Snippet) -> str:
    """`Environment=` lines; % begins a specifier there and is doubled. Of several processes a whole template unit."""
    deployment, limit, notes = snippet.deployment, snippet.limit, snippet.notes
    lines = [f"Environment={_double(f'{n}={v}').replace('%', '%%')}" for n, v in deployment.env.items()]
    if limit.quota is not None:
        lines.append(f"CPUQuota={100 * (limit.least(deployment) or 0.0):g}%")
    cpus = deployment.cpus or limit.mask
    if cpus is not None and not deployment.cpu_sets:
        lines.append(f"CPUAffinity={cpus}")
    if deployment.processes == 1:
        return _commented(notes, lines)
    pinned = f"/usr/bin/taskset -c ${{{_CPUS}_%i}} " if deployment.cpu_sets else ""
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
        f"ExecStart={pinned}YOUR_PROGRAM",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    starts = " ".join(f"NAME@{number}" for number in range(deployment.processes))
    notes.append("For a port each, write /bin/sh -c 'exec YOUR_PROGRAM --port $$((8500 + %i))' for YOUR_PROGRAM.")
    return _commented([*notes, f"Save this as NAME@.service, and start it with: systemctl start {starts}"], unit)


def _server_flags(snippet: _Snippet) -> tuple[list[str], dict[str, str]]:
    """Return the flags of TensorFlow Serving that go before variables, and the other variables.

    A flag whose variable is the number of CPUs names that variable as Kubernetes does, and it stays among the others.
    XLA compiles nothing on the CPU of the server without its own flag (model_servers/main.cc).
    """
    env, named = snippet.deployment.env, snippet.ways.server_flags
    if not named:
        raise BadInputError("TensorFlow Serving is for TensorFlow's settings", "use another --format")
    flags = [
        f"{flag}=$({name})" if name in snippet.cpu_limited else f"{flag}={env[name]}"
        for name, flag in named.items()
        if name in env
    ]
    flags += ["--xla_cpu_compilation_enabled"] if _XLA in env else []
    return flags, {name: env[name] for name in env if name not in named or name in snippet.cpu_limited}


def _serving_notes(snippet: _Snippet, *done: str) -> list[str]:
    """Return the comments of a server: without what is `done`, and with what a study in Python cannot know."""
    deployment = snippet.deployment
    done = (*done, *(argument_note(name, value) for name, value in deployment.arguments.items() if name == BATCH_SIZE))
    done = done if snippet.batching is None else (*done, streams_note(deployment.streams))
    return [
        *(note for note in snippet.heading + snippet.options if note not in done),
        "TensorFlow Serving makes a session of its own. Its flags count, not the variables.",
        "It was measured in Python, not in the server: docs/serve_rest.py measures that.",
    ]


def _tfserving(snippet: _Snippet) -> str:
    """The command line of TensorFlow Serving: its flags make session options, which go before the variables."""
    deployment, batching = snippet.deployment, snippet.batching
    flags, others = _server_flags(replace(snippet, cpu_limited=()))
    notes = _serving_notes(snippet) + _cpu_notes(deployment, "start it with taskset -c {}.")
    if batching is not None:
        parameters = " ".join(batching.parameters)
        notes.append(f"For batches add --enable_batching --batching_parameters_file=FILE; it holds: {parameters}")
    if deployment.cpu_sets:
        starts = ", ".join(f"taskset -c {cpus}" for cpus in deployment.cpu_sets)
        notes.append(f"Start {deployment.processes} of it, each with a --port of its own, by: {starts}.")
    lines = [f"export {name}={shlex.quote(value)}" for name, value in others.items()]
    lines.append(" \\\n  ".join(["tensorflow_model_server", *flags, '"$@"']))
    return _commented(notes, lines)


def _tfserving_k8s(snippet: _Snippet) -> str:
    """A Deployment of TensorFlow Serving's image, whose entry point appends `args:`, and its batching file."""
    deployment, n_cpus = snippet.deployment, snippet.limit.least(snippet.deployment)
    flags, others = _server_flags(snippet)
    name = re.sub(r"[^a-z0-9]+", "-", snippet.model.lower()).strip("-")[:50].strip("-")
    name = name if name[:1].isalpha() else f"model-{name}".strip("-")  # as names of services begin
    files: list[str] = []
    mounts = ["- {name: models, mountPath: /models, readOnly: true}"]
    volumes = ["- {name: models, persistentVolumeClaim: {claimName: models, readOnly: true}}"]
    if snippet.batching is not None:
        flags += ["--enable_batching", f"--batching_parameters_file={_BATCHING_FOLDER}/batching.config"]
        flags += [f"--{flag}={snippet.batching.callers}" for flag in ("grpc_max_threads", "rest_api_num_threads")]
        mounts.append(f"- {{name: batching, mountPath: {_BATCHING_FOLDER}, readOnly: true}}")
        volumes.append(f"- {{name: batching, configMap: {{name: {name}-batching}}}}")
        untimed = ["# 0 waits for nobody; docs/serve_rest.py shows whether a wait is better."]
        files = [
            *("apiVersion: v1", "kind: ConfigMap", f"metadata: {{name: {name}-batching}}", "data:"),
            "  batching.config: |",
            *_indented(4, (untimed if snippet.batching.timeout_us is None else []) + snippet.batching.parameters),
            "---",
        ]
    image = "tensorflow/serving" if snippet.container is None else "tensorflow/serving:latest-gpu"
    lines = [
        *files,
        *("apiVersion: apps/v1", "kind: Deployment", f"metadata: {{name: {name}}}", "spec:"),
        f"  replicas: {deployment.processes}",
        f"  selector: {{matchLabels: {{app: {name}}}}}",
        "  template:",
        f"    metadata: {{labels: {{app: {name}}}}}",
        "    spec:",
        "      containers:",
        "        - name: serving",
        f"          image: {image}",
        *(["          args:"] if flags else []),
        *_indented(12, [f"- {json.dumps(flag)}" for flag in flags]),
        "          env:",
        *_indented(10, _pod_env({"MODEL_NAME": name, **others}, snippet.cpu_limited)),
        "          ports: [{name: grpc, containerPort: 8500}, {name: rest, containerPort: 8501}]",
        f"          readinessProbe: {{httpGet: {{path: /v1/models/{name}, port: rest}}}}",
        *_indented(10, _resources(snippet, n_cpus)),
        "          volumeMounts:",
        *_indented(12, mounts),
        "      volumes:",
        *_indented(8, volumes),
    ]
    claim = f"The model is {name}/1 in the claim `models`. Give the image the tag of the TensorFlow that was measured."
    notes = [*_serving_notes(snippet, processes_note(deployment)), *_container_notes(snippet), claim]
    if deployment.processes > 1:
        notes.append(_replicas_note(deployment, n_cpus))
    if kept := deployment.cpus or " | ".join(deployment.cpu_sets):
        notes.append(f"It was kept to CPUs {kept}: a pod has CPUs of its own only if the node's CPU manager is static.")
    return _commented(notes, lines)


def _indented(n: int, lines: Iterable[str]) -> list[str]:
    return [" " * n + line for line in lines]


def _python(snippet: _Snippet) -> str:
    deployment, ways, notes = snippet.deployment, snippet.ways, snippet.heading
    session = ways.session(deployment)
    calls = [call.format(deployment.env[name]) for name, call in ways.calls.items() if name in deployment.env]
    if calls:
        notes = [*notes, f"If the variables cannot be set: {'; '.join(calls)}"]
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
    Format.TFSERVING_K8S: _Writer(_tfserving_k8s, gpu_env=lambda *_: {}),
    Format.PYTHON: _Writer(_python),
    Format.JSON: _Writer(_json, is_whole=True, speaks_of_several=True),
}
