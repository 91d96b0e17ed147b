"""Affinities as the runtime's own OpenMP library takes them: refused where it refuses, one where it binds alike."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import BadInputError
from tuner.machine.host import Machine
from tuner.machine.libraries import INTEL_OPENMP, intel_openmp
from tuner.runtime.openmp import VARIABLES, Binding, bind, rejections
from tuner.runtime.probe import Runtime
from tuner.space.baseline import BASELINES
from tuner.space.catalogue import KNOBS
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinities:
    """The OpenMP library of a runtime on a machine, asked once for each value."""

    machine: Machine
    runtime: Runtime
    libraries: Mapping[str, str]

    def binding(self, setting: Setting, deployment: Deployment) -> Binding | None:
        """Return where a setting's OpenMP threads are bound, None where the runtime uses no OpenMP library."""
        bundled = self.runtime.openmp_library
        if bundled is None:
            return None
        chosen = str(setting.to_dict().get("openmp_library", "bundled"))
        library = Path(self.libraries[INTEL_OPENMP]) if chosen == INTEL_OPENMP else Path(bundled)
        # The team of a second operator goes on where the first one's ended: every place that there is may be taken.
        n_threads = max(int(setting.to_dict().get("omp_num_threads", 1)), self.machine.logical_cpus)
        asked = {name: deployment.env[name] for name in VARIABLES if name in deployment.env}
        return bind(library, asked, n_threads=n_threads, cpus=deployment.cpus)

    def same(self) -> Callable[[str], str]:
        """Return what gives one spelling for all KMP_AFFINITY values that bind alike here: the guides' comes first."""
        library = self.runtime.openmp_library
        known: dict[object, str] = {}

        def spelling(value: str) -> str:
            if library is None:
                return value
            bound = bind(Path(library), {"KMP_AFFINITY": value}, n_threads=self.machine.logical_cpus)
            # What the library refuses is not the same as anything: it is refused later, in its own words.
            return value if rejections(bound.warnings) else known.setdefault(bound.cpus, value)

        for value in ["none", *_recommended(self.machine)]:
            spelling(value)
        return spelling

    def missing(self) -> str | None:
        """Return why threads cannot be bound at all on this machine, None if they can."""
        library = self.runtime.openmp_library
        if library is None:
            return None
        refused = rejections(bind(Path(library), {"KMP_AFFINITY": "granularity=fine,compact"}, n_threads=1).warnings)
        return f"the OpenMP library binds no threads here: {refused[0]}" if refused else None

    def check(self, space: Space) -> None:
        """Raise BadInputError for a value that the OpenMP library refuses, before anything is measured."""
        self._check([*space.baselines.values(), *space.points], space.domains)

    def check_one(self, setting: Setting) -> None:
        """Raise BadInputError where the OpenMP library refuses a value of this setting."""
        self._check([setting], setting.to_dict())

    def _check(self, settings: Sequence[Setting], named: Container[str]) -> None:
        for name in ("kmp_affinity", "omp_proc_bind", "omp_places"):
            if name in named:
                for value, cpus in dict.fromkeys((str(s[name]), s.to_dict().get("cpus")) for s in settings):
                    self._check_value(name, value, None if cpus is None else str(cpus))

    def _check_value(self, name: str, value: str, cpus: str | None) -> None:
        library = self.runtime.openmp_library
        if library is None:
            return
        asked = KNOBS[name].carrier.deploy(value, self.libraries).env
        bound = bind(Path(library), asked, n_threads=2, cpus=cpus)
        _insist(bound, name, f"{name}={value} is refused by {library}")


def _recommended(machine: Machine) -> Iterable[str]:
    return [str(rule["kmp_affinity"]) for each in BASELINES if "kmp_affinity" in (rule := each.rule(machine))]


def _insist(bound: Binding, name: str, problem: str) -> None:
    """Raise BadInputError with `problem` and the library's own words where it refused a value of the knob."""
    refused = rejections(bound.warnings)
    if refused:
        values = KNOBS[name].values
        raise BadInputError(f"{problem}: {refused[0]}", values.expected if isinstance(values, Words) else "")


def where(value: str, machine: Machine, *, n_threads: int) -> tuple[Path, Binding]:
    """Return the intel-openmp package's library, and where it would bind `n_threads` threads under KMP_AFFINITY.

    Raises BadInputError where it refuses the value.
    """
    KNOBS["kmp_affinity"].parse(value, machine)
    library = intel_openmp()
    if library is None:
        raise BadInputError("the intel-openmp package is not installed", "it is there for x86-64 only")
    bound = bind(library, {"KMP_AFFINITY": value}, n_threads=n_threads)
    _insist(bound, "kmp_affinity", f"KMP_AFFINITY={value} is refused by {library.name}")
    return library, bound
