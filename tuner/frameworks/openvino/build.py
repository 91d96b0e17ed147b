"""Probing the OpenVINO of an interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.frameworks import probing
from tuner.identity import digest
from tuner.space.experiment import Observation

CHILD = Path(__file__).parent / "child"
_SUBJECT = probing.ProbedPackage(title="OpenVINO", package="openvino", install="openvino", folder=CHILD)
_SWITCHES = ("OV_", "OPENVINO_", "LD_", "PYTHON")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVinoBuild:
    """An OpenVINO build."""

    id: str
    python: str
    openvino: str
    default_precision: str
    """What its CPU device computes in when nothing is said: bf16 where the CPU has instructions for that."""
    capabilities: list[str]
    """The precisions that the CPU device has, as it tells them."""
    converters: dict[str, str]
    """The versions of what a workload is exported by, by name; none of what is not installed."""

    @property
    def title(self) -> str:
        """Return what it is called in a line."""
        return f"OpenVINO {self.openvino}"

    @property
    def version(self) -> str:
        """Return its own version."""
        return self.openvino

    @property
    def fork_refusal(self) -> str | None:
        """Return that it is not forked: its pool of threads begins with the import, and none of it is in a fork."""
        return "OpenVINO's thread pool does not survive a fork"

    @property
    def observations(self) -> list[Observation]:
        """Return nothing: what took effect is asked of each compiled model."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return the build as plain data."""
        return {"framework": "openvino", **asdict(self)}


def probe(python: Path, env: Mapping[str, str]) -> OpenVinoBuild:
    """Return the OpenVINO of an interpreter, from the cache if that environment has not changed.

    Raises BadInputError where there is no such interpreter, it has no OpenVINO, or its OpenVINO does not import.
    """
    looks = [sorted(os.sched_getaffinity(0)), probing.cpu_flags()]
    facts = probing.remembered_facts(python, env, _SUBJECT, switches=_SWITCHES, looks=looks)
    names = ("python", "openvino", "default_precision", "capabilities", "converters")
    identity = {name: facts[name] for name in names}
    return OpenVinoBuild(id=digest(identity), **identity)
