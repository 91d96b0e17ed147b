"""A prediction: throughput over a search space on a machine, and why it is so. Nothing of it is measured.

A search has what is expected of settings as its prior mean.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.machine.host import Machine
from tuner.model.configuration import EXECUTOR, MODELLED, Configuration, configuration_of
from tuner.model.hardware import Hardware
from tuner.model.predictor import Predictor, profiled
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.stats.estimate import Array
from tuner.study.lattice import thinned

MOST_SETTINGS = 20_000
_SEED = 0
_MANY = 64  # slots, where width is asked for
_NEAR = 0.02  # of the best: the simplest of those is named best
SD = 0.12
"""Standard deviation (log) of a predicted ratio to the default, and that of each doubling of an operator's threads
between the two, beyond what was profiled; that of each doubling of the processes is half of it. Chosen such that 90 %
intervals hold about nine tenths of what was measured on 2, 16 and 18 cores (`tests.benchmarks.strangers`)."""
T90 = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Settings, and the predicted items per second of them and of the baselines.

    The `best` is the simplest of those within 2 % of the fastest; `left_out` were more than are simulated.
    """

    settings: tuple[Setting, ...]
    rates: dict[Setting, float]
    ratio_sds: dict[Setting, float]
    """The standard deviation (log) of the ratio of each to the reference."""
    best: Setting
    reference: Setting
    baselines: dict[str, Setting]
    left_out: int
    ignored: tuple[str, ...]
    """Knobs of the space that are not modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """What bounds a step on a machine, as shares of 0 to 1, and how much of it could run at once."""

    width: float
    """Tasks that run on average where each has a thread and nothing limits them."""
    dispatch: float
    """Share of a step with one thread that the executor itself takes."""
    memory: float
    """Share of the operators' time in which data comes from memory, with one thread for each core."""
    efficiency: float
    """Of all cores, one operator at a time: how much of each does work."""


def predict(
    predictor: Predictor,
    space: Space,
    machine: Machine,
    hardware: Hardware,
    *,
    settings: Sequence[Setting] = (),
    most: int = MOST_SETTINGS,
) -> Predicted:
    """Return the predicted throughput of a space, or of some settings alone; the baselines are predicted beside them.

    Of more than `most` points a sample of that size is taken, the same each time; the groups of processes that the
    space names, and the baselines, are few, and always among them.
    """
    points, left_out = sampled(settings or space.points, most)
    baselines = dict(space.baselines) | {name: each for each, names in space.groups.items() for name in names}
    named = [] if settings else [*space.groups, *space.baselines.values()]
    recommended = [each for each in named if space.satisfies_pins(each)]
    chosen = distinct([*points, *recommended])
    of_reference = configuration_of(space.reference, machine, has_teams=predictor.has_teams)
    rates = {
        setting: rate_of(predictor, setting, machine, hardware)
        for setting in distinct([*chosen, space.reference, *baselines.values()])
    }
    return Predicted(
        settings=tuple(chosen),
        rates=rates,
        ratio_sds={
            each: 0.0 if each == space.reference else ratio_sd(predictor, each, of_reference, machine) for each in rates
        },
        best=best_of({setting: rates[setting] for setting in chosen}, space.reference),
        reference=space.reference,
        baselines=baselines,
        left_out=left_out,
        ignored=tuple(sorted(set(space.choices()) - MODELLED)),
    )


def sampled(points: Sequence[Setting], most: int = MOST_SETTINGS) -> tuple[Sequence[Setting], int]:
    """Return a sample of at most so many points, the same each time, and how many it leaves out."""
    left_out = max(0, len(points) - most)
    return (random.Random(_SEED).sample(points, most) if left_out else points), left_out


def best_of(rates: Mapping[Setting, float], reference: Setting) -> Setting:
    """Return the simplest of the settings within 2 % of the fastest."""
    least = max(rates.values()) / (1 + _NEAR)
    return min((each for each, rate in rates.items() if rate >= least), key=lambda each: _complexity(each, reference))


def rate_of(predictor: Predictor, setting: Setting, machine: Machine, hardware: Hardware) -> float:
    """Return the predicted items per second of a setting."""
    return predictor.items_per_s(configuration_of(setting, machine, has_teams=predictor.has_teams), hardware)


def ratio_sd(predictor: Predictor, setting: Setting, reference: Configuration, machine: Machine) -> float:
    """Return the standard deviation (log) of the predicted ratio of a setting to another one, the reference.

    Both have the errors in common that do not depend on how many threads an operator has.
    """
    own = configuration_of(setting, machine, has_teams=predictor.has_teams)
    processes = own.instances / reference.instances
    return log_sd(own.threads, reference.threads, known=predictor.most_threads, processes=processes)


def log_sd(threads: int, others: int, *, known: int, processes: float = 1.0) -> float:
    """Return the standard deviation (log) of the ratio of two settings by the threads of an operator in each.

    Up to `known` threads were profiled; `processes` is how many times as many processes the first has.
    """
    low, high = sorted(max(known, each) for each in (threads, others))
    return SD * math.hypot(1.0, math.log2(high / low), math.log2(processes) / 2)


def interval(ratio: float, sd: float) -> tuple[float, float]:
    """Return the 90 % interval of a predicted ratio whose logarithm has a standard deviation."""
    return ratio * math.exp(-T90 * sd), ratio * math.exp(T90 * sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRatio:
    """The log-ratio of the predicted throughput of settings to that of the reference; each is simulated once."""

    predictor: Predictor
    machine: Machine
    hardware: Hardware
    reference: Setting
    _rates: dict[Setting, float] = field(default_factory=dict, init=False)

    def __call__(self, settings: Sequence[Setting]) -> Array:
        """Return the log-ratios, shape (settings,)."""
        reference = self._rate(self.reference)
        return np.array([math.log(self._rate(setting) / reference) for setting in settings])

    def best(self, points: Sequence[Setting]) -> Setting:
        """Return the point that is predicted to be best, the simplest of those near it; of very many some are asked."""
        return best_of({points[i]: self._rate(points[i]) for i in thinned(len(points))}, self.reference)

    def _rate(self, setting: Setting) -> float:
        if setting not in self._rates:
            self._rates[setting] = rate_of(self.predictor, setting, self.machine, self.hardware)
        return self._rates[setting]


def reasons(predictor: Predictor, batch_size: int, hardware: Hardware) -> Reasons:
    """Return what bounds a step of so many items on a machine."""
    one = profiled(1, batch_size, predictor)
    one_s = predictor.step(one, hardware).makespan_s
    dispatch_s = predictor.dispatch_s * sum(predictor.tasks(batch_size).n_operators)
    endless = replace(hardware, cores=max(_MANY, hardware.cores), most_bytes_s=math.inf, quota=None)
    wide = replace(one, pools=replace(one.pools, inter_op=_MANY))
    unhindered = replace(predictor, terms=replace(predictor.terms, wake_s=0.0, hand_s=0.0))
    cores = min(hardware.cores, hardware.quota or math.inf)
    threads = max(1, math.ceil(cores))
    full = profiled(threads, batch_size, predictor)
    alone = predictor.alone(full, hardware, float(threads))
    full_s = predictor.step(full, hardware).makespan_s
    return Reasons(
        width=unhindered.step(wide, endless).mean_running,
        dispatch=dispatch_s / one_s,
        memory=float(alone.memory_s.sum() / max(1e-12, alone.time_s.sum())),
        efficiency=one_s / (max(1.0, cores) * full_s),
    )


def influential_knobs(predicted: Predicted) -> list[str]:
    """Return the knobs by how much the best rate that each of their values allows differs, the most first."""
    spans: dict[str, float] = {}
    values = [setting.to_dict() for setting in predicted.settings]
    for name in sorted({name for each in values for name in each} & MODELLED):
        best: dict[object, float] = {}
        for each, rate in zip(values, map(predicted.rates.__getitem__, predicted.settings), strict=True):
            key = each.get(name, 1)
            best[key] = max(rate, best.get(key, 0.0))
        spans[name] = math.log(max(best.values()) / min(best.values()))
    return sorted((name for name in spans if spans[name] > 0), key=lambda name: -spans[name])


def _complexity(setting: Setting, reference: Setting) -> tuple[int, int]:
    """Return how many knobs differ from the reference's, and how many threads there are: fewer are simpler."""
    own, default = setting.to_dict(), reference.to_dict()
    changed = sum(value != default.get(name, 1) for name, value in own.items())
    threads: Iterable[int] = (int(own.get(name, 1)) for name in (INSTANCES, EXECUTOR.slots, EXECUTOR.threads))
    return changed, math.prod(threads)
