"""Frameworks side by side: each one's default and its tuned setting against TensorFlow's default, batch by batch.

The order is that of what people want to know first:

    check   each framework's outputs and precision, in one process at the batch size that the job has
    tune    a search in each framework at that batch size (`tuner.job.nested`)
    finals  rounds of new processes, one of each framework's default and tuned setting: the verdicts
    load    how long each takes until its first answer, with files in the page cache and without
    scan    a process for each setting and batch size, in turns with TensorFlow's default at that batch size

Whatever has been measured is stored at once, in an Optuna study without trials, and is not measured again.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import optuna

from tuner.errors import BadInputError
from tuner.identity import digest
from tuner.job.entrant import REFERENCE, Entrant, chosen, entrants, interpreters
from tuner.job.events import FrameworksEvents
from tuner.job.job import Job, prepare
from tuner.job.nested import run_search
from tuner.job.request import KEEP, MAY_CHANGE, SearchRequest, find_device, find_workload, parse_request
from tuner.job.servers import free_memory_bytes, parallel_starts
from tuner.machine.locks import machine_lock
from tuner.machine.pagecache import evict, files_of
from tuner.measure.cell import Cell, CellPlan, CheckedAgainst, Reference, checked_cell, measure_cell
from tuner.measure.finals import Contender, Round, failures, log_rates, run_round
from tuner.measure.objective import Objective
from tuner.measure.pair import PairPlan, ReferenceLost
from tuner.measure.planning import FinalsPlan
from tuner.paths import DEFAULT_STORAGE
from tuner.report.lineup import Absent, Lineup, Loading, Side, Tuned
from tuner.space.setting import Setting
from tuner.stats.estimate import paired
from tuner.study.budget import parse_duration
from tuner.study.record import Record, now
from tuner.study.storage import check_storage, create_or_continue, open_storage, storage_errors
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import ReadyReport, Status, TrialFailure
from tuner.workload.spec import WorkloadSpec

SCHEMA = 1
_LEAST_SEARCH_S, _MOST_SEARCH_S = 30.0, 300.0
_SEARCH_SHARE, _FINALS_SHARE = 0.4, 0.45  # of the budget, for all searches; of what is left after them
_MIN_ROUNDS, _MAX_ROUNDS = 4, 16
_HALF_WIDTH = 0.02  # of the interval of a ratio (log), at which the finals end: asked for are 3 %
_N_LOADS = 2  # cold and warm starts of each framework
_LARGEST_BATCH = 65536


class Kind(StrEnum):
    """Which setting of a framework."""

    DEFAULT = "default"
    TUNED = "tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworksRequest:
    """The options of a comparison of frameworks as they were typed."""

    workload: WorkloadSpec
    frameworks: str | None = None
    """With commas; None for all that are installed."""
    batches: str = "1..1024"
    batch_size: int | None = None
    """That of the searches and verdicts; None for the workload's own."""
    space: str | None = None
    time_budget: str = "30m"
    pythons: Sequence[str] = ()
    numerics: str = KEEP
    storage: str = DEFAULT_STORAGE
    trial_timeout: str = "5m"
    seed: int = 0
    new: bool = False
    wait: bool = False


@dataclass(slots=True, kw_only=True)
class Seat:
    """An entrant at the table: its job, and why it does not take part, if it does not."""

    entrant: Entrant
    job: Job
    launcher: FreshLauncher | None = None
    precision: str | None = None
    deviation: float | None = None
    status: Status = Status.OK
    message: str = ""
    tuned: Tuned | None = None

    @property
    def key(self) -> str:
        """Return a name that changes with whatever of it may change timings."""
        return f"{self.entrant.name}/{digest([self.job.build.id, self.job.space.fingerprint, self.entrant.pins])}"

    def settings(self) -> dict[Kind, Setting]:
        """Return its settings; the tuned one only where it is another than the default."""
        reference = self.job.space.reference
        if self.tuned is None or self.tuned.setting is None or Setting.of(self.tuned.setting) == reference:
            return {Kind.DEFAULT: reference}
        return {Kind.DEFAULT: reference, Kind.TUNED: Setting.of(self.tuned.setting)}

    def contenders(self, batch_size: int) -> list[Contender]:
        """Return the contenders of its settings at a batch size."""
        return [
            self.contender(kind, setting.with_values(batch_size=batch_size))
            for kind, setting in self.settings().items()
        ]

    def contender(self, kind: Kind, setting: Setting) -> Contender:
        """Return a setting as a contender."""
        return Contender(
            names=(f"{self.entrant.name}/{kind}",),
            setting=setting,
            deployment=self.job.space.deployment(setting),
            launcher=self.launcher,
        )


def parse_batches(text: str) -> list[int]:
    """Return the batch sizes of `1..64` (doubling) or `1,8,32`, ascending; raises BadInputError."""
    first, dots, last = text.partition("..")
    try:
        sizes = [int(first), int(last)] if dots else [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInputError(f"--batch is '{text}'", "expected e.g. 1..64 (doubling), or 1,8,32") from None
    if min(sizes) < 1 or max(sizes) > _LARGEST_BATCH or (dots and sizes[0] > sizes[1]):
        raise BadInputError(f"--batch is '{text}'", f"expected numbers from 1 to {_LARGEST_BATCH}, the smaller first")
    if not dots:
        return sorted(set(sizes))
    doubled = [sizes[0]]
    while 2 * doubled[-1] <= sizes[1]:
        doubled.append(2 * doubled[-1])
    return sorted({*doubled, sizes[1]})


def compare_frameworks(request: FrameworksRequest, events: FrameworksEvents) -> tuple[Lineup, bool]:
    """Measure what is not stored yet, as far as the time goes; returns all there is, and whether it was interrupted.

    Raises BadInputError before anything is measured.
    """
    table = _Table(request, events)
    interrupted = False
    try:
        with storage_errors():
            table.run()
    except KeyboardInterrupt:
        interrupted = True
    return table.lineup(interrupted=interrupted), interrupted


class _Table:
    """The seats, the record, and the time."""

    def __init__(self, request: FrameworksRequest, events: FrameworksEvents) -> None:
        """Understand a request: raises BadInputError; nothing is measured, and nothing written."""
        self._request, self._events = request, events
        self._batches = parse_batches(request.batches)
        self._budget_s = parse_duration(request.time_budget)
        self._deadline_s = parse_duration(request.trial_timeout, option="--trial-timeout")
        check_storage(request.storage)
        if request.workload.framework is not None:
            raise BadInputError(
                f"--framework {request.workload.framework} names one", "name those to compare with --frameworks"
            )
        framework, workload = find_workload(replace(request.workload, framework=REFERENCE))
        if workload.command is not None:
            raise BadInputError("a command is not a model that other frameworks could run", "give a model")
        device = find_device(request.workload, framework)
        device.check_idle()
        self._batch_size = request.batch_size or workload.batch_size
        if self._batch_size < 1:
            raise BadInputError(f"--batch-size is {self._batch_size}", "expected at least 1")
        everyone = entrants(device, interpreters(request.pythons), may_change_numerics=request.numerics == MAY_CHANGE)
        asked_for, are_named = chosen(request.frameworks, everyone)
        self._seats: dict[str, Seat] = {}
        self._absent: list[Absent] = []
        for entrant in asked_for:
            try:
                self._seats[entrant.name] = Seat(entrant=entrant, job=self._job(entrant))
            except BadInputError as error:
                if are_named or entrant.name == REFERENCE:
                    raise
                self._absent.append(Absent(framework=entrant.name, reason=error.message, hint=error.hint or ""))
        self._reference = self._seats[REFERENCE]
        self._record: Record | None = None
        self._watch = self._reference.job.device.watch(self._reference.job.machine)
        self._began_s = time.monotonic()
        self._start_s: dict[str, float] = {}
        self._ended = "complete"

    def _job(self, entrant: Entrant) -> Job:
        request = self._request
        return prepare(
            parse_request(
                SearchRequest(
                    workload=entrant.spec(request.workload),
                    space=request.space,
                    batch_size=str(self._batch_size),
                    pins=list(entrant.pins),
                    python=str(entrant.python),
                    storage=request.storage,
                    trial_timeout=request.trial_timeout,
                    numerics=MAY_CHANGE if entrant.pins else KEEP,
                )
            )
        )

    # ---- what is stored ----------------------------------------------------------------------------------------

    def _open(self) -> Record:
        job = self._reference.job
        key = [job.machine.id, *job.device.identity(), job.workload.fingerprint, self._batch_size, job.environment]
        key += [job.space.name, job.workload.mode, self._request.seed]
        storage = open_storage(self._request.storage, create=True)
        assert storage is not None  # create=True
        stem = f"frameworks-{job.workload.name}-{digest(key, length=8)}"
        record = create_or_continue(storage, stem, optuna.samplers.RandomSampler(), new=self._request.new)
        if record.get("frameworks_schema") is None:
            record.put("created", now())
            record.put("frameworks_schema", SCHEMA)
        return record

    def _get(self, *key: object) -> Any:
        return None if self._record is None else self._record.get("/".join(map(str, key)))

    def _put(self, value: object, *key: object) -> None:
        assert self._record is not None  # opened before anything is measured
        self._record.put("/".join(map(str, key)), value)

    def _cell(self, seat: Seat, kind: Kind, batch_size: int) -> Cell | None:
        stored = self._get("cell", seat.key, kind, self._setting_key(seat, kind), batch_size)
        return None if stored is None else Cell.from_dict(stored)

    def _store_cell(self, seat: Seat, kind: Kind, cell: Cell) -> None:
        self._put(cell.to_dict(), "cell", seat.key, kind, self._setting_key(seat, kind), cell.batch_size)

    def _setting_key(self, seat: Seat, kind: Kind) -> str:
        """Return a name of what is measured: the reference's is part of it, as all is relative to that."""
        return digest([seat.settings()[kind].to_dict(), self._reference.key], length=8)

    # ---- time --------------------------------------------------------------------------------------------------

    def _left_s(self) -> float:
        return self._budget_s - (time.monotonic() - self._began_s)

    # ---- stages ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all stages, each as far as it was not run before."""
        self._record = self._open()
        with self._lock():
            self._export()
            self._check()
        self._tune()
        with self._lock():
            self._finals()
            self._load()
            self._scan()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with machine_lock(wait=self._request.wait, on_wait=self._events.waiting):
            yield

    def _taking_part(self) -> list[Seat]:
        return [seat for seat in self._seats.values() if seat.status is Status.OK]

    def _export(self) -> None:
        """Make the model ready for each framework; one that cannot be converted takes no part."""
        for seat in self._seats.values():
            self._events.began(f"{seat.entrant.name}: preparing the model", self._left_s())
            try:
                launcher = seat.job.launcher(deadline_s=self._deadline_s)
            except BadInputError as error:
                if seat is self._reference:
                    raise
                seat.status, seat.message = Status.FAILED, error.message
                self._events.ended(seat.entrant.name, error.message)
                continue
            assert isinstance(launcher, FreshLauncher)  # it is no command
            seat.launcher = launcher

    def _check(self) -> None:
        """Hold the outputs and the precision of each against the reference's, and know what a start takes."""
        for seat in self._taking_part():
            stored = self._get("check", seat.key, self._reference.key)
            if stored is None:
                self._events.began(f"{seat.entrant.name}: checking its outputs", self._left_s())
                stored = self._checked(seat)
                if stored is None:
                    continue
                self._put(stored, "check", seat.key, self._reference.key)
            cell = Cell.from_dict(stored["cell"])
            seat.precision, seat.deviation = cell.precision, cell.deviation
            seat.status, seat.message = cell.status, cell.message
            self._start_s[seat.entrant.name] = stored["start_s"]
            if seat.status is not Status.OK:
                self._events.ended(seat.entrant.name, seat.message)

    def _checked(self, seat: Seat) -> dict[str, Any] | None:
        """Return what a process of a framework's default is; None where a failure may be over the next time."""
        contender = seat.contender(Kind.DEFAULT, seat.job.space.reference)
        began_s = time.monotonic()
        try:
            facts = self._started_once(contender)
        except TrialFailure as failure:
            if seat is self._reference:
                raise BadInputError(
                    f"TensorFlow's default does not run: {failure.message}", failure.hint or "", log=failure.log[-2000:]
                ) from failure
            seat.status, seat.message = failure.status, failure.message
            self._events.ended(seat.entrant.name, failure.message)
            return None
        start_s = time.monotonic() - began_s
        if seat is self._reference:
            self._sample = facts.sample
            seat.precision = seat.job.precision_of(facts)
        cell = self._checked_cell(seat, contender, facts)
        return {"cell": cell.to_dict(), "start_s": start_s, "sample": facts.sample}

    _sample: Mapping[str, Any] | None = None

    def _checked_cell(self, seat: Seat, contender: Contender, facts: ReadyReport) -> Cell:
        if self._sample is None:
            stored = self._get("check", self._reference.key, self._reference.key)
            self._sample = None if stored is None else stored["sample"]
        against = CheckedAgainst(
            sample=self._sample, precision=None if seat.entrant.pins else self._reference.precision
        )
        batch_size = contender.setting.batch_size
        name = contender.names[0]
        return checked_cell(name, batch_size, facts, seat.job.precision_of(facts), against, limit=seat.entrant.limit)

    def _started_once(self, contender: Contender) -> ReadyReport:
        """Start a process of a contender, and end it when it is warm; raises TrialFailure."""
        assert contender.launcher is not None  # the model is ready
        process = contender.launcher.launch(contender.setting, contender.deployment)
        try:
            return process.ready()
        finally:
            process.close()

    def _tune(self) -> None:
        """Search in each framework, unless that was done."""
        for seat in self._taking_part():
            stored = self._get("tuned", seat.key)
            seat.tuned = None if stored is None else Tuned(**stored)
        missing = [seat for seat in self._taking_part() if seat.tuned is None]
        share_s = _SEARCH_SHARE * self._left_s() / max(1, len(missing))
        search_s = min(_MOST_SEARCH_S, max(_LEAST_SEARCH_S, share_s))
        for seat in missing:
            self._events.began(f"{seat.entrant.name}: searching for {search_s:.0f} s", self._left_s())
            ended = run_search(self._search_arguments(seat, search_s))
            if ended.interrupted:
                raise KeyboardInterrupt
            if ended.study is None:
                seat.tuned = Tuned(study=None, setting=None, failure=ended.failure)
                self._events.ended(seat.entrant.name, f"the search failed: {ended.failure}")
                continue  # perhaps the next time
            seat.tuned = Tuned.of(ended.study)
            self._put(seat.tuned.to_dict(), "tuned", seat.key)
            self._events.ended(seat.entrant.name, seat.tuned.text)

    def _search_arguments(self, seat: Seat, search_s: float) -> list[str]:
        request, entrant = self._request, seat.entrant
        arguments = shlex.split(entrant.spec(request.workload).command_line)
        arguments += ["--python", str(entrant.python), "--batch-size", str(self._batch_size), "--no-instances"]
        arguments += ["--time-budget", f"{search_s:.0f}s", "--seed", str(request.seed), "--storage", request.storage]
        arguments += ["--trial-timeout", request.trial_timeout]
        arguments += [] if request.space is None else ["--space", request.space]
        arguments += ["--new"] if request.new else []
        if entrant.pins:
            arguments += ["--numerics", MAY_CHANGE]
        for pin in entrant.pins:
            arguments += ["--set", pin]
        return arguments

    def _contenders(self, batch_size: int) -> dict[str, tuple[Seat, Kind, Contender]]:
        """Return all contenders at a batch size by name, the reference first."""
        return {
            contender.names[0]: (seat, kind, contender)
            for seat in self._taking_part()
            for kind, contender in zip(seat.settings(), seat.contenders(batch_size), strict=True)
        }

    def _rounds_key(self) -> tuple[object, ...]:
        rows = self._contenders(self._batch_size).values()
        return "rounds", digest([[seat.key, self._setting_key(seat, kind)] for seat, kind, _ in rows])

    def _rounds(self) -> list[Round]:
        return [Round.from_dict(each) for each in self._get(*self._rounds_key()) or ()]

    def _finals(self) -> None:
        """Hold rounds of new processes of all, until each ratio to the reference is known well or time is up."""
        contenders = [contender for _, _, contender in self._contenders(self._batch_size).values()]
        rounds = self._rounds()
        ends_s = time.monotonic() + _FINALS_SHARE * self._left_s()
        plan = FinalsPlan(n_parallel_starts=parallel_starts(self._reference.job.machine))
        plan = replace(plan, max_resident=self._resident(contenders, plan.max_resident))
        rng = np.random.default_rng()
        assert self._reference.launcher is not None  # the models are ready
        longest_s = 0.0
        while not self._is_decided(rounds, contenders):
            began_s = time.monotonic()
            if len(rounds) >= _MIN_ROUNDS and began_s + longest_s > ends_s:
                break
            self._events.began(f"finals, round {len(rounds) + 1}: {len(contenders)} processes", self._left_s())
            rounds.append(run_round(contenders, self._reference.launcher, plan, rng))
            self._put([each.to_dict() for each in rounds], *self._rounds_key())
            longest_s = max(longest_s, time.monotonic() - began_s)
            self._events.looked(self.lineup())
        for name, reason in failures(rounds).items():
            self._events.ended(name, reason)

    def _is_decided(self, rounds: Sequence[Round], contenders: Sequence[Contender]) -> bool:
        """Return whether there are enough rounds: there is nobody to compare with, or all intervals are narrow."""
        if len(contenders) < 2 or len(rounds) >= _MAX_ROUNDS:
            return True
        names, y = log_rates(rounds, contenders, Objective.THROUGHPUT)
        first = contenders[0].names[0]
        if len(y) < _MIN_ROUNDS or first not in names:
            return False
        at = names.index(first)
        halves = [np.log(paired(y, at, j).interval()) for j in range(len(names)) if j != at]
        return all(high - low <= 2 * _HALF_WIDTH for low, high in halves)

    def _resident(self, contenders: Sequence[Contender], most: int) -> int:
        """Return how many processes memory holds at once."""
        free_bytes = free_memory_bytes(self._reference.job)
        if free_bytes is None:
            return min(most, len(contenders))
        largest = max(
            (cell.peak_memory_bytes or 0 for cell in self._cells() if cell.batch_size <= self._batch_size), default=0
        )
        return most if not largest else max(2, min(most, int(free_bytes // largest)))

    def _load(self) -> None:
        """Start each framework's default with its files in the page cache and without, at batch size 1."""
        for seat in self._taking_part():
            if self._get("load", seat.key) is not None or self._left_s() <= 0:
                continue
            self._events.began(f"{seat.entrant.name}: loading, cold and warm", self._left_s())
            setting = seat.job.space.reference.with_values(batch_size=1)
            contender = seat.contender(Kind.DEFAULT, setting)
            files = files_of(seat.entrant.python, seat.job.export())
            starts: dict[str, list[float]] = {"cold": [], "warm": []}
            try:
                for _ in range(_N_LOADS):
                    for name, times in starts.items():
                        if name == "cold":
                            evict(files)
                        facts = self._started_once(contender)
                        times.append(facts.context_s + facts.load_s + facts.first_step_s)
            except TrialFailure as failure:
                self._events.ended(seat.entrant.name, failure.message)
                continue
            self._put(starts, "load", seat.key)

    def _scan(self) -> None:
        """Measure each setting at each batch size, the smallest first, to where memory or the time ends."""
        for batch_size in sorted({*self._batches, self._batch_size}):
            if not self._scan_batch(batch_size):
                self._ended = "time"
                return

    def _scan_batch(self, batch_size: int) -> bool:
        """Measure what is missing at a batch size; returns whether there was time for it."""
        waiting = {
            name: row
            for name, row in self._contenders(batch_size).items()
            if self._cell(row[0], row[1], batch_size) is None and not self._is_past_memory(row[0], row[1], batch_size)
        }
        first = self._reference.contender(
            Kind.DEFAULT, self._reference.job.space.reference.with_values(batch_size=batch_size)
        )
        reference: Reference | None = None
        try:
            for name, (seat, kind, contender) in waiting.items():
                if self._left_s() < self._expected_s(name, batch_size):
                    return False
                self._events.began(f"batch {batch_size}: {name.replace('/', ', ')}", self._left_s())
                if reference is None:
                    reference = self._live(first)
                if seat is self._reference and kind is Kind.DEFAULT:
                    cell = self._own_cell(reference)
                else:
                    reference, cell = self._measured(seat, contender, reference)
                self._store_cell(seat, kind, cell)
                self._events.measured(cell)
        except _ReferenceFailed as failed:
            # Without a reference nothing is compared: the table ends at this batch size.
            cell = Cell(contender=first.names[0], batch_size=batch_size, status=failed.status, message=failed.message)
            self._store_cell(self._reference, Kind.DEFAULT, cell)
            self._events.measured(cell)
        finally:
            if reference is not None:
                reference.process.close()
        return True

    def _own_cell(self, reference: Reference) -> Cell:
        """Return the cell of the reference itself, whose rate comes from the pairs of the others."""
        contender = f"{REFERENCE}/{Kind.DEFAULT}"
        against = CheckedAgainst(sample=None, precision=None)
        cell = checked_cell(
            contender,
            reference.batch_size,
            reference.facts,
            self._reference.precision,
            against,
            limit=1.0,
        )
        return replace(cell, peak_memory_bytes=reference.process.peak_memory_bytes, deviation=0.0)

    def _measured(self, seat: Seat, contender: Contender, reference: Reference) -> tuple[Reference | None, Cell]:
        """Return the cell of a contender, and the reference, None where that was lost beside it."""
        assert contender.launcher is not None  # the model is ready
        plan = CellPlan(pair=PairPlan(slice_s=seat.job.slice_s, min_blocks=2, max_blocks=8))

        def check(facts: ReadyReport) -> Cell:
            return self._checked_cell(seat, contender, facts)

        try:
            return reference, measure_cell(contender, contender.launcher, reference, plan, check)
        except ReferenceLost as lost:
            reference.process.close()
            cell = Cell(
                contender=contender.names[0],
                batch_size=contender.setting.batch_size,
                status=lost.failure.status,
                message=f"the reference failed beside it: {lost.failure.message}",
            )
            return None, cell

    def _live(self, contender: Contender) -> Reference:
        """Return a live process of the reference, paused; raises _ReferenceFailed."""
        assert contender.launcher is not None  # the model is ready
        process = contender.launcher.launch(contender.setting, contender.deployment)
        try:
            facts = process.ready()
            process.pause()
        except TrialFailure as failure:
            process.close()
            raise _ReferenceFailed(failure.status, failure.message) from failure
        except BaseException:
            process.close()
            raise
        return Reference(process=process, facts=facts, batch_size=contender.setting.batch_size)

    def _is_past_memory(self, seat: Seat, kind: Kind, batch_size: int) -> bool:
        """Return whether memory ran out at a smaller batch size already, of it or of the reference."""
        kinds = ((seat, kind), (self._reference, Kind.DEFAULT))
        smaller = [self._cell(s, k, b) for s, k in kinds for b in self._batches if b < batch_size]
        return any(cell is not None and cell.status is Status.OOM for cell in smaller)

    def _expected_s(self, name: str, batch_size: int) -> float:
        """Return about how long (s) a cell takes, by the cells of smaller batches; a start where there are none."""
        start_s = self._start_s.get(name.partition("/")[0], 5.0)
        smaller = [cell for cell in self._cells() if cell.batch_size <= batch_size and cell.pair is not None]
        if not smaller:
            return 2 * start_s
        last = max(smaller, key=lambda cell: (cell.contender == name, cell.batch_size))
        assert last.pair is not None  # those without were left out
        both = (*last.pair.reference, *last.pair.candidate)
        per_block_s = sum(each.elapsed_s for each in both) / max(1, last.pair.n_blocks)
        return start_s + 2 * per_block_s * max(1.0, batch_size / last.batch_size)

    def _cells(self) -> list[Cell]:
        """Return all cells of those that take part."""
        sizes = sorted({*self._batches, self._batch_size})
        found = (
            self._cell(seat, kind, batch_size)
            for seat in self._taking_part()
            for kind in seat.settings()
            for batch_size in sizes
        )
        return [cell for cell in found if cell is not None]

    # ---- what there is -----------------------------------------------------------------------------------------

    def lineup(self, *, interrupted: bool = False) -> Lineup:
        """Return all that has been measured."""
        job = self._reference.job
        refused = [
            Absent(framework=seat.entrant.name, reason=seat.message, hint="", status=seat.status.value)
            for seat in self._seats.values()
            if seat.status is not Status.OK
        ]
        return Lineup(
            name=None if self._record is None else self._record.name,
            subject=job.subject,
            batch_size=self._batch_size,
            sides=[
                Side(
                    framework=seat.entrant.name,
                    kind=kind.value,
                    contender=contender,
                    build=seat.job.build.to_dict(),
                    precision=seat.precision,
                    deviation=seat.deviation,
                )
                for seat, kind, contender in self._contenders(self._batch_size).values()
            ],
            absent=[*self._absent, *refused],
            tuned={name: seat.tuned for name, seat in self._seats.items() if seat.tuned is not None},
            rounds=self._rounds(),
            cells=self._cells(),
            loads={
                seat.entrant.name: Loading(**stored)
                for seat in self._taking_part()
                if (stored := self._get("load", seat.key)) is not None
            },
            ended="interrupted" if interrupted else self._ended,
            conditions=self._watch.conditions(),
            why_no_energy=job.device.why_no_energy(),
        )


class _ReferenceFailed(Exception):  # noqa: N818  # a state of the table, not an error of the tool
    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message
