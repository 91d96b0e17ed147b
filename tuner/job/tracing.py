"""What processes are asked of their operators, one at a time, at each batch size; and the quick profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from statistics import median

from tuner.errors import BadInputError, TunerError
from tuner.job.events import ProfileEvents
from tuner.job.job import Job
from tuner.job.overhead import advice, traced_overhead
from tuner.measure.budget import Countdown
from tuner.model.profile import Roof, Traced
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import TrialFailure
from tuner.trial.process import ChildProcess

_TRACED_S, _LEAST_STEPS, _MOST_STEPS = 1.0, 3, 50
_QUICK_S = 0.25  # instead, of the quick profile
_N_STEPS = 4  # of the largest batch size that each of its processes takes once it is warm, at least


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


def trace_sizes(job: Job, process: ChildProcess, threads: int, steps_s: Mapping[int, float]) -> dict[int, Traced]:
    """Return what a process tells of its operators at each batch size, ascending, by how long a step takes there (s).

    With one thread it has the smallest. Raises TrialFailure.
    """
    row = {}
    for size, known_s in steps_s.items():
        n_steps = min(_MOST_STEPS, max(_LEAST_STEPS, round(_TRACED_S / known_s)))
        row[size] = replace(trace_steps(process, threads, size, n_steps), step_s=known_s)
    if threads == 1:  # at last, as a process whose profiler fails has ended
        smallest = next(iter(row))
        row[smallest] = _with_exposed(row[smallest], process, job)
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


def _with_exposed(traced: Traced, process: ChildProcess, job: Job) -> Traced:
    """Return what a process told with the exposed overhead of its steps at the same batch size.

    The smallest batch size shows it best. Where the profiler keeps no whole step, it stays unknown.
    """
    try:
        overhead = traced_overhead(process, traced.step_s, job, n_rounds=1)
    except TrialFailure:
        return traced
    return replace(traced, exposed=overhead.exposed.estimate)


def trace_quickly(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    launcher: FreshLauncher | ForkLauncher,
    limit_s: float | None,
    events: ProfileEvents,
) -> dict[int, list[Traced]]:
    """Return what a process with one thread, and one with all, tell at each batch size: for a search to begin with.

    Two processes are forked as a search's are. They start and load at the same time, as that is mostly one thread each,
    and at the smallest batch size, where warm-up is short. Then one after the other tells of its operators, with
    nothing else running. A step counts as long as in its session: in the profiles of results/predictions that is 2 %
    from steps in turns in the median (4 % in those of another day), and 26 and 41 % where a neighbour disturbed one of
    the two.

    The model has to be exported, and the lock of the machine to be held. Raises BadInputError where a process fails or
    takes `limit_s` to start, and TunerError where all would take longer.
    """
    countdown = Countdown(total_s=limit_s)
    sizes = sorted(batch_sizes)
    counts = sorted({1, job.machine.usable_cpus})
    with ExitStack() as live:
        try:
            processes = {n: launch_traced(job, launcher, live, n, batch_size=sizes[0]) for n in counts}
            one_item_s = {}
            for n, process in processes.items():
                process.deadline_s = min(process.deadline_s, limit_s or process.deadline_s)
                one_item_s[n] = process.ready().step_s / sizes[0]
            steps_s = _N_STEPS * sizes[-1] * sum(one_item_s.values())
            if countdown.is_short_of(steps_s):
                needed_s = countdown.elapsed_s() + steps_s
                raise TunerError(f"a quick profile would take {needed_s:.0f} s, more than a tenth of the time", "")
            for process in processes.values():
                process.start_operators(0, sizes[-1])
            for process in processes.values():
                process.end_operators()
                process.pause()
            told: dict[int, list[Traced]] = {size: [] for size in sizes}
            for n, process in processes.items():
                events.began(n)
                process.resume()
                for size in sizes:
                    n_steps = min(_MOST_STEPS, max(1, round(_QUICK_S / (one_item_s[n] * size))))
                    told[size].append(trace_steps(process, n, size, n_steps))
                events.ended(told[sizes[-1]][-1])
                process.close()
        except TrialFailure as failure:
            raise cannot(failure) from failure
    return told
