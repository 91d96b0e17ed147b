"""What is asked of a framework, and of a build of it. A framework is one folder; `tuner.frameworks.registry` has them.

Its child code runs in the target interpreter. It is in its folder `child`: `adapter`, which `tuner.child.adapter`
describes, and `probe`. No framework is ever imported by the tuner's own process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from tuner.devices.device import Device
from tuner.errors import BadInputError, NoModeError
from tuner.machine.host import Machine
from tuner.machine.openmp import Binding
from tuner.space import auditing
from tuner.space.baseline import Baseline, WidthGuide
from tuner.space.catalogue import Catalogue
from tuner.space.deployment import Deployment
from tuner.space.experiment import Reach
from tuner.space.knob import Knob
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.workload.pyfile import INFERENCE
from tuner.workload.workload import Execution, Workload

F16, F32, TF32 = "f16", "f32", "tf32"
"""Precisions, as they are called here: half, single, and single with factors of products rounded to 10 bits."""

LOADER_AND_ALLOCATORS = ("LD_", "GLIBC_TUNABLES", "MALLOC_", "TCMALLOC_")
"""How variables begin that change the timings of any program."""


class Build(Protocol):
    """A framework as it is installed in the target interpreter."""

    @property
    def id(self) -> str:
        """Return a name that changes with whatever may change timings."""

    @property
    def title(self) -> str:
        """Return what it is called in a line, with its version."""

    @property
    def version(self) -> str:
        """Return the framework's own version."""

    @property
    def fork_refusal(self) -> str | None:
        """Return why its processes cannot be forked from one that has imported it, None if they can."""

    def to_dict(self) -> dict[str, Any]:
        """Return the build as plain data: with `framework`, the name of that, `id` and `python`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorKnobs:
    """The names of the knobs of an executor whose steps can be simulated (`tuner.model`).

    `slots` is how many operators run at once, `threads` those of the pool that all share, `team` those of OpenMP that
    each operator has, `blocktime` how long (ms) these spin, and `binding` where they are bound.
    """

    slots: str
    threads: str
    team: str
    blocktime: str
    binding: str


class Part(StrEnum):
    """Where time of a step goes."""

    OPERATORS = "operators"
    """An operator runs; on a GPU, one of its kernels."""
    COPIES = "copies"
    """A GPU copies, and runs no kernel."""
    EXECUTOR = "executor"
    """The runtime looks up, schedules and hands over, and no operator runs."""
    WAITING = "waiting"
    """A caller waits for its graph, and nobody runs any of it."""
    PYTHON = "python"
    """None of these: the program that calls the framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Where the time of one step goes (s), by part; their sum is the step.

    `operators_s` are the durations of its operators, and `gaps_s` the times between one's launch and the next: on a CPU
    an operator is launched when it begins. `latencies_s` are the times from a launch to the kernel, on a GPU.
    """

    parts_s: Mapping[Part, float]
    operators_s: Sequence[float]
    gaps_s: Sequence[float]
    latencies_s: Sequence[float]

    @property
    def step_s(self) -> float:
        """Return how long the step lasts."""
        return sum(self.parts_s.values())

    @property
    def exposed(self) -> float:
        """Return 1 - busy / step: the share in which no operator runs, and on a GPU nothing is copied either."""
        busy_s = self.parts_s[Part.OPERATORS] + self.parts_s[Part.COPIES]
        return 1.0 - busy_s / self.step_s

    @property
    def launch_ratio(self) -> float | None:
        """Return the median kernel over the median gap between launches; None for fewer than two operators."""
        gap_s = median(self.gaps_s) if self.gaps_s else 0.0
        return median(self.operators_s) / gap_s if gap_s > 0 else None


class Framework(ABC):
    """A framework: what it can run, its knobs and recommendations, and how its builds are looked at.

    `name` is how it is asked for, `title` what it is called. `suffixes` are the files that it reads as models, with
    what kind of workload each is; `kinds`, `modes` and `executions` what it runs. `timing_prefixes` is how variables
    begin that change its timings without being knobs: they are part of a study's name.
    """

    name: str
    title: str
    child: Path | None = None
    """The folder with its code for the target interpreter; None if it runs commands only."""
    spaces: Path
    """The folder of its search spaces; one is called as the first of its devices."""
    knobs: Mapping[str, Knob]
    baselines: tuple[Baseline, ...]
    """The first one is its default, which sets nothing."""
    width_guides: tuple[WidthGuide, ...] = ()
    suffixes: Mapping[str, str]
    kinds: tuple[str, ...]
    modes: tuple[str, ...] = (INFERENCE,)
    executions: tuple[Execution, ...] = (Execution.GRAPH,)
    devices: tuple[str, ...] = ("cpu",)
    """The kinds of devices that it can use."""
    makers: tuple[str, ...] = ()
    """Who makes the devices of their own that it can use; anybody if none is named."""
    server_flags: Mapping[str, str] = {}  # not changed
    """Flags of the framework's own model server, by the variable whose place each takes."""
    calls: Mapping[str, str] = {}  # not changed
    """Calls of the framework that set the same as a variable, with `{}` for its value."""
    passing_facts: frozenset[str] = frozenset({"cpus", "observations"})
    """Facts of a build that are only of the mask or the day of its probe, and not part of what it is."""
    scrubbed_prefixes: tuple[str, ...] = ()
    """How variables begin that trials do not inherit, as they act on the same as its knobs, or slow a step down."""
    timing_prefixes: tuple[str, ...] = ()
    overriding: tuple[str, ...] = ()
    """Variables of libraries that read them before the variable of a knob."""
    executor: ExecutorKnobs | None = None
    """The knobs of its executor, None where its steps cannot be simulated."""
    tells_steps: bool = False
    """Whether its adapter tells of the operators of a step, and of when what of it ran."""

    @cached_property
    def catalogue(self) -> Catalogue:
        """Return its knobs and recommendations as a search space wants them."""
        return Catalogue(
            framework=self.name,
            knobs=self.knobs,
            baselines=self.baselines,
            foreign=self.scrubbed_prefixes,
            threads_on=self.threads_on,
        )

    @cached_property
    def advice(self) -> Mapping[str, str]:
        """Return what its knobs can do about warnings, by their codes."""
        usual = self.threads_on(2)
        names = [name for name, knob in self.knobs.items() if knob.counts_threads and usual.get(name, 2) == 2]
        others = "" if self.child is None else f"; without {self.title} {{openmp_threads}}, and --framework command"
        return {"unseen": f"{{{names[0]}}}{others}"} if names else {}

    def threads_on(self, cores: int) -> Mapping[str, Value]:
        """Return the knobs of a process that has so many cores to itself, none where it has no such knobs."""
        return {}

    @abstractmethod
    def probe(self, python: Path, env: Mapping[str, str]) -> Build:
        """Return the build of an interpreter; raises BadInputError where there is none that works."""

    def reach(self, build: Build) -> dict[str, Reach]:
        """Return which knobs reach a build, by the name of their experiment, with the evidence."""
        return {}

    @abstractmethod
    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return what to tell of a build, as plain data, in a few lines: the first names it."""

    def stored_build(self, build: Mapping[str, Any]) -> Build:
        """Return a build from plain data; raises ValueError for what is none, and where nobody needs it."""
        raise ValueError(f"no build of {self.title} is read")

    def pool(self, build: Mapping[str, Any]) -> str:
        """Return which threads operators of a build, as plain data, run on; in the words of `tuner.space.term`."""
        raise NotImplementedError(self.name)

    def has_onednn(self, build: Mapping[str, Any]) -> bool:
        """Return whether operators of a build, as plain data, are handed to oneDNN."""
        raise NotImplementedError(self.name)

    def steps_of(self, told: Mapping[str, Any], *, on_gpu: bool) -> list[list[StepParts]]:
        """Return where the time of each step goes, by block, of what its adapter tells of them (`Model.timeline`).

        `on_gpu` tells whether operators are kernels of a GPU.
        """
        raise NotImplementedError(self.name)

    def thread_binding(self, value: str, machine: Machine, *, n_threads: int) -> tuple[Path, Binding]:
        """Return an OpenMP library, and where it would bind `n_threads` threads by a value of the knob that binds them.

        Raises BadInputError where it refuses the value, or where there is no such knob.
        """
        raise BadInputError(f"{self.title} has no affinity of OpenMP threads", "use --framework tensorflow")

    def space_notes(self, build: Mapping[str, Any], knobs: Collection[str]) -> list[str]:
        """Return what people should know of a space with these knobs on a build, as plain data."""
        return []

    def check_workload(self, workload: Workload) -> None:
        """Raise BadInputError for a workload that it cannot run."""
        if workload.command is not None:
            return
        if workload.members:
            for member in workload.members:
                self.check_workload(member)
            return
        if workload.kind not in self.kinds:
            raise BadInputError(
                f"{self.title} cannot run {workload.path}",
                f"expected a workload of kind {' or '.join(self.kinds)}, or another --framework",
            )
        if workload.mode not in self.modes:
            raise NoModeError(
                f"{workload.name} has no mode '{workload.mode}' in {self.title}", f"known: {', '.join(self.modes)}"
            )
        if workload.execution not in self.executions:
            raise BadInputError(
                f"{self.title} does not support --execution {workload.execution}",
                f"expected {' or '.join(self.executions)}",
            )

    def export_source(self, workload: Workload) -> Framework | None:
        """Return the framework whose export of a workload this one's is made from; None where it reads it itself."""
        return None

    def export_key(self, workload: Workload, build: Build) -> list[object]:
        """Return what an export of a workload depends on, besides the workload."""
        return [build.version]

    def environment(self, build: Build, device: str) -> dict[str, str]:
        """Return variables that trials need on a kind of device, and that make libraries tell what they do."""
        return {}

    def runs_on(self, device: Device) -> bool:
        """Return whether it can use a device like one."""
        return device.kind in self.devices and (not self.makers or device.maker in ("", *self.makers))

    def check_device(self, device: Device) -> None:
        """Raise BadInputError where it cannot use a device."""
        if not self.runs_on(device):
            raise BadInputError(
                f"{self.title} cannot run on {device.name}",
                f"expected --device {' or '.join(self.devices)}, or another --framework",
            )

    def seen_devices(self, python: Path, env: Mapping[str, str], build: Build, device: Device) -> tuple[str, ...]:
        """Return the devices like one that it sees in an interpreter, by its own names; none where it is the CPU.

        Raises BadInputError that explains why it sees none.
        """
        return ()

    def unavailable(self, build: Build, machine: Machine) -> dict[str, str]:
        """Return the knobs that cannot act on a machine, with the reason."""
        return {}

    def canonicalizer(self, build: Build, machine: Machine) -> Any:
        """Return what gives one word for all values of a knob that are the same on a machine; see `Space`."""
        return lambda _name, value: value

    def check(self, build: Build, settings: Sequence[Setting]) -> None:  # noqa: B027  # most refuse nothing
        """Raise BadInputError for a value that the build refuses, before anything is measured."""

    def precision(self, effective: Mapping[str, Any], of_graph: str | None, *, has_tf32: bool) -> str | None:
        """Return what a process computes in, such as f32, by what it tells of itself; None where that is not known.

        `of_graph` is the precision of the workload's graph, which most frameworks keep to; `has_tf32` whether the
        device may round factors of single precision to TF32, which a process says that it may use.
        """
        return TF32 if has_tf32 and of_graph == F32 and effective.get("tf32") else of_graph

    def pinned(self, effective: Mapping[str, Any]) -> str | None:
        """Return how a process has changed the CPUs that it was given, by what it tells of itself; None if it has not.

        What the framework itself binds by default, or by a setting, is no such change.
        """
        return auditing.pinned(effective)

    def initial_design(self, space: Space) -> list[Setting]:
        """Return a few points of a space that lie in different regimes: what a search tries before its model speaks."""
        return []

    def session_code(self, deployment: Deployment) -> list[str]:
        """Return the lines of Python that make a session with its options; nothing where it has none."""
        return []

    def fixed_while_proving(self, knob: str) -> dict[str, Value]:
        """Return what is held, beside the default, while a knob is proven to act."""
        return {}
