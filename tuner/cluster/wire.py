"""The messages between driver and nodes, as JSON, and the interface to a scheduler that carries them.

Questions hold options or files of models; answers hold results. These messages hold no code, and tftune never executes
what a study holds. Dask pickles its own part around them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from tuner.job.request import SuiteRequest
from tuner.job.suite import CaseKey


class Model(Struct, frozen=True, kw_only=True):
    """A model that the driver can copy to a node."""

    digest: str
    """Of the names and contents of its files."""
    file: str
    """The name of its file or folder."""
    name: str
    """That of its workload."""


class Question(Struct, frozen=True, kw_only=True, tag=True):
    """What a node is asked, for a suite that was begun in `folder`.

    It may remove what it holds of the units `merged`: their studies are in the storage of the suite.
    """

    folder: str = "."
    merged: tuple[str, ...] = ()
    models: dict[str, Model] = {}
    """What can be copied, by the word of its workload in the request."""


class Forget(Question, frozen=True, kw_only=True):
    """Nothing is asked: the suite has ended."""


class AskOffer(Question, frozen=True, kw_only=True):
    """Which cases of the suite can the node run, if it has the driver's `version` of tftune?"""

    version: str
    suite: str
    """A name of the suite's storage: other suites have units of their own."""
    request: SuiteRequest


class Unit(Question, frozen=True, kw_only=True):
    """One case of the suite, to be run on one machine; a suite with a plan gives it `budget_s` (s)."""

    id: str
    key: CaseKey
    request: SuiteRequest
    budget_s: float | None = None
    study: bytes = b""
    """A storage, as `UnitEnd.studies`: the answers of its study are checked, and nothing is searched for."""


class Piece(Question, frozen=True, kw_only=True):
    """A piece of a file of a model, or without a path the end of the model: the node checks it."""

    model: Model
    path: str = ""
    """From the folder that the model lies in."""
    offset: int = 0
    data: bytes = b""


class OfferedCase(Struct, frozen=True, kw_only=True):
    """A case that a node can run, with the names to display."""

    id: str
    key: CaseKey
    word: str
    """The workload as the request names it."""
    workload: str
    shape: str
    quota: float | None
    python: str
    runtime: str
    build: str = ""
    """Its build in a line."""
    again: bool = False
    """Whether the answers of its study are checked on another node."""


class Offer(Struct, frozen=True, kw_only=True):
    """What a node is, and which cases it can run."""

    node: str
    """The name of its host, for people."""
    name: str = ""
    """The name that its sessions are kept under, `tuner.machine.host.node_name`."""
    host: str
    """The boot of its host: two nodes of one boot never measure at the same time."""
    machine: str
    """What its host is, for people."""
    cases: tuple[OfferedCase, ...] = ()
    absent: tuple[str, ...] = ()
    """What was asked for and is not there."""
    missing: tuple[str, ...] = ()
    """The words of workloads whose models are not there as the driver has them, and can be copied."""
    held: tuple[str, ...] = ()
    """The units that it has ended, or has measured in part."""
    failure: str = ""
    """Why it can run none of the suite."""


class UnitEnd(Struct, frozen=True, kw_only=True):
    """How a unit ended on a node: its studies, the reason of a failure, or both."""

    node: str
    wall_s: float
    studies: bytes = b""
    """An SQLite storage, compressed by zlib; empty if nothing was measured."""
    failure: str = ""
    interrupted: bool = False
    """Whether the node was interrupted. Its partial results then stay there for the same unit."""


# ---- what carries messages ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a node to the question `name`. If `data` is None, `failure` is the reason.

    Empty data is of a question that was interrupted, and is to be asked again.
    """

    address: str
    name: str
    data: bytes | None = None
    failure: str = ""


class Engine(Protocol):
    """Nodes by address. A lost node never returns under its old address."""

    n_started: int
    """How many nodes the engine has started itself. They join later."""

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now; raises TunerError if the engine itself is lost."""

    def ask(self, address: str, name: str, question: bytes, *, measures: bool) -> None:
        """Send a question to a node. One that `measures` takes long, and a node answers one of these at a time."""

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers that have arrived. Wait at most `timeout_s` (s) for the first."""

    def drop(self, address: str) -> None:
        """Expect no more answers from a lost node."""
