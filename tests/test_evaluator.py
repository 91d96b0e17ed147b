"""The bench and the race: noise first, few slices for losers, renewed references, little memory, limits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Finished, setting
from tests.frameworks import read_space, resolve
from tests.scripted import noisy, run, surface
from tests.scripted_launcher import ScriptedLauncher, ScriptedProcess
from tuner.errors import FindingError, TunerError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.machine.host import Machine
from tuner.measure.budget import Budget
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.pair import estimate_noise
from tuner.measure.passes import estimate_passes
from tuner.result.document import describe_study
from tuner.result.study import StudyResult
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import MARGIN
from tuner.stats.estimate import Estimate
from tuner.stats.tail import LimitStatus
from tuner.study.evaluator import Evaluator
from tuner.study.history import incumbent, tied
from tuner.study.lattice import Encoding
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.race import RaceDecision, RacePlan, decide
from tuner.study.surrogate import fit, noise_of
from tuner.study.trials import Trial
from tuner.trial.outcome import ExitStatus, ReadyReport, Slice, Status, TrialFailure
from tuner.workload.workload import Workload

pytestmark = pytest.mark.slow

RACE = RacePlan()


def estimate(mean: float, se: float, n: int = 2, df: float = 6) -> Estimate:
    return Estimate(mean=mean, se=se, n=n, df=df)


BEST = estimate(0.10, 0.005, n=5)


@pytest.mark.parametrize(
    ("estimate_so_far", "best", "decision"),
    [
        (estimate(-0.30, 0.02, n=1, df=4), BEST, RaceDecision.CLEARLY_SLOWER),
        (estimate(0.05, 0.03, n=1, df=4), BEST, RaceDecision.CONTINUE),
        (estimate(0.05, 0.006, n=4, df=8), BEST, RaceDecision.CLEARLY_SLOWER),
        (estimate(0.09, 0.008, n=4, df=40), BEST, RaceDecision.NO_GAIN),
        (estimate(0.12, 0.010, n=4, df=40), BEST, RaceDecision.CONTINUE),
        (estimate(0.12, 0.005, n=4, df=40), BEST, RaceDecision.PRECISE),
        (estimate(0.12, 0.02), None, RaceDecision.CONTINUE),
        (estimate(0.12, 0.004), None, RaceDecision.PRECISE),
    ],
)
def test_the_race(estimate_so_far: Estimate, best: Estimate | None, decision: RaceDecision) -> None:
    luck = math.sqrt(2) * 0.006
    own = estimate_so_far.widened(luck)
    behind = None if best is None else replace(estimate_so_far.minus(best), df=estimate_so_far.df).widened(luck)
    assert decide(own, behind, process_sd=0.006, max_passes=8, plan=RACE) is decision
    assert decide(own, behind, process_sd=0.006, max_passes=8, plan=RacePlan(races=False)) is RaceDecision.CONTINUE


def test_what_few_digits_do_not_show_may_be_a_gain() -> None:
    own, behind = estimate(-0.1, 0.02, n=4, df=40), estimate(-0.1, 0.02, n=4, df=40)
    assert decide(own, behind, process_sd=0.006, max_passes=8, plan=RACE) is RaceDecision.CLEARLY_SLOWER
    coarse = replace(behind, rounding=0.3)  # whole milliseconds of three
    assert decide(own, coarse, process_sd=0.006, max_passes=8, plan=RACE) is RaceDecision.CONTINUE


def test_a_setting_as_good_as_the_incumbent_is_seldom_given_up() -> None:
    """Of 3,000 pairs of equally fast settings, looked at after each of 8 blocks, at most α/2 are called hopeless."""
    rng, n, process_sd, sd, lost = np.random.default_rng(0), 3000, 0.006, 0.015, 0
    for _ in range(n):
        best = estimate(rng.normal(0, math.hypot(process_sd, 0.005)), 0.005)
        x = rng.normal(rng.normal(0, process_sd), sd, 8)
        for k in range(1, 9):
            estimate_so_far = Estimate(mean=float(x[:k].mean()), se=sd / math.sqrt(k), n=k, df=200)
            behind = replace(estimate_so_far.minus(best), df=200).widened(math.sqrt(2) * process_sd)
            if (
                decide(estimate_so_far, behind, process_sd=process_sd, max_passes=8, plan=replace(RACE, threshold=-1.0))
                is RaceDecision.CLEARLY_SLOWER
            ):
                lost += 1
                break
    assert lost / n <= RACE.alpha / 2 + 3 * math.sqrt(0.1 * 0.9 / n)


def test_losers_get_fewer_slices_than_the_incumbent(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path)
    trials = record.trials()
    best = incumbent(trials)
    assert best is not None
    lost = [t.n_blocks for t in trials if t.pruned]
    assert lost
    assert np.mean(lost) < best.n_blocks


def test_what_was_given_up_is_an_imprecise_observation(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path)
    trials = record.trials()
    mixture = fit(trials, Encoding(space.choices()), 0.006)
    assert mixture is not None
    posterior = mixture.posteriors[0]
    assert len(posterior.y) == sum(1 for t in trials if t.estimate is not None)
    assert any(t.pruned for t in trials)
    se = {t.number: t.se for t in trials if t.se is not None}
    assert min(se[t.number] for t in trials if t.pruned) > min(se.values())


def test_trials_that_shared_a_reference_share_its_luck(space: Space) -> None:
    settings = list(space.points[:3])
    trials = [
        Trial(number=i, setting=s, status=Status.OK, log_ratio=0.0, se=0.01, df=5, reference=1 + i // 2)
        for i, s in enumerate(settings)
    ]
    mixture = fit(trials, Encoding(space.choices()), 0.02)
    assert mixture is not None
    posterior = mixture.posteriors[0]
    assert np.diag(posterior.N) == pytest.approx(0.01**2 + 2 * 0.02**2)
    assert posterior.N[0, 1] == pytest.approx(0.02**2)
    assert posterior.N[0, 2] == 0.0


def test_the_reference_is_renewed_every_so_many_trials(space: Space) -> None:
    launcher = noisy()
    record, _ = run(space, launcher, plan=Plan(evaluation=EvaluatorPlan(max_trials_per_reference=4)))
    measured = [t.reference for t in record.trials() if t.slices]
    assert set(measured) == set(range(1, max(measured) + 1))
    assert max(measured) >= 3
    assert max(measured.count(number) for number in set(measured)) <= 4 + 1  # two are started together
    assert launcher.live == 0


def test_a_reference_that_cannot_be_renewed_serves_on(space: Space) -> None:
    class Tired(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: object) -> object:
            finished = self.launched.count(space.reference)
            if setting == space.reference and finished >= 2:  # the reference and its twin are there
                self.failures = {space.reference: Status.OOM}
            return super().launch(setting, Deployment())

    record, _ = run(space, Tired(rate=surface), budget=Budget(trials=12), plan=_short(max_trials_per_reference=4))
    assert {t.reference for t in record.trials() if t.slices} == {1}


def _short(**bench: object) -> Plan:
    """Return a plan whose finals may fail: only the search is looked at."""
    return Plan(evaluation=EvaluatorPlan(**bench))


def test_the_noise_is_measured_first_and_kept(space: Space) -> None:
    launcher = noisy(noise=0.03, process_noise=0.02)
    record, _ = run(space, launcher, budget=Budget(trials=6))
    noise = describe_study(record).noise
    assert launcher.launched[:2] == [space.reference] * 2
    assert noise is not None
    assert noise.block_sd == pytest.approx(0.03, rel=0.5)
    first = record.trials()[0]
    assert first.setting == space.reference
    assert noise.n_blocks >= 4


def test_noise_is_told_of_and_leaves_the_margin_alone(space: Space) -> None:
    shaky = noisy(noise=0.16, process_noise=0.05)
    record, _ = run(space, shaky, budget=Budget(trials=5))
    document = describe_study(record)
    assert document.finals.margin == MARGIN == 0.02
    assert document.noise.floor > MARGIN
    assert "noisy" in [warning.code for warning in document.warnings]
    chosen = run(space, noisy(), budget=Budget(trials=5), plan=Plan(margin=0.1))[0]
    assert describe_study(chosen).finals.margin == 0.1


def test_the_search_says_how_much_its_own_figure_shrank(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path)
    document = describe_study(record)
    shrank = document.shrinkage
    assert shrank.finals == document.verdicts["tf-default"].speedup
    assert shrank.search == pytest.approx(document.incumbent.ratio, rel=0.03)


# ---- passes ----------------------------------------------------------------------------------------------------


def batch(*settings: Setting, first: int = 0) -> list[Trial]:
    return [Trial(number=first + i, setting=each, status=Status.OK) for i, each in enumerate(settings)]


def test_trials_of_a_batch_share_the_slices_of_the_reference(space: Space) -> None:
    launcher = ScriptedLauncher(rate=surface, noise=0.01)
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    settings = [setting(inter_op=n, intra_op=8, batch_size=8) for n in (1, 2, 4)]
    done = list(bench.measure(batch(*settings), []))
    bench.close()
    stored = [turn for trial in done for turn in trial.beside if turn.setting == space.reference]
    passes = {number for trial in done for number in trial.passes}
    by_process = {
        process: [t.in_pass for t in stored if t.process == process] for process in {t.process for t in stored}
    }
    # The reference and its twin, each once in each pass, whoever stores it.
    assert len(by_process) == 2
    assert all(len(set(own)) == len(own) <= len(passes) for own in by_process.values())
    assert set().union(*by_process.values()) == passes
    assert all(len(trial.slices) == len(trial.passes) == 2 * len(set(trial.passes)) for trial in done)


def test_the_estimates_are_those_of_the_stored_turns(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path, trials=8)
    trials = record.trials()
    turns = [turn for trial in trials for turn in trial.turns]
    noise = record.attributes().noise
    assert noise is not None
    again = estimate_passes(turns, space.reference, Objective.THROUGHPUT, noise)
    assert again is not None
    for trial in trials:
        assert trial.estimate is not None
        own = again.between(trial.setting, space.reference)
        assert (trial.log_ratio, trial.se) == pytest.approx((own.mean, own.se), abs=1e-4)
    # Their covariance is what the model has for noise.
    assert trials[1].covariance is not None
    N = noise_of(trials, 0.5)
    assert N[1, 2] == trials[1].covariance[trials[2].number]
    assert N.diagonal() == pytest.approx([(trial.se or 0.0) ** 2 for trial in trials])


def test_the_incumbent_runs_along_and_is_known_better(space: Space) -> None:
    launcher = ScriptedLauncher(rate=surface, noise=0.02)
    bench = Evaluator(space, launcher, EvaluatorPlan(n_live=3))
    bench.begin([])
    best = setting(inter_op=2, intra_op=8, batch_size=16)
    finished = list(bench.measure(batch(space.reference, best), []))
    others = [setting(inter_op=n, intra_op=8, batch_size=8) for n in (1, 4)]
    done = list(bench.measure(batch(*others, first=2), finished))
    bench.close()
    along = [turn for trial in done for turn in trial.beside if turn.setting == best]
    assert along
    assert {turn.process for turn in along} == {next(t.process for t in finished if t.setting == best)}
    assert bench.estimates is not None
    assert bench.estimates.n_passes[best] > next(t.n_blocks for t in finished if t.setting == best)
    assert launcher.live == 0


def test_a_reference_that_dies_in_a_pass_is_started_anew_and_the_pass_counts(space: Space) -> None:
    class Mortal(ScriptedLauncher):
        def launch(self, each: Setting, deployment: object) -> object:
            process = super().launch(each, Deployment())
            if len(self.launched) == 1:  # the first reference
                calls, alive = itertools.count(1), process.slice

                def slice_(duration_s: float) -> Slice:
                    if next(calls) > 3:  # its warm-up, and the first pass
                        raise TrialFailure(Status.CRASHED, "gone")
                    return alive(duration_s)

                process.slice = slice_
            return process

    launcher = Mortal(rate=surface, noise=0.01)
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    settings = [setting(inter_op=n, intra_op=8, batch_size=8) for n in (1, 2)]
    done = list(bench.measure(batch(*settings), []))
    bench.close()
    assert [trial.status for trial in done] == [Status.OK, Status.OK]
    assert len({t.process for trial in done for t in trial.beside if t.setting == space.reference}) == 3
    for trial in done:
        truth = math.log(surface(trial.setting) / surface(space.reference))
        assert trial.log_ratio == pytest.approx(truth, abs=0.05)
    assert launcher.live == 0


def test_trials_that_are_given_up_on_leave_no_process(space: Space) -> None:
    launcher = ScriptedLauncher(rate=surface)
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    measuring = bench.measure(batch(*(setting(inter_op=n, intra_op=8, batch_size=8) for n in (1, 2, 4))), [])
    next(measuring)
    bench.close()
    measuring.close()  # type: ignore[attr-defined]
    assert launcher.live == 0


# ---- several batch sizes in a process --------------------------------------------------------------------------


def test_batch_sizes_of_one_thread_setting_share_a_process(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path)
    trials = [trial for trial in record.trials() if trial.slices]
    by_process: dict[int, set[Setting]] = {}
    for trial in trials:
        by_process.setdefault(trial.process, set()).add(trial.setting.without("batch_size"))
    assert all(len(threads) == 1 for threads in by_process.values())
    assert len(by_process) < len(trials)


def test_a_batch_that_fails_takes_its_process_and_leaves_the_numbers_of_others(space: Space) -> None:
    small, large = (setting(inter_op=2, intra_op=8, batch_size=n) for n in (8, 64))
    launcher = ScriptedLauncher(rate=surface, failures={large: Status.OOM})
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    finished: list[Trial] = []
    for number, each in enumerate((small, large, small.with_values(batch_size=4))):
        finished += bench.measure([Trial(number=number, setting=each, status=Status.OK)], finished)
    assert [trial.status for trial in finished] == [Status.OK, Status.OOM, Status.OK]
    assert finished[0].process != finished[2].process
    bench.close()
    assert launcher.live == 0


def test_a_setting_that_memory_does_not_hold_beside_others_is_tried_alone(space: Space) -> None:
    """Beside the reference; what others held when it came says nothing of what it needs."""
    first, large = setting(inter_op=2, intra_op=8, batch_size=8), setting(inter_op=1, intra_op=8, batch_size=64)

    class Crowded(dict[Setting, Status]):
        def get(self, each: Setting, default: Any = None) -> Any:
            return Status.OOM if each == large and launcher.live > 2 else default

    launcher = ScriptedLauncher(rate=surface, failures=Crowded())
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    finished: list[Trial] = []
    for number, each in enumerate((first, large)):
        finished += bench.measure([Trial(number=number, setting=each, status=Status.OK)], finished)
    assert [trial.status for trial in finished] == [Status.OK, Status.OK]
    assert launcher.launched.count(large) == 2
    together = [Trial(number=2 + n, setting=each, status=Status.OK) for n, each in enumerate((first, large))]
    assert [trial.status for trial in bench.measure(together, finished)] == [Status.OK, Status.OK]
    bench.close()
    assert launcher.live == 0


def test_where_memory_is_limited_each_batch_has_its_own_process(space: Space) -> None:
    launcher = ScriptedLauncher(rate=surface)
    bench = Evaluator(space, launcher, EvaluatorPlan(limits=Limits(memory_bytes=1 << 30)))
    bench.begin([])
    fast = setting(inter_op=2, intra_op=8, batch_size=8)
    trials = [Trial(number=n, setting=fast.with_values(batch_size=4 * n), status=Status.OK) for n in (1, 2)]
    done = [each for trial in trials for each in bench.measure([trial], [])]
    assert done[0].process != done[1].process
    bench.close()
    assert launcher.live == 0


def test_what_a_live_process_can_run_costs_no_start(space: Space) -> None:
    launcher = ScriptedLauncher(rate=surface)
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    fast = setting(inter_op=2, intra_op=8, batch_size=8)
    before = bench.processes.cost_s(fast.with_values(batch_size=16))
    start_s = bench.processes.start_s / 2
    list(bench.measure([Trial(number=0, setting=fast, status=Status.OK)], []))
    after = bench.processes.cost_s(fast.with_values(batch_size=16))
    assert before - after == pytest.approx(start_s)
    assert bench.processes.cost_s(fast.with_values(batch_size=64)) > after
    bench.close()


def test_trials_that_start_together_are_each_started_once(space: Space) -> None:
    settings = [setting(inter_op=n, intra_op=8, batch_size=8) for n in (1, 2, 4, 8)]
    launcher = ScriptedLauncher(rate=surface)
    bench = Evaluator(space, launcher, EvaluatorPlan(n_parallel_starts=4, n_live=2))
    bench.begin([])
    before = len(launcher.launched)
    trials = [Trial(number=n, setting=each, status=Status.OK) for n, each in enumerate(settings)]
    assert all(trial.status is Status.OK for trial in bench.measure(trials, []))
    assert launcher.launched[before:] == settings
    bench.close()
    assert launcher.live == 0


def test_a_start_that_fails_says_nothing_of_another_batch_size(space: Space) -> None:
    large, small = (setting(inter_op=2, intra_op=8, batch_size=n) for n in (64, 8))
    launcher = ScriptedLauncher(rate=surface, failures={large: Status.OOM})
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    trials = [Trial(number=n, setting=each, status=Status.OK) for n, each in enumerate((large, small))]
    assert [trial.status for trial in bench.measure(trials, [])] == [Status.OOM, Status.OK]
    bench.close()
    assert launcher.live == 0


@pytest.mark.parametrize("limits", [Limits(), Limits(memory_bytes=1 << 40)])
def test_what_keeps_no_process_never_asks_one_for_another_batch(space: Space, limits: Limits) -> None:
    """As of a command, which gets its batch size when it starts: on resuming, the noise's second process is at hand."""

    class Stubborn(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: object) -> object:
            process = super().launch(setting, Deployment())
            process.set_batch_size = None  # type: ignore[assignment,method-assign]
            return process

    launcher = Stubborn(rate=surface)
    bench = Evaluator(space, launcher, EvaluatorPlan(n_live=0, limits=limits))
    bench.begin([])
    other = space.reference.with_values(batch_size=16)
    [done] = bench.measure([Trial(number=7, setting=other, status=Status.OK)], [])
    assert done.status is Status.OK
    bench.close()
    assert launcher.live == 0


# ---- little memory -------------------------------------------------------------------------------------------


class Small(ScriptedLauncher):
    """A host whose memory holds so many processes of 1 GiB."""

    def __init__(self, holds: int, **changes: object) -> None:
        super().__init__(**{"rate": surface, "noise": 0.01, "process_noise": 0.003} | changes)
        self.holds, self.heavy, self.most = holds, 0, 0

    def launch(self, setting: Setting, deployment: object) -> object:
        process = super().launch(setting, Deployment())
        self.heavy += 1
        self.most = max(self.most, self.heavy)
        return Weighty(self, process)

    def free(self) -> int:
        return (self.holds - self.heavy) << 30


class Weighty:
    """A scripted process that takes 1 GiB."""

    answers_on = ()

    def __init__(self, host: Small, process: ScriptedProcess) -> None:
        self._host, self._process, self._closed = host, process, False

    def ready(self) -> ReadyReport:
        return replace(self._process.ready(), memory_bytes=int(0.7 * (1 << 30)))

    @property
    def peak_memory_bytes(self) -> int:
        return int(0.75 * (1 << 30))

    def close(self) -> ExitStatus:
        if not self._closed:
            self._closed = True
            self._host.heavy -= 1
        return replace(self._process.close(), peak_memory_bytes=int(0.75 * (1 << 30)))

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(self._process, name)


@pytest.mark.parametrize(("holds", "alone"), [(1, True), (2, False), (3, False)])
def test_no_more_processes_live_at_once_than_memory_holds(space: Space, holds: int, alone: bool) -> None:
    launcher = Small(holds)
    plan = Plan(evaluation=EvaluatorPlan(free_memory_bytes=launcher.free))
    record, _ = run(space, launcher, budget=Budget(trials=14), plan=plan)
    assert launcher.most <= holds
    assert launcher.live == launcher.heavy == 0
    trials = record.trials()
    assert {t.alone for t in trials if t.slices} == {alone}
    best = incumbent(trials)
    assert best is not None
    assert surface(best.setting) > 1.1 * surface(space.reference)
    document = describe_study(record)
    assert ("measured alone" in [warning.code for warning in document.warnings]) is alone
    assert document.verdicts["tf-default"].code == "better"


class OfGroups(Small):
    """A host on which a setting of n processes takes n GiB."""

    def launch(self, setting: Setting, deployment: object) -> object:
        process = super().launch(setting, deployment)
        n_more = int(setting.to_dict().get("instances", 1)) - 1
        self.heavy += n_more
        self.most = max(self.most, self.heavy)
        return WeightyGroup(self, process, n_more)


class WeightyGroup(Weighty):
    """A group that takes 1 GiB for each of its processes."""

    def __init__(self, host: Small, process: Weighty, n_more: int) -> None:
        super().__init__(host, process)
        self._n = 1 + n_more

    def ready(self) -> ReadyReport:
        facts = self._process.ready()
        return replace(facts, memory_bytes=self._n * facts.memory_bytes)

    def close(self) -> ExitStatus:
        if not self._closed:
            self._closed = True
            self._host.heavy -= self._n - 1
        return self._process.close()


def test_groups_that_memory_does_not_hold_are_not_started_and_those_it_holds_one_by_one(space: Space) -> None:
    launcher = OfGroups(4)
    bench = Evaluator(space, launcher, EvaluatorPlan(free_memory_bytes=launcher.free, n_live=0))
    bench.begin([])
    groups = [setting(instances=n, inter_op=1, intra_op=1, batch_size=8) for n in (2, 3, 8)]
    trials = [Trial(number=i, setting=each, status=Status.OK) for i, each in enumerate(groups)]
    space_of = {each: Deployment(processes=int(each["instances"])) for each in groups}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Space, "deployment", lambda _, each: space_of.get(each, Deployment()))
        two, three, eight = bench.measure(trials, [])
    bench.close()
    assert launcher.most <= 4
    assert (two.status, three.status, eight.status) == (Status.OK, Status.OK, Status.OOM)
    assert eight.message.startswith("not started: 8 processes need about ")
    assert launcher.heavy == 0


def test_one_pass_decides_nothing_about_several_processes(space: Space) -> None:
    slow, group = setting(inter_op=1, intra_op=1, batch_size=8), setting(instances=2, inter_op=1, batch_size=8)
    launcher = ScriptedLauncher(rate=lambda s: 5.0 if s in (slow, group) else 20.0, noise=0.001)
    bench = Evaluator(space, launcher, EvaluatorPlan())
    bench.begin([])
    trials = [
        Trial(number=0, setting=space.reference, status=Status.OK),
        Trial(number=1, setting=slow, status=Status.OK),
        Trial(number=2, setting=group, status=Status.OK, is_group=True),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Space, "deployment", lambda *_: Deployment())
        done = {each.number: each for each in bench.measure(trials, [])}
    bench.close()
    assert (done[1].pruned, done[1].n_blocks) == (True, 1)
    assert (done[2].pruned, done[2].n_blocks) == (True, 2)


def test_processes_that_live_one_at_a_time_are_compared_all_the_same(space: Space) -> None:
    launcher = Small(1)
    bench = Evaluator(space, launcher, EvaluatorPlan(free_memory_bytes=launcher.free))
    bench.begin([])
    assert bench.processes.are_alone
    assert bench.processes.n_startable(2) == 1
    fast = setting(inter_op=2, intra_op=8, batch_size=16)
    [done] = bench.measure([Trial(number=0, setting=fast, status=Status.OK)], [])
    bench.close()
    truth = math.log(surface(fast) / surface(space.reference))
    assert done.log_ratio == pytest.approx(truth, abs=0.03)
    assert done.se is not None
    assert done.se > 0.004
    n_starts = len(launcher.launched)
    assert n_starts >= 1 + 2 * done.n_blocks  # a process of each a block
    assert launcher.most == 1


@pytest.mark.parametrize("drift_s", [20.0, 120.0])
def test_one_at_a_time_the_default_is_as_fast_as_itself_while_the_machine_drifts(space: Space, drift_s: float) -> None:
    """Slices scatter by 10 %, processes by 5 %, and the machine by 20 % meanwhile: intervals hold 1 nearly always."""
    held = 0
    for seed in range(100):
        launcher = Small(1, noise=0.1, process_noise=0.05, drift=0.2, drift_period_s=drift_s, seed=seed)
        launcher.clock_s = 0.37 * seed * drift_s
        bench = Evaluator(space, launcher, EvaluatorPlan(free_memory_bytes=launcher.free))
        bench.begin([])
        launcher.rate = lambda _: 100.0
        default, alike = batch(space.reference, setting(inter_op=2, intra_op=8, batch_size=16))
        finished = list(bench.measure([default], []))
        assert bench.take_noise() is not None
        [done] = bench.measure([alike], finished)
        bench.close()
        assert done.estimate is not None
        low, high = done.estimate.interval()
        held += low <= 1 <= high
    assert held >= 89  # of 100 at 95 %, fewer with a probability of 0.4 %


# ---- limits --------------------------------------------------------------------------------------------------


def test_the_search_keeps_to_a_limit_on_the_step(space: Space) -> None:
    """With steps of at most 105 ms, the hill's top at batch 16 (160 ms) is out of reach."""
    limits = Limits(p99_s=0.105)
    plan = Plan(evaluation=EvaluatorPlan(limits=limits))
    record, _ = run(space, noisy(drift=0.02), plan=plan, limits=limits, budget=Budget(trials=20))
    trials = record.trials()
    best = incumbent(trials)
    assert best is not None
    assert best.setting.batch_size / surface(best.setting) < 0.105
    tried = [t for t in trials if not t.baselines]
    assert sum(t.over_limit for t in tried) < 0.5 * len(tried)
    document = describe_study(record)
    assert document.recommended.limits in ("kept", "not known")
    assert document.limits.p99_s == 0.105


def test_a_short_search_reserves_the_steps_of_a_limit(space: Space) -> None:
    """A step of 80 ms: twenty minutes have time for the 662 that p99 needs, and two and a half have not."""
    limits = Limits(p99_s=0.3)
    plan = Plan(evaluation=EvaluatorPlan(limits=limits))

    def held(time_s: float) -> StudyResult:
        record, _ = run(space, noisy(), plan=plan, limits=limits, budget=Budget(time_s=time_s))
        return describe_study(record)

    enough, few = held(1200.0), held(150.0)
    assert enough.recommended.limits is LimitStatus.MET
    assert enough.finals.tails["incumbent"].n_steps >= 662
    assert few.finals.tails["incumbent"].n_steps < 662


def test_where_nothing_keeps_to_the_limits_that_is_said(space: Space) -> None:
    limits = Limits(p99_s=1e-6)
    with pytest.raises(
        FindingError, match=r"of 6 trials, none has shown a p99 of at most 0.001 ms; the lowest was \d+(\.\d)? ms"
    ):
        run(
            space,
            noisy(),
            plan=Plan(evaluation=EvaluatorPlan(limits=limits)),
            limits=limits,
            budget=Budget(trials=6),
        )


def test_alike_are_those_that_the_search_cannot_tell_apart() -> None:
    def trial(number: int, mean: float, **more: object) -> Trial:
        s = setting(inter_op=1, intra_op=1 + number, batch_size=8)
        return Trial(number=number, setting=s, status=Status.OK, log_ratio=mean, se=0.005, df=10, **more)

    trials = [trial(0, 0.1), trial(1, 0.09), trial(2, 0.0), trial(3, 0.2, over_limit=True), trial(4, 0.095)]
    assert [t.number for t in tied(trials, process_sd=0.006)] == [0, 1, 4]
    assert tied([], process_sd=0.006) == []


def test_a_pinned_search_is_not_held_up_by_what_the_pin_rules_out(
    machine: Machine, stock: Build, resnet50: Workload
) -> None:
    """The baselines that use another value are far ahead, and no measure of what is left to gain."""
    file = read_space("cpu", machine)
    pinned = resolve(file, machine=machine, build=stock, workload=resnet50, pins={"intra_op": "1"})
    record, _ = run(pinned, noisy(), budget=Budget(trials=16))
    free = [t for t in record.trials() if t.eligible and not t.baselines]
    assert len(free) >= 6


def test_a_pinned_search_finds_time_for_a_setting_that_keeps_to_the_pin(
    machine: Machine, stock: Build, resnet50: Workload
) -> None:
    """The baselines, which the pin rules out, leave less time than finals need; but finals need such a setting."""
    file = read_space("cpu", machine)
    pinned = resolve(file, machine=machine, build=stock, workload=resnet50, pins={"intra_op": "1"})
    record, _ = run(pinned, noisy(), budget=Budget(time_s=70))
    assert any(t.eligible and t.estimate for t in record.trials())


def test_luck_that_two_share_is_no_reason_to_keep_one() -> None:
    own = estimate(0.05, 0.03, n=4, df=40)
    decided = [
        decide(own, estimate(-0.05, se, n=4, df=40), process_sd=0.015, max_passes=8, plan=RACE) for se in (0.012, 0.03)
    ]
    assert decided[0] is RaceDecision.CLEARLY_SLOWER
    assert decided[1] is not RaceDecision.CLEARLY_SLOWER


def test_the_raw_slices_behind_the_noise_are_kept(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path, trials=6)
    pairs = record.attributes().noise_pairs
    assert len(pairs) == 1
    again = estimate_noise(pairs, Objective.THROUGHPUT, batch_size=space.reference.batch_size)
    assert again.n_pairs == record.get("noise")["n_pairs"]
    # What blocks scatter by is from all processes together.
    assert 2 <= again.n_blocks <= record.get("noise")["n_quads"]


def test_a_default_that_memory_does_not_hold_even_alone_is_an_error_with_a_hint(space: Space) -> None:
    class Dying(Small):
        def launch(self, setting: Setting, deployment: object) -> object:
            process = super().launch(setting, deployment)
            if len(self.launched) == 1:
                return process

            def ready() -> ReadyReport:
                raise TrialFailure(Status.OOM, "killed")

            process.ready = ready
            return process

    launcher = Dying(1)
    bench = Evaluator(space, launcher, EvaluatorPlan(free_memory_bytes=launcher.free))
    with pytest.raises(TunerError, match="there may be too little memory for one process: free some memory"):
        bench.begin([])
    bench.close()
    assert launcher.live == 0


def test_a_batch_ends_when_a_proof_is_due(space: Space) -> None:
    """Two passes are enough to begin the finals of what is far ahead; without that, noise asks for more."""
    settings = [setting(inter_op=n, intra_op=8, batch_size=8) for n in (1, 2, 4)]

    def n_passes(is_due: Callable[[Trial, Estimate], bool]) -> list[int]:
        launcher = ScriptedLauncher(rate=lambda s: 20.0 * (1 + 2 * (s == settings[2])), noise=0.08, seed=5)
        bench = Evaluator(space, launcher, EvaluatorPlan(), is_proof_due=is_due)
        bench.begin([])
        done = list(bench.measure(batch(*settings), []))
        bench.close()
        return [trial.n_blocks for trial in sorted(done, key=lambda each: each.number)]

    asked: list[tuple[Setting, float]] = []

    def is_due(trial: Trial, log_ratio: Estimate) -> bool:
        asked.append((trial.setting, log_ratio.mean))
        return trial.setting == settings[2] and log_ratio.interval()[0] > 1.5

    assert max(n_passes(is_due)) == 2
    assert max(n_passes(lambda *_: False)) > 2
    assert dict(asked)[settings[2]] == pytest.approx(math.log(3), abs=0.3)
