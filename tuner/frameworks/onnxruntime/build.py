"""Probing the ONNX Runtime of an interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.frameworks import probing
from tuner.identity import digest
from tuner.space import experiment
from tuner.space.experiment import Experiment, Observation, observed

CHILD = Path(__file__).parent / "child"
SUBJECT = probing.ProbedPackage(title="ONNX Runtime", package="onnxruntime", install="onnxruntime", folder=CHILD)
_SWITCHES = ("ORT_", "LD_", "PYTHON")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxRuntimeBuild(probing.ProbedBuild):
    """An ONNX Runtime build. It can be forked: its threads start with a session, and none exists before a fork."""

    subject = SUBJECT
    onnxruntime: str
    providers: list[str]
    """Its execution providers, in its own order of preference."""
    converters: dict[str, str]
    """The versions of what makes an ONNX file of TensorFlow's export, by name; none of what is not installed."""
    cpus: int
    """The CPUs of the affinity mask under which the experiments ran."""
    observations: list[Observation]
    """The raw experiments; see `tuner.frameworks.onnxruntime.knobs`."""

    @property
    def default_threads(self) -> int | None:
        """Return the threads that a session has when nothing is set, as the probe saw it; None if it saw nothing."""
        unset = observed(self.observations, None)
        return None if unset is None else 1 + int(unset["created"])

    @property
    def binds_by_default(self) -> bool:
        """Return whether a session binds its threads when nothing is set, as the probe saw it."""
        unset = observed(self.observations, None)
        return unset is not None and bool(unset["bound"])


def probe(python: Path, env: Mapping[str, str], experiments: Sequence[Experiment]) -> OnnxRuntimeBuild:
    """Return the ONNX Runtime of an interpreter, from the cache if that environment has not changed.

    `env` is the environment that trials start from, `experiments` those of the knobs. Raises BadInputError where there
    is no such interpreter, it has no ONNX Runtime, or its ONNX Runtime does not import.
    """
    cpus = sorted(os.sched_getaffinity(0))
    plan = experiment.plan(experiments, cpus)
    facts = probing.remembered_facts(python, env, SUBJECT, switches=_SWITCHES, looks=[cpus], plan=plan)
    identity = {name: facts[name] for name in ("python", "onnxruntime", "providers", "converters")}
    return OnnxRuntimeBuild(id=digest(identity), **identity, cpus=len(cpus), observations=facts["observations"])
