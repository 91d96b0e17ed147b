"""The TensorFlow build of an interpreter: asked, never inferred from a package's name, and which variables reach it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tuner.frameworks import probing
from tuner.identity import digest
from tuner.space import experiment
from tuner.space.experiment import Experiment, Observation, Reach, moved, observed
from tuner.space.term import EIGEN, OPENMP

# Variables that decide what TensorFlow runs on, and what else is imported before it.
_SWITCHES = (
    "TF_ENABLE_",
    "TF_DISABLE_",
    "TF_OVERRIDE_",
    "TF_XLA_",
    "TF_USE_LEGACY_",
    "LD_",
    "ONEDNN_",
    "DNNL_",
    "MKL_",
    "PYTHON",
)
CHILD = Path(__file__).parent / "child"
SUBJECT = probing.ProbedPackage(title="TensorFlow", package="tensorflow", install="tensorflow", folder=CHILD)
# Paths, and what today's mask gives.
PASSING = frozenset(
    {"openmp_libraries", "onednn_threads", "onednn_why", "onednn_reason", "cpus", "observations", "refused"}
)
_OFF_BY_DEFAULT = "off by default on this CPU"
_KERAS_USUAL = {"floatx": "float32", "epsilon": 1e-7, "image_data_format": "channels_last"}
# On Linux and x86, TensorFlow turns oneDNN on by itself where the CPU has one of these.
_ONEDNN_FLAGS = ("avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16")


class Reason(StrEnum):
    """Why oneDNN is on or off."""

    VARIABLE = "variable"
    """A variable says so."""
    OPENMP_BUILD = "openmp-build"
    """It is on in every OpenMP build."""
    FLAG = "flag"
    """The CPU has instructions for which TensorFlow turns it on."""
    UNUSED = "unused"
    """So it has, but no operator used it."""
    NO_FLAG = "no-flag"
    """The CPU has none of them, so that it is off, and could be turned on."""
    BUILD = "build"
    """It is on, and neither says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowBuild(probing.ProbedBuild):
    """A TensorFlow build. `onednn_runtime` is `threadpool` (Eigen), `openmp`, or None where oneDNN is off."""

    subject = SUBJECT
    tensorflow: str
    onednn: str | None
    """oneDNN's version, as it says itself."""
    onednn_runtime: str | None
    onednn_enabled: bool | None
    """Whether TensorFlow says that it hands operators to oneDNN; None where it does not tell."""
    onednn_why: str
    """Why oneDNN is on or off, in words."""
    onednn_reason: Reason | None = None
    """The same as a code; None where an earlier version looked."""
    onednn_threads: int | None
    """Threads that oneDNN takes when nothing is set."""
    isa: str | None
    """The instruction set that oneDNN chose."""
    openmp_libraries: list[str]
    xla: bool
    cuda: str | None
    """The CUDA version of the build, None for a CPU build."""
    refused: str | None
    """Why no process can be forked after TensorFlow's import, None if it can."""
    cpus: int
    """The CPUs of the affinity mask under which the experiments ran."""
    observations: list[Observation]
    """The raw experiments; see below."""
    keras: str = ""
    """The version of Keras, which is released apart from TensorFlow, and what the user's settings of Keras change."""

    @property
    def pools(self) -> Pools | None:
        """Return how TensorFlow's context starts threads."""
        return pools(self.observations)

    @property
    def defaults(self) -> dict[str, int | str]:
        """Return what this build was seen to take when nothing is set, by knob."""
        return defaults(self.observations, cpus=self.cpus)

    @property
    def openmp_library(self) -> str | None:
        """Return the path of the OpenMP library that the operators use, None where they use none."""
        if self.onednn_runtime != "openmp" or not self.openmp_libraries:
            return None
        used = [path for path in self.openmp_libraries if "/libiomp" in path or "/libomp" in path]
        return (used or self.openmp_libraries)[0]

    @property
    def gnu_openmp(self) -> bool:
        """Return whether the operators use GNU's OpenMP library: it reads no KMP variable, and its own when loaded."""
        return self.openmp_library is not None and "/libgomp" in self.openmp_library

    @property
    def pool(self) -> str:
        """Return what operators run their threads on: `openmp` or `eigen`."""
        return OPENMP if self.onednn_runtime == "openmp" else EIGEN

    @property
    def has_onednn(self) -> bool:
        """Return whether operators are handed to oneDNN: TensorFlow says so, or, where it does not, oneDNN spoke."""
        return self.onednn_runtime is not None if self.onednn_enabled is None else self.onednn_enabled

    @property
    def title(self) -> str:
        """Return what it is called in a line."""
        return f"TensorFlow {self.tensorflow} ({'OpenMP' if self.pool == OPENMP else 'Eigen'})"

    @property
    def fork_refusal(self) -> str | None:
        """Return why its processes cannot be forked from one that has imported it, None if they can."""
        return "GNU's OpenMP library reads its variables only when it is loaded" if self.gnu_openmp else None


def probe(python: Path, env: Mapping[str, str], experiments: Sequence[Experiment]) -> TensorFlowBuild:
    """Return the TensorFlow of an interpreter, from the cache if that environment has not changed.

    `env` is the environment that trials start from, `experiments` those of the knobs. Raises BadInputError where there
    is no such interpreter, it has no TensorFlow, or its TensorFlow does not import.
    """
    # oneDNN's choices depend on the instruction sets, and on the CPUs that it may use.
    cpus, flags, settings = sorted(os.sched_getaffinity(0)), probing.cpu_flags(), keras_settings(env)
    facts = probing.remembered_facts(
        python,
        env,
        SUBJECT,
        switches=_SWITCHES,
        looks=[flags, cpus, settings],
        plan=experiment.plan(experiments, cpus),
        verbose={"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1"},
    )
    facts["keras"] = " ".join([facts["keras"], *settings])
    return describe(facts, read_onednn(facts.pop("printed")), switches=env, flags=flags)


def keras_settings(env: Mapping[str, str]) -> list[str]:
    """Return the user's settings of Keras that change what a model computes, as text: none of those that are usual."""
    folder = Path(env.get("KERAS_HOME") or Path(env.get("HOME", "~")).expanduser() / ".keras")
    try:
        settings = json.loads((folder / "keras.json").read_text(encoding="utf-8"))
        return [
            f"{name}={settings[name]}" for name, usual in _KERAS_USUAL.items() if settings.get(name, usual) != usual
        ]
    except (OSError, ValueError, AttributeError):  # Keras ignores such a file
        return []


def is_off_by_default(build: Mapping[str, Any]) -> bool:
    """Return whether oneDNN is off, of a build as plain data, for want of the CPU's instructions; it could be on."""
    reason = build.get("onednn_reason")
    if reason is None:  # earlier versions kept the words alone
        return str(build["onednn_why"]).startswith(_OFF_BY_DEFAULT)
    return bool(reason == Reason.NO_FLAG)


def read_onednn(verbose: str) -> dict[str, str]:
    """Return what oneDNN said of itself in ONEDNN_VERBOSE output: version, runtime, threads, isa; {} if nothing.

    oneDNN before 3.0 begins its lines with `onednn_verbose,info,`, later ones with `onednn_verbose,v1,info,`.
    """
    patterns = {
        "version": r"_verbose,(?:v\d+,)?info,oneDNN v([\w.]+)",
        "runtime": r"_verbose,(?:v\d+,)?info,cpu,runtime:([\w ]+)",
        "threads": r"_verbose,(?:v\d+,)?info,cpu,runtime:[\w ]+,nthr:(\d+)",
        "isa": r"_verbose,(?:v\d+,)?info,cpu,isa:([^\n]+)",
    }
    matches = {name: re.search(pattern, verbose) for name, pattern in patterns.items()}
    return {name: match[1].strip() for name, match in matches.items() if match}


def describe(
    facts: dict[str, Any], onednn: dict[str, str], *, switches: Mapping[str, str], flags: Sequence[str]
) -> TensorFlowBuild:
    """Return the runtime for what the child found and what oneDNN said, given the variables and the CPU's flags."""
    runtime = onednn.get("runtime", "").lower()
    reason, why = _why(runtime, facts["enabled"], switches, flags)
    fields: dict[str, object] = {
        **{name: fact for name, fact in facts.items() if name != "enabled"},
        "keras": facts.get("keras", ""),
        "onednn": onednn.get("version"),
        "onednn_runtime": runtime or None,
        "onednn_enabled": facts["enabled"],
        "onednn_why": why,
        "onednn_reason": reason,
        "onednn_threads": int(onednn["threads"]) if "threads" in onednn else None,
        "isa": onednn.get("isa"),
        "cpus": len(os.sched_getaffinity(0)),
    }
    identity = {key: value for key, value in fields.items() if key not in PASSING}
    return TensorFlowBuild(id=digest(identity), **fields)  # type: ignore[arg-type]  # plain data from JSON


def _why(runtime: str, enabled: bool | None, switches: Mapping[str, str], flags: Sequence[str]) -> tuple[Reason, str]:
    """Return why oneDNN is on or off. Source: TensorFlow, tsl/util/onednn_env_vars and port.cc.

    That it spoke does not make it on: Eigen's matrix products use it too.
    """
    if "TF_ENABLE_ONEDNN_OPTS" in switches:
        return Reason.VARIABLE, f"TF_ENABLE_ONEDNN_OPTS={switches['TF_ENABLE_ONEDNN_OPTS']} is set"
    if runtime == "openmp":
        return Reason.OPENMP_BUILD, "on in an OpenMP build"
    onednn_flags = [flag for flag in _ONEDNN_FLAGS if flag in flags]
    if runtime and enabled is False:
        return Reason.NO_FLAG, f"{_OFF_BY_DEFAULT}: only Eigen's matrix products use it"
    if onednn_flags and runtime:
        return Reason.FLAG, f"on by default on a CPU with {onednn_flags[0]}"
    if onednn_flags:
        return Reason.UNUSED, f"{onednn_flags[0]} should turn it on, but no operator used it"
    return (Reason.BUILD, "on in this build") if runtime else (Reason.NO_FLAG, _OFF_BY_DEFAULT)


# ---- which variables reach a build, and what it does when nothing is set --------------------------------------------
# Each experiment is made in a fork of the target interpreter. Its observation holds the threads that the creation of
# TensorFlow's context started, what oneDNN said of itself, and what the OpenMP library said on a thread that operators
# run on.

_CONTRAST = 2  # the experiments move a thread count from 1 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """How TensorFlow's context starts threads: inter_op + intra_op + `others`; `inter_name` is the first pool's."""

    others: int
    inter_name: str | None


def pools(observations: Sequence[Observation]) -> Pools | None:
    """Return how many threads the pools have, None where the counts do not follow the variables one to one."""
    low, inter, intra = observed(observations, {}), moved(observations, INTER_OP), moved(observations, INTRA_OP)
    if low is None or inter is None or intra is None:
        return None
    if inter["created"] - low["created"] != _CONTRAST or intra["created"] - low["created"] != _CONTRAST:
        return None
    grown = [name for name, n in inter["names"].items() if n - low["names"].get(name, 0) == _CONTRAST]
    still = [name for name in grown if intra["names"].get(name) == low["names"].get(name)]
    return Pools(others=low["created"] - 2, inter_name=still[0] if len(still) == 1 else None)


def defaults(observations: Sequence[Observation], *, cpus: int) -> dict[str, int | str]:
    """Return what the runtime takes when nothing is set, by knob, as far as it was seen; `cpus` are in the mask."""
    values: dict[str, int | str] = {}
    unset, shape = observed(observations, None), pools(observations)
    if unset is None:
        return values
    if shape is not None:
        both = unset["created"] - shape.others
        inter = unset["names"].get(shape.inter_name) if shape.inter_name else both - cpus
        if inter and 0 < inter < both:
            values |= {"inter_op": inter, "intra_op": both - inter}
    if unset["openmp"]:
        values |= {"omp_num_threads": unset["openmp"]["max_threads"], "kmp_blocktime": unset["openmp"]["blocktime_ms"]}
    return values


def onednn_threads(observation: Observation) -> int | None:
    """Return the thread count that oneDNN told."""
    match = re.search(r"nthr:(\d+)", observation["onednn"])
    return int(match[1]) if match else None


def _on_openmp(observation: Observation) -> bool:
    return "runtime:openmp" in observation["onednn"].lower()


def _pool(value: str, low: Observation, high: Observation) -> Reach:
    more = high["created"] - low["created"]
    evidence = f"with 1 and {value}, TensorFlow's context starts {low['created']} and {high['created']} threads"
    return Reach(answer=None if more not in (0, _CONTRAST) else more == _CONTRAST, evidence=evidence)


def _omp_threads(value: str, low: Observation, high: Observation) -> Reach:
    a, b = onednn_threads(low), onednn_threads(high)
    if a is None or b is None:
        return Reach(answer=False, evidence="oneDNN ran nothing, and no other TensorFlow operator uses OpenMP")
    # GNU's library reads its variables when it is loaded, which in a fork is too late to tell.
    late = a == b and _on_openmp(low) and low["openmp"] is None
    return Reach(answer=None if late else a != b, evidence=f"1 and {value}: oneDNN takes {a} and {b} threads")


def _no_kmp(low: Observation, high: Observation) -> Reach | None:
    """Return why no KMP variable can reach the build, None if one can."""
    if not _on_openmp(low) or not _on_openmp(high):
        return Reach(answer=False, evidence="oneDNN does not run on OpenMP, and no other TensorFlow operator does")
    if low["openmp"] is None or high["openmp"] is None:
        return Reach(answer=False, evidence="no OpenMP library that reads KMP variables is loaded")
    return None


def _blocktime(value: str, low: Observation, high: Observation) -> Reach:
    no = _no_kmp(low, high)
    if no is not None:
        return no
    a, b = low["openmp"]["blocktime_ms"], high["openmp"]["blocktime_ms"]
    return Reach(answer=a != b, evidence=f"0 and {value}: the OpenMP library reports {a} and {b} ms")


def _affinity(value: str, low: Observation, high: Observation) -> Reach:
    no = _no_kmp(low, high)
    if no is not None:
        return no
    a, b = low["openmp"]["cpus"], high["openmp"]["cpus"]
    evidence = f"none and {value.rpartition(',')[2]}: operators run on CPUs {_list(a)} and {_list(b)}"
    return Reach(answer=a != b if len(a) > 1 else None, evidence=evidence)


def _list(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus)) if len(cpus) <= 4 else f"{cpus[0]}…{cpus[-1]} ({len(cpus)})"


INTER_OP = Experiment(name="TF_NUM_INTEROP_THREADS", low="1", contrast=lambda _: "3", interpret=_pool)
INTRA_OP = Experiment(name="TF_NUM_INTRAOP_THREADS", low="1", contrast=lambda _: "3", interpret=_pool)
OMP_NUM_THREADS = Experiment(name="OMP_NUM_THREADS", low="1", contrast=lambda _: "3", interpret=_omp_threads)
KMP_BLOCKTIME = Experiment(name="KMP_BLOCKTIME", low="0", contrast=lambda _: "77", interpret=_blocktime)
KMP_AFFINITY = Experiment(
    name="KMP_AFFINITY",
    low="none",
    contrast=lambda cpus: f"granularity=fine,proclist=[{min(cpus)}],explicit",
    interpret=_affinity,
)
