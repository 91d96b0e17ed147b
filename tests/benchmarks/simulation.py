"""Simulated studies in the weather of a real, noisy machine: how often is a claim wrong, how often a gain missed?

    python -m tests.benchmarks.simulation

Everything but the speed of the processes is the real thing: bench, race, noise, finals, verdicts. The speeds are made,
so that the truth is known; the weather is recorded (`tests.benchmarks.replay`). It takes less than two minutes on two
cores.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

import numpy as np
import optuna

from tests.benchmarks.bench import Figure
from tests.benchmarks.replay import ReplayLauncher, load
from tuner.measure.contest import Contest, fit_plan
from tuner.measure.finals import Contender, Cost, FinalsPlan, table
from tuner.measure.noise import Noise
from tuner.measure.objective import Objective
from tuner.measure.pair import PairPlan, log_ratios, measure_pair
from tuner.measure.statistics import estimate, unpaired
from tuner.measure.verdict import INCUMBENT, Word, judge_all, recommend
from tuner.search.bench import Bench, BenchPlan
from tuner.search.budget import Budget
from tuner.search.race import RacePlan
from tuner.search.record import Record, Trial
from tuner.search.sampler import LatticeSampler
from tuner.search.standing import incumbent
from tuner.search.study import THRESHOLD, Plan, Study, noise_floor
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.trial.outcome import Status

TRACES = ("resnet50-stock", "resnet50-OpenMP")
N_NULL, N_POWER, N_PAIRS, N_RACES = 2000, 500, 400, 24
MARGIN = 0.005  # what a search without racing may be better by, log scale: a quarter of what matters in practice
ITEMS_S = 25.0  # ResNet-50 on the machine of the traces
FINALS_S = 150.0  # what a search of five minutes keeps for five rounds of finals at most, and these need all of it
FRESH_START_S = 5.0  # of two processes that start together
N_CONTENDERS = 4

_trace = cache(load)


def _setting(inter_op: int, intra_op: int, batch_size: int) -> Setting:
    return Setting.of({"inter_op": inter_op, "intra_op": intra_op, "batch_size": batch_size})


DEFAULT, GUIDE = _setting(2, 2, 8), _setting(1, 2, 8)
POINTS = tuple(_setting(a, b, c) for a in (1, 2) for b in (1, 2) for c in (1, 2, 4, 8, 16, 32, 64))
SPACE = Space(
    name="simulated",
    domains={"inter_op": (1, 2), "intra_op": (1, 2), "batch_size": (1, 2, 4, 8, 16, 32, 64)},
    off={},
    points=POINTS,
    baselines={"tf-default": DEFAULT, "tf-guide": DEFAULT, "intel": GUIDE},
)
# Relative to TensorFlow's default at batch 8: what searches of ResNet-50 found on the machine of the traces.
_BATCH = {1: 0.83, 2: 0.90, 4: 0.96, 8: 1.00, 16: 1.01, 32: 1.02, 64: 1.01}


def surface(setting: Setting) -> float:
    """Return the items/s of a setting of the simulated searches."""
    threads = 1.0 if setting["intra_op"] == 2 else 0.58
    return ITEMS_S * _BATCH[setting.batch_size] * threads


# ---- one simulated study -------------------------------------------------------------------------------------


def null_study(trace: str, seed: int) -> tuple[bool, bool]:
    """Return whether a study in which every setting is equally fast claims that one is not, in a verdict or by what it
    recommends; and whether an interval leaves out the truth, be the difference too small to matter or not.
    """
    rng = np.random.default_rng([seed, 1])
    launcher = ReplayLauncher(_trace(trace), lambda _: ITEMS_S, rng)
    bench = Bench(SPACE, launcher, BenchPlan())
    noise, _ = bench.gauge([])
    known: list[Trial] = []
    order = [DEFAULT, GUIDE, *(POINTS[i] for i in rng.permutation(len(POINTS)) if POINTS[i].batch_size == 8)]
    for number, setting in enumerate(dict.fromkeys(order)):
        known.extend(bench.measure([Trial(number=number, setting=setting, status=Status.OK)], known))
    bench.close()
    best = incumbent(known)
    assert best is not None
    launcher.start_s = FRESH_START_S
    contest = _finals(launcher, rng, noise)
    verdicts = contest.verdicts().values()
    names, y = table(contest.rounds, contest.contenders, contest.objective)
    advice = recommend(names, y, contest.contenders, contest.standard(len(names)))
    wrong = any(verdict.word in (Word.BETTER, Word.WORSE) for verdict in verdicts) or advice.source != "tf-default"
    return wrong, any(v.low is not None and v.high is not None and not v.low <= 1 <= v.high for v in verdicts)


def power_study(trace: str, gain: float, seed: int) -> bool:
    """Return whether finals of the default budget find that the incumbent is `gain` faster than the default."""
    rng = np.random.default_rng([seed, 2])
    fast = (8, 10)  # the incumbent and one of its rivals, by what `_finals` tells them apart with
    launcher = ReplayLauncher(
        _trace(trace), lambda setting: ITEMS_S * (1 + gain if setting["intra_op"] in fast else 1.0), rng
    )
    noise, _ = Bench(SPACE, launcher, BenchPlan()).gauge([])
    launcher.start_s = FRESH_START_S
    return _finals(launcher, rng, noise).verdicts()["tf-default"].word is Word.BETTER


def _finals(launcher: ReplayLauncher, rng: np.random.Generator, noise: Noise) -> Contest:
    """Hold finals of four contenders, told apart by their intra_op, in the time that a search leaves for them."""
    names = (INCUMBENT, "tf-default", "intel", "tf-default@same-batch")
    contenders = [Contender(names=(name,), setting=_setting(1, 8 + i, 8), env={}) for i, name in enumerate(names)]
    began_s = launcher.now()
    contest = Contest(
        contenders=contenders,
        launcher=launcher,
        plan=fit_plan(
            FinalsPlan(),
            noise,
            [Cost(start_s=FRESH_START_S, step_s=8 / ITEMS_S)] * N_CONTENDERS,
            left_s=FINALS_S,
            resident=None,
        ),
        objective=Objective.THROUGHPUT,
        threshold=max(THRESHOLD, noise_floor(noise, FinalsPlan(), contenders=N_CONTENDERS)),
        judge=lambda names, y, standard: judge_all(names, y, contenders, standard),
        rng=rng,
        left_s=lambda: FINALS_S - (launcher.now() - began_s),
    )
    contest.hold()
    return contest


def pair_errors(trace: str, seed: int) -> tuple[float, float, float, float, float]:
    """Return what A against A gives after 20 s of slices, as log-ratios, whose truth is 0.

    What a pair gives, and its own standard error; that of the same slices unpaired; what 10 s of the one and then
    10 s of the other give; and what two processes give that are measured once each, for 10 s, at different times of a
    study.
    """
    rng = np.random.default_rng([seed, 3])
    launcher = ReplayLauncher(_trace(trace), lambda _: ITEMS_S, rng)
    a, b = launcher.launch(DEFAULT, {}), launcher.launch(DEFAULT, {})
    step_s = DEFAULT.batch_size / ITEMS_S
    pair = measure_pair(
        a,
        b,
        PairPlan(max_quads=99),
        step_s=(step_s, step_s),
        enough=lambda pair: pair.timed_s * (1 + 1 / pair.n_quads) > 20.0,
    )
    paired = estimate(log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(8, 8)))

    def once(process: object) -> float:
        return Objective.THROUGHPUT.log_rate(process.slice(10.0), 8)  # type: ignore[attr-defined]

    in_turn = once(b) - once(a)
    first = once(launcher.launch(DEFAULT, {}))
    launcher.wait(float(rng.uniform(60.0, 240.0)))
    later = once(launcher.launch(DEFAULT, {}))
    rates = [[Objective.THROUGHPUT.log_rate(s, 8) for s in side] for side in (pair.reference, pair.candidate)]
    return paired.mean, paired.se, unpaired(*rates).se, in_turn, later - first


class _Quiet:
    """Events, unheard."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def race(trace: str, seed: int) -> tuple[tuple[int, float], tuple[int, float]]:
    """Return (slices, true rate of the incumbent) of a whole search with racing, and of one without.

    Without, every pair goes on for as long as a pair may: eight quads, or 20 s.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found = []
    for races in (True, False):
        launcher = ReplayLauncher(_trace(trace), surface, np.random.default_rng([seed, 4]))
        sampler = LatticeSampler(SPACE, seed=seed)
        record = Record(optuna.create_study(sampler=sampler, direction="maximize"))
        study = Study(
            record=record,
            space=SPACE,
            launcher=launcher,
            sampler=sampler,
            plan=Plan(bench=BenchPlan(race=RacePlan(races=races)), least_gain=0.0),
            budget=Budget(trials=14),
            events=_Quiet(),  # type: ignore[arg-type]
            seed=seed,
        )
        study.search()
        best = incumbent(record.trials())
        assert best is not None
        found.append((launcher.n_slices, surface(best.setting)))
    return found[0], found[1]


# ---- all of them ---------------------------------------------------------------------------------------------


def simulation() -> Iterator[Figure]:
    """Run all simulations on all cores."""
    began = time.monotonic()
    with ProcessPoolExecutor() as pool:
        for name in TRACES:
            trace = load(name)
            yield Figure(
                f"trace {name}: {len(trace.w)} slices, {len(trace.luck)} processes",
                f"a slice scatters by {100 * trace.w.std():.2f} %, processes by {100 * trace.luck.std(ddof=1):.2f} %",
                "",
                True,
            )
            yield from _of_trace(name, pool)
    took_s = time.monotonic() - began
    yield Figure("all of these simulations", f"{took_s:.0f} s", "at most 120 s", took_s <= 120)


def _of_trace(name: str, pool: ProcessPoolExecutor) -> Iterator[Figure]:
    def run(what: Callable[..., object], n: int) -> list:  # type: ignore[type-arg]
        return list(pool.map(what, range(n), chunksize=max(1, n // 32)))

    wrong, outside = np.mean(run(partial(null_study, name), N_NULL), axis=0)
    yield Figure(
        f"{name}: a false better or worse in {N_NULL} studies of equal settings",
        f"{100 * wrong:.1f} %",
        "at most 5 %",
        bool(wrong <= 0.05),
    )
    yield Figure(
        f"{name}: an interval of these studies leaves out the truth, any of three",
        f"{100 * outside:.1f} %",
        "at most 5 %",
        bool(outside <= 0.05),
    )
    for gain, least in ((0.03, 0.90), (0.05, 0.99)):
        found = float(np.mean(run(partial(power_study, name, gain), N_POWER)))
        yield Figure(
            f"{name}: a true {100 * gain:.0f} % is found, in {N_POWER} finals of the default budget",
            f"{100 * found:.1f} %",
            f"at least {100 * least:.0f} %",
            found >= least,
        )
    errors = np.array(run(partial(pair_errors, name), N_PAIRS))
    off, se, apart, in_turn, once = np.sqrt((errors**2).mean(axis=0))
    yield Figure(
        f"{name}: error after 20 s of slices, {N_PAIRS} times: a pair (what it says itself; unpaired); 10 s each, one "
        "after the other; one process and one measurement each, minutes apart",
        f"{100 * off:.2f} % ({100 * se:.2f} %; {100 * apart:.2f} %); {100 * in_turn:.2f} %; {100 * once:.2f} %",
        "the first 5 times smaller than the last",
        bool(once >= 5 * off),
    )
    races = run(partial(race, name), N_RACES)
    saved = 1 - sum(a[0] for a, _ in races) / sum(b[0] for _, b in races)
    lost = np.array([math.log(b[1] / a[1]) for a, b in races])
    doubt = 1.96 * lost.std(ddof=1) / math.sqrt(len(lost))
    yield Figure(
        f"{name}: slices saved by racing, in {N_RACES} searches of 14 trials; what is lost in true speed",
        f"{100 * saved:.0f} %; {100 * lost.mean():+.2f} % ± {100 * doubt:.2f} %",
        f"at least 50 %; surely less than {100 * MARGIN:g} %",
        saved >= 0.5 and lost.mean() + doubt <= MARGIN,
    )


def main() -> None:
    """Print the table."""
    print("| what | found | target | |\n| --- | --- | --- | --- |")
    for figure in simulation():
        print(figure.row(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
