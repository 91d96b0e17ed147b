"""Frameworks for tests: TensorFlow's spaces, deployments and exports without a request, and one from outside."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tuner.devices.cpu import DEVICE
from tuner.frameworks.framework import Framework
from tuner.frameworks.tensorflow.build import TensorFlowBuild
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.parsed import space_file
from tuner.machine.host import Machine
from tuner.report.emit import Ways
from tuner.space import space
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.spacefile import SpaceFile
from tuner.study.subject import Subject, subject_of
from tuner.trial import exporting
from tuner.trial.launcher import Target
from tuner.workload import workload as workloads
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

CATALOGUE = FRAMEWORK.catalogue
WAYS = Ways(server_flags=FRAMEWORK.server_flags, calls=FRAMEWORK.calls)
"""TensorFlow's own ways to apply a setting."""
PACKAGES = Path(__file__).parent / "data/packages"
"""A folder of packages as an interpreter has them: one brings a framework, by its entry point."""


def from_outside() -> Framework:
    """Return the framework of that package."""
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
    framework: Framework = importlib.import_module("tftune_numpy.framework").FRAMEWORK
    return framework


MADE_MACHINE = Machine(
    id="made",
    cpu_model="Made CPU",
    architecture="x86_64",
    online_cpus=16,
    logical_cpus=16,
    physical_cores=8,
    threads_per_core=2,
    sockets=2,
    numa_nodes={"0": "0-3,8-11", "1": "4-7,12-15"},
    affinity="0-15",
    cpu_quota=None,
    memory_bytes=64 << 30,
    memory_limit_bytes=None,
)
"""Two sockets of 4 cores with 2 hardware threads each."""
STOCK = TensorFlowBuild(
    id="stock",
    python="3.11.7",
    tensorflow="2.21.0",
    onednn="3.7.3",
    onednn_runtime="threadpool",
    onednn_enabled=True,
    onednn_why="on by default on a CPU with avx512_vnni",
    onednn_threads=16,
    isa="AVX-512",
    openmp_libraries=[],
    xla=True,
    cuda=None,
    refused=None,
    cpus=16,
    observations=[],
)
"""A stock wheel, as the probe sees it."""


def read_space(name: str, machine: Machine, *, default_batch: int = 1) -> SpaceFile:
    """Return a space for TensorFlow, by its name or file."""
    return space_file(name, FRAMEWORK, machine, default_batch=default_batch)


def resolve(file: SpaceFile, **given: Any) -> Space:
    """Return a space file resolved for TensorFlow."""
    return space.resolve(file, catalogue=CATALOGUE, **given)


def subject(of: Space) -> Subject:
    """Return what a study over a space on the made machine is of: ResNet-50, on a stock wheel."""
    return subject_of(MADE_MACHINE, DEVICE.describe(), STOCK, workloads.load("resnet50"), of, {})


def deployed(setting: Setting) -> Deployment:
    """Return what applies all values of a setting."""
    return CATALOGUE.deploy(setting.to_dict())


def load(name: str, **options: Any) -> Workload:
    """Return a workload for TensorFlow by its name or path."""
    return workloads.find(WorkloadSpec(words=(name,), **options), FRAMEWORK.suffixes)


def cached_folder(workload: Workload, build: TensorFlowBuild) -> Path:
    """Return where TensorFlow's export of a workload lies."""
    return exporting.cached_folder(workload, FRAMEWORK, build)


def export(workload: Workload, build: TensorFlowBuild, *, python: Path, env: dict[str, str]) -> Path:
    """Return TensorFlow's export of a workload, made if need be."""
    return exporting.export(workload, FRAMEWORK, build, python=python, env=env, deadline_s=600.0)


def target_of(
    workload: Workload, folder: Path, *, python: Path, env: dict[str, str], deadline_s: float = 120.0
) -> Target:
    """Return what a launcher starts of an export, on the CPU."""
    return Target(
        python=python,
        framework=FRAMEWORK.child,
        device=DEVICE.child,
        base_env=env,
        workload=workload,
        folder=folder,
        deadline_s=deadline_s,
    )
