"""Learn rules from a storage, save them in a file, and load them again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tuner import __version__
from tuner.devices import registry as devices
from tuner.errors import BadInputError, unknown_name
from tuner.job.hypotheses import predicted_processes
from tuner.job.selection import Selection
from tuner.paths import shipped_rules, write_whole
from tuner.rules.distil import distil
from tuner.rules.evidence import by_reason, read
from tuner.rules.learn import LearnPlan
from tuner.rules.rule import Provenance, RuleSet
from tuner.stats.equivalence import MARGIN
from tuner.study.storage import open_storage, records, storage_errors

LOCAL_RULES = Path("results/tftune-rules.json")
"""Where a team's rules lie, beside its studies, below the folder that tftune is run in; those of a CPU."""
SHIPPED = "shipped"
"""Stands for the shipped rules where a file can be named."""
_NEVER = "run some searches first: tftune suite; the shipped rules are shown by: tftune rules --rules shipped"


def local_rules(device: str) -> Path:
    """Return where a team's rules for a kind of device lie."""
    return LOCAL_RULES if device == devices.DEFAULT else LOCAL_RULES.with_stem(f"{LOCAL_RULES.stem}-{device}")


@storage_errors()
def make(
    storage_url: str,
    selection: Selection,
    *,
    device: str = devices.DEFAULT,
    notify: Callable[[str], None] = lambda _: None,
) -> RuleSet:
    """Distil the rules of a storage for a kind of device; raises BadInputError where there is nothing to learn from."""
    selection.check()
    if device not in devices.kinds():
        raise unknown_name("kind of device", device, devices.kinds())
    storage = open_storage(storage_url, create=False)
    if storage is None:
        raise BadInputError(f"no studies in {storage_url}", _NEVER)
    notify(f"reading {storage_url}")
    study_records, unreadable = records(storage)
    if not study_records and not unreadable:
        raise BadInputError(f"no tftune studies in {storage_url}", _NEVER)
    exclusion_reason = selection.exclusion_reason(record.attributes().subject for record in study_records)
    studies, excluded = read(study_records, device=device, exclusion_reason=exclusion_reason)
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
    groups = distil(studies, plan)
    predicted = {}
    if device == devices.DEFAULT:
        notify("predicting what several processes gain on machines of which there is no study")
        predicted = predicted_processes()
    return RuleSet(device=device, provenance=provenance, groups=groups, predicted=predicted)


def exists(device: str = devices.DEFAULT) -> bool:
    """Return whether there are rules to follow on a kind of device, kept here or shipped."""
    return any(place.is_file() for place in _places(device))


def _places(device: str) -> list[Path]:
    """Return where rules may lie, a team's own first; none are shipped but for the CPU."""
    return [local_rules(device), *([shipped_rules()] if device == devices.DEFAULT else [])]


def load(path: Path | None = None, device: str = devices.DEFAULT) -> tuple[RuleSet, Path]:
    """Return the rules of a file, else those that are kept here, else those that are shipped; and where they lie.

    The word `shipped` stands for the file that is shipped. Without a file they are for that kind of device. Raises
    BadInputError where there are none, or the file is none.
    """
    places = _places(device) if path is None else [shipped_rules()] if path == Path(SHIPPED) else [path]
    rules_file = next((place for place in places if place.is_file()), None)
    if rules_file is None:
        option = "" if device == devices.DEFAULT else f" --device {device}"
        raise BadInputError(
            f"no rules file {' or '.join(map(str, places))}", f"create one: tftune rules{option} --save"
        )
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
    text = json.dumps(msgspec.to_builtins(rules), indent=1, allow_nan=False) + "\n"
    write_whole(path, text.encode())
