"""Learn rules from a storage, save them in a file, and load them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from tuner import __version__
from tuner.errors import BadInputError, unknown_name
from tuner.job.request import words
from tuner.machine.host import Machine, detect, host_of
from tuner.paths import DEFAULT_STORAGE, shipped_folder
from tuner.rules.distil import distil
from tuner.rules.evidence import by_reason, read
from tuner.rules.learn import LearnPlan
from tuner.rules.rule import Provenance, RuleSet
from tuner.search.attributes import Attributes
from tuner.search.storage import open_storage, records
from tuner.search.subject import Subject
from tuner.stats.equivalence import MARGIN

LOCAL_RULES = Path("results/tftune-rules.json")
"""Where a team's rules lie, beside its studies, below the folder that tftune is run in."""
SHIPPED = "rules.json"
THIS_MACHINE = "here"
_NEVER = "run some searches first: tftune suite"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesRequest:
    """The options of `tftune rules` as they were typed."""

    storage: str = DEFAULT_STORAGE
    since: str | None = None
    machine: str | None = None
    workloads: str | None = None

    @property
    def filters(self) -> dict[str, str]:
        """Return the filters that were asked for."""
        options = {"since": self.since, "machine": self.machine, "workloads": self.workloads}
        return {name: text for name, text in options.items() if text is not None}


def make(request: RulesRequest, *, notify: Callable[[str], None] = lambda _: None) -> RuleSet:
    """Distil the rules of a storage; raises BadInputError where there is nothing to learn from."""
    for name, text in request.filters.items():
        if not words(text):
            raise BadInputError(f"--{name} is empty", "omit it, or give a value")
    since = None if request.since is None else _since(request.since)
    storage = open_storage(request.storage, create=False)
    if storage is None:
        raise BadInputError(f"no studies in {request.storage}", _NEVER)
    notify(f"reading {request.storage}")
    study_records, unreadable = records(storage)
    if not study_records and not unreadable:
        raise BadInputError(f"no tftune studies in {request.storage}", _NEVER)
    exclusion_reason = _filter(
        request, since, [record.attributes().subject for record in study_records] if request.filters else []
    )
    studies, excluded = read(study_records, exclusion_reason=exclusion_reason)
    left_out = unreadable | by_reason(excluded)
    if not studies:
        reasons = "; ".join(f"{reason} ({len(names)})" for reason, names in left_out.items())
        n_studies = sum(map(len, left_out.values()))
        needed = "rules need finished searches of TensorFlow models: tftune suite"
        raise BadInputError(
            f"none of the {n_studies} studies can be used: {reasons}",
            "change the filters, or run more searches" if request.filters else needed,
        )
    notify(
        f"learning from {len(studies)} studies of {len({s.workload for s in studies})} workloads, and testing on "
        "held-out ones"
    )
    plan = LearnPlan()
    provenance = Provenance(
        tftune=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        n_studies=len(studies),
        first_study=studies[0].created,
        last_study=studies[-1].created,
        filters=request.filters,
        excluded={reason: tuple(names) for reason, names in left_out.items()},
        level=plan.level,
        min_gain=plan.min_gain,
        margin=MARGIN,
        min_workloads=plan.min_workloads,
    )
    return RuleSet(provenance=provenance, groups=distil(studies, plan))


def _filter(
    request: RulesRequest, since: datetime | None, subjects: Sequence[Subject]
) -> Callable[[Attributes], str | None]:
    """Return what says why a study is not asked for; raises BadInputError for names that no study has."""
    machine = host_of(detect()) if request.machine == THIS_MACHINE else request.machine
    names = words(request.workloads or "")
    machines = [each.machine for each in subjects]
    if machine is not None and not any(_is_machine(each, machine) for each in machines):
        raise unknown_name("machine", machine, {each.id for each in machines} | {host_of(each) for each in machines})
    workloads = {each.workload.name for each in subjects}
    for name in names:
        if name not in workloads:
            raise unknown_name("workload", name, workloads)

    def wanted(stored: Attributes) -> str | None:
        subject = stored.subject
        if machine is not None and not _is_machine(subject.machine, machine):
            return "measured on another machine"
        if names and subject.workload.name not in names:
            return "another workload"
        if since is None:
            return None
        began = _began(stored.created)
        if began is None:
            return "its start time is unknown"
        return f"started before {since:%Y-%m-%d}" if began < since else None

    return wanted


def _began(created: str | None) -> datetime | None:
    """Return when a study was begun, None where it does not say."""
    try:
        began = datetime.fromisoformat(created or "")
    except ValueError:
        return None
    return began if began.tzinfo else began.replace(tzinfo=UTC)


def _is_machine(machine: Machine, machine_id: str) -> bool:
    """Return whether a study's machine is meant: by the beginning of its shape's id, or as a host."""
    return machine.id.startswith(machine_id) or host_of(machine) == machine_id


def _since(text: str) -> datetime:
    """Return the time that `2026-11-01` (its midnight, UTC) or `30d` means; raises BadInputError."""
    now, expected = datetime.now(UTC), "expected a date such as 2026-11-01, or days such as 30d"
    try:
        if text.endswith("d"):
            since = now - timedelta(days=float(text[:-1]))
        else:
            since = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except (ValueError, OverflowError):
        raise BadInputError(f"--since is '{text}'", expected) from None
    if since >= now:
        raise BadInputError(f"--since is '{text}', which is in the future", expected)
    return since


def exists() -> bool:
    """Return whether there are rules to follow, kept here or shipped."""
    return any(place.is_file() for place in _places())


def _places() -> list[Path]:
    return [LOCAL_RULES, shipped_folder("results") / SHIPPED]


def load(path: Path | None = None) -> tuple[RuleSet, Path]:
    """Return the rules of a file, else those that are kept here, else those that are shipped; and where they lie.

    Raises BadInputError where there are none, or the file is none.
    """
    places = [path] if path is not None else _places()
    rules_file = next((place for place in places if place.is_file()), None)
    if rules_file is None:
        raise BadInputError(f"no rules file {' or '.join(map(str, places))}", "create one: tftune rules --save")
    try:
        document = msgspec.json.decode(rules_file.read_bytes())
    except OSError as error:
        raise BadInputError(f"{rules_file} cannot be read: {error.strerror}", "check its permissions") from error
    except msgspec.DecodeError as error:
        raise BadInputError(
            f"{rules_file} is not valid JSON: {error}", "create it again: tftune rules --save"
        ) from error
    try:
        return RuleSet.from_document(document), rules_file
    except BadInputError as error:
        raise BadInputError(f"{rules_file}: {error.message}", error.hint) from error


def save(rules: RuleSet, path: Path = LOCAL_RULES) -> None:
    """Write rules where `recommend` and `search` look for them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(msgspec.to_builtins(rules), indent=1, allow_nan=False) + "\n")
    part.replace(path)
