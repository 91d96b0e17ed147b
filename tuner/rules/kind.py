"""Kinds of machines and builds: what a study is filed under, and what decides which settings help at all."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

from tuner.rules.situation import Situation
from tuner.space.term import EIGEN, OPENMP

_SHAPE = re.compile(r"\d+ cores?(, quota \d+(\.\d+)?(e[+-]?\d+)?)?")


class StratumClass(StrEnum):
    """The classes of strata that headlines are given by: where oneDNN is off, else where there is a quota, the rest."""

    ONEDNN_OFF = "onednn-off"
    QUOTA = "quota"
    REST = "rest"


class Kind(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of machine and build: a stratum, or a build with any number of cores where `shape` is None."""

    shape: str | None
    """The cores and the quota, in words."""
    pool: str
    onednn: bool
    quota: bool
    gpu: str = ""
    """The model of the GPU that computes; empty on the CPU."""

    def __post_init__(self) -> None:
        """Raise ValueError for a shape or a pool that none can be."""
        if self.shape is not None and not _SHAPE.fullmatch(self.shape):
            raise ValueError(f"'{self.shape}' is no shape of a machine")
        if self.pool not in (EIGEN, OPENMP):
            raise ValueError(f"unknown pool '{self.pool}'")

    def covers(self, other: Kind) -> bool:
        """Return whether another kind is of this one."""
        return self.shape in (None, other.shape) and self.build == other.build

    @property
    def build(self) -> tuple[str, bool, bool, str]:
        """Return all of it but the shape."""
        return self.pool, self.onednn, self.quota, self.gpu

    @property
    def cores(self) -> str | None:
        """Return the number of cores, None of any."""
        return None if self.shape is None else self.shape.partition(" ")[0]

    @property
    def cpu_limit(self) -> str | None:
        """Return the number of CPUs that the quota allows, None where there is none, or any."""
        return (self.shape or "").partition(", quota ")[2] or None

    @property
    def stratum_class(self) -> StratumClass:
        """Return the class that headlines count it among."""
        if not self.onednn:
            return StratumClass.ONEDNN_OFF
        return StratumClass.QUOTA if self.quota else StratumClass.REST


class SituationKind(Kind, frozen=True, kw_only=True):
    """A workload in a mode, on a kind of machine and build."""

    workload: str
    mode: str

    @classmethod
    def of(cls, situation: Situation) -> SituationKind:
        """Return the kind of a situation."""
        machine = situation.machine
        quota = "" if machine.cpu_quota is None else f", quota {machine.cpu_quota:g}"
        plural = "s" if machine.physical_cores > 1 else ""
        return cls(
            workload=situation.workload,
            mode=situation.mode,
            shape=f"{machine.physical_cores} core{plural}{quota}",
            pool=situation.pool,
            onednn=situation.onednn,
            quota=machine.cpu_quota is not None,
            gpu=situation.gpu,
        )
