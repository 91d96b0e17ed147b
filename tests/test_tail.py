"""Tail latency and limits: where samples are too few, nothing is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from scipy import stats

from tuner.errors import BadInputError
from tuner.job.parsed import parse_size
from tuner.measure.constraint import Limits
from tuner.plain import to_plain
from tuner.quantity import ms_text
from tuner.stats.tail import LimitStatus, p99_within, quantiles, samples_needed


@pytest.mark.parametrize(("p", "n"), [(0.5, 11), (0.9, 64), (0.99, 662)])
def test_how_many_samples_a_quantile_needs(p: float, n: int) -> None:
    assert samples_needed(p) == n
    assert stats.binom.cdf(1, n, 1 - p) <= 0.01 < stats.binom.cdf(1, n - 1, 1 - p)


def test_quantiles_are_shown_from_then_on() -> None:
    steps = np.random.default_rng(0).gamma(4.0, 0.01, 700)
    percentiles = quantiles(steps)
    assert percentiles["p99"] == pytest.approx(np.percentile(steps, 99))
    assert quantiles(steps[:661])["p99"] is None
    assert quantiles(steps[:64])["p90"] == pytest.approx(np.percentile(steps[:64], 90))
    assert quantiles(steps[:63]) == {"p50": pytest.approx(np.median(steps[:63])), "p90": None, "p99": None}
    assert quantiles([]) == {"p50": None, "p90": None, "p99": None}


@given(st.integers(1, 2000), st.integers(0, 60))
def test_the_share_of_long_steps_is_clopper_and_pearsons(n: int, k: int) -> None:
    k = min(k, n)
    steps = [2.0] * k + [1.0] * (n - k)
    low = stats.binomtest(k, n).proportion_ci(0.90).low
    high = stats.binomtest(k, n).proportion_ci(0.90).high
    expected = LimitStatus.BROKEN if low > 0.01 else LimitStatus.MET if high <= 0.01 else LimitStatus.UNKNOWN
    assert p99_within(steps, 1.5) is expected


def test_a_limit_on_p99_needs_steps_enough() -> None:
    assert p99_within([1.0] * 298, 1.5) is LimitStatus.UNKNOWN
    assert p99_within([1.0] * 299, 1.5) is LimitStatus.MET
    assert p99_within([2.0], 1.5) is LimitStatus.BROKEN  # one step of one, where one in a hundred is allowed
    assert p99_within([], 1.5) is LimitStatus.UNKNOWN


def test_limits() -> None:
    both = Limits(p99_s=0.1, memory_bytes=1000)
    assert both.status([0.05] * 400, 900) is LimitStatus.MET
    assert both.status([0.05] * 400, 1001) is LimitStatus.BROKEN
    assert both.status([0.05] * 40, 900) is LimitStatus.UNKNOWN
    assert both.status([0.05] * 400, None) is LimitStatus.UNKNOWN
    assert both.excess([0.2] * 10, 500) == pytest.approx([math.log(2), math.log(0.5)])
    assert not Limits()
    assert Limits().status([], None) is LimitStatus.MET
    assert convert(to_plain(both), Limits) == both


@pytest.mark.parametrize(
    ("text", "n"), [("2GiB", 2 << 30), ("1.5g", 3 << 29), ("800 MiB", 800 << 20), ("1GB", 10**9), ("64K", 65536)]
)
def test_sizes(text: str, n: int) -> None:
    assert parse_size(text) == n


@pytest.mark.parametrize("text", ["", "2", "GiB", "-1G", "0G", "2 XB", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadInputError, match="--max-memory"):
        parse_size(text)


def test_a_step_time_has_three_digits_and_no_exponent() -> None:
    assert [ms_text(ms) for ms in (None, 1384.2, 180.4, 12.34, 0.01234)] == ["—", "1384", "180", "12.3", "0.0123"]
