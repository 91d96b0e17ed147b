"""What a search may expect of a workload before it tries anything: a profile, and the model of the machine."""

from __future__ import annotations

import math
import time
from enum import StrEnum

from tuner.errors import BadInputError, TunerError
from tuner.job.events import ProfileEvents
from tuner.job.job import Job
from tuner.job.predict import Capture, cached_capture, model_of, new_capture, profiled_sizes, quick_capture
from tuner.job.profile import check_profiled
from tuner.measure.budget import PREDICTIONS, share_s
from tuner.measure.objective import Objective
from tuner.model.prediction import PredictedRatio
from tuner.study.lattice import thinned
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher

PROFILE_S, QUICK_S = 60.0, 10.0
"""About what a thorough profile takes (s) on few CPUs, and a quick one."""
LEAST_POINTS = 13
"""Of fewer settings a search tries all anyway."""
MANY_CORES = 8
"""From so many on a search begins with a quick profile."""
OPTION = "--predict"


class ProfileKind(StrEnum):
    """How much a search measures of the operators before it begins."""

    QUICK = "quick"
    THOROUGH = "thorough"


def kind_of(job: Job) -> ProfileKind | None:
    """Return which profile a search makes for its model, None where it does without one.

    A thorough profile is for searches of which it takes a tenth of the time, and for those without an end. Otherwise a
    quick one is for searches that were told to predict, and for machines with many cores. Raises BadInputError where a
    search was told to, and nothing can be predicted of the job.
    """
    if job.predict is False:
        return None
    try:
        _check(job)
    except BadInputError as error:
        if job.predict:
            raise BadInputError(f"{OPTION}: {error.message}", f"leave {OPTION} out") from error
        return None
    most_s = share_s(job.budget.time_s, PREDICTIONS)
    if job.predict:
        return ProfileKind.THOROUGH if most_s >= PROFILE_S else ProfileKind.QUICK
    if len(job.space.points) < LEAST_POINTS:
        return None
    if PROFILE_S <= most_s < math.inf:
        return ProfileKind.THOROUGH
    return ProfileKind.QUICK if job.machine.usable_cores >= MANY_CORES and most_s >= QUICK_S else None


def prior_of(
    job: Job, kind: ProfileKind, launcher: FreshLauncher | ForkLauncher, events: ProfileEvents
) -> PredictedRatio | None:
    """Return what the model of the machine expects of the settings of a job, from its profile, which may be a new one.

    A quick profile has its processes from the `launcher`. The workload has to be exported, and the lock of the machine
    to be held; nothing else may run. None where that fails, or takes more than a tenth of the time, and nobody has told
    the search to: `events` are told why. Raises BadInputError where somebody has.
    """
    try:
        predictor, hardware = model_of(_capture(job, kind, launcher, events))
    except (TunerError, OSError) as error:
        if job.predict:
            raise
        why = error.message if isinstance(error, TunerError) else error
        events.notice(f"the search goes on without predictions: {why}")
        return None
    ratio = PredictedRatio(predictor=predictor, machine=job.machine, hardware=hardware, reference=job.space.reference)
    most_s = share_s(job.budget.time_s, PREDICTIONS)
    if not job.predict and most_s < math.inf:
        points = job.space.points
        began_s = time.monotonic()
        ratio([job.space.reference, points[len(points) // 2]])
        all_s = (time.monotonic() - began_s) / 2 * len(thinned(len(points)))
        if all_s > most_s:
            events.notice(
                f"the search goes on without predictions: they would take {all_s:.0f} s, more than a tenth of the time "
                f"({OPTION} runs them anyway)"
            )
            return None
    return ratio


def _check(job: Job) -> None:
    """Raise BadInputError for a job of which nothing can be predicted."""
    check_profiled(job)
    if job.objective is not Objective.THROUGHPUT:
        raise BadInputError(f"only throughput is predicted, and the objective is {job.objective}", "")


def _capture(job: Job, kind: ProfileKind, launcher: FreshLauncher | ForkLauncher, events: ProfileEvents) -> Capture:
    """Return the profiles to predict from, of the cache or new ones; a thorough one is preferred."""
    batch_sizes, is_quick = profiled_sizes(job), kind is ProfileKind.QUICK
    for of_kind in (False, True) if is_quick else (False,):
        capture = cached_capture(job, batch_sizes, is_quick=of_kind, notify=events.notice)
        if capture is not None:
            return capture
    if isinstance(launcher, ForkLauncher):
        launcher.is_refused()  # it waits until nothing is imported beside what is timed
    total_s = job.budget.time_s
    limit_s = None if job.predict or total_s is None else share_s(total_s, PREDICTIONS)
    if is_quick:
        return quick_capture(job, batch_sizes, launcher=launcher, limit_s=limit_s, events=events)
    return new_capture(job, batch_sizes, limit_s=limit_s, events=events)
