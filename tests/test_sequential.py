"""Looking many times: group-sequential levels against published tables and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tuner.stats.estimate import estimate
from tuner.stats.noise import Noise
from tuner.stats.sequential import AlphaSpending, nominal_levels


def bounds(fractions: list[float], *, alpha: float, rho: float) -> list[float]:
    """Return the z_k of the levels."""
    return [float(stats.norm.isf(level / 2)) for level in nominal_levels(fractions, alpha=alpha, rho=rho)]


def test_one_look_is_the_ordinary_test() -> None:
    assert nominal_levels([1.0], alpha=0.05, rho=2.0) == pytest.approx([0.05])


@pytest.mark.parametrize("rho", [1.0, 2.0, 3.0])
def test_the_error_spent_is_the_error_made(rho: float) -> None:
    """400,000 Brownian paths leave at each look as often as the plan says, within four standard errors."""
    fractions, alpha, n = [0.25, 0.5, 0.6, 1.0], 0.05, 400_000
    z = np.array(bounds(fractions, alpha=alpha, rho=rho))
    rng = np.random.default_rng(0)
    steps = rng.standard_normal((n, 4)) * np.sqrt(np.diff([0.0, *fractions]))
    outside = np.abs(np.cumsum(steps, axis=1) / np.sqrt(fractions)) >= z
    first = np.where(outside.any(axis=1), outside.argmax(axis=1), 9)
    spent = np.diff([0.0, *(alpha * t**rho for t in fractions)])
    for look, share in enumerate(spent):
        assert (first == look).mean() == pytest.approx(share, abs=4 * np.sqrt(share / n))


def test_pocock_and_obrien_fleming_are_found_again() -> None:
    """Boundaries of Pocock (1977) and O'Brien & Fleming (1979) for five looks, spent as they spend, come back."""
    fractions = [0.2, 0.4, 0.6, 0.8, 1.0]
    rng = np.random.default_rng(1)
    paths = np.cumsum(rng.standard_normal((400_000, 5)) * np.sqrt(0.2), axis=1) / np.sqrt(fractions)
    assert (np.abs(paths) >= 2.413).any(axis=1).mean() == pytest.approx(0.05, abs=0.0015)
    # α t^ρ with the ρ that starts as Pocock's does stays near Pocock's constant 2.413.
    rho = np.log(2 * stats.norm.sf(2.413) / 0.05) / np.log(0.2)
    assert bounds(fractions, alpha=0.05, rho=float(rho)) == pytest.approx([2.413] * 5, abs=0.12)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6, unique=True), st.floats(1.0, 3.0))
def test_levels_are_smaller_than_the_whole_error(looks: list[int], rho: float) -> None:
    levels = nominal_levels([n / 20 for n in sorted(looks)], alpha=0.05, rho=rho)
    assert all(0 < level <= 0.05 + 1e-9 for level in levels)


@pytest.mark.parametrize("fractions", [[0.5, 0.5], [0.6, 0.4], [0.0, 1.0], [0.5, 1.2]])
def test_looks_that_cannot_be(fractions: list[float]) -> None:
    with pytest.raises(ValueError, match="expected increasing"):
        nominal_levels(fractions, alpha=0.05, rho=2.0)


def test_the_last_look_spends_all_that_is_left() -> None:
    looks = AlphaSpending(first_look=3, planned_looks=12)
    assert looks.level(3) > looks.level(5) > 0.95
    assert looks.level(5) > looks.level(5, last=True) >= 0.95
    assert looks.level(3, last=True) == pytest.approx(0.95)
    assert looks.level(12) == looks.level(12, last=True)


def test_looking_after_each_round_is_not_wrong_more_often() -> None:
    """Students' intervals of normal data, looked at after 3 to 10 rounds, leave out the truth in 5 % at most.

    At the error that finals of two contenders spend; at 5 % it would be nearly 6.
    """
    rng, n, wrong, naive = np.random.default_rng(2), 3000, 0, 0
    looks = AlphaSpending(first_look=3, planned_looks=10, alpha=0.042)
    levels = {k: looks.level(k) for k in range(3, 11)}
    for x in rng.standard_normal((n, 10)):
        estimates = [estimate(x[:k]) for k in range(3, 11)]
        wrong += any(not low <= 1 <= high for low, high in (f.interval(levels[f.n]) for f in estimates))
        naive += any(not low <= 1 <= high for low, high in (f.interval() for f in estimates))
    assert wrong / n <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n)
    assert naive / n > 0.10


@pytest.mark.parametrize("noisier", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("rounds", [2, 5, 12])
def test_moderated_intervals_cover_an_incumbent_whose_processes_differ_more_than_the_noise_says(
    rounds: int, noisier: float
) -> None:
    """All intervals of the looks from the second round on hold the truth in 94 % of 4,000 made finals at least.

    What slices scatter by the passes of the rounds show themselves, so that they do not scatter here.
    """
    noise = Noise(block_sd=0.0, process_sd=0.01, drift=0.0, n_pairs=1, n_blocks=4)
    prior = noise.round_prior(slices=4, df=9.0)
    rng, n = np.random.default_rng(3), 4000
    x = 0.01 * (noisier * rng.standard_normal((n, rounds)) - rng.standard_normal((n, rounds)))
    looks = AlphaSpending(first_look=2, planned_looks=rounds, alpha=0.85 * 0.05, rho=2.0)
    outside = np.zeros(n, dtype=bool)
    for k in range(2, rounds + 1):
        half = np.array([prior.moderate(estimate(each[:k])).half_width(looks.level(k)) for each in x])
        outside |= np.abs(x[:, :k].mean(axis=1)) > half
    assert 1 - outside.mean() >= 0.94
