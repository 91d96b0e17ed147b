"""Advice: a setting for a workload in seconds, from rules and without a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.job.job import Job
from tuner.job.rulebook import load
from tuner.model.graph import Features
from tuner.report.document import SCHEMA, Document
from tuner.rules.account import described
from tuner.rules.evidence import apply
from tuner.rules.recipe import BATCH
from tuner.rules.rule import THREADS, Rule, RuleSet
from tuner.rules.situation import Situation
from tuner.space.baseline import DEFAULT
from tuner.space.knob import Value
from tuner.space.setting import Setting


def situation_of(job: Job, features: Features) -> Situation:
    """Return what rules may look at."""
    return Situation(
        workload=job.workload.name,
        mode=job.workload.mode,
        batch_size=job.workload.batch_size,
        features=features,
        machine=job.machine,
        pool=job.runtime.pool,
    )


def setting_by(rules: RuleSet, job: Job, situation: Situation, *, batch: bool) -> Setting:
    """Return the setting that rules give here; at the workload's own batch size, unless rules on `batch` count too."""
    values: dict[str, Value] = {}
    for group in (THREADS, BATCH) if batch else (THREADS,):
        rule = rules.rule(situation, group)
        if rule is not None:
            values |= rule.recipe.values(situation)
    default = job.space.reference
    compact = job.space.baselines["tf-guide-mkl"].to_dict().get("kmp_affinity")
    return apply(default, {k: v for k, v in values.items() if k not in job.space.pins}, compact)


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
    rule = rules.rule(situation)
    evidence = rules.otherwise if rule is None else rule.evidence
    return setting, {
        "schema": SCHEMA,
        **described(situation),
        "runtime": job.runtime.title,
        "features": features.to_dict(),
        "machine_known": job.machine.id in rules.coverage.machines,
        "outside": outside,
        "rules": {"file": str(found), "created": rules.made["created"], "studies": rules.coverage.n_studies},
        "rule": _told(rule),
        "batch_rule": _told(rules.rule(situation, BATCH)) if batch else None,
        "setting": setting.to_dict(),
        "env": job.space.env(setting) if setting != job.space.reference else {},
        "evidence": dict(evidence),
        # What the evidence does not reach, nothing is promised for.
        "expected": None if outside or not evidence["studies"] else _expected(evidence),
    }


def _told(rule: Rule | None) -> dict[str, Any] | None:
    return None if rule is None else {"if": str(rule.condition), "then": rule.words, "group": rule.group}


def _expected(evidence: Any) -> dict[str, Any] | None:
    """Return the mean gain over TensorFlow's default, its interval, and what one more workload lies between."""
    gain = evidence["gain"].get(DEFAULT)
    return None if gain is None else {**gain, "next": evidence["next"]}
