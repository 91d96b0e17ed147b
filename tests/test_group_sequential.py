"""Contests: when rounds end, what counts, and what two sides of a comparison may be called."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import convert
from rich.console import Console

from tests.conftest import QUIET, setting
from tests.frameworks import CATALOGUE
from tests.schemas import validator
from tests.scripted_launcher import ScriptedLauncher, ScriptedProcess
from tuner.errors import BadInputError, TunerError
from tuner.job import compare
from tuner.job.compare import A, B, ComparedSetting, Comparison, check_ran, describe
from tuner.machine.host import Machine
from tuner.measure import passes, rounds
from tuner.measure.budget import Countdown
from tuner.measure.group_sequential import PairwiseTest, SequentialTest, differ_significantly, hold_rounds
from tuner.measure.interruption import FORKS_DIFFER, Interruption, Kind
from tuner.measure.objective import Objective
from tuner.measure.planning import Cost, FinalsPlan, choose_passes, required_time_s, tail_time_s
from tuner.measure.rates import log_rates
from tuner.measure.recommendation import FinalsEstimates
from tuner.measure.rounds import GROUP, INCUMBENT, ONE_PROCESS, Contender, Round, Rounds
from tuner.measure.warning import Code
from tuner.plain import to_plain
from tuner.report.card import check_card
from tuner.report.verdicts import comparison, speedup_text
from tuner.result import evidence
from tuner.result.comparison import CheckResult, ComparisonResult, LatencyRatio, NothingToCheck
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import UNMEASURED, Verdict, VerdictCode
from tuner.stats.estimate import Estimate, estimate
from tuner.stats.noise import PRIOR_NOISE, Noise, log_ratio_of_rounds
from tuner.stats.pooling import PooledVerdict
from tuner.stats.tail import LimitStatus
from tuner.study.attributes import StoredFinals
from tuner.trial.outcome import Slice, Status

SLOW, FAST = setting(inter_op=2, intra_op=1, batch_size=8), setting(inter_op=2, intra_op=2, batch_size=8)


NOISE = Noise(block_sd=0.03, process_sd=0.01, drift=0.0, n_pairs=1, n_blocks=4)


def rounds_of(launcher: ScriptedLauncher, *, budget_s: float | None = None, **plan: object) -> Rounds:
    """Return what holds rounds with the processes of a launcher."""
    return Rounds(
        launcher=launcher,
        plan=replace(FinalsPlan(), **plan),
        rng=np.random.default_rng(0),
        time=Countdown(total_s=budget_s, now=launcher.now, began_s=launcher.now()),
    )


def sequential(
    launcher: ScriptedLauncher, *, budget_s: float | None = None, noise: Noise = NOISE, **plan: object
) -> SequentialTest:
    """Return a sequential test of the incumbent FAST against the default SLOW."""
    contenders = [
        Contender(names=(INCUMBENT,), setting=FAST, deployment=Deployment()),
        Contender(names=("tf-default",), setting=SLOW, deployment=Deployment()),
    ]
    common = rounds_of(launcher, budget_s=budget_s, **plan)
    return SequentialTest(contenders=contenders, common=common, objective=Objective.THROUGHPUT, noise=noise)


def test_a_clear_difference_ends_at_the_first_look() -> None:
    finals_test = sequential(ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01))
    finals_test.run()
    assert (finals_test.end_reason, finals_test.n_rounds) == ("decided", 2)
    assert finals_test.verdicts()["tf-default"].code is VerdictCode.BETTER
    assert finals_test.levels["tf-default"] > 0.99  # the first of forty looks


def test_without_a_difference_it_goes_on_until_that_is_known() -> None:
    finals_test = sequential(ScriptedLauncher(rate=lambda _: 20.0, noise=0.008, seed=1))
    finals_test.run()
    assert finals_test.end_reason == "decided"
    assert finals_test.verdicts()["tf-default"].code is VerdictCode.NO_DIFFERENCE
    assert 3 < finals_test.n_rounds <= 20


def test_what_cannot_be_decided_ends_with_the_rounds_or_the_time() -> None:
    noisy = sequential(ScriptedLauncher(rate=lambda s: 20.0 + 0.4 * int(s["intra_op"]), noise=0.15))
    noisy.run()
    assert (noisy.end_reason, noisy.n_rounds) == ("rounds", 40)
    assert 0.95 < noisy.levels["tf-default"] < 0.98  # the looks before it have spent a little
    launcher = ScriptedLauncher(rate=lambda s: 20.0 + 0.4 * int(s["intra_op"]), noise=0.15)
    short = sequential(launcher, budget_s=60.0)
    short.run()
    assert short.end_reason == "time"
    assert launcher.now() <= 60.0
    assert short.n_rounds >= 2


def test_two_rounds_are_held_however_little_time_there_is() -> None:
    finals_test = sequential(ScriptedLauncher(rate=lambda _: 20.0, noise=0.05), budget_s=1.0)
    finals_test.run()
    assert (finals_test.end_reason, finals_test.n_rounds) == ("time", 2)
    assert finals_test.levels["tf-default"] == pytest.approx(1 - 0.85 * 0.05)


def mobilenet(**noise: float) -> ScriptedLauncher:
    """Return a machine on which the incumbent is 2.66 times as fast as the default."""
    return ScriptedLauncher(rate=lambda s: 126.8 if s == FAST else 47.7, **noise)


@pytest.mark.parametrize("budget_s", [1.0, 60.0])
def test_two_rounds_of_a_large_difference_are_enough_where_the_noise_is_known(budget_s: float) -> None:
    finals_test = sequential(mobilenet(noise=0.03, process_noise=0.01), budget_s=budget_s)
    finals_test.run()
    assert (finals_test.end_reason, finals_test.n_rounds) == ("decided", 2)
    verdict = finals_test.verdicts()["tf-default"]
    assert verdict.code is VerdictCode.BETTER
    assert verdict.low > 1.5
    warnings = evidence.round_warnings(finals_test.rounds, decided=True)
    assert Code.FEW_ROUNDS not in {each.code for each in warnings}
    unknown = sequential(mobilenet(noise=0.03, process_noise=0.01), budget_s=1.0, noise=PRIOR_NOISE, passes=1)
    unknown.run()
    assert (unknown.n_rounds, unknown.verdicts()["tf-default"].code) == (2, VerdictCode.UNDECIDED)


@pytest.mark.parametrize("gain", [0.0, 0.03])
def test_two_rounds_of_equal_settings_that_agree_by_chance_decide_nothing(gain: float) -> None:
    finals_test = sequential(ScriptedLauncher(rate=lambda s: 20.0 * (1 + gain * (s == FAST))), budget_s=1.0)
    finals_test.run()
    assert finals_test.n_rounds == 2
    verdict = finals_test.verdicts()["tf-default"]
    assert verdict.code is VerdictCode.UNDECIDED
    assert verdict.low < 1 < verdict.high


def test_stored_finals_are_read_with_the_noise_that_they_had_and_earlier_ones_as_they_were() -> None:
    finals_test = sequential(ScriptedLauncher(rate=lambda _: 20.0, noise=0.03), max_rounds=4)
    finals_test.run()
    stored = {
        "contenders": to_plain(finals_test.contenders),
        "rounds": to_plain(finals_test.rounds),
        "levels": finals_test.levels,
        "ended": finals_test.end_reason,
    }

    def estimates(**more: object) -> FinalsEstimates:
        return StoredFinals.from_dict(stored | more).estimates(Objective.THROUGHPUT)

    again, before = estimates(noise=asdict(NOISE)), finals_test.estimates()
    log_ratio = again.log_ratio("tf-default", INCUMBENT)
    assert asdict(log_ratio) == pytest.approx(asdict(before.log_ratio("tf-default", INCUMBENT)), rel=1e-4)
    assert 3 < log_ratio.df < 4 + 4 + 3
    assert again.verdict("tf-default", INCUMBENT).code is finals_test.verdicts()["tf-default"].code
    x = estimates().y[:, 0] - estimates().y[:, 1]
    assert estimates().log_ratio("tf-default", INCUMBENT) == estimate(x)


def test_tests_have_rounds_in_common_and_each_contender_runs_once() -> None:
    """Several processes and one against the default: three run, and of what is decided nothing runs any more."""
    group, rates = THIRD, {FAST: 21.0, SLOW: 20.0, THIRD: 30.0}
    launcher = ScriptedLauncher(rate=rates.__getitem__, noise=0.005)
    common = rounds_of(launcher)
    one = replace_common(sequential(launcher), common)
    several = SequentialTest(
        contenders=[
            Contender(names=(GROUP,), setting=group, deployment=Deployment()),
            Contender(names=("tf-default",), setting=SLOW, deployment=Deployment()),
            Contender(names=(ONE_PROCESS,), setting=FAST, deployment=Deployment()),
        ],
        common=common,
        objective=Objective.THROUGHPUT,
        noise=NOISE,
    )
    hold_rounds([several, one], common)
    assert several.verdicts()["tf-default"].code is VerdictCode.BETTER
    assert several.verdicts()[ONE_PROCESS].code is VerdictCode.BETTER  # which ran anyway
    assert one.verdicts()["tf-default"].code is VerdictCode.BETTER
    assert sorted(several.rounds[0].slices) == sorted([GROUP, "tf-default", ONE_PROCESS])
    assert sorted(one.rounds[0].slices) == sorted([INCUMBENT, "tf-default"])
    assert one.rounds[0].slices[INCUMBENT] == several.rounds[0].slices[ONE_PROCESS]
    assert len(launcher.launched) == sum(len(held.slices) for held in common.held)
    assert len(common.held[0].slices) == 3
    assert len(common.held) == max(len(several.rounds), len(one.rounds))


def test_equal_settings_both_run() -> None:
    """A against A: each has a process of its own, and the test ends."""
    launcher = ScriptedLauncher(rate=lambda _: 20.0, noise=0.02)
    common = rounds_of(launcher, budget_s=120.0)
    same = [Contender(names=(name,), setting=SLOW, deployment=Deployment()) for name in ("b", "a")]
    finals_test = SequentialTest(contenders=same, common=common, objective=Objective.THROUGHPUT)
    finals_test.run()
    assert finals_test.end_reason
    assert sorted(finals_test.rounds[0].slices) == ["a", "b"]
    assert finals_test.rounds[0].slices["a"] != finals_test.rounds[0].slices["b"]
    assert launcher.now() <= 120.0


def test_what_is_decided_waits_for_what_is_not_and_ends_with_the_time() -> None:
    rates = {FAST: 20.0, SLOW: 20.0, THIRD: 30.0}
    launcher = ScriptedLauncher(rate=rates.__getitem__, noise=0.1)
    common = rounds_of(launcher, budget_s=300.0)
    open_one = replace_common(sequential(launcher), common)
    decided = SequentialTest(
        contenders=[
            Contender(names=(GROUP,), setting=THIRD, deployment=Deployment()),
            Contender(names=("tf-default",), setting=SLOW, deployment=Deployment()),
        ],
        common=common,
        objective=Objective.THROUGHPUT,
        noise=NOISE,
    )
    for test in (open_one, decided):
        test.half_width = 0.001  # never
    hold_rounds([decided, open_one], common)
    assert decided.verdicts()["tf-default"].code is VerdictCode.BETTER
    n_together = [len(held.slices) for held in common.held]
    assert n_together[-1] == 3  # in the second half of the time it is made narrower
    assert 2 in n_together[:-1]  # after its verdict it waits
    assert launcher.now() <= 300.0
    assert all(test.end_reason for test in (open_one, decided))


def replace_common(test: SequentialTest, common: Rounds) -> SequentialTest:
    test.common = common
    return test


def test_rounds_go_on_until_the_interval_is_as_narrow_as_it_is_wanted() -> None:
    def held(half_width: float | None, budget_s: float) -> SequentialTest:
        launcher = ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.08, seed=4)
        finals_test = sequential(launcher, budget_s=budget_s)
        finals_test.half_width = half_width
        finals_test.run()
        return finals_test

    verdict, narrow, short = held(None, 900.0), held(0.03, 900.0), held(0.03, 60.0)
    assert verdict.n_rounds < narrow.n_rounds
    assert [each.end_reason for each in (verdict, narrow, short)] == ["decided"] * 3
    widths = [np.log(v.high / v.low) / 2 for v in (each.verdicts()["tf-default"] for each in (narrow, short))]
    assert widths[0] <= 0.03 < widths[1]


def test_a_test_that_follows_another_has_what_that_left_of_the_error() -> None:
    first = sequential(ScriptedLauncher(rate=lambda _: 20.0, noise=0.3), max_rounds=8)
    first.run(n_rounds=4)
    assert first.spent == pytest.approx(0.05 * (4 / 8) ** 2)
    first.run()
    assert first.spent == pytest.approx(0.05)


def test_a_pass_that_stalls_says_less_and_rounds_that_agree_by_chance_are_not_believed() -> None:
    rng = np.random.default_rng(2)
    rounds = [0.1 + rng.normal(0, 0.01, 4) for _ in range(4)]
    plain = log_ratio_of_rounds(rounds, NOISE)
    stalled = log_ratio_of_rounds([np.append(rounds[0][:3], 0.7), *rounds[1:]], NOISE)
    assert stalled.mean == pytest.approx(plain.mean, abs=0.005)
    assert stalled.se < 2 * plain.se
    assert 3 + 1 < plain.df < 3 + 4 + 12
    same = log_ratio_of_rounds([each - each.mean() for each in rounds], NOISE)
    assert same.se > 0.5 * plain.se
    assert np.isinf(log_ratio_of_rounds(rounds[:1], NOISE).se)
    one_pass = [each[:1] for each in rounds]
    assert log_ratio_of_rounds(one_pass, PRIOR_NOISE) == estimate([float(each[0]) for each in one_pass])
    assert log_ratio_of_rounds(one_pass, NOISE).df == 1 + 3


def test_an_interrupted_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = iter([0.0] * 5 + [50.0] * 99)  # two readings a pass, two passes a round
    monkeypatch.setattr(passes, "suspended_s", lambda: next(naps))
    finals_test = sequential(ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01))
    finals_test.run()
    assert [len(r.interruptions) for r in finals_test.rounds] == [0, 1, 0]
    assert finals_test.n_rounds == 2
    names, y = log_rates(finals_test.rounds, finals_test.contenders, Objective.THROUGHPUT)
    assert y.shape == (2, 2)
    assert names == [INCUMBENT, "tf-default"]
    again = convert(to_plain(finals_test.rounds[1]), Round)
    assert (again.interruptions, again.slices.keys()) == (
        finals_test.rounds[1].interruptions,
        finals_test.rounds[1].slices.keys(),
    )


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
            finals_test = plain(duration_s)
            host.asked += 1
            longer = host.trouble(host.asked, finals_test.elapsed_s)
            host.clock_s += longer - finals_test.elapsed_s
            return replace(finals_test, elapsed_s=longer)

        process.slice = slice_  # type: ignore[method-assign]
        return process


def test_a_slice_that_stalls_is_measured_again() -> None:
    launcher = Troubled(trouble=lambda number, usual_s: 9.0 if number == 7 else usual_s, noise=0.01)
    finals_test = sequential(launcher)
    finals_test.run()
    assert [len(r.repeated) for r in finals_test.rounds] == [1] + [0] * (len(finals_test.rounds) - 1)
    assert max(s.elapsed_s for r in finals_test.rounds for each in r.slices.values() for s in each) < 2.0
    assert all(len(each) == 4 for r in finals_test.rounds for each in r.slices.values())
    assert Code.STALLED in {w.code for w in evidence.round_warnings(finals_test.rounds)}
    again = convert(to_plain(finals_test.rounds[0]), Round)
    assert again.repeated == finals_test.rounds[0].repeated


def test_what_stalls_for_ever_is_slow() -> None:
    launcher = Troubled(trouble=lambda number, usual_s: 9.0 if number > 2 else usual_s)
    finals_test = rounds.run_round(
        sequential(launcher).contenders, launcher, FinalsPlan(passes=1), np.random.default_rng(0)
    )  # two slices are the warm-ups'
    assert 0 < len(finals_test.repeated) <= 2 * 4
    assert [s.elapsed_s for each in finals_test.slices.values() for s in each] == [9.0] * 4


def test_a_round_in_which_the_tuner_stood_still_does_not_count() -> None:
    def trouble(number: int, usual_s: float) -> float:
        if number == 5:
            launcher.clock_s += 30.0  # when the slice has ended, and before the next one
        return usual_s

    launcher = Troubled(trouble=trouble, noise=0.01)
    finals_test = sequential(launcher)
    finals_test.run()
    assert [each.text for each in finals_test.rounds[0].interruptions] == ["nothing ran for 30 s during a pass"]
    assert finals_test.n_rounds == len(finals_test.rounds) - 1


def test_one_death_costs_a_round_and_not_the_contender() -> None:
    launcher = ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01)
    finals_test = sequential(launcher, max_rounds=3)
    failures = iter([{FAST: Status.CRASHED}, {}, {}, {}, {}, {}])
    plain, made_rounds = rounds.run_round, []

    def run_round(*arguments: object, **more: object) -> Round:
        launcher.failures = next(failures)
        made_rounds.append(plain(*arguments, **more))  # type: ignore[arg-type]
        return made_rounds[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "run_round", run_round)
        finals_test.run()
    assert len(finals_test.rounds) == 3
    assert finals_test.estimates().log_ratio("tf-default", INCUMBENT).n == 2
    assert finals_test.verdicts()["tf-default"].code is VerdictCode.BETTER


def test_a_workload_that_creeps_is_labelled() -> None:
    def round_(*step_s: float) -> Round:
        slices = [Slice(start_s=i, elapsed_s=s, n_steps=1, step_s=(s,)) for i, s in enumerate(step_s)]
        return Round(slices={"a": slices})

    def found(*rounds: Round) -> str:
        return next((w.observation for w in evidence.round_warnings(rounds) if w.code is Code.NOT_STEADY), "")

    slower, level = round_(0.5, 0.5, 0.6, 0.6), round_(0.5, 0.5, 0.5, 0.5)
    assert found(slower, slower, slower) == "every round ended slower than it began"
    assert found(slower, level, slower) == ""
    assert found(slower) == ""
    assert found(slower, slower) == "every round ended slower than it began"
    a_little = round_(0.5, 0.5, 0.53, 0.53)
    assert found(a_little, a_little, a_little) != ""
    assert found(a_little, a_little) == ""  # two may be the drift of the machine


def test_where_one_does_not_run_there_is_no_verdict_and_no_waiting() -> None:
    finals_test = sequential(ScriptedLauncher(rate=lambda _: 20.0, failures={FAST: Status.CRASHED}))
    finals_test.run()
    assert (finals_test.end_reason, finals_test.n_rounds) == ("failed", 2)
    assert finals_test.verdicts()["tf-default"].code is VerdictCode.UNDECIDED


def test_laps_are_those_of_the_narrowest_interval_in_the_time_there_is() -> None:
    plan, cheap, slow = FinalsPlan(), Cost(start_s=4.0, step_s=0.3), Cost(start_s=10.0, step_s=2.6)
    low_process_noise = replace(PRIOR_NOISE, process_sd=0.0006)
    few, many = (
        choose_passes(plan, noise, [cheap] * 2, left_s=900.0, resident=None).passes
        for noise in (PRIOR_NOISE, low_process_noise)
    )
    assert 2 <= few < many
    assert choose_passes(plan, low_process_noise, [slow] * 2, left_s=60.0, resident=None).passes == 1
    assert (
        choose_passes(plan, replace(PRIOR_NOISE, process_sd=0.1), [cheap] * 2, left_s=math.inf, resident=3).max_resident
        == 3
    )
    assert choose_passes(plan, PRIOR_NOISE, [cheap], left_s=math.inf, resident=0).max_resident == 1


def test_noise_takes_more_time_to_find_a_gain_in() -> None:
    costs = [Cost(start_s=1.5, step_s=0.3)] * 2
    quiet, noisy = (
        required_time_s(FinalsPlan(), replace(PRIOR_NOISE, block_sd=sd), costs, gain=0.03)
        for sd in (0.005, PRIOR_NOISE.block_sd)
    )
    assert quiet <= 4 * FinalsPlan().round_s(costs)
    assert noisy > 1.3 * quiet


# ---- stages ----------------------------------------------------------------------------------------------------

THIRD, FOURTH = (setting(inter_op=n, intra_op=2, batch_size=8) for n in (3, 4))


def of_four(
    rate: Callable[[Setting], float], *, budget_s: float | None = None, replicas: int = 0, **more: object
) -> tuple[SequentialTest, ScriptedLauncher]:
    """Return a sequential test of the incumbent FAST against the default SLOW and two rivals, THIRD and FOURTH."""
    launcher = ScriptedLauncher(rate=rate, **more)  # type: ignore[arg-type]
    settings = {INCUMBENT: FAST, "tf-default": SLOW, "intel": THIRD, "tf-guide": FOURTH}
    common = rounds_of(launcher, budget_s=budget_s)
    common.fork_launchers = [lambda: launcher] * replicas
    finals_test = SequentialTest(
        contenders=[Contender(names=(name,), setting=each, deployment=Deployment()) for name, each in settings.items()],
        common=common,
        objective=Objective.THROUGHPUT,
    )
    return finals_test, launcher


def test_the_default_comes_first_and_rivals_follow_when_that_is_decided() -> None:
    rates = {FAST: 40.0, SLOW: 20.0, THIRD: 30.0, FOURTH: 40.0}
    finals_test, _ = of_four(rates.__getitem__, noise=0.008)
    finals_test.run()
    assert finals_test.end_reason == "decided"
    ran = [sorted(round_.slices) for round_ in finals_test.rounds]
    first = ran.index(sorted([INCUMBENT, "intel", "tf-guide"]))
    assert ran[:first] == [sorted([INCUMBENT, "tf-default"])] * first
    assert ran[-1] == sorted([INCUMBENT, "tf-guide"])  # of those that are decided nothing runs any more
    words = {name: verdict.code for name, verdict in finals_test.verdicts().items()}
    assert words == {
        "tf-default": VerdictCode.BETTER,
        "intel": VerdictCode.BETTER,
        "tf-guide": VerdictCode.NO_DIFFERENCE,
    }


def test_half_of_the_time_is_the_primary_comparisons_alone() -> None:
    finals_test, launcher = of_four(lambda s: 20.0 + 0.4 * (s == FAST), budget_s=600.0, noise=0.1)
    finals_test.run()
    contenders_per_round = [len(round_.slices) for round_ in finals_test.rounds]
    alone = contenders_per_round.index(4)
    assert contenders_per_round[:alone] == [2] * alone
    at_s = min(s.start_s for s in finals_test.rounds[alone].slices[INCUMBENT])
    assert 300.0 <= at_s <= 340.0
    assert finals_test.end_reason == "time"
    assert launcher.now() <= 600.0


def test_rivals_for_which_there_is_no_time_are_not_begun() -> None:
    finals_test, _ = of_four(lambda s: 20.0 + 0.4 * (s == FAST), budget_s=120.0, noise=0.1)
    finals_test.run()
    assert {len(round_.slices) for round_ in finals_test.rounds} == {2}
    assert finals_test.verdicts()["intel"] == UNMEASURED
    assert set(finals_test.levels) == {"tf-default"}


@pytest.mark.parametrize(("leaves_time", "more"), [(False, {"intel"}), (True, set())])
def test_time_that_nobody_else_needs_is_for_one_rival(leaves_time: bool, more: set[str]) -> None:
    """The default is decided soon, and there is no time for eight rounds more."""
    finals_test, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01)
    finals_test.leaves_time = leaves_time
    finals_test.run(n_rounds=1)
    round_s = launcher.now()
    finals_test, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01, budget_s=7 * round_s)
    finals_test.leaves_time = leaves_time
    finals_test.run()
    assert {name for name in finals_test.levels if name != "tf-default"} == more
    assert launcher.now() <= 7 * round_s


def test_rounds_go_on_until_a_limit_on_the_tail_can_be_told() -> None:
    def steps_of(finals_test: SequentialTest) -> int:
        return sum(len(s.latency_samples_s) for round_ in finals_test.rounds for s in round_.slices[INCUMBENT])

    def finals_of(*, min_steps: int, budget_s: float) -> SequentialTest:
        finals_test, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01, budget_s=budget_s)
        finals_test.min_steps = min_steps
        finals_test.run()
        assert finals_test.end_reason
        assert launcher.now() <= budget_s
        assert finals_test.verdicts()["tf-default"].code is VerdictCode.BETTER
        return finals_test

    soon, later = (finals_of(min_steps=n, budget_s=2000.0) for n in (0, 150))
    assert steps_of(soon) < 150 <= steps_of(later)
    first = next(i for i, round_ in enumerate(later.rounds) if len(round_.slices) > 2)
    assert sum(len(s.latency_samples_s) for round_ in later.rounds[:first] for s in round_.slices[INCUMBENT]) >= 150
    short = finals_of(min_steps=100_000, budget_s=200.0)  # as far as the time goes
    assert {len(round_.slices) for round_ in short.rounds} == {2}


def test_the_time_of_a_tail_is_that_of_its_steps() -> None:
    plan, costs = FinalsPlan(passes=2), [Cost(start_s=1.0, step_s=0.1), Cost(start_s=1.0, step_s=0.2)]
    assert tail_time_s(plan, costs, n_steps=0) == 0
    assert tail_time_s(plan, costs, n_steps=662) == 34 * plan.round_s(costs)  # 20 steps in four slices of half a second
    long = [Cost(start_s=1.0, step_s=9.0)] * 2
    assert tail_time_s(plan, long, n_steps=10) == 10 * plan.round_s(long)


def test_what_the_primary_claim_does_not_spend_is_passed_on() -> None:
    equal, _ = of_four(lambda _: 20.0, noise=0.004)
    equal.run()
    better, _ = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.004)
    better.run()
    assert equal.verdicts()["tf-default"].code is VerdictCode.NO_DIFFERENCE
    assert better.verdicts()["tf-default"].code is VerdictCode.BETTER
    assert equal.alpha_of(equal.pairwise["intel"]) == pytest.approx(0.1 * 0.05 / 2)
    assert better.alpha_of(better.pairwise["intel"]) == pytest.approx(0.05 / 2)
    assert equal.alpha_of(equal.pairwise["tf-default"]) == pytest.approx(0.9 * 0.05)


def test_the_first_round_is_of_fresh_processes_and_the_others_of_replicas_in_turn() -> None:
    finals_test, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01)
    twins = [ScriptedLauncher(rate=launcher.rate, noise=0.01, seed=1 + i) for i in range(2)]
    asked: list[int] = []

    def up(i: int) -> ScriptedLauncher:
        asked.append(i)
        return twins[i]

    finals_test.common.fork_launchers = [functools.partial(up, i) for i in range(2)]
    finals_test.run(n_rounds=2)
    assert asked == [0]  # no server of a later round is waited for
    finals_test.run()
    assert asked[:3] == [0, 1, 0]
    assert [round_.fresh for round_ in finals_test.rounds[:4]] == [True, False, False, False]
    assert all(replica.launched for replica in twins)
    assert convert(to_plain(finals_test.rounds[1]), Round).fresh is False


def test_forked_processes_that_are_not_like_fresh_ones_do_not_count() -> None:
    lines: list[str] = []
    finals_test, launcher = of_four(lambda _: 20.0, noise=0.004)
    forks = ScriptedLauncher(rate=lambda s: 20.0 + 4.0 * (s == FAST), noise=0.004, seed=1)
    finals_test.common.fork_launchers = [lambda: forks]
    finals_test.common.notify = lines.append
    finals_test.run()
    assert FORKS_DIFFER.text in lines[0]
    assert [FORKS_DIFFER in r.interruptions for r in finals_test.rounds] == [not r.fresh for r in finals_test.rounds]
    assert sum(r.fresh for r in finals_test.rounds) >= 3
    assert finals_test.verdicts()["tf-default"].code is VerdictCode.NO_DIFFERENCE
    assert launcher.live == 0


def test_forks_serve_once_a_fresh_round_counts() -> None:
    """Without one there is nothing that they could be checked against."""
    failing = {SLOW: Status.CRASHED}
    finals_test, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01, failures=failing)
    forks = ScriptedLauncher(rate=launcher.rate, noise=0.01, seed=1)
    finals_test.common.fork_launchers = [lambda: forks]
    finals_test.run(n_rounds=1)
    failing.clear()  # it was an accident
    finals_test.run(n_rounds=2)
    assert [round_.fresh for round_ in finals_test.rounds] == [True, True, False]


def test_finals_do_not_end_while_forks_are_under_suspicion() -> None:
    """The time is used up with five rounds; the sixth asks fresh processes once more."""
    finals_test, _ = of_four(lambda _: 20.0, noise=0.004)
    forks = ScriptedLauncher(rate=lambda s: 20.0 + 4.0 * (s == FAST), noise=0.004, seed=1)
    finals_test.common.fork_launchers = [lambda: forks]
    finals_test.common.time = Countdown(
        total_s=1e3, now=lambda: 0.0 if len(finals_test.rounds) < 5 else 1e3, began_s=0.0
    )
    finals_test.run()
    assert [round_.fresh for round_ in finals_test.rounds] == [True, False, False, False, False, True]
    assert finals_test.verdicts()["tf-default"].code is not VerdictCode.BETTER
    assert finals_test.end_reason == "time"


def test_error_that_is_spent_is_not_spent_again() -> None:
    match = PairwiseTest(rival="tf-default", planned_rounds=6)
    open_one = Estimate(mean=0.01, se=0.02, n=5, df=4)
    match.analyse(open_one, first=3, alpha=0.05, margin=0.02, last=False)
    assert match.is_open
    match.analyse(replace(open_one, n=6, df=5), first=3, alpha=0.05, margin=0.02, last=False)
    assert match.is_alpha_spent
    assert not match.is_open
    assert match.verdict.code is VerdictCode.UNDECIDED
    match.reset()
    assert match.is_open


def test_equal_processes_are_seldom_said_to_differ() -> None:
    rng, n = np.random.default_rng(0), 4000
    wrong = sum(differ_significantly(rng.normal(0, 1, 1), rng.normal(0, 1, 8)) for _ in range(n)) / n
    assert wrong == pytest.approx(0.01, abs=3 * (0.01 * 0.99 / n) ** 0.5)
    assert differ_significantly(np.array([1.0]), rng.normal(0, 0.01, 8))
    assert not differ_significantly(np.array([1.0]), rng.normal(0, 0.01, 3))


def test_a_fork_server_that_dies_between_rounds_leaves_the_finals_to_fresh_processes() -> None:
    lines: list[str] = []

    class Dying(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: object) -> ScriptedProcess:
            if len(self.launched) >= 4:
                raise TunerError("the fork server crashed twice", "run with --launcher fresh")
            return super().launch(setting, Deployment())

    finals_test, launcher = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01)
    forks = Dying(rate=launcher.rate, noise=0.01)
    finals_test.common.fork_launchers = [lambda: forks]
    finals_test.common.notify = lines.append
    finals_test.run()
    assert lines == ["the finals continue with fresh interpreters: the fork server crashed twice"]
    assert [r.fresh for r in finals_test.rounds[:4]] == [True, False, True, True]
    assert finals_test.verdicts()["tf-default"].code is VerdictCode.BETTER


def test_a_rival_that_does_not_run_costs_only_itself() -> None:
    finals_test, _ = of_four(lambda s: 20.0 + 20.0 * (s == FAST), noise=0.01, failures={THIRD: Status.CRASHED})
    finals_test.run()
    words = {name: verdict.code for name, verdict in finals_test.verdicts().items()}
    assert words == {"tf-default": VerdictCode.BETTER, "intel": VerdictCode.UNDECIDED, "tf-guide": VerdictCode.BETTER}
    assert finals_test.end_reason == "decided"


@pytest.mark.parametrize("batch_size", [8, 64])
def test_a_round_takes_about_as_long_as_is_said(batch_size: int) -> None:
    launcher = ScriptedLauncher(rate=lambda _: 25.0, start_s=4.0)
    plan = FinalsPlan(passes=3, n_parallel_starts=1)
    one = Contender(names=("a",), setting=FAST, deployment=Deployment())
    other = Contender(names=("b",), setting=SLOW.with_values(batch_size=batch_size), deployment=Deployment())
    rounds.run_round([one, other], launcher, plan, np.random.default_rng(0))
    steps_s = [8 / 25, batch_size / 25]  # its warm-up is a slice
    lines = plan.round_s([Cost(start_s=4.0 + plan.slice_for(step_s), step_s=step_s) for step_s in steps_s])
    assert launcher.now() == pytest.approx(lines, rel=0.1)


# ---- comparisons ---------------------------------------------------------------------------------------------


class Resolved:
    """As much of a job as naming a side needs."""

    def __init__(self, space: Space, machine: Machine) -> None:
        self.space, self.machine, self.framework, self.build = space, machine, self, None

    def check(self, build: object, settings: list[Setting]) -> None:
        """Refuse nothing."""


def named(text: str, space: Space, machine: Machine, tmp_path: Path) -> ComparedSetting:
    return compare.parse_compared(text, Resolved(space, machine), f"sqlite:///{tmp_path}/none.db")  # type: ignore[arg-type]


def test_a_side_is_a_baseline_or_some_values(space: Space, machine: Machine, tmp_path: Path) -> None:
    assert named("intel", space, machine, tmp_path).setting == space.baselines["intel"]
    finals_test = named("inter_op=1,batch_size=4", space, machine, tmp_path)
    assert finals_test.setting == space.reference.with_values(inter_op=1, batch_size=4)
    assert finals_test.deployment.env["TF_NUM_INTEROP_THREADS"] == "1"
    default = named("tf-default", space, machine, tmp_path)
    assert not default.deployment.env  # as users run it: nothing is set


def test_values_are_apart_by_commas_or_spaces() -> None:
    three = ["inter_op=1", "intra_op=2", "batch_size=8"]
    for text in (
        "inter_op=1 intra_op=2 batch_size=8",
        "inter_op=1,intra_op=2,batch_size=8",
        "inter_op=1, intra_op = 2  batch_size= 8 ",
    ):
        assert CATALOGUE.assignments(text) == three


def test_affinities_hold_commas_and_equals_signs() -> None:
    text = "inter_op=1,kmp_affinity=granularity=fine,compact,1,0,kmp_blocktime=1,cpus=0-1,3,batch_size=8"
    assert CATALOGUE.assignments(text) == [
        "inter_op=1",
        "kmp_affinity=granularity=fine,compact,1,0",
        "kmp_blocktime=1",
        "cpus=0-1,3",
        "batch_size=8",
    ]
    for wrong in ("inter_op=1,2", "inter_op", "inter_op=1,,"):
        with pytest.raises(BadInputError, match=r"' is not of the form knob=value"):
            CATALOGUE.assignments(wrong)


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
    finals_test = SequentialTest(contenders=contenders, common=rounds_of(launcher), objective=Objective.THROUGHPUT)
    finals_test.run()
    return Comparison(
        a=ComparedSetting(name="tf-default", setting=SLOW, deployment=Deployment()),
        b=ComparedSetting(name="intra_op=2", setting=FAST, deployment=Deployment()),
        test=finals_test,
        conditions=QUIET,
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
    assert document.code == "better"
    assert document.low < document.speedup < document.high
    assert document.speedup == pytest.approx(2.0, rel=0.02)
    assert document.reason is None
    assert document.sides["b"].rate == pytest.approx(40.0, rel=0.02)
    validator("compare").validate(json.loads(msgspec.json.encode(document)))
    assert "better" in text_of(document)


def test_an_undecided_comparison_gives_its_reason_and_no_figure_of_its_own() -> None:
    document = describe(compared(lambda s: 20.0 + 0.4 * int(s["intra_op"]), noise=0.3))
    assert document.code == "undecided"
    assert document.reason == "40 rounds cannot show whether the difference matters: give a longer --time-budget"
    text = text_of(document)
    assert re.search(r"\[0\.\d+, 1\.\d+\]", text)
    assert "undecided" in text


def test_a_machine_too_restless_for_any_number() -> None:
    document = describe(compared(lambda _: 20.0, process_noise=1.0))
    assert (document.code, document.speedup, document.low, document.high) == (
        "undecided",
        None,
        None,
        None,
    )
    assert "rounds vary too much: use a quieter machine, or a longer --time-budget" in document.reason
    assert "—" in text_of(document)


def test_a_side_that_does_not_run_is_named() -> None:
    document = describe(compared(lambda _: 20.0, failures={FAST: Status.OOM}))
    assert document.code == "undecided"
    assert document.failures == {"b": "oom: scripted oom"}
    assert document.reason == "b did not run"
    assert "b oom: scripted oom" in text_of(document)


def test_where_neither_side_runs_the_tool_fails() -> None:
    finals_test = sequential(ScriptedLauncher(rate=lambda _: 20.0, failures={FAST: Status.OOM, SLOW: Status.FAILED}))
    finals_test.run()
    assert finals_test.end_reason == "failed"
    with pytest.raises(TunerError, match="neither setting runs: failed: scripted failed; oom: scripted oom") as caught:
        check_ran(finals_test.rounds)
    assert caught.value.hint == "free some memory, or give a smaller --batch-size"
    known = Round(failures={A: "failed: no"}, hints={A: "use --batch-size 4"})
    with pytest.raises(TunerError, match="neither setting runs: failed: no") as caught:
        check_ran([known])
    assert caught.value.hint == "use --batch-size 4"


def test_two_rounds_are_said_to_be_too_few() -> None:
    finals = compared(lambda _: 20.0, noise=0.05)
    document = describe(replace(finals, test=replace(finals.test, rounds=finals.test.rounds[:2], pairwise={})))
    assert document.reason == "there was time for only 2 rounds: give a longer --time-budget"


def test_the_document_of_a_check_has_the_comparison_in_it() -> None:
    comparison = compared(lambda s: 20.0 * int(s["intra_op"]), noise=0.01)
    whole = PooledVerdict(verdict=comparison.verdict, n=1)
    result = compare.check_result("made", comparison, whole)
    assert isinstance(result, CheckResult)
    assert (result.study, result.helps, result.limits, result.code) == ("made", True, None, VerdictCode.BETTER)
    [answer] = check_card(result).answers
    assert (answer.word, answer.code) == ("STILL FASTER", VerdictCode.BETTER)
    assert answer.text.startswith("made: 2.0")
    over = msgspec.structs.replace(result, helps=False, limits={"a": LimitStatus.MET, "b": LimitStatus.BROKEN})
    assert check_card(over).answers[0].word.startswith("NO LONGER ALLOWED")
    nothing = compare.nothing_to_check("made")
    assert isinstance(nothing, NothingToCheck)
    for document in (result, nothing):
        validator("check").validate(json.loads(msgspec.json.encode(document)))


def test_a_check_at_the_same_latency_fails_where_a_call_takes_longer() -> None:
    comparison = compared(lambda s: 20.0 * int(s["intra_op"]), noise=0.01)
    found = compare.latency_ratio(StoredFinals.from_dict(json.loads(json.dumps(to_plain(comparison)))))
    assert found is not None
    assert found.ratio == pytest.approx(0.5, rel=0.1)
    whole = PooledVerdict(verdict=comparison.verdict, n=1)
    kept = compare.check_result("made", comparison, whole, latency=found)
    assert (kept.helps, check_card(kept).answers[0].word) == (True, "STILL FASTER")
    longer = LatencyRatio(ratio=1.2, low=1.1, high=1.3)
    lost = compare.check_result("made", comparison, whole, latency=longer)
    assert (lost.helps, check_card(lost).answers[0].word) == (False, "NO LONGER AT THE SAME LATENCY")
    assert ("Latency", "a call takes 1.20 [1.10, 1.30] times as long") in check_card(lost).rows
    validator("check").validate(json.loads(msgspec.json.encode(lost)))


def test_an_undecided_figure_is_an_interval() -> None:
    open_ = Verdict(speedup=1.02, low=0.98, high=1.06, code=VerdictCode.UNDECIDED)
    assert speedup_text(open_) == "[0.98, 1.06]"
    decided = Verdict(speedup=1.05, low=1.03, high=1.07, code=VerdictCode.BETTER)
    assert speedup_text(decided) == "1.05 [1.03, 1.07]"


def test_steps_are_in_the_tails_only_from_rounds_that_count() -> None:
    def round_(step_s: float, *interruptions: Interruption) -> Round:
        finals_test = Slice(start_s=0.0, elapsed_s=70 * step_s, n_steps=70, step_s=(step_s,) * 70)
        return Round(slices={"a": [finals_test]}, memory={"a": 1000}, interruptions=list(interruptions))

    tail = evidence.tail([round_(0.01), round_(5.0, Interruption(Kind.SUSPENDED, "slept"))], "a", 8)
    assert tail.p90 == pytest.approx(10.0)
    assert (tail.p99, tail.n_steps, tail.peak_memory_bytes) == (None, 69, 1000)  # the first one woke up
