"""Made studies of a known rule, in noise that was recorded on a real machine: what learning has to find again.

A study knows the baselines, Wang's setting and some settings more, as a search does: trials in pairs with the default,
then finals. A setting's true rate falls off around the optimum that the rule gives; its errors are stretches of a
recorded trace, so that drift and spikes are as they were.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from msgspec import to_builtins
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState, create_trial

from tests.benchmarks.replay import load
from tuner.frameworks.tensorflow.baselines import BASELINES, DEFAULT, WANG, wang_width
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.machine.host import Machine, host_of
from tuner.machine.topology import Cache
from tuner.measure.rounds import INCUMBENT, Contender, Round
from tuner.model.graph import Features
from tuner.paths import FILE_URL
from tuner.plain import to_plain
from tuner.rules.evidence import StudyEvidence, apply, of_processes
from tuner.rules.recipe import Recipe
from tuner.rules.situation import Literal, Situation
from tuner.rules.surface import FINALS, Measured, ResponseSurface
from tuner.space.deployment import Deployment
from tuner.space.groups import INSTANCES, groups
from tuner.space.setting import Setting, distinct
from tuner.space.term import COMPACT, EIGEN, OPENMP
from tuner.space.values import Value
from tuner.stats.estimate import Array
from tuner.stats.moderation import moderated_estimate
from tuner.stats.noise import Noise
from tuner.study.attributes import stored_noise
from tuner.study.record import SCHEMA
from tuner.study.storage import open_storage
from tuner.study.subject import BaselineFacts, KnobFacts, Subject, WorkloadFacts
from tuner.study.trials import GROUP
from tuner.trial.outcome import Slice
from tuner.workload.workload import Execution

TRACE = "resnet50-stock"
BLOCKS, ROUNDS, SLICES = 5, 5, 4
BLOCK_SD, PROCESS_SD = 0.03, 0.006  # what is told of the noise; the errors themselves are the trace's
ONE_THREAD = Recipe.of({"inter_op": "1", "intra_op": "1"})
ONE_POOL = Recipe.of({"inter_op": "1", "intra_op": "cores"})
BY_WIDTH = Recipe.of({"inter_op": "width", "intra_op": "cores/inter_op"})

Several = Callable[[Situation, int], float]
"""Gives the true log-ratio of so many processes to the default."""

_LEAST_MFLOPS, _MOST_MFLOPS = 0.01, 2000.0  # of a step's operators

_trace = cache(load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Below the threshold of a feature one recipe is best, from there on another; `height` is what it matters."""

    feature: str = "mflops_operator"
    threshold: float = 4.0
    below: Recipe = ONE_THREAD
    above: Recipe = ONE_POOL
    height: float = 0.15

    def recipe(self, situation: Situation) -> Recipe:
        """Return what is best in a situation."""
        literal = Literal(self.feature, self.threshold, True)
        return self.below if literal.holds(situation.values()) else self.above


NOTHING = Truth(height=0.0)
"""No setting is better than another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedStudy:
    """A made study: what was measured in it, and what is true."""

    situation: Situation
    default: Setting
    baselines: dict[str, Setting]
    compact: Value | None
    trials: list[tuple[Setting, float, float]]
    contenders: list[Setting]
    finals: Array
    """Mean log rates, shape (rounds, contenders); the default is the first."""
    process_sd: float
    several: list[tuple[Setting, float, float]] = field(default_factory=list)
    """The trials of several processes."""


def make(
    rng: np.random.Generator,
    *,
    truth: Truth,
    workloads: int = 30,
    cores: Sequence[int] = (8, 16),
    pools: Sequence[str] = (EIGEN,),
    extra: int = 8,
    several: Several | None = None,
) -> Iterator[PlantedStudy]:
    """Yield a study of each workload on each machine in each build.

    It has trials of several processes where `several` says what these gain.
    """
    # As a suite would: workloads of every size, each somewhere in its own part of the range.
    sizes = rng.permutation((np.arange(workloads) + rng.random(workloads)) / workloads)
    for number in range(workloads):
        batch = int(2 ** rng.integers(0, 8))
        graph = _graph(rng, batch, sizes[number])
        for n in cores:
            for pool in pools:
                situation = Situation(
                    workload=f"made{number}",
                    mode="inference",
                    batch_size=batch,
                    features=graph,
                    machine=_machine(n),
                    pool=pool,
                    onednn=True,
                )
                yield _study(rng, situation, truth, extra, several)


def studies(planted: Sequence[PlantedStudy]) -> list[StudyEvidence]:
    """Return what `tuner.rules.evidence` would read of them from a storage."""
    return [_as_study(number, each) for number, each in enumerate(planted)]


def _graph(rng: np.random.Generator, batch: int, size: float) -> Features:
    """Return features as far apart as those of the shipped workloads; `size` in [0, 1) is of a step's operators."""
    depth = int(math.exp(rng.uniform(math.log(10), math.log(1000))))
    heavy = max(1, depth // 5)
    layers = max(1, int(heavy / math.exp(rng.uniform(0, math.log(8)))))
    flops = max(1, int(_LEAST_MFLOPS * (_MOST_MFLOPS / _LEAST_MFLOPS) ** size * 1e6 * depth / batch))
    moved = int(flops / math.exp(rng.uniform(math.log(0.5), math.log(50))))
    return Features(
        operators={"Conv2D": heavy, "Relu": depth - heavy},
        heavy_operators=heavy,
        layers=layers,
        width=heavy / layers,
        depth=depth,
        flops=flops,
        moved_bytes=moved,
        parameters=1000,
        parameter_bytes=4000,
        known=True,
    )


def _machine(cores: int) -> Machine:
    return Machine(
        id=f"made{cores}",
        cpu_model="Made CPU",
        architecture="x86_64",
        online_cpus=cores,
        logical_cpus=cores,
        physical_cores=cores,
        threads_per_core=1,
        sockets=1,
        numa_nodes={"0": f"0-{cores - 1}"},
        affinity=f"0-{cores - 1}",
        cpu_quota=None,
        memory_bytes=64 << 30,
        memory_limit_bytes=None,
        caches=[Cache(name="L3", size_bytes=32 << 20, n_instances=1)],
        cores=[str(core) for core in range(cores)],
    )


def _study(
    rng: np.random.Generator, situation: Situation, truth: Truth, extra: int, several: Several | None
) -> PlantedStudy:
    n = situation.machine.logical_cpus
    openmp = situation.pool == OPENMP
    values: dict[str, Value] = {"inter_op": n, "intra_op": n, "batch_size": situation.batch_size}
    if openmp:
        values |= {"inter_op": 2, "omp_num_threads": n, "kmp_affinity": "none", "kmp_blocktime": 200}
    default = Setting.of(values)
    compact = "granularity=fine,compact,1,0" if openmp else None
    baseline_settings = {
        each.name: apply(default, each.rule(situation.machine), None) for each in BASELINES if not each.needs
    }
    wang = wang_width(situation.machine, situation.features.width) | {"kmp_affinity": COMPACT}
    best = apply(default, truth.recipe(situation).values(situation.scale), compact)
    trials: list[tuple[Setting, float, float]] = []

    def measure(setting: Setting) -> None:
        trials.append((setting, *_trial(rng, _gain(setting, best, default, truth))))

    for setting in distinct([*baseline_settings.values(), apply(default, wang, compact)]):
        measure(setting)
    for _ in range(extra):
        measure(_suggest(default, trials))
    incumbent = max(trials, key=lambda each: each[1])[0]
    contenders = distinct([default, incumbent, *baseline_settings.values()])
    finals = np.array([_round(rng, [_gain(c, best, default, truth) for c in contenders]) for _ in range(ROUNDS)])
    return PlantedStudy(
        situation=situation,
        default=default,
        baselines=baseline_settings,
        compact=compact,
        trials=trials,
        contenders=contenders,
        finals=finals,
        process_sd=PROCESS_SD,
        several=[
            (group, *_trial(rng, several(situation, int(group[INSTANCES])))) for group in groups_of(situation, default)
        ]
        if several is not None
        else [],
    )


def groups_of(situation: Situation, default: Setting) -> list[Setting]:
    """Return the settings of several processes at the workload's own batch size."""
    knobs = {name: (value,) for name, value in default.items}
    return list(groups(FRAMEWORK.catalogue, knobs, default, situation.machine, {}))


def _suggest(default: Setting, trials: Sequence[tuple[Setting, float, float]]) -> Setting:
    """Return what a search would try next: of the powers of two, what may be best for all that is known."""
    powers = [2**i for i in range(int(default["intra_op"]).bit_length())]
    knobs = [knob for knob in ("inter_op", "intra_op", "omp_num_threads") if knob in default.to_dict()]
    tried = {setting for setting, *_ in trials}
    points = [
        default.with_values(**dict(zip(knobs, values, strict=True)))
        for values in itertools.product(powers, repeat=len(knobs))
    ]
    points = [point for point in points if point not in tried] or [default]
    measured = [Measured(setting=s, log_ratio=mean, variance=se**2 + PROCESS_SD**2) for s, mean, se in trials]
    mean, sd = ResponseSurface(default, measured).gains(points)
    return points[int(np.argmax(mean + sd))]


def _gain(setting: Setting, best: Setting, default: Setting, truth: Truth) -> float:
    """Return the true log-ratio of a setting to the default: a hill of some height around the best."""

    def below(other: Setting) -> float:
        knobs = ("inter_op", "intra_op", "omp_num_threads")
        baseline_settings, top = other.to_dict(), best.to_dict()
        far = sum(
            (math.log2(int(baseline_settings[k])) - math.log2(int(top[k]))) ** 2
            for k in knobs
            if k in baseline_settings
        )
        return truth.height * -math.expm1(-far / 4)

    return below(default) - below(setting)


def _common_noise(rng: np.random.Generator, n: int) -> Array:
    """Return `n` slices of the trace that follow each other, log scale."""
    w = _trace(TRACE).w
    return w[(int(rng.integers(len(w))) + np.arange(n)) % len(w)]


def _process_effect(rng: np.random.Generator) -> float:
    return float(rng.choice(_trace(TRACE).process_effects))


def _trial(rng: np.random.Generator, gain: float) -> tuple[float, float]:
    """Return the log-ratio of a pair in blocks ABBA and BAAB, and its standard error."""
    w = _common_noise(rng, 4 * BLOCKS).reshape(BLOCKS, 4)
    sign = np.where(np.arange(BLOCKS) % 2, -1, 1)
    x = sign * (w[:, 1] + w[:, 2] - w[:, 0] - w[:, 3]) / 2
    estimate = moderated_estimate(x + gain + _process_effect(rng) - _process_effect(rng), prior_sd=BLOCK_SD, prior_df=4)
    return estimate.mean, estimate.se


def _round(rng: np.random.Generator, gains: Sequence[float]) -> list[float]:
    """Return the mean log rate of each contender in a round of finals: slices there and back, in random order."""
    n = len(gains)
    order = rng.permutation(n)
    w = _common_noise(rng, SLICES * n)
    one_pass = np.concatenate([order, order[::-1]])
    at = np.concatenate([one_pass] * (SLICES // 2))
    return [gains[i] + float(w[at == i].mean()) + _process_effect(rng) for i in range(n)]


def _as_study(number: int, planted: PlantedStudy) -> StudyEvidence:
    measured = [
        Measured(setting=s, log_ratio=mean, variance=se**2 + planted.process_sd**2) for s, mean, se in planted.trials
    ]
    # A contender's difference to the default scatters by √2 of what the residuals of all contenders do.
    residual = (
        planted.finals
        - planted.finals.mean(axis=0)
        - planted.finals.mean(axis=1, keepdims=True)
        + planted.finals.mean()
    )
    scatter = math.sqrt(2 * float((residual**2).sum()) / max((len(residual) - 1) * (residual.shape[1] - 1), 1))
    for j, setting in enumerate(planted.contenders[1:], start=1):
        estimate = moderated_estimate(planted.finals[:, j] - planted.finals[:, 0], prior_sd=scatter, prior_df=8)
        half = estimate.se**2 / 2
        measured.append(
            Measured(setting=setting, log_ratio=estimate.mean, variance=half, shared=half, reference=FINALS)
        )
    situation = planted.situation
    wang = wang_width(situation.machine, situation.features.width) | {"kmp_affinity": COMPACT}
    study = StudyEvidence(
        name=f"made-{number}",
        created=f"2026-11-{1 + number % 28:02d}T00:00:00+00:00",
        host=host_of(situation.machine),
        shape_id=situation.machine.id,
        runtime="2.21.0",
        situation=situation,
        default=planted.default,
        baselines=planted.baselines | {WANG: apply(planted.default, wang, planted.compact)},
        compact=planted.compact,
        batches=(situation.batch_size,),
        covers_threads=True,
        surface=ResponseSurface(planted.default, measured),
    )
    several = [
        Measured(setting=s, log_ratio=mean, variance=se**2 + planted.process_sd**2) for s, mean, se in planted.several
    ]
    processes, latency = (of_processes(study, planted.default, several, same_latency=each) for each in (False, True))
    return replace(study, processes=processes, latency=latency)


def write(planted: Sequence[PlantedStudy], storage: optuna.storages.BaseStorage) -> None:
    """Write the studies as a search would have left them, but for what learning does not read."""
    for number, each in enumerate(planted):
        study = optuna.create_study(study_name=f"made-{number}", storage=storage, direction="maximize")
        for key, value in attributes(number, each).items():
            study.set_user_attr(key, value)
        study.add_trials([_stored(each, *trial) for trial in [*each.trials, *each.several]])


def _stored(planted: PlantedStudy, setting: Setting, mean: float, se: float) -> optuna.trial.FrozenTrial:
    """Return a trial as a storage has it; if it is of several processes, as a group's trial."""
    known = [each.to_dict() for each, *_ in [*planted.trials, *planted.several]]
    values = {knob: sorted({each[knob] for each in known if knob in each}, key=str) for knob, _ in setting.items}
    return create_trial(
        state=TrialState.COMPLETE,
        value=mean,
        params=setting.to_dict(),
        distributions={knob: CategoricalDistribution(choices) for knob, choices in values.items()},
        user_attrs={
            "setting": setting.to_dict(),
            "log_ratio": mean,
            "se": se,
            "df": 8.0,
            "reference": 1,
            "wall_s": 10.0,
            **dict.fromkeys(("alone", "over_limit", "pruned"), False),
            **dict.fromkeys(("eligible", "steady"), True),
            "status": "ok",
        }
        | ({GROUP: True} if INSTANCES in setting.to_dict() else {}),
    )


def attributes(number: int, planted: PlantedStudy) -> dict[str, object]:
    situation = planted.situation
    contenders = [
        Contender(names=_names(setting, planted, first=i == 1), setting=setting, deployment=Deployment())
        for i, setting in enumerate(planted.contenders)
    ]
    rounds = [
        Round(slices={c.names[0]: [_slice(planted, y)] for c, y in zip(contenders, row, strict=True)})
        for row in planted.finals
    ]
    return {
        "schema": SCHEMA,
        "objective": "throughput",
        "seed": 0,
        "created": f"2026-11-{1 + number % 28:02d}T00:00:00+00:00",
        "updated": f"2026-11-{1 + number % 28:02d}T00:05:00+00:00",
        "noise": stored_noise(
            Noise(block_sd=BLOCK_SD, process_sd=planted.process_sd, drift=0.0, n_pairs=3, n_blocks=6)
        ),
        "features": to_builtins(situation.features),
        "described": to_builtins(_subject(planted)),
        "finals": {
            "contenders": to_plain(contenders),
            "rounds": to_plain(rounds),
            "margin": 0.02,
            "levels": {c.names[0]: 0.95 for c in contenders},
            "ended": "rounds",
        },
    }


def _subject(planted: PlantedStudy) -> Subject:
    """Return what a made study is of."""
    situation = planted.situation
    return Subject(
        machine=situation.machine,
        runtime={
            "id": situation.pool,
            "tensorflow": "2.21.0",
            "onednn_runtime": "openmp" if situation.pool == OPENMP else "threadpool",
            "onednn_enabled": situation.onednn,
            "onednn_why": "made",
            "onednn": "3.7.3",
            "python": "3.12.0",
            "xla": True,
            "cuda": None,
            "openmp_libraries": [],
        },
        workload=WorkloadFacts(
            name=situation.workload,
            kind="python",
            mode=situation.mode,
            execution=Execution.GRAPH,
            params={},
            fingerprint=situation.workload,
            description="",
            item="item",
            batch_size=situation.batch_size,
        ),
        space="made",
        points=len(planted.trials),
        knobs={
            knob: KnobFacts(active=True, values=_domain(knob, value, planted), variable=None, meaning=knob)
            for knob, value in planted.default.items
        },
        default=DEFAULT,
        baselines={
            name: BaselineFacts(setting=setting.to_dict(), same_as=(), source="made")
            for name, setting in planted.baselines.items()
        },
    )


def _domain(knob: str, value: Value, planted: PlantedStudy) -> tuple[Value, ...]:
    """Return what the space of the study had for a knob."""
    pool = knob in ("inter_op", "intra_op", "omp_num_threads")
    return (1, planted.situation.machine.usable_cores) if pool else (value,)


def _names(setting: Setting, planted: PlantedStudy, *, first: bool) -> tuple[str, ...]:
    """Return the names of a contender of the finals; the incumbent stands second."""
    baseline_settings = tuple(name for name, other in planted.baselines.items() if other == setting)
    return ((INCUMBENT,) if first or len(planted.contenders) == 1 else ()) + baseline_settings


def _slice(planted: PlantedStudy, log_rate: float) -> Slice:
    elapsed_s = planted.situation.batch_size / math.exp(log_rate)
    return Slice(start_s=0.0, elapsed_s=elapsed_s, n_steps=1, step_s=(elapsed_s,))


def studies_in(url: str, *, seed: int = 3, workloads: int = 24, **options: Any) -> optuna.storages.BaseStorage:
    """Return a storage with made studies in it, a new file; the same ones are written once for a process."""
    key, file = (seed, workloads, *sorted(options.items())), Path(url.removeprefix(FILE_URL))
    assert not file.exists()
    if key not in _written:
        storage = open_storage(url, create=True)
        assert isinstance(storage, optuna.storages.RDBStorage)
        write(list(make(np.random.default_rng(seed), truth=Truth(), workloads=workloads, **options)), storage)
        storage.engine.dispose()
        _written[key] = file.read_bytes()
    file.write_bytes(_written[key])
    storage = open_storage(url, create=True)
    assert storage is not None
    return storage


_written: dict[tuple[object, ...], bytes] = {}
