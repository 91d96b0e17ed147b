"""Affinities as the runtime's own OpenMP library takes them: refused where it refuses, one where it binds alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import BadInputError
from tuner.machine.host import Machine
from tuner.machine.libraries import INTEL_OPENMP, intel_openmp
from tuner.runtime.openmp import VARIABLES, Binding, bind, rejections
from tuner.runtime.probe import Runtime
from tuner.space.baseline import BASELINES
from tuner.space.catalogue import KNOBS
from tuner.space.setting import Setting
from tuner.space.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinities:
    """The OpenMP library of a runtime on a machine, asked once for each value."""

    machine: Machine
    runtime: Runtime
    libraries: Mapping[str, str]

    def binding(self, setting: Setting, env: Mapping[str, str]) -> Binding | None:
        """Return where a setting's OpenMP threads are bound, None where the runtime uses no OpenMP library."""
        bundled = self.runtime.openmp_library
        if bundled is None:
            return None
        chosen = str(setting.to_dict().get("openmp_library", "bundled"))
        library = Path(self.libraries[INTEL_OPENMP]) if chosen == INTEL_OPENMP else Path(bundled)
        n_threads = int(setting.to_dict().get("omp_num_threads", self.machine.physical_cores))
        return bind(library, {name: env[name] for name in VARIABLES if name in env}, n_threads=n_threads)

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

    def check(self, space: Space) -> None:
        """Raise BadInputError for a value that the OpenMP library refuses, before anything is measured."""
        settings = [*space.baselines.values(), *space.points]
        for name in ("kmp_affinity", "omp_proc_bind", "omp_places"):
            for value in dict.fromkeys(setting[name] for setting in settings if name in space.domains):
                self._check_value(name, str(value))

    def _check_value(self, name: str, value: str) -> None:
        library = self.runtime.openmp_library
        if library is None:
            return
        refused = rejections(bind(Path(library), {KNOBS[name].variable: value}, n_threads=2).warnings)
        if refused:
            raise BadInputError(
                f"{name}={value} is refused by {library}: {refused[0]}", f"expected e.g. {KNOBS[name].example}"
            )


def _recommended(machine: Machine) -> Iterable[str]:
    return [str(rule["kmp_affinity"]) for each in BASELINES if "kmp_affinity" in (rule := each.rule(machine))]


def where(value: str, *, n_threads: int) -> tuple[Path, Binding]:
    """Return the intel-openmp package's library, and where it would bind `n_threads` threads under KMP_AFFINITY.

    Raises BadInputError where it refuses the value.
    """
    library = intel_openmp()
    if library is None:
        raise BadInputError("the intel-openmp package is not installed", "it is there for x86-64 only")
    bound = bind(library, {"KMP_AFFINITY": value}, n_threads=n_threads)
    refused = rejections(bound.warnings)
    if refused:
        raise BadInputError(
            f"KMP_AFFINITY={value} is refused by {library.name}: {refused[0]}",
            f"expected e.g. {KNOBS['kmp_affinity'].example}",
        )
    return library, bound
