"""Measurements of candidates at one batch size, which live together with the reference and run in common passes.

Candidates may be of different frameworks, each with a launcher of its own. What they have in common is the reference at
the same batch size, whose drift is thereby taken out, and the inputs, on which outputs are compared before anything is
timed. The reference itself is compared with the anchor: its process at another batch size, so that a curve over batch
sizes has no drift in it either.

Where a pass of all would last too long, each process has one slice in it. They are started one at a time then, and the
end of a warm-up, while which the others were stopped, is the slice of the first pass.

Notation
    x (n,)    log-ratios of the candidate's rate to the reference's, one a pass
    σ_w, σ_p  standard deviations of a pass of two processes, and between processes (`tuner.stats.noise`)
    m         slices of either in a pass
    estimate  x̄,   se² = s̃²/n + 2σ_p²,   where s̃² is the moderated variance of the passes (`tuner.stats.moderation`),
              believed to be 2σ_w²/m, with the σ_w that the other measurements show (`block_sd`)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.measure.agreement import Sample, deviation, moved_text
from tuner.measure.interruption import Interruption, stalled
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, log_ratios
from tuner.measure.passes import Live, Passes, long_ones, whole_steps
from tuner.measure.planning import SLICE_S
from tuner.measure.rounds import Contender
from tuner.plain import SPARSE
from tuner.stats.estimate import Array, Estimate
from tuner.stats.moderation import moderated_estimate, moderated_variances
from tuner.stats.noise import PRIOR_BLOCK_SD, PRIOR_DF, PRIOR_NOISE, Noise
from tuner.trial.launcher import start_all
from tuner.trial.outcome import ReadyReport, Slice, Status, TrialFailure, joined

MAX_PASS_S = 20.0
"""A pass in which all had two slices, and which would last longer (s), has one of each."""
MAX_ANCHOR_S = 20.0  # of the anchor beside long steps
_ANCHOR = "anchor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What came of a contender at a batch size. `pair` is None of one that failed.

    The pair has the slices of the contender and those of the reference in the same passes. The reference itself is
    compared with its process at another batch size, `paired_batch_size`. `constructor_s` is from the start of the
    interpreter's work to a loaded model, `first_batch_s` how long the first batch took, `deviation` how far outputs lie
    from the reference's, relative to the largest of these.
    """

    contender: str
    batch_size: int
    status: Status = Status.OK
    message: str = ""
    pair: Pair | None = None
    paired_batch_size: int | None = None
    """That of the process which it is compared with, None where that is its own."""
    constructor_s: float | None = None
    first_batch_s: float | None = None
    deviation: float | None = None
    precision: str | None = None
    peak_memory_bytes: int | None = None
    hint: str = field(default="", metadata=SPARSE)
    """What to do about its failure, where that is known."""

    @property
    def slices(self) -> Sequence[Slice]:
        """Return what the contender ran."""
        return self.pair.candidate if self.pair else ()

    @property
    def reference_slices(self) -> Sequence[Slice]:
        """Return what ran that it is compared with."""
        return self.pair.reference if self.pair else ()

    def estimate(self, noise: Noise = PRIOR_NOISE) -> Estimate | None:
        """Return its log-ratio, of items per second, to the process which it is compared with; None without a pair."""
        if self.pair is None:
            return None
        block_sd = noise.block_sd * math.sqrt(2 / self.pair.slices_per_block)
        moderated = moderated_estimate(self.log_ratios, prior_sd=block_sd, prior_df=PRIOR_DF)
        return moderated.widened(math.sqrt(2) * noise.process_sd)

    @property
    def log_ratios(self) -> Array:
        """Return x, shape (n,); n is 0 without a pair."""
        if self.pair is None:
            return np.empty(0)
        batch_sizes = self.batch_size, self.paired_batch_size or self.batch_size
        return log_ratios(self.pair, Objective.THROUGHPUT, batch_sizes=batch_sizes)

    @classmethod
    def failed(cls, contender: Contender, failure: TrialFailure) -> Measurement:
        """Return that of a contender that has failed."""
        batch_size = contender.setting.batch_size
        return cls(
            contender=contender.names[0],
            batch_size=batch_size,
            status=failure.status,
            message=failure.message,
            hint=failure.hint,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementPlan:
    """How long candidates are measured: until the interval is narrow, or for `max_pair_s` (s).

    That includes the slices of the reference. `half_width` is that of the interval (log). Where quantiles of the
    contender's steps are wanted, each told by so many steps (`tail_steps`), it goes on to the most that it has within
    `max_tail_s` (s). With `once` a pass has one slice of each process, and where `warm_up_counts`, the end of a warm-up
    can be one.
    """

    slice_s: float = SLICE_S
    half_width: float = 0.03
    max_pair_s: float = 20.0
    tail_steps: Sequence[int] = ()
    max_tail_s: float = 0.0
    n_parallel_starts: int = 1
    once: bool = False
    warm_up_counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LostReference:
    """How the reference failed, and whether the others had not been started yet."""

    failure: TrialFailure
    was_alone: bool


@dataclass(slots=True, kw_only=True)
class _Timed:
    """What is being timed: the key of what it is compared with, and the slices of both in each pass."""

    measurement: Measurement
    beside: str
    passes: list[tuple[list[Slice], list[Slice]]] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)

    def measured(self) -> Measurement:
        """Return the measurement so far. Two slices of a process are joined where a pass has one of the other's."""
        n = min(len(slices) for both in self.passes for slices in both)
        reference, candidate = (
            [each for slices in side for each in (slices if len(slices) == n else [joined(*slices)])]
            for side in zip(*self.passes, strict=True)
        )
        return replace(
            self.measurement,
            pair=Pair(reference=reference, candidate=candidate, interruptions=self.interruptions, slices_per_block=n),
        )


def block_sd(measurements: Iterable[Measurement]) -> float:
    """Return σ_w, in the light of how the blocks of each pair scatter, and of what is believed before.

    Without this, a pair of one block would be taken to be as good as on any machine.
    """
    scaled = [
        measurement.log_ratios * math.sqrt(measurement.pair.slices_per_block / 2)
        for measurement in measurements
        if measurement.pair is not None
    ]
    df = [PRIOR_DF, *(len(x) - 1.0 for x in scaled), 0.0]
    sums = [PRIOR_DF * PRIOR_BLOCK_SD**2, *(float(((x - x.mean()) ** 2).sum()) for x in scaled), 0.0]
    return math.sqrt(float(moderated_variances(np.array(sums), np.array(df))[-1]))  # that of which nothing is known


def measure_together(
    reference: Contender,
    others: Sequence[Contender],
    plan: MeasurementPlan,
    *,
    anchor: Contender | None,
    check: Callable[[Contender, ReadyReport, Sample | None], Measurement],
    ended: Callable[[Measurement], None],
    is_over: Callable[[], bool],
) -> LostReference | None:
    """Measure contenders at one batch size beside the reference; return how that failed, None if it did not.

    `check` tells from what a process says when it is warm, and from the reference's outputs, what its measurement is
    without a pair; it is not timed unless that is ok. `ended` is given each when it is known. Without an `anchor` that
    of the reference stays without a pair. Once the time `is_over`, or the reference has failed, those end that have
    complete passes.
    """
    together = _Together(name=reference.names[0], plan=plan, ended=ended)
    try:
        for key, contender in ((together.name, reference), (_ANCHOR, anchor)):
            failures = {} if contender is None else together.start({key: contender})
            if failures:
                return LostReference(failure=failures[key], was_alone=True)
        facts = together.facts[together.name]
        peak_memory_bytes = together.live[together.name].process.peak_memory_bytes
        measurement = replace(check(reference, facts, None), peak_memory_bytes=peak_memory_bytes)
        if anchor is None:
            ended(measurement)
        else:
            measurement = replace(measurement, paired_batch_size=anchor.setting.batch_size)
            together.timed[together.name] = _Timed(measurement=measurement, beside=_ANCHOR)
        contenders = {each.names[0]: each for each in others}
        for key, failure in together.start(contenders).items():
            ended(Measurement.failed(contenders[key], failure))
        for key in [key for key in contenders if key in together.live]:
            measurement = check(contenders[key], together.facts[key], facts.sample)
            if measurement.status is Status.OK:
                together.timed[key] = _Timed(measurement=measurement, beside=together.name)
            else:
                together.live.pop(key).process.close()
                ended(measurement)
        return together.run(contenders, is_over)
    finally:
        for each in together.live.values():
            each.process.close()


@dataclass(slots=True, kw_only=True)
class _Together:
    """Processes that live together, by key: the reference's under its `name`, the anchor's, and those of the others."""

    name: str
    plan: MeasurementPlan
    ended: Callable[[Measurement], None]
    live: dict[str, Live] = field(default_factory=dict)
    facts: dict[str, ReadyReport] = field(default_factory=dict)
    warm_ups: dict[str, list[Slice]] = field(default_factory=dict)
    """The slices of the first pass that have run already."""
    timed: dict[str, _Timed] = field(default_factory=dict)

    def start(self, contenders: Mapping[str, Contender]) -> dict[str, TrialFailure]:
        """Start processes; return the failures of those that are not warm now."""
        launches = []
        for each in contenders.values():
            assert each.launcher is not None  # the model is ready
            launches.append((each.setting, functools.partial(each.launcher.launch, each.setting, each.deployment)))
        failures: dict[str, TrialFailure] = {}
        started = start_all(launches, parallel=1 if self.plan.once else self.plan.n_parallel_starts)
        for (key, contender), start in zip(contenders.items(), started, strict=True):
            if start.failure is not None:
                failures[key] = start.failure
            elif start.facts is not None:
                self.facts[key] = start.facts
                self.live[key] = Live(process=start.process, usual_s=[start.facts.step_s])
                if self._is_slice(start.facts, contender, self.live[key]):
                    self.warm_ups[key] = [start.facts.warm_up]
        return failures

    def _is_slice(self, facts: ReadyReport, contender: Contender, live: Live) -> bool:
        """Return whether the end of a warm-up, while which the others were stopped, is as good as a slice.

        It has to be as long, and of one process, as several are not warm at once. A stall is seen beside the first
        step.
        """
        is_whole = facts.warm_up.elapsed_s >= whole_steps(self.plan.slice_s)(live)
        is_counted = self.plan.once and self.plan.warm_up_counts and contender.deployment.processes == 1
        return is_counted and is_whole and stalled([facts.first_step_s], [facts.warm_up]) is None

    def run(self, contenders: Mapping[str, Contender], is_over: Callable[[], bool]) -> LostReference | None:
        """Time all in passes until each measurement has ended; return how the reference failed, None if it did not."""
        passes = Passes(rng=np.random.default_rng())
        # The reference has another slice after all others of the first pass, and the anchor a long one.
        ran = {key: slices for key, slices in self.warm_ups.items() if key in self.live and key != _ANCHOR}
        while self.timed:
            running = {key: each for key, each in self.live.items() if key == self.name or key not in ran}
            once = list(running) if self.plan.once else long_ones(running, self._ask_s)
            done = passes.run(running, self._ask_s, once=once)
            slices = {key: ran.get(key, []) + done.slices.get(key, []) for key in self.live}
            ran = {}
            lost = next((done.failures[key] for key in (self.name, _ANCHOR) if key in done.failures), None)
            for key in done.failures.keys() & contenders.keys():
                self.live.pop(key).process.close()
                del self.timed[key]
                self.ended(Measurement.failed(contenders[key], done.failures[key]))
            for key, each in list(self.timed.items()):
                each.interruptions.extend(done.interruptions)
                if done.counts and lost is None:
                    each.passes.append((slices[each.beside], slices[key]))
                if each.passes and (lost is not None or is_over() or is_enough(each.measured(), self.plan)):
                    self._end(key)
            if lost is not None:
                return LostReference(failure=lost, was_alone=False)
            if is_over():
                break
        return None

    def _ask_s(self, live: Live) -> float:
        """Return for how long (s) to ask. After a pause the first steps are slower.

        So small batches run for about as long as large ones, or they would seem slow.
        """
        long_s = min(self.facts[self.name].step_s, MAX_ANCHOR_S) if live is self.live.get(_ANCHOR) else 0.0
        return whole_steps(max(self.plan.slice_s, long_s))(live)

    def _end(self, key: str) -> None:
        """Tell a measurement and end its process; the reference's goes on beside the others, and the anchor's ends."""
        measurement = self.timed.pop(key).measured()
        status = self.live.pop(_ANCHOR if key == self.name else key).process.close()
        self.ended(
            measurement if key == self.name else replace(measurement, peak_memory_bytes=status.peak_memory_bytes)
        )


def checked_measurement(
    name: str,
    batch_size: int,
    facts: ReadyReport,
    precision: str | None,
    *,
    expected: Sample | None,
    expected_precision: str | None,
    limit: float,
) -> Measurement:
    """Return the measurement of a process that is warm: invalid where it computes something else than the reference.

    That is: in another precision, though one is expected, or outputs that deviate by more than `limit` from those that
    are `expected`.
    """
    apart = deviation(expected, facts.sample)
    measurement = Measurement(
        contender=name,
        batch_size=batch_size,
        constructor_s=round(facts.context_s + facts.load_s, 4),
        first_batch_s=round(facts.first_step_s, 4),
        deviation=apart,
        precision=precision,
    )
    if None not in (precision, expected_precision) and precision != expected_precision:
        message = f"it computes in {precision}, and TensorFlow in {expected_precision}"
        return replace(measurement, status=Status.INVALID, message=message)
    if apart is not None and apart > limit:
        differ = f"its outputs deviate from TensorFlow's by {apart:.2g}, more than {limit:g}"
        message = moved_text(expected, facts.sample, than="TensorFlow's") or differ
        return replace(measurement, status=Status.INVALID, message=message)
    return measurement


def is_enough(measurement: Measurement, plan: MeasurementPlan) -> bool:
    """Return whether no more passes are needed."""
    own, pair = measurement.estimate(), measurement.pair
    if own is None or pair is None:
        return False
    low, high = own.interval()
    is_known = math.log(high / low) / 2 <= plan.half_width
    n_steps = sum(len(each.latency_samples_s) for each in pair.candidate)
    within_reach = [n for n in plan.tail_steps if pair.timed_s * n / max(1, n_steps) <= plan.max_tail_s]
    if n_steps < max(within_reach, default=0):
        return False
    return is_known or pair.is_long(plan.max_pair_s)
