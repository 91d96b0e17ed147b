"""Does a model of the machine help a search? Trials until the optimum, with a model, without, and with a wrong one.

    python -m tests.benchmarks.priors               the table
    python -m tests.benchmarks.priors --each        the trials of each surface too

The surfaces are simulations of the workloads that were captured in results/predictions, on machines of 8 to 128 cores,
whose parameters are not the model's own: each coefficient of each operator and each constant of the machine is up to
30 % off, and of every third surface a term is switched off. The model is the simulation with the parameters as they are
known; wrong ones are that of another workload on the same machine, and the right one turned around. Everything else is
as in `tests.benchmarks.searchers`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property

import numpy as np
import optuna

from tests.benchmarks.figures import Figure
from tests.benchmarks.predictions import predictor
from tests.benchmarks.searchers import Prior, needed
from tests.benchmarks.surfaces import OPENMP, STOCK
from tests.frameworks import STOCK as STOCK_BUILD
from tests.frameworks import read_space, resolve
from tuner.machine.host import Machine
from tuner.machine.spec import parse_spec
from tuner.model.hardware import Hardware, Terms, hardware_of
from tuner.model.prediction import PredictedRatio, rate_of
from tuner.model.predictor import Predictor
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.estimate import Array
from tuner.workload.workload import load

WORKLOADS = ("resnet50", "lenet5", "inceptionv3", "densenet201", "vgg19")
MACHINES = {
    STOCK: ("cores=8,smt=2", "cores=16", "sockets=2,cores=28,smt=2", "sockets=2,cores=64"),
    OPENMP: ("cores=8,smt=2", "cores=12", "cores=16", "sockets=2,cores=12"),
}
OFF = 0.3
MOST, ENOUGH = 8, 20
"""The median of trials, and what 95 % of the searches need at most."""
MORE = 3
"""Trials that a wrong model may cost in the median."""
_TERM = 3  # of so many surfaces one has a term switched off
_SWITCHES = ("fork", "dispatch", "serial", "bandwidth", "cache")


@dataclass(frozen=True)
class ModelSurface:
    """A workload on a machine, whose true parameters are near to those of the model."""

    number: int
    workload: str
    spec: str
    build: str

    @property
    def name(self) -> str:
        """Return what it is of."""
        return f"{self.workload}, {self.spec}, {'OpenMP' if self.build == OPENMP else 'stock'}"

    @cached_property
    def machine(self) -> Machine:
        """Return the machine."""
        return parse_spec(self.spec).machine()

    @cached_property
    def space(self) -> Space:
        """Return the shipped space `cpu` on its machine; of OpenMP's with one batch size."""
        machine = self.machine
        workload = load(self.workload)
        build = replace(
            STOCK_BUILD,
            onednn_runtime=self.build,
            onednn_enabled=True,
            onednn_threads=machine.physical_cores,
            cpus=machine.logical_cpus,
        )
        batch_sizes = [workload.batch_size] if self.build == OPENMP else None
        return resolve(
            read_space("cpu", machine, default_batch=workload.batch_size),
            machine=machine,
            build=build,
            workload=workload,
            batch_sizes=batch_sizes,
        )

    def model(self, workload: str | None = None) -> PredictedRatio:
        """Return what the model expects of this workload, or of another."""
        own, hardware = self._known(workload or self.workload)
        return PredictedRatio(predictor=own, machine=self.machine, hardware=hardware, reference=self.space.reference)

    def _known(self, workload: str) -> tuple[Predictor, Hardware]:
        known, capture = predictor(workload)
        hardware = hardware_of(self.machine, capture.bytes_s, is_here=False)
        return replace(known, has_teams=self.build == OPENMP), hardware

    @cached_property
    def _truth(self) -> tuple[Predictor, Hardware]:
        """Return the simulation with parameters that are off."""
        rng = np.random.default_rng([22, self.number])
        known, hardware = self._known(self.workload)

        def off(n: int = 1) -> np.ndarray:
            return np.asarray(1 + OFF * (2 * rng.random(n) - 1))

        n, costs = len(known.costs.runs), known.costs
        # What is off for all operators is not evened out by their number.
        terms = Terms(**{each.name: getattr(costs.terms, each.name) * float(off()[0]) for each in fields(Terms)})
        costs = replace(
            costs,
            fixed_s=costs.fixed_s * off(n) * off(),
            per_item_s=costs.per_item_s * off(n) * off(),
            serial=np.minimum(1.0, costs.serial * off(n) * off()),
            fixed_bytes=costs.fixed_bytes * off(n) * off(),
            bytes_per_item=costs.bytes_per_item * off(n) * off(),
            fork_s=costs.fork_s * float(off()[0]),
            terms=terms,
        )
        dispatch_s = known.dispatch_s * float(off()[0])
        hardware = replace(
            hardware,
            one_bytes_s=hardware.one_bytes_s * float(off()[0]),
            most_bytes_s=hardware.most_bytes_s * float(off()[0]),
            cache_bytes=hardware.cache_bytes * float(off()[0]),
        )
        if self.number % _TERM == 0:
            switch = _SWITCHES[(self.number // _TERM) % len(_SWITCHES)]
            if switch == "fork":
                costs = replace(costs, fork_s=0.0)
            elif switch == "dispatch":
                dispatch_s = 0.0
            elif switch == "serial":
                costs = replace(costs, serial=np.zeros(n))
            elif switch == "bandwidth":
                hardware = replace(hardware, most_bytes_s=hardware.one_bytes_s * hardware.cpus)
            else:
                hardware = replace(hardware, cache_bytes=1.0)
        return replace(known, costs=costs, dispatch_s=dispatch_s, terms=terms), hardware

    @cached_property
    def best(self) -> float:
        """Return the rate of the optimum."""
        return max(map(self.rate, [*self.space.points, *self.space.baselines.values()]))

    def rate(self, setting: Setting) -> float:
        """Return the true rate of a setting."""
        known, hardware = self._truth
        return rate_of(known, setting, self.machine, hardware)


@cache
def surfaces() -> tuple[ModelSurface, ...]:
    """Return all of them."""
    kinds = [(w, spec, build) for build, specs in MACHINES.items() for spec in specs for w in WORKLOADS]
    return tuple(
        ModelSurface(number=number, workload=workload, spec=spec, build=build)
        for number, (workload, spec, build) in enumerate(kinds)
    )


def other(workload: str) -> str:
    """Return the workload whose model is the wrong one."""
    return WORKLOADS[(WORKLOADS.index(workload) + 1) % len(WORKLOADS)]


KINDS = ("without", "with", "of another workload", "turned around")


@dataclass(frozen=True, slots=True)
class Reversed:
    """A model that expects of each setting the opposite of what the right one does."""

    model: PredictedRatio

    def __call__(self, settings: Sequence[Setting]) -> Array:
        """Return the log-ratios, shape (settings,)."""
        return -self.model(settings)

    def best(self, points: Sequence[Setting]) -> Setting:
        """Return what it takes to be best."""
        return points[int(np.argmax(self(points)))]


def results(*, each: bool = False) -> dict[str, list[int]]:
    """Return the trials that all searches needed, by kind; those of each surface are printed too, where asked."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    counts: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for surface in surfaces():
        own = surface.model()
        models: dict[str, Prior | None] = {
            "without": None,
            "with": own,
            "of another workload": surface.model(other(surface.workload)),
            "turned around": Reversed(own),
        }
        for kind, model in models.items():
            counts[kind].append(needed(surface, 1000 * surface.number, model))
        if each:
            gain = surface.best / surface.rate(surface.space.reference)
            trials = ", ".join(f"{kind} {own[-1]}" for kind, own in counts.items())
            print(f"{surface.name}: {len(surface.space.points)} settings, best {gain:.2f}x; {trials}", flush=True)
    return counts


def priors() -> Iterator[Figure]:
    """A search with a model, without, and with wrong ones."""
    counts = results()
    medians = {kind: float(np.median(own)) for kind, own in counts.items()}
    without, n = counts["without"], len(surfaces())
    yield Figure(f"trials to 2 % of the optimum, no model: median of {n} surfaces", f"{medians['without']:g}")
    saved = np.array(without) - np.array(counts["with"])
    share = float(np.mean([needed <= ENOUGH for needed in counts["with"]]))
    met = medians["with"] <= MOST and share >= 0.95
    text = f"{medians['with']:g}, within {ENOUGH} trials {100 * share:.0f} %"
    yield Figure("with a model of the machine", text, f"at most {MOST}, at least 95 %", met)
    text = f"{saved.mean():.1f} in the mean; fewer in {(saved > 0).sum()}, more in {(saved < 0).sum()} of {n}"
    yield Figure("trials that it saves", text, "more than 0", bool(saved.mean() > 0))
    for kind in KINDS[2:]:
        more = medians[kind] - medians["without"]
        most = int(max(np.array(counts[kind]) - np.array(without)))
        yield Figure(
            f"a model that is wrong, {kind}: more trials in the median (at most)",
            f"{more:g} ({most})",
            f"at most {MORE}",
            more <= MORE,
        )


def main(words: Sequence[str]) -> None:
    """Print the table."""
    began_s = time.monotonic()
    counts = results(each="--each" in words)
    print("| model | median | 95 % | within 20 | never in 40 |\n| --- | --- | --- | --- | --- |")
    for kind, own in counts.items():
        most = np.quantile(own, 0.95, method="inverted_cdf")
        within, never = np.mean([n <= ENOUGH for n in own]), np.mean([n > 40 for n in own])
        print(f"| {kind} | {np.median(own):g} | {most:g} | {100 * within:.0f} % | {100 * never:.0f} % |")
    print(f"{time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
