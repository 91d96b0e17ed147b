"""The bench: settings beside a live reference process, and what their pairs say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tuner.errors import TunerError
from tuner.measure.agreement import TOLERANCE, computes_apart, deviation
from tuner.measure.noise import gauge
from tuner.measure.pair import Pair, ReferenceLost, log_ratios, measure_pair
from tuner.search.plan import BenchPlan
from tuner.search.pool import Live, Pool
from tuner.search.race import Call, call
from tuner.search.record import Trial
from tuner.search.reference import Reference, adopt, by_way_of_a_canary
from tuner.search.sampler import believed
from tuner.search.standing import incumbent
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.estimate import Estimate
from tuner.stats.moderation import pooled_sd
from tuner.stats.noise import PRIOR_DF, UNKNOWN, Noise
from tuner.stats.steady import unsettled
from tuner.stats.tail import Kept
from tuner.trial.launcher import Launcher, Process
from tuner.trial.outcome import Facts, Status, TrialFailure
from tuner.trial.starting import Started, start_together

_USUAL_QUADS = 2  # of a trial, for what it is expected to cost
_WARM_UP_STEPS = 3
_MEMORY_MARGIN = 1.3  # a process grows while it runs
_ROOMY_BYTES = 4 << 30  # with this much free, the first processes start together without a look at their size


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
        self._pool = Pool(plan.live if plan.limits.memory_bytes is None else 0)
        self._twin: tuple[Live, Pair] | None = None
        """A process of the reference's setting, and its pair so far: the default's own trial goes on with it."""
        self._n_references = 0
        self._n_processes = 0
        self._memory_bytes = 0
        """The most that a process was seen to hold."""
        self._random = False
        """Whether processes of one setting compute different things, so that outputs tell nothing."""
        self.noise = UNKNOWN
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
        n_more = int(free / (_MEMORY_MARGIN * self._memory_bytes)) + len(list(self._pool))
        return max(1, min(together, n_more))

    def cost_s(self, setting: Setting) -> float:
        """Return about how long (s) a trial of a setting will take, with its start unless a process is there."""
        slice_s = self._plan.pair.slice_s
        step_s = self.step_s * setting.batch_size / self._space.reference.batch_size
        own_s, reference_s = (max(slice_s, step) for step in (step_s, self.step_s))
        start_s = 0.0 if setting in self._pool else self.start_s / self._plan.parallel
        return start_s + _WARM_UP_STEPS * step_s + _USUAL_QUADS * 2 * (own_s + reference_s)

    def is_live(self, setting: Setting) -> bool:
        """Return whether a trial of a setting needs no start."""
        return setting in self._pool

    def gauge(self, known: Sequence[Trial]) -> tuple[Noise, list[Pair]]:
        """Measure the default against itself; return the noise, and the pairs that it was taken from.

        `known` are the finished trials of earlier runs. The first process stays as the reference, the second for the
        default's own trial. Without room for two there is no such pair, and the noise is a guess.
        """
        self._n_references = max((trial.reference for trial in known), default=0)
        self._n_processes = max((trial.process for trial in known), default=0)
        free = self._plan.free_memory_bytes()
        roomy = free is None or free > _ROOMY_BYTES
        started = self._launch([self._space.reference] * (2 if roomy else 1))
        # Together they may have been too many: one that came up is enough.
        first = next((each for each in started if each.facts is not None), started[0])
        others = [each for each in started if each is not first]
        try:
            self._adopt(first)
            if not roomy and self._fits():
                others = self._launch([self._space.reference])
            elif not roomy:
                self._take_canary()
            twin = next((each for each in others if each.facts is not None), None)
            pair = None if twin is None else self._gauge_pair(twin)
        except BaseException:
            for other in others:
                other.process.close()
            raise
        if twin is None or twin.facts is None or pair is None:
            return self.noise, []
        self._random = first.facts is not None and computes_apart(first.facts.sample, twin.facts.sample)
        self._twin = self._live(twin.setting, twin.process, twin.facts), pair
        self.noise = gauge([pair], self._plan.objective, batch_size=self._space.reference.batch_size)
        return self.noise, [pair]

    def measure(self, asked: Sequence[Trial], known: Sequence[Trial]) -> Iterator[Trial]:
        """Yield each asked trial with its result, good or bad, in turn.

        `asked` trials have a number and a setting; those that need a process are started together, then all are
        measured one after another while the others are stopped. `known` are the finished trials; the caller adds each
        yielded one to them.
        """
        began = self._launcher.now()
        failures = self._start(asked)
        for position, trial in enumerate(asked):
            failure = failures.get(trial.setting)
            waiting = [other.setting for other in asked[position + 1 :]]
            done = self._run(trial, known, waiting) if failure is None else trial.failed(failure)
            yield replace(done, wall_s=self._launcher.now() - began)
            began = self._launcher.now()

    def close(self) -> None:
        """End the processes that live between trials."""
        self._drop_twin()
        self._pool.close()
        if self._reference is not None:
            self._lose_reference()

    def _drop_twin(self) -> None:
        if self._twin is not None:
            self._twin[0].process.close()
            self._twin = None

    # ---- processes ----

    def _launch(self, settings: Sequence[Setting]) -> list[Started]:
        began = self._launcher.now()
        wanted = [(setting, self._space.deployment(setting)) for setting in settings]
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
        assert self._reference is not None
        self._reference = by_way_of_a_canary(
            self._reference,
            self._launcher,
            self._plan.pair,
            self._plan.objective,
            batch_size=self._space.reference.batch_size,
            enough=self._gauged,
            sd=self.noise.quad_sd,
        )

    def _gauged(self, pair: Pair) -> bool:
        """Return whether a pair says enough of the noise."""
        plan = self._plan
        return self._hurried() or pair.n_quads >= plan.gauge_quads or pair.is_long(plan.gauge_s)

    def _gauge_pair(self, other: Started) -> Pair | None:
        """Return the pair of the reference and another process of its setting; None where that failed."""
        assert self._reference is not None
        assert other.facts is not None
        steps = self._reference.step_s, other.facts.step_s
        try:
            return measure_pair(
                self._reference.process, other.process, self._plan.pair, step_s=steps, enough=self._gauged
            )
        except (TrialFailure, ReferenceLost):
            other.process.close()
            return None

    def _live(self, setting: Setting, process: Process, facts: Facts) -> Live:
        self._n_processes += 1
        return Live(number=self._n_processes, setting=setting, process=process, facts=facts)

    def _start(self, asked: Sequence[Trial]) -> dict[Setting, TrialFailure]:
        """Start what the asked trials need, and a new reference before them if it is time for one.

        Return the failures of those that did not start, by their setting.
        """
        wanted = [trial.setting for trial in asked]
        if self._twin is not None:
            # Where the default was measured in an earlier run, it is there for other batch sizes.
            self._pool.put(self._twin[0], beside=wanted)
            if self._space.reference not in wanted:
                self._twin = None
        first_of = {self._pool.key(setting): setting for setting in reversed(wanted)}
        settings = sorted((s for s in first_of.values() if s not in self._pool), key=wanted.index)
        reference = self._reference
        due = reference is None or (reference.served >= self._plan.renew_every and not self.alone)
        if not due and not settings:
            return {}
        if not self._fits(len(settings) + due):
            self._pool.close()
        if due and reference is not None and not self._fits(len(settings) + 1):
            self._lose_reference()  # there is no room for the old one beside the new
            reference = None
        started = self._launch([self._space.reference, *settings] if due else settings)
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
        for each in started:
            if each.facts is not None:
                self._pool.put(self._live(each.setting, each.process, each.facts), beside=wanted)
        return {each.setting: each.failure for each in started if each.failure is not None}

    # ---- measuring --------------------------------------------------------------------------------------------

    def _run(self, trial: Trial, known: Sequence[Trial], waiting: Sequence[Setting]) -> Trial:
        """Measure a trial in the live process of its setting; a process that fails ends with its trial alone.

        The processes of settings that are `waiting` stay.
        """
        live = self._pool.take(trial.setting)
        if live is None:  # the trial before it failed in the process that both were to have
            failures = self._start([trial])
            live = self._pool.take(trial.setting)
            if live is None:
                return trial.failed(failures[trial.setting])
        begun = None
        if self._twin is not None and self._twin[0] is live and trial.setting == live.setting:
            begun = self._twin[1]
        self._twin = None if begun is not None else self._twin
        try:
            if live.setting.batch_size != trial.setting.batch_size:
                live.rebatch(trial.setting.batch_size)
            done = self._measure_beside_reference(replace(trial, process=live.number), live, known, begun)
        except TrialFailure as failure:
            live.process.close()
            return trial.failed(failure)
        except BaseException:
            live.process.close()
            raise
        if done.status is Status.OK:
            self._pool.put(live, beside=waiting)
        else:
            live.process.close()
        return done

    def _measure_beside_reference(self, trial: Trial, live: Live, known: Sequence[Trial], begun: Pair | None) -> Trial:
        """Pair a live process with the reference; a reference that dies is renewed once. Raises TrialFailure."""
        apart = self._deviation(trial, live.facts)
        if apart is not None and apart > TOLERANCE:
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
                done = self._measure(trial, live, self._reference, known, begun)
            except ReferenceLost as lost:
                alone = self.alone
                self._lose_reference()
                live.process.pause()
                begun = None
                if attempt == 2 or alone:
                    raise TunerError(
                        f"the reference process failed beside {trial.setting}: {lost}",
                        "the machine may be short of memory; the end of its log:\n" + lost.failure.log[-2000:],
                    ) from lost
                continue
            peak = live.process.peak_memory_bytes
            self._memory_bytes = max(self._memory_bytes, peak or 0)
            done = replace(done, deviation=apart, peak_memory_bytes=peak)
            return replace(done, over_limit=self._plan.limits.kept(done.step_s, peak) is Kept.NO)
        raise AssertionError("the second attempt returns or raises")

    def _lose_reference(self) -> None:
        assert self._reference is not None
        self._reference.process.close()
        self._reference = None

    def _measure(
        self, trial: Trial, live: Live, reference: Reference, known: Sequence[Trial], begun: Pair | None
    ) -> Trial:
        """Return the trial with its pair, and what that says."""
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
            return said(pair) is not Call.GO_ON or self._hurried() or pair.is_long(plan.max_pair_s)

        # The default beside itself is 1 but for luck: what the noise was taken from tells as much as more would.
        if begun is not None and (begun.n_quads >= plan.gauge_quads or enough(begun)):
            pair = begun
        else:
            steps = reference.step_s, live.facts.step_s
            pair = measure_pair(reference.process, live.process, plan.pair, step_s=steps, enough=enough, pair=begun)
        reference.served += 1
        found = estimate(pair)
        return replace(
            trial,
            log_ratio=found.mean,
            se=found.se,
            df=found.df,
            pruned=said(pair) is Call.HOPELESS,
            pair=pair,
            facts=live.facts.to_dict(),
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
        return pooled_sd(groups, prior_sd=self.noise.quad_sd, prior_df=PRIOR_DF)

    def _log_ratios(self, trial: Trial, pair: Pair) -> Sequence[float]:
        """Return the log-ratios of a pair's quads, up to a constant."""
        batch_sizes = (trial.setting.batch_size, self._space.reference.batch_size)
        return [float(x) for x in log_ratios(pair, self._plan.objective, batch_sizes=batch_sizes)]
