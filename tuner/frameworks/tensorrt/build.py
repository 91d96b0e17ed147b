"""Probing the TensorRT of an interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.frameworks import probing
from tuner.identity import digest
from tuner.space.experiment import Observation

CHILD = Path(__file__).parent / "child"
SUBJECT = probing.ProbedPackage(title="TensorRT", package="tensorrt", install="tensorrt", folder=CHILD)
_SWITCHES = ("LD_", "PYTHON")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRtBuild:
    """A TensorRT build."""

    id: str
    python: str
    tensorrt: str
    converters: dict[str, str]
    """The versions of what a workload is exported by, by name; none of what is not installed."""

    @property
    def title(self) -> str:
        """Return what it is called in a line."""
        return f"TensorRT {self.tensorrt}"

    @property
    def version(self) -> str:
        """Return its own version."""
        return self.tensorrt

    @property
    def fork_refusal(self) -> str | None:
        """Return that it is not forked: CUDA's driver is none in a fork."""
        return "CUDA does not survive a fork"

    @property
    def observations(self) -> list[Observation]:
        """Return nothing: an engine tells nothing of how it was built."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return the build as plain data."""
        return {"framework": "tensorrt", **asdict(self)}


def probe(python: Path, env: Mapping[str, str]) -> TensorRtBuild:
    """Return the TensorRT of an interpreter, from the cache if that environment has not changed.

    Raises BadInputError where there is no such interpreter, it has no TensorRT, or its TensorRT does not import.
    """
    facts = probing.remembered_facts(python, env, SUBJECT, switches=_SWITCHES, looks=[])
    identity = {name: facts[name] for name in ("python", "tensorrt", "converters")}
    return TensorRtBuild(id=digest(identity), **identity)
