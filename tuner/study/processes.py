"""The live processes of a search: the reference, and those of the settings that are measured beside it.

Some are kept to measure other batch sizes with the same threads. A change of the batch size needs no new process: a
loaded model is given other inputs, warms up, and is timed. What starting and loading cost is paid once for all batch
sizes of a thread setting.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.errors import BaselineError, TunerError
from tuner.measure import agreement
from tuner.measure.passes import Live
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.study.plan import EvaluatorPlan
from tuner.study.trials import Trial
from tuner.trial.launcher import Launcher, Process, StartResult, start_together
from tuner.trial.outcome import RUN_IT, ReadyReport, Status, TrialFailure, way_out
from tuner.trial.restarting import Restarting

_MEMORY_MARGIN = 1.3  # a process grows while it runs
_ROOMY_BYTES = 4 << 30  # with this much free memory, the first processes start together, whatever their size
_MIN_PASSES_ALONE = 2  # of a trial whose processes live one at a time: a single one says nothing of their scatter
_LONGER_ALONE = 2.0  # are their slices, as they take so much longer to start

_USUAL_PASSES = 2  # of a trial, for what it is expected to cost


@dataclass(slots=True, kw_only=True)
class LiveProcess(Live):
    """A warm and paused process: its number in the study, the setting that it has now, and what it told."""

    number: int
    setting: Setting
    facts: ReadyReport

    def set_batch_size(self, batch_size: int) -> None:
        """Let it go on with another batch size; raises TrialFailure."""
        self.facts = self.resize(batch_size)
        self.setting = self.setting.with_values(batch_size=batch_size)


class Processes:
    """Starts processes as memory allows, keeps them, and knows the one that is the reference."""

    def __init__(self, space: Space, launcher: Launcher, plan: EvaluatorPlan) -> None:
        self._space = space
        self._launcher = launcher
        self._plan = plan
        self._n_kept = plan.n_live if plan.limits.memory_bytes is None else 0
        self._kept: dict[Setting, LiveProcess] = {}
        """Those that wait, by what their settings have in common; the one that was used longest ago is first."""
        self._are_alone = False
        self._are_random = False  # whether two processes of the default compute different outputs
        self._n_references = 0
        self._n_processes = 0
        self._memory_bytes = 0
        """The most that one process was seen to hold."""
        self.reference: Reference | None = None
        self.start_s = 0.0
        """How long the last start of processes took."""
        self.step_s = 0.0
        """About how long a step of the reference takes."""

    @property
    def are_alone(self) -> bool:
        """Return whether processes live one at a time, for lack of memory."""
        return self._are_alone

    @property
    def min_passes(self) -> int:
        """Return the fewest passes of a trial."""
        return _MIN_PASSES_ALONE if self.are_alone else 1

    @property
    def stretch(self) -> float:
        """Return how many times as long as planned slices last, and trials may."""
        return _LONGER_ALONE if self.are_alone else 1.0

    def __contains__(self, setting: Setting) -> bool:
        """Return whether a trial of a setting needs no start."""
        return self.key(setting) in self._kept

    def key(self, setting: Setting) -> Setting:
        """Return what settings that can run in one process have in common."""
        return setting.without("batch_size") if self._n_kept else setting

    def n_startable(self, n_wanted: int) -> int:
        """Return how many trials may be started at once, of `n_wanted` wanted, by the memory that is left."""
        free = self._plan.free_memory_bytes()
        if self.are_alone:
            return 1
        if free is None or not self._memory_bytes:
            return n_wanted
        trial_bytes = self._size(self._space.reference) * self._memory_bytes
        n_more = int(free / (_MEMORY_MARGIN * trial_bytes)) + len(self._kept)
        return max(1, min(n_wanted, n_more))

    def fits(self, n: int = 1) -> bool:
        """Return whether there is memory for `n` more processes."""
        free = self._plan.free_memory_bytes()
        return free is None or free > n * _MEMORY_MARGIN * self._memory_bytes

    def _size(self, setting: Setting) -> int:
        """Return how many processes run a setting."""
        return self._space.deployment(setting).processes

    def _n_processes_of(self, settings: Sequence[Setting], *, due: bool) -> int:
        """Return how many processes run settings together, with a new reference where one is due."""
        return sum(map(self._size, settings)) + due * self._size(self._space.reference)

    def _too_large(self, setting: Setting) -> TrialFailure | None:
        """Return the failure of a setting whose processes memory does not hold, however few others there are."""
        n = self._size(setting)
        free = self._plan.free_memory_bytes()
        if n == 1 or free is None or self.fits(n):
            return None
        needed = n * _MEMORY_MARGIN * self._memory_bytes
        return TrialFailure(
            Status.OOM,
            f"not started: {n} processes need about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are free",
        )

    def count_from(self, finished: Sequence[Trial]) -> None:
        """Number what is started from now on after what the finished trials of earlier runs had."""
        self._n_references = max((trial.reference for trial in finished), default=0)
        numbers = [number for trial in finished for number in (trial.process, *(turn.process for turn in trial.turns))]
        self._n_processes = max(numbers, default=0)

    def begin(self) -> LiveProcess | None:
        """Start two processes of the default: one is the reference, the other is returned.

        Without memory for two, processes live one at a time from now on. None if the second failed for another reason.
        Raises BaselineError.
        """
        default = self._space.reference
        free = self._plan.free_memory_bytes()
        started = self.launch([default] * (2 if free is None or free > _ROOMY_BYTES else 1))
        # There may have been no memory for both: one that started is enough.
        first = next((each for each in started if each.facts is not None), started[0])
        others = [each for each in started if each is not first]
        try:
            self.set_reference(first)
            if not others and self.fits():
                others = self.launch([default])
            is_scarce = free is not None and not self.fits()
            if not others or any(_lacks_memory(each, is_scarce=is_scarce) for each in others):
                twin = self._alone()
            else:
                twin = others[0]
            if twin.facts is None:
                return None
            assert first.facts is not None  # it is the reference
            self._are_random = agreement.outputs_differ(first.facts.sample, twin.facts.sample)
            return self.launch_new(twin.setting, twin.process, twin.facts)
        except BaseException:
            for other in others:
                other.process.close()
            raise

    def _alone(self) -> StartResult:
        """Let processes live one at a time; return others of the reference's setting, of which one was started."""
        twin = self.live_alone()
        try:
            facts = twin.ready()
        except TrialFailure as failure:
            hint = "there may be too little memory for one process: free some memory"
            raise TunerError(f"the default setting failed: {failure}", hint) from failure
        finally:
            twin.close()
        return StartResult(setting=self._space.reference, process=twin, facts=facts)

    def launch(self, settings: Sequence[Setting]) -> list[StartResult]:
        """Start a process of each setting, and wait until all are warm."""
        began = self._launcher.now()
        requests = [(setting, self._space.deployment(setting)) for setting in settings]
        started = start_together(self._launcher, requests, parallel=self._plan.n_parallel_starts)
        self.start_s = (self._launcher.now() - began) / math.ceil(len(settings) / self._plan.n_parallel_starts)
        for start in started:
            self.record_memory(start.setting, None if start.facts is None else start.facts.memory_bytes)
        return started

    def record_memory(self, setting: Setting, memory_bytes: int | None) -> None:
        """Take note of what the processes of a setting were seen to hold."""
        self._memory_bytes = max(self._memory_bytes, (memory_bytes or 0) // self._size(setting))

    def cost_s(self, setting: Setting, *, n_passes: int = _USUAL_PASSES) -> float:
        """Return about how long (s) a trial of a setting will take, with its start unless a process is there.

        Its slices, and its part of the reference's.
        """
        reference_step_s, slice_s = self.step_s, self._plan.slice_s
        step_s = reference_step_s * setting.batch_size / self._space.reference.batch_size
        own_s, reference_s = (max(slice_s, step) for step in (step_s, reference_step_s))
        start_s = 0.0 if setting in self else self.start_s / self._plan.n_parallel_starts
        if self.are_alone:  # a process of each a pass
            return 2 * n_passes * (self.start_s + slice_s) + self._plan.warm_up_steps * step_s
        shared_s = reference_s / self._plan.n_together
        return start_s + self._plan.warm_up_steps * step_s + 2 * n_passes * (own_s + shared_s)

    def start(self, wanted: Sequence[Setting], *, keep_for: Sequence[Setting] = ()) -> dict[Setting, TrialFailure]:
        """Start what the wanted settings need, and a new reference before them if it is time for one.

        Processes that wait stay for these and for the settings `keep_for`.

        Return the failures of those that did not start, by their setting. Raises BaselineError where there is no
        reference.
        """
        first_of = {self.key(setting): setting for setting in reversed(wanted)}
        settings = sorted((s for s in first_of.values() if s not in self), key=wanted.index)
        reference = self.reference
        due = reference is None or (reference.n_trials >= self._plan.max_trials_per_reference and not self.are_alone)
        if not due and not settings:
            return {}
        if not self.fits(self._n_processes_of(settings, due=due)):
            self.end_waiting()
        too_large = {each: failure for each in settings if (failure := self._too_large(each)) is not None}
        settings = [each for each in settings if each not in too_large]
        if not due and not settings:
            return too_large
        # Each fits by itself: those that do not fit beside the others are started when it is their turn.
        while len(settings) > 1 and not self.fits(self._n_processes_of(settings, due=due)):
            settings.pop()
        n_processes = self._n_processes_of(settings, due=due)
        if due and reference is not None and not self.fits(n_processes):
            self.lose_reference()  # there is no room for the old one beside the new
            reference = None
        started = self.launch([self._space.reference, *settings] if due else settings)
        if due:
            first = started.pop(0)
            if first.facts is not None or reference is None:
                try:
                    self.set_reference(first)
                except BaseException:
                    for each in started:
                        each.process.close()
                    raise
            else:
                reference.n_trials = 0  # the old one still serves
        for each in started:
            if each.facts is not None:
                self.put(self.launch_new(each.setting, each.process, each.facts), keep_for=[*wanted, *keep_for])
        return too_large | {each.setting: each.failure for each in started if each.failure is not None}

    def launch_new(self, setting: Setting, process: Process, facts: ReadyReport) -> LiveProcess:
        """Return a started process with its number in the study."""
        self._n_processes += 1
        if self.are_alone and not isinstance(process, Restarting):
            process = self._restarting(setting, process)
        return LiveProcess(
            number=self._n_processes, setting=setting, process=process, usual_s=[facts.step_s], facts=facts
        )

    def _restarting(self, setting: Setting, live: Process | None = None) -> Restarting:
        """Return the processes of a setting that live one at a time, of which one may be there."""
        return Restarting(functools.partial(self._launcher.launch, setting, self._space.deployment(setting)), live)

    def take(self, setting: Setting) -> LiveProcess | None:
        """Return the process of a setting, which is the caller's then; None where there is none."""
        return self._kept.pop(self.key(setting), None)

    def put(self, live: LiveProcess, *, keep_for: Sequence[Setting]) -> None:
        """Keep a process; where there is no room, those that were used longest ago end.

        Those of the settings `keep_for` stay. If each setting has a process of its own, it stays until it was measured.
        """
        earlier = self._kept.pop(self.key(live.setting), None)
        if earlier is not None and earlier is not live:
            earlier.process.close()
        self._kept[self.key(live.setting)] = live
        staying = {self.key(setting) for setting in keep_for}
        for key in [each for each in self._kept if each not in staying]:
            if len(self._kept) <= self._n_kept:
                break
            self._kept.pop(key).process.close()

    def end_waiting(self) -> bool:
        """End all processes but the reference, and return whether there were any."""
        had_some = bool(self._kept)
        while self._kept:
            self._kept.popitem()[1].process.close()
        return had_some

    def set_reference(self, start: StartResult) -> None:
        """Make a started process the reference, in the place of the one before; raises BaselineError if it failed."""
        replacement = reference_from(start, self._n_references + 1, self._n_processes + 1)
        if self.reference is not None:
            self.reference.process.close()
        self.reference, self.step_s = replacement, replacement.step_s
        self._n_references += 1
        self._n_processes += 1

    def live_alone(self) -> Restarting:
        """Let processes live one at a time from now on; return others of the reference's setting."""
        assert self.reference is not None
        self.reference.process.close()
        default = self._space.reference
        self.reference = replace(self.reference, process=self._restarting(default))
        self.end_waiting()
        self._n_kept, self._are_alone = 0, True
        return self._restarting(default)

    def lose_reference(self) -> None:
        """End the reference; the next start brings another."""
        if self.reference is not None:
            self.reference.process.close()
            self.reference = None

    def close(self) -> None:
        """End all of them."""
        self.end_waiting()
        self.lose_reference()

    # ---- what they compute -------------------------------------------------------------------------------------

    def refused(self, trial: Trial, facts: ReadyReport) -> Trial | None:
        """Return a trial whose outputs are not those of the reference as an invalid one, None if they are."""
        off, reference = self.deviation(trial, facts), self.reference
        if off is not None and off > agreement.TOLERANCE:
            sample = None if reference is None else reference.sample
            differ = f"its outputs differ from the reference's by {100 * off:.3g} %"
            message = agreement.moved_text(sample, facts.sample, than="the reference's") or differ
            return replace(trial, status=Status.INVALID, message=message, deviation=off)
        strange = None if reference is None else agreement.only_not_finite(facts.not_finite, reference.not_finite)
        if strange is not None:
            message = f"{strange}, and the reference's are finite"
            return replace(trial, status=Status.INVALID, message=message, deviation=off)
        return None

    def deviation(self, trial: Trial, facts: ReadyReport) -> float | None:
        """Return how far the outputs lie from the reference's; a batch of another size may compute another thing.

        Of a setting that changes numerics the first item is compared all the same: how much it does is to be told.
        """
        is_other = trial.setting.batch_size != self._space.reference.batch_size
        if self.reference is None or self._are_random or (is_other and not self._changes_numerics(trial.setting)):
            return None
        return agreement.deviation(self.reference.sample, facts.sample)

    def _changes_numerics(self, setting: Setting) -> bool:
        """Return whether a setting computes in another precision than the default."""
        knobs, default = self._space.catalogue.knobs, self._space.reference
        return any(knobs[name].changes_numerics and value != default[name] for name, value in setting.items)


def _lacks_memory(start: StartResult, *, is_scarce: bool) -> bool:
    """Return whether a process failed for lack of memory: where that is scarce, some allocators just end it."""
    failed_as = None if start.failure is None else start.failure.status
    return failed_as is Status.OOM or (failed_as is Status.CRASHED and is_scarce)


@dataclass(slots=True, kw_only=True)
class Reference(Live):
    """The live process that is in every pass: the framework's default, at the default batch size.

    It is renewed every few trials, as processes of one setting differ, and a single one would bias all trials alike.
    Where memory does not hold two processes, it ends after each turn, and another starts for the next one
    (`tuner.trial.restarting`). `sample` is what it computes.
    `number` counts references, `process_number` all processes of a study.
    """

    number: int
    process_number: int
    sample: dict[str, Any] | None = None
    not_finite: dict[str, dict[str, int]] = field(default_factory=dict)
    n_trials: int = 0


def reference_from(start: StartResult, number: int, process_number: int) -> Reference:
    """Return a started process as the reference; raises BaselineError where it failed."""
    if start.facts is None:
        assert start.failure is not None  # a StartResult has one of the two
        raise BaselineError(
            f"the default setting {start.failure.status}: {start.failure.message}",
            start.failure.hint or way_out(start.failure.status, start.failure.message, otherwise=RUN_IT),
            log="" if start.failure.hint else start.failure.log,  # the reason is known
        ) from start.failure
    return Reference(
        process=start.process,
        number=number,
        process_number=process_number,
        usual_s=[start.facts.step_s],
        sample=start.facts.sample,
        not_finite=start.facts.not_finite,
    )
