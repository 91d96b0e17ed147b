"""Probing the TensorFlow build of an interpreter: asked, never inferred from a package's name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError, TunerError
from tuner.identity import digest
from tuner.places import cache_dir, child
from tuner.runtime import reach
from tuner.runtime.reach import Observation, Pools, Reach

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
_PROBE_TIMEOUT_S = 180.0
_LOCATE_TIMEOUT_S = 30.0
OFF_BY_DEFAULT = "off by default on this CPU"
# On Linux and x86, TensorFlow turns oneDNN on by itself where the CPU has one of these.
_ONEDNN_FLAGS = ("avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A TensorFlow build. `onednn_runtime` is `threadpool` (Eigen), `openmp`, or None where oneDNN is off."""

    id: str
    python: str
    tensorflow: str
    onednn: str | None
    """oneDNN's version, as it says itself."""
    onednn_runtime: str | None
    onednn_enabled: bool | None
    """Whether TensorFlow says that it hands operators to oneDNN; None where it does not tell."""
    onednn_why: str
    """Why oneDNN is on or off."""
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
    """The raw experiments; see `tuner.runtime.reach`."""
    keras: str = ""
    """The version of Keras, which is released apart from TensorFlow."""

    @property
    def pools(self) -> Pools | None:
        """Return how TensorFlow's context starts threads."""
        return reach.pools(self.observations)

    @property
    def defaults(self) -> dict[str, int | str]:
        """Return what this runtime was seen to take when nothing is set, by knob."""
        return reach.defaults(self.observations, cpus=self.cpus)

    @property
    def reach(self) -> dict[str, Reach]:
        """Return which variables reach this runtime, with the evidence."""
        return reach.reach(self.observations)

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
        return "openmp" if self.onednn_runtime == "openmp" else "eigen"

    @property
    def has_onednn(self) -> bool:
        """Return whether operators are handed to oneDNN: TensorFlow says so, or, where it does not, oneDNN spoke."""
        return has_onednn(self.onednn_runtime, self.onednn_enabled)

    @property
    def title(self) -> str:
        """Return what it is called in a line."""
        return f"TensorFlow {self.tensorflow} ({'OpenMP' if self.pool == 'openmp' else 'Eigen'})"

    def to_dict(self) -> dict[str, object]:
        """Return the runtime as plain data."""
        return asdict(self)


def has_onednn(runtime: str | None, enabled: bool | None) -> bool:
    """Return `Runtime.has_onednn` of what a stored study says."""
    return runtime is not None if enabled is None else enabled


def probe(python: Path, env: dict[str, str]) -> Runtime:
    """Return the runtime of an interpreter, from the cache if that environment has not changed.

    `env` is the environment that trials start from. Raises BadInputError where there is no such interpreter,
    it has no TensorFlow, or its TensorFlow does not import.
    """
    place = _locate(python, env)
    switches = {key: env[key] for key in sorted(env) if key.startswith(_SWITCHES)}
    cached = cache_dir() / "runtimes" / f"{digest([place, switches, _cpu(), *_sources()])}.json"
    try:
        return Runtime(**json.loads(cached.read_text()))
    except (OSError, ValueError, TypeError):
        pass
    runtime = _ask(python, env)
    if runtime.refused is None:  # what a passing circumstance hid must not stay hidden
        _remember(cached, runtime)
    return runtime


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
    found = {name: re.search(pattern, verbose) for name, pattern in patterns.items()}
    return {name: match[1].strip() for name, match in found.items() if match}


def _cpu_flags() -> list[str]:
    """Return the instruction sets of the CPU, as the kernel names them."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "").split()


def _cpu() -> list[object]:
    """Return what oneDNN's choices depend on: the instruction sets, and the CPUs it may use."""
    return [_cpu_flags(), sorted(os.sched_getaffinity(0))]


def _sources() -> list[str]:
    """Return the code that looks: another look may see something else."""
    scripts = [child(name) for name in ("boot", "locate", "probe", "effective", "forkserver")]
    return [path.read_text() for path in (Path(__file__), Path(reach.__file__), *scripts)]


def _locate(python: Path, env: dict[str, str]) -> dict[str, object]:
    """Ask the interpreter where its TensorFlow is, without importing it."""
    try:
        done = subprocess.run(
            [str(python), str(child("boot")), "locate"],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LOCATE_TIMEOUT_S,
            check=False,
        )
        place: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
        if not isinstance(place, dict) or "executable" not in place:
            raise ValueError(place)
    except FileNotFoundError as error:
        raise BadInputError(f"no interpreter at {python}", "give --python the path of a Python executable") from error
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise BadInputError(
            f"{python} is not a Python interpreter that runs", "give --python a Python executable"
        ) from error
    if place.get("origin") is None:
        raise BadInputError(
            f"{python} has no TensorFlow",
            f"install one there: {python} -m pip install tensorflow, or give --python another",
        )
    return place


def _ask(python: Path, env: dict[str, str]) -> Runtime:
    with tempfile.TemporaryDirectory(prefix="tftune-probe-") as folder:
        out = Path(folder) / "facts.json"
        experiments = json.dumps(reach.plan(sorted(os.sched_getaffinity(0))))
        try:
            done = subprocess.run(
                [str(python), str(child("boot")), "probe", str(out), str(os.getpid()), experiments],
                env=env | {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PROBE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TunerError(
                f"TensorFlow of {python} did not answer within {_PROBE_TIMEOUT_S:.0f} s",
                "try: " + str(python) + " -c 'import tensorflow'",
            ) from error
        try:
            facts = json.loads(out.read_text())
        except (OSError, ValueError):
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            facts = {"error": f"the interpreter ended with {done.returncode}: {last}"}
    if "error" in facts:
        raise BadInputError(
            f"TensorFlow of {python} does not work: {' '.join(facts['error'].split())}",
            "mend that environment, or give --python another",
        )
    return describe(facts, read_onednn(done.stdout), switches=env, flags=_cpu_flags())


def describe(
    facts: dict[str, Any], onednn: dict[str, str], *, switches: Mapping[str, str], flags: Sequence[str]
) -> Runtime:
    """Return the runtime for what the child found and what oneDNN said, given the variables and the CPU's flags."""
    runtime = onednn.get("runtime", "").lower()
    fields: dict[str, object] = {
        "python": facts["python"],
        "tensorflow": facts["tensorflow"],
        "keras": facts.get("keras", ""),
        "onednn": onednn.get("version"),
        "onednn_runtime": runtime or None,
        "onednn_enabled": facts["enabled"],
        "onednn_why": _why(runtime, facts["enabled"], switches, flags),
        "onednn_threads": int(onednn["threads"]) if "threads" in onednn else None,
        "isa": onednn.get("isa"),
        "openmp_libraries": facts["openmp_libraries"],
        "xla": facts["xla"],
        "cuda": facts["cuda"],
        "refused": facts["refused"],
        "cpus": len(os.sched_getaffinity(0)),
        "observations": facts["observations"],
    }
    # Paths, and what today's mask gives, are not part of what the build is.
    today = ("openmp_libraries", "onednn_threads", "onednn_why", "cpus", "observations", "refused")
    same = {key: value for key, value in fields.items() if key not in today}
    return Runtime(id=digest(same), **fields)  # type: ignore[arg-type]  # plain data from JSON


def _why(runtime: str, enabled: bool | None, switches: Mapping[str, str], flags: Sequence[str]) -> str:
    """Return why oneDNN is on or off. Source: TensorFlow, tsl/util/onednn_env_vars and port.cc.

    That it spoke does not make it on: Eigen's matrix products use it too.
    """
    if "TF_ENABLE_ONEDNN_OPTS" in switches:
        return f"TF_ENABLE_ONEDNN_OPTS={switches['TF_ENABLE_ONEDNN_OPTS']} is set"
    if runtime == "openmp":
        return "on in an OpenMP build"
    found = [flag for flag in _ONEDNN_FLAGS if flag in flags]
    if runtime and enabled is False:
        return f"{OFF_BY_DEFAULT}: only Eigen's matrix products use it"
    if runtime:
        return f"on by default on a CPU with {found[0]}" if found else "on in this build"
    return f"{found[0]} would turn it on, but no operator used it" if found else OFF_BY_DEFAULT


def _remember(cached: Path, runtime: Runtime) -> None:
    """Keep the answer; a cache that cannot be written only costs time."""
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        part = cached.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(runtime.to_dict()))
        part.replace(cached)
    except OSError:
        return
