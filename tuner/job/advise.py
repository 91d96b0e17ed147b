"""Advice: a setting for a workload in seconds, from rules and without a trial."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.job.job import Job
from tuner.job.rulebook import exists, load
from tuner.model.graph import Features
from tuner.report.document import SCHEMA, Document
from tuner.report.rules import sentence
from tuner.rules.account import described
from tuner.rules.evidence import apply
from tuner.rules.recipe import BATCH, COMPACT
from tuner.rules.rule import THREADS, Rule, RuleSet
from tuner.rules.situation import Situation
from tuner.space.baseline import WANG, wang_width
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
    found[WANG] = apply(job.space.reference, wang, _compact(job))
    known = set(job.space.baselines.values())
    return {name: each for name, each in found.items() if each not in known and job.space.holds(each)}


def _compact(job: Job) -> Value | None:
    """Return how a compact binding is spelt here: as in a guide that asks for one."""
    return job.space.baselines["tf-guide-mkl"].to_dict().get("kmp_affinity")


def setting_by(rules: RuleSet, job: Job, situation: Situation, *, batch: bool) -> Setting:
    """Return the setting that rules give here; at the workload's own batch size, unless rules on `batch` count too."""
    values: dict[str, Value] = {}
    for group in (THREADS, BATCH) if batch else (THREADS,):
        rule = rules.rule(situation, group)
        if rule is not None:
            values |= rule.recipe.values(situation)
    default = job.space.reference
    return apply(default, {k: v for k, v in values.items() if k not in job.space.pins}, _compact(job))


def advise(job: Job, *, path: Path | None, batch: bool) -> tuple[Setting, Document]:
    """Return the setting that rules recommend, and the document that says why; raises BadInputError.

    Its model has to be exported already.
    """
    features = job.features()
    if features is None or not features.heavy_operators:
        raise BadInputError(
            f"nothing is known of the graph of {job.workload.name}, which rules ask about",
            "search instead: tftune search",
        )
    rules, found = load(path)
    situation = situation_of(job, features)
    setting = setting_by(rules, job, situation, batch=batch)
    outside = rules.coverage.outside(situation)
    rule, batch_rule = rules.rule(situation), rules.rule(situation, BATCH) if batch else None
    # A rule on the batch was learned, and is accounted for, on top of those on threads.
    follows = batch_rule or rule
    evidence = rules.otherwise if follows is None else follows.evidence
    promises = not outside and not rules.made["simulated"] and follows is not None
    return setting, {
        "schema": SCHEMA,
        **described(situation),
        "runtime": job.runtime.title,
        "features": features.to_dict(),
        "machine_known": job.machine.id in rules.coverage.machines,
        "outside": outside,
        "rules": {
            "file": str(found),
            "created": rules.made["created"],
            "studies": rules.coverage.n_studies,
            "simulated": rules.made["simulated"],
        },
        "rule": _told(rule, rules),
        "batch_rule": _told(batch_rule, rules),
        "setting": setting.to_dict(),
        "env": job.space.env(setting) if setting != job.space.reference else {},
        "evidence": dict(evidence),
        # What the evidence does not reach, nothing is promised for.
        "expected": evidence.get("expected") if promises else None,
    }


def _told(rule: Rule | None, rules: RuleSet) -> dict[str, Any] | None:
    if rule is None:
        return None
    before = [each.to_dict() for each in rules.rules[: rules.rules.index(rule)]]
    words = {"if": str(rule.condition), "then": rule.words, "group": rule.group}
    return words | {"sentence": sentence(words, before)}
