"""A command as a framework: a program that tells nothing of itself, and the variables that most OpenMP programs read.

Whether a variable reaches it cannot be seen: only what the measurements say. Semantics: OpenMP 5.2, OMP_NUM_THREADS and
OMP_PROC_BIND; CUDA Programming Guide, CUDA_DEVICE_MAX_CONNECTIONS; cuBLAS documentation, NVIDIA_TF32_OVERRIDE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.devices.gpu import KIND as GPU
from tuner.devices.nvidia import NVIDIA, TF32_VARIABLE
from tuner.errors import BadInputError
from tuner.frameworks import framework
from tuner.machine.openmp import THREADING
from tuner.space.baseline import Baseline
from tuner.space.carrier import Variable
from tuner.space.common import BATCH_SIZE, OF_PROCESSES, one_or_all
from tuner.space.knob import Knob
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Numbers, Words
from tuner.workload.workload import Workload

_OWN = "program"
_UNBOUND, _CLOSE, _SPREAD = "false", "close", "spread"


_ALL = (
    Knob(
        name="openmp_threads",
        meaning="threads of an OpenMP program",
        values=Numbers(counts_threads=True),
        carrier=Variable("OMP_NUM_THREADS"),
        default=lambda machine, *_: machine.logical_cpus,
        contrast_values=one_or_all,
        n_threads=lambda values: int(values["openmp_threads"]),
    ),
    Knob(
        name="openmp_binding",
        meaning="how the threads of an OpenMP program are bound to CPUs",
        values=Words(words=(_UNBOUND, _CLOSE, _SPREAD)),
        carrier=Variable("OMP_PROC_BIND"),
        default=lambda *_: _UNBOUND,
        contrast_values=lambda _: (_UNBOUND, _CLOSE),
    ),
    BATCH_SIZE,
    *OF_PROCESSES,
    Knob(
        name="tf32_override",
        meaning="whether CUDA's libraries round to TF32: as in the program, never or always; changes numerics",
        values=Words(words=(_OWN, "off", "on")),
        carrier=Variable(TF32_VARIABLE, {_OWN: None, "off": "0", "on": "1"}),
        in_every_setting=False,
        read_at_start=True,
        default=lambda *_: _OWN,
        devices=(GPU,),
        makers=(NVIDIA,),
        changes_numerics=True,
    ),
    Knob(
        name="cuda_connections",
        meaning="hardware queues by which the program's CUDA streams reach the GPU",
        values=Numbers(limit=32),
        carrier=Variable("CUDA_DEVICE_MAX_CONNECTIONS"),
        in_every_setting=False,
        default=lambda *_: 8,
        devices=(GPU,),
        makers=(NVIDIA,),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandBuild:
    """What is known of a program: nothing."""

    id: str = "command"
    title: str = "a command"
    version: str = ""
    fork_refusal: str | None = "commands are not forked"

    def to_dict(self) -> dict[str, Any]:
        """Return the build as plain data."""
        return {"framework": "command", "id": self.id, "python": ""}


class CommandFramework(framework.Framework):
    """Programs of any kind."""

    name = "command"
    title = "A command"
    spaces = Path(__file__).parent / "spaces"
    knobs: Mapping[str, Knob] = {knob.name: knob for knob in _ALL}  # not changed
    baselines = (
        Baseline(name="command-default", source="the program as it is: nothing is set", rule=lambda _: {}),
        Baseline(
            name="openmp-cores",
            source="common advice for OpenMP programs: one thread per usable core, neighbours next to each other",
            rule=lambda machine: {"openmp_threads": machine.usable_cores, "openmp_binding": _CLOSE},
        ),
    )
    suffixes: Mapping[str, str] = {}  # not changed
    kinds = ()
    devices = ("cpu", "gpu")
    scrubbed_prefixes = THREADING
    # OpenBLAS, BLIS, MKL and NumExpr take their own variable before OMP_NUM_THREADS.
    overriding = (
        "BLIS_NUM_THREADS",
        "GOTO_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    )
    # And of other kinds of threads than OpenMP's.
    timing_prefixes = (
        *(*framework.LOADER_AND_ALLOCATORS, "MKL_", *overriding),
        *("GOMAXPROCS", "JULIA_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS", "TBB_NUM_THREADS"),
    )

    def probe(self, python: Path, env: Mapping[str, str]) -> CommandBuild:
        """Return what is known of any program."""
        return CommandBuild()

    def build_lines(self, build: Mapping[str, Any]) -> list[str]:
        """Return that nothing is known."""
        return ["command: tftune cannot see whether a variable takes effect"]

    def check_workload(self, workload: Workload) -> None:
        """Raise BadInputError for anything but a command."""
        if workload.command is None:
            raise BadInputError(
                f"--framework command cannot run the model {workload.name}",
                "give a command after -- and --metric-regex, or omit --framework",
            )

    def initial_design(self, space: Space) -> list[Setting]:
        """Return a bound and a spread setting of half the threads, as far as they are points of the space."""
        reference = space.reference
        half = max(1, int(reference["openmp_threads"]) // 2)
        candidates = [reference.with_values(openmp_threads=half, openmp_binding=word) for word in (_CLOSE, _SPREAD)]
        return space.new_points(candidates)


FRAMEWORK = CommandFramework()
