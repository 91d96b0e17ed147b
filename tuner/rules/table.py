"""The training table for rules: the gain of each recipe in each study, and where each condition holds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tuner.rules.evidence import StudyEvidence, apply
from tuner.rules.gains import baselines
from tuner.rules.learn import LearnPlan, Problem, learn
from tuner.rules.recipe import (
    BATCH,
    LATENCY,
    PROCESSES,
    THREADS,
    Recipe,
    batch_recipes,
    latency_recipes,
    process_recipes,
    thread_recipes,
)
from tuner.rules.situation import FEATURES, Condition, Literal, thresholds
from tuner.space.setting import Setting
from tuner.space.term import OPENMP

Rules = Sequence[tuple[Condition, Recipe]]
CUTS = 12  # thresholds a feature, at most


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """What is learned from, with the words: the problem's masks are of `conditions`, its columns of `recipes`.

    `equivalent` are the recipes that mean the same as each in every study.
    """

    group: str
    studies: list[StudyEvidence]
    followed: list[Recipe]
    """What is followed already in each study."""
    conditions: list[Condition]
    recipes: list[Recipe]
    equivalent: list[list[Recipe]]
    problem: Problem

    @property
    def of_batch(self) -> bool:
        """Return whether the batch size is open."""
        return self.group in (BATCH, LATENCY)

    def learn(self, plan: LearnPlan, among: Sequence[bool] | None = None) -> list[tuple[Condition, Recipe]]:
        """Return the rules that these studies, or those `among` them, give; the first that holds is followed."""
        problem = self.problem if among is None else self.problem.part(np.asarray(among, dtype=bool))
        return [(self.conditions[rule.mask], self.recipes[rule.recipe]) for rule in learn(problem, plan)]


def thread_table(studies: Sequence[StudyEvidence]) -> TrainingTable:
    """Return the table of rules on threads and OpenMP, at the workloads' own batch sizes."""
    telling = [study for study in studies if study.covers_threads]
    on_gpu = any(study.situation.scale.on_gpu for study in telling)
    return _table(THREADS, telling, thread_recipes(on_gpu=on_gpu), [Recipe()] * len(telling))


def batch_table(studies: Sequence[StudyEvidence], threads: Callable[[StudyEvidence], Recipe]) -> TrainingTable:
    """Return the table of rules on the batch size, what is followed on `threads` being there already."""
    telling = [study for study in studies if study.covers_batch]
    return _table(BATCH, telling, batch_recipes(), [threads(study) for study in telling])


def process_table(studies: Sequence[StudyEvidence]) -> TrainingTable:
    """Return the table of rules on the number of processes, at the workloads' own batch sizes."""
    telling = [study.processes for study in studies if study.processes is not None]
    return _table(PROCESSES, telling, process_recipes(), [Recipe()] * len(telling))


def latency_table(studies: Sequence[StudyEvidence]) -> TrainingTable:
    """Return the table of rules on the number of processes and the batch of each, at about the default's latency."""
    telling = [study.latency for study in studies if study.latency is not None]
    return _table(LATENCY, telling, latency_recipes(), [Recipe()] * len(telling))


def first_rule(rules: Rules, study: StudyEvidence) -> int:
    """Return the number of the first rule that holds in a study, len(rules) where none does."""
    return next((i for i, (condition, _) in enumerate(rules) if condition.holds(study.values)), len(rules))


def follow(rules: Rules, study: StudyEvidence) -> Recipe:
    """Return the recipe of the first rule that holds in a study; to keep what is there if none does."""
    i = first_rule(rules, study)
    return rules[i][1] if i < len(rules) else Recipe()


class _Meant(NamedTuple):
    """The settings that recipes mean, each once; the number of each; and that of each recipe's, shape (R,)."""

    distinct: list[Setting]
    number: dict[Setting, int]
    column: NDArray[np.intp]


def _table(
    group: str, studies: Sequence[StudyEvidence], recipes: Sequence[Recipe], before: Sequence[Recipe]
) -> TrainingTable:
    """Return the table of recipes that come on top of those that are followed `before`."""
    gains, numbers, measured, sds, guides = [], [], [], [], []
    names = baselines(studies)
    meant: dict[Hashable, _Meant] = {}
    for study, first in zip(studies, before, strict=True):
        key = study.default, study.compact, study.situation.scale, first
        if key not in meant:
            meant[key] = _meant(study, first, recipes)
        distinct, number, column = meant[key]
        mean, sd = study.surface.gains(distinct)
        is_measured = np.array([setting in study.surface.measured for setting in distinct])
        sds += [float(each) for each in sd[is_measured] if each > 0]
        gains.append((mean - mean[column[0]])[column])
        measured.append(is_measured[column])
        numbers.append(column)
        guides.append([number.get(study.baselines[name], -1) for name in names])
    columns = np.array(numbers).reshape(len(studies), len(recipes))
    kept_columns, alike = _distinct(columns, recipes)
    guided = _guided(columns, np.array(guides).reshape(len(studies), len(names)))
    conditions = _conditions(studies)
    return TrainingTable(
        group=group,
        studies=list(studies),
        followed=list(before),
        conditions=[condition for condition, _ in conditions],
        recipes=[recipes[i] for i in kept_columns],
        equivalent=alike,
        problem=Problem(
            u=np.array(gains).reshape(len(studies), len(recipes))[:, kept_columns],
            measured=np.array(measured, dtype=bool).reshape(len(studies), len(recipes))[:, kept_columns],
            masks=np.array([mask for _, mask in conditions]).reshape(len(conditions), len(studies)),
            workloads=np.unique([study.workload for study in studies], return_inverse=True)[1],
            recipe_cost=np.array([_cost(recipes[i], guided=bool(guided[i])) for i in kept_columns], dtype=np.intp),
            mask_cost=np.array([len(condition.literals) for condition, _ in conditions], dtype=np.intp),
            plain=np.array([is_plain(condition) for condition, _ in conditions], dtype=bool),
            sd=median(sds) if sds else 0.0,
        ),
    )


def _meant(study: StudyEvidence, first: Recipe, recipes: Sequence[Recipe]) -> _Meant:
    """Return what recipes mean in a study, each on top of the `first`, and in all others of the same scale."""
    scale = study.situation.scale
    base_values = first.values(scale)
    settings = [apply(study.default, base_values | recipe.values(scale), study.compact) for recipe in recipes]
    distinct = list(dict.fromkeys(settings))
    number = {setting: i for i, setting in enumerate(distinct)}
    return _Meant(distinct, number, np.array([number[setting] for setting in settings]))


def _guided(columns: np.ndarray, guides: np.ndarray) -> np.ndarray:
    """Return which recipes, by what they mean in each study (n, R), are a guide's in all of them (n, B), shape (R,)."""
    return np.asarray((columns[:, :, None] == guides[:, None, :]).all(axis=0).any(axis=1))


def _cost(recipe: Recipe, *, guided: bool) -> int:
    """Return how much there is to remember: each knob, or one guide's name for all of them."""
    return min(recipe.n_knobs, 1) if guided else recipe.n_knobs


def _distinct(numbers: np.ndarray, recipes: Sequence[Recipe]) -> tuple[list[int], list[list[Recipe]]]:
    """Return the first of the recipes that mean the same in every study, and for each the others."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for i in range(len(recipes)):
        groups[numbers[:, i].tobytes()].append(i)
    return [equal_columns[0] for equal_columns in groups.values()], [
        [recipes[i] for i in equal_columns[1:]] for equal_columns in groups.values()
    ]


def _simplicity(condition: Condition) -> tuple[int, bool]:
    """Return a key that is smaller for simpler conditions; the build says more than a feature that goes with it."""
    return len(condition.literals), not is_plain(condition)


def is_plain(condition: Condition) -> bool:
    """Return whether a condition asks for nothing, or for the build alone."""
    return all(literal.feature == OPENMP for literal in condition.literals)


def _conditions(studies: Sequence[StudyEvidence]) -> list[tuple[Condition, list[bool]]]:
    """Return the conditions to look at, simple ones first: a pool or any, with one literal more or none.

    Of those that part these studies in the same way, the first stands.
    """
    both = len({study.situation.pool for study in studies}) == 2
    pools = [(), (Literal(OPENMP, 0.5, True),), (Literal(OPENMP, 0.5, False),)] if both else [()]
    literals: list[tuple[Literal, ...]] = [()]
    for feature in FEATURES:
        if feature.name == OPENMP:
            continue
        values = [study.values[feature.name] for study in studies]
        distinct_values = {value for value in values if not math.isnan(value)}
        if feature.is_binary and len(distinct_values) < 2:
            continue
        cuts = [0.5] if feature.is_binary else thresholds(values, log=feature.log, at_most=CUTS)
        literals += [(Literal(feature.name, cut, below),) for cut in cuts for below in (True, False)]
    by_mask: dict[tuple[bool, ...], Condition] = {}
    for condition in sorted((Condition(p + q) for p in pools for q in literals), key=_simplicity):
        mask = tuple(condition.holds(study.values) for study in studies)
        if any(mask):
            by_mask.setdefault(mask, condition)
    return [(condition, list(mask)) for mask, condition in by_mask.items()]
