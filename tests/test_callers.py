"""Callers: threads that run steps at the same time, and whether a model can be called so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tuner.child import callers, outputs
from tuner.child.callers import Callers
from tuner.plain import to_plain
from tuner.trial.outcome import Slice


def test_the_only_caller_is_the_thread_that_asks() -> None:
    threads = set()
    with closing(Callers([lambda: threads.add(threading.get_ident()) or {}], lambda: None)) as alone:
        [timed] = alone.slices(0.01)
    assert threads == {threading.get_ident()}
    assert timed["outputs"] == {}
    assert callers.report_of([timed]) is timed


def test_all_callers_run_at_the_same_time() -> None:
    running, most = 0, 0

    def step() -> dict[str, int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return {}

    with closing(Callers([step, step, step], lambda: None)) as together:
        for _ in range(2):  # the threads stay
            slices = together.slices(1e-9)
            assert all(each["n_steps"] >= 1 for each in slices)
    assert most == 3


class Watch(threading.local):
    """A clock that each thread has for itself: it goes on only when the thread's step says so."""

    s = 0.0


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """The clock that callers read."""
    own = Watch()
    monkeypatch.setattr(callers, "CLOCK", lambda: own.s)
    return own


def test_a_queue_of_calls_is_not_faster_than_its_server(watch: Watch) -> None:
    """Calls that run one after another: all begin together, and the first to end has not waited for the others."""
    server = threading.Condition()
    whose_turn, server_s = 0, 0.0

    def stepper(number: int) -> Callable[[], dict[str, int]]:
        def step() -> dict[str, int]:
            nonlocal whose_turn, server_s
            with server:
                while whose_turn != number and not together.stopped.is_set():
                    server.wait(0.01)
                server_s += 0.02
                watch.s = server_s
                whose_turn = (number + 1) % 4
                server.notify_all()
            return {}

        return step

    with closing(Callers([stepper(number) for number in range(4)], lambda: None)) as together:
        for _ in range(3):
            whose_turn = 0
            assert callers.step_time(together.slices(1e-9)) == pytest.approx(0.02)


def test_the_rate_is_that_of_all(watch: Watch) -> None:
    def step() -> dict[str, int]:
        watch.s += 0.01
        time.sleep(0.001)  # so that others have their turns
        return {}

    with closing(Callers([step] * 3, lambda: None)) as together:
        timed = together.slices(0.2)
    assert callers.step_time(timed) == pytest.approx(0.01 / 3)
    for each in timed:
        each.pop("outputs")
    joint = Slice.from_report(callers.report_of(timed))
    assert joint.n_steps == sum(each["n_steps"] for each in timed)
    assert joint.elapsed_s / joint.n_steps == pytest.approx(0.01 / 3)
    assert min(joint.step_s) == pytest.approx(0.01)  # a latency is what each call took


def test_an_error_of_one_is_raised_and_the_others_end_their_slice() -> None:
    def fails() -> dict[str, int]:
        raise RuntimeError("no more")

    with closing(Callers([dict, fails], lambda: None)) as together:
        with pytest.raises(RuntimeError, match="no more"):
            together.slices(0.01)
        with pytest.raises(RuntimeError, match="no more"):  # and nothing hangs afterwards
            together.slices(0.01)


def test_threads_end() -> None:
    before = set(threading.enumerate())
    together = Callers([dict, dict], lambda: None)
    started = set(threading.enumerate()) - before
    assert len(started) == 2
    together.close()
    for thread in started:
        thread.join(5)
        assert not thread.is_alive()


def test_outputs_agree_but_for_rounding() -> None:
    ones = {"y": np.ones((4, 2), np.float32)}
    assert outputs.agree(ones, {"y": ones["y"] * (1 + 1e-5)})
    assert not outputs.agree(ones, {"y": ones["y"] * 1.1})
    assert outputs.agree({}, {})


def a_slice(start_s: float, *step_s: float, resumed: bool = False) -> Slice:
    return Slice(start_s=start_s, elapsed_s=sum(step_s), n_steps=len(step_s), step_s=step_s, resumed=resumed)


def test_parts_of_a_step_are_counted() -> None:
    steps = a_slice(10.0, 1.0, 2.0, 1.0)
    assert steps.steps_between(10.0, 14.0) == 3
    assert steps.steps_between(10.5, 12.0) == pytest.approx(1.0)
    assert steps.steps_between(0.0, 99.0) == 3
    assert steps.steps_between(20.0, 30.0) == 0
    thinned = Slice(start_s=0.0, elapsed_s=4.0, n_steps=4, step_s=(1.0, 1.0))
    assert thinned.steps_between(1.0, 2.5) == pytest.approx(1.5)


def test_a_rate_counts_while_all_run() -> None:
    """The second goes on alone at the end, twice as fast: that is not what both do together."""
    first, second = a_slice(0.0, 1.0, 1.0, 1.0), a_slice(0.0, 1.0, 1.0, 1.0, 0.5, 0.5)
    joint = Slice.from_report({"callers": to_plain([first, second])})
    assert joint.n_steps == 8
    assert joint.n_steps / joint.elapsed_s == pytest.approx(2.0)
    alike = Slice.from_report({"callers": to_plain([a_slice(0.0, 1.0, 1.0)] * 2)})
    assert alike.n_steps / alike.elapsed_s == pytest.approx(2.0)
    one_each = Slice.from_report({"callers": to_plain([a_slice(0.0, 0.6), a_slice(0.0, 0.9)])})
    assert one_each.n_steps / one_each.elapsed_s == pytest.approx(1 / 0.6 + 1 / 0.9)


def test_a_caller_has_left_the_first_step_after_a_pause_out_itself() -> None:
    plain = to_plain(a_slice(0.0, *[0.1] * 10))
    both = Slice.from_report({"callers": [plain, plain]}, resumed=True)
    assert (both.n_steps, both.resumed) == (20, 0)


def test_a_sample_tells_of_every_item_of_a_batch() -> None:
    x, y = np.arange(16, dtype=np.float32).reshape(8, 2), np.arange(80, dtype=np.float32).reshape(8, 10)
    first = outputs.sample([x], {"y": y}, {"y": y}, learns=False)
    assert first is not None
    assert len(first["batch"]["outputs"]["y"]) == 8 * outputs.ITEM_VALUES
    sixth = y.copy()
    sixth[5] += 1
    other = outputs.sample([x], {"y": sixth}, {"y": sixth}, learns=False)
    assert other is not None
    assert other["outputs"] == first["outputs"]  # of the first item
    assert other["batch"]["inputs"] == first["batch"]["inputs"]
    assert other["batch"]["outputs"] != first["batch"]["outputs"]
    # Where two runs differ, where inputs are text or large, and of what learns, nothing is said of the batch.
    text = np.array([b"a"] * 8, dtype=object)
    loss = {"loss": np.float32(1.0)}
    for told in (
        outputs.sample([x], {"y": y}, {"y": sixth}, learns=False),
        outputs.sample([text], {"y": y}, {"y": y}, learns=False),
        outputs.sample([x], loss, loss, learns=True),
    ):
        assert told is not None
        assert "batch" not in told
    large = np.zeros((1, outputs.MOST_HASHED // 4 + 1), np.float32)
    assert outputs.sample_of_batch([large], {"y": y}, {"y": y}) is None


NAN, INF = float("nan"), float("inf")


def test_what_is_not_finite_is_compared_place_by_place() -> None:
    masked = np.where(np.arange(4000) < 90, -INF, np.linspace(0, 1, 4000)).astype(np.float32)[None]
    assert outputs.close(masked, masked)
    assert not outputs.close(masked, np.where(np.isinf(masked), NAN, masked))  # another kind
    assert not outputs.close(masked, np.roll(masked, 1000, axis=1))
    assert not outputs.close(masked, np.where(np.isinf(masked), 0.0, masked))
    assert not outputs.close(masked, np.where(np.isinf(masked), masked, masked + 1))
    assert outputs.close(masked, masked * (1 + 1e-5))
    # One of many values that crosses a threshold by rounding is no other place.
    many = np.full(100_000, NAN)
    one_less = many.copy()
    one_less[7] = 1.0
    assert not outputs.moved(outputs.places(many), outputs.places(one_less))
    assert outputs.moved({}, outputs.places(np.array([NAN, 1.0])))
    assert outputs.places(np.array([1.0, 2.0])) == {}
    assert outputs.counted({"y": masked}, outputs.not_finite({"y": masked})) == {"y": {"-inf": 90, "size": 4000}}


def test_outputs_that_are_no_result() -> None:
    nothing, some, good = np.full((2, 3), NAN), np.array([[NAN, 1.0]]), np.ones((2, 3))

    def first(*, learns: bool = False, **arrays: Any) -> None:
        outputs.check_first(arrays, outputs.not_finite(arrays), learns=learns)

    first(y=good)
    first(y=some)
    first(y=nothing, z=good)
    first(y=np.ones((0, 3)))
    with pytest.raises(
        outputs.InvalidOutputError, match=r"no output holds a finite value: y: 6 of 6 values are not fin"
    ):
        first(y=nothing)
    with pytest.raises(outputs.InvalidOutputError, match=r"y: 1 of 2 values are not finite .*: the training diverges"):
        first(y=some, learns=True)


def test_a_later_step_is_not_finite_where_the_first_was() -> None:
    found = outputs.not_finite({"y": np.array([NAN, 1.0, 2.0])})
    outputs.check_later(found, {"y": np.array([NAN, 1.0, 3.0])}, learns=False, at_random=False)
    outputs.check_later(found, {"y": np.array([1.0, NAN, 3.0])}, learns=False, at_random=True)
    for first, at_random in ((found, False), ({}, False), ({}, True)):
        with pytest.raises(outputs.InvalidOutputError, match="not at the same places"):
            outputs.check_later(first, {"y": np.array([1.0, NAN, 3.0])}, learns=False, at_random=at_random)
    with pytest.raises(outputs.InvalidOutputError, match="the training diverges"):
        outputs.check_later({}, {"loss": np.float32(NAN)}, learns=True, at_random=False)


def test_a_sample_is_strict_json_and_tells_of_what_is_not_finite() -> None:
    x, y = np.ones((2, 2), np.float32), np.array([[1.0, -INF], [NAN, INF]], np.float32)
    told = outputs.sample([x], {"y": y}, {"y": y}, learns=False)
    assert told is not None
    again = json.loads(json.dumps(told, allow_nan=False))
    assert again["outputs"] == {"y": [1.0, "-inf"]}
    assert again["batch"]["outputs"] == {"y": [1.0, "-inf", "nan", "inf"]}
    assert set(again["not_finite"]["y"]) == {"-inf"}
    assert set(again["batch"]["not_finite"]["y"]) == {"-inf", "nan", "inf"}
    assert "not_finite" not in (outputs.sample([x], {"y": x}, {"y": x}, learns=False) or {})
