"""Import the studies of other storages, so that a team can pool its machines."""

from __future__ import annotations

import itertools
import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator

import optuna
from optuna.trial import FrozenTrial

from tuner.errors import BadInputError, DamagedStudyError
from tuner.machine.locks import import_lock
from tuner.paths import storage_url
from tuner.result.document import describe_study
from tuner.result.inspection import ImportLine
from tuner.study.record import Record, name_value
from tuner.study.storage import IMPORTED, all_records, generation_name, is_missing, open_storage, records, sqlite_file

_APPENDED = ("checks", "loads")


def merge(source: str, into: str, *, waiting: Callable[[str], None] = lambda _: None) -> Iterator[ImportLine]:
    """Copy every study of `source`, a URL or a file, that `into` has not; yield each when it is there.

    A study that both have is copied again where the other's is newer, and else left alone: merging twice changes
    nothing. One import into a storage at a time: `waiting` is told of another. Raises BadInputError where there is
    nothing to copy, and before anything is written.
    """
    url = storage_url(source)
    if _absolute(url) == _absolute(into):
        raise BadInputError(f"{source} is the storage that you import into", "give the file or URL of another storage")
    source_storage = open_storage(url, create=False)
    if source_storage is None:
        what = f"there is no file {source}" if is_missing(url) else f"no studies in {source}"
        raise BadInputError(what, "give the file or URL of a tftune storage")
    source_records, unreadable = records(source_storage)
    if not source_records:
        reasons = "; ".join(f"{reason} ({len(names)})" for reason, names in unreadable.items()) or (
            "it has no tftune studies"
        )
        raise BadInputError(f"no studies to import in {source}: {reasons}", "give the file or URL of a tftune storage")
    with import_lock(_absolute(into), waiting=waiting):
        target_storage = open_storage(into, create=True)
        assert target_storage is not None  # create=True
        for each in target_storage.get_all_studies():
            # Of an import that was cut short; another host's may be on its way.
            is_own_import = each.user_attrs.get(IMPORTED) == socket.gethostname()
            if is_own_import and "schema" not in each.user_attrs:
                optuna.delete_study(study_name=each.study_name, storage=target_storage)
        existing = {record.name: record for record in all_records(target_storage)}
        used_names = set(optuna.get_all_study_names(target_storage))
        for record in source_records:
            try:
                describe_study(record)  # what cannot be read would stop every table of the team
            except DamagedStudyError as error:
                yield ImportLine(source=record.name, study=None, what=f"skipped: its {error.part} is damaged")
                continue
            yield _merge(record, target_storage, existing, used_names)
    for reason, names in unreadable.items():
        yield from (ImportLine(source=name, study=None, what=f"skipped: {reason}") for name in names)


def _absolute(url: str) -> str:
    """Return what tells storages apart: the file itself, however it is named, or the URL of another database."""
    file = sqlite_file(url)
    return url if file is None else str(file.resolve())


def _merge(
    record: Record,
    target_storage: optuna.storages.BaseStorage,
    existing: dict[str, Record],
    used_names: set[str],
) -> ImportLine:
    copies = [r for r in existing.values() if _stem(r) == _stem(record) and _identity(r) == _identity(record)]
    complete_copy = next((r for r in copies if _contains(r, record)), None)
    if complete_copy is not None:
        for each in copies:
            # Left behind by an earlier import on this host that was killed after it wrote the newer copy.
            if (
                each is not complete_copy
                and each.get(IMPORTED) == socket.gethostname()
                and _contains(complete_copy, each)
            ):
                optuna.delete_study(study_name=each.name, storage=target_storage)
                del existing[each.name]
        return ImportLine(source=record.name, study=complete_copy.name, what="known")
    # Where both went on by themselves, both are kept.
    older_copy = next((r for r in copies if _contains(record, r)), None)
    name = _free_name(_stem(record), used_names) if older_copy is None else older_copy.name
    if older_copy is not None:
        # Keep the old copy until the new one is complete under a temporary name; then either can be read if we are
        # killed.
        temporary_name = _free_name(_stem(record), used_names)
        _copy(record, target_storage, temporary_name)
        optuna.delete_study(study_name=name, storage=target_storage)
        _copy(record, target_storage, name)
        optuna.delete_study(study_name=temporary_name, storage=target_storage)
    else:
        _copy(record, target_storage, name)
    used_names.add(name)
    return ImportLine(source=record.name, study=name, what="new" if older_copy is None else "newer")


def _copy(record: Record, into: optuna.storages.BaseStorage, name: str) -> None:
    """Copy a study; what makes it one of ours is written last, so that half a copy is none."""
    study = optuna.create_study(study_name=name, storage=into, directions=record.study.directions)
    name_value(study)
    study.set_user_attr(IMPORTED, socket.gethostname())
    study.add_trials(_finished(record))
    attributes = record.attributes().raw
    for key in sorted(attributes.keys() - {IMPORTED}, key=lambda key: (key == "schema", key)):
        study.set_user_attr(key, attributes[key])


def _contains(a: Record, b: Record) -> bool:
    """Return whether copy `a` of a study contains everything that copy `b` contains."""
    return _trials(b) <= _trials(a) and _appended(b) <= _appended(a) and _state(b) <= _state(a)


def _trials(record: Record) -> Counter[tuple[object, ...]]:
    """Return what tells the trials of two copies of a study apart: not their numbers, which a copy counts anew."""
    return Counter((*sorted(trial.params.items()), trial.value) for trial in _finished(record))


def _appended(record: Record) -> Counter[tuple[str, str]]:
    """Return the checks and loads of a study, which each copy may have measured by itself."""
    return Counter((key, json.dumps(each, sort_keys=True)) for key in _APPENDED for each in record.get(key) or ())


def _finished(record: Record) -> list[FrozenTrial]:
    """Return the trials that have ended; one that runs elsewhere is that one's."""
    return [trial for trial in record.study.get_trials(deepcopy=False) if trial.state.is_finished()]


def _state(record: Record) -> tuple[int, int, str]:
    """Return how far a study is, beside its trials: runs, rounds of finals, and when it was last touched."""
    stored = record.attributes()
    stored_finals = stored.finals
    return len(stored.runs), 0 if stored_finals is None else len(stored_finals.rounds), stored.updated or ""


def _stem(record: Record) -> str:
    """Return a study's name without the number of its generation."""
    head, _, tail = record.name.rpartition(".")
    return head if head and tail.isdigit() else record.name


def _identity(record: Record) -> tuple[str, str]:
    """Return what tells two studies of one name apart."""
    stored = record.attributes()
    return str(stored.created), stored.subject.machine.id


def _free_name(name: str, used_names: set[str]) -> str:
    return next(candidate for n in itertools.count(1) if (candidate := generation_name(name, n)) not in used_names)
