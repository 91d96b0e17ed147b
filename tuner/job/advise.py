"""Recommend a setting for a workload from rules, in seconds and without trials.

Where the evidence shows no gain in such a stratum (`tuner.rules.strata`), or the very workload's own study speaks
against the rule, the advice is to keep the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.baselines import WANG, wang_width
from tuner.frameworks.tensorflow.build import TensorFlowBuild
from tuner.job.job import Job
from tuner.job.rulebook import exists, load
from tuner.machine.host import host_of
from tuner.model.graph import Features
from tuner.report.result.recommendation import FollowedRule, RecommendationResult, RuleAdvice, RulesOrigin
from tuner.report.result.study import applied
from tuner.report.rules import reason, sentence
from tuner.rules.evidence import COMPACT_BASELINE, apply
from tuner.rules.gains import kind, situation_document
from tuner.rules.recipe import BATCH, Recipe
from tuner.rules.rule import KEEP, Rule, RuleList, RuleSet
from tuner.rules.schema import THREADS
from tuner.rules.situation import Situation
from tuner.rules.strata import AdviceCode, AdviceReason, RuleDecision, decide, is_gain
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.term import COMPACT
from tuner.space.values import Value

RULES = "rules"
# A search measures what it tries, so a rule without evidence is worth a trial; one shown to gain nothing is not.
_WORTH_A_TRIAL = frozenset({AdviceReason.FOLLOW, AdviceReason.NO_EVIDENCE})


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupChoice:
    """The rule of a group that applies, if there is one, and whether it is to be followed."""

    group: str
    rule: Rule | None
    decision: RuleDecision


def situation_of(job: Job, features: Features) -> Situation | None:
    """Return what rules may look at; None of another framework than TensorFlow, of which they tell nothing."""
    if not isinstance(job.build, TensorFlowBuild):
        return None
    return Situation(
        workload=job.workload.name,
        mode=job.workload.mode,
        batch_size=job.space.reference.batch_size,
        features=features,
        machine=job.machine,
        pool=job.build.pool,
        onednn=job.build.has_onednn,
    )


def hints(job: Job, features: Features | None, *, notify: Callable[[str], None]) -> dict[str, Setting]:
    """Return the settings of the space that a search should try first, by the source of the hint.

    Where rules cannot be read, `notify` is called with the reason, and the search goes on without.
    """
    situation = situation_of(job, features) if features is not None and features.heavy_operators else None
    if situation is None or features is None:
        return {}
    hinted: dict[str, Setting] = {}
    if exists():
        try:
            choice = _choose(load()[0], THREADS, situation)
            if choice.decision.advice in _WORTH_A_TRIAL:
                hinted[RULES] = _setting(job, situation, [choice])
            elif choice.decision.row is not None:
                notify(f"the rules recommend the default: {reason(choice.decision)}")
        except BadInputError as error:
            notify(f"ignoring the rules: {error}")
    wang = wang_width(job.machine, features.width) | {"kmp_affinity": COMPACT}
    hinted[WANG] = apply(job.space.reference, wang | job.space.pins, _compact(job))
    baseline_settings = set(job.space.baselines.values())
    return {name: each for name, each in hinted.items() if each not in baseline_settings and job.space.contains(each)}


def _compact(job: Job) -> Value | None:
    """Return how a compact binding is spelt here: as in a guide that asks for one."""
    return job.space.baselines[COMPACT_BASELINE].to_dict().get("kmp_affinity")


def _setting(job: Job, situation: Situation, choices: Sequence[_GroupChoice]) -> Setting:
    """Return the setting by the rules of these choices, whatever is advised."""
    values: dict[str, Value] = {}
    for choice in choices:
        if choice.rule is not None:
            values |= choice.rule.recipe.values(situation.scale)
    return apply(job.space.reference, values | job.space.pins, _compact(job))


def _choose(rules: RuleSet, group: str, situation: Situation) -> _GroupChoice:
    """Return the rule of a group that applies in a situation, and whether to follow it."""
    rule = rules.lists[group].rule(situation) if group in rules.lists else None
    return _GroupChoice(group=group, rule=rule, decision=decision_on(rule, situation))


def decision_on(rule: Rule | None, situation: Situation) -> RuleDecision:
    """Return whether to follow a rule: the very workload's own study counts for more than what is so in general."""
    if rule is None or rule.recipe == Recipe():
        return RuleDecision(advice=AdviceReason.NO_RULE if rule is None else AdviceReason.BY_RULE)
    own_study = counter_example(rule.evidence, situation)
    if own_study is not None and not is_gain(own_study["over_default"]):
        return RuleDecision(advice=AdviceReason.OWN_STUDY, row=own_study)
    return decide(rule.evidence, kind(situation))


def advise(job: Job, rules: RuleSet, place: Path, *, batch: bool) -> tuple[Setting, RecommendationResult]:
    """Return the setting that rules, which lie in a `place`, recommend, and what is published of it.

    Its model has to be exported already. Raises BadInputError where nothing can be said.
    """
    features = job.features()
    if features is None or not features.heavy_operators:
        what = "is not known" if features is None else "has no heavy operator"
        raise BadInputError(
            f"cannot apply rules to {job.workload.name}: its graph {what}", f"run: tftune search {job.workload.name}"
        )
    situation = situation_of(job, features)
    if situation is None:
        raise BadInputError(f"there are no rules for {job.framework.title}", "run: tftune search")
    requested_groups = (THREADS, BATCH) if batch else (THREADS,)
    groups = [group for group in requested_groups if group in rules.lists]
    if not groups:
        raise BadInputError(
            f"{place} has no rules about threads", "create some: tftune suite --space threads, then tftune rules --keep"
        )
    choices = [_choose(rules, group, situation) for group in requested_groups]
    followed = [choice for choice in choices if choice.decision.advice is AdviceReason.FOLLOW]
    setting = _setting(job, situation, followed)
    # Rules on the batch were learned, and are accounted for, on top of those on threads.
    last = rules.lists[groups[-1]]
    rule = last.rule(situation)
    outside = [text for group in groups for text in rules.lists[group].outside(situation)]
    evidence = last.default_evidence if rule is None else rule.evidence
    expected = _expected(followed, outside)
    against = counter_example(evidence, situation)
    return setting, RecommendationResult(
        **situation_document(situation),
        runtime=job.build.title,
        features=features,
        machine_known=host_of(job.machine) in last.coverage.hosts,
        outside=tuple(dict.fromkeys(outside)),
        rules=RulesOrigin(file=str(place), created=rules.provenance["created"], studies=rules.provenance["n_studies"]),
        advice=_advice((followed or choices)[-1]),
        followed=tuple(_followed(each, rules.lists.get(each.group), situation, _compact(job)) for each in choices),
        setting=setting.to_dict(),
        **applied(_deployment(job, setting)),
        evidence=dict(evidence),
        counter_example=None if against is None else dict(against),
        expected=None if expected is None else dict(expected),
    )


def _advice(choice: _GroupChoice) -> RuleAdvice:
    """Return what is advised: a code, why the default is kept where it is, and the figures that it rests on."""
    advice, row = choice.decision.advice, choice.decision.row
    follows = advice is AdviceReason.FOLLOW
    return RuleAdvice(
        code=AdviceCode.FOLLOW if follows else AdviceCode.KEEP_DEFAULT,
        reason=None if follows else advice,
        evidence=None if row is None else dict(row),
    )


def _expected(followed: Sequence[_GroupChoice], outside: Sequence[str]) -> Mapping[str, Any] | None:
    """Return what is expected over the default, which is 1 where it is kept; None beyond what the evidence reaches."""
    if not followed:
        return {"ratio": 1.0, "low": 1.0, "high": 1.0}
    row = followed[-1].decision.row
    return None if outside or row is None or "ratio" not in row else row


def counter_example(evidence: Mapping[str, Any], situation: Situation) -> Mapping[str, Any] | None:
    """Return the worst study of this very workload, on such a machine and build, that speaks against a rule."""
    this_situation = situation_document(situation)
    matching = [
        each
        for each in evidence["counter_examples"]
        if all(each[name] == this_situation[name] for name in this_situation)
    ]
    return min(matching, key=lambda each: each["over_default"], default=None)


def _deployment(job: Job, setting: Setting) -> Deployment:
    """Return what to set: nothing for the default, and no batch size that is the job's own anyway."""
    if setting == job.space.reference:
        return Deployment()
    every = job.space.deployment(setting)
    return replace(every, arguments={}) if setting.batch_size == job.space.reference.batch_size else every


def _followed(
    choice: _GroupChoice, rules: RuleList | None, situation: Situation, compact: Value | None
) -> FollowedRule:
    """Return what is followed of a group, in words for this build: its rule, or why the default is kept."""
    group, rule, advice = choice.group, choice.rule, choice.decision.advice
    if rules is None or rule is None:
        why = "no rule applies" if rules is not None else "no study behind these rules covers it"
        return FollowedRule(group=group, if_=None, then=KEEP[group], advice=advice, sentence=f"{why}: {KEEP[group]}")
    condition = str(rule.condition)
    if advice not in (AdviceReason.FOLLOW, AdviceReason.BY_RULE):
        why = f"{KEEP[group]}: {reason(choice.decision)}"
        return FollowedRule(group=group, if_=condition, then=KEEP[group], advice=advice, sentence=why)
    then, first = rule.words(situation.pool), rules.rules[0] is rule
    words = sentence(condition if rule.condition.literals else None, then, first=first)
    if not first and not rule.condition.literals:
        words = f"no other rule applies: {then}"
    bound = dict(rule.recipe.items).get("kmp_affinity")
    if bound == COMPACT and compact is not None and COMPACT not in str(compact):
        words += f" (on these CPUs, {COMPACT} means {compact})"
    return FollowedRule(group=group, if_=condition, then=then, advice=advice, sentence=words)
