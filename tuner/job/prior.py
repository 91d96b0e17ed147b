"""What a search may expect of a workload before it tries anything: a profile, and the model of the machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from tuner.errors import BadInputError, TunerError
from tuner.job.capture import Capture, cached_capture, new_capture
from tuner.job.job import Job
from tuner.job.predict import model_of, profiled_sizes
from tuner.job.profile import check_profiled
from tuner.job.request import ParsedRequest
from tuner.measure.objective import Objective
from tuner.model.prior import PredictedRatio
from tuner.model.profile import Traced
from tuner.study.lattice import thinned

PROFILE_S = 60.0
"""About what a profile takes (s) on few CPUs."""
SHARE = 0.1
"""Of the time of a search, what a model may take that nobody has asked for."""
LEAST_POINTS = 13
"""Of fewer settings a search tries all anyway."""
OPTION = "--predict"


class PriorEvents(Protocol):
    """What is told while the model is made."""

    def notice(self, line: str) -> None:
        """Something is not as it usually is, and the task goes on."""

    def profiling(self, threads: int) -> None:
        """The operators are profiled in a process of so many threads."""


@dataclass(frozen=True, slots=True)
class _ProfileShown:
    """Tells a search's listener what a profile tells."""

    events: PriorEvents

    def waiting(self, line: str) -> None:
        self.events.notice(line)

    def notice(self, line: str) -> None:
        self.events.notice(line)

    def began(self, threads: int) -> None:
        self.events.profiling(threads)

    def ended(self, traced: Traced) -> None:
        del traced

    def repeats(self) -> None:
        pass


def is_asked(job: Job, checked: ParsedRequest) -> bool:
    """Return whether a search asks the model: where it was told to, or where that costs little of a long search.

    Raises BadInputError where it was told to, and nothing can be predicted of the job.
    """
    if checked.predict is False:
        return False
    try:
        _check(job)
    except BadInputError as error:
        if checked.predict:
            raise BadInputError(f"{OPTION}: {error.message}", f"leave {OPTION} out") from error
        return False
    budget_s = checked.budget.time_s
    is_cheap = budget_s is not None and SHARE * budget_s >= PROFILE_S and len(job.space.points) >= LEAST_POINTS
    return bool(checked.predict) or is_cheap


def prior_of(job: Job, checked: ParsedRequest, events: PriorEvents) -> PredictedRatio | None:
    """Return what the model of the machine expects of the settings of a job, from its profile, which may be a new one.

    The workload has to be exported, and the lock of the machine to be held; nothing else may run. None where that
    fails, or takes more than a tenth of the time, and nobody has told the search to: `events` are told why. Raises
    BadInputError where somebody has.
    """
    try:
        predictor, hardware = model_of(_capture(job, checked, events))
    except (TunerError, OSError) as error:
        if checked.predict:
            raise
        why = error.message if isinstance(error, TunerError) else error
        events.notice(f"the search goes on without predictions: {why}")
        return None
    ratio = PredictedRatio(predictor=predictor, machine=job.machine, hardware=hardware, reference=job.space.reference)
    budget_s = checked.budget.time_s
    if not checked.predict and budget_s is not None:
        points = job.space.points
        began_s = time.monotonic()
        ratio([job.space.reference, points[len(points) // 2]])
        all_s = (time.monotonic() - began_s) / 2 * len(thinned(len(points)))
        if all_s > SHARE * budget_s:
            events.notice(
                f"the search goes on without predictions: they would take {all_s:.0f} s, more than a tenth of the time "
                f"({OPTION} makes them all the same)"
            )
            return None
    return ratio


def _check(job: Job) -> None:
    """Raise BadInputError for a job of which nothing can be predicted."""
    check_profiled(job)
    if job.objective is not Objective.THROUGHPUT:
        raise BadInputError(f"what is predicted is throughput, and the objective is {job.objective}", "")


def _capture(job: Job, checked: ParsedRequest, events: PriorEvents) -> Capture:
    """Return the profiles to predict from, of the cache or new ones."""
    batch_sizes = profiled_sizes(job)
    capture = cached_capture(job, batch_sizes, notify=events.notice)
    if capture is not None:
        return capture
    budget_s = checked.budget.time_s
    limit_s = None if checked.predict or budget_s is None else SHARE * budget_s
    shown = _ProfileShown(events)
    return new_capture(job, batch_sizes, limit_s=limit_s, events=shown)
