"""The simulation on recorded traces, in small; `python -m tests.benchmarks.simulation` is the whole of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.benchmarks.replay import ReplayLauncher, load
from tests.benchmarks.simulation import DEFAULT, ITEMS_S, TRACES, coverage, finals_study
from tuner.space.deployment import Deployment
from tuner.stats.equivalence import VerdictCode


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_taken_apart_and_put_together_again(name: str) -> None:
    trace = load(name)
    assert len(trace.w) >= 500
    assert len(trace.process_effects) >= 50
    assert abs(trace.w.mean()) < 1e-9
    rng = np.random.default_rng(0)
    launcher = ReplayLauncher(trace, lambda _: ITEMS_S, rng)
    rates = []
    for _ in range(200):
        process = launcher.launch(DEFAULT, Deployment())
        rates += [math.log(s.n_steps * 8 / s.elapsed_s / ITEMS_S) for s in (process.slice(0.6) for _ in range(25))]
        process.close()
    assert np.std(rates) == pytest.approx(math.hypot(trace.w.std(), trace.process_effects.std()), rel=0.2)
    lag = np.corrcoef(rates[:-1], rates[1:])[0, 1]
    assert lag == pytest.approx(np.corrcoef(trace.w[:-1], trace.w[1:])[0, 1], abs=0.15)


def test_equal_settings_seldom_win_and_real_gains_are_found() -> None:
    n = 60
    equal = [finals_study(TRACES[0], (0.0,) * 4, 0.0, seed) for seed in range(n)]
    assert sum(outcome.claims for outcome in equal) <= 0.05 * n
    assert sum(outcome.words["tf-default"] is VerdictCode.NO_DIFFERENCE for outcome in equal) >= 0.85 * n
    faster = [finals_study(TRACES[0], (0.05, 0.0, 0.0, 0.0), 0.0, seed) for seed in range(n)]
    assert sum(outcome.words["tf-default"] is VerdictCode.BETTER for outcome in faster) >= 0.95 * n


@pytest.mark.parametrize("noisier", [1.0, 3.0])
def test_intervals_cover_with_their_looks(noisier: float) -> None:
    n = 400
    missed = sum(coverage(2, 8, noisier, seed)[0] for seed in range(n))
    assert missed / n == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / n))
