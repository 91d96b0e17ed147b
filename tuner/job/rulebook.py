"""Learn rules from a storage, save them in a file, and load them again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tuner import __version__
from tuner.errors import BadInputError
from tuner.job.selection import Selection
from tuner.paths import shipped_rules
from tuner.rules.distil import distil
from tuner.rules.evidence import by_reason, read
from tuner.rules.learn import LearnPlan
from tuner.rules.rule import Provenance, RuleSet
from tuner.stats.equivalence import MARGIN
from tuner.study.storage import open_storage, records

LOCAL_RULES = Path("results/tftune-rules.json")
"""Where a team's rules lie, beside its studies, below the folder that tftune is run in."""
SHIPPED = "shipped"
"""Stands for the shipped rules where a file can be named."""
_NEVER = "run some searches first: tftune suite; the shipped rules are shown by: tftune rules --rules shipped"


def make(storage_url: str, selection: Selection, *, notify: Callable[[str], None] = lambda _: None) -> RuleSet:
    """Distil the rules of a storage; raises BadInputError where there is nothing to learn from."""
    selection.check()
    storage = open_storage(storage_url, create=False)
    if storage is None:
        raise BadInputError(f"no studies in {storage_url}", _NEVER)
    notify(f"reading {storage_url}")
    study_records, unreadable = records(storage)
    if not study_records and not unreadable:
        raise BadInputError(f"no tftune studies in {storage_url}", _NEVER)
    exclusion_reason = selection.exclusion_reason(record.attributes().subject for record in study_records)
    studies, excluded = read(study_records, exclusion_reason=exclusion_reason)
    left_out = unreadable | by_reason(excluded)
    if not studies:
        reasons = "; ".join(f"{reason} ({len(names)})" for reason, names in left_out.items())
        n_studies = sum(map(len, left_out.values()))
        needed = "rules need finished searches of TensorFlow models: tftune suite"
        raise BadInputError(
            f"none of the {n_studies} studies can be used: {reasons}",
            "change the filters, or run more searches" if selection.filters else needed,
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
        filters=selection.filters,
        excluded={reason: tuple(names) for reason, names in left_out.items()},
        level=plan.level,
        min_gain=plan.min_gain,
        margin=MARGIN,
        min_workloads=plan.min_workloads,
    )
    return RuleSet(provenance=provenance, groups=distil(studies, plan))


def exists() -> bool:
    """Return whether there are rules to follow, kept here or shipped."""
    return any(place.is_file() for place in _places())


def _places() -> list[Path]:
    return [LOCAL_RULES, shipped_rules()]


def load(path: Path | None = None) -> tuple[RuleSet, Path]:
    """Return the rules of a file, else those that are kept here, else those that are shipped; and where they lie.

    The word `shipped` stands for the file that is shipped. Raises BadInputError where there are none, or the file is
    none.
    """
    places = _places() if path is None else _places()[1:] if path == Path(SHIPPED) else [path]
    rules_file = next((place for place in places if place.is_file()), None)
    if rules_file is None:
        raise BadInputError(f"no rules file {' or '.join(map(str, places))}", "create one: tftune rules --save")
    try:
        document = msgspec.json.decode(rules_file.read_bytes())
    except OSError as error:
        raise BadInputError(f"{rules_file} cannot be read: {error.strerror}", "check its permissions") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(
            f"{rules_file} is not valid JSON: {error}", "create it again: tftune rules --save"
        ) from error
    try:
        return RuleSet.from_document(document), rules_file
    except BadInputError as error:
        raise BadInputError(f"{rules_file}: {error.message}", error.hint) from error


def save(rules: RuleSet, path: Path = LOCAL_RULES) -> None:
    """Write rules where `recommend` and `search` look for them; raises BadInputError for a folder."""
    if path.is_dir():
        raise BadInputError(f"{path} is a folder", "give a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(msgspec.to_builtins(rules), indent=1, allow_nan=False) + "\n")
    part.replace(path)
