"""Studies on a scripted machine, in a real storage: a known surface, noise like a shared machine's, and events kept."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import sqlalchemy
from msgspec import to_builtins

from tests.frameworks import subject
from tests.scripted_launcher import ScriptedLauncher
from tuner.child import arrivals
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.identity import digest
from tuner.measure.budget import Budget
from tuner.measure.constraint import Limits
from tuner.measure.rounds import Round
from tuner.space.groups import one_of
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.noise import Noise
from tuner.study.loop import Search
from tuner.study.plan import Plan
from tuner.study.record import SCHEMA, Record
from tuner.study.sampler import LatticeSampler
from tuner.study.storage import create_or_continue, open_storage
from tuner.study.surrogate import PriorMean
from tuner.study.trials import Trial
from tuner.trial.outcome import Slice, Status

BEST = {"inter_op": 2, "intra_op": 8, "batch_size": 16}


def surface(s: Setting) -> float:
    """Return items/s: a smooth hill with its top at BEST, 30 % above the default."""
    distance = sum((math.log2(int(s[k])) - math.log2(v)) ** 2 for k, v in BEST.items())
    return 100 * math.exp(-0.03 * distance)


def side_by_side(efficiency: float, *, threads_needed: int = 1) -> Callable[[Setting], float]:
    """Return items/s of any setting: a process of n has an n-th of the machine, and loses what the others cost it."""

    def rate(s: Setting) -> float:
        values = s.to_dict()
        n = int(values.get("instances", 1))
        alone = surface(one_of(s))
        return alone if n == 1 else n * efficiency * alone * (1 if int(values["intra_op"]) >= threads_needed else 0.01)

    return rate


class Log:
    """Events, kept."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.stages: list[str] = []
        self.rounds = 0

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def calibrated(self, noise: Noise, floor: float) -> None:
        assert noise.n_pairs >= 0
        assert floor > 0

    def trials_started(self, trials: Sequence[Trial], left_s: float) -> None:
        assert trials
        assert left_s > -1000

    def trial_ended(self, trial: Trial, best: Trial | None, left_s: float) -> None:
        self.trials.append(trial)
        assert best is None or best.status is Status.OK

    def round_ended(self, number: int, round_: Round, left_s: float) -> None:
        self.rounds = number


@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def _without_syncs(connection: object, _: object) -> None:
    """Let no SQLite storage of this process wait for the disk: only a machine that loses its power would tell."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


class InMemory(optuna.storages.InMemoryStorage):
    """A storage that gives back what a database would: attributes are JSON."""

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        super().set_trial_user_attr(trial_id, key, json.loads(json.dumps(value)))

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        super().set_study_user_attr(study_id, key, json.loads(json.dumps(value)))


def run(
    space: Space,
    launcher: ScriptedLauncher,
    *,
    folder: Path | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    new: bool = False,
    plan: Plan | None = None,
    limits: Limits | None = None,
    log: Log | None = None,
    prior_mean: PriorMean | None = None,
) -> tuple[Record, Log]:
    """Run a scripted study in a real SQLite storage in a folder, or else in memory."""
    storage = InMemory() if folder is None else open_storage(f"sqlite:///{folder}/t.db", create=True)
    assert storage is not None
    design = FRAMEWORK.initial_design(space)
    score = (plan or Plan()).score or list
    sampler = LatticeSampler(space, seed=seed, initial_design=design, limits=limits, prior_mean=prior_mean, score=score)
    record = create_or_continue(storage, "made", sampler, new=new)
    record.put("described", to_builtins(subject(space)))
    record.put("schema", SCHEMA)
    record.put("limits", limits or Limits())
    record.put("seed", seed)
    log = log or Log()
    Search(
        record=record,
        space=space,
        launcher=launcher,
        sampler=sampler,
        plan=plan or Plan(),
        budget=budget or Budget(trials=30),
        events=log,
        seed=seed,
    ).run()
    return record, log


def finished(
    base: Path, space: Space, folder: Path, *, trials: int = 30, efficiency: float | None = None, groups: int = 0
) -> tuple[Record, Log]:
    """Return a study of a noisy machine, in a storage in `folder`, and its events.

    It is made once, below `base`, for all tests that begin with one: `finished` of the fixtures. With an `efficiency`
    several processes do so much, and the study has asked about `groups` of them.
    """
    of = [space.fingerprint, len(space.points), len(space.groups), trials, efficiency, groups]
    made = base / "scripted" / digest(of)
    if not made.exists():
        made.parent.mkdir(exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=made.parent))
        launcher = noisy() if efficiency is None else noisy(rate=side_by_side(efficiency))
        record, log = run(space, launcher, budget=Budget(trials=trials), plan=Plan(n_groups=groups))
        assert launcher.live == 0
        file = open_storage(f"sqlite:///{part}/t.db", create=True)
        assert file is not None
        optuna.copy_study(from_study_name="made", from_storage=record.study._storage, to_storage=file)
        (part / "log").write_bytes(pickle.dumps(log))
        try:
            part.rename(made)
        except OSError:  # another worker was faster
            shutil.rmtree(part)
    shutil.copy(made / "t.db", folder)
    storage = open_storage(f"sqlite:///{folder}/t.db", create=False)
    assert storage is not None
    return Record(optuna.load_study(study_name="made", storage=storage)), pickle.loads((made / "log").read_bytes())


def checked(
    record: Record, recommended: Setting, default: Setting, ratio: float, *, began: str, node: str = ""
) -> None:
    """Add a check to a study, as `tftune check` does: ten rounds with this ratio."""
    rng = np.random.default_rng(int(1000 * ratio))

    def slices(batch_size: int, rate: float) -> list[Slice]:
        elapsed = batch_size / rate * math.exp(0.005 * rng.standard_normal())
        return [Slice(start_s=0.0, elapsed_s=elapsed, n_steps=1, step_s=(elapsed,))]

    rounds = [
        Round(slices={"b": slices(recommended.batch_size, 20 * ratio), "a": slices(default.batch_size, 20.0)})
        for _ in range(10)
    ]
    sides = [
        {"names": [name], "setting": each.to_dict(), "env": {}, "eligible": True}
        for name, each in (("b", recommended), ("a", default))
    ]
    record.add("checks", {"began": began, "node": node, "contenders": sides, "rounds": rounds, "conditions": {}})


class Clock:
    """Time of requests at random times, that passes only where somebody sleeps or computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(arrivals, "CLOCK", lambda: self.now_s)
        monkeypatch.setattr(arrivals.time, "sleep", self.spend)

    def spend(self, seconds: float) -> None:
        self.now_s += seconds


def noisy(**changes: object) -> ScriptedLauncher:
    """Return a machine with the noise of a shared virtual one."""
    defaults = {"rate": surface, "noise": 0.02, "process_noise": 0.004, "drift": 0.1}
    return ScriptedLauncher(**(defaults | changes))
