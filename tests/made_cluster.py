"""A cluster without machines: nodes that answer at once or after some turns, die, stop and come back."""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.scripted import checked
from tuner.cluster.node import packed
from tuner.cluster.wire import Answer, AskOffer, Forget, Offer, OfferedCase, Unit, UnitEnd
from tuner.errors import TunerError
from tuner.job.suite import CaseKey, key_of
from tuner.paths import code_version
from tuner.result.document import describe_study
from tuner.space.setting import Setting
from tuner.study.storage import all_records, open_storage


def template_key(file: Path) -> CaseKey:
    """Return the key of the one study of a storage."""
    storage = open_storage(f"sqlite:///{file}", create=False)
    assert storage is not None
    [record] = all_records(storage)
    stored = record.attributes()
    unset = CaseKey(
        host="", affinity="", quota_us=None, device="", fingerprint="", mode="", execution="", build="", space="",
        space_digest="", environment="",
    )  # fmt: skip
    return key_of(stored, usual=unset)


@dataclass(frozen=True)
class Template:
    """The storage of a finished study, of which those of other keys are made."""

    data: bytes
    key: CaseKey

    @classmethod
    def of(cls, file: Path) -> Template:
        """Return the one of a file with one study."""
        connection = sqlite3.connect(file)
        data = connection.serialize()
        connection.close()
        return cls(data=data, key=template_key(file))

    def studies(self, key: CaseKey, node: str) -> bytes:
        """Return the storage that a unit of another fingerprint and affinity would have, with finals of that node."""
        connection = sqlite3.connect(":memory:")
        connection.deserialize(self.data)
        [(number, text)] = connection.execute(
            "SELECT study_user_attribute_id, value_json FROM study_user_attributes WHERE key = 'described'"
        )
        described = json.loads(text)
        described["workload"]["fingerprint"] = key.fingerprint
        described["machine"]["affinity"] = key.affinity
        update = "UPDATE study_user_attributes SET value_json = ? WHERE "
        connection.execute(f"{update} study_user_attribute_id = ?", (json.dumps(described), number))
        connection.execute("UPDATE studies SET study_name = ?", (f"made-{key.fingerprint}-{node}",))
        [(number, text)] = connection.execute(
            "SELECT study_user_attribute_id, value_json FROM study_user_attributes WHERE key = 'finals'"
        )
        finals = json.dumps(json.loads(text) | {"node": node})
        connection.execute(f"{update} study_user_attribute_id = ?", (finals, number))
        connection.commit()
        data = connection.serialize()
        connection.close()
        return zlib.compress(data, 1)


def checked_on(studies: bytes, node: str, ratio: float) -> bytes:
    """Return a storage with one more check of its study, which was held on a node."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "unit.db"
        file.write_bytes(zlib.decompress(studies))
        storage = open_storage(f"sqlite:///{file}", create=False)
        assert storage is not None
        [record] = all_records(storage)
        study = describe_study(record)
        assert study.recommended is not None
        settings = (study.recommended.setting, study.baselines[study.default].setting)
        began = f"2126-12-01T00:00:{ord(node[0]) % 60:02}+00:00"
        checked(record, *map(Setting.of, settings), ratio, began=began, node=node)
        record.put("updated", began)
        return packed(file)


def cases(template: Template, fingerprints: Sequence[str], affinity: str) -> tuple[OfferedCase, ...]:
    """Return a case for each fingerprint, which is also the workload's name."""
    return tuple(
        OfferedCase(
            id=f"{each}-{affinity}",
            key=msgspec.structs.replace(template.key, fingerprint=each, affinity=affinity),
            word=each,
            workload=each,
            shape="2 CPUs",
            quota=None,
            python="python",
            runtime="made",
        )
        for each in fingerprints
    )


@dataclass
class MadeNode:
    """A node and what lies on its disk, which a new process at another address finds again."""

    name: str
    host: str
    cases: tuple[OfferedCase, ...]
    version: str = code_version()
    held: dict[str, UnitEnd] = field(default_factory=dict)


@dataclass
class Task:
    name: str
    question: Unit
    turns: int


@dataclass
class MadeEngine:
    """Nodes by address, and what each runs; every call of `answers` is a turn."""

    template: Template
    nodes: dict[str, MadeNode]
    turns: int = 1
    """That a unit takes."""
    failures: set[str] = field(default_factory=set)
    """Units that fail for their own fault."""
    ratios: dict[str, float] = field(default_factory=dict)
    """What a check finds on a node, if it is not the usual."""
    chaos: random.Random | None = None
    """Kills and stops nodes, if given."""
    kills: Counter[str] = field(default_factory=Counter)
    measured: Counter[str] = field(default_factory=Counter)
    """How often each unit was measured to its end."""
    most_at_once: Counter[str] = field(default_factory=Counter)
    """By host: the most units that were measured at once."""
    turn: int = 0
    driver_dies_at: int | None = None
    n_started: int = 0
    tasks: dict[str, Task] = field(default_factory=dict)
    _ready: list[Answer] = field(default_factory=list)
    _stopped: dict[str, int] = field(default_factory=dict)
    _n: int = 0

    def finish_all(self) -> None:
        """Let nodes end what they run."""
        for address, task in self.tasks.items():
            self.finish(address, task)

    def addresses(self) -> Collection[str]:
        return [each for each in self.nodes if each not in self._stopped]

    def ask(self, address: str, name: str, question: bytes, *, measures: bool) -> None:
        asked = msgspec.json.decode(question, type=AskOffer | Unit | Forget)
        node = self.nodes.get(address)
        if node is None:
            return
        for unit in asked.merged:
            node.held.pop(unit, None)
        if isinstance(asked, Unit):
            assert measures
            self.tasks[address] = Task(name=name, question=asked, turns=self.turns)
            running = Counter(self.nodes[each].host for each in self.tasks if each not in self._stopped)
            self.most_at_once |= running
            return
        answer = b"{}"
        if isinstance(asked, AskOffer):
            offer = Offer(
                node=node.name, name=node.name, host=node.host, machine=f"made {node.host}", cases=node.cases,
                held=tuple(node.held),
                failure="" if node.version == code_version() else f"it has tftune {node.version}",
            )  # fmt: skip
            answer = msgspec.json.encode(offer)
        self._ready.append(Answer(address=address, name=name, data=answer))

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        self.turn += 1
        if self.turn == self.driver_dies_at:
            raise TunerError("the driver was killed")
        if self.chaos is not None:
            self._disturb(self.chaos)
        hosts: set[str] = set()
        for address, task in list(self.tasks.items()):
            if self.nodes[address].host in hosts:  # it waits for the lock of the machine
                continue
            hosts.add(self.nodes[address].host)
            task.turns -= 1
            if task.turns <= 0:
                del self.tasks[address]
                self.finish(address, task)
        ready = [each for each in self._ready if each.address not in self._stopped]
        self._ready = [each for each in self._ready if each.address in self._stopped]
        return ready

    def drop(self, address: str) -> None:
        """A late result may come all the same."""

    def finish(self, address: str, task: Task) -> None:
        node, unit = self.nodes[address], task.question.id
        end = node.held.get(unit)
        if end is None:
            self.measured[unit] += 1
            failure = "no room" if unit in self.failures else ""
            studies = b"" if failure else self._studies(task.question, node.name)
            end = UnitEnd(node=node.name, wall_s=1.0, studies=studies, failure=failure)
            if not failure:
                node.held[unit] = end
        self._ready.append(Answer(address=address, name=task.name, data=msgspec.json.encode(end)))

    def _studies(self, unit: Unit, node: str) -> bytes:
        if unit.study:
            return checked_on(unit.study, node, self.ratios.get(node, 1.3))
        return self.template.studies(unit.key, node)

    def _disturb(self, chaos: random.Random) -> None:
        """Kill a node, which comes back at another address, or stop one, whose result comes late."""
        for address in [each for each, until in self._stopped.items() if until <= self.turn]:
            del self._stopped[address]
            self._rename(address)
        if chaos.random() < 0.35:
            address = chaos.choice([each for each in self.nodes if each not in self._stopped] or [*self.nodes])
            self._stopped.pop(address, None)
            if chaos.random() < 0.5:
                self.kills["kill"] += 1
                self.tasks.pop(address, None)
                self._rename(address)
            else:
                self.kills["stop"] += 1
                self._stopped[address] = self.turn + 4

    def _rename(self, address: str) -> None:
        self._n += 1
        self.nodes[f"made://{self._n}"] = self.nodes.pop(address)
        if address in self.tasks:  # its child goes on, and nobody takes what it returns; the file is there
            task = self.tasks.pop(address)
            self.measured[task.question.id] += 1
            node = self.nodes[f"made://{self._n}"]
            studies = self._studies(task.question, node.name)
            node.held.setdefault(task.question.id, UnitEnd(node=node.name, wall_s=1.0, studies=studies))
