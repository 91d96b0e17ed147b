"""The evaluator: measures trials in passes, beside a live process of the reference.

Trials that start together are timed together, so that a slice of the reference serves them all. A trial leaves as
soon as it is clearly slower than the best, or known well enough, and its process stays for other batch sizes. The
incumbent's process runs along if it is alive: so the best is known better while others come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tuner.errors import TunerError
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair
from tuner.measure.passes import Live, Pass, Passes, PassEstimates, long_ones, whole_steps
from tuner.plain import to_plain
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.estimate import Estimate
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.stats.tail import LimitStatus
from tuner.study.history import incumbent
from tuner.study.plan import EvaluatorPlan
from tuner.study.processes import LiveProcess, Processes
from tuner.study.race import RaceDecision, decide
from tuner.study.surrogate import posterior_means
from tuner.study.trials import Trial
from tuner.study.turns import Runner, Turns
from tuner.trial.launcher import Launcher
from tuner.trial.outcome import Status, TrialFailure, way_out

_RUN_AGAIN = "run the same command again: finished measurements are kept"
_MIN_GROUP_PASSES = 2  # few groups are tried, and whatever else runs on one core hits them
_FEW = 4  # a batch ends where no more than one in so many of its trials is left
_REFERENCE = "reference"


class Evaluator:
    """Measures trials, in live processes that it keeps between them."""

    def __init__(
        self,
        space: Space,
        launcher: Launcher,
        plan: EvaluatorPlan,
        *,
        is_time_short: Callable[[], bool] = lambda: False,
        is_proof_due: Callable[[Trial, Estimate], bool] = lambda *_: False,
        seed: int = 0,
    ) -> None:
        """`is_time_short` tells that time is short: a trial then ends after one pass.

        `is_proof_due` tells of a trial and its log-ratio to the default that its finals should begin: all end then.
        """
        self._space = space
        self._launcher = launcher
        self._plan = plan
        self._is_time_short, self._is_proof_due = is_time_short, is_proof_due
        self._rng = np.random.default_rng([seed, 7])
        self._twin: LiveProcess | None = None
        """A second process of the default in the first passes of a run, which shows the noise; None once it left."""
        self._twin_number = 0  # until the noise is taken
        self._running: dict[str, Runner] = {}
        """The processes in the passes, by their numbers."""
        self._turns = Turns(space.reference, plan.objective)
        self.processes = Processes(space, launcher, plan)
        self.noise = PRIOR_NOISE

    @property
    def estimates(self) -> PassEstimates | None:
        """Return what all passes say of the settings; None before the first."""
        return self._turns.estimates

    def n_together(self) -> int:
        """Return how many trials are to be timed together: as many as memory holds, in a pass that is not too long."""
        fitting = int(self._plan.max_pass_s / (2 * max(self._plan.slice_s, self.processes.step_s)))
        return self.processes.n_startable(max(1, min(self._plan.n_together, fitting - 1)))  # beside the reference

    def begin(self, finished: Sequence[Trial], noise: Noise | None = None) -> None:
        """Start the reference and its twin. `finished` are the finished trials of earlier runs, `noise` theirs."""
        self.noise = noise or self.noise
        self._turns.recall(finished, self.noise)
        self.processes.count_from(finished)
        self._twin = self.processes.begin()
        self._twin_number = 0 if self._twin is None else self._twin.number

    def take_noise(self) -> tuple[Noise, Pair] | None:
        """Return the noise that the reference and its twin show, once the twin has left; None if nothing shows it."""
        pair = self._turns.pair(self._twin_number)
        if self._twin is not None or not pair.n_blocks:
            return None
        self.noise, self._twin_number = self._turns.noise(pair, alone=self.processes.are_alone), 0
        self._turns.estimate(self.noise)
        return self.noise, pair

    def measure(self, trials: Sequence[Trial], finished: Sequence[Trial]) -> Iterator[Trial]:
        """Yield each trial with its result, good or bad, as it leaves the passes.

        `trials` have a number and a setting. `finished` are the finished trials; the caller adds each yielded one to
        them. What memory did not hold beside others is tried alone after them.
        """
        began = self._launcher.now()
        batches, waiting = [list(trials)], list[Trial]()
        while batches:
            batch = batches.pop(0)
            is_alone = len(batch) == 1
            for done in self._measure_together(batch, finished, waiting, is_alone=is_alone):
                yield replace(done, wall_s=self._launcher.now() - began)
                began = self._launcher.now()
            batches, waiting = [*batches, *([each] for each in waiting)], []

    def close(self) -> None:
        """End the processes that live between trials."""
        for live in (self._twin, *(runner.live for runner in self._running.values())):
            if live is not None:
                live.process.close()
        self._running, self._twin, self._twin_number = {}, None, 0
        self.processes.close()

    # ---- one batch -------------------------------------------------------------------------------------------

    def _measure_together(
        self, trials: Sequence[Trial], finished: Sequence[Trial], waiting: list[Trial], *, is_alone: bool
    ) -> Iterator[Trial]:
        """Yield the trials of a batch; those that may fit alone are put among the `waiting`."""
        running = self._running = {}
        try:
            best = self._best(finished) if self._plan.race.ranks else None
            yield from self._enter(trials, running, waiting, best, is_alone=is_alone)
            if running:
                self._let_run_along(running, best)
            n_lost, passes = 0, Passes(rng=self._rng)
            while any(runner.trial is not None for runner in running.values()):
                live = {_REFERENCE: self._reference(), **{key: runner.live for key, runner in running.items()}}
                ask_s = whole_steps(self.processes.stretch * self._plan.slice_s)
                new = [key for key, runner in running.items() if runner.trial is not None and not runner.passes]
                try:
                    done = passes.run(
                        live,
                        ask_s,
                        once=long_ones(live, ask_s),
                        one_at_a_time=self.processes.are_alone,
                        first=new,
                    )
                except KeyboardInterrupt:
                    yield from self._known(running)
                    raise
                if _REFERENCE in done.failures:
                    n_lost += 1
                    self._lose_reference(done.failures[_REFERENCE], running, is_last=n_lost > 1)
                for key in [key for key in done.failures if key != _REFERENCE]:
                    yield from self._failed(running.pop(key), done.failures[key], waiting, is_alone=is_alone)
                for runner in running.values():
                    runner.interruptions += done.interruptions
                if not done.counts:
                    continue
                self._keep(done, running)
                self._turns.estimate(self.noise)
                done_keys = [key for key, runner in running.items() if self._is_done(runner, running, best)]
                left = [key for key, runner in running.items() if runner.trial is not None and key not in done_keys]
                # The best of them runs along with those that come next.
                n_few = len(trials) // _FEW if self._plan.race.ranks else 0
                is_over = len(left) <= n_few or self._is_any_proof_due(running)
                if is_over and all(running[key].n_passes > 1 for key in left):
                    done_keys += left
                for key in done_keys:
                    runner = running.pop(key)
                    finished_trial = None if runner.trial is None else self._finished(runner)
                    self._put_back(runner)
                    if finished_trial is not None:
                        yield finished_trial
        finally:
            for runner in self._running.values():
                if runner.trial is None:
                    self._put_back(runner)
                else:
                    runner.live.process.close()
            self._running = {}

    def _enter(
        self,
        trials: Sequence[Trial],
        running: dict[str, Runner],
        waiting: list[Trial],
        best: Trial | None,
        *,
        is_alone: bool,
    ) -> Iterator[Trial]:
        """Start what trials need, into `running`; yield those that do not come to run."""
        failures = self._start([trial.setting for trial in trials], keep_for=[] if best is None else [best.setting])
        for trial in trials:
            live = self.processes.take(trial.setting)
            if live is None:
                failure = failures.get(trial.setting)
                # Without a failure, another trial has the process that both need.
                if failure is None or self._may_fit_alone(failure, is_alone=is_alone):
                    waiting.append(trial)
                else:
                    yield trial.failed(failure)
                continue
            runner = Runner(live=live, trial=trial)
            running[str(live.number)] = runner
            if live.setting.batch_size != trial.setting.batch_size:
                try:
                    live.set_batch_size(trial.setting.batch_size)
                except TrialFailure as failure:
                    # Its own memory of another batch size may have been in the way.
                    yield from self._failed(running.pop(str(live.number)), failure, waiting, is_alone=False)
                    continue
            refused = self.processes.refused(trial, live.facts)
            if refused is not None:
                running.pop(str(live.number)).live.process.close()
                yield refused

    def _start(self, settings: Sequence[Setting], *, keep_for: Sequence[Setting] = ()) -> dict[Setting, TrialFailure]:
        """Start what the wanted settings need; return the failures of those that did not start."""
        if self._twin is not None and self._space.reference in settings:
            self.processes.put(self._twin, keep_for=settings)
        return self.processes.start(settings, keep_for=keep_for)

    def _let_run_along(self, running: dict[str, Runner], best: Trial | None) -> None:
        """Let the twin run along if the default has no trial in this batch, and the incumbent if it is alive."""
        if self.processes.are_alone:  # who runs along takes time, and not memory alone
            return
        if self._twin is not None and str(self._twin.number) not in running:
            running[str(self._twin.number)] = Runner(live=self._twin)
        if best is None or len(running) > self.n_together():
            return
        live = self.processes.take(best.setting)
        if live is None:
            return
        if live.setting == best.setting:
            running[str(live.number)] = Runner(live=live)
        else:  # it has another batch size now
            self.processes.put(live, keep_for=[live.setting])

    def _reference(self) -> Live:
        """Return the live reference; one that was lost is started anew. Raises BaselineError."""
        if self.processes.reference is None:
            self._start([])
        assert self.processes.reference is not None  # a start adopts one or raises
        return self.processes.reference

    def _lose_reference(self, failure: TrialFailure, running: dict[str, Runner], *, is_last: bool) -> None:
        """End a reference that failed: the passes go on with another one, once. Raises TunerError."""
        reference = self.processes.reference
        assert reference is not None
        if self.processes.are_alone:
            reference.process.close()  # its next turn is that of another process anyway
        else:
            self.processes.lose_reference()
        if is_last:
            beside = next((runner.trial.setting for runner in running.values() if runner.trial is not None), "it")
            raise TunerError(
                f"the reference process failed next to {beside}: {failure.message}",
                f"{failure.hint or way_out(failure.status, failure.message, otherwise=_RUN_AGAIN)}; end of its log:\n"
                + failure.evidence(2000),
            ) from failure

    def _failed(
        self, runner: Runner, failure: TrialFailure, waiting: list[Trial], *, is_alone: bool
    ) -> Iterator[Trial]:
        """End a process that failed; yield its trial, unless it may fit alone."""
        runner.live.process.close()
        if runner.live is self._twin:
            self._twin = None
        if runner.trial is None:
            return
        if self._may_fit_alone(failure, is_alone=is_alone):
            waiting.append(runner.trial)
        else:
            yield runner.trial.failed(failure)

    def _may_fit_alone(self, failure: TrialFailure, *, is_alone: bool) -> bool:
        """Return whether a setting that memory did not hold may fit by itself, and make the room for it.

        What it needs is to be told apart from what others held when it came: processes that wait, those that were
        started together with it, and its own of another batch size, whose memory an allocator keeps in pieces.
        """
        if failure.status is not Status.OOM:
            return False
        had_others = self.processes.end_waiting()
        if had_others and self._twin is not None and str(self._twin.number) not in self._running:
            self._twin.process.close()  # it waited, too
            self._twin = None
        return had_others or not is_alone

    # ---- one pass --------------------------------------------------------------------------------------------

    def _keep(self, done: Pass, running: dict[str, Runner]) -> None:
        """Add a pass to what is known."""
        self._turns.n_passes += 1
        reference = self.processes.reference
        own = done.slices.get(_REFERENCE)
        if own is not None and reference is not None:
            self._turns.add(reference.process_number, self._space.reference, own, has_trial=False)
        for key, slices in done.slices.items():
            if key == _REFERENCE:
                continue
            runner = running[key]
            runner.passes += [self._turns.n_passes] * len(slices)
            runner.slices += slices
            self._turns.add(runner.live.number, runner.live.setting, slices, has_trial=runner.trial is not None)

    def _best(self, finished: Sequence[Trial]) -> Trial | None:
        posterior = posterior_means(
            finished, self._space.choices(), process_sd=self.noise.process_sd, additive=self._space.additive()
        )
        return incumbent(finished, posterior)

    def _is_done(self, runner: Runner, running: dict[str, Runner], best: Trial | None) -> bool:
        """Return whether a process leaves the passes: one without a trial goes with the last that has one."""
        plan, n = self._plan, runner.n_passes
        is_group = runner.trial is not None and runner.trial.is_group and plan.race.ranks
        if n < max(self.processes.min_passes, _MIN_GROUP_PASSES if is_group else 1):
            return False
        if runner.live is self._twin:  # what it shows is the noise of all
            is_known = n >= plan.calibration_passes or runner.timed_s >= plan.calibration_s / 2
            return is_known or self._is_time_short()
        if runner.trial is None:
            return False
        longest_s = self.processes.stretch * plan.max_slices_s
        is_over = n >= plan.max_passes or runner.timed_s * (1 + 1 / n) > longest_s
        runner.decision = self._decision(runner, running, best)
        return is_over or self._is_time_short() or runner.decision is not RaceDecision.CONTINUE

    def _is_any_proof_due(self, running: Mapping[str, Runner]) -> bool:
        """Return whether the finals of a trial under way should begin."""
        now, trials = self.estimates, [runner.trial for runner in running.values() if runner.trial is not None]
        if now is None:
            return False
        ran = [trial for trial in trials if trial.eligible and trial.setting in now.settings]
        return any(self._is_proof_due(t, now.between(t.setting, self._space.reference)) for t in ran)

    def _decision(self, runner: Runner, running: dict[str, Runner], best: Trial | None) -> RaceDecision:
        """Return what the race says of a trial, against the best of the finished ones and of those that run."""
        assert runner.trial is not None
        now, reference = self.estimates, self._space.reference
        assert now is not None  # it has passes
        # Which setting of one process is best is a question of its own, whatever several processes gain.
        others = [other.trial for other in running.values() if other.trial is not None and other.trial.eligible]
        rivals = [other.setting for other in others if runner.trial.is_group or not other.is_group]
        rivals = [setting for setting in rivals if setting in now.settings and setting != runner.trial.setting]
        rivals += [best.setting] if best is not None and best.setting in now.settings else []
        # What is slower at one batch size may carry more.
        if self._plan.objective is Objective.CAPACITY or not self._plan.race.ranks:
            rivals = []
        ahead = max(rivals, key=lambda setting: now.between(setting, reference).mean, default=None)
        return decide(
            now.between(runner.trial.setting, reference),
            None if ahead is None else now.between(runner.trial.setting, ahead),
            process_sd=self.noise.process_sd,
            max_passes=self._plan.max_passes,
            plan=self._plan.race,
        )

    # ---- what comes of a trial -------------------------------------------------------------------------------

    def _finished(self, runner: Runner) -> Trial:
        """Return a trial with what its slices say, and the turns of those that ran along."""
        trial, reference = runner.trial, self.processes.reference
        assert trial is not None
        assert self.estimates is not None
        own = self.estimates.between(trial.setting, self._space.reference)
        beside = self._turns.take_beside()
        peak = runner.live.process.peak_memory_bytes
        self.processes.record_memory(trial.setting, peak)
        if reference is not None:
            reference.n_trials += 1
        done = replace(
            trial,
            process=runner.live.number,
            log_ratio=own.mean,
            se=own.se,
            df=own.df,
            slices=tuple(runner.slices),
            passes=tuple(runner.passes),
            beside=beside,
            n_blocks=runner.n_passes,
            timed_s=runner.timed_s + sum(s.elapsed_s for turn in beside for s in turn.slices),
            interruptions=tuple(runner.interruptions),
            facts=to_plain(runner.live.facts),
            reference=0 if reference is None else reference.number,
            alone=self.processes.are_alone,
            peak_memory_bytes=peak,
            deviation=self.processes.deviation(trial, runner.live.facts),
            steady=self._turns.is_steady(runner.live.number, runner.passes),
            rounding=own.rounding,
            pruned=runner.decision is RaceDecision.CLEARLY_SLOWER,
        )
        over = self._plan.limits.status(done.step_s, peak, done.power_w) is LimitStatus.BROKEN
        return replace(done, over_limit=over)

    def _known(self, running: Mapping[str, Runner]) -> Iterator[Trial]:
        """Yield the trials under way that have passes enough, where what is interrupted is kept.

        In a race such a trial would stand beside others that are known better.
        """
        for runner in running.values():
            is_enough = runner.trial is not None and runner.n_passes >= self.processes.min_passes
            if is_enough and not self._plan.race.ranks:
                yield self._finished(runner)

    def _put_back(self, runner: Runner) -> None:
        """Keep a process that has left the passes, for other batch sizes."""
        if runner.live is self._twin:
            self._twin = None
        self.processes.put(runner.live, keep_for=[])
