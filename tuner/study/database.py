"""The database behind a storage: how long locks are waited for, whether its schema fits, and what is wrong with it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import shlex
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import optuna
import sqlalchemy

from tuner.errors import BadInputError, TunerError
from tuner.paths import FILE_URL

LOCK_S = 60.0
"""How long another process's lock on an SQLite file is waited for."""
_SOON_S = 1.0  # a lock that is held so long is told of
_CONNECT_S = 15
_TAKE_TIMEOUT = ("psycopg", "psycopg2", "pymysql", "mysqldb")
_PACKAGES = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
_KINDS = f"{FILE_URL}FILE, postgresql://… or mysql://…"
_OTHER_FILE = "give --storage another file"
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_OF_CODES = {
    sqlite3.SQLITE_CORRUPT: f"restore a backup, or {_OTHER_FILE}",
    sqlite3.SQLITE_NOTADB: f"restore a backup, or {_OTHER_FILE}",
    sqlite3.SQLITE_FULL: "free some space on its disk",
    sqlite3.SQLITE_READONLY: "choose a file that you can write to with --storage",
    sqlite3.SQLITE_PERM: "choose a file that you can write to with --storage",
    sqlite3.SQLITE_CANTOPEN: "check its permissions and those of its folder",
    sqlite3.SQLITE_IOERR: "give --storage a file on a local disk: some network folders cannot lock files",
    sqlite3.SQLITE_PROTOCOL: "give --storage a file on a local disk: some network folders cannot lock files",
    **dict.fromkeys(_BUSY, "another process keeps it locked: wait until that ends, or end it"),
}
_OF_SERVERS = (
    (
        r"password|access denied|no pg_hba|authentication|role \S+ does not exist",
        "check the user and password in the URL",
    ),
    (r"database \S+ does not exist|unknown database", "create that database on the server first, or check its name"),
    (r"permission denied", "let the user of the URL create tables in that database"),
    (
        r"refused|translate host|timed? ?out|unreachable|no route|can't connect|unknown (mysql )?(server )?host"
        r"|name or service|resolve",
        "check the host and the port in the URL, and that the server runs",
    ),
)
_DOWN = re.compile(
    r"refused|on socket|through socket|timed? ?out|unreachable|no route|closed the connection|starting up|shutting"
)
_OF_MACHINE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, *_BUSY)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the block is over; a second one does not wait.

    An exception in the middle of a statement keeps its cursor alive, and with it SQLite's lock on the file. Whoever
    writes next, to keep what an interrupted run has measured, would wait for that lock and fail.
    """
    if threading.current_thread() is not threading.main_thread():  # Python runs the handlers of signals in that one
        yield
        return
    received: list[int] = []
    handlers: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1 and callable(handlers[number]):  # such as for a server that never answers
            handlers[number](number, frame)

    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(each)
            if handler is not None:  # else it is another language's
                handlers[each] = handler
                signal.signal(each, note)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


class Storage(optuna.storages.RDBStorage):
    """Optuna's storage in a database, whose transactions are uninterrupted."""


def _uninterrupted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        with uninterrupted():
            return method(*args, **options)

    return call


for _name, _method in vars(optuna.storages.RDBStorage).items():
    if inspect.isfunction(_method) and not _name.startswith("__"):
        setattr(Storage, _name, _uninterrupted(_method))


def engine_options(url: str) -> dict[str, Any]:
    """Return options of an engine: wait for another writer of an SQLite file, and not for ever for a server."""
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": LOCK_S}}
    parsed = sqlalchemy.make_url(url)
    takes_timeout = parsed.get_dialect().driver in _TAKE_TIMEOUT and "connect_timeout" not in parsed.query
    return {"connect_args": {"connect_timeout": _CONNECT_S}} if takes_timeout else {}


def tell_of_lock(file: Path, *, writes: bool) -> None:
    """Print a line where another process has an SQLite file locked, which is waited for from here on."""
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=_SOON_S)
    except sqlite3.Error:  # it cannot be written, or is no database: whoever opens it finds out
        return
    try:
        connection.execute("BEGIN IMMEDIATE" if writes else "SELECT count(*) FROM sqlite_master")
        connection.rollback()
    except sqlite3.Error as error:
        if _code(error) in _BUSY:
            sys.stderr.write(f"waiting: another process has locked {file} (for at most {LOCK_S:.0f} s)\n")
            sys.stderr.flush()
    finally:
        connection.close()


def check_schema(url: str, revision: str) -> None:
    """Raise BadInputError where a database's schema, of that revision, is not this Optuna's: it would refuse it."""
    script = _revisions()
    if revision == script.get_current_head():
        return
    is_older = revision in {each.revision for each in script.walk_revisions()}
    age = "an older" if is_older else "a newer"
    upgrade = f"upgrade it, after a backup: optuna storage upgrade --storage {shlex.quote(shown(url))}"
    install = f"install a newer Optuna: {shlex.quote(sys.executable)} -m pip install -U optuna"
    raise BadInputError(
        f"storage {shown(url)} was made by {age} version of Optuna than {optuna.__version__}",
        f"{upgrade if is_older else install}; or {_OTHER_FILE}",
    )


@functools.cache
def _revisions() -> Any:
    """Return the revisions of Optuna's tables, which are read from files."""
    import alembic.script  # which logs what it sets up, to whoever listens by then

    return alembic.script.ScriptDirectory(str(Path(optuna.storages.__file__).parent / "_rdb" / "alembic"))


def shown(url: str) -> str:
    """Return a URL as it may be printed: without its password, which may hold what would have to be escaped."""
    return re.sub(r"(?i)(?<=password=)[^&]*", "***", re.sub(r"(?<=://)([^:/@]*):.*(?=@)", r"\1:***", url))


def cannot_open(url: str, error: Exception) -> TunerError:
    """Return the error for a storage that cannot be opened, with what to do about it.

    It is bad input, unless a server is down, or a disk is full or does not work.
    """
    if isinstance(error, TunerError):
        return error
    reason = first_line(error)
    if isinstance(error, sqlalchemy.exc.NoSuchModuleError):
        reason = f"there is no kind of database '{url.partition(':')[0]}'"
    elif isinstance(error, ValueError):
        reason = "its port is no number"
    is_down = _code(error) in _OF_MACHINE or _DOWN.search(reason.lower()) is not None
    kind = TunerError if is_down else BadInputError
    return kind(f"storage {shown(url)} cannot be opened: {reason}", _hint(url, error))


def first_line(error: BaseException) -> str:
    """Return what an error says in a line, without the name of its class in front."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"^\([\w.]+\) ", "", line)


def _hint(url: str, error: Exception) -> str:
    """Return the way out of an error of SQLAlchemy, of Optuna or of a driver."""
    of_code = code_hint(error)
    if of_code is not None:
        return of_code
    if isinstance(error, ModuleNotFoundError):
        return _driver_hint(error.name or "")
    if isinstance(error, sqlalchemy.exc.NoSuchModuleError):
        is_postgres = url.startswith("postgres:")
        return f"write {shown(url.replace('postgres:', 'postgresql:', 1))}" if is_postgres else f"expected {_KINDS}"
    if isinstance(error, sqlalchemy.exc.ArgumentError):
        return f"expected {_KINDS}"
    if url.partition("?")[0].count("@") > 1:
        return "write %40 for an @ in the user or the password"
    if isinstance(error, ValueError):
        return "write the number of the port after the host, e.g. postgresql://user@host:5432/name"
    text = str(error).lower()
    return next((hint for pattern, hint in _OF_SERVERS if re.search(pattern, text)), "check the URL")


def code_hint(error: BaseException) -> str | None:
    """Return what to do about the SQLite error behind an error, None where there is none, or no advice."""
    return _OF_CODES.get(_code(error) or 0)


def _driver_hint(module: str) -> str:
    package = _PACKAGES.get(module, module)
    return f"install the database's driver: {shlex.quote(sys.executable)} -m pip install {package}"


def _code(error: BaseException | None) -> int | None:
    """Return the code of SQLite's that is behind an error of SQLAlchemy or Optuna, None where it is another."""
    while error is not None:
        code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
        if code is not None:
            return int(code) & 0xFF  # without its details
        error = error.__cause__ or error.__context__
    return None
