"""Predictions: settings as configurations, captures as files, what is refused, what is told; and one for real."""

from __future__ import annotations

import csv
import io
import json
import lzma
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.command_line import tftune_here
from tests.conftest import ROOT, Call
from tests.frameworks import FRAMEWORK, MADE_MACHINE, STOCK, read_space, resolve, subject
from tests.towers import BYTES_S, TOWERS, traced
from tests.trees import make_hybrid, make_machine, write
from tuner.errors import BadInputError
from tuner.job import predict as predict_module
from tuner.job.job import elsewhere
from tuner.job.parsed import ParsedRequest, parse_request
from tuner.job.predict import Capture, find_machine, profiled_sizes, read_capture, write_capture
from tuner.job.request import SearchRequest
from tuner.machine.corecosts import MOST_LOSS, busy_loss, wake_s
from tuner.machine.host import Machine, detect
from tuner.machine.spec import parse_spec
from tuner.model.configuration import Configuration, configuration_of
from tuner.model.executor import Pools
from tuner.model.hardware import Hardware, hardware_of
from tuner.model.ideal import ideal_makespan_s
from tuner.model.prediction import SD, T90, influential_knobs, predict, reasons
from tuner.model.predictor import Predictor, predictor_of
from tuner.model.profile import Profile, Traced, profile
from tuner.paths import shipped_profiles
from tuner.report.model import prediction_chart as chart
from tuner.report.model import prediction_csv as as_csv
from tuner.report.model import prediction_page as rendered
from tuner.result.model import PredictionResult, ProfileSource, SourceKind, Trust, describe_prediction
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.study.subject import subject_of
from tuner.trial.audit import Seen
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload, load

PROFILES: dict[int, Profile] = {b: profile([traced(n, b) for n in (1, 2)]) for b in (1, 8)}
HERE = parse_spec("cores=2").machine()
SERVER = parse_spec("sockets=2,cores=28,smt=2").machine()


@pytest.fixture
def predictor() -> Predictor:
    """The predictor of that workload, profiled with two threads."""
    return predictor_of(PROFILES, hardware_of(HERE, BYTES_S, is_here=True), has_teams=False)


def on(machine: Machine) -> Hardware:
    """Return a machine that is not here as it is simulated."""
    return hardware_of(machine, BYTES_S, is_here=False)


# ---- settings -------------------------------------------------------------------------------------------------


def test_a_setting_becomes_pools_on_what_it_may_use() -> None:
    setting = Setting.of({"inter_op": 2, "intra_op": 0, "batch_size": 8, "streams": 3, "instances": 2})
    own = configuration_of(setting, MADE_MACHINE, has_teams=False)
    assert (own.pools.inter_op, own.pools.intra_op, own.pools.team) == (2, 8, None)  # half of the CPUs
    assert (own.pools.streams, own.instances, own.batch_size) == (3, 2, 8)
    machine = replace(MADE_MACHINE, cores=[f"{i},{i + 8}" for i in range(8)])
    masked = configuration_of(setting.with_values(cpus="0-3"), machine, has_teams=False)
    assert (masked.cores, masked.smt) == (4, 1.0)  # one of the two threads of each
    assert masked.hardware(on(machine)).cpus == 2  # of the four, for each of the two processes
    teams = Setting.of({"inter_op": 1, "intra_op": 8, "omp_num_threads": 8, "kmp_blocktime": 1, "batch_size": 8})
    own = configuration_of(teams, machine, has_teams=True)
    assert (own.pools.team, own.pools.blocktime_s, own.cores) == (8, 0.001, None)
    packed = teams.with_values(kmp_affinity="granularity=fine,compact")
    assert configuration_of(packed, machine, has_teams=True).cores == 4  # two threads per core
    assert configuration_of(packed.with_values(inter_op=2), machine, has_teams=True).cores is None
    listed = teams.with_values(kmp_affinity="granularity=fine,proclist=[0-2],explicit")
    assert configuration_of(listed, machine, has_teams=True).cores == 3
    strided = teams.with_values(kmp_affinity="granularity=fine,proclist=[0-6:2,{1,9}],explicit")
    own = configuration_of(strided, machine, has_teams=True)
    assert (own.cores, own.smt) == (5, 6 / 5)
    spread = teams.with_values(kmp_affinity="granularity=fine,compact,1,0")
    assert configuration_of(spread, machine, has_teams=True).cores is None


def test_from_one_thread_alone_how_operators_scale_is_a_guess() -> None:
    own = hardware_of(HERE, BYTES_S, is_here=True)
    alone = {size: profile([each.traced[0]]) for size, each in PROFILES.items()}
    assert not predictor_of(alone, own, has_teams=False).costs.is_divided
    assert predictor_of(PROFILES, own, has_teams=False).costs.is_divided


def test_a_thread_moves_no_more_than_its_share_of_a_socket() -> None:
    four, many = (parse_spec(words).machine() for words in ("cores=4", "cores=28"))

    def with_50_gb_s(machine: Machine) -> Hardware:
        return hardware_of(machine, {1: 12e9}, is_here=False, socket_bytes_s=50e9)

    assert (with_50_gb_s(four).one_bytes_s, with_50_gb_s(four).most_bytes_s) == (12e9, 48e9)
    assert (with_50_gb_s(many).one_bytes_s, with_50_gb_s(many).most_bytes_s) == (6.25e9, 50e9)


def test_what_was_profiled_is_predicted_as_it_was(predictor: Predictor) -> None:
    own = hardware_of(HERE, BYTES_S, is_here=True)
    for batch_size, each in PROFILES.items():
        for told in each.traced:
            setting = Setting.of({"inter_op": 1, "intra_op": told.threads, "batch_size": batch_size})
            rate = predictor.items_per_s(configuration_of(setting, HERE, has_teams=False), own)
            assert rate == pytest.approx(batch_size / told.step_s, rel=1e-6)


def test_slots_that_nothing_needs_change_nothing(predictor: Predictor) -> None:
    """So they are not simulated, whatever was asked before."""
    server = on(parse_spec("cores=16").machine())
    rates = {
        slots: predictor.items_per_s(
            configuration_of(
                Setting.of({"batch_size": 8, "inter_op": slots, "intra_op": 4}), MADE_MACHINE, has_teams=False
            ),
            server,
        )
        for slots in (16, 5, 4, 3, 1, 8)
    }
    for slots, rate in rates.items():
        alone = predictor_of(PROFILES, hardware_of(HERE, BYTES_S, is_here=True), has_teams=False)
        own = configuration_of(
            Setting.of({"batch_size": 8, "inter_op": slots, "intra_op": 4}), MADE_MACHINE, has_teams=False
        )
        assert rate == alone.items_per_s(own, server)
    assert rates[16] == rates[8] == rates[5] == rates[4]  # there are four towers
    assert rates[4] > rates[3] > rates[1]


def test_what_is_between_operators_is_known_by_the_profiler_where_that_was_asked() -> None:
    own = hardware_of(HERE, BYTES_S, is_here=True)
    one, *more = PROFILES[1].traced
    asked = {1: profile([replace(one, exposed=0.06), *more]), 8: PROFILES[8]}
    dispatch_s = predictor_of(asked, own, has_teams=False).dispatch_s
    assert dispatch_s == pytest.approx(0.06 * one.step_s / len(one.nodes))


def test_a_wide_graph_gains_by_slots_where_there_are_cores(predictor: Predictor) -> None:
    def rate(machine: Machine, **values: int) -> float:
        setting = Setting.of({"batch_size": 8, **values})
        return predictor.items_per_s(configuration_of(setting, machine, has_teams=False), on(machine))

    server = parse_spec("cores=16").machine()
    assert rate(server, inter_op=4, intra_op=16) > 1.5 * rate(server, inter_op=1, intra_op=16)
    assert rate(server, inter_op=4, intra_op=16, instances=4) > rate(server, inter_op=1, intra_op=16)
    one = parse_spec("cores=1").machine()
    assert rate(one, inter_op=4, intra_op=1) == pytest.approx(rate(one, inter_op=1, intra_op=1), rel=0.1)


def test_a_space_is_predicted_with_its_baselines_and_a_sample_of_what_is_too_much(
    predictor: Predictor, space: Space
) -> None:
    everything = predict(predictor, space, MADE_MACHINE, on(MADE_MACHINE))
    assert set(everything.settings) >= {*space.points, *space.baselines.values()}
    assert everything.left_out == 0
    best = max(everything.rates[setting] for setting in everything.settings)
    assert everything.rates[everything.best] >= best / 1.02
    some = predict(predictor, space, MADE_MACHINE, on(MADE_MACHINE), most=20)
    assert some.left_out == len(space.points) - 20
    assert {*some.settings} >= {*space.baselines.values()}
    assert len(some.settings) <= 20 + len(space.baselines)
    assert some.rates[some.best] >= max(some.rates[each] for each in some.baselines.values()) / 1.02
    assert some == predict(predictor, space, MADE_MACHINE, on(MADE_MACHINE), most=20)
    assert influential_knobs(everything)[0] in {"inter_op", "intra_op", "batch_size"}
    alone = space.points[:2]
    two = predict(predictor, space, MADE_MACHINE, on(MADE_MACHINE), settings=alone)
    assert two.settings == tuple(alone)
    assert two.best in alone
    assert two.rates.keys() >= {space.reference, *space.baselines.values()}


def test_processes_side_by_side_are_never_left_out(
    predictor: Predictor, machine: Machine, stock: object, resnet50: object
) -> None:
    cores = replace(machine, cores=[f"{core},{core + 8}" for core in range(8)])
    several = resolve(read_space("cpu", cores), machine=cores, build=stock, workload=resnet50, with_groups=True)
    assert several.groups
    some = predict(predictor, several, cores, on(cores), most=20)
    assert {*some.settings} >= {*several.groups}
    assert some.rates[some.best] >= max(some.rates[each] for each in some.baselines.values()) / 1.02


def test_what_is_fixed_is_kept_to(predictor: Predictor, machine: Machine, stock: object, resnet50: object) -> None:
    file = read_space("cpu", machine)
    fixed = resolve(file, machine=machine, build=stock, workload=resnet50, pins={"inter_op": "3"})
    chosen = predict(predictor, fixed, MADE_MACHINE, on(MADE_MACHINE))
    assert {setting["inter_op"] for setting in (*chosen.settings, chosen.best)} == {3}


def test_reasons_are_shares_and_the_width_of_the_graph(predictor: Predictor) -> None:
    why = reasons(predictor, 8, on(SERVER))
    assert 2.0 < why.width <= TOWERS
    assert 0 <= why.memory <= 1
    assert 0 < why.dispatch < 0.2
    assert 0 < why.efficiency < 0.3  # a fifth is serial, and there are 56 cores
    # What a quota leaves is all that could be used.
    quota = reasons(predictor, 8, on(parse_spec("cores=2,quota=1.1").machine()))
    assert quota.efficiency > 0.7


def test_no_scheduler_is_slower_than_its_own_settings(predictor: Predictor) -> None:
    """A bound: at least as fast as every setting, and never faster than all cores, or than the longest path."""
    hardware = on(parse_spec("cores=8").machine())
    ideal_s = ideal_makespan_s(predictor, 8, hardware)
    for inter_op in (1, 2, 4, 8):
        for intra_op in (1, 2, 4, 8):
            setting = Setting.of({"inter_op": inter_op, "intra_op": intra_op, "batch_size": 8})
            own = configuration_of(setting, HERE, has_teams=False)
            assert ideal_s <= 1.06 * predictor.step(own, hardware).makespan_s
    work_s = float(predictor.costs.time_s(1, 8, hardware).time_s.sum())
    assert ideal_s >= work_s / 8
    assert ideal_makespan_s(predictor, 8, replace(hardware, quota=2.0)) >= work_s / 2


# ---- what is told ---------------------------------------------------------------------------------------------


@pytest.fixture
def result(predictor: Predictor, space: Space, stock: object, resnet50: object) -> PredictionResult:
    """A prediction for the made machine, profiled on another."""
    subject = subject_of(HERE, {"name": "cpu"}, stock, resnet50, space, {})  # type: ignore[arg-type]
    return describe_prediction(
        predict(predictor, space, MADE_MACHINE, on(MADE_MACHINE)),
        reasons(predictor, 8, on(MADE_MACHINE)),
        machine=MADE_MACHINE,
        profiled_on=HERE,
        runtime=subject.runtime,
        workload=subject.workload,
        batch_sizes=(1, 8),
        profiled_threads=2,
        costs=predictor.costs,
        waking=1.0,
        is_wake_known=False,
        ideal=None,
        source=ProfileSource(kind=SourceKind.FILE, file="server.json.xz", created="2026-11-20"),
    )


def test_ratios_have_intervals_that_widen_with_the_threads_between_them(result: PredictionResult) -> None:
    assert (result.reference.low, result.reference.ratio, result.reference.high) == (1.0, 1.0, 1.0)
    widths = {
        each.setting["intra_op"]: each.high / each.low
        for each in result.predicted
        if each.setting["inter_op"] == 1 and "instances" not in each.setting
    }
    assert all(
        each.low < each.ratio < each.high for each in result.predicted if each.setting != result.reference.setting
    )
    assert max(widths, key=widths.__getitem__) == 1  # all CPUs beside one
    assert min(widths.values()) == pytest.approx(math.exp(2 * T90 * SD))


def test_waking_a_thread_takes_microseconds() -> None:
    woken_s = wake_s(detect())
    assert woken_s is None or 1e-7 < woken_s < 1e-2
    assert wake_s(replace(HERE, cores=["0"], physical_cores=1)) is None
    assert wake_s(replace(HERE, cores=["0", "99999"])) is None  # a CPU that is not there


def test_cores_that_are_all_at_work_are_slower_by_a_share() -> None:
    loss = busy_loss(detect())
    assert loss is None or 0 <= loss < MOST_LOSS
    assert busy_loss(replace(HERE, cores=["0"], physical_cores=1)) is None
    assert busy_loss(replace(HERE, cores=["0", "99999"])) is None  # a CPU that is not there


def test_waiting_for_a_cpu_is_no_loss_of_a_core() -> None:
    """Two processes on one CPU take turns, as under a quota. CPU time counts, so that this is not a slower core."""
    cpu = min(os.sched_getaffinity(0))
    loss = busy_loss(replace(HERE, cores=[str(cpu), str(cpu)], physical_cores=2))
    assert loss is not None
    assert loss < 0.5


def test_several_processes_lose_what_busy_cores_were_seen_to_lose() -> None:
    two = Configuration(batch_size=8, pools=Pools(inter_op=1, intra_op=1), instances=2)
    one = Configuration(batch_size=8, pools=Pools(inter_op=1, intra_op=2))
    rates = {}
    for loss in (0.0, 0.5):
        hardware = hardware_of(HERE, BYTES_S, is_here=True, busy_loss=loss)
        own = predictor_of(PROFILES, hardware, has_teams=False)
        rates[loss] = [own.items_per_s(each, hardware) for each in (one, two)]
    assert rates[0.5][0] == pytest.approx(rates[0.0][0])  # the profile with two threads has it
    assert 1.2 < rates[0.0][1] / rates[0.5][1] <= 1.5  # a core is idle between operators


def test_a_prediction_says_that_it_is_one_and_how_far_to_trust_it(result: PredictionResult) -> None:
    document = msgspec.to_builtins(result)
    assert document["measured"] is False
    assert result.trust.code is Trust.NEAR
    assert result.best.setting in [each.setting for each in result.predicted]
    from rich.console import Console

    page = io.StringIO()
    Console(file=page, width=120).print(*rendered(result))
    text = " ".join(page.getvalue().split())
    assert "predicted, not measured" in text
    assert "up to 2 threads" in text
    assert "predicted from server.json.xz: 2 cores of a sockets=1,cores=2" in text
    assert "TensorFlow 2.21.0, 2026-11-20" in text
    assert "each core is taken to be as fast as a core of that machine" in text
    assert "measure before you use it: tftune search" in text
    assert "is a guess" not in text
    guessed = msgspec.structs.replace(result, trust=msgspec.structs.replace(result.trust, is_divided=False))
    page = io.StringIO()
    Console(file=page, width=200).print(*rendered(guessed))
    text = " ".join(page.getvalue().split())
    assert "no two cores could be profiled side by side: how operators gain from threads is a guess" in text
    rows = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert len(rows) == len(result.predicted)
    rates = [float(row["items_per_s"]) for row in rows]
    assert rates == sorted(rates, reverse=True)
    drawn = chart(result)
    assert drawn is not None
    assert "predicted, not measured" in drawn


# ---- captures and machines ------------------------------------------------------------------------------------


def capture(space: Space, stock: object, resnet50: object, machine: Machine = HERE) -> Capture:
    """Return a capture of that workload."""
    subject = subject_of(machine, {"name": "cpu"}, stock, resnet50, space, {})  # type: ignore[arg-type]
    return Capture(
        machine=machine,
        runtime=subject.runtime,
        workload=subject.workload,
        traced={b: list(each.traced) for b, each in PROFILES.items()},
    )


def test_a_capture_is_read_as_it_was_written(tmp_path: Path, space: Space, stock: object, resnet50: object) -> None:
    own = capture(space, stock, resnet50)
    write_capture(own, tmp_path / "capture.json")
    again = read_capture(tmp_path / "capture.json")
    assert again.machine == own.machine
    assert again.bytes_s == BYTES_S
    for batch_size, each in again.profiles.items():
        for ours, theirs in zip(each.operators, PROFILES[batch_size].operators, strict=True):
            assert dict(ours.times_s) == pytest.approx(dict(theirs.times_s))
    assert [path.name for path in tmp_path.iterdir()] == ["capture.json"]


def test_a_capture_of_something_else_is_refused_in_one_short_line(
    space: Space, stock: object, resnet50: Workload
) -> None:
    own = capture(space, stock, resnet50)

    def refused(**changes: object) -> str:
        changed = msgspec.structs.replace(own, workload=msgspec.structs.replace(own.workload, **changes))
        with pytest.raises(BadInputError) as caught:
            changed.check(SimpleNamespace(workload=resnet50, framework=FRAMEWORK))  # type: ignore[arg-type]
        return caught.value.message

    assert refused(mode="training", fingerprint="other") == (
        "the profile is of another workload: mode is training there, and inference here"
    )
    assert refused(fingerprint="other").endswith("workload: its code, its model or a variable that it reads is another")
    long = {"text": "x" * 5_000, "n": 1}
    assert refused(params=long, fingerprint="other") == "the profile is of another workload: params text differs"
    own.check(SimpleNamespace(workload=resnet50, framework=FRAMEWORK))  # type: ignore[arg-type]
    other = SimpleNamespace(workload=resnet50, framework=SimpleNamespace(name="other", title="Other"))
    with pytest.raises(BadInputError, match="the profile is of TensorFlow, and this is for Other"):
        own.check(other)  # type: ignore[arg-type]


def test_a_capture_from_elsewhere_differs_by_what_changes_timings_alone(
    space: Space, stock: object, resnet50: object
) -> None:
    own = capture(space, stock, resnet50)
    runtime = own.runtime
    # What a probe has seen, and what no operator takes longer by.
    seen = [{"changes": None, "created": 3, "names": {"python3": 12_000 * 3}, "onednn": "x" * 12_000, "openmp": None}]
    same = {**runtime, "id": "other", "observations": seen, "cpus": 3, "python": "3.12.3", "cuda": "12.5.1"}
    folders = {"LD_LIBRARY_PATH": "/opt/lib"}
    elsewhere = msgspec.structs.replace(own, runtime=same, environment=folders)
    assert elsewhere.differences(runtime, {}, "here") == ()
    assert elsewhere.differences(None, None, "here") == ()
    older = msgspec.structs.replace(own, runtime={**same, "tensorflow": "2.20.0", "isa": "AVX2"}, environment={})
    assert older.differences(runtime, {"TF_ENABLE_ONEDNN_OPTS": "0"}, "here") == (
        f"tensorflow is 2.20.0 in the profile, and {runtime['tensorflow']} here",
        f"isa is AVX2 in the profile, and {runtime['isa']} here",
        "TF_ENABLE_ONEDNN_OPTS is not set in the profile, and 0 here",
    )
    assert older.differences(runtime, None, "in server.json")[0].endswith("in server.json")
    assert msgspec.structs.replace(own, environment=None).differences(runtime, {"TF_ENABLE_X": "1"}, "here") == ()


def test_a_capture_may_be_packed(tmp_path: Path, space: Space, stock: object, resnet50: object) -> None:
    own = capture(space, stock, resnet50)
    packed = lzma.compress(msgspec.json.encode(own))
    for name in ("capture.json.xz", "named-otherwise"):
        (tmp_path / name).write_bytes(packed)
        assert read_capture(tmp_path / name).workload == own.workload
    for damaged in (packed[: len(packed) // 2], packed[:-9], packed[:40] + bytes(20) + packed[60:]):
        (tmp_path / "capture.json.xz").write_bytes(damaged)
        with pytest.raises(BadInputError, match=r"capture\.json\.xz is damaged"):
            read_capture(tmp_path / "capture.json.xz")


def test_a_document_that_is_no_capture_is_called_by_its_name(
    tmp_path: Path, space: Space, stock: object, resnet50: object
) -> None:
    own = msgspec.to_builtins(capture(space, stock, resnet50))
    file = tmp_path / "capture.json"
    for document, reason in (
        (own | {"schema": 7}, r"it is of another version of tftune \(schema 7\)"),
        ({"schema": 1, "predicted": []}, "it is the prediction; the profile lies next to it"),
    ):
        file.write_bytes(msgspec.json.encode(document))
        with pytest.raises(BadInputError, match=reason) as caught:
            read_capture(file)
        assert len(caught.value.message) < len(str(file)) + 100


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 9}', "\x00", "[" * 100_000, '{"machine": 1}'])
def test_what_is_no_capture_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "capture.json").write_text(text)
    with pytest.raises(BadInputError, match="is no capture of a profile"):
        read_capture(tmp_path / "capture.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runtime": {}}, "its build has no id"),
        ({"runtime": {"id": "x", "framework": []}}, "its build has no id"),
        ({"machine": msgspec.to_builtins(replace(HERE, sockets=3))}, "its machine cannot be: sockets is 3"),
        ({"traced": {0: [traced(1, 8)]}}, "it is of batches of 0 items"),
        ({"traced": {}}, "it has no process with one thread"),
        ({"traced": {8: [traced(2, 8)]}}, "it has no process with one thread"),
        ({"traced": {8: [replace(traced(1, 8), step_s=0.0)]}}, "a time or a rate in it is not above 0"),
        ({"traced": {8: [replace(traced(1, 8), plain_s=0.0)]}}, "a time or a rate in it is not above 0"),
        ({"traced": {8: [replace(traced(1, 8), traced_s=0.0)]}}, "a time or a rate in it is not above 0"),
        (
            {"traced": {8: [traced(1, 8), replace(traced(2, 8), threads=4), traced(2, 8)]}},
            "not in the order of their threads",
        ),
        ({"traced": {8: [replace(traced(1, 8), nodes=[["x"]])]}}, "is no capture of a profile"),
    ],
)
def test_a_capture_that_tells_too_little_is_refused(
    tmp_path: Path, space: Space, stock: object, resnet50: object, changes: dict[str, object], message: str
) -> None:
    document = msgspec.to_builtins(capture(space, stock, resnet50)) | msgspec.to_builtins(changes, str_keys=True)
    (tmp_path / "capture.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(BadInputError, match=message):
        read_capture(tmp_path / "capture.json")


@pytest.mark.parametrize(
    ("largest", "tried"), [(128, [[8, 64, 128]]), (64, [[8, 64, 128], [8, 64]]), (8, [[8, 64, 128], [8, 64], [64]])]
)
def test_batch_sizes_that_do_not_run_are_left_out(
    largest: int, tried: list[list[int]], space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[int]] = []

    def trace(_: object, sizes: Sequence[int], **__: object) -> dict[int, list[Traced]]:
        asked.append(list(sizes))
        if max(sizes) > largest:
            raise BadInputError("a step cannot be profiled: out of memory", "")
        return {size: [traced(1, size)] for size in sizes}

    monkeypatch.setattr(predict_module, "trace", trace)
    monkeypatch.setattr(predict_module, "write_capture", lambda *_: None)
    reference = space.reference.with_values(batch_size=64)
    job = SimpleNamespace(
        space=SimpleNamespace(reference=reference),
        machine=HERE,
        features=lambda: None,
        subject=subject(space),
        seen=Seen(pinned="pinned to CPU 0"),
    )
    job.environment, job.workload, job.seen_outputs = {}, SimpleNamespace(name="resnet50"), {}
    notices: list[str] = []
    events = SimpleNamespace(notice=notices.append)
    if largest < 64:
        with pytest.raises(BadInputError, match="out of memory"):
            predict_module.new_capture(job, [8, 64, 128], events=events)  # type: ignore[arg-type]
    else:
        told = predict_module.new_capture(job, [8, 64, 128], events=events)  # type: ignore[arg-type]
        assert list(told.traced) == tried[-1]
        assert told.pinned == "pinned to CPU 0"
    assert asked == tried
    assert len(notices) == len(tried) - 1


def test_a_machine_is_found_by_words_or_by_a_document_that_has_one(tmp_path: Path) -> None:
    assert find_machine("cores=4").machine.physical_cores == 4
    assert find_machine("cores=4,bandwidth=128").socket_bytes_s == 128e9
    document = tmp_path / "inspect.json"
    document.write_text(json.dumps({"machine": msgspec.to_builtins(detect()), "wake_s": 8e-6, "busy_loss": 0.4}))
    found = find_machine(str(document))
    assert found == type(found)(machine=detect(), wake_s=8e-6, busy_loss=0.4)
    told = {"runtime": STOCK.to_dict(), "environment": {"TF_ENABLE_ONEDNN_OPTS": "0"}}
    document.write_bytes(msgspec.json.encode({"machine": detect(), **told}))
    found = find_machine(str(document))
    assert found == type(found)(machine=detect(), **msgspec.to_builtins(told))
    document.write_bytes(msgspec.json.encode({"machine": detect(), "runtime": "another", "environment": 3}))
    assert find_machine(str(document)) == type(found)(machine=detect())
    document.write_text(json.dumps({"machine": msgspec.to_builtins(replace(HERE, physical_cores=0))}))
    with pytest.raises(BadInputError, match="a machine that cannot be"):
        find_machine(str(document))
    for changes, contradiction in (
        ({"sockets": 3}, "sockets is 3, and physical_cores 2"),
        ({"cpu_quota": 0.0}, "cpu_quota is 0"),
        ({"physical_cores": 56, "logical_cpus": 112}, "cores lists 2, and physical_cores is 56"),
        ({"threads_per_core": 0}, "threads_per_core is 0"),
        ({"core_kinds": [0]}, "core_kinds lists 1, and cores 2"),
        ({"affinity": "0-7"}, "affinity lists 8 CPUs, and logical_cpus is 2"),
        ({"affinity": "0-99999999999"}, "affinity is '0-99999999999'"),
        ({"numa_nodes": {"0": "x"}}, r"numa_nodes is \['x'\]"),
        ({"numa_nodes": {"0": "0-7"}}, "numa_nodes lists other CPUs than affinity, 0-1"),
        ({"cores": ["0-1", "1"]}, "cores lists a CPU twice"),
        ({"cores": ["0", "0"]}, "cores lists other CPUs than affinity"),
        ({"affinity": "all"}, "affinity is 'all'"),
        ({"cores": ["a", "b"]}, r"cores is \['a', 'b'\]"),
        ({"cores": ["7", "8"]}, "cores lists other CPUs than affinity"),
        ({"caches": [{"name": "L3", "size_bytes": -1, "n_instances": 1}]}, "a cache is smaller than nothing"),
    ):
        document.write_text(json.dumps({"machine": msgspec.to_builtins(HERE) | changes}))
        with pytest.raises(BadInputError, match=f"a machine that cannot be: {contradiction}"):
            find_machine(str(document))
    for text, message in (
        ("{}", "describes no machine"),
        ("[]", "describes no machine"),
        ("no", "is no JSON"),
        ("[" * 100_000, "describes no machine"),
    ):
        document.write_text(text)
        with pytest.raises(BadInputError, match=message):
            find_machine(str(document))
    with pytest.raises(BadInputError, match="cannot read the machine"):
        find_machine("nowhere.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machine", "cores=0"], "--machine has cores=0; expected a whole number from 1 to 4096"),
        (["--machine", "cores=4,smt=0"], "--machine has smt=0; expected a whole number from 1 to 8"),
        (["--machine", "cores=4,quota=-1"], "--machine has quota=-1; expected a number from 0.01"),
        (["--machine", "cores=4,quota=9"], "--machine has a quota of 9 on 4 CPUs"),
        (["--machine", "cores=1.5"], "--machine has cores=1.5; expected a whole number"),
        (["--machine", "cores=nan"], "--machine has cores=nan; expected a whole number"),
        (["--machine", "sockets=4,cores=2"], "more sockets (4) than each of them has cores (2)"),
        (["--machine", "sockets=8,cores=4096"], "--machine has 32,768 CPUs; expected at most 8,192"),
        (["--machine", "sockets=2"], "--machine does not name cores"),
        (["--machine", "cores=4,cores=8"], "--machine has cores twice"),
        (["--machine", "cores"], "cannot read the machine cores"),
        (["--machine", "nowhere.json"], "cannot read the machine nowhere.json"),
        (["--framework", "onnxruntime"], "ONNX Runtime shows none of its operators"),
        (["--from", "nowhere.json"], "cannot read nowhere.json"),
        (["--only", "inter_op=nine"], "inter_op=nine"),
        (["--only", "inter_op=1", "--set", "intra_op=1"], "--set and --only contradict each other"),
        (["--from", "capture.json", "--new"], "--new and --from contradict each other"),
        (["--machine", "cores=56", "--set", "intra_op=5600"], "intra_op=5600"),
    ],
)
def test_bad_input_is_one_line(call: Call, words: list[str], message: str) -> None:
    code, out, err = call("predict", "lenet5", *words)
    assert (code, out) == (2, "")
    assert message in err


# ---- profiles that are at hand ---------------------------------------------------------------------------------

SHIPPED = sorted(shipped_profiles().glob("*.json.xz"))
CORES16 = ROOT / "results" / "predictions" / "cores" / "bert-tiny.capture.json.xz"


@pytest.fixture
def nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """See that no interpreter is asked for its TensorFlow."""

    def prepare(_: ParsedRequest) -> None:
        raise AssertionError("an interpreter is asked")

    monkeypatch.setattr(predict_module, "prepare", prepare)


@pytest.fixture
def stock_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a stock wheel here that nobody has to ask."""
    monkeypatch.setattr(predict_module, "prepare", lambda asked: elsewhere(asked, STOCK))


def test_shipped_profiles_are_few_and_small() -> None:
    """What is in a wheel is downloaded by all."""
    assert len(SHIPPED) == 12
    assert sum(path.stat().st_size for path in SHIPPED) < 600_000


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_profile_is_of_the_workload_as_it_is_shipped(path: Path) -> None:
    """Whoever changes what a workload computes has to profile it again."""
    told = read_capture(path)
    own = load(told.workload.name, mode=told.workload.mode)
    assert path.name == f"{own.path.stem}{'-training' if own.mode == 'training' else ''}.json.xz"
    assert told.workload.fingerprint == own.fingerprint
    assert not told.is_quick
    assert told.build.id == told.runtime["id"]
    page = (ROOT / "docs" / "predicting.md").read_text()
    rows = page.partition("## Shipped profiles")[2].partition("\n## ")[0].splitlines()
    (row,) = [row for row in rows if row.startswith("| ") and f" {told.workload.name}" in row.split(" | ")[0]]
    assert row.endswith(f"TensorFlow {told.runtime['tensorflow']} | {told.created} |")
    assert f"{told.machine.physical_cores} cores of" in row


@pytest.mark.usefixtures("nobody_asks")
def test_a_shipped_workload_is_predicted_elsewhere_at_once(call: Call, tmp_path: Path) -> None:
    words = ["predict", "lenet5", "--machine", "sockets=2,cores=28,smt=2"]
    code, out, err = call(*words, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["source"] == {"kind": "shipped", "file": None, "created": "2026-11-26", "differences": []}
    assert document["machine"]["physical_cores"] == 56
    assert {row["setting"]["intra_op"] for row in document["predicted"]} >= {1, 28, 56, 112}
    text = " ".join(call(*words, "--set", "intra_op=56")[1].split())
    line = "predicted from the shipped profile of lenet5: 2 cores of an AMD EPYC, TensorFlow 2.21.0, 2026-11-26"
    assert text.startswith(
        f"lenet5 on 56 cores in 2 sockets, 2 hardware threads per core: predicted, not measured {line} best: "
    )
    # It is one to go on with.
    call(*words, "--out", str(tmp_path / "out"))
    assert read_capture(tmp_path / "out" / "capture.json").created == "2026-11-26"
    # Of these nothing is at hand.
    for others in (["--new"], ["--python", sys.executable]):
        with pytest.raises(AssertionError, match="an interpreter is asked"):
            call(*words, *others)
    with pytest.raises(AssertionError, match="an interpreter is asked"):
        call("predict", "lenet5", "--mode", "training", "--machine", "cores=8")
    with pytest.raises(AssertionError, match="an interpreter is asked"):
        call("predict", "resnet50", "--param", "size=64", "--machine", "cores=8")
    with pytest.raises(AssertionError, match="an interpreter is asked"):
        call("predict", "lenet5")


@pytest.mark.usefixtures("nobody_asks")
def test_a_profile_made_here_comes_before_the_shipped_one(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path))
    asked = parse_request(SearchRequest(workload=WorkloadSpec.of_name("lenet5")), stores=False)
    shipped = predict_module.shipped_capture(asked)
    assert shipped is not None
    job = elsewhere(asked, shipped.build)
    own = msgspec.structs.replace(shipped, machine=asked.machine, environment=job.environment, created="2026-12-01")
    path = predict_module.cache_path(job, profiled_sizes(job))
    words = ["predict", "lenet5", "--machine", "cores=16"]
    for other in (
        predict_module.cache_path(job, [1, 2, 4]),
        predict_module.cache_path(job, profiled_sizes(job), is_quick=True),
        path.with_name("lenet5-damaged.json"),
    ):
        write_capture(own, other)
    path.with_name("lenet5-damaged.json").write_text("{")
    assert json.loads(call(*words, "--json")[1])["source"]["kind"] == "shipped"
    write_capture(own, path)
    code, out, err = call(*words, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["source"] == {"kind": "made here", "file": None, "created": "2026-12-01", "differences": []}
    assert "predicted from the profile made here: " in " ".join(call(*words)[1].split())


@pytest.mark.usefixtures("nobody_asks")
def test_variables_and_the_file_of_a_machine_are_compared_with_what_was_profiled(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "server.json"
    runtime = STOCK.to_dict() | {"tensorflow": "2.22.0", "onednn": "3.7.3", "keras": "3.15.1"}
    server.write_bytes(msgspec.json.encode({"machine": SERVER, "runtime": runtime, "environment": {}}))
    document = json.loads(call("predict", "lenet5", "--machine", str(server), "--json")[1])
    told = document["source"]["differences"]
    assert f"tensorflow is 2.21.0 in the profile, and 2.22.0 in {server}" in told
    assert any(each.startswith("isa is Intel AVX-512") for each in told)
    (warning,) = document["warnings"]
    assert warning["code"] == "other build"
    assert warning["found"] == "; ".join(told)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    document = json.loads(call("predict", "lenet5", "--machine", "cores=8", "--json")[1])
    assert document["source"]["differences"] == ["TF_ENABLE_ONEDNN_OPTS is not set in the profile, and 0 here"]


@pytest.mark.usefixtures("stock_is_here")
@pytest.mark.parametrize("machine", [["--machine", "cores=16"], []])
def test_a_profile_from_elsewhere_is_taken_with_one_line_of_warning(call: Call, machine: list[str]) -> None:
    words = ["predict", "bert-tiny", "--from", str(CORES16), *machine]
    code, out, err = call(*words, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["source"]["kind"] == "file"
    assert document["source"]["file"] == str(CORES16)
    assert any(each.startswith("isa is ") for each in document["source"]["differences"])
    assert not any("python" in each or "names" in each for each in document["source"]["differences"])
    (warning,) = document["warnings"]
    assert "\n" not in warning["found"] and len(warning["found"]) < 400
    assert document["profiled_on"]["cpu_model"] == "Intel(R) Xeon(R) Processor"
    assert not document["trust"]["is_here"]
    assert call(*words)[1].count("other build: ") == 1
    code, out, err = call("predict", "lenet5", "--from", str(CORES16), *machine)
    assert (code, out) == (2, "")
    assert err.startswith("the profile is of another workload: name is bert-tiny there, and lenet5 here")


def test_a_profile_of_a_file_needs_no_tensorflow_for_a_machine_that_is_not_here(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(_: ParsedRequest) -> None:
        raise BadInputError("python has no TensorFlow", "install it")

    monkeypatch.setattr(predict_module, "prepare", prepare)
    words = ["predict", "bert-tiny", "--from", str(CORES16)]
    code, out, _ = call(*words, "--machine", "cores=16", "--json")
    assert code == 0
    assert json.loads(out)["source"]["differences"] == []
    code, _, err = call(*words)
    assert (code, err) == (2, "python has no TensorFlow; install it")


@pytest.mark.usefixtures("nobody_asks")
def test_machines_of_a_thousand_cores_are_predicted(call: Call) -> None:
    words = "--machine", "sockets=8,cores=125,smt=2", "--only", "inter_op=1,intra_op=1000", "--json"
    code, out, _ = call("predict", "lenet5", *words)
    assert code == 0
    document = json.loads(out)
    assert document["machine"]["physical_cores"] == 1000
    assert np.isfinite([each["items_per_s"] for each in document["baselines"].values()]).all()


@pytest.mark.usefixtures("nobody_asks")
def test_masks_with_holes_containers_and_unlike_cores_are_predicted(call: Call, tmp_path: Path) -> None:
    def predicted(machine: Machine, *words: str) -> dict[str, Any]:
        file = tmp_path / "server.json"
        file.write_bytes(msgspec.json.encode({"machine": machine}))
        code, out, err = call("predict", "lenet5", "--machine", str(file), *words, "--json")
        assert (code, err) == (0, "")
        document: dict[str, Any] = json.loads(out)
        return document

    holes = make_machine(
        tmp_path / "holes", cores=[(i, i + 8) for i in range(8)], sockets=[range(16)], mask=(0, 3, 5, 8, 11, 14)
    )
    machine = predicted(detect(holes))["machine"]
    assert (machine["affinity"], machine["physical_cores"], machine["logical_cpus"]) == ("0,3,5,8,11,14", 4, 6)
    # A container that shows four CPUs from 0 on, and may use four others.
    other = make_machine(
        tmp_path / "other", cores=[(cpu,) for cpu in range(16)], sockets=[range(16)], mask=(8, 9, 10, 11)
    )
    write(other, "sys/devices/system/cpu/online", "0-3")
    assert predicted(detect(other))["machine"]["affinity"] == "8-11"
    two = detect(make_hybrid(tmp_path / "hybrid"))
    alike = predicted(two, "--space", "serving", "--only", "instances=8,intra_op=3")
    assert alike["warnings"] == []
    many = predicted(two, "--space", "serving", "--only", "instances=24,intra_op=1")
    (warning,) = many["warnings"]
    assert warning["code"] == "unlike cores"
    assert warning["found"].startswith("the cores of the processes are unlike: faster on CPUs 0-")


# ---- for real -------------------------------------------------------------------------------------------------


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_real_model_is_predicted_here_and_elsewhere(tmp_path: Path) -> None:
    words = ["predict", "lenet5", "--json"]
    ended = tftune_here(*words, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["measured"] is False
    assert document["trust"]["is_here"]
    # Batches beyond twice the profiled one are an extension, and called so.
    trust = document["trust"]
    is_extended = trust["largest_batch_size"] > 2 * max(document["batch_sizes"]) or (
        trust["cores"] > trust["profiled_threads"]
    )
    assert (document["trust"]["code"] != "within the profiled range") == is_extended
    assert len({row["setting"]["batch_size"] for row in document["predicted"]}) > 2
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"prediction.json", "settings.csv", "capture.json"}
    own = document["baselines"]["tf-default"]["setting"]["batch_size"]
    assert document["batch_sizes"] == [own // 8, own, 2 * own]
    capture = read_capture(tmp_path / "out" / "capture.json")
    exposed = {(b, each.threads): each.exposed for b, told in capture.traced.items() for each in told}
    assert 0 < (exposed.pop((own // 8, 1)) or 0) < 1
    assert set(exposed.values()) == {None}
    again = tftune_here(*words, cwd=tmp_path)
    assert again.stderr == ""  # the profile is that of the cache
    assert json.loads(again.stdout)["predicted"] == document["predicted"]
    # A search takes the profile of the cache, too, and says how right it was.
    short = ["--time-budget", "12s", "--one-process", "--json"]
    searched = tftune_here("search", "lenet5", "--predict", *short, cwd=tmp_path)
    assert searched.returncode == 0, searched.stderr
    study = json.loads(searched.stdout)
    expected = study["expectation"]["setting"]
    baselines = [each["setting"] for each in study["baselines"].values()]
    assert study["hints"].get("predicted") == (None if expected in baselines else expected)
    first = next((trial["setting"] for trial in study["history"] if not trial["baselines"]), None)
    assert expected in baselines or first in (None, expected)  # there may be time for the baselines only
    assert study["expectation"]["predicted"] > 0.9
    assert 0 <= study["expectation"]["trust"] <= 1
    assert "profiling the operators" not in searched.stderr
    simulated = tftune_here("rules", "--simulated", "--json", cwd=tmp_path)
    assert "lenet5" in json.loads(simulated.stdout)["workloads"]
    elsewhere = tftune_here(
        *words, "--from", "out/capture.json", "--machine", "sockets=2,cores=28,smt=2", "--ideal", cwd=tmp_path
    )
    assert elsewhere.returncode == 0, elsewhere.stderr
    server = json.loads(elsewhere.stdout)
    assert (server["machine"]["physical_cores"], server["trust"]["is_here"]) == (56, False)
    searched = [row["setting"] for row in server["predicted"]]
    recommended = [each["setting"] for each in server["baselines"].values()]
    assert {each["intra_op"] for each in searched if each not in recommended} >= {1, 28, 56, 112}
    assert server["ideal"]["over_best"] >= 1
    one = tftune_here(
        *words, "--from", "out/capture.json", "--machine", "sockets=2,cores=28,smt=2", "--ideal",
        "--only", "inter_op=1,batch_size=8", cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(one.stdout)["ideal"] == server["ideal"]  # beside the whole space, whatever is asked for
    assert np.isfinite([row["items_per_s"] for row in server["predicted"]]).all()
    other = tftune_here("predict", "mlp", "--from", "out/capture.json", cwd=tmp_path)
    assert other.returncode == 2
    assert "the profile is of another workload: name is lenet5 there, and mlp here" in other.stderr
    fixed = tftune_here(
        *words, "--from", "out/capture.json", "--machine", "cores=56", "--set", "intra_op=56", cwd=tmp_path
    )
    assert {row["setting"]["intra_op"] for row in json.loads(fixed.stdout)["predicted"]} == {56}
    write_capture(msgspec.structs.replace(capture, is_quick=True), tmp_path / "quick.json")
    quick = tftune_here(*words, "--from", "quick.json", cwd=tmp_path)
    assert "quick.json is a quick profile of a search: leave --from out for a thorough one" in quick.stderr
