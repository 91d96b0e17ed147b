"""What one process is asked of its operators, one at a time, at each batch size."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from statistics import median

from tuner.errors import BadInputError
from tuner.job.job import Job
from tuner.job.overhead import advice, traced_overhead
from tuner.model.profile import Roof, Traced
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import TrialFailure
from tuner.trial.process import ChildProcess

_TRACED_S, _LEAST_STEPS, _MOST_STEPS = 1.0, 3, 50


def launch_traced(
    job: Job, launcher: FreshLauncher | ForkLauncher, live: ExitStack, threads: int, *, batch_size: int
) -> ChildProcess:
    """Start a process of so many threads that runs one operator at a time; it ends with `live`."""
    reference = job.space.reference
    known = reference.to_dict()
    values = {name: n for name, n in job.framework.threads_on(threads).items() if name in known}
    setting = reference.with_values(**values, batch_size=batch_size)
    process = launcher.launch_one(setting, job.space.catalogue.deploy(setting.to_dict()))
    return live.enter_context(closing(process))


def cannot(failure: TrialFailure) -> BadInputError:
    """Return the error that says why steps cannot be profiled."""
    hint = advice(failure.status, failure.hint, smaller="a smaller --batch-size")
    return BadInputError(f"a step cannot be profiled: {failure.message}", hint, log=failure.evidence(2000))


def trace_sizes(process: ChildProcess, threads: int, steps_s: Mapping[int, float]) -> dict[int, Traced]:
    """Return what a process tells of its operators at each batch size, ascending, by how long a step takes there (s).

    With one thread it has the smallest. Raises TrialFailure.
    """
    row = {}
    for size, known_s in steps_s.items():
        n_steps = min(_MOST_STEPS, max(_LEAST_STEPS, round(_TRACED_S / known_s)))
        row[size] = replace(trace_steps(process, threads, size, n_steps), step_s=known_s)
    if threads == 1:  # at last, as a process whose profiler fails has ended
        smallest = next(iter(row))
        row[smallest] = _with_exposed(row[smallest], process)
    return row


def trace_steps(process: ChildProcess, threads: int, batch_size: int, n_steps: int) -> Traced:
    """Return what a process tells of its operators in so many steps; a step takes as long as in its session.

    Raises TrialFailure.
    """
    told = process.operators(n_steps, batch_size)
    plain_s = median(told["plain_s"])
    return Traced(
        threads=threads,
        step_s=plain_s,
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
