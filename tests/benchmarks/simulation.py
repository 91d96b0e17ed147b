"""Simulated studies in the drift of a real, noisy machine: how often is a claim wrong, how often a gain missed?

    python -m tests.benchmarks.simulation

Everything but the speed of the processes is the real thing: evaluator, racing, noise, finals, verdicts. The speeds are
made, so that the truth is known; the drift is recorded (`tests.benchmarks.replay`). It takes about five minutes on two
cores.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import optuna

from tests.benchmarks.figures import Figure
from tests.benchmarks.replay import ReplayLauncher, load
from tests.frameworks import CATALOGUE
from tests.scripted_launcher import ScriptedLauncher
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.measure.budget import Budget, Countdown
from tuner.measure.group_sequential import SequentialTest
from tuner.measure.objective import Objective
from tuner.measure.pair import log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.measure.planning import Cost, FinalsPlan, choose_passes
from tuner.measure.recommendation import recommend
from tuner.measure.rounds import INCUMBENT, Contender, Rounds
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import DIFFERENCES, VerdictCode
from tuner.stats.estimate import Array, estimate, unpaired
from tuner.stats.noise import Noise
from tuner.stats.pooling import pooled_verdict
from tuner.study.evaluator import Evaluator
from tuner.study.history import incumbent
from tuner.study.loop import Search
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.race import RacePlan
from tuner.study.record import Record
from tuner.study.sampler import LatticeSampler
from tuner.study.trials import Trial
from tuner.trial.outcome import Status

TRACES = ("resnet50-stock", "resnet50-OpenMP")
N_NULL, N_POWER, N_PAIRS, N_RACES = 2000, 500, 400, 24
MARGIN = 0.005  # what a search without racing may be better by, log scale: a quarter of what matters in practice
ITEMS_S = 25.0  # ResNet-50 on the machine of the traces
FINALS_S = 150.0  # what a search of five minutes keeps for its finals at most
SHORT_FINALS_S = 30.0  # the same of a minute
FRESH_START_S, FORK_START_S = 5.0, 1.5  # of two processes that start together
N_CONTENDERS = 4
INTERACTIONS = (0.0, 0.004, 0.01)  # log scale: what a setting gains or loses in one session, and not in another
EQUAL_TARGETS = {"resnet50-stock": 0.95, "resnet50-OpenMP": 0.0}
POWER_TARGETS = {
    "resnet50-stock": ((0.03, 0.99, 80.0), (0.05, 0.99, FINALS_S)),
    "resnet50-OpenMP": ((0.03, 0.45, FINALS_S), (0.05, 0.85, FINALS_S)),
}
LARGE_RATIOS = (2.5, 1.5)
N_COVERAGE = 2000
COVERAGE_NOISE = Noise(block_sd=0.0, process_sd=0.001, drift=0.0, n_pairs=1, n_blocks=4)
N_SESSIONS = 3

_trace = cache(load)


def _setting(inter_op: int, intra_op: int, batch_size: int) -> Setting:
    return Setting.of({"inter_op": inter_op, "intra_op": intra_op, "batch_size": batch_size})


DEFAULT, GUIDE = _setting(2, 2, 8), _setting(1, 2, 8)
POINTS = tuple(_setting(a, b, c) for a in (1, 2) for b in (1, 2) for c in (1, 2, 4, 8, 16, 32, 64))
SPACE = Space(
    name="simulated",
    catalogue=CATALOGUE,
    domains={"inter_op": (1, 2), "intra_op": (1, 2), "batch_size": (1, 2, 4, 8, 16, 32, 64)},
    inactive={},
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


@dataclass(frozen=True, slots=True)
class Decided:
    """After how many seconds and rounds the primary comparison was decided; infinite if it was not."""

    after_s: float = math.inf
    rounds: float = math.inf


@dataclass(frozen=True, slots=True)
class Outcome:
    """What simulated finals came to: the words by rival, whether the advice is not the default, and how long it took.

    `missed` tells whether the interval against the default, and any of those against the others, leaves out the truth.
    """

    words: dict[str, VerdictCode]
    moves: bool
    missed: tuple[bool, bool]
    decided: Decided

    @property
    def claims(self) -> bool:
        """Return whether anything is called better or worse, or something else than the default is recommended."""
        return self.moves or any(word in DIFFERENCES for word in self.words.values())


def finals_study(
    trace: str, gains: tuple[float, ...], interaction: float, seed: int, *, finals_s: float = FINALS_S
) -> Outcome:
    """Return what finals say, by default of the default budget, after a machine's noise was measured.

    `gains` are the true ones over the default (0.03 for 3 %) of the incumbent, the default and the other contenders. In
    each session the drift treats settings differently: of `interaction` (log scale) is the standard deviation of
    what a setting gains or loses in it, and so of what no session can know of the next.
    """
    test, decided = _session(trace, gains, interaction, np.random.default_rng([seed, 1]), finals_s=finals_s)
    verdicts = test.verdicts()
    truth = {c.names[0]: (1 + gains[0]) / (1 + gain) for c, gain in zip(test.contenders, gains, strict=True)}
    missed = {
        name: v.low is not None and v.high is not None and not v.low <= truth[name] <= v.high
        for name, v in verdicts.items()
    }
    primary = test.contenders[1].names[0]
    return Outcome(
        words={name: verdict.code for name, verdict in verdicts.items()},
        moves=recommend(test.estimates(), CATALOGUE).source != primary,
        missed=(missed[primary], any(outside for name, outside in missed.items() if name != primary)),
        decided=decided,
    )


def false_together(trace: str, n: int, interaction: float, seed: int) -> bool:
    """Return whether `n` sessions of equal settings, the first of which called one better or worse, do so together."""
    rng = np.random.default_rng([seed, 6])
    sessions = []
    for _ in range(n):
        test, _ = _session(trace, (0.0, 0.0, 0.0, 0.0), interaction, rng)
        if not sessions and test.verdicts()["tf-default"].code not in DIFFERENCES:
            return False
        estimate_of_session = test.estimates().log_ratio("tf-default", INCUMBENT)
        sessions += [estimate_of_session] if estimate_of_session is not None else []
    return pooled_verdict(sessions).verdict.code in DIFFERENCES


def _session(
    trace: str,
    gains: tuple[float, ...],
    interaction: float,
    rng: np.random.Generator,
    *,
    finals_s: float = FINALS_S,
) -> tuple[SequentialTest, Decided]:
    """Measure the noise and hold finals; see `finals_study`. Return them, and when the primary one was decided."""
    session_effects = interaction * rng.standard_normal(N_CONTENDERS)
    launcher = ReplayLauncher(_trace(trace), lambda s: ITEMS_S * _true_rate(s, gains, session_effects), rng)
    bench = Evaluator(SPACE, launcher, EvaluatorPlan())
    bench.begin([])
    list(bench.measure([Trial(number=0, setting=DEFAULT, status=Status.OK)], []))
    shown = bench.take_noise()
    assert shown is not None
    bench.close()
    return _finals(launcher, rng, shown[0], finals_s)


def _true_rate(setting: Setting, gains: tuple[float, ...], session_effects: Array) -> float:
    """Return the rate relative to the default's; contenders are separated by their intra_op."""
    which = int(setting["intra_op"]) - 8
    return (1 + gains[which]) * math.exp(session_effects[which]) if 0 <= which < len(gains) else 1.0


def _finals(
    launcher: ReplayLauncher, rng: np.random.Generator, noise: Noise, finals_s: float
) -> tuple[SequentialTest, Decided]:
    """Hold finals of four contenders, told apart by their intra_op, in the time that a search leaves for them (s).

    Return them, and when the primary comparison was decided.
    """
    names = (INCUMBENT, "tf-default", "intel", "tf-default@same-batch")
    contenders = [
        Contender(names=(name,), setting=_setting(1, 8 + i, 8), deployment=Deployment()) for i, name in enumerate(names)
    ]
    began_s = launcher.now()
    decided = Decided()
    costs = [Cost(start_s=FORK_START_S, step_s=8 / ITEMS_S)] * 2
    plan = choose_passes(FinalsPlan(), noise, costs, left_s=finals_s, resident=None)
    common = Rounds(
        launcher=_Starting(launcher, FRESH_START_S),
        fork_launchers=[lambda: _Starting(launcher, FORK_START_S)],
        plan=plan,
        rng=rng,
        time=Countdown(total_s=finals_s, now=launcher.now, began_s=began_s),
    )
    test = SequentialTest(contenders=contenders, common=common, noise=noise, objective=Objective.THROUGHPUT)

    def after_round() -> None:
        nonlocal decided
        if math.isinf(decided.rounds) and test.verdicts()["tf-default"].code is not VerdictCode.UNDECIDED:
            decided = Decided(after_s=launcher.now() - began_s, rounds=test.n_rounds)

    test.run(after_round)
    return test, decided


class _Starting:
    """A replay whose processes take another time to start."""

    def __init__(self, launcher: ReplayLauncher, start_s: float) -> None:
        self._launcher, self._start_s = launcher, start_s

    def __getattr__(self, name: str) -> Any:
        self._launcher.start_s = self._start_s
        return getattr(self._launcher, name)


def pair_errors(trace: str, seed: int) -> tuple[float, float, float, float, float]:
    """Return what A against A gives after 20 s of slices, as log-ratios, whose truth is 0.

    What a pair gives, and its own standard error; that of the same slices unpaired; what 10 s of the one and then
    10 s of the other give; and what two processes give that are measured once each, for 10 s, at different times of a
    study.
    """
    rng = np.random.default_rng([seed, 3])
    launcher = ReplayLauncher(_trace(trace), lambda _: ITEMS_S, rng)
    a, b = launcher.launch(DEFAULT, Deployment()), launcher.launch(DEFAULT, Deployment())
    both = (Live(process=each, usual_s=[DEFAULT.batch_size / ITEMS_S]) for each in (a, b))
    pair = run_pair(*both, enough=lambda pair: pair.is_long(20.0), max_passes=99, rng=rng)
    paired = estimate(log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(8, 8)))

    def once(process: object) -> float:
        return Objective.THROUGHPUT.log_rate(process.slice(10.0), 8)  # type: ignore[attr-defined]

    in_turn = once(b) - once(a)
    first = once(launcher.launch(DEFAULT, Deployment()))
    launcher.wait(float(rng.uniform(60.0, 240.0)))
    later = once(launcher.launch(DEFAULT, Deployment()))
    rates = [[Objective.THROUGHPUT.log_rate(s, 8) for s in side] for side in (pair.reference, pair.candidate)]
    return paired.mean, paired.se, unpaired(*rates).se, in_turn, later - first


def coverage(contenders: int, rounds: int, noisier: float, seed: int) -> tuple[float, float]:
    """Return whether finals of normal noise miss the truth (1.0) in the interval against the default, and in any other.

    NaN where there was no time for an interval. Where there are rivals, the default is far slower, so that its claim
    passes its error on to them; the incumbent is `noisier` than the others, and it is looked at after every round.
    """
    rng = np.random.default_rng([seed, contenders, rounds, 5])
    settings = [_setting(1, 8 + i, 8) for i in range(contenders)]
    truth = [1.0, 2.0 if contenders > 2 else 1.0, *[1.0] * (contenders - 2)]
    launcher = ScriptedLauncher(
        rate=lambda s: ITEMS_S / truth[int(s["intra_op"]) - 8],
        # Little, so that no interval is too wide to be given; of the others no more is asked.
        process_noise=COVERAGE_NOISE.process_sd,
        scatter=lambda s: noisier if s == settings[0] else 1.0,
        start_s=0.0,
        seed=int(rng.integers(1 << 32)),
    )
    names = [INCUMBENT, "tf-default", *(f"rival-{i}" for i in range(2, contenders))]
    test = SequentialTest(
        contenders=[
            Contender(names=(n,), setting=s, deployment=Deployment()) for n, s in zip(names, settings, strict=True)
        ],
        common=Rounds(
            launcher=launcher,
            plan=FinalsPlan(passes=2, max_rounds=rounds),
            rng=rng,
            time=Countdown(total_s=None, now=launcher.now),
        ),
        noise=COVERAGE_NOISE,
        objective=Objective.THROUGHPUT,
        margin=1e-9,  # so that nothing ends before its last round but what is shown to differ
    )
    test.run()
    outside = [
        math.nan if v.low is None or v.high is None else float(not v.low <= truth[i] <= v.high)
        for i, v in enumerate(test.verdicts().values(), start=1)
    ]
    rival_misses = [each for each in outside[1:] if not math.isnan(each)]
    return outside[0], max(rival_misses, default=math.nan)


class _Quiet:
    """Events, unheard."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def race(trace: str, seed: int) -> tuple[tuple[int, float], tuple[int, float]]:
    """Return (slices, true rate of the incumbent) of a whole search with racing, and of one without.

    Without, every pair goes on for as long as a pair may: eight blocks, or 20 s.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    estimates = []
    for races in (True, False):
        launcher = ReplayLauncher(_trace(trace), surface, np.random.default_rng([seed, 4]))
        sampler = LatticeSampler(SPACE, seed=seed, initial_design=FRAMEWORK.initial_design(SPACE))
        record = Record(optuna.create_study(sampler=sampler, direction="maximize"))
        study = Search(
            record=record,
            space=SPACE,
            launcher=launcher,
            sampler=sampler,
            plan=Plan(evaluation=EvaluatorPlan(race=RacePlan(races=races)), min_gain=0.0),
            budget=Budget(trials=14),
            events=_Quiet(),  # type: ignore[arg-type]
            seed=seed,
        )
        study.search()
        best = incumbent(record.trials())
        assert best is not None
        estimates.append((launcher.n_slices, surface(best.setting)))
    return estimates[0], estimates[1]


# ---- all of them ---------------------------------------------------------------------------------------------


def simulation() -> Iterator[Figure]:
    """Run all simulations on all cores."""
    began = time.monotonic()
    with ProcessPoolExecutor() as pool:
        for name in TRACES:
            trace = load(name)
            yield Figure(
                f"trace {name}: {len(trace.w)} slices, {len(trace.process_effects)} processes",
                f"standard deviation of a slice {100 * trace.w.std():.2f} %, "
                f"between processes {100 * trace.process_effects.std(ddof=1):.2f} %",
                "",
                True,
            )
            yield from _of_trace(name, pool)
        yield from _coverage(pool)
    took_s = time.monotonic() - began
    yield Figure("all of these simulations", f"{took_s:.0f} s", "at most 300 s", took_s <= 300)


def _coverage(pool: ProcessPoolExecutor) -> Iterator[Figure]:
    """Yield the coverage of the intervals: the lowest and the highest over rounds and contenders."""
    for noisier in (1.0, 3.0):
        primary, rivals = {}, {}
        for contenders in (2, 4, 6):
            for rounds in (2, 3, 5, 8, 12):
                simulate = partial(coverage, contenders, rounds, noisier)
                outside = np.array(list(pool.map(simulate, range(N_COVERAGE), chunksize=100)))
                missed = [np.nanmean(side) if np.isfinite(side).any() else math.nan for side in outside.T]
                where = f"{contenders} contenders, {rounds} rounds"
                if contenders == 2:
                    primary[where] = 1 - float(missed[0])
                elif not math.isnan(missed[1]):
                    rivals[where] = 1 - float(missed[1])
        for what, estimates in (("against the default", primary), ("against all the others together", rivals)):
            low, high = (pick(estimates, key=estimates.__getitem__) for pick in (min, max))
            yield Figure(
                f"coverage of the intervals {what}, with the looks, the incumbent {noisier:g} times as noisy as others",
                f"{100 * estimates[low]:.1f} % ({low}) to {100 * estimates[high]:.1f} % ({high})",
                "94 to 96.5 %",
                estimates[low] >= 0.94 and estimates[high] <= 0.965,
            )


def _of_trace(name: str, pool: ProcessPoolExecutor) -> Iterator[Figure]:
    def run(what: Callable[..., object], n: int) -> list:  # type: ignore[type-arg]
        return list(pool.map(what, range(n), chunksize=max(1, n // 32)))

    for interaction in INTERACTIONS:
        outcomes = run(partial(finals_study, name, (0.0, 0.0, 0.0, 0.0), interaction), N_NULL)
        condition_text = "" if not interaction else f", with session effects of {100 * interaction:g} %"
        wrong = float(np.mean([outcome.claims for outcome in outcomes]))
        yield Figure(
            f"{name}: a false better or worse in {N_NULL} finals of equal settings{condition_text}",
            f"{100 * wrong:.1f} %",
            "at most 5 %",
            wrong <= 0.05,
        )
        if interaction:
            several = float(np.mean(run(partial(false_together, name, N_SESSIONS, interaction), N_NULL)))
            yield Figure(
                f"{name}: the same, by {N_SESSIONS} sessions together",
                f"{100 * several:.1f} %",
                "at most 5 %",
                several <= 0.05,
            )
            continue
        outside = 100 * np.mean([outcome.missed for outcome in outcomes], axis=0)
        yield Figure(
            f"{name}: an interval of these leaves out the truth, against the default; against any of the others",
            f"{outside[0]:.1f} %; {outside[1]:.1f} %",
            "at most 5 % each",
            bool(outside.max() <= 5.0),
        )
        equal = float(np.mean([outcome.words["tf-default"] is VerdictCode.NO_DIFFERENCE for outcome in outcomes]))
        least = EQUAL_TARGETS[name]
        yield Figure(
            f"{name}: these are called equal, in finals of {FINALS_S:g} s",
            f"{100 * equal:.1f} %",
            f"at least {100 * least:g} %" if least else "",
            equal >= least,
        )
    for gain, least, within_s in POWER_TARGETS[name]:
        outcomes = run(partial(finals_study, name, (gain, 0.0, 0.0, 0.0), 0.0), N_POWER)
        power = float(
            np.mean([o.words["tf-default"] is VerdictCode.BETTER and o.decided.after_s <= within_s for o in outcomes])
        )
        decided_s = float(np.median([outcome.decided.after_s for outcome in outcomes]))
        yield Figure(
            f"{name}: a true {100 * gain:.0f} % is found within {within_s:g} s, in {N_POWER} finals (median "
            + ("not decided)" if math.isinf(decided_s) else f"{decided_s:.0f} s)"),
            f"{100 * power:.1f} %",
            f"at least {100 * least:.0f} %",
            power >= least,
        )
    for finals_s, ratio in itertools.product((SHORT_FINALS_S, FINALS_S), LARGE_RATIOS):
        study = partial(finals_study, name, (ratio - 1, 0.0, 0.0, 0.0), 0.0, finals_s=finals_s)
        outcomes = run(study, N_POWER)
        rounds = [o.decided.rounds for o in outcomes if o.words["tf-default"] is VerdictCode.BETTER]
        yield Figure(
            f"{name}: a true {ratio:g} times is found in {N_POWER} finals of {finals_s:g} s (mean number of rounds)",
            f"{100 * len(rounds) / N_POWER:.1f} % ({np.mean(rounds or [math.nan]):.1f})",
            "at least 90 %",
            len(rounds) >= 0.9 * N_POWER,
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
