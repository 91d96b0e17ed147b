"""Import the studies of other storages, so that a team can pool its machines."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path

import optuna
import sqlalchemy
from msgspec import structs
from optuna.storages._rdb import models  # the tables; a database of other ones is refused (`check_schema`)
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import BadInputError, DamagedStudyError
from tuner.machine.locks import import_lock
from tuner.paths import FILE_URL, storage_url
from tuner.result.document import describe_study
from tuner.result.inspection import ImportLine
from tuner.result.study import StudyResult
from tuner.study.record import Record
from tuner.study.rows import STUDIES, TRIALS
from tuner.study.storage import (
    IMPORTED,
    engine_of,
    generation_name,
    is_missing,
    load_record,
    open_storage,
    records,
    sqlite_file,
    unreadable,
)

_APPENDED = ("checks", "loads")
_FINISHED = [state for state in TrialState if state.is_finished()]


def merge(source: str, into: str, *, waiting: Callable[[str], None] = lambda _: None) -> Iterator[ImportLine]:
    """Copy every study of `source`, a URL or a file, that `into` has not; yield each when it is there.

    A study that both have is copied again if the other's is newer, and else left alone: merging twice changes nothing.
    Checks and loads that either copy has measured are kept. One import into a storage at a time: `waiting` reports
    another import. Raises BadInputError if there is nothing to copy, and before anything is written.
    """
    url = storage_url(source)
    if absolute(url) == absolute(into):
        raise BadInputError(f"{source} is the storage that you import into", "give the file or URL of another storage")
    source_storage = open_storage(url, create=False)
    if source_storage is None:
        what = f"there is no file {source}" if is_missing(url) else f"no studies in {source}"
        raise BadInputError(what, "give the file or URL of a tftune storage")
    source_records, unread = records(source_storage)
    if not source_records:
        reasons = "; ".join(f"{reason} ({len(names)})" for reason, names in unread.items()) or (
            "it has no tftune studies"
        )
        raise BadInputError(f"no studies to import in {source}: {reasons}", "give the file or URL of a tftune storage")
    with import_lock(absolute(into), waiting=waiting):
        target = Target(into)
        for record in source_records:
            yield target.add(record, engine_of(source_storage))[0]
    for reason, names in unread.items():
        yield from (ImportLine(source=name, study=None, what=f"skipped: {reason}") for name in names)


def absolute(url: str) -> str:
    """Return what tells storages apart: the file itself, however it is named, or the URL of another database."""
    file = sqlite_file(url)
    return url if file is None else str(file.resolve())


class Target:
    """The storage that is imported into, opened once for all that comes; each study comes in one transaction."""

    def __init__(self, url: str) -> None:
        """Open it, or make it; raises BadInputError."""
        storage = open_storage(url, create=True)
        assert storage is not None  # create=True
        self._storage, self._engine = storage, engine_of(storage)

    def add(self, record: Record, source: sqlalchemy.Engine) -> tuple[ImportLine, StudyResult | None]:
        """Copy a study of another database that is not there, or is newer; return it as it is here.

        The caller holds the right to import. A study that cannot be read is left out: it would stop every table of the
        team.
        """
        record = record.snapshot()
        try:
            _check_lists(record)
            described = describe_study(record)
        except DamagedStudyError as error:
            return ImportLine(source=record.name, study=None, what=f"skipped: its {error.part} is damaged"), None
        stem = _stem(record.name)
        column = STUDIES.c.study_name
        with self._engine.connect() as rows:
            generations = column.startswith(f"{stem}.", autoescape=True)
            if self._engine.dialect.name == "sqlite":  # it looks a range up, and goes through all names for a pattern
                generations = sqlalchemy.and_(column > f"{stem}.", column < f"{stem}/")
            alike = sqlalchemy.or_(column == stem, generations)
            names = rows.scalars(sqlalchemy.select(column).where(alike).order_by(STUDIES.c.study_id)).all()
        others = [self._read(name) for name in names]
        copies = [copy.snapshot() for copy in others if _is_readable(copy) and _identity(copy) == _identity(record)]
        known = next((copy for copy in copies if _contains(copy, record) or _was_only_checked(record, copy)), None)
        if known is not None:
            missing = _not_in(known, record)
            is_later = (record.get("updated") or "") > (known.get("updated") or "")
            with self._engine.begin() as into:
                _append(into, known.name, missing)
                if missing and is_later:
                    _put(into, known.name, "updated", record.get("updated"))
            line = ImportLine(source=record.name, study=known.name, what="newer" if missing else "known")
            if missing or _not_in(record, known):
                with contextlib.suppress(DamagedStudyError):
                    described = describe_study(self._read(known.name))
            return line, structs.replace(described, study=known.name)
        # If both searched on by themselves, both are kept.
        older = next((copy for copy in copies if _contains(record, copy)), None)
        missing = {} if older is None else _not_in(record, older)
        name = _free_name(stem, names) if older is None else older.name
        with source.connect() as rows, self._engine.begin() as into:
            if older is not None:
                _delete(into, name)
            copy_rows(rows, into, record.name, name)
            _append(into, name, missing)
        line = ImportLine(source=record.name, study=name, what="new" if older is None else "newer")
        if missing:
            described = describe_study(self._read(name))
        return line, structs.replace(described, study=name)

    def _read(self, name: str) -> Record:
        return load_record(self._storage, name)


def copy_study(storage: optuna.storages.BaseStorage, name: str, file: Path) -> None:
    """Copy one study into an SQLite file of its own."""
    with import_lock(absolute(f"{FILE_URL}{file}")):
        Target(f"{FILE_URL}{file}").add(load_record(storage, name), engine_of(storage))


def copy_rows(rows: sqlalchemy.Connection, into: sqlalchemy.Connection, source_name: str, name: str) -> None:
    """Copy the rows of a study, and of its finished trials: one that runs elsewhere is that one's."""
    study = _id_of(rows, source_name)
    new_study = _inserted(into, STUDIES, {"study_name": name})
    is_ours = sqlalchemy.and_(TRIALS.c.study_id == study, TRIALS.c.state.in_(_FINISHED))
    trials = rows.execute(TRIALS.select().where(is_ours).order_by(TRIALS.c.number)).mappings().all()
    of_new = [{**row, "study_id": new_study} for row in trials]
    new_trials = dict(zip((row["trial_id"] for row in trials), _all_inserted(into, TRIALS, of_new), strict=True))
    for table, key in parts():
        is_part = table.c[key] == study
        new_ids = {study: new_study}
        if key == "trial_id":
            is_part, new_ids = table.c[key].in_(sqlalchemy.select(TRIALS.c.trial_id).where(is_ours)), new_trials
        own_key = next(iter(table.primary_key)).name
        copied = [
            {column: value for column, value in row.items() if column != own_key} | {key: new_ids[row[key]]}
            for row in rows.execute(table.select().where(is_part)).mappings()
            if row[key] in new_ids and (key, row.get("key")) != ("study_id", IMPORTED)  # a trial may end meanwhile
        ]
        if copied:
            into.execute(table.insert(), copied)
    _put(into, name, IMPORTED, socket.gethostname())


def _inserted(into: sqlalchemy.Connection, table: sqlalchemy.Table, row: Mapping[str, object]) -> int:
    """Insert a row; return its key, which the database chooses."""
    values = {column: value for column, value in row.items() if value is not None}
    key = into.execute(table.insert().values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def _all_inserted(
    into: sqlalchemy.Connection, table: sqlalchemy.Table, rows: Sequence[Mapping[str, object]]
) -> Sequence[int]:
    """Insert rows without their keys; return the keys that the database chooses, in one statement if it can."""
    [key] = table.primary_key
    values = [{column: value for column, value in row.items() if column != key.name} for row in rows]
    if not values or not into.dialect.insert_executemany_returning_sort_by_parameter_order:
        return [_inserted(into, table, row) for row in values]
    return into.execute(table.insert().returning(key, sort_by_parameter_order=True), values).scalars().all()


def _append(into: sqlalchemy.Connection, name: str, measured: Mapping[str, Sequence[object]]) -> None:
    """Add what another copy measured to the lists of a study, the oldest first."""
    study, table = _id_of(into, name), models.StudyUserAttributeModel.__table__
    for key, values in measured.items():
        is_list = sqlalchemy.and_(table.c.study_id == study, table.c.key == key)
        stored = into.scalar(sqlalchemy.select(table.c.value_json).where(is_list))
        _put(into, name, key, sorted([*json.loads(stored or "[]"), *values], key=_began))


def _put(into: sqlalchemy.Connection, name: str, key: str, value: object) -> None:
    study, table = _id_of(into, name), models.StudyUserAttributeModel.__table__
    into.execute(table.delete().where(table.c.study_id == study, table.c.key == key))
    into.execute(table.insert(), {"study_id": study, "key": key, "value_json": json.dumps(value)})


def _began(measured: Mapping[str, object]) -> str:
    return str(measured.get("began") or measured.get("measured") or "")


def _id_of(rows: sqlalchemy.Connection, name: str) -> int:
    return int(rows.scalars(sqlalchemy.select(STUDIES.c.study_id).where(STUDIES.c.study_name == name)).one())


def _delete(into: sqlalchemy.Connection, name: str) -> None:
    """Delete the rows of a study."""
    study = _id_of(into, name)
    trials = sqlalchemy.select(TRIALS.c.trial_id).where(TRIALS.c.study_id == study)
    for table, key in parts():
        into.execute(table.delete().where(table.c[key].in_(trials) if key == "trial_id" else table.c[key] == study))
    for table in (TRIALS, STUDIES):
        into.execute(table.delete().where(table.c.study_id == study))


def parts() -> Iterator[tuple[sqlalchemy.Table, str]]:
    """Yield the tables of what belongs to a study or to a trial, each with the column that says to which."""
    for table in models.BaseModel.metadata.tables.values():
        if table not in (STUDIES, TRIALS):
            yield from ((table, key) for key in ("trial_id", "study_id") if key in table.c)


def _contains(a: Record, b: Record) -> bool:
    """Return whether copy `a` of a study contains everything that copy `b` contains, but for checks and loads."""
    return _trials(b) <= _trials(a) and _state(b) <= _state(a)


def _is_readable(record: Record) -> bool:
    try:
        _check_lists(record)
    except DamagedStudyError:
        return False
    return unreadable(record.attributes()) is None


def _was_only_checked(a: Record, b: Record) -> bool:
    """Return whether copy `a` of a study has checks or loads that copy `b` has not, and is like it in all else."""
    others = {*_APPENDED, "updated", IMPORTED}
    own, theirs = ({k: v for k, v in each.study.user_attrs.items() if k not in others} for each in (a, b))
    return bool(_not_in(b, a)) and own == theirs and _trials(a) == _trials(b)


def _trials(record: Record) -> Counter[tuple[object, ...]]:
    """Return what tells the trials of two copies of a study apart: not their numbers, which a copy counts anew."""
    return Counter((*sorted(trial.params.items()), trial.value) for trial in _finished(record))


def _not_in(a: Record, b: Record) -> dict[str, list[object]]:
    """Return the checks and loads of copy `b` that copy `a` has not: each may have measured some by itself."""
    missing = {}
    for key in _APPENDED:
        texts = {json.dumps(value, sort_keys=True) for value in a.get(key) or ()}
        missing[key] = [value for value in b.get(key) or () if json.dumps(value, sort_keys=True) not in texts]
    return {key: values for key, values in missing.items() if values}


def _check_lists(record: Record) -> None:
    """Raise DamagedStudyError if the checks or loads of a study are no list of objects."""
    for key in _APPENDED:
        values = record.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise DamagedStudyError(record.name, key, TypeError("expected a list of objects"))


def _finished(record: Record) -> list[FrozenTrial]:
    """Return the trials that have ended; one that runs elsewhere is that one's."""
    return [trial for trial in record.study.get_trials(deepcopy=False) if trial.state.is_finished()]


def _state(record: Record) -> tuple[int, int, str]:
    """Return how far a study is, beside its trials: runs, rounds of finals, and when it was last touched."""
    stored = record.attributes()
    stored_finals = stored.finals
    return len(stored.runs), 0 if stored_finals is None else len(stored_finals.rounds), stored.updated or ""


def _stem(name: str) -> str:
    """Return a study's name without the number of its generation."""
    head, _, tail = name.rpartition(".")
    return head if head and tail.isdigit() else name


def _identity(record: Record) -> tuple[str, str]:
    """Return what copies of one study have in common, beside the name."""
    stored = record.attributes()
    return str(stored.created), stored.subject.machine.id


def _free_name(name: str, used_names: Container[str]) -> str:
    return next(candidate for n in itertools.count(1) if (candidate := generation_name(name, n)) not in used_names)
