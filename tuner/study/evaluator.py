"""The evaluator: measures trials in pairs with a live reference process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tuner.errors import TunerError
from tuner.measure.agreement import TOLERANCE, deviation, moved_text, only_not_finite
from tuner.measure.pair import Pair, ReferenceLost, log_ratios, measure_pair
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.estimate import Estimate
from tuner.stats.moderation import pooled_sd
from tuner.stats.noise import PRIOR_DF, PRIOR_NOISE, Noise
from tuner.stats.steady import first_block_deviates
from tuner.stats.tail import LimitStatus
from tuner.study.calibration import calibrate
from tuner.study.history import incumbent
from tuner.study.plan import EvaluatorPlan
from tuner.study.pool import LiveProcess
from tuner.study.processes import Processes
from tuner.study.race import RaceDecision, decide
from tuner.study.record import Trial
from tuner.study.reference import Reference
from tuner.study.surrogate import posterior_means
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import ReadyReport, Status, TrialFailure, way_out

_RUN_AGAIN = "run the same command again: what is measured is kept"
_USUAL_BLOCKS = 2  # of a trial, for what it is expected to cost


class Evaluator:
    """Measures trials, in live processes that it keeps between them."""

    def __init__(
        self,
        space: Space,
        launcher: Launcher,
        plan: EvaluatorPlan,
        *,
        is_time_short: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_time_short` tells that time is short: pairs then end after their minimum of blocks."""
        self._space = space
        self._launcher = launcher
        self._plan = plan
        self._is_time_short = is_time_short
        self._unfinished: tuple[LiveProcess, Pair] | None = None
        """A process of the reference's setting, and its pair so far: the default's own trial goes on with it."""
        self._outputs_are_random = False
        self.processes = Processes(space, launcher, plan)
        self.noise = PRIOR_NOISE

    def cost_s(self, setting: Setting, *, n_blocks: int = _USUAL_BLOCKS) -> float:
        """Return about how long (s) a trial of a setting will take, with its start unless a process is there."""
        reference_step_s, slice_s = self.processes.step_s, self._plan.pair.slice_s
        step_s = reference_step_s * setting.batch_size / self._space.reference.batch_size
        own_s, reference_s = (max(slice_s, step) for step in (step_s, reference_step_s))
        start_s = 0.0 if setting in self.processes else self.processes.start_s / self._plan.n_parallel_starts
        if self.processes.are_alone:  # a process of each a block
            start_s = 2 * n_blocks * (self.processes.start_s + slice_s)
        return start_s + self._plan.warm_up_steps * step_s + n_blocks * 2 * (own_s + reference_s)

    def calibrate(self, finished: Sequence[Trial]) -> tuple[Noise, list[Pair]]:
        """Calibrate: measure the default against itself, and return the noise and the pairs behind it.

        `finished` are the finished trials of earlier runs.
        """
        self.processes.count_from(finished)
        calibration = calibrate(self.processes, self._space.reference, self._plan, is_time_short=self._is_time_short)
        self.noise, self._unfinished, self._outputs_are_random = (
            calibration.noise,
            calibration.begun,
            calibration.random,
        )
        return self.noise, [] if calibration.begun is None else [calibration.begun[1]]

    def measure(self, trials: Sequence[Trial], finished: Sequence[Trial]) -> Iterator[Trial]:
        """Yield each trial with its result, good or bad, in turn.

        `trials` have a number and a setting; those that need a process are started together, then all are
        measured one after another while the others are stopped. `finished` are the finished trials; the caller adds
        each yielded one to them.
        """
        began = self._launcher.now()
        failures = self._start([trial.setting for trial in trials])
        for position, trial in enumerate(trials):
            failure = failures.get(trial.setting)
            waiting = [other.setting for other in trials[position + 1 :]]
            if failure is None or self._may_fit_alone(failure, n_started=len(trials)):
                done = self._run(trial, finished, waiting)
            else:
                done = trial.failed(failure)
            yield replace(done, wall_s=self._launcher.now() - began)
            began = self._launcher.now()

    def close(self) -> None:
        """End the processes that live between trials."""
        if self._unfinished is not None:
            self._unfinished[0].process.close()
            self._unfinished = None
        self.processes.close()

    def _start(self, settings: Sequence[Setting]) -> dict[Setting, TrialFailure]:
        """Start what the wanted settings need; return the failures of those that did not start."""
        if self._unfinished is not None:
            # Where the default was measured in an earlier run, it is there for other batch sizes.
            self.processes.put(self._unfinished[0], keep_for=settings)
            if self._space.reference not in settings:
                self._unfinished = None
        return self.processes.start(settings)

    def _run(self, trial: Trial, finished: Sequence[Trial], waiting: Sequence[Setting]) -> Trial:
        """Measure a trial in the live process of its setting; a process that fails ends with its trial alone.

        The processes of settings that are `waiting` stay.
        """
        live = self.processes.take(trial.setting)
        if live is None:  # the trial before it failed in the process that both were to have
            failures = self._start([trial.setting])
            live = self.processes.take(trial.setting)
            if live is None:
                return trial.failed(failures[trial.setting])
        earlier_pair = None
        if self._unfinished is not None and self._unfinished[0] is live and trial.setting == live.setting:
            earlier_pair, self._unfinished = self._unfinished[1], None
        is_reused = live.setting.batch_size != trial.setting.batch_size
        try:
            if is_reused:
                live.set_batch_size(trial.setting.batch_size)
            done = self._measure_beside_reference(replace(trial, process=live.number), live, finished, earlier_pair)
        except TrialFailure as failure:
            live.process.close()
            if self._may_fit_alone(failure, n_started=1, is_reused=is_reused):
                return self._run(trial, finished, waiting)
            return trial.failed(failure)
        except BaseException:
            live.process.close()
            raise
        if done.status is Status.OK:
            self.processes.put(live, keep_for=waiting)
        else:
            live.process.close()
        return done

    def _may_fit_alone(self, failure: TrialFailure, *, n_started: int, is_reused: bool = False) -> bool:
        """Return whether a setting that memory did not hold may fit by itself, and make the room for it.

        What it needs is to be told apart from what others held when it came: processes that wait, those that were
        started together with it, and its own of another batch size, whose memory an allocator keeps in pieces.
        """
        if failure.status is not Status.OOM:
            return False
        had_others = self.processes.end_waiting()
        if had_others:
            self._unfinished = None
        return had_others or n_started > 1 or is_reused

    def _measure_beside_reference(
        self, trial: Trial, live: LiveProcess, finished: Sequence[Trial], earlier_pair: Pair | None
    ) -> Trial:
        """Pair a live process with the reference; a reference that dies is renewed once. Raises TrialFailure."""
        output_deviation = self._deviation(trial, live.facts)
        if output_deviation is not None and output_deviation > TOLERANCE:
            sample = None if self.processes.reference is None else self.processes.reference.sample
            return replace(
                trial,
                status=Status.INVALID,
                message=moved_text(sample, live.facts.sample, than="the reference's")
                or f"its outputs differ from the reference's by {100 * output_deviation:.3g} %",
                deviation=output_deviation,
            )
        beside = self.processes.reference
        strange = None if beside is None else only_not_finite(live.facts.not_finite, beside.not_finite)
        if strange is not None:
            message = f"{strange}, and the reference's are finite"
            return replace(trial, status=Status.INVALID, message=message, deviation=output_deviation)
        for attempt in (1, 2):
            if self.processes.reference is None:
                self._start([])
            reference = self.processes.reference
            assert reference is not None  # a start adopts one or raises
            try:
                done = self._measure(trial, live, reference, finished, earlier_pair)
            except ReferenceLost as lost:
                if self.processes.are_alone:
                    reference.process.close()  # its next turn is that of another process anyway
                else:
                    self.processes.lose_reference()
                live.process.pause()
                earlier_pair = None
                if attempt == 2:
                    raise TunerError(
                        f"the reference process failed beside {trial.setting}: {lost}",
                        f"{way_out(lost.failure.status, str(lost), otherwise=_RUN_AGAIN)}; end of its log:\n"
                        + lost.failure.evidence(2000),
                    ) from lost
                continue
            peak = live.process.peak_memory_bytes
            self.processes.record_memory(trial.setting, peak)
            done = replace(done, deviation=output_deviation, peak_memory_bytes=peak)
            return replace(
                done, over_limit=self._plan.limits.status(done.step_s, peak, done.power_w) is LimitStatus.BROKEN
            )
        raise AssertionError("the second attempt returns or raises")

    def _measure(
        self,
        trial: Trial,
        live: LiveProcess,
        reference: Reference,
        finished: Sequence[Trial],
        earlier_pair: Pair | None,
    ) -> Trial:
        """Return the trial with its pair, and what that says."""
        posterior = posterior_means(
            finished, self._space.choices(), process_sd=self.noise.process_sd, additive=self._space.additive()
        )
        plan, sd, best = self._plan, self._block_sd(finished), incumbent(finished, posterior)
        pair_plan, longest_s = self.processes.pair_plan, self.processes.stretch * plan.max_pair_s

        def estimate(pair: Pair) -> Estimate:
            return reference.estimate(pair, plan.objective, batch_size=trial.setting.batch_size, sd=sd)

        def decision(pair: Pair) -> RaceDecision:
            return decide(
                estimate(pair),
                best.estimate if best is not None else None,
                process_sd=self.noise.process_sd,
                max_blocks=pair_plan.max_blocks,
                plan=plan.race,
                shared=best is not None and best.reference == reference.number,
            )

        def enough(pair: Pair) -> bool:
            return decision(pair) is not RaceDecision.CONTINUE or self._is_time_short() or pair.is_long(longest_s)

        # The ratio of the default to itself is 1 apart from process effects, so the calibration pair is as informative
        # as a longer one.
        if earlier_pair is not None and (earlier_pair.n_blocks >= plan.calibration_blocks or enough(earlier_pair)):
            pair = earlier_pair
        else:
            steps = reference.step_s, live.facts.step_s
            pair = measure_pair(
                reference.process, live.process, pair_plan, step_s=steps, enough=enough, pair=earlier_pair
            )
        reference.n_trials += 1
        final_estimate = estimate(pair)
        return replace(
            trial,
            log_ratio=final_estimate.mean,
            se=final_estimate.se,
            df=final_estimate.df,
            pruned=decision(pair) is RaceDecision.CLEARLY_SLOWER,
            pair=pair,
            facts=live.facts.to_dict(),
            reference=reference.number,
            alone=reference.alone,
            steady=not first_block_deviates(self._log_ratios(trial, pair), sd),
        )

    def _deviation(self, trial: Trial, facts: ReadyReport) -> float | None:
        """Return how far the outputs lie from the reference's; a batch of another size may compute another thing.

        Of a setting that changes numerics the first item is compared all the same: how much it does is to be told.
        """
        reference = self.processes.reference
        is_other = trial.setting.batch_size != self._space.reference.batch_size
        if reference is None or self._outputs_are_random or (is_other and not self._changes_numerics(trial.setting)):
            return None
        return deviation(reference.sample, facts.sample)

    def _changes_numerics(self, setting: Setting) -> bool:
        """Return whether a setting computes in another precision than the default."""
        knobs, default = self._space.catalogue.knobs, self._space.reference
        return any(knobs[name].changes_numerics and value != default[name] for name, value in setting.items)

    def _block_sd(self, finished: Sequence[Trial]) -> float:
        """Return the standard deviation of a block in this study so far."""
        # Blocks of new processes scatter in another way than those of two that live on.
        alike = [other for other in finished if other.alone == self.processes.are_alone]
        groups = [self._log_ratios(other, other.pair) for other in alike if other.pair]
        return pooled_sd(groups, prior_sd=self.noise.block_sd, prior_df=PRIOR_DF)

    def _log_ratios(self, trial: Trial, pair: Pair) -> Sequence[float]:
        """Return the log-ratios of a pair's blocks, up to a constant."""
        batch_sizes = (trial.setting.batch_size, self._space.reference.batch_size)
        return [float(x) for x in log_ratios(pair, self._plan.objective, batch_sizes=batch_sizes)]
