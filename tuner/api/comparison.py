"""Comparisons: of two settings, of a recommendation with the default once more, and of frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from rich.console import RenderableType

from tuner.api.options import Duration, WorkloadOptions, request_of
from tuner.api.shown import Shown, Tabled
from tuner.job import frameworks as comparisons
from tuner.job.compare import check_study
from tuner.job.compare import compare as measure
from tuner.job.request import KEEP, TRIAL_TIMEOUT, CheckRequest, CompareRequest, FrameworksRequest
from tuner.report.card import check_card, comparison_card, nothing_to_check_card
from tuner.report.frameworks import as_csv, chart, frameworks_card, rendered
from tuner.report.progress import ComparisonShown, TaskShown, stderr_console
from tuner.result.comparison import CheckResult, ComparisonResult, NothingToCheck
from tuner.result.frameworks import FrameworksResult
from tuner.space.values import Value
from tuner.stats import MARGIN


class Comparison(Shown):
    """What b runs at against a; all of it is in `result`."""

    result: ComparisonResult

    def __init__(self, result: ComparisonResult) -> None:
        """Take a result."""
        super().__init__(result, comparison_card(result))


class Check(Shown):
    """Whether a study's recommendation still helps; all of it is in `result`.

    `helps` is True if it is shown to be better, False if shown not to be, and None if undecided, or nothing was to be
    checked because the study recommends the default.
    """

    result: CheckResult | NothingToCheck

    def __init__(self, result: CheckResult | NothingToCheck) -> None:
        """Take a result."""
        super().__init__(
            result, nothing_to_check_card(result) if isinstance(result, NothingToCheck) else check_card(result)
        )

    @property
    def helps(self) -> bool | None:
        """Return what it comes to."""
        return self.result.helps


def compare(
    workload: str | Path | Sequence[str],
    a: str | Mapping[str, Value],
    b: str | Mapping[str, Value],
    *,
    time_budget: Duration = "2m",
    space: str | Path | None = None,
    objective: str | None = None,
    batch_size: str | int | Sequence[int] | None = None,
    numerics: str = KEEP,
    margin: float | str = MARGIN,
    python: str | Path | None = None,
    storage: str | Path | None = None,
    trial_timeout: Duration = TRIAL_TIMEOUT,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Comparison:
    """Measure setting b against setting a in new processes: `tftune compare`.

    A setting is the name of a baseline such as `intel`, the name of a study, or values of knobs; knobs that are not
    named keep the framework's default. Raises BadInputError for what cannot be asked, and TunerError where neither
    runs.
    """
    request = request_of(CompareRequest, locals())
    return Comparison(measure(request, ComparisonShown(stderr_console(quiet=not progress))))


def check(
    study: str = "last",
    *,
    instances: bool | None = None,
    same_latency: bool = False,
    time_budget: Duration = "2m",
    margin: float | str | None = None,
    python: str | Path | None = None,
    storage: str | Path | None = None,
    trial_timeout: Duration | None = None,
    wait: bool = False,
    progress: bool = True,
) -> Check:
    """Measure the recommendation of a study against the default again, as a session of the study: `tftune check`.

    Raises BadInputError where the study was made on another machine, with another build, or of another workload.
    """
    request = request_of(CheckRequest, locals())
    return Check(check_study(request, ComparisonShown(stderr_console(quiet=not progress))))


class Frameworks(Shown, Tabled):
    """Which framework is the fastest, and what was measured of each; all of it is in `result`."""

    result: FrameworksResult

    def __init__(self, result: FrameworksResult) -> None:
        """Take a result."""
        super().__init__(result, frameworks_card(result))

    def csv(self) -> str:
        """Return a row for each framework, setting and batch size."""
        return as_csv(self.result)

    def page(self) -> Sequence[RenderableType]:
        """Return the answer, and the tables behind it."""
        return rendered(self.result)

    def chart(self) -> str | None:
        """Return rates over batch sizes as SVG; None where there is one batch size."""
        return chart(self.result)

    def files(self) -> dict[str, str | None]:
        """Return the table and the chart."""
        return {"table.csv": self.csv(), "chart.svg": self.chart()}


def compare_frameworks(
    workload: str | Path,
    *,
    frameworks: Sequence[str] | None = None,
    batches: str | Sequence[int] = "1,4,16,64,256,1024",
    batch_size: int | None = None,
    time_budget: Duration = "30m",
    space: str | Path | None = None,
    numerics: str = KEEP,
    margin: float | str = MARGIN,
    python: Mapping[str, str | Path] | None = None,
    storage: str | Path | None = None,
    trial_timeout: Duration = "5m",
    new: bool = False,
    stored: bool = False,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Frameworks:
    """Compare frameworks on one model, each one's default and its tuned setting: `tftune frameworks`.

    `frameworks` are all that are installed if none are named; `batches` are those to measure, such as "1..64"; tuned
    for, and judged at, is `batch_size`. `python` names interpreters of frameworks. The same call continues what the
    time was too short for, and with `stored` measures nothing. Raises BadInputError for what cannot be asked.
    """
    request = request_of(FrameworksRequest, locals() | {"pythons": python or {}})
    return Frameworks(comparisons.compare_frameworks(request, TaskShown(stderr_console(quiet=not progress))))
