"""What a command sets by itself, in its words and scripts: a knob whose variable it sets again has no effect.

Only what stands there is seen. A value that comes from the environment, ${OMP_NUM_THREADS:-4}, or from a placeholder is
what the setting says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tuner.space.space import Space
from tuner.workload.command import Command
from tuner.workload.contents import text_of


def set_by_itself(
    command: Command | None, space: Space, calls: Mapping[str, str], overriding: Sequence[str]
) -> Iterator[str]:
    """Yield which variables of knobs a command sets by itself, and which calls and variables of it go before them.

    `calls` are those of the framework that do the same as a variable, and `overriding` variables that libraries heed
    instead.
    """
    if command is None:
        return
    places = [("its words", "\n".join(command.words)), *((str(path), text_of(path)) for path in command.scripts())]
    texts = [(place, _without_comments(text)) for place, text in places]
    knobs = {str(knob.variable): name for name in space.domains if (knob := space.catalogue.knobs[name]).variable}
    for variable, name in knobs.items():
        call = calls.get(variable, "").partition("(")[0].rpartition(".")[2].removeprefix("set_")
        by_call = re.compile(rf"(?:\bset_|\b){re.escape(call)}\s*[(=](?!=|\s*\{{)")
        found = {variable: _first(texts, _assignment(variable)), call: _first(texts, by_call) if call else None}
        for what, place in found.items():
            if place is not None:
                yield f"{place}: the command itself sets {what}, so that {name} may have no effect"
                break
    for variable in overriding:
        place = None if variable in knobs else _first(texts, _assignment(variable))
        if place is not None:
            told = f"{place}: the command itself sets {variable}"
            yield f"{told}; a library that reads it heeds no other number of threads"


def _assignment(variable: str) -> re.Pattern[str]:
    """Return a pattern of what sets a variable to a value of its own, in a shell, a Makefile or Python."""
    own = r"(?!['\"]?\s*(?:[${]|%\())['\"]?[\w.,=-]"
    shell = rf"(?<![\w$]){variable}=(?!=){own}"
    python = rf"(?:environ\[\s*['\"]{variable}['\"]\s*\]\s*=(?!=)|putenv\(\s*['\"]{variable}['\"]\s*,)\s*{own}"
    return re.compile(rf"{shell}|{python}")


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
