"""The bench: settings beside a live reference process, and what their pairs say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tuner.errors import TunerError
from tuner.measure import noise as noises
from tuner.measure.agreement import TOLERANCE, deviation
from tuner.measure.constraint import Limits
from tuner.measure.noise import Noise
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, PairPlan, ReferenceLost, log_ratios, measure_pair
from tuner.measure.statistics import Estimate, pooled_sd
from tuner.measure.steady import unsettled
from tuner.measure.tail import Kept
from tuner.search.race import Call, RacePlan, call
from tuner.search.record import Trial
from tuner.search.reference import Reference, adopt
from tuner.search.sampler import believed
from tuner.search.standing import incumbent
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Facts, Status, TrialFailure
from tuner.trial.starting import Started, start_together

_ROUNDING = 1e-3  # that outputs of one setting may differ by, relative
_MEMORY_MARGIN = 1.3  # a process grows while it runs
_ROOMY_BYTES = 4 << 30  # with this much free, the first processes start together without a look at their size


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """How a trial is measured.

    A pair goes on until the race says otherwise, or until one more quad would make it longer than `max_pair_s`. At
    most `parallel` processes start at once. The reference is renewed after `renew_every` trials. The noise is taken
    from `gauge_pairs` pairs of `gauge_quads` quads; from fewer of both where such a pair would take longer than
    `gauge_s` seconds. A setting that breaks one of the `limits` is
    measured like any other, and never the incumbent. `free_memory_bytes` tells how much memory is
    left for processes, None if that is not known.
    """

    objective: Objective = Objective.THROUGHPUT
    limits: Limits = field(default_factory=Limits)
    pair: PairPlan = field(default_factory=PairPlan)
    race: RacePlan = field(default_factory=RacePlan)
    max_pair_s: float = 20.0
    parallel: int = 3
    renew_every: int = 6
    gauge_pairs: int = 3
    gauge_quads: int = 2
    gauge_s: float = 12.0
    free_memory_bytes: Callable[[], int | None] = lambda: None


class Bench:
    """Measures trials; holds the reference process between them."""

    def __init__(
        self, space: Space, launcher: Launcher, plan: BenchPlan, *, hurried: Callable[[], bool] = lambda: False
    ) -> None:
        """`hurried` tells that time is short: pairs then end with their fewest quads."""
        self._space = space
        self._launcher = launcher
        self._plan = plan
        self._hurried = hurried
        self._reference: Reference | None = None
        self._spare: tuple[Started, Pair] | None = None
        """A process of the reference's setting, and its pair so far: the baseline's own trial goes on with it."""
        self._n_references = 0
        self._memory_bytes = 0
        """The most that a process was seen to hold."""
        self._random = False
        """Whether processes of one setting compute different things, so that outputs tell nothing."""
        self.noise = noises.UNKNOWN
        self.start_s = 0.0
        """How long the last start of processes took."""
        self.step_s = 0.0
        """About how long a step of the reference takes."""

    @property
    def alone(self) -> bool:
        """Return whether trials are compared by way of a canary, for want of memory."""
        return self._reference is not None and self._reference.level is not None

    def room(self, together: int) -> int:
        """Return how many trials may be started at once, of `together` wanted, by the memory that is left."""
        free = self._plan.free_memory_bytes()
        if self.alone:
            return 1
        if free is None or not self._memory_bytes:
            return together
        return max(1, min(together, int(free / (_MEMORY_MARGIN * self._memory_bytes))))

    def gauge(self, known: Sequence[Trial]) -> tuple[Noise, list[Pair]]:
        """Measure TensorFlow's default against itself; return the noise, and the pairs that it was taken from.

        `known` are the finished trials of earlier runs. The first process stays as the reference, the second for the
        default's own trial. Without room for two there is no such pair, and the noise is a guess.
        """
        self._n_references = max((trial.reference for trial in known), default=0)
        free = self._plan.free_memory_bytes()
        roomy = free is None or free > _ROOMY_BYTES
        started = self._launch([self._space.reference] * (self._plan.parallel if roomy else 1))
        # Together they may have been too many: one that came up is enough.
        first = next((each for each in started if each.facts is not None), started[0])
        others = [each for each in started if each is not first]
        try:
            self._adopt(first)
            if not roomy and self._fits():
                others = self._launch([self._space.reference])
            elif not roomy:
                self._take_canary()
            pairs = [pair for pair in map(self._gauge_pair, others) if pair is not None]
            missing = self._plan.gauge_pairs - len(others)
            quick = bool(pairs) and all(pair.n_quads >= self._plan.gauge_quads for pair in pairs)
            if quick and missing > 0 and self._fits(missing) and not self._hurried():
                others += self._launch([self._space.reference] * missing)
                more = map(self._gauge_pair, others[-missing:])
                pairs += [pair for pair in more if pair is not None]
        except BaseException:
            for other in others:
                other.process.close()
            raise
        self._random = any(_apart(first.facts, other.facts) for other in others)
        if pairs:
            batch_size = self._space.reference.batch_size
            self.noise = noises.gauge(pairs, self._plan.objective, batch_size=batch_size)
        return self.noise, pairs

    def measure(self, asked: Sequence[Trial], known: Sequence[Trial]) -> Iterator[Trial]:
        """Yield each asked trial with its result, good or bad, in turn.

        `asked` trials have a number and a setting; they are started together, then measured one after another
        while the others are stopped. `known` are the finished trials; the caller adds each yielded one to them.
        """
        began = self._launcher.now()
        started, begun = self._start(asked)
        try:
            for trial, start in zip(asked, started, strict=True):
                done = self._run(trial, start, known, begun.get(trial.number))
                now = self._launcher.now()
                yield replace(done, wall_s=now - began)
                began = self._launcher.now()
        finally:
            for start in started:
                start.process.close()

    def close(self) -> None:
        """End the processes that live between trials."""
        self._drop_spare()
        if self._reference is not None:
            self._lose_reference()

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare[0].process.close()
            self._spare = None

    # ---- processes --------------------------------------------------------------------------------------------

    def _launch(self, settings: Sequence[Setting]) -> list[Started]:
        began = self._launcher.now()
        wanted = [(setting, self._space.env(setting)) for setting in settings]
        started = start_together(self._launcher, wanted, parallel=self._plan.parallel)
        self.start_s = (self._launcher.now() - began) / math.ceil(len(settings) / self._plan.parallel)
        known = [start.facts.memory_bytes or 0 for start in started if start.facts is not None]
        self._memory_bytes = max([self._memory_bytes, *known])
        return started

    def _fits(self, n: int = 1) -> bool:
        """Return whether there is memory for `n` more processes."""
        free = self._plan.free_memory_bytes()
        return free is None or free > n * _MEMORY_MARGIN * self._memory_bytes

    def _adopt(self, start: Started) -> None:
        """Make a started process the reference, in the place of the one before."""
        made = adopt(start, self._n_references + 1)
        if self._reference is not None:
            self._reference.process.close()
        self._reference, self.step_s = made, made.step_s
        self._n_references += 1

    def _take_canary(self) -> None:
        """Compare the reference with a canary, which takes its place."""
        reference = self._reference
        assert reference is not None
        canary = self._launcher.canary()
        try:
            facts = canary.ready()
            canary.pause()
            stand_in = Reference(
                process=canary, number=reference.number, batch_size=1, step_s=facts.step_s, sample=reference.sample
            )
            steps = stand_in.step_s, reference.step_s
            pair = measure_pair(canary, reference.process, self._plan.pair, step_s=steps, enough=self._gauged)
        except (TrialFailure, ReferenceLost) as failure:
            canary.close()
            raise TunerError(
                f"the default failed beside a canary: {failure}", "memory holds not even one process of it: free some"
            ) from failure
        except BaseException:
            canary.close()
            raise
        reference.process.close()
        batch_size = self._space.reference.batch_size
        stand_in.level = stand_in.estimate(pair, self._plan.objective, batch_size=batch_size, sd=self.noise.quad_sd)
        self._reference = stand_in

    def _gauged(self, pair: Pair) -> bool:
        """Return whether a pair says enough of the noise."""
        plan = self._plan
        return self._hurried() or pair.n_quads >= plan.gauge_quads or _next_quad_ends_after(pair, plan.gauge_s)

    def _gauge_pair(self, other: Started) -> Pair | None:
        """Return the pair of the reference and another process of its setting; None where that failed."""
        if other.facts is None:
            return None
        assert self._reference is not None
        steps = self._reference.step_s, other.facts.step_s
        try:
            pair = measure_pair(
                self._reference.process, other.process, self._plan.pair, step_s=steps, enough=self._gauged
            )
        except (TrialFailure, ReferenceLost):
            other.process.close()
            return None
        if self._spare is None:
            self._spare = other, pair
        else:
            other.process.close()
        return pair

    def _start(self, asked: Sequence[Trial]) -> tuple[list[Started], dict[int, Pair]]:
        """Start the asked trials, and a new reference before them if it is time for one.

        Return them, and the pair so far of the one that goes on with the spare process.
        """
        ours = next((trial for trial in asked if trial.setting == self._space.reference), None)
        if ours is None:
            self._drop_spare()  # the default was measured in an earlier run
        spare = self._spare
        settings = [trial.setting for trial in asked if spare is None or trial is not ours]
        reference = self._reference
        due = reference is None or (reference.served >= self._plan.renew_every and not self.alone)
        if due and reference is not None and not self._fits(len(settings) + 1):
            self._lose_reference()  # there is no room for the old one beside the new
            reference = None
        started = self._launch([self._space.reference, *settings] if due else settings) if due or settings else []
        if due:
            first = started.pop(0)
            if first.facts is not None or reference is None:
                try:
                    self._adopt(first)
                except BaseException:
                    for each in started:
                        each.process.close()
                    raise
            else:
                reference.served = 0  # the old one still serves
        if spare is None or ours is None:
            return started, {}
        self._spare = None
        started.insert(list(asked).index(ours), spare[0])
        return started, {ours.number: spare[1]}

    # ---- measuring --------------------------------------------------------------------------------------------

    def _run(self, trial: Trial, start: Started, known: Sequence[Trial], begun: Pair | None) -> Trial:
        """Pair a started process with the reference; a reference that dies is renewed once."""
        if start.facts is None:
            assert start.failure is not None  # Started has one of the two
            return _failed(trial, start.failure)
        apart = self._deviation(trial, start.facts)
        if apart is not None and apart > TOLERANCE:
            start.process.close()
            return replace(
                trial,
                status=Status.INVALID,
                message=f"its outputs differ from the reference's by {100 * apart:.3g} %",
                deviation=apart,
            )
        for attempt in (1, 2):
            if self._reference is None:
                self._start([])
            assert self._reference is not None  # _start adopts one or raises
            try:
                done = self._measure(trial, start, self._reference, known, begun)
            except TrialFailure as failure:
                return _failed(trial, failure)
            except ReferenceLost as lost:
                alone = self.alone
                self._lose_reference()
                start.process.pause()
                begun = None
                if attempt == 2 or alone:
                    raise TunerError(
                        f"the reference process failed beside {trial.setting}: {lost}",
                        "the machine may be short of memory; the end of its log:\n" + lost.failure.log[-2000:],
                    ) from lost
                continue
            peak = start.process.close().peak_memory_bytes
            self._memory_bytes = max(self._memory_bytes, peak or 0)
            done = replace(done, deviation=apart, peak_memory_bytes=peak)
            return replace(done, over_limit=self._plan.limits.kept(done.step_s, peak) is Kept.NO)
        raise AssertionError("the second attempt returns or raises")

    def _lose_reference(self) -> None:
        assert self._reference is not None
        self._reference.process.close()
        self._reference = None

    def _measure(
        self, trial: Trial, start: Started, reference: Reference, known: Sequence[Trial], begun: Pair | None
    ) -> Trial:
        """Return the trial with its pair, and what that says."""
        assert start.facts is not None
        belief = believed(known, self._space.choices(), luck=self.noise.process_sd)
        plan, sd, best = self._plan, self._quad_sd(known), incumbent(known, belief)

        def estimate(pair: Pair) -> Estimate:
            return reference.estimate(pair, plan.objective, batch_size=trial.setting.batch_size, sd=sd)

        def said(pair: Pair) -> Call:
            return call(
                estimate(pair),
                best.estimate if best is not None else None,
                luck=self.noise.process_sd,
                max_quads=plan.pair.max_quads,
                plan=plan.race,
                shared=best is not None and best.reference == reference.number,
            )

        def enough(pair: Pair) -> bool:
            return said(pair) is not Call.GO_ON or self._hurried() or _next_quad_ends_after(pair, plan.max_pair_s)

        # The default beside itself is 1 but for luck: what the noise was taken from tells as much as more would.
        if begun is not None and (begun.n_quads >= plan.gauge_quads or enough(begun)):
            pair = begun
        else:
            steps = reference.step_s, start.facts.step_s
            pair = measure_pair(reference.process, start.process, plan.pair, step_s=steps, enough=enough, pair=begun)
        reference.served += 1
        found = estimate(pair)
        return replace(
            trial,
            log_ratio=found.mean,
            se=found.se,
            df=found.df,
            pruned=said(pair) is Call.HOPELESS,
            pair=pair,
            facts=start.facts.to_dict(),
            reference=reference.number,
            alone=reference.level is not None,
            steady=not unsettled(self._log_ratios(trial, pair), sd),
        )

    def _deviation(self, trial: Trial, facts: Facts) -> float | None:
        """Return how far the outputs lie from the reference's; a batch of another size may compute another thing."""
        if trial.setting.batch_size != self._space.reference.batch_size or self._reference is None or self._random:
            return None
        return deviation(self._reference.sample, facts.sample)

    def _quad_sd(self, known: Sequence[Trial]) -> float:
        """Return what a quad's log-ratio scatters by in this study so far."""
        groups = [self._log_ratios(other, other.pair) for other in known if other.pair]
        return pooled_sd(groups, prior_sd=self.noise.quad_sd, prior_df=noises.PRIOR_DF)

    def _log_ratios(self, trial: Trial, pair: Pair) -> Sequence[float]:
        """Return the log-ratios of a pair's quads, up to a constant."""
        batch_sizes = (trial.setting.batch_size, self._space.reference.batch_size)
        return [float(x) for x in log_ratios(pair, self._plan.objective, batch_sizes=batch_sizes)]


def _apart(a: Facts | None, b: Facts | None) -> bool:
    """Return whether the outputs of two processes differ by more than rounding does."""
    return a is not None and b is not None and (deviation(a.sample, b.sample) or 0.0) > _ROUNDING


def _next_quad_ends_after(pair: Pair, limit_s: float) -> bool:
    return pair.timed_s * (1 + 1 / max(pair.n_quads, 1)) > limit_s


def _failed(trial: Trial, failure: TrialFailure) -> Trial:
    return replace(trial, status=failure.status, message=failure.message, log=failure.log)
