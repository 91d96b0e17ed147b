"""Predictions: what settings would do, here or on a machine that is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from rich.console import RenderableType

from tuner.api.options import (
    WorkloadOptions,
    batch_sizes_text,
    duration_text,
    path_text,
    pins_text,
    setting_text,
    workload_spec,
)
from tuner.api.progress import ProfileShown, stderr_console
from tuner.api.shown import Printed
from tuner.job.capture import Capture, write_capture
from tuner.job.predict import PredictRequest, predict_workload
from tuner.job.profile import ProfileEvents
from tuner.job.request import TRIAL_TIMEOUT, SearchRequest
from tuner.report.prediction import as_csv, chart, rendered
from tuner.result.prediction import PredictionResult
from tuner.space.values import Value


class Prediction(Printed):
    """Predicted throughput of settings; all of it is in `result`, and none of it was measured."""

    def __init__(self, result: PredictionResult, capture: Capture) -> None:
        """Take a result, and what it was predicted from."""
        self.result = result
        self._capture = capture

    def csv(self) -> str:
        """Return a row for each setting, the fastest first."""
        return as_csv(self.result)

    def page(self) -> Sequence[RenderableType]:
        """Return the best settings, the recommended ones, and why."""
        return rendered(self.result)

    def chart(self) -> str | None:
        """Return the two knobs that matter most as SVG; None where fewer than two do."""
        return chart(self.result)

    def write_capture(self, path: str | Path) -> None:
        """Write what was measured of the operators to a file, to predict from it elsewhere."""
        write_capture(self._capture, Path(path))


def run_prediction(request: PredictRequest, events: ProfileEvents) -> Prediction:
    """Predict settings; raises BadInputError for what cannot be profiled or predicted."""
    return Prediction(*predict_workload(request, events))


def predict(
    workload: str | Path,
    *,
    machine: str | Path | None = None,
    settings: Sequence[str | Mapping[str, Value]] = (),
    space: str | Path | None = None,
    pins: Mapping[str, Value] | None = None,
    batch_size: int | Sequence[int] | None = None,
    ideal: bool = False,
    profile: str | Path | None = None,
    python: str | Path | None = None,
    trial_timeout: str | float = TRIAL_TIMEOUT,
    new: bool = False,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> Prediction:
    """Predict the throughput of a TensorFlow model's settings, here or on another machine: `tftune predict`.

    `machine` is words such as `sockets=2,cores=28,smt=2`, or a file; `settings` are predicted alone, else the whole
    `space`, in which `pins` hold knobs at one value. Operators are measured for about a minute, unless `profile` names
    a capture or the cache has one; `new` measures anyway. Nothing of the prediction itself is measured. Raises
    BadInputError for what has no operators to look at, and for a profile of something else.
    """
    request = PredictRequest(
        search=SearchRequest(
            workload=workload_spec(workload, **options),
            space=path_text(space),
            pins=pins_text(pins),
            batch_size=batch_sizes_text(batch_size),
            python=path_text(python),
            trial_timeout=str(duration_text(trial_timeout)),
            instances=True,
        ),
        machine=path_text(machine),
        settings=[setting_text(each) for each in settings],
        profile=None if profile is None else Path(profile),
        ideal=ideal,
        new=new,
        wait=wait,
    )
    return run_prediction(request, ProfileShown(stderr_console(quiet=not progress)))
