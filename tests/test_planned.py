"""Planned measurements: the settings of a design, studies of them on a scripted machine, and how these are shown."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from msgspec import structs

from tests.conftest import Call, setting
from tests.frameworks import read_space, resolve
from tests.scripted import noisy, run, side_by_side
from tests.scripted_launcher import ScriptedLauncher, ScriptedProcess
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.job.request import SuiteRequest
from tuner.machine.host import Machine
from tuner.measure.budget import Budget
from tuner.report.frame import KINDS, slices
from tuner.report.studycard import study_card
from tuner.report.studylist import outcome
from tuner.result.document import advice_of, describe_line, describe_study
from tuner.space.deployment import Deployment
from tuner.space.design import design
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.study.attributes import EndReason, Run
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.record import Record
from tuner.trial.outcome import Slice, Status
from tuner.workload.workload import Workload

RATE = side_by_side(1.1)


@pytest.fixture(scope="module")
def eight(machine: Machine) -> Machine:
    """The made machine, whose cores are known: two nodes of four."""
    return replace(machine, cores=[f"{core},{core + 8}" for core in range(8)])


@pytest.fixture(scope="module")
def two(machine: Machine) -> Machine:
    """A machine of two cores."""
    return replace(
        machine,
        online_cpus=2,
        logical_cpus=2,
        physical_cores=2,
        threads_per_core=1,
        sockets=1,
        numa_nodes={"0": "0-1"},
        affinity="0-1",
        cores=["0", "1"],
    )


def space_on(machine: Machine, build: Build, workload: Workload, *batch_sizes: int) -> Space:
    file = read_space("threads", machine)
    return resolve(
        file, machine=machine, build=build, workload=workload, batch_sizes=batch_sizes, with_groups=True, pins={}
    )


@pytest.fixture(scope="module")
def several(eight: Machine, stock: Build, resnet50: Workload) -> Space:
    """Three batch sizes on eight cores."""
    return space_on(eight, stock, resnet50, 4, 8, 16)


def threads(settings: list[Setting]) -> set[tuple[int, int, int]]:
    """Return the instances, operators at once and threads of settings."""
    values = [each.to_dict() for each in settings]
    return {(int(each.get("instances", 1)), int(each["inter_op"]), int(each["intra_op"])) for each in values}


# ---- designs --------------------------------------------------------------------------------------------------------


def test_a_design_holds_each_regime_and_begins_with_the_default(
    eight: Machine, stock: Build, resnet50: Workload
) -> None:
    space = space_on(eight, stock, resnet50, 8)
    settings = design(space, eight)
    assert settings[0] == space.reference
    assert {*space.baselines.values()} <= {*settings}
    own = {(1, 1, k) for k in (1, 2, 4, 8, 16)} | {(1, 2, 4), (1, 4, 2)}
    assert own | {(8, 1, 1), (4, 1, 2), (2, 1, 4)} <= threads(settings)
    assert len(settings) == len({*settings}) == 13
    assert all(each in space.groups or space.contains(each) for each in settings)


def test_on_two_cores_a_design_is_nine_settings_at_three_batch_sizes(
    two: Machine, stock: Build, resnet50: Workload
) -> None:
    settings = design(space_on(two, stock, resnet50, 1, 8, 32), two)
    at_own = [each for each in settings if each.batch_size == 8]
    assert settings[: len(at_own)] == at_own
    assert threads(at_own) == {(1, 2, 2), (1, 1, 2), (1, 1, 1), (1, 2, 1), (2, 1, 1)}
    assert Counter(each.batch_size for each in settings) == {8: 5, 1: 2, 32: 2}
    assert threads([each for each in settings if each.batch_size == 1]) == {(1, 2, 2), (2, 1, 1)}


def test_on_many_cores_other_batch_sizes_are_those_of_a_few_settings(several: Space, eight: Machine) -> None:
    settings = design(several, eight)
    assert Counter(each.batch_size for each in settings) == {4: 6, 8: 6, 16: 6}
    assert threads(settings) == {(1, 16, 16), (1, 1, 1), (1, 1, 2), (1, 1, 8), (8, 1, 1), (4, 1, 2)}


def test_what_is_hinted_at_is_measured_where_it_can_be(eight: Machine, stock: Build, resnet50: Workload) -> None:
    space = space_on(eight, stock, resnet50, 8)
    new = next(each for each in space.points if each not in design(space, eight))
    unknown = space.reference.with_values(intra_op=7)
    assert {*design(space, eight, [new, unknown])} - {*design(space, eight)} == {new}


# ---- studies --------------------------------------------------------------------------------------------------------


def measured(record: Record) -> list[Setting]:
    return [trial.setting for trial in [*record.trials(), *record.groups()]]


def test_a_planned_study_measures_its_settings_and_nothing_else(several: Space, eight: Machine) -> None:
    settings = design(several, eight)
    launcher = noisy(rate=RATE)
    record, log = run(several, launcher, plan=Plan().planned(settings))
    assert sorted(map(str, measured(record))) == sorted(map(str, settings))
    assert {trial.setting for trial in record.groups()} == {each for each in settings if each in several.groups}
    stored = record.attributes()
    assert (stored.finals, stored.group_finals, log.rounds) == (None, None, 0)
    assert (stored.runs[-1].end, stored.is_complete) == (EndReason.SPACE, True)
    assert launcher.live == 0
    default = RATE(several.reference)
    for trial in [*record.trials(), *record.groups()]:
        assert (trial.status, trial.pruned) == (Status.OK, False)
        assert trial.se is not None
        assert trial.log_ratio is not None
        assert trial.se < 0.025
        assert abs(trial.log_ratio - math.log(RATE(trial.setting) / default)) < 0.08


def test_settings_of_one_batch_size_are_timed_in_common_passes(several: Space, eight: Machine) -> None:
    record, _ = run(several, noisy(rate=RATE), plan=Plan().planned(design(several, eight)))
    by_pass: dict[int, set[Setting]] = {}
    for trial in [*record.trials(), *record.groups()]:
        for number in trial.passes:
            by_pass.setdefault(number, set()).add(trial.setting)
    assert max(map(len, by_pass.values())) >= 6
    # Each process measures all batch sizes: besides these there are the default and its twin.
    assert len({trial.process for trial in [*record.trials(), *record.groups()]}) == 6


def test_a_study_that_ran_out_of_time_goes_on_and_measures_nothing_twice(
    several: Space, eight: Machine, tmp_path: Path
) -> None:
    plan, clocks_s = Plan().planned(design(several, eight)), []
    for _ in range(8):
        launcher = noisy(rate=RATE)
        record, _ = run(several, launcher, folder=tmp_path, budget=Budget(time_s=30.0), plan=plan)
        clocks_s.append(launcher.clock_s)
        assert not {*Counter(measured(record)).values()} - {1}
        if record.attributes().is_complete:
            break
        assert record.attributes().runs[-1].end is EndReason.TIME
    assert 1 < len(clocks_s) < 8
    assert max(clocks_s) < 30 + 45 + 10  # as long as a search may overrun, and a pass
    assert {*measured(record)} == {*plan.design}


def test_only_the_first_two_settings_of_a_run_may_overrun_its_time(several: Space, eight: Machine) -> None:
    """Starts take 20 s: with none of the time left, the default alone would say nothing."""
    plan = Plan().planned(design(several, eight))
    plan = replace(plan, evaluation=replace(plan.evaluation, n_parallel_starts=1))
    launcher = noisy(rate=RATE, start_s=20.0)
    record, _ = run(several, launcher, plan=plan, budget=Budget(time_s=50.0))
    assert len(measured(record)) == 2
    assert record.attributes().runs[-1].end is EndReason.TIME


def test_what_is_interrupted_keeps_the_settings_that_had_a_pass(several: Space, eight: Machine, tmp_path: Path) -> None:
    class Interrupted(ScriptedProcess):
        n_slices = 0

        def slice(self, duration_s: float) -> Slice:
            Interrupted.n_slices += 1
            if Interrupted.n_slices > first:
                raise KeyboardInterrupt
            return super().slice(duration_s)

    class Interrupting(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: Deployment) -> ScriptedProcess:
            del deployment
            self.launched.append(setting)
            self.live += 1
            return Interrupted(self, setting)

    settings = design(several, eight)
    plan, first = Plan().planned(settings), 8 + 2 * 8 + 3  # 8 processes warm up and have a pass, then the next begins
    launcher = Interrupting(rate=RATE, noise=0.02)
    with pytest.raises(KeyboardInterrupt):
        run(several, launcher, folder=tmp_path, plan=plan)
    assert launcher.live == 0
    record, log = run(several, noisy(rate=RATE), folder=tmp_path, plan=plan)
    assert sorted(map(str, measured(record))) == sorted(map(str, settings))
    assert len(settings) - len(log.trials) == 6  # those at the default's batch size
    assert record.attributes().is_complete


def test_a_plan_keeps_what_of_a_larger_machine_or_a_command_is_other() -> None:
    usual = EvaluatorPlan()
    assert Plan().planned([]).evaluation.n_live == 8
    large = Plan(evaluation=replace(usual, n_together=32, n_live=0)).planned([]).evaluation
    assert (large.n_together, large.n_live) == (32, 0)


def test_settings_share_the_time_evenly(several: Space, eight: Machine) -> None:
    """Short of time, all are known less well, and not only the last."""
    plan = Plan().planned(design(several, eight))
    record, _ = run(several, noisy(rate=RATE, start_s=1.0), plan=plan, budget=Budget(time_s=65.0))
    slices = Counter(trial.setting.batch_size for trial in record.trials() for _ in trial.slices)
    assert slices.keys() == {4, 8, 16}
    assert max(slices.values()) <= 4 * min(slices.values())


def test_a_setting_that_fails_is_a_result(eight: Machine, stock: Build, resnet50: Workload) -> None:
    """A search would end with a guide that does not run."""
    space = space_on(eight, stock, resnet50, 8)
    failing = space.baselines["intel"]
    assert failing != space.reference
    launcher = noisy(rate=RATE, failures={failing: Status.CRASHED})
    record, _ = run(space, launcher, plan=Plan().planned(design(space, eight)))
    assert record.attributes().is_complete
    failed = [trial.setting for trial in record.trials() if trial.status is not Status.OK]
    assert failed == [failing]


def test_steps_of_seconds_at_large_batches_are_left_out(several: Space, eight: Machine) -> None:
    def slow(s: Setting) -> float:
        return RATE(s) / 15

    record, _ = run(several, noisy(rate=slow), plan=Plan().planned(design(several, eight)))
    assert record.attributes().is_complete
    assert max(each.batch_size for each in measured(record)) == 8
    assert {4, 8} == {each.batch_size for each in measured(record)}


# ---- how they are shown ---------------------------------------------------------------------------------------------


@pytest.fixture
def planned(several: Space, eight: Machine, tmp_path: Path) -> Record:
    """A study of a design, in a storage."""
    record, _ = run(several, noisy(rate=RATE), folder=tmp_path, plan=Plan().planned(design(several, eight)))
    record.put("planned", True)
    record.put("command", SuiteRequest(plan="15m", seed=3).planned_command("resnet50"))
    record.put("asked", {"words": ["./my.py"], "mode": "training", "params": ["n=2"]})
    return record


def test_what_several_runs_took_is_added_up(planned: Record) -> None:
    planned.add("runs", replace_run(planned, wall_s=60.0))
    study = describe_study(planned)
    assert study.planned is not None
    assert study.wall_s == 60.0
    assert study.planned.wall_s == pytest.approx(planned.attributes().runs[0].wall_s + 60.0)


def replace_run(record: Record, **changes: float) -> Run:
    return structs.replace(record.attributes().runs[-1], **changes)


def test_its_card_proves_nothing(planned: Record) -> None:
    study = describe_study(planned)
    known = study.planned
    assert known is not None
    assert (known.settings, known.complete) == (18, True)
    assert known.width is not None
    assert known.width < 0.06
    at_own = [trial for trial in study.history if trial.setting["batch_size"] == 8]
    assert known.ratio == max(trial.ratio or 0.0 for trial in at_own)
    assert known.best is not None
    assert known.ratio is not None
    # Each call is of 8 items, and as many run at once as there are processes.
    assert known.call == pytest.approx(int(known.best["instances"]) / known.ratio)
    assert known.wall_s == sum(run.wall_s for run in planned.attributes().runs) > 0
    assert known.search == "tftune search ./my.py --mode training --param n=2"
    assert (study.recommended, study.finals, study.verdicts) == (None, None, None)
    card = study_card(study, handle="last")
    rows = dict(card.rows)
    assert rows["Prove"] == known.search
    assert f"a call takes {known.call:.2f}× as long" in str(rows["Best"])
    (answer,) = card.answers
    assert (answer.mark, answer.word) == ("?", "NOT PROVEN")
    assert answer.text.startswith("resnet50: planned measurements: 18 settings, best estimate ")
    assert not answer.setting
    assert outcome(study, "").startswith("planned measurements: 18 settings")
    proves = (
        r"has planned measurements, and recommends nothing; a search proves a setting: tftune search ./my.py --mode"
    )
    with pytest.raises(BadInputError, match=proves):
        advice_of(study)


def test_a_survey_that_was_not_asked_for_is_proven_by_the_name_of_its_workload(planned: Record) -> None:
    planned.put("asked", {})
    known = describe_study(planned).planned
    assert known is not None
    assert known.search == "tftune search resnet50"


def test_it_is_planned_in_lists(planned: Record, call: Call, tmp_path: Path) -> None:
    line = describe_line(planned)
    assert (line.planned, line.verdict, line.setting) == (True, None, None)
    file = str(tmp_path / "t.db")
    assert "planned" in call("list", "--storage", file)[1]
    code, out, _ = call("show", "last", "--storage", file, "--details")
    assert (code, "NOT PROVEN" in out, "the study was planned: it has no finals" in out) == (0, True, True)
    assert call("show", "last", "--storage", file, "--json")[0] == 0
    code, out, _ = call("report", "last", "--storage", file, "--format", "md")
    assert (code, "tftune suite --plan 15m --workloads resnet50 --seed 3" in out) == (0, True)
    assert call("report", "last", "--storage", file, "--out", str(tmp_path / "page.html"))[0] == 0
    for command in ("emit", "check"):
        code, out, error = call(command, "last", "--storage", file)
        assert (code, out) == (2, "")
        assert "recommends nothing" in error


def test_its_slices_are_an_open_surface(planned: Record, call: Call, tmp_path: Path) -> None:
    file, table = str(tmp_path / "t.db"), tmp_path / "surfaces.csv"
    assert call("export", "--what", "slices", "--storage", file, "--out", str(table))[0] == 0
    rows = pd.read_csv(table)
    trials = [*planned.trials(), *planned.groups()]
    assert len(rows) == sum(len(turn.slices) for trial in trials for turn in trial.turns)
    known = ["study", "created", "workload", "mode", "host", "cpu_quota", "instances", "inter_op", "intra_op"]
    known += ["batch_size", "is_default", "slice", "start_s", "elapsed_s", "n_steps", "items_per_s", "step_p50_ms"]
    assert {*known, "step_max_ms", "first_step_ms", "memory_bytes", "pass"} <= {*rows.columns}
    # Others can find the ratios again, here from the slices that ran in the same passes.
    rows["y"] = rows["items_per_s"].map(math.log)
    level = rows.groupby(["instances", "inter_op", "intra_op", "batch_size"]).y.mean()
    best = setting(instances=8, inter_op=1, intra_op=1, batch_size=8)
    truth = math.log(RATE(best) / RATE(setting(inter_op=16, intra_op=16, batch_size=8)))
    assert level[8, 1, 1, 8] - level[1, 16, 16, 8] == pytest.approx(truth, abs=0.15)
    assert {*KINDS} == {"trials", "studies", "slices"}
    of_trials = {*pd.read_csv(table, dtype=str, keep_default_na=False)["trial"]}
    assert of_trials == {"", *(str(trial.number) for trial in trials)}  # whole numbers; the default's have none


def test_where_no_slices_are_stored_there_is_a_line_and_no_table(planned: Record) -> None:
    with pytest.raises(BadInputError, match="no slices of passes are stored"):
        slices([(describe_study(planned), [])])
