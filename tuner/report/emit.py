"""Snippets that apply a setting: one function a format, each accepted by what reads it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum

from tuner.machine.cpulist import parse_list
from tuner.space.catalogue import PRELOAD

Env = Mapping[str, str]

_BATCH = "TFTUNE_BATCH_SIZE"
_BATCH_NOTE = f"{_BATCH} is no variable of TensorFlow: let your own code read it as its batch size."
_CPUS = "TFTUNE_CPUS"
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
    if not env:
        return [_NOTHING]
    return notes if set(env) - {_BATCH} else ["Keep TensorFlow's own threads.", *notes]


def _variables(env: Env) -> list[tuple[str, str]]:
    """Return the variables; the CPUs are no variable but how the program is started."""
    return [(name, value) for name, value in env.items() if name != _CPUS]


def _kept(env: Env, how: str) -> list[str]:
    """Return the note on how to keep the program to its CPUs, if it is to be; `{}` is their list."""
    return [f"Keep the program to CPUs {env[_CPUS]}: " + how.format(env[_CPUS])] if _CPUS in env else []


def _commented(notes: list[str], lines: list[str]) -> str:
    return "\n".join([f"# {' '.join(note.split())}" for note in notes] + lines) + "\n"


def _sh(env: Env, notes: list[str]) -> str:
    notes = notes + _kept(env, "start it with taskset -c {}.")
    return _commented(notes, [f"export {name}={shlex.quote(value)}" for name, value in _variables(env)])


def _dotenv(env: Env, notes: list[str]) -> str:
    """Single quotes where a value has characters that readers of the format take differently."""
    notes = notes + _kept(env, "start it with taskset -c {}.")
    variables = _variables(env)
    lines = [f"{name}={value if _DOTENV_PLAIN.fullmatch(value) else _single(value)}" for name, value in variables]
    return _commented(notes, lines)


def _single(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _docker(env: Env, notes: list[str]) -> str:
    notes = notes + _kept(env, "docker run --cpuset-cpus={}.")
    lines = [f"ENV {name}={_double(value, escape_dollar=True)}" for name, value in _variables(env)]
    return _commented(notes, lines)


def _double(value: str, *, escape_dollar: bool = False) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (text.replace("$", "\\$") if escape_dollar else text) + '"'


def _k8s(env: Env, notes: list[str]) -> str:
    """An `env:` list for a container; every value is a string, as Kubernetes demands."""
    notes = notes + _kept(env, "let its command begin with taskset -c {}.")
    variables = _variables(env)
    if not variables:
        return _commented(notes, ["env: []"])
    lines = ["env:"]
    for name, value in variables:
        lines += [f"  - name: {name}", f"    value: {json.dumps(value)}"]
    return _commented(notes, lines)


def _systemd(env: Env, notes: list[str]) -> str:
    """`Environment=` lines; % begins a specifier there and is doubled."""
    lines = [f"Environment={_double(f'{n}={v}').replace('%', '%%')}" for n, v in _variables(env)]
    return _commented(notes, [*lines, *([f"CPUAffinity={env[_CPUS]}"] if _CPUS in env else [])])


def _python(env: Env, notes: list[str]) -> str:
    lines = [f"os.environ[{json.dumps(name)}] = {json.dumps(value)}" for name, value in _variables(env)]
    if _CPUS in env:
        lines.append(f"os.sched_setaffinity(0, {sorted(parse_list(env[_CPUS]))})")
    before = ["Run this before TensorFlow is imported: it reads the variables once."] if env else []
    if PRELOAD in env:
        before.append(f"{PRELOAD} has no effect from here: set it where the interpreter is started.")
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
