"""Passes: slices there and back, what the first step after a pause costs, and what turns say of settings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import setting
from tuner.measure import passes
from tuner.measure.interruption import Kind
from tuner.measure.objective import Objective, Waking
from tuner.measure.passes import Live, Turn, estimate_passes, long_ones, run_pass, waking, whole_steps
from tuner.plain import to_plain
from tuner.stats.mixed import contrasts
from tuner.stats.noise import PRIOR_NOISE, Noise
from tuner.trial.outcome import Slice, Status, TrialFailure


class Steady:
    """A process of steps of one length, which writes down when it runs."""

    def __init__(self, name: str, diary: list[str], step_s: float = 0.1, *, fails_at: int = 0) -> None:
        self.name, self.diary, self.step_s, self.fails_at, self.n = name, diary, step_s, fails_at, 0
        self.slow: set[int] = set()

    def resume(self) -> None:
        self.diary.append(f"{self.name}+")

    def pause(self) -> None:
        self.diary.append(f"{self.name}-")

    def slice(self, duration_s: float) -> Slice:
        self.n += 1
        if self.n == self.fails_at:
            raise TrialFailure(Status.CRASHED, "gone")
        self.diary.append(self.name)
        step_s = self.step_s * (100 if self.n in self.slow else 1)
        n_steps = max(1, math.ceil(duration_s / self.step_s))
        start_s = 1.0 * len(self.diary)
        return Slice(start_s=start_s, elapsed_s=n_steps * step_s, n_steps=n_steps, step_s=(step_s,) * n_steps)


def live(process: Steady) -> Live:
    return Live(process=process, usual_s=[process.step_s])  # type: ignore[arg-type]


def ask(_: Live) -> float:
    return 0.05


def test_each_runs_there_and_back_and_the_others_are_stopped() -> None:
    diary: list[str] = []
    done = run_pass({name: live(Steady(name, diary)) for name in "abcd"}, np.random.default_rng(3), ask)
    ran = [word for word in diary if word in "abcd"]
    assert sorted(ran[:4]) == ["a", "b", "c", "d"]
    assert ran[4:] == ran[3::-1]
    there, last, back = ran[:3], ran[3], ran[5:]
    turns = [f"{name}+ {name} {name}-" for name in there], [f"{name}+ {name} {name}-" for name in back]
    assert " ".join(diary) == " ".join([*turns[0], f"{last}+ {last} {last} {last}-", *turns[1]])  # it goes on
    assert {name: len(slices) for name, slices in done.slices.items()} == dict.fromkeys("abcd", 2)
    orders = {
        tuple(run_pass({n: live(Steady(n, [])) for n in "abcd"}, np.random.default_rng(seed), ask).slices)
        for seed in range(20)
    }
    assert len(orders) > 5


def test_a_pass_may_go_the_other_way_than_the_one_before() -> None:
    for seed in range(5):
        diary: list[str] = []
        all_live = {name: live(Steady(name, diary)) for name in "abcd"}
        before = run_pass(all_live, np.random.default_rng(seed), ask)
        del all_live["b"]
        all_live["e"] = live(Steady("e", diary))
        done = run_pass(all_live, np.random.default_rng(seed), ask, back=before.order)
        assert done.order == [*(name for name in reversed(before.order) if name != "b"), "e"]  # a new one joins them
        assert [word for word in diary if word in "abcde"][8:] == [*done.order, *reversed(done.order)]


@pytest.mark.parametrize(
    ("step_s", "order"),
    [
        ({"a": 0.1, "b": 0.1, "l": 1.1}, "abllba"),
        ({"a": 0.1, "b": 0.1, "l": 1.2}, "ablba"),  # for more than 2.5 times as long as is asked of the others
        ({"a": 3.0, "l": 9.0}, "ala"),
        ({"a": 4.5, "l": 9.0}, "alla"),
        ({"a": 9.0, "l": 11.0}, "ala"),
        ({"a": 11.0, "l": 12.0}, "al"),
    ],
)
def test_long_steps_are_timed_once_and_in_the_middle(step_s: dict[str, float], order: str) -> None:
    diary: list[str] = []
    all_live = {name: live(Steady(name, diary, step_s=each)) for name, each in step_s.items()}
    ask_s = whole_steps(0.5)
    back = sorted(step_s, reverse=True)
    run_pass(all_live, np.random.default_rng(0), ask_s, once=long_ones(all_live, ask_s), back=back)
    assert "".join(word for word in diary if word in step_s) == order


def test_one_at_a_time_each_has_one_turn_and_who_holds_memory_is_first() -> None:
    diary: list[str] = []
    all_live = {name: live(Steady(name, diary)) for name in "abc"}
    for seed in range(5):
        diary.clear()
        run_pass(all_live, np.random.default_rng(seed), ask, one_at_a_time=True, first=["c"])
        assert diary[:4] == ["c+", "c", "c", "c-"]
        assert len(diary) == 12


def test_a_process_that_fails_leaves_and_the_pass_goes_on() -> None:
    diary: list[str] = []
    done = run_pass(
        {"a": live(Steady("a", diary)), "b": live(Steady("b", diary, fails_at=2))}, np.random.default_rng(0), ask
    )
    assert list(done.failures) == ["b"]
    assert list(done.slices) == ["a"]
    assert len(done.slices["a"]) == 2


def test_a_slice_that_stalled_is_measured_again() -> None:
    diary: list[str] = []
    process = Steady("a", diary, step_s=0.5)
    process.slow = {2}
    done = run_pass({"a": live(process), "b": live(Steady("b", diary))}, np.random.default_rng(0), ask)
    assert [each.kind for each in done.repeated] == [Kind.STALLED]
    assert [each.elapsed_s for each in done.slices["a"]] == [0.5, 0.5]


def test_a_pass_during_which_the_machine_slept_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = iter([0.0, 30.0])
    monkeypatch.setattr(passes, "suspended_s", lambda: next(naps))
    done = run_pass({"a": live(Steady("a", []))}, np.random.default_rng(0), ask)
    assert done.interrupted is not None
    assert done.interrupted.kind is Kind.SUSPENDED


@pytest.mark.parametrize(
    ("step_s", "n_steps"),
    [(0.001, 500), (0.01, 50), (0.1, 5), (0.17, 3), (0.3, 2), (0.33, 2), (0.4, 1), (0.6, 1), (3.0, 1), (7.0, 1)],
)
def test_a_slice_is_the_nearest_whole_number_of_steps(step_s: float, n_steps: int) -> None:
    process = Steady("a", [], step_s=step_s)
    done = run_pass({"a": live(process)}, np.random.default_rng(0), whole_steps(0.5))
    assert {each.n_steps for each in done.slices["a"]} == {n_steps}


# ---- the first step after a pause --------------------------------------------------------------------------------


def woken(step_s: float, n_steps: int, extra_s: float, rng: np.random.Generator | None = None) -> Slice:
    steps = step_s * np.ones(n_steps) if rng is None else step_s * np.exp(0.01 * rng.standard_normal(n_steps))
    steps[0] += extra_s
    return Slice(start_s=0, elapsed_s=float(steps.sum()), n_steps=n_steps, step_s=tuple(steps), resumed=1)


def test_what_waking_costs_is_found_whatever_the_length_of_steps() -> None:
    rng = np.random.default_rng(0)
    lengths = [0.003, 0.02, 0.075, 0.3, 1.0]
    slices = [woken(s, max(2, round(0.5 / s)), 0.008 + 0.02 * s, rng) for s in lengths for _ in range(20)]
    for i in (3, 40, 77):  # stalls, in the first step and in another
        slices[i] = woken(lengths[i // 20], 2, 0.5 * lengths[i // 20], rng)
    costs = waking(slices)
    assert costs.constant_s == pytest.approx(0.008, rel=0.05)
    assert costs.share == pytest.approx(0.02, abs=0.01)


def test_without_a_pause_waking_costs_nothing() -> None:
    awake = Slice(start_s=0, elapsed_s=1.0, n_steps=2, step_s=(0.6, 0.4))
    assert waking([awake, woken(1.0, 1, 0.5)]) == Waking()
    assert Waking(constant_s=0.1).step_s(awake) == 0.5


def test_all_steps_count_and_short_slices_are_no_slower_than_long_ones() -> None:
    costs = Waking(constant_s=0.01, share=0.03)
    rates = [
        Objective.THROUGHPUT.log_rate(woken(0.3, n, costs.constant_s + costs.share * 0.3), 8, costs)
        for n in (1, 2, 5, 50)
    ]
    assert rates == pytest.approx([math.log(8 / 0.3)] * 4)
    # Without what waking costs, the first step is left out, and of one step there is nothing else.
    assert Objective.THROUGHPUT.log_rate(woken(0.3, 2, 0.019), 8) == pytest.approx(math.log(8 / 0.3))
    assert Objective.THROUGHPUT.log_rate(woken(0.3, 1, 0.019), 8) < math.log(8 / 0.3)


def test_a_step_is_no_shorter_than_half_of_what_was_seen() -> None:
    assert Waking(constant_s=5.0).step_s(woken(0.3, 1, 0.0)) == pytest.approx(0.15)


# ---- what turns say ----------------------------------------------------------------------------------------------


def dense(
    y: np.ndarray, c: np.ndarray, i: np.ndarray, p: np.ndarray, *, sd: float, process_sd: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the contrasts and their covariance by matrices as they stand in books, with passes without a prior."""
    n = len(y)
    same = i[:, None] == i[None, :]
    v = sd**2 * np.eye(n) + process_sd**2 * same
    x = np.hstack([np.eye(c.max() + 1)[c][:, 1:], np.eye(p.max() + 1)[p]])
    inverse = np.linalg.inv(v)
    covariance = np.linalg.inv(x.T @ inverse @ x)
    return (covariance @ x.T @ inverse @ y)[: c.max()], covariance[: c.max(), : c.max()]


def test_contrasts_are_those_of_generalised_least_squares() -> None:
    rng = np.random.default_rng(1)
    # Two batches that have the reference in common, and a process that runs at two batch sizes.
    rows = [
        (c, i, p)
        for p, live_ones in enumerate([[(0, 0), (1, 1), (2, 2)]] * 3 + [[(0, 0), (3, 1), (4, 3)]] * 2)
        for c, i in live_ones
    ]
    c, i, p = (np.array(column) for column in zip(*rows, strict=True))
    y = rng.normal(0, 0.01, len(rows)) + 0.1 * c + 0.3 * p
    found = contrasts(y, c, i, p, process_sd=0.01, prior_sd=0.02, prior_df=1e9)
    mean, covariance = dense(y, c, i, p, sd=0.02, process_sd=0.01)
    assert found.mean[1:] == pytest.approx(mean, abs=1e-3)
    assert found.covariance[1:, 1:] == pytest.approx(covariance, rel=0.01, abs=1e-8)
    assert found.mean[0] == found.covariance[0].any() == 0
    # What runs in one process shares its luck: their difference is known better than either.
    shared, apart = found.between(3, 1), found.between(4, 2)
    assert shared.se < apart.se


def simulated(seed: int, luck: float, stalls: float, drift: float, tails: bool) -> tuple[float, float, float]:
    """Return the share of intervals that hold the truth in a made study of twelve candidates, and the squared error.

    And that of plain least squares, which stalls move as much as anything else.
    """
    rng = np.random.default_rng(seed)
    truth = np.concatenate([[0.0], rng.normal(0, 0.1, 12)])
    rows, values, number = [], [], 0
    effects = luck * rng.standard_normal(13)
    for batch in range(3):
        for _ in range(3):
            speed = drift * rng.standard_normal()
            for c in [0, *range(1 + 4 * batch, 5 + 4 * batch)]:
                error = 0.02 * (rng.standard_t(4) / math.sqrt(2) if tails else rng.standard_normal())
                error -= rng.uniform(0.05, 0.15) if rng.random() < stalls else 0.0
                values.append(truth[c] + effects[c] + speed + error)
                rows.append((c, c, number))
            number += 1
    c, i, p = (np.array(column) for column in zip(*rows, strict=True))
    y = np.array(values)
    found = contrasts(y, c, i, p, process_sd=luck, prior_sd=0.025, prior_df=4)
    inside = []
    for a in range(13):
        for b in range(a):
            low, high = found.between(a, b).interval()
            inside.append(low <= math.exp(truth[a] - truth[b]) <= high)
    plain, _ = dense(y, c, i, p, sd=0.02, process_sd=luck)
    errors = (found.mean - truth)[1:], plain - truth[1:]
    return float(np.mean(inside)), *(float(np.mean(each**2)) for each in errors)


@pytest.mark.parametrize(
    ("luck", "stalls", "drift", "tails"),
    [(0.0, 0.0, 0.0, False), (0.01, 0.0, 0.2, False), (0.01, 0.05, 0.1, False), (0.02, 0.0, 0.1, True)],
)
def test_intervals_hold_the_truth(luck: float, stalls: float, drift: float, tails: bool) -> None:
    """Of all differences of twelve candidates, never mind whether two met: about 95 % of the intervals."""
    coverage = np.mean([simulated(seed, luck, stalls, drift, tails)[0] for seed in range(150)])
    assert 0.93 <= coverage <= 0.975


def test_stalls_count_for_less_than_with_plain_least_squares() -> None:
    errors = np.mean([simulated(seed, 0.005, 0.05, 0.1, False)[1:] for seed in range(100)], axis=0)
    assert errors[0] < 0.95 * errors[1]


def turn(in_pass: int, process: int, batch_size: int, rate: float) -> Turn:
    step_s = batch_size / rate
    one = Slice(start_s=0, elapsed_s=10 * step_s, n_steps=10, step_s=(step_s,) * 10)
    return Turn(
        in_pass=in_pass,
        process=process,
        setting=setting(inter_op=1, intra_op=process, batch_size=batch_size),
        slices=(one, one),
    )


def test_settings_that_never_met_are_compared_through_the_reference() -> None:
    """The machine is half as fast in the second pass, which is nobody's merit."""
    turns = [turn(1, 1, 8, 100), turn(1, 2, 8, 120), turn(2, 1, 8, 50), turn(2, 3, 16, 55)]
    reference, second, third = (turns[k].setting for k in (0, 1, 3))
    now = estimate_passes(turns, reference, Objective.THROUGHPUT, PRIOR_NOISE)
    assert now is not None
    assert now.between(second, reference).ratio == pytest.approx(1.2, rel=1e-3)
    assert now.between(third, reference).ratio == pytest.approx(1.1, rel=1e-3)
    assert now.between(second, third).ratio == pytest.approx(1.2 / 1.1, rel=1e-3)
    assert now.between(second, third).se > now.between(second, reference).se
    assert now.n_passes == {reference: 2, second: 1, third: 1}


def test_what_few_digits_do_not_show_is_in_every_ratio() -> None:
    """Whoever ran in the same passes: what the reference prints is as coarse for all."""

    def printed(in_pass: int, process: int, value: float, resolution: float) -> Turn:
        one = Slice(start_s=0, elapsed_s=1, n_steps=1, step_s=(1,), metrics=(value,), resolution=resolution)
        return replace(turn(in_pass, process, 1, 1.0), slices=(one, one))

    turns = [printed(1, 1, 3.0, 1.0), printed(1, 2, 3.0, 1.0), printed(1, 3, 2.86, 0.01)]
    coarse, second, fine = (each.setting for each in turns)
    now = estimate_passes(turns, coarse, Objective.MINIMIZE, PRIOR_NOISE)
    assert now is not None
    half = math.log1p(0.5 / 3)  # of a millisecond beside three
    assert now.between(second, coarse).rounding == pytest.approx(2 * half)
    assert now.between(fine, coarse).rounding == pytest.approx(half, abs=0.002)
    assert now.between(coarse, coarse).rounding == 0


def test_turns_of_nothing_say_nothing_and_stored_turns_come_back() -> None:
    noise = Noise(block_sd=0.02, process_sd=0.01, drift=0.0, n_pairs=1, n_blocks=4)
    assert estimate_passes([], setting(inter_op=1, intra_op=1, batch_size=1), Objective.THROUGHPUT, noise) is None
    one = turn(3, 7, 8, 100)
    assert Turn.from_dict(to_plain(one)) == one
