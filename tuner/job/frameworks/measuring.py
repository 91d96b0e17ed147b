"""What is measured of the candidates: finals at the batch size of the comparison, and a scan of batch sizes.

Finals are rounds of new processes, one of each setting. In the scan all candidates run beside the reference's default
at each batch size, in common passes.

Notation, of a candidate at batch size b
    s(b)    time (s) of a step: an item takes as long as at the nearest batch size that was measured
    start   time (s) until a process is warm; 2 s(b) more where steps are long

Order of a scan: first the curves that answer the question (`answering`), of all batch sizes; then the others, where
time is left.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.job.frameworks.candidate import Candidate
from tuner.job.frameworks.comparison import Comparison, loading_s, measurement_of
from tuner.job.frameworks.result import bests
from tuner.job.servers import parallel_starts
from tuner.measure.agreement import Sample
from tuner.measure.budget import LEAST_FINALS, MOST_FINALS
from tuner.measure.interruption import step_s
from tuner.measure.measurement import MAX_ANCHOR_S, MAX_PASS_S, Measurement, MeasurementPlan, measure_together
from tuner.measure.objective import Objective
from tuner.measure.planning import FinalsPlan
from tuner.measure.rates import failures, log_rates
from tuner.measure.rounds import Contender, Round, Rounds, merged, replicates
from tuner.quantity import ratio_text
from tuner.result.frameworks import OUT_OF_TIME, SettingKind
from tuner.stats.estimate import paired
from tuner.stats.moderation import half_widths
from tuner.stats.tail import samples_needed
from tuner.trial.outcome import ReadyReport, Status

_MIN_ROUNDS, _MAX_ROUNDS = 6, 60
_SOME_ROUNDS = 4  # where their share of the time is up: the rest is for loading and other batch sizes
_LEAST_ROUNDS = 2  # whatever the time
_PASSES = 3  # of a round: as many as are worth their time where a start takes some seconds
_MAX_FAILURES = 2  # of a setting that never ran
_HALF_WIDTH = 0.029  # of the interval of a ratio (log) that is known: 3 %


def hold_finals(comparison: Comparison) -> None:
    """Hold rounds until each ratio to the reference is known, or their share of the time is up.

    A setting whose ratio is known leaves, so that the time goes to the others.
    """
    candidates = comparison.candidates()
    contenders = [candidate.contender(comparison.batch_size) for candidate in candidates]
    rounds = comparison.store.rounds(candidates)
    start_s, time_s = comparison.time.elapsed_s(), comparison.time.left_s()
    assert comparison.reference.launcher is not None  # the models are ready
    common = Rounds(
        launcher=comparison.reference.launcher,
        plan=FinalsPlan(
            passes=_PASSES,
            n_parallel_starts=parallel_starts(comparison.reference.job.machine),
            max_resident=_max_resident(comparison, FinalsPlan().max_resident),
        ),
        rng=np.random.default_rng(),
        time=comparison.time,
    )
    data = comparison.data()
    while True:
        ends_s = comparison.time.elapsed_s() + common.expected_s(common.n_together)
        has_time = ends_s <= start_s + finals_share(comparison, rounds, time_s) * time_s
        least = _MIN_ROUNDS if has_time else _LEAST_ROUNDS if comparison.time.is_over else _SOME_ROUNDS
        best_names = [each.name for each in bests(data)]
        unknown = not_known(rounds, contenders, best_names, at_least=least, half_width=_HALF_WIDTH)
        n_rounds = min((_n_rounds(rounds, each) for each in unknown), default=_MAX_ROUNDS)
        if n_rounds >= (_MAX_ROUNDS if has_time else least):
            break
        comparison.say(f"finals, round {len(rounds) + 1}: {1 + len(unknown)} settings")
        running = [contenders[0], *unknown]
        more = replicates(contenders[0], len(unknown))
        held = common.hold([*running, *more], fresh=True)
        common.n_together = len(running) + len(more)
        rounds.append(merged(held, contenders[0], more))
        comparison.store.add_round(candidates, rounds[-1])
        data = comparison.data()
        for candidate in data.candidates[1:]:
            own = data.log_ratio(candidate.name, data.reference)
            if own is not None and own.df > 0:
                text = ratio_text(own.ratio, *own.interval())
                comparison.events.notice(f"  {candidate.framework} {candidate.kind}: {text}")
    for name, reason in failures(rounds).items():
        comparison.events.notice(f"{name}: {reason}")


def finals_share(comparison: Comparison, rounds: Sequence[Round], time_s: float) -> float:
    """Return which share of the time (s) loading and the scan of what comes first do not need, within its limits."""
    loads_s = loading_s(comparison)
    schedule = Schedule(comparison, rounds, answering(comparison, rounds))
    needed_s = loads_s + schedule.scan_s((1 - LEAST_FINALS) * time_s - loads_s)
    return min(max(1 - needed_s / max(time_s, 1.0), LEAST_FINALS), MOST_FINALS)


def _n_rounds(rounds: Sequence[Round], contender: Contender) -> int:
    """Return how many rounds a contender was part of, whether it ran in them or failed."""
    name = contender.names[0]
    return sum(name in each.slices or name in each.failures for each in rounds)


def not_known(
    rounds: Sequence[Round],
    contenders: Sequence[Contender],
    best_names: Sequence[str],
    *,
    at_least: int,
    half_width: float,
) -> list[Contender]:
    """Return those whose ratio to the first is not known so well yet; one that does not run will not be known.

    Of the best of each framework, the fastest first, the ratio to the fastest has to be known, too: that is the answer.
    While anyone took part in fewer than `at_least` rounds, all run: so each has rounds in common with each other one,
    those that come later too.
    """
    reference, *others = contenders
    failed = {name: sum(name in each.failures for each in rounds) for name in failures(rounds)}
    names, y = log_rates(rounds, contenders, Objective.THROUGHPUT)
    others = [each for each in others if each.names[0] in names or failed.get(each.names[0], 0) < _MAX_FAILURES]
    if any(_n_rounds(rounds, each) < at_least for each in others):
        return others
    if reference.names[0] not in names:
        return []
    x = y - y[:, [names.index(reference.names[0])]]  # (r, c), the log-ratios to the reference
    unknown = {name for name, width in zip(names, half_widths(x), strict=True) if width > half_width}
    best = [names.index(name) for name in best_names if name in names]
    between = x[:, best[1:]] - x[:, best[:1]]
    has_met = np.isfinite(between).any(axis=0)  # who came later may have run in other rounds
    widths = np.full(len(best[1:]), np.inf)
    widths[has_met] = half_widths(between[:, has_met])
    for j, width in zip(best[1:], widths, strict=True):
        unknown |= {names[j], names[best[0]]} if width > half_width else set()
    return [each for each in others if each.names[0] in unknown or each.names[0] not in names]


def _max_resident(comparison: Comparison, most: int) -> int:
    """Return how many processes memory holds at once."""
    free_bytes = comparison.free_memory_bytes()
    starts = [start for each in comparison.running() for start in each.starts.values()]
    largest_bytes = max((start.peak_memory_bytes or 0 for start in starts), default=0)
    if free_bytes is None or not largest_bytes:
        return most
    return max(1, min(most, int(free_bytes // largest_bytes)))


# ---- the scan of batch sizes ----------------------------------------------------------------------------------------

_TAIL_STEPS = (samples_needed(0.95), samples_needed(0.99))  # of one item at a time
_MAX_PAIR_S, _MAX_TAIL_S = 20.0, 45.0  # of a candidate and the reference, if the time suffices
_OWN_S = 3.0  # of slices of short steps, until a ratio is known
_MAX_TOGETHER = 10  # processes beside the reference and its anchor
_WARM_UP_STEPS = 2


def scan(comparison: Comparison) -> None:
    """Measure each setting at each batch size, the smallest first, to where memory or the time ends.

    The batch size of the finals is known from these. Where the time does not suffice for all curves, there are those
    that answer the question.
    """
    rounds = comparison.store.rounds(comparison.candidates())
    first = answering(comparison, rounds)
    others = [each for each in comparison.candidates() if each not in first]
    for candidates in (first, others):
        schedule = Schedule(comparison, rounds, candidates)
        for batch_size in schedule.batch_sizes:
            needed_s = schedule.expected_s(batch_size)
            if needed_s and comparison.time.is_short_of(needed_s):
                comparison.ended = OUT_OF_TIME
                break
            if not _scan_batch(comparison, schedule, batch_size):
                comparison.ended = OUT_OF_TIME


def _scan_batch(comparison: Comparison, schedule: Schedule, batch_size: int) -> bool:
    """Measure what is missing at a batch size; returns whether nothing is left for another run."""
    for candidate in schedule.waiting(batch_size):
        late_s = schedule.late_s(candidate, batch_size)
        if late_s is not None:
            message = f"it would take {late_s:.0f} s to get warm: give a longer --trial-timeout"
            _fail(comparison, candidate, batch_size, Status.TIMEOUT, message)
            if candidate == comparison.reference_candidate:
                break
    waiting = schedule.waiting(batch_size)
    groups = schedule.groups(waiting, batch_size) if waiting else []
    while groups:
        group, reference = groups.pop(0), comparison.reference_candidate
        if comparison.time.is_over:
            return False
        comparison.say(f"batch {batch_size}: {', '.join(each.name for each in group) or reference.name}")
        if not _measure_group(comparison, schedule, batch_size, group, retry=groups):
            return False
    return not schedule.waiting(batch_size) or comparison.lost_at == batch_size


def _measure_group(
    comparison: Comparison, schedule: Schedule, batch_size: int, group: list[Candidate], *, retry: list[list[Candidate]]
) -> bool:
    """Measure settings together; returns False where the reference failed, and may not do so in another run.

    What runs out of memory beside others is put to `retry`, to run alone beside the reference.
    """
    reference, job = comparison.reference_candidate, comparison.reference.job
    candidates = {each.name: each for each in [reference, *group]}
    is_known = comparison.measurement(reference, batch_size) is not None
    needs_anchor = not is_known and batch_size != comparison.batch_size
    pair_s = schedule.pair_s(1 + len(group) + needs_anchor)

    def check(contender: Contender, facts: ReadyReport, expected: Sample | None) -> Measurement:
        return measurement_of(comparison, candidates[contender.names[0]], batch_size, facts, expected)

    def ended(measurement: Measurement) -> None:
        if measurement.status is Status.OOM and len(group) > 1:
            retry.append([candidates[measurement.contender]])
        elif measurement.contender != reference.name or not is_known:
            comparison.put_measurement(candidates[measurement.contender], measurement)
            _tell(comparison, measurement)

    lost = measure_together(
        reference.contender(batch_size),
        [each.contender(batch_size) for each in group],
        MeasurementPlan(
            slice_s=job.slice_s,
            tail_steps=_TAIL_STEPS if batch_size == 1 else (),
            max_pair_s=min(_MAX_PAIR_S, pair_s),
            max_tail_s=min(_MAX_TAIL_S, pair_s),
            n_parallel_starts=parallel_starts(job.machine),
            once=schedule.is_long(group, batch_size),
            warm_up_counts=job.device.why_no_energy() is not None,  # of a warm-up nobody has read the meter
        ),
        anchor=reference.contender(comparison.batch_size) if needs_anchor else None,
        check=check,
        ended=ended,
        is_over=lambda: comparison.time.is_over,
    )
    if lost is None:
        return True
    status, message = lost.failure.status, lost.failure.message
    unfinished = [each for each in group if comparison.measurement(each, batch_size) is None]
    if status is Status.OOM and not lost.was_alone and unfinished:
        if len(group) > 1:
            retry[:] = [[each] for each in unfinished] + [each for each in retry if each[0] not in unfinished]
            return True
        _fail(comparison, unfinished[0], batch_size, status, f"the reference failed next to it: {message}")
        retry.extend([] if comparison.measurement(reference, batch_size) is not None or retry else [[]])
        return True
    # Without a reference nothing is compared: the curves end at this batch size.
    comparison.lost_at = batch_size
    if comparison.measurement(reference, batch_size) is None:
        _fail(comparison, reference, batch_size, status, message)
    else:
        comparison.events.notice(f"{reference.text}: it failed at batch size {batch_size}: {message}")
    retry.clear()
    stored = comparison.store.measurement(reference, batch_size)
    return stored is not None and (stored.status is not Status.OK or not unfinished)


def _fail(comparison: Comparison, candidate: Candidate, batch_size: int, status: Status, message: str) -> None:
    measurement = Measurement(contender=candidate.name, batch_size=batch_size, status=status, message=message)
    comparison.put_measurement(candidate, measurement)
    _tell(comparison, measurement)


def _tell(comparison: Comparison, measurement: Measurement) -> None:
    """Tell what came of a measurement."""
    anchor, own = measurement.paired_batch_size, measurement.estimate()
    if measurement.status is not Status.OK:
        comparison.events.notice(f"  {measurement.contender}: {measurement.status}: {measurement.message}")
    elif own is not None:
        of = "" if anchor is None else f" of its rate at batch size {anchor}"
        comparison.events.notice(f"  {measurement.contender}: {ratio_text(own.ratio, *own.interval())}{of}")


def answering(comparison: Comparison, rounds: Sequence[Round]) -> list[Candidate]:
    """Return the settings whose curves come first: each default, and what the finals show to be faster than it.

    The curve of a tuned setting that is not told apart from its default says nothing that the default's does not.
    """
    return [
        each
        for each in comparison.candidates()
        if each.kind is SettingKind.DEFAULT or _is_faster(comparison, rounds, each)
    ]


def _is_faster(comparison: Comparison, rounds: Sequence[Round], tuned: Candidate) -> bool:
    """Return whether the rounds show that a tuned setting is faster than its default."""
    default = replace(tuned, kind=SettingKind.DEFAULT)
    both = [each.contender(comparison.batch_size) for each in (default, tuned)]
    names, y = log_rates(rounds, both, Objective.THROUGHPUT)
    has_both = names == [default.name, tuned.name] and bool(np.isfinite(y).all(axis=1).any())
    return has_both and paired(y, 0, 1).interval()[0] > 1


class Schedule:
    """What the scan lacks of some settings, and about how long that takes, by the steps that were measured so far."""

    def __init__(self, comparison: Comparison, rounds: Sequence[Round], candidates: Sequence[Candidate]) -> None:
        """`rounds` are those of the finals."""
        self._comparison, self._reference, self._candidates = comparison, comparison.reference_candidate, candidates
        self._steps_s = {
            (name, comparison.batch_size): statistics.median(
                step_s(each) for r in rounds for each in r.slices.get(name, ())
            )
            for name in {name for r in rounds for name in r.slices}
        }
        """How long steps are (s), by setting and batch size."""
        self.batch_sizes = [size for size in comparison.batches if not (rounds and size == comparison.batch_size)]
        """Those of the scan: what the finals have measured is known."""

    def waiting(self, batch_size: int) -> list[Candidate]:
        """Return the settings of which nothing is known at a batch size, and whose curve has not ended before.

        The reference is first, then those that need little memory. None wait where the reference failed, or was not
        measured when it was its turn: rates are relative to it.
        """
        comparison, own = self._comparison, self._comparison.measurement(self._reference, batch_size)
        is_lost = comparison.lost_at is not None and comparison.lost_at <= batch_size
        is_missing = own is None and self._reference not in self._candidates
        if is_lost or is_missing or (own is not None and own.status is not Status.OK):
            return []
        ended = {each.name for each in self._candidates if self._has_ended(each, batch_size)}
        waiting = [e for e in self._candidates if comparison.measurement(e, batch_size) is None and e.name not in ended]
        return sorted(waiting, key=lambda each: (each != self._reference, self._memory_bytes(each, batch_size)))

    def groups(self, waiting: Sequence[Candidate], batch_size: int) -> list[list[Candidate]]:
        """Return those that wait, but for the reference, in groups that memory holds together beside that one."""
        free_bytes = self._comparison.free_memory_bytes()
        groups: list[list[Candidate]] = [[]]
        used_bytes = reference_bytes = self._memory_bytes(self._reference, batch_size)
        for candidate in waiting:
            if candidate == self._reference:
                continue
            own_bytes = self._memory_bytes(candidate, batch_size)
            is_full = free_bytes is not None and free_bytes < used_bytes + own_bytes
            if groups[-1] and (is_full or len(groups[-1]) == _MAX_TOGETHER):
                groups.append([])
                used_bytes = reference_bytes
            groups[-1].append(candidate)
            used_bytes += own_bytes
        return groups

    def is_long(self, live: Sequence[Candidate], batch_size: int) -> bool:
        """Return whether a pass of two slices of each, the reference among them, lasts too long."""
        others = [each for each in live if each != self._reference]
        return 2 * sum(self._slice_s(each, batch_size) for each in [self._reference, *others]) > MAX_PASS_S

    def warm_s(self, candidate: Candidate, batch_size: int) -> float:
        """Return about how long (s) it takes until a process is warm."""
        return candidate.prepared.start_s + _WARM_UP_STEPS * self._step_s(candidate, batch_size)

    def late_s(self, candidate: Candidate, batch_size: int) -> float | None:
        """Return about how long (s) a start takes that is not warm by its deadline; None for one that is.

        The start that was timed had warm steps of the comparison's batch size.
        """
        timed_s = _WARM_UP_STEPS * self._step_s(candidate, self._comparison.batch_size)
        needed_s = self.warm_s(candidate, batch_size) - timed_s
        return needed_s if needed_s > candidate.prepared.job.deadline_s else None

    def expected_s(self, batch_size: int) -> float:
        """Return about how long (s) it takes to measure what waits at a batch size, without what starts too late.

        Of long steps the end of a warm-up is the only slice, but for the reference.
        """
        all_waiting = self.waiting(batch_size)
        waiting = [each for each in all_waiting if self.late_s(each, batch_size) is None]
        if not waiting or (self._reference in all_waiting and self._reference not in waiting):
            return 0.0
        live = [self._reference, *(each for each in waiting if each != self._reference)]
        warm_s = sum(self.warm_s(each, batch_size) for each in live)
        is_long = self.is_long(live, batch_size)
        anchor_s = 0.0
        if self._reference in waiting and batch_size != self._comparison.batch_size:
            warm_s += self.warm_s(self._reference, self._comparison.batch_size)
            anchor_s = max(min(self._step_s(self._reference, batch_size), MAX_ANCHOR_S), 0.0 if is_long else _OWN_S)
        if is_long:
            return warm_s + anchor_s + self._slice_s(self._reference, batch_size)
        return warm_s + anchor_s + sum(max(_OWN_S, 2 * self._step_s(each, batch_size)) for each in live)

    def pair_s(self, n_live: int) -> float:
        """Return for how long (s) a candidate may run with the reference, where so many live.

        The time that is spare is shared by the batch sizes that are left.
        """
        n_sizes, left_s = sum(self.expected_s(size) > 0 for size in self.batch_sizes), self._comparison.time.left_s()
        spare_s = max(0.0, left_s - self.scan_s(left_s)) / max(1, n_sizes)
        return 2 * (_OWN_S + spare_s / n_live)

    def scan_s(self, most_s: float) -> float:
        """Return about how long (s) what the scan lacks takes.

        Batch sizes for which there is no time any more, of `most_s` (s), do not count.
        """
        total_s = 0.0
        for batch_size in self.batch_sizes:
            needed_s = self.expected_s(batch_size)
            if total_s + needed_s > most_s:
                break
            total_s += needed_s
        return total_s

    def _slice_s(self, candidate: Candidate, batch_size: int) -> float:
        return max(self._step_s(candidate, batch_size), candidate.prepared.job.slice_s)

    def _step_s(self, candidate: Candidate, batch_size: int) -> float:
        """Return s(b) of a setting, 0 where nothing is known."""
        for size in self._comparison.batches:
            if (candidate.name, size) not in self._steps_s:
                measurement = self._comparison.measurement(candidate, size)
                if measurement is not None and measurement.slices:
                    self._steps_s[candidate.name, size] = statistics.median(map(step_s, measurement.slices))
        sizes = [size for name, size in self._steps_s if name == candidate.name]
        if not sizes:
            return 0.0
        nearest = min(sizes, key=lambda size: max(size / batch_size, batch_size / size))
        return self._steps_s[candidate.name, nearest] * batch_size / nearest

    def _memory_bytes(self, candidate: Candidate, batch_size: int) -> float:
        """Return about the most memory that a setting needs: of more items, that much more; 0 where nothing is known.

        By the largest batch size below one that was measured, or else by its first start.
        """
        smaller = [size for size in self._comparison.batches if size < batch_size]
        measurements = [self._comparison.measurement(candidate, size) for size in smaller]
        measurements.append(candidate.prepared.starts.get(candidate.kind))
        known = {each.batch_size: each.peak_memory_bytes for each in measurements if each is not None}
        sizes = sorted(size for size, peak_bytes in known.items() if peak_bytes)
        nearest = max((size for size in sizes if size <= batch_size), default=min(sizes, default=batch_size))
        return (known.get(nearest) or 0) * max(1.0, batch_size / nearest)

    def _has_ended(self, candidate: Candidate, batch_size: int) -> bool:
        """Return whether memory or its time ran out at a smaller batch size already, of it or of the reference."""
        smaller = [size for size in self._comparison.batches if size < batch_size]
        known = [self._comparison.measurement(each, size) for each in (candidate, self._reference) for size in smaller]
        return any(each is not None and each.status in (Status.OOM, Status.TIMEOUT) for each in known)
