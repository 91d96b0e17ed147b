"""The contest: what is asked for, who takes part, what is stored, and the time. Its stages are in the files beside."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.frameworks import registry
from tuner.job.events import FrameworksEvents
from tuner.job.frameworks.entrant import REFERENCE, Entrant, broken, chosen, entrants, interpreters
from tuner.job.frameworks.participant import Entry, Participant, entries
from tuner.job.frameworks.store import Store
from tuner.job.job import prepare
from tuner.job.request import (
    KEEP,
    MAY_CHANGE,
    NUMERICS,
    SearchRequest,
    check_margin,
    find_device,
    find_workload,
    parse_request,
)
from tuner.job.servers import free_memory_bytes
from tuner.machine.conditions import Watch
from tuner.measure.agreement import spread
from tuner.measure.cell import Cell
from tuner.paths import DEFAULT_STORAGE
from tuner.report.lineup import COMPLETE, Absent, Kind, Lineup, Side
from tuner.space.batches import parse_sizes
from tuner.stats.equivalence import MARGIN
from tuner.study.budget import parse_duration
from tuner.study.storage import check_storage
from tuner.study.subject import workload_facts
from tuner.trial.audit import Seen
from tuner.trial.outcome import Status
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Execution

BATCHES = "1,4,16,64,256,1024"
BUDGET = "30m"
TIMEOUT = "5m"
_LASTING = (Status.OK, Status.OOM, Status.INVALID, Status.UNAPPLIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworksRequest:
    """The options of a comparison of frameworks as they were typed."""

    workload: WorkloadSpec
    frameworks: str | None = None
    """With commas; None for all that are installed."""
    batches: str = BATCHES
    batch_size: int | None = None
    """That of the searches and verdicts; None for the workload's own."""
    space: str | None = None
    time_budget: str = BUDGET
    pythons: Sequence[str] = ()
    numerics: str = KEEP
    margin: float = MARGIN
    storage: str = DEFAULT_STORAGE
    trial_timeout: str = TIMEOUT
    seed: int = 0
    new: bool = False
    wait: bool = False
    measures: bool = True
    """Whether anything is measured; else what is stored is shown."""


@dataclass(slots=True, kw_only=True)
class Contest:
    """What the stages share. The first of the participants is the reference."""

    request: FrameworksRequest
    events: FrameworksEvents
    participants: Sequence[Participant]
    absent: Sequence[Absent]
    batch_size: int
    batches: Sequence[int]
    budget_s: float
    store: Store
    watch: Watch
    began_s: float = field(default_factory=time.monotonic)
    ended: str = COMPLETE
    passing: dict[tuple[str, int], Cell] = field(default_factory=dict)
    """Cells of this run that are not stored, by name and batch size: what failed may be over the next time."""
    lost_at: int | None = None
    """The batch size at which the reference failed in this run, None where it did not."""

    @property
    def reference(self) -> Participant:
        """Return the participant whose default all others are compared with."""
        return self.participants[0]

    @property
    def reference_entry(self) -> Entry:
        """Return the reference's default."""
        return Entry(participant=self.reference, kind=Kind.DEFAULT)

    def left_s(self) -> float:
        """Return how much of the time (s) is left."""
        return self.budget_s - (time.monotonic() - self.began_s)

    def free_memory_bytes(self) -> int | None:
        """Return the memory that processes may take; None where that is not known."""
        return free_memory_bytes(self.reference.job)

    def say(self, what: str) -> None:
        """Tell what begins."""
        self.events.began(what, self.left_s())

    def running(self) -> list[Participant]:
        """Return those that have not dropped out."""
        return [each for each in self.participants if each.failure is None]

    def entries(self) -> list[Entry]:
        """Return the settings of those that have not dropped out, the reference's default first."""
        return entries(self.running())

    def cells(self) -> list[Cell]:
        """Return all cells that are stored of the settings."""
        sizes = sorted({*self.batches, self.batch_size})
        known = (self.cell(entry, batch_size) for entry in self.entries() for batch_size in sizes)
        return [cell for cell in known if cell is not None]

    def cell(self, entry: Entry, batch_size: int) -> Cell | None:
        """Return what is known of a setting at a batch size, None where nothing is."""
        return self.store.cell(entry, batch_size) or self.passing.get((entry.name, batch_size))

    def put_cell(self, entry: Entry, cell: Cell) -> None:
        """Keep a cell: what is known of the setting is stored, what may be over the next time is kept for this run."""
        if cell.status in _LASTING:
            self.store.put_cell(entry, cell)
        else:
            self.passing[entry.name, cell.batch_size] = cell


def prepare_contest(request: FrameworksRequest, events: FrameworksEvents) -> Contest:
    """Return a contest of which nothing is measured yet; raises BadInputError."""
    batches = parse_sizes(request.batches)
    budget_s = parse_duration(request.time_budget)
    check_margin(request.margin)
    check_storage(request.storage, create=request.measures)
    if request.new and not request.measures:
        raise BadInputError("--stored and --new contradict each other", "give one of them")
    if request.numerics not in NUMERICS:
        raise unknown_name("word for --numerics", request.numerics, NUMERICS)
    if request.workload.execution != Execution.GRAPH:
        raise BadInputError(
            f"--execution {request.workload.execution} is one of several that are compared",
            "leave it out; TensorFlow compiled by XLA is called tensorflow-xla here",
        )
    if request.workload.framework is not None:
        named = f"--framework {request.workload.framework} names one"
        raise BadInputError(named, "name those to compare with --frameworks")
    reader = registry.reader_of(Path(request.workload.words[0])) if request.workload.words else None
    if reader is not None and reader.name != REFERENCE:
        named = f"frameworks are compared with TensorFlow, which does not read {request.workload.words[0]}"
        raise BadInputError(named, "give the SavedModel, the .keras file or the Python file that it was made from")
    framework, workload = find_workload(replace(request.workload, framework=REFERENCE))
    if workload.command is not None:
        raise BadInputError("a command is not a model that other frameworks could run", "give a model")
    device = find_device(request.workload, framework)
    if request.measures:
        device.check_idle()
    batch_size = workload.batch_size if request.batch_size is None else request.batch_size
    if batch_size < 1:
        raise BadInputError(f"--batch-size is {batch_size}", "expected at least 1")
    everyone = entrants(device, interpreters(request.pythons), may_change_numerics=request.numerics == MAY_CHANGE)
    wanted, are_named = chosen(request.frameworks, everyone, device)
    participants: list[Participant] = []
    absent = [] if are_named else [_absent(name, error) for name, error in broken().items()]
    seen = Seen()  # one for all: what their processes were seen to be goes into the conditions of the contest
    for entrant in wanted:
        try:
            participants.append(_participant(entrant, request, batch_size, seen))
        except TunerError as error:
            if are_named or entrant.name == REFERENCE:
                raise
            absent.append(_absent(entrant.name, error))
    contest = Contest(
        request=request,
        events=events,
        participants=participants,
        absent=absent,
        batch_size=batch_size,
        batches=batches,
        budget_s=budget_s,
        watch=participants[0].job.device.watch(participants[0].job.machine),
        store=Store.open(
            request.storage,
            participants[0],
            batch_size=batch_size,
            seed=request.seed,
            new=request.new,
            create=request.measures,
        ),
    )
    earlier = contest.store.conditions
    if earlier is not None:  # what was measured then still counts
        seen.pinned, seen.unlike_cores = earlier.pinned, earlier.unlike_cores
    recall(contest)
    if not request.measures:
        for each in contest.participants:
            each.failure = each.failure or contest.store.failure(each)
        contest.ended = contest.store.ended or contest.ended
        contest.batches = sorted({*batches, *contest.store.batch_sizes})
    ignored = sorted({name for each in contest.participants for name in each.job.ignored_variables})
    replace(contest.reference.job, ignored_variables=ignored).tell_notes(events.notice)
    return contest


def _absent(name: str, error: TunerError) -> Absent:
    return Absent(framework=name, reason=error.message, hint=error.hint or "")


def recall(contest: Contest) -> None:
    """Take what is stored of each participant."""
    contest.store.reread()
    for each in contest.participants:
        each.tuned = contest.store.tuned(each)
        for entry in entries([each]):
            start = contest.store.checked(entry)
            if start is None:
                continue
            each.learn(entry.kind, start.cell)
            if entry.kind is Kind.DEFAULT:
                each.start_s = start.start_s


def _participant(entrant: Entrant, request: FrameworksRequest, batch_size: int, seen: Seen) -> Participant:
    """Return an entrant with its job; raises BadInputError, for example where it is not installed."""
    parsed = parse_request(request_of(entrant, request, batch_size))
    return Participant(entrant=entrant, job=replace(prepare(parsed), seen=seen))


def request_of(entrant: Entrant, request: FrameworksRequest, batch_size: int) -> SearchRequest:
    """Return the request of what is measured in an entrant, at one batch size."""
    return SearchRequest(
        workload=entrant.spec(request.workload),
        space=request.space,
        batch_size=str(batch_size),
        pins=list(entrant.pins),
        python=str(entrant.python),
        storage=request.storage,
        trial_timeout=request.trial_timeout,
        numerics=MAY_CHANGE if entrant.pins else KEEP,
        instances=False,
    )


def lineup_of(contest: Contest) -> Lineup:
    """Return all that has been measured in a contest."""
    job, store = contest.reference.job, contest.store
    dropped_out = [
        Absent(
            framework=each.name,
            reason=each.failure.message,
            hint=each.failure.hint,
            status=each.failure.status.value,
            deviation=each.starts[Kind.DEFAULT].deviation if Kind.DEFAULT in each.starts else None,
            precision=each.precision,
        )
        for each in contest.participants
        if each.failure is not None
    ]
    start = store.checked(contest.reference_entry)
    rounds = store.rounds(contest.entries())
    cells = contest.cells()
    took_part = {cell.contender for cell in cells}.union(*([*each.slices, *each.failures] for each in rounds))
    not_yet = [
        each
        for each in contest.running()
        if each is not contest.reference and not any(entry.name in took_part for entry in entries([each]))
    ]
    dropped_out += [
        Absent(framework=each.name, reason="nothing of it was measured", hint="", status="not measured")
        for each in not_yet
    ]
    all_entries = [entry for entry in contest.entries() if entry.participant not in not_yet]
    return Lineup(
        name=store.name,
        subject=structs.replace(job.subject, workload=workload_facts(job.workload, job.inputs or store.inputs)),
        outputs=store.outputs,
        batch_size=contest.batch_size,
        sides=[_side(entry, contest.batch_size) for entry in all_entries],
        absent=[*contest.absent, *dropped_out],
        tuned={each.name: each.tuned for each in contest.participants if each.tuned is not None},
        rounds=rounds,
        cells=cells,
        loads={each.name: loading for each in contest.running() if (loading := store.loading(each)) is not None},
        ended=contest.ended,
        conditions=store.conditions,
        margin=contest.request.margin,
        why_no_energy=job.device.why_no_energy(),
        spread=None if start is None else spread(start.sample),
    )


def _side(entry: Entry, batch_size: int) -> Side:
    participant = entry.participant
    return Side(
        framework=participant.name,
        kind=entry.kind.value,
        contender=entry.contender(batch_size),
        build=participant.job.build.to_dict(),
        start=participant.starts.get(entry.kind),
    )
