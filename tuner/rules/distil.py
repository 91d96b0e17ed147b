"""Learn a few rules, with their evidence, from the studies of a team, and the policy that applies them.

A policy is rules that are applied only where they are shown to help; elsewhere the default is kept. The step has to be
learned as the rules are, and from the same studies: a table of what a policy gains in studies that were left out is
honest only if their evidence had no part in the decision to follow or to keep. So inside what is left, workloads are
left out once more, to learn where the rules help that were not chosen by them (nested cross-validation: Varma & Simon
(2006), Bias in error estimation when using cross-validation for model selection, BMC Bioinformatics 7).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from msgspec import structs

from tuner.rules.evidence import StudyEvidence, n_items, n_processes_of
from tuner.rules.gains import baselines, evidence_for
from tuner.rules.learn import LearnPlan
from tuner.rules.proof import FOLDS, ONE_BY_ONE, RULES, HeldOutStudy, Proof, RecipesOf, folds, prove
from tuner.rules.recipe import BATCH, FRAMEWORK, LATENCY, PROCESSES, THREADS, Recipe, acts_on
from tuner.rules.rule import Coverage, Example, Headline, Rule, RuleList, ShapeCoverage
from tuner.rules.situation import FEATURES
from tuner.rules.strata import (
    AdviceByStratum,
    Expected,
    Gain,
    Ratio,
    StratumClass,
    StratumEvidence,
    advice_by_stratum,
    over_workloads,
    prediction_interval,
)
from tuner.rules.table import (
    Rules,
    TrainingTable,
    batch_table,
    first_rule,
    follow,
    latency_table,
    process_table,
    thread_table,
)
from tuner.space.deployment import Deployment
from tuner.space.groups import cores_each
from tuner.space.setting import Setting
from tuner.space.term import EIGEN, OPENMP
from tuner.stats.estimate import Estimate

Out = Callable[[StudyEvidence], bool]
"""Says of a study whether it is left out."""
StudyMask = tuple[bool, ...]
"""Which studies of a table are learned from."""
_FEW = 3  # of what a recipe could be called as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules, the first of which that holds counts; and of each, in which strata it is advised."""

    rules: Rules
    advice: Sequence[AdviceByStratum]
    """Of each rule."""

    def recipe(self, study: StudyEvidence) -> Recipe:
        """Return what is followed in a study; to keep what is there where no gain is shown."""
        i = first_rule(self.rules, study)
        if i == len(self.rules):
            return Recipe()
        row = self.advice[i].row(study.kind)
        return self.rules[i][1] if row is not None and row.is_advised else Recipe()


def do_no_harm_policy(
    table: TrainingTable,
    rules: Rules,
    study_mask: StudyMask,
    *,
    learned: Callable[[StudyMask], Rules],
    fold: Mapping[str, int],
) -> Policy:
    """Return the policy that rules give which were learned from the studies in `study_mask`, and from these alone.

    `learned` gives the rules of some studies; `fold` says which workloads are left out together.
    """
    gains: list[list[Gain]] = [[] for _ in rules]
    for left_out in sorted(set(fold.values())):
        met = [n for n, study in enumerate(table.studies) if study_mask[n] and fold[study.workload] == left_out]
        if not met:
            continue
        of_others = learned(
            tuple(
                is_kept and fold[study.workload] != left_out
                for is_kept, study in zip(study_mask, table.studies, strict=True)
            )
        )
        for n in met:
            study = table.studies[n]
            i = first_rule(rules, study)
            if i < len(rules):
                gained = table.problem.u[n, table.recipes.index(follow(of_others, study))]
                gains[i].append(Gain(situation=study.kind, log_ratio=float(gained)))
    return Policy(rules=rules, advice=[advice_by_stratum(each) for each in gains])


def rules_of(table: TrainingTable, policy: Policy, proof: Proof) -> list[Rule]:
    """Return rules with their evidence: the studies of the table in which each is the first that holds."""
    rules = []
    for i, (condition, recipe) in enumerate(policy.rules):
        matching = [n for n, study in enumerate(table.studies) if first_rule(policy.rules, study) == i]
        if not matching:
            continue
        studies = [table.studies[n] for n in matching]
        settings = [study.setting(table.followed[n], recipe) for n, study in zip(matching, studies, strict=True)]
        pool = _pool_of(studies)
        alike = table.equivalent[table.recipes.index(recipe)]
        evidence = evidence_for(
            studies,
            settings,
            batch=table.of_batch,
            expected=expected(studies, proof),
            equivalents=_guides(studies, settings) or _same(recipe, alike, pool),
        )
        advice = AdviceByStratum(
            strata=_with_expected(policy.advice[i].strata, studies, proof, recipe),
            builds=_with_expected(policy.advice[i].builds, studies, proof, recipe),
        )
        against = {each.study for each in evidence.counter_examples}
        example = _example(studies, settings, advice, against)
        rules.append(Rule.of(table.group, condition, recipe, evidence=evidence, advice=advice, example=example))
    return rules


def expected(studies: Sequence[StudyEvidence], proof: Proof) -> Expected | None:
    """Return the held-out performance of the rules in such studies; None where nothing could be left out."""
    if proof.by_workload is None or not studies:
        return None
    names = {study.name for study in studies}
    rows = [each for each in proof.by_workload.studies if each.study in names]

    def mean(value_of: Callable[[HeldOutStudy], float]) -> Estimate:
        return over_workloads((each.situation.workload, math.log(value_of(each))) for each in rows)

    over_default = mean(lambda each: each.over_default)
    return Expected(
        over_default=Ratio.of(over_default),
        prediction_interval=prediction_interval(over_default),
        of_best=Ratio.of(mean(lambda each: each.of_best[RULES])),
        policy=Ratio.of(mean(lambda each: each.policy_over_default)),
    )


def headline(table: TrainingTable, policy: Policy, proof: Proof) -> list[Headline]:
    """Return what is expected by class of strata, and in how many of the studies a rule is advised."""
    rows = []
    for stratum_class in StratumClass:
        studies = [study for study in table.studies if study.kind.stratum_class is stratum_class]
        expectation = expected(studies, proof)
        if expectation is not None:
            n_followed = sum(policy.recipe(study) != Recipe() for study in studies)
            rows.append(
                Headline(class_=stratum_class, n_studies=len(studies), n_followed=n_followed, expected=expectation)
            )
    return rows


def _with_expected(
    rows: Sequence[StratumEvidence], studies: Sequence[StudyEvidence], proof: Proof, recipe: Recipe
) -> tuple[StratumEvidence, ...]:
    """Return the rows, each with what is expected there, on how many machines that was seen, and how many processes."""
    completed = []
    for row in rows:
        of_row = [study for study in studies if row.kind.covers(study.kind)]
        n_machines = len({study.host for study in of_row})
        counts = {n_processes_of(study.setting(recipe)) for study in of_row}
        n_processes = counts.pop() if len(counts) == 1 else None
        completed.append(
            structs.replace(
                row,
                expected=expected(of_row, proof),
                n_machines=n_machines,
                n_processes=n_processes,
                call=_call(of_row, recipe),
            )
        )
    return tuple(completed)


def _call(studies: Sequence[StudyEvidence], recipe: Recipe) -> Ratio | None:
    """Return how many times as long a call takes under a recipe, if the studies know it apart from what it gains."""
    longer = [
        (study.workload, math.log(n_items(setting, study.default)) - study.rates.log_ratio(study.default, setting)[0])
        for study in studies
        if study.rates is not None
        for setting in [study.setting(recipe)]
    ]
    return Ratio.of(over_workloads(longer)) if longer else None


def _guides(studies: Sequence[StudyEvidence], settings: Sequence[Setting]) -> list[str]:
    """Return the recommended settings that a rule's are in all of the studies."""
    pairs = list(zip(studies, settings, strict=True))
    names = baselines(studies)
    return [f"what {name} sets" for name in names if all(study.baselines[name] == setting for study, setting in pairs)]


def _same(recipe: Recipe, alike: Sequence[Recipe], pool: str | None) -> list[str]:
    """Return what a recipe could be called as well, for all that these studies tell; a few."""
    words = dict.fromkeys(other.words(pool) for other in alike if other.n_knobs <= recipe.n_knobs)
    return [text for text in words if text != recipe.words(pool)][:_FEW]


def _example(
    studies: Sequence[StudyEvidence], settings: Sequence[Setting], advice: AdviceByStratum, against: Container[str]
) -> Example | None:
    """Return what a rule sets in the largest machine's study, the latest of these; None where it is advised in none.

    A study that is `against` it is no example. All variables are there, as it was measured: a build may make one's
    default of another.
    """
    pairs = [
        (study, setting)
        for study, setting in zip(reversed(studies), reversed(settings), strict=True)
        if study.name not in against and (row := advice.row(study.kind)) is not None and row.is_advised
    ]
    if not pairs:
        return None
    study, setting = max(pairs, key=lambda pair: pair[0].situation.machine.usable_cores)
    own_batch = setting.batch_size == study.default.batch_size
    other = setting.without("batch_size") != study.default.without("batch_size")
    values, n_processes = setting.to_dict(), n_processes_of(setting)
    if n_processes > 1:
        machine, pool = study.situation.machine, study.situation.pool
        own = FRAMEWORK.threads_on(cores_each(machine.cores, machine, n_processes))
        values |= {knob: value for knob, value in own.items() if acts_on(knob, pool)}
    deployment = FRAMEWORK.catalogue.deploy(values) if other else Deployment()
    return Example(
        situation=study.kind,
        env=dict(deployment.env),
        arguments={} if own_batch else {"batch_size": setting.batch_size},
        processes=n_processes,
    )


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
    n_by_shape = Counter(study.shape_id for study in studies)
    shapes = {
        study.shape_id: ShapeCoverage(
            host=study.host, shape=str(study.kind.shape), n_studies=n_by_shape[study.shape_id]
        )
        for study in studies
    }
    workloads: dict[str, set[str]] = defaultdict(set)
    for study in studies:
        workloads[study.situation.mode].add(study.workload)
    names = {EIGEN: "Eigen", OPENMP: "OpenMP"}
    builds = Counter(f"{FRAMEWORK.title} {study.runtime} ({names[study.situation.pool]})" for study in studies)
    return Coverage(
        n_studies=len(studies),
        hosts=tuple(sorted({study.host for study in studies})),
        ranges=ranges,
        shapes=shapes,
        workloads={mode: tuple(sorted(names)) for mode, names in sorted(workloads.items())},
        runtimes=dict(builds),
    )


def distil(studies: Sequence[StudyEvidence], plan: LearnPlan) -> dict[str, RuleList]:
    """Return the rules of all studies by group, with their evidence, the policy that does no harm, and their proof.

    Rules of fewer studies are learned with fewer random signs: those of a proof with half of them, and those that tell
    the policy inside a proof where rules help with a quarter.
    """
    threads = _Learner(thread_table(studies), plan)
    batches = _Learner(batch_table(studies, threads.policy.recipe), plan)

    def batches_without(out: Out) -> tuple[_Learner, RecipesOf]:
        """Return what learns on the batch, on top of what is followed on threads without some studies."""
        first = threads.policy_of(_without(threads.table, out))
        return _Learner(batch_table(studies, first.recipe), plan), lambda study: (first.recipe(study),)

    lists = {
        THREADS: _list(threads),
        BATCH: _list(batches, batches_without),
        PROCESSES: _list(_Learner(process_table(studies), plan)),
        LATENCY: _list(_Learner(latency_table(studies), plan)),
    }
    return {group: each for group, each in lists.items() if each is not None}


class _Learner:
    """What is learned of a group from the studies of its table, or from some of them."""

    def __init__(self, table: TrainingTable, plan: LearnPlan) -> None:
        quick, quicker = (replace(plan, n_sign_flips=plan.n_sign_flips // n) for n in (2, 4))
        self.table = table
        self._plan = plan
        # Both proofs leave out the same workloads.
        self.rules_of = cache(partial(table.learn, quick))
        self._rules_inside = cache(partial(table.learn, quicker))
        self.policy_of = cache(self._policy_of)

    @cached_property
    def policy(self) -> Policy:
        """Return the policy that all studies give."""
        table = self.table
        return do_no_harm_policy(table, table.learn(self._plan), _all(table), learned=self.rules_of, fold=_each(table))

    def _policy_of(self, study_mask: StudyMask) -> Policy:
        """Return the policy that some of the studies give."""
        table = self.table
        return do_no_harm_policy(
            table, self.rules_of(study_mask), study_mask, learned=self._rules_inside, fold=_inside(table)
        )


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


def _list(learner: _Learner, without: Callable[[Out], tuple[_Learner, RecipesOf]] | None = None) -> RuleList | None:
    """Return the rules of a group, None of no study.

    `without` gives what learns without some studies, and what is followed before that. A group that stands on no other
    needs none.
    """
    table = learner.table
    if not table.studies:
        return None
    part = without or (lambda _: (learner, lambda _: ()))

    def rules_without(out: Out) -> RecipesOf:
        remaining, before = part(out)
        rules = remaining.rules_of(_without(remaining.table, out))
        return lambda study: (*before(study), follow(rules, study))

    def policy_without(out: Out) -> RecipesOf:
        remaining, before = part(out)
        cautious = remaining.policy_of(_without(remaining.table, out))
        return lambda study: (*before(study), cautious.recipe(study))

    proof, policy = prove(table, rules_without, policy_without), learner.policy
    rules = policy.rules
    unmatched = [n for n, study in enumerate(table.studies) if first_rule(rules, study) == len(rules)]
    studies = [table.studies[n] for n in unmatched]
    settings = [table.studies[n].setting(table.followed[n]) for n in unmatched]
    return RuleList(
        headline=tuple(headline(table, policy, proof)),
        rules=tuple(rules_of(table, policy, proof)),
        default_evidence=evidence_for(studies, settings, batch=table.of_batch, expected=expected(studies, proof))
        if studies
        else None,
        proof=proof,
        coverage=coverage(table.studies),
    )
