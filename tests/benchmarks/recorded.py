"""The search on recorded surfaces of machines that it has never seen: trials until it is within 2 % of the optimum.

    python -m tests.benchmarks.recorded PACKRAT

The surfaces are Packrat's tables (see `tests.benchmarks.strangers`): threads x batch size of four models on 16 cores,
and inter_op x intra_op of ResNet-50 at four batch sizes on 18. PyTorch's inter_op does nothing there, so the best of
361 recorded cells would be the luckiest one: each rate is the median over the 19 values of inter_op, and the search is
not told. An observation has the noise that other comparisons of searchers have (1.2 %). That is more than the tables'
own means have. The guides' settings come first and count.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tests.benchmarks.figures import Figure
from tests.benchmarks.searchers import SEARCHERS, Searched, run, usable
from tests.benchmarks.strangers import table
from tests.frameworks import MADE_MACHINE, STOCK, read_space, resolve
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.workload.workload import load

SEEDS = tuple(range(25))
MEDIAN, WITHIN = 8, 25
Key = tuple[int, int, int]
"""inter_op, intra_op, batch size."""


@dataclass(frozen=True)
class Recorded:
    """A recorded surface over a lattice: items/s by inter_op, intra_op and batch size."""

    name: str
    cores: int
    rates: Mapping[Key, float]

    @cached_property
    def space(self) -> Space:
        """Return the values that were recorded as a search space."""
        machine = replace(
            MADE_MACHINE,
            online_cpus=self.cores,
            logical_cpus=self.cores,
            physical_cores=self.cores,
            threads_per_core=1,
            sockets=1,
            numa_nodes={"0": f"0-{self.cores - 1}"},
            affinity=f"0-{self.cores - 1}",
        )
        sizes = self._values(2)
        own = sizes[len(sizes) // 2]
        knobs = dict(zip(("inter_op", "intra_op", "batch_size"), map(self._values, range(3)), strict=True))
        lines = ["schema = 1", *(f"[knobs.{name}]\nvalues = {list(values)}" for name, values in knobs.items())]
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("\n".join(lines))
            file.flush()
            read = read_space(file.name, machine, default_batch=own)
        build = replace(STOCK, cpus=self.cores, onednn_threads=self.cores)
        return resolve(read, machine=machine, build=build, workload=replace(load("resnet50"), batch_size=own))

    @property
    def best(self) -> float:
        """Return the rate of the optimum."""
        return max(map(self.rate, self.space.points))

    def rate(self, setting: Setting) -> float:
        """Return the recorded rate; a guide's value that was not recorded is the nearest that was."""
        values = setting.to_dict()
        wanted = (int(values["inter_op"]), int(values["intra_op"]), setting.batch_size)
        near = tuple(
            min(self._values(i), key=lambda value, i=i: abs(value - wanted[i]))
            for i in range(3)  # type: ignore[misc]
        )
        return self.rates[near]  # type: ignore[index]

    def _values(self, i: int) -> tuple[int, ...]:
        return tuple(sorted({key[i] for key in self.rates}))


def surfaces(folder: Path) -> list[Recorded]:
    """Return the recorded surfaces: complete lattices alone."""
    found = []
    rows = table(folder, "packrat_pytorch_c6420_granular")
    rows = rows[rows.topology == "sequential"]
    for model, own in rows.groupby("model"):
        latency_s = own.groupby(["intraop_threads", "batch_size"]).latency_s.median()
        rates = {(1, int(n), int(b)): int(b) / float(s) for (n, b), s in latency_s.items()}
        found.append(Recorded(name=f"{model}, threads x batch size, 16 cores", cores=16, rates=rates))
    rows = table(folder, "packrat_pytorch_skylake2x18_inter_by_intra")
    inter_ops = sorted(map(int, rows.interop_threads.unique()))
    latency_s = rows.groupby(["intraop_threads", "batch_size"]).latency_s.median()
    for size in sorted({int(b) for _, b in latency_s.index}):
        own = {(i, int(n), size): size / float(s) for (n, b), s in latency_s.items() if b == size for i in inter_ops}
        found.append(Recorded(name=f"resnet, inter_op x intra_op at {size}, 18 cores", cores=18, rates=own))
    return [each for each in found if len(each.rates) == np.prod([len(each._values(i)) for i in range(3)])]


def figures(folder: Path) -> Iterator[Figure]:
    """Yield trials to within 2 % of each searcher, on all surfaces together and of tftune on each."""
    recorded: list[Searched] = list(surfaces(folder))
    for name, searcher in SEARCHERS.items():
        if not usable(name):
            continue
        result = run(searcher, recorded, SEEDS)
        met = result.median <= MEDIAN and max(result.needed) <= WITHIN
        late = float(np.mean([n > WITHIN for n in result.needed]))
        yield Figure(
            f"{name}: trials to 2 % of the optimum on {len(recorded)} recorded surfaces, median; not within {WITHIN}",
            f"{result.median:g}; {100 * late:.0f} %",
            f"at most {MEDIAN}; never" if name == "tftune" else "",
            met or name != "tftune",
        )
    for each in recorded:
        result = run(SEARCHERS["tftune"], [each], SEEDS)
        what = f"{len(each.space.points)} settings, {each.name}"  # type: ignore[attr-defined]
        yield Figure(f"tftune alone, {what}: median; most", f"{result.median:g}; {max(result.needed)}")


if __name__ == "__main__":
    for figure in figures(Path(sys.argv[1])):
        print(figure.row(), flush=True)
