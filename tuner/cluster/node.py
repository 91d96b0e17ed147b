"""A node answers the questions of a suite's driver in another process.

Each unit has its own storage in the cache folder. An interrupted unit continues there, and a finished unit is not
measured again. The process ends with its parent.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import sqlalchemy

from tuner.cluster.copies import keep, with_copies
from tuner.cluster.wire import AskOffer, Forget, Offer, OfferedCase, Piece, Unit, UnitEnd
from tuner.errors import TunerError
from tuner.identity import digest
from tuner.job.nested import INTERRUPTED_CODE, own_command, reason_of
from tuner.job.suite import Case, chosen_workloads, plan, run_case
from tuner.machine.host import detect, host_of, node_name
from tuner.machine.locks import machine_lock, unit_lock
from tuner.paths import FILE_URL, cache_dir, code_version, write_whole
from tuner.plain import to_plain
from tuner.study.record import Record
from tuner.study.storage import LAST, Scratch, all_records, engine_of, open_storage
from tuner.workload.spec import WorkloadSpec

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_KEPT_S = 30 * 86400.0
_LEAST_FREE_BYTES = 256 << 20
_MOST_BYTES = 1 << 30  # of the storage of a unit
_PIECE, _OFFER, _FORGET = b'{"type":"Piece"', b'{"type":"AskOffer"', b'{"type":"Forget"'
_ending = threading.Event()


class _Answering:
    """A process that answers one question after the other. It ends with the first one that it cannot answer."""

    def __init__(self) -> None:
        self.is_current = True
        """Whether no suite has begun since it started: another version may be installed by then."""
        self._stderr_file = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self.process = subprocess.Popen(
            own_command("tuner.cli.answer"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr_file,
            start_new_session=True,
        )

    def answer(self, question: bytes) -> bytes:
        """Return the answer, empty if the process was interrupted; raises TunerError if it ended without one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(question + b"\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line.endswith(b"\n"):
            return line[:-1]
        code = self.process.wait()
        self._stderr_file.seek(0)
        log = self._stderr_file.read().decode(errors="replace")
        self.close()
        if code == INTERRUPTED_CODE:
            return b""
        raise TunerError(reason_of(code, log, "the answering process"))

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()  # which closes its stdin
        self._stderr_file.close()


_answering: set[_Answering] = set()
idle: list[_Answering] = []
"""The process that waits for the next unit, if there is one."""


def ask(question: bytes) -> bytes:
    """Answer a question on this machine, in another process; raises TunerError if that ends without an answer.

    The engine calls this on a node. The answer is empty if the process was interrupted, which happens if this one ends.
    It does not start before all other tftunes on this machine have stopped measuring. The process that offers the cases
    of a suite waits for its units, as a new one would take seconds to start.
    """
    with machine_lock(wait=True):
        pass
    if _ending.is_set():
        return b""
    if question.startswith(_PIECE):  # written within milliseconds, and there may be hundreds
        keep(msgspec.json.decode(question, type=Piece))
        return b"{}"
    if question.startswith(_OFFER) or any(child.process.poll() is not None for child in idle):
        release()
    if question.startswith(_OFFER):
        for other in [*_answering]:
            other.is_current = False
    child = idle.pop() if idle else _Answering()
    _answering.add(child)
    try:
        said = child.answer(question)
    finally:
        _answering.discard(child)
    if said and child.is_current and not idle and not question.startswith(_FORGET):
        idle.append(child)
    elif said:
        child.close()
    return said


def release() -> None:
    """End the process that waits for the next unit."""
    while idle:
        idle.pop().close()


def stop() -> None:
    """Interrupt all running answers before this process ends. Partial results stay for the same unit."""
    _ending.set()
    for child in [*_answering, *idle]:
        child.process.terminate()


def answer(question: bytes) -> bytes:
    """Return the answer to a question; raises TunerError, and KeyboardInterrupt if whoever has asked is gone."""
    asked = msgspec.json.decode(question, type=AskOffer | Unit | Forget)
    _folder().mkdir(parents=True, exist_ok=True)
    _forget(asked.merged)
    with contextlib.chdir(asked.folder if Path(asked.folder).is_dir() else "."):
        match asked:
            case AskOffer():
                return msgspec.json.encode(_offer(asked))
            case Unit():
                return msgspec.json.encode(_run(asked))
    return b"{}"


def _forget(units: Sequence[str]) -> None:
    """Remove what is held of units, and what nobody has asked for in a month."""
    oldest_s = time.time() - _KEPT_S
    forgotten = {file for unit in units for file in files_of(unit)}
    for file in _folder().iterdir():
        with contextlib.suppress(FileNotFoundError):  # a journal of another process
            if file in forgotten or file.stat().st_mtime < oldest_s:
                file.unlink()


def _offer(question: AskOffer) -> Offer:
    """Return what this machine is and which cases it can run, or the reason why it can run none."""
    here = Offer(
        node=node_name() or socket.gethostname(),
        name=node_name(),
        host=_BOOT.read_text().strip(),
        machine=host_of(detect()),
        held=tuple(sorted({file.stem for file in _folder().glob("*.db")})),
    )
    if question.version != code_version():
        failure = f"it has tftune {code_version()}, expected {question.version} as the driver; install that there"
        return msgspec.structs.replace(here, failure=failure)
    try:
        request, copies = with_copies(question.request, question.models)
        missing = tuple(word for word, copy in copies.items() if not copy)
        if missing and not request.workloads:
            return msgspec.structs.replace(here, missing=missing)
        # What is done is the driver's to know.
        suite = plan(replace(request, storage=f"{FILE_URL}{_folder() / 'none'}"))
    except TunerError as error:
        return msgspec.structs.replace(here, failure=str(error))
    cases = tuple(_offered(case, question) for case in suite.cases)
    return msgspec.structs.replace(here, cases=cases, absent=tuple(suite.unavailable), missing=missing)


def _offered(case: Case, question: AskOffer) -> OfferedCase:
    request = question.request
    search = [request.plan, request.time_budget, request.trial_timeout, request.seed, request.instances]
    return OfferedCase(
        id=digest([msgspec.to_builtins(case.key), question.suite, search], length=16),  # on whatever node
        key=case.key,
        word=case.word,
        workload=case.workload.name,
        shape=str(case.shape),
        quota=case.shape.quota,
        python=str(case.python),
        runtime=case.build.title,
        build=case.build_line,
    )


def _run(unit: Unit) -> UnitEnd:
    """Run a unit, or go on with it; return how it ended, also if it did so before."""
    storage_file, end_file = files_of(unit.id)
    with unit_lock(unit.id):
        if end_file.exists():
            return msgspec.json.decode(end_file.read_bytes(), type=UnitEnd)
        if shutil.disk_usage(_folder()).free < _LEAST_FREE_BYTES:
            raise TunerError(f"the disk of {_folder()} is full", "free some space there, or set TFTUNE_CACHE")
        began_s = time.monotonic()
        if unit.study and not storage_file.exists():
            write_whole(storage_file, _whole(unit.study))
        request, copies = with_copies(unit.request, unit.models)
        if not all(copies.values()):
            raise TunerError(f"the copied model of {', '.join(copies)} is not here any more", "start this node again")
        suite = plan(replace(request, storage=f"{FILE_URL}{storage_file}"))
        number = next((n for n, case in enumerate(suite.cases) if case.key == unit.key), None)
        if number is None:
            what = "the build, the workload or the CPUs have changed since this node offered the unit"
            raise TunerError(what, "start this node again")
        case = None
        if unit.study or number not in suite.existing:
            case = run_case(suite, number, unit.budget_s, again=LAST if unit.study else "")
        own = suite.cases[number]
        if own.word in copies:
            _name_as_asked(storage_file, own.spec, chosen_workloads(unit.request)[own.word].spec, unit.folder)
        end = UnitEnd(
            node=node_name() or socket.gethostname(),
            wall_s=time.monotonic() - began_s,
            studies=packed(storage_file),
            failure="" if case is None else case.failure,
            interrupted=case is not None and case.interrupted,
        )
        known = None if case is None or case.study is None else case.study.planned
        if not end.failure and (known is None or known.complete):  # else the same unit goes on here
            with contextlib.suppress(OSError):  # a full disk: the studies are on their way
                write_whole(end_file, msgspec.json.encode(end))
        return end


def _name_as_asked(storage_file: Path, own: WorkloadSpec, asked: WorkloadSpec, folder: str) -> None:
    """Let the studies of a copy have the path that was asked for. The path of the copy is only this node's."""
    storage = open_storage(f"{FILE_URL}{storage_file}", create=False)
    for record in [] if storage is None else all_records(storage):
        spec = replace(own, words=asked.words, name=asked.name)
        record.put("asked", to_plain(spec) | {"folder": folder})
        command = str(record.get("command"))
        record.put("command", command.replace(shlex.quote(own.words[0]), shlex.quote(asked.words[0])))


def _folder() -> Path:
    """Return the folder of the units of this host: several may share a cache."""
    return cache_dir() / "units" / "".join(c for c in socket.gethostname() if c.isalnum() or c == "-")


def files_of(unit: str) -> tuple[Path, Path]:
    """Return the files of a unit: its storage, and how it ended."""
    name = "".join(c for c in unit if c.isalnum())  # from another machine
    return _folder() / f"{name}.db", _folder() / f"{name}.json"


def packed(storage_file: Path) -> bytes:
    """Return an SQLite storage as it is sent, empty if there is none."""
    if not storage_file.exists():
        return b""
    with contextlib.closing(sqlite3.connect(storage_file)) as connection:
        return zlib.compress(connection.serialize())


@contextlib.contextmanager
def unpacked(studies: bytes, scratch: Scratch) -> Iterator[tuple[list[Record], sqlalchemy.Engine]]:
    """Yield the studies of a storage that was sent, and their database; raises TunerError if it is damaged."""
    storage = scratch.load(_whole(studies))
    if storage is None:
        raise TunerError("damaged studies")
    try:
        yield all_records(storage), engine_of(storage)
    except (LookupError, TypeError, ValueError) as error:
        raise TunerError(f"damaged studies ({error!r})") from error


def _whole(studies: bytes) -> bytes:
    """Return a file that was sent; raises TunerError if it was cut, or is too large."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(studies, _MOST_BYTES)
    except zlib.error as error:
        raise TunerError("damaged studies") from error
    if not unpacking.eof:
        raise TunerError("damaged studies")
    return data
