"""Contests: when rounds end, what counts, and what two sides of a comparison may be called."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from tests.conftest import QUIET, setting
from tests.frameworks import CATALOGUE
from tests.schemas import validator
from tuner.errors import BadInputError, TunerError
from tuner.job import check
from tuner.job import side as sides
from tuner.job.check import Checkup
from tuner.job.compare import A, B, Comparison, check_ran, describe
from tuner.job.side import Side
from tuner.machine.host import Machine
from tuner.measure import finals
from tuner.measure.contest import Contest, Match, differ
from tuner.measure.finals import INCUMBENT, Contender, Round
from tuner.measure.interruption import FORKS_DIFFER, Interruption, Kind
from tuner.measure.objective import Objective
from tuner.measure.planning import Cost, FinalsPlan, fit_plan, needed_s
from tuner.measure.warning import Code
from tuner.report import evidence
from tuner.report.comparison import checked_text, comparison
from tuner.report.result.comparison import CheckResult, ComparisonResult, NothingToCheck
from tuner.report.terminal import speedup_text
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import MARGIN, UNMEASURED, Verdict, Word
from tuner.stats.estimate import Estimate
from tuner.stats.noise import UNKNOWN
from tuner.stats.pooling import Together
from tuner.trial.outcome import Slice, Status
from tuner.trial.scripted import ScriptedLauncher, ScriptedProcess

SLOW, FAST = setting(inter_op=2, intra_op=1, batch_size=8), setting(inter_op=2, intra_op=2, batch_size=8)


def contest(launcher: ScriptedLauncher, *, budget_s: float | None = None, **plan: object) -> Contest:
    """Return a contest of the incumbent FAST against the default SLOW."""
    contenders = [
        Contender(names=(INCUMBENT,), setting=FAST, deployment=Deployment()),
        Contender(names=("tf-default",), setting=SLOW, deployment=Deployment()),
    ]
    began_s = launcher.now()
    return Contest(
        contenders=contenders,
        launcher=launcher,
        plan=replace(FinalsPlan(), **plan),
        objective=Objective.THROUGHPUT,
        rng=np.random.default_rng(0),
        left_s=lambda: None if budget_s is None else budget_s - (launcher.now() - began_s),
    )


def test_a_clear_difference_ends_at_the_first_look() -> None:
    made = contest(ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01))
    made.hold()
    assert (made.ended, made.n_rounds) == ("decided", 3)
    assert made.verdicts()["tf-default"].word is Word.BETTER
    assert made.levels["tf-default"] > 0.99  # the first of forty looks


def test_without_a_difference_it_goes_on_until_that_is_known() -> None:
    made = contest(ScriptedLauncher(rate=lambda _: 20.0, noise=0.008, seed=1))
    made.hold()
    assert made.ended == "decided"
    assert made.verdicts()["tf-default"].word is Word.NO_DIFFERENCE
    assert 3 < made.n_rounds <= 20


def test_what_cannot_be_decided_ends_with_the_rounds_or_the_time() -> None:
    noisy = contest(ScriptedLauncher(rate=lambda s: 20.0 + 0.4 * int(s["intra_op"]), noise=0.15))
    noisy.hold()
    assert (noisy.ended, noisy.n_rounds) == ("rounds", 40)
    assert 0.95 < noisy.levels["tf-default"] < 0.98  # the looks before it have spent a little
    launcher = ScriptedLauncher(rate=lambda s: 20.0 + 0.4 * int(s["intra_op"]), noise=0.15)
    short = contest(launcher, budget_s=60.0)
    short.hold()
    assert short.ended == "time"
    assert launcher.now() <= 60.0
    assert short.n_rounds >= 2


def test_two_rounds_are_held_however_little_time_there_is() -> None:
    made = contest(ScriptedLauncher(rate=lambda _: 20.0, noise=0.05), budget_s=1.0)
    made.hold()
    assert (made.ended, made.n_rounds) == ("time", 2)
    assert made.levels["tf-default"] == pytest.approx(1 - 0.85 * 0.05)


def test_an_interrupted_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = iter([0.0, 0.0, 0.0, 50.0] + [50.0] * 99)
    monkeypatch.setattr(finals, "asleep_s", lambda: next(naps))
    made = contest(ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01))
    made.hold()
    assert [len(r.interruptions) for r in made.rounds] == [0, 1, 0, 0]
    assert made.n_rounds == 3
    names, y = finals.table(made.rounds, made.contenders, Objective.THROUGHPUT)
    assert y.shape == (3, 2)
    assert names == [INCUMBENT, "tf-default"]
    again = Round.from_dict(made.rounds[1].to_dict())
    assert (again.interruptions, again.slices.keys()) == (made.rounds[1].interruptions, made.rounds[1].slices.keys())


class Troubled(ScriptedLauncher):
    """A scripted machine on which single slices stall, processes die, or the tuner stands still."""

    def __init__(self, *, trouble: Callable[[int, float], float], **more: object) -> None:
        """`trouble` returns what a slice's duration becomes, by its number."""
        super().__init__(rate=lambda _: 20.0, **more)  # type: ignore[arg-type]
        self.trouble, self.asked = trouble, 0

    def launch(self, setting: Setting, deployment: object) -> ScriptedProcess:
        """Return a process whose slices may be troubled."""
        host, process = self, super().launch(setting, Deployment())
        plain = process.slice

        def slice_(duration_s: float) -> Slice:
            made = plain(duration_s)
            host.asked += 1
            longer = host.trouble(host.asked, made.elapsed_s)
            host.clock_s += longer - made.elapsed_s
            return replace(made, elapsed_s=longer)

        process.slice = slice_  # type: ignore[method-assign]
        return process


def test_a_slice_that_stalls_is_measured_again() -> None:
    launcher = Troubled(trouble=lambda number, usual_s: 9.0 if number == 7 else usual_s, noise=0.01)
    made = contest(launcher)
    made.hold()
    assert [len(r.repeated) for r in made.rounds] == [1] + [0] * (len(made.rounds) - 1)
    assert max(s.elapsed_s for r in made.rounds for each in r.slices.values() for s in each) < 2.0
    assert all(len(each) == 4 for r in made.rounds for each in r.slices.values())
    assert Code.STALLED in {w.code for w in evidence.of_rounds(made.rounds)}
    again = Round.from_dict(made.rounds[0].to_dict())
    assert again.repeated == made.rounds[0].repeated


def test_what_stalls_for_ever_is_slow() -> None:
    launcher = Troubled(trouble=lambda number, usual_s: 9.0 if number > 2 else usual_s)
    made = finals.run_round(
        contest(launcher).contenders, launcher, FinalsPlan(laps=1), np.random.default_rng(0)
    )  # two slices are the warm-ups'
    assert 0 < len(made.repeated) <= 2 * 4
    assert [s.elapsed_s for each in made.slices.values() for s in each] == [9.0] * 4


def test_a_round_in_which_the_tuner_stood_still_does_not_count() -> None:
    def trouble(number: int, usual_s: float) -> float:
        if number == 5:
            launcher.clock_s += 30.0  # when the slice has ended, and before the next one
        return usual_s

    launcher = Troubled(trouble=trouble, noise=0.01)
    made = contest(launcher)
    made.hold()
    assert [each.text for each in made.rounds[0].interruptions] == ["nothing ran for 30 s in the middle of a round"]
    assert made.n_rounds == len(made.rounds) - 1


def test_one_death_costs_a_round_and_not_the_contender() -> None:
    launcher = ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01)
    made = contest(launcher, max_rounds=3)
    failures = iter([{FAST: Status.CRASHED}, {}, {}, {}, {}, {}])
    plain, made_rounds = finals.run_round, []

    def run_round(*arguments: object, **more: object) -> Round:
        launcher.failures = next(failures)
        made_rounds.append(plain(*arguments, **more))  # type: ignore[arg-type]
        return made_rounds[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals, "run_round", run_round)
        made.hold()
    assert len(made.rounds) == 4
    assert made.standing().between("tf-default", INCUMBENT).n == 3
    assert made.verdicts()["tf-default"].word is Word.BETTER


def test_a_workload_that_creeps_is_labelled() -> None:
    def round_(*step_s: float) -> Round:
        slices = [Slice(start_s=i, elapsed_s=s, n_steps=1, step_s=(s,)) for i, s in enumerate(step_s)]
        return Round(slices={"a": slices})

    def found(*rounds: Round) -> str:
        return next((w.found for w in evidence.of_rounds(rounds) if w.code is Code.NOT_STEADY), "")

    slower, level = round_(0.5, 0.5, 0.6, 0.6), round_(0.5, 0.5, 0.5, 0.5)
    assert found(slower, slower, slower) == "every round ended slower than it began"
    assert found(slower, level, slower) == ""
    assert found(slower) == ""
    assert found(slower, slower) == "every round ended slower than it began"
    a_little = round_(0.5, 0.5, 0.53, 0.53)
    assert found(a_little, a_little, a_little) != ""
    assert found(a_little, a_little) == ""  # two may be the machine's weather


def test_where_one_does_not_run_there_is_no_verdict_and_no_waiting() -> None:
    made = contest(ScriptedLauncher(rate=lambda _: 20.0, failures={FAST: Status.CRASHED}))
    made.hold()
    assert (made.ended, made.n_rounds) == ("failed", 2)
    assert made.verdicts()["tf-default"].word is Word.UNDECIDED


def test_laps_are_those_of_the_narrowest_interval_in_the_time_there_is() -> None:
    plan, cheap, slow = FinalsPlan(), Cost(start_s=4.0, step_s=0.3), Cost(start_s=10.0, step_s=2.6)
    lucky = replace(UNKNOWN, process_sd=0.0006)
    few, many = (fit_plan(plan, noise, [cheap] * 2, left_s=900.0, resident=None).laps for noise in (UNKNOWN, lucky))
    assert 2 <= few < many
    assert fit_plan(plan, lucky, [slow] * 2, left_s=60.0, resident=None).laps == 1
    assert fit_plan(plan, replace(UNKNOWN, process_sd=0.1), [cheap] * 2, left_s=None, resident=3).resident == 3
    assert fit_plan(plan, UNKNOWN, [cheap], left_s=None, resident=0).resident == 1


def test_noise_takes_more_time_to_find_a_gain_in() -> None:
    costs = [Cost(start_s=1.5, step_s=0.3)] * 2
    quiet, noisy = (
        needed_s(FinalsPlan(), replace(UNKNOWN, quad_sd=sd), costs, gain=0.03) for sd in (0.005, UNKNOWN.quad_sd)
    )
    assert quiet <= 4 * FinalsPlan().round_s(costs)
    assert noisy > 1.3 * quiet


# ---- stages ----------------------------------------------------------------------------------------------------

THIRD, FOURTH = (setting(inter_op=n, intra_op=2, batch_size=8) for n in (3, 4))


def of_four(
    rate: Callable[[Setting], float], *, budget_s: float | None = None, replicas: int = 0, **more: object
) -> tuple[Contest, ScriptedLauncher]:
    """Return a contest of the incumbent FAST against the default SLOW and two rivals, THIRD and FOURTH."""
    launcher = ScriptedLauncher(rate=rate, **more)  # type: ignore[arg-type]
    settings = {INCUMBENT: FAST, "tf-default": SLOW, "intel": THIRD, "tf-guide": FOURTH}
    began_s = launcher.now()
    made = Contest(
        contenders=[Contender(names=(name,), setting=each, deployment=Deployment()) for name, each in settings.items()],
        launcher=launcher,
        replicas=[launcher] * replicas,
        plan=FinalsPlan(),
        objective=Objective.THROUGHPUT,
        rng=np.random.default_rng(0),
        left_s=lambda: None if budget_s is None else budget_s - (launcher.now() - began_s),
    )
    return made, launcher


def test_the_default_comes_first_and_rivals_follow_when_that_is_decided() -> None:
    rates = {FAST: 40.0, SLOW: 20.0, THIRD: 30.0, FOURTH: 40.0}
    made, _ = of_four(rates.__getitem__, noise=0.008)
    made.hold()
    assert made.ended == "decided"
    ran = [sorted(round_.slices) for round_ in made.rounds]
    first = ran.index(sorted([INCUMBENT, "intel", "tf-guide"]))
    assert ran[:first] == [sorted([INCUMBENT, "tf-default"])] * first
    assert ran[-1] == sorted([INCUMBENT, "tf-guide"])  # of those that are decided nothing runs any more
    words = {name: verdict.word for name, verdict in made.verdicts().items()}
    assert words == {"tf-default": Word.BETTER, "intel": Word.BETTER, "tf-guide": Word.NO_DIFFERENCE}


def test_half_of_the_time_is_the_primary_comparisons_alone() -> None:
    made, launcher = of_four(lambda s: 20.0 + 0.4 * (s == FAST), budget_s=600.0, noise=0.1)
    made.hold()
    beside = [len(round_.slices) for round_ in made.rounds]
    alone = beside.index(4)
    assert beside[:alone] == [2] * alone
    at_s = min(s.start_s for s in made.rounds[alone].slices[INCUMBENT])
    assert 300.0 <= at_s <= 340.0
    assert made.ended == "time"
    assert launcher.now() <= 600.0


def test_rivals_for_which_there_is_no_time_are_not_begun() -> None:
    made, _ = of_four(lambda s: 20.0 + 0.4 * (s == FAST), budget_s=120.0, noise=0.1)
    made.hold()
    assert {len(round_.slices) for round_ in made.rounds} == {2}
    assert made.verdicts()["intel"] == UNMEASURED
    assert set(made.levels) == {"tf-default"}


def test_what_the_primary_claim_does_not_spend_is_passed_on() -> None:
    equal, _ = of_four(lambda _: 20.0, noise=0.004)
    equal.hold()
    better, _ = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.004)
    better.hold()
    assert equal.verdicts()["tf-default"].word is Word.NO_DIFFERENCE
    assert better.verdicts()["tf-default"].word is Word.BETTER
    assert equal.alpha(equal.matches["intel"]) == pytest.approx(0.1 * 0.05 / 2)
    assert better.alpha(better.matches["intel"]) == pytest.approx(0.05 / 2)
    assert equal.alpha(equal.matches["tf-default"]) == pytest.approx(0.9 * 0.05)


def test_the_first_round_is_of_fresh_processes_and_the_others_of_replicas_in_turn() -> None:
    made, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01)
    twins = [ScriptedLauncher(rate=launcher.rate, noise=0.01, seed=1 + i) for i in range(2)]
    made.replicas = twins  # type: ignore[assignment]
    made.hold()
    assert [round_.fresh for round_ in made.rounds[:4]] == [True, False, False, False]
    assert all(twin.launched for twin in twins)
    assert Round.from_dict(made.rounds[1].to_dict()).fresh is False


def test_forked_processes_that_are_not_like_fresh_ones_do_not_count() -> None:
    said: list[str] = []
    made, launcher = of_four(lambda _: 20.0, noise=0.004)
    made.replicas = [ScriptedLauncher(rate=lambda s: 20.0 + 4.0 * (s == FAST), noise=0.004, seed=1)]  # type: ignore[list-item]
    made.say = said.append
    made.hold()
    assert FORKS_DIFFER.text in said[0]
    assert [FORKS_DIFFER in r.interruptions for r in made.rounds] == [not r.fresh for r in made.rounds]
    assert sum(r.fresh for r in made.rounds) >= 3
    assert made.verdicts()["tf-default"].word is Word.NO_DIFFERENCE
    assert launcher.live == 0


def test_forks_serve_once_a_fresh_round_counts() -> None:
    """Without one there is nothing that they could be checked against."""
    failing = {SLOW: Status.CRASHED}
    made, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01, failures=failing)
    made.replicas = [ScriptedLauncher(rate=launcher.rate, noise=0.01, seed=1)]  # type: ignore[list-item]
    made.begin([made.contenders[1]])
    made.hold_round(made.line_up())
    failing.clear()  # it was an accident
    made.hold_round(made.line_up())
    made.hold_round(made.line_up())
    assert [round_.fresh for round_ in made.rounds] == [True, True, False]


def test_finals_do_not_end_while_forks_are_under_suspicion() -> None:
    """The time is used up with five rounds; the sixth asks fresh processes once more."""
    made, _ = of_four(lambda _: 20.0, noise=0.004)
    forks = ScriptedLauncher(rate=lambda s: 20.0 + 4.0 * (s == FAST), noise=0.004, seed=1)
    made.replicas = [forks]  # type: ignore[list-item]
    made.left_s = lambda: 1e3 if len(made.rounds) < 5 else 0.0
    made.hold()
    assert [round_.fresh for round_ in made.rounds] == [True, False, False, False, False, True]
    assert made.verdicts()["tf-default"].word is not Word.BETTER
    assert made.ended == "time"


def test_error_that_is_spent_is_not_spent_again() -> None:
    match = Match(rival="tf-default", planned=6)
    open_one = Estimate(mean=0.01, se=0.02, n=5, df=4)
    match.look(open_one, first=3, alpha=0.05, margin=0.02, last=False)
    assert match.is_open
    match.look(replace(open_one, n=6, df=5), first=3, alpha=0.05, margin=0.02, last=False)
    assert match.spent
    assert not match.is_open
    assert match.verdict.word is Word.UNDECIDED
    match.forget()
    assert match.is_open


def test_equal_processes_are_seldom_said_to_differ() -> None:
    rng, n = np.random.default_rng(0), 4000
    wrong = sum(differ(rng.normal(0, 1, 1), rng.normal(0, 1, 8)) for _ in range(n)) / n
    assert wrong == pytest.approx(0.01, abs=3 * (0.01 * 0.99 / n) ** 0.5)
    assert differ(np.array([1.0]), rng.normal(0, 0.01, 8))
    assert not differ(np.array([1.0]), rng.normal(0, 0.01, 3))


def test_a_fork_server_that_dies_between_rounds_leaves_the_finals_to_fresh_processes() -> None:
    said: list[str] = []

    class Dying(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: object) -> ScriptedProcess:
            if len(self.launched) >= 4:
                raise TunerError("the fork server died twice", "run with --launcher fresh")
            return super().launch(setting, Deployment())

    made, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01)
    made.replicas = [Dying(rate=launcher.rate, noise=0.01)]
    made.say = said.append
    made.hold()
    assert said == ["the finals go on with fresh processes: the fork server died twice"]
    assert [r.fresh for r in made.rounds[:4]] == [True, False, False, True]
    assert made.verdicts()["tf-default"].word is Word.BETTER


def test_a_rival_that_does_not_run_costs_only_itself() -> None:
    made, _ = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01, failures={THIRD: Status.CRASHED})
    made.hold()
    words = {name: verdict.word for name, verdict in made.verdicts().items()}
    assert words == {"tf-default": Word.BETTER, "intel": Word.UNDECIDED, "tf-guide": Word.BETTER}
    assert made.ended == "decided"


def test_a_round_takes_about_as_long_as_is_said() -> None:
    launcher = ScriptedLauncher(rate=lambda _: 25.0, start_s=4.0)
    plan = FinalsPlan(laps=3, parallel=1)
    one = Contender(names=("a",), setting=FAST, deployment=Deployment())
    other = Contender(names=("b",), setting=SLOW, deployment=Deployment())
    finals.run_round([one, other], launcher, plan, np.random.default_rng(0))
    said = plan.round_s([Cost(start_s=4.5, step_s=8 / 25)] * 2)
    assert launcher.now() == pytest.approx(said, rel=0.1)


# ---- comparisons ---------------------------------------------------------------------------------------------


class Resolved:
    """As much of a job as naming a side needs."""

    def __init__(self, space: Space, machine: Machine) -> None:
        self.space, self.machine, self.framework, self.build = space, machine, self, None

    def check(self, build: object, settings: list[Setting]) -> None:
        """Refuse nothing."""


def named(text: str, space: Space, machine: Machine, tmp_path: Path) -> Side:
    return sides.side(text, Resolved(space, machine), f"sqlite:///{tmp_path}/none.db")  # type: ignore[arg-type]


def test_a_side_is_a_baseline_or_some_values(space: Space, machine: Machine, tmp_path: Path) -> None:
    assert named("intel", space, machine, tmp_path).setting == space.baselines["intel"]
    made = named("inter_op=1,batch_size=4", space, machine, tmp_path)
    assert made.setting == space.reference.with_values(inter_op=1, batch_size=4)
    assert made.deployment.env["TF_NUM_INTEROP_THREADS"] == "1"
    default = named("tf-default", space, machine, tmp_path)
    assert not default.deployment.env  # as users run it: nothing is set


def test_affinities_hold_commas_and_equals_signs() -> None:
    text = "inter_op=1,kmp_affinity=granularity=fine,compact,1,0,kmp_blocktime=1,cpus=0-1,3,batch_size=8"
    assert sides.assignments(text, CATALOGUE) == [
        "inter_op=1",
        "kmp_affinity=granularity=fine,compact,1,0",
        "kmp_blocktime=1",
        "cpus=0-1,3",
        "batch_size=8",
    ]
    for wrong in ("inter_op=1,2", "inter_op", "inter_op=1,,"):
        with pytest.raises(BadInputError, match=r"is no knob=value"):
            sides.assignments(wrong, CATALOGUE)


@pytest.mark.parametrize("text", ["nothing", "intle", "resnet50-x", "inter_op=1,inter_op=2"])
def test_what_names_no_side(text: str, space: Space, machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        named(text, space, machine, tmp_path)


def compared(rate: Callable[[Setting], float], **more: object) -> Comparison:
    """Return a comparison that was made on a scripted machine."""
    launcher = ScriptedLauncher(rate=rate, **more)
    contenders = [
        Contender(names=(B,), setting=FAST, deployment=Deployment()),
        Contender(names=(A,), setting=SLOW, deployment=Deployment()),
    ]
    made = Contest(
        contenders=contenders,
        launcher=launcher,
        plan=FinalsPlan(),
        objective=Objective.THROUGHPUT,
        rng=np.random.default_rng(0),
        left_s=lambda: None,
    )
    made.hold()
    return Comparison(
        a=Side(asked="tf-default", setting=SLOW, deployment=Deployment()),
        b=Side(asked="intra_op=2", setting=FAST, deployment=Deployment()),
        objective=Objective.THROUGHPUT,
        rounds=made.rounds,
        n_rounds=made.n_rounds,
        margin=MARGIN,
        level=made.levels.get(A),
        verdict=made.verdicts()[A],
        ended=made.ended,
        seen=QUIET,
        failures={name: text for r in made.rounds for name, text in r.failures.items()},
    )


def text_of(result: ComparisonResult) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(comparison(result))
    return captured.get()


def test_the_document_of_a_comparison_keeps_the_contract() -> None:
    document = describe(compared(lambda s: 20.0 * int(s["intra_op"]), noise=0.01))
    assert document.a == SLOW.to_dict()
    assert document.b == FAST.to_dict()
    assert document.word == "better"
    assert document.low < document.speedup < document.high
    assert document.speedup == pytest.approx(2.0, rel=0.02)
    assert document.reason is None
    assert document.sides["b"].rate == pytest.approx(40.0, rel=0.02)
    validator("compare").validate(json.loads(msgspec.json.encode(document)))
    assert "better" in text_of(document)


def test_an_undecided_comparison_gives_its_reason_and_no_figure_of_its_own() -> None:
    document = describe(compared(lambda s: 20.0 + 0.4 * int(s["intra_op"]), noise=0.3))
    assert document.word == "undecided"
    assert document.reason == "40 rounds leave open whether the difference matters: give a longer --time-budget"
    text = text_of(document)
    assert "between" in text
    assert "undecided" in text


def test_a_machine_too_restless_for_any_number() -> None:
    document = describe(compared(lambda _: 20.0, process_noise=1.0))
    assert (document.word, document.speedup, document.low, document.high) == (
        "undecided",
        None,
        None,
        None,
    )
    assert "differ too much among themselves" in document.reason
    assert "—" in text_of(document)


def test_a_side_that_does_not_run_is_named() -> None:
    document = describe(compared(lambda _: 20.0, failures={FAST: Status.OOM}))
    assert document.word == "undecided"
    assert document.failures == {"b": "oom: scripted oom"}
    assert document.reason == "b did not run"
    assert "b oom: scripted oom" in text_of(document)


def test_where_neither_side_runs_the_tool_fails() -> None:
    made = contest(ScriptedLauncher(rate=lambda _: 20.0, failures={FAST: Status.OOM, SLOW: Status.FAILED}))
    made.hold()
    assert made.ended == "failed"
    with pytest.raises(TunerError, match="both failed: scripted failed; oom: scripted oom"):
        check_ran(made.rounds)


def test_two_rounds_are_said_to_be_too_few() -> None:
    document = describe(replace(compared(lambda _: 20.0, noise=0.05), n_rounds=2, verdict=UNMEASURED))
    assert document.reason == "2 rounds are too few: give a longer --time-budget"


def test_the_document_of_a_check_has_the_comparison_in_it() -> None:
    comparison = compared(lambda s: 20.0 * int(s["intra_op"]), noise=0.01)
    whole = Together(verdict=comparison.verdict, n=1)
    result = check.describe(Checkup(study="made", comparison=comparison, whole=whole))
    assert isinstance(result, CheckResult)
    assert (result.study, result.helps, result.limits, result.word) == ("made", True, None, Word.BETTER)
    assert checked_text(result).startswith("all sessions together: better  2.0")
    nothing = check.describe(Checkup(study="made", comparison=None))
    assert isinstance(nothing, NothingToCheck)
    for document in (result, nothing):
        validator("check").validate(json.loads(msgspec.json.encode(document)))


def test_an_undecided_figure_is_an_interval() -> None:
    open_ = Verdict(speedup=1.02, low=0.98, high=1.06, word=Word.UNDECIDED)
    assert speedup_text(open_) == "between 0.98 and 1.06"
    sure = Verdict(speedup=1.05, low=1.03, high=1.07, word=Word.BETTER)
    assert speedup_text(sure) == "1.05 [1.03, 1.07]"


def test_steps_are_in_the_tails_only_from_rounds_that_count() -> None:
    def round_(step_s: float, *interruptions: Interruption) -> Round:
        made = Slice(start_s=0.0, elapsed_s=70 * step_s, n_steps=70, step_s=(step_s,) * 70)
        return Round(slices={"a": [made]}, memory={"a": 1000}, interruptions=list(interruptions))

    found = evidence.tail([round_(0.01), round_(5.0, Interruption(Kind.ASLEEP, "slept"))], "a")
    assert found.p90 == pytest.approx(10.0)
    assert (found.p99, found.n_steps, found.peak_memory_bytes) == (None, 70, 1000)
