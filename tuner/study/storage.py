"""Storages: opening a database for studies, and finding studies in it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import optuna
import sqlalchemy
from optuna.storages._rdb import models  # the tables; a database of other ones is refused (`check_schema`)

from tuner.errors import BadInputError, TunerError, UnknownNameError, unknown_name
from tuner.paths import DEFAULT_STORAGE, FILE_URL, check_writable, storage_option
from tuner.study.attributes import Attributes
from tuner.study.database import (
    Storage,
    cannot_open,
    check_schema,
    code_hint,
    engine_options,
    first_line,
    tell_of_lock,
)
from tuner.study.record import SCHEMA, Record, name_value

LAST = "last"
"""The name of the newest study."""
_MOST_NAMES = 10  # of studies in a message
IMPORTED = "imported"
"""Is in the attributes of a copy of another storage's study, with the host that copied it."""


def check_storage(url: str, *, create: bool = True) -> bool:
    """Raise BadInputError for a storage URL that cannot be opened; writes nothing.

    With `create`, the file's folder need not exist, but the one that it lies in; without, nothing need be writable.
    Returns whether the tables, if there are any, are known to be this Optuna's.
    """
    if not url.isprintable():
        raise BadInputError(f"storage {url!r} holds a character that cannot be shown", "give --storage another name")
    scheme, _, place = url.removeprefix(FILE_URL).partition(":")
    if scheme == "sqlite" and place.lstrip("/") and not place.startswith("///"):
        file_name = place.removeprefix("//")
        raise BadInputError(f"storage '{scheme}:{place}' is neither a path nor a URL", f"write {FILE_URL}{file_name}")
    if "://" not in url:
        raise BadInputError(f"storage '{url}' is not a URL", f"write {FILE_URL}{url} for a file, or a database's URL")
    file = sqlite_file(url)
    try:
        if file is not None:
            _check_file(url, file, create=create)
            if not file.exists():
                return True
            tell_of_lock(file, writes=create)
    except OSError as error:
        raise cannot_open(url, error) from error
    return _check_tables(url, file)


def sqlite_file(url: str) -> Path | None:
    """Return the file of an SQLite URL, whatever its driver; None for other databases."""
    try:
        parsed = sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:  # a ValueError is of the port
        raise cannot_open(url, error) from error
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _check_file(url: str, path: Path, *, create: bool) -> None:
    if ":memory:" in path.name or "mode=memory" in url:
        raise BadInputError(f"storage {url} would be lost with its studies", f"name a file, e.g. {DEFAULT_STORAGE}")
    if path.is_dir() or not path.name:
        raise BadInputError(f"storage {url} names a folder", f"name a file, e.g. {FILE_URL}results/tftune.db")
    if path.exists():
        with path.open("rb") as file:
            head = file.read(16)
        if head and not head.startswith(b"SQLite format 3"):
            raise BadInputError(f"{path} is not an SQLite database", "give --storage another file")
        if create and not os.access(path, os.W_OK):
            raise BadInputError(f"{path} cannot be written", "choose a file that you can write to with --storage")
    if create:
        folder = path.absolute().parent
        if not folder.parent.is_dir():
            raise BadInputError(f"storage {url}: there is no folder {folder.parent}", "create it, or check the path")
        check_writable(path.parent, "run tftune elsewhere, or give --storage another file")


def _check_tables(url: str, file: Path | None) -> bool:
    """Return whether the tables are this Optuna's, as far as they say.

    Raises BadInputError for a database of another program, which has tables and none of Optuna's, or another Optuna.

    Optuna itself would write its tables before it refuses.
    """
    with _inspector(url) as inspector:
        tables = inspector.get_table_names()
        if file is not None and tables and "version_info" not in tables:
            raise BadInputError(f"{file} is a database of another program", "give --storage another file")
        if {"version_info", "studies", "alembic_version"} <= {*tables}:
            with inspector.engine.connect() as connection:
                revision = connection.scalar(sqlalchemy.text("SELECT version_num FROM alembic_version"))
            if revision is not None:  # else it is being made
                check_schema(url, str(revision))
                return True
    return False


def is_missing(url: str) -> bool:
    """Return whether a storage is a file that is not there."""
    file = sqlite_file(url)
    return file is not None and not file.exists()


def first_search(url: str) -> str:
    """Return the command by which a storage gets its first study."""
    return f"tftune search resnet50{storage_option(url)}"


def no_study(name: str, url: str) -> BadInputError:
    """Return the error for a study of a storage that holds none, or is not there."""
    what = f"{url} does not exist" if is_missing(url) else f"{url} holds no studies"
    return BadInputError(f"no study '{name}': {what}", f"begin with: {first_search(url)}")


def open_storage(url: str, *, create: bool) -> optuna.storages.BaseStorage | None:
    """Open a storage; None where there is none and `create` is false. Raises BadInputError with its own reason."""
    is_checked = check_storage(url, create=create)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = sqlite_file(url)
    if file is not None and create:
        file.parent.mkdir(parents=True, exist_ok=True)
    if not create and not _holds_studies(url, file):
        return None
    try:
        # Optuna's own check reads all its migrations, each time.
        return Storage(url, engine_kwargs=engine_options(url), skip_compatibility_check=is_checked)
    except Exception as error:  # SQLAlchemy, its drivers and Optuna each raise their own
        raise cannot_open(url, error) from error


class Scratch:
    """A storage in memory for one SQLite database after the other: opening each one takes longer than reading it."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:")
        self._storage: optuna.storages.BaseStorage | None = None

    def load(self, data: bytes) -> optuna.storages.BaseStorage | None:
        """Open a database in the place of the last one; return None if it is damaged.

        Raises BadInputError if another version of Optuna made it.
        """
        try:
            self._connection.deserialize(data)
            [is_whole] = self._connection.execute("PRAGMA integrity_check")
            [(revision,)] = self._connection.execute("SELECT version_num FROM alembic_version")
            self._connection.execute("SELECT study_id, study_name FROM studies LIMIT 0")
        except (sqlite3.Error, ValueError):
            return None
        check_schema("sqlite://", str(revision))
        if is_whole != ("ok",):
            return None
        if self._storage is None:
            options = {"creator": lambda: self._connection, "poolclass": sqlalchemy.StaticPool}
            self._storage = Storage(
                "sqlite://", engine_kwargs=options, skip_compatibility_check=True, skip_table_creation=True
            )
        return self._storage


def engine_of(storage: optuna.storages.BaseStorage | None) -> sqlalchemy.Engine:
    """Return what runs statements on a storage that `open_storage` has opened."""
    assert isinstance(storage, optuna.storages.RDBStorage)
    engine: sqlalchemy.Engine = storage.engine
    return engine


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Raise TunerError for what SQLAlchemy and Optuna raise of a storage that fails meanwhile."""
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        hint = code_hint(error) or "check the database"
        message = f"storage error: {first_line(error.__cause__ or error)}"
        raise TunerError(message, f"{hint}; then run the same command again to continue") from error


def _holds_studies(url: str, file: Path | None) -> bool:
    """Return whether Optuna's tables are there; opening them otherwise would make them."""
    if file is not None and not file.exists():
        return False
    with _inspector(url) as inspector:
        # Others keep studies too.
        is_optunas = inspector.has_table("version_info") and inspector.has_table("studies")
        columns = {str(column["name"]) for column in inspector.get_columns("studies")} if is_optunas else set()
    return {"study_id", "study_name"} <= columns


@contextlib.contextmanager
def _inspector(url: str) -> Iterator[sqlalchemy.Inspector]:
    """Yield what tells of a database's tables; raises BadInputError where it cannot be opened."""
    try:
        engine = sqlalchemy.create_engine(url, **engine_options(url))
        try:
            yield sqlalchemy.inspect(engine)
        finally:
            engine.dispose()
    except Exception as error:  # SQLAlchemy and each driver raise their own
        raise cannot_open(url, error) from error


def storage_with(url: str, study_name: str) -> optuna.storages.BaseStorage:
    """Open the storage that a study is looked for in; raises BadInputError where there is none."""
    storage = open_storage(url, create=False)
    if storage is None:
        raise no_study(study_name, url)
    return storage


def find_in(url: str, study_name: str) -> Record:
    """Return a study of a storage by its name, as `find` does; raises BadInputError where there is none."""
    return find(storage_with(url, study_name), study_name)


def find(storage: optuna.storages.BaseStorage, study_name: str) -> Record:
    """Return the study of that name, or the only one that begins with it; `last` is the newest."""
    attributes_by_name = _tftune_studies(storage)
    if study_name == LAST and attributes_by_name:
        return _read(storage, max(attributes_by_name, key=lambda name: (_updated(attributes_by_name[name]), name)))
    matches = (
        [study_name]
        if study_name in attributes_by_name
        else [name for name in attributes_by_name if name.startswith(study_name)]
    )
    if not attributes_by_name:
        message = f"no study '{study_name}': the storage holds none of tftune's"
        raise UnknownNameError(message, "check --storage, or begin with: tftune search resnet50")
    if not matches:
        raise unknown_name("study", study_name, attributes_by_name)
    if len(matches) > 1:
        more = ", …" if len(matches) > _MOST_NAMES else ""
        raise BadInputError(
            f"'{study_name}' matches {len(matches)} studies",
            f"be more specific: {', '.join(sorted(matches)[:_MOST_NAMES])}{more}",
        )
    return _read(storage, matches[0])


def _updated(stored: Attributes) -> str:
    """Return when a study was last touched, as it is stored: damaged ones are found too, and said to be."""
    return str(stored.raw.get("updated") or "")


def load_record(storage: optuna.storages.BaseStorage, name: str) -> Record:
    """Return a study that is in a storage."""
    engine = storage.engine if isinstance(storage, optuna.storages.RDBStorage) else None
    return Record(optuna.load_study(study_name=name, storage=storage), engine)


def _read(storage: optuna.storages.BaseStorage, name: str) -> Record:
    """Return a study; raises BadInputError for one that cannot be read."""
    record = load_record(storage, name)
    reason = unreadable(record.attributes())
    if reason is not None:
        raise BadInputError(f"study {name} cannot be read: {reason}", "search again with --new")
    return record


def all_records(storage: optuna.storages.BaseStorage) -> list[Record]:
    """Return every study in a storage that can be read, the oldest first."""
    return records(storage)[0]


def records(storage: optuna.storages.BaseStorage) -> tuple[list[Record], dict[str, list[str]]]:
    """Return every study in a storage that can be read, the oldest first; and the names of the others, by reason."""
    readable, others = attributes_in(storage)
    return [load_record(storage, name) for name in readable], others


def attributes_in(storage: optuna.storages.BaseStorage) -> tuple[dict[str, Attributes], dict[str, list[str]]]:
    """Return the attributes of every study that can be read, the oldest first; and the others' names, by reason."""
    readable: dict[str, Attributes] = {}
    others: dict[str, list[str]] = {}
    attributes_by_name = _tftune_studies(storage)
    for name in sorted(attributes_by_name, key=lambda name: str(attributes_by_name[name].raw.get("created"))):
        reason = unreadable(attributes_by_name[name])
        if reason is None:
            readable[name] = attributes_by_name[name]
        else:
            others.setdefault(reason, []).append(name)
    return readable, others


def hosts_in(storage: optuna.storages.BaseStorage) -> dict[str, frozenset[str]]:
    """Return the names of the hosts that have run the trials of each study, by its name, as far as they are stored."""
    owners = sqlalchemy.select(models.StudyModel.study_name, models.TrialUserAttributeModel.value_json).distinct()
    owners = owners.where(
        models.StudyModel.study_id == models.TrialModel.study_id,
        models.TrialModel.trial_id == models.TrialUserAttributeModel.trial_id,
        models.TrialUserAttributeModel.key == "owner",
    )
    hosts = defaultdict[str, set[str]](set)
    with engine_of(storage).connect() as rows:
        for study, text in rows.execute(owners):
            with contextlib.suppress(ValueError):
                host = str(json.loads(text)).rpartition(":")[0]
                hosts[study] |= {host} if host else set()
    return {study: frozenset(names) for study, names in hosts.items()}


def _tftune_studies(storage: optuna.storages.BaseStorage) -> dict[str, Attributes]:
    """Return the attributes of tftune's studies, of whatever format; a team's storage may hold others too."""
    try:
        stored_studies = storage.get_all_studies()  # summaries would read every trial of every study
    except ValueError as error:
        raise BadInputError(
            f"the storage is damaged: an attribute is not valid JSON ({error})", "restore a backup"
        ) from error
    ours = [each for each in stored_studies if "schema" in each.user_attrs]
    return {each.study_name: Attributes(each.study_name, each.user_attrs) for each in ours}


def unreadable(stored: Attributes) -> str | None:
    """Return why a study cannot be read, None if it can."""
    schema = stored.raw.get("schema")
    if schema != SCHEMA:
        return f"its format is {schema}, this version of tftune reads format {SCHEMA}"
    try:
        stored.subject  # noqa: B018  # by it studies are compared, filtered and merged
        stored.created, stored.updated  # noqa: B018  # by them they are put in order
    except UnknownNameError as error:
        return error.message  # a framework that is not installed here
    except BadInputError:
        return "damaged: its machine, build, workload or date cannot be read"
    return None


def create_or_continue(
    storage: optuna.storages.BaseStorage, stem: str, sampler: optuna.samplers.BaseSampler, *, new: bool
) -> Record:
    """Return the newest study named `stem`, `stem.2`, …; a new one if there is none, or `new` asks for one.

    One that was imported is another host's to go on with, even if that is a machine like this one.
    """
    is_imported = {study.study_name: IMPORTED in study.user_attrs for study in storage.get_all_studies()}
    names = [stem]
    while names[-1] in is_imported:
        names.append(generation_name(stem, len(names) + 1))
    own_names = [name for name in names[:-1] if not is_imported[name]]
    name = names[-1] if new or not own_names else own_names[-1]
    study = optuna.create_study(
        study_name=name, storage=storage, sampler=sampler, direction="maximize", load_if_exists=True
    )
    if study.metric_names is None:
        name_value(study)
    record = Record(study)
    schema = record.get("schema")
    if schema not in (None, SCHEMA):
        raise TunerError(
            f"study {name} has format {schema}, this version of tftune writes format {SCHEMA}",
            "start a new study with --new",
        )
    return record


def generation_name(stem: str, generation: int) -> str:
    """Return the name of the first, second, … study of a stem: `stem`, `stem.2`, …"""
    return stem if generation == 1 else f"{stem}.{generation}"
