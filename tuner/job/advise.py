"""Recommend a setting for a workload from rules, in seconds and without trials."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from tuner.errors import BadInputError
from tuner.job.job import Job
from tuner.job.overhead import known_overhead, known_overheads, with_overhead
from tuner.job.rulebook import exists, load
from tuner.machine.host import host_of
from tuner.model.graph import Features
from tuner.result import fields_of
from tuner.result.recommendation import (
    ExpectedSpeedup,
    FollowedRule,
    RecommendationResult,
    RuleAdvice,
    RulesOrigin,
    SeveralResult,
    reason,
    sentence,
)
from tuner.result.study import applied
from tuner.rules.evidence import COMPACT_BASELINE, apply, by_width
from tuner.rules.recipe import BATCH, BINDING, FRAMEWORK, LATENCY, PROCESSES, THREADS
from tuner.rules.rule import (
    KEEP,
    AdviceCode,
    AdviceReason,
    Rule,
    RuleDecision,
    RuleList,
    RuleSet,
    counter_example,
    decide,
    recipe_words,
)
from tuner.rules.situation import Situation, of_study
from tuner.rules.strata import SituationKind
from tuner.space.deployment import Deployment
from tuner.space.ensemble import in_proportion, knob_name
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.term import COMPACT
from tuner.space.values import Value

RULES = "rules"
PROPORTION = "in proportion to operations"
# A search measures what it tries, so a rule without evidence is worth a trial; one shown to gain nothing is not.
_WORTH_A_TRIAL = frozenset({AdviceReason.FOLLOW, AdviceReason.NO_EVIDENCE})
_MISSING = {
    THREADS: ("threads", "tftune suite --space threads"),
    PROCESSES: ("processes", "tftune search resnet50, and others"),
    LATENCY: ("processes at the same latency", "tftune suite --plan 15m"),
}
"""What a file of rules may lack, and what makes studies of it."""
_SHOWN_TO_GAIN_NOTHING = frozenset({AdviceReason.NO_GAIN, AdviceReason.OWN_STUDY})


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupChoice:
    """The rule of a group that applies, if there is one, and whether it is to be followed."""

    group: str
    rule: Rule | None
    decision: RuleDecision


def situation_of(job: Job, features: Features) -> Situation | None:
    """Return what rules may look at; None of another framework than TensorFlow, of which they tell nothing."""
    return of_study(job.subject, features) if job.framework is FRAMEWORK else None


def hints(job: Job, features: Features | None, *, notify: Callable[[str], None]) -> dict[str, Setting]:
    """Return the settings of the space that a search should try first, by the source of the hint.

    Where rules cannot be read, `notify` is called with the reason, and the search goes on without.
    """
    if job.workload.members:
        return _in_proportion(job)
    situation = situation_of(job, features) if features is not None and features.heavy_operators else None
    if situation is None or features is None:
        return {}
    hinted: dict[str, Setting] = {}
    if exists(job.device.kind):
        try:
            choice = _choose(load(device=job.device.kind)[0], THREADS, situation)
            if choice.decision.advice in _WORTH_A_TRIAL:
                hinted[RULES] = _setting(job, situation, [choice])
            elif choice.decision.advice in _SHOWN_TO_GAIN_NOTHING:
                notify(f"the rules recommend the default: {reason(choice.decision)}")
        except BadInputError as error:
            notify(f"ignoring the rules: {error}")
    if situation.gpu:  # Wang et al. wrote of CPUs
        return as_hints(job, hinted)
    hinted |= by_width(job.space.reference, job.machine, features.width, _compact(job), job.space.pins)
    return as_hints(job, hinted)


def as_hints(job: Job, hinted: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return those of the hinted settings that can be tried, and are no baselines."""
    baseline_settings = set(job.space.baselines.values())
    return {name: each for name, each in hinted.items() if each not in baseline_settings and job.space.contains(each)}


def _in_proportion(job: Job) -> dict[str, Setting]:
    """Return the setting that gives each member of an ensemble cores in proportion to what it computes."""
    flops = [0 if each is None else each.flops for each in map(job.features_of, job.workload.members)]
    if not all(flops):
        return {}
    reference = job.space.reference
    names = [knob_name(member) for member in job.space.members]
    cores = int(reference[names[0]])
    shares = dict(zip(names, in_proportion(flops, cores), strict=True))
    threads = job.space.catalogue.threads_on(cores)
    values = {name: threads[name] for name in threads if name in job.space.domains}
    setting = reference.with_values(**values | shares | job.space.pins)
    # Of very many divisions only some are points.
    nearest = min(job.space.points, key=lambda point: _distance(point, setting, names), default=setting)
    setting = setting.with_values(**{name: nearest[name] for name in names})
    is_new = setting not in job.space.baselines.values() and setting in job.space.points
    return {PROPORTION: setting} if is_new else {}


def _distance(a: Setting, b: Setting, names: Sequence[str]) -> int:
    """Return by how many cores the shares of two settings differ."""
    return sum(abs(int(a[name]) - int(b[name])) for name in names)


def _compact(job: Job) -> Value | None:
    """Return how a compact binding is spelt here: as in a guide that asks for one."""
    guide = job.space.baselines.get(COMPACT_BASELINE)
    return None if guide is None else guide.to_dict().get(BINDING)


def _setting(job: Job, situation: Situation, choices: Sequence[_GroupChoice]) -> Setting:
    """Return the setting by the rules of these choices, whatever is advised."""
    values: dict[str, Value] = {}
    for choice in choices:
        if choice.rule is not None:
            values |= choice.rule.recipe.values(situation.scale)
    own_batch = job.space.reference.batch_size
    for group in job.space.groups:
        if group[INSTANCES] == values.get(INSTANCES) and group.batch_size == own_batch:
            return group.with_values(batch_size=values.get(BATCH, own_batch))
    if INSTANCES in values:  # so many processes are none of the space
        return job.space.reference
    return apply(job.space.reference, values | job.space.pins, _compact(job))


def _choose(rules: RuleSet, group: str, situation: Situation) -> _GroupChoice:
    """Return the rule of a group that applies in a situation, and whether to follow it."""
    rule = rules.groups[group].rule(situation) if group in rules.groups else None
    return _GroupChoice(group=group, rule=rule, decision=decide(rule, situation))


def advise(
    job: Job, rules: RuleSet, place: Path, *, batch: bool, instances: bool = False, same_latency: bool = False
) -> tuple[Setting, RecommendationResult]:
    """Return the setting that rules, which lie in a `place`, recommend, and what is published of it.

    It is of one process, unless several `instances` are asked for, or several with smaller batches at about the
    `same_latency`. Its model has to be exported already. Raises BadInputError where nothing can be said.
    """
    if rules.device != job.device.kind:
        raise BadInputError(
            f"{place} has rules for the {rules.device}, and this is for the {job.device.kind}", "leave --rules out"
        )
    if job.framework is not FRAMEWORK:
        raise BadInputError(f"there are no rules for {job.framework.title}", "measure it: tftune search")
    features = with_overhead(job.features(), known_overhead(job, known_overheads(job)))
    if features is None or not features.heavy_operators:
        what = "is not known" if features is None else "has no heavy operator"
        raise BadInputError(
            f"cannot apply rules to {job.workload.name}: its graph {what}",
            f"run: tftune search {shlex.quote(job.workload.name)}",
        )
    situation = situation_of(job, features)
    assert situation is not None  # rules are about its framework
    if (instances or same_latency) and not job.space.groups:
        option = "--instances" if instances else "--same-latency"
        raise BadInputError(f"{option} is for the inference of one model on two cores or more", f"leave {option} out")
    requested_groups = (
        (PROCESSES,) if instances else (LATENCY,) if same_latency else (THREADS, BATCH) if batch else (THREADS,)
    )
    groups = [group for group in requested_groups if group in rules.groups]
    if not groups:
        what, how = _MISSING[requested_groups[0]]
        raise BadInputError(f"{place} has no rules about {what}", f"create some: {how}, then tftune rules --save")
    setting, result = _by_rules(job, rules, place, situation, requested_groups)
    if requested_groups == (THREADS,) and job.space.groups:
        beside = {
            name: SeveralResult(**fields_of(SeveralResult, _by_rules(job, rules, place, situation, (group,))[1]))
            for name, group in (("several", PROCESSES), ("same_latency", LATENCY))
            if group in rules.groups
        }
        result = structs.replace(result, **beside)
    return setting, result


def _by_rules(
    job: Job, rules: RuleSet, place: Path, situation: Situation, requested_groups: Sequence[str]
) -> tuple[Setting, RecommendationResult]:
    """Return the setting that the rules of some groups, of which there is one at least, recommend together."""
    groups = [group for group in requested_groups if group in rules.groups]
    choices = [_choose(rules, group, situation) for group in requested_groups]
    followed = [choice for choice in choices if choice.decision.advice is AdviceReason.FOLLOW]
    setting = _setting(job, situation, followed)
    # Rules on the batch were learned, and are accounted for, on top of those on threads.
    last = rules.groups[groups[-1]]
    rule = last.rule(situation)
    outside = [text for group in groups for text in rules.groups[group].outside(situation)]
    evidence = last.default_evidence if rule is None else rule.evidence
    kind = SituationKind.of(situation)
    return setting, RecommendationResult(
        **fields_of(RecommendationResult, kind),
        runtime=job.build.title,
        features=situation.features,
        inputs=job.inputs,
        machine_known=host_of(job.machine) in last.coverage.hosts,
        outside=tuple(dict.fromkeys(outside)),
        rules=RulesOrigin(file=str(place), created=rules.provenance.created, studies=rules.provenance.n_studies),
        advice=_advice((followed or choices)[-1]),
        followed=tuple(_followed(each, rules.groups.get(each.group), situation, _compact(job)) for each in choices),
        setting=setting.to_dict(),
        **applied(_deployment(job, setting)),
        evidence=evidence,
        counter_example=None if evidence is None else counter_example(evidence, situation),
        expected=_expected(followed, outside, setting, job.space.reference),
    )


def _advice(choice: _GroupChoice) -> RuleAdvice:
    """Return what is advised: a code, why the default is kept where it is, and what it rests on."""
    decision = choice.decision
    follows = decision.advice is AdviceReason.FOLLOW
    return RuleAdvice(
        code=AdviceCode.FOLLOW if follows else AdviceCode.KEEP_DEFAULT,
        reason=None if follows else decision.advice,
        stratum=decision.stratum,
        own_study=decision.own_study,
    )


def _expected(
    followed: Sequence[_GroupChoice], outside: Sequence[str], setting: Setting, default: Setting
) -> ExpectedSpeedup | None:
    """Return what is expected over the default, which is 1 where it is kept; None beyond what the evidence reaches."""
    if not followed:
        return ExpectedSpeedup(ratio=1.0, low=1.0, high=1.0, n_workloads=0, prediction_interval=None, kind=None)
    stratum = followed[-1].decision.stratum
    if outside or stratum is None or stratum.expected is None:
        return None
    gained = stratum.expected.over_default
    # Of a number of cores that no study has, the evidence knows no number of processes, and so no call.
    own_call = stratum.call if followed[-1].group == LATENCY else None
    here = structs.replace(stratum, n_processes=int(setting.to_dict().get(INSTANCES, 1)), call=own_call)
    return ExpectedSpeedup(
        **fields_of(ExpectedSpeedup, gained),
        prediction_interval=stratum.expected.prediction_interval,
        kind=stratum.kind,
        call=here.priced(setting.batch_size / default.batch_size).call,
    )


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
    then, first = recipe_words(group, rule.recipe, situation.pool), rules.rules[0] is rule
    if advice is AdviceReason.BY_RULE and rule.terms:
        then = f"{KEEP[group]}, which {then} comes to here"
    words = sentence(condition if rule.literals else None, then, first=first)
    if not first and not rule.literals:
        words = f"no other rule applies: {then}"
    bound = dict(rule.recipe.items).get(BINDING)
    if bound == COMPACT and compact is not None and COMPACT not in str(compact):
        words += f" (on these CPUs, {COMPACT} means {compact})"
    return FollowedRule(
        group=group, if_=condition, then=then, advice=advice, sentence=words, recipe=rule.recipe.to_dict()
    )
