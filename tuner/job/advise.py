"""Advice: a setting for a workload in seconds, from rules and without a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.job.job import Job
from tuner.job.rulebook import exists, load
from tuner.machine.host import host_of
from tuner.model.graph import Features
from tuner.report.document import SCHEMA, Document
from tuner.report.rules import sentence
from tuner.rules.account import described, kind
from tuner.rules.evidence import COMPACT_BASELINE, apply
from tuner.rules.recipe import BATCH, COMPACT
from tuner.rules.rule import KEEP, Rule, RuleList, RuleSet
from tuner.rules.schema import THREADS
from tuner.rules.situation import Situation
from tuner.space.baseline import WANG, wang_width
from tuner.space.catalogue import KNOBS
from tuner.space.knob import Value
from tuner.space.setting import Setting

RULES = "rules"


def situation_of(job: Job, features: Features) -> Situation:
    """Return what rules may look at."""
    return Situation(
        workload=job.workload.name,
        mode=job.workload.mode,
        batch_size=job.space.reference.batch_size,
        features=features,
        machine=job.machine,
        pool=job.runtime.pool,
        onednn=job.runtime.has_onednn,
    )


def hints(job: Job, features: Features | None, *, told: Callable[[str], None]) -> dict[str, Setting]:
    """Return the settings for a search to try first, by what hints at them: those that its space holds.

    Rules that cannot be read are `told`, and stop no search.
    """
    if features is None or not features.heavy_operators:
        return {}
    situation = situation_of(job, features)
    found: dict[str, Setting] = {}
    if exists():
        try:
            found[RULES] = setting_by(load()[0], job, situation, batch=False)
        except BadInputError as error:
            told(f"rules are not followed: {error}")
    wang = wang_width(job.machine, features.width) | {"kmp_affinity": COMPACT}
    found[WANG] = apply(job.space.reference, wang | job.space.pins, _compact(job))
    known = set(job.space.baselines.values())
    return {name: each for name, each in found.items() if each not in known and job.space.holds(each)}


def _compact(job: Job) -> Value | None:
    """Return how a compact binding is spelt here: as in a guide that asks for one."""
    return job.space.baselines[COMPACT_BASELINE].to_dict().get("kmp_affinity")


def setting_by(rules: RuleSet, job: Job, situation: Situation, *, batch: bool) -> Setting:
    """Return the setting that rules give here; at the workload's own batch size, unless rules on `batch` count too."""
    values: dict[str, Value] = {}
    for group in (THREADS, BATCH) if batch else (THREADS,):
        rule = _rule(rules, situation, group)
        if rule is not None:
            values |= rule.recipe.values(situation.scale)
    return apply(job.space.reference, values | job.space.pins, _compact(job))


def _rule(rules: RuleSet, situation: Situation, group: str) -> Rule | None:
    return rules.lists[group].rule(situation) if group in rules.lists else None


def advise(job: Job, rules: RuleSet, place: Path, *, batch: bool) -> tuple[Setting, Document]:
    """Return the setting that rules, which lie in a `place`, recommend, and the document that says why.

    Its model has to be exported already. Raises BadInputError where nothing can be said.
    """
    features = job.features()
    if features is None or not features.heavy_operators:
        what = "is not known" if features is None else "has no heavy operator"
        raise BadInputError(
            f"the graph of {job.workload.name}, which rules ask about, {what}", "search instead: tftune search"
        )
    situation = situation_of(job, features)
    asked = (THREADS, BATCH) if batch else (THREADS,)
    groups = [group for group in asked if group in rules.lists]
    if not groups:
        raise BadInputError(f"no rules on threads in {place}", "make some: tftune suite --space threads")
    setting = setting_by(rules, job, situation, batch=batch)
    # Rules on the batch were learned, and are accounted for, on top of those on threads.
    last = rules.lists[groups[-1]]
    followed = last.rule(situation)
    outside = [text for group in groups for text in rules.lists[group].outside(situation)]
    evidence = last.otherwise if followed is None else followed.evidence
    host = host_of(job.machine.to_dict())
    told = [_told(rules.lists.get(group), group, situation, _compact(job)) for group in asked]
    return setting, {
        "schema": SCHEMA,
        **described(situation),
        "runtime": job.runtime.title,
        "features": features.to_dict(),
        "machine_known": host in last.coverage.hosts,
        "outside": list(dict.fromkeys(outside)),
        "rules": {"file": str(place), "created": rules.made["created"], "studies": rules.made["n_studies"]},
        "followed": told,
        "setting": setting.to_dict(),
        "env": _env(job, setting),
        "evidence": dict(evidence),
        "counter_example": counter_example(evidence, situation),
        # What the evidence does not reach, nothing is promised for.
        "expected": expected(evidence, situation) if any(each["if"] for each in told) and not outside else None,
    }


def expected(evidence: Mapping[str, Any], situation: Situation) -> Mapping[str, Any] | None:
    """Return what is expected on such a shape of a machine and build; of all, where too little is known of these."""
    return _like(evidence.get("expected_in", ()), kind(situation)) or evidence.get("expected")


def counter_example(evidence: Mapping[str, Any], situation: Situation) -> Mapping[str, Any] | None:
    """Return the study of this very workload, on such a machine and build, that speaks against what is followed."""
    return _like(evidence["counter_examples"], described(situation))


def _like(rows: Sequence[Mapping[str, Any]], here: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first of the rows that agrees in all that is said of `here`."""
    return next((each for each in rows if all(each[name] == here[name] for name in here)), None)


def _env(job: Job, setting: Setting) -> dict[str, str]:
    """Return what to set: nothing for TensorFlow's default, and no batch size that is the job's own anyway."""
    if setting == job.space.reference:
        return {}
    env = job.space.env(setting)
    if setting.batch_size == job.space.reference.batch_size:
        env.pop(KNOBS["batch_size"].variable, None)
    return env


def _told(rules: RuleList | None, group: str, situation: Situation, compact: Value | None) -> dict[str, Any]:
    """Return the rule of a group that is followed, in words for this build."""
    rule = None if rules is None else rules.rule(situation)
    if rules is None or rule is None:
        why = "no rule applies" if rules is not None else "no study of these rules tells of it"
        return {"group": group, "if": None, "then": KEEP[group], "sentence": f"{why}: {KEEP[group]}"}
    words = {"group": group, "if": str(rule.condition), "then": rule.words(situation.pool)}
    first = rules.rules[0] is rule
    told = sentence(words, first=first)
    if not first and not rule.condition.literals:
        told = f"no earlier rule applies: {words['then']}"
    bound = dict(rule.recipe.items).get("kmp_affinity")
    if bound == COMPACT and compact is not None and COMPACT not in str(compact):
        told += f" (on these CPUs {COMPACT} binds as {compact} does)"
    return words | {"sentence": told}
