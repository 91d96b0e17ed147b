"""The published schemas: every document that a test has a command print is held against its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from jsonschema import Draft202012Validator

from tuner.result.schema import PUBLISHED, schema_of


@functools.cache
def validator(command: str) -> Draft202012Validator:
    """Return what validates the documents of a command."""
    schema = schema_of(command)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def command_of(words: Sequence[str]) -> str | None:
    """Return the command that prints a document for these words, None where they ask for none."""
    if "--json" not in words:
        return None
    return next((name for name in (" ".join(words[:2]), words[0]) if name in PUBLISHED), None)


def validate(words: Sequence[str], out: str) -> None:
    """Hold what a command printed against its schema; nothing where it printed nothing, or no document."""
    command = command_of(words)
    if command is not None and out.strip():
        validator(command).validate(json.loads(out))
