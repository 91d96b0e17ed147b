"""The model, the sampler and the study loop; the whole pipeline on a scripted machine in about a second."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
import sqlalchemy
from msgspec import to_builtins
from scipy.stats import norm

from tests.conftest import Call, Finished, setting
from tests.frameworks import read_space, resolve, subject
from tests.scripted import BEST, InMemory, Log, noisy, run, surface
from tests.scripted_launcher import ScriptedLauncher
from tuner.cli import output
from tuner.errors import BadInputError, BaselineError, TunerError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.machine.host import Machine
from tuner.measure.budget import Budget, duration_option, make_budget, parse_duration
from tuner.measure.objective import Objective
from tuner.paths import storage_url
from tuner.report import card, studycard
from tuner.result.document import describe_study
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.stats import gp
from tuner.study.contenders import contenders_of
from tuner.study.database import uninterrupted
from tuner.study.lattice import Encoding
from tuner.study.loop import Search
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.record import Record
from tuner.study.sampler import LatticeSampler
from tuner.study.storage import check_storage, create_or_continue, engine_of, find, open_storage
from tuner.trial.outcome import Status, TrialFailure
from tuner.workload.workload import Workload

pytestmark = pytest.mark.slow

optuna.logging.set_verbosity(optuna.logging.WARNING)


# ---- the model -----------------------------------------------------------------------------------------------


def test_the_posterior_agrees_with_the_textbook_formula() -> None:
    rng = np.random.default_rng(0)
    X, Z, y, v = rng.random((7, 2)), rng.random((4, 2)), rng.normal(size=7), np.full(7, 0.01)
    posterior = gp.condition(X, y, np.diag(v), np.array([0.5, 0.8]), np.array([0.7]))
    K, k = gp.matern(X, X, posterior.lengthscales, 0.7) + np.diag(v), gp.matern(X, Z, posterior.lengthscales, 0.7)
    inverse = np.linalg.inv(K)
    mean = posterior.mean + k.T @ inverse @ (y - posterior.mean)
    sd = np.sqrt(0.7**2 - np.einsum("ij,ik,kj->j", k, inverse, k))
    found_mean, found_sd = gp.predict(posterior, Z)
    assert found_mean == pytest.approx(mean)
    assert found_sd == pytest.approx(sd)


def test_matern_at_one_lengthscale() -> None:
    r = np.sqrt(5.0)
    value = gp.matern(np.array([[0.0]]), np.array([[0.5]]), np.array([0.5]), 2.0)[0, 0]
    assert value == pytest.approx(4 * (1 + r + 5 / 3) * np.exp(-r))


@pytest.mark.parametrize(("mean", "sd", "best"), [(0.1, 0.2, 0.15), (0.3, 0.05, 0.1), (-1.0, 0.3, 0.0)])
def test_expected_improvement_is_the_integral(mean: float, sd: float, best: float) -> None:
    f = np.linspace(mean - 9 * sd, mean + 9 * sd, 200_001)
    integral = np.trapezoid(np.maximum(f - best, 0) * norm.pdf(f, mean, sd), f)
    assert gp.expected_improvement(np.array([mean]), np.array([sd]), best)[0] == pytest.approx(integral, abs=1e-7)


def test_a_noisy_observation_is_believed_less() -> None:
    X, y = np.array([[0.0], [1.0]]), np.array([0.0, 1.0])
    sure = gp.predict(gp.condition(X, y, np.diag([1e-6, 1e-6]), np.array([0.3]), np.array([1.0])), X)[0][1]
    unsure = gp.predict(gp.condition(X, y, np.diag([1e-6, 1.0]), np.array([0.3]), np.array([1.0])), X)[0][1]
    assert abs(sure - 1) < 1e-3
    assert unsure < 0.8


def test_the_fit_finds_the_knob_that_matters() -> None:
    rng = np.random.default_rng(3)
    X = rng.random((25, 2))
    posterior = gp.fit(X, np.sin(5 * X[:, 0]) * 0.2, 1e-5 * np.eye(25))
    assert posterior.lengthscales[1] > 2 * posterior.lengthscales[0]


def test_words_are_equally_far_apart_and_numbers_by_their_logarithm() -> None:
    encoding = Encoding({"intra_op": (1, 4, 16), "kmp_affinity": ("compact", "none", "scatter")})
    x = encoding.encode([setting(intra_op=n, kmp_affinity=w) for n, w in [(1, "none"), (4, "none"), (16, "compact")]])
    assert x[:, 0] == pytest.approx([0, 1 / 2, 1])
    assert np.linalg.norm(x[1, 1:] - x[2, 1:]) == pytest.approx(1)


# ---- the study -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_search_comes_near_the_top_and_the_finals_say_so(space: Space, seed: int) -> None:
    launcher = noisy(seed=seed)
    record, log = run(space, launcher, seed=seed)
    document = describe_study(record)
    best = Setting.of(document.incumbent.setting)
    assert surface(best) > 0.97 * surface(Setting.of(BEST))
    assert document.verdicts["tf-default"].code == "better"
    truth = surface(best) / surface(space.reference)
    assert document.verdicts["tf-default"].speedup == pytest.approx(truth, rel=0.03)
    recommended = Setting.of(document.recommended.setting)
    assert surface(recommended) > 0.95 * surface(best)
    assert document.recommended.source in document.recommended.alike
    assert launcher.live == 0
    # Who was far ahead before, and then no longer the best, had rounds of its own.
    assert log.rounds >= document.finals.rounds


def test_the_baselines_come_first_and_no_setting_comes_twice(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, log = finished(space, tmp_path)
    settings = [trial.setting for trial in record.trials()]
    assert sorted(trial.number for trial in log.trials) == [trial.number for trial in record.trials()]
    baselines = distinct(space.baselines.values())
    assert settings[: len(baselines)] == baselines
    assert len(set(settings)) == len(settings)
    assert all(trial.setting in set(space.points) | set(baselines) for trial in record.trials())


def test_what_is_hinted_at_comes_right_after_the_baselines(space: Space) -> None:
    hint = next(point for point in reversed(space.points) if point not in space.baselines.values())
    sampler = LatticeSampler(space, seed=0, initial_design=[hint, *FRAMEWORK.initial_design(space)])
    record = create_or_continue(InMemory(), "made", sampler, new=False)
    n = len(distinct(space.baselines.values()))
    Search(
        record=record,
        space=space,
        launcher=noisy(),
        sampler=sampler,
        plan=Plan(),
        budget=Budget(trials=n + 2),
        events=Log(),
        seed=0,
    ).run()
    assert [trial.setting for trial in record.trials()].index(hint) == n


def test_only_what_a_space_holds_can_be_hinted_at(space: Space) -> None:
    assert all(space.contains(point) for point in space.points[:5])
    assert not space.contains(space.reference.with_values(inter_op=7))
    assert not space.contains(space.reference.without("inter_op"))


def test_where_nothing_helps_the_default_is_kept(space: Space) -> None:
    kept = 0
    for seed in range(5):
        launcher = ScriptedLauncher(rate=lambda _: 50.0, noise=0.02, process_noise=0.004, drift=0.1, seed=seed)
        record, _ = run(space, launcher, seed=seed, budget=Budget(trials=12))
        advice = describe_study(record).recommended
        assert advice.reason == "keep tf-default: no setting was shown to be faster by more than the margin"
        kept += advice.source == "tf-default" and not advice.env and "tf-default" in advice.alike
    assert kept == 5


def test_the_interval_of_a_trial_allows_for_the_luck_of_its_processes(space: Space) -> None:
    record, _ = run(space, noisy(noise=0.01, process_noise=0.03, seed=2), budget=Budget(trials=6))
    document = describe_study(record)
    process_sd = document.noise.process_sd
    assert process_sd > 0.003
    for row, trial in zip(document.history, record.trials(), strict=True):
        assert trial.estimate is not None
        assert (row.low, row.high) == pytest.approx(trial.estimate.interval())
        if trial.setting == space.reference:
            assert row.low == row.ratio == row.high == 1.0  # all others are relative to it
        else:
            assert math.log(row.high / row.low) / 2 > 1.9 * math.sqrt(2) * process_sd
        # The pairs of earlier versions show nothing of it.
        earlier = replace(trial, passes=(), se=0.01, df=8.0)
        assert earlier.estimate is not None
        assert earlier.known(process_sd) == earlier.estimate.widened(math.sqrt(2) * process_sd)


def test_losers_are_cut_short(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path)
    document = describe_study(record)
    assert document.trials.pruned > 0
    pruned = [t for t in record.trials() if t.pruned]
    whole = [t for t in record.trials() if t.status is Status.OK and not t.pruned]
    assert max(t.n_blocks for t in pruned if t.slices) < max(t.n_blocks for t in whole if t.slices)


def test_a_failing_setting_is_a_failed_trial_with_its_kind_and_log_and_is_not_suggested_again(space: Space) -> None:
    bad = {p: Status.CRASHED for p in space.points if p["intra_op"] == 8 and p not in space.baselines.values()}
    record, log = run(space, noisy(failures=bad))
    failed = [t for t in record.trials() if t.status is Status.CRASHED]
    assert failed
    assert all(t.log == "scripted log" and t.message == "scripted crashed" and t.log_ratio is None for t in failed)
    assert len({t.setting for t in failed}) == len(failed)
    assert describe_study(record).trials.kinds == {"crashed": len(failed)}
    assert len(log.trials) == 30 or "expected" in str(describe_study(record).ended_because)


def test_a_failing_baseline_stops_the_study_with_its_log(tmp_path: Path, space: Space) -> None:
    intel = space.baselines["intel"]
    with pytest.raises(BaselineError, match="baseline intel") as caught:
        run(space, noisy(failures={intel: Status.OOM}), folder=tmp_path)
    assert caught.value.log == "scripted log"
    record, _ = run(space, noisy(), folder=tmp_path)  # mended: the same study goes on
    assert any(t.setting == intel and t.status is Status.OK for t in record.trials())


def test_outputs_that_differ_between_processes_of_one_setting_tell_nothing(
    machine: Machine, stock: Build, resnet50: Workload
) -> None:
    """A training step that draws its noise anew in each process, for one."""
    file = read_space("cpu", machine)
    fixed = resolve(file, machine=machine, build=stock, workload=resnet50, batch_sizes=[8])
    draws = itertools.count(1)
    record, _ = run(fixed, noisy(outputs=lambda _: float(next(draws))))
    assert {t.status for t in record.trials()} == {Status.OK}
    assert {t.deviation for t in record.trials()} == {None}


@pytest.mark.parametrize("kind", ["unapplied", "another result"])
def test_a_recommended_setting_that_means_nothing_here_is_left_out_of_the_finals(
    machine: Machine, stock: Build, resnet50: Workload, kind: str
) -> None:
    """The workload overrides its variables, or computes something else under it: no reason to stop."""
    file = read_space("cpu", machine)
    fixed = resolve(file, machine=machine, build=stock, workload=resnet50, batch_sizes=[8])
    intel = fixed.baselines["intel"]
    bad = (
        {"failures": {intel: Status.UNAPPLIED}}
        if kind == "unapplied"
        else {"outputs": lambda s: 2.0 if s == intel else 1.003}
    )
    record, _ = run(fixed, noisy(**bad))
    trial = next(t for t in record.trials() if t.setting == intel)
    assert trial.status is (Status.UNAPPLIED if kind == "unapplied" else Status.INVALID)
    assert trial.log_ratio is None
    document = describe_study(record)
    assert "intel" not in document.verdicts
    assert "tf-default" in document.verdicts
    good = [t for t in record.trials() if t.status is Status.OK]
    assert {round(t.deviation or 0.0, 6) for t in good} == {0.0}


def test_a_failing_reference_stops_the_study(space: Space) -> None:
    launcher = noisy(failures={space.reference: Status.FAILED})
    with pytest.raises(BaselineError, match="the default setting failed"):
        run(space, launcher)
    assert launcher.live == 0


def test_the_same_study_continues_and_fresh_begins_another(tmp_path: Path, space: Space, finished: Finished) -> None:
    first, _ = finished(space, tmp_path, trials=8)
    numbers = [t.number for t in first.trials()]
    again, log = run(space, noisy(), folder=tmp_path, budget=Budget(trials=12))
    assert again.name == first.name
    assert [t.number for t in again.trials()][: len(numbers)] == numbers
    assert len(again.trials()) == 12
    assert len(log.trials) == 4
    assert not {t.setting for t in log.trials} & {t.setting for t in again.trials()[: len(numbers)]}
    other, _ = run(space, noisy(), folder=tmp_path, budget=Budget(trials=8), new=True)
    assert other.name == f"{first.name}.2"


def test_equal_seeds_give_equal_searches(space: Space) -> None:
    runs = [run(space, noisy(), budget=Budget(trials=12))[1] for _ in range(2)]
    assert [t.setting for t in runs[0].trials] == [t.setting for t in runs[1].trials]


def test_the_time_budget_is_kept(space: Space) -> None:
    launcher = noisy(start_s=3.0)
    record, log = run(space, launcher, budget=Budget(time_s=300))
    assert launcher.clock_s <= 300
    assert launcher.clock_s > 200 or "expected" in describe_study(record).ended_because
    assert log.rounds >= 2


@pytest.mark.parametrize(
    ("step_s", "asked_s", "at_most_s"), [(5.0, 60.0, 190.0), (5.0, 300.0, 375.0), (0.1, 60.0, 75.0)]
)
def test_where_steps_take_seconds_what_does_not_fit_is_left_out_and_the_least_budget_told(
    space: Space, step_s: float, asked_s: float, at_most_s: float
) -> None:
    rate = space.reference.batch_size / step_s
    launcher = ScriptedLauncher(rate=lambda s: rate * s.batch_size / space.reference.batch_size, noise=0.01)
    record, log = run(space, launcher, budget=Budget(time_s=asked_s))
    assert launcher.clock_s <= at_most_s
    assert log.rounds >= 2
    told = [line for line in log.stages if "some of the recommended settings are left out" in line]
    measured = {trial.setting for trial in record.trials()}
    assert bool(told) == (not set(space.baselines.values()) <= measured) == (at_most_s > 2 * asked_s)
    if told:
        assert told == [told[0]]
        enough_s = parse_duration(told[0].rpartition(" ")[2])
        again, _ = run(space, launcher, budget=Budget(time_s=enough_s))
        assert set(space.baselines.values()) <= {trial.setting for trial in again.trials()}


def test_a_lattice_that_is_used_up_ends_the_search(space: Space) -> None:
    small = Space(
        name="small",
        catalogue=space.catalogue,
        domains={"inter_op": (1, 2), "intra_op": (1,), "batch_size": (8,)},
        inactive={},
        points=(setting(inter_op=1, intra_op=1, batch_size=8), setting(inter_op=2, intra_op=1, batch_size=8)),
        baselines=space.baselines,
    )
    record, _ = run(small, noisy())
    assert describe_study(record).ended_because == "every setting of the search space was tried"


def test_an_interrupted_run_keeps_what_is_finished_and_can_go_on(tmp_path: Path, space: Space) -> None:
    class Interrupting(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: object) -> object:
            if len(self.launched) == 7:
                raise KeyboardInterrupt
            return super().launch(setting, Deployment())

    launcher = Interrupting(rate=surface)
    with pytest.raises(KeyboardInterrupt):
        run(space, launcher, folder=tmp_path)
    assert launcher.live == 0
    record, log = run(space, noisy(), folder=tmp_path, budget=Budget(trials=10))
    assert len(record.trials()) == 10
    assert len(log.trials) < 10
    assert not record.study.get_trials(states=(optuna.trial.TrialState.RUNNING,))


def test_a_reference_that_dies_is_renewed_and_the_trial_still_counts(space: Space) -> None:
    class Fragile(ScriptedLauncher):
        killed = False

        def launch(self, setting: Setting, deployment: object) -> object:
            process = super().launch(setting, Deployment())
            if not self.killed and len(self.launched) == 1:
                self.killed = True
                calls = iter(range(100))
                whole = process.slice

                def slice_(duration_s: float) -> object:
                    if next(calls) == 9:
                        raise TrialFailure(Status.CRASHED, "somebody killed it")
                    return whole(duration_s)

                process.slice = slice_  # type: ignore[method-assign]
            return process

    record, _ = run(space, Fragile(rate=surface), budget=Budget(trials=6))
    assert [t.status for t in record.trials()] == [Status.OK] * 6


def test_the_winner_at_another_batch_brings_the_same_batch_baselines(space: Space) -> None:
    names = {n for c in contenders_of(setting(**BEST), space) for n in c.names}
    assert names == {"incumbent", "tf-default@same-batch", "intel@same-batch", *space.baselines}
    at_default = contenders_of(setting(inter_op=1, intra_op=8, batch_size=8), space)
    assert not any("@" in n for c in at_default for n in c.names)
    assert len({c.setting for c in at_default}) == len(at_default)


def test_what_is_to_be_pasted_is_neither_wrapped_nor_cut(
    tmp_path: Path,
    space: Space,
    finished: Finished,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record, _ = finished(space, tmp_path)
    env = record.get("finals")
    for contender in env["contenders"]:
        contender["env"]["KMP_AFFINITY"] = "granularity=fine,proclist=[0-3,8-11],explicit,verbose"
    record.put("finals", env)
    monkeypatch.setenv("COLUMNS", "40")
    url = f"sqlite:///{tmp_path}/t.db"
    output.show(*card.rendered(studycard.study_card(describe_study(record), handle="made", storage=url)))
    printed = capsys.readouterr().out
    assert "KMP_AFFINITY=granularity=fine,proclist=[0-3,8-11],explicit,verbose" in printed
    assert f"tftune emit made --storage {tmp_path}/t.db" in printed


def test_the_record_keeps_every_raw_slice(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, log = finished(space, tmp_path, trials=6)
    for stored, live in zip(record.trials(), sorted(log.trials, key=lambda trial: trial.number), strict=True):
        assert stored.slices
        assert [s.n_steps for s in stored.slices] == [s.n_steps for s in live.slices]
        assert (stored.passes, len(stored.beside)) == (live.passes, len(live.beside))
        assert stored.timed_s == pytest.approx(live.timed_s, abs=1e-4)
    storage = open_storage(f"sqlite:///{tmp_path}/t.db", create=False)
    assert storage is not None
    plain = optuna.load_study(study_name=record.name, storage=storage)
    # What Optuna was told is from when each trial ended; what all passes say came later.
    assert plain.best_value == pytest.approx(max(t.log_ratio or -1.0 for t in record.trials()), abs=0.02)


def test_a_kill_while_a_trial_is_being_stored_leaves_it_unfinished_or_whole(tmp_path: Path, space: Space) -> None:
    """Cut the storing of a trial after each of its attributes in turn; the next run must go on and measure it."""

    class Killed(BaseException):
        pass

    written = 0
    whole = optuna.Trial.set_user_attr

    def set_user_attr(self: optuna.Trial, key: str, value: object) -> None:
        """Keep the storage as a kill at this moment would leave it."""
        nonlocal written
        if key != "owner":
            written += 1
            if written > 16:  # in the second trial
                folder = tmp_path / str(written - 16)
                folder.mkdir()
                shutil.copy(tmp_path / "t.db", folder)
            if written == 16 + 15:
                raise Killed
        whole(self, key, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optuna.Trial, "set_user_attr", set_user_attr)
        patch.setattr(Record, "abandon", lambda *_: None)  # a killed process cleans nothing up
        patch.setattr(Record, "put", lambda *_: None)
        with pytest.raises(Killed):
            run(space, ScriptedLauncher(rate=surface), folder=tmp_path, budget=Budget(trials=4))
    for cut in range(1, 16):
        folder = tmp_path / str(cut)
        record, _ = run(space, ScriptedLauncher(rate=surface), folder=folder, budget=Budget(trials=5))
        trials = record.trials()
        assert len(trials) == 5
        assert all(t.slices and t.log_ratio is not None for t in trials)
        assert {t.setting for t in trials} >= set(space.baselines.values())
        assert not record.study.get_trials(states=(optuna.trial.TrialState.RUNNING,))


def test_earlier_finals_stay_until_new_ones_can_stand_in_for_them(
    tmp_path: Path, space: Space, finished: Finished
) -> None:
    record, _ = finished(space, tmp_path, trials=8)
    before = describe_study(record).verdicts

    class Interrupting(ScriptedLauncher):
        def launch(self, setting: Setting, deployment: object) -> object:
            if len(self.launched) == 2 + 1:  # in the second round
                raise KeyboardInterrupt
            return super().launch(setting, Deployment())

    with pytest.raises(KeyboardInterrupt):
        run(space, Interrupting(rate=surface), folder=tmp_path, budget=Budget(trials=8))
    assert describe_study(record).verdicts == before


def test_latency_compares_median_steps_at_one_batch_size(machine: Machine, stock: Build, resnet50: Workload) -> None:
    file = read_space("cpu", machine)
    fixed = resolve(file, machine=machine, build=stock, workload=resnet50, fixed_batch=True)
    plan = Plan(evaluation=EvaluatorPlan(objective=Objective.LATENCY))
    record, _ = run(fixed, noisy(), plan=plan)
    best = Setting.of(describe_study(record).incumbent.setting)
    assert best.batch_size == 8
    assert surface(best) > 0.95 * max(surface(p) for p in fixed.points)


def test_what_a_pin_rules_out_is_compared_with_and_not_chosen(
    machine: Machine, stock: Build, resnet50: Workload
) -> None:
    file = read_space("cpu", machine)
    pinned = resolve(file, machine=machine, build=stock, workload=resnet50, pins={"intra_op": "1"})
    record, _ = run(pinned, noisy(), budget=Budget(trials=8))
    document = describe_study(record)
    assert document.incumbent.setting["intra_op"] == 1
    assert document.recommended.source in ("incumbent", "tf-default", "tf-default@same-batch")
    assert "intel" in document.verdicts


def test_a_baseline_outside_of_the_lattice_may_win(space: Space) -> None:
    narrow = replace(space, points=tuple(p for p in space.points if p["inter_op"] == 1))
    launcher = noisy(rate=lambda s: 130.0 if s == space.baselines["intel"] else 100.0)
    record, _ = run(narrow, launcher, budget=Budget(trials=8))
    document = describe_study(record)
    assert document.incumbent.setting == space.baselines["intel"].to_dict()
    assert document.recommended.setting == space.baselines["intel"].to_dict()


def test_the_document_keeps_the_contract(tmp_path: Path, space: Space, finished: Finished) -> None:
    record, _ = finished(space, tmp_path)
    document = json.loads(json.dumps(to_builtins(describe_study(record)), allow_nan=False))
    assert document["schema"] == 1
    assert {"ok", "failed", "pruned"} <= document["trials"].keys()
    assert document["incumbent"].keys() == {"setting", "ratio", "low", "high"}
    for verdict in document["verdicts"].values():
        assert verdict.keys() == {"speedup", "low", "high", "verdict"}
    assert {"source", "setting", "env"} <= document["recommended"].keys()
    assert document["measured_s"] <= document["wall_s"]
    assert set(space.baselines) <= document["verdicts"].keys()


# ---- budgets and storages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1.5h", 5400), ("1m30s", 90), ("300", 300), ("0.5m", 30), ("2d", 172800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5 x", "-5s", "0s", "m", "5w", "1e3", "nan"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadInputError, match="--time-budget"):
        parse_duration(text)


COMMANDS = [["list"], ["show", "last"], ["emit", "last"], ["report", "last", "--out", "r.html"], ["export"], ["rules"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_storage_with_a_damaged_page_is_one_line(
    command: list[str],
    tmp_path: Path,
    space: Space,
    finished: Finished,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished(space, tmp_path, trials=6)
    database = bytearray((tmp_path / "t.db").read_bytes())
    for page in range(2, len(database) // 4096):  # SQLite's first page says what tables there are
        database[4096 * page : 4096 * page + 512] = b"\xff" * 512
    (tmp_path / "t.db").write_bytes(database)
    monkeypatch.chdir(tmp_path)
    code, _, err = call(*command, "--storage", str(tmp_path / "t.db"))
    assert code in (2, 3)
    assert len(err.strip().splitlines()) == 1
    assert "malformed" in err
    assert "restore a backup" in err


def test_the_studies_of_another_program_are_not_ours(tmp_path: Path, call: Call) -> None:
    with closing(sqlite3.connect(tmp_path / "lab.db")) as lab:
        lab.execute("create table studies (patient text)")
        lab.commit()
    before = (tmp_path / "lab.db").read_bytes()
    (tmp_path / "empty.db").touch()
    code, out, err = call("show", "last", "--storage", str(tmp_path / "empty.db"))
    assert (code, out) == (2, "")
    assert f"no study 'last': sqlite:///{tmp_path}/empty.db holds no studies; begin with: tftune" in err
    assert err.endswith(f"tftune search resnet50 --storage {tmp_path}/empty.db")
    assert call("list", "--storage", str(tmp_path / "empty.db"))[0] == 0
    for words in (("show", "last"), ("list",), ("export",)):
        code, out, err = call(*words, "--storage", str(tmp_path / "lab.db"))
        assert (code, out) == (2, "")
        assert "lab.db is a database of another program; give --storage another file" in err
    with pytest.raises(BadInputError, match=r"lab\.db is a database of another program; give --storage another file"):
        open_storage(f"sqlite:///{tmp_path}/lab.db", create=True)
    assert (tmp_path / "lab.db").read_bytes() == before
    code, _, err = call("show", "last", "--storage", str(tmp_path / "none.db"))
    assert code == 2
    assert "does not exist" in err


def test_a_storage_that_is_not_there_is_told_as_that(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("list", "--storage", "typo.db")
    assert code == 0
    assert " ".join(out.split()) == ("there is no file typo.db; begin with: tftune search resnet50 --storage typo.db")
    out = call("list")[1]
    assert " ".join(out.split()) == (
        "no studies in sqlite:///results/tftune.db yet; begin with: tftune search resnet50"
    )
    assert call("list", "--storage", "typo.db", "--json")[1] == "[]\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [":memory:", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_storage_in_memory_would_be_lost(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for create in (False, True):
        with pytest.raises(BadInputError, match="would be lost with its studies; name a file"):
            check_storage(storage_url(name), create=create)
    assert list(tmp_path.iterdir()) == []


def test_a_storage_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert storage_url("~/x.db") == storage_url("sqlite:///~/x.db") == "sqlite:////home/me/x.db"
    assert storage_url("a~/x.db") == "sqlite:///a~/x.db"
    assert storage_url("~no-such-user/x.db") == "sqlite:///~no-such-user/x.db"


@pytest.mark.parametrize(
    ("installed", "scheme"),
    [((), "postgresql"), (("psycopg2",), "postgresql+psycopg2"), (("psycopg", "psycopg2"), "postgresql+psycopg")],
)
def test_a_url_of_postgresql_gets_the_driver_that_is_there(
    installed: tuple[str, ...], scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in installed else None)
    assert storage_url("postgres://me:x@host/db") == storage_url("postgresql://me:x@host/db")
    assert storage_url("postgres://me:x@host/db") == f"{scheme}://me:x@host/db"
    for other in ("postgresql+pg8000://host/db", "mysql://host/db"):
        assert storage_url(other) == other


def test_a_storage_of_others_studies_holds_none_of_ours(tmp_path: Path, call: Call) -> None:
    url = f"sqlite:///{tmp_path}/optuna.db"
    optuna.create_study(study_name="theirs", storage=url)
    code, _, err = call("show", "last", "--storage", url)
    assert code == 2
    assert "no study 'last': the storage holds none of tftune's; check --storage" in err


def test_a_truncated_storage_is_damaged_and_not_a_matter_of_its_driver(
    tmp_path: Path, space: Space, finished: Finished, call: Call
) -> None:
    finished(space, tmp_path, trials=6)
    os.truncate(tmp_path / "t.db", 5000)
    code, _, err = call("list", "--storage", str(tmp_path / "t.db"))
    assert code in (2, 3)
    assert "restore a backup" in err
    assert "driver" not in err


def test_budgets() -> None:
    assert make_budget(None, None) == Budget(time_s=300)
    assert make_budget(7, None) == Budget(trials=7)
    assert make_budget(7, "1m") == Budget(trials=7, time_s=60)
    durations = {1: "30s", 30: "30s", 31: "1m", 61: "1m30s", 119.5: "2m"}
    assert {seconds: duration_option(seconds) for seconds in durations} == durations
    with pytest.raises(BadInputError):
        make_budget(0, None)


def test_storages_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not a database at all")
    for url in (
        "results.db",
        "sqlite:///",
        f"sqlite:{tmp_path}/one-slash.db",
        f"sqlite:///sqlite:{tmp_path}/one-slash.db",
        f"sqlite:///{tmp_path}",
        f"sqlite:///{tmp_path}/text.db",
        f"sqlite:///{tmp_path}/text.db/below.db",
        "nosuch://host/db",
        "postgresql://localhost:1/none",
    ):
        with pytest.raises(BadInputError):
            check_storage(url)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.db"]


def test_reading_verbs_write_nothing_into_anything(tmp_path: Path) -> None:
    (tmp_path / "empty.db").write_bytes(b"")
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE foo (x)")
        foreign.commit()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for driver in ("sqlite", "sqlite+pysqlite"):
        for name in ("empty.db", "none.db"):
            assert open_storage(f"{driver}:///{tmp_path}/{name}", create=False) is None
        with pytest.raises(BadInputError, match=r"foreign\.db is a database of another program"):
            open_storage(f"{driver}:///{tmp_path}/foreign.db", create=False)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("revision", "hint"),
    [("v2.6.0.a", "upgrade it, after a backup: optuna storage upgrade --storage "), ("v99.0.0.a", "a newer Optuna: ")],
)
def test_a_storage_of_another_optuna_is_left_as_it_is(tmp_path: Path, revision: str, hint: str) -> None:
    file = tmp_path / "other.db"
    optuna.create_study(storage=f"sqlite:///{file}", study_name="other")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.execute("DROP TABLE trial_heartbeats")  # as an older one, to which Optuna would add what it lacks
        connection.commit()
    before = file.read_bytes()
    for create in (False, True):
        with pytest.raises(BadInputError, match=f"version of Optuna than {optuna.__version__}; .*{re.escape(hint)}"):
            open_storage(f"sqlite:///{file}", create=create)
        with pytest.raises(BadInputError, match="version of Optuna"):
            check_storage(f"sqlite:///{file}", create=create)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_locked_storage_is_waited_for_and_told_of(
    tmp_path: Path, lock: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.study.database._SOON_S", 0.2)
    file = tmp_path / "t.db"
    assert open_storage(f"sqlite:///{file}", create=True) is not None
    assert capfd.readouterr().err == ""
    code = "import sqlite3, sys, time; connection = sqlite3.connect(sys.argv[1]); "
    code += "connection.execute(f'BEGIN {sys.argv[2]}'); print(1, flush=True); time.sleep(2)"
    command = [sys.executable, "-c", code, str(file), lock]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert open_storage(f"sqlite:///{file}", create=True) is not None
    assert f"waiting: another process has locked {file} (for at most 60 s)" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgres://me:secret@host/x", "no kind of database 'postgres'; write postgresql://me:***@host/x"),
        ("redis://host", "no kind of database 'redis'; expected sqlite:///FILE, postgresql://… or mysql://…"),
        ("mysql+pymysql://host/x", "No module named 'pymysql'; install the database's driver: "),
        ("mysql://host/x", "-m pip install mysqlclient"),
        ("postgresql+psycopg2://me:secret@127.0.0.1:1/x", "check the host and the port in the URL"),
        ("postgresql+psycopg2://me:secret@no.such.host.invalid/x", "check the host and the port in the URL"),
    ],
)
def test_each_storage_that_cannot_be_opened_has_its_own_way_out(url: str, message: str) -> None:
    with pytest.raises(TunerError) as caught:
        check_storage(url)
    assert caught.value.exit_code == (3 if "127.0.0.1" in url else 2)  # a server that is down is no bad input
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_finding_studies(tmp_path: Path, space: Space) -> None:
    assert open_storage(f"sqlite:///{tmp_path}/t.db", create=False) is None
    for new in (False, True):
        record, _ = run(space, noisy(), folder=tmp_path, budget=Budget(trials=5), new=new)
    storage = open_storage(f"sqlite:///{tmp_path}/t.db", create=False)
    assert storage is not None
    assert find(storage, "made").name == "made"
    assert find(storage, "made.").name == "made.2"
    with pytest.raises(BadInputError, match="matches 2 studies"):
        find(storage, "mad")
    with pytest.raises(BadInputError, match="unknown study"):
        find(storage, "other")
    record.put("described", {})
    with pytest.raises(BadInputError, match=r"made\.2 cannot be read: damaged"):
        find(storage, "made.2")


def test_a_study_without_a_number_says_so(tmp_path: Path, space: Space) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/t.db", create=True)
    assert storage is not None
    record = create_or_continue(
        storage, "made", LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space)), new=False
    )
    with pytest.raises(BadInputError, match="does not name its workload"):
        describe_study(record)
    record.put("described", to_builtins(subject(space)))
    document = describe_study(record)
    assert document.incumbent is None
    assert document.verdicts is None
    with pytest.raises(TunerError):
        record.put("schema", 99)
        create_or_continue(
            storage, "made", LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space)), new=False
        )


def test_an_imported_study_is_not_gone_on_with(tmp_path: Path, space: Space) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/t.db", create=True)
    assert storage is not None

    def name(*, new: bool = False) -> str:
        return create_or_continue(
            storage, "made", LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space)), new=new
        ).name

    optuna.create_study(study_name="made", storage=storage).set_user_attr("imported", "elsewhere")
    assert name() == name() == "made.2"
    optuna.create_study(study_name="made.3", storage=storage).set_user_attr("imported", "elsewhere")
    assert name() == "made.2"
    assert name(new=True) == name() == "made.4"


@pytest.mark.parametrize("is_write", [False, True])
def test_an_interrupt_waits_for_the_end_of_the_transaction_and_leaves_no_lock(
    tmp_path: Path, *, is_write: bool
) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/t.db", create=True)
    study = optuna.create_study(study_name="made", storage=storage)
    handler, statements = signal.getsignal(signal.SIGINT), []

    def interrupt(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)
        if len(statements) == 1:
            signal.raise_signal(signal.SIGINT)

    sqlalchemy.event.listen(engine_of(storage), "after_cursor_execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _ = study.set_user_attr("a", 1) if is_write else study.user_attrs
    sqlalchemy.event.remove(engine_of(storage), "after_cursor_execute", interrupt)
    assert len(statements) > is_write
    assert signal.getsignal(signal.SIGINT) is handler
    with closing(sqlite3.connect(tmp_path / "t.db", timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
    assert study.user_attrs == ({"a": 1} if is_write else {})


def test_a_second_interrupt_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one waited")
