"""What of a workload itself keeps settings from acting: what running its file showed, and what its command says."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.child.worker import OWN_SETTINGS
from tuner.errors import BadInputError
from tuner.frameworks.framework import Framework
from tuner.measure.constraint import Limits
from tuner.space.auditing import changes
from tuner.space.carrier import Option
from tuner.space.knob import Knob
from tuner.space.space import Space
from tuner.workload import pyfile
from tuner.workload.command import Command, started_by
from tuner.workload.contents import text_of
from tuner.workload.workload import Workload

_DEFAULT = "setdefault("  # which yields to what tftune sets
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


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
    yielding = [k for k in by_name if _DEFAULT in _found(workload.path, str(k.variable))[1]]
    by_name = [k for k in by_name if k not in yielding]
    for knob in yielding:
        place = _place(workload.path, str(knob.variable))
        notify(f"{place}: the workload sets {knob.variable} if nothing else does, and the default has it too")
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


def _found(path: Path, text: str) -> tuple[int, str]:
    """Return the number of the first line of a file that holds a text, and the line; 0 and "" where none does."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((each for each in enumerate(lines, start=1) if text and text in each[1]), (0, ""))


def _place(path: Path, text: str) -> str:
    """Return the file, and the first line that holds a text, where one does."""
    number, _ = _found(path, text)
    return f"{path.name}, line {number}" if number else path.name


# ---- commands -------------------------------------------------------------------------------------------------------


def check_placeholders(command: Command, space: Space) -> None:
    """Raise BadInputError for a knob among a command's words that has no value here, or is misspelt.

    And for a batch size that has no place among them: nothing else would tell the command.
    """
    if space.passes_batch_size and "batch_size" not in command.placeholders:
        raise BadInputError(
            "the command has no {batch_size} placeholder",
            "put {batch_size} at the place of the batch size; if --batch-size is an option of the command "
            "itself, put -- before the command",
        )
    for name, counted in (("instances", "processes"), ("streams", "concurrent calls")):
        if name in space.domains and name not in command.placeholders:
            raise BadInputError(
                f"the command has no {{{name}}} placeholder",
                f"put {{{name}}} at the place of the number of {counted}",
            )
    knobs = space.catalogue.knobs
    for name in sorted(command.placeholders):
        if name in knobs and name not in space.domains:
            reason = space.inactive.get(name, f"it is not part of the search space '{space.name}'")
            raise BadInputError(f"cannot fill in {{{name}}} in the command: {reason}", "remove the placeholder")
        is_misspelt = bool(difflib.get_close_matches(name, knobs, n=1, cutoff=0.8))
        if name not in knobs and (is_misspelt or space.catalogue.owner(name) is not None):
            space.catalogue.knob(name)  # says which knob is meant, or whose it is


def check_memory(command: Command, limits: Limits) -> None:
    """Raise BadInputError for a limit on memory that a command's own processes do not hold."""
    starter = started_by(command.words, elsewhere=True)
    if limits.memory_bytes is not None and starter:
        raise BadInputError(
            f"--max-memory limits the command's own processes, and {starter} starts the program elsewhere",
            "leave it out, and limit the memory there, such as by docker run --memory",
        )


def literal(command: Command, space: Space) -> Iterator[str]:
    """Yield which names in braces a command is handed as they stand, and which knobs it is not told in any way."""
    knobs = space.catalogue.knobs
    # What a shell's line has in quotes is a program of its own, such as awk '{print}'.
    unquoted = replace(command, words=tuple(_QUOTED.sub("", word) for word in command.words))
    for name in sorted(unquoted.placeholders - set(knobs)):
        yield f"{{{name}}} in the command is not a knob, and is passed on unchanged"
    options = [name for name in space.domains if isinstance(knobs[name].carrier, Option)]
    untold = [name for name in options if name not in command.placeholders]
    if untold:
        yield (
            f"no variable carries {', '.join(untold)}: the command gets them only among its words, e.g. "
            f"{{{untold[0]}}}; they do not act"
        )


def set_by_itself(command: Command, space: Space, calls: Mapping[str, str], overriding: Sequence[str]) -> Iterator[str]:
    """Yield which variables of knobs a command sets or removes by itself, and which of its calls override them.

    `calls` are those of the framework that do the same as a variable, and `overriding` variables that libraries heed
    instead. Only what stands there is seen. A value that comes from the variable itself, ${OMP_NUM_THREADS:-4}, or from
    a placeholder is what the setting says. A knob among the words arrives by them.
    """
    places = [("its words", "\n".join(command.words)), *((str(path), text_of(path)) for path in command.scripts())]
    texts = [(place, _without_comments(text)) for place, text in places]
    knobs = {str(knob.variable): name for name in space.domains if (knob := space.catalogue.knobs[name]).variable}
    script = "\n".join(text for _, text in texts)
    for variable, name in knobs.items():
        if name in command.placeholders:
            continue
        call = calls.get(variable, "").partition("(")[0].rpartition(".")[2].removeprefix("set_")
        # tf_cnn_benchmarks has its own names for these calls, and some flags have their value behind a blank.
        names = "|".join(map(re.escape, [call, f"num_{name.removesuffix('_op')}_threads"]))
        by_call = re.compile(rf"(?:\bset_|\b)(?:{names})(?:\s*[(=](?!=|\s*\{{)|[ \t]+(?=[0-9]))")
        found = {
            f"sets {variable}": _first(texts, _assignment(variable, script)),
            f"sets {call}": _first(texts, by_call) if call else None,
            f"removes {variable}": _first(texts, _removal(variable)),
        }
        for what, place in found.items():
            if place is not None:
                yield f"{place}: the command itself {what}, and {name} may have no effect"
                break
    for variable in overriding:
        place = None if variable in knobs else _first(texts, _assignment(variable, script))
        if place is not None:
            told = f"{place}: the command itself sets {variable}"
            yield f"{told}; a library that reads it heeds no other number of threads"


def _assignment(variable: str, script: str) -> re.Pattern[str]:
    """Return a pattern of what sets a variable to a value of its own, in a shell, a Makefile or Python.

    What a `script` takes from the variable is not its own. One that asks whether the variable is set may yield.
    """
    own = r"(?!['\"]?\s*(?:[${]|%\()|(?:os\.)?(?:environ|getenv)\b)['\"]?(?:[\w.,=-]|%[ds])"
    taken = re.findall(rf"\b(\w+)=['\"]?[$`][^\n;&|]*?\b{variable}\b(?!=)", script)
    test = rf"(?:\[\[?|\btest|\bcase)\s[^\n;]*\$\{{?{variable}\b|-[nvz]\s+['\"]?(?:\$\{{?)?{variable}\b"
    asks = re.search(test, script)
    expanded = "(?!)" if asks else rf"['\"]?[$`](?![^\n;&|]*\b(?:{'|'.join([variable, *taken])})\b)"
    shell = rf"(?<![\w$]){variable}=(?!=)(?:{own}|{expanded})"
    python = rf"(?:environ\[\s*['\"]{variable}['\"]\s*\]\s*=(?!=)|putenv\(\s*['\"]{variable}['\"]\s*,)\s*{own}"
    # environ.update({…}), environ |= {…} and {**os.environ, …}
    mapping = rf"environ\s*(?:(?:\.update\(|\|=)\s*\{{|,)[^{{}}]*?['\"]{variable}['\"]\s*:\s*{own}"
    # env = {…} for a process, and environment: of a Compose file
    mapping += rf"|\benv\w*\s*=\s*\{{[^{{}}]*?['\"]{variable}['\"]\s*:\s*{own}|(?m:^\s+){variable}:\s+{own}"
    # setenv of csh, set -x of fish, -genv of MPI
    words = rf"(?:\bsetenv|\bset\s+-\w*x\w*|-g?env)\s+{variable}\s+{own}"
    # for name in ("…", "…"): os.environ[name] = …
    loop = rf"\bfor\s+(?P<name>\w+)\s+in\s*[(\[{{][^)\]}}]*['\"]{variable}['\"][^)\]}}]*[)\]}}]\s*:\s*"
    loop += rf"(?:os\.)?environ\[\s*(?P=name)\s*\]\s*=(?!=)\s*{own}"
    return re.compile(rf"{shell}|{python}|{mapping}|{words}|{loop}")


def _removal(variable: str) -> re.Pattern[str]:
    """Return a pattern of what removes a variable, or all that are not named: unset, env -u, env -i."""
    python = rf"environ\.pop\(\s*['\"]{variable}['\"]|\bdel\s+(?:os\.)?environ\[\s*['\"]{variable}['\"]"
    unset = rf"(?m:^|[;&|(]|\bthen|\bdo)\s*unset\b[^\n;&|]*\b{variable}\b"
    env = rf"\benv\s(?:[^\n;&|]*\s)?(?:-u\s*|--unset=){variable}\b"
    all_others = rf"\benv\s+(?:-i|-|--ignore-environment)\s(?!(?s:.*)\b{variable}=)"
    return re.compile(rf"{python}|{unset}|{env}|{all_others}")


def _without_comments(text: str) -> str:
    """Return a text with the lines left empty that a shell or Python does not run."""
    return re.sub(r"(?m)^[ \t]*#.*$", "", text)


def _first(texts: Iterable[tuple[str, str]], pattern: re.Pattern[str]) -> str | None:
    """Return where a pattern is found first: the place, and the line in a file; None where it is not."""
    for place, text in texts:
        found = pattern.search(text)
        if found is not None:
            line = text.count("\n", 0, found.start()) + 1
            return place if place == "its words" else f"{place}, line {line}"
    return None
