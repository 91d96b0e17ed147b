"""Searching for the best setting of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from tuner.api.options import Duration, WorkloadOptions, duration_text, request_of
from tuner.api.study import Study
from tuner.errors import TunerError
from tuner.job.request import KEEP, TRIAL_TIMEOUT, SearchRequest
from tuner.job.run import make_sessions, run_sessions
from tuner.report.progress import SearchShown, stderr_console
from tuner.space.values import Value
from tuner.stats import MARGIN


def search(
    workload: str | Path | Sequence[str],
    *,
    time_budget: Duration | None = None,
    trials: int | None = None,
    space: str | Path | None = None,
    objective: str | None = None,
    batch_size: str | int | Sequence[int] | None = None,
    pins: Mapping[str, Value] | None = None,
    max_p99_ms: float | str | None = None,
    max_memory: str | float | None = None,
    max_power_w: float | str | None = None,
    numerics: str = KEEP,
    instances: bool = True,
    predict: bool | None = None,
    margin: float | str = MARGIN,
    seed: int = 0,
    sessions: int = 1,
    every: Duration | None = None,
    python: str | Path | None = None,
    storage: str | Path | None = None,
    trial_timeout: Duration = TRIAL_TIMEOUT,
    launcher: str = "fork",
    new: bool = False,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Study:
    """Search for the best setting of a workload, and compare it with the recommended ones: `tftune search`.

    `workload` is a shipped one by its name, a file, or the words of a command that prints the number which
    `metric_regex` finds. Durations are text such as `"5m"`, or seconds; `margin` is a share (0.02
    for 2 %), or text such as `"2%"`; the limits are numbers in the unit of their name, or text such as `"50ms"`. With
    `predict` a model of the machine says where to begin (None: in searches of ten minutes and more, and on
    8 cores and more).
    Without an `objective` it is throughput, and where a call of the fastest takes much longer than the default's, the
    fastest that keeps that latency is looked for, too.
    With `progress` the trials are shown on stderr. The same call continues the study, unless it is to be a `new` one.

    Raises BadInputError for what cannot be asked, and TunerError where nothing could be measured, or a further session
    failed. Ctrl-C raises KeyboardInterrupt, and loses no finished trial.
    """
    request = request_of(SearchRequest, locals())
    plan = make_sessions(sessions, duration_text(every))
    outcome = run_sessions(request, plan, SearchShown(stderr_console(quiet=not progress)))
    if outcome.interrupted or outcome.record is None:
        raise KeyboardInterrupt
    if outcome.failed:
        raise TunerError(
            f"a further session of study {outcome.record.name} failed",
            "its search is stored; tuner.check adds a session",
        )
    return Study.of(outcome.record, request.storage)
