"""Comparisons: one setting against another, and a recommendation against the default once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from tuner.api.options import (
    WorkloadOptions,
    batch_sizes_text,
    duration_text,
    margin_share,
    path_text,
    setting_text,
    storage_text,
    workload_spec,
)
from tuner.api.progress import ComparisonShown, stderr_console
from tuner.api.shown import Shown
from tuner.job import compare as comparing
from tuner.job.check import check_study
from tuner.job.check import describe as describe_check
from tuner.job.events import ComparisonEvents
from tuner.job.request import KEEP, TRIAL_TIMEOUT, SearchRequest, parse_request
from tuner.report.card import check_card, comparison_card, nothing_to_check_card
from tuner.result.comparison import CheckResult, ComparisonResult, NothingToCheck
from tuner.space.values import Value
from tuner.stats.equivalence import MARGIN

BUDGET = "2m"


class Comparison(Shown):
    """What b runs at against a; all of it is in `result`."""

    result: ComparisonResult

    def __init__(self, result: ComparisonResult) -> None:
        """Take a result."""
        super().__init__(result, comparison_card(result))
        self.result = result


class Check(Shown):
    """Whether a study's recommendation still helps; all of it is in `result`.

    `helps` is True if it is shown to be better, False if shown not to be, and None if undecided, or nothing was to be
    checked because the study recommends the default.
    """

    result: CheckResult | NothingToCheck

    def __init__(self, result: CheckResult | NothingToCheck) -> None:
        """Take a result."""
        of_result = nothing_to_check_card(result) if isinstance(result, NothingToCheck) else check_card(result)
        super().__init__(result, of_result)
        self.result = result

    @property
    def helps(self) -> bool | None:
        """Return what it comes to."""
        return None if isinstance(self.result, NothingToCheck) else self.result.helps


def run_comparison(
    request: SearchRequest, a: str, b: str, *, margin: float, wait: bool, events: ComparisonEvents
) -> Comparison:
    """Measure b against a, both as they would be typed; raises BadInputError before anything is measured."""
    checked = parse_request(request, stores=False)
    measured = comparing.compare(checked, a, b, margin=margin, storage_url=request.storage, wait=wait, events=events)
    return Comparison(comparing.describe(measured))


def compare(
    workload: str | Path | Sequence[str],
    a: str | Mapping[str, Value],
    b: str | Mapping[str, Value],
    *,
    time_budget: str | float = BUDGET,
    space: str | Path | None = None,
    objective: str = "throughput",
    batch_size: int | Sequence[int] | None = None,
    numerics: str = KEEP,
    margin: float | str = MARGIN,
    python: str | Path | None = None,
    storage: str | Path | None = None,
    trial_timeout: str | float = TRIAL_TIMEOUT,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Comparison:
    """Measure setting b against setting a in new processes: `tftune compare`.

    A setting is the name of a baseline such as `intel`, the name of a study, or values of knobs; knobs that are not
    named keep the framework's default. Raises BadInputError for what cannot be asked, and TunerError where neither
    runs.
    """
    request = SearchRequest(
        workload=workload_spec(workload, **options),
        space=path_text(space),
        objective=objective,
        batch_size=batch_sizes_text(batch_size),
        numerics=numerics,
        python=path_text(python),
        storage=storage_text(storage),
        time_budget=duration_text(time_budget),
        trial_timeout=str(duration_text(trial_timeout)),
    )
    events = ComparisonShown(stderr_console(quiet=not progress))
    return run_comparison(
        request, setting_text(a), setting_text(b), margin=margin_share(margin), wait=wait, events=events
    )


def check(
    study: str = "last",
    *,
    instances: bool = False,
    time_budget: str | float = BUDGET,
    margin: float | str | None = None,
    python: str | Path | None = None,
    storage: str | Path | None = None,
    trial_timeout: str | float | None = None,
    wait: bool = False,
    progress: bool = True,
) -> Check:
    """Measure the recommendation of a study against the default again, as a session of the study: `tftune check`.

    Raises BadInputError where the study was made on another machine, with another build, or of another workload.
    """
    measured = check_study(
        study,
        storage_url=storage_text(storage),
        python=path_text(python),
        budget=str(duration_text(time_budget)),
        trial_timeout=duration_text(trial_timeout),
        margin=None if margin is None else margin_share(margin),
        wait=wait,
        events=ComparisonShown(stderr_console(quiet=not progress)),
        groups=instances,
    )
    return Check(describe_check(measured))
