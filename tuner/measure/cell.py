"""A cell: one contender at one batch size, in a process of its own that takes turns with a live reference process.

The contenders of a table may be of different frameworks, each with a launcher of its own. What they have in common is
the reference at the same batch size, whose drift is thereby taken out, and the inputs, on which outputs are compared
before anything is timed.

Notation
    x (n,)    log-ratios of the contender's rate to the reference's, one a block
    σ_w, σ_p  standard deviations of a block within a pair, and between processes (`tuner.stats.noise`)
    m         slices of either in a block
    estimate  x̄,   se² = s̃²/n + 2σ_p²,   where s̃² is the moderated variance of the blocks (`tuner.stats.moderation`),
              believed to be 2σ_w²/m, with the σ_w that the other cells show (`block_sd`)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.measure.agreement import Sample, deviation, moved_text
from tuner.measure.finals import Contender
from tuner.measure.interruption import stalled
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, PairPlan, log_ratios, measure_pair
from tuner.stats.estimate import Array, Estimate
from tuner.stats.moderation import moderated_estimate, moderated_variances
from tuner.stats.noise import PRIOR_BLOCK_SD, PRIOR_DF, PRIOR_NOISE, Noise
from tuner.trial.launcher import Launcher, Process
from tuner.trial.outcome import ReadyReport, Slice, Status, TrialFailure

MAX_PAIR_S = 20.0
_MAX_BLOCK_S = 20.0  # of ABBA


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What came of a contender at a batch size. `pair` is None of one that failed.

    The reference itself is paired with its process at another batch size, `paired_batch_size`, so that a curve over
    batch sizes has no drift in it either. `constructor_s` is from the start of the interpreter's work to a loaded
    model, `first_batch_s` how long the first batch took, `deviation` how far outputs lie from the reference's,
    relative to the largest of these.
    """

    contender: str
    batch_size: int
    status: Status = Status.OK
    message: str = ""
    pair: Pair | None = None
    paired_batch_size: int | None = None
    """That of the process which it took turns with, None where that is its own."""
    constructor_s: float | None = None
    first_batch_s: float | None = None
    deviation: float | None = None
    precision: str | None = None
    peak_memory_bytes: int | None = None

    @property
    def slices(self) -> Sequence[Slice]:
        """Return what the contender ran."""
        return self.pair.candidate if self.pair else ()

    def estimate(self, noise: Noise = PRIOR_NOISE) -> Estimate | None:
        """Return its log-ratio, of items a second, to the process which it took turns with; None without a pair."""
        if self.pair is None:
            return None
        return estimate(self.pair, batch_sizes=self._batch_sizes, noise=noise)

    @property
    def log_ratios(self) -> Array:
        """Return x, shape (n,); n is 0 without a pair."""
        if self.pair is None:
            return np.empty(0)
        return log_ratios(self.pair, Objective.THROUGHPUT, batch_sizes=self._batch_sizes)

    @property
    def _batch_sizes(self) -> tuple[int, int]:
        return self.batch_size, self.paired_batch_size or self.batch_size

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Cell:
        """Return a stored cell."""
        pair = None if data["pair"] is None else Pair.from_dict(data["pair"])
        return cls(**(data | {"status": Status(data["status"]), "pair": pair}))

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as plain data."""
        return {
            "contender": self.contender,
            "batch_size": self.batch_size,
            "status": self.status.value,
            "message": self.message,
            "pair": self.pair.to_dict() if self.pair else None,
            "paired_batch_size": self.paired_batch_size,
            "constructor_s": self.constructor_s,
            "first_batch_s": self.first_batch_s,
            "deviation": self.deviation,
            "precision": self.precision,
            "peak_memory_bytes": self.peak_memory_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """How a cell is measured: in such a pair, which ends once the interval is narrow, or after `max_pair_s` (s).

    Where a block ABBA would last too long, it is AB (`is_long_block`). `half_width` is that of the interval (log).
    Where quantiles of the contender's steps are wanted, each told by so many steps (`tail_steps`), the pair goes on to
    the most that it has within `max_tail_s` (s).
    """

    pair: PairPlan
    max_pair_s: float = MAX_PAIR_S
    half_width: float = 0.03
    tail_steps: Sequence[int] = ()
    max_tail_s: float = 0.0

    def pair_of(self, step_s: tuple[float, float]) -> PairPlan:
        """Return how two are paired whose steps last so long (s)."""
        both_s = sum(max(each, self.pair.slice_s) for each in step_s)
        return replace(self.pair, slices_per_block=1) if is_long_block(both_s) else self.pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A live process of the reference at a batch size, paused, and what it said when it was warm."""

    process: Process
    facts: ReadyReport
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAgainst:
    """What a contender has to agree with: the reference's outputs, and its precision, None where another is wanted."""

    sample: Sample | None
    precision: str | None


def block_sd(cells: Iterable[Cell]) -> float:
    """Return σ_w, in the light of how the blocks of each pair scatter, and of what is believed before.

    Without this, a pair of one block would be taken to be as good as on any machine.
    """
    scaled = [cell.log_ratios * math.sqrt(cell.pair.slices_per_block / 2) for cell in cells if cell.pair is not None]
    df = [PRIOR_DF, *(len(x) - 1.0 for x in scaled), 0.0]
    sums = [PRIOR_DF * PRIOR_BLOCK_SD**2, *(float(((x - x.mean()) ** 2).sum()) for x in scaled), 0.0]
    return math.sqrt(float(moderated_variances(np.array(sums), np.array(df))[-1]))  # that of which nothing is known


def estimate(pair: Pair, *, batch_sizes: tuple[int, int], noise: Noise = PRIOR_NOISE) -> Estimate:
    """Return the log-ratio of a pair's candidate to its reference; `batch_sizes` in that order."""
    x = log_ratios(pair, Objective.THROUGHPUT, batch_sizes=batch_sizes)
    block_sd = noise.block_sd * math.sqrt(2 / pair.slices_per_block)
    moderated = moderated_estimate(x, prior_sd=block_sd, prior_df=PRIOR_DF)
    return moderated.widened(math.sqrt(2) * noise.process_sd)


def measure_cell(
    contender: Contender, launcher: Launcher, reference: Reference, plan: CellPlan, check: Callable[[ReadyReport], Cell]
) -> Cell:
    """Start a process of a contender, look at what it is, and time it in turns with the reference.

    `check` makes the cell from what the process tells when it is warm; one whose status is not ok is not timed. A
    failure is the cell's; raises ReferenceLost for one of the reference.
    """
    batch_size = contender.setting.batch_size
    cell = Cell(contender=contender.names[0], batch_size=batch_size)
    process = launcher.launch(contender.setting, contender.deployment)
    try:
        facts = process.ready()
        process.pause()
        cell = check(facts)
        if cell.status is not Status.OK:
            return cell
        step_s = (reference.facts.step_s, facts.step_s)
        own = plan.pair_of(step_s)
        pair = measure_pair(
            reference.process,
            process,
            own,
            step_s=step_s,
            turn=facts.warm_up if _is_turn(facts, contender, own) else None,
            enough=lambda pair: is_enough(pair, (batch_size, reference.batch_size), plan),
        )
    except TrialFailure as failure:
        return replace(cell, status=failure.status, message=failure.message)
    finally:
        peak_memory_bytes = process.close().peak_memory_bytes
    return replace(cell, pair=pair, peak_memory_bytes=peak_memory_bytes)


def _is_turn(facts: ReadyReport, contender: Contender, plan: PairPlan) -> bool:
    """Return whether the end of a warm-up is as good as a slice.

    It has to be as long, and of one process, as several are not warm at once. A stall is seen beside the first step.
    """
    is_whole = facts.warm_up.elapsed_s >= plan.request_s(facts.step_s) and contender.deployment.processes == 1
    return is_whole and stalled([facts.first_step_s], [facts.warm_up]) is None


def checked_cell(
    name: str, batch_size: int, facts: ReadyReport, precision: str | None, reference: CheckedAgainst, *, limit: float
) -> Cell:
    """Return the cell of a process that is warm: invalid where it computes something else than the reference.

    That is: in another precision, though none was asked for (`reference.precision` is None where one was), or outputs
    that deviate by more than `limit`.
    """
    apart = deviation(reference.sample, facts.sample)
    cell = Cell(
        contender=name,
        batch_size=batch_size,
        constructor_s=round(facts.context_s + facts.load_s, 4),
        first_batch_s=round(facts.first_step_s, 4),
        deviation=apart,
        precision=precision,
    )
    if None not in (precision, reference.precision) and precision != reference.precision:
        message = f"it computes in {precision}, and TensorFlow in {reference.precision}"
        return replace(cell, status=Status.INVALID, message=message)
    if apart is not None and apart > limit:
        differ = f"its outputs deviate from TensorFlow's by {apart:.2g}, more than {limit:g}"
        message = moved_text(reference.sample, facts.sample, than="TensorFlow's") or differ
        return replace(cell, status=Status.INVALID, message=message)
    return cell


def is_long_block(both_s: float) -> bool:
    """Return whether a block ABBA lasts too long of two whose slices last for so long (s) together."""
    return 2 * both_s > _MAX_BLOCK_S


def is_enough(pair: Pair, batch_sizes: tuple[int, int], plan: CellPlan) -> bool:
    """Return whether a pair needs no more blocks."""
    low, high = estimate(pair, batch_sizes=batch_sizes).interval()
    is_known = math.log(high / low) / 2 <= plan.half_width
    n_steps = sum(len(each.latency_samples_s) for each in pair.candidate)
    within_reach = [n for n in plan.tail_steps if pair.timed_s * n / max(1, n_steps) <= plan.max_tail_s]
    if n_steps < max(within_reach, default=0):
        return False
    return is_known or pair.is_long(plan.max_pair_s)
