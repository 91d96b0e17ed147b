"""Finals and verdicts: the logic around timing, on a scripted machine."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import convert

from tests.conftest import setting
from tests.frameworks import CATALOGUE
from tests.scripted_launcher import ScriptedLauncher, ScriptedProcess
from tuner.measure.agreement import deviation, moved_text, only_not_finite, spread
from tuner.measure.interruption import Interruption, Kind
from tuner.measure.objective import Objective, rounding
from tuner.measure.planning import FinalsPlan
from tuner.measure.rates import adjusted_rates, log_rates, pass_log_ratios, slice_log_rates
from tuner.measure.recommendation import FinalsEstimates, all_verdicts, recommend, simplicity
from tuner.measure.rounds import INCUMBENT, Contender, Round, merged, replicates, run_round
from tuner.measure.warning import Code
from tuner.plain import to_plain
from tuner.result import document, evidence
from tuner.result.decision import why_none
from tuner.result.study import VerdictResult
from tuner.result.wording import speed_up
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.values import Value
from tuner.stats.equivalence import VerdictCode, verdict_on, verdict_probability
from tuner.stats.estimate import Estimate, estimate
from tuner.study.trials import Trial
from tuner.trial.outcome import ReadyReport, Slice, Status, TrialFailure, joined
from tuner.workload.spec import WorkloadSpec

A = setting(inter_op=2, intra_op=2, batch_size=8)
B = setting(inter_op=1, intra_op=2, batch_size=8)
RATES = {A: 20.0, B: 22.0}


def test_a_slice_in_two_parts_counts_its_steps_but_for_those_after_a_pause() -> None:
    half = Slice(start_s=5.0, elapsed_s=3.5, n_steps=3, step_s=(1.5, 1.0, 1.0), resumed=1, energy_j=7.0)
    whole = joined(half, replace(half, start_s=20.0))
    assert (whole.start_s, whole.n_steps, whole.elapsed_s) == (5.0, 5, 5.5)
    assert whole.step_s == (1.5, 1.0, 1.0, 1.0, 1.0)
    assert whole.counted_steps == (4, 4.0)
    assert whole.energy_j == 14.0
    assert joined(half, replace(half, energy_j=None)).energy_j is None


def test_latency_is_the_median_step_and_throughput_counts_what_elapsed() -> None:
    slice_ = Slice(start_s=0, elapsed_s=2.0, n_steps=4, step_s=(0.4, 0.4, 0.4, 0.8))
    assert math.exp(Objective.THROUGHPUT.log_rate(slice_, 8)) == pytest.approx(4 * 8 / 2.0)
    assert math.exp(Objective.LATENCY.log_rate(slice_, 8)) == pytest.approx(1 / 0.4)


def contenders() -> list[Contender]:
    return [
        Contender(names=("incumbent",), setting=B, deployment=Deployment()),
        Contender(names=("tf-default", "tf-guide"), setting=A, deployment=Deployment()),
        Contender(names=("intel",), setting=A.with_values(intra_op=1), deployment=Deployment()),
    ]


def test_a_round_times_each_contender_there_and_back_in_a_random_order() -> None:
    launcher = ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01)
    rng = np.random.default_rng(0)
    rounds = [run_round(contenders(), launcher, FinalsPlan(passes=2), rng) for _ in range(8)]
    assert launcher.live == 0
    assert len(launcher.launched) == 8 * 3
    assert all(len(slices) == 4 for r in rounds for slices in r.slices.values())
    firsts = {min(r.slices, key=lambda name: r.slices[name][0].start_s) for r in rounds}
    assert len(firsts) > 1


def test_a_contender_with_long_steps_is_timed_once_in_a_pass_and_for_as_long_as_the_others() -> None:
    large = Contender(names=("large",), setting=A.with_values(batch_size=32), deployment=Deployment())
    usual = Contender(names=("usual",), setting=A, deployment=Deployment())
    rate = {large.setting: 22.0, usual.setting: 20.0}
    launcher = ScriptedLauncher(rate=rate.__getitem__, noise=0.01, drift=0.3, drift_period_s=60.0)
    rounds = [run_round([large, usual], launcher, FinalsPlan(passes=3), np.random.default_rng(n)) for n in range(20)]
    assert {name: len(slices) for name, slices in rounds[0].slices.items()} == {"large": 3, "usual": 6}
    of_slices = slice_log_rates(rounds, [large, usual], Objective.THROUGHPUT)
    passes = pass_log_ratios(rounds, of_slices, "usual", "large")
    assert {len(each) for each in passes} == {3}
    assert np.mean(np.concatenate(passes)) == pytest.approx(math.log(1.1), abs=0.01)
    assert pass_log_ratios([convert(to_plain(r), Round) for r in rounds], of_slices, "usual", "large")[0] == (
        pytest.approx(passes[0])
    )


def test_rounds_of_earlier_versions_have_two_slices_of_each_in_a_pass() -> None:
    launcher = ScriptedLauncher(rate=lambda s: 20.0 * int(s["intra_op"]), noise=0.01)
    round_ = run_round(contenders(), launcher, FinalsPlan(passes=3), np.random.default_rng(0))
    stored = to_plain(round_)
    del stored["n_passes"]
    of_slices = slice_log_rates([round_], contenders(), Objective.THROUGHPUT)
    new, earlier = (
        pass_log_ratios([each], of_slices, "tf-default", "intel")[0] for each in (round_, convert(stored, Round))
    )
    assert new.shape == (3,)
    assert earlier == pytest.approx(new)


def test_a_contender_that_fails_is_left_out_with_its_reason() -> None:
    launcher = ScriptedLauncher(rate=lambda _: 20.0, failures={A.with_values(intra_op=1): Status.OOM})
    round_ = run_round(contenders(), launcher, FinalsPlan(), np.random.default_rng(0))
    assert round_.failures == {"intel": "oom: scripted oom"}
    names, y = log_rates([round_, round_], contenders(), Objective.THROUGHPUT)
    assert names == ["incumbent", "tf-default"]
    verdicts = all_verdicts(estimates_of(names, y, contenders()))
    assert verdicts["intel"].code is VerdictCode.UNDECIDED
    assert verdicts["intel"].speedup is None
    assert launcher.live == 0


class OneAtATime(ScriptedLauncher):
    """A host whose memory holds one process."""

    def launch(self, setting: Setting, deployment: Deployment) -> ScriptedProcess:
        """Start a process that finds no memory where another lives."""
        process = super().launch(setting, deployment)
        ready, is_first = process.ready, self.live == 1

        def found() -> ReadyReport:
            if not is_first:
                raise TrialFailure(Status.OOM, "no memory")
            return ready()

        vars(process)["ready"] = found
        return process


def test_where_memory_turns_out_to_hold_one_process_a_round_is_held_one_at_a_time() -> None:
    launcher = OneAtATime(rate=lambda s: 20.0 * int(s["intra_op"]))
    round_ = run_round(contenders(), launcher, FinalsPlan(), np.random.default_rng(0))
    assert (round_.failures, round_.one_at_a_time, launcher.live) == ({}, True, 0)
    assert {name: len(slices) for name, slices in round_.slices.items()} == {
        "incumbent": 4, "tf-default": 4, "intel": 4,
    }  # fmt: skip


def test_one_bad_start_costs_a_round_and_not_the_contender() -> None:
    launcher = ScriptedLauncher(rate=lambda _: 20.0)
    rng = np.random.default_rng(0)
    rounds = [run_round(contenders(), launcher, FinalsPlan(), rng) for _ in range(3)]
    del rounds[1].slices["incumbent"]
    names, y = log_rates(rounds, contenders(), Objective.THROUGHPUT)
    assert names == ["incumbent", "tf-default", "intel"]
    assert y.shape == (3, 3)
    assert np.isnan(y).sum() == np.isnan(y[1, 0]) == 1


def test_what_all_are_compared_with_runs_more_often_and_scatters_less() -> None:
    """With √n processes of the reference beside n others: here the reference is what scatters."""
    launcher = ScriptedLauncher(
        rate=lambda _: 20.0, process_noise=0.03, scatter=lambda setting: 1.0 if setting == A else 0.0
    )
    reference = Contender(names=("reference",), setting=A, deployment=Deployment())
    others = [Contender(names=(f"{i}",), setting=B, deployment=Deployment()) for i in range(4)]
    more = replicates(reference, len(others))
    assert [len(replicates(reference, n)) for n in (1, 3, 4, 9)] == [0, 0, 1, 2]
    rng = np.random.default_rng(0)
    held = [run_round([reference, *others, *more], launcher, FinalsPlan(passes=2), rng) for _ in range(40)]
    rounds = [merged(each, reference, more) for each in held]
    assert {len(each.slices["reference"]) for each in rounds} == {8}
    assert {len(each.slices) for each in rounds} == {5}
    names, y = log_rates(rounds, [reference, *others], Objective.THROUGHPUT)
    assert y[:, names.index("reference")].std() == pytest.approx(0.03 / math.sqrt(2), rel=0.3)
    failed = Round(failures={"reference": "oom: x"}, slices={"0": held[0].slices["0"]})
    assert merged(failed, reference, more).failures == {"reference": "oom: x"}
    half = Round(failures={"reference": "oom: x"}, slices={"reference#2": held[0].slices["reference#2"]})
    assert merged(half, reference, more).failures == {}


def test_rates_are_compared_in_the_same_drift() -> None:
    y = np.array([[1.0, 0.5, np.nan], [3.0, 2.5, np.nan], [2.0, np.nan, 2.5]])
    shown_rates = adjusted_rates(["incumbent", "tf-default", "intel"], y, "incumbent")
    assert shown_rates == pytest.approx({"incumbent": 2.0, "tf-default": 1.5, "intel": 2.5})
    assert adjusted_rates(["a"], y[:, :1], "incumbent") == {"a": 2.0}


@pytest.mark.parametrize("resident", [1, 2, 3])
def test_contenders_that_memory_does_not_hold_come_in_groups(resident: int) -> None:
    most = 0

    class Counting(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: object) -> object:
            nonlocal most
            process = super().launch(setting, Deployment())
            most = max(most, self.live)
            return process

    round_ = run_round(
        contenders(),
        Counting(rate=lambda _: 20.0),
        FinalsPlan(max_resident=resident, passes=2),
        np.random.default_rng(0),
    )
    assert most == resident
    assert {name: len(slices) for name, slices in round_.slices.items()} == {
        "incumbent": 4,
        "tf-default": 4,
        "intel": 4,
    }


@pytest.mark.parametrize(
    ("mean", "se", "word"),
    [
        (0.05, 0.005, VerdictCode.BETTER),
        (0.05, 0.05, VerdictCode.UNDECIDED),
        (0.0, 0.004, VerdictCode.NO_DIFFERENCE),
        (0.012, 0.002, VerdictCode.NO_DIFFERENCE),  # surely faster, surely not by what matters
        (0.015, 0.004, VerdictCode.UNDECIDED),
        (-0.05, 0.005, VerdictCode.WORSE),
        (0.0, 0.02, VerdictCode.UNDECIDED),
    ],
)
def test_verdicts(mean: float, se: float, word: VerdictCode) -> None:
    assert verdict_on(Estimate(mean=mean, se=se, n=5, df=12)).code is word


def test_no_evidence_no_claim() -> None:
    verdict = verdict_on(Estimate(mean=0.5, se=math.inf, n=1, df=0))
    assert (verdict.code, verdict.speedup) == (VerdictCode.UNDECIDED, None)


@pytest.mark.parametrize(("mean", "se"), [(0.05, 0.001), (0.0, 0.0005)])
def test_two_rounds_that_agree_by_luck_decide_nothing(mean: float, se: float) -> None:
    verdict = verdict_on(Estimate(mean=mean, se=se, n=2, df=1))
    assert verdict.code is VerdictCode.UNDECIDED
    assert verdict.low is not None  # what they say is shown all the same
    assert verdict_on(Estimate(mean=mean, se=se, n=3, df=2)).code is not VerdictCode.UNDECIDED


def test_a_machine_too_restless_to_decide_anything_gives_no_number() -> None:
    verdict = verdict_on(Estimate(mean=0.1, se=0.3, n=5, df=4))
    assert (verdict.code, verdict.speedup, verdict.low, verdict.high) == (VerdictCode.UNDECIDED, None, None, None)


def test_a_wide_interval_that_leaves_out_1_is_a_verdict_all_the_same() -> None:
    verdict = verdict_on(Estimate(mean=1.0, se=0.2, n=5, df=4))
    assert verdict.code is VerdictCode.BETTER
    assert verdict.high > 1.5 * verdict.speedup
    assert verdict_on(Estimate(mean=-1.0, se=0.2, n=5, df=4)).code is VerdictCode.WORSE


def test_early_looks_and_several_comparisons_ask_for_more() -> None:
    claim = Estimate(mean=0.03, se=0.013, n=5, df=12)
    assert verdict_on(claim).code is VerdictCode.BETTER
    assert verdict_on(claim, level=0.995).code is VerdictCode.UNDECIDED


def test_noise_does_not_make_a_difference_irrelevant() -> None:
    """The margin stays where it is: what an interval leaves open is undecided, however noisy the machine."""
    assert verdict_on(Estimate(mean=0.03, se=0.03, n=8, df=7)).code is VerdictCode.UNDECIDED
    assert verdict_on(Estimate(mean=0.015, se=0.001, n=8, df=7), margin=0.01).code is VerdictCode.BETTER
    assert verdict_on(Estimate(mean=0.015, se=0.001, n=8, df=7), margin=0.02).code is VerdictCode.NO_DIFFERENCE


@pytest.mark.parametrize("difference", [0.0, 0.01, 0.03, 0.06])
@pytest.mark.parametrize("se", [0.003, 0.008, 0.02])
def test_the_chance_of_a_verdict_is_how_often_there_is_one(difference: float, se: float) -> None:
    rng, n = np.random.default_rng(0), 4000
    words = [verdict_on(Estimate(mean=x, se=se, n=99, df=1e9)).code for x in rng.normal(difference, se, n)]
    share = sum(word is not VerdictCode.UNDECIDED for word in words) / n
    assert verdict_probability(difference, se) == pytest.approx(share, abs=0.03)


def estimates_of(names: list[str], y: np.ndarray, made: list[Contender]) -> FinalsEstimates:
    """Return what finals of these rates say, all intervals at 95 %."""
    return FinalsEstimates(
        contenders=made, incumbent=INCUMBENT, names=names, y=y, levels={c.names[0]: 0.95 for c in made}
    )


def finals_of(**gains: float) -> tuple[list[str], np.ndarray, list[Contender]]:
    """Return tight finals in which the named contenders have these log rates."""
    names = list(gains)
    jitter = np.random.default_rng(0).normal(0, 0.001, (5, len(names)))
    y = jitter + np.array([gains[name] for name in names])
    in_finals = [
        Contender(
            names=(name.replace("__", "@").replace("_", "-"),),
            setting=B.with_values(batch_size=1 + i),
            deployment=Deployment(),
        )
        for i, name in enumerate(names)
    ]
    return [c.names[0] for c in in_finals], y, in_finals


@pytest.mark.parametrize(
    ("gains", "source"),
    [
        ({"incumbent": 0.10, "tf_default": 0.0, "intel": 0.05}, "incumbent"),
        ({"incumbent": 0.01, "tf_default": 0.0, "intel": 0.0}, "tf-default"),
        ({"incumbent": -0.1, "tf_default": 0.0, "intel": 0.0}, "tf-default"),
        ({"incumbent": 0.05, "tf_default": 0.0, "intel": 0.15}, "intel"),
        ({"incumbent": 0.10, "tf_default": 0.0, "tf_default__same_batch": 0.10}, "tf-default@same-batch"),
        ({"incumbent": 0.10, "tf_default": 0.0, "tf_default__same_batch": 0.05}, "incumbent"),
    ],
)
def test_recommendations(gains: dict[str, float], source: str) -> None:
    names, y, in_finals = finals_of(**gains)
    names = [name.replace("same_batch", "same-batch") for name in names]
    advice = recommend(estimates_of(names, y, in_finals), CATALOGUE)
    assert advice.source == source
    assert (advice.gain is None) is (source == "tf-default")
    assert advice.gain is None or advice.gain.code is VerdictCode.BETTER


def test_of_those_that_cannot_be_told_apart_the_simplest_is_recommended() -> None:
    ones = np.array([1, -1, 1, -1, 0.5])
    jitter = 0.004 * np.column_stack([ones, -ones, ones[::-1], np.roll(ones, 1)])
    y = jitter + np.array([0.0, 0.100, 0.101, 0.102])
    settings = {
        "tf-default": setting(inter_op=2, intra_op=2, batch_size=8),
        "simpler": setting(inter_op=1, intra_op=1, batch_size=8),
        "intel": setting(inter_op=1, intra_op=2, batch_size=8),
        INCUMBENT: setting(inter_op=2, intra_op=8, batch_size=32),
    }
    in_finals = [Contender(names=(name,), setting=each, deployment=Deployment()) for name, each in settings.items()]
    advice = recommend(estimates_of(list(settings), y, in_finals), CATALOGUE)
    assert advice.source == "simpler"
    assert set(advice.tied) == {"simpler", "intel", INCUMBENT}
    y[:, 1] = jitter[:, 1] + 0.05  # told apart now
    assert recommend(estimates_of(list(settings), y, in_finals), CATALOGUE).source == "intel"


def test_a_setting_that_is_better_is_recommended_though_a_third_may_be_faster() -> None:
    """Finals of NCF: the fastest ran in too few rounds beside the default to be shown to be better than it."""
    nan = np.nan
    y = np.array(
        [
            [14.386, 13.852, nan, nan],
            [14.396, 13.85, nan, nan],
            [14.395, 13.851, nan, nan],
            [14.372, nan, 13.851, 14.356],
            [14.35, nan, 13.843, 14.336],
            [14.385, nan, 13.887, 14.375],
            [14.2, nan, 13.611, 14.379],
            [14.328, nan, 13.747, 14.325],
            [14.356, nan, nan, 14.309],
            [14.359, nan, nan, 14.319],
            [14.342, nan, nan, 14.323],
            [14.355, nan, nan, 14.332],
            [14.36, nan, nan, 14.328],
            [14.325, nan, nan, 14.283],
            [14.342, nan, nan, 14.303],
            [14.169, nan, nan, 14.368],
            [14.189, nan, nan, 14.378],
            [14.151, nan, nan, 14.35],
            [14.126, nan, nan, 14.347],
            [14.134, nan, nan, 14.33],
            [14.127, nan, nan, 14.342],
            [14.143, nan, nan, 14.337],
            [14.123, nan, nan, 14.324],
            [14.16, nan, nan, 14.314],
            [14.044, nan, nan, 14.296],
        ]
    )
    names = [INCUMBENT, "tf-default", "tf-guide-mkl", "core-each"]
    in_finals = [
        Contender(names=(name,), setting=B.with_values(batch_size=1 + i), deployment=Deployment())
        for i, name in enumerate(names)
    ]
    levels = {"tf-default": 0.9998, "tf-guide-mkl": 0.9997, "core-each": 0.9957}
    estimates = FinalsEstimates(contenders=in_finals, incumbent=INCUMBENT, names=names, y=y, levels=levels)
    assert estimates.verdict("tf-default", INCUMBENT).code is VerdictCode.BETTER
    assert estimates.verdict("tf-default", "core-each").code is VerdictCode.UNDECIDED
    advice = recommend(estimates, CATALOGUE)
    assert (advice.source, advice.tied) == (INCUMBENT, (INCUMBENT,))


def test_what_breaks_a_limit_is_not_recommended() -> None:
    names, y, in_finals = finals_of(incumbent=0.10, tf_default=0.0, intel=0.05)
    fast = estimates_of(names, y, in_finals)
    assert recommend(fast, CATALOGUE, broken=["incumbent"]).source == "intel"
    assert recommend(fast, CATALOGUE, broken=["tf-default"]).source == "incumbent"
    slow = estimates_of(*finals_of(incumbent=-0.10, tf_default=0.0))
    assert recommend(slow, CATALOGUE, broken=["tf-default"]).source == "incumbent"  # it is slower, and keeps them
    assert recommend(slow, CATALOGUE, broken=["tf-default", "incumbent"]).source == "tf-default"


def test_fewer_threads_are_simpler_then_what_is_nearer_to_the_default() -> None:
    default = setting(inter_op=4, intra_op=4, omp_num_threads=4, batch_size=8)
    assert CATALOGUE.n_threads(default) == 4 + 4 + 16
    fewer = default.with_values(inter_op=1)
    near, far = fewer.with_values(batch_size=16), fewer.with_values(batch_size=64)
    other = fewer.with_values(batch_size=64, kmp_blocktime=1)
    order = sorted([default, other, far, near, fewer], key=lambda s: simplicity(s, default, CATALOGUE))
    assert order == [fewer, near, far, other, default]


def test_agreement_is_relative_to_the_largest_value() -> None:
    a = {"inputs": "x", "outputs": {"output_0": [1.0, 100.0]}}
    assert deviation(a, a) == 0.0
    assert deviation(a, {"inputs": "x", "outputs": {"output_0": [1.5, 100.0]}}) == pytest.approx(0.005)
    assert deviation(a, {"inputs": "x", "outputs": {"output_0": [1.0, 50.0]}}) == pytest.approx(0.5)
    zero = {"inputs": "x", "outputs": {"output_0": [0.0, 0.0]}}
    assert deviation(zero, a) is None  # nothing to compare with


def test_of_the_same_batch_every_item_counts() -> None:
    a = {"inputs": "x", "outputs": {"y": [1.0]}, "batch": {"inputs": "b", "outputs": {"y": [1.0, 2.0]}}}
    second = a | {"batch": {"inputs": "b", "outputs": {"y": [1.0, 1.0]}}}
    assert deviation(a, second) == pytest.approx(0.5)
    assert deviation(a, second | {"batch": {"inputs": "another", "outputs": {"y": [1.0, 1.0]}}}) == 0.0
    assert deviation(a, {"inputs": "x", "outputs": {"y": [1.0]}}) == 0.0


def test_what_cannot_be_compared_is_not_judged() -> None:
    a = {"inputs": "x", "outputs": {"output_0": [1.0]}}
    assert deviation(None, a) is None
    assert deviation(a, None) is None
    assert deviation(a, a | {"inputs": "y"}) is None
    assert deviation(a, {"inputs": "x", "outputs": {"output_0": [1.0, 2.0]}}) == 1.0


def test_what_is_not_finite_agrees_at_the_same_places_only() -> None:
    places = {"y": {"-inf": [1, *[0] * 250]}}
    a = {"inputs": "x", "outputs": {"y": ["-inf", 1.0, 2.0]}, "not_finite": places}
    assert deviation(a, a) == 0.0
    assert deviation(a, a | {"outputs": {"y": ["-inf", 1.0, 2.2]}}) == pytest.approx(0.1)
    assert spread(a) == pytest.approx(0.5)
    # Elsewhere in what was sampled, of another kind, and where nothing was sampled.
    assert deviation(a, a | {"outputs": {"y": [1.0, "-inf", 2.0]}}) == 1.0
    assert deviation(a, a | {"outputs": {"y": ["nan", 1.0, 2.0]}}) == 1.0
    moved = a | {"not_finite": {"y": {"-inf": [0, 1, *[0] * 249]}}}
    finite = {"inputs": "x", "outputs": a["outputs"]}
    for other in (moved, finite):
        assert deviation(a, other) == deviation(other, a) == 1.0
        assert moved_text(a, other, than="the reference's") is not None
    assert moved_text(a, a, than="the reference's") is None
    nothing = {"inputs": "x", "outputs": {"y": ["nan", "nan"]}, "not_finite": {"y": {"nan": [2, *[0] * 250]}}}
    assert deviation(nothing, nothing) is None  # no number to compare
    assert only_not_finite({"y": {"nan": 2, "size": 4}}, ["y"]) is None
    assert only_not_finite({"y": {"nan": 2, "size": 4}}, []) == "y: 2 of 4 values are not finite (NaN)"


@pytest.mark.parametrize("inputs", ["same", "others"])
def test_outputs_that_are_not_finite_at_other_places_are_refused_in_a_round(
    monkeypatch: pytest.MonkeyPatch, inputs: str
) -> None:
    """Inputs of another batch size are others: nothing can be said of their places."""
    a, b = contenders()[:2]

    def facts_of(self: ScriptedProcess) -> ReadyReport:
        is_other = self._setting == b.setting
        places = [0, 1, *[0] * 249] if is_other else [1, *[0] * 250]
        sample = {
            "inputs": inputs if is_other else "same",
            "outputs": {"y": ["nan", 1.0]},
            "not_finite": {"y": {"nan": places}},
        }
        return replace(usual(self), sample=sample, not_finite={"y": {"nan": 1, "size": 2}})

    usual = ScriptedProcess.ready
    monkeypatch.setattr(ScriptedProcess, "ready", facts_of)
    round_ = run_round([a, b], ScriptedLauncher(rate=lambda _: 10.0), FinalsPlan(), np.random.default_rng(0))
    message = f"invalid: its outputs are NaN or infinite at other places than those of {a.names[0]}"
    assert round_.failures == ({b.names[0]: message} if inputs == "same" else {})
    assert a.names[0] in round_.slices


def test_the_first_step_after_a_pause_is_left_out_of_the_rate() -> None:
    woken = Slice(start_s=0.0, elapsed_s=0.6, n_steps=3, step_s=(0.3, 0.15, 0.15), resumed=1)
    assert Objective.THROUGHPUT.log_rate(woken, 8) == pytest.approx(math.log(8 / 0.15))
    assert Objective.THROUGHPUT.log_rate(replace(woken, resumed=0), 8) == pytest.approx(math.log(24 / 0.6))
    assert convert(to_plain(woken), Slice) == woken
    alone = Slice(start_s=0.0, elapsed_s=0.3, n_steps=1, step_s=(0.3,), resumed=1)
    assert Objective.THROUGHPUT.log_rate(alone, 8) == pytest.approx(math.log(8 / 0.3))
    sampled = Slice(start_s=0.0, elapsed_s=0.6, n_steps=600, step_s=(0.001,) * 300, resumed=1)
    assert sampled.counted_steps == (600, 0.6)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("the machine was suspended for 30 s", Kind.SUSPENDED),
        ("a slice stalled: it took 9.0 s instead of about 0.5 s", Kind.STALLED),
        ("forked processes differ from fresh interpreters", Kind.FORKS_DIFFER),
    ],
)
def test_interruptions_are_read_as_they_are_stored(text: str, kind: Kind) -> None:
    read = convert({"kind": kind.value, "text": text}, Interruption)
    assert read == Interruption(kind, text)
    assert to_plain(read) == {"kind": kind.value, "text": text}
    expected = Code.FORKS if kind is Kind.FORKS_DIFFER else Code.ASLEEP
    assert expected in {each.code for each in evidence.round_warnings([Round(slices={}, interruptions=[read])])}


@pytest.mark.parametrize(
    ("unit", "batch_sizes", "smaller", "codes"),
    [
        ("it/s", {8, 16}, False, {Code.PER_STEP}),
        ("it/s", {8}, False, set()),
        ("images/s", {8, 16}, False, set()),
        # A query, or a time, may be of a whole batch.
        ("qps", {8, 16}, False, {Code.PER_STEP}),
        ("", {8, 16}, False, {Code.PER_STEP}),
        ("ms", {8, 16}, True, {Code.PER_STEP}),
        ("ms", {8}, True, set()),
        ("ms/step", {8}, False, {Code.WRONG_WAY}),
        ("ms/step", {8}, True, set()),
        ("images/s", {8}, True, {Code.WRONG_WAY}),
    ],
)
def test_what_the_numbers_of_a_command_are_is_compared_with_what_is_asked(
    unit: str, batch_sizes: set[int], smaller: bool, codes: set[Code]
) -> None:
    run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,), metrics=(1520.4,), resolution=0.1, unit=unit)
    objective = Objective.MINIMIZE if smaller else Objective.MAXIMIZE
    warnings = evidence.number_warnings([Round(slices={"a": [run]})], objective, batch_sizes)
    assert {each.code for each in warnings} == codes
    labelled = replace(run, unit="", around="'train_samples_per_second': #")
    warnings = evidence.number_warnings([Round(slices={"a": [labelled]})], objective, batch_sizes)
    assert Code.PER_STEP not in {each.code for each in warnings}
    below = replace(run, unit="", unit_of_all=unit)  # in a table
    warnings = evidence.number_warnings([Round(slices={"a": [below]})], objective, batch_sizes)
    assert (Code.WRONG_WAY in {each.code for each in warnings}) is (Code.WRONG_WAY in codes)


@pytest.mark.parametrize(
    ("around", "smaller", "seen"),
    [
        ("Inference time: #", False, "stand behind 'Inference time', of which less is better; the best is a large one"),
        ("'latency': #", False, "stand behind 'latency', of which less"),
        ("Throughput: #", True, "stand behind 'Throughput', of which more is better; the best is a small one"),
        ("Inference time: #", True, ""),
        ("Throughput: #", False, ""),
        ("score: #", False, ""),
        ("Real-time streams: #", False, ""),
        ("Time steps done: #", False, ""),
        ("real images: #", False, ""),
        ("error rate: #", True, ""),
        ("real #", False, "stand behind 'real', of which less"),
        ("score: #", True, ""),
        ("time and rate: #", False, ""),
        ("score: # (Model Time Score)", False, ""),
        ("time: # (Model Rate)", False, ""),
        ("", False, ""),
    ],
)
def test_a_label_that_names_a_time_is_compared_with_what_is_asked(around: str, smaller: bool, seen: str) -> None:
    run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,), metrics=(7.69,), resolution=0.01, around=around)
    objective = Objective.MINIMIZE if smaller else Objective.MAXIMIZE
    warnings = evidence.number_warnings([Round(slices={"a": [run]})], objective, {8})
    assert [each.code for each in warnings] == [Code.WRONG_WAY] * bool(seen)
    assert not seen or seen in warnings[0].observation
    of_unit = evidence.number_warnings([Round(slices={"a": [replace(run, unit="ms")]})], Objective.MINIMIZE, {8})
    assert of_unit == []


@pytest.mark.parametrize(
    ("objective", "printed", "unit"),
    [
        (Objective.MAXIMIZE, ["img/s", "img/s"], "img/s"),
        (Objective.MINIMIZE, ["ms"], "ms"),
        (Objective.MAXIMIZE, ["", ""], "metric"),
        (Objective.MAXIMIZE, ["img/s", "ms"], "metric"),  # of two runs of a search
        (Objective.THROUGHPUT, [""], "items/s"),
    ],
)
def test_rates_of_a_command_have_the_unit_that_it_prints(objective: Objective, printed: list[str], unit: str) -> None:
    run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,), metrics=(1520.4,))
    rounds = [Round(slices={"a": [replace(run, unit=each)]}) for each in printed]
    assert evidence.unit_of(rounds, objective) == unit


@pytest.mark.parametrize(
    ("y", "reason"),
    [
        ([[0.0, 0.1]], "1 round of finals is too few to decide"),
        ([[0.0, 0.1], [0.0, 0.9]], "2 rounds of finals are too few to decide"),
        ([[0.0, 0.1], [0.0, 0.9], [0.0, -1.2], [0.0, 2.1]], "4 rounds of finals vary too much to name a speed-up"),
        ([[0.0, math.nan]], "the finals gave no result"),
    ],
)
def test_why_finals_name_no_speed_up(y: list[list[float]], reason: str) -> None:
    contenders = [
        Contender(names=(name,), setting=Setting.of({"intra_op": n}), deployment=Deployment())
        for n, name in enumerate(("tf-default", "incumbent"))
    ]
    estimates = FinalsEstimates(
        contenders=contenders,
        incumbent="incumbent",
        names=["tf-default", "incumbent"],
        y=np.array(y),
        levels={"tf-default": 0.95},
        margin=0.02,
    )
    assert why_none(estimates, "tf-default") == reason


@pytest.mark.parametrize(
    ("runs", "is_told"),
    [
        ({"a": [1, 1], "b": [2, 2]}, True),  # a number of each thread
        ({"a": [2, 2], "b": [2, 2]}, False),
        ({"a": [5, 6], "b": [9, 11]}, False),  # lines of a program that runs for a fixed time
        ({"a": [1, 1], "b": [300, 300]}, False),  # of so many some may have been left out
    ],
)
def test_settings_whose_runs_print_more_numbers_than_others_are_told(runs: dict[str, list[int]], is_told: bool) -> None:
    def slice_of(n: int) -> Slice:
        return Slice(start_s=0.0, elapsed_s=1.0, n_steps=2, step_s=(0.5, 0.5), metrics=(1520.4,) * 2 * n, unit="img/s")

    rounds = [Round(slices={name: [slice_of(n) for n in counts] for name, counts in runs.items()})]
    told = evidence.number_warnings(rounds, Objective.MAXIMIZE, {8})
    assert [each.code for each in told] == [Code.COUNTS] * is_told
    if is_told:
        assert "prints 1 numbers under one setting and 2 under another" in told[0].observation


def seen(ratio: float, se: float = 0.005) -> Estimate:
    return Estimate(mean=math.log(ratio), se=se, n=5, df=4)


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([(2, seen(1.0)), (3, seen(1.003))], "2 and 4 threads gave the same number"),
        ([(2, seen(1.0, 0.05))], "no setting changed its number"),
        ([(4, seen(1.0))], "no setting changed its number"),  # which no thread was to change
        ([], "no other setting was compared with the default"),  # all others failed
        ([(2, seen(0.75)), (3, seen(1.0))], None),
        ([(2, seen(1.015, 0.001))], "2 and 4 threads"),  # by less than matters
    ],
)
def test_a_command_whose_number_no_setting_changes_may_not_take_variables(
    others: list[tuple[int, Estimate]], text: str | None
) -> None:
    warnings = evidence.unseen_warnings(others, 4, Objective.MAXIMIZE)
    assert [text in each.observation for each in warnings if text] == [True] * bool(text)
    assert bool(warnings) is bool(text)
    assert not evidence.unseen_warnings(others, 4, Objective.THROUGHPUT)  # of which the threads are seen
    [uncertain] = evidence.unseen_warnings([(1, estimate([-0.2, -0.3]))], 1, Objective.MAXIMIZE)
    assert "its number is not certain to differ under any setting" in uncertain.observation
    # 917 us/step instead of 1 ms/step: a gain is not shown, but the setting acts.
    coarse = replace(seen(0.91, 0.001), rounding=0.4)
    assert not evidence.unseen_warnings([(1, coarse)], 4, Objective.MINIMIZE)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        # (threads, batch size): the ratio to the default, of 2 threads and batches of 8.
        ({(1, 8): 1.0, (1, 32): 1.3}, "1 and 2 threads gave the same number"),
        ({(1, 32): 1.3}, "no other setting was compared with the default at an equal batch size"),
        ({(1, 32): 1.3, (2, 32): 1.3}, "no setting changed its number at an equal batch size"),
        ({(1, 32): 1.3, (2, 32): 1.1}, None),
        ({(1, 8): 0.8, (1, 32): 1.3}, None),
        ({(2, 32): 1.3}, None),  # of which no variable was set
    ],
)
def test_a_gain_of_the_batch_size_shows_no_variables(settings: dict[tuple[int, int], float], text: str | None) -> None:
    ratios = [(Setting.of({"intra_op": threads, "batch_size": size}), r) for (threads, size), r in settings.items()]
    assert_unseen(Setting.of({"intra_op": 2, "batch_size": 8}), ratios, "{batch_size}", text)


@pytest.mark.parametrize(
    ("word", "others", "text"),
    [
        ("{intra_op}", [{"intra_op": 4}], None),  # it arrives
        (
            "{intra_op}",
            [{"intra_op": 4}, {"intra_op": 4, "inter_op": 3}],
            "no setting changed its number at equal words of the command",
        ),
        ("{intra_op}", [{"inter_op": 4}], "3 and 6 threads gave the same number"),
        ("bench", [{"intra_op": 4}], "no setting changed its number"),
        ("bench", [{"cpus": "0"}], None),  # which no variable carries
    ],
)
def test_what_arrives_among_the_words_shows_no_variables(
    word: str, others: list[dict[str, Value]], text: str | None
) -> None:
    default = Setting.of({"inter_op": 1, "intra_op": 2, "cpus": "all", "batch_size": 8})
    assert_unseen(default, [(default.with_values(**values), 1.0) for values in others], word, text)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"a": [2, 8, 10], "b": [4, 6, 12]}, "(2 to 12), as if it added to a file"),
        ({"a": [2, 2, 2], "b": [4, 6, 12]}, None),
        ({"a": [100, 101, 102]}, None),  # in a time that is fixed, on a machine that gets quieter
        ({"a": [2, 8, 6], "b": [4, 6, 12]}, None),
        ({"a": [2, 8], "b": [4, 6]}, None),
        ({"a": [0, 0, 0]}, None),  # of a model
    ],
)
def test_a_log_that_grows_from_run_to_run_is_told(counts: dict[str, list[int]], text: str | None) -> None:
    run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,))
    own = [{name: [replace(run, metrics=(1.0,) * n)] for name, n in each.items()} for each in by_round(counts)]
    told = evidence.growing_warnings([Round(slices=slices) for slices in own])
    assert [each.observation.endswith(text or "") for each in told] == [True] * bool(text)


def by_round(counts: dict[str, list[int]]) -> list[dict[str, int]]:
    """Return the counts of each round by setting."""
    return [dict(zip(counts, each, strict=True)) for each in zip(*counts.values(), strict=True)]


def assert_unseen(default: Setting, ratios: list[tuple[Setting, float]], word: str, text: str | None) -> None:
    """Check what is told of a study with these ratios to the default, whose command has a word with braces."""

    def trial(number: int, own: Setting, ratio: float) -> Trial:
        known = {"log_ratio": math.log(ratio), "se": 0.001, "df": 9.0, "covariance": {}}
        names = () if number else ("default",)
        return Trial(number=number, setting=own, status=Status.OK, baselines=names, passes=(1,), **known)

    trials = [trial(0, default, 1.0), *(trial(n, *each) for n, each in enumerate(ratios, 1))]
    stored: Any = SimpleNamespace(
        subject=SimpleNamespace(
            default="default",
            baselines={"default": SimpleNamespace(setting=default.to_dict())},
            catalogue=CATALOGUE,
        ),
        spec=WorkloadSpec(words=("bench", word), metric_regex="x"),
        objective=Objective.MAXIMIZE,
        process_sd=0.001,
    )
    warnings = document.unseen_variables(stored, trials, None)
    assert [text in each.observation for each in warnings if text] == [True] * bool(text)
    assert bool(warnings) is bool(text)


def test_a_unit_that_changes_leaves_the_digits_of_most_numbers() -> None:
    def printed(*numbers: tuple[float, float]) -> list[Slice]:
        run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,))
        return [replace(run, metrics=(value,), resolution=resolution) for value, resolution in numbers]

    # 1s, 1s, 1s and 985ms: three of them may be anything from 0.5 to 1.5 s.
    assert rounding(printed((1000.0, 1000.0), (1000.0, 1000.0), (1000.0, 1000.0), (985.0, 1.0))) > 0.3
    # 12.5, 12.4, 12 of a program that leaves zeros out.
    assert rounding(printed((12.5, 0.1), (12.0, 1.0), (11.9, 0.1))) < 0.01
    assert rounding([]) == 0.0


@pytest.mark.parametrize(
    ("values", "resolution", "unit", "around", "is_coarse"),
    [
        ((250.0, 250.0, 250.0), 0.01, "images/sec", "", True),  # 1000 in whole seconds
        ((250.0, 250.0, 250.0), 0.01, "", "Throughput: #", True),
        ((250.0, 250.0, 250.0), 0.01, "", "score: #", False),  # a cost that is computed
        ((250.0, 250.0, 250.0), 0.01, "cycles", "latency: #", False),  # so is a count
        ((250.0, 250.0), 0.01, "images/sec", "", False),
        ((250.0, 250.01, 250.0), 0.01, "images/sec", "", False),
        ((25.0, 25.0, 25.0), 0.01, "images/sec", "", False),  # whose runs may scatter by less
        ((25.0,) * 7, 0.01, "images/sec", "", False),
        ((25.0,) * 8, 0.01, "images/sec", "", True),  # but not so many
        ((25.0,) * 8 + (25.01,), 0.01, "images/sec", "", False),
        ((12.5,) * 8, 0.01, "img/s", "", True),  # 100 in 8 s
        ((12.5,) * 20, 0.1, "img/s", "", False),
        ((7.69,) * 20, 0.01, "ms", "", False),
        ((25.0,) * 8, 0.01, "cycles", "", False),
    ],
)
def test_one_number_to_many_digits_in_all_runs_is_of_a_coarse_clock(
    values: tuple[float, ...], resolution: float, unit: str, around: str, is_coarse: bool
) -> None:
    run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,), resolution=resolution, unit=unit, around=around)
    slices = [replace(run, metrics=(each,)) for each in values]
    assert (rounding(slices) > 0.4) is is_coarse
    warnings = evidence.number_warnings([Round(slices={"a": slices})], Objective.MAXIMIZE, {8})
    found = [each.observation for each in warnings if each.code is Code.FEW_DIGITS]
    printed = f"{values[0]:g} {unit}".strip()
    text = f"every run printed {printed}, as if from a time in whole seconds"
    assert [each for each in found if "every run" in each] == [text] * is_coarse


def test_numbers_that_are_far_apart_may_have_different_units() -> None:
    def slices(value: float) -> list[Slice]:
        return [Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,), metrics=(value,), resolution=0.001)]

    def codes(a: float, b: float) -> set[Code]:
        rounds = [Round(slices={"a": slices(a), "b": slices(b)})]
        return {each.code for each in evidence.number_warnings(rounds, Objective.MAXIMIZE, {1})}

    assert codes(1.1, 917.0) == {Code.FAR_APART}
    assert codes(1.1, 2.0) == set()
    [both] = slices(985.0)  # as of a pattern that matches "learning rate: 0.001", too
    rounds = [Round(slices={"a": [replace(both, metrics=(0.001, 985.0, 0.001, 990.0))]})]
    assert {each.code for each in evidence.number_warnings(rounds, Objective.MAXIMIZE, {1})} == {Code.FAR_APART}
    rounds = [Round(slices={"a": [replace(both, metrics=(0.9, 985.0, 981.0, 990.0, 989.0))]})]  # a slow start
    assert evidence.number_warnings(rounds, Objective.MAXIMIZE, {1}) == []


def test_a_pattern_of_two_figures_is_told_if_they_are_far_apart_in_all_runs_of_a_setting() -> None:
    run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,), metrics=(100.0, 33.0), unit="img/s")
    both = replace(run, figures=("train #", "eval #"))

    def told(**slices: list[Slice]) -> list[str]:
        warnings = evidence.number_warnings([Round(slices=dict(slices))], Objective.MAXIMIZE, {1})
        assert {each.code for each in warnings} <= {Code.TWO_FIGURES}
        return [each.observation for each in warnings]

    assert told(a=[run, run], b=[both, both]) == [
        "the pattern matches 'train #' and 'eval #', which are far apart, and only their median is used"
    ]
    assert not told(a=[run, both], b=[run])
    assert not told(a=[both, replace(both, figures=("tmpx #", "eval #"))])
    assert convert(to_plain(both), Slice).figures == both.figures


def test_words_that_change_beside_numbers_without_a_unit_are_told() -> None:
    run = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,), metrics=(985.0,), resolution=0.1)

    def told(*words: str) -> list[str]:
        slices = {str(n): [replace(run, around=each)] for n, each in enumerate(words)}
        warnings = evidence.number_warnings([Round(slices=slices)], Objective.MAXIMIZE, {1})
        return [each.observation for each in warnings if each.code is Code.OTHER_WORDS]

    assert told("XLA on: #", "XLA off: #") == [
        "numbers stand in 'XLA off: #' under one setting and in 'XLA on: #' under another"
    ]
    assert not told("rate: #", "rate: #")
    assert not told("rate: #", "")  # of an earlier version
    assert convert(to_plain(replace(run, around="rate: #")), Slice).around == "rate: #"


def test_of_a_very_wide_interval_no_figure_between_its_ends_is_named() -> None:
    verdict = VerdictResult(speedup=44.68, low=4.10, high=487.36, code=VerdictCode.BETTER)
    assert speed_up(verdict) == "4.10× to 487.36×"
    narrower = VerdictResult(speedup=2.0, low=1.1, high=3.7, code=VerdictCode.BETTER)
    assert speed_up(narrower) == "2.00× [1.10, 3.70]"
