"""Snippets that apply a setting: one function a format, each accepted by what reads it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from enum import StrEnum

from tuner.machine.cpulist import parse_list
from tuner.space.deployment import PRELOAD, Deployment

_NOTHING = "Keep the defaults: there is nothing to set."

Session = Callable[[Mapping[str, int | str]], list[str]]
"""Gives the lines of Python that make a framework's session with these options."""
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


def emit(deployment: Deployment, format_: Format, *, title: str, session: Session = lambda _: []) -> str:
    """Return the snippet for `deployment`, ending in a newline; `title` is its first comment, where it can have one.

    `session` is the framework's own way to give options to a session, which no other format than Python can.
    """
    notes = [title, *_notes(deployment)]
    if format_ is Format.PYTHON:
        return _python(deployment, notes, session(deployment.options) if deployment.options else [])
    options = [option_note(name, value) for name, value in deployment.options.items()]
    if options:
        options.append("For the code that makes such a session, use --format python.")
    return _WRITERS[format_](deployment, notes + options)


def usual(deployment: Deployment) -> Format:
    """Return the format that applies most of a deployment by itself: options of a session are code."""
    return Format.PYTHON if deployment.options else Format.SH


def option_note(name: str, value: int | str) -> str:
    """Return what to do about an option of the session: no variable carries it."""
    return f"Let your own code make the session with {name}: {value}"


def argument_note(name: str, value: int | str) -> str:
    """Return what to do about an argument: no variable carries it, so that the program itself has to be changed."""
    return f"Set the {name.replace('_', ' ')} in your own code: {value}"


def processes_note(n: int) -> str:
    """Return what to do about the number of processes."""
    return f"Run {n} processes of the program at the same time, each with these settings."


def _notes(deployment: Deployment) -> list[str]:
    if not deployment:
        return [_NOTHING]
    notes = [] if deployment.env or deployment.options or deployment.cpus else ["Keep the default threads."]
    notes += [processes_note(deployment.processes)] if deployment.processes > 1 else []
    return notes + [argument_note(name, value) for name, value in deployment.arguments.items()]


def _cpu_notes(deployment: Deployment, how: str) -> list[str]:
    """Return the note on how to keep the program to its CPUs, if it is to be; `{}` is their list."""
    cpus = deployment.cpus
    return [] if cpus is None else [f"Restrict the program to CPUs {cpus}: " + how.format(cpus)]


def _commented(notes: list[str], lines: list[str]) -> str:
    return "\n".join([f"# {' '.join(note.split())}" for note in notes] + lines) + "\n"


def _sh(deployment: Deployment, notes: list[str]) -> str:
    notes = notes + _cpu_notes(deployment, "start it with taskset -c {}.")
    return _commented(notes, [f"export {name}={shlex.quote(value)}" for name, value in deployment.env.items()])


def _dotenv(deployment: Deployment, notes: list[str]) -> str:
    """Single quotes where a value has characters that readers of the format take differently."""
    notes = notes + _cpu_notes(deployment, "start it with taskset -c {}.")
    lines = [
        f"{name}={value if _DOTENV_PLAIN.fullmatch(value) else _single(value)}"
        for name, value in deployment.env.items()
    ]
    return _commented(notes, lines)


def _single(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _docker(deployment: Deployment, notes: list[str]) -> str:
    notes = notes + _cpu_notes(deployment, "docker run --cpuset-cpus={}.")
    lines = [f"ENV {name}={_double(value, escape_dollar=True)}" for name, value in deployment.env.items()]
    return _commented(notes, lines)


def _double(value: str, *, escape_dollar: bool = False) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (text.replace("$", "\\$") if escape_dollar else text) + '"'


def _k8s(deployment: Deployment, notes: list[str]) -> str:
    """An `env:` list for a container; every value is a string, as Kubernetes demands."""
    notes = notes + _cpu_notes(deployment, "let its command begin with taskset -c {}.")
    if not deployment.env:
        return _commented(notes, ["env: []"])
    lines = ["env:"]
    for name, value in deployment.env.items():
        lines += [f"  - name: {name}", f"    value: {json.dumps(value)}"]
    return _commented(notes, lines)


def _systemd(deployment: Deployment, notes: list[str]) -> str:
    """`Environment=` lines; % begins a specifier there and is doubled."""
    lines = [f"Environment={_double(f'{n}={v}').replace('%', '%%')}" for n, v in deployment.env.items()]
    return _commented(notes, [*lines, *([] if deployment.cpus is None else [f"CPUAffinity={deployment.cpus}"])])


def _python(deployment: Deployment, notes: list[str], session: list[str]) -> str:
    lines = [f"os.environ[{json.dumps(name)}] = {json.dumps(value)}" for name, value in deployment.env.items()]
    if deployment.cpus is not None:
        lines.append(f"os.sched_setaffinity(0, {sorted(parse_list(deployment.cpus))})")
    before = ["Run this before the framework is imported: it reads the variables once."] if lines else []
    if PRELOAD in deployment.env:
        before.append(f"{PRELOAD} has no effect from here: set it where the interpreter is started.")
    lines = ["import os", "", *lines] if lines else []
    return _commented(notes + before, [*lines, *([""] if lines and session else []), *session])


def _json(deployment: Deployment, notes: list[str]) -> str:
    del notes  # JSON has no comments
    return json.dumps(deployment.to_dict(), indent=2) + "\n"


_WRITERS: dict[Format, Callable[[Deployment, list[str]], str]] = {
    Format.SH: _sh,
    Format.DOTENV: _dotenv,
    Format.DOCKER: _docker,
    Format.K8S: _k8s,
    Format.SYSTEMD: _systemd,
    Format.JSON: _json,
}
