"""Compare searchers on made surfaces: how many trials until what is believed to be best is within 2 % of the optimum?

    python -m tests.benchmarks.searchers                   all searchers, all surfaces
    python -m tests.benchmarks.searchers tftune random     only these searchers

The baselines come first for every searcher, and count as trials. What is believed is the argmax of the posterior mean
over the tried settings for tftune's sampler, and the best observation for the others. Observations of equal seeds and
numbers have equal noise, whoever asks. A search that does not get there in 40 trials counts as 41.

Optuna's samplers and Nelder-Mead see each numeric knob as the index of its values, as is usual for them; a point that a
constraint rules out becomes the nearest one of the lattice. Optuna's Gaussian process needs PyTorch, and is left out
where that is not installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import optuna
from optuna.trial import TrialState, create_trial
from scipy.optimize import minimize

from tests.benchmarks.figures import Figure
from tests.benchmarks.surfaces import HELD_BACK, NOISE_SD, TUNED_ON
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.frameworks.tensorflow.knobs import KNOBS
from tuner.space.setting import Setting, distinct
from tuner.space.space import Space
from tuner.stats.estimate import Array
from tuner.stats.noise import Noise
from tuner.study.attributes import stored_noise
from tuner.study.history import incumbent
from tuner.study.record import distributions, trials_of
from tuner.study.sampler import LatticeSampler
from tuner.study.surrogate import posterior_means

MOST_TRIALS = 40
NEAR = 0.98
SEEDS = (0, 1)
_NOISE = Noise(block_sd=NOISE_SD, process_sd=0.0, drift=0.0, n_pairs=3, n_blocks=12)
"""What the study is told: there is no variance between processes here."""


class Spent(Exception):  # noqa: N818  # it is no error
    """The search may try no more, or need not."""


class Searched(Protocol):
    """A surface whose optimum is known."""

    @property
    def space(self) -> Space:
        """Return what is searched."""

    @property
    def best(self) -> float:
        """Return the rate of the optimum."""

    def rate(self, setting: Setting) -> float:
        """Return the true rate of a setting."""


class Trials:
    """The trials of one search: observes settings, until it is near the optimum or has had its 40."""

    def __init__(self, surface: Searched, seed: int) -> None:
        self.surface = surface
        self.n = 0
        self.observed: dict[Setting, float] = {}
        """The mean log-ratio to the default of each setting, in the order of the trials."""
        self.found_at = MOST_TRIALS + 1
        self._rng = np.random.default_rng([seed, 2])
        self._default = surface.rate(surface.space.reference)

    @property
    def baselines(self) -> list[Setting]:
        """Return what is tried first."""
        return distinct(self.surface.space.baselines.values())

    def observe(self, setting: Setting, *, judged: bool = True) -> float:
        """Try a setting; raises Spent where that ends the search. A setting that comes again costs nothing."""
        if setting in self.observed:
            return self.observed[setting]
        if self.n >= MOST_TRIALS:
            raise Spent
        self.n += 1
        gain = math.log(self.surface.rate(setting) / self._default)
        self.observed[setting] = gain + NOISE_SD * float(self._rng.standard_normal())
        if judged:
            self.judge(max(self.observed, key=lambda s: self.observed[s]))
        return self.observed[setting]

    def judge(self, best: Setting) -> None:
        """End the search if what is believed to be best is near the optimum."""
        if self.surface.rate(best) >= NEAR * self.surface.best:
            self.found_at = self.n
            raise Spent


class Prior(Protocol):
    """What is expected before anything is measured, as `tuner.model.prediction` has it."""

    def __call__(self, settings: Sequence[Setting]) -> Array:
        """Return log-ratios to the reference, shape (settings,)."""

    def best(self, points: Sequence[Setting]) -> Setting:
        """Return the point that is expected to be best."""


Searcher = Callable[[Trials, int], None]
"""Tries settings until Spent is raised."""


def tftune(trials: Trials, seed: int, prior_mean: Prior | None = None) -> None:
    """The program's own sampler."""
    space = trials.surface.space
    design = FRAMEWORK.initial_design(space)
    if prior_mean is not None:
        design = [prior_mean.best(space.points), *design]
    sampler = LatticeSampler(space, seed=seed, initial_design=design, prior_mean=prior_mean)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.set_user_attr("noise", stored_noise(_NOISE))
    while (proposal := sampler.propose(study)) is not None:
        gain = trials.observe(proposal.setting, judged=False)
        study.add_trial(observed(space, proposal.setting, gain))
        done = trials_of(study)
        means = posterior_means(done, space.choices(), process_sd=_NOISE.process_sd, additive=space.additive())
        best = incumbent(done, means)
        assert best is not None
        trials.judge(best.setting)


def needed(surface: Searched, seed: int, model: Prior | None = None) -> int:
    """Return the trials that the program's sampler needs with a model, or without."""
    trials = Trials(surface, seed)
    with contextlib.suppress(Spent):
        tftune(trials, 0, model)
    return trials.found_at


def observed(space: Space, setting: Setting, gain: float) -> optuna.trial.FrozenTrial:
    """Return a trial that has measured a setting's gain (log-ratio)."""
    return create_trial(
        state=TrialState.COMPLETE,
        value=gain,
        params=setting.to_dict(),
        distributions=distributions(space),
        user_attrs={
            "setting": setting.to_dict(),
            "log_ratio": gain,
            "se": NOISE_SD,
            "df": 8.0,
            "reference": 1,
            "eligible": True,
            "status": "ok",
        },
    )


def random(trials: Trials, seed: int) -> None:
    """Points of the lattice, drawn at random."""
    for setting in trials.baselines:
        trials.observe(setting)
    points = trials.surface.space.points
    for i in np.random.default_rng([seed, 3]).permutation(len(points)):
        trials.observe(points[i])


def nelder_mead(trials: Trials, seed: int) -> None:
    """Nelder-Mead on the indices of the knobs' values, from the best baseline, then from random points."""
    grid = _Grid(trials.surface)
    rng = np.random.default_rng([seed, 4])
    start = max(trials.baselines, key=trials.observe)
    while True:
        at = grid.coordinates(start)
        # Each edge of the first simplex reaches a quarter of the domain, inwards.
        simplex = np.vstack([at, *(at + np.where(at > 0.5, -0.25, 0.25) * row for row in np.eye(len(at)))])
        minimize(
            lambda x: -trials.observe(grid.nearest(x)),
            at,
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 0.02, "fatol": 0.002, "maxfev": 200},
        )
        start = trials.surface.space.points[int(rng.integers(len(trials.surface.space.points)))]


def tpe(trials: Trials, seed: int) -> None:
    """Optuna's tree-structured Parzen estimator."""
    _optuna(trials, optuna.samplers.TPESampler(seed=seed))


def optuna_gp(trials: Trials, seed: int) -> None:
    """Optuna's Gaussian process."""
    _optuna(trials, optuna.samplers.GPSampler(seed=seed, deterministic_objective=False))


def _optuna(trials: Trials, sampler: optuna.samplers.BaseSampler) -> None:
    grid = _Grid(trials.surface)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    for setting in trials.baselines:
        study.enqueue_trial(grid.params(setting))

    def objective(trial: optuna.Trial) -> float:
        params = {
            name: trial.suggest_int(name, 0, len(values) - 1)
            if KNOBS[name].is_numeric
            else trial.suggest_categorical(name, values)
            for name, values in grid.choices.items()
        }
        return trials.observe(grid.of(params))

    study.optimize(objective, n_trials=5 * MOST_TRIALS)


class _Grid:
    """The lattice as indices into each knob's values."""

    def __init__(self, surface: Searched) -> None:
        space = surface.space
        self._points = space.points
        self._baselines = {tuple(s.to_dict().values()): s for s in space.baselines.values()}
        self.choices = space.choices()
        rank = [{value: i for i, value in enumerate(values)} for values in self.choices.values()]
        columns = zip(*([value for _, value in point.items] for point in space.points), strict=True)
        self._at = np.array([[r[v] for v in column] for r, column in zip(rank, columns, strict=True)], dtype=float).T
        self._scale: np.ndarray = np.array([max(len(values) - 1, 1) for values in self.choices.values()])

    def coordinates(self, setting: Setting) -> np.ndarray:
        """Return a setting as a point of the unit cube."""
        indices = [self.choices[name].index(value) for name, value in setting.items]
        return np.asarray(indices / self._scale)

    def nearest(self, x: np.ndarray) -> Setting:
        """Return the point of the lattice that is nearest to one of the cube."""
        far = ((self._at / self._scale - x) ** 2).sum(axis=1)
        return self._points[int(far.argmin())]

    def params(self, setting: Setting) -> dict[str, int | str]:
        """Return a setting as Optuna's samplers see it."""
        return {
            name: self.choices[name].index(value) if KNOBS[name].is_numeric else str(value)
            for name, value in setting.items
        }

    def of(self, params: Mapping[str, int | str]) -> Setting:
        """Return the setting of such parameters: a baseline as it is, else the nearest point of the lattice."""
        indices = [i if isinstance(i, int) else self.choices[name].index(i) for name, i in params.items()]
        values = tuple(self.choices[name][i] for name, i in zip(params, indices, strict=True))
        return self._baselines.get(values) or self.nearest(np.array(indices) / self._scale)


SEARCHERS: dict[str, Searcher] = {
    "tftune": tftune,
    "Optuna TPE": tpe,
    "Optuna GP": optuna_gp,
    "random": random,
    "Nelder-Mead": nelder_mead,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How many trials each search needed; 41 stands for never."""

    needed: tuple[int, ...]
    wall_s: float

    @property
    def median(self) -> float:
        """Return the median."""
        return float(np.median(self.needed))

    @property
    def most(self) -> float:
        """Return what 90 % of the searches need at most."""
        return float(np.quantile(self.needed, 0.9, method="inverted_cdf"))

    @property
    def never(self) -> float:
        """Return the share that does not get there."""
        return float(np.mean([n > MOST_TRIALS for n in self.needed]))


def run(searcher: Searcher, surfaces: Sequence[Searched], seeds: Sequence[int] = SEEDS) -> Result:
    """Run a searcher on each surface with each seed."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    began_s, needed = time.monotonic(), []
    for number, surface in enumerate(surfaces):
        for seed in seeds:
            trials = Trials(surface, 1000 * number + seed)
            with contextlib.suppress(Spent):
                searcher(trials, seed)
            needed.append(trials.found_at)
    return Result(needed=tuple(needed), wall_s=time.monotonic() - began_s)


def usable(name: str) -> bool:
    """Return whether a searcher has what it needs."""
    return name != "Optuna GP" or importlib.util.find_spec("torch") is not None


def searchers() -> Iterator[Figure]:
    """The sampler beside others, on the surfaces that it was not tuned on."""
    for name, searcher in SEARCHERS.items():
        if not usable(name):
            continue
        result = run(searcher, HELD_BACK)
        measured_text = (
            f"{_count(result.median)} and {_count(result.most)} trials, {100 * result.never:.0f} % never in 40"
        )
        what = f"{name}: trials to 2 % of the optimum, median and 90 % ({len(HELD_BACK)} surfaces)"
        if name == "tftune":
            met = result.median <= 12 and result.most <= 25 and result.never <= 0.03
            yield Figure(what, measured_text, "at most 12 and 25, 3 % never", met)
        else:
            yield Figure(what, measured_text)
    seconds = proposal_s()
    points = f"{len(_LARGEST.space.points):,}"
    yield Figure(f"a proposal on a lattice of {points} settings, CPU time", f"{seconds:.2f} s", "1 s", seconds <= 1.0)


_LARGEST = max((*TUNED_ON, *HELD_BACK), key=lambda surface: len(surface.space.points))


def proposal_s() -> float:
    """Return the CPU time (s) of a proposal on the largest lattice, after 40 trials; the lattice is encoded before."""
    space = _LARGEST.space
    rng = np.random.default_rng(0)
    sampler = LatticeSampler(space, seed=0, initial_design=FRAMEWORK.initial_design(space))
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.set_user_attr("noise", stored_noise(_NOISE))
    drawn = [space.points[i] for i in rng.integers(len(space.points), size=MOST_TRIALS)]
    for setting in distinct([*space.baselines.values(), *FRAMEWORK.initial_design(space), *drawn]):
        study.add_trial(observed(space, setting, math.log(_LARGEST.rate(setting) / _LARGEST.rate(space.reference))))
    sampler.propose(study)
    began_s = time.process_time()
    sampler.propose(study, cost_s=lambda _: 1.0)  # asked otherwise, or it would be remembered
    return time.process_time() - began_s


def _count(n: float) -> str:
    return f"{n:g}" if n <= MOST_TRIALS else f"over {MOST_TRIALS}"


def main(names: Sequence[str]) -> None:
    """Print the table."""
    print("| searcher | surfaces | median | 90 % | never in 40 | time |\n| --- | --- | --- | --- | --- | --- |")
    for name in names or SEARCHERS:
        if not usable(name):
            print(f"| {name} | left out: PyTorch is not installed | | | | |")
            continue
        for kind, surfaces in (("tuned on", TUNED_ON), ("held back", HELD_BACK)):
            result = run(SEARCHERS[name], surfaces)
            row = (
                f"{len(surfaces)} {kind}",
                _count(result.median),
                _count(result.most),
                f"{100 * result.never:.0f} %",
                f"{result.wall_s:.0f} s",
            )
            print(f"| {name} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
