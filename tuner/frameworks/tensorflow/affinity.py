"""Where an OpenMP build binds its threads: the values of those knobs, as the build's own library takes them.

A value that the library refuses is refused here, in its words, and values that bind alike are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.baselines import BASELINES
from tuner.frameworks.tensorflow.build import TensorFlowBuild
from tuner.machine.cpulist import parse_list
from tuner.machine.host import Machine
from tuner.machine.libraries import INTEL_OPENMP, intel_openmp
from tuner.machine.openmp import VARIABLES, Binding, bind, rejections
from tuner.space.common import first_node
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.values import Value, Words


def _on_first_node(machine: Machine) -> str | None:
    """Return the first node's CPUs as a list of OpenMP's: as the kernel counts, one thread per core comes first."""
    node = first_node(machine)
    listed = ",".join(str(cpu) for cpu in sorted(parse_list(node))) if node else ""
    return f"granularity=fine,proclist=[{listed}],explicit" if node else None


AFFINITY = Words(
    pattern=re.compile(
        r"((granularity=(fine|thread|core|tile|die|node|group|socket)|norespect|respect|verbose|noverbose|warnings"
        r"|nowarnings|proclist=\[[\d,\-{}:]+\]|reset|noreset),)*"
        r"(?!(no)?(respect|verbose|warnings|reset)\b)[a-z]+(,\d+){0,2}"
    ),
    example="none or granularity=fine,compact,1,0",
    holds_commas=True,
    presets={
        "none": lambda _: "none",
        # Neighbouring threads share a core where cores have several, or stand on neighbouring cores.
        "compact": lambda _: "granularity=fine,compact",
        # One thread per core first.
        "compact_cores": lambda m: "granularity=fine,compact,1,0" if m.threads_per_core > 1 else None,
        # Neighbouring threads stand on different sockets.
        "scatter": lambda m: "granularity=fine,scatter" if m.sockets > 1 else None,
        "one_node": _on_first_node,
    },
)
PROC_BIND = Words(words=("false", "true", "close", "spread", "primary", "master"))
PLACES = Words(
    pattern=re.compile(r"[a-z_]+(\(\d+\))?|\{[\d,:{}\-]+\}"),
    example="threads, cores, sockets or {0:4},{4:4}",
    holds_commas=True,
)
_BINDING = {"kmp_affinity": AFFINITY, "omp_proc_bind": PROC_BIND, "omp_places": PLACES}
"""The knobs that bind threads; each is carried by the variable of its own name, in capitals."""


def binding_of(
    build: TensorFlowBuild,
    machine: Machine,
    libraries: Mapping[str, str],
    values: Mapping[str, Value],
    deployment: Deployment,
) -> Binding | None:
    """Return where a setting's OpenMP threads are bound, None where the build uses no OpenMP library."""
    bundled = build.openmp_library
    if bundled is None:
        return None
    library_name = str(values.get("openmp_library", "bundled"))
    library = Path(libraries[INTEL_OPENMP]) if library_name == INTEL_OPENMP else Path(bundled)
    # The team of a second operator goes on where the first one's ended: every place that there is may be taken.
    n_threads = max(int(values.get("omp_num_threads", 1)), machine.logical_cpus)
    variables = {name: deployment.env[name] for name in VARIABLES if name in deployment.env}
    return bind(library, variables, n_threads=n_threads, cpus=deployment.cpus)


class AffinityCanonicalizer:
    """One spelling for all KMP_AFFINITY values that bind alike on a machine: the guides' comes first."""

    def __init__(self, build: TensorFlowBuild, machine: Machine) -> None:
        self._library = build.openmp_library
        self._n_threads = machine.logical_cpus
        self._known: dict[object, str] = {}
        for value in ["none", *_recommended(machine)]:
            self("kmp_affinity", value)

    def __call__(self, name: str, value: Value) -> Value:
        """Return the spelling of a knob's value; those of other knobs are left alone."""
        if name != "kmp_affinity" or self._library is None:
            return value
        bound = bind(Path(self._library), {"KMP_AFFINITY": str(value)}, n_threads=self._n_threads)
        # What the library refuses is not the same as anything: it is refused later, in its own words.
        return value if rejections(bound.warnings) else self._known.setdefault(bound.cpus, str(value))


def _recommended(machine: Machine) -> Iterable[str]:
    return [str(rule["kmp_affinity"]) for each in BASELINES if "kmp_affinity" in (rule := each.rule(machine))]


def why_unbindable(build: TensorFlowBuild) -> str | None:
    """Return why threads cannot be bound at all on this machine, None if they can."""
    library = build.openmp_library
    if library is None:
        return None
    refused = rejections(bind(Path(library), {"KMP_AFFINITY": "granularity=fine,compact"}, n_threads=1).warnings)
    return f"the OpenMP library cannot bind threads here: {refused[0]}" if refused else None


def check(build: TensorFlowBuild, settings: Sequence[Setting]) -> None:
    """Raise BadInputError for a value that the OpenMP library refuses, before anything is measured."""
    library = build.openmp_library
    if library is None:
        return
    for name in _BINDING:
        candidates = [values for setting in settings if name in (values := setting.to_dict())]
        for value, cpus in dict.fromkeys((str(values[name]), values.get("cpus")) for values in candidates):
            bound = bind(Path(library), {name.upper(): value}, n_threads=2, cpus=None if cpus is None else str(cpus))
            _raise_if_rejected(bound, name, f"{library} rejects {name}={value}")


def _raise_if_rejected(bound: Binding, name: str, problem: str) -> None:
    """Raise BadInputError with `problem` and the library's own words where it refused a value of the knob."""
    refused = rejections(bound.warnings)
    if refused:
        raise BadInputError(f"{problem}: {refused[0]}", _BINDING[name].expected)


def thread_binding(value: str, machine: Machine, *, n_threads: int) -> tuple[Path, Binding]:
    """Return the intel-openmp package's library, and where it would bind `n_threads` threads under KMP_AFFINITY.

    Raises BadInputError where it refuses the value.
    """
    AFFINITY.parse("kmp_affinity", value, machine)
    library = intel_openmp()
    if library is None:
        raise BadInputError(
            "the intel-openmp package is not installed", "pip install intel-openmp (available for x86-64 only)"
        )
    bound = bind(library, {"KMP_AFFINITY": value}, n_threads=n_threads)
    _raise_if_rejected(bound, "kmp_affinity", f"{library.name} rejects KMP_AFFINITY={value}")
    return library, bound
