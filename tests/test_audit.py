"""The audit of a process, on what two real ones reported and on what others might."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import DATA, QUIET
from tests.frameworks import CATALOGUE, target_of
from tuner.frameworks import registry
from tuner.frameworks.tensorflow import auditing
from tuner.frameworks.tensorflow import build as builds
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job import proof
from tuner.machine.host import Machine
from tuner.machine.openmp import Binding
from tuner.space.auditing import AuditCase, core_set
from tuner.space.deployment import Deployment
from tuner.space.experiment import Reach
from tuner.space.setting import Setting
from tuner.stats.equivalence import verdict_on
from tuner.stats.estimate import estimate
from tuner.trial.audit import Auditor, Finding, Seen, unapplied
from tuner.workload.workload import Workload

BOUND = Binding(cpus=((0,), (1,)), warnings=())
FREE = Binding(cpus=((0, 1), (0, 1)), warnings=())
Change = Callable[[dict[str, Any]], None]


def auditor_of(data: Mapping[str, Any], libraries: Mapping[str, str]) -> Auditor:
    """Return what judges a captured process: of its build only the pools matter, and of its machine nothing."""
    build = SimpleNamespace(pools=builds.pools(data["observations"]))
    return Auditor(catalogue=CATALOGUE, build=build, machine=cast("Machine", None), libraries=libraries)


def judged(
    build: str, change: Change = lambda _: None, *, binding: Binding | None = BOUND, **values: int | str
) -> dict:
    """Return the findings on a captured process, its setting or its report changed."""
    data = copy.deepcopy(json.loads((DATA / "processes" / f"{build}.json").read_text()))
    change(data["effective"])
    setting = Setting.of(data["setting"] | values)
    libraries = {"jemalloc": "/lib/libjemalloc.so.2", "intel-openmp": "/opt/intel/libiomp5.so"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auditing, "binding_of", lambda *_: binding)
        deployment = CATALOGUE.deploy(setting.to_dict(), libraries)
        return {f.knob: f for f in auditor_of(data, libraries).audit(setting, deployment, data["effective"])}


def test_a_variable_that_the_workload_changes_after_tftune_is_no_setting() -> None:
    """Where the process itself reports that the value holds, it was read before."""

    def removes(effective: dict[str, Any]) -> None:
        effective["variables"] = {"OMP_NUM_THREADS": None, "KMP_BLOCKTIME": "1", "MINE": "7"}
        del effective["openmp"]["settings"]["OMP_NUM_THREADS"]

    findings = judged("openmp-2.14", removes)
    assert findings["omp_num_threads"].answer is False
    assert findings["omp_num_threads"].evidence.startswith("the workload itself removes OMP_NUM_THREADS; ")
    assert {each.answer for each in findings.values() if each.knob != "omp_num_threads"} == {True}


@pytest.mark.parametrize("build", ["stock-2.21", "openmp-2.14"])
def test_the_captured_processes_did_what_they_were_told(build: str) -> None:
    findings = judged(build)
    assert len(findings) == (2 if build == "stock-2.21" else 5)
    assert {finding.answer for finding in findings.values()} == {True}
    assert unapplied(list(findings.values())) is None


@pytest.mark.parametrize(
    ("build", "values", "knob", "words"),
    [
        ("stock-2.21", {"inter_op": 2}, "inter_op", "1 threads named tf_Compute"),
        ("stock-2.21", {"intra_op": 1}, "intra_op", "2 threads in the pool"),
        ("openmp-2.14", {"intra_op": 1}, "intra_op", "3 threads in both pools"),
        ("openmp-2.14", {"omp_num_threads": 1}, "omp_num_threads", "OMP_NUM_THREADS=2"),
        ("openmp-2.14", {"kmp_blocktime": 200}, "kmp_blocktime", "KMP_BLOCKTIME=1"),
        ("stock-2.21", {"kmp_blocktime": 200}, "kmp_blocktime", "no OpenMP library is loaded"),
        ("stock-2.21", {"cpus": "0"}, "cpus", "may use CPUs 0-1"),
        ("stock-2.21", {"malloc": "jemalloc"}, "malloc", "loaded: none"),
        ("openmp-2.14", {"openmp_library": "intel-openmp"}, "openmp_library", "libiomp5.so"),
        ("stock-2.21", {"onednn": 0}, "onednn", "oneDNN is on"),
    ],
)
def test_a_knob_that_did_not_take_effect_is_told_with_what_was_seen(
    build: str, values: Mapping[str, int | str], knob: str, words: str
) -> None:
    def without_openmp(effective: dict[str, Any]) -> None:
        if build == "stock-2.21":
            effective["openmp"]["libraries"] = []

    findings = judged(build, without_openmp, **values)
    assert findings[knob].answer is False
    assert words in findings[knob].evidence
    reason = unapplied(list(findings.values()))
    assert reason is not None
    assert "did not take effect" in reason


def test_threads_that_the_workload_itself_sets_make_the_variable_void() -> None:
    findings = judged("stock-2.21", lambda e: e["getters"].update(intra_op=7))
    assert findings["intra_op"].answer is False
    assert "the workload itself sets 7 threads" in findings["intra_op"].evidence


def test_threads_of_the_workload_are_not_taken_for_tensorflows() -> None:
    findings = judged("openmp-2.14", lambda e: e["context"].update(created=None), intra_op=1)
    assert findings["intra_op"].answer is None
    assert unapplied(list(findings.values())) is None


def test_the_masks_have_to_be_those_that_the_library_gives() -> None:
    def masks(*of: str) -> Change:
        return lambda e: e["pools"].update(later=dict.fromkeys(of, 1), framework={})

    assert judged("openmp-2.14", masks("0", "1"))["kmp_affinity"].answer is True
    assert judged("openmp-2.14", masks("0", "0-1"))["kmp_affinity"].answer is True  # not every thread was needed
    elsewhere = Binding(cpus=((0,), (0,)), warnings=())
    assert judged("openmp-2.14", masks("0", "1"), binding=elsewhere)["kmp_affinity"].answer is False
    assert judged("openmp-2.14", masks("0", "1"), binding=FREE)["kmp_affinity"].answer is False
    assert judged("openmp-2.14", masks("0-1"), binding=FREE)["kmp_affinity"].answer is True
    assert judged("openmp-2.14", masks("0-1"))["kmp_affinity"].answer is None  # no team was needed at all
    assert judged("openmp-2.14", masks("0", "1"), binding=None)["kmp_affinity"].answer is None


def test_a_value_that_the_library_warns_of_did_not_take_effect() -> None:
    warning = 'KMP_AFFINITY: parameter invalid, ignoring "tight"'
    findings = judged("openmp-2.14", lambda e: e["openmp"].update(warnings=[warning]))
    assert findings["kmp_affinity"].answer is False
    assert warning in findings["kmp_affinity"].evidence
    harmless = "KMP_AFFINITY: granularity=core will be used"
    assert judged("openmp-2.14", lambda e: e["openmp"].update(warnings=[harmless]))["kmp_affinity"].answer


def test_what_a_process_does_not_tell_is_unknown() -> None:
    findings = judged("openmp-2.14", lambda e: (e["openmp"].update(settings={}), e.update(onednn=None)), onednn=1)  # type: ignore[func-returns-value]
    assert findings["omp_num_threads"].answer is None
    assert findings["onednn"].answer is None
    assert judged("openmp-2.14", onednn_allocator=1, xla="auto")["onednn_allocator"].answer is None
    assert judged("openmp-2.14", xla="auto")["xla"].answer is None
    assert judged("openmp-2.14", lambda e: e.update(xla=True), xla="auto")["xla"].answer is True


def test_only_knobs_that_were_set_are_judged() -> None:
    data = json.loads((DATA / "processes" / "stock-2.21.json").read_text())
    setting = Setting.of(data["setting"] | {"intra_op": 1})
    deployment = Deployment(arguments={"batch_size": 8})
    assert auditor_of(data, {}).audit(setting, deployment, data["effective"]) == []


def test_an_answer_is_one_line() -> None:
    assert all("\n" not in f.evidence for f in judged("openmp-2.14").values() if isinstance(f, Finding))


def told(*, given: str = "0-1", mask: str = "0-1", main: str = "0-1", **more: object) -> dict[str, Any]:
    """Return what a process says of its CPUs: what it was given, what is left before its threads start, and after."""
    effective = json.loads((DATA / "processes" / "stock-2.21.json").read_text())["effective"]
    effective |= {"given": given, "mask": mask, "main": main}
    if main == mask and mask != given:  # threads that start later inherit it
        effective |= {"masks": {mask: 7}, "pools": effective["pools"] | {"framework": {mask: 4}}}
    return effective | more


def test_a_process_that_keeps_to_what_it_was_given_is_not_pinned() -> None:
    assert FRAMEWORK.pinned(told()) is None
    assert FRAMEWORK.pinned(told(given="0", mask="0", main="0", masks={"0": 7}, pools={"framework": {"0": 3}})) is None
    assert FRAMEWORK.pinned({}) is None  # a command
    earlier = told()
    del earlier["given"], earlier["main"]
    assert FRAMEWORK.pinned(earlier) is None


def test_a_workload_that_pins_its_process_is_seen_wherever_it_does_so() -> None:
    pin = "the workload itself pins the process to CPU 0, 1 of 2 CPUs"
    assert FRAMEWORK.pinned(told(mask="0", main="0")) == pin  # at import, or where inputs are made
    assert FRAMEWORK.pinned(told(main="0", masks={"0": 7})) == pin  # all of its threads, by taskset -ap
    assert FRAMEWORK.pinned(told(main="0")) == "the workload itself pins the main thread to CPU 0, 1 of 2 CPUs"
    own = "the workload itself pins the process to CPUs 4-5, 2 of 4 CPUs"
    assert FRAMEWORK.pinned(told(given="4-7", mask="4-5", main="4-5")) == own  # of a group's own CPUs


def test_a_workload_that_frees_its_process_is_seen() -> None:
    seen = FRAMEWORK.pinned(told(given="1", mask="0-1", main="0-1"))
    assert seen == "the workload itself lets the process use CPUs 0-1, and it was given CPU 1"


def test_a_thread_of_the_pools_with_fewer_cpus_was_pinned() -> None:
    pools = {"interpreter": {}, "framework": {"0-1": 3, "1": 1}, "later": {}}
    seen = "the workload itself pins 1 of 4 threads of the pools: 1 on CPUs 1"
    assert FRAMEWORK.pinned(told(pools=pools)) == seen


def test_what_an_openmp_library_binds_by_a_setting_is_no_pin() -> None:
    effective = json.loads((DATA / "processes" / "openmp-2.14.json").read_text())["effective"]
    bound = effective | {"given": "0-1", "main": "0"}
    assert "0" in bound["pools"]["framework"]
    assert FRAMEWORK.pinned(bound) is None
    pin = "the workload itself pins the process to CPU 1, 1 of 2 CPUs"
    assert FRAMEWORK.pinned(bound | {"mask": "1"}) == pin


def test_processes_of_several_are_compared_with_their_own_cpus() -> None:
    def answer(mask: str, given: str) -> tuple[bool | None, str]:
        case = AuditCase(
            values={},
            deployment=Deployment(processes=2, cpu_sets=("0", "1")),
            effective=told(mask=mask, main=mask, given=given, masks={mask: 5}),
            build=None,
            machine=cast("Machine", None),
            libraries={},
        )
        return core_set(case)

    assert answer("1", "1") == (True, "a process may use CPUs 1")
    applied, evidence = answer("0", "1")  # the set of the other process
    assert not applied
    assert evidence == "the workload itself lets the process use CPU 0, and it was given CPU 1"


@pytest.mark.parametrize("framework", ["onnxruntime", "openvino", "tensorrt"])
def test_other_frameworks_may_bind_threads_of_their_own(framework: str) -> None:
    pools = {"interpreter": {}, "framework": {"0": 1, "1": 1}, "later": {}}
    assert registry.find(framework).pinned(told(pools=pools, masks={"0-1": 4, "0": 1, "1": 1})) is None
    assert registry.find(framework).pinned(told(mask="0", main="0")) is not None


def test_what_processes_showed_goes_into_the_conditions(machine: Machine) -> None:
    seen, hybrid = Seen(), replace(machine, cores=["0", "1"], core_kinds=[0, 1])
    seen.see(None, Deployment(), hybrid)
    assert seen.added_to(QUIET) == QUIET
    assert replace(seen, not_finite="y: NaN").added_to(QUIET) == replace(QUIET, not_finite="y: NaN")
    seen.see("pinned first", Deployment(processes=2, cpu_sets=("0", "1")), hybrid)
    seen.see("pinned second", Deployment(), hybrid)
    told_of = seen.added_to(QUIET)
    assert told_of.pinned == "pinned first"
    assert told_of.unlike_cores.startswith("2 processes: the cores of the processes are unlike")


@pytest.mark.parametrize(
    ("reaches", "speedup", "words"),
    [
        (True, 1.2, "has an effect"),
        (None, 1.2, "has an effect"),
        (False, 1.2, "chance or load, as it cannot act"),
        (False, 1.05, "undecided"),
        (False, 1.0, "no effect"),
    ],
)
def test_a_knob_without_reach_has_no_effect_whatever_its_pair_shows(
    reaches: bool | None, speedup: float, words: str
) -> None:
    scatter = 0.06 if words == "undecided" else 0.005
    ratios = [math.log(speedup) + scatter * sign for sign in (-1, 0, 1)]
    assert proof.pair_text(verdict_on(estimate(ratios)).code, Reach(answer=reaches, evidence="")) == words


def test_the_intervals_of_all_knobs_hold_together(
    monkeypatch: pytest.MonkeyPatch, resnet50: Workload, tmp_path: Path
) -> None:
    """The level of each is corrected for their number."""
    levels: list[float] = []
    target = target_of(resnet50, tmp_path, python=Path(sys.executable), env={})
    job = SimpleNamespace(
        device=SimpleNamespace(check_idle=lambda: None), export=lambda **_: None, target=lambda: target
    )
    monkeypatch.setattr(proof, "machine_lock", contextlib.nullcontext)
    monkeypatch.setattr(proof, "_contrasts", lambda _: iter([(f"knob{number}", 1, 2) for number in range(5)]))
    monkeypatch.setattr(proof, "_prove", lambda *given: levels.append(given[-1]))
    proof.prove(job, notify=lambda _: None)  # type: ignore[arg-type]
    assert levels == pytest.approx([0.99] * 5)
