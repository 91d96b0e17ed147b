"""What the runtime costs beside the operators: a few figures of traced steps, and how they change with the batch size.

Of a step S, |O| being how long at least one operator runs in it (`tuner.frameworks.framework.Part`):

    exposed overhead    1 - |O| / S; on a GPU, the share in which nothing is computed or copied. The time in which a GPU
                        idles is what TensorFlow's guide to its profiler calls idle or kernel launch time; its share of
                        a step is ours
    launch ratio        median operator / median gap between the launches of two: near 1, operators follow each other
                        without a gap; far below, launching them takes longer than running them; ours
    hiding batch        the smallest batch size from which on the exposed overhead is below a tenth; ours
    profiler cost       a step with the profiler over one without, from blocks in turns in one process
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tuner.frameworks.framework import Part, StepParts
from tuner.stats.estimate import Estimate, estimate
from tuner.trial.outcome import Status
from tuner.workload.workload import Execution

HIDDEN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share with the ends of its interval (95 %); these are None where it is from one step."""

    estimate: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What the steps of a batch size and an execution had beside their operators.

    `shares` are those of the step, by part; `operators` is how many run in a step, and `operator_s` how long one lasts
    (s) on average; `launch_s` is from the launch of a kernel to its begin, on a GPU.
    """

    exposed: Share
    shares: dict[Part, float]
    operators: int
    operator_s: float | None
    launch_ratio: float | None
    launch_s: float | None
    profiler_cost: float
    clock_error: float
    """How far the traced steps are from what a clock around them says, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An execution at a batch size: how long a step takes (s), its rate over the reference's (log), and its overhead.

    `status` tells why there are no figures, where there are none.
    """

    execution: Execution
    batch_size: int
    step_s: float | None = None
    over: Estimate | None = None
    overhead: Overhead | None = None
    status: Status = Status.OK
    message: str = ""
    hint: str = ""


def overhead_of(
    blocks: Sequence[Sequence[StepParts]], *, plain_s: Sequence[float], traced_s: Sequence[float]
) -> Overhead:
    """Return the figures of steps that were traced, in blocks; `plain_s` and `traced_s` are what a clock says (s).

    The former are of steps without the profiler. There has to be a step of each. The interval of the exposed overhead
    is that of the means of the blocks, as steps of one block have more in common.
    """
    steps = [step for block in blocks for step in block]
    durations = [each for step in steps for each in step.operators_s]
    ratios = [ratio for step in steps if (ratio := step.launch_ratio) is not None]
    latencies = [each for step in steps for each in step.latencies_s]
    return Overhead(
        exposed=share_of([fmean(step.exposed for step in block) for block in blocks]),
        shares={part: fmean(step.parts_s[part] / step.step_s for step in steps) for part in Part},
        operators=round(median(len(step.operators_s) for step in steps)),
        operator_s=fmean(durations) if durations else None,
        launch_ratio=median(ratios) if ratios else None,
        launch_s=median(latencies) if latencies else None,
        profiler_cost=median(traced_s) / median(plain_s),
        clock_error=abs(sum(step.step_s for step in steps) / sum(traced_s) - 1.0),
    )


def share_of(values: Sequence[float]) -> Share:
    """Return the mean of shares with Student's interval, which ends at 0 and 1."""
    own = estimate(values)
    if own.df <= 0:
        return Share(estimate=own.mean)
    half = own.half_width()
    return Share(estimate=own.mean, low=max(0.0, own.mean - half), high=min(1.0, own.mean + half))


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingBatch:
    """The smallest batch size that hides the overhead: as it is estimated, at the least, and at the most.

    None where no batch size that was measured does.
    """

    estimate: int | None
    low: int | None
    high: int | None


def hiding_batch(curve: Sequence[tuple[int, Share]]) -> HidingBatch:
    """Return the smallest batch size from which on the exposed overhead is below a share, and for both ends of it.

    `curve` has (batch size, exposed overhead) of those that were measured. A share without an interval may be anything.
    """
    falling = sorted(curve, key=lambda each: -each[0])

    def first(end: Callable[[Share], float]) -> int | None:
        hidden = list(itertools.takewhile(lambda each: end(each[1]) < HIDDEN, falling))
        return hidden[-1][0] if hidden else None

    return HidingBatch(
        estimate=first(lambda share: share.estimate),
        low=first(lambda share: 0.0 if share.low is None else share.low),
        high=first(lambda share: 1.0 if share.high is None else share.high),
    )
