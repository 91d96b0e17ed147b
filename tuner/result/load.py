"""Settings under load as they are published: what `tftune load` and `tftune size` give to programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import Struct, ValidationError, convert, structs

from tuner.errors import DamagedStudyError
from tuner.machine.conditions import Conditions
from tuner.measure.constraint import Limits
from tuner.measure.load import LoadCandidate, LoadRound
from tuner.measure.objective import Objective
from tuner.model.queueing import Batching, Queue, kept_rate, scale_estimate, service_times
from tuner.quantity import ms_text, percent, plural
from tuner.result.study import Applied, GainResult, RecommendedResult, VerdictResult, WarningResult, applied
from tuner.space.deployment import Deployment
from tuner.stats.equivalence import VerdictCode, verdict_on
from tuner.stats.estimate import Array, Estimate
from tuner.stats.tail import LimitStatus, samples_needed
from tuner.study.record import Record
from tuner.study.subject import Document, Values
from tuner.trial.load import Served

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_DIGITS = 3  # of responses in ms that are published


class LoadPoint(Struct, frozen=True, kw_only=True):
    """Quantiles of the responses (ms) at a rate (1/s) of requests, and how many a batch has in the mean.

    Of a measured point, a quantile is null if there were too few requests, and of one that could not keep up.
    """

    rate: float
    p50: float | None
    p95: float | None
    p99: float | None
    batch: float
    n_requests: int | None = None
    """How many were measured; null of a point of the curve."""


class CapacityResult(Struct, frozen=True, kw_only=True):
    """The highest rate (1/s) at which the p99 keeps to the limit, with its 95 % interval; 0 if none does."""

    rate: float
    low: float
    high: float | None


class CurveResult(Applied, frozen=True, kw_only=True):
    """A setting under load.

    A batch has at most `max_batch` requests and waits at most `batch_wait_ms` for them. With a limit, these are what
    carries most within it, by the model of the queue; measured were batches of at most `measured_batch`.

    `saturation` is the rate (1/s)
    that it answers if requests always wait. The `knee` is the point of the curve where the rate over the p99 is
    largest. `unloaded_ms` is the p99 where requests hardly meet.
    """

    name: str
    setting: Values
    max_batch: int
    batch_wait_ms: float
    measured_batch: int
    saturation: float
    unloaded_ms: float
    knee: LoadPoint
    points: tuple[LoadPoint, ...]
    measured: tuple[LoadPoint, ...]
    capacity: CapacityResult | None
    """Null without a limit."""
    against_default: VerdictResult | None
    """Its capacity over the default's; null for the default, without a limit, and if either keeps to it at no rate."""
    peak_memory_bytes: int | None
    service_error: float
    """Half the width of the 95 % interval of its service times (log).

    Where the default carries nothing, the intervals of all settings of a search hold together.
    """
    model_ratio: float | None
    """How long the measured requests take by the model of the queue, over what they took; null if none kept up."""

    @property
    def processes_text(self) -> str:
        """Return how many processes it is."""
        return plural(self.deployment.processes, "process", "processes")

    def response_ms(self, rate: float, name: str = "p99") -> float | None:
        """Return a quantile (ms) at a rate (1/s), between the points of the curve; None beyond it."""
        rates, logs = self._curve(name)
        return None if rate > rates[-1] else math.exp(float(np.interp(rate, rates, logs)))

    def capacity_at(self, limit_ms: float, slower: float = 0.0) -> float:
        """Return the highest rate (1/s) of the curve whose p99 keeps to a limit (ms); 0 if none does.

        With service times that are `slower` (log), the clock runs slower: C(L; f s) = C(L/f; s) / f.
        """
        return kept_rate(*self._curve("p99"), math.log(limit_ms) - slower) * math.exp(-slower)

    @property
    def carries(self) -> bool:
        """Return whether it keeps to the limit at any rate, by what was measured of it."""
        return self.capacity is not None and self.capacity.rate > 0

    def surely_keeps(self, limit_ms: float) -> bool:
        """Return whether hardly any load keeps to a limit (ms) at the upper end of its service times' interval, too."""
        return self.unloaded_ms * math.exp(self.service_error) <= limit_ms

    @property
    def unloaded_text(self) -> str:
        """Return what its p99 is where requests hardly meet, and how well that is known."""
        error = percent(math.expm1(self.service_error))
        return f"with hardly any load it is {ms_text(self.unloaded_ms)} ms, known to {error}"

    def _curve(self, name: str) -> tuple[Array, Array]:
        """Return the rates of the curve, and a quantile (log ms) at them."""
        rates = np.array([point.rate for point in self.points])
        return rates, np.log([float(getattr(point, name)) for point in self.points])


class LoadResult(Document, frozen=True, kw_only=True):
    """A study's settings under load: requests of one item at random times, the default first."""

    study: str
    workload: str
    item: str
    limit_ms: float | None
    curves: tuple[CurveResult, ...]
    rounds: int
    timed_s: float
    failures: dict[str, str]
    measured_at: str
    conditions: Conditions
    warnings: tuple[WarningResult, ...]

    @property
    def has_no_rate(self) -> bool:
        """Return whether there is a limit, and no setting keeps to it at any rate."""
        return self.limit_ms is not None and not any(curve.carries for curve in self.curves)


def queue_of(candidate: LoadCandidate, rounds: Sequence[LoadRound]) -> Queue:
    """Return the model of a candidate."""
    loads = [round_.served[candidate.name] for round_ in rounds]
    batching = Batching(
        sizes=candidate.sizes,
        wait_s=candidate.wait_s,
        processes=candidate.deployment.processes,
        callers=candidate.deployment.streams,
    )
    return Queue(batching=batching, times=service_times(loads))


def curve_results(
    candidates: Sequence[LoadCandidate],
    rounds: Sequence[LoadRound],
    *,
    limit_s: float | None,
    margin: float,
    tunes: bool = True,
    level: float = 0.95,
) -> tuple[CurveResult, ...]:
    """Return what complete rounds say of the candidates, the default first.

    With a limit (s), batches are those that carry most within it, if `tunes`; else they are as measured. Verdicts on
    the default are by intervals at this `level`. Where the default carries nothing, so are the errors of service times,
    as these decide then which setting surely keeps to the limit. That leaves out what the model of the queue is off by.
    """
    measured = [queue_of(candidate, rounds) for candidate in candidates]
    queues = [queue.tuned(limit_s) if limit_s is not None and tunes else queue for queue in measured]
    is_alone = limit_s is not None and not queues[0].capacity(limit_s)
    results = []
    for candidate, queue, as_measured in zip(candidates, queues, measured, strict=True):
        capacity = None if limit_s is None else _capacity(queue.capacity_estimate(limit_s))
        ratio = None if limit_s is None or queue is queues[0] else _log_ratio(queues[0], queue, limit_s)
        against = None if ratio is None else VerdictResult.of(verdict_on(ratio, level=level, margin=margin))
        error = queue.times.scale().half_width(level if is_alone else 0.95)
        results.append(_curve_result(candidate, queue, as_measured, rounds, capacity, against, error))
    return tuple(results)


def _log_ratio(default: Queue, queue: Queue, limit_s: float) -> Estimate | None:
    """Return log C / C of the default, from what rounds have of both; None where either keeps to the limit nowhere.

    What all processes of a round have in common, such as the speed of the machine in that minute, drops out.
    """
    capacities = [each.capacity(limit_s) for each in (default, queue)]
    if not all(capacities):
        return None
    of_default, own = (each.elasticity(limit_s) * each.times.round_log for each in (default, queue))
    return replace(scale_estimate(of_default - own), mean=math.log(capacities[1] / capacities[0]))


def _curve_result(
    candidate: LoadCandidate,
    queue: Queue,
    measured: Queue,
    rounds: Sequence[LoadRound],
    capacity: CapacityResult | None,
    against_default: VerdictResult | None,
    service_error: float,
) -> CurveResult:
    served = [each for round_ in rounds for each in round_.served[candidate.name]]
    ratios = [math.log(measured.replayed_ratio(each)) for each in served if each.keeps_up and each.responses_s]
    peaks = [round_.memory[candidate.name] for round_ in rounds if candidate.name in round_.memory]
    first = float(queue.rates()[0])
    return CurveResult(
        name=candidate.name,
        setting=candidate.setting.to_dict(),
        **applied(candidate.deployment),
        max_batch=queue.batching.sizes[-1],
        batch_wait_ms=round(1000 * queue.batching.wait_s, _DIGITS),
        measured_batch=candidate.sizes[-1],
        saturation=queue.saturation,
        unloaded_ms=round(1000 * queue.quantile(first, 0.99), _DIGITS),
        knee=_point(queue, queue.knee()),
        points=tuple(_point(queue, float(rate)) for rate in queue.rates()),
        measured=tuple(_measured(served)),
        capacity=capacity,
        against_default=against_default,
        peak_memory_bytes=max(peaks, default=None),
        service_error=service_error,
        model_ratio=math.exp(float(np.mean(ratios))) if ratios else None,
    )


def _capacity(estimate: Estimate | None) -> CapacityResult:
    if estimate is None:
        return CapacityResult(rate=0.0, low=0.0, high=0.0)
    low, high = estimate.interval()
    return CapacityResult(rate=estimate.ratio, low=low, high=high if math.isfinite(high) else None)


def _point(queue: Queue, rate: float) -> LoadPoint:
    """Return the point of the curve at a rate (1/s)."""
    figures: dict[str, Any] = {name: round(1000 * queue.quantile(rate, p), _DIGITS) for name, p in QUANTILES.items()}
    return LoadPoint(rate=round(rate, 4), batch=round(queue.at(rate)[1], 2), **figures)


def _measured(served: Sequence[Served]) -> list[LoadPoint]:
    """Return the quantiles of all that was measured at each rate."""
    points = []
    for rate in sorted({each.load.rate for each in served}):
        of_rate = [each for each in served if each.load.rate == rate]
        responses_s = [seconds for each in of_rate for seconds in each.responses_s]
        batches = [batch.n_requests for each in of_rate for batches in each.batches for batch in batches]
        keeps_up = all(each.keeps_up for each in of_rate)
        figures: dict[str, Any] = {
            name: round(1000 * float(np.quantile(responses_s, p)), _DIGITS)
            if keeps_up and len(responses_s) >= samples_needed(p)
            else None
            for name, p in QUANTILES.items()
        }
        n_requests = sum(each.n_requests for each in of_rate)
        batch = round(float(np.mean(batches)), 2) if batches else 0.0
        points.append(LoadPoint(rate=round(rate, 4), **figures, batch=batch, n_requests=n_requests))
    return points


def stored_load(record: Record, *, limit_s: float | None = None) -> LoadResult | None:
    """Return what was last measured of a study under load, for that limit (s) if one is given; None where nothing was.

    Raises DamagedStudyError for what cannot be read.
    """
    try:
        results = [each["result"] for each in record.get("loads") or ()]
        if limit_s is not None:
            results = [each for each in results if math.isclose(each["limit_ms"] or 0.0, 1000 * limit_s)]
        return convert(results[-1], LoadResult) if results else None
    except (ValidationError, KeyError, TypeError) as error:
        raise DamagedStudyError(record.name, "'loads'", error) from error


def load_of(record: Record) -> LoadResult | None:
    """Return what speaks for a study under load: the last measurement, of a search for capacity that of its limit."""
    stored = record.attributes()
    return stored_load(record, limit_s=stored.limits.p99_s if stored.objective is Objective.CAPACITY else None)


def _breaks_memory(curve: CurveResult, limits: Limits) -> bool:
    """Return whether a setting took more memory under load than it may."""
    memory = Limits(memory_bytes=limits.memory_bytes)
    return memory.status((), curve.peak_memory_bytes) is LimitStatus.BROKEN


def carries_most(load: LoadResult, limits: Limits) -> CurveResult:
    """Return the setting that carries most of those that were shown to carry more than the default; else the default.

    Where the default keeps to the limit at no rate, or takes too much memory, any that surely keeps to it carries more.
    How much it then carries beside other settings is by their estimates alone.
    """
    limit_ms = math.inf if load.limit_ms is None else load.limit_ms
    sure = [each for each in _rivals(load, limits) if _is_better(each) or each.surely_keeps(limit_ms)]
    return max(sure, key=_rate, default=load.curves[0])


def _rivals(load: LoadResult, limits: Limits) -> list[CurveResult]:
    """Return the settings that carry something, and more than the default, or are needed as that breaks a limit."""
    is_ruled_out = _breaks_memory(load.curves[0], limits) or not load.curves[0].carries
    allowed = [each for each in load.curves[1:] if each.carries and not _breaks_memory(each, limits)]
    return [each for each in allowed if is_ruled_out or _is_better(each)]


def _is_better(curve: CurveResult) -> bool:
    """Return whether a setting was shown to carry more than the default."""
    return curve.against_default is not None and curve.against_default.code is VerdictCode.BETTER


def _rate(curve: CurveResult) -> float:
    return 0.0 if curve.capacity is None else curve.capacity.rate


def capacity_advice(load: LoadResult, limits: Limits) -> RecommendedResult:
    """Return what a search for capacity recommends: the setting that carries most, with its batches."""
    default, best = load.curves[0], carries_most(load, limits)
    verdict, is_too_large = best.against_default, _breaks_memory(best, limits)
    status = LimitStatus.MET if best.carries and not is_too_large else LimitStatus.BROKEN
    reason = f"it carries most of {plural(len(load.curves), 'setting')} that were measured under load"
    if any(_breaks_memory(curve, limits) for curve in load.curves):
        reason += " and keeps to the limit on memory"
    if best is default:
        none = "was shown to carry more by more than the margin" if best.carries else "keeps to the limit at any rate"
        if is_too_large:
            none = f"keeps to the limit on memory with batches of at most {best.measured_batch}"
        elif any(_breaks_memory(curve, limits) for curve in load.curves):
            none = f"that keeps to the limit on memory {none}"
        reason = f"keep {default.name}: no setting {none}"
        rival = max(_rivals(load, limits), key=_rate, default=None)
        if rival is not None:  # and is not sure to keep to the limit; otherwise it would be the best
            reason = f"keep {default.name}: {rival.name} is not sure to keep to the limit on p99: {rival.unloaded_text}"
            status = LimitStatus.BROKEN if is_too_large else LimitStatus.UNKNOWN
    gain = None
    if verdict is not None:
        gain = GainResult(**structs.asdict(verdict), sessions=1, sessions_disagree=False, closest_s=None)
    batched = replace(best.deployment, arguments={**best.deployment.arguments, "batch_size": best.max_batch})
    return RecommendedResult(
        source=best.name,
        setting={**best.setting, "batch_size": best.max_batch},
        **applied(Deployment() if best is default else batched),
        reason=reason,
        alike=(),
        gain=gain,
        together=gain,
        sessions=(),
        limits=status,
    )


# ---- sizing ---------------------------------------------------------------------------------------------------------


class SizeRow(Struct, frozen=True, kw_only=True):
    """How many copies of a setting carry a load: each copy is all its processes, on CPUs as they were measured.

    `capacity` is the rate (1/s) that a copy carries within the limit, `capacity_low` the lower end of its interval, by
    which `copies` are counted; null if no number of them keeps to the limit. `p99_ms` is what the curve has at the rate
    of each copy. `is_extrapolated` tells that this rate is higher than any that was measured.
    """

    study: str
    machine: str
    name: str
    setting: Values
    processes: int
    cpus: float
    capacity: float
    capacity_low: float
    copies: int | None
    rate_each: float | None
    p99_ms: float | None
    is_extrapolated: bool
    unloaded_ms: float
    """The p99 where requests hardly meet: no number of copies keeps to a lower limit."""
    cost: float | None
    """Of all copies; null if no cost was given."""

    @property
    def total_cpus(self) -> float:
        """Return the CPUs of all copies; infinite if none suffice."""
        return math.inf if self.copies is None else self.copies * self.cpus


class SizeResult(Document, frozen=True, kw_only=True):
    """How many copies carry `rate` requests per second (1/s) with a p99 of at most `limit_ms`, the cheapest first.

    `headroom` is the share of the rate that is kept free for more.
    """

    workload: str
    item: str
    rate: float
    limit_ms: float
    headroom: float
    rows: tuple[SizeRow, ...]


def size_row(
    load: LoadResult,
    curve: CurveResult,
    *,
    machine: str,
    cpus: float,
    rate: float,
    limit_ms: float,
    headroom: float,
    cost: float | None,
) -> SizeRow:
    """Return how many copies of a curve carry a rate (1/s), each on so many `cpus` of a `machine`."""
    low = curve.capacity_at(limit_ms, curve.service_error)
    copies = math.ceil(rate * (1 + headroom) / low - 1e-9) if low else None
    rate_each = None if copies is None else rate / copies
    measured = max(point.rate for point in curve.measured)
    return SizeRow(
        study=load.study,
        machine=machine,
        name=curve.name,
        setting=curve.setting,
        processes=curve.deployment.processes,
        cpus=cpus,
        capacity=curve.capacity_at(limit_ms),
        capacity_low=low,
        copies=copies,
        rate_each=rate_each,
        p99_ms=None if rate_each is None else curve.response_ms(rate_each),
        is_extrapolated=low > measured,
        unloaded_ms=curve.unloaded_ms,
        cost=None if cost is None or copies is None else copies * cost,
    )
