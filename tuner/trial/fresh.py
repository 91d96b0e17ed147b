"""Fresh interpreters: every process is made as users make theirs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.paths import CHILD, boot_arguments
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.trial import group
from tuner.trial.launcher import ArrivalSeeds, Target, Worker
from tuner.trial.process import ChildProcess, PipeFds, StartProcess, guarded


def interpreter(python: Path, env: Mapping[str, str], spec: Mapping[str, object]) -> StartProcess:
    """Return what starts a new interpreter with a worker in it, behind a guard."""

    def start(ends: PipeFds) -> subprocess.Popen[bytes]:
        worker = [
            str(python),
            *boot_arguments(CHILD, "worker"),
            str(ends.commands),
            str(ends.reports),
            json.dumps(spec),
        ]
        return guarded(ends, worker, env, inherited_fds=(ends.commands, ends.reports))

    return start


def started(start: StartProcess, target: Target, setting: Setting, deployment: Deployment) -> ChildProcess:
    """Return the process that `start` makes for a setting, deployed so."""
    return ChildProcess(
        start,
        target.deadline_s,
        audit_failure=lambda facts: target.audit_failure(setting, deployment, facts),
        energy_j=target.energy_j,
        has_device_memory=target.feed is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshLauncher:
    """Every process is a new interpreter, which is how users run."""

    target: Target
    seeds: ArrivalSeeds = field(default_factory=ArrivalSeeds)

    def launch(self, setting: Setting, deployment: Deployment) -> Worker:
        """Start fresh interpreters with the setting's variables, as many as the deployment has."""
        energy_j = self.target.energy_j
        return group.launch(lambda number: self.launch_one(setting, deployment, number), deployment, energy_j)

    def launch_one(self, setting: Setting, deployment: Deployment, number: int = 0) -> ChildProcess:
        """Start a single one, of several the one of that number."""
        target, deployment = self.target.of(number), deployment.of(number)
        spec = target.child_spec(setting, deployment, number, seed=self.seeds.next(setting, number))
        start = interpreter(target.python, target.base_env | dict(deployment.env), spec)
        return started(start, target, setting, deployment)

    def now(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()
