"""The noise floor and steady state: what is put into made pairs comes out again."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.conftest import QUIET, setting
from tests.schemas import validator
from tests.scripted_launcher import ScriptedLauncher
from tuner.job.calibration import noise_report
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, estimate_noise, process_sds, run_pair, slice_sd
from tuner.measure.passes import Live
from tuner.measure.warning import Code
from tuner.report.terminal import noise_text
from tuner.result import evidence
from tuner.space.deployment import Deployment
from tuner.stats.noise import MIN_PROCESS_SD, PRIOR_BLOCK_SD, PRIOR_NOISE, PRIOR_PROCESS_SD, Noise, log_ratio_of_rounds
from tuner.stats.steady import first_block_deviates, has_trend
from tuner.study.attributes import Attributes, stored_noise

A = setting(inter_op=2, intra_op=2, batch_size=8)


def pairs(n: int, n_blocks: int, **noise: float) -> list[Pair]:
    """Return pairs of fresh scripted processes of one setting."""
    launcher = ScriptedLauncher(rate=lambda _: 20.0, **noise)
    rng = np.random.default_rng(0)
    return [run_pair(*both(launcher), enough=lambda _: False, max_passes=n_blocks, rng=rng) for _ in range(n)]


def both(launcher: ScriptedLauncher) -> list[Live]:
    """Return two new processes of one setting."""
    return [Live(process=launcher.launch(A, Deployment()), usual_s=[0.4]) for _ in range(2)]


def test_the_spreads_are_found_again() -> None:
    noise = estimate_noise(pairs(150, 6, noise=0.015, process_noise=0.01), Objective.THROUGHPUT, batch_size=8)
    assert noise.block_sd == pytest.approx(0.015, rel=0.06)
    assert noise.process_sd == pytest.approx(0.01, rel=0.15)
    assert (noise.n_pairs, noise.n_blocks) == (150, 900)


def test_drift_is_in_the_slices_and_not_in_the_blocks() -> None:
    drifting = pairs(20, 6, drift=0.1, drift_period_s=90.0)
    noise = estimate_noise(drifting, Objective.THROUGHPUT, batch_size=8)
    assert noise.drift == pytest.approx(0.1 / math.sqrt(2), rel=0.2)
    assert slice_sd(drifting, Objective.THROUGHPUT, batch_size=8) > 2 * noise.block_sd


def test_little_data_does_not_move_the_prior_far() -> None:
    noise = estimate_noise(pairs(1, 2), Objective.THROUGHPUT, batch_size=8)
    assert noise.block_sd == pytest.approx(PRIOR_BLOCK_SD * math.sqrt(4 / 5))
    assert 0.0 < noise.process_sd <= PRIOR_PROCESS_SD
    with pytest.raises(ValueError, match="no calibration pair"):
        estimate_noise([Pair()], Objective.THROUGHPUT, batch_size=8)


def test_the_spread_of_processes_is_known_better_from_many_studies() -> None:
    measured = pairs(120, 2, noise=0.015, process_noise=0.05)
    alone = [estimate_noise(measured[i : i + 3], Objective.THROUGHPUT, batch_size=8) for i in range(0, 120, 3)]
    pooled_sds = process_sds([measured[i : i + 3] for i in range(0, 120, 3)], Objective.THROUGHPUT)
    assert min(each.process_sd for each in alone) < 0.015  # some look as if processes were alike
    assert min(pooled_sds) > 0.03
    assert max(pooled_sds) < 0.08
    assert np.mean(pooled_sds) == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize(("noise", "process_sd", "within"), [(0.08, 0.0, 0.02), (0.005, 0.01, 0.0015)])
def test_the_noise_of_blocks_is_not_taken_for_the_spread_of_processes(
    noise: float, process_sd: float, within: float
) -> None:
    """Far more and far less than the prior has it; of the first, 300 pairs cannot tell a small effect from none."""
    measured = pairs(300, 2, noise=noise, process_noise=process_sd)
    pooled_sds = process_sds([measured[i : i + 3] for i in range(0, 300, 3)], Objective.THROUGHPUT)
    assert np.median(pooled_sds) == pytest.approx(process_sd, abs=within)


def test_studies_with_one_block_a_pair_learn_what_blocks_scatter_by_from_others() -> None:
    many, few = pairs(90, 4, noise=0.04), pairs(90, 1, noise=0.04)
    groups = [each[i : i + 3] for each in (many, few) for i in range(0, 90, 3)]
    sds = process_sds([*groups, []], Objective.THROUGHPUT)
    assert np.median(sds[30:60]) < 0.01
    assert sds[60] < 0.01


def test_the_standard_error_of_finals_is_what_made_finals_scatter_by() -> None:
    noise = Noise(block_sd=0.02, process_sd=0.01, drift=0.0, n_pairs=9, n_blocks=50)
    rng = np.random.default_rng(0)
    process_sd, slices = rng.normal(0, 0.01, (20_000, 5, 2)), rng.normal(0, 0.02, (20_000, 5, 2, 4))
    means = (process_sd + slices.mean(axis=-1)).mean(axis=1)
    assert (means[:, 1] - means[:, 0]).std() == pytest.approx(noise.finals_se(rounds=5, slices=4), rel=0.02)


def test_more_rounds_find_smaller_gains() -> None:
    floors = [PRIOR_NOISE.floor(rounds=r, slices=2) for r in (3, 5, 12)]
    assert floors == sorted(floors, reverse=True)
    few, many = (PRIOR_NOISE.detectable_gain(rounds=r, slices=2, margin=0.02) for r in (5, 12))
    assert few > many > 0.02
    assert PRIOR_NOISE.detectable_gain(rounds=5, slices=2, margin=0.2) > 0.2
    assert PRIOR_NOISE.floor(rounds=5, slices=2) < few


def test_finals_are_planned_with_the_interval_that_they_will_have() -> None:
    noise = Noise(block_sd=0.02, process_sd=0.01, drift=0.0, n_pairs=1, n_blocks=4)
    rng = np.random.default_rng(0)
    for rounds in (2, 4, 10):
        luck = rng.normal(0, 0.01 * np.sqrt(2), (2000, rounds, 1))
        passes = luck + rng.normal(0, 0.02, (2000, rounds, 2))
        widths = [log_ratio_of_rounds(list(of_finals), noise).half_width() for of_finals in passes]
        planned = noise.half_width(rounds=rounds, slices=4)
        assert planned == pytest.approx(np.sqrt(np.mean(np.square(widths))), rel=0.07)
    assert noise.half_width(rounds=2, slices=8) < 0.6 * noise.half_width(rounds=2, slices=2)  # one pass tells nothing


def test_noise_that_rests_on_little_says_so() -> None:
    few, many = (estimate_noise(pairs(2, n, noise=0.015), Objective.THROUGHPUT, batch_size=8) for n in (1, 6))
    assert few.is_mostly_prior
    assert not many.is_mostly_prior
    assert PRIOR_NOISE.is_mostly_prior
    assert {w.code for w in evidence.noise_warnings(few, 0.018)} == {Code.ASSUMED_NOISE}
    assert {w.code for w in evidence.noise_warnings(many, 0.03)} == {Code.NOISY}
    hidden = evidence.noise_result(replace(many, process_sd=MIN_PROCESS_SD), 0.03)
    assert "too small to measure between processes" in noise_text(hidden)
    assert "mostly assumed: only 2 blocks" in noise_text(evidence.noise_result(few, 0.02))


def test_pairs_that_all_grow_slower_are_not_steady() -> None:
    def creeping(fall: float) -> list[Pair]:
        measured = []
        for _ in range(3):
            launcher = ScriptedLauncher(rate=lambda _: 20.0 * math.exp(-fall * launcher.now()))  # noqa: B023
            measured.append(run_pair(*both(launcher), enough=lambda _: False, max_passes=4))
        return measured

    assert [w.code for w in evidence.pair_warnings(creeping(0.02))] == [Code.NOT_STEADY]
    assert evidence.pair_warnings(creeping(0.0)) == []
    assert not has_trend([-0.2])
    assert not has_trend([-0.2, 0.1])


def test_the_document_of_a_machine_s_noise_keeps_the_contract() -> None:
    measured = pairs(3, 4, noise=0.03)
    report = noise_report(measured, Objective.THROUGHPUT, batch_size=8, conditions=QUIET)
    assert (report.noise.n_pairs, len(report.pairs)) == (3, 3)
    validator("noise").validate(json.loads(msgspec.json.encode(report)))


def test_noise_is_stored_and_read() -> None:
    assert Attributes("made", {"noise": stored_noise(PRIOR_NOISE)}).noise == PRIOR_NOISE
    assert Attributes.noise is vars(Attributes)["noise"]  # as tools that look at classes ask for it


@pytest.mark.parametrize(
    ("x", "restless"),
    [
        ([0.5], False),
        ([0.0, 0.01, -0.01], False),
        ([-0.2, 0.0, 0.01, -0.01], True),
        ([0.04, 0.0, 0.0], False),  # less than what matters
        ([0.2, 0.0], True),
    ],
)
def test_a_first_block_apart_from_the_others_is_not_steady(x: list[float], restless: bool) -> None:
    assert first_block_deviates(x, 0.01) is restless
    assert not first_block_deviates(x, 0.2)  # nothing stands out of so much noise
