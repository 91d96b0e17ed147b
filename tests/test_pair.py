"""Pairs: passes of two live processes, on a scripted machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from msgspec import convert

from tests.conftest import setting
from tests.scripted_launcher import ScriptedLauncher
from tuner.measure import passes
from tuner.measure.interruption import Interruption, Kind
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair, ReferenceLost, log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.plain import to_plain
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.estimate import Array, estimate, unpaired
from tuner.trial.launcher import Process
from tuner.trial.outcome import Slice, Status, TrialFailure

A = setting(inter_op=2, intra_op=2, batch_size=8)
B = setting(inter_op=1, intra_op=2, batch_size=8)
RATES = {A: 20.0, B: 22.0}
LONG = {A: 8 / 12, B: 8 / 11}
"""Of steps of 12 and of 11 seconds."""
MIXED = {A: 20.0, B: 8 / 4}
"""Of steps of 0.4 and of 4 seconds."""


def live(launcher: ScriptedLauncher, setting_: Setting, process: Process | None = None) -> Live:
    return Live(process=process or launcher.launch(setting_, Deployment()), usual_s=[8 / launcher.rate(setting_)])


def both(launcher: ScriptedLauncher) -> tuple[Live, Live]:
    return live(launcher, A), live(launcher, B)


def never(_: Pair) -> bool:
    return False


def x_of(pair: Pair) -> Array:
    return log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(8, 8))


def order(pair: Pair) -> str:
    turns = [(s.start_s, "A") for s in pair.reference] + [(s.start_s, "B") for s in pair.candidate]
    return "".join(name for _, name in sorted(turns))


@pytest.mark.parametrize(
    ("rates", "orders", "slices_per_block"),
    [
        (RATES, {"ABBABAABABBA", "BAABABBABAAB"}, 2),
        (MIXED, {"ABAABAABA"}, 1),
        (LONG, {"ABBAAB", "BAABBA"}, 1),
    ],
)
def test_each_pass_goes_the_other_way_and_long_steps_are_timed_once(
    rates: dict[Setting, float], orders: set[str], slices_per_block: int
) -> None:
    seen = set()
    for seed in range(9):
        launcher = ScriptedLauncher(rate=rates.__getitem__)
        pair = run_pair(*both(launcher), enough=never, max_passes=3, rng=np.random.default_rng(seed))
        seen.add(order(pair))
        assert (pair.n_blocks, pair.slices_per_block) == (3, slices_per_block)
        assert x_of(pair) == pytest.approx([math.log(rates[B] / rates[A])] * 3)
        assert convert(to_plain(pair), Pair).n_blocks == 3
    assert seen == orders


class Drifting:
    """A process on a machine that gets slower or faster all the time, by `change` a second."""

    def __init__(self, clock_s: list[float], step_s: float, change: float) -> None:
        self.clock_s, self._step_s, self._change = clock_s, step_s, change

    def slice(self, duration_s: float) -> Slice:
        [start_s] = self.clock_s
        n_steps = max(1, math.ceil(duration_s / self._step_s))
        usual_s = n_steps * self._step_s
        elapsed_s = usual_s * math.exp(self._change * (start_s + usual_s / 2))
        self.clock_s[0] += elapsed_s
        return Slice(start_s=start_s, elapsed_s=elapsed_s, n_steps=n_steps, step_s=(elapsed_s / n_steps,) * n_steps)

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@pytest.mark.parametrize(
    ("step_s", "n_passes"), [((0.4, 0.36), 1), ((0.4, 4.0), 1), ((4.0, 0.4), 1), ((12.0, 11.0), 2)]
)
@pytest.mark.parametrize("change", [-0.001, 0.001])
def test_a_drift_that_is_linear_drops_out(step_s: tuple[float, float], n_passes: int, change: float) -> None:
    """Over a pass there and back, or over one there and one back."""
    clock_s = [0.0]
    a, b = (Live(process=Drifting(clock_s, each, change), usual_s=[each]) for each in step_s)  # type: ignore[arg-type]
    pair = run_pair(a, b, enough=never, max_passes=n_passes)
    drift = abs(change) * clock_s[0]
    assert float(x_of(pair).mean()) == pytest.approx(math.log(step_s[0] / step_s[1]), abs=0.03 * drift)


def test_without_noise_a_pair_gives_the_ratio_exactly() -> None:
    pair = run_pair(*both(ScriptedLauncher(rate=RATES.__getitem__)), enough=never)
    assert np.exp(x_of(pair)) == pytest.approx(np.full(8, 22 / 20))


def test_pairing_cancels_drift_that_fools_the_unpaired_figure() -> None:
    launcher = ScriptedLauncher(rate=lambda _: 20.0, drift=0.15, drift_period_s=60, noise=0.003)
    pair = run_pair(*both(launcher), enough=never, max_passes=20)
    a = [Objective.THROUGHPUT.log_rate(s, 8) for s in pair.reference]
    b = [Objective.THROUGHPUT.log_rate(s, 8) for s in pair.candidate]
    paired = estimate(x_of(pair))
    assert abs(paired.mean) < 0.005
    assert paired.se < unpaired(a, b).se / 5


def test_a_pair_ends_when_there_is_enough() -> None:
    launcher = ScriptedLauncher(rate=RATES.__getitem__)
    pair = run_pair(*both(launcher), enough=lambda pair: pair.n_blocks >= 1, min_passes=2, max_passes=9)
    assert pair.n_blocks == 2


# ---- interruptions and failures --------------------------------------------------------------------------------


def test_a_pass_in_which_the_machine_slept_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = iter([0.0, 0.0, 0.0, 30.0, 30.0, 30.0, 30.0, 30.0])
    monkeypatch.setattr(passes, "suspended_s", lambda: next(naps))
    pair = run_pair(*both(ScriptedLauncher(rate=RATES.__getitem__)), enough=never, max_passes=3)
    assert pair.n_blocks == 3
    assert pair.interruptions == [Interruption(Kind.SUSPENDED, "the machine was suspended for 30 s")]
    assert convert(to_plain(pair), Pair).interruptions == pair.interruptions


def test_a_machine_that_never_stops_sleeping_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "suspended_s", iter(range(0, 1000, 5)).__next__)
    pair = run_pair(*both(ScriptedLauncher(rate=RATES.__getitem__)), enough=never, max_passes=2)
    assert pair.n_blocks == 2
    assert len(pair.interruptions) == 20


class Disturbed:
    """A process whose n-th slice is another, or fails."""

    def __init__(self, launcher: ScriptedLauncher, setting_: Setting, n: int, slice_: Callable[[Slice], Slice]) -> None:
        self._process, self._left, self._slice = launcher.launch(setting_, Deployment()), n, slice_

    def slice(self, duration_s: float) -> Slice:
        self._left -= 1
        timed = self._process.slice(duration_s)
        return self._slice(timed) if self._left == 0 else timed

    def __getattr__(self, name: str) -> object:
        return getattr(self._process, name)


def stalled(timed: Slice) -> Slice:
    return replace(timed, elapsed_s=30 * timed.elapsed_s)


def killed(_: Slice) -> Slice:
    raise TrialFailure(Status.CRASHED, "killed")


@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("rates", [RATES, LONG])
def test_a_slice_that_stalled_is_measured_again(rates: dict[Setting, float], at: int) -> None:
    """The first one is held against the warm-up, and each other one against those before it, too."""
    launcher = ScriptedLauncher(rate=rates.__getitem__)
    process = Disturbed(launcher, A, at, stalled)
    pair = run_pair(live(launcher, A, process), live(launcher, B), enough=never, max_passes=4)  # type: ignore[arg-type]
    assert pair.n_blocks == 4
    assert [each.kind for each in pair.interruptions] == [Kind.STALLED]
    assert x_of(pair) == pytest.approx([math.log(rates[B] / rates[A])] * 4)


def test_a_pass_in_which_nothing_ran_for_long_is_measured_again() -> None:
    launcher = ScriptedLauncher(rate=RATES.__getitem__)
    process = Disturbed(launcher, A, 4, lambda timed: replace(timed, start_s=timed.start_s + 40.0))
    pair = run_pair(live(launcher, A, process), live(launcher, B), enough=never, max_passes=4)  # type: ignore[arg-type]
    assert pair.n_blocks == 4
    [interruption] = pair.interruptions
    assert interruption.kind is Kind.SUSPENDED
    assert interruption.text in ("nothing ran for 40 s during a pass", "nothing ran for 39 s during a pass")
    assert x_of(pair) == pytest.approx([math.log(1.1)] * 4)


def test_the_one_that_died_is_to_blame() -> None:
    launcher = ScriptedLauncher(rate=RATES.__getitem__)
    a, b = (live(launcher, each, Disturbed(launcher, each, 4, killed)) for each in (A, B))  # type: ignore[arg-type]
    with pytest.raises(ReferenceLost, match="killed"):
        run_pair(a, live(launcher, B), enough=never)
    with pytest.raises(TrialFailure, match="killed"):
        run_pair(live(launcher, A), b, enough=never)


# ---- what slices say -------------------------------------------------------------------------------------------


def woken(n_steps: int, *, resumed: bool) -> Slice:
    """Return steps of 0.1 s, of which the first takes 10 ms more after a pause."""
    steps = (0.11 if resumed else 0.1, *[0.1] * (n_steps - 1))
    return Slice(start_s=0.0, elapsed_s=sum(steps), n_steps=n_steps, step_s=steps, resumed=int(resumed))


def test_the_first_step_after_a_pause_counts_less_what_waking_costs() -> None:
    """Whoever runs few steps between pauses is not slower for that; of stored pairs, too."""
    turn = [woken(2, resumed=True), woken(2, resumed=False)]
    pair = Pair(reference=turn * 2, candidate=[woken(20, resumed=True)] * 4)
    assert x_of(pair) == pytest.approx([0.0, 0.0], abs=1e-9)
    assert x_of(convert(to_plain(pair), Pair)) == pytest.approx([0.0, 0.0], abs=1e-6)
    single = Pair(reference=[woken(1, resumed=True)] * 2, candidate=pair.candidate)  # nothing else tells of a step
    assert x_of(single) == pytest.approx([0.0], abs=1e-9)


def test_a_pair_without_a_block_has_no_ratio() -> None:
    assert x_of(Pair()).shape == (0,)
