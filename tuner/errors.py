"""The exceptions of the tool. A failed trial is a value (`tuner.trial.outcome`); a failed tool is one of these.

TunerError                 exit code 3: the tool or the machine failed
├── BadInputError          exit code 2: the user can fix it, and nothing was measured
│   ├── DamagedStudyError  a part of a stored study is not what it has to be
│   ├── NoModeError        the workload does not have this mode
│   └── UnknownNameError   no object has this name
├── FindingError           exit code 1: what was measured speaks against what was asked for
├── MachineBusyError       another search is measuring on this machine
└── BaselineError          a recommended setting does not run, so there is nothing to compare with
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_NAMES = 30
"""A storage may have hundreds of studies."""


class TunerError(Exception):
    """The tool cannot continue: `message` says what is wrong, `hint` what to do.

    `log` is related output of other processes.
    """

    exit_code = 3

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


class DamagedStudyError(BadInputError):
    """A part of a stored study cannot be understood; `part` says which."""

    def __init__(self, study: str, part: str, error: Exception) -> None:
        super().__init__(f"study {study} cannot be read: its {part} is damaged ({error!r})", "search again with --new")
        self.part = part


class NoModeError(BadInputError):
    """The workload does not have the requested mode (inference or training)."""


class UnknownNameError(BadInputError):
    """No object has this name."""


class FindingError(TunerError):
    """What was measured speaks against what was asked for, such as a recommendation that is slower here."""

    exit_code = 1


class MachineBusyError(TunerError):
    """Another process is measuring on this machine."""


class BaselineError(TunerError):
    """A baseline failed; its log is the end of what its process printed."""


def unknown_name(kind: str, name: str, known_names: Iterable[str]) -> UnknownNameError:
    """Return the error for a name that does not exist, with the nearest names, or all of them where they are few."""
    names = sorted(known_names)
    begun = [each for each in names if name.lower().startswith(each.lower()) and len(each) > 2]
    near = list(dict.fromkeys([*begun, *difflib.get_close_matches(name, names, n=3, cutoff=0.5)]))[:3]
    if near:
        return UnknownNameError(f"unknown {kind} '{name}'", f"did you mean {' or '.join(near)}?")
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return UnknownNameError(f"unknown {kind} '{name}'", f"known: {', '.join(names[:_MOST_NAMES]) or 'none'}{more}")
