"""What a comparison comes to: all that was measured, the rows that this gives, and which framework is the fastest.

Notation
    y (r, c)  mean log rates of c candidates in r rounds of the finals; candidate 0 is the reference
    ratio     of a candidate at the batch size of the finals: exp of the mean of y_j − y_0, with a paired t-interval
              (`tuner.stats.estimate.paired`); at other batch sizes: of its passes (`tuner.measure.measurement`)
    rate      of the reference: its mean in the finals; at another batch size, times its ratio there to itself at the
              batch size of the finals, in the same passes. Of a candidate: that times its ratio. So all rates are of
              one hour, and a curve over batch sizes shows no drift

Multiplicity. Intervals are of 95 % each. A verdict is at the level 1 − 0.05/m (Bonferroni): of the m ratios to the
reference at one batch size, and, apart from these, of the m pairs of frameworks at their best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from msgspec import convert, structs

from tuner.job.frameworks.candidate import Candidate
from tuner.job.frameworks.store import Loading
from tuner.machine.conditions import Conditions
from tuner.measure.agreement import TELLING_SPREAD
from tuner.measure.measurement import Measurement, block_sd
from tuner.measure.objective import Objective
from tuner.measure.rates import failures, log_rates, memory_of
from tuner.measure.rounds import Round
from tuner.measure.warning import Code, condition_warnings, input_warnings, merge
from tuner.result.evidence import round_warnings
from tuner.result.frameworks import (
    AbsentResult,
    FastestResult,
    FrameworksResult,
    RatioResult,
    RowResult,
    SettingKind,
    TunedResult,
)
from tuner.result.study import VerdictResult, WarningResult
from tuner.stats.equivalence import MARGIN, UNMEASURED, verdict_on
from tuner.stats.estimate import Array, Estimate, paired
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.stats.tail import samples_needed
from tuner.study.subject import Subject
from tuner.trial.outcome import Slice, Status, energy_of

_ALPHA = 0.05
_MIN_ROUNDS = 4  # of which the scatter between processes is taken rather than assumed
_QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonData:
    """All that was measured; the first candidate is the reference."""

    name: str | None
    subject: Subject
    batch_size: int
    candidates: Sequence[Candidate]
    absent: Sequence[AbsentResult]
    tuned: Mapping[str, TunedResult]
    rounds: Sequence[Round]
    measurements: Sequence[Measurement]
    loads: Mapping[str, Loading]
    ended: str
    conditions: Conditions | None
    """During the last run; None where that is not known."""
    why_no_energy: str | None
    spread: float | None
    """How much the reference's outputs vary (`tuner.measure.agreement.spread`); None where that is not known."""
    margin: float = MARGIN
    outputs: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """The shapes of the reference's outputs by name, by batch size."""
    y: Array = field(init=False)
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Take the log rates out of the rounds, once."""
        contenders = [each.contender(self.batch_size) for each in self.candidates]
        names, y = log_rates(self.rounds, contenders, Objective.THROUGHPUT)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "y", y)

    @property
    def reference(self) -> str:
        """Return the name of the candidate that all are compared with."""
        return self.candidates[0].name

    def log_ratio(self, name: str, to: str) -> Estimate | None:
        """Return the log-ratio of two candidates in the finals; None where they did not run together."""
        if name not in self.names or to not in self.names:
            return None
        i, j = self.names.index(to), self.names.index(name)
        both = ~np.isnan(self.y[:, i]) & ~np.isnan(self.y[:, j])
        return paired(self.y, i, j) if both.any() else None


def describe_frameworks(data: ComparisonData) -> FrameworksResult:
    """Return what is published of a comparison."""
    is_flat = data.spread is not None and data.spread < TELLING_SPREAD  # they agree with anything
    observation = f"the outputs of {data.candidates[0].framework} are all nearly the same number"
    flat = [Code.FLAT_OUTPUTS.seen(observation)] if is_flat else []
    of_conditions = [] if data.conditions is None else condition_warnings(data.conditions)
    of_inputs = input_warnings(data.subject.workload.fed, data.outputs)
    warnings = merge(of_inputs, of_conditions, round_warnings(data.rounds), flat)
    return FrameworksResult(
        comparison=data.name,
        machine=data.subject.machine,
        device=data.subject.device,
        workload=data.subject.workload,
        reference=data.candidates[0].framework,
        batch_size=data.batch_size,
        margin=data.margin,
        builds={each.framework: each.prepared.job.build.to_dict() for each in data.candidates},
        rows=tuple(rows_of(data)),
        fastest=fastest_of(data),
        searches=dict(data.tuned),
        absent=tuple(data.absent),
        rounds=sum(not each.interruptions for each in data.rounds),
        ended=data.ended,
        why_no_energy=data.why_no_energy,
        conditions=None if data.conditions is None else convert(data.conditions.to_dict(), Conditions),
        warnings=tuple(WarningResult.of(warning, data.subject.device_advice) for warning in warnings),
    )


def rows_of(data: ComparisonData) -> list[RowResult]:
    """Return all rows: by batch size, then in the order of the candidates, the dropped ones last.

    A framework whose search keeps the default has a tuned row that repeats it.
    """
    noise = _noise(data)
    with_tuned = {each.framework for each in data.candidates if each.kind is SettingKind.TUNED}
    kept = {name for name, tuned in data.tuned.items() if tuned.setting is not None} - with_tuned
    sizes = {each.batch_size for each in data.measurements} | ({data.batch_size} if data.rounds else set())
    rows: list[RowResult] = []
    for batch_size in sorted(sizes):
        in_finals = batch_size == data.batch_size and data.reference in data.names
        measurements = {each.contender: each for each in data.measurements if each.batch_size == batch_size}
        log_rate = _reference_log_rate(data, batch_size, measurements.get(data.reference))
        for candidate in data.candidates:
            measurement = measurements.get(candidate.name)
            if in_finals and (candidate.name in data.names or candidate.name in failures(data.rounds)):
                row = _finals_row(data, candidate, log_rate)
            elif measurement is not None and not in_finals:
                row = _passes_row(data, candidate, measurement, log_rate, noise)
            else:  # its turn is yet to come
                continue
            rows.append(row)
            if candidate.framework in kept:
                rows.append(structs.replace(row, kind=SettingKind.TUNED.value, is_default=True))
    return rows + _dropped(data)


def _dropped(data: ComparisonData) -> list[RowResult]:
    """Return a row without figures for each framework that was tried and left out."""
    return [
        RowResult(
            framework=each.framework, kind=SettingKind.DEFAULT.value, batch_size=data.batch_size, setting={},
            is_default=True, status=Status(each.status), message=each.reason, items_per_s=None, ratio=None,
            verdict=None, batch_ratio=None, source=None, n=0, precision=each.precision, deviation=each.deviation,
            p50_ms=None, p95_ms=None, p99_ms=None, load_s=None, first_batch_s=None, cold_load_s=None,
            cold_first_batch_s=None, peak_memory_bytes=None, energy_j_per_item=None,
        )
        for each in data.absent
        if each.status in set(Status)
    ]  # fmt: skip


def _finals_row(data: ComparisonData, candidate: Candidate, reference_log_rate: float | None) -> RowResult:
    """Return the row of a candidate at the batch size of the finals."""
    own, start, runs = data.log_ratio(candidate.name, data.reference), candidate.start, candidate.name in data.names
    measurement = Measurement(
        contender=candidate.name,
        batch_size=data.batch_size,
        status=Status.OK if runs else Status.FAILED,
        message="" if runs else failures(data.rounds)[candidate.name],
        deviation=None if start is None else start.deviation,
        precision=candidate.precision,
        peak_memory_bytes=memory_of(data.rounds, candidate.name) or (start.peak_memory_bytes if start else None),
    )
    slices = [each for r in data.rounds if not r.interruptions for each in r.slices.get(candidate.name, [])]
    is_reference = candidate.name == data.reference
    row = _row(data, candidate, measurement, None if is_reference else own, slices, reference_log_rate)
    return structs.replace(row, source="finals" if runs else None, n=0 if own is None else own.n)


def _passes_row(
    data: ComparisonData,
    candidate: Candidate,
    measurement: Measurement,
    reference_log_rate: float | None,
    noise: Noise,
) -> RowResult:
    """Return the row of a measurement at another batch size."""
    own = measurement.estimate(noise)
    if candidate.name != data.reference:
        return _row(data, candidate, measurement, own, measurement.slices, reference_log_rate)
    row = _row(data, candidate, measurement, None, _reference_slices(data, measurement), reference_log_rate)
    return structs.replace(row, batch_ratio=_ratio(own))


def _reference_slices(data: ComparisonData, measurement: Measurement) -> list[Slice]:
    """Return what the reference ran at the batch size of its measurement, beside the others too, each slice once.

    Slices of the same pass stand in several measurements, in some of them two joined: the single ones count.
    """
    others = [
        each for each in data.measurements if each.batch_size == measurement.batch_size and each is not measurement
    ]
    slices = [*measurement.slices, *(each for other in others for each in other.reference_slices)]
    slices.sort(key=lambda each: each.n_steps, reverse=True)
    return list({each.start_s: each for each in slices}.values())


def _row(
    data: ComparisonData,
    candidate: Candidate,
    measurement: Measurement,
    own: Estimate | None,
    slices: Sequence[Slice],
    reference_log_rate: float | None,
) -> RowResult:
    """Return a row; `own` is the log-ratio to the reference, None of that itself."""
    is_reference, is_ok = candidate.name == data.reference, measurement.status is Status.OK
    is_known = is_ok and reference_log_rate is not None and (own is not None or is_reference)
    log_rate = (reference_log_rate or 0.0) + (0.0 if own is None else own.mean)
    level = 1 - _ALPHA / max(1, len(data.candidates) - 1)
    loading = data.loads.get(candidate.framework) if candidate.kind is SettingKind.DEFAULT else None
    joules, _ = energy_of(slices)
    n_items = measurement.batch_size * sum(each.n_steps for each in slices)
    return RowResult(
        framework=candidate.framework,
        kind=candidate.kind,
        batch_size=measurement.batch_size,
        setting=candidate.setting(measurement.batch_size).to_dict(),
        is_default=candidate.kind is SettingKind.DEFAULT,
        status=measurement.status,
        message=measurement.message,
        items_per_s=math.exp(log_rate) if is_known else None,
        ratio=_ratio(own),
        batch_ratio=None,
        verdict=None if own is None else verdict_on(own, level=level, margin=data.margin).code,
        source="pair" if is_ok else None,
        n=0 if measurement.pair is None else measurement.pair.n_blocks,
        precision=measurement.precision,
        deviation=measurement.deviation,
        **_quantiles_ms(slices),
        load_s=None if loading is None else median(map(sum, loading.warm)),
        first_batch_s=None if loading is None else median(first for _, first in loading.warm),
        cold_load_s=None if loading is None else median(map(sum, loading.cold)),
        cold_first_batch_s=None if loading is None else median(first for _, first in loading.cold),
        peak_memory_bytes=measurement.peak_memory_bytes,
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


def _reference_log_rate(data: ComparisonData, batch_size: int, own: Measurement | None) -> float | None:
    """Return the reference's mean log rate at a batch size, where it has its `own` measurement; None if not known."""
    anchored = [each for each in data.measurements if each.contender == data.reference]
    slices = [each for measurement in anchored for each in measurement.reference_slices]
    if data.reference in data.names:
        base = float(np.nanmean(data.y[:, data.names.index(data.reference)]))
    elif slices:
        base = float(np.mean([Objective.THROUGHPUT.log_rate(each, data.batch_size) for each in slices]))
    else:
        return None
    if batch_size == data.batch_size:
        return base
    of_batch = None if own is None else own.estimate()
    return None if of_batch is None else base + of_batch.mean


def _noise(data: ComparisonData) -> Noise:
    """Return the noise of this machine: passes scatter as they do in all measurements, and processes as in the finals.

    Without finals that is assumed. What remains of y without the means of rounds and candidates has the variance
    σ_p² + σ_w²/m, which is taken for σ_p²: a little too much.
    """
    noise = replace(PRIOR_NOISE, block_sd=block_sd(data.measurements))
    y = data.y[~np.isnan(data.y).any(axis=1)] if data.y.size else data.y
    r, c = y.shape if y.ndim == 2 else (0, 0)
    if r < _MIN_ROUNDS or c < 2:
        return noise
    rest = y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean()
    return replace(noise, process_sd=math.sqrt(float((rest**2).sum()) / ((r - 1) * (c - 1))))


def bests(data: ComparisonData) -> list[Candidate]:
    """Return each framework at its best in the precision of the reference, the fastest first, as far as it is known."""
    precision = data.candidates[0].precision
    best: dict[str, Candidate] = {}
    for each in data.candidates:
        if each.name not in data.names or (precision != each.precision and None not in (precision, each.precision)):
            continue
        # The tuned one stands after the default, and is the best unless it was shown to be slower.
        if each.framework not in best or not _is_slower(data, each, best[each.framework]):
            best[each.framework] = each
    # By ratios, as who left the finals early ran at other times than who stayed.
    return sorted(best.values(), key=lambda each: _log_relative(data, each), reverse=True)


def fastest_of(data: ComparisonData) -> FastestResult | None:
    """Return the fastest framework at its best, and what is said of it against the others at theirs."""
    candidates = bests(data)
    if sum(math.isfinite(_log_relative(data, each)) for each in candidates) < 2:
        return None
    first, *others = candidates
    level = 1 - _ALPHA / math.comb(1 + len(others), 2)
    over = {}
    for other in others:
        own = data.log_ratio(first.name, other.name)  # None where they had no round in common yet
        verdict = UNMEASURED if own is None else verdict_on(own, level=level, margin=data.margin)
        over[other.framework] = VerdictResult.of(verdict)
    return FastestResult(framework=first.framework, kind=first.kind, over=over)


def _is_slower(data: ComparisonData, candidate: Candidate, other: Candidate) -> bool:
    """Return whether a candidate was shown to be slower than another."""
    ratio = data.log_ratio(candidate.name, other.name)
    return ratio is not None and ratio.df > 0 and ratio.interval()[1] < 1.0


def _log_relative(data: ComparisonData, candidate: Candidate) -> float:
    """Return the log-ratio of a candidate to the reference in the finals; -inf where it is not known."""
    if candidate.name == data.reference:
        return 0.0
    ratio = data.log_ratio(candidate.name, data.reference)
    return -math.inf if ratio is None else ratio.mean
