"""Rules where the truth is known: is a planted rule found again, and does noise make none?

    python -m tests.benchmarks.rules

The studies are made (`tests.planted`): what a search measures and its errors, from a recorded trace.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import optuna

from tests.benchmarks.figures import Figure
from tests.planted import BY_WIDTH, NOTHING, Truth, make, studies, write
from tuner.job.rulebook import make as distil_storage
from tuner.job.selection import Selection
from tuner.rules.evidence import StudyEvidence
from tuner.rules.learn import LearnPlan, learn
from tuner.rules.recipe import Recipe
from tuner.rules.situation import FEATURE, thresholds
from tuner.rules.table import CUTS, follow, thread_table
from tuner.space.term import EIGEN, OPENMP

N_RUNS = 100
N_STUDIES = 1000


def found_again(truth: Truth, seed: int) -> bool:
    """Return whether 60 studies of a truth give it back: its recipes, each threshold within one step."""
    planted = studies(list(make(np.random.default_rng(seed), truth=truth)))
    table = thread_table(planted)
    rules = table.learn(LearnPlan())
    return bool(rules) and all(
        _means_the_same(follow(rules, study), truth.recipe(study.situation), study)
        for study in planted
        if not _near(study, planted, truth)
    )


def _means_the_same(a: Recipe, b: Recipe, study: StudyEvidence) -> bool:
    return study.setting(a) == study.setting(b)


def _near(study: StudyEvidence, planted: list[StudyEvidence], truth: Truth) -> bool:
    """Return whether a study lies between the threshold and the next one that could have been taken."""
    cuts = thresholds([s.values[truth.feature] for s in planted], log=FEATURE[truth.feature].log, at_most=CUTS)
    below = [cut for cut in cuts if cut <= truth.threshold]
    above = [cut for cut in cuts if cut > truth.threshold]
    low, high = (below[-2] if len(below) > 1 else 0.0), (above[1] if len(above) > 1 else np.inf)
    return bool(low <= study.values[truth.feature] < high)


def nothing_found(truth: Truth, seed: int) -> bool:
    """Return whether studies in which no setting is better than another give no rule."""
    planted = studies(list(make(np.random.default_rng(seed), truth=truth, pools=(EIGEN, OPENMP), workloads=15)))
    return not thread_table(planted).learn(LearnPlan())


def shuffled_gives_nothing(truth: Truth, seed: int) -> bool:
    """Return whether a truth gives no rule once the gains of the recipes are shuffled within each study."""
    rng = np.random.default_rng(seed)
    table = thread_table(studies(list(make(rng, truth=truth))))
    # The default's own is shuffled among them; what it gets is then what the others gain over.
    u = rng.permuted(table.problem.u, axis=1)
    return not learn(replace(table.problem, u=u - u[:, :1]), LearnPlan())


def figures() -> Iterator[Figure]:
    """Yield what is found."""
    began = time.monotonic()
    with ProcessPoolExecutor() as pool:
        for title, truth in (
            ("a rule with a threshold (small operators: one thread)", Truth()),
            ("Wang's rule", Truth(below=BY_WIDTH, above=BY_WIDTH)),
        ):
            n = _count(pool, partial(found_again, truth))
            yield Figure(f"{title}, planted in 60 studies: found again", f"{n} of {N_RUNS}", "at least 95", n >= 95)
        n = _count(pool, partial(nothing_found, NOTHING))
        yield Figure("60 studies in which nothing matters: no rule", f"{n} of {N_RUNS}", "at least 95", n >= 95)
        n = _count(pool, partial(shuffled_gives_nothing, Truth()))
        yield Figure("60 studies, gains shuffled: no rule", f"{n} of {N_RUNS}", "at least 95", n >= 95)
    yield Figure("all of these", f"{time.monotonic() - began:.0f} s")
    yield _large()


def _count(pool: ProcessPoolExecutor, is_good: Callable[[int], bool]) -> int:
    return sum(pool.map(is_good, range(N_RUNS)))


def _large() -> Figure:
    """Return how long a storage of 1,000 studies takes, read, learned from and proven."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'large.db'}"
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = optuna.storages.RDBStorage(url)
        rng = np.random.default_rng(0)
        planted = make(rng, truth=Truth(), workloads=N_STUDIES // 4, cores=(8, 16), pools=(EIGEN, OPENMP), extra=3)
        write(list(planted), storage)
        began = time.monotonic()
        distil_storage(url, Selection())
        took = time.monotonic() - began
    return Figure(f"rules of a storage of {N_STUDIES:,} studies", f"{took:.1f} s", "at most 30 s", took <= 30)


def main() -> None:
    """Print the table."""
    print("| what | found | target | |\n| --- | --- | --- | --- |")
    for figure in figures():
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
