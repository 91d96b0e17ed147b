"""A line-up: what was measured of frameworks side by side, and the rows that this comes to.

Notation
    y (r, c)  mean log rates of c contenders in r rounds of the finals; contender 0 is the reference
    ratio     of a contender at the batch size of the finals: exp of the mean of y_j − y_0, with a paired t-interval
              (`tuner.stats.estimate.paired`); at other batch sizes: of its pair (`tuner.measure.cell.estimate`)
    rate      of a contender: the reference's mean rate times its ratio, so that all rates are of one hour

Multiplicity. Intervals are of 95 % each. A verdict is at the level 1 − 0.05/m (Bonferroni): of the m ratios to the
reference at one batch size, and, apart from these, of the m pairs of frameworks at their best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
from msgspec import convert

from tuner.machine.conditions import Conditions
from tuner.measure.cell import Cell, estimate
from tuner.measure.finals import Contender, Round, failures, log_rates
from tuner.measure.objective import Objective
from tuner.measure.warning import condition_warnings, merge
from tuner.report import evidence
from tuner.report.result.frameworks import (
    AbsentResult,
    FastestResult,
    FrameworksResult,
    RatioResult,
    RowResult,
    TunedResult,
)
from tuner.report.result.study import StudyResult, VerdictResult, WarningResult
from tuner.space.values import Value
from tuner.stats.equivalence import MARGIN, VerdictCode, verdict_on
from tuner.stats.estimate import Array, Estimate, paired
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.stats.tail import samples_needed
from tuner.study.subject import Subject
from tuner.trial.meter import energy_of
from tuner.trial.outcome import Slice, Status

DEFAULT, TUNED = "default", "tuned"
_ALPHA = 0.05
_MIN_ROUNDS = 4  # of which the scatter between processes is taken rather than assumed
_QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a search came to. `setting` is None where it failed."""

    study: str | None
    setting: dict[str, Value] | None
    failure: str = ""

    @classmethod
    def of(cls, study: StudyResult) -> Tuned:
        """Return the setting of a search: what it recommends, or, where it shows nothing, its best one.

        That is measured anew here, so that nothing is claimed of it yet. The default is kept where the best other
        setting was shown to be no better.
        """
        recommended, best = study.recommended, study.incumbent
        default = dict(study.baselines[study.default].setting)
        verdict = (study.verdicts or {}).get(study.default)
        is_open = verdict is None or verdict.code in (VerdictCode.UNDECIDED, VerdictCode.BETTER)
        if recommended is not None and dict(recommended.setting) != default:
            setting = dict(recommended.setting)
        elif best is not None and is_open and (best.ratio or 0.0) > 1.0:
            setting = dict(best.setting)
        else:
            setting = default
        return cls(study=study.study, setting=setting)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @property
    def text(self) -> str:
        """Return the setting in words."""
        return self.failure or " ".join(f"{name}={value}" for name, value in (self.setting or {}).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A setting of a framework that takes part."""

    framework: str
    kind: str
    contender: Contender
    build: Mapping[str, Any]
    precision: str | None
    deviation: float | None

    @property
    def name(self) -> str:
        """Return its name among the contenders."""
        return self.contender.names[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How long (s) starts took until the first answer, with files in the page cache (warm) and without (cold)."""

    cold: list[float]
    warm: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A framework that takes no part."""

    framework: str
    reason: str
    hint: str
    status: str = "not installed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """All that was measured; the first side is the reference."""

    name: str | None
    subject: Subject
    batch_size: int
    sides: Sequence[Side]
    absent: Sequence[Absent]
    tuned: Mapping[str, Tuned]
    rounds: Sequence[Round]
    cells: Sequence[Cell]
    loads: Mapping[str, Loading]
    ended: str
    conditions: Conditions
    why_no_energy: str | None
    margin: float = MARGIN
    y: Array = field(init=False)
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Take the log rates out of the rounds, once."""
        names, y = log_rates(self.rounds, [side.contender for side in self.sides], Objective.THROUGHPUT)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "y", y)

    @property
    def reference(self) -> str:
        """Return the name of the contender that all are compared with."""
        return self.sides[0].name

    def log_ratio(self, name: str, to: str) -> Estimate | None:
        """Return the log-ratio of two contenders in the finals; None where they did not run together."""
        if name not in self.names or to not in self.names:
            return None
        i, j = self.names.index(to), self.names.index(name)
        both = ~np.isnan(self.y[:, i]) & ~np.isnan(self.y[:, j])
        return paired(self.y, i, j) if both.any() else None


def describe(lineup: Lineup) -> FrameworksResult:
    """Return what is published of a line-up."""
    warnings = merge(condition_warnings(lineup.conditions), evidence.round_warnings(lineup.rounds))
    return FrameworksResult(
        comparison=lineup.name,
        machine=lineup.subject.machine,
        device=lineup.subject.device,
        workload=lineup.subject.workload,
        reference=lineup.sides[0].framework,
        batch_size=lineup.batch_size,
        margin=lineup.margin,
        builds={side.framework: dict(side.build) for side in lineup.sides},
        rows=tuple(_rows(lineup)),
        fastest=_fastest(lineup),
        searches={name: TunedResult(**tuned.to_dict()) for name, tuned in lineup.tuned.items()},
        absent=tuple(AbsentResult(**asdict(each)) for each in lineup.absent),
        rounds=sum(not each.interruptions for each in lineup.rounds),
        ended=lineup.ended,
        why_no_energy=lineup.why_no_energy,
        conditions=convert(lineup.conditions.to_dict(), Conditions),
        warnings=tuple(WarningResult.of(warning) for warning in warnings),
    )


def _rows(lineup: Lineup) -> list[RowResult]:
    """Return all rows: by batch size, then in the order of the sides; a tuned row for each framework that was tuned."""
    noise = _noise(lineup)
    sizes = sorted({*(cell.batch_size for cell in lineup.cells), *([lineup.batch_size] if lineup.rounds else [])})
    rows: list[RowResult] = []
    for batch_size in sizes:
        in_finals = batch_size == lineup.batch_size and lineup.reference in lineup.names
        cells = {cell.contender: cell for cell in lineup.cells if cell.batch_size == batch_size}
        reference_rate = _reference_log_rate(cells) if not in_finals else _mean(lineup, lineup.reference)
        of_batch: list[RowResult] = []
        for side in lineup.sides:
            cell = cells.get(side.name)
            if in_finals:
                of_batch.append(_finals_row(lineup, side, cell, reference_rate))
            elif cell is not None:
                of_batch.append(_cell_row(lineup, side, cell, reference_rate, noise))
        rows += _with_kept_defaults(lineup, of_batch)
    return rows


def _with_kept_defaults(lineup: Lineup, rows: Sequence[RowResult]) -> list[RowResult]:
    """Return the rows with a tuned one for each framework whose search keeps the default."""
    has_tuned = {row.framework for row in rows if row.kind == TUNED}
    all_rows: list[RowResult] = []
    for row in rows:
        all_rows.append(row)
        search = lineup.tuned.get(row.framework)
        if row.framework not in has_tuned and search is not None and search.setting is not None:
            fields = {name: getattr(row, name) for name in row.__struct_fields__}
            all_rows.append(RowResult(**(fields | {"kind": TUNED, "is_default": True})))
    return all_rows


def _finals_row(lineup: Lineup, side: Side, cell: Cell | None, reference_rate: float | None) -> RowResult:
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
        n_compared=len(lineup.sides) - 1,
        source="finals",
        n=0 if own is None else own.n,
        slices=slices,
        peak_memory_bytes=memory or (cell.peak_memory_bytes if cell else None),
        deviation=side.deviation,
        precision=side.precision,
    )


def _cell_row(lineup: Lineup, side: Side, cell: Cell, reference_rate: float | None, noise: Noise) -> RowResult:
    """Return the row of a cell."""
    batch_sizes = (cell.batch_size, cell.batch_size)
    own = None if cell.pair is None else estimate(cell.pair, batch_sizes=batch_sizes, noise=noise)
    slices: Sequence[Slice] = cell.slices
    if side.name == lineup.reference:
        slices = _reference_slices([each for each in lineup.cells if each.batch_size == cell.batch_size])
    return _row(
        lineup,
        side,
        batch_size=cell.batch_size,
        status=cell.status,
        message=cell.message,
        own=own,
        reference_rate=reference_rate if cell.status is Status.OK else None,
        n_compared=len(lineup.sides) - 1,
        source="pair",
        n=0 if cell.pair is None else cell.pair.n_blocks,
        slices=slices,
        peak_memory_bytes=cell.peak_memory_bytes,
        deviation=cell.deviation,
        precision=cell.precision,
    )


def _row(
    lineup: Lineup,
    side: Side,
    *,
    batch_size: int,
    status: Status,
    message: str,
    own: Estimate | None,
    reference_rate: float | None,
    n_compared: int,
    source: str,
    n: int,
    slices: Sequence[Slice],
    peak_memory_bytes: int | None,
    deviation: float | None,
    precision: str | None,
) -> RowResult:
    """Return a row; `own` is the log-ratio to the reference, None of that itself."""
    is_reference = side.name == lineup.reference
    known = own is not None and math.isfinite(own.se) and own.df > 0
    log_rate = None if reference_rate is None else reference_rate + (own.mean if own is not None else 0.0)
    low, high = own.interval() if own is not None and known else (0.0, 0.0)
    verdict = None
    if own is not None and not is_reference:
        verdict = verdict_on(own, level=1 - _ALPHA / max(1, n_compared), margin=lineup.margin).code
    loading = lineup.loads.get(side.framework)
    joules, _ = energy_of(slices)
    n_items = batch_size * sum(each.n_steps for each in slices)
    return RowResult(
        framework=side.framework,
        kind=side.kind,
        batch_size=batch_size,
        setting=side.contender.setting.with_values(batch_size=batch_size).to_dict(),
        is_default=side.kind == DEFAULT,
        status=status,
        message=message,
        items_per_s=None if log_rate is None or (own is None and not is_reference) else math.exp(log_rate),
        ratio=RatioResult(low=low, speedup=own.ratio, high=high) if own is not None and known else None,
        verdict=verdict,
        source=source if status is Status.OK else None,
        n=n,
        precision=precision,
        deviation=deviation,
        **_quantiles_ms(slices),
        load_s=None if loading is None or side.kind != DEFAULT else median(loading.warm),
        cold_load_s=None if loading is None or side.kind != DEFAULT else median(loading.cold),
        peak_memory_bytes=peak_memory_bytes,
        energy_j_per_item=None if joules is None or not n_items else joules / n_items,
    )


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


def _reference_slices(cells: Sequence[Cell]) -> list[Slice]:
    return [each for cell in cells if cell.pair is not None for each in cell.pair.reference]


def _reference_log_rate(cells: Mapping[str, Cell]) -> float | None:
    """Return the reference's mean log rate at a batch size, of all pairs there; None where there is none."""
    slices = _reference_slices(list(cells.values()))
    if not slices:
        return None
    batch_size = next(iter(cells.values())).batch_size
    return float(np.mean([Objective.THROUGHPUT.log_rate(each, batch_size) for each in slices]))


def _noise(lineup: Lineup) -> Noise:
    """Return the noise of this machine: processes scatter as they do in the finals, or as is assumed without them.

    What remains of y without the means of rounds and contenders has the variance σ_p² + σ_w²/m, which is taken for
    σ_p²: a little too much.
    """
    y = lineup.y[~np.isnan(lineup.y).any(axis=1)] if lineup.y.size else lineup.y
    r, c = y.shape if y.ndim == 2 else (0, 0)
    if r < _MIN_ROUNDS or c < 2:
        return PRIOR_NOISE
    rest = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    process_sd = math.sqrt(float((rest**2).sum()) / ((r - 1) * (c - 1)))
    return Noise(block_sd=PRIOR_NOISE.block_sd, process_sd=process_sd, drift=0.0, n_pairs=0, n_blocks=0)


def _fastest(lineup: Lineup) -> FastestResult | None:
    """Return the fastest framework at its best, and what is said of it against the others at theirs."""
    precision = lineup.sides[0].precision
    best: dict[str, Side] = {}
    for side in lineup.sides:
        if side.name in lineup.names and side.precision == precision:
            best[side.framework] = side  # the tuned one stands after the default
    if len(best) < 2:
        return None
    # By ratios, as who left the finals early ran at other times than who stayed.
    relative = {name: _log_relative(lineup, side) for name, side in best.items()}
    known = {name: mean for name, mean in relative.items() if mean is not None}
    if len(known) < 2:
        return None
    first = best[max(known, key=known.__getitem__)]
    level = 1 - _ALPHA / math.comb(len(best), 2)
    over = {}
    for other in best.values():
        own = None if other is first else lineup.log_ratio(first.name, other.name)
        if own is not None:
            over[other.framework] = VerdictResult.of(verdict_on(own, level=level, margin=lineup.margin))
    return FastestResult(framework=first.framework, kind=first.kind, over=over)


def _log_relative(lineup: Lineup, side: Side) -> float | None:
    """Return the log-ratio of a side to the reference in the finals, 0 of that itself; None where it is not known."""
    if side.name == lineup.reference:
        return 0.0
    ratio = lineup.log_ratio(side.name, lineup.reference)
    return None if ratio is None else ratio.mean
