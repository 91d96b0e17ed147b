"""Where the time of a model's step goes, and what that predicts: overhead, profile, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from rich.console import RenderableType

from tuner.api.options import Duration, WorkloadOptions, request_of
from tuner.api.shown import Printed
from tuner.job.overhead import measure_overhead
from tuner.job.predict import Capture, capture_text, predict_workload, write_capture
from tuner.job.profile import profile_workload
from tuner.job.request import TRIAL_TIMEOUT, OverheadRequest, PredictRequest, ProfileRequest
from tuner.report import model as drawn
from tuner.report.progress import ProfileShown, TaskShown, stderr_console
from tuner.result.model import OverheadResult, PredictionResult, ProfileResult
from tuner.space.values import Value


class RuntimeOverhead(Printed):
    """How much of a step is runtime, by execution and batch size; all of it is in `result`."""

    result: OverheadResult

    def csv(self) -> str:
        """Return a row for each execution and batch size."""
        return drawn.overhead_csv(self.result)

    def page(self) -> Sequence[RenderableType]:
        """Return the answer, what helps, and a table for each execution."""
        return drawn.overhead_page(self.result)

    def chart(self) -> str | None:
        """Return exposed overhead and time per item over batch sizes as SVG; None for one batch size."""
        return drawn.overhead_chart(self.result)

    def files(self) -> dict[str, str | None]:
        """Return the table and the chart."""
        return {"overhead.csv": self.csv(), "chart.svg": self.chart()}


def overhead(
    workload: str | Path,
    *,
    batches: str | Sequence[int] = "1..256",
    executions: str | Sequence[str] = (),
    time_budget: Duration = "10m",
    python: str | Path | None = None,
    trial_timeout: Duration = TRIAL_TIMEOUT,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> RuntimeOverhead:
    """Measure how much of a step of a TensorFlow model is runtime: `tftune overhead`.

    `batches` are such as "1..64" (doubling), "1,8,32" or [1, 8, 32]; `executions` are of graph, eager and xla, all that
    the model has if none are named. Raises BadInputError for what cannot be looked into.
    """
    arguments = locals() | {"executions": executions or options.get("execution") or ()}
    request = request_of(OverheadRequest, arguments)
    return RuntimeOverhead(measure_overhead(request, TaskShown(stderr_console(quiet=not progress))))


class OperatorProfile(Printed):
    """What each operator of a model takes, and what bounds it; all of it is in `result`."""

    result: ProfileResult

    def csv(self) -> str:
        """Return a row for each operator that took any time."""
        return drawn.profile_csv(self.result)

    def page(self, top: int = 12) -> Sequence[RenderableType]:
        """Return the operators that take most, and what bounds them."""
        return drawn.profile_page(self.result, top=top)

    def roofline(self) -> str:
        """Return FLOP/s against FLOPs per byte as SVG, a dot for each operator."""
        return drawn.roofline(self.result)

    def files(self) -> dict[str, str | None]:
        """Return the operators and the roofline."""
        return {"operators.csv": self.csv(), "roofline.svg": self.roofline()}


def profile(
    workload: str | Path,
    *,
    batch_size: int | None = None,
    python: str | Path | None = None,
    trial_timeout: Duration = TRIAL_TIMEOUT,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> OperatorProfile:
    """Measure what each operator of a TensorFlow model takes with one thread and with more: `tftune profile`.

    Raises BadInputError for what has no operators to look at.
    """
    request = request_of(ProfileRequest, locals())
    return OperatorProfile(profile_workload(request, ProfileShown(stderr_console(quiet=not progress))))


class Prediction(Printed):
    """Predicted throughput of settings; all of it is in `result`, and none of it was measured."""

    result: PredictionResult

    def __init__(self, result: PredictionResult, capture: Capture) -> None:
        """Take a result, and what it was predicted from."""
        super().__init__(result)
        self._capture = capture

    def csv(self) -> str:
        """Return a row for each setting, the fastest first."""
        return drawn.prediction_csv(self.result)

    def page(self, top: int = 8) -> Sequence[RenderableType]:
        """Return the best settings, the recommended ones, and why."""
        return drawn.prediction_page(self.result, top=top)

    def chart(self) -> str | None:
        """Return the two knobs that matter most as SVG; None where fewer than two do."""
        return drawn.prediction_chart(self.result)

    def files(self) -> dict[str, str | None]:
        """Return the settings, the picture of the knobs, and what was measured."""
        return {"settings.csv": self.csv(), "knobs.svg": self.chart(), "capture.json": capture_text(self._capture)}

    def write_capture(self, path: str | Path) -> None:
        """Write what was measured of the operators to a file, to predict from it elsewhere."""
        write_capture(self._capture, Path(path))


def predict(
    workload: str | Path,
    *,
    machine: str | Path | None = None,
    settings: Sequence[str | Mapping[str, Value]] = (),
    space: str | Path | None = None,
    pins: Mapping[str, Value] | None = None,
    batch_size: str | int | Sequence[int] | None = None,
    ideal: bool = False,
    profile: str | Path | None = None,
    python: str | Path | None = None,
    trial_timeout: Duration = TRIAL_TIMEOUT,
    new: bool = False,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Prediction:
    """Predict the throughput of a TensorFlow model's settings, here or on another machine: `tftune predict`.

    `machine` is words such as `sockets=2,cores=28,smt=2`, or a file; `settings` are predicted alone, else the whole
    `space`, in which `pins` hold knobs at one value. Operators are measured for about a minute, unless `profile` names
    a capture, the cache has one, or one is shipped of a workload that is to run elsewhere; `new` measures anyway.
    Nothing of the prediction itself is measured. Raises BadInputError for what has no operators to look at, and for a
    profile of another workload.
    """
    request = request_of(PredictRequest, locals())
    return Prediction(*predict_workload(request, ProfileShown(stderr_console(quiet=not progress))))
