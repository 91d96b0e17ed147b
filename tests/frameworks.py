"""Frameworks for tests: TensorFlow's spaces, deployments and exports without a request, and one from outside."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tuner.frameworks.framework import Framework
from tuner.frameworks.tensorflow.build import TensorFlowBuild
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.request import space_file
from tuner.machine.host import Machine
from tuner.space import space
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.spacefile import SpaceFile
from tuner.trial import exporting
from tuner.workload import workload as workloads
from tuner.workload.asked import Asked
from tuner.workload.workload import Workload

CATALOGUE = FRAMEWORK.catalogue
PACKAGES = Path(__file__).parent / "data/packages"
"""A folder of packages as an interpreter has them: one brings a framework, by its entry point."""


def from_outside() -> Framework:
    """Return the framework of that package."""
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
    framework: Framework = importlib.import_module("tftune_numpy.framework").FRAMEWORK
    return framework


def read_space(name: str, machine: Machine, *, default_batch: int = 1) -> SpaceFile:
    """Return a space for TensorFlow, by its name or file."""
    return space_file(name, FRAMEWORK, machine, default_batch=default_batch)


def resolve(file: SpaceFile, **given: Any) -> Space:
    """Return a space file resolved for TensorFlow."""
    return space.resolve(file, catalogue=CATALOGUE, **given)


def deployed(setting: Setting) -> Deployment:
    """Return what applies all values of a setting."""
    return CATALOGUE.deploy(setting.to_dict())


def load(name: str, **options: Any) -> Workload:
    """Return a workload for TensorFlow by its name or path."""
    return workloads.find(Asked(words=(name,), **options), FRAMEWORK.suffixes)


def cached_folder(workload: Workload, build: TensorFlowBuild) -> Path:
    """Return where TensorFlow's export of a workload lies."""
    return exporting.cached_folder(workload, FRAMEWORK, build)


def export(workload: Workload, build: TensorFlowBuild, *, python: Path, env: dict[str, str]) -> Path:
    """Return TensorFlow's export of a workload, made if need be."""
    return exporting.export(workload, FRAMEWORK, build, python=python, env=env)
