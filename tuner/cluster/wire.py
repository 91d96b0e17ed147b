"""What the driver of a suite and its nodes tell each other, as JSON: questions with options, and answers with results.

No code travels, and nothing that a study holds is ever executed.
"""

from __future__ import annotations

from msgspec import Struct

from tuner.job.request import SuiteRequest
from tuner.job.suite import CaseKey


class Question(Struct, frozen=True, kw_only=True, tag=True):
    """What a node is asked, for a suite that was begun in `folder`.

    It may remove what it holds of the units `merged`: their studies are in the storage of the suite.
    """

    folder: str = "."
    merged: tuple[str, ...] = ()


class Forget(Question, frozen=True, kw_only=True):
    """Nothing is asked: the suite has ended."""


class AskOffer(Question, frozen=True, kw_only=True):
    """Which cases of the suite can the node run, if it has the driver's `version` of tftune?"""

    version: str
    request: SuiteRequest


class Unit(Question, frozen=True, kw_only=True):
    """One case of the suite, to be run on one machine; a suite with a plan gives it `budget_s` (s)."""

    id: str
    key: CaseKey
    request: SuiteRequest
    budget_s: float | None = None


class OfferedCase(Struct, frozen=True, kw_only=True):
    """A case that a node can run, and how people call its parts."""

    id: str
    key: CaseKey
    word: str
    """The workload as the request names it."""
    workload: str
    shape: str
    quota: float | None
    python: str
    runtime: str


class Offer(Struct, frozen=True, kw_only=True):
    """What a node is, and which cases it can run."""

    node: str
    """The name of its host, for people."""
    host: str
    """The boot of its host: two nodes of one boot never measure at the same time."""
    version: str
    machine: str
    """What its host is, for people."""
    machine_id: str
    cases: tuple[OfferedCase, ...] = ()
    absent: tuple[str, ...] = ()
    """What was asked for and is not there."""
    held: tuple[str, ...] = ()
    """The units that it has ended, or has measured in part."""
    failure: str = ""
    """Why it can run none of the suite."""


class UnitEnd(Struct, frozen=True, kw_only=True):
    """How a unit ended on a node: its studies, or why there are none, or both."""

    id: str
    node: str
    wall_s: float
    studies: bytes = b""
    """An SQLite storage, compressed by zlib; empty if nothing was measured."""
    failure: str = ""
    interrupted: bool = False
    """Whether the node was told to stop: then what it has measured waits there for the same unit."""
