"""Searches for capacity: the score of a trial, what is chosen by it, and the answer that a load gives."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import structs

import tuner
from tests.conftest import Call, Finished, setting
from tests.frameworks import read_space, resolve
from tests.loads import CANDIDATES, held, result_of, times_of
from tests.scripted import noisy, run
from tuner.errors import FindingError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.job.load import largest_batch
from tuner.job.run import SessionsResult
from tuner.machine.host import Machine
from tuner.measure.budget import Budget
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.measure.rounds import Contender
from tuner.model.capacity import CapacityScore, most_promising
from tuner.model.queueing import Batching, Queue
from tuner.report.load import load_card
from tuner.result.document import describe_study
from tuner.result.load import CurveResult, LoadResult, capacity_advice, carries_most, curve_results, queue_of
from tuner.result.study import RecommendedResult
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import VerdictCode
from tuner.stats.tail import LimitStatus
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.trials import Trial
from tuner.trial.outcome import Slice, Status
from tuner.workload.workload import Workload

LIMIT_S = 0.25
NO_LIMITS = Limits()
DEFAULT = setting(intra_op=2, batch_size=4)


def step_s(of: Setting) -> float:
    """Return the time of a step: 20 ms, and 5 ms per item, with other threads than eight longer."""
    return (0.020 + 0.005 * of.batch_size) * (1 + 0.1 * abs(math.log2(int(of["intra_op"]) / 8)))


def trial(number: int, of: Setting, step: float, *, default_step: float = 0.05, se: float = 0.01) -> Trial:
    """Return a trial whose steps take that long (s)."""
    n = int(of.to_dict().get("instances", 1)) * int(of.to_dict().get("streams", 1))
    rate = n * of.batch_size / step
    log_ratio = float(np.log(rate * default_step / DEFAULT.batch_size))
    slices = tuple(Slice(start_s=0.0, elapsed_s=step / n * 20, n_steps=20, step_s=(step,) * 20) for _ in range(3))
    return Trial(
        number=number, setting=of, status=Status.OK, log_ratio=log_ratio, se=se, df=20, slices=slices, passes=(1, 2, 3)
    )


@pytest.mark.parametrize("others", [{}, {"instances": 2}, {"streams": 2}, {"instances": 2, "streams": 3}])
def test_the_score_is_the_capacity_of_the_queue(others: dict[str, int]) -> None:
    """Full batches, one after another, in each process with so many calls at once."""
    score = CapacityScore(limit_s=LIMIT_S, default=DEFAULT)
    of = setting(intra_op=1, batch_size=8, **others)
    trials = [trial(0, DEFAULT, 0.05), trial(1, of, 0.09)]

    def capacity(each: Setting, step: float) -> float:
        values = each.to_dict()
        batching = Batching(
            sizes=(each.batch_size,), wait_s=0.0, processes=int(values.get("instances", 1)),
            callers=int(values.get("streams", 1)),
        )  # fmt: skip
        return Queue(batching=batching, times=times_of({each.batch_size: step})).capacity(LIMIT_S)

    default, other = score(trials)
    assert default.log_ratio == 0
    assert other.log_ratio == pytest.approx(np.log(capacity(of, 0.09) / capacity(DEFAULT, 0.05)), abs=0.08)
    assert other.se is not None
    assert other.se > 0.01  # 1 % longer steps carry more than 1 % less


def test_what_keeps_to_the_limit_at_no_rate_has_no_score() -> None:
    score = CapacityScore(limit_s=0.08, default=DEFAULT)
    slow = trial(1, setting(intra_op=1, batch_size=8), 0.09)
    default, scored, failed = score([trial(0, DEFAULT, 0.05), slow, replace(slow, number=2, log_ratio=None, se=None)])
    assert (default.log_ratio, default.over_limit) == (0, False)
    assert (scored.estimate, scored.over_limit) == (None, True)
    assert not failed.over_limit  # of which nothing is known
    assert most_promising([trial(0, DEFAULT, 0.05), slow], score, 3) == []
    # Where the default carries nothing, the best takes its place.
    over, best, less = CapacityScore(limit_s=0.06, default=DEFAULT)(
        [
            trial(0, DEFAULT, 0.07, default_step=0.07),
            trial(1, setting(intra_op=1, batch_size=2), 0.02, default_step=0.07),
            trial(2, setting(intra_op=1, batch_size=1), 0.02, default_step=0.07),
        ]
    )
    assert (over.over_limit, best.log_ratio) == (True, 0)
    assert less.log_ratio is not None
    assert less.log_ratio < 0


def test_the_most_promising_have_threads_of_their_own() -> None:
    score = CapacityScore(limit_s=LIMIT_S, default=DEFAULT)
    one, four, bad = (setting(intra_op=n, batch_size=4) for n in (1, 4, 16))
    trials = [
        trial(0, DEFAULT, 0.050),
        trial(1, one, 0.0400),
        trial(2, one.with_values(batch_size=8), 0.060),
        trial(3, four, 0.0401),
        trial(4, four.with_values(batch_size=2), 0.040),
        trial(5, bad, 0.080),  # clearly less
        trial(6, DEFAULT.with_values(batch_size=8), 0.055),  # the default's threads are there anyway
    ]
    chosen = most_promising(trials, score, 3)
    assert chosen[0].setting == one.with_values(batch_size=8)
    assert {each.setting.without("batch_size") for each in chosen} <= {
        each.without("batch_size") for each in (one, four)
    }
    assert len(most_promising(trials, score, 1)) == 1


def test_a_smaller_batch_takes_the_place_of_one_that_takes_too_much_memory() -> None:
    score = CapacityScore(limit_s=LIMIT_S, default=DEFAULT)
    large = setting(intra_op=1, batch_size=8)
    small = large.with_values(batch_size=4)
    trials = [trial(0, DEFAULT, 0.05), replace(trial(1, large, 0.06), over_limit=True), trial(2, small, 0.04)]
    assert [each.setting for each in most_promising(trials, score, 3)] == [small]


@pytest.mark.slow
def test_a_search_for_capacity_finds_what_carries_most(space: Space) -> None:
    """Throughput is largest at the largest batch, whose step alone breaks the limit; no finals follow."""
    limits = Limits(p99_s=LIMIT_S)
    score = CapacityScore(limit_s=LIMIT_S, default=space.reference)
    plan = Plan(score=score, evaluation=EvaluatorPlan(objective=Objective.CAPACITY, limits=limits))
    launcher = noisy(rate=lambda each: each.batch_size / step_s(each))
    record, log = run(space, launcher, plan=plan, limits=limits, budget=Budget(trials=30))
    assert record.get("finals") is None
    assert log.rounds == 0
    curves = {}

    def carried(of: Setting) -> float:
        """Return what a setting carries in truth."""
        if of.batch_size not in curves:
            batching = Batching(sizes=(of.batch_size,), wait_s=0.0, processes=1, callers=1)
            queue = Queue(batching=batching, times=times_of({of.batch_size: 1.0}), n_requests=10_000)
            curves[of.batch_size] = queue
        return curves[of.batch_size].capacity(LIMIT_S / step_s(of)) / step_s(of)

    best = max({(each.batch_size, each["intra_op"]): each for each in space.points}.values(), key=carried)
    [first, *_] = most_promising([*record.trials(), *record.groups()], score, 3)
    assert carried(first.setting) >= 0.93 * carried(best)
    fastest = max(space.points, key=lambda each: each.batch_size / step_s(each))
    assert carried(fastest) < 0.5 * carried(best)


# ---- the answer -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def load() -> LoadResult:
    """What a search for capacity has measured: a default, and what carries half as much again."""
    rounds = held()[0]
    deployment = Deployment(env={"TF_NUM_INTRAOP_THREADS": "1"}, arguments={"batch_size": 8})
    candidates = [CANDIDATES[0], replace(CANDIDATES[1], deployment=deployment)]
    curves = curve_results(candidates, rounds, limit_s=0.08, margin=0.02, tunes=False)
    return structs.replace(result_of(rounds), study="made", workload="resnet50", curves=curves)


def test_the_answer_is_what_was_shown_to_carry_most(load: LoadResult) -> None:
    advice = capacity_advice(load, NO_LIMITS)
    assert (advice.source, advice.limits) == ("one process", LimitStatus.MET)
    assert advice.gain is not None
    assert advice.gain.speedup == pytest.approx(1.95, abs=0.3)
    assert advice.env == {"TF_NUM_INTRAOP_THREADS": "1"}
    assert advice.arguments["batch_size"] == advice.setting["batch_size"] == load.curves[1].max_batch
    undecided = structs.replace(load.curves[1].against_default, code=VerdictCode.UNDECIDED, low=0.9)
    open_ = structs.replace(load, curves=(load.curves[0], structs.replace(load.curves[1], against_default=undecided)))
    kept = capacity_advice(open_, NO_LIMITS)
    assert (kept.source, kept.gain, kept.deployment) == ("tf-default", None, Deployment())
    assert kept.reason == "keep tf-default: no setting was shown to carry more by more than the margin"


def test_where_the_default_carries_nothing_what_carries_something_is_the_answer(load: LoadResult) -> None:
    nothing = structs.replace(load.curves[0].capacity, rate=0.0, low=0.0, high=0.0)
    default, other = structs.replace(load.curves[0], capacity=nothing), structs.replace(
        load.curves[1], against_default=None
    )  # fmt: skip
    only = structs.replace(load, curves=(default, other))
    assert carries_most(only, NO_LIMITS) is other
    assert (capacity_advice(only, NO_LIMITS).source, capacity_advice(only, NO_LIMITS).gain) == ("one process", None)
    none = structs.replace(only, curves=(default, structs.replace(other, capacity=nothing)))
    advice = capacity_advice(none, NO_LIMITS)
    assert (advice.source, advice.limits) == ("tf-default", LimitStatus.BROKEN)
    assert advice.reason == "keep tf-default: no setting keeps to the limit at any rate"


def test_the_errors_of_service_times_hold_together_where_the_default_carries_nothing() -> None:
    """There they decide which of several settings is the answer."""
    rounds = held()[0]

    def errors(limit_s: float, level: float) -> list[float]:
        curves = curve_results(CANDIDATES, rounds, limit_s=limit_s, margin=0.02, tunes=False, level=level)
        return [curve.service_error for curve in curves]

    scales = [queue_of(each, rounds).times.scale() for each in CANDIDATES]
    assert errors(0.08, 0.975) == [each.half_width(0.95) for each in scales]
    assert errors(0.001, 0.975) == [each.half_width(0.975) for each in scales]


def test_what_may_not_keep_the_limit_is_no_answer_where_the_default_does_not(load: LoadResult) -> None:
    """Its p99 with hardly any load is below the limit, and not by more than its service times are known to."""
    nothing = structs.replace(load.curves[0].capacity, rate=0.0, low=0.0, high=0.0)
    default = structs.replace(load.curves[0], capacity=nothing, against_default=None)
    near = structs.replace(load.curves[1], against_default=None, unloaded_ms=79.0, service_error=0.03)
    clear = structs.replace(near, name="several processes", unloaded_ms=77.0)
    assert (near.surely_keeps(80.0), clear.surely_keeps(80.0)) == (False, True)
    only = structs.replace(load, curves=(default, near))
    advice = capacity_advice(only, NO_LIMITS)
    assert (advice.source, advice.deployment, advice.limits) == ("tf-default", Deployment(), LimitStatus.UNKNOWN)
    assert advice.reason == (
        "keep tf-default: one process is not sure to keep to the limit on p99: with hardly any load it is 79 ms, "
        "known to 3.0 %"
    )
    [answer] = load_card(only).answers
    assert (answer.word, answer.code) == ("UNDECIDED", VerdictCode.UNDECIDED)
    assert answer.text == (
        "resnet50, one process: not sure to keep to a p99 of at most 80 ms: with hardly any load it is 79 ms, known to "
        "3.0 %; tf-default carries no rate"
    )
    less = structs.replace(clear, capacity=structs.replace(clear.capacity, rate=1.0))  # than what may keep the limit
    both = structs.replace(load, curves=(default, near, less))
    assert carries_most(both, NO_LIMITS) is less
    assert [each.word for each in load_card(both).answers] == ["UNDECIDED", "CARRIES"]
    large = structs.replace(load.curves[0], peak_memory_bytes=3 << 30)  # the default breaks the other limit
    worse = structs.replace(load.curves[1].against_default, code=VerdictCode.WORSE)
    slower = structs.replace(near, against_default=worse)
    ruled_out = capacity_advice(structs.replace(load, curves=(large, slower)), Limits(memory_bytes=2 << 30))
    assert (ruled_out.source, ruled_out.limits) == ("tf-default", LimitStatus.BROKEN)


@pytest.mark.parametrize(
    ("batches", "pins", "objective", "most"),
    [
        ((4,), None, Objective.CAPACITY, 4),
        ((1, 2), None, Objective.CAPACITY, 2),
        ((16,), None, Objective.CAPACITY, 16),
        (None, {"batch_size": "2"}, Objective.CAPACITY, 2),
        (None, {"inter_op": "1"}, Objective.CAPACITY, 8),
        ((4,), None, Objective.THROUGHPUT, 8),
    ],
)
def test_the_batches_of_its_load_tests_are_those_that_were_asked_for(
    finished: Finished, space: Space, tmp_path: Path, batches: tuple[int, ...] | None, pins: dict[str, str] | None,
    objective: Objective, most: int,
) -> None:  # fmt: skip
    record, _ = finished(space, tmp_path, trials=16)
    study = describe_study(record)
    values = batches or ((2,) if pins and "batch_size" in pins else study.knobs["batch_size"].values)
    knobs = {**study.knobs, "batch_size": structs.replace(study.knobs["batch_size"], values=values)}
    asked = structs.replace(
        study, knobs=knobs, objective=objective, batch_sizes=batches or msgspec.UNSET, pins=pins or msgspec.UNSET
    )
    assert largest_batch(asked, {min(values)}) == most


@pytest.mark.parametrize(("words", "objective"), [("load", "throughput"), ("search", "capacity")])
def test_that_no_rate_keeps_the_limit_is_a_finding(
    finished: Finished, space: Space, load: LoadResult, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: str, objective: str,
) -> None:  # fmt: skip
    """Both end with 1 where no setting carries anything, and with 0 where one does, or what is stored is shown."""
    record, _ = finished(space, tmp_path, trials=16)
    storage = ("--storage", str(tmp_path / "t.db"))
    record.put("objective", objective)
    record.put("limits", Limits(p99_s=0.08))
    record.put("finals", None if objective == "capacity" else record.get("finals"))
    nothing = structs.replace(load.curves[0].capacity, rate=0.0, low=0.0, high=0.0)
    none = tuple(structs.replace(each, capacity=nothing, against_default=None) for each in load.curves)
    near = (none[0], structs.replace(load.curves[1], against_default=None, unloaded_ms=79.9))  # which is undecided
    for curves, code in ((load.curves, 0), (none, 1), (near, 0)):
        result = structs.replace(load, curves=curves)
        assert result.has_no_rate == bool(code)
        record.put("loads", [{"result": msgspec.to_builtins(result), "measured": {}}])
        monkeypatch.setattr("tuner.job.load.load_study", lambda *_, result=result: result)
        monkeypatch.setattr(
            "tuner.job.run.run_sessions", lambda *_, **__: SessionsResult(record=record, interrupted=False)
        )
        asked = ("load", "made") if words == "load" else ("search", "resnet50")
        assert call(*asked, *storage)[0] == code
        assert call(*asked, "--json", *storage)[0] == code
        assert call("load", "made", "--stored", *storage)[0] == 0


def test_what_takes_too_much_memory_under_load_is_no_answer(load: LoadResult) -> None:
    default, other = load.curves
    lean, heavy = (structs.replace(other, peak_memory_bytes=n << 20) for n in (100, 300))
    limits = Limits(p99_s=0.08, memory_bytes=200 << 20)

    def advice(of_default: int, curve: CurveResult) -> RecommendedResult:
        first = structs.replace(default, peak_memory_bytes=of_default << 20)
        return capacity_advice(structs.replace(load, curves=(first, curve)), limits)

    assert (advice(100, lean).source, advice(100, lean).limits) == ("one process", LimitStatus.MET)
    kept = advice(100, heavy)
    assert (kept.source, kept.limits, kept.deployment) == ("tf-default", LimitStatus.MET, Deployment())
    assert kept.reason.startswith("keep tf-default: no setting that keeps to the limit on memory was shown to carry")
    slower = structs.replace(lean, against_default=structs.replace(lean.against_default, code=VerdictCode.WORSE))
    assert advice(300, slower).source == "one process"  # the default takes too much
    none = advice(300, heavy)
    assert (none.source, none.limits) == ("tf-default", LimitStatus.BROKEN)
    assert none.reason == "keep tf-default: no setting keeps to the limit on memory with batches of at most 8"


def test_the_commands_of_a_search_for_capacity(
    finished: Finished, space: Space, load: LoadResult, call: Call, tmp_path: Path
) -> None:
    record, _ = finished(space, tmp_path, trials=16)
    storage = ("--storage", str(tmp_path / "t.db"))
    record.put("finals", None)
    record.put("objective", "capacity")
    record.put("limits", Limits(p99_s=0.08))
    code, _, err = call("load", "made", *storage)
    assert (code, "study made has no finals yet" in err) == (2, True)
    fast = next(each for each in record.trials() if each.setting != space.reference).setting
    record.put("promising", [Contender(names=("one process",), setting=fast, deployment=Deployment())])
    code, out, _ = call("show", "made", *storage)
    assert (code, "UNFINISHED" in out) == (0, True)
    other = structs.replace(load, limit_ms=500.0)  # of another limit, which answers another question
    record.put("loads", [{"result": msgspec.to_builtins(each), "measured": {}} for each in (load, other)])
    code, out, _ = call("show", "made", *storage)
    assert code == 0
    assert "MORE  resnet50, one process: 1." in out
    assert "requests/s within a p99 of at most 80 ms" in out
    assert "TF_NUM_INTRAOP_THREADS=1" in out
    assert "tftune size made" in out
    for words in (("show", "made", "--details"), ("list",), ("report", "made", "--format", "md")):
        code, out, err = call(*words, *storage)
        assert code == 0, err
    document = json.loads(call("show", "made", "--json", *storage)[1])
    assert document["recommended"]["source"] == "one process"
    assert document["incumbent"]["setting"] == fast.to_dict()
    [line] = [line for line in call("list", *storage)[1].splitlines() if line.startswith("made ")]
    assert "better" in line
    assert "intra_op=1" in line
    code, out, _ = call("emit", "made", *storage)
    assert (code, "export TF_NUM_INTRAOP_THREADS=1" in out) == (0, True)
    assert "the rate within the limit of the defaults" in out
    code, out, _ = call("emit", "made", "--format", "tfserving-k8s", *storage)
    assert f"max_batch_size {{ value: {load.curves[1].max_batch} }}" in out
    code, out, _ = call("size", "made", "--rate", "500", "--max-p99", "80ms", *storage)
    assert (code, "copies of" in out) == (0, True)
    code, _, err = call("check", "made", *storage)
    assert (code, "measure it again with: tftune load made" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["search", "lenet5"],
            "--objective capacity needs a limit on the p99; add it to a search, e.g. --max-p99 50ms",
        ),
        (["compare", "lenet5", "--a", "x", "--b", "y"], "--objective capacity needs a limit on the p99"),
        (["search", "lenet5", "--max-p99", "0"], "--max-p99 is 0"),
        (["search", "lenet5", "--max-p99", "soon"], "expected a time, e.g. 50ms or 0.05s"),
        (["search", "lenet5", "--max-p99", "50ms", "--rate", "5"], "leave --rate out: the highest rate is the answer"),
        (["search", "lenet5", "--max-p99", "50", "--mode", "training"], "training answers no requests"),
        (["search", "lenet5+mlp", "--max-p99", "50"], "the models of an ensemble answer together"),
        (["search", "lenet5", "--max-p99", "50", "--sessions", "2"], "--sessions 2 with --objective capacity"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(call: Call, tmp_path: Path, words: list[str], message: str) -> None:
    storage = [] if words[0] == "compare" else ["--storage", str(tmp_path / "t.db")]
    code, _, err = call(*words, "--objective", "capacity", *storage)
    assert (code, message in err) == (2, True), err


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_real_search_for_capacity(tmp_path: Path) -> None:
    storage = tmp_path / "t.db"
    study = tuner.search(
        "lenet5", objective="capacity", max_p99_ms="50ms", time_budget="20s", storage=storage, progress=False
    )
    assert study.result.objective is Objective.CAPACITY
    assert study.result.command == "tftune search lenet5 --time-budget 20s --objective capacity --max-p99 50ms"
    assert study.result.recommended is not None
    keeps_default = study.result.recommended.source == study.result.default  # either may be the answer of a machine
    assert study.card.answers[0].word in (("KEEP", "UNDECIDED") if keeps_default else ("MORE", "CARRIES"))
    tested = tuner.stored_load_test(study.name, storage=storage)
    assert tested.result.limit_ms == 50
    default = tested.result.curves[0].capacity
    assert default is not None
    assert tuner.size(2 * default.rate, "50ms", study=study.name, storage=storage).result.rows[0].copies
    with pytest.raises(tuner.BadInputError, match="a check measures no load"):
        tuner.check(study.name, storage=storage, progress=False)
    with pytest.raises(FindingError, match=r"none has shown a p99 of at most 0\.001 ms"):
        tuner.search(
            "lenet5", objective="capacity", max_p99_ms=0.001, time_budget="5s", storage=storage, progress=False
        )


@pytest.mark.parametrize("quota", [0.3, 0.5, 1.0])
def test_a_quota_of_less_than_two_cpus_has_no_room_for_several_processes(
    machine: Machine, stock: Build, resnet50: Workload, quota: float
) -> None:
    limited = replace(machine, cpu_quota=quota)
    made = resolve(read_space("cpu", limited), machine=limited, build=stock, workload=resnet50, with_groups=True)
    assert made.groups == {}


def test_more_processes_than_cores_are_refused_in_a_line(call: Call) -> None:
    code, _, err = call("search", "lenet5", "--set", "instances=5000")
    assert code == 2
    assert "instances=5000 is out of range; expected a whole number from 1 to" in err


def test_the_card_of_a_kept_default_says_so_once(
    finished: Finished, space: Space, load: LoadResult, call: Call, tmp_path: Path
) -> None:
    record, _ = finished(space, tmp_path, trials=16)
    record.put("finals", None)
    record.put("objective", "capacity")
    record.put("limits", Limits(p99_s=0.08))
    for code, low, first in ((VerdictCode.UNDECIDED, 0.9, "? UNDECIDED  resnet50, one process"),
                             (VerdictCode.WORSE, 0.6, "= KEEP  resnet50: keep tf-default: no setting")):  # fmt: skip
        verdict = structs.replace(load.curves[1].against_default, code=code, low=low)
        kept = structs.replace(load, curves=(load.curves[0], structs.replace(load.curves[1], against_default=verdict)))
        record.put("loads", [{"result": msgspec.to_builtins(kept), "measured": {}}])
        _, out, _ = call("show", "made", "--storage", str(tmp_path / "t.db"))
        assert out.startswith(first)
        assert out.count("keep tf-default") == (1 if code is VerdictCode.UNDECIDED else 2)
        line = call("list", "--storage", str(tmp_path / "t.db"))[1]
        assert f" {code} " in line
