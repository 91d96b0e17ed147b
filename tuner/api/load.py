"""Load tests of a study's settings, and how many copies of them carry a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType

from tuner.api.options import Duration, request_of, storage_text
from tuner.api.shown import Printed, Shown, Tabled
from tuner.errors import BadInputError
from tuner.job import load as loads
from tuner.job.load import load_study
from tuner.job.request import LoadRequest, SizeRequest
from tuner.report import load as drawn
from tuner.report.progress import TaskShown, stderr_console
from tuner.result.load import LoadResult, SizeResult, stored_load
from tuner.study.storage import find_in, storage_errors


class LoadTest(Shown, Tabled):
    """How a study's settings respond to requests at random times; all of it is in `result`."""

    result: LoadResult

    def __init__(self, result: LoadResult) -> None:
        """Take a result."""
        super().__init__(result, drawn.load_card(result))

    def csv(self) -> str:
        """Return a row for each point of each curve, and for each that was measured."""
        return drawn.as_csv(self.result)

    def page(self, *, details: bool = False) -> Sequence[RenderableType]:
        """Return the answer and the curves; with `details` all points, and those that were measured."""
        return drawn.rendered(self.result, details=details)

    def chart(self) -> str:
        """Return the curves as SVG."""
        return drawn.chart(self.result)

    def files(self) -> dict[str, str | None]:
        """Return the table and the chart."""
        return {"table.csv": self.csv(), "chart.svg": self.chart()}


class Sizing(Printed):
    """How many copies carry a load; all of it is in `result`."""

    result: SizeResult

    def csv(self) -> str:
        """Return a row for each setting on each machine."""
        return drawn.sizes_csv(self.result)

    def page(self) -> Sequence[RenderableType]:
        """Return the answer, and all rows."""
        return drawn.size_page(self.result)

    def files(self) -> dict[str, str | None]:
        """Return the table."""
        return {"table.csv": self.csv()}


def load_test(
    study: str = "last",
    *,
    max_p99_ms: float | str | None = None,
    max_batch: int | None = None,
    batch_wait_ms: float | str | None = None,
    time_budget: Duration = "4m",
    python: str | Path | None = None,
    storage: str | Path | None = None,
    trial_timeout: Duration | None = None,
    wait: bool = False,
    progress: bool = True,
) -> LoadTest:
    """Measure a study's settings under load: `tftune load`.

    `max_p99_ms` is the limit (ms, or text with a unit) on the 99th percentile of the responses; without one, it is that
    of the study, if it has one. Batches are those that carry most within it, or have at most `max_batch` requests and
    wait at most `batch_wait_ms` for them. Raises BadInputError where the study cannot be measured so, or not here.
    """
    request = request_of(LoadRequest, locals())
    return LoadTest(load_study(request, TaskShown(stderr_console(quiet=not progress))))


@storage_errors()
def stored_load_test(study: str = "last", storage: str | Path | None = None) -> LoadTest:
    """Return the last load test of a stored study; raises BadInputError where there is none."""
    record = find_in(storage_text(storage), study)
    result = stored_load(record)
    if result is None:
        raise BadInputError(f"study {record.name} was not measured under load yet", f"tftune load {record.name}")
    return LoadTest(result)


def size(
    rate: float | str,
    max_p99_ms: float | str,
    *,
    study: str = "last",
    headroom: float | str = "20%",
    costs: Mapping[str, float] | None = None,
    storage: str | Path | None = None,
) -> Sizing:
    """Return how many copies of a setting carry `rate` requests per second within a limit (ms): `tftune size`.

    `costs` are those of a copy by machine or study, in any unit. `headroom` is a percentage.
    """
    request = request_of(SizeRequest, locals())
    return Sizing(loads.size(request))
