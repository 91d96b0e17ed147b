"""Merging: the studies of other storages, so that a team pools its machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna

from tuner.errors import BadInputError
from tuner.search.record import Record
from tuner.search.storage import all_records, open_storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A study of the other storage, and its name in this one; `what` is new, newer or known."""

    source: str
    name: str
    what: str


def merge(source: str, into: str) -> Iterator[Merged]:
    """Copy every study of `source`, a URL or a file, that `into` has not; yield each when it is there.

    A study that both have is copied again where the other's is newer, and else left alone: merging twice changes
    nothing. Raises BadInputError where there is nothing to copy, and before anything is written.
    """
    url = source if "://" in source else f"sqlite:///{source}"
    if url == into or _same_file(url, into):
        raise BadInputError(f"{source} is the storage itself", "give another one's file or URL")
    there = open_storage(url, create=False)
    if there is None:
        raise BadInputError(f"no studies in {source}", "give the file or the URL of another storage of tftune")
    records = all_records(there)
    if not records:
        raise BadInputError(
            f"no studies of tftune in {source}", "give the file or the URL of another storage of tftune"
        )
    here = open_storage(into, create=True)
    assert here is not None  # create=True
    known = {record.name: record for record in all_records(here)}
    # A half copied study has not its schema yet: it is in the way of its name only.
    taken = set(optuna.get_all_study_names(here))
    for record in records:
        yield _copy(record, url, into, here, known, taken)


def _same_file(a: str, b: str) -> bool:
    paths = [Path(url.removeprefix("sqlite:///")) for url in (a, b) if url.startswith("sqlite:///")]
    return len(paths) == 2 and paths[0].absolute() == paths[1].absolute()


def _copy(
    record: Record,
    url: str,
    into: str,
    here: optuna.storages.BaseStorage,
    known: dict[str, Record],
    taken: set[str],
) -> Merged:
    stem = record.name
    same = next((r for r in known.values() if _stem(r) == _stem(record) and _born(r) == _born(record)), None)
    if same is not None and _state(same) >= _state(record):
        return Merged(source=stem, name=same.name, what="known")
    if same is not None:
        optuna.delete_study(study_name=same.name, storage=here)
        name, what = same.name, "newer"
    else:
        name, what = _free(stem, taken), "new"
    optuna.copy_study(from_study_name=stem, from_storage=url, to_storage=into, to_study_name=name)
    taken.add(name)
    return Merged(source=stem, name=name, what=what)


def _stem(record: Record) -> str:
    """Return a study's name without the number of its generation."""
    head, _, tail = record.name.rpartition(".")
    return head if head and tail.isdigit() else record.name


def _born(record: Record) -> tuple[str, str]:
    """Return what tells two studies of one name apart."""
    return str(record.get("created")), str(record.get("described", {}).get("machine", {}).get("id"))


def _state(record: Record) -> tuple[str, int]:
    """Return how far a study is: a copy that was cut short has fewer trials."""
    return str(record.get("updated")), len(record.study.get_trials(deepcopy=False))


def _free(name: str, taken: set[str]) -> str:
    generation, found = 1, name
    while found in taken:
        generation += 1
        found = f"{name}.{generation}"
    return found
