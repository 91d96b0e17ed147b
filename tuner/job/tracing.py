"""What one process tells of its operators at each batch size, and how much of that a profile asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from tuner.job.overhead import traced_overhead
from tuner.measure.pair import PairPlan
from tuner.model.profile import Roof, Traced
from tuner.trial.outcome import TrialFailure
from tuner.trial.process import ChildProcess

_MOST_STEPS, _UNTIMED_STEPS = 50, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePlan:
    """How much a profile measures.

    A quick one has one thread and all, and no others. Processes are timed in turns by `pair`. Steps of a few
    milliseconds differ by a tenth from process to process, by the memory and the CPUs that each happens to get, and the
    machine may be disturbed, so that `n_repeats` more pairs of processes are timed. Operators are asked for in steps of
    `traced_s` (s), `least_steps` at least, and the exposed overhead if `asks_profiler`. A quick one times smaller batch
    sizes with the statistics alone.
    """

    is_quick: bool = False
    pair: PairPlan
    n_repeats: int = 2
    traced_s: float = 1.0
    least_steps: int = 3
    asks_profiler: bool = True


THOROUGH = ProfilePlan(pair=PairPlan(max_blocks=2))
QUICK = ProfilePlan(
    is_quick=True,
    pair=PairPlan(slice_s=0.25, slices_per_block=1, max_blocks=1),
    n_repeats=0,
    traced_s=0.25,
    least_steps=1,
    asks_profiler=False,
)


def trace_sizes(
    process: ChildProcess, threads: int, steps_s: Mapping[int, float | None], plan: ProfilePlan = THOROUGH
) -> dict[int, Traced]:
    """Return what a process tells of its operators at each batch size, ascending, by how long a step takes there (s).

    Where that is None, it is as long as in the session. With one thread it has the smallest. Raises TrialFailure.
    """
    row = {size: _trace_steps(process, threads, size, known_s, plan) for size, known_s in steps_s.items()}
    if threads == 1 and plan.asks_profiler:  # at last, as a process whose profiler fails has ended
        smallest = next(iter(row))
        row[smallest] = _with_exposed(row[smallest], process)
    return row


def _trace_steps(
    process: ChildProcess, threads: int, batch_size: int, known_s: float | None, plan: ProfilePlan
) -> Traced:
    """Return what a process tells of its operators at a batch size, where a step takes `known_s` (s).

    Raises TrialFailure.
    """
    wanted = _UNTIMED_STEPS if known_s is None else round(plan.traced_s / known_s)
    told = process.operators(min(_MOST_STEPS, max(plan.least_steps, wanted)), batch_size)
    plain_s = median(told["plain_s"] or [known_s])
    return Traced(
        threads=threads,
        step_s=known_s or plain_s,
        plain_s=plain_s,
        traced_s=median(told["steps_s"]),
        busy_s=median(told["busy_s"]),
        roof=Roof(**told["roof"]),
        nodes=told["nodes"],
    )


def _with_exposed(traced: Traced, process: ChildProcess) -> Traced:
    """Return what a process told with the exposed overhead of its steps at the same batch size.

    The smallest batch size shows it best. Where the profiler keeps no whole step, it stays unknown.
    """
    try:
        overhead = traced_overhead(process, traced.step_s, on_gpu=False, n_rounds=1)
    except TrialFailure:
        return traced
    return replace(traced, exposed=overhead.exposed.estimate)
