"""Does a model of the machine help a search where the truth is not of the model's form?

    python -m tests.benchmarks.misfits

Two kinds of surfaces: the grids that were measured for `tests.benchmarks.predictions`, with the predictions for that
workload; and the made surfaces of `tests.benchmarks.surfaces`, whose equations are others, with the predictions for a
workload of a like graph on a machine of the same size: a chain for the narrow ones, Inception-v3 for the wide ones. How
trials are counted is in `tests.benchmarks.searchers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import optuna

from tests.benchmarks.figures import Figure
from tests.benchmarks.grids import OPENMP as OPENMP_SUFFIX
from tests.benchmarks.grids import TRAINING, Measured
from tests.benchmarks.predictions import beside, measured_names, predictor
from tests.benchmarks.searchers import Prior, Searched, needed
from tests.benchmarks.surfaces import HELD_BACK, OPENMP, WIDE, Surface
from tests.frameworks import STOCK as STOCK_BUILD
from tests.frameworks import read_space, resolve
from tuner.model.hardware import hardware_of
from tuner.model.prediction import PredictedRatio
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.workload.workload import load

NARROW_MODEL, WIDE_MODEL = "resnet50", "inceptionv3"
_SEED = 2200


@dataclass(frozen=True)
class MeasuredSurface:
    """The grid of a workload on all CPUs, as it was measured."""

    name: str
    grid: Sequence[Measured]

    @cached_property
    def space(self) -> Space:
        """Return the shipped space `cpu`, with the batch sizes of the grid."""
        machine, workload = self.grid[0].machine, load(self.name)
        return resolve(
            read_space("cpu", machine, default_batch=workload.batch_size),
            machine=machine,
            build=replace(STOCK_BUILD, cpus=machine.logical_cpus),
            workload=workload,
            batch_sizes=sorted({each.setting.batch_size for each in self.grid}),
        )

    @cached_property
    def _rates(self) -> dict[tuple[object, ...], float]:
        return {_key(each.setting): each.items_per_s for each in self.grid}

    @property
    def best(self) -> float:
        """Return the rate of the optimum."""
        return max(self._rates.values())

    def rate(self, setting: Setting) -> float:
        """Return the rate of a setting."""
        return self._rates[_key(setting)]

    def model(self) -> PredictedRatio:
        """Return what is predicted of this workload."""
        own, capture = predictor(self.name)
        machine = self.grid[0].machine
        hardware = hardware_of(machine, capture.bytes_s, is_here=True, busy_loss=capture.busy_loss)
        return PredictedRatio(predictor=own, machine=machine, hardware=hardware, reference=self.space.reference)


def _key(setting: Setting) -> tuple[object, ...]:
    values = setting.to_dict()
    return values["inter_op"], values["intra_op"], setting.batch_size


def measured_surfaces() -> list[MeasuredSurface]:
    """Return the grids of the stock build whose reference was measured too."""
    names = [name for name in measured_names() if not name.endswith((OPENMP_SUFFIX, TRAINING))]
    grids = {name: [each for own, _ in beside(name) for each in own] for name in names}
    return [MeasuredSurface(name, [each for each in grid if each.shape == "all"]) for name, grid in grids.items()]


def like(surface: Surface) -> PredictedRatio:
    """Return what is predicted of a workload with a graph like that of a made surface, on its machine."""
    known, capture = predictor(WIDE_MODEL if WIDE in surface.name else NARROW_MODEL)
    machine = surface.host.machine()
    hardware = hardware_of(machine, capture.bytes_s, is_here=False)
    own = replace(known, has_teams=surface.build == OPENMP)
    return PredictedRatio(predictor=own, machine=machine, hardware=hardware, reference=surface.space.reference)


def misfits() -> Iterator[Figure]:
    """A search with a model and without, where the truth is not of its form."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kinds: dict[str, list[tuple[Searched, Prior]]] = {
        "measured grids on two CPUs": [(each, each.model()) for each in measured_surfaces()],
        "made surfaces of 6 to 128 cores": [(each, like(each)) for each in HELD_BACK],
    }
    for kind, pairs in kinds.items():
        without = [needed(surface, _SEED + number) for number, (surface, _) in enumerate(pairs)]
        with_model = [needed(surface, _SEED + number, model) for number, (surface, model) in enumerate(pairs)]
        more = float(np.median(with_model) - np.median(without))
        yield Figure(
            f"{len(pairs)} {kind}: trials to 2 % of the optimum with a model, median (without)",
            f"{np.median(with_model):g} ({np.median(without):g}); "
            f"never in 40: {sum(n > 40 for n in with_model)} ({sum(n > 40 for n in without)})",
            "no more than 3 above",
            more <= 3,
        )


if __name__ == "__main__":
    for figure in misfits():
        print(figure.row(), flush=True)
