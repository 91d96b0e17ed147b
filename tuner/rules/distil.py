"""Distilling: from the studies of a team to a few rules with their evidence."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tuner.rules.account import Choice, account, described
from tuner.rules.condition import Condition, Literal, thresholds
from tuner.rules.evidence import Study, apply
from tuner.rules.learn import LearnPlan, Problem, learn
from tuner.rules.recipe import BATCH, Recipe, batch_recipes, thread_recipes
from tuner.rules.rule import THREADS, Coverage, Rule
from tuner.rules.situation import EIGEN, FEATURES, OPENMP
from tuner.space.setting import Setting

_FEW = 3
_CUTS = 12  # thresholds a feature, at most


@dataclass(frozen=True, kw_only=True)
class Table:
    """What is learned from, with the words: the problem's masks are of `conditions`, its columns of `recipes`.

    `alike` are the recipes that mean the same as each in every study.
    """

    group: str
    studies: list[Study]
    conditions: list[Condition]
    recipes: list[Recipe]
    alike: list[list[Recipe]]
    problem: Problem

    def learn(self, plan: LearnPlan, among: Sequence[bool] | None = None) -> list[tuple[Condition, Recipe]]:
        """Return the rules that these studies, or those `among` them, give; the first that holds is followed."""
        problem = self.problem if among is None else self.problem.part(np.asarray(among, dtype=bool))
        return [(self.conditions[rule.mask], self.recipes[rule.recipe]) for rule in learn(problem, plan)]


def thread_table(studies: Sequence[Study]) -> Table:
    """Return the table of rules on threads and OpenMP, at the workloads' own batch sizes."""
    return _table(THREADS, studies, thread_recipes(), [Recipe()] * len(studies))


def batch_table(studies: Sequence[Study], threads: Sequence[tuple[Condition, Recipe]]) -> Table:
    """Return the table of rules on the batch size, the rules on threads being followed already."""
    telling = [study for study in studies if study.tells_batch]
    return _table(BATCH, telling, batch_recipes(), [follow(threads, study) for study in telling])


def follow(rules: Sequence[tuple[Condition, Recipe]], study: Study) -> Recipe:
    """Return the recipe of the first rule that holds in a study; to keep what is there if none does."""
    return next((recipe for condition, recipe in rules if condition.holds(study.values)), Recipe())


def _table(group: str, studies: Sequence[Study], recipes: Sequence[Recipe], before: Sequence[Recipe]) -> Table:
    """Return the table of recipes that come on top of those that are followed `before`."""
    gains, numbers, sds = [], [], []
    for study, first in zip(studies, before, strict=True):
        settings = _settings(study, first, recipes)
        distinct = list(dict.fromkeys(settings))
        mean, sd = study.surface.gains(distinct)
        number = {setting: i for i, setting in enumerate(distinct)}
        column = np.array([number[setting] for setting in settings])
        known = np.array([setting in study.surface.measured for setting in distinct])
        sds += [float(each) for each in sd[known] if each > 0]
        gains.append((mean - mean[column[0]])[column])
        numbers.append(column)
    kept, alike = _distinct(np.array(numbers).reshape(len(studies), len(recipes)), recipes)
    conditions = _conditions(studies)
    return Table(
        group=group,
        studies=list(studies),
        conditions=[condition for condition, _ in conditions],
        recipes=[recipes[i] for i in kept],
        alike=alike,
        problem=Problem(
            u=np.array(gains).reshape(len(studies), len(recipes))[:, kept],
            masks=np.array([mask for _, mask in conditions]).reshape(len(conditions), len(studies)),
            workloads=np.unique([study.workload for study in studies], return_inverse=True)[1],
            recipe_cost=np.array([recipes[i].n_knobs for i in kept], dtype=np.intp),
            mask_cost=np.array([len(condition.literals) for condition, _ in conditions], dtype=np.intp),
            sd=median(sds) if sds else 0.0,
        ),
    )


def _settings(study: Study, first: Recipe, recipes: Sequence[Recipe]) -> list[Setting]:
    """Return what each recipe means in a study; those that differ in what cannot act there are worked out once."""
    made: dict[tuple[tuple[str, str], ...], Setting] = {}
    same = first.values(study.situation)
    knobs = study.default.to_dict().keys()
    found = []
    for recipe in recipes:
        acting = tuple(item for item in recipe.items if item[0] in knobs)
        if acting not in made:
            values = same | Recipe(acting).values(study.situation)
            made[acting] = apply(study.default, values, study.compact)
        found.append(made[acting])
    return found


def _distinct(numbers: np.ndarray, recipes: Sequence[Recipe]) -> tuple[list[int], list[list[Recipe]]]:
    """Return the first of the recipes that mean the same in every study, and for each the others."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    for i in range(len(recipes)):
        groups[numbers[:, i].tobytes()].append(i)
    return [same[0] for same in groups.values()], [[recipes[i] for i in same[1:]] for same in groups.values()]


def _conditions(studies: Sequence[Study]) -> list[tuple[Condition, list[bool]]]:
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
        known = {value for value in values if not math.isnan(value)}
        if feature.word:
            cuts = [0.5] if len(known) == 2 else []
        else:
            cuts = thresholds(values, log=feature.log, at_most=_CUTS)
        literals += [(Literal(feature.name, cut, below),) for cut in cuts for below in (True, False)]
    found: dict[tuple[bool, ...], Condition] = {}
    for condition in sorted((Condition(p + q) for p in pools for q in literals), key=lambda c: len(c.literals)):
        mask = tuple(condition.holds(study.values) for study in studies)
        if any(mask):
            found.setdefault(mask, condition)
    return [(condition, list(mask)) for mask, condition in found.items()]


def rules_of(
    table: Table, rules: Sequence[tuple[Condition, Recipe]], before: Sequence[tuple[Condition, Recipe]]
) -> list[Rule]:
    """Return rules with their evidence: the studies of the table in which each is the one that is followed."""
    found = []
    for i, (condition, recipe) in enumerate(rules):
        here = [study for study in table.studies if _first(rules, study) == i]
        if not here:
            continue
        of_batch = table.group == BATCH

        def choice(study: Study, recipe: Recipe = recipe) -> Setting:
            return study.setting(follow(before, study), recipe)

        number = table.recipes.index(recipe)
        evidence = account(here, choice, batch=of_batch) | {
            "same_there": _same(recipe, table.alike[number], _pool_of(here)),
            "example": _example(here, choice),
        }
        found.append(Rule(group=table.group, condition=condition, recipe=recipe, evidence=evidence))
    return found


def _same(recipe: Recipe, alike: Sequence[Recipe], pool: str | None) -> list[str]:
    """Return what a recipe could be called as well, for all that these studies tell; a few."""
    words = dict.fromkeys(other.words(pool) for other in alike if other.n_knobs <= recipe.n_knobs)
    return [text for text in words if text != recipe.words(pool)][:_FEW]


def _example(here: Sequence[Study], choice: Choice) -> dict[str, Any]:
    """Return what the rule sets in the newest of its studies, as environment variables."""
    study = here[-1]
    changed = {knob: value for knob, value in choice(study).items if value != study.default[knob]}
    return {**described(study.situation), "env": Setting.of(changed).env()}


def _pool_of(studies: Sequence[Study]) -> str | None:
    pools = {study.situation.pool for study in studies}
    return pools.pop() if len(pools) == 1 else None


def _first(rules: Sequence[tuple[Condition, Recipe]], study: Study) -> int:
    return next((i for i, (condition, _) in enumerate(rules) if condition.holds(study.values)), len(rules))


def otherwise(studies: Sequence[Study], rules: Sequence[tuple[Condition, Recipe]]) -> dict[str, Any]:
    """Return the account of keeping TensorFlow's defaults where no rule holds."""
    rest = [study for study in studies if _first(rules, study) == len(rules)]
    return account(rest, lambda study: study.default)


def coverage(studies: Sequence[Study]) -> Coverage:
    """Return what the studies cover."""
    ranges = {}
    for feature in FEATURES:
        values = [study.values[feature.name] for study in studies if not math.isnan(study.values[feature.name])]
        if values:
            ranges[feature.name] = (min(values), max(values))
    machines: dict[str, dict[str, Any]] = {}
    for study in studies:
        machine = study.situation.machine
        known = machines.setdefault(
            study.machine_id,
            {"cpu": machine.cpu_model, "machine": described(study.situation)["machine"], "studies": 0},
        )
        known["studies"] += 1
    workloads: dict[str, set[str]] = defaultdict(set)
    for study in studies:
        workloads[study.situation.mode].add(study.workload)
    builds = Counter(
        f"TensorFlow {study.runtime} ({'OpenMP' if study.situation.pool != EIGEN else 'Eigen'})" for study in studies
    )
    return Coverage(
        n_studies=len(studies),
        ranges=ranges,
        machines=machines,
        workloads={mode: sorted(names) for mode, names in sorted(workloads.items())},
        runtimes=dict(builds),
    )


def distil(studies: Sequence[Study], plan: LearnPlan) -> tuple[list[Rule], dict[str, Any], Table]:
    """Return the rules of all studies, the account of where none on threads holds, and the table they are from."""
    table = thread_table(studies)
    threads = table.learn(plan)
    batches = batch_table(studies, threads)
    rules = rules_of(table, threads, [])
    if len(batches.studies):
        rules += rules_of(batches, batches.learn(plan), threads)
    return rules, otherwise(studies, threads), table
