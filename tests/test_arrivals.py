"""Requests that come at random times: their due times, the queue, what is reported, and what is asked with --rate."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import threading
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from msgspec import convert

from tests.conftest import Call, setting
from tests.frameworks import deployed, load
from tests.scripted import Clock
from tuner.child import arrivals
from tuner.child.arrivals import Arrivals, due_times
from tuner.child.callers import Callers
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.measure.interruption import stalled
from tuner.measure.objective import Objective
from tuner.measure.planning import slice_s
from tuner.measure.rounds import Round
from tuner.plain import to_plain
from tuner.result.evidence import round_warnings
from tuner.space.deployment import Deployment
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import ArrivalSeeds
from tuner.trial.outcome import Slice, combined
from tuner.workload.spec import WorkloadSpec


def requests(rate: float, step: object, *, seed: int = 0, n: int = 1) -> Arrivals:
    return Arrivals(Callers([step] * n, lambda: None), rate, seed)  # type: ignore[list-item]


# ---- when they are due ---------------------------------------------------------------------------------------


def test_due_times_are_a_poisson_process() -> None:
    due_s = due_times(random.Random(0), 50.0, 400.0)
    gaps = np.diff([0.0, *due_s])
    assert len(due_s) == pytest.approx(20_000, rel=0.03)
    assert gaps.mean() == pytest.approx(0.02, rel=0.03)
    assert gaps.std() == pytest.approx(0.02, rel=0.05)  # an exponential distribution's deviation is its mean
    assert max(due_s) < 400.0


def test_equal_seeds_give_equal_times_and_others_do_not() -> None:
    first, again, other = (due_times(random.Random(seed), 5.0, 10.0) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_there_is_always_one_that_counts() -> None:
    for seed in range(50):
        due_s = due_times(random.Random(seed), 0.01, 2.0)
        assert due_s[-1] >= 0.4
        assert sum(each >= 0.4 for each in due_s) == 1 or due_s[-1] < 2.0


# ---- the queue -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_wait_is_that_of_queueing_theory(monkeypatch: pytest.MonkeyPatch, load: float) -> None:
    """One server, equal service times: Pollaczek and Khinchine's mean, s + ρ s / (2 (1 − ρ))."""
    clock, service_s = Clock(monkeypatch), 0.01
    monkeypatch.setattr(arrivals, "MAX_STEP_TIMES", 10**9)
    [timed] = requests(load / service_s, lambda: clock.spend(service_s) or {}).slices(4000.0)
    expected_s = service_s * (1 + load / (2 * (1 - load)))
    assert np.mean(timed["step_s"]) == pytest.approx(expected_s, rel=0.03)
    assert timed["n_steps"] == pytest.approx(0.8 * 4000 * load / service_s, rel=0.03)
    assert min(timed["step_s"]) == pytest.approx(service_s)
    assert Slice.from_report({**timed, "step_s": timed["step_s"][:5]}).keeps_up


def test_whoever_cannot_keep_up_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    answered = []
    model = requests(100.0, lambda: answered.append(clock.spend(0.05)) or {})
    [timed] = model.slices(2.0)
    assert timed["elapsed_s"] == pytest.approx(4.0, abs=0.06)
    assert len(answered) == pytest.approx(80, abs=2)  # as many as fit into twice the time
    assert timed["n_steps"] > 120  # those that were never begun count too
    # What came last waited for the shortest time until it was given up.
    assert timed["step_s"][-1] == pytest.approx(2.0, abs=0.1)
    assert not Slice.from_report(timed).keeps_up


def test_several_callers_answer_at_the_same_time() -> None:
    n_running, most = 0, 0
    count = threading.Lock()

    def step() -> dict[str, float]:
        nonlocal n_running, most
        with count:
            n_running += 1
            most = max(most, n_running)
        time.sleep(0.02)
        with count:
            n_running -= 1
        return {}

    with closing(requests(400.0, step, n=4)) as model:  # twice what they can do: a queue waits for all
        [timed] = model.slices(0.5)
    assert most == 4
    assert min(timed["step_s"]) >= 0.02


def test_a_call_that_fails_is_told_of() -> None:
    calls = itertools.count()

    def step() -> dict[str, float]:
        if next(calls) == 3:
            raise ValueError("no")
        return {}

    with closing(requests(500.0, step, n=2)) as model, pytest.raises(ValueError, match="no"):
        model.slices(0.2)


# ---- what is made of it --------------------------------------------------------------------------------------


def open_slice(*step_s: float, elapsed_s: float = 2.0, start_s: float = 1.0) -> Slice:
    return Slice(start_s=start_s, elapsed_s=elapsed_s, n_steps=len(step_s), step_s=step_s, resumed=1, window_s=2.0)


def test_the_rate_is_the_inverse_of_the_mean_response() -> None:
    responses = open_slice(0.1, 0.2, 0.6)
    assert Objective.RESPONSE.log_rate(responses, 8) == pytest.approx(-math.log(0.3))
    assert Objective.RESPONSE.shown(-math.log(0.3)) == pytest.approx(300)


def test_processes_share_the_requests() -> None:
    together = combined([open_slice(0.1, 0.2), open_slice(0.3, elapsed_s=2.5, start_s=1.2)])
    assert together.n_steps == 3
    assert together.step_s == (0.1, 0.2, 0.3)
    assert together.elapsed_s == pytest.approx(2.7)
    assert together.keeps_up
    assert convert(to_plain(together), Slice) == replace(together, resumed=0)


def test_a_contender_that_falls_behind_is_named() -> None:
    late, good = open_slice(1.0, elapsed_s=4.0), open_slice(0.1)
    rounds = [Round(slices={"a": [late, late, good], "b": [good, good, late]}) for _ in range(3)]
    [warning] = [each for each in round_warnings(rounds) if each.code == "overload"]
    assert warning.observation == "requests came faster than a answers them"


def test_slices_are_long_enough_for_a_queue() -> None:
    assert slice_s(None) == 0.5
    assert slice_s(1000.0) == 2.0
    assert slice_s(5.0) == 6.0


def test_the_contenders_of_a_round_answer_the_same_requests_and_each_round_others() -> None:
    a, b = setting(batch_size=1), setting(batch_size=2)
    first, second = ArrivalSeeds(), ArrivalSeeds()
    rounds = [[seeds.next(each, 0) for each in (a, b)] for seeds in (first, first, second)]
    assert all(x == y for x, y in rounds)
    assert len({x for x, _ in rounds}) == 3
    assert first.next(a, 1) != first.next(a, 0)


def test_few_requests_are_no_stall() -> None:
    """Of five requests per second a slice of 6 s has thirty, though a call takes 2 ms."""
    assert stalled([0.002], [open_slice(0.01, elapsed_s=6.0)]) is None


def test_each_process_gets_its_part_of_the_requests() -> None:
    spec = WorkloadSpec(words=("lenet5",), rate=30.0)
    job = prepare(parse_request(SearchRequest(workload=spec, pins=["instances=2"]), stores=False))
    two = setting(instances=2, inter_op=1, intra_op=1, batch_size=1)
    told = [job.target().child_spec(two, deployed(two), number, seed=number) for number in (0, 1)]
    assert [each["rate"] for each in told] == [15.0, 15.0]
    assert [each["seed"] for each in told] == [0, 1]
    plain = prepare(parse_request(SearchRequest(workload=replace(spec, rate=None)), stores=False))
    assert "rate" not in plain.target().child_spec(two, Deployment(), 0, seed=0)
    assert job.study_stem(0) != plain.study_stem(0)
    assert job.objective is Objective.RESPONSE
    assert set(job.space.domains["batch_size"]) == {load("lenet5").batch_size}


# ---- what is asked for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--rate", "0"], "--rate is 0"),
        (["--rate", "inf"], "--rate is inf"),
        (["--rate", "nan"], "--rate is nan"),
        (["--rate", "-3"], "--rate is -3"),
        (["--rate", "1e9"], "--rate is 1e+09; expected requests per second, a number above 0 and at most 100,000"),
        (
            ["--rate", "0.2"],
            "--rate 0.2: a slice with enough requests takes 150 s and may take twice that",
        ),
        (["--rate", "5", "--mode", "training"], "--rate does not apply to training"),
        (["--rate", "5", "--objective", "latency"], "leave --objective out"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Call, options: list[str], error: str) -> None:
    code, _, text = call("search", "lenet5", *options)
    assert code == 2
    assert error in text


def test_a_command_and_an_audit_have_no_requests(call: Call) -> None:
    code, _, text = call("search", "--rate", "5", "--metric-regex", r"(\d+)", "--", "echo", "1")
    assert (code, "--rate does not apply to a command" in text) == (2, True)
    code, _, text = call("inspect", "lenet5", "--rate", "5")
    assert (code, "--rate does not apply to inspect" in text) == (2, True)


# ---- for real ------------------------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_real_model_answers_requests() -> None:
    spec = WorkloadSpec(words=("lenet5",), rate=40.0)
    job = prepare(parse_request(SearchRequest(workload=spec, space="serving"), stores=False))
    job.export()
    launcher = FreshLauncher(target=job.target())
    for values in ({"instances": 1, "streams": 2}, {"instances": 2, "streams": 1}):
        two = setting(**values, inter_op=1, intra_op=1, batch_size=8)
        with closing(launcher.launch(two, job.space.deployment(two))) as process:
            process.ready()
            timed = process.slice(3.0)
            assert timed.window_s is not None
            assert timed.n_steps == pytest.approx(0.8 * 3 * 40, rel=0.4)
            assert timed.keeps_up
            assert 0 < min(timed.step_s) < max(timed.step_s) < timed.elapsed_s
            assert statistics.median(timed.step_s) < 0.5  # no queue grows


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_two_settings_are_compared_under_requests(call: Call) -> None:
    code, out, _ = call(
        "compare", "lenet5", "--rate", "40", "--a", "tf-default", "--b", "inter_op=1", "--time-budget", "8s", "--json"
    )
    assert code == 0
    assert "ms to respond" in out
