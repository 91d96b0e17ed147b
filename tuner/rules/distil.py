"""Distilling: from the studies of a team to a few rules with their evidence."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from tuner.rules.account import account, baselines, described, kind
from tuner.rules.average import next_one, over_workloads, ratio_document
from tuner.rules.evidence import Study
from tuner.rules.learn import LearnPlan
from tuner.rules.proof import OURS, Follow, prove
from tuner.rules.recipe import Recipe
from tuner.rules.rule import Coverage, Rule, RuleList, RuleSet
from tuner.rules.situation import EIGEN, FEATURES
from tuner.rules.table import Rules, Table, batch_table, follow, thread_table
from tuner.space.setting import Setting

_FEW = 3  # of what a recipe could be called as well
_LEAST_WORKLOADS = 3  # for a gain of their own


def rules_of(table: Table, rules: Rules, proof: Mapping[str, Any]) -> list[Rule]:
    """Return rules with their evidence: the studies of the table in which each is the one that is followed."""
    found = []
    for i, (condition, recipe) in enumerate(rules):
        here = [n for n, study in enumerate(table.studies) if _first(rules, study) == i]
        if not here:
            continue
        studies = [table.studies[n] for n in here]
        settings = [study.setting(table.before[n], recipe) for n, study in zip(here, studies, strict=True)]
        evidence = account(studies, settings, batch=table.of_batch) | {
            "expected": expected(studies, proof),
            "expected_in": expected_in(studies, proof),
            "same_there": _guides(studies, settings)
            or _same(recipe, table.alike[table.recipes.index(recipe)], _pool_of(studies)),
            "example": _example(*_shown(studies, settings)),
        }
        found.append(Rule(group=table.group, condition=condition, recipe=recipe, evidence=evidence))
    return found


def expected(studies: Sequence[Study], proof: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what rules that had not seen the workload give in such studies.

    Over TensorFlow's default, and, as `of_best`, of the best found. What was gained in the studies that a rule was
    chosen by is partly luck. None where nothing could be left out.
    """
    told = proof.get("by_workload")
    if told is None or not studies:
        return None
    names = {study.name for study in studies}
    such = [each for each in told["each"] if each["study"] in names]
    found = over_workloads((each["workload"], math.log(each["over_default"])) for each in such)
    of_best = over_workloads((each["workload"], math.log(each["of_best"][OURS])) for each in such)
    return {**(ratio_document(found) or {}), "next": next_one(found), "of_best": ratio_document(of_best)}


def expected_in(studies: Sequence[Study], proof: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the same by kind of machine and build, where there are several, of those with workloads enough."""
    kinds: dict[tuple[Any, ...], list[Study]] = defaultdict(list)
    for study in studies:
        kinds[tuple(kind(study.situation).values())].append(study)
    found = [(kind(some[0].situation), expected(some, proof)) for _, some in sorted(kinds.items()) if len(kinds) > 1]
    return [{**of, **told} for of, told in found if told is not None and told["workloads"] >= _LEAST_WORKLOADS]


def _guides(studies: Sequence[Study], settings: Sequence[Setting]) -> list[str]:
    """Return the recommended settings that a rule's are in all of the studies."""
    pairs = list(zip(studies, settings, strict=True))
    names = baselines(studies)
    return [f"what {name} sets" for name in names if all(study.baselines[name] == setting for study, setting in pairs)]


def _same(recipe: Recipe, alike: Sequence[Recipe], pool: str | None) -> list[str]:
    """Return what a recipe could be called as well, for all that these studies tell; a few."""
    words = dict.fromkeys(other.words(pool) for other in alike if other.n_knobs <= recipe.n_knobs)
    return [text for text in words if text != recipe.words(pool)][:_FEW]


def _shown(studies: Sequence[Study], settings: Sequence[Setting]) -> tuple[Study, Setting]:
    """Return the last study on most cores with its setting: on one core there is little to see."""
    pairs = zip(reversed(studies), reversed(settings), strict=True)
    return max(pairs, key=lambda pair: pair[0].situation.machine.usable_cores)


def _example(study: Study, setting: Setting) -> dict[str, Any]:
    """Return what a rule sets in a study, as environment variables: all of them, as it was measured.

    A build may make one variable's default of another.
    """
    other = setting.without("batch_size") != study.default.without("batch_size")
    env = setting.env() if other else Setting.of({"batch_size": setting.batch_size}).env()
    if setting.batch_size == study.default.batch_size:
        env.pop("TFTUNE_BATCH_SIZE", None)
    return {**described(study.situation), "env": env}


def _pool_of(studies: Sequence[Study]) -> str | None:
    pools = {study.situation.pool for study in studies}
    return pools.pop() if len(pools) == 1 else None


def _first(rules: Rules, study: Study) -> int:
    return next((i for i, (condition, _) in enumerate(rules) if condition.holds(study.values)), len(rules))


def coverage(studies: Sequence[Study]) -> Coverage:
    """Return what the studies cover."""
    ranges = {}
    for feature in FEATURES:
        values = [study.values[feature.name] for study in studies if not math.isnan(study.values[feature.name])]
        if values:
            ranges[feature.name] = (min(values), max(values))
    shapes: dict[str, dict[str, Any]] = {}
    for study in studies:
        known = shapes.setdefault(
            study.shape_id,
            {"host": study.host, "shape": described(study.situation)["shape"], "studies": 0},
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
        hosts=sorted({study.host for study in studies}),
        ranges=ranges,
        shapes=shapes,
        workloads={mode: sorted(names) for mode, names in sorted(workloads.items())},
        runtimes=dict(builds),
    )


def distil(studies: Sequence[Study], plan: LearnPlan, *, made: Mapping[str, Any]) -> RuleSet:
    """Return the rules of all studies, with their evidence and their proof."""
    threads, quick = thread_table(studies), replace(plan, flips=plan.flips // 2)
    rules = threads.learn(plan)
    batches = batch_table(studies, rules)

    @cache  # both proofs leave out the same workloads
    def learned(kept: tuple[bool, ...]) -> Rules:
        return threads.learn(quick, kept)

    def without(out: Callable[[Study], bool]) -> Rules:
        return learned(tuple(not out(study) for study in threads.studies))

    def threads_without(out: Callable[[Study], bool]) -> Follow:
        rest = without(out)
        return lambda study: (follow(rest, study),)

    def both_without(out: Callable[[Study], bool]) -> Follow:
        rest = without(out)
        own = batch_table(studies, rest).learn(quick, [not out(study) for study in batches.studies])
        return lambda study: (follow(rest, study), follow(own, study))

    tables = [(threads, rules, threads_without), (batches, batches.learn(plan), both_without)]
    lists = {t.group: _list(t, found, prove(t, left)) for t, found, left in tables if t.studies}
    return RuleSet(lists=lists, made=made)


def _list(table: Table, rules: Rules, proof: Mapping[str, Any]) -> RuleList:
    rest = [n for n, study in enumerate(table.studies) if _first(rules, study) == len(rules)]
    studies = [table.studies[n] for n in rest]
    settings = [table.studies[n].setting(table.before[n]) for n in rest]
    return RuleList(
        rules=rules_of(table, rules, proof),
        otherwise=account(studies, settings, batch=table.of_batch)
        | {"expected": expected(studies, proof), "expected_in": expected_in(studies, proof)},
        coverage=coverage(table.studies),
        proof=proof,
    )
