"""What the runtime costs a model, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from rich.console import RenderableType

from tuner.api.options import WorkloadOptions, duration_text, path_text, workload_spec
from tuner.api.progress import OverheadShown, stderr_console
from tuner.api.shown import Printed
from tuner.job.overhead import BATCHES, BUDGET, OverheadEvents, OverheadRequest, measure_overhead
from tuner.job.request import TRIAL_TIMEOUT
from tuner.report.overhead import as_csv, chart, rendered
from tuner.result.overhead import OverheadResult


class RuntimeOverhead(Printed):
    """How much of a step is runtime, by execution and batch size; all of it is in `result`."""

    def __init__(self, result: OverheadResult) -> None:
        """Take a result."""
        self.result = result

    def csv(self) -> str:
        """Return a row for each execution and batch size."""
        return as_csv(self.result)

    def page(self) -> Sequence[RenderableType]:
        """Return the answer, what helps, and a table for each execution."""
        return rendered(self.result)

    def chart(self) -> str | None:
        """Return exposed overhead and time an item over batch sizes as SVG; None for one batch size."""
        return chart(self.result)


def run_overhead(request: OverheadRequest, events: OverheadEvents) -> RuntimeOverhead:
    """Measure what the runtime costs; raises BadInputError before anything is measured."""
    return RuntimeOverhead(measure_overhead(request, events))


def overhead(
    workload: str | Path,
    *,
    batches: str | Sequence[int] = BATCHES,
    executions: str | Sequence[str] = (),
    time_budget: str | float = BUDGET,
    python: str | Path | None = None,
    trial_timeout: str | float = TRIAL_TIMEOUT,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> RuntimeOverhead:
    """Measure how much of a step of a TensorFlow model is runtime: `tftune overhead`.

    `batches` are such as "1..64" (doubling), "1,8,32" or [1, 8, 32]; `executions` are of graph, eager and xla, all that
    the model has if none are named. Raises BadInputError for what cannot be looked into.
    """
    named = executions or options.get("execution", ())
    request = OverheadRequest(
        workload=workload_spec(workload, **options),
        batches=batches if isinstance(batches, str) else ",".join(map(str, batches)),
        executions=named.split(",") if isinstance(named, str) else named,
        python=path_text(python),
        trial_timeout=str(duration_text(trial_timeout)),
        time_budget=str(duration_text(time_budget)),
        wait=wait,
    )
    return run_overhead(request, OverheadShown(stderr_console(quiet=not progress)))
