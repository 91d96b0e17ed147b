"""The language of the pages and of the help: short plain sentences, and one way to write a thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.outputs import PAGES
from tests.command_line import ROOT
from tuner.cli import app, command_names

FOLDERS = [ROOT / "tuner", *sorted(path for path in (ROOT / "tuner").iterdir() if path.is_dir())]
LONGEST = 28
"""Words of a sentence: 25 to write by, and a few for names."""
BANNED = {
    r";": "two sentences",
    r"\bso that\b": "so, or two sentences",
    r"\b(that|those) of\b": "the noun again",
    r"\b[Bb]eside\b": "next to, or compared with",
    r"\b(mended|anew|was had)\b": "fixed, again, we had",
    r"\b(says?|tells?|believes?)\b": "reports, shows",
    r"\b(items?|requests|times|steps|calls) (a|an) (second|item|minute)\b": "per",
    r"\b[Ww]here (a|an|the|it|they|there|no|nothing|that|this|one|several|both)\b": "if",
    r"\b[Ww]hat (is|was|are|were) (?!(the|your|a|an)\b)\w+": "the noun",
    r"\[[\d.,]+\s*[–-]\s*[\d.,]+\]": "an interval as [1.65, 2.03]",
    r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7}\b": "no commit",
    r"\d%": "a space before %",
}
"""What is not written, by what is written instead."""


OF_MESSAGES = [pattern for pattern in BANNED if re.search(r"says|so that|eside|mended|requests", pattern)]
"""What no message has either. It may have a semicolon, before what to do."""


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of a file that are no docstrings, with X for what is filled in."""
    tree = ast.parse(path.read_text())
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements | parts:
            yield node.value


def prose(text: str) -> Iterator[str]:
    """Yield the paragraphs, list items and cells of a page, without code, comments, headings and addresses."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "CODE", text)
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line for line in paragraph.splitlines() if not re.match(r"#|    |\| ?-", line)]
        block = "\n".join(lines)
        for part in re.split(r"\n(?=\s*(?:[-*|]|\d+\.) )", block):
            yield from (part.strip("| ").split(" | ") if part.startswith("|") else [" ".join(part.split())])


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return [each for each in re.split(r"(?<=[.!?])(?<!e\.g\.)\s+|:\s*$", paragraph) if each]


def faults(paragraph: str) -> Iterator[str]:
    """Yield what is wrong with the language of a paragraph."""
    for sentence in sentences(paragraph):
        n = len(re.findall(r"[^\W_][\w'’.-]*", sentence))
        if n > LONGEST:
            yield f"{n} words: {sentence}"
        for pattern, instead in BANNED.items():
            if match := re.search(pattern, sentence):
                yield f"{match[0]!r} ({instead}): {sentence}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_plain_english(page: Path) -> None:
    assert [fault for paragraph in prose(page.read_text()) for fault in faults(paragraph)] == []


@pytest.mark.parametrize("command", command_names())
def test_help_is_plain_english(command: str) -> None:
    of_command: Any = get_command(app)
    for word in command.split():
        of_command = of_command.commands[word]
    texts = [str(of_command.help), *(str(each.help) for each in of_command.params if each.help)]
    texts = [re.sub(r"`[^`]*`|--[\w-]+(?: [A-Z]+)?", "CODE", text) for text in texts]
    parts = [" ".join(part.split()) for text in texts for part in re.split(r"\n\s*\n", text)]
    assert [fault for part in parts for fault in faults(part)] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_messages_are_plain_english(folder: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}: {text}"
        for path in sorted(folder.glob("*.py") if folder.name == "tuner" else folder.rglob("*.py"))
        for text in messages(path)
        for pattern in OF_MESSAGES
        if len(text.split()) > 3 and (match := re.search(pattern, text))
    ]
    assert found == []


def test_there_are_few_words() -> None:
    """But what is generated, and what code shows."""
    counted = {page.name: len(re.findall(r"\w[\w'’.-]*", " ".join(prose(page.read_text())))) for page in PAGES}
    assert sum(n for name, n in counted.items() if name != "commands.md") <= 12000, counted
