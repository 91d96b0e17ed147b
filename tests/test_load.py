"""Settings under load: the queue of a worker, the model of it, rounds, what is published, and how many are needed."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tuner
from tests.conftest import Call, Finished, setting
from tests.loads import CANDIDATES, FAST, ONE, QUIET, SERVICE_S, TRUE, held, result_of, served_by, times_of
from tests.scripted import Clock
from tuner.child import arrivals
from tuner.child.callers import Callers
from tuner.errors import TunerError
from tuner.job import load as load_job
from tuner.machine.host import detect
from tuner.measure.load import SHARES, LoadCandidate, LoadRound, duration_s
from tuner.model.queueing import Queue, responses, service_times
from tuner.report import load as drawn
from tuner.result.load import LoadResult, size_row
from tuner.space.space import Space
from tuner.trial.load import Load, Served
from tuner.trial.outcome import Status, TrialFailure

# ---- the queue of a worker, and the model of it ---------------------------------------------------------------------


@pytest.mark.parametrize("wait_s", [0.0, 0.004, 0.05])
@pytest.mark.parametrize("rate", [20.0, 120.0, 190.0])
@pytest.mark.parametrize("sizes", [(1,), (1, 2, 4, 8), (8,)])
def test_the_model_of_the_queue_does_what_a_worker_does(
    monkeypatch: pytest.MonkeyPatch, rate: float, sizes: tuple[int, ...], wait_s: float
) -> None:
    """The same requests, and batches that take the same time: the same responses."""
    clock = Clock(monkeypatch)
    by_size = {n: Callers([lambda n=n: clock.spend(SERVICE_S[n]) or {}], lambda: None) for n in sizes}  # type: ignore[misc]
    rate = min(rate, 0.8 * sizes[-1] / SERVICE_S[sizes[-1]])
    load = Load(rate=rate, seed=3, duration_s=5.0, sizes=sizes, wait_s=wait_s)
    report = arrivals.under_load(by_size, lambda: None, load.request())
    due_s = arrivals.due_times(random.Random(3), rate, 5.0)
    batching = replace(ONE, sizes=sizes, wait_s=wait_s)
    simulated, batch = responses(due_s, batching, [SERVICE_S[n] for n in sizes], [[1.0]] * len(sizes))
    counted = simulated[np.array(due_s) >= 1.0]
    assert report["n_requests"] == len(counted)
    assert report["responses_s"] == pytest.approx(counted.tolist(), abs=2e-6)
    assert np.mean([n for n, _, _ in report["batches"]]) == pytest.approx(batch)
    for n, size, service_s in report["batches"]:
        assert size == min(s for s in sizes if s >= n)
        assert service_s == pytest.approx(SERVICE_S[size], abs=2e-6)


def test_a_full_batch_does_not_wait_and_a_lonely_request_waits_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    queue = arrivals.Queue([0.0, 0.001, 0.002, 0.5], 1.0, wait_s=0.1)
    queue.answer_all([{1: lambda: clock.spend(0.01), 3: lambda: clock.spend(0.01)}], lambda: None)
    assert [(n, size) for n, size, _ in queue.batches] == [(3, 3), (1, 1)]
    assert queue.responses_s == pytest.approx([0.012, 0.011, 0.010, 0.110])


@pytest.mark.parametrize("share", [0.3, 0.7, 0.9])
def test_the_mean_wait_is_that_of_queueing_theory(share: float) -> None:
    """Pollaczek and Khinchine's mean for equal service times, s + ρ s / (2 (1 − ρ))."""
    queue = Queue(batching=ONE, times=times_of({1: 0.01}), n_requests=400_000)
    assert queue.saturation == pytest.approx(100)
    expected_s = 0.01 * (1 + share / (2 * (1 - share)))
    assert queue.at(100 * share)[0].mean() == pytest.approx(expected_s, rel=0.03)


def test_exponential_service_times_have_the_quantiles_of_theory() -> None:
    """M/M/1: responses are exponential, with the rate μ − λ."""
    rest = np.log(np.random.default_rng(1).exponential(size=100_000))
    queue = Queue(batching=ONE, times=times_of({1: 0.01}, rest), n_requests=400_000)
    for p in (0.5, 0.95, 0.99):
        assert queue.quantile(60.0, p) == pytest.approx(-math.log(1 - p) / 40, rel=0.05)
    limit_s = -math.log(0.01) / 40
    assert queue.capacity(limit_s) == pytest.approx(60, rel=0.03)


def test_several_callers_and_processes_carry_more() -> None:
    times = times_of({1: 0.01})
    one, callers, processes = (
        Queue(batching=replace(ONE, **kinds), times=times) for kinds in ({}, {"callers": 2}, {"processes": 2})
    )
    assert callers.saturation == processes.saturation == pytest.approx(2 * one.saturation)
    # Two callers of one queue are never idle while a request waits; requests that are dealt out may be.
    limit_s = 0.05
    assert one.capacity(limit_s) < processes.capacity(limit_s) < callers.capacity(limit_s)
    assert processes.capacity(limit_s) == pytest.approx(2 * one.capacity(limit_s), rel=0.02)


def test_batches_carry_more_and_a_wait_costs_where_requests_are_few() -> None:
    times = times_of(SERVICE_S)
    alone = Queue(batching=ONE, times=times)
    batched = Queue(batching=replace(ONE, sizes=(1, 2, 4, 8)), times=times)
    waiting = Queue(batching=replace(ONE, sizes=(1, 2, 4, 8), wait_s=0.02), times=times)
    assert batched.saturation == pytest.approx(8 / 0.038)
    assert batched.capacity(0.1) > 1.5 * alone.capacity(0.1)
    assert waiting.quantile(5.0, 0.5) == pytest.approx(0.030, rel=0.02)
    assert batched.quantile(5.0, 0.5) == pytest.approx(0.010, rel=0.02)


def test_batches_are_tuned_for_the_limit() -> None:
    """Batches that cost hardly more than single requests carry most; those that gain nothing stay away."""
    cheap = Queue(batching=replace(ONE, sizes=(1, 2, 4, 8)), times=times_of({1: 0.010, 2: 0.011, 4: 0.012, 8: 0.013}))
    tuned = cheap.tuned(0.06)
    assert tuned.batching.sizes == (1, 2, 4, 8)
    assert tuned.capacity(0.06) >= cheap.capacity(0.06)
    dear = Queue(batching=replace(ONE, sizes=(1, 2, 4)), times=times_of({1: 0.010, 2: 0.021, 4: 0.044}))
    assert dear.tuned(0.06).batching == replace(ONE, sizes=(1,))
    # Too short for two items one after another, let alone together.
    assert TRUE.tuned(0.012).batching.sizes == (1,)
    assert TRUE.tuned(0.001).batching == TRUE.batching


@given(
    limit_s=st.floats(0.012, 0.5),
    factor=st.floats(0.5, 2.0),
    sizes=st.sampled_from([(1,), (1, 2, 4, 8), (4,)]),
)
@settings(max_examples=20, deadline=None)
def test_slower_batches_are_a_slower_clock(limit_s: float, factor: float, sizes: tuple[int, ...]) -> None:
    """C(L; f s) = C(L/f; s) / f, and a higher limit never carries less."""
    queue, slower = (
        Queue(
            batching=replace(ONE, sizes=sizes),
            times=times_of({n: f * s for n, s in SERVICE_S.items()}),
            n_requests=4000,
        )
        for f in (1.0, factor)
    )
    scaled = slower.capacity(limit_s)
    assert scaled == pytest.approx(queue.capacity(limit_s / factor) / factor, rel=0.01, abs=1e-9)
    assert queue.capacity(1.5 * limit_s) >= queue.capacity(limit_s)


def test_no_rate_keeps_a_limit_below_the_time_of_a_batch() -> None:
    queue = Queue(batching=ONE, times=times_of({1: 0.01}))
    assert queue.capacity(0.009) == 0
    assert queue.capacity_estimate(0.009) is None
    assert queue.capacity(10.0) == pytest.approx(98, abs=2)


def test_the_knee_is_where_waiting_begins_to_cost_more_than_it_buys() -> None:
    """Rate over the mean response of M/D/1 is largest at ρ = 2 − √2; over the p99, a little earlier."""
    queue = Queue(batching=ONE, times=times_of({1: 0.01}))
    assert 40 <= queue.knee() <= 60
    assert queue.knee(0.5) >= queue.knee(0.99)


# ---- service times from what was measured ---------------------------------------------------------------------------


def rounds_of(queue: Queue, n: int, rng: np.random.Generator, *, process_sd: float = 0.02) -> list[list[Served]]:
    factors = np.exp(process_sd * rng.standard_normal(n))
    rates = [share * queue.saturation for share in SHARES]
    return [
        [served_by(queue, rate, rng, factor=factor, seed=3 * i + j) for j, rate in enumerate(rates)]
        for i, factor in enumerate(factors)
    ]


def test_service_times_come_back_from_what_was_measured() -> None:
    found = service_times(rounds_of(TRUE, 6, np.random.default_rng(0)))
    assert found.service_s((1, 2, 4, 8), 100.0) == pytest.approx([*SERVICE_S.values()], rel=0.03)
    assert found.round_log.std(ddof=1) == pytest.approx(0.02, rel=0.6)
    assert found.round_log.mean() == pytest.approx(0.0, abs=1e-9)
    assert np.concatenate([e for of_size in found.rest for e in of_size]).std() == pytest.approx(0.05, rel=0.1)


def test_a_stall_is_as_long_for_a_large_batch_as_for_a_small_one() -> None:
    """A stall that trebles the time of a batch of one is no factor of three on a batch of eight."""
    rng = np.random.default_rng(4)
    rates = [share * TRUE.saturation for share in SHARES]
    rounds = [
        [served_by(TRUE, rate, rng, seed=3 * i + j, stall_s=0.02) for j, rate in enumerate(rates)] for i in range(6)
    ]
    queue = replace(TRUE, times=service_times(rounds), _cache={})
    rate = 0.6 * TRUE.saturation
    many = [served_by(TRUE, rate, rng, seed=1000 + i, stall_s=0.02).responses_s for i in range(60)]
    for p in (0.5, 0.95, 0.99):
        assert queue.quantile(rate, p) == pytest.approx(np.quantile(np.concatenate(many), p), rel=0.05), p


def test_a_size_that_was_never_seen_lies_between_the_others() -> None:
    found = times_of({1: 0.01, 4: 0.04})
    assert found.service_s((2,), 1.0) == pytest.approx([0.02])


def test_what_the_rate_does_to_all_sizes_is_part_of_it() -> None:
    """Other processes are at work, too: at high rates all batches take a fifth longer."""
    rng = np.random.default_rng(2)
    slow = Queue(batching=TRUE.batching, times=times_of({n: 1.2 * s for n, s in SERVICE_S.items()}))
    rounds = [[served_by(TRUE, 40.0, rng, seed=i), served_by(slow, 140.0, rng, seed=i)] for i in range(4)]
    found = service_times(rounds)
    assert found.service_s((1,), 40.0) == pytest.approx([0.010], rel=0.03)
    assert found.service_s((1,), 140.0) == pytest.approx([0.012], rel=0.03)
    assert found.service_s((1,), 90.0) == pytest.approx([0.011], rel=0.03)


@pytest.mark.slow
def test_the_interval_of_a_capacity_holds_the_true_one() -> None:
    rng, limit_s = np.random.default_rng(4), 0.08
    noisy = times_of(SERVICE_S, 0.05 * np.random.default_rng(5).standard_normal(100_000))
    true = Queue(batching=TRUE.batching, times=noisy, n_requests=200_000).capacity(limit_s)
    n, held, errors = 60, 0, []
    for _ in range(n):
        queue = Queue(batching=TRUE.batching, times=service_times(rounds_of(TRUE, 4, rng)), n_requests=20_000)
        found = queue.capacity_estimate(limit_s)
        assert found is not None
        low, high = found.interval()
        held += low <= true <= high
        errors.append(abs(math.log(found.ratio / true)))
    assert np.median(errors) < 0.03
    assert held >= 0.9 * n


def test_measured_requests_are_replayed() -> None:
    rounds = rounds_of(TRUE, 3, np.random.default_rng(5))
    queue = Queue(batching=TRUE.batching, times=service_times(rounds), n_requests=20_000)
    for served in rounds[0]:
        assert queue.replayed_ratio(served) == pytest.approx(1.0, abs=0.12)
    late = replace(rounds[0][2], responses_s=tuple(3 * r for r in rounds[0][2].responses_s))
    assert queue.replayed_ratio(late) < 0.4


def test_without_batches_there_are_no_service_times() -> None:
    with pytest.raises(ValueError, match="no batch"):
        service_times([[]])


# ---- rounds ---------------------------------------------------------------------------------------------------------


def test_a_round_loads_both_at_shares_of_what_they_do_at_most() -> None:
    rounds, host = held(2)
    assert host.happened.count("slice") == 2  # of each setting once
    rates = {name: [each.load.rate for each in served] for name, served in rounds[1].served.items()}
    assert sorted(rates["tf-default"]) == pytest.approx([share * 8 / 0.038 for share in SHARES])
    assert sorted(rates["one process"]) == pytest.approx([1.5 * share * 8 / 0.038 for share in SHARES])
    # At equal shares one follows the other, and both answer the same requests.
    loaded = [float(each) for each in host.happened if each not in ("warm", "slice")]
    for a, b in zip(loaded[::2], loaded[1::2], strict=True):
        assert max(a, b) / min(a, b) == pytest.approx(1.5, rel=0.02)
    seeds = [[each.load.seed for each in round_.served["tf-default"]] for round_ in rounds]
    assert seeds[0] == [each.load.seed for each in rounds[0].served["one process"]]
    assert not {*seeds[0]} & {*seeds[1]}
    assert all(each.is_closed for each in host.workers)


def test_a_worker_that_dies_under_load_is_a_failure_of_its_round() -> None:
    rounds, host = held(1, fails_at=6)
    [(name, failure)] = rounds[0].failures.items()
    assert name in ("tf-default", "one process")
    assert failure.status is Status.CRASHED
    assert all(each.is_closed for each in host.workers)


def test_a_load_lasts_until_the_queue_is_what_it_stays() -> None:
    assert duration_s(300.0, 1000.0, 1) == 2.0
    assert duration_s(3.0, 10.0, 1) == 10.0  # thirty requests
    assert duration_s(21.25, 25.0, 1) == pytest.approx(5 * 0.04 / 0.15**2)
    assert duration_s(8.5, 10.0, 1) == 15.0


# ---- what is published ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> LoadResult:
    """Four rounds of a default and of a setting that is half as fast again."""
    return result_of(held()[0])


def test_the_capacities_are_the_true_ones(measured: LoadResult) -> None:
    for curve, queue in zip(measured.curves, (TRUE, FAST), strict=True):
        assert curve.capacity is not None
        assert curve.capacity.rate == pytest.approx(queue.capacity(0.08), rel=0.03)
        assert curve.saturation == pytest.approx(queue.saturation, rel=0.03)
        assert curve.model_ratio == pytest.approx(1.0, abs=0.05)
        assert curve.capacity_at(80.0) == pytest.approx(curve.capacity.rate, rel=0.02)
        assert curve.capacity_at(80.0, curve.service_error) == pytest.approx(curve.capacity.low, rel=0.02)
    verdict = measured.curves[1].against_default
    assert verdict is not None
    assert verdict.code == "better"
    assert verdict.speedup == pytest.approx(FAST.capacity(0.08) / TRUE.capacity(0.08), rel=0.04)


def test_the_document_comes_back_as_it_was(measured: LoadResult) -> None:
    assert msgspec.convert(json.loads(msgspec.json.encode(measured)), LoadResult) == measured


def test_the_card_says_what_is_carried(measured: LoadResult) -> None:
    text = "\n".join(line.plain for line in drawn.rendered(measured) if hasattr(line, "plain"))
    assert "MORE  made, one process: 1." in text
    assert "requests/s within a p99 of at most 80 ms" in text
    assert drawn.chart(measured).startswith("<svg")
    rows = drawn.as_csv(measured).splitlines()
    assert len(rows) == 1 + sum(len(curve.points) + len(curve.measured) for curve in measured.curves)


def test_a_limit_that_nothing_keeps_is_said_with_the_least_there_is() -> None:
    result = result_of(held(2)[0], limit_ms=5.0)
    [answer] = drawn.load_card(result).answers
    assert answer.word == "NO RATE"
    assert "with hardly any load the p99 is 1" in answer.text
    assert all(curve.capacity is not None and curve.capacity.rate == 0 for curve in result.curves)


def test_without_a_limit_the_knees_are_the_answer() -> None:
    result = result_of(held(2)[0], limit_ms=None)
    [answer] = drawn.load_card(result).answers
    assert answer.word == "KNEES"
    assert all(curve.capacity is None and curve.knee.rate < curve.saturation for curve in result.curves)


# ---- sizing ---------------------------------------------------------------------------------------------------------


def test_copies_carry_the_load_with_its_headroom(measured: LoadResult) -> None:
    curve = measured.curves[0]
    row = size_row(measured, curve, machine="m", cpus=2, rate=500.0, limit_ms=80.0, headroom=0.2, cost=0.1)
    low = curve.capacity_at(80.0, curve.service_error)
    assert row.copies == math.ceil(600 / low)
    assert row.total_cpus == 2 * row.copies
    assert row.cost == pytest.approx(0.1 * row.copies)
    assert row.rate_each == pytest.approx(500 / row.copies)
    assert row.p99_ms is not None
    assert row.p99_ms <= 80.0
    none = size_row(measured, curve, machine="m", cpus=2, rate=500.0, limit_ms=5.0, headroom=0.2, cost=None)
    assert (none.copies, none.p99_ms, none.cost) == (None, None, None)
    assert none.total_cpus == math.inf


@given(rate=st.floats(0.1, 1e5), headroom=st.floats(0, 2), limit_ms=st.floats(12, 1000))
@settings(max_examples=50, deadline=None)
def test_copies_always_suffice_and_one_less_never_does(
    measured: LoadResult, rate: float, headroom: float, limit_ms: float
) -> None:
    curve = measured.curves[0]
    row = size_row(measured, curve, machine="m", cpus=1, rate=rate, limit_ms=limit_ms, headroom=headroom, cost=None)
    if row.copies is None:
        assert row.capacity_low == 0
        return
    assert row.copies * row.capacity_low >= rate * (1 + headroom) * (1 - 1e-6)
    assert (row.copies - 1) * row.capacity_low < rate * (1 + headroom) * (1 + 1e-6)


# ---- the commands ---------------------------------------------------------------------------------------------------


def test_sizes_are_read_from_the_curves_of_a_storage(
    finished: Finished,
    space: Space,
    measured: LoadResult,
    call: Call,
    tmp_path: Path,
) -> None:
    record, _ = finished(space, tmp_path, trials=16)
    storage = ("--storage", str(tmp_path / "t.db"))
    asked = ("size", "made", "--rate", "700/s", "--max-p99", "80ms", *storage)
    code, _, err = call(*asked)
    assert code == 2
    assert "was measured under load" in err
    assert "tftune load made --max-p99 80ms" in err
    record.put("loads", [{"result": msgspec.to_builtins(measured), "measured": {}}])
    code, out, err = call(*asked, "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert [row["name"] for row in rows] == ["one process", "tf-default"]  # the cheaper first
    assert rows[0]["copies"] < rows[1]["copies"]
    machine = rows[0]["machine"]
    code, out, _ = call(*asked, "--cost", f"{machine}=0.5", "--headroom", "100%")
    assert code == 0
    assert f"{rows[0]['copies']} copies" not in out  # more are needed with that headroom
    assert "cost" in out
    code, _, err = call(*asked, "--cost", "elsewhere=0.5")
    assert code == 2
    assert "--cost names elsewhere" in err
    code, out, _ = call("load", "made", "--stored", *storage)
    assert code == 0
    assert "MORE  made, one process" in out
    code, out, _ = call("size", "made", "--rate", "500", "--max-p99", "5", *storage)
    assert code == 0
    assert "no number of copies carries 500 requests/s with a p99 of at most 5 ms" in out
    assert "with hardly any load the p99 is 1" in out


def test_bad_limits_and_batches_are_refused_in_a_line(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, expected in {
        ("--max-p99", "0"): "--max-p99 is 0",
        ("--max-p99", "fast"): "expected a time, e.g. 50ms",
        ("--max-batch", "0"): "--max-batch is 0",
        ("--batch-wait", "-1"): "--batch-wait is -1 ms",
        (): "no study",
    }.items():
        code, _, err = call("load", *words)
        assert (code, expected in err) == (2, True), err
    for words, expected in {
        ("--rate", "0", "--max-p99", "50"): "--rate is 0",
        ("--rate", "5", "--max-p99", "50", "--headroom", "-5%"): "--headroom is -5%",
        ("--rate", "5", "--max-p99", "50", "--cost", "x"): "expected MACHINE=AMOUNT",
    }.items():
        code, _, err = call("size", *words)
        assert (code, expected in err) == (2, True), err


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_real_study_under_load(tmp_path: Path) -> None:
    study = tuner.search("lenet5", time_budget="20s", storage=tmp_path / "t.db", instances=False, progress=False)
    with pytest.raises(tuner.BadInputError, match="not measured under load yet"):
        tuner.stored_load_test(study.name, storage=tmp_path / "t.db")
    with pytest.raises(tuner.BadInputError, match="no study of lenet5 was measured under load"):
        tuner.size(100, "50ms", study=study.name, storage=tmp_path / "t.db")
    tested = tuner.load_test(
        study.name, max_p99_ms="50ms", max_batch=4, batch_wait_ms=1.0, time_budget="20s", storage=tmp_path / "t.db",
        progress=False,
    )  # fmt: skip
    default = tested.result.curves[0]
    assert default.name == "tf-default"
    assert (default.max_batch, default.batch_wait_ms) == (4, 1.0)
    assert default.capacity is not None
    assert 0 < default.capacity.rate <= default.saturation
    assert default.model_ratio  # how near to 1 it is, others on the machine decide
    assert [point.n_requests > 100 for point in default.measured if point.n_requests] == [True] * len(default.measured)
    again = tuner.stored_load_test(study.name, storage=tmp_path / "t.db")
    assert again.result == tested.result
    sized = tuner.size(10 * default.capacity.rate, "50ms", study=study.name, storage=tmp_path / "t.db")
    assert min(row.copies or 0 for row in sized.result.rows) >= 8


def test_a_setting_that_dies_under_load_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first round it is left out; if the default dies, or nothing else is left, that is the answer."""
    third = replace(CANDIDATES[1], name="several processes", setting=setting(intra_op=4, batch_size=8))
    died = TrialFailure(Status.CRASHED, "the process was killed by signal 9")
    whole = held(1)[0][0]
    asked: list[list[str]] = []

    def rounds(candidates: Sequence[LoadCandidate], *_: object, **__: object) -> LoadRound:
        names = [each.name for each in candidates]
        asked.append(names)
        failing = {name: died for name in names if name in dying}
        return LoadRound(served=dict.fromkeys(names, whole.served["tf-default"]), failures=failing)

    @contextlib.contextmanager
    def servers(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(search_launcher=lambda: None, finals_launchers=lambda _: ())

    monkeypatch.setattr(load_job, "run_round", rounds)
    monkeypatch.setattr(load_job, "Servers", servers)
    monkeypatch.setattr(load_job, "FreshLauncher", lambda **_: None)
    monkeypatch.setattr(load_job, "round_s", lambda *_: 0.0)
    device = SimpleNamespace(check_idle=lambda: None, watch=lambda _: SimpleNamespace(conditions=lambda: QUIET))
    job = SimpleNamespace(
        device=device, machine=detect(), deadline_s=60.0, export=lambda **_: None, target=lambda: None,
        seen=SimpleNamespace(added_to=lambda conditions: conditions),
    )  # fmt: skip
    events = SimpleNamespace(notice=lambda _: None, progress=lambda _: None)

    def measured() -> load_job.Measured:
        return load_job.measure(job, [*CANDIDATES, third], 0.0, events)  # type: ignore[arg-type]

    dying = {"one process"}
    found = measured()
    assert [each.name for each in found.candidates] == ["tf-default", "several processes"]
    assert found.failures == {"one process": str(died)}
    assert asked == [["tf-default", "one process", "several processes"], *2 * [["tf-default", "several processes"]]]
    for names in ({"tf-default"}, {"one process", "several processes"}):
        dying = names
        with pytest.raises(TunerError, match="under load: the process was killed"):
            measured()
