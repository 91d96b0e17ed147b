"""The third question of a search: what is the fastest at the default's latency; on a scripted machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec import structs

import tuner
from tests.conftest import Call, Finished
from tests.frameworks import read_space, resolve
from tests.loads import held, result_of
from tests.schemas import validator
from tests.scripted import Log, noisy, run, side_by_side, surface
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.job import load as load_job
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.machine.host import Machine
from tuner.measure.budget import LATENCY, Budget, Countdown
from tuner.measure.constraint import Limits
from tuner.measure.recommendation import MUCH_LONGER
from tuner.measure.rounds import SAME_LATENCY
from tuner.report import studycard
from tuner.report.frame import studies as study_table
from tuner.result.document import advice_of, describe_line, describe_study
from tuner.result.study import (
    AT_SAME_LATENCY,
    ONE,
    SEVERAL,
    AnswerResult,
    CallResult,
    GainResult,
    LatencyResult,
    RecommendedResult,
    StudyResult,
)
from tuner.space.groups import in_flight
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import VerdictCode
from tuner.stats.tail import QUANTILES, LimitStatus, samples_needed
from tuner.study.history import History
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.record import Record
from tuner.study.trials import Trial
from tuner.trial.outcome import Status
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

PLAN = Plan(n_groups=3, same_latency=True)
TIME = Budget(time_s=300)


@pytest.fixture(scope="module")
def several(machine: Machine, stock: Build, resnet50: Workload) -> Space:
    """The shipped CPU space with settings of several processes, on a machine with two nodes of four cores."""
    cores = replace(machine, cores=[f"{core},{core + 8}" for core in range(8)])
    return resolve(read_space("cpu", cores), machine=cores, build=stock, workload=resnet50, with_groups=True)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, several: Space) -> tuple[Record, Log, Path]:
    """Return a search whose eight processes are 2.4 times as fast, in calls that take 3.3 times as long."""
    folder = tmp_path_factory.mktemp("latency")
    record, log = run(several, noisy(rate=side_by_side(0.3), start_s=2.0), folder=folder, plan=PLAN, budget=TIME)
    return record, log, folder


@pytest.fixture(scope="module")
def study(searched: tuple[Record, Log, Path]) -> StudyResult:
    return describe_study(searched[0])


def rows_of(study: StudyResult) -> list[tuple[str, str]]:
    return list(studycard.study_card(study, handle="last").rows)


def best_at_the_default_batch(setting: Setting) -> float:
    """Return items/s of a machine on which a batch of 8 is the best, and several processes gain with it alone."""
    n = int(setting.to_dict().get("instances", 1))
    if n > 1:
        return 25.0 * n if setting.batch_size == 8 else 20.0
    return surface(setting.with_values(batch_size=2 * setting.batch_size))


def only_large_batches(setting: Setting) -> float:
    """Return items/s of a machine on which several processes gain with the default's batch, and all else loses."""
    values = setting.to_dict()
    n = int(values.get("instances", 1))
    if n > 1 and setting.batch_size >= 8:
        return 25.0 * n
    threads = 1.0 if values["inter_op"] == values["intra_op"] == 16 else 0.8
    return threads * min(100.0, 60.0 + 5.0 * setting.batch_size)


# ---- which is asked about --------------------------------------------------------------------------------------


def test_only_a_search_without_an_objective_asks_for_it() -> None:
    def asks(mode: str = "inference", **options: str) -> bool:
        request = SearchRequest(workload=WorkloadSpec.of_name("lenet5", mode=mode), **options)  # type: ignore[arg-type]
        return parse_request(request, stores=False).same_latency

    assert asks()
    assert not asks(objective="throughput")
    assert not asks(objective="latency")
    assert not asks(mode="training")


def test_items_in_flight_are_those_of_all_processes_and_streams(several: Space) -> None:
    group = Setting.of({"instances": 4, "streams": 2, "batch_size": 8})
    assert in_flight(group) == 64
    assert in_flight(several.reference) == several.reference.batch_size


def test_a_part_of_the_time_ends_with_its_share() -> None:
    clock = Countdown(total_s=100.0, now=lambda: 20.0, began_s=0.0)
    assert clock.part(0.5).left_s() == 40.0
    assert replace(clock, total_s=None).part(0.5).total_s is None


def test_of_two_answers_that_keep_it_the_faster_one_is_taken(finished: Finished, space: Space, tmp_path: Path) -> None:
    study = describe_study(finished(space, tmp_path, trials=16)[0])
    call_ = CallResult(items=8, p50_ms=80.0, p99_ms=None, peak_memory_bytes=None)
    price = LatencyResult(before=call_, after=call_, ratio=0.8, low=0.7, high=0.9)

    def proven(speedup: float) -> RecommendedResult:
        gain = GainResult(
            speedup=speedup, low=1.05, high=2.0, code=VerdictCode.BETTER, sessions=1, sessions_disagree=False,
            closest_s=None,
        )  # fmt: skip
        return structs.replace(study.recommended, gain=gain, latency=price)

    def of_both(one: float, several: float) -> StudyResult:
        groups = AnswerResult(finals=study.finals, verdicts=study.verdicts, recommended=proven(several))
        return structs.replace(study, recommended=proven(one), groups=groups)

    for one, several in ((1.2, 1.5), (1.5, 1.2)):
        advice = advice_of(of_both(one, several), groups=None, same_latency=True)
        assert advice.gain.speedup == 1.5
    with pytest.raises(BadInputError, match="has no finals yet"):
        advice_of(structs.replace(study, finals=None, recommended=None), groups=None, same_latency=True)


def test_batches_of_a_server_at_the_same_latency_are_its_own(finished: Finished, space: Space, tmp_path: Path) -> None:
    study, load = describe_study(finished(space, tmp_path, trials=16)[0]), result_of(held()[0])
    advice = structs.replace(study.recommended, setting={**study.recommended.setting, "batch_size": 1})
    short = structs.replace(
        study, same_latency=AnswerResult(finals=study.finals, verdicts=study.verdicts, recommended=advice)
    )
    loaded = structs.replace(load, curves=(load.curves[0], structs.replace(load.curves[1], setting=advice.setting)))
    assert studycard.batching(short, advice, loaded).max_batch_size == 1
    assert studycard.batching(short, study.recommended, loaded).max_batch_size == loaded.curves[1].max_batch == 8


@pytest.mark.parametrize(
    ("spare", "se", "instances"),
    [(0.005, 0.03, 8), (0.06, 0.03, 4), (0.005, 0.004, 4), (-0.01, 0.03, 8)],
)
def test_what_may_well_take_longer_is_left_for_what_gains_less(
    several: Space, spare: float, se: float, instances: int
) -> None:
    """Four processes have twice the items in flight: is it sure that they are twice as fast, and not just expected?"""

    def measured(number: int, setting: Setting, log_ratio: float, se: float) -> Trial:
        return Trial(
            number=number, setting=setting, status=Status.OK, log_ratio=log_ratio, se=se, df=20, passes=(1, 2),
            is_group=number > 0,
        )  # fmt: skip

    record = SimpleNamespace(attributes=lambda: SimpleNamespace(noise=None))
    history = History(record, several)  # type: ignore[arg-type]
    history.trials = [measured(0, several.reference, 0.0, 0.01)]
    history.groups = [
        measured(1, Setting.of({"instances": 4, "batch_size": 4}), math.log(2) + spare, se),
        measured(2, Setting.of({"instances": 8, "batch_size": 1}), 0.5, 0.03),
    ]
    chosen = history.at_same_latency()
    assert chosen is not None
    assert chosen[0]["instances"] == instances
    assert chosen[1] == pytest.approx(0.5 if instances == 8 else math.log(2) + spare)


def test_it_is_shown_beside_the_answers_that_it_was_asked_for(
    finished: Finished, space: Space, tmp_path: Path, call: Call
) -> None:
    """Where a study goes on, and another setting takes the place of one, what was held or told before is not shown."""
    record, _ = finished(space, tmp_path, trials=16)
    held = record.get("finals")
    first, *rest = held["contenders"]
    beside = {"finals": first["setting"], "group_finals": {"instances": 2}}  # of which no rounds were held

    def shown() -> tuple[bool, str | None, list[str], object]:
        study, storage = describe_study(record), ("--storage", str(tmp_path / "t.db"))
        lines = [line for line in call("list", *storage)[1].splitlines() if line.startswith("  same latency ")]
        [row] = msgspec.json.decode(call("list", "--json", *storage)[1])
        return study.same_latency is not None, study.why_no_same_latency, lines, row["same_latency"]

    record.put("no_same_latency", {"why": "no time was left", "beside": beside})
    assert shown() == (False, "no time was left", [], None)
    record.put("latency_finals", {**held, "beside": beside})
    is_there, why, [line], verdict = shown()
    assert (is_there, why) == (True, None)
    assert verdict == msgspec.json.decode(msgspec.json.encode(describe_line(record))).get("verdict")
    assert "better" in line
    assert "intra_op=" in line
    record.put("finals", {**held, "contenders": [{**first, "setting": {**first["setting"], "inter_op": 5}}, *rest]})
    assert shown() == (False, None, [], None)
    record.put("finals", held)
    assert shown()[0]
    record.put("group_finals", held)
    assert shown() == (False, None, [], None)
    record.put("group_finals", None)
    record.put("latency_finals", held)  # an earlier version did not say beside which
    assert shown()[0]


def test_it_comes_under_load_with_the_others(finished: Finished, space: Space, tmp_path: Path) -> None:
    study = describe_study(finished(space, tmp_path, trials=16)[0])
    setting = {**study.recommended.setting, "intra_op": 3, "batch_size": 1}
    advice = structs.replace(study.recommended, setting=setting)
    answer = AnswerResult(finals=study.finals, verdicts=study.verdicts, recommended=advice)

    def names(of: StudyResult) -> list[str]:
        return [name for name, *_ in load_job.settings_of(of, load_job.recommended_of(of))]

    assert names(study) == ["tf-default", ONE]
    assert names(structs.replace(study, same_latency=answer)) == ["tf-default", ONE, AT_SAME_LATENCY]
    batch = structs.replace(
        answer, recommended=structs.replace(advice, setting={**study.recommended.setting, "batch_size": 1})
    )
    assert names(structs.replace(study, same_latency=batch)) == ["tf-default", ONE]  # batches are those of the load


# ---- in a search -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_fastest_at_the_default_latency_has_an_answer_of_its_own(study: StudyResult, several: Space) -> None:
    assert study.groups is not None
    assert study.groups.recommended.latency.low > MUCH_LONGER
    assert study.same_latency is not None
    assert study.same_latency.verdicts["tf-default"].code is VerdictCode.BETTER
    advice = study.same_latency.recommended
    assert advice.source == "same-latency"
    assert advice.gain is not None
    assert advice.latency.low <= 1
    setting = Setting.of(advice.setting)
    assert in_flight(setting) <= several.reference.batch_size
    truth = side_by_side(0.3)(setting) / surface(several.reference)
    assert study.same_latency.verdicts["tf-default"].speedup == pytest.approx(truth, rel=0.03)
    assert advice.deployment == several.deployment(setting)
    assert advice_of(study, groups=None, same_latency=True) == advice
    assert list(study.answers) == [ONE, SEVERAL, AT_SAME_LATENCY]


@pytest.mark.slow
def test_several_processes_are_tried_with_smaller_batches(searched: tuple[Record, Log, Path], several: Space) -> None:
    """After each number at the usual batch size the fastest of them has as many items in flight as the default."""
    tried = [trial.setting for trial in searched[0].groups()]
    assert [each.batch_size for each in tried] == [several.reference.batch_size] * 3 + [1]
    assert in_flight(tried[3]) == several.reference.batch_size
    assert tried[3]["instances"] == 8


@pytest.mark.slow
def test_its_rounds_come_after_the_verdict_and_have_a_part_of_the_time(searched: tuple[Record, Log, Path]) -> None:
    record, log, _ = searched
    [begun] = [i for i, stage in enumerate(log.stages) if "finals of the fastest that keeps the latency" in stage]
    assert any(stage.startswith("proven so far: 8 processes") for stage in log.stages[:begun])
    assert any(stage.startswith("proven so far: the fastest that keeps the latency") for stage in log.stages[begun:])
    held, beside = record.attributes().latency_finals, record.get("latency_finals")["beside"]
    assert held is not None
    assert beside == {key: record.get(key)["contenders"][0]["setting"] for key in ("finals", "group_finals")}
    assert sum(each.timed_s for each in held.rounds) < LATENCY * TIME.time_s
    assert record.attributes().runs[-1].wall_s <= 305


@pytest.mark.slow
def test_the_card_names_it_beside_the_others(study: StudyResult) -> None:
    card = studycard.study_card(study, handle="last")
    assert [each.text.partition(":")[0] for each in card.answers] == [
        "resnet50, one process",
        "8 processes side by side",
        "same latency, 8 processes side by side",
    ]
    assert card.answers[2].word == "FASTER"
    assert "batch 1 (default 8)" in card.answers[2].setting
    texts = [text for _, text in card.rows]
    for command in ("emit", "check", "run"):
        assert any(text.startswith(f"tftune {command} last --same-latency") for text in texts)
    [price] = [text for text in texts if text.startswith("same latency: a call")]
    assert "p50" in price
    assert not any("--objective latency" in text for text in texts)
    page = tuner.Study(study).report("html")
    assert "Finals at the same latency" in page
    assert "sh, same latency" in page
    assert "same latency, 8 processes side by side" in tuner.Study(study).report("md")
    assert study_table([study])["same_latency_verdict"].tolist() == ["better"]


@pytest.mark.slow
def test_its_document_is_what_the_schema_says(study: StudyResult) -> None:
    document = msgspec.json.decode(msgspec.json.encode(study))
    validator("show").validate(document)
    assert msgspec.convert(document, StudyResult).same_latency == study.same_latency
    del document["same_latency"]
    assert msgspec.convert(document, StudyResult).same_latency is None  # earlier documents do not have it


@pytest.mark.slow
def test_emit_takes_it(call: Call, searched: tuple[Record, Log, Path], study: StudyResult) -> None:
    record, _, folder = searched
    storage = ("--storage", f"sqlite:///{folder}/t.db")
    code, out, _ = call("emit", record.name, "--same-latency", "--json", *storage)
    assert code == 0
    assert msgspec.json.decode(out)["arguments"] == study.same_latency.recommended.arguments
    error = call("emit", record.name, "--instances", *storage)[2]
    assert "calls take longer with this; at the same latency" in error
    assert "--same-latency" in error
    code, _, error = call("emit", record.name, "--same-latency", "--instances", *storage)
    assert code == 2
    assert "an answer of its own" in error


@pytest.mark.slow
def test_without_being_asked_nothing_is_measured(several: Space) -> None:
    plan = replace(PLAN, same_latency=False)
    record, _ = run(several, noisy(rate=side_by_side(0.3)), plan=plan, budget=Budget(trials=6))
    study = describe_study(record)
    assert (study.same_latency, study.why_no_same_latency) == (None, None)
    assert len(record.groups()) == 3
    assert advice_of(study, groups=None, same_latency=True) == study.recommended  # which keeps it
    slower = structs.replace(study.recommended, latency=None)
    with pytest.raises(BadInputError, match="at the latency of tf-default: only a search without"):
        advice_of(structs.replace(study, recommended=slower), groups=None, same_latency=True)
    assert any(text.endswith("--objective latency") for _, text in rows_of(study))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "why"),
    [
        (best_at_the_default_batch, "the fastest that keeps it is that of one process"),
        (only_large_batches, "nothing faster keeps it; the fastest that does, "),
    ],
)
def test_why_there_is_none_is_a_line_of_the_card(several: Space, rate: Callable[[Setting], float], why: str) -> None:
    record, _ = run(several, noisy(rate=rate), plan=PLAN, budget=Budget(trials=12))
    study = describe_study(record)
    assert study.same_latency is None
    assert study.why_no_same_latency is not None
    assert study.why_no_same_latency.startswith(why)
    assert f"same latency: {study.why_no_same_latency}" in [text for _, text in rows_of(study)]
    if "one process" in why:
        assert advice_of(study, groups=None, same_latency=True) == study.recommended
    else:
        with pytest.raises(BadInputError, match="nothing faster keeps it"):
            advice_of(study, groups=None, same_latency=True)


@pytest.mark.slow
def test_equal_settings_are_not_asked_about(several: Space) -> None:
    """It follows a verdict: where all settings are equal, that was wrong already, and no third error is added."""
    for seed in range(6):
        launcher = noisy(rate=lambda _: 100.0, seed=seed)
        record, _ = run(several, launcher, plan=PLAN, budget=Budget(trials=8), seed=seed)
        study = describe_study(record)
        proven = [answer for answer in study.answers.values() if answer.recommended.gain is not None]
        assert record.attributes().latency_finals is None or proven


@pytest.mark.slow
def test_what_takes_longer_in_the_finals_is_not_recommended(several: Space) -> None:
    record, _ = run(several, noisy(rate=side_by_side(0.3), start_s=2.0), plan=PLAN, budget=TIME)
    stored = record.get("latency_finals")
    for round_ in stored["rounds"]:
        for slice_ in round_["slices"]["same-latency"]:
            slice_["step_s"] = [2 * each for each in slice_["step_s"]]
    record.put("latency_finals", stored)
    answer = describe_study(record).same_latency
    assert answer is not None
    assert answer.verdicts["tf-default"].code is VerdictCode.BETTER
    assert answer.recommended.source == "tf-default"
    assert answer.recommended.reason.startswith("keep tf-default: in the finals a call")
    assert any("in the finals a call" in text for _, text in rows_of(describe_study(record)))


@pytest.mark.slow
def test_a_study_that_goes_on_has_another_session_of_it(several: Space, tmp_path: Path) -> None:
    launcher = noisy(rate=side_by_side(0.3))
    run(several, launcher, folder=tmp_path, plan=PLAN, budget=Budget(trials=6))
    record, _ = run(several, launcher, folder=tmp_path, plan=PLAN, budget=Budget(trials=8))
    assert len(record.attributes().earlier_latency_finals) == 1
    answer = describe_study(record).same_latency
    assert answer is not None
    assert answer.recommended.gain is not None
    assert answer.recommended.gain.sessions in (1, 2)


@pytest.mark.slow
def test_finals_of_one_process_alone_are_followed_too(space: Space) -> None:
    """A batch of 16 is the fastest, and takes longer than one of 8 at the default's threads."""

    def rate(setting: Setting) -> float:
        return surface(setting) * (1.02 if setting.batch_size > 8 else 1.0)

    record, _ = run(space, noisy(rate=rate), plan=Plan(same_latency=True), budget=Budget(trials=16))
    study = describe_study(record)
    assert study.recommended.latency.low > MUCH_LONGER
    assert study.same_latency is not None
    assert study.same_latency.finals.incumbent["batch_size"] <= 8
    assert [each.text.partition(":")[0] for each in studycard.study_card(study, handle="last").answers] == [
        "resnet50",
        "same latency",
    ]
    unproven = structs.replace(study, same_latency=None, why_no_same_latency="no time was left")
    assert ("", "same latency: no time was left") in rows_of(unproven)


@pytest.mark.slow
def test_a_limit_on_p99_has_its_steps_there_too(several: Space) -> None:
    """Steps of a third of a second are few until a verdict."""
    slow = side_by_side(0.3)
    limits = Limits(p99_s=1000.0)  # which all keep to
    plan = replace(PLAN, evaluation=EvaluatorPlan(limits=limits))
    launcher = noisy(rate=lambda each: 0.1 * slow(each), start_s=2.0)
    record, _ = run(several, launcher, plan=plan, limits=limits, budget=Budget(time_s=3000))
    answer = describe_study(record).same_latency
    assert answer is not None
    assert answer.finals.tails[SAME_LATENCY].n_steps >= samples_needed(QUANTILES["p99"])
    assert answer.finals.kept[SAME_LATENCY] is LimitStatus.MET
