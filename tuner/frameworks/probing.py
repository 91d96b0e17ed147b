"""Asking an interpreter about a framework: where it is, without importing it; then what its child code finds there.

What it finds is remembered for as long as nothing that it depends on has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from tuner import inherited
from tuner.errors import BadInputError, TunerError
from tuner.identity import digest
from tuner.machine.exits import captured, ended_text, last_words, remedy
from tuner.paths import CHILD, boot_arguments, cache_dir, write_whole

_PROBE_TIMEOUT_S = 180.0
_LOCATE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedPackage:
    """A framework as an interpreter may have it: its `title`, the `package` that is imported, and what installs it.

    `folder` is its child code, which has a module `probe` with a function `describe` (`tuner.child.probe`).
    """

    title: str
    package: str
    install: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedBuild:
    """What the builds of all frameworks have; the field that is called as the package holds the framework's version."""

    subject: ClassVar[ProbedPackage]
    id: str
    python: str

    @property
    def version(self) -> str:
        """Return the framework's own version."""
        return str(getattr(self, self.subject.package))

    @property
    def title(self) -> str:
        """Return what it is called in a line."""
        return f"{self.subject.title} {self.version}"

    @property
    def fork_refusal(self) -> str | None:
        """Return why its processes cannot be forked from one that has imported it, None if they can."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the build as plain data."""
        return {"framework": self.subject.package, **asdict(self)}


def locate(python: Path, env: Mapping[str, str], subject: ProbedPackage) -> dict[str, Any]:
    """Return where an interpreter has a framework, and when that last changed, without importing it.

    Raises BadInputError where there is no such interpreter, or where it has no such framework.
    """
    try:
        locating = [str(python), *boot_arguments(CHILD, "probe"), "locate", subject.package]
        done = captured(locating, env=env, timeout_s=_LOCATE_TIMEOUT_S)
    except FileNotFoundError as error:
        raise BadInputError(f"no interpreter at {python}", "give --python the path of a Python executable") from error
    except subprocess.TimeoutExpired as error:
        raise BadInputError(
            f"{python} did not answer within {_LOCATE_TIMEOUT_S:.0f} s", "give --python a Python executable"
        ) from error
    except OSError as error:
        raise BadInputError(
            f"{python} is not a working Python interpreter: {error.strerror}", "give --python a Python executable"
        ) from error
    try:
        place: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if not isinstance(place, dict) or "executable" not in place:
            raise ValueError(place)
    except (ValueError, IndexError) as error:
        shadow = inherited.shadow(env, done.stderr)
        raise BadInputError(
            f"{python} does not start: {last_words(done.stderr)}; {shadow}"
            if shadow
            else f"{python} is not a working Python interpreter: it {_how(done)}",
            inherited.RENAME if shadow else remedy(done.returncode) or "give --python a Python executable",
        ) from error
    if place.get("origin") is None:
        raise BadInputError(
            f"{python} has no {subject.title}",
            f"install it: {shlex.quote(str(python))} -m pip install {subject.install}, or choose another interpreter "
            "with --python",
        )
    return place


def run_probe(
    python: Path, env: Mapping[str, str], subject: ProbedPackage, plan: Mapping[str, Any], *, function: str = "describe"
) -> tuple[dict[str, Any], str]:
    """Return what a function of a framework's module `probe` found, following a plan, and what it printed.

    Raises BadInputError where the framework does not work there.
    """
    with tempfile.TemporaryDirectory(prefix="tftune-probe-") as folder:
        out = Path(folder) / "facts.json"
        try:
            looking = [*boot_arguments(CHILD, "probe"), function, str(subject.folder), str(out), str(os.getpid())]
            done = captured([str(python), *looking, json.dumps(plan)], env=env, timeout_s=_PROBE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise TunerError(
                f"{subject.title} of {python} did not answer within {_PROBE_TIMEOUT_S:.0f} s",
                f"try: {shlex.quote(str(python))} -c 'import {subject.package}'",
            ) from error
        try:
            facts: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            facts = {"error": f"its process {_how(done)}"}
    if "error" in facts:
        shadow = inherited.shadow(env, f"{facts['error']}\n{done.stderr}")
        usual = remedy(done.returncode) or "fix that environment, or choose another interpreter with --python"
        raise BadInputError(
            f"{subject.title} does not work in {python}: {' '.join(facts['error'].split())}"
            + (f"; {shadow}" if shadow else ""),
            inherited.RENAME if shadow else usual,
        )
    return facts, done.stdout


def _how(done: subprocess.CompletedProcess[str]) -> str:
    """Return how an interpreter ended, with what it said."""
    how, reason = ended_text(done.returncode, done.stderr), last_words(done.stderr)
    if not reason:
        return how if done.returncode < 0 else f"{how}: no output"
    return how if reason in how else f"{how}: {reason}"


def remembered_facts(
    python: Path,
    env: Mapping[str, str],
    subject: ProbedPackage,
    *,
    switches: tuple[str, ...],
    looks: Sequence[object],
    plan: Mapping[str, Any] | None = None,
    verbose: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return what the probe of a framework finds, from the cache if that environment has not changed.

    `switches` are how variables begin that may change it, `looks` what else does, beside its child code and the plan.
    `verbose` are variables that make its libraries talk: what they `printed` is among the facts then. Raises
    BadInputError where there is no such interpreter, it has no such framework, or that does not work.
    """
    place = locate(python, env, subject)
    switched = {key: env[key] for key in sorted(env) if key.startswith(switches)}
    key = digest([place, switched, plan, *looks, sources(subject.folder)])
    file = cache_dir() / "builds" / f"{key}.json"
    with contextlib.suppress(OSError, TypeError, ValueError):  # it is not there, or cannot be read
        return dict(json.loads(file.read_text(encoding="utf-8")))
    facts, printed = run_probe(python, {**env, **verbose}, subject, plan or {})
    facts |= {"printed": printed} if verbose else {}
    if facts.get("refused") is None:  # what a passing circumstance hid must not stay hidden
        with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
            write_whole(file, json.dumps(facts).encode())
    return facts


def sources(*folders: Path) -> list[str]:
    """Return the code that looks, our own child code and that of these folders: another look may see something else."""
    return [path.read_text(encoding="utf-8") for folder in (CHILD, *folders) for path in sorted(folder.glob("*.py"))]


def cpu_flags() -> list[str]:
    """Return the instruction sets of the CPU, as the kernel names them."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "").split()
