"""Each statistic against SciPy or against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tuner.measure import dunnett
from tuner.measure.statistics import Estimate, block_error, contrast, estimate, moderated, pooled_sd, unpaired

SAMPLES = st.lists(st.floats(-1, 1), min_size=3, max_size=20).filter(lambda x: np.std(x) > 1e-6)


@given(SAMPLES)
def test_estimate_is_students(x: list[float]) -> None:
    found = estimate(x)
    low, high = stats.t.interval(0.95, len(x) - 1, loc=np.mean(x), scale=stats.sem(x))
    assert found.mean == pytest.approx(np.mean(x))
    assert found.se == pytest.approx(stats.sem(x))
    assert found.interval() == pytest.approx((math.exp(low), math.exp(high)))


def test_one_value_has_no_interval() -> None:
    assert estimate([0.1]).interval() == (0.0, math.inf)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


@given(SAMPLES, SAMPLES)
def test_unpaired_is_welchs(a: list[float], b: list[float]) -> None:
    found, oracle = unpaired(a, b), stats.ttest_ind(b, a, equal_var=False)
    assert found.mean / found.se == pytest.approx(oracle.statistic)
    assert found.df == pytest.approx(oracle.df)


@given(SAMPLES)
def test_moderation_without_a_prior_is_the_textbook(x: list[float]) -> None:
    assert moderated(x, prior_sd=1.0, prior_df=0.0).se == pytest.approx(estimate(x).se)


def test_moderation_keeps_two_values_from_being_sure() -> None:
    found = moderated([0.1, 0.1], prior_sd=0.02, prior_df=4)
    assert found.se == pytest.approx(math.sqrt(4 * 0.02**2 / 5 / 2))
    assert found.df == 5


def test_what_quads_do_not_show_has_to_be_added_for_an_interval_to_cover() -> None:
    rng, sd, luck = np.random.default_rng(3), 0.02, 0.02
    covered = np.zeros(2)
    for _ in range(2000):
        apart = luck * (rng.normal() - rng.normal())
        found = moderated(rng.normal(apart, sd, 4), prior_sd=sd, prior_df=4)
        for i, told in enumerate((found, found.widened(math.sqrt(2) * luck))):
            low, high = told.interval()
            covered[i] += low <= 1 <= high
    assert covered[0] / 2000 < 0.75
    assert 0.94 <= covered[1] / 2000 <= 0.99


def test_pooling_weighs_by_degrees_of_freedom() -> None:
    assert pooled_sd([[0.0, 2.0], [1.0], [0.0, 0.0, 3.0]], prior_sd=0, prior_df=0) == pytest.approx(
        math.sqrt((2.0 + 6.0) / 3)
    )


@given(SAMPLES, st.integers(0, 2**31))
def test_two_contenders_are_the_paired_t_test(x: list[float], seed: int) -> None:
    y = np.column_stack([x, np.asarray(x) + np.random.default_rng(seed).normal(0, 0.1, len(x))])
    found, oracle = contrast(y, 0, 1), stats.ttest_rel(y[:, 1], y[:, 0])
    assert found.mean / found.se == pytest.approx(oracle.statistic, rel=1e-6)
    assert found.df == oracle.df


def test_the_block_design_ignores_a_rounds_weather() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(0, 0.01, (5, 4))
    assert block_error(y + rng.normal(0, 1, (5, 1)))[0] == pytest.approx(block_error(y)[0])


def test_the_block_design_covers() -> None:
    """Its 95 % interval holds the truth in 95 % of 4,000 made finals, within three standard errors."""
    rng = np.random.default_rng(2)
    truth, hits, n = 0.03, 0, 4000
    for _ in range(n):
        y = rng.normal(0, 0.05, (4, 1)) + rng.normal(0, 0.01, (4, 5)) + np.array([0, 0, 0, 0, truth])
        low, high = contrast(y, 0, 4).interval()
        hits += low <= math.exp(truth) <= high
    assert hits / n == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / n))


def test_one_round_decides_nothing() -> None:
    assert contrast(np.zeros((1, 3)), 0, 1).interval() == (0.0, math.inf)


def test_an_interval_of_nonsense_is_finite_or_infinite_but_never_an_error() -> None:
    assert Estimate(mean=0.0, se=1e6, n=2, df=1).interval()[1] > 1e300


@pytest.mark.parametrize(
    ("m", "df", "c"),
    [(2, 10, 2.57), (3, 10, 2.76), (4, 10, 2.89), (2, 1e6, 2.21), (3, 1e6, 2.35), (4, 1e6, 2.44), (5, 1e6, 2.51)],
)
def test_dunnetts_table(m: int, df: float, c: float) -> None:
    """Two-sided 5 %: Dunnett (1964), New tables for multiple comparisons with a control, Biometrics 20."""
    assert dunnett.quantile(0.95, m, df) == pytest.approx(c, abs=0.006)


@pytest.mark.parametrize(("level", "m", "df"), [(0.95, 3, 4), (0.99, 2, 8), (0.995, 5, 12)])
def test_dunnetts_quantile_is_that_of_the_multivariate_t(level: float, m: int, df: int) -> None:
    c = dunnett.quantile(level, m, df)
    shape = np.full((m, m), 0.5) + 0.5 * np.eye(m)
    t = stats.multivariate_t(shape=shape, df=df, seed=0)
    inside = t.cdf(np.full(m, c), lower_limit=np.full(m, -c), maxpts=200_000)
    assert inside == pytest.approx(level, abs=3e-4)


def test_one_comparison_is_students() -> None:
    assert dunnett.quantile(0.95, 1, 7) == pytest.approx(stats.t.ppf(0.975, 7))


def test_intervals_of_several_comparisons_hold_together() -> None:
    """All of 4 intervals to one winner hold in 95 % of 3,000 made finals, also where one contender is noisier."""
    rng, n = np.random.default_rng(3), 3000
    for noisier in (1.0, 3.0):
        hits = 0
        for _ in range(n):
            y = rng.normal(0, 0.05, (5, 1)) + rng.normal(0, 0.01, (5, 5)) * np.array([1, 1, 1, 1, noisier])
            each = [contrast(y, j, 0).interval(m=4) for j in range(1, 5)]
            hits += all(low <= 1 <= high for low, high in each)
        assert hits / n >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / n) - (0.02 if noisier > 1 else 0)
