"""The bench: settings beside a live reference process, and what their pairs say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tuner.errors import TunerError
from tuner.measure.agreement import TOLERANCE, deviation
from tuner.measure.pair import Pair, ReferenceLost, log_ratios, measure_pair
from tuner.search.calibration import calibrate
from tuner.search.history import incumbent
from tuner.search.plan import BenchPlan
from tuner.search.pool import Live
from tuner.search.processes import Processes
from tuner.search.race import Call, call
from tuner.search.record import Trial
from tuner.search.reference import Reference
from tuner.search.surrogate import believed
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.estimate import Estimate
from tuner.stats.moderation import pooled_sd
from tuner.stats.noise import PRIOR_DF, UNKNOWN, Noise
from tuner.stats.steady import unsettled
from tuner.stats.tail import Kept
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Facts, Status, TrialFailure

_USUAL_QUADS = 2  # of a trial, for what it is expected to cost
_WARM_UP_STEPS = 3


class Bench:
    """Measures trials, in live processes that it keeps between them."""

    def __init__(
        self, space: Space, launcher: Launcher, plan: BenchPlan, *, hurried: Callable[[], bool] = lambda: False
    ) -> None:
        """`hurried` tells that time is short: pairs then end with their fewest quads."""
        self._space = space
        self._launcher = launcher
        self._plan = plan
        self._hurried = hurried
        self._begun: tuple[Live, Pair] | None = None
        """A process of the reference's setting, and its pair so far: the default's own trial goes on with it."""
        self._random = False
        self.processes = Processes(space, launcher, plan)
        self.noise = UNKNOWN

    def cost_s(self, setting: Setting) -> float:
        """Return about how long (s) a trial of a setting will take, with its start unless a process is there."""
        reference_step_s, slice_s = self.processes.step_s, self._plan.pair.slice_s
        step_s = reference_step_s * setting.batch_size / self._space.reference.batch_size
        own_s, reference_s = (max(slice_s, step) for step in (step_s, reference_step_s))
        start_s = 0.0 if setting in self.processes else self.processes.start_s / self._plan.parallel
        return start_s + _WARM_UP_STEPS * step_s + _USUAL_QUADS * 2 * (own_s + reference_s)

    def gauge(self, known: Sequence[Trial]) -> tuple[Noise, list[Pair]]:
        """Measure the default against itself; return the noise, and the pairs that it was taken from.

        `known` are the finished trials of earlier runs.
        """
        self.processes.count_from(known)
        found = calibrate(self.processes, self._space.reference, self._plan, hurried=self._hurried)
        self.noise, self._begun, self._random = found.noise, found.begun, found.random
        return self.noise, [] if found.begun is None else [found.begun[1]]

    def measure(self, asked: Sequence[Trial], known: Sequence[Trial]) -> Iterator[Trial]:
        """Yield each asked trial with its result, good or bad, in turn.

        `asked` trials have a number and a setting; those that need a process are started together, then all are
        measured one after another while the others are stopped. `known` are the finished trials; the caller adds each
        yielded one to them.
        """
        began = self._launcher.now()
        failures = self._start([trial.setting for trial in asked])
        for position, trial in enumerate(asked):
            failure = failures.get(trial.setting)
            waiting = [other.setting for other in asked[position + 1 :]]
            done = self._run(trial, known, waiting) if failure is None else trial.failed(failure)
            yield replace(done, wall_s=self._launcher.now() - began)
            began = self._launcher.now()

    def close(self) -> None:
        """End the processes that live between trials."""
        if self._begun is not None:
            self._begun[0].process.close()
            self._begun = None
        self.processes.close()

    def _start(self, wanted: Sequence[Setting]) -> dict[Setting, TrialFailure]:
        """Start what the wanted settings need; return the failures of those that did not start."""
        if self._begun is not None:
            # Where the default was measured in an earlier run, it is there for other batch sizes.
            self.processes.put(self._begun[0], beside=wanted)
            if self._space.reference not in wanted:
                self._begun = None
        return self.processes.start(wanted)

    def _run(self, trial: Trial, known: Sequence[Trial], waiting: Sequence[Setting]) -> Trial:
        """Measure a trial in the live process of its setting; a process that fails ends with its trial alone.

        The processes of settings that are `waiting` stay.
        """
        live = self.processes.take(trial.setting)
        if live is None:  # the trial before it failed in the process that both were to have
            failures = self._start([trial.setting])
            live = self.processes.take(trial.setting)
            if live is None:
                return trial.failed(failures[trial.setting])
        begun = None
        if self._begun is not None and self._begun[0] is live and trial.setting == live.setting:
            begun, self._begun = self._begun[1], None
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
            self.processes.put(live, beside=waiting)
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
            if self.processes.reference is None:
                self._start([])
            reference = self.processes.reference
            assert reference is not None  # a start adopts one or raises
            try:
                done = self._measure(trial, live, reference, known, begun)
            except ReferenceLost as lost:
                alone = self.processes.alone
                self.processes.lose_reference()
                live.process.pause()
                begun = None
                if attempt == 2 or alone:
                    raise TunerError(
                        f"the reference process failed beside {trial.setting}: {lost}",
                        "the machine may be short of memory; the end of its log:\n" + lost.failure.log[-2000:],
                    ) from lost
                continue
            peak = live.process.peak_memory_bytes
            self.processes.saw(peak)
            done = replace(done, deviation=apart, peak_memory_bytes=peak)
            return replace(done, over_limit=self._plan.limits.kept(done.step_s, peak) is Kept.NO)
        raise AssertionError("the second attempt returns or raises")

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
        reference = self.processes.reference
        if trial.setting.batch_size != self._space.reference.batch_size or reference is None or self._random:
            return None
        return deviation(reference.sample, facts.sample)

    def _quad_sd(self, known: Sequence[Trial]) -> float:
        """Return what a quad's log-ratio scatters by in this study so far."""
        groups = [self._log_ratios(other, other.pair) for other in known if other.pair]
        return pooled_sd(groups, prior_sd=self.noise.quad_sd, prior_df=PRIOR_DF)

    def _log_ratios(self, trial: Trial, pair: Pair) -> Sequence[float]:
        """Return the log-ratios of a pair's quads, up to a constant."""
        batch_sizes = (trial.setting.batch_size, self._space.reference.batch_size)
        return [float(x) for x in log_ratios(pair, self._plan.objective, batch_sizes=batch_sizes)]
