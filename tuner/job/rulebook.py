"""The rulebook: rules distilled from a storage, kept in a file, and found again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from tuner import __version__
from tuner.errors import BadInputError, unknown
from tuner.machine.host import detect
from tuner.places import DEFAULT_STORAGE, shipped
from tuner.rules.distil import coverage, distil
from tuner.rules.evidence import Excluded, Study, count, read
from tuner.rules.learn import LearnPlan
from tuner.rules.proof import prove
from tuner.rules.rule import RuleSet
from tuner.search.storage import all_records, open_storage

KEPT = Path("results/rules.json")
"""Where a team's rules lie, below the folder that tftune is run in."""
HERE = "here"
_NEVER = "search with a suite first: tftune suite"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesRequest:
    """The options of `tftune rules` as they were typed."""

    storage: str = DEFAULT_STORAGE
    since: str | None = None
    machine: str | None = None
    workloads: str | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilled:
    """Rules, and the studies that they are not from, each with the reason."""

    rules: RuleSet
    excluded: list[Excluded]


def make(request: RulesRequest, *, told: Callable[[str], None] = lambda _: None) -> Distilled:
    """Distil the rules of a storage; raises BadInputError where there is nothing to learn from."""
    since = None if request.since is None else _since(request.since)
    storage = open_storage(request.storage, create=False)
    if storage is None:
        raise BadInputError(f"no studies in {request.storage}", _NEVER)
    told(f"reading {request.storage}")
    records = all_records(storage)
    if not records:
        raise BadInputError(f"no studies of tftune in {request.storage}", _NEVER)
    studies, excluded = read(records, simulated=request.simulated)
    studies = _filtered(studies, request, since)
    if not studies:
        reasons = "; ".join(f"{n} {reason}" for reason, n in count(excluded).items())
        raise BadInputError(
            f"none of {len(records)} studies can be learned from{f': {reasons}' if reasons else ' after the filters'}",
            "run their searches again to continue them, or ask for others",
        )
    told(f"learning from {len(studies)} studies of {len({s.workload for s in studies})} workloads")
    plan = LearnPlan()
    rules, otherwise, table = distil(studies, plan)
    told("holding each workload and each machine out")
    made = {
        "tftune": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "studies": {"first": studies[0].created, "last": studies[-1].created},
        "excluded": count(excluded),
        "level": plan.level,
        "least_gain": plan.least_gain,
        "least_workloads": plan.least_workloads,
        "simulated": request.simulated,
    }
    return Distilled(
        rules=RuleSet(
            rules=rules,
            otherwise=otherwise,
            coverage=coverage(studies),
            made=made,
            proof=prove(table, replace(plan, flips=200)),
        ),
        excluded=excluded,
    )


def _filtered(studies: Sequence[Study], request: RulesRequest, since: datetime | None) -> list[Study]:
    found = list(studies)
    if request.machine is not None:
        wanted = detect().id if request.machine == HERE else request.machine
        known = {study.machine_id for study in studies}
        if known and not any(machine.startswith(wanted) for machine in known):
            raise unknown("machine", wanted, known)
        found = [study for study in found if study.machine_id.startswith(wanted)]
    if request.workloads is not None:
        names = [word.strip() for word in request.workloads.split(",") if word.strip()]
        known = {study.workload for study in studies}
        for name in names:
            if known and name not in known:
                raise unknown("workload", name, known)
        found = [study for study in found if study.workload in names]
    if since is not None:
        found = [study for study in found if datetime.fromisoformat(study.created) >= since]
    return found


def _since(text: str) -> datetime:
    """Return the time that `2026-11-01` or `30d` means; raises BadInputError."""
    try:
        if text.endswith("d"):
            return datetime.now(UTC) - timedelta(days=float(text[:-1]))
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except (ValueError, OverflowError):
        raise BadInputError(f"--since is '{text}'", "expected a date such as 2026-11-01, or days such as 30d") from None


def load(path: Path | None = None) -> tuple[RuleSet, Path]:
    """Return the rules of a file, else those that are kept here, else those that are shipped; and where they lie.

    Raises BadInputError where there are none, or the file is none.
    """
    places = [path] if path is not None else [KEPT, shipped("results") / KEPT.name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise BadInputError(f"no rules in {' or '.join(map(str, places))}", "make some: tftune rules --keep")
    try:
        data = json.loads(found.read_text())
    except (OSError, ValueError) as error:
        raise BadInputError(f"{found} cannot be read as JSON: {error}", "make it again: tftune rules --keep") from error
    try:
        return RuleSet.from_dict(data), found
    except BadInputError as error:
        raise BadInputError(f"{found}: {error.message}", error.hint) from error


def keep(rules: RuleSet, path: Path = KEPT) -> None:
    """Write rules where `recommend` and `search` look for them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(rules.to_dict(), indent=1, allow_nan=False) + "\n")
    part.replace(path)
