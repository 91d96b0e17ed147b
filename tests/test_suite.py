"""Suites: which searches there are, what is known of them already, and processes that are confined to a shape."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import optuna
import pytest
from msgspec import UNSET, structs, to_builtins
from rich.console import Console

from tests.command_line import tftune
from tests.conftest import Call
from tests.frameworks import subject
from tests.processes import wait_until
from tests.scripted import noisy, run
from tuner.cli import suite as cli_suite
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import TensorFlow
from tuner.job import nested, suite
from tuner.job import planned as planned_job
from tuner.job.job import Job
from tuner.job.parsed import parse_request
from tuner.job.request import SuiteRequest
from tuner.job.suite import FinishedCase, is_of_one_process
from tuner.machine import confine
from tuner.machine.cgroup import cpu_groups, read_limits
from tuner.machine.confine import CpuShape, choose_cpus, confined
from tuner.machine.host import Machine, detect
from tuner.machine.topology import Topology, read_topology
from tuner.measure.budget import Budget, Countdown
from tuner.report import studylist
from tuner.result.document import describe_study
from tuner.result.inspection import CaseResult
from tuner.result.study import PlannedResult, StudyResult
from tuner.space.space import Space
from tuner.study.plan import Plan
from tuner.study.record import SCHEMA
from tuner.study.storage import open_storage
from tuner.study.subject import workload_facts
from tuner.workload.workload import load

TWO_SOCKETS = Topology(
    cpus=frozenset(range(16)),
    cores=tuple(frozenset({cpu, cpu + 8}) for cpu in range(8)),
    packages=(frozenset({0, 1, 2, 3, 8, 9, 10, 11}), frozenset({4, 5, 6, 7, 12, 13, 14, 15})),
    n_sockets=2,
    nodes={},
    caches=(),
    model_name="made",
)


# ---- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "expected"), [(1, {0}), (4, {0, 1, 2, 3}), (6, set(range(6))), (8, set(range(8))), (9, {*range(8), 8})]
)
def test_cpus_are_cores_beside_each_other_before_their_siblings(n: int, expected: set[int]) -> None:
    assert choose_cpus(TWO_SOCKETS, TWO_SOCKETS.cpus, n) == expected


def test_cpus_keep_to_the_mask() -> None:
    assert choose_cpus(TWO_SOCKETS, frozenset({5, 6, 13}), 2) == {5, 6}
    with pytest.raises(BadInputError, match="expected 1 to 3"):
        choose_cpus(TWO_SOCKETS, frozenset({5, 6, 13}), 4)


def test_a_process_is_confined_to_its_cpus() -> None:
    cpu = min(os.sched_getaffinity(0))
    with confined(CpuShape(cpus=frozenset({cpu}))) as enter:
        code = "import os; print(sorted(os.sched_getaffinity(0)))"
        out = subprocess.run([sys.executable, "-c", code], preexec_fn=enter, capture_output=True, text=True, check=True)
    assert out.stdout == f"[{cpu}]\n"


def _may_make_groups() -> bool:
    with suppress(BadInputError), confined(CpuShape(cpus=frozenset({0}), quota=0.5)):
        return True
    return False


needs_groups = pytest.mark.skipif(not _may_make_groups(), reason="needs the right to make a cgroup with a CPU quota")


@needs_groups
def test_a_process_is_confined_to_its_quota_and_the_group_goes_away() -> None:
    mask = frozenset(os.sched_getaffinity(0))
    with confined(CpuShape(cpus=mask, quota=0.5)) as enter:
        code = "from tuner.machine.host import detect; print(detect().cpu_quota)"
        out = subprocess.run([sys.executable, "-c", code], preexec_fn=enter, capture_output=True, text=True, check=True)
    assert out.stdout == "0.5\n"
    assert not [path for parent in cpu_groups() for path in parent.glob(f"tftune-{os.getpid()}")]


@needs_groups
def test_a_process_in_a_group_ends_with_its_parent() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "from tuner.machine.confine import CpuShape, confined\n"
        "with confined(CpuShape(cpus=frozenset(os.sched_getaffinity(0)), quota=0.5)) as enter:\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], preexec_fn=enter)\n"
        "    print(child.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert wait_until(lambda: not _alive(child))
    for group in (path for folder in cpu_groups() for path in folder.glob(f"tftune-{parent.pid}")):
        group.rmdir()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [child for each in map(int, text.split()) for child in (each, *_children(each))]
    return []


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and _state(pid) != "Z"


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def test_without_the_right_a_quota_is_refused_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInputError, match="no cgroup with a CPU controller") as caught,
        confined(CpuShape(cpus=frozenset({0}), quota=0.5), tmp_path),
    ):
        pass
    assert "--cpus" in caught.value.hint


@needs_groups
def test_a_group_that_takes_no_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(confine, "_try", refuse)
    with (
        pytest.raises(BadInputError, match="Operation not supported"),
        confined(CpuShape(cpus=frozenset({0, 1}), quota=0.5)),
    ):
        pass
    assert not [path for parent in cpu_groups() for path in parent.glob(f"tftune-{os.getpid()}")]


def test_a_group_that_takes_no_process_gives_way_to_one_next_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2: below a group with processes of its own a new group has a quota, and is "domain invalid"."""
    own = tmp_path / "sys/fs/cgroup/box/own"
    own.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/box/own\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (own / "cgroup.subtree_control").write_text("")
    (own.parent / "cgroup.subtree_control").write_text("cpu memory\n")

    def refuse(group: Path) -> None:
        if group.parent == own:
            (group / "cpu.max").unlink()  # the kernel's files do not keep a group from being removed
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(confine, "_try", refuse)
    with confined(CpuShape(cpus=frozenset({0, 1}), quota=0.5), tmp_path):
        (group,) = tmp_path.rglob("tftune-*")
        assert group.parent == own.parent
        assert (group / "cpu.max").read_text() == "50000 100000"
        (group / "cpu.max").unlink()
    assert (own / "cgroup.subtree_control").read_text() == "-cpu"  # it was "+cpu" in between


@pytest.mark.parametrize("quota", [0.0, -1.0, float("nan"), 0.01, 2.0, float("inf")])
def test_a_quota_is_some_of_the_cpus(quota: float) -> None:
    with pytest.raises(BadInputError, match=r"expected at least 0\.05 and less than 2 CPUs"):
        CpuShape(cpus=frozenset({0, 1}), quota=quota)


# ---- plans ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def planned(tmp_path: Path, stock: Build, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plan a suite without asking a TensorFlow."""
    monkeypatch.setattr(TensorFlow, "probe", lambda *_: stock)

    def plan(**options: Any) -> suite.Suite:
        return suite.plan(SuiteRequest(storage=f"sqlite:///{tmp_path}/s.db", **options))

    return plan


def test_workloads_vary_fastest(planned: Any) -> None:
    plan = planned(workloads="lenet5,mlp", modes="inference,training", cpus="1")
    assert [case.title for case in plan.cases] == [
        "lenet5 inference",
        "mlp inference",
        "lenet5 training",
        "mlp training",
    ]
    assert {str(case.shape) for case in plan.cases} == {"1 CPU"}


def test_all_workloads_in_the_modes_that_they_have(planned: Any) -> None:
    plan = planned(modes="inference,training")
    assert len(plan.cases) == 35
    assert plan.unavailable == ["matmul has no mode 'training'"]
    assert plan.missing == list(range(35))


def test_a_study_that_has_its_finals_is_known(planned: Any, tmp_path: Path, space: Space) -> None:
    plan = planned(workloads="lenet5,mlp")
    storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=True)
    assert storage is not None
    case = plan.cases[1]

    study = optuna.create_study(study_name="known", storage=storage)
    subject_here = structs.replace(
        subject(space), machine=detect(), workload=workload_facts(case.workload), runtime=case.build.to_dict()
    )
    described = to_builtins(structs.replace(subject_here, space_digest=UNSET, environment=UNSET))
    for key, value in {"schema": SCHEMA, "described": described, "seed": 0, "created": "2026"}.items():
        study.set_user_attr(key, value)
    assert planned(workloads="lenet5,mlp").missing == [0, 1]
    study.set_user_attr("finals", {"contenders": [], "rounds": []})
    assert planned(workloads="lenet5,mlp").missing == [0]
    assert planned(workloads="lenet5,mlp", space="quick").missing == [0, 1]
    assert planned(workloads="lenet5,mlp", seed=1).missing == [0, 1]
    assert planned(workloads="lenet5,mlp", modes="training").missing == [0, 1]
    for key, value in (("objective", "latency"), ("limits", {"p99_s": 0.1}), ("pins", {"inter_op": "1"})):
        study.set_user_attr(key, value)
        assert planned(workloads="lenet5,mlp").missing == [0, 1]
        study.set_user_attr(key, None if key != "objective" else "throughput")
    assert planned(workloads="lenet5,mlp").missing == [0]
    for more in ({"space_digest": "of another file"}, {"environment": {"MALLOC_ARENA_MAX": "1"}}):
        study.set_user_attr("described", described | more)
        assert planned(workloads="lenet5,mlp").missing == [0, 1]
    for other in ({"cpu_quota": 0.5}, {"caches": [{"name": "L2", "size_bytes": 3 << 20, "n_instances": 1}]}):
        study.set_user_attr("described", described | {"machine": described["machine"] | other})
        assert planned(workloads="lenet5,mlp").missing == [0, 1]


# ---- what is stale --------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(planned: Any, tmp_path: Path, space: Space) -> Callable[..., dict[str, Any]]:
    """Store a study of a workload as it is here but for some facts; return what it is of."""

    def add(workload: str = "mlp", *, updated: str = "2026-11-01", host: str | None = None, **facts: Any) -> Any:
        [case] = planned(workloads=workload).cases
        storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=True)
        assert storage is not None
        study = optuna.create_study(study_name=f"{workload}-{updated}", storage=storage)
        subject_here = structs.replace(
            subject(space), machine=detect(), workload=workload_facts(case.workload), runtime=case.build.to_dict()
        )
        described = to_builtins(structs.replace(subject_here, space_digest=UNSET, environment=UNSET)) | facts
        attributes = {"schema": SCHEMA, "described": described, "seed": 0, "created": "2026", "updated": updated}
        for key, value in (attributes | {"finals": {"contenders": [], "rounds": []}}).items():
            study.set_user_attr(key, value)
        if host is not None:
            study.ask().set_user_attr("owner", f"{host}:12")
        return described

    return add


def test_what_is_current_or_was_never_measured_is_not_stale(planned: Any, measured: Any) -> None:
    measured("mlp")
    plan = planned(workloads="lenet5,mlp", stale=True)
    assert ([case.title for case in plan.cases], plan.missing, plan.reasons) == (["mlp inference"], [], {})
    assert plan.unavailable == ["1 search was never measured: leave out --stale to run them"]


@pytest.mark.parametrize(
    ("facts", "reasons"),
    [
        ({"space": "quick"}, ("the search space changed",)),
        ({"space_digest": "older"}, ("the search space changed",)),
        ({"environment": {"MALLOC_ARENA_MAX": "1"}}, ("variables that change timings changed",)),
        ({"workload": {"fingerprint": "older"}}, ("the model changed",)),
        ({"runtime": {"id": "older", "tensorflow": "2.20.0"}}, ("TensorFlow 2.20.0, now 2.21.0",)),
        ({"runtime": {"id": "older"}, "space": "quick"}, ("the build changed", "the search space changed")),
        ({"workload": {"mode": "training", "fingerprint": "older"}}, None),
        ({"workload": {"name": "other", "fingerprint": "older"}}, None),
        ({"workload": {"execution": "xla"}}, None),
        ({"machine": {"cpu_quota": 0.5}}, None),
        ({"machine": {"cpu_model": "another"}}, None),
    ],
)
def test_what_has_changed_is_measured_again_for_that_reason(
    planned: Any, measured: Any, tmp_path: Path, facts: dict[str, Any], reasons: tuple[str, ...] | None
) -> None:
    measured("lenet5")  # of which nothing has changed
    described = measured("mlp")
    for key, value in facts.items():
        is_part = isinstance(value, dict) and key != "environment"
        described[key] = described[key] | value if is_part else value
    _described(tmp_path, "mlp-2026-11-01", described)
    plan = planned(workloads="lenet5,mlp", stale=True)
    if reasons is None:
        assert ([case.title for case in plan.cases], plan.missing) == (["lenet5 inference"], [])
        return
    assert [case.title for case in plan.cases] == ["lenet5 inference", "mlp inference"]
    assert (plan.missing, plan.reasons) == ([1], {1: reasons})
    assert planned(workloads="lenet5,mlp", seed=1, stale=True).cases == []


def _described(folder: Path, study: str, described: dict[str, Any]) -> None:
    storage = open_storage(f"sqlite:///{folder}/s.db", create=False)
    assert storage is not None
    optuna.load_study(study_name=study, storage=storage).set_user_attr("described", described)


def test_a_host_that_has_become_another_machine_measures_again(planned: Any, measured: Any) -> None:
    described = measured("lenet5")
    other = described["machine"] | {"cpu_model": "another", "affinity": "0-63", "online_cpus": 64}
    measured("mlp", machine=other, host=socket.gethostname())
    measured("ncf", machine=other, host="elsewhere")
    plan = planned(workloads="lenet5,mlp,ncf", stale=True)
    assert {plan.cases[number].title: why for number, why in plan.reasons.items()} == {
        "mlp inference": ("the machine changed",)
    }


def test_the_newest_study_says_what_has_changed_and_a_current_one_that_nothing_has(planned: Any, measured: Any) -> None:
    runtime = measured("lenet5")["runtime"]
    for updated, version in (("2026-11-03", "2.19.0"), ("2026-11-04", "2.20.0"), ("2026-11-02", "2.18.0")):
        measured("mlp", updated=updated, runtime=runtime | {"id": version, "tensorflow": version})
    assert planned(workloads="mlp", stale=True).reasons == {0: ("TensorFlow 2.20.0, now 2.21.0",)}
    measured("mlp", updated="2026-11-01")
    assert planned(workloads="mlp", stale=True).reasons == {}


def test_without_names_the_workloads_are_those_of_the_storage(planned: Any, measured: Any, tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"s\.db has no studies of such a suite; run the suite without --stale first"
    ):
        planned(stale=True)
    runtime = measured("lenet5")["runtime"]
    measured("mlp", runtime=runtime | {"id": "older"})
    storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=False)
    assert storage is not None
    (tmp_path / "mine.py").write_text(Path(load("ncf").path).read_text())
    measured(str(tmp_path / "mine.py"), updated="mine", runtime=runtime | {"id": "older"})
    study = optuna.load_study(study_name=f"{tmp_path}/mine.py-mine", storage=storage)
    study.set_user_attr("asked", {"words": ["./mine.py"], "folder": str(tmp_path)})
    measured("bert-tiny", updated="gone")
    study = optuna.load_study(study_name="bert-tiny-gone", storage=storage)
    study.set_user_attr("asked", {"words": ["./gone.py"], "folder": "/none"})
    measured("resnet50", updated="params")
    study = optuna.load_study(study_name="resnet50-params", storage=storage)
    study.set_user_attr("asked", {"words": ["resnet50"], "params": ["size=64"], "folder": "."})
    plan = planned(stale=True)
    assert sorted(case.title for case in plan.cases) == ["lenet5 inference", "mine inference", "mlp inference"]
    assert {plan.cases[number].workload.name for number in plan.missing} == {"mine", "mlp"}
    [line] = plan.unavailable
    assert line.startswith("cannot use ./gone.py here: no workload file ./gone.py")


def test_a_dry_run_shows_why_and_a_stale_suite_runs_it(
    planned: Any, measured: Any, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned(workloads="lenet5").missing == [0]
    measured("mlp", space="quick")
    words = ["suite", "--stale", "--storage", f"{tmp_path}/s.db"]
    code, out, _ = call(*words, "--dry-run")
    assert code == 0
    assert re.search(r"mlp +inference .* missing +the search space", out)
    [row] = json.loads(call(*words, "--dry-run", "--json")[1])["cases"]
    assert (row["state"], row["stale"]) == ("missing", ["the search space changed"])
    _scripted(monkeypatch, "import sys; sys.exit('tftune: too bad')")
    code, out, _ = call(*words)
    assert (code, "0 made now, 1 failed" in out) == (1, True)
    assert call(*words, "--plan", "15m")[2].startswith("--stale with --plan")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workloads": "resnet5"}, "unknown workload 'resnet5'"),
        ({"workloads": ","}, "--workloads is empty"),
        ({"modes": "learning"}, "unknown mode 'learning'"),
        ({"workloads": "matmul", "modes": "training"}, "nothing to run: matmul has no mode"),
        ({"cpus": "1,x"}, "--cpus is 'x'"),
        ({"cpus": "4096"}, "--cpus 4096"),
        (
            {"cpu_quotas": "999"},
            "--cpu-quota 999 is out of range; expected at least 0.05 and less than",
        ),
        ({"cpus": ""}, "--cpus is empty"),
        ({"modes": "inference,foo"}, "unknown mode 'foo'"),
        ({"cpu_quotas": "half"}, "--cpu-quota is 'half'"),
        ({"time_budget": "soon"}, "--time-budget is 'soon'"),
        ({"stop_after": "late"}, "--stop-after is 'late'"),
        ({"space": "cpus"}, "unknown tensorflow search space 'cpus'"),
        ({"pythons": ("/none/python",)}, "no interpreter at /none/python"),
        ({"plan": "soon"}, "--plan is 'soon'"),
        ({"plan": "5s"}, "--plan 5s is too short; expected at least 1m"),
        ({"plan": "15m", "time_budget": "5m"}, "--plan with --time-budget; leave one or the other out"),
        ({"plan": "15m", "cpus": "1", "space": "quick"}, "--plan with --cpus, --space; leave"),
        ({"plan": "15m", "modes": "training"}, "--plan with --mode; leave"),
        ({"plan": "15m", "workloads": "resnet5"}, "unknown workload 'resnet5'"),
        ({"plan": "15m", "workloads": ""}, "--workloads is empty"),
    ],
)
def test_what_cannot_be_planned_is_said(planned: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        planned(**options)


# ---- plans of settings ----------------------------------------------------------------------------------------------


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a plan be for eight cores with two hardware threads each, where quotas may be set."""
    monkeypatch.setattr(planned_job, "read_topology", lambda: TWO_SOCKETS)
    monkeypatch.setattr(planned_job, "confined", lambda _: nullcontext())


def summary(machine: Machine) -> list[tuple[str, str, int, int | None]]:
    """Return the parts of a plan: mode, shape, number of batch sizes, and how many workloads there are at most."""
    return [(each.mode, str(each.shape), len(each.sizes), each.most) for each in planned_job.parts(machine)[0]]


@pytest.mark.usefixtures("shared")
def test_a_plan_spreads_over_shapes_then_modes_then_batch_sizes(machine: Machine) -> None:
    assert summary(machine) == [
        ("inference", "16 CPUs", 1, None),
        ("inference", "16 CPUs, quota 2", 1, None),
        ("inference", "4 CPUs", 1, None),
        ("inference", "2 CPUs", 1, None),
        ("inference", "16 CPUs, quota 4", 1, None),
        ("training", "16 CPUs", 1, 3),
        ("inference", "16 CPUs", 3, None),
    ]
    masks = [each.shape.cpus for each in planned_job.parts(machine)[0] if each.shape.quota is None]
    assert {*masks} == {frozenset(range(16)), frozenset({0, 1, 2, 3}), frozenset({0, 1})}


@pytest.mark.usefixtures("shared")
def test_on_few_cores_the_batch_sizes_come_with_the_first(machine: Machine) -> None:
    two = replace(machine, physical_cores=2, logical_cpus=2, affinity="0-1")
    assert summary(two) == [
        ("inference", "2 CPUs", 3, None),
        ("inference", "2 CPUs, quota 1", 1, None),
        ("training", "2 CPUs", 1, 3),
    ]
    first, *_ = planned_job.parts(two)[0]
    assert first.batch_sizes(8) == (1, 8, 32)
    assert first.batch_sizes(1) == (1, 4)
    one = replace(two, physical_cores=1, logical_cpus=1, affinity="0")
    assert [mode for mode, *_ in summary(one)] == ["inference", "training"]


def test_without_the_right_to_set_a_quota_there_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: CpuShape) -> None:
        raise BadInputError("cannot set --cpu-quota 2 here", "run as root")

    monkeypatch.setattr(planned_job, "read_topology", lambda: TWO_SOCKETS)
    monkeypatch.setattr(planned_job, "confined", refuse)
    parts, refused = planned_job.parts(machine)
    assert refused == ["cannot set --cpu-quota 2 here"]
    assert not [each for each in parts if each.shape.quota is not None]
    assert len(parts) == 5


def test_each_study_has_its_part_of_the_time_and_what_it_needs() -> None:
    assert planned_job.study_s(900.0, 27) == planned_job.study_s(840.0, 1000) == 75.0
    assert planned_job.study_s(7200.0, 27) == pytest.approx(266.7, abs=0.1)
    assert planned_job.study_s(33.0, 20) == 33.0


@pytest.fixture
def plan_of_two(planned: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plan settings of two workloads on all CPUs, at three batch sizes."""
    whole = CpuShape(cpus=frozenset(os.sched_getaffinity(0)))
    of_inference = planned_job.Part(mode="inference", shape=whole, sizes=(1.0, 0.5, 2.0))
    of_training = planned_job.Part(mode="training", shape=whole, sizes=(1.0,), most=1)
    monkeypatch.setattr(planned_job, "parts", lambda _: ([of_inference, of_training], ["no quotas"]))
    monkeypatch.setattr(suite, "export_models", lambda *_: None)
    return lambda **options: planned(**{"plan": "10m", "workloads": "mlp,lenet5"} | options)


def test_a_planned_study_asks_for_settings_and_no_search(plan_of_two: Any) -> None:
    plan = plan_of_two()
    assert [case.title for case in plan.cases] == ["mlp inference", "lenet5 inference", "mlp training"]
    assert [case.batch_sizes for case in plan.cases] == [(64, 128, 256), (32, 64, 128), (128,)]
    assert plan.unavailable == ["no quotas"]
    request = suite.search_request(plan.cases[0], plan.request, 66.4)
    assert (request.planned, request.instances, request.predict) == (
        "tftune suite --plan 10m --workloads mlp",
        True,
        False,
    )
    assert (request.batch_size, request.space, request.time_budget) == ("64,128,256", "threads", "66s")
    assert parse_request(request, stores=False).planned
    assert not parse_request(suite.search_request(plan.cases[0], SuiteRequest()), stores=False).planned


def test_by_itself_a_plan_is_of_a_dozen_workloads(planned: Any) -> None:
    plan = planned(plan="15m")
    assert list(dict.fromkeys(case.workload.name for case in plan.cases)) == [*planned_job.WORKLOADS]
    assert len(planned_job.WORKLOADS) == 12
    assert [case.workload.name for case in plan.cases if case.workload.mode == "training"] == [
        *("resnet50", "wide-deep", "bert-base")
    ]


def test_what_was_planned_and_measured_is_known(plan_of_two: Any, planned: Any, tmp_path: Path, space: Space) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=True)
    assert storage is not None
    case = plan_of_two().cases[1]

    study = optuna.create_study(study_name="known", storage=storage)
    subject_here = structs.replace(
        subject(space),
        machine=detect(),
        workload=workload_facts(case.workload),
        runtime=case.build.to_dict(),
        space="threads",
        space_digest=UNSET,
        environment=UNSET,
    )
    attributes = {"schema": SCHEMA, "described": to_builtins(subject_here), "seed": 0, "created": "2026"}
    run_ = {"wall_s": 1.0, "measured_s": 1.0, "search_timed_share": None, "ended": "time", "ended_because": "time"}
    for key, value in (attributes | {"planned": True, "batch_sizes": [32, 64, 128], "runs": [run_]}).items():
        study.set_user_attr(key, value)
    plan = plan_of_two()
    assert (plan.missing, [*plan.begun], [*plan.existing]) == ([0, 1, 2], [1], [])
    study.set_user_attr("runs", [run_, run_ | {"ended": "space"}])
    plan = plan_of_two()
    assert (plan.missing, [*plan.begun], [*plan.existing]) == ([0, 2], [], [1])
    assert planned(workloads="lenet5", space="threads").missing == [0]  # a search proves something
    study.set_user_attr("batch_sizes", [64])
    assert plan_of_two().missing == [0, 1, 2]


def test_planned_studies_run_until_the_time_is_over(plan_of_two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _scripted(monkeypatch, "import pickle, sys; sys.exit(f'tftune: {pickle.load(sys.stdin.buffer).time_budget}')")
    done = suite.run(plan_of_two(), on_start=lambda *_: None, on_end=lambda *_: None)
    assert len(done) == 3
    assert done[0].failure == "200s"  # a third of ten minutes
    too_late = replace(plan_of_two(), stop_after_s=planned_job.LEAST_S - 1)
    assert suite.run(too_late, on_start=lambda *_: None, on_end=lambda *_: None) == []


def test_no_study_begins_if_writing_the_models_took_its_time(plan_of_two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(plan_of_two(), stop_after_s=planned_job.LEAST_S + 0.5)
    monkeypatch.setattr(suite, "export_models", lambda *_: time.sleep(0.6))
    assert suite.run(plan, on_start=lambda *_: None, on_end=lambda *_: None) == []


def test_models_are_written_as_long_as_there_is_time(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines_s: list[float] = []
    waited: list[str] = []

    def export(job: Job, **_: object) -> None:
        deadlines_s.append(job.export_deadline_s)
        raise ValueError("one that fails is left to its own study")

    monkeypatch.setattr(Job, "export", export)
    plan = planned(plan="10m", workloads="mlp,lenet5")
    for total_s in (60.0, 1e9):
        suite.export_models(plan, Countdown(total_s=total_s), waited.append)
    assert [round(each) for each in deadlines_s] == [60, 60, 600, 600]
    suite.export_models(plan, Countdown(total_s=0.0), waited.append)
    assert len(deadlines_s) == 4


def test_an_interruption_while_models_are_written_is_one(plan_of_two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(suite, "export_models", interrupt)
    [case] = suite.run(plan_of_two(), on_start=lambda *_: None, on_end=lambda *_: None)
    assert (case.number, case.interrupted, case.failure) == (0, True, "interrupted")


def test_what_was_measured_before_an_interruption_is_told(
    plan_of_two: Any, tmp_path: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, file = _published(space, tmp_path)
    _scripted(monkeypatch, f"import sys; print(open({str(file)!r}).read()); sys.exit(130)")
    [case] = suite.run(plan_of_two(), on_start=lambda *_: None, on_end=lambda *_: None)
    assert (case.study, case.interrupted) == (study, True)


def test_what_had_settings_before_it_failed_or_was_interrupted_has_them(
    plan_of_two: Any, tmp_path: Path, space: Space
) -> None:
    record, _ = run(space, noisy(), folder=tmp_path, plan=Plan().planned(space.points[:3]), budget=Budget())
    record.put("planned", True)
    record.put("runs", [replace_end(each) for each in record.get("runs")])
    plan = replace(plan_of_two(), begun={0: record, 1: record})
    done = [
        FinishedCase(number=0, wall_s=9.0, failure="no room"),
        FinishedCase(number=1, wall_s=9.0, failure="interrupted", interrupted=True),
        FinishedCase(number=2, wall_s=9.0, failure="no model"),
    ]
    cases = cli_suite.cases_of(plan, done, outcomes=True)
    assert [each.state for each in cases] == ["failed", "begun", "failed"]
    assert [each.planned and each.planned.settings for each in cases] == [3, 3, None]
    assert [each.outcome for each in cases[::2]] == ["no room", "no model"]
    assert cases[1].outcome.startswith("planned measurements: 3 settings")
    assert cases[0].study == record.name


def replace_end(run_: dict[str, Any]) -> dict[str, Any]:
    """Return a run that did not come to its end."""
    return run_ | {"ended": None, "ended_because": ""}


def test_what_a_plan_got_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    best = {"instances": 2, "inter_op": 1, "intra_op": 1, "batch_size": 8}
    known = PlannedResult(
        settings=21, complete=True, best=best, ratio=1.234, low=1.2, high=1.27, call=1.62, width=0.026,
        wall_s=132.0, search="tftune search resnet50",
    )  # fmt: skip
    case = CaseResult(
        number=1,
        workload="resnet50",
        mode="inference",
        shape="2 CPUs",
        cpus="0-1",
        cpu_quota=None,
        python="python",
        runtime="TensorFlow",
        state="made",
        study="resnet50-1",
        outcome="",
        wall_s=66.0,
        batch_sizes=(1, 8),
        planned=known,
    )
    begun, missing = structs.replace(case, state="begun"), structs.replace(case, planned=None, state="missing")
    failed = structs.replace(missing, state="failed", outcome="no room", batch_sizes=(8,))
    Console(width=200).print(studylist.planned_table([case, begun, missing, failed]))
    heads, first, *others = capsys.readouterr().out.splitlines()
    expected = "workload mode shape settings best estimate [95 %] a call takes known to minutes state"
    assert " ".join(heads.split()) == expected
    assert re.split(" {2,}", first.strip()) == [
        *("resnet50", "inference", "2 CPUs at 1, 8", "21", "1.23 [1.20, 1.27]"),
        *("instances=2 inter_op=1 intra_op=1 batch_size=8", "1.62×", "±2.6 %", "2.2", "made"),
    ]
    assert len(others) == 2
    assert others[1].split() == [
        *(["resnet50", "inference", "2", "CPUs", "0", "no", "room", "—", "—", "1.1", "failed"])
    ]
    Console(width=200).print(studylist.suite_table([case]))
    assert "2 CPUs at 1, 8" in capsys.readouterr().out
    said = studylist.suite_summary([case, begun, missing], 132.0)
    assert said == "0 already done, 1 made now, 0 failed, 1 missing, 1 measured in part; 2 min 12 s"


# ---- runs, with children that stand in for searches -----------------------------------------------------------------


def _published(space: Space, folder: Path) -> tuple[StudyResult, Path]:
    """Return what is published of a short study, and the file that it is written to."""
    record, _ = run(space, noisy(), folder=folder, budget=Budget(trials=5))
    study, file = describe_study(record), folder / "study.json"
    file.write_bytes(msgspec.json.encode(study))
    return study, file


def _scripted(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let each search be a Python program instead: what is tested is what happens around it."""
    monkeypatch.setattr(nested, "_command", lambda: [sys.executable, "-c", code])


def test_a_search_is_told_what_to_do_on_stdin(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import pickle, sys; sys.exit(f'tftune: {pickle.load(sys.stdin.buffer)}')"
    _scripted(monkeypatch, code)
    asked = planned(workloads="lenet5")
    done = suite.run(asked, on_start=lambda *_: None, on_end=lambda *_: None)
    assert [each.failure for each in done] == [str(suite.search_request(asked.cases[0], asked.request))]


def test_what_fails_is_kept_and_the_others_go_on(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _scripted(
        monkeypatch,
        "import sys; sys.exit('tftune: too bad')",
    )
    started: list[int] = []
    done = suite.run(planned(workloads="lenet5,mlp"), on_start=lambda n, _: started.append(n), on_end=lambda *_: None)
    assert [each.failure for each in done] == ["too bad", "too bad"]
    assert started == [0, 1]


def test_a_search_that_was_killed_says_so(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _scripted(monkeypatch, "import os, sys; sys.stderr.write('round 1\\n'); os.kill(os.getpid(), 9)")
    done = suite.run(planned(workloads="lenet5"), on_start=lambda *_: None, on_end=lambda *_: None)
    assert "killed by SIGKILL" in done[0].failure


def test_nonsense_on_stdout_is_a_failure_of_that_search(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _scripted(monkeypatch, "print('[not json')")
    done = suite.run(planned(workloads="lenet5,mlp"), on_start=lambda *_: None, on_end=lambda *_: None)
    assert [bool(each.failure) for each in done] == [True, True]


def test_what_is_done_comes_back_as_a_study_and_with_a_time(
    planned: Any, tmp_path: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, file = _published(space, tmp_path)
    _scripted(monkeypatch, f"print(open({str(file)!r}).read())")
    budgets_s: list[float] = []
    done = suite.run(planned(workloads="lenet5,mlp"), on_start=lambda _, s: budgets_s.append(s), on_end=lambda *_: None)
    assert [each.study for each in done] == [study] * 2
    assert budgets_s[0] == 600  # two of five minutes
    assert budgets_s[1] < 60  # one, as long as the first took


def test_no_search_begins_after_its_time(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _scripted(monkeypatch, "print('{}')")
    done = suite.run(
        replace(planned(workloads="lenet5,mlp"), stop_after_s=0.0), on_start=lambda *_: None, on_end=lambda *_: None
    )
    assert len(done) == 1


# ---- the real thing -------------------------------------------------------------------------------------------------


@pytest.mark.tensorflow
@needs_groups
def test_a_suite_runs_goes_on_and_knows_what_it_has(tmp_path: Path) -> None:
    words = ["suite", "--workloads", "lenet5", "--cpu-quota", "1.5", "--space", "threads", "--time-budget", "5s"]
    first = tftune(*words, "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    rows = json.loads(first.stdout)["cases"]
    assert [(row["state"], row["cpu_quota"]) for row in rows] == [("made", 1.5)]
    assert "about" in first.stderr and "left" in first.stderr
    again = tftune(*words, cwd=tmp_path)
    assert again.returncode == 0
    assert "1 already done, 0 made now" in again.stdout
    shown = json.loads(tftune("show", rows[0]["study"], "--json", cwd=tmp_path).stdout)
    assert shown["machine"]["cpu_quota"] == 1.5
    assert shown["machine"]["logical_cpus"] == len(os.sched_getaffinity(0))
    # What `tftune rules` says of one study: nothing to hold out, and no rule.
    rules = tftune("rules", "--json", cwd=tmp_path)
    assert rules.returncode == 0, rules.stderr
    threads = json.loads(rules.stdout)["groups"]["threads"]
    assert threads["rules"] == []
    assert threads["proof"] == {"by_workload": None, "by_machine": None, "by_shape": None}
    assert "threads: no rule, keep TensorFlow's defaults: only 1 workload" in tftune("rules", cwd=tmp_path).stdout


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_plan_measures_goes_on_and_exports_what_it_got(tmp_path: Path) -> None:
    words = ["suite", "--plan", "1m", "--workloads", "lenet5,mlp"]
    first = tftune(*words, "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    begun = [row for row in json.loads(first.stdout)["cases"] if row["planned"]]
    assert begun[0]["workload"] == "lenet5"
    assert begun[0]["state"] in ("made", "begun")
    assert begun[0]["planned"]["settings"] >= 3
    n_before = _n_trials(tmp_path)
    again = tftune(*words, cwd=tmp_path)
    assert again.returncode == 0
    assert "best estimate" in again.stderr  # the table is as wide as the terminal
    n_after = _n_trials(tmp_path)
    assert all(n_after[study] >= n for study, n in n_before.items())
    assert sum(n_after.values()) > sum(n_before.values())
    shown = tftune("show", begun[0]["study"], cwd=tmp_path)
    assert "NOT PROVEN" in shown.stdout
    slices = tftune("export", "--what", "slices", cwd=tmp_path).stdout.splitlines()
    assert "items_per_s" in slices[0]
    assert len(slices) > 20


def _n_trials(folder: Path) -> dict[str, int]:
    """Return the number of trials by study, each of another setting."""
    rows = json.loads(tftune("export", "--json", cwd=folder).stdout)
    settings = {
        (row["study"], *(row.get(k) for k in ("instances", "inter_op", "intra_op", "batch_size", "onednn")))
        for row in rows
    }
    assert len(settings) == len(rows)
    return Counter(row["study"] for row in rows)


@pytest.mark.tensorflow
def test_an_interrupted_suite_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("tftune")),
        "suite",
        "--workloads",
        "lenet5,mlp",
        "--time-budget",
        "2m",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        # Its search runs, and that has started processes.
        assert wait_until(lambda: len(_children(run.pid)) >= 3, seconds=60)
        below = _children(run.pid)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "interrupted" in said
    assert wait_until(lambda: not any(_alive(pid) for pid in below), seconds=20)


def test_a_dry_run_shows_what_there_is_to_do(planned: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from tuner.cli import app

    assert planned(workloads="lenet5").missing == [0]
    app(["suite", "--workloads", "lenet5,matmul", "--mode", "inference,training", "--dry-run"], standalone_mode=False)
    said = capsys.readouterr()
    assert "matmul has no mode 'training'" in said.out
    assert "0 already done, 0 made now, 0 failed, 3 missing" in said.out


def test_the_topology_of_this_host_has_so_many_cpus() -> None:
    mask = frozenset(os.sched_getaffinity(0))
    assert choose_cpus(read_topology(), mask, len(mask)) == mask
    assert read_limits() is not None


def test_a_search_of_one_process_is_known_by_its_command() -> None:
    assert [
        is_of_one_process(f"tftune search resnet50{option}") for option in (" --one-process", " --no-instances", "")
    ] == [True, True, False]
