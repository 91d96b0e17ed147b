"""A command as a workload: what is run, and where in its output the number stands that is to be tuned."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import BadInputError
from tuner.workload.reading import Reading, read
from tuner.workload.units import names_time

_PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")  # not of a shell
_OF_POSIX = re.compile(r"\[:[a-z]+:\]")
_SHELL = re.compile(r"[|&;<>$`]")
_OF_SHELLS = re.compile(r"[\s|&;<>()$`'\"=]+")  # what parts the words of a line
_BUILTINS = frozenset(["cd", "source", ".", "export", "ulimit", "time", "exec", "eval", "set", "if", "for", "while"])
_DAEMONS = frozenset(["docker", "podman", "nerdctl", "kubectl", "ssh"])
_WITH_OTHER_VARIABLES = _DAEMONS | {"sudo", "su", "doas"}
_LONGEST_LINE = 256  # that the kernel looks at
_LARGEST_SCRIPT = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The words of a command, the pattern of its numbers, and whether less of them is better.

    `{batch_size}`, or another knob's name in braces, stands for the knob's value.
    """

    words: tuple[str, ...]
    pattern: str
    minimize: bool = False

    def __str__(self) -> str:
        return shlex.join(self.words)

    @property
    def notes(self) -> list[str]:
        """Return what is doubtful of it: a pattern that names a time if more is better, or a rate if less is."""
        words = re.sub(r"\\[a-zA-Z]", " ", self.pattern)  # without \b and \s
        if names_time(words) in (None, self.minimize):
            return []
        what, which = (
            ("a rate", "--minimize takes the smallest") if self.minimize else ("a time", "the largest is taken")
        )
        return [f"the pattern names {what}, and {which} for the best"]

    @property
    def placeholders(self) -> set[str]:
        """Return the names in braces."""
        return placeholders(self.words)

    def filled(self, values: Mapping[str, object]) -> list[str]:
        """Return the words with the values of a setting in place; braces that name no knob are left as they are."""
        return [_PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), word) for word in self.words]

    def read(self, output: str) -> Reading:
        """Return the numbers that the pattern finds; raises NoNumberError."""
        return read(self.pattern, output)

    def scripts(self) -> list[Path]:
        """Return the files that its words name: scripts and settings, which are part of what is measured.

        They may stand within a line for a shell, and as a module: python -m bench.
        """
        named = [part for word in self.words for part in (word, word.partition("=")[2])]
        parts = [part for word in self.words for part in _OF_SHELLS.split(word) if part]
        modules = [b.replace(".", "/") for a, b in itertools.pairwise(parts) if a == "-m"]
        parts += [f"{module}{end}" for module in modules for end in (".py", "/__main__.py")]
        if any(Path(part).name in ("make", "gmake") for part in parts):
            parts += ["GNUmakefile", "makefile", "Makefile"]
        paths = (Path(part) for part in dict.fromkeys([*named, *parts]) if part)
        return [path for path in dict.fromkeys(paths) if _is_small_file(path)]


def placeholders(words: Iterable[str]) -> set[str]:
    """Return the names in braces among words."""
    return {name for word in words for name in _PLACEHOLDER.findall(word)}


def started_by(words: Iterable[str], *, elsewhere: bool = False) -> str:
    """Return the program among words that starts the rest without this process's variables, "" if there is none.

    `elsewhere` asks for one that also starts it outside this process's children: a container, another machine.
    """
    names = (Path(part).name for word in words for part in _OF_SHELLS.split(word))
    return next((name for name in names if name in (_DAEMONS if elsewhere else _WITH_OTHER_VARIABLES)), "")


def _is_small_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= _LARGEST_SCRIPT
    except (OSError, ValueError):  # a name that is too long, or not to be looked at
        return False


def check_program(words: Sequence[str]) -> None:
    """Raise BadInputError where the first of the words is no program, with what may have been meant."""
    first = words[0]
    if (found := shutil.which(first)) is not None:
        _check_first_line(Path(found), words)
        return
    hint = "check its spelling, its permissions and PATH"
    if re.match(r"[A-Za-z_]\w*=", first):
        hint = f"to set a variable write: env {shlex.join(words)}"
    elif len(words) == 1 and len(first.split()) > 1:
        hint = f"sh -c {shlex.quote(first)}"
        is_plain = shutil.which(first.split()[0]) is not None and not _SHELL.search(first)
        hint = f"write its words without quotes around them all, or: {hint}" if is_plain else f"write: {hint}"
    elif first in _BUILTINS:
        line = " ".join(word if _SHELL.search(word) else shlex.quote(word) for word in words)
        hint = f"it is a word of the shell: write bash -c {shlex.quote(line)}"
    elif Path(first).is_file() and not os.access(first, os.X_OK):
        hint = f"the file may not be executed: name its interpreter, such as python {shlex.join(words)}, or chmod +x it"
    raise BadInputError(f"command '{first}' not found, or not executable", hint)


def _check_first_line(path: Path, words: Sequence[str]) -> None:
    """Raise BadInputError where the kernel cannot start a script, with what its first line lacks."""
    try:
        with path.open("rb") as file:
            begin = file.read(_LONGEST_LINE)
    except OSError:
        return  # it may be executed and not read
    line = begin.partition(b"\n")[0]
    interpreter = line[2:].split()[:1]
    usual = "python" if path.suffix == ".py" else "sh"
    by_hand = f"name its interpreter, such as {usual} {shlex.join(words)}"
    if not line.startswith(b"#!"):
        if b"\0" not in begin:
            raise BadInputError(f"command '{words[0]}' is a text whose first line names no interpreter (#!…)", by_hand)
    elif line.endswith(b"\r"):
        hint = f"sed -i 's/\\r$//' {shlex.quote(str(path))}"
        raise BadInputError(f"command '{words[0]}' has the line ends of Windows, and Linux finds no interpreter", hint)
    elif interpreter and not Path(os.fsdecode(interpreter[0])).exists():
        named = interpreter[0].decode(errors="replace")
        raise BadInputError(f"command '{words[0]}' names the interpreter {named}, which is not there", by_hand)


def command(words: Sequence[str], pattern: str | None, *, minimize: bool) -> Command:
    """Return the command of the words after `--`; raises BadInputError where the pattern is none."""
    if pattern is None:
        raise BadInputError(
            f"more than one workload given: {shlex.join(words)}",
            "give one; to measure a command, add a pattern for its number, e.g. --metric-regex 'images/sec: ([0-9.]+)'",
        )
    if not words:
        raise BadInputError("--metric-regex without a command", "put the command last, after --")
    check_program(words)
    if unknown := _OF_POSIX.search(pattern):
        raise BadInputError(
            f"--metric-regex '{pattern}': {unknown[0]} is not known in Python's patterns, and means its letters there",
            r"write [0-9] for [[:digit:]], and \s for [[:space:]]",
        )
    try:
        n_groups = re.compile(pattern).groups
    except re.error as error:
        hint = "put parentheses around the number instead" if r"\K" in pattern else "expected a regular expression"
        hint = "Python writes a named group (?P<name>…)" if "unknown extension ?<" in str(error) else hint
        raise BadInputError(f"--metric-regex '{pattern}': {error}", hint) from None
    if n_groups > 1:
        raise BadInputError(
            f"--metric-regex '{pattern}' has {n_groups} groups",
            "expected one group around the number; write other parentheses as (?:…)",
        )
    return Command(words=tuple(words), pattern=pattern, minimize=minimize)
