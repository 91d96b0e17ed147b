"""Suites on several machines: where units run, what comes home, what is refused, and Dask for real."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import socket
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import optuna
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Call, Finished
from tests.made_cluster import MadeEngine, MadeNode, Template, cases
from tests.processes import gone, wait_until
from tests.real_cluster import SUITE, TFTUNE, Cluster
from tests.scripted import noisy, run
from tuner.cli.output import console
from tuner.cluster import node as nodes
from tuner.cluster import ssh
from tuner.cluster.daskengine import security_of
from tuner.cluster.fleet import Fleet
from tuner.cluster.placement import MOST_LOSSES, Node, Placement, Sessions
from tuner.cluster.wire import Answer, AskOffer, Offer, OfferedCase, Unit, UnitEnd
from tuner.errors import BadInputError, TunerError
from tuner.identity import digest
from tuner.job.request import SuiteRequest
from tuner.job.run import answers_to_check
from tuner.measure.budget import Budget
from tuner.paths import COMMAND, code_version
from tuner.report.fleet import FleetLines, FleetShown
from tuner.report.layout import Shell, table
from tuner.result.document import describe_study
from tuner.result.study import StudyResult, nodes_of
from tuner.space.space import Space
from tuner.study.storage import Scratch, all_records, open_storage

# ---- placement ------------------------------------------------------------------------------------------------------


def node(address: str, *menu: str, host: str | None = None, held: tuple[str, ...] = ()) -> Node:
    return Node(address=address, host=host or address, menu=menu, held=frozenset(held))


def test_a_unit_runs_once_and_a_host_runs_one_at_a_time() -> None:
    placement = Placement()
    placement.join(node("a", "u", "v", host="one"))
    placement.join(node("b", "u", "v", host="one"))
    placement.join(node("c", "u", "v"))
    assert placement.place() == [("a", "u"), ("c", "v")]
    assert placement.place() == []
    assert placement.end("a", "u")
    assert not placement.end("a", "u")  # the same result again
    assert not placement.open


def test_what_a_lost_node_ran_is_run_first_elsewhere_and_not_for_ever() -> None:
    placement = Placement()
    for number in range(MOST_LOSSES):
        placement.join(node(f"a{number}", "u", "v"))
        assert placement.place() == [(f"a{number}", "u")]
        assert placement.leave(f"a{number}") == ("u" if number == MOST_LOSSES - 1 else None)
    placement.join(node("b", "u", "v"))
    assert placement.place() == [("b", "v")]


def test_a_late_result_of_a_unit_that_was_given_away_is_taken_and_the_other_is_not() -> None:
    placement = Placement()
    placement.join(node("a", "u"))
    placement.place()
    placement.leave("a")
    placement.join(node("b", "u"))
    assert placement.place() == [("b", "u")]
    assert placement.end("a", "u")
    assert not placement.end("b", "u")
    assert placement.running() == {}


def test_a_node_goes_on_with_what_it_has_in_part() -> None:
    placement = Placement()
    placement.join(node("a", "u", "v", "w", held=("w", "of another suite")))
    assert placement.place() == [("a", "w")]


def test_what_was_interrupted_is_open_again() -> None:
    placement = Placement()
    placement.join(node("a", "u"))
    placement.place()
    for _ in range(MOST_LOSSES - 1):
        assert placement.interrupt("a", "u") is None
        assert placement.place() == [("a", "u")]
    assert placement.interrupt("a", "u") == "u"
    assert placement.place() == []


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 12))
def test_whatever_happens_each_unit_ends_once(seed: int, n_nodes: int, n_units: int) -> None:
    chance, placement = random.Random(seed), Placement()
    menus = [tuple(f"u{n}" for n in range(n_units)), tuple(f"u{n}" for n in range(0, n_units, 2))]
    ends: Counter[str] = Counter()
    address = 0
    for _ in range(400):
        while len(placement.nodes) < n_nodes:
            address += 1
            placement.join(node(f"a{address}", *menus[address % 2], host=f"h{address % 3}"))
        placement.place()
        running = placement.running()
        assert len(set(running.values())) == len(running)
        assert max(Counter(placement.nodes[a].host for a in running).values(), default=0) <= 1
        for at, unit in running.items():
            if chance.random() < 0.6:
                ends[unit] += placement.end(at, unit)
            elif chance.random() < 0.1:
                failed = placement.leave(at) if chance.random() < 0.5 else placement.interrupt(at, unit)
                ends[failed or ""] += failed is not None
    placement.join(node("last", *menus[0], host="its own"))  # the others may have had some of the units only
    while placement.place() or placement.running():
        for at, unit in placement.running().items():
            ends[unit] += placement.end(at, unit)
    del ends[""]
    assert ends == dict.fromkeys(menus[0], 1)
    assert set(ends) == placement.done


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 8), st.integers(1, 4))
def test_whatever_happens_each_case_is_measured_once_on_a_node(
    seed: int, n_names: int, n_cases: int, n_nodes: int
) -> None:
    chance, placement = random.Random(seed), Placement(Sessions(n_nodes))
    menu = tuple(f"u{n}" for n in range(n_cases))
    nodes: dict[str, frozenset[str]] = {}
    lost: set[str] = set()
    address = 0
    for turn in range(400):
        while len(placement.nodes) < n_names:
            address += 1
            there = {each.name for each in placement.nodes.values()}
            name = next(f"n{n}" for n in range(n_names) if f"n{n}" not in there)
            placement.join(Node(address=f"a{address}", host=name, name=name, menu=menu))
        placement.place()
        sessions, running = placement.sessions, placement.running()
        of = Counter(sessions.of[unit].case for unit in running.values() if unit in sessions.of)
        assert all(n + len(nodes[case]) <= n_nodes for case, n in of.items())
        for at, unit in running.items():
            name, case = placement.nodes[at].name, sessions.of[unit].case if unit in sessions.of else unit
            if turn > 300 or chance.random() < 0.6:
                assert placement.end(at, unit)
                assert name not in nodes.get(case, ())
                nodes[case] = nodes.get(case, frozenset()) | {name}
                sessions.measured(case, "its study", nodes[case], placement.types[case])
            elif chance.random() < 0.1:
                failed = placement.leave(at) if chance.random() < 0.5 else placement.interrupt(at, unit)
                lost |= {case} if failed else set()
    assert not placement.running()
    assert all(len(nodes[case]) == min(n_nodes, n_names) for case in menu if case not in lost)
    n_open = sum(n_nodes - len(each) for each in nodes.values())
    assert placement.sessions.n_open() == n_open


def test_a_node_goes_on_with_a_session_that_it_has_and_forgets_one_that_nobody_needs() -> None:
    placement = Placement(Sessions(2))
    placement.done |= {"u", "v"}
    for case, names in {"u": "a", "v": "ab"}.items():
        placement.sessions.measured(case, "its study", frozenset(names))
    held = {case: digest([case, "its study"]) + digest("c") for case in "uv"}
    c = Node(address="c", host="c", name="c", menu=("u", "v", "w"), held=frozenset(held.values()))
    assert placement.join(c) == [held["v"]]
    assert placement.place() == [("c", held["u"])]  # before the search of w


# ---- a driver over made nodes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, space: Space) -> Template:
    folder = tmp_path_factory.mktemp("template")
    run(space, noisy(), folder=folder, budget=Budget(trials=5))
    [file] = folder.glob("*.db")
    return Template.of(file)


@dataclass
class Log:
    """Events, kept as words."""

    lines: list[str] = field(default_factory=list)

    def joined(self, offer: Offer) -> None:
        self.lines.append(f"joined {offer.node}")

    def refused(self, node: str, reason: str) -> None:
        self.lines.append(f"refused {node}: {reason}")

    def skipped(self, node: str, case: OfferedCase) -> None:
        self.lines.append(f"skipped {node}: {case.word}")

    def left(self, node: str, case: OfferedCase | None) -> None:
        self.lines.append(f"left {node}")

    def started(self, node: str, case: OfferedCase, n_left: int) -> None:
        self.lines.append(f"started {case.workload}")

    def ended(self, node: str, case: OfferedCase, outcome: str, n_left: int) -> None:
        self.lines.append(f"ended {case.workload}: {outcome}")

    def notice(self, line: str) -> None:
        self.lines.append(line)

    def turn(self) -> None:
        pass


class Made:
    """A storage, and fleets over made nodes that keep their disks from one driver to the next."""

    def __init__(self, template: Template, folder: Path) -> None:
        self.template, self.url = template, f"sqlite:///{folder}/s.db"
        self.log = Log()

    def fleet(
        self, engine: MadeEngine, names: list[str], n_nodes: int = 1, *, stale: bool = False, types: str | None = None
    ) -> Fleet:
        request = SuiteRequest(
            workloads="lenet5", storage=self.url, nodes_per_type=n_nodes, stale=stale, types=types
        )  # fmt: skip
        made = {(name, "inference"): name for name in names}  # no file has them
        waits_s = {"first_node_s": 0.0, "join_s": 0.0, "no_node_s": 20.0, "look_s": 0.0}
        listens = {"events": self.log, "outcome": lambda study: study.study}
        return Fleet(request=request, engine=engine, fingerprints=made, **listens, **waits_s)

    def studies(self) -> list[StudyResult]:
        return [describe_study(record) for record in all_records(self.storage())]

    def storage(self) -> optuna.storages.BaseStorage:
        storage = open_storage(self.url, create=True)
        assert storage is not None
        return storage

    def stored(self) -> Counter[str]:
        records = all_records(self.storage())
        subjects = [record.attributes().subject for record in records]
        return Counter(f"{each.workload.fingerprint}-{each.machine.affinity}" for each in subjects)


@pytest.fixture
def made(template: Template, tmp_path: Path) -> Made:
    return Made(template, tmp_path)


@pytest.fixture
def winner(finished: Finished, space: Space, tmp_path: Path) -> Made:
    """Return one of studies that recommend another setting than the default."""
    (folder := tmp_path / "template").mkdir()
    finished(space, folder, trials=16)
    return Made(Template.of(folder / "t.db"), tmp_path)


NAMES = [f"w{n}" for n in range(5)]


def two_types(template: Template, names: list[str] = NAMES) -> dict[str, MadeNode]:
    """Return three nodes of two types, two of them on one host."""
    first, second = cases(template, names, "0"), cases(template, names, "0-1")
    return {
        "made://a": MadeNode("a", "one", first),
        "made://b": MadeNode("b", "one", second),
        "made://c": MadeNode("c", "two", first),
    }


def ids(names: list[str] = NAMES) -> dict[str, int]:
    return {f"{name}-{affinity}": 1 for name in names for affinity in ("0", "0-1")}


def ids_of(names: list[str]) -> dict[str, int]:
    return {f"{name}-0": 1 for name in names}


def test_a_suite_runs_on_all_nodes_and_its_studies_come_home(made: Made) -> None:
    engine = MadeEngine(made.template, two_types(made.template))
    fleet = made.fleet(engine, NAMES)
    fleet.run()
    assert made.stored() == ids() == engine.measured
    assert {case.state for case in fleet.cases()} == {"made"}
    assert max(engine.most_at_once.values()) == 1
    assert all(not node.held for node in engine.nodes.values())  # what came home is removed there
    again = made.fleet(MadeEngine(made.template, two_types(made.template)), NAMES)
    again.run()
    assert {case.state for case in again.cases()} == {"known"}
    assert made.stored() == ids()


@pytest.mark.parametrize("types", ["TWO", "two,genoa", "made two"])
def test_only_machines_of_the_types_that_are_named_measure(made: Made, types: str) -> None:
    engine = MadeEngine(made.template, two_types(made.template))
    fleet = made.fleet(engine, NAMES, types=types)
    fleet.run()
    assert made.stored() == ids_of(NAMES)
    assert "refused a: --types leaves out its machine, made one" in made.log.lines
    absent = [line for line in made.log.lines if line.startswith("no node of the type 'genoa' has joined")]
    assert bool(absent) == fleet.is_short == ("genoa" in types)


def test_types_that_no_machine_is_of_are_one_line(made: Made) -> None:
    with pytest.raises(TunerError, match="all nodes were refused"):
        made.fleet(MadeEngine(made.template, two_types(made.template)), NAMES, types="tw,ma").run()
    with pytest.raises(BadInputError, match="--types is empty; expected words of machines"):
        made.fleet(MadeEngine(made.template, {}), NAMES, types=" ,")


@pytest.mark.parametrize("seed", range(8))
def test_kills_and_stops_lose_and_double_nothing(made: Made, seed: int) -> None:
    engine = MadeEngine(made.template, two_types(made.template), turns=2, chaos=random.Random(seed))
    fleet = made.fleet(engine, NAMES)
    fleet.run()
    assert sum(engine.kills.values()) > 2
    lost = {case.workload + "-" + case.cpus for case in fleet.cases() if case.state == "failed"}
    assert len(lost) <= 2  # three losses of one unit are rare
    assert made.stored() == {key: 1 for key in ids() if key not in lost}
    assert max(engine.most_at_once.values()) == 1


def test_a_driver_that_is_killed_goes_on_with_what_nodes_have_ended_meanwhile(made: Made) -> None:
    nodes = two_types(made.template)
    n_drivers = 0
    measured: Counter[str] = Counter()
    for _ in range(30):
        engine = MadeEngine(made.template, nodes, turns=1, driver_dies_at=3)
        engine.measured = measured
        try:
            made.fleet(engine, NAMES).run()
            break
        except TunerError as error:
            assert error.message == "the driver was killed"
            n_drivers += 1
            engine.finish_all()
    assert n_drivers > 2
    assert made.stored() == ids() == measured


def test_a_suite_of_what_is_stale_measures_only_what_has_changed(made: Made) -> None:
    nodes = {"made://a": MadeNode("a", "one", cases(made.template, ["w0", "w1"], "0"))}
    made.fleet(MadeEngine(made.template, nodes), ["w0", "w1"]).run()
    offered = cases(made.template, ["w0", "w1", "w2"], "0")
    name = all_records(made.storage())[0].attributes().subject.workload.name
    newer = msgspec.structs.replace(offered[1], id="w1-newer", key=msgspec.structs.replace(offered[1].key, build="new"))
    offered = tuple(msgspec.structs.replace(case, workload=name) for case in (offered[0], newer, offered[2]))
    engine = MadeEngine(made.template, {"made://b": MadeNode("b", "two", offered[:2])})
    fleet = made.fleet(engine, ["w0", "w1", "w2"], stale=True)
    fleet.run()
    assert engine.measured == {"w1-newer": 1}
    assert [case.state for case in fleet.cases()] == ["known", "made"]
    assert [len(case.stale) for case in fleet.cases()] == [0, 1]


def test_each_host_that_has_changed_measures_its_own_stale_cases(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both hosts offer the same cases, and each of them has measured another one before."""
    offered = cases(made.template, ["w0", "w1"], "0")

    def stale_cases(_request: Any, named: list[Any], *, host: str) -> dict[int, tuple[str, ...]]:
        own = {"a": "w0", "b": "w1"}[host]
        return {n: ("the machine",) for n, (_, key, _) in enumerate(named) if key.fingerprint == own}

    monkeypatch.setattr("tuner.cluster.fleet.stale_cases", stale_cases)
    hosts = {f"made://{name}": MadeNode(name, f"host {name}", offered) for name in "ab"}
    engine = MadeEngine(made.template, hosts)
    made.fleet(engine, ["w0", "w1"], stale=True).run()
    assert engine.measured == {"w0-0": 1, "w1-0": 1}


def three_of_a_type(template: Template, names: list[str]) -> dict[str, MadeNode]:
    offered = cases(template, names, "0")
    return {f"made://{name}": MadeNode(name, f"host {name}", offered) for name in "abc"}


def test_a_result_is_measured_again_on_other_nodes_of_its_type(winner: Made) -> None:
    names = NAMES[:3]
    engine = MadeEngine(winner.template, three_of_a_type(winner.template, names))
    fleet = winner.fleet(engine, names, n_nodes=3)
    fleet.run()
    assert not fleet.is_short
    assert winner.stored() == ids_of(names)
    for study in winner.studies():
        assert study.recommended is not None
        gain = study.recommended.gain
        assert gain is not None
        assert (sorted(node.node for node in gain.nodes), gain.sessions) == (["a", "b", "c"], 3)
    assert sum(engine.measured.values()) == 9
    assert max(engine.most_at_once.values()) == 1
    engine = MadeEngine(winner.template, three_of_a_type(winner.template, names))
    again = winner.fleet(engine, names, n_nodes=3)
    again.run()
    assert {case.state for case in again.cases()} == {"known"}
    assert not engine.measured  # all nodes are in the storage


def test_nodes_that_disagree_are_named_and_nothing_is_recommended(winner: Made) -> None:
    engine = MadeEngine(winner.template, three_of_a_type(winner.template, ["w0"]), ratios={"b": 0.8, "a": 0.8})
    fleet = winner.fleet(engine, ["w0"], n_nodes=3)
    fleet.run()
    [study] = winner.studies()
    assert study.recommended is not None
    assert study.recommended.source == study.default
    assert "on 3 nodes combined, which disagree (" in study.recommended.reason


@pytest.mark.parametrize("seed", range(4))
def test_kills_and_stops_lose_and_double_no_session(winner: Made, seed: int) -> None:
    names = NAMES[:3]
    nodes = three_of_a_type(winner.template, names)
    engine = MadeEngine(winner.template, nodes, turns=2, chaos=random.Random(seed))
    fleet = winner.fleet(engine, names, n_nodes=2)
    fleet.run()
    engine.chaos = None
    last = winner.fleet(engine, names, n_nodes=2)  # what failed by three losses is tried again
    last.run()
    assert winner.stored() == ids_of(names)
    for record in all_records(winner.storage()):
        held = [check.node for check in record.attributes().checks]
        assert len(held) == len({*held}) == 1


@pytest.mark.parametrize("n_cases", [2, 3])
def test_a_driver_that_is_killed_loses_no_session(winner: Made, n_cases: int) -> None:
    names, n_drivers = NAMES[:n_cases], 0
    made_nodes = three_of_a_type(winner.template, names)
    measured: Counter[str] = Counter()
    for _ in range(40):
        engine = MadeEngine(winner.template, made_nodes, turns=1, driver_dies_at=3)
        engine.measured = measured
        try:
            winner.fleet(engine, names, n_nodes=3).run()
            break
        except TunerError as error:
            assert error.message == "the driver was killed"
            n_drivers += 1
            engine.finish_all()
    assert n_drivers >= 2
    again = winner.fleet(MadeEngine(winner.template, made_nodes), names, n_nodes=3)
    again.no_node_s = 600.0
    again.run()  # it waits for nothing
    assert not again.is_short
    assert {len(record.attributes().checks) for record in all_records(winner.storage())} == {2}
    assert [*measured.values()] == [1] * 3 * n_cases  # nothing is measured twice
    assert not any(node.held for node in made_nodes.values())


def test_a_session_that_fails_leaves_its_node_to_others(winner: Made) -> None:
    names = NAMES[:3]

    class Failing(MadeEngine):
        """The first check of all fails as an answering process does."""

        def answers(self, timeout_s: float) -> list[Answer]:
            came = []
            for answer in super().answers(timeout_s):
                is_first = answer.name not in ids_of(names) and answer.name not in ("offer", "forget") and not failed
                came.append(replace(answer, data=None, failure="no room") if is_first else answer)
                failed.extend([answer.name] * is_first)
            return came

    failed: list[str] = []
    fleet = winner.fleet(Failing(winner.template, three_of_a_type(winner.template, names)), names, n_nodes=3)
    fleet.run()
    assert len(failed) == 1
    assert not any(line.startswith("refused") for line in winner.log.lines)
    assert {len(record.attributes().checks) for record in all_records(winner.storage())} == {2}, winner.log.lines


@dataclass
class Late(MadeEngine):
    """One more node, with these cases, joins after some turns."""

    late: tuple[OfferedCase, ...] = ()

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        if self.turn == 5:
            self.nodes["made://b"] = MadeNode("b", "two", self.late)
        return super().answers(timeout_s)


def test_a_driver_waits_for_nodes_that_it_has_started(made: Made) -> None:
    """The first of two has nothing to do, and the other one joins later."""
    known, other = cases(made.template, ["w0"], "0"), cases(made.template, ["w0"], "0-1")
    made.fleet(MadeEngine(made.template, {"made://a": MadeNode("a", "one", known)}), ["w0"]).run()

    fleet = made.fleet(Late(made.template, {"made://a": MadeNode("a", "one", known)}, n_started=2, late=other), ["w0"])
    fleet.first_node_s = 30.0
    fleet.run()
    assert [case.state for case in fleet.cases()] == ["known", "made"]


def test_a_driver_with_little_to_do_waits_for_nodes_of_other_types(made: Made) -> None:
    """As the scheduler has just started again, and one node has found it first."""
    first, other = cases(made.template, ["w0"], "0"), cases(made.template, ["w0"], "0-1")

    fleet = made.fleet(Late(made.template, {"made://a": MadeNode("a", "one", first)}, late=other), ["w0"])
    fleet.join_s = 3.0
    fleet.run()
    assert [case.state for case in fleet.cases()] == ["made", "made"]


def test_a_session_that_ended_for_a_driver_that_is_gone_is_only_forgotten(winner: Made) -> None:
    """Two nodes are enough, and the third has held a session since before."""
    made_nodes = three_of_a_type(winner.template, ["w0"])
    winner.fleet(MadeEngine(winner.template, made_nodes), ["w0"], n_nodes=2).run()
    [record] = all_records(winner.storage())
    study, [check] = describe_study(record), record.attributes().checks
    name = next(name for name in "abc" if name not in nodes_of(study))
    for at in (name, check.node):
        unit = digest(["w0-0", f"{study.study} {study.created}"]) + digest(at)
        made_nodes[f"made://{at}"].held[unit] = UnitEnd(node=at, wall_s=1.0)
    engine = MadeEngine(winner.template, made_nodes)
    again = winner.fleet(engine, ["w0"], n_nodes=2)
    again.no_node_s = 600.0
    again.run()
    assert not engine.measured
    assert not again.is_short
    assert not any(node.held for node in made_nodes.values())


def test_sessions_without_another_node_are_missing_and_said_so(winner: Made) -> None:
    nodes = {"made://a": MadeNode("a", "one", cases(winner.template, ["w0"], "0"))}
    fleet = winner.fleet(MadeEngine(winner.template, nodes), ["w0"], n_nodes=2)
    fleet.no_node_s = 3.0
    fleet.run()
    assert fleet.is_short
    assert [case.state for case in fleet.cases()] == ["made"]
    assert any("1 measurement is missing: no other node of their type" in line for line in winner.log.lines)


def test_what_was_interrupted_is_asked_again(made: Made) -> None:
    interrupted: Counter[tuple[str, str]] = Counter()

    class Interrupted(MadeEngine):
        def answers(self, timeout_s: float) -> list[Answer]:
            came = []
            for answer in super().answers(timeout_s):
                interrupted[answer.address, answer.name] += 1
                first = interrupted[answer.address, answer.name] == 1
                came.append(replace(answer, data=b"") if first else answer)
            return came

    engine = Interrupted(made.template, two_types(made.template))
    fleet = made.fleet(engine, NAMES)
    fleet.first_node_s = 20.0
    fleet.run()
    assert made.stored() == ids()
    assert sum(n == 2 for n in interrupted.values()) >= len(ids())


def test_what_fails_by_itself_is_not_tried_again(made: Made) -> None:
    engine = MadeEngine(made.template, two_types(made.template), failures={"w2-0"})
    fleet = made.fleet(engine, NAMES)
    fleet.run()
    assert engine.measured == ids()
    assert [case.outcome for case in fleet.cases() if case.state == "failed"] == ["no room"]
    assert len(made.stored()) == 9


def test_nodes_of_another_version_or_with_another_file_are_refused(made: Made) -> None:
    known, strange = cases(made.template, ["w0"], "0"), cases(made.template, ["w0"], "0")
    strange = tuple(
        msgspec.structs.replace(each, key=msgspec.structs.replace(each.key, fingerprint="edited")) for each in strange
    )
    engine = MadeEngine(
        made.template,
        {
            "made://a": MadeNode("a", "one", known),
            "made://b": MadeNode("b", "two", known, version="0.0.1"),
            "made://c": MadeNode("c", "three", strange),
        },
    )
    made.fleet(engine, ["w0"]).run()
    refused = [line for line in made.log.lines if line.startswith(("refused", "skipped"))]
    assert refused == ["refused b: it has tftune 0.0.1", "skipped c: w0"]
    assert made.stored() == {"w0-0": 1}


def test_without_a_node_there_is_one_line(made: Made) -> None:
    with pytest.raises(TunerError, match=r"no node has joined in .*; start one on each machine"):
        made.fleet(MadeEngine(made.template, {}), NAMES).run()


def test_damaged_studies_are_refused_and_the_suite_goes_on(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Template.studies

    def damaged(self: Template, key: Any, name: str) -> bytes:
        studies = whole(self, key, name)
        cut = zlib.compress(zlib.decompress(studies)[: len(studies)])
        of_workload = {"w0": b"no zlib", "w1": zlib.compress(b"no database"), "w2": studies[:-9], "w3": cut}
        return of_workload.get(key.fingerprint, studies)

    monkeypatch.setattr(Template, "studies", damaged)
    engine = MadeEngine(made.template, {"made://a": two_types(made.template)["made://a"]})
    fleet = made.fleet(engine, NAMES)
    fleet.run()
    assert [case.state for case in fleet.cases()] == ["failed"] * 4 + ["made"]
    assert made.stored() == {"w4-0": 1}
    assert all(not node.held for node in engine.nodes.values())  # else the same would come again


def test_names_from_other_machines_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "node\x1b[2J\x1b]8;;http://x\x07\r\N{RIGHT-TO-LEFT OVERRIDE}7"
    out = console()
    out.print(hostile)
    out.print(table("a", "b", rows=[(hostile, "×2 µs\N{NO-BREAK SPACE}x")]))
    said = capsys.readouterr().out
    terminal = Shell(file=io.StringIO(), force_terminal=True, width=100)
    with FleetShown(terminal, budget_s=60.0) as shown:
        shown.joined(Offer(node=hostile, host="h", machine=hostile))
        shown.turn()
    assert isinstance(terminal.file, io.StringIO)
    assert "\x1b[2J" not in terminal.file.getvalue()
    assert "\N{REPLACEMENT CHARACTER}" in terminal.file.getvalue()
    assert not {"\x1b", "\x07", "\r", "\N{RIGHT-TO-LEFT OVERRIDE}"} & {*said}
    assert "×2 µs\N{NO-BREAK SPACE}x" in said


def test_events_are_json_of_a_line_each(made: Made) -> None:
    engine = MadeEngine(made.template, two_types(made.template), turns=2, chaos=random.Random(1))
    out = io.StringIO()
    fleet = made.fleet(engine, NAMES, types="one")
    fleet.events = FleetLines(out)
    fleet.run()
    fleet.events.notice("node\x1b[2J\nnext")
    assert "\x1b" not in out.getvalue()
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {each["event"] for each in events} == {"joined", "refused", "started", "ended", "lost", "notice"}
    ended = [each for each in events if each["event"] == "ended"]
    assert {each["workload"] for each in ended} == {*NAMES}
    assert ended[-1]["unfinished"] == 0
    assert all(each.keys() >= {"time", "node", "mode", "shape", "again", "outcome"} for each in ended)


# ---- who may connect ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("head:8786", "'head:8786' is no address of a scheduler; expected tls://HOST:PORT"),
        ("tcp://head", "is no address of a scheduler"),
        ("tcp://head:99999", "is no address of a scheduler"),
        ("tcp://[head:8786", "is no address of a scheduler"),
        ("tcp://head:8786", "tcp://head:8786 is not encrypted"),
        ("tcp://10.0.0.1:8786", "is not encrypted"),
        ("tls://head:8786", "needs certificates"),
    ],
)
def test_a_scheduler_that_others_can_reach_needs_certificates(url: str, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        security_of(url, None, insecure=False)


def test_what_only_this_machine_reaches_needs_none(tmp_path: Path) -> None:
    for url in ("tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786"):
        assert security_of(url, None, insecure=False) is None
    assert security_of("tcp://head:8786", None, insecure=True) is None
    with pytest.raises(BadInputError, match=r"has no ca\.pem; expected ca\.pem, cert\.pem, key\.pem"):
        security_of("tls://head:8786", tmp_path, insecure=False)


# ---- nodes by ssh ---------------------------------------------------------------------------------------------------

# It runs what would run on a host, and takes the place of `ssh`.
SHIM = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" exec sh -c "$3"
"""


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text(SHIM)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_hosts_are_the_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\n\n one\nuser@two  env A=1 /opt/tftune\n")
    hosts = ssh.hosts_of(file)
    assert [*hosts] == ["one", "user@two"]
    assert hosts["one"].startswith(f"{sys.executable} -P ")
    assert hosts["user@two"] == "env A=1 /opt/tftune"


@pytest.mark.parametrize("data", [None, b"", b"# none\n", b"\xff\xfe"])
def test_a_file_without_hosts_is_refused(tmp_path: Path, data: bytes | None) -> None:
    file = tmp_path / "hosts"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(BadInputError, match=r"expected .*one host in each line"):
        ssh.hosts_of(file)


@pytest.mark.usefixtures("shim")
def test_a_host_gets_the_certificate_and_its_node_ends_with_the_driver(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.write_text('#!/bin/sh\necho "$@" >&2\ncat > got\necho end > ended\n')
    node.chmod(0o755)
    lines: list[str] = []
    pem = ssh.new_certificate()
    assert pem.count(b"PRIVATE KEY-----") == 2
    with contextlib.chdir(tmp_path), ssh.nodes({"one": str(node)}, 1234, pem, lines.append):
        assert wait_until(lambda: bool(lines), 20)
        assert not (tmp_path / "ended").exists()
    assert lines == ["one: node tls://127.0.0.1:1234 --tls -"]
    assert (tmp_path / "got").read_bytes() == pem
    assert (tmp_path / "ended").exists()


@pytest.mark.usefixtures("shim")
def test_a_host_that_has_no_tftune_is_named(tmp_path: Path) -> None:
    lines: list[str] = []
    with ssh.nodes({"one": str(tmp_path / "missing")}, 1, b"none", lines.append):
        assert wait_until(lambda: bool(lines), 20)
    assert lines[0].startswith("one: sh: ")
    assert "missing: not found" in lines[0]


def test_a_tool_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="needs ssh, which is not in PATH; install ssh here"):
        ssh.new_certificate()


def test_a_node_without_the_certificate_that_it_is_to_read_ends_in_one_line(tmp_path: Path) -> None:
    words = [sys.executable, "-P", str(COMMAND), "node", "tls://127.0.0.1:1", "--tls", "-"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, input="no\n")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "--tls - needs a certificate on stdin" in ended.stderr


@pytest.mark.parametrize(("words", "option"), [(["--tls", "."], "--tls"), (["--insecure"], "--insecure")])
def test_a_cluster_of_our_own_takes_no_certificates(call: Call, words: list[str], option: str) -> None:
    code, _, error = call("suite", "--cluster", "local", *words)
    assert code == 2
    assert f"{option} with --cluster local; leave {option} out" in error


# ---- a node ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let units have a folder of their own, beside the exports of this session."""
    monkeypatch.setattr(nodes, "_folder", lambda: tmp_path / "units")
    return tmp_path / "units"


def test_no_name_of_a_unit_leaves_the_folder(cache: Path) -> None:
    for file in nodes.files_of("../../etc/passwd"):
        assert file.parent == cache


def test_what_is_in_the_storage_of_a_suite_is_forgotten(cache: Path) -> None:
    cache.mkdir()
    for name in ("one.db", "one.json", "two.db"):
        (cache / name).write_bytes(b"")
    os.utime(cache / "two.db", (1, 1))
    nodes.answer(b'{"type":"Forget","merged":["one"]}')
    assert [*cache.iterdir()] == []
    (cache / "one.db").write_bytes(b"")
    nodes.answer(b'{"type":"Forget","merged":[]}')
    assert [each.name for each in cache.iterdir()] == ["one.db"]


def test_a_unit_that_has_ended_is_not_measured_again(cache: Path, template: Template) -> None:
    cache.mkdir()
    end = UnitEnd(node="here", wall_s=3.0, studies=b"any")
    (cache / "one.json").write_bytes(msgspec.json.encode(end))
    unit = Unit(id="one", key=template.key, request=SuiteRequest())
    assert msgspec.json.decode(nodes.answer(msgspec.json.encode(unit)), type=UnitEnd) == end


@pytest.mark.usefixtures("cache")
def test_a_node_of_another_version_offers_nothing() -> None:
    question = AskOffer(version="0.0.1", suite="s", request=SuiteRequest(workloads="lenet5"))
    offer = msgspec.json.decode(nodes.answer(msgspec.json.encode(question)), type=Offer)
    assert not offer.cases
    assert "expected 0.0.1 as the driver" in offer.failure


def test_a_question_that_is_none_is_refused() -> None:
    with pytest.raises(TunerError, match=r"the answering process .*Invalid value 'Run'"):
        nodes.ask(b'{"type":"Run","code":"import os"}')
    assert nodes.ask(b'{"type":"Forget"}') == b"{}"


def test_one_process_answers_for_all_units_of_a_suite(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.release()
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path))
    ask_offer = AskOffer(version="0.0.1", suite="s", request=SuiteRequest(workloads="lenet5"))
    assert b"expected 0.0.1" in nodes.ask(msgspec.json.encode(ask_offer))
    [child] = nodes.idle
    end = UnitEnd(node="here", wall_s=3.0, studies=bytes(3_000_000))
    for name in ("one", "two"):
        _, end_file = nodes.files_of(name)
        end_file.write_bytes(msgspec.json.encode(end))
        unit = Unit(id=name, key=template.key, request=SuiteRequest(), study=bytes(3_000_000))
        assert msgspec.json.decode(nodes.ask(msgspec.json.encode(unit)), type=UnitEnd) == end
        assert nodes.idle == [child]
    child.process.kill()  # as by the kernel, if memory is short
    child.process.wait()
    assert msgspec.json.decode(nodes.ask(msgspec.json.encode(unit)), type=UnitEnd) == end
    [child] = nodes.idle
    nodes.ask(b'{"type":"Forget"}')
    assert not nodes.idle
    assert child.process.returncode is not None


# ---- Dask, for real -------------------------------------------------------------------------------------------------

needs_dask = pytest.mark.skipif(
    find_spec("distributed") is None, reason="distributed is not installed (tftune[cluster])"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.start()
    yield made
    made.close()


@needs_dask
@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_suite_on_two_types_of_nodes_survives_the_loss_of_one(cluster: Cluster) -> None:
    """One of two nodes is killed in the middle of a unit, and another takes its place."""
    cpus = sorted(os.sched_getaffinity(0))
    masks = {"a": {cpus[0]}, "b": set(cpus)}
    started = {name: cluster.node(name, mask) for name, mask in masks.items()}
    suite = cluster.suite("lenet5")
    log = cluster.folder / "suite.log"
    assert wait_until(lambda: '"event": "started"' in log.read_text(), 300), log.read_text()
    time.sleep(3)
    # Both are on one host, so that one measures: the one with processes below.
    name, below = max(
        ((name, psutil.Process(node.pid).children(recursive=True)) for name, node in started.items()),
        key=lambda each: len(each[1]),
    )
    assert below
    started[name].kill()
    assert wait_until(lambda: all(gone(each.pid) for each in below), 60)  # what it ran ends with it
    cluster.node("c", masks[name])
    out, _ = suite.communicate(timeout=600)
    assert suite.returncode == 0, log.read_text()
    lost = [json.loads(line) for line in log.read_text().splitlines() if '"event": "lost"' in line]
    assert [each["workload"] for each in lost if "workload" in each] == ["lenet5"]
    document = json.loads(out)
    assert [row["state"] for row in document["cases"]] == ["made"] * 2
    assert {row["cpus"] for row in document["cases"]} == {str(cpus[0]), f"{cpus[0]}-{cpus[-1]}"}
    again = cluster.suite("lenet5")
    out, _ = again.communicate(timeout=300)
    assert [row["state"] for row in json.loads(out)["cases"]] == ["known"] * 2


@needs_dask
@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.usefixtures("shim")
def test_a_suite_on_hosts_by_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "hosts").write_text("one\ntwo\n")
    words = [*SUITE, "--workloads", "lenet5", "--cluster", "ssh:hosts", "--json"]
    ended = subprocess.run(
        [sys.executable, "-P", COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    assert [case["state"] for case in json.loads(ended.stdout)["cases"]] == ["made"]
    running = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    assert not [each for each in running if each[-2:] == ["--tls", "-"]]


BY_BATCH = '''"""A few small products: large batches are many times as fast."""
ITEM = "row"
BATCH_SIZE = 1
def build():
    import tensorflow as tf
    w = tf.Variable(tf.eye(64))
    def model(x):
        for _ in range(6):
            x = tf.nn.relu(tf.linalg.matmul(x, w))
        return x
    return model
def inputs(batch_size):
    import numpy as np
    return (np.ones((batch_size, 64), np.float32),)
'''


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_node_measures_the_study_of_another_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(BY_BATCH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path / "cache"))
    request = SuiteRequest(workloads="./model.py", time_budget="60s")  # 15 s were too short beside other tests
    question = AskOffer(version=code_version(), suite="s", request=request, folder=str(tmp_path))
    [case] = msgspec.json.decode(nodes.ask(msgspec.json.encode(question)), type=Offer).cases
    unit = Unit(id="first", key=case.key, request=request, folder=str(tmp_path))
    nodes.release()
    monkeypatch.setenv("TFTUNE_NODE", "a")
    searched = msgspec.json.decode(nodes.ask(msgspec.json.encode(unit)), type=UnitEnd)
    assert (searched.node, searched.failure) == ("a", "")
    with nodes.unpacked(searched.studies, Scratch()) as ([record], _):
        assert answers_to_check(describe_study(record)), "the search proved no answer that could be checked"
    nodes.release()
    monkeypatch.setenv("TFTUNE_NODE", "b")
    unit = Unit(id="second", key=case.key, request=request, folder=str(tmp_path), study=searched.studies)
    checked = msgspec.json.decode(nodes.ask(msgspec.json.encode(unit)), type=UnitEnd)
    assert (checked.node, checked.failure) == ("b", "")
    with nodes.unpacked(checked.studies, Scratch()) as ([record], _):
        study = describe_study(record)
    assert nodes_of(study) == {"a", "b"}
    assert study.recommended is not None
    assert study.recommended.gain is not None
    assert {node.node for node in study.recommended.gain.nodes} == {"a", "b"}


@needs_dask
def test_a_scheduler_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    words = [TFTUNE, "suite", "--workloads", "lenet5"]
    ended = subprocess.run(
        [*words, "--cluster", "tcp://127.0.0.1:9"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "no scheduler answers at tcp://127.0.0.1:9" in ended.stderr


@needs_dask
def test_a_scheduler_cannot_listen_where_another_does(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run([TFTUNE, "scheduler", url], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"no scheduler can listen at {url}: " in ended.stderr
