"""What running a workload's file showed: settings that tftune makes too, and constants that its text does not show."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.child.own_settings import OWN_SETTINGS
from tuner.errors import BadInputError
from tuner.frameworks.framework import Framework
from tuner.space.auditing import changes
from tuner.space.knob import Knob
from tuner.space.space import Space
from tuner.workload import pyfile
from tuner.workload.workload import Workload

_DEFAULT = "setdefault("  # which yields to what tftune sets


def check_own_settings(
    folder: Path, workload: Workload, framework: Framework, space: Space, notify: Callable[[str], None]
) -> None:
    """Raise BadInputError where the file of an exported workload sets what a setting of the space does.

    Or where its constants are others than those that were read from its text, and that the workload has. `notify` is
    called with a line for each other variable that may change timings, and for code that does not act.
    """
    own = json.loads((folder / OWN_SETTINGS).read_text(encoding="utf-8"))
    variables, threads = own["variables"], own["threads"]
    _check_constants(workload, space, own["constants"])
    for text, note in own["notes"]:
        notify(f"{_place(workload.path, text)}: {note}")
    knobs = [knob for knob in framework.knobs.values() if knob.variable is not None]
    by_call = [k for k in knobs if k.name in threads and not _is_fixed(space, k, str(threads[k.name]))]
    by_name = [k for k in knobs if k.variable in variables and not _is_fixed(space, k, variables[str(k.variable)])]
    yielding = [k for k in by_name if _DEFAULT in _line(workload.path, str(k.variable))]
    by_name = [k for k in by_name if k not in yielding]
    for knob in yielding:
        place = _place(workload.path, str(knob.variable))
        notify(f"{place}: the workload sets {knob.variable} if nothing else does, so that is what the default measures")
    too_late = [k for k in knobs if k.variable in variables and k.read_at_start and k.name not in space.domains]
    if by_call:
        calls = [framework.calls.get(str(knob.variable), str(knob.variable)).partition("(")[0] for knob in by_call]
        values = " and ".join(
            f"{threads[k.name]} thread{'' if threads[k.name] == 1 else 's'} for {k.name}" for k in by_call
        )
        place = _place(workload.path, calls[0])
        raise BadInputError(
            f"{place}: the workload itself sets {values}, so {_variables(by_call)} cannot act",
            f"remove {' and '.join(calls)}: tftune sets the threads",
        )
    if by_name or too_late:
        refused = by_name or too_late
        changed = {str(k.variable): variables[str(k.variable)] for k in refused}
        place = _place(workload.path, str(refused[0].variable))
        if by_name:
            dead = " and ".join(k.name for k in by_name)
            raise BadInputError(
                f"{place}: the workload itself {changes(changed)}, so the values of {dead} have no effect",
                f"remove it: tftune sets {_variables(by_name)}",
            )
        unset = [f"-u {name}" for name, value in changed.items() if value is None]
        prefix = ["env", *unset] if unset else []
        prefix += [f"{name}={value}" for name, value in changed.items() if value is not None]
        raise BadInputError(
            f"{place}: the workload itself {changes(changed)}, and a trial has imported {framework.title} before",
            f"remove it, and set it for all trials: {' '.join(prefix)} tftune …",
        )
    for name in sorted(variables.keys() - {knob.variable for knob in knobs}):
        if name.startswith(framework.timing_prefixes):
            place, verb = _place(workload.path, name), "removes" if variables[name] is None else "sets"
            do = "unset" if variables[name] is None else "set"
            notify(f"{place}: the workload itself {verb} {name}; if a trial reads it before, {do} it in the shell")


def _check_constants(workload: Workload, space: Space, constants: Mapping[str, Any]) -> None:
    """Raise BadInputError for a batch size or a parameter that the file changes in a way that its text hides."""
    file = pyfile.read(workload.path)
    batch_size, params = constants.get("BATCH_SIZE", 1), constants.get("PARAMS", {})
    if batch_size != file.batch_size == space.reference.batch_size:
        raise BadInputError(
            f"{_place(workload.path, 'BATCH_SIZE')}: BATCH_SIZE is {batch_size} when the file has run, and tftune read "
            f"{file.batch_size} from its text",
            f"assign it once, BATCH_SIZE = {batch_size}, or give --batch-size {batch_size}",
        )
    for name in sorted(params.keys() | file.params.keys()):
        value, read = params.get(name), file.params.get(name)
        if value != read and workload.params.get(name) == read:
            raise BadInputError(
                f"{_place(workload.path, 'PARAMS')}: the parameter {name} is {value!r} when the file has run, and "
                f"tftune read {read!r} from its text",
                f"write its value into PARAMS = {{…}}, or give --param {name}={value}",
            )


def _variables(knobs: Sequence[Knob]) -> str:
    return " and ".join(str(knob.variable) for knob in knobs)


def _is_fixed(space: Space, knob: Knob, value: str) -> bool:
    """Return whether a knob has no other value in a space than this one, or none at all."""
    return {str(each) for each in space.domains.get(knob.name, ())} <= {value}


def _line(path: Path, text: str) -> str:
    """Return the first line of a file that holds a text, "" where none does."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in lines if text in line), "")


def _place(path: Path, text: str) -> str:
    """Return the file, and the first line that holds a text, where one does."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    number = next((number for number, line in enumerate(lines, start=1) if text and text in line), None)
    return path.name if number is None else f"{path.name}, line {number}"
