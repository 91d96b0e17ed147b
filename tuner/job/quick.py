"""The quick profile: a few steps with one thread and with all, for a search to begin with.

Two processes are forked as a search's are. They start and load at the same time, as that is mostly one thread each, and
at the smallest batch size, where warm-up is short. Then one after the other tells of its operators, with nothing else
running. A step counts as long as in its session: in the profiles of results/predictions that is 2 % from steps in turns
in the median (4 % in those of another day), and 26 and 41 % where a neighbour disturbed one of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from tuner.errors import TunerError
from tuner.job.job import Job
from tuner.job.profile import ProfileEvents
from tuner.job.tracing import cannot, launch_traced, trace_steps
from tuner.measure.countdown import Countdown
from tuner.model.profile import Traced
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import TrialFailure

_TRACED_S, _MOST_STEPS = 0.25, 50
_N_STEPS = 4  # of the largest batch size that each process takes once it is warm, at least


def trace_quickly(
    job: Job,
    batch_sizes: Sequence[int],
    *,
    launcher: FreshLauncher | ForkLauncher,
    limit_s: float | None,
    events: ProfileEvents,
) -> dict[int, list[Traced]]:
    """Return what a process with one thread, and one with all, tell at each batch size.

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
                    n_steps = min(_MOST_STEPS, max(1, round(_TRACED_S / (one_item_s[n] * size))))
                    told[size].append(trace_steps(process, n, size, n_steps))
                events.ended(told[sizes[-1]][-1])
                process.close()
        except TrialFailure as failure:
            raise cannot(failure) from failure
    return told
