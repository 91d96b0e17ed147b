"""The profile of a model's operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from rich.console import RenderableType

from tuner.api.options import WorkloadOptions, duration_text, path_text, workload_spec
from tuner.api.progress import ProfileShown, stderr_console
from tuner.api.shown import Printed
from tuner.job.profile import ProfileEvents, ProfileRequest, profile_workload
from tuner.job.request import TRIAL_TIMEOUT
from tuner.report.profile import as_csv, describe_profile, rendered, roofline
from tuner.result.profile import ProfileResult

_TOP = 12


class OperatorProfile(Printed):
    """What each operator of a model takes, and what bounds it; all of it is in `result`."""

    def __init__(self, result: ProfileResult) -> None:
        """Take a result."""
        self.result = result

    def csv(self) -> str:
        """Return a row for each operator that took any time."""
        return as_csv(self.result)

    def page(self) -> Sequence[RenderableType]:
        """Return the operators that take most, and what bounds them."""
        return rendered(self.result, top=_TOP)

    def roofline(self) -> str:
        """Return FLOP/s against FLOPs a byte as SVG, a dot for each operator."""
        return roofline(self.result)


def run_profile(request: ProfileRequest, events: ProfileEvents) -> OperatorProfile:
    """Measure what operators take; raises BadInputError before anything is measured."""
    job, measured = profile_workload(request, events)
    batch_size, pinned = job.space.reference.batch_size, job.seen.pinned
    return OperatorProfile(describe_profile(measured, job.subject, batch_size=batch_size, pinned=pinned))


def profile(
    workload: str | Path,
    *,
    batch_size: int | None = None,
    python: str | Path | None = None,
    trial_timeout: str | float = TRIAL_TIMEOUT,
    wait: bool = False,
    progress: bool = True,
    **options: Unpack[WorkloadOptions],
) -> OperatorProfile:
    """Measure what each operator of a TensorFlow model takes with one thread and with more: `tftune profile`.

    Raises BadInputError for what has no operators to look at.
    """
    request = ProfileRequest(
        workload=workload_spec(workload, **options),
        batch_size=batch_size,
        python=path_text(python),
        trial_timeout=str(duration_text(trial_timeout)),
        wait=wait,
    )
    return run_profile(request, ProfileShown(stderr_console(quiet=not progress)))
