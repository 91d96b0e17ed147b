"""Snippets that apply a setting: one function a format, each accepted by what reads it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum

Env = Mapping[str, str]

_BATCH = "TFTUNE_BATCH_SIZE"
_BATCH_NOTE = f"{_BATCH} is no variable of TensorFlow: let your own code read it as its batch size."
_NOTHING = "Keep TensorFlow's defaults: there is nothing to set."
_DOTENV_PLAIN = re.compile(r"[\w.,:/@%+=-]*")


class Format(StrEnum):
    """What reads the snippet."""

    SH = "sh"
    DOTENV = "dotenv"
    DOCKER = "docker"
    K8S = "k8s"
    SYSTEMD = "systemd"
    PYTHON = "python"
    JSON = "json"


def emit(env: Env, format_: Format, *, title: str) -> str:
    """Return the snippet for `env`, ending in a newline; `title` becomes its first comment, where it can have one."""
    return _WRITERS[format_](env, [title, *_notes(env)])


def _notes(env: Env) -> list[str]:
    notes = [_BATCH_NOTE] if _BATCH in env else []
    return (
        notes if set(env) - {_BATCH} else [_NOTHING, *notes] if not env else ["Keep TensorFlow's own threads.", *notes]
    )


def _commented(notes: list[str], lines: list[str]) -> str:
    return "\n".join([f"# {' '.join(note.split())}" for note in notes] + lines) + "\n"


def _sh(env: Env, notes: list[str]) -> str:
    return _commented(notes, [f"export {name}={shlex.quote(value)}" for name, value in env.items()])


def _dotenv(env: Env, notes: list[str]) -> str:
    """Single quotes where a value has characters that readers of the format take differently."""
    lines = [f"{name}={value if _DOTENV_PLAIN.fullmatch(value) else _single(value)}" for name, value in env.items()]
    return _commented(notes, lines)


def _single(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _docker(env: Env, notes: list[str]) -> str:
    return _commented(notes, [f"ENV {name}={_double(value, escape_dollar=True)}" for name, value in env.items()])


def _double(value: str, *, escape_dollar: bool = False) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (text.replace("$", "\\$") if escape_dollar else text) + '"'


def _k8s(env: Env, notes: list[str]) -> str:
    """An `env:` list for a container; every value is a string, as Kubernetes demands."""
    if not env:
        return _commented(notes, ["env: []"])
    lines = ["env:"]
    for name, value in env.items():
        lines += [f"  - name: {name}", f"    value: {json.dumps(value)}"]
    return _commented(notes, lines)


def _systemd(env: Env, notes: list[str]) -> str:
    """`Environment=` lines; % begins a specifier there and is doubled."""
    return _commented(notes, [f"Environment={_double(f'{n}={v}').replace('%', '%%')}" for n, v in env.items()])


def _python(env: Env, notes: list[str]) -> str:
    lines = [f"os.environ[{json.dumps(name)}] = {json.dumps(value)}" for name, value in env.items()]
    before = ["Run this before TensorFlow's first operation: it reads the variables once."] if env else []
    return _commented(notes + before, ["import os", "", *lines] if lines else [])


def _json(env: Env, notes: list[str]) -> str:
    del notes  # JSON has no comments
    return json.dumps(dict(env), indent=2) + "\n"


_WRITERS: dict[Format, Callable[[Env, list[str]], str]] = {
    Format.SH: _sh,
    Format.DOTENV: _dotenv,
    Format.DOCKER: _docker,
    Format.K8S: _k8s,
    Format.SYSTEMD: _systemd,
    Format.PYTHON: _python,
    Format.JSON: _json,
}
