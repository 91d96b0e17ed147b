"""The second question of a search: whether several processes use the machine better; on a scripted machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from msgspec import to_builtins

from tests.conftest import Call, Finished, setting
from tests.frameworks import read_space, resolve
from tests.planted import NOTHING, make
from tests.scripted import Log, noisy, run, side_by_side, surface
from tests.scripted_launcher import ScriptedLauncher
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.job import compare
from tuner.job.compare import ComparedSetting
from tuner.job.job import prepare
from tuner.job.parsed import parse_request
from tuner.job.request import CheckRequest, SearchRequest
from tuner.machine.host import Machine
from tuner.measure.budget import Budget
from tuner.measure.constraint import Limits
from tuner.report.emit import CpuLimit
from tuner.report.frame import trials as trial_table
from tuner.result.document import advice_of, describe_line, describe_study
from tuner.rules.evidence import processes_of, read
from tuner.space.design import design
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.study.loop import choose_groups
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.record import Record, trials_of
from tuner.study.storage import open_storage
from tuner.study.surrogate import PriorMean
from tuner.trial.outcome import Status
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

PLAN = Plan(n_groups=3)
SHORT = Budget(trials=6)


@pytest.fixture(scope="module")
def cores(machine: Machine) -> Machine:
    """The made machine, whose cores are known: two nodes of four."""
    return replace(machine, cores=[f"{core},{core + 8}" for core in range(8)])


@pytest.fixture(scope="module")
def several(cores: Machine, stock: Build, resnet50: Workload) -> Space:
    """The shipped CPU space with settings of several processes."""
    return resolved(cores, stock, resnet50)


def resolved(machine: Machine, build: Build, workload: Workload, **pins: str) -> Space:
    file = read_space("cpu", machine)
    return resolve(file, machine=machine, build=build, workload=workload, pins=pins, with_groups=True)


# ---- which there are -----------------------------------------------------------------------------------------


def test_the_groups_share_the_cores_in_each_usual_way(several: Space) -> None:
    by_count = {each["instances"]: each["intra_op"] for each in several.groups}
    assert by_count == {8: 1, 4: 2, 2: 4}
    assert {each.batch_size for each in several.groups} == set(several.domains["batch_size"])
    assert several.groups[setting(instances=8, inter_op=1, intra_op=1, batch_size=8)] == ("core-each",)
    assert several.groups[setting(instances=2, inter_op=1, intra_op=4, batch_size=8)] == (
        "launcher-latency",
        "launcher-throughput",
    )
    assert several.groups[setting(instances=2, inter_op=1, intra_op=4, batch_size=16)] == ()


def test_the_processes_of_a_group_have_cores_of_their_own(several: Space) -> None:
    group = setting(instances=2, inter_op=1, intra_op=4, batch_size=8)
    deployment = several.deployment(group)
    assert deployment.processes == 2
    assert deployment.cpu_sets == ("0-3,8-11", "4-7,12-15")
    assert deployment.env["TF_NUM_INTRAOP_THREADS"] == "4"


def test_processes_under_a_quota_share_it_and_own_no_cores(cores: Machine, stock: Build, resnet50: Workload) -> None:
    """A container that may use 4 of 16 CPUs has as many threads as that, and the scheduler says where they run."""
    limited = replace(cores, cpu_quota=4.0)
    space = resolved(limited, stock, resnet50)
    assert {each["instances"]: each["intra_op"] for each in space.groups} == {4: 1, 2: 2}
    for group in space.groups:
        deployment = space.deployment(group)
        assert (deployment.cpu_sets, deployment.cpus) == ((), None)
        assert sum(CpuLimit.of(limited).cpus_each(deployment)) <= 4
    # A quota of all CPUs limits nothing: they are the container's own.
    own = resolved(replace(cores, cpu_quota=16.0), stock, resnet50)
    assert all(own.deployment(group).cpu_sets for group in own.groups)


@pytest.mark.parametrize("is_planned", [False, True])
def test_the_share_of_a_quota_need_not_be_on_the_lattice(
    machine: Machine, stock: Build, resnet50: Workload, is_planned: bool
) -> None:
    """Two processes under a quota of 6 of 24 cores have 3 threads each, which no domain has."""
    cpus = [str(cpu) for cpu in range(24)]
    many = replace(
        machine,
        online_cpus=24,
        logical_cpus=24,
        physical_cores=24,
        threads_per_core=1,
        sockets=1,
        affinity="0-23",
        numa_nodes={"0": "0-23"},
        cores=cpus,
        cpu_quota=6.0,
    )
    space = resolve(
        read_space("threads", many), machine=many, build=stock, workload=resnet50, pins={}, with_groups=True
    )
    assert {each["instances"]: each["intra_op"] for each in space.groups} == {6: 1, 3: 2, 2: 3}
    assert 3 not in {*space.domains["intra_op"], *(each["intra_op"] for each in space.baselines.values())}
    plan = PLAN.planned(design(space, many)) if is_planned else PLAN
    record, _ = run(space, noisy(rate=side_by_side(1.3)), budget=SHORT, plan=plan)
    tried = {(each.setting["instances"], each.setting["intra_op"]): each.status for each in record.groups()}
    assert tried == {(6, 1): Status.OK, (3, 2): Status.OK, (2, 3): Status.OK}


def test_groups_do_not_change_what_the_study_is(several: Space, space: Space) -> None:
    assert several.fingerprint == space.fingerprint
    assert several.points == space.points


def test_a_group_keeps_to_what_is_held(cores: Machine, stock: Build, resnet50: Workload) -> None:
    assert {each["instances"] for each in resolved(cores, stock, resnet50, intra_op="2").groups} == {4, 2}
    assert not resolved(cores, stock, resnet50, intra_op="16").groups
    assert not resolved(cores, stock, resnet50, instances="2").groups  # the space itself is of several then


def test_one_core_has_no_groups(cores: Machine, stock: Build, resnet50: Workload) -> None:
    assert not resolved(replace(cores, physical_cores=1), stock, resnet50).groups
    assert not resolved(replace(cores, cpu_quota=1.0), stock, resnet50).groups


@pytest.mark.parametrize("options", [{"mode": "training"}, {"objective": "latency"}, {"instances": False}])
def test_only_the_throughput_of_inference_asks_for_groups(options: dict[str, object]) -> None:
    mode = str(options.pop("mode", "inference"))
    spec = WorkloadSpec.of_name("lenet5", mode=mode)
    request = SearchRequest(workload=spec, **({"instances": True} | options))  # type: ignore[arg-type]
    assert not prepare(parse_request(request, stores=False)).space.groups


# ---- which are tried -----------------------------------------------------------------------------------------


def test_each_count_comes_at_the_default_batch_and_then_the_others(several: Space) -> None:
    def predict(settings: Sequence[Setting]) -> dict[Setting, float]:
        # One thread does an eighth of what eight do, two a little more than a quarter; the batch matters little.
        by_threads = {1: -2.1, 2: -1.2, 4: -0.8}
        return {s: by_threads[int(s["intra_op"])] + (0.01 if s.batch_size > 4 else -0.2) for s in settings}

    def of_batches(*sizes: int) -> list[Setting]:
        return [each for each in several.groups if each.batch_size in sizes]

    def chosen(n: int) -> list[tuple[object, int]]:
        groups = choose_groups(of_batches(4, 8, 16), predict, n=n, usual_batch=8)
        return [(each["instances"], each.batch_size) for each in groups]

    assert chosen(4) == [(4, 8), (8, 8), (2, 8), (4, 16)]
    assert len(set(chosen(9))) == 9
    assert chosen(2) == [(4, 8), (8, 8)]
    # The workload's own batch size may not be among those that were measured.
    groups = choose_groups(of_batches(2, 16), predict, n=1, usual_batch=8)
    assert groups[0].batch_size == 16


def test_without_a_model_any_are_tried(several: Space) -> None:
    groups = [each for each in several.groups if each.batch_size == 8]
    chosen = choose_groups(groups, lambda _: {}, n=2, usual_batch=8)
    assert [each["instances"] for each in chosen] == [8, 4]


def expected_of(settings: Sequence[Setting]) -> np.ndarray:
    """Return what a model expects that knows of two processes only."""
    return np.array([0.5 if s.to_dict().get("instances") == 2 else 0.1 * s.batch_size / 128 for s in settings])


def test_a_model_of_the_machine_ranks_them(several: Space) -> None:
    chosen = choose_groups(list(several.groups), lambda _: {}, n=4, usual_batch=8, expected=expected_of)
    assert [(each["instances"], each.batch_size) for each in chosen[:3]] == [(2, 8), (8, 8), (4, 8)]
    assert chosen[3]["instances"] == 2


# ---- in a search ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("prior_mean", "first"), [(None, 8), (expected_of, 2)])
def test_the_first_that_is_tried_is_the_one_that_a_model_expects_most_of(
    several: Space, prior_mean: PriorMean | None, first: int
) -> None:
    """The others are for what one process has shown."""
    launcher = noisy(rate=side_by_side(0.9))
    record, _ = run(several, launcher, plan=PLAN, budget=SHORT, prior_mean=prior_mean)
    assert record.groups()[0].setting["instances"] == first
    assert len({trial.setting["instances"] for trial in record.groups()}) == 3


@pytest.mark.slow
def test_both_questions_have_an_answer_of_their_own(tmp_path: Path, several: Space, finished: Finished) -> None:
    record, log = finished(several, tmp_path, trials=12, efficiency=0.9, groups=3)
    assert sum(trial.is_group for trial in log.trials) == 3
    assert sum(not trial.is_group for trial in log.trials) == 12
    assert record.groups()[0].number == 3  # several processes come with the first others
    assert record.trials() == trials_of(record.study)
    assert not any("instances" in trial.setting.to_dict() for trial in record.trials())
    assert not any("instances" in s.to_dict() for s, *_ in record.observations(0.0))
    of_groups = [s for s, *_ in record.observations(0.0, of_groups=True)]
    assert sorted(of_groups, key=str) == sorted((trial.setting for trial in record.groups()), key=str)
    study = describe_study(record)
    assert study.groups is not None
    assert study.groups.verdicts["tf-default"].code == "better"
    assert study.groups.verdicts["one-process"].code == "better"
    best = Setting.of(study.groups.finals.incumbent)
    truth = side_by_side(0.9)(best) / surface(several.reference)
    assert study.groups.verdicts["tf-default"].speedup == pytest.approx(truth, rel=0.03)
    assert study.groups.recommended.source == "several-processes"
    assert study.groups.recommended.deployment == several.deployment(best)
    # What ran in the rounds of both is one session.
    assert study.recommended is not None
    assert len(study.recommended.sessions) <= 1
    assert study.groups.recommended.gain is not None
    assert "instances" not in study.incumbent.setting
    assert "instances" not in study.recommended.setting
    assert advice_of(study, groups=True) == study.groups.recommended
    assert advice_of(study) == study.recommended
    line, against = describe_line(record), study.groups.verdicts["tf-default"]
    assert line.groups == study.groups.recommended.together
    assert (line.groups.speedup, line.groups.code) == (against.speedup, against.code)
    assert line.groups_setting["instances"] == study.groups.recommended.deployment.processes
    assert sum(trial.is_group for trial in study.history) == 3
    assert study.trials.ok + study.trials.pruned == 15
    assert set(trial_table([study])["instances"].dropna()) <= {2.0, 4.0, 8.0}


@pytest.mark.slow
def test_rules_learn_of_threads_and_of_processes_from_one_search(
    tmp_path: Path, several: Space, finished: Finished
) -> None:
    record, _ = finished(several, tmp_path, trials=12, efficiency=0.9, groups=3)
    planted = next(make(np.random.default_rng(0), truth=NOTHING, workloads=1))
    described, cores = record.get("described"), list(several.cores)
    record.put("described", described | {"machine": described["machine"] | {"cores": cores}})
    record.put("features", to_builtins(planted.situation.features))
    [study], _ = read([record])
    assert study.covers_threads
    assert not any("instances" in each.to_dict() for each in study.surface.measured)
    assert study.processes is not None
    default = study.processes.default
    assert default == setting(instances=1, batch_size=8)
    for group in (trial.setting for trial in record.groups()):
        truth = side_by_side(0.9)(group) / surface(several.reference)
        ratio, sd = study.processes.surface.log_ratio(default, processes_of(group))
        assert np.exp(ratio) == pytest.approx(truth, rel=0.05)
        assert sd < 0.03


@pytest.mark.slow
def test_what_is_far_ahead_is_proven_before_the_search_is_over(several: Space) -> None:
    launcher = noisy(rate=side_by_side(0.9), start_s=2.0)
    record, log = run(several, launcher, plan=PLAN, budget=Budget(time_s=300))
    interval = r"\d\.\d\d× \[\d\.\d\d, \d\.\d\d\]; Ctrl-C ends the search with it"
    [proven] = [i for i, stage in enumerate(log.stages) if re.match(r"proven so far: \d processes, " + interval, stage)]
    # One process is proven early, too.
    assert any(re.match(r"proven so far: the incumbent, " + interval, stage) for stage in log.stages)
    assert any(stage.startswith("finals: ") for stage in log.stages[proven:])
    study = describe_study(record)
    assert study.groups is not None
    assert study.groups.verdicts["tf-default"].code == "better"
    assert record.attributes().earlier_group_finals == []
    assert launcher.live == 0


@pytest.mark.slow
def test_guides_that_no_time_is_left_for_after_an_early_proof_are_undecided(several: Space) -> None:
    record, log = run(several, noisy(rate=side_by_side(0.9), start_s=2.0), plan=PLAN, budget=Budget(time_s=50))
    assert not any(stage.startswith("finals: ") for stage in log.stages)
    study = describe_study(record)
    assert study.verdicts is not None
    assert set(study.verdicts) == set(several.baselines)
    assert study.verdicts["tf-default"].code == "better"
    assert study.verdicts["intel"].code == "undecided"
    assert study.verdicts["intel"].speedup is None


@pytest.mark.slow
def test_whoever_stops_after_an_early_proof_has_it(tmp_path: Path, several: Space) -> None:
    class Stops(Log):
        def stage(self, text: str) -> None:
            super().stage(text)
            if text.startswith("proven so far"):
                raise KeyboardInterrupt

    launcher = noisy(rate=side_by_side(0.9), start_s=2.0)
    with pytest.raises(KeyboardInterrupt):
        run(several, launcher, folder=tmp_path, plan=PLAN, budget=Budget(time_s=300), log=Stops())
    storage = open_storage(f"sqlite:///{tmp_path}/t.db", create=False)
    assert storage is not None
    [summary] = storage.get_all_studies()
    record = Record(optuna.load_study(study_name=summary.study_name, storage=storage))
    study = describe_study(record)
    assert study.groups is not None
    assert study.groups.verdicts["tf-default"].code == "better"
    assert study.groups.recommended.source == "several-processes"
    assert launcher.live == 0


@pytest.mark.slow
def test_equal_processes_are_seldom_proven_early(several: Space) -> None:
    """Two processes are as fast as one in each of 6 searches: none is far enough ahead."""
    stages: list[str] = []
    for seed in range(6):
        launcher = noisy(rate=lambda _: 100.0, start_s=2.0, seed=seed)
        _, log = run(several, launcher, plan=PLAN, budget=Budget(trials=3), seed=seed)
        stages += [stage for stage in log.stages if "ahead of" in stage]
    assert len(stages) <= 1


@pytest.mark.slow
def test_one_process_is_kept_where_several_are_slower(several: Space) -> None:
    record, _ = run(several, noisy(rate=side_by_side(0.05)), plan=PLAN, budget=SHORT)
    study = describe_study(record)
    assert study.groups is not None
    assert study.groups.verdicts["tf-default"].code == "worse"
    assert "instances" not in study.groups.recommended.setting
    assert study.groups.recommended.deployment.processes == 1


@pytest.mark.slow
def test_a_group_that_fails_is_a_value(several: Space) -> None:
    failures = {each: Status.OOM for each in several.groups if each["instances"] != 4}
    launcher = noisy(rate=side_by_side(0.9), failures=failures)
    record, _ = run(several, launcher, plan=PLAN, budget=SHORT)
    study = describe_study(record)
    assert study.groups is not None
    assert study.groups.finals.incumbent["instances"] == 4
    assert {trial.status for trial in record.groups()} == {Status.OK, Status.OOM}
    assert launcher.live == 0


@pytest.mark.slow
def test_groups_keep_to_a_limit_at_the_batch_size_that_one_process_keeps_it_at(several: Space) -> None:
    """The default's own step is over the limit, and larger batches are faster: no group at those is tried."""
    limits = Limits(p99_s=0.5 * several.reference.batch_size / surface(several.reference))
    plan = Plan(n_groups=3, evaluation=EvaluatorPlan(limits=limits))
    launcher = ScriptedLauncher(rate=side_by_side(0.9), noise=0.002)
    record, _ = run(several, launcher, plan=plan, limits=limits, budget=Budget(trials=20))
    best = describe_study(record).incumbent
    assert best is not None
    over = {trial.setting.batch_size for trial in record.trials() if trial.over_limit}
    within = {trial.setting.batch_size for trial in record.trials() if trial.estimate and not trial.over_limit}
    assert record.groups()
    assert {trial.setting.batch_size for trial in record.groups()} <= within
    assert several.reference.batch_size in over - within
    assert record.groups()[0].setting.batch_size == best.setting["batch_size"]


@pytest.mark.slow
def test_what_is_no_longer_asked_has_no_finals_and_keeps_its_answer(
    tmp_path: Path, several: Space, finished: Finished
) -> None:
    record, _ = finished(several, tmp_path, trials=6, efficiency=0.9, groups=3)
    before = describe_study(record).groups
    one_process = replace(several, groups={})
    again, log = run(one_process, noisy(rate=side_by_side(0.9)), folder=tmp_path, plan=PLAN, budget=SHORT)
    assert describe_study(again).groups == before
    assert not any("processes against" in stage for stage in log.stages)


def test_a_check_of_several_processes_is_another_session_of_theirs(
    tmp_path: Path, several: Space, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, _ = finished(several, tmp_path, trials=6, efficiency=0.9, groups=3)
    described = describe_study(record)
    assert described.groups is not None
    compared: list[Setting] = []

    limits = Limits(p99_s=0.4)  # p99 needs steps, which the check reserves as the search does
    record.put("limits", limits)

    def measure(_: object, a: ComparedSetting, b: ComparedSetting, *__: object, limits: Limits, **___: object) -> None:
        compared.extend([a.setting, b.setting])
        assert limits.p99_s == 0.4
        assert b.deployment.processes == int(b.setting.to_dict().get("instances", 1))
        raise InterruptedError

    monkeypatch.setattr(compare, "measure", measure)
    monkeypatch.setattr(compare, "_parsed_request", lambda *_, **__: None)
    workload = SimpleNamespace(members=(), command="none")
    job = SimpleNamespace(workload=workload, inputs=(), tell_notes=lambda _: None)
    monkeypatch.setattr(compare, "prepare", lambda _: job)
    monkeypatch.setattr(compare, "refuse_elsewhere", lambda *_: None)
    storage, events = f"sqlite:///{tmp_path}/t.db", SimpleNamespace(waiting=print, notice=print)
    for groups, expected in ((False, described.finals), (True, described.groups.finals)):
        compared.clear()
        with pytest.raises(InterruptedError):
            request = CheckRequest(study=record.name, storage=storage, instances=groups, time_budget="1s")
            compare.check_study(request, events)  # type: ignore[arg-type]
        assert compared == [several.reference, Setting.of(expected.advice.setting)]


@pytest.mark.slow
def test_where_all_groups_fail_the_first_answer_stands(several: Space) -> None:
    launcher = noisy(failures=dict.fromkeys(several.groups, Status.CRASHED))
    record, _ = run(several, launcher, plan=PLAN, budget=SHORT)
    study = describe_study(record)
    assert study.groups is None
    assert study.recommended is not None
    with pytest.raises(BadInputError, match="has no answer on several processes: scripted crashed"):
        advice_of(study, groups=True)


@pytest.mark.slow
def test_a_study_that_goes_on_keeps_its_groups(tmp_path: Path, several: Space, finished: Finished) -> None:
    launcher = noisy(rate=side_by_side(0.9))
    first, _ = finished(several, tmp_path, trials=6, efficiency=0.9, groups=3)
    numbers = [trial.number for trial in first.groups()]
    again, log = run(several, launcher, folder=tmp_path, plan=PLAN, budget=Budget(trials=9))
    assert [trial.number for trial in again.groups()] == numbers
    assert not any(trial.is_group for trial in log.trials)
    assert len(again.attributes().earlier_group_finals) == 1
    # Both sessions are of the same setting, so that they speak together.
    study = describe_study(again)
    assert study.groups is not None
    assert study.groups.recommended.gain is not None
    assert study.groups.recommended.gain.sessions in (1, 2)


@pytest.mark.slow
def test_both_fit_into_the_time(several: Space) -> None:
    launcher = noisy(rate=side_by_side(0.5), start_s=2.0)
    record, _ = run(several, launcher, plan=PLAN, budget=Budget(time_s=300))
    assert launcher.clock_s <= 305
    study = describe_study(record)
    assert study.groups is not None
    # Two rounds are enough for a verdict if the noise of the study is known.
    assert study.groups.finals.rounds >= 3 or study.groups.verdicts["tf-default"].code == "better"
    assert study.finals.rounds >= 3


@pytest.mark.slow
def test_groups_whose_steps_are_too_long_to_decide_are_not_tried(several: Space) -> None:
    def rate(setting: Setting) -> float:
        # A step of the default takes half a second, and larger batches are ever so slightly better.
        ratio = side_by_side(0.5)(setting) / surface(several.reference)
        return 2 * several.reference.batch_size * ratio * (1 + setting.batch_size / 1000)

    launcher = noisy(rate=rate, start_s=2.0)
    record, _ = run(several, launcher, plan=PLAN, budget=Budget(time_s=300))
    tried = {trial.setting.batch_size for trial in record.trials()}
    assert max(trial.setting.batch_size for trial in record.groups()) < max(tried)
    study = describe_study(record)
    assert study.groups is not None
    assert study.groups.verdicts["tf-default"].code == "better"


@pytest.mark.slow
def test_a_run_that_is_killed_in_a_group_can_go_on(tmp_path: Path, several: Space) -> None:
    launcher = noisy(rate=side_by_side(0.9))
    record, _ = run(several, launcher, folder=tmp_path, plan=Plan(), budget=SHORT)
    group = next(iter(several.groups))
    record.study.enqueue_trial(group.to_dict(), user_attrs={"group": True})  # killed before it was begun
    record.begin_group({}, group, [2, 4, 8])  # killed while it ran
    again, _ = run(several, launcher, folder=tmp_path, plan=PLAN, budget=Budget(trials=8))
    assert len(again.trials()) == 8
    assert len(again.groups()) == 3


def test_instances_are_refused_where_none_were_compared(
    call: Call, tmp_path: Path, space: Space, finished: Finished
) -> None:
    record, _ = finished(space, tmp_path, trials=6)
    code, _, error = call("emit", record.name, "--instances", "--storage", f"sqlite:///{tmp_path}/t.db")
    assert code == 2
    assert "has not compared several processes" in error
    assert "without --one-process" in error
