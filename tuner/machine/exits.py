"""How a process ended, in words: a signal with what usually causes it, and the reason among what it printed.

A short program is run to its end here (`captured`).
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

_SHELL_BASE = 128  # a shell reports signal n of what it ran as exit code 128 + n
_NO_SHELLS = ("SIGHUP", "SIGTRAP")  # programs use 129 and 133 for errors of their own
_LONGEST = 400  # characters of a reason, from its front: lists of frames follow it
_OF_SHELLS = {
    124: "a time limit, such as the one of timeout, may have ended it",
    126: "what it ran may not be executed",
    127: "what it ran was not found",
}
_SEE_HELP = re.compile(r"(?i)\W*(?:run|see|try|use|type|for|more)\b.*(?:--?h(?:elp)?\b|\bman \w)")  # no reason
_CAUSES = {
    "SIGILL": ("illegal instruction", "this build needs instructions, such as AVX, that this CPU does not have"),
    "SIGSEGV": ("segmentation fault", "native code crashed; often two libraries do not fit together"),
    "SIGABRT": ("abort", "a native library gave up"),
    "SIGBUS": ("bus error", "a disk or shared memory (/dev/shm) is full, or a mapped file was cut"),
    "SIGFPE": ("arithmetic error", "native code divided by zero"),
    "SIGKILL": ("", "the machine or the container may be out of memory"),
    "SIGTERM": ("", "something asked it to end, such as a scheduler or a container that stops"),
    "SIGHUP": ("", "its terminal was closed"),
    "SIGINT": ("interrupt", "something sent it Ctrl-C"),
    "SIGXCPU": ("", "a limit on CPU time is reached"),
    "SIGXFSZ": ("", "a limit on the size of files is reached"),
    "SIGSYS": ("bad system call", "a sandbox, such as seccomp, forbids a system call"),
    "SIGPIPE": ("", "what read its output ended first"),
    "SIGTRAP": ("trap", "native code hit a built-in check"),
}
_REMEDIES = {
    "SIGILL": "install a build that was made for this CPU, or choose another interpreter with --python",
    "SIGKILL": "free some memory, or raise the container's limit",
    "SIGBUS": "free some space on the disk and in /dev/shm",
    "SIGTERM": "run the same command again",
    "SIGXCPU": "raise the limit on CPU time, see ulimit -t",
    "SIGXFSZ": "raise the limit on the size of files, see ulimit -f",
}
_REASONS = re.compile(
    r"OMP: Error|Check failed|terminate called|what\(\):|Fatal Python error|Assertion .*failed|was compiled to use"
    r"|(?:free|malloc|realloc|munmap_chunk)\(\): |double free|corrupted|stack smashing|Cannot allocate memory"
    r"|std::bad_alloc|symbol lookup error|error while loading shared libraries|cannot open shared object|GLIBCXX?_"
    r"|No space left on device|[Ii]llegal instruction|CUDA error|^F\d{4} |: F .*\] "
    r"|^panic: |panicked at|CHECK failed|libc\+\+abi: terminating|buffer overflow detected|ERROR: \w+Sanitizer"
    r"|MKL (?:FATAL )?ERROR|pthread_create failed|compiled using NumPy 1\.x|Descriptors cannot",
    re.MULTILINE,
)


def captured(
    words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with nothing to read, and return what it printed; raises OSError and TimeoutExpired."""
    return subprocess.run(
        words,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def ended_text(returncode: int | None, log: str = "") -> str:
    """Return how a process ended, such as `was killed by SIGILL (illegal instruction): …`.

    A negative `returncode` is a signal's, as `subprocess` reports it. `log` is what the process printed: a library that
    aborts says why.
    """
    if returncode is None:
        return "ended, and nothing is known of how"
    number = -returncode if returncode < 0 else returncode - _SHELL_BASE
    name = signal_name(number)
    if returncode >= 0 and (name not in _CAUSES or name in _NO_SHELLS):
        # The loader of libraries ends a process with 127, too, and says why.
        cause = (reason_in(log) or _OF_SHELLS[returncode]) if returncode in _OF_SHELLS else ""
        return f"ended with exit code {returncode}" + (f": {cause}" if cause else "")
    title, cause = _CAUSES.get(name, ("", ""))
    if name == "SIGABRT":
        cause = reason_in(log) or cause
    killed = f"killed by {name}" + (f" ({title})" if title else "") + (f": {cause}" if cause else "")
    return f"was {killed}" if returncode < 0 else f"ended with exit code {returncode}: what it ran was {killed}"


def remedy(returncode: int | None) -> str | None:
    """Return what to do about a signal that ended a process, None where that depends on the program."""
    return _REMEDIES.get(signal_name(-returncode)) if returncode is not None and returncode < 0 else None


def remedy_in(text: str) -> str | None:
    """Return what to do about a signal that a text of `ended_text` names, None where that depends on the program."""
    killed = re.search(r"killed by (SIG\w+)", text)
    return None if killed is None else _REMEDIES.get(killed[1])


def signal_name(number: int) -> str:
    """Return the name of a signal, of the real-time ones too, which have only numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reason_in(log: str) -> str:
    """Return the front of what a library printed before it ended the process, "" where nothing looks like that."""
    begin = reason_at(log)
    lines = [] if begin is None else [line.strip() for line in log[begin:].splitlines()]
    is_two = bool(lines) and lines[0].startswith(("terminate called", "OMP: Error"))
    return " ".join(lines[: 2 if is_two else 1])[:_LONGEST]


def reason_at(log: str) -> int | None:
    """Return where the first line begins that looks like the reason of a library, None if none does."""
    reason = _REASONS.search(log)
    return None if reason is None else log.rfind("\n", 0, reason.start()) + 1


def last_words(log: str) -> str:
    """Return the reason that a process printed, else its last line, "" where it printed nothing.

    Many programs print the reason first, and then where their help is.
    """
    lines = [line.strip()[:_LONGEST] for line in reversed(log.splitlines()) if line.strip()]
    return reason_in(log) or next((line for line in lines if not _SEE_HELP.match(line)), lines[0] if lines else "")
