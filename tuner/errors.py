"""The exceptions of the tool. A failed trial is a value (`tuner.trial.outcome`); a failed tool is one of these.

TunerError                 exit code 1
├── BadInputError          exit code 2: the user can mend it before anything is written
│   ├── NoModeError        a workload has no such mode
│   └── UnknownNameError   there is nothing of that name
├── MachineBusyError       exit code 1: another search is measuring on this machine
└── BaselineError          exit code 1: a recommended setting does not run, so there is nothing to compare with
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TunerError(Exception):
    """The tool cannot go on: `message` says what was found, `hint` what to do, `log` what others printed of it."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "", *, log: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.log = log

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class BadInputError(TunerError):
    """What the user gave cannot be used."""

    exit_code = 2


class NoModeError(BadInputError):
    """A workload has no such mode, as inference or training."""


class UnknownNameError(BadInputError):
    """There is nothing of that name."""


class MachineBusyError(TunerError):
    """Another process is measuring on this machine."""


class BaselineError(TunerError):
    """A baseline failed; its log is the end of what its process printed."""


def unknown_name(kind: str, name: str, known_names: Iterable[str]) -> UnknownNameError:
    """Return the error for a name that does not exist, with the nearest names or all of them."""
    names = sorted(known_names)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return UnknownNameError(f"unknown {kind} '{name}'", f"did you mean {' or '.join(near)}?")
    return UnknownNameError(f"unknown {kind} '{name}'", f"known: {', '.join(names) or 'none'}")
