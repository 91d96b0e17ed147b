"""The one description of a study that every report is drawn from, derived from the record alone.

Its keys are the JSON contract; terminal tables read the same ones, so that the two cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.errors import BadInputError
from tuner.frameworks.framework import Build
from tuner.machine.host import Machine
from tuner.measure import finals
from tuner.measure.constraint import Limits
from tuner.measure.finals import Round
from tuner.measure.objective import Objective
from tuner.measure.recommendation import judge_all
from tuner.measure.warning import merge
from tuner.report import evidence
from tuner.report.decision import decide, deployment_of
from tuner.report.sessions import standing_of
from tuner.search.history import incumbent
from tuner.search.record import Record, Trial
from tuner.search.surrogate import believed
from tuner.space.space import Space
from tuner.space.values import Value
from tuner.stats.noise import Noise
from tuner.stats.tail import Kept, p99
from tuner.trial.outcome import Status
from tuner.workload.workload import Workload

SCHEMA = 1

Document = dict[str, Any]

NO_STUDY: Document = {"schema": SCHEMA, "study": None, "incumbent": None, "verdicts": None, "recommended": None}
"""The document of a search that was interrupted before it had a study."""


def describe_host(machine: Machine, build: Build) -> Document:
    """Return the machine and the build."""
    return {"machine": machine.to_dict() | {"usable_cpus": machine.usable_cpus}, "runtime": build.to_dict()}


def describe_space(space: Space) -> Document:
    """Return the knobs, on or off, and the baselines as resolved here."""
    knobs: Document = {}
    for name, knob in space.catalogue.knobs.items():
        common = {"variable": knob.variable, "set_by": knob.carrier.title, "meaning": knob.meaning}
        if name in space.off:
            knobs[name] = {"active": False, "reason": space.off[name], **common}
        elif name in space.domains:
            knobs[name] = {"active": True, "values": list(space.domains[name]), **common}
            if name in space.dropped:
                knobs[name]["dropped"] = space.dropped[name]
    sources = {baseline.name: baseline.source for baseline in space.catalogue.baselines}
    aliases = space.aliases()
    baselines = {
        name: {"setting": setting.to_dict(), "same_as": aliases[name], "source": sources[name]}
        for name, setting in space.baselines.items()
    }
    named = {"space": space.name, "space_digest": space.file_digest}
    return {**named, "points": len(space.points), "knobs": knobs, "default": space.default, "baselines": baselines}


def describe_workload(workload: Workload) -> Document:
    """Return the workload."""
    return {"workload": workload.to_dict()}


def describe_study(record: Record) -> Document:
    """Return the whole document of a study; parts that do not exist yet are null."""
    trials = record.trials()
    objective = Objective(record.get("objective", Objective.THROUGHPUT))
    last = (record.runs() or [{}])[-1]
    luck = Noise.from_dict(record.get("noise")).process_sd
    return {
        "schema": SCHEMA,
        "study": record.name,
        "created": record.get("created"),
        "objective": objective.value,
        "seed": record.get("seed"),
        "default": record.catalogue.default,
        **record.get("described", {}),
        "trials": _count(trials),
        "history": [trial_document(trial, luck) for trial in trials],
        "features": record.get("features"),
        "hints": record.get("hints", {}),
        "noise": evidence.noise_document(record),
        "conditions": record.get("conditions", [None])[-1],
        "incumbent": _incumbent(trials, luck, record.choices()),
        **_finals(record, objective, trials),
        "ended_because": last.get("ended_because"),
        "search_timed_share": last.get("search_timed_share"),
        "wall_s": last.get("wall_s"),
        "measured_s": last.get("measured_s"),
    }


def advice_of(document: Document) -> Document:
    """Return what a study, by its document, recommends; raises BadInputError where it has no finals yet."""
    advice: Document | None = document["recommended"]
    if advice is None:
        raise BadInputError(f"study {document['study']} has no finals yet", "run its search again to continue it")
    return advice


def describe_line(record: Record) -> Document:
    """Return the little that a list of studies shows of one."""
    objective = Objective(record.get("objective", Objective.THROUGHPUT))
    described = _finals(record, objective, ())
    verdicts, advice = described["verdicts"], described["recommended"]
    verdict = verdicts.get(record.catalogue.default) if verdicts else None
    workload = record.get("described", {}).get("workload", {})
    return {
        "study": record.name,
        "workload": workload.get("name"),
        "mode": workload.get("mode"),
        "trials": len(record.trials()),
        "verdict": (advice and advice["together"]) or verdict,
        "created": record.get("created"),
        "updated": record.get("updated"),
    }


def _count(trials: Sequence[Trial]) -> Document:
    """Return how many trials ended how; `ok` went to their end, `pruned` were cut short as hopeless."""
    ok = sum(1 for t in trials if t.status is Status.OK and not t.pruned)
    pruned = sum(1 for t in trials if t.pruned)
    kinds = {s.value: sum(1 for t in trials if t.status is s) for s in Status if s is not Status.OK}
    return {
        "ok": ok,
        "failed": len(trials) - ok - pruned,
        "pruned": pruned,
        "kinds": {k: n for k, n in kinds.items() if n},
    }


def _ratio(trial: Trial, luck: float) -> Document:
    """Return a trial's ratio to its reference, with the interval of the setting rather than of these two processes.

    Each of the two has its luck, which no more quads take away: of 213 pairs of the default with itself, 88 % of the
    intervals without it held 1.
    """
    estimate = trial.estimate
    if estimate is None:
        return {"ratio": None, "low": None, "high": None}
    low, high = estimate.widened(math.sqrt(2) * luck).interval()
    return {"ratio": estimate.ratio, "low": _finite(low), "high": _finite(high)}


def _finite(value: float | None) -> float | None:
    """Return None for what JSON cannot say."""
    return value if value is not None and math.isfinite(value) else None


def trial_document(trial: Trial, luck: float) -> Document:
    """Return one trial, without its raw slices; `luck` is what two processes of one setting differ by (σ_p, log)."""
    return {
        "number": trial.number,
        "setting": trial.setting.to_dict(),
        "baselines": list(trial.baselines),
        "status": trial.status.value,
        "pruned": trial.pruned,
        "message": trial.message,
        **_ratio(trial, luck),
        "timed_s": round(trial.timed_s, 3),
        "wall_s": trial.wall_s,
        "p99_ms": 1000 * p99(trial.step_s) if trial.step_s else None,
        "peak_memory_bytes": trial.peak_memory_bytes,
        "deviation": trial.deviation,
        "first_step_s": trial.facts["first_step_s"] if trial.facts else None,
        "warm_up_settled": trial.facts["settled"] if trial.facts else None,
        "steady": trial.steady,
        "alone": trial.alone,
        "over_limit": trial.over_limit,
        "reference": trial.reference,
    }


def _incumbent(trials: Sequence[Trial], luck: float, choices: Mapping[str, Sequence[Value]]) -> Document | None:
    """Return the incumbent as the search itself chose it: by the posterior mean."""
    best = incumbent(trials, believed(trials, choices, luck=luck))
    return None if best is None else {"setting": best.setting.to_dict(), **_ratio(best, luck)}


def _finals(record: Record, objective: Objective, trials: Sequence[Trial]) -> Document:
    data = record.get("finals")
    limits, default = Limits.from_dict(record.get("limits", {})), record.catalogue.default
    if not data:
        warnings = evidence.study_warnings(record, trials, [])
        return {
            "verdicts": None,
            "recommended": None,
            "finals": None,
            "limits": limits.to_dict(),
            "warnings": [w.to_dict() for w in warnings],
        }
    standing = standing_of(data, objective)
    contenders, names, y, first = standing.contenders, standing.names, standing.y, standing.incumbent
    rounds = [Round.from_dict(r) for r in data["rounds"]]
    verdicts = judge_all(standing)
    kept = evidence.kept(rounds, names, limits)
    broken = [name for name, answer in kept.items() if answer is Kept.NO]
    decision = decide(record, standing, verdicts, broken=broken)
    chosen, tried = decision.chosen, decision.tried
    tails = {name: evidence.tail(rounds, name) for name in names}
    warnings = merge(
        evidence.study_warnings(record, trials, rounds),
        evidence.of_steps(len(evidence.steps_of(rounds, chosen.names[0])), objective, limits),
        evidence.of_limits(kept.get(chosen.names[0], Kept.UNKNOWN), limits) if limits else [],
    )
    return {
        "verdicts": {name: verdict.to_dict() for name, verdict in verdicts.items()},
        "recommended": {
            "source": decision.advice.source,
            "setting": chosen.setting.to_dict(),
            **deployment_of(decision.advice.source, chosen, default=default).to_dict(),
            "reason": decision.reason,
            "alike": list(decision.advice.alike),
            "gain": None if decision.advice.gain is None else decision.together(),
            "together": decision.together(),
            "sessions": [session.to_dict() for session in decision.sessions],
            "limits": kept[chosen.names[0]].value if limits and chosen.names[0] in kept else None,
        },
        "shrinkage": evidence.shrinkage(
            trials, contenders, default, verdicts[default].speedup if default in verdicts else None
        ),
        "warnings": [w.to_dict() for w in warnings],
        "limits": limits.to_dict(),
        "finals": {
            "advice": {
                "source": decision.tried_as,
                "setting": tried.setting.to_dict(),
                **deployment_of(decision.tried_as, tried, default=default).to_dict(),
            },
            "rounds": len(y),
            "fresh_rounds": sum(r.fresh for r in rounds if not r.interruptions),
            "ended": data["ended"],
            "incumbent": next(c for c in contenders if first in c.names).setting.to_dict(),
            "default": next((c.setting.to_dict() for c in contenders if default in c.names), None),
            "margin": standing.margin,
            "levels": dict(standing.levels),
            "unit": objective.unit,
            "rates": {name: objective.shown(rate) for name, rate in finals.rates(names, y, first).items()},
            "tails": tails,
            "kept": {name: answer.value for name, answer in kept.items()} if limits else {},
            "names": {c.names[0]: list(c.names) for c in contenders},
            "failures": finals.failures(rounds),
            "timed_s": round(sum(r.timed_s for r in rounds), 3),
        },
    }
