"""What the experiments on a TensorFlow build say: which variables reach it, and what it does when nothing is set.

Each is made in a fork of the target interpreter. Its observation holds the threads that the creation of TensorFlow's
context started, what oneDNN said of itself, and what the OpenMP library said on a thread that operators run on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.space.experiment import Experiment, Observation, Reach, moved, observed

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
    return Reach(answer=a != b, evidence=f"0 and {value}: the OpenMP library says {a} and {b} ms")


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
