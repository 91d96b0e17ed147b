"""A suite on the nodes of a cluster. The driver places missing cases and merges each study as it arrives.

The driver keeps all its state in the storage of the suite. A killed driver continues from there, and from the results
that nodes have kept.
"""

from __future__ import annotations

import itertools
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec
import sqlalchemy
from msgspec import structs

from tuner.cluster import copies
from tuner.cluster.node import packed, unpacked
from tuner.cluster.placement import MOST_LOSSES, Node, Placement, Sessions
from tuner.cluster.wire import Answer, AskOffer, Engine, Forget, Offer, OfferedCase, Piece, Unit, UnitEnd
from tuner.devices import registry as devices
from tuner.errors import BadInputError, DamagedStudyError, TunerError
from tuner.frameworks import registry
from tuner.identity import digest
from tuner.job import planned
from tuner.job.merge import Target, absolute, copy_study
from tuner.job.parsed import words
from tuner.job.request import SuiteRequest
from tuner.job.run import answers_to_check
from tuner.job.suite import check_stale, matching_studies, never_measured, stale_cases, workloads_of
from tuner.machine.locks import import_lock
from tuner.measure.budget import Countdown, parse_duration
from tuner.paths import DEFAULT_STORAGE, code_version
from tuner.quantity import duration_text, plural
from tuner.result import fields_of
from tuner.result.document import describe_study
from tuner.result.inspection import CaseResult
from tuner.result.study import PlannedResult, StudyResult, nodes_of
from tuner.study.storage import Scratch, check_storage, open_storage, storage_errors

_OFFER, _FORGET, _COPY = "offer", "forget", "copy"
_FIRST_NODE_S = 60.0
_JOIN_S = 30.0
"""So long (s) a driver does not end: nodes that wait for a scheduler try to join it every few seconds."""
_NO_NODE_S = 300.0
"""So long (s) the units of a type wait for a node once all of its nodes are lost."""
_TURN_S = 1.0
_LOOK_S = 5.0  # between looks at the list of nodes during measurements: each is work for the scheduler
_FORGET_S = 20.0
_BUSY_S = 60.0
_MOST_FAILURES = 2  # units in a row: one of them may be to blame itself


class FleetEvents(Protocol):
    """The events of a suite on a cluster."""

    def joined(self, offer: Offer) -> None:
        """A node has joined, and can run these cases."""

    def refused(self, node: str, reason: str) -> None:
        """A node cannot be used."""

    def skipped(self, node: str, case: OfferedCase) -> None:
        """A node has another file of a workload, and cannot run its case."""

    def left(self, node: str, case: OfferedCase | None) -> None:
        """A node is lost, with the case that it ran, if any."""

    def started(self, node: str, case: OfferedCase, n_left: int) -> None:
        """A case starts on a node; `n_left` cases are not finished."""

    def ended(self, node: str, case: OfferedCase, outcome: str, n_left: int) -> None:
        """A case has ended: how, or a reason why it has no study."""

    def notice(self, line: str) -> None:
        """A line for the user."""

    def turn(self) -> None:
        """About a second has passed."""


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A case, the node's machine that it is for, and how it ended."""

    case: OfferedCase
    machine: str
    state: str = "missing"
    node: str = ""
    stale: tuple[str, ...] = ()
    """What has changed since it was measured, of a suite of what is stale."""
    study: str | None = None
    """The name of its study."""
    planned: PlannedResult | None = None
    outcome: str = ""
    """How it ended, or why it failed."""
    wall_s: float | None = None

    @property
    def is_at_home(self) -> bool:
        """Return whether the storage has its study."""
        return self.state in ("known", "made")


@dataclass(slots=True, kw_only=True)
class Fleet:
    """A suite on the nodes of an engine."""

    request: SuiteRequest
    engine: Engine
    events: FleetEvents
    outcome: Callable[[StudyResult], str]
    """What people read of a study."""
    first_node_s: float = _FIRST_NODE_S
    join_s: float = _JOIN_S
    no_node_s: float = _NO_NODE_S
    look_s: float = _LOOK_S
    absent: dict[str, None] = field(default_factory=dict)
    is_short: bool = False
    """Whether cases, or sessions on other nodes, are missing."""
    fingerprints: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of each workload, by its name in the request and the mode."""
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _placement: Placement = field(init=False)
    _names: dict[str, str] = field(default_factory=dict)
    """For people, of each node that was ever used, by its address."""
    _never: set[str] = field(default_factory=set)
    """The cases of a suite of what is stale that some node never measured, and that were reported."""
    _asked: set[str] = field(default_factory=set)
    _waits: set[str] = field(default_factory=set)
    """The nodes whose offer is not there yet."""
    _failures: Counter[str] = field(default_factory=Counter)
    """How many units in a row a node could not run, by its address."""
    _suite: str = ""
    _merged: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Units that are in the storage, and whose files a node may remove, by its address."""
    _sources: dict[str, copies.Source] = field(default_factory=dict)
    """The models that can be copied, by the words of their workloads."""
    _pieces: dict[str, Iterator[Piece]] = field(default_factory=dict)
    """What a node is yet to be sent of the models that it does not have, by its address."""
    _words: str | None = None
    """The workloads as nodes are to be asked for them."""
    _target: Target | None = None
    _scratch: Scratch = field(default_factory=Scratch)
    _countdown: Countdown = field(default_factory=lambda: Countdown(total_s=None))
    _types: list[str] = field(default_factory=list)
    """The types of machines that were asked for, none for all."""
    _joined_types: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Understand the suite; raises BadInputError."""
        request = self.request
        self._placement = Placement(Sessions(request.nodes_per_type))
        if request.nodes_per_type < 1:
            raise BadInputError(f"--nodes-per-type is {request.nodes_per_type}", "expected 1 or more")
        if request.nodes_per_type > 1 and request.plan is not None:
            raise BadInputError("--nodes-per-type with --plan", "leave one of them out: a plan recommends nothing")
        stop_after_s = None if request.stop_after is None else parse_duration(request.stop_after, option="--stop-after")
        if request.time_budget is not None:
            parse_duration(request.time_budget)
        if request.plan is not None:
            request = planned.completed(request, registry.find(request.framework), devices.find(devices.DEFAULT))
            stop_after_s = parse_duration(str(request.plan), option="--plan")
        self._types = types_of(request)
        check_storage(request.storage)
        self._suite = digest(absolute(request.storage))  # wherever the driver runs
        self._countdown = Countdown(total_s=stop_after_s)
        check_stale(request)
        named, absent = workloads_of(request)
        is_of_storage = request.stale and not request.file_workloads
        self._words = ",".join(dict.fromkeys(each.word for each in named)) if is_of_storage else request.workloads
        self._sources = copies.sources(named)
        self.absent = dict.fromkeys(absent)
        self.fingerprints = self.fingerprints or {
            (each.word, each.spec.mode): each.workload.fingerprint for each in named
        }

    @storage_errors()
    def run(self) -> None:
        """Run all missing cases until no node can run another; raises TunerError if no node joins."""
        started_s = idle_s = time.monotonic()
        is_noted = False
        looked_s = began_s = 0.0
        while True:
            if not self._placement.running() or time.monotonic() - looked_s >= self.look_s:
                self._look()
                looked_s = time.monotonic()
            if not self._is_over:
                self._place()
            came = self.engine.answers(_TURN_S)
            for answer in came:
                self._take(answer)
            idle_s = time.monotonic() if came else idle_s  # to take them may have been long
            self.events.turn()
            waited_s = time.monotonic() - idle_s
            silent = self._waits - self._pieces.keys()
            if silent and waited_s > _BUSY_S and not is_noted:
                is_noted = True
                n = plural(len(silent), "node has", "nodes have")
                self.events.notice(f"{n} not answered yet: another tftune may be measuring there; press Ctrl-C to end")
            if self._placement.running() or self._waits:
                idle_s = idle_s if self._waits and not self._placement.running() else time.monotonic()
                continue
            if not self._names and waited_s > self.first_node_s:
                if self._asked:
                    raise TunerError("all nodes were refused", "correct these, then start them again")
                waited = duration_text(waited_s)
                raise TunerError(f"no node has joined in {waited}", "start one on each machine: tftune node URL")
            n_open, began_s = self._n_open(), began_s or time.monotonic()
            now_s, n_started = time.monotonic(), self.engine.n_started
            is_early = len(self._asked) < n_started and now_s - began_s < self.first_node_s
            is_early |= not n_started and now_s - started_s < self.join_s
            if self._is_over or (self._names and not n_open and not is_early):
                break
            if self._names and n_open and waited_s > self.no_node_s:
                self.is_short = True
                n = plural(n_open, "measurement is", "measurements are")
                is_again = all(entry.state != "missing" for entry in self._entries.values())
                which = "no other node of their type" if is_again else "no node of their type"
                hint = "start tftune node on such a machine, then run the same command again"
                self.events.notice(f"{n} missing: {which} for {duration_text(waited_s)}; {hint}")
                break
        for name in [name for name in self._types if name not in self._joined_types]:
            self.is_short = True
            self.events.notice(f"no node of the type '{name}' has joined; `tftune inspect` names a machine")
        self.is_short = self.is_short or (not self._is_over and self._placement.sessions.n_open() > 0)
        self._end()

    @property
    def _is_over(self) -> bool:
        """Return whether no other case may begin, as the time is over."""
        is_short = self.request.plan is not None and self._countdown.is_short_of(planned.LEAST_S)
        return self._countdown.is_over or is_short

    def cases(self) -> list[CaseResult]:
        """Return all cases, and what became of them."""
        return [
            CaseResult(
                number=number,
                cpus=entry.case.key.affinity,
                cpu_quota=entry.case.quota,
                **fields_of(CaseResult, entry.case.key, entry.case, entry),
            )
            for number, entry in enumerate(self._entries.values(), 1)
        ]

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See which nodes have come and which are lost."""
        here = dict.fromkeys(self.engine.addresses())
        for address in [*self._placement.nodes.keys(), *self._waits]:
            if address not in here:
                self._lose(address)
        for address in here:
            if address not in self._asked:
                self._asked.add(address)
                self._waits.add(address)
                self._ask_offer(address)

    def _ask_offer(self, address: str) -> None:
        self._ask(address, _OFFER, AskOffer(version=code_version(), suite=self._suite, request=self._sent()))

    def _copies(self, address: str, offer: Offer) -> bool:
        """Begin to copy the models that a node does not have, once; return whether there is anything to copy."""
        if address in self._pieces:  # it was tried
            return False
        sources = [self._sources[word] for word in offer.missing if word in self._sources]
        missing = {each.model.digest: each for each in sources}.values()
        small = [each for each in missing if each.n_bytes <= copies.MOST_BYTES]
        for each in missing:
            size = f"{each.n_bytes / 2**20:,.1f} MiB"
            what = (
                f"copying it ({size})"
                if each in small
                else f"it is too large to copy ({size}), so put it on a shared file system"
            )
            self.events.notice(f"{offer.node} does not have {each.folder / each.model.file}: {what}")
        self._pieces[address] = itertools.chain.from_iterable(each.pieces() for each in small)
        if small:
            self._copy(address)
        return bool(small)

    def _copy(self, address: str) -> None:
        """Send a node the next piece; after the last one ask again what it can run."""
        piece = next(self._pieces[address], None)
        if piece is None:
            self._ask_offer(address)
        else:
            self._ask(address, _COPY, piece)

    def _lose(self, address: str) -> None:
        self.engine.drop(address)
        self._waits.discard(address)
        node = self._placement.nodes.get(address)
        if node is None:
            return
        case = None if node.unit is None else self._case(node.unit)
        failed = self._placement.leave(address)
        self.events.left(self._names[address], case)
        self._give_up(address, failed)

    def _give_up(self, address: str, unit: str | None) -> None:
        """Mark a unit as failed if it was lost too often; `unit` is None for most."""
        if unit is not None:
            failure = f"lost or interrupted {MOST_LOSSES} times; look at the memory and the logs of these nodes"
            if unit in self._entries:
                self._entries[unit].state, self._entries[unit].outcome = "failed", failure
            self.events.ended(self._names[address], self._case(unit), failure, self._n_left())

    def _refuse(self, address: str, reason: str) -> None:
        """Stop using a node whose answer is missing or cannot be read."""
        self._waits.discard(address)
        self.events.refused(self._names.get(address, address), reason)
        self._give_up(address, self._placement.leave(address))

    def _join(self, address: str, offer: Offer) -> None:
        self.absent |= dict.fromkeys(offer.absent)
        if offer.failure:
            self.events.refused(offer.node, offer.failure)
            return
        own = {name for name in self._types if _is_of(offer.machine, name)}
        if self._types and not own:
            self.events.refused(offer.node, f"--types leaves out its machine, {offer.machine}")
            return
        self._joined_types |= own
        cases = []
        for case in offer.cases:
            if self.fingerprints.get((case.word, case.key.mode)) == case.key.fingerprint:
                cases.append(case)
            else:
                self.events.skipped(offer.node, case)
        if not cases:
            return
        new = [case for case in cases if case.id not in self._entries]
        stored = {new[n].id: study for n, study in matching_studies(self.request, [case.key for case in new]).items()}
        reasons = dict[str, tuple[str, ...]]()
        if self.request.stale:
            named = [(case.workload, case.key, case.build) for case in new]
            changed = {new[n].id: reason for n, reason in stale_cases(self.request, named, host=offer.node).items()}
            reasons = {name: reason for name, reason in changed.items() if name not in stored}
            never = {case.id for case in new} - stored.keys() - reasons.keys()
            if never - self._never:
                self.events.notice(f"{offer.node}: {never_measured(len(never - self._never))}")
            self._never |= never
            # Another host of the same type may have measured them before it changed.
            cases, new = ([case for case in part if case.id not in never] for part in (cases, new))
        # Several nodes of a host have one name, and people have to tell them apart.
        n_same = sum(name.split("#")[0] == offer.node for name in self._names.values())
        offer = structs.replace(offer, node=f"{offer.node}#{n_same + 1}" if n_same else offer.node)
        self._entries |= {
            case.id: _Entry(case=case, machine=offer.machine, stale=reasons.get(case.id, ())) for case in new
        }
        for name, (record, is_complete) in stored.items():
            entry = self._entries[name]
            entry.study = record.name
            if is_complete:
                entry.state = "known"
                self._placement.done.add(name)
            else:
                entry.state = "begun"
            if not is_complete or self.request.nodes_per_type > 1:
                try:
                    self._know(name, describe_study(record))
                except DamagedStudyError as error:
                    self.is_short = True
                    self.events.notice(str(error))
        self._names[address] = offer.node
        menu, held = tuple(case.id for case in cases), frozenset(offer.held)
        node = Node(address=address, host=offer.host, name=offer.name, menu=menu, held=held)
        at_home = [name for name in offer.held if name in self._entries and self._entries[name].is_at_home]
        self._merged[address] = [*at_home, *self._placement.join(node)]
        self.events.joined(offer)

    # ---- units ------------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        for address, name in self._placement.place():
            case = self._case(name)
            request, budget_s = replace(self._sent(), workloads=case.word), None
            if request.plan is None:
                request = replace(request, modes=case.key.mode)
            else:
                budget_s = planned.study_s(self._countdown.left_s(), self._n_left() // len(self._placement.nodes) + 1)
            of = self._placement.sessions.of.get(name)
            study = b"" if of is None else self._packed(of.case)
            self._ask(address, name, Unit(id=name, key=case.key, request=request, budget_s=budget_s, study=study))
            self.events.started(self._names[address], case, self._n_left())

    def _case(self, unit: str) -> OfferedCase:
        of = self._placement.sessions.of.get(unit)
        return self._entries[unit].case if of is None else structs.replace(self._entries[of.case].case, again=True)

    def _know(self, name: str, study: StudyResult) -> None:
        """Keep what is needed of a case's study. A driver may see many thousands."""
        entry = self._entries[name]
        entry.study, entry.planned, entry.outcome = study.study, study.planned, self.outcome(study)
        if self.request.nodes_per_type > 1 and entry.is_at_home:
            answers = answers_to_check(study)
            nodes = frozenset(nodes_of(study, answers)) if answers else None
            which, types = f"{study.study} {study.created}", self._placement.types.get(name, ())
            for address, unit in self._placement.sessions.measured(name, which, nodes, types):
                self._merged[address].append(unit)

    def _n_open(self) -> int:
        """Return how many searches and sessions are missing and run nowhere."""
        return len(self._placement.open) + self._placement.sessions.n_open()

    def _packed(self, name: str) -> bytes:
        """Return the study of a case as it is sent."""
        study = self._entries[name].study
        storage = open_storage(self.request.storage, create=False)
        assert study is not None
        assert storage is not None
        with tempfile.TemporaryDirectory() as folder:
            copy_study(storage, study, file := Path(folder) / "unit.db")
            return packed(file)

    def _take(self, answer: Answer) -> None:
        """Take an answer; one that cannot be read comes from another version."""
        if answer.data is None and answer.name == _COPY:
            self.events.notice(f"{answer.address} cannot keep a copied model, and goes on without it: {answer.failure}")
            self._pieces[answer.address] = iter(())
            self._ask_offer(answer.address)
        elif answer.data is None:
            self._failures[answer.address] += 1
            is_unit = answer.name in self._entries or answer.name in self._placement.sessions.of
            if is_unit and self._failures[answer.address] < _MOST_FAILURES:
                self._give_up(answer.address, self._placement.interrupt(answer.address, answer.name))
            else:
                self._refuse(answer.address, answer.failure)
        elif answer.name == _OFFER and not answer.data:  # interrupted: it is asked again
            self._waits.discard(answer.address)
            self._asked.discard(answer.address)
        elif answer.name == _COPY and answer.data:
            self._copy(answer.address)
        elif answer.name == _COPY:  # interrupted: it begins again
            del self._pieces[answer.address]
            self._waits.discard(answer.address)
            self._asked.discard(answer.address)
        elif answer.name != _FORGET:
            try:
                if answer.name == _OFFER:
                    offer = msgspec.json.decode(answer.data, type=Offer)
                else:
                    end = msgspec.json.decode(answer.data, type=UnitEnd) if answer.data else None
            except msgspec.MsgspecError as error:
                self._refuse(answer.address, f"its answer cannot be read ({error}); install the driver's version there")
                return
            if answer.name != _OFFER:
                self._take_end(answer.address, answer.name, end)
            elif answer.address in self._waits and not self._copies(answer.address, offer):
                self._waits.discard(answer.address)
                self._join(answer.address, offer)

    def _take_end(self, address: str, name: str, end: UnitEnd | None) -> None:
        if end is None or end.interrupted:
            self._give_up(address, self._placement.interrupt(address, name))
            return
        if not self._placement.end(address, name):
            return
        del self._failures[address]
        if name in self._placement.sessions.of:
            self._take_session(address, name, end)
            return
        entry, node = self._entries[name], self._names[address]
        entry.node, entry.wall_s = node, round(end.wall_s, 1)
        study = self._merge(end) if end.studies else None
        failure = end.failure or ("" if study is not None else "its studies could not be read")
        is_part = study is not None and study.planned is not None and not study.planned.complete
        entry.state = "failed" if failure else "begun" if is_part else "made"
        if study is not None:
            self._know(name, study)
        entry.outcome = failure or entry.outcome
        if entry.state == "made" or (study is None and not end.failure):  # else the node would send the same again
            self._merged[address].append(name)
        self.events.ended(node, entry.case, entry.outcome, self._n_left())

    def _take_session(self, address: str, unit: str, end: UnitEnd) -> None:
        """Take the end of a session on another node. A failure of its own leaves the answer as it is."""
        session = self._placement.sessions.of[unit]
        study = self._merge(end) if end.studies else None
        failure = end.failure or ("" if study is not None else "its studies could not be read")
        if study is not None:
            answers = answers_to_check(study)
            if answers and not failure and session.node not in nodes_of(study, answers):
                failure = "a session had too few rounds; use a quieter node"
            self._know(session.case, study)
        self._merged[address].append(unit)
        outcome = failure or self._entries[session.case].outcome
        self.events.ended(self._names[address], self._case(unit), outcome, self._n_left())

    def _merge(self, end: UnitEnd) -> StudyResult | None:
        """Merge the studies of a unit into the storage; return the last."""
        if self._target is None:
            self._target = Target(self.request.storage)
        try:
            with unpacked(end.studies, self._scratch) as (records, source), import_lock(absolute(self.request.storage)):
                studies = [self._target.add(record, source)[1] for record in records]
        except (TunerError, sqlalchemy.exc.IntegrityError, sqlalchemy.exc.DataError) as error:
            self.events.notice(f"{end.node} sent studies that cannot be read: {error}")
            return None
        return next((study for study in reversed(studies) if study is not None), None)

    def _end(self) -> None:
        """Let nodes forget what is in the storage."""
        asked = {address for address in self._placement.nodes if self._merged.get(address)}
        for address in asked:
            self._ask(address, _FORGET, Forget())
        deadline_s = time.monotonic() + _FORGET_S
        while asked and time.monotonic() < deadline_s:
            asked -= {answer.address for answer in self.engine.answers(_TURN_S) if answer.name == _FORGET}
            asked &= {*self.engine.addresses()}

    def _n_left(self) -> int:
        return self._n_open() + len(self._placement.running())

    def _sent(self) -> SuiteRequest:
        """Return the request as nodes may see it: the URL of a storage may hold a password."""
        return replace(self.request, storage=DEFAULT_STORAGE, workloads=self._words, stale=False)

    def _ask(self, address: str, name: str, question: AskOffer | Unit | Piece | Forget) -> None:
        models = {word: each.model for word, each in self._sources.items()} if name != _COPY else {}
        merged = tuple(self._merged.pop(address, ()))
        named = structs.replace(question, folder=str(Path.cwd()), merged=merged, models=models)
        self.engine.ask(address, name, msgspec.json.encode(named), measures=isinstance(question, Unit))


def types_of(request: SuiteRequest) -> list[str]:
    """Return the types of machines that a suite is for, none for all; raises BadInputError."""
    if request.types is None:
        return []
    names = words(request.types)
    if not names:
        raise BadInputError("--types is empty", "expected words of machines, such as EPYC,'16 CPUs', or leave it out")
    return [] if names == ["all"] else names


def _is_of(machine: str, name: str) -> bool:
    """Return whether the words of a machine have a name in them, whole and in any case."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", machine, re.IGNORECASE) is not None
