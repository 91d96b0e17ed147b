"""The standings: the rows that a line-up comes to, and which framework is the fastest.

Notation
    y (r, c)  mean log rates of c contenders in r rounds of the finals; contender 0 is the reference
    ratio     of a contender at the batch size of the finals: exp of the mean of y_j − y_0, with a paired t-interval
              (`tuner.stats.estimate.paired`); at other batch sizes: of its pair (`tuner.measure.cell.estimate`)
    rate      of the reference: its mean in the finals; at another batch size, times the ratio of its pair there, in
              which it takes turns with itself at the batch size of the finals. Of a contender: that times its ratio.
              So all rates are of one hour, and a curve over batch sizes shows no drift

Multiplicity. Intervals are of 95 % each. A verdict is at the level 1 − 0.05/m (Bonferroni): of the m ratios to the
reference at one batch size, and, apart from these, of the m pairs of frameworks at their best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median

import numpy as np
from msgspec import convert

from tuner.machine.conditions import Conditions
from tuner.measure.agreement import TELLING_SPREAD
from tuner.measure.cell import Cell, block_sd
from tuner.measure.finals import failures
from tuner.measure.objective import Objective
from tuner.measure.warning import Code, MeasurementWarning, condition_warnings, input_warnings, merge
from tuner.report import evidence
from tuner.report.lineup import Kind, Lineup, Side
from tuner.report.result.frameworks import (
    AbsentResult,
    FastestResult,
    FrameworksResult,
    RatioResult,
    RowResult,
    TunedResult,
)
from tuner.report.result.study import VerdictResult, WarningResult
from tuner.stats.equivalence import UNMEASURED, verdict_on
from tuner.stats.estimate import Estimate
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.stats.tail import samples_needed
from tuner.trial.meter import energy_of
from tuner.trial.outcome import Slice, Status

_ALPHA = 0.05
_MIN_ROUNDS = 4  # of which the scatter between processes is taken rather than assumed
_QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def describe(lineup: Lineup) -> FrameworksResult:
    """Return what is published of a line-up."""
    conditions = lineup.conditions
    of_conditions = [] if conditions is None else condition_warnings(conditions)
    of_inputs = input_warnings(lineup.subject.workload.fed, lineup.outputs)
    warnings = merge(of_inputs, of_conditions, evidence.round_warnings(lineup.rounds), _output_warnings(lineup))
    return FrameworksResult(
        comparison=lineup.name,
        machine=lineup.subject.machine,
        device=lineup.subject.device,
        workload=lineup.subject.workload,
        reference=lineup.sides[0].framework,
        batch_size=lineup.batch_size,
        margin=lineup.margin,
        builds={side.framework: dict(side.build) for side in lineup.sides},
        rows=(*rows_of(lineup), *_dropped(lineup)),
        fastest=_fastest(lineup),
        searches={name: TunedResult(**tuned.to_dict()) for name, tuned in lineup.tuned.items()},
        absent=tuple(AbsentResult(**asdict(each)) for each in lineup.absent),
        rounds=sum(not each.interruptions for each in lineup.rounds),
        ended=lineup.ended,
        why_no_energy=lineup.why_no_energy,
        conditions=None if conditions is None else convert(conditions.to_dict(), Conditions),
        warnings=tuple(WarningResult.of(warning) for warning in warnings),
    )


def _output_warnings(lineup: Lineup) -> list[MeasurementWarning]:
    """Return what makes the agreement of outputs say little."""
    if lineup.spread is None or lineup.spread >= TELLING_SPREAD:
        return []
    observation = f"the outputs of {lineup.sides[0].framework} are all nearly the same number"
    return [MeasurementWarning(code=Code.FLAT_OUTPUTS, observation=observation)]


def rows_of(lineup: Lineup) -> list[RowResult]:
    """Return all rows: by batch size, then in the order of the sides; a tuned row for each framework that was tuned."""
    noise = _noise(lineup)
    sizes = sorted({*(cell.batch_size for cell in lineup.cells), *([lineup.batch_size] if lineup.rounds else [])})
    rows: list[RowResult] = []
    for batch_size in sizes:
        in_finals = batch_size == lineup.batch_size and lineup.reference in lineup.names
        cells = {cell.contender: cell for cell in lineup.cells if cell.batch_size == batch_size}
        reference_rate = _reference_log_rate(lineup, batch_size, cells)
        of_batch: list[RowResult] = []
        for side in lineup.sides:
            cell = cells.get(side.name)
            if in_finals and _took_part(lineup, side):
                of_batch.append(_finals_row(lineup, side, reference_rate))
            elif cell is not None and not in_finals:
                of_batch.append(_cell_row(lineup, side, cell, reference_rate, noise))
        rows += _with_kept_defaults(lineup, of_batch)
    return rows


def _dropped(lineup: Lineup) -> list[RowResult]:
    """Return a row without figures for each framework that was tried and left out."""
    return [
        RowResult(
            framework=each.framework, kind=Kind.DEFAULT.value, batch_size=lineup.batch_size, setting={},
            is_default=True, status=Status(each.status), message=each.reason, items_per_s=None, ratio=None,
            verdict=None, batch_ratio=None, source=None, n=0, precision=each.precision, deviation=each.deviation,
            p50_ms=None, p95_ms=None, p99_ms=None, load_s=None, first_batch_s=None, cold_load_s=None,
            cold_first_batch_s=None, peak_memory_bytes=None, energy_j_per_item=None,
        )
        for each in lineup.absent
        if each.status in set(Status)
    ]  # fmt: skip


def _with_kept_defaults(lineup: Lineup, rows: Sequence[RowResult]) -> list[RowResult]:
    """Return the rows with a tuned one for each framework whose search keeps the default."""
    has_tuned = {side.framework for side in lineup.sides if side.kind == Kind.TUNED}
    all_rows: list[RowResult] = []
    for row in rows:
        all_rows.append(row)
        search = lineup.tuned.get(row.framework)
        if row.framework not in has_tuned and search is not None and search.setting is not None:
            fields = {name: getattr(row, name) for name in row.__struct_fields__}
            all_rows.append(RowResult(**(fields | {"kind": Kind.TUNED.value, "is_default": True})))
    return all_rows


def _took_part(lineup: Lineup, side: Side) -> bool:
    """Return whether a side ran in the finals, or failed in them; one whose turn is yet to come did not."""
    return side.name in lineup.names or side.name in failures(lineup.rounds)


def _finals_row(lineup: Lineup, side: Side, reference_rate: float | None) -> RowResult:
    """Return the row of a side at the batch size of the finals."""
    slices = [each for r in lineup.rounds if not r.interruptions for each in r.slices.get(side.name, [])]
    reason = failures(lineup.rounds).get(side.name, "")
    memory = evidence.memory_of(lineup.rounds, side.name)
    own = lineup.log_ratio(side.name, lineup.reference)
    is_reference = side.name == lineup.reference
    runs = side.name in lineup.names
    return _row(
        lineup,
        side,
        batch_size=lineup.batch_size,
        status=Status.OK if runs else Status.FAILED,
        message="" if runs else reason,
        own=None if is_reference else own,
        reference_rate=reference_rate if runs else None,
        source="finals",
        n=0 if own is None else own.n,
        slices=slices,
        peak_memory_bytes=memory or (side.start.peak_memory_bytes if side.start else None),
        deviation=None if side.start is None else side.start.deviation,
        precision=side.precision,
    )


def _cell_row(lineup: Lineup, side: Side, cell: Cell, reference_rate: float | None, noise: Noise) -> RowResult:
    """Return the row of a cell."""
    own, of_batch = cell.estimate(noise), None
    slices: Sequence[Slice] = cell.slices
    if side.name == lineup.reference:
        own, of_batch = None, own
        slices = _reference_slices(lineup, cell)
    return _row(
        lineup,
        side,
        batch_size=cell.batch_size,
        status=cell.status,
        message=cell.message,
        own=own,
        reference_rate=reference_rate if cell.status is Status.OK else None,
        source="pair",
        n=0 if cell.pair is None else cell.pair.n_blocks,
        slices=slices,
        peak_memory_bytes=cell.peak_memory_bytes,
        deviation=cell.deviation,
        precision=cell.precision,
        of_batch=of_batch,
    )


def _reference_slices(lineup: Lineup, cell: Cell) -> list[Slice]:
    """Return what the reference ran at the batch size of its cell, beside the others too, each slice once.

    Slices of the same pass stand in several cells, in some of them two joined: the single ones count.
    """
    others = [each for each in lineup.cells if each.batch_size == cell.batch_size and each is not cell]
    slices = [*cell.slices, *(each for other in others if other.pair is not None for each in other.pair.reference)]
    slices.sort(key=lambda each: each.n_steps, reverse=True)
    return list({each.start_s: each for each in slices}.values())


def _row(
    lineup: Lineup,
    side: Side,
    *,
    batch_size: int,
    status: Status,
    message: str,
    own: Estimate | None,
    reference_rate: float | None,
    source: str,
    n: int,
    slices: Sequence[Slice],
    peak_memory_bytes: int | None,
    deviation: float | None,
    precision: str | None,
    of_batch: Estimate | None = None,
) -> RowResult:
    """Return a row; `own` is the log-ratio to the reference, None of that itself.

    `of_batch` is that of the reference to itself at the batch size of the finals.
    """
    is_reference = side.name == lineup.reference
    log_rate = None if reference_rate is None else reference_rate + (own.mean if own is not None else 0.0)
    verdict = None
    if own is not None and not is_reference:
        verdict = verdict_on(own, level=1 - _ALPHA / max(1, len(lineup.sides) - 1), margin=lineup.margin).code
    loading = lineup.loads.get(side.framework) if side.kind == Kind.DEFAULT else None
    joules, _ = energy_of(slices)
    n_items = batch_size * sum(each.n_steps for each in slices)
    return RowResult(
        framework=side.framework,
        kind=side.kind,
        batch_size=batch_size,
        setting=side.contender.setting.with_values(batch_size=batch_size).to_dict(),
        is_default=side.kind == Kind.DEFAULT,
        status=status,
        message=message,
        items_per_s=None if log_rate is None or (own is None and not is_reference) else math.exp(log_rate),
        ratio=_ratio(own),
        batch_ratio=_ratio(of_batch),
        verdict=verdict,
        source=source if status is Status.OK else None,
        n=n,
        precision=precision,
        deviation=deviation,
        **_quantiles_ms(slices),
        load_s=None if loading is None else median(map(sum, loading.warm)),
        first_batch_s=None if loading is None else median(first for _, first in loading.warm),
        cold_load_s=None if loading is None else median(map(sum, loading.cold)),
        cold_first_batch_s=None if loading is None else median(first for _, first in loading.cold),
        peak_memory_bytes=peak_memory_bytes,
        energy_j_per_item=None if joules is None or not n_items else joules / n_items,
    )


def _ratio(own: Estimate | None) -> RatioResult | None:
    """Return a ratio with its interval, None where it has none."""
    if own is None or not math.isfinite(own.se) or own.df <= 0:
        return None
    low, high = own.interval()
    return RatioResult(low=low, speedup=own.ratio, high=high)


def _quantiles_ms(slices: Sequence[Slice]) -> dict[str, float | None]:
    """Return quantiles of the steps (ms), None for those that too few steps tell of."""
    step_s = [step for each in slices for step in each.latency_samples_s]
    return {
        name: 1000 * float(np.quantile(step_s, p)) if len(step_s) >= samples_needed(p) else None
        for name, p in _QUANTILES.items()
    }


def _mean(lineup: Lineup, name: str) -> float:
    """Return a contender's mean log rate in the finals."""
    return float(np.nanmean(lineup.y[:, lineup.names.index(name)]))


def _reference_log_rate(lineup: Lineup, batch_size: int, cells: Mapping[str, Cell]) -> float | None:
    """Return the reference's mean log rate at a batch size, whose cells are given; None where it is not known."""
    anchors = [cell for cell in lineup.cells if cell.contender == lineup.reference and cell.pair is not None]
    if lineup.reference in lineup.names:
        base = _mean(lineup, lineup.reference)
    elif anchors:
        slices = [each for cell in anchors if cell.pair is not None for each in cell.pair.reference]
        base = float(np.mean([Objective.THROUGHPUT.log_rate(each, lineup.batch_size) for each in slices]))
    else:
        return None
    if batch_size == lineup.batch_size:
        return base
    of_batch = cells[lineup.reference].estimate() if lineup.reference in cells else None
    return None if of_batch is None else base + of_batch.mean


def _noise(lineup: Lineup) -> Noise:
    """Return the noise of this machine: blocks scatter as they do in the cells that have several, and processes as they
    do in the finals, or as is assumed without them.

    What remains of y without the means of rounds and contenders has the variance σ_p² + σ_w²/m, which is taken for
    σ_p²: a little too much.
    """
    y = lineup.y[~np.isnan(lineup.y).any(axis=1)] if lineup.y.size else lineup.y
    r, c = y.shape if y.ndim == 2 else (0, 0)
    if r < _MIN_ROUNDS or c < 2:
        return replace(PRIOR_NOISE, block_sd=block_sd(lineup.cells))
    rest = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    process_sd = math.sqrt(float((rest**2).sum()) / ((r - 1) * (c - 1)))
    return replace(PRIOR_NOISE, block_sd=block_sd(lineup.cells), process_sd=process_sd)


def bests(lineup: Lineup) -> list[Side]:
    """Return each framework at its best in the precision of the reference, the fastest first, as far as it is known."""
    precision = lineup.sides[0].precision
    best: dict[str, Side] = {}
    for side in lineup.sides:
        if side.name not in lineup.names or (precision != side.precision and None not in (precision, side.precision)):
            continue
        # The tuned one stands after the default, and is the best unless it was shown to be slower.
        if side.framework not in best or not _is_slower(lineup, side, best[side.framework]):
            best[side.framework] = side
    # By ratios, as who left the finals early ran at other times than who stayed.
    return sorted(best.values(), key=lambda side: _log_relative(lineup, side), reverse=True)


def _fastest(lineup: Lineup) -> FastestResult | None:
    """Return the fastest framework at its best, and what is said of it against the others at theirs."""
    sides = bests(lineup)
    if sum(math.isfinite(_log_relative(lineup, side)) for side in sides) < 2:
        return None
    first, *others = sides
    level = 1 - _ALPHA / math.comb(1 + len(others), 2)
    over = {}
    for other in others:
        own = lineup.log_ratio(first.name, other.name)  # None where they had no round in common yet
        verdict = UNMEASURED if own is None else verdict_on(own, level=level, margin=lineup.margin)
        over[other.framework] = VerdictResult.of(verdict)
    return FastestResult(framework=first.framework, kind=first.kind, over=over)


def _is_slower(lineup: Lineup, side: Side, other: Side) -> bool:
    """Return whether a side was shown to be slower than another."""
    ratio = lineup.log_ratio(side.name, other.name)
    return ratio is not None and ratio.df > 0 and ratio.interval()[1] < 1.0


def _log_relative(lineup: Lineup, side: Side) -> float:
    """Return the log-ratio of a side to the reference in the finals, 0 of that itself; -inf where it is not known."""
    if side.name == lineup.reference:
        return 0.0
    ratio = lineup.log_ratio(side.name, lineup.reference)
    return -math.inf if ratio is None else ratio.mean
