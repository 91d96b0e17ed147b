"""Names in braces among the words of a command, which stand for the values of knobs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tuner.errors import BadInputError
from tuner.space.carrier import Option
from tuner.space.space import Space
from tuner.workload.command import Command


def check_placeholders(command: Command, space: Space) -> None:
    """Raise BadInputError for a knob among a command's words that has no value here, or is misspelt.

    And for a batch size that has no place among them: nothing else would tell the command.
    """
    if space.passes_batch_size and "batch_size" not in command.placeholders:
        raise BadInputError(
            "the command has no {batch_size} placeholder", "put {batch_size} where the command expects the batch size"
        )
    for name, counted in (("instances", "processes"), ("streams", "concurrent calls")):
        if name in space.domains and name not in command.placeholders:
            raise BadInputError(
                f"the command has no {{{name}}} placeholder",
                f"put {{{name}}} where the command expects the number of {counted}",
            )
    knobs = space.catalogue.knobs
    for name in sorted(command.placeholders):
        if name in knobs and name not in space.domains:
            reason = space.inactive.get(name, f"it is not part of the search space '{space.name}'")
            raise BadInputError(f"cannot fill in {{{name}}} in the command: {reason}", "remove the placeholder")
        is_misspelt = bool(difflib.get_close_matches(name, knobs, n=1, cutoff=0.8))
        if name not in knobs and (is_misspelt or space.catalogue.owner(name) is not None):
            space.catalogue.knob(name)  # says which knob is meant, or whose it is


def literal(command: Command | None, space: Space) -> Iterator[str]:
    """Yield which names in braces a command is handed as they stand, and which knobs it is not told in any way."""
    if command is None:
        return
    knobs = space.catalogue.knobs
    for name in sorted(command.placeholders - set(knobs)):
        yield f"{{{name}}} in the command is no knob, and is passed on as it stands"
    options = [name for name in space.domains if isinstance(knobs[name].carrier, Option)]
    untold = [name for name in options if name not in command.placeholders]
    if untold:
        yield (
            f"no variable carries {', '.join(untold)}: the command gets them only among its words, e.g. "
            f"{{{untold[0]}}}; they do not act"
        )
