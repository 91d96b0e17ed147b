"""Frameworks side by side: who takes part, what a comparison comes to, and for real, a small model in all of them."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import convert

from tests import forked
from tests.command_line import tftune_here
from tests.conftest import QUIET, Call
from tests.frameworks import subject
from tests.scripted_launcher import ScriptedLauncher
from tuner.devices import registry as devices
from tuner.errors import BadInputError
from tuner.job.frameworks.candidate import SAME, Candidate, Failure, chosen, interpreters, variants
from tuner.job.frameworks.comparison import Comparison, check, make_ready, prepare_comparison, request_of, tune
from tuner.job.frameworks.measuring import Schedule, answering, finals_share, not_known, scan
from tuner.job.frameworks.result import ComparisonData, bests, describe_frameworks
from tuner.job.frameworks.store import CheckedStart, Loading, Store
from tuner.job.parsed import parse_request
from tuner.job.request import MAY_CHANGE, FrameworksRequest
from tuner.machine.pagecache import evict
from tuner.measure.agreement import spread
from tuner.measure.budget import Countdown
from tuner.measure.measurement import Measurement, checked_measurement
from tuner.measure.objective import Objective
from tuner.measure.pair import Pair
from tuner.measure.rates import log_rates
from tuner.measure.rounds import Round
from tuner.plain import to_plain
from tuner.report.frameworks import as_csv, chart, frameworks_card
from tuner.result.frameworks import SettingKind, TunedResult
from tuner.space.deployment import Deployment
from tuner.space.groups import parse_sizes
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import VerdictCode
from tuner.stats.moderation import half_widths
from tuner.trial.outcome import ReadyReport, Slice, Status, TrialFailure
from tuner.workload.spec import WorkloadSpec

CPU = devices.find("cpu")
BATCH = 8


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("1..8", [1, 2, 4, 8]), ("1..10", [1, 2, 4, 8, 10]), ("8,1,8", [1, 8]), ("3..3", [3]), ("5", [5])],
)
def test_batch_sizes_double_or_are_named(text: str, sizes: list[int]) -> None:
    assert parse_sizes(text, "--scan") == sizes


@pytest.mark.parametrize("text", ["", "0..4", "8..1", "a..b", "1..", "1,,2", "1..99999999", "1.5"])
def test_other_batch_sizes_are_one_line(text: str) -> None:
    with pytest.raises(BadInputError, match="--scan is"):
        parse_sizes(text, "--scan")


def test_variants_are_frameworks_executions_and_precisions() -> None:
    keep = variants(CPU, {}, may_change_numerics=False)
    assert list(keep)[:2] == ["tensorflow", "tensorflow-xla"]
    assert {"onnxruntime", "openvino"} <= keep.keys()
    assert "command" not in keep
    assert keep["openvino"].limit("f32") == SAME
    change = variants(CPU, {}, may_change_numerics=True)
    assert change["openvino-bf16"].pins == ("inference_precision=bf16",)
    assert change["openvino-bf16"].limit("bf16") > SAME
    names, are_named = chosen("openvino,tensorflow-xla", keep, CPU)
    assert ([each.name for each in names], are_named) == (["tensorflow", "openvino", "tensorflow-xla"], True)
    with pytest.raises(BadInputError, match="unknown framework 'openvin'; did you mean openvino"):
        chosen("openvin", keep, CPU)


def test_searches_of_frameworks_look_for_throughput_alone() -> None:
    """What is the fastest at the default's latency is no row of the comparison, and takes time."""
    of_tensorflow = variants(CPU, {}, may_change_numerics=False)["tensorflow"]
    request = FrameworksRequest(workload=WorkloadSpec.of_name("lenet5"))
    assert not parse_request(request_of(of_tensorflow, request, BATCH), stores=False).same_latency


def test_an_interpreter_is_for_one_framework_or_for_all() -> None:
    named = interpreters([f"openvino={sys.executable}"])
    assert named == {"openvino": Path(sys.executable)}
    assert set(interpreters([sys.executable]).values()) == {Path(sys.executable)}
    with pytest.raises(BadInputError, match="unknown framework 'pytorch'"):
        interpreters(["pytorch=/bin/python"])
    with pytest.raises(BadInputError, match="unknown framework 'openvino-xla'"):
        interpreters([f"openvino-xla={sys.executable}"])
    assert interpreters([f"tensorflow-xla={sys.executable}"]) == {"tensorflow-xla": Path(sys.executable)}
    with pytest.raises(BadInputError, match="no interpreter at /none/python"):
        interpreters(["openvino=/none/python"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scan", "8..1"], "--scan is '8..1'; expected numbers from 1"),
        (["--frameworks", "tensorflo"], "unknown framework 'tensorflo'"),
        (["--frameworks", "tensorrt"], "TensorRT cannot run on cpu; expected --device gpu"),
        (["--frameworks", "openvino-bf16"], "openvino-bf16 computes in another precision; allow it with --numerics"),
        (["--stored"], "no comparison of frameworks on lenet5 at batch size 64 is stored in"),
        (["--stored", "--new"], "--stored and --new contradict each other"),
        (["--framework", "onnxruntime"], "--framework onnxruntime names one"),
        (["--numerics", "may_change"], "unknown word for --numerics 'may_change'; did you mean may-change"),
        (["--execution", "eager"], "--execution eager is one of several that are compared; leave it out"),
        (["--frameworks", ","], "--frameworks is empty"),
        (["--framework", "openvino"], "--framework openvino names one; name those to compare with --frameworks"),
        (["--time-budget", "soon"], "--time-budget is 'soon'"),
        (["--batch-size", "0"], "--batch-size is 0; expected at least 1"),
    ],
)
def test_bad_input_is_one_line(call: Call, words: list[str], message: str) -> None:
    code, out, err = call("frameworks", "lenet5", *words)
    assert (code, out) == (2, "")
    assert message in err


def facts(outputs: list[float]) -> ReadyReport:
    """Return what a process tells that computes these outputs."""
    warm_up = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,))
    return ReadyReport(
        import_s=0.1, context_s=0.2, load_s=0.3, first_step_s=0.4, warm_up=warm_up, effective={},
        sample={"inputs": "same", "outputs": {"y": outputs}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outputs", "precision", "status", "message"),
    [
        ([1.0, 2.0], "f32", Status.OK, ""),
        ([1.0, 2.001], "f32", Status.OK, ""),
        ([1.0, 2.01], "f32", Status.INVALID, "its outputs deviate from TensorFlow's by 0.005, more than 0.001"),
        ([1.0], "f32", Status.INVALID, "its outputs deviate from TensorFlow's by 1, more than 0.001"),
        ([1.0, 2.0], "bf16", Status.INVALID, "it computes in bf16, and TensorFlow in f32"),
        ([1.0, 2.0], None, Status.OK, ""),
    ],
)
def test_other_outputs_or_another_precision_are_not_timed(
    outputs: list[float], precision: str | None, status: Status, message: str
) -> None:
    expected = facts([1.0, 2.0]).sample
    measurement = checked_measurement(
        "openvino/default", BATCH, facts(outputs), precision, expected=expected, expected_precision="f32", limit=SAME
    )
    assert (measurement.status, measurement.message) == (status, message)
    assert measurement.constructor_s == pytest.approx(0.5)
    assert convert(json.loads(json.dumps(to_plain(measurement))), Measurement) == measurement


def slice_of(rate: float, batch_size: int = BATCH) -> Slice:
    """Return a slice of ten steps at so many items per second."""
    step_s = batch_size / rate
    return Slice(start_s=0.0, elapsed_s=10 * step_s, n_steps=10, step_s=(step_s,) * 10)


RATES = {"tensorflow/default": 50.0, "onnxruntime/default": 60.0, "openvino/default": 70.0, "openvino/tuned": 77.0}


def prepared_variant(name: str, **facts: Any) -> Any:
    """Return what stands in for a prepared variant, each of whose settings has its name."""
    settings = {kind: Setting.of({"name": f"{name}/{kind}"}) for kind in SettingKind}
    deploys = SimpleNamespace(deployment=lambda _: Deployment())
    job = SimpleNamespace(space=deploys, build=SimpleNamespace(to_dict=lambda: {"id": "x"}))
    usual = {"name": name, "key": f"{name}/1", "job": job, "launcher": None, "starts": {}, "failure": None}
    return SimpleNamespace(settings=lambda: settings, **(usual | facts))


def candidate_of(name: str, **facts: Any) -> Candidate:
    """Return a candidate by its name, such as openvino/tuned."""
    variant, _, kind = name.partition("/")
    return Candidate(prepared=prepared_variant(variant, **facts), kind=SettingKind(kind))


@pytest.fixture
def data(space: Space) -> ComparisonData:
    """Twelve rounds and three batch sizes of rates that are known, with noise of 1 % and drift of 20 %."""
    rng = np.random.default_rng(0)
    rounds = []
    for _ in range(12):
        drift = float(rng.uniform(0.8, 1.0))
        rows = {name: [slice_of(rate * drift * math.exp(rng.normal(0, 0.01)))] * 4 for name, rate in RATES.items()}
        rounds.append(Round(slices=rows, memory=dict.fromkeys(RATES, 1 << 30)))
    # The hour of the scan is slower than that of the finals: the reference is so at its own batch size, too.
    anchored = Pair(reference=[slice_of(40, BATCH)] * 4, candidate=[slice_of(44, 16)] * 4)
    measurements = [Measurement(contender="tensorflow/default", batch_size=16, pair=anchored, paired_batch_size=BATCH)]
    for name in ("onnxruntime/default", "openvino/default"):
        pair = Pair(reference=[slice_of(100, 16)] * 4, candidate=[slice_of(2 * RATES[name], 16)] * 4)
        measurements.append(Measurement(contender=name, batch_size=16, pair=pair, precision="f32"))
    measurements.append(
        Measurement(contender="openvino/tuned", batch_size=16, status=Status.OOM, message="memory ran out")
    )
    start = Measurement(contender="any", batch_size=BATCH, precision="f32", deviation=1e-7)
    return ComparisonData(
        name="frameworks-x",
        subject=subject(space),
        batch_size=BATCH,
        candidates=[candidate_of(name, starts=dict.fromkeys(SettingKind, start)) for name in RATES],
        absent=[],
        tuned={"onnxruntime": TunedResult(study="s", setting={"batch_size": BATCH}, failure="", searched_s=None)},
        rounds=rounds,
        measurements=measurements,
        loads={"openvino": Loading(cold=[(1.5, 0.5), (3.5, 0.5)], warm=[(0.75, 0.25), (0.75, 0.25)])},
        ended="complete",
        conditions=QUIET,
        why_no_energy="no meter",
        spread=0.5,
    )  # fmt: skip


def test_ratios_are_of_rounds_and_drift_is_taken_out(data: ComparisonData) -> None:
    result = describe_frameworks(data)
    rows = {(row.framework, row.kind): row for row in result.rows if row.batch_size == BATCH}
    assert rows["tensorflow", "default"].ratio is None
    for (framework, kind), row in rows.items():
        if framework == "tensorflow":
            continue
        expected = RATES[f"{framework}/{'default' if row.is_default else kind}"] / 50
        assert row.ratio is not None
        assert row.ratio.low < expected < row.ratio.high
        assert row.ratio.high - row.ratio.low < 0.04  # a drift of 20 % would make it ten times as wide
        assert row.verdict is VerdictCode.BETTER
        assert row.source == "finals"
    # A framework whose search keeps the default has a tuned row all the same.
    assert rows["onnxruntime", "tuned"].is_default
    assert rows["onnxruntime", "tuned"].items_per_s == rows["onnxruntime", "default"].items_per_s
    assert (rows["openvino", "default"].load_s, rows["openvino", "default"].cold_load_s) == (1.0, 3.0)
    assert result.fastest is not None
    assert (result.fastest.framework, result.fastest.kind) == ("openvino", "tuned")
    assert {name: each.code for name, each in result.fastest.over.items()} == {
        "tensorflow": VerdictCode.BETTER,
        "onnxruntime": VerdictCode.BETTER,
    }


def test_other_batch_sizes_are_of_pairs_and_a_curve_ends_where_memory_does(data: ComparisonData) -> None:
    every = describe_frameworks(data).rows
    rows = {(row.framework, row.kind): row for row in every if row.batch_size == 16}
    at_8 = next(row for row in every if (row.framework, row.batch_size) == ("tensorflow", BATCH))
    assert at_8.items_per_s is not None
    # Its own pair says 44/40; the hour in which it ran was slower, and the pairs of the others ran in a faster one.
    assert rows["tensorflow", "default"].items_per_s == pytest.approx(1.1 * at_8.items_per_s, rel=1e-6)
    assert rows["tensorflow", "default"].batch_ratio is not None
    assert rows["tensorflow", "default"].batch_ratio.speedup == pytest.approx(1.1)
    assert rows["openvino", "default"].items_per_s == pytest.approx(1.4 * 1.1 * at_8.items_per_s, rel=1e-6)
    ratio = rows["openvino", "default"].ratio
    assert ratio is not None
    assert ratio.low < 1.4 < ratio.high
    assert rows["openvino", "tuned"].status is Status.OOM
    assert rows["openvino", "tuned"].items_per_s is None
    assert rows["openvino", "tuned"].message == "memory ran out"


def test_a_tuned_setting_that_was_not_measured_has_no_figures_of_the_default(data: ComparisonData) -> None:
    measurement = next(each for each in data.measurements if each.contender == "openvino/default")
    anchor = next(each for each in data.measurements if each.contender == "tensorflow/default")
    more = [replace(measurement, batch_size=32), replace(anchor, batch_size=32)]
    rows = describe_frameworks(replace(data, measurements=[*data.measurements, *more])).rows
    assert {(row.framework, row.kind) for row in rows if row.batch_size == 32} == {
        ("tensorflow", "default"),
        ("openvino", "default"),
    }


def test_the_best_of_a_framework_is_its_default_where_the_tuned_one_is_slower(data: ComparisonData) -> None:
    swapped = {"openvino/default": "openvino/tuned", "openvino/tuned": "openvino/default"}
    rounds = [replace(r, slices={swapped.get(n, n): each for n, each in r.slices.items()}) for r in data.rounds]
    first = describe_frameworks(replace(data, rounds=rounds)).fastest
    assert first is not None
    assert (first.framework, first.kind) == ("openvino", "default")


def test_nobody_is_told_to_stay_without_evidence(data: ComparisonData) -> None:
    names = {"tensorflow/default": "openvino/default", "openvino/default": "tensorflow/default"}
    rounds = [replace(r, slices={n: r.slices[o] for n, o in names.items()}) for r in data.rounds]
    candidates = [candidate for candidate in data.candidates if candidate.name in names]
    shown = describe_frameworks(replace(data, rounds=rounds, candidates=candidates))
    assert frameworks_card(shown).answers[0].word == "STAY WITH TENSORFLOW"
    few = [replace(r, slices=dict(r.slices)) for r in rounds[:2]]
    noisy = few[0].slices["openvino/default"][0]
    few[0].slices["openvino/default"] = [replace(noisy, elapsed_s=noisy.elapsed_s * 1.5)] * 4
    undecided = frameworks_card(describe_frameworks(replace(data, rounds=few, candidates=candidates))).answers[0]
    assert (undecided.code, "the proof against openvino is missing" in undecided.text) == (VerdictCode.UNDECIDED, True)


def test_the_table_is_csv_and_the_chart_svg(data: ComparisonData) -> None:
    result = describe_frameworks(data)
    rows = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert len(rows) == len(result.rows)
    assert {row["framework"] for row in rows} == {"tensorflow", "onnxruntime", "openvino"}
    drawn = chart(result)
    assert drawn is not None
    assert drawn.startswith("<svg")
    assert "openvino, tuned" in drawn


def test_a_file_is_put_out_of_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"x" * (4 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.read_bytes()
    resident = ["fincore", "-b", "-n", "-o", "RES", str(path)]
    before = int(subprocess.run(resident, capture_output=True, text=True, check=True).stdout)
    evict([path, tmp_path / "none"])
    after = int(subprocess.run(resident, capture_output=True, text=True, check=True).stdout)
    assert (before, after) == (4 << 20, 0)


def test_what_was_not_measured_yet_has_no_row(data: ComparisonData) -> None:
    """It did not fail."""
    late = "openvino/tuned"
    rounds = [replace(r, slices={n: each for n, each in r.slices.items() if n != late}) for r in data.rounds]
    rows = describe_frameworks(replace(data, rounds=rounds)).rows
    assert [row.kind for row in rows if row.framework == "openvino" and row.batch_size == BATCH] == ["default"]
    failed = [replace(r, failures={late: "oom: no memory"}) for r in rounds]
    [row] = [row for row in describe_frameworks(replace(data, rounds=failed)).rows if row.status is Status.FAILED]
    assert (row.kind, row.message) == ("tuned", "oom: no memory")


@pytest.mark.parametrize(
    ("values", "is_flat"), [((0.001, 0.001001), True), ((0.1, 0.9), False), ((0.5,), False), ((), False)]
)
def test_outputs_that_are_all_alike_agree_with_anything(
    data: ComparisonData, values: tuple[float, ...], is_flat: bool
) -> None:
    sample = {"inputs": "", "outputs": {"output_0": values}}
    codes = [each.code for each in describe_frameworks(replace(data, spread=spread(sample))).warnings]
    assert ("flat outputs" in codes) == is_flat
    batch = {"inputs": "", "outputs": {"output_0": (0.1, 0.9)}}  # one item is like another's, and not like all
    assert (spread({**sample, "batch": batch}) or 0.0) > 0.5


def test_why_a_framework_takes_no_part_is_stored() -> None:
    stored: dict[str, Any] = {}
    record: Any = SimpleNamespace(study=SimpleNamespace(user_attrs=stored), put=stored.__setitem__)
    prepared: Any = SimpleNamespace(key="onnxruntime/1", failure=None)
    store = Store(record, prepared)
    store.put_begin()
    assert store.ended == "interrupted"  # until it ends: it may be killed
    failure = Failure(status=Status.FAILED, message="it has no operator X", hint="leave it out")
    prepared.failure = failure
    store.put_failure(prepared)
    assert Store(record, prepared).failure(prepared) == failure
    prepared.failure = None
    store.put_failure(prepared)
    assert Store(record, prepared).failure(prepared) is None


def test_rounds_are_stored_by_who_took_part() -> None:
    record = SimpleNamespace(study=SimpleNamespace(user_attrs={}), put=lambda *_: None)
    tf, ort, ov = (candidate_of(f"{name}/default") for name in ("tensorflow", "onnxruntime", "openvino"))
    store = Store(record, tf.prepared)  # type: ignore[arg-type]
    store.add_round([tf, ort], Round(slices={each.name: [slice_of(50)] for each in (tf, ort)}))
    assert store.rounds([tf, ov]) == []
    [held] = store.rounds([tf, ort])
    assert held.slices.keys() == {"tensorflow/default", "onnxruntime/default"}
    failed = Round(slices={tf.name: [slice_of(50)]}, failures={ov.name: "oom: no memory"})
    store.add_round([tf, ort, ov], failed)
    assert [each.failures.keys() for each in store.rounds([tf, ov])] == [{"openvino/default"}]
    assert len(store.rounds([tf, ort, ov])) == 2
    assert len(store.rounds([tf, ort])) == 1


def test_what_earlier_versions_have_stored_is_read() -> None:
    """The keys say `cell`, and of a search it was not always known how long it took."""
    stored: dict[str, Any] = {}
    record: Any = SimpleNamespace(study=SimpleNamespace(user_attrs=stored), put=stored.__setitem__)
    candidate = candidate_of("openvino/default")
    pair = Pair(reference=[slice_of(50)] * 2, candidate=[slice_of(64)] * 2)
    measurement = Measurement(contender=candidate.name, batch_size=16, pair=pair)
    store = Store(record, candidate.prepared)
    store.put_measurement(candidate, measurement)
    store.put_checked(candidate, CheckedStart(measurement=measurement, start_s=3.0, sample=None))
    assert [name.partition("/")[0] for name in stored] == ["cell", "check"]
    assert stored.popitem()[1].keys() == {"cell", "start_s", "sample"}
    stored["tuned/openvino/1"] = {"study": "s", "setting": {"batch_size": 8}, "failure": ""}
    again = Store(record, candidate.prepared)
    assert again.measurement(candidate, 16) == measurement
    assert again.batch_sizes == {16}
    assert again.tuned(candidate.prepared) == TunedResult(
        study="s", setting={"batch_size": 8}, failure="", searched_s=None
    )


def test_the_fastest_are_compared_until_their_ratio_is_known(data: ComparisonData) -> None:
    """Each may be known beside the reference, and the answer is a ratio between the two."""
    contenders = [candidate.contender(BATCH) for candidate in data.candidates]
    rng = np.random.default_rng(1)
    rounds = []
    for _ in range(12):
        shift = rng.normal(0, 0.013)  # one is fast when the other is slow
        rates = {"tensorflow/default": 50.0, "onnxruntime/default": 70 * math.exp(shift)}
        rates |= {"openvino/default": 60 * math.exp(-shift), "openvino/tuned": 72 * math.exp(-shift)}
        rounds.append(Round(slices={name: [slice_of(rate)] * 4 for name, rate in rates.items()}))
    widths = half_widths(log_rates(rounds, contenders, Objective.THROUGHPUT)[1])
    assert widths.max() < 0.01
    best_names = [candidate.name for candidate in bests(replace(data, rounds=rounds))]
    assert best_names == ["openvino/tuned", "onnxruntime/default", "tensorflow/default"]
    unknown = [each.names[0] for each in not_known(rounds, contenders, best_names, at_least=6, half_width=0.01)]
    assert unknown == ["onnxruntime/default", "openvino/tuned"]
    assert not_known(rounds, contenders, best_names, at_least=6, half_width=0.03) == []
    assert not_known(rounds, contenders, [], at_least=6, half_width=0.01) == []
    # Two that came in different runs, each known beside the reference, have not met.
    halves = [{"onnxruntime/default"}, {"openvino/default", "openvino/tuned"}]
    apart = [
        replace(each, slices={name: s for name, s in each.slices.items() if name not in halves[i % 2]})
        for i, each in enumerate(rounds * 2)
    ]
    unknown = [each.names[0] for each in not_known(apart, contenders, best_names, at_least=6, half_width=0.03)]
    assert unknown == ["onnxruntime/default", "openvino/tuned"]


def test_whoever_comes_later_meets_all_others_in_the_finals(data: ComparisonData) -> None:
    contenders = [candidate.contender(BATCH) for candidate in data.candidates]

    def names(rounds: Sequence[Round]) -> list[str]:
        return [each.names[0] for each in not_known(rounds, contenders, [], at_least=6, half_width=0.02)]

    assert names(data.rounds) == []
    late = "openvino/tuned"
    before = [replace(r, slices={n: each for n, each in r.slices.items() if n != late}) for r in data.rounds]
    assert names(before) == ["onnxruntime/default", "openvino/default", late]
    assert names([*before, *data.rounds[:3]]) == ["onnxruntime/default", "openvino/default", late]
    assert late not in names([*before, *data.rounds])
    # Two failures are enough to know that it will not run.
    failed = [replace(r, failures={late: "oom: no memory"}) for r in before[:2]]
    assert names([*failed, *before[2:]]) == []


class FakeComparison:
    """A comparison of TensorFlow's default and OpenVINO's, whose items take 0.1 s, in finals at batch size 8."""

    def __init__(self) -> None:
        job = SimpleNamespace(deadline_s=300.0, slice_s=0.5)
        prepared = SimpleNamespace(start_s=5.0, job=job, name="openvino", starts={})
        self.all = [
            SimpleNamespace(name=f"{name}/default", kind=SettingKind.DEFAULT, prepared=prepared)
            for name in ("tensorflow", "openvino")
        ]
        self.reference_candidate = self.all[0]
        self.batch_size, self.batches = BATCH, [1, 8, 16, 256, 1024]
        self.measurements: dict[tuple[str, int], Measurement] = {}
        self.lost_at: int | None = None
        self.time_s = 1e4
        self.free_bytes: int | None = None
        self.store = SimpleNamespace(loading=lambda _: None)

    def free_memory_bytes(self) -> int | None:
        return self.free_bytes

    def candidates(self) -> list[SimpleNamespace]:
        return self.all

    def running(self) -> list[SimpleNamespace]:
        return [each.prepared for each in self.all]

    def measurement(self, candidate: SimpleNamespace, batch_size: int) -> Measurement | None:
        return self.measurements.get((candidate.name, batch_size))

    @property
    def time(self) -> Countdown:
        return Countdown(total_s=self.time_s, now=lambda: 0.0, began_s=0.0)

    @property
    def rounds(self) -> list[Round]:
        return [Round(slices={each.name: [slice_of(10.0)] * 4 for each in self.all})]


def test_a_batch_size_lasts_for_starts_warm_steps_and_slices() -> None:
    comparison: Any = FakeComparison()
    schedule = Schedule(comparison, comparison.rounds, comparison.all)
    reference, other = comparison.all
    anchor_start_s = 5 + 2 * 0.8
    # Short steps, twice each, or for three seconds; long ones once each, of which the others' are in their starts.
    assert schedule.expected_s(16) == pytest.approx(2 * (5 + 2 * 1.6) + anchor_start_s + 3 + 2 * 3.2)
    assert schedule.expected_s(1) == pytest.approx(2 * (5 + 2 * 0.1) + anchor_start_s + 3 * 3)
    assert schedule.expected_s(256) == pytest.approx(2 * (5 + 2 * 25.6) + anchor_start_s + 20 + 25.6)
    assert (schedule.is_long([other], 16), schedule.is_long([other], 256)) == (False, True)
    # The reference was measured before: no anchor.
    comparison.measurements[reference.name, 16] = Measurement(contender=reference.name, batch_size=16)
    assert schedule.expected_s(16) == pytest.approx(2 * (5 + 2 * 1.6) + 2 * 3.2)
    comparison.measurements[other.name, 16] = Measurement(contender=other.name, batch_size=16)
    assert schedule.expected_s(16) == 0.0


def test_the_time_is_divided_by_what_the_scan_lacks() -> None:
    comparison: Any = FakeComparison()
    schedule = Schedule(comparison, comparison.rounds, comparison.all)
    assert schedule.batch_sizes == [1, 16, 256, 1024]
    assert schedule.scan_s(1e4) == pytest.approx(sum(map(schedule.expected_s, (1, 16, 256, 1024))))
    # What there is no time for any more is not waited for.
    small_s = schedule.expected_s(1) + schedule.expected_s(16)
    assert schedule.scan_s(small_s + 1) == pytest.approx(small_s)
    # What is spare is shared by the batch sizes that are left.
    comparison.time_s = small_s + 1
    assert schedule.pair_s(3) == pytest.approx(2 * (3 + 1 / 4 / 3))
    comparison.time_s = 1.0
    assert schedule.pair_s(3) == pytest.approx(2 * (3 + 1 / 4 / 3))
    comparison.time_s = 1e4
    assert schedule.pair_s(3) > 1000
    # Nor what cannot get warm in time: here 1024 items, two steps of 102 s.
    middle_s = small_s + schedule.expected_s(256)
    comparison.all[0].prepared.job.deadline_s = 200.0
    assert schedule.scan_s(1e4) == pytest.approx(middle_s)


def test_the_finals_have_what_the_rest_does_not_need() -> None:
    comparison: Any = FakeComparison()
    loads_s = 2 * 5 * 5.0
    needed_s = loads_s + Schedule(comparison, comparison.rounds, comparison.all).scan_s(1e4)
    assert finals_share(comparison, comparison.rounds, 1e5) == pytest.approx(0.55)
    assert finals_share(comparison, comparison.rounds, needed_s / 0.6) == pytest.approx(0.4)
    assert finals_share(comparison, comparison.rounds, loads_s) == pytest.approx(0.25)


@pytest.mark.parametrize(("rate", "is_first"), [(77.0, True), (70.2, False), (63.0, False)])
def test_curves_of_defaults_and_of_what_beats_them_come_first(
    data: ComparisonData, rate: float, is_first: bool
) -> None:
    """Where the time does not suffice for all, a curve that repeats the default's, or lies below, is left out."""
    names = ("tensorflow", "onnxruntime", "openvino")
    defaults = [candidate_of(f"{name}/default") for name in names]
    tuned = Candidate(prepared=defaults[-1].prepared, kind=SettingKind.TUNED)
    comparison: Any = SimpleNamespace(batch_size=BATCH, candidates=lambda: [*defaults, tuned])
    scaled = rate / RATES[tuned.name]
    rounds = [
        replace(each, slices=each.slices | {tuned.name: [slice_of(scaled * BATCH / s.step_s[0]) for s in slices]})
        for each in data.rounds
        for slices in [each.slices[tuned.name]]
    ]
    assert answering(comparison, rounds) == [*defaults, *([tuned] if is_first else [])]
    # What was not measured in the finals is not known to be faster.
    without = [replace(each, slices={defaults[0].name: each.slices[defaults[0].name]}) for each in rounds]
    assert answering(comparison, without) == answering(comparison, []) == defaults


def test_what_waits_has_a_reference_and_a_curve_that_has_not_ended() -> None:
    comparison: Any = FakeComparison()
    schedule = Schedule(comparison, comparison.rounds, comparison.all)
    reference, other = comparison.all
    # Where memory ended, nothing waits; where the reference's did, nothing of the others.
    comparison.measurements["openvino/default", 256] = Measurement(
        contender="openvino/default", batch_size=256, status=Status.OOM
    )
    assert schedule.waiting(1024) == [reference]
    comparison.measurements["tensorflow/default", 256] = replace(comparison.measurements["openvino/default", 256])
    assert schedule.waiting(1024) == []
    assert schedule.waiting(16) == [reference, other]
    del comparison.measurements["openvino/default", 256]
    assert schedule.waiting(256) == []  # the reference failed there
    # Those that come later are compared with what was measured of it before.
    later = Schedule(comparison, comparison.rounds, [other])
    assert later.waiting(16) == []
    comparison.measurements["tensorflow/default", 16] = Measurement(contender="tensorflow/default", batch_size=16)
    assert later.waiting(16) == [other]


def test_who_needs_much_memory_comes_last() -> None:
    comparison: Any = FakeComparison()
    reference, openvino = comparison.all
    onnxruntime = SimpleNamespace(**{**vars(openvino), "name": "onnxruntime/default"})
    candidates = [openvino, reference, onnxruntime]
    schedule = Schedule(comparison, comparison.rounds, candidates)
    assert schedule.waiting(16) == candidates[1:2] + candidates[:1] + candidates[2:]
    for candidate, peak in ((reference, 9), (openvino, 3), (onnxruntime, 2)):
        comparison.measurements[candidate.name, 16] = Measurement(
            contender=candidate.name, batch_size=16, peak_memory_bytes=peak
        )
    assert schedule.waiting(256) == [reference, onnxruntime, openvino]


def test_memory_says_how_many_live_together() -> None:
    comparison: Any = FakeComparison()
    reference, openvino = comparison.all
    others = [SimpleNamespace(**{**vars(openvino), "name": f"{i}/default"}) for i in range(12)]
    schedule = Schedule(comparison, comparison.rounds, [reference, *others])
    assert [len(each) for each in schedule.groups([reference, *others], 16)] == [10, 2]
    for candidate in (reference, *others):
        comparison.measurements[candidate.name, 1] = Measurement(
            contender=candidate.name, batch_size=1, peak_memory_bytes=1 << 20
        )
    comparison.free_bytes = 5 * 16 << 20  # of sixteen times as many items sixteen times as much, at most
    assert [len(each) for each in schedule.groups([reference, *others], 16)] == [4, 4, 4]
    comparison.free_bytes = 1
    assert [len(each) for each in schedule.groups([reference, *others], 16)] == [1] * 12
    assert schedule.groups([reference], 16) == [[]]


class ScriptedComparison(Comparison):
    """TensorFlow's default and two settings of OpenVINO over a scripted launcher, which has the clock."""

    @classmethod
    def of(cls, launcher: ScriptedLauncher, *, batches: Sequence[int], budget_s: float = 1e5) -> ScriptedComparison:
        """Return one of which nothing is measured yet but six rounds of finals, in which all are equally fast."""
        job = SimpleNamespace(
            deadline_s=300.0,
            slice_s=0.5,
            precision_of=lambda _: "f32",
            machine=SimpleNamespace(usable_cpus=2),
            device=SimpleNamespace(why_no_energy=lambda: "no meter"),
            space=SimpleNamespace(deployment=lambda _: Deployment()),
        )
        prepared: list[Any] = []
        for name, kinds in (
            ("tensorflow", [SettingKind.DEFAULT]),
            ("openvino", [SettingKind.DEFAULT, SettingKind.TUNED]),
        ):
            settings = {kind: Setting.of({"name": f"{name}/{kind}"}) for kind in kinds}
            variant = prepared_variant(
                name,
                job=job,
                start_s=launcher.start_s,
                launcher=launcher,
                variant=SimpleNamespace(pins=(), limit=lambda _: SAME),
                precision="f32",
            )
            variant.settings = lambda settings=settings: settings
            prepared.append(variant)
        record: Any = SimpleNamespace(study=SimpleNamespace(user_attrs={}), put=lambda *_: None, name="scripted")
        nothing = SimpleNamespace(**dict.fromkeys(("notice", "progress"), lambda _: None))
        comparison = cls(
            request=SimpleNamespace(margin=0.02),  # type: ignore[arg-type]
            events=nothing,  # type: ignore[arg-type]
            prepared=prepared,
            absent=[],
            batch_size=BATCH,
            batches=batches,
            time=Countdown(total_s=budget_s, now=lambda: launcher.clock_s, began_s=0.0),
            store=Store(record, prepared[0]),
            watch=None,  # type: ignore[arg-type]
        )
        rates = {each.name: [slice_of(10.0)] * 4 for each in comparison.candidates()}
        for _ in range(6):
            comparison.store.add_round(comparison.candidates(), Round(slices=rates))
        return comparison

    def free_memory_bytes(self) -> int | None:
        return None


def ten_items_a_second(**options: Any) -> ScriptedLauncher:
    """Return a launcher of processes that all compute ten items per second."""
    return ScriptedLauncher(rate=lambda _: 10.0, **options)


def launched(launcher: ScriptedLauncher) -> list[tuple[str, int]]:
    """Return which settings were launched, at which batch sizes."""
    return [(str(each.to_dict()["name"]), each.batch_size) for each in launcher.launched]


def test_all_batch_sizes_of_the_defaults_are_scanned_before_what_gains_nothing() -> None:
    launcher = ten_items_a_second()
    comparison = ScriptedComparison.of(launcher, batches=[1, BATCH, 16])
    scan(comparison)
    assert comparison.ended == "complete"
    order = [name for name, _ in launched(launcher) if name.startswith("openvino")]
    assert order == ["openvino/default"] * 2 + ["openvino/tuned"] * 2
    assert {measurement.status for measurement in comparison.measurements()} == {Status.OK}
    assert len(comparison.measurements()) == 2 * 3
    again = len(launcher.launched)
    scan(comparison)
    assert len(launcher.launched) == again


def test_nothing_is_measured_where_there_is_no_time_for_what_it_is_compared_with() -> None:
    """The reference and another would take 190 s, and a tuned setting beside a reference alone 140 s."""
    launcher = ten_items_a_second()
    comparison = ScriptedComparison.of(launcher, batches=[BATCH, 256], budget_s=160.0)
    scan(comparison)
    assert comparison.ended == "time"
    assert launched(launcher) == []


def test_a_reference_that_fails_is_not_started_once_more() -> None:
    failing = Setting.of({"name": "tensorflow/default"}).with_values(batch_size=256)
    launcher = ten_items_a_second(failures={failing: Status.OOM})
    comparison = ScriptedComparison.of(launcher, batches=[BATCH, 16, 256, 512])
    for _ in range(2):  # nor in the next run
        scan(comparison)
    assert launched(launcher).count(("tensorflow/default", 256)) == 1
    assert max(batch for _, batch in launched(launcher)) == 256
    assert [
        measurement.batch_size for measurement in comparison.measurements() if measurement.status is Status.OOM
    ] == [256]
    assert comparison.ended == "complete"


def test_after_a_crash_of_the_reference_the_next_run_goes_on() -> None:
    launcher = ten_items_a_second()
    comparison = ScriptedComparison.of(launcher, batches=[BATCH, 16, 256])
    launcher.failures = {Setting.of({"name": "tensorflow/default"}).with_values(batch_size=16): Status.CRASHED}
    scan(comparison)
    assert launched(launcher) == [("tensorflow/default", 16)]
    assert comparison.ended == "time"


def test_a_reference_that_is_lost_where_it_ran_before_is_tried_in_the_next_run() -> None:
    launcher = ten_items_a_second()
    comparison = ScriptedComparison.of(launcher, batches=[BATCH, 16, 256])
    comparison.put_measurement(
        comparison.reference_candidate, Measurement(contender=comparison.reference_candidate.name, batch_size=16)
    )
    launcher.failures = {Setting.of({"name": "tensorflow/default"}).with_values(batch_size=16): Status.CRASHED}
    scan(comparison)
    assert launched(launcher) == [("tensorflow/default", 16)]
    assert comparison.ended == "time"  # the others are missing
    launcher.failures, comparison.lost_at = {}, None
    scan(comparison)
    assert {(measurement.contender, measurement.batch_size) for measurement in comparison.measurements()} >= {
        ("openvino/default", 256)
    }


def test_what_runs_out_of_memory_beside_others_runs_alone() -> None:
    """And where the reference does, its curve goes on without the one beside it."""

    class Small(ScriptedLauncher):
        most, blamed = 3, ("openvino/default",)

        def launch(self, setting: Setting, deployment: Deployment) -> Any:
            process = super().launch(setting, deployment)
            name, ready = str(setting["name"]), process.ready

            def told() -> ReadyReport:
                if self.live > self.most and name in self.blamed:
                    process.close()
                    raise TrialFailure(Status.OOM, "no memory")
                return ready()

            process.ready = told  # type: ignore[method-assign]
            return process

    launcher = Small(rate=lambda at: 20.0 if at["name"] == "openvino/tuned" else 10.0)
    comparison = ScriptedComparison.of(launcher, batches=[BATCH, 16])
    rates = {
        each.name: [slice_of(20.0 if each.kind is SettingKind.TUNED else 10.0)] * 4 for each in comparison.candidates()
    }
    for _ in range(6):
        comparison.store.add_round(comparison.candidates(), Round(slices=rates))
    scan(comparison)
    assert {(each.contender, each.status) for each in comparison.measurements()} == {
        (name, Status.OK) for name in ("tensorflow/default", "openvino/default", "openvino/tuned")
    }
    assert launched(launcher).count(("openvino/default", 16)) == 2


def test_beside_long_steps_short_ones_run_for_twenty_seconds() -> None:
    comparison = ScriptedComparison.of(ten_items_a_second(), batches=[BATCH, 512])
    scan(comparison)
    measurement = comparison.measurement(comparison.reference_candidate, 512)
    assert measurement is not None
    assert measurement.pair is not None
    assert [each.elapsed_s for each in measurement.pair.candidate] == [pytest.approx(51.2)]
    assert [each.elapsed_s for each in measurement.pair.reference] == [pytest.approx(20, rel=0.1)]


def test_what_is_computed_is_compared_at_each_batch_size() -> None:
    launcher = ten_items_a_second(outputs=lambda setting: 2.0 if is_other(setting) else 1.0)

    def is_other(setting: Setting) -> bool:
        return str(setting.to_dict()["name"]).startswith("openvino") and setting.batch_size == 16

    comparison = ScriptedComparison.of(launcher, batches=[1, BATCH, 16])
    scan(comparison)
    statuses = {
        measurement.batch_size: measurement.status
        for measurement in comparison.measurements()
        if measurement.contender == "openvino/default"
    }
    assert statuses == {1: Status.OK, 16: Status.INVALID}


def test_what_cannot_get_warm_in_time_is_not_started() -> None:
    launcher = ten_items_a_second()
    comparison = ScriptedComparison.of(launcher, batches=[BATCH, 2048])
    scan(comparison)
    assert launched(launcher) == []
    [measurement] = comparison.measurements()
    assert (measurement.contender, measurement.status) == ("tensorflow/default", Status.TIMEOUT)
    assert "it would take 412 s to get warm: give a longer --trial-timeout" in measurement.message


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_depthwise_convolutions_compute_the_same_in_all_frameworks(tmp_path: Path) -> None:
    """As EfficientNet has them; its own outputs without weights are all alike, and agree with anything."""
    (tmp_path / "depthwise.py").write_text("""
BATCH_SIZE = 2

def build():
    import tensorflow as tf
    L = tf.keras.layers
    tf.keras.utils.set_random_seed(1)
    image = L.Input((32, 32, 3))
    x = L.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=8, activation="swish")(image)
    x = L.BatchNormalization()(x)
    scale = L.Dense(24, activation="sigmoid")(L.GlobalAveragePooling2D(keepdims=True)(x))
    x = L.DepthwiseConv2D(5, padding="valid")(L.Multiply()([x, scale]))
    return tf.keras.Model(image, L.Dense(10)(L.GlobalAveragePooling2D()(x)))

def inputs(batch_size):
    import numpy as np
    return (np.random.default_rng(1).random((batch_size, 32, 32, 3), dtype=np.float32),)
""")
    request = FrameworksRequest(
        workload=WorkloadSpec(words=(str(tmp_path / "depthwise.py"),)), storage=f"sqlite:///{tmp_path}/t.db"
    )
    events = SimpleNamespace(notice=lambda _: None, progress=lambda _: None)
    comparison = prepare_comparison(request, events)  # type: ignore[arg-type]
    make_ready(comparison)
    assert [each.failure for each in comparison.prepared] == [None] * 4
    check(comparison)
    start = comparison.store.checked(comparison.reference_candidate)
    assert start is not None
    assert (spread(start.sample) or 0.0) > 0.5
    others = [each.starts[SettingKind.DEFAULT] for each in comparison.running()][1:]
    assert len(others) == 3
    assert all(each.deviation is not None and each.deviation < SAME for each in others)
    # What is converted keeps its variables, whenever Python collects its garbage.
    job = comparison.reference.job
    code = """
import gc, json, sys
import tensorflow as tf
from tuner.frameworks.tensorflow.child import source
step, names = source.traced(sys.argv[1], json.loads(sys.argv[2]))
gc.collect()
assert [each.shape for each in tf.nest.flatten(step(tf.zeros((2, 32, 32, 3))))] == [(2, 10)], names
"""
    forked.run(code, str(job.export()[0]), json.dumps(job.workload.child_spec()), folder=tmp_path)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_model_with_a_fixed_batch_is_measured_at_that_only(tmp_path: Path) -> None:
    """Else its processes would compute four items per step, and count as many as they were asked for."""
    model = tmp_path / "fixed.keras"
    code = f"""
import tensorflow as tf
tf.keras.Sequential([tf.keras.layers.Input((8,), batch_size=4), tf.keras.layers.Dense(8)]).save({str(model)!r})
"""
    forked.run(code, folder=tmp_path)
    notices: list[str] = []
    events = SimpleNamespace(notice=notices.append, progress=lambda _: None)
    request = FrameworksRequest(
        workload=WorkloadSpec(words=(str(model),)),
        batch_size=4,
        storage=f"sqlite:///{tmp_path}/t.db",
        frameworks="tensorflow",
    )
    comparison = prepare_comparison(request, events)  # type: ignore[arg-type]
    assert len(comparison.batches) > 1
    make_ready(comparison)
    assert comparison.batches == [4]
    assert notices[-1] == "the model takes batches of 4 only: no other batch size is measured"


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_small_model_computes_the_same_in_all_frameworks(tmp_path: Path) -> None:
    """And in half precisions, where OpenVINO has them, it is a row of its own that does compute in it."""
    request = FrameworksRequest(
        workload=WorkloadSpec.of_name("lenet5"),
        batch_size=8,
        storage=f"sqlite:///{tmp_path}/t.db",
        numerics=MAY_CHANGE,
    )
    events = SimpleNamespace(notice=lambda _: None, progress=lambda _: None)
    comparison = prepare_comparison(request, events)  # type: ignore[arg-type]
    make_ready(comparison)
    check(comparison)
    names = [each.name for each in comparison.running()]
    assert names[:4] == ["tensorflow", "tensorflow-xla", "onnxruntime", "openvino"]
    starts = [each.starts[SettingKind.DEFAULT] for each in comparison.running()]
    for precision in ("bf16", "f16"):  # whichever the CPU has
        for start in [each for each in starts if each.contender == f"openvino-{precision}/{SettingKind.DEFAULT}"]:
            assert start.precision == precision
            starts.remove(start)
    assert {start.status for start in starts} == {Status.OK}
    assert {start.precision for start in starts} == {"f32"}
    assert starts[0].deviation is None
    assert max(start.deviation or 0.0 for start in starts) < SAME
    assert all(start.deviation is not None for start in starts[1:])


def test_where_processes_start_slowly_a_short_time_has_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, whose processes take a quarter of a minute: ten seconds of search were a minute and a half."""
    searched: list[object] = []

    def run_nested(arguments: object) -> SimpleNamespace:
        searched.append(arguments)
        return SimpleNamespace(interrupted=False, study=None, failure="it failed")

    monkeypatch.setattr("tuner.job.frameworks.comparison.run_nested", run_nested)
    monkeypatch.setattr("tuner.job.frameworks.comparison.search_request", lambda _, each, __: each.name)
    job = SimpleNamespace(device=SimpleNamespace(kind="gpu"))
    starts = (("slow", 16.5), ("quick", 3.0))
    slow, quick = (SimpleNamespace(name=name, tuned=None, start_s=start_s, job=job) for name, start_s in starts)
    told: list[str] = []
    comparison = SimpleNamespace(
        time=Countdown(total_s=100.0, now=lambda: 0.0, began_s=0.0),
        running=lambda: [slow, quick],
        say=lambda _: None,
        events=SimpleNamespace(notice=told.append),
    )
    tune(comparison)  # type: ignore[arg-type]
    assert searched == ["quick"]
    assert "a search takes 50 s at least here, and 10 s are left" in slow.tuned.failure
    assert told == [f"slow: {slow.tuned.failure}", "quick: the search failed: it failed"]
    comparison.time, slow.tuned = Countdown(total_s=1000.0), None  # another run, in which nothing is stored of it
    tune(comparison)  # type: ignore[arg-type]
    assert searched == ["quick", "slow"]
    job.device.kind, quick.tuned, slow.tuned = "cpu", None, None
    comparison.time = Countdown(total_s=14.0, now=lambda: 0.0, began_s=0.0)  # the preparation took the rest of it
    tune(comparison)  # type: ignore[arg-type]
    assert searched == ["quick", "slow"]
    assert "a search takes 10 s at least here, and 7 s are left" in quick.tuned.failure
    assert quick.tuned.searched_s == 0.0  # which is no failure: the exit code is 0


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_small_model_in_two_frameworks(tmp_path: Path) -> None:
    """Real processes: both are searched and ranked, and the same command measures nothing twice."""
    words = ["frameworks", "lenet5", "--scan", "1,8", "--batch-size", "8", "--frameworks", "tensorflow,openvino"]
    words += ["--time-budget", "60s", "--json"]
    ended = tftune_here(*words, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    at_8 = [row for row in document["rows"] if row["batch_size"] == 8]
    assert {row["framework"] for row in at_8} == {"tensorflow", "openvino"}
    assert {row["status"] for row in at_8} == {"ok"}
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"frameworks.json", "table.csv"}
    again = tftune_here(*words, "--stored", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""
    first, second = (
        {(row["framework"], row["kind"], row["batch_size"]) for row in json.loads(each.stdout)["rows"]}
        for each in (ended, again)
    )
    assert first == second
    assert json.loads(again.stdout)["conditions"] == document["conditions"] is not None
