"""Each statistic against SciPy or against its definition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tuner.stats.equivalence import VerdictCode, verdict_on
from tuner.stats.estimate import Estimate, estimate, p_of_equal_means, paired, rounding_error, unpaired
from tuner.stats.moderation import Prior, half_widths, moderated_estimate
from tuner.stats.pooling import pool

SAMPLES = st.lists(st.floats(-1, 1), min_size=3, max_size=20).filter(lambda x: np.std(x) > 1e-6)


@given(SAMPLES)
def test_estimate_is_students(x: list[float]) -> None:
    mean = estimate(x)
    low, high = stats.t.interval(0.95, len(x) - 1, loc=np.mean(x), scale=stats.sem(x))
    assert mean.mean == pytest.approx(np.mean(x))
    assert mean.se == pytest.approx(stats.sem(x))
    assert mean.interval() == pytest.approx((math.exp(low), math.exp(high)))


@pytest.mark.parametrize(
    ("values", "resolution", "error"),
    [
        ([3, 3, 3], 1.0, math.log(3.5 / 3)),
        ([3, 3, 4, 3], 1.0, math.log1p(0.5 / 3.25)),  # rounding alone may make this of 3.5
        ([1520.3, 1520.4, 1520.3], 0.1, math.log1p(0.05 / 1520.33333)),
        ([45, 47, 49, 46, 48, 50, 44, 47], 1.0, 0.0),  # scatter over several steps makes up for it
        ([3, 3], 0.0, 0.0),
        ([], 1.0, 0.0),
    ],
)
def test_what_rounding_may_have_shifted_a_mean_by(values: list[float], resolution: float, error: float) -> None:
    assert rounding_error(values, resolution) == pytest.approx(error, abs=1e-9)


@pytest.mark.parametrize("scatter", [0.0, 0.1, 0.25, 0.4, 0.7, 1.5])
def test_the_mean_of_rounded_values_is_no_further_off(scatter: float) -> None:
    """Of 400 values at any place between two steps: what their mean is off by, but for what they scatter by."""
    rng = np.random.default_rng(0)
    for true in np.linspace(10, 11, 21):
        rounded = np.round(true + scatter * rng.standard_normal(400))
        chance = 3 * max(scatter, 1e-9) / math.sqrt(400) / true
        assert abs(math.log(rounded.mean() / true)) <= rounding_error(rounded, 1.0) + chance + 0.003


def test_rounding_widens_an_interval_that_has_no_width() -> None:
    equal = Estimate(mean=0.0, se=0.0, n=5, df=4, rounding=0.2)
    assert equal.interval() == pytest.approx((math.exp(-0.2), math.exp(0.2)))
    assert verdict_on(equal).code is VerdictCode.UNDECIDED
    assert verdict_on(replace(equal, rounding=0.001)).code is VerdictCode.NO_DIFFERENCE
    assert equal.minus(equal).rounding == pytest.approx(0.4)
    assert pool([equal, equal]).rounding == 0.2  # which no number of sessions reduces


def test_one_value_has_no_interval() -> None:
    assert estimate([0.1]).interval() == (0.0, math.inf)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


@given(SAMPLES, SAMPLES)
def test_unpaired_is_welchs(a: list[float], b: list[float]) -> None:
    difference, oracle = unpaired(a, b), stats.ttest_ind(b, a, equal_var=False)
    assert difference.mean / difference.se == pytest.approx(oracle.statistic)
    assert difference.df == pytest.approx(oracle.df)


@given(SAMPLES, SAMPLES)
def test_equal_means_are_asked_of_as_by_student(a: list[float], b: list[float]) -> None:
    assert p_of_equal_means(np.array(a), np.array(b)) == pytest.approx(stats.ttest_ind(a, b).pvalue, abs=1e-9)


@given(SAMPLES)
def test_moderation_without_a_prior_is_the_textbook(x: list[float]) -> None:
    assert moderated_estimate(x, prior_sd=1.0, prior_df=0.0).se == pytest.approx(estimate(x).se)


def test_a_variance_that_is_small_by_chance_ends_no_series() -> None:
    rng = np.random.default_rng(1)
    x = np.column_stack([np.zeros(8), rng.normal(0, 0.04, (8, 4))])
    x[:, 4] = np.tile([0.01, -0.01], 4)
    own = stats.t.ppf(0.975, 7) * x.std(axis=0, ddof=1) / math.sqrt(8)
    widths = half_widths(x)
    assert widths[0] == 0  # the first, to itself
    assert (widths[1:] >= own[1:] * (1 - 1e-9)).all()
    assert widths[4] > 1.3 * own[4]
    assert half_widths(np.array([[0.0, 0.1]]))[1] == math.inf


def test_one_that_scatters_does_not_keep_the_others_in_the_finals() -> None:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.zeros(8), rng.normal(0, [0.01, 0.01, 0.01, 0.1], (8, 4))])
    own = stats.t.ppf(0.975, 7) * x.std(axis=0, ddof=1) / math.sqrt(8)
    assert half_widths(x)[1:4] == pytest.approx(own[1:4], rel=0.5)


def test_moderation_keeps_two_values_from_being_sure() -> None:
    mean = moderated_estimate([0.1, 0.1], prior_sd=0.02, prior_df=4)
    assert mean.se == pytest.approx(math.sqrt(4 * 0.02**2 / 5 / 2))
    assert mean.df == 5


@given(SAMPLES, st.floats(0.001, 1), st.floats(0.5, 9))
def test_a_moderated_estimate_is_smyths(x: list[float], sd: float, df: float) -> None:
    mean, d = Prior(sd=sd, df=df).moderate(estimate(x)), len(x) - 1
    variance = (df * sd**2 + d * np.var(x, ddof=1)) / (df + d)
    assert (mean.mean, mean.n, mean.df) == (estimate(x).mean, len(x), df + d)
    assert mean.se == pytest.approx(math.sqrt(variance / len(x)))
    assert Prior(sd=sd, df=df).moderate(estimate([0.1])).se == pytest.approx(sd)


def test_what_blocks_do_not_show_has_to_be_added_for_an_interval_to_cover() -> None:
    rng, sd, process_sd = np.random.default_rng(3), 0.02, 0.02
    covered = np.zeros(2)
    for _ in range(2000):
        apart = process_sd * (rng.normal() - rng.normal())
        mean = moderated_estimate(rng.normal(apart, sd, 4), prior_sd=sd, prior_df=4)
        for i, estimate_ in enumerate((mean, mean.widened(math.sqrt(2) * process_sd))):
            low, high = estimate_.interval()
            covered[i] += low <= 1 <= high
    assert covered[0] / 2000 < 0.75
    assert 0.94 <= covered[1] / 2000 <= 0.99


@given(SAMPLES, st.integers(0, 2**31))
def test_a_comparison_is_the_paired_t_test(x: list[float], seed: int) -> None:
    y = np.column_stack([x, np.asarray(x) + np.random.default_rng(seed).normal(0, 0.1, len(x))])
    difference, oracle = paired(y, 0, 1), stats.ttest_rel(y[:, 1], y[:, 0])
    assert difference.mean / difference.se == pytest.approx(oracle.statistic, rel=1e-6)
    assert difference.df == oracle.df


def test_rounds_in_which_one_did_not_run_tell_nothing_of_the_two() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(0, 0.01, (6, 3))
    holes = y.copy()
    holes[1, 0] = holes[4, 2] = np.nan
    assert paired(holes, 0, 2) == estimate((y[:, 2] - y[:, 0])[[0, 2, 3, 5]])
    assert paired(y + rng.normal(0, 1, (6, 1)), 0, 2).mean == pytest.approx(paired(y, 0, 2).mean)
    with pytest.raises(ValueError, match="no values"):
        paired(np.full((3, 2), np.nan), 0, 1)


@pytest.mark.parametrize("noisier", [1.0, 3.0])
@pytest.mark.parametrize("rounds", [2, 4, 12])
def test_the_interval_covers_whoever_is_noisy(rounds: int, noisier: float) -> None:
    """It holds the truth in 95 % of 4,000 made finals, within three standard errors, a noisy incumbent's too."""
    rng, truth, n = np.random.default_rng(2), 0.03, 4000
    hits = 0
    for _ in range(n):
        y = rng.normal(0, 0.05, (rounds, 1)) + rng.normal(0, 0.01, (rounds, 3)) * np.array([1, 1, noisier])
        low, high = paired(y + np.array([0, 0, truth]), 0, 2).interval()
        hits += low <= math.exp(truth) <= high
    assert hits / n == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / n))


def test_one_round_decides_nothing() -> None:
    assert paired(np.zeros((1, 3)), 0, 1).interval() == (0.0, math.inf)


def test_an_interval_of_nonsense_is_finite_or_infinite_but_never_an_error() -> None:
    assert Estimate(mean=0.0, se=1e6, n=2, df=1).interval()[1] > 1e300
