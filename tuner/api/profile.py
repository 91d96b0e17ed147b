"""The profile of a model's operators."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from rich.console import Console

from tuner.api.options import WorkloadOptions, duration_text, path_text, workload_spec
from tuner.api.progress import ProfileShown, stderr_console
from tuner.job.profile import ProfileEvents, ProfileRequest, profile_workload
from tuner.job.request import TRIAL_TIMEOUT
from tuner.report.profile import as_csv, describe_profile, rendered, roofline
from tuner.result.profile import ProfileResult

if TYPE_CHECKING:
    import pandas as pd

_TOP, _WIDTH = 12, 120


class OperatorProfile:
    """What each operator of a model takes, and what bounds it; all of it is in `result`."""

    def __init__(self, result: ProfileResult) -> None:
        """Take a result."""
        self.result = result

    def table(self) -> pd.DataFrame:
        """Return a row for each operator that took any time."""
        import pandas as pd

        return pd.read_csv(io.StringIO(as_csv(self.result)))

    def roofline(self) -> str:
        """Return FLOP/s against FLOPs a byte as SVG, a dot for each operator."""
        return roofline(self.result)

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=_WIDTH).print(*rendered(self.result, top=_TOP), sep="\n")
        return text.getvalue()


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
