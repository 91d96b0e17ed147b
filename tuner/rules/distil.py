"""Learn a few rules, with their evidence, from the studies of a team."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.rules.average import next_one, over_workloads, ratio_document
from tuner.rules.evidence import StudyEvidence
from tuner.rules.gains import baselines, evidence_for, kind, situation_document
from tuner.rules.learn import LearnPlan
from tuner.rules.policy import Policy, StudyMask, do_no_harm_policy
from tuner.rules.proof import FOLDS, ONE_BY_ONE, RULES, RecipesOf, folds, prove
from tuner.rules.recipe import Recipe
from tuner.rules.rule import Coverage, Rule, RuleList, RuleSet
from tuner.rules.situation import FEATURES
from tuner.rules.strata import CLASSES, AdviceReason, class_of, decide
from tuner.rules.table import Rules, TrainingTable, batch_table, first_rule, follow, thread_table
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.term import EIGEN
from tuner.stats.estimate import Estimate

Out = Callable[[StudyEvidence], bool]
"""Says of a study whether it is left out."""
_FEW = 3  # of what a recipe could be called as well


def rules_of(table: TrainingTable, policy: Policy, proof: Mapping[str, Any]) -> list[Rule]:
    """Return rules with their evidence: the studies of the table in which each is the first that holds."""
    rules = []
    for i, (condition, recipe) in enumerate(policy.rules):
        matching = [n for n, study in enumerate(table.studies) if first_rule(policy.rules, study) == i]
        if not matching:
            continue
        studies = [table.studies[n] for n in matching]
        settings = [study.setting(table.followed[n], recipe) for n, study in zip(matching, studies, strict=True)]
        evidence = evidence_for(studies, settings, batch=table.of_batch) | {
            "expected": expected(studies, proof),
            **_by_stratum(studies, policy.evidence[i], proof),
            "same_there": _guides(studies, settings)
            or _same(recipe, table.equivalent[table.recipes.index(recipe)], _pool_of(studies)),
        }
        example = _shown(studies, settings, evidence)
        if example is not None:
            evidence["example"] = _example(*example)
        rules.append(Rule(group=table.group, condition=condition, recipe=recipe, evidence=evidence))
    return rules


def expected(studies: Sequence[StudyEvidence], proof: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the held-out performance of the rules in such studies.

    Over TensorFlow's default, and, as `of_best`, of the best found; and, as `policy`, over the default again with the
    step that does no harm. What was gained in the studies that a rule was chosen by is partly chance. None where
    nothing could be left out.
    """
    held_out = proof.get("by_workload")
    if held_out is None or not studies:
        return None
    names = {study.name for study in studies}
    matching_rows = [each for each in held_out["each"] if each["study"] in names]

    def mean(value_of: Callable[[Mapping[str, Any]], float]) -> Estimate | None:
        return over_workloads((each["workload"], math.log(value_of(each))) for each in matching_rows)

    average = mean(lambda each: each["over_default"])
    return {
        **(ratio_document(average) or {}),
        "next": next_one(average),
        "of_best": ratio_document(mean(lambda each: each["of_best"][RULES])),
        "policy": ratio_document(mean(lambda each: each["policy_over_default"])),
    }


def headline(table: TrainingTable, policy: Policy, proof: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is expected by class of strata, and in how many of the studies a rule is advised."""
    rows = []
    for name in CLASSES:
        studies = [study for study in table.studies if class_of(kind(study.situation)) == name]
        expectation = expected(studies, proof)
        if expectation is not None:
            followed = sum(policy.recipe(study) != Recipe() for study in studies)
            rows.append({"class": name, "studies": len(studies), "followed": followed, **expectation})
    return rows


def _by_stratum(
    studies: Sequence[StudyEvidence], advised: Mapping[str, Any], proof: Mapping[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """Return the advice by stratum and by build, each with what is expected there."""
    return {
        name: [row | (expected([s for s in studies if _is_of(row, s)], proof) or {}) for row in rows]
        for name, rows in advised.items()
    }


def _is_of(row: Mapping[str, Any], study: StudyEvidence) -> bool:
    """Return whether a study is of the stratum, or of the build, that a row is of."""
    return all(row.get(name, value) == value for name, value in kind(study.situation).items())


def _guides(studies: Sequence[StudyEvidence], settings: Sequence[Setting]) -> list[str]:
    """Return the recommended settings that a rule's are in all of the studies."""
    pairs = list(zip(studies, settings, strict=True))
    names = baselines(studies)
    return [f"what {name} sets" for name in names if all(study.baselines[name] == setting for study, setting in pairs)]


def _same(recipe: Recipe, alike: Sequence[Recipe], pool: str | None) -> list[str]:
    """Return what a recipe could be called as well, for all that these studies tell; a few."""
    words = dict.fromkeys(other.words(pool) for other in alike if other.n_knobs <= recipe.n_knobs)
    return [text for text in words if text != recipe.words(pool)][:_FEW]


def _shown(
    studies: Sequence[StudyEvidence], settings: Sequence[Setting], evidence: Mapping[str, Any]
) -> tuple[StudyEvidence, Setting] | None:
    """Return the last study on most cores, where there is most to see, in which a rule is advised; with its setting."""
    against = {each["study"] for each in evidence["counter_examples"]}
    pairs = [
        (study, setting)
        for study, setting in zip(reversed(studies), reversed(settings), strict=True)
        if study.name not in against and decide(evidence, kind(study.situation)).advice is AdviceReason.FOLLOW
    ]
    return max(pairs, key=lambda pair: pair[0].situation.machine.usable_cores, default=None)


def _example(study: StudyEvidence, setting: Setting) -> dict[str, Any]:
    """Return what a rule sets in a study, as environment variables: all of them, as it was measured.

    A build may make one variable's default of another.
    """
    other = setting.without("batch_size") != study.default.without("batch_size")
    deployment = FRAMEWORK.catalogue.deploy(setting.to_dict()) if other else Deployment()
    example = {**situation_document(study.situation), "env": dict(deployment.env)}
    if setting.batch_size != study.default.batch_size:
        example["arguments"] = {"batch_size": setting.batch_size}
    return example


def _pool_of(studies: Sequence[StudyEvidence]) -> str | None:
    pools = {study.situation.pool for study in studies}
    return pools.pop() if len(pools) == 1 else None


def coverage(studies: Sequence[StudyEvidence]) -> Coverage:
    """Return what the studies cover."""
    ranges = {}
    for feature in FEATURES:
        values = [study.values[feature.name] for study in studies if not math.isnan(study.values[feature.name])]
        if values:
            ranges[feature.name] = (min(values), max(values))
    shapes: dict[str, dict[str, Any]] = {}
    for study in studies:
        shape = shapes.setdefault(
            study.shape_id,
            {"host": study.host, "shape": situation_document(study.situation)["shape"], "studies": 0},
        )
        shape["studies"] += 1
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


def distil(studies: Sequence[StudyEvidence], plan: LearnPlan, *, provenance: Mapping[str, Any]) -> RuleSet:
    """Return the rules of all studies, with their evidence, the policy that does no harm, and their proof.

    Rules of fewer studies are learned with fewer random signs: those of a proof with half of them, and those that tell
    the policy inside a proof where rules help with a quarter.
    """
    threads = thread_table(studies)
    rules = threads.learn(plan)
    quick, quicker = (replace(plan, n_sign_flips=plan.n_sign_flips // n) for n in (2, 4))

    @cache  # both proofs leave out the same workloads
    def learned(study_mask: StudyMask) -> Rules:
        return threads.learn(quick, study_mask)

    @cache
    def learned_inside(study_mask: StudyMask) -> Rules:
        return threads.learn(quicker, study_mask)

    @cache
    def policy_of(study_mask: StudyMask) -> Policy:
        return do_no_harm_policy(
            threads, learned(study_mask), study_mask, learned=learned_inside, fold=_inside(threads)
        )

    def threads_without(out: Out) -> RecipesOf:
        remaining_rules = learned(_without(threads, out))
        return lambda study: (follow(remaining_rules, study),)

    def policy_without(out: Out) -> RecipesOf:
        policy = policy_of(_without(threads, out))
        return lambda study: (policy.recipe(study),)

    thread_policy = do_no_harm_policy(threads, rules, _all(threads), learned=learned, fold=_each(threads))
    lists = {}
    if threads.studies:
        lists[threads.group] = _list(threads, thread_policy, prove(threads, threads_without, policy_without))
    batches = batch_table(studies, thread_policy.recipe)
    if batches.studies:
        lists[batches.group] = _batches(studies, batches, plan, lambda out: policy_of(_without(threads, out)))
    return RuleSet(lists=lists, provenance=provenance)


def _batches(
    studies: Sequence[StudyEvidence], table: TrainingTable, plan: LearnPlan, threads_without: Callable[[Out], Policy]
) -> RuleList:
    """Return the rules on the batch size; `threads_without` is the policy on threads without some studies."""
    quick, quicker = (replace(plan, n_sign_flips=plan.n_sign_flips // n) for n in (2, 4))
    rules = table.learn(plan)
    policy = do_no_harm_policy(
        table, rules, _all(table), learned=lambda kept: table.learn(quick, kept), fold=_each(table)
    )

    def parts(out: Out) -> tuple[Policy, TrainingTable, Rules, StudyMask]:
        """Return what is followed on threads, and on top of it the rules on the batch, without some studies."""
        first = threads_without(out)
        inner_table = batch_table(studies, first.recipe)
        study_mask = _without(inner_table, out)
        return first, inner_table, inner_table.learn(quick, study_mask), study_mask

    def rules_without(out: Out) -> RecipesOf:
        first, _, batch_rules, _ = parts(out)
        return lambda study: (first.recipe(study), follow(batch_rules, study))

    def policy_without(out: Out) -> RecipesOf:
        first, inner_table, batch_rules, study_mask = parts(out)
        cautious = do_no_harm_policy(
            inner_table,
            batch_rules,
            study_mask,
            learned=lambda inner: inner_table.learn(quicker, inner),
            fold=_inside(inner_table),
        )
        return lambda study: (first.recipe(study), cautious.recipe(study))

    return _list(table, policy, prove(table, rules_without, policy_without))


def _all(table: TrainingTable) -> StudyMask:
    return (True,) * len(table.studies)


def _without(table: TrainingTable, out: Out) -> StudyMask:
    return tuple(not out(study) for study in table.studies)


def _each(table: TrainingTable) -> dict[str, int]:
    """Return the folds of a table's workloads, as its proof has them."""
    return folds(table.studies, lambda study: study.workload)


def _inside(table: TrainingTable) -> dict[str, int]:
    """Return the folds that are left out once more, inside a proof: a fifth at a time, of many workloads a half.

    Two folds of many leave as many to learn from as all of few have, and cost a third.
    """
    many = len({study.workload for study in table.studies}) > ONE_BY_ONE
    return folds(table.studies, lambda study: study.workload, at_most=1, parts=2 if many else FOLDS)


def _list(table: TrainingTable, policy: Policy, proof: Mapping[str, Any]) -> RuleList:
    rules = policy.rules
    unmatched = [n for n, study in enumerate(table.studies) if first_rule(rules, study) == len(rules)]
    studies = [table.studies[n] for n in unmatched]
    settings = [table.studies[n].setting(table.followed[n]) for n in unmatched]
    return RuleList(
        rules=rules_of(table, policy, proof),
        default_evidence=evidence_for(studies, settings, batch=table.of_batch) | {"expected": expected(studies, proof)},
        headline=headline(table, policy, proof),
        coverage=coverage(table.studies),
        proof=proof,
    )
