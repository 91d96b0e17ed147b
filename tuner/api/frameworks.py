"""Frameworks side by side: one model in each of them, each with its default and a tuned setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from tuner.api.options import WorkloadOptions, duration_text, margin_share, storage_text, workload_spec
from tuner.api.progress import FrameworksShown, stderr_console
from tuner.api.shown import Shown, Tabled
from tuner.job import frameworks as comparisons
from tuner.job.events import FrameworksEvents
from tuner.job.frameworks.comparison import BATCHES, BUDGET, TIMEOUT, FrameworksRequest
from tuner.job.frameworks.result import describe_frameworks
from tuner.job.request import KEEP
from tuner.paths import DEFAULT_STORAGE
from tuner.report.frameworks import as_csv, chart, frameworks_card
from tuner.result.frameworks import FrameworksResult
from tuner.stats.equivalence import MARGIN


class Frameworks(Shown, Tabled):
    """Which framework is the fastest, and what was measured of each; all of it is in `result`."""

    result: FrameworksResult

    def __init__(self, result: FrameworksResult) -> None:
        """Take a result."""
        super().__init__(result, frameworks_card(result))
        self.result = result

    def csv(self) -> str:
        """Return a row for each framework, setting and batch size."""
        return as_csv(self.result)

    def chart(self) -> str | None:
        """Return rates over batch sizes as SVG; None where there is one batch size."""
        return chart(self.result)


def run_comparison(request: FrameworksRequest, events: FrameworksEvents) -> Frameworks:
    """Measure what is not stored yet; raises BadInputError before anything is measured."""
    return Frameworks(describe_frameworks(comparisons.compare_frameworks(request, events)))


def compare_frameworks(
    workload: str | Path,
    *,
    frameworks: Sequence[str] | None = None,
    batches: str | Sequence[int] = BATCHES,
    batch_size: int | None = None,
    time_budget: str | float = BUDGET,
    space: str | Path | None = None,
    numerics: str = KEEP,
    margin: float | str = MARGIN,
    python: Mapping[str, str | Path] | None = None,
    storage: str | Path | None = None,
    trial_timeout: str | float = TIMEOUT,
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
    spec = workload_spec(workload, **options)
    request = FrameworksRequest(
        workload=spec,
        frameworks=None if frameworks is None else ",".join(frameworks),
        batches=batches if isinstance(batches, str) else ",".join(map(str, batches)),
        batch_size=batch_size,
        space=None if space is None else str(space),
        time_budget=str(duration_text(time_budget)),
        pythons=[f"{name}={path}" for name, path in (python or {}).items()],
        numerics=numerics,
        margin=margin_share(margin),
        storage=storage_text(storage) or DEFAULT_STORAGE,
        trial_timeout=str(duration_text(trial_timeout)),
        new=new,
        wait=wait,
        measures=not stored,
    )
    return run_comparison(request, FrameworksShown(stderr_console(quiet=not progress)))
