"""Processes that misbehave, for real: whatever they do, the trial gets its kind and nothing stays behind.

A script stands in for the interpreter here, so that each kind of bad end takes milliseconds; real TensorFlow
does the same in test_tensorflow.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.processes import gone, wait_until
from tuner import inherited
from tuner.child import effective
from tuner.trial.fresh import interpreter
from tuner.trial.outcome import ReadyReport, Status, TrialFailure, way_out
from tuner.trial.process import ChildProcess

READY = {
    "report": "ready",
    "import_s": 1,
    "context_at_s": 1,
    "load_s": 1,
    "first_step_s": 1,
    "warm_up": {"start_s": 0, "elapsed_s": 1, "n_steps": 1, "step_s": [1]},
    "effective": {},
}
PRELUDE = f"""#!{sys.executable}
import json, os, signal, subprocess, sys, time
commands, reports = int(sys.argv[4]), int(sys.argv[5])
def tell(report): os.write(reports, (json.dumps(report) + "\\n").encode())
READY = {READY!r}
"""
MakeChild = Callable[..., ChildProcess]


@pytest.fixture
def child(tmp_path: Path) -> MakeChild:
    """Return a maker of processes whose interpreter is a script with the given body."""

    def make(
        body: str, deadline_s: float = 20.0, audit_failure: Callable[[ReadyReport], str | None] | None = None
    ) -> ChildProcess:
        script = tmp_path / "interpreter"
        script.write_text(PRELUDE + body)
        script.chmod(0o755)
        return ChildProcess(
            interpreter(script, dict(os.environ), {"do": "time"}), deadline_s, audit_failure=audit_failure
        )

    return make


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("sys.exit(3)", Status.CRASHED, "exit code 3"),
        ("os.abort()", Status.CRASHED, "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Status.CRASHED, "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", Status.CRASHED, "SIGKILL"),
        ("os.write(reports, b'garbage\\n'); time.sleep(60)", Status.FAILED, "the process sent an invalid report:"),
        ("os.write(reports, b'[1]\\n'); time.sleep(60)", Status.FAILED, "the process sent an invalid report:"),
        ("tell({'report': 'slice'}); time.sleep(60)", Status.FAILED, "instead of 'ready'"),
        ("tell({'report': 'failure', 'kind': 'oom', 'message': 'too big'})", Status.OOM, "too big"),
        ("tell({'report': 'failure', 'kind': 'invalid', 'message': 'NaN'})", Status.INVALID, "NaN"),
    ],
)
def test_bad_ends(child: MakeChild, body: str, status: Status, message: str) -> None:
    process = child("print('last words', flush=True)\n" + body)
    with pytest.raises(TrialFailure) as caught:
        process.ready()
    assert caught.value.status is status
    assert message in caught.value.message
    assert "last words" in caught.value.log
    assert gone(process.pid)


def test_an_interpreter_that_cannot_start_is_a_crash_with_the_reason(tmp_path: Path) -> None:
    process = ChildProcess(interpreter(tmp_path / "nowhere", dict(os.environ), {}), 20.0)
    with pytest.raises(TrialFailure, match="exit code 127") as caught:
        process.ready()
    assert "cannot start" in caught.value.log


def test_a_file_in_the_place_of_a_module_is_named(
    child: MakeChild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('mine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(inherited, "_kept", None)
    process = child("import traceback\ntry:\n    import numpy\nexcept RuntimeError: traceback.print_exc()\n"
                    "tell({'report': 'failure', 'kind': 'failed', 'message': 'RuntimeError: mine'})")  # fmt: skip
    with pytest.raises(TrialFailure) as caught:
        process.ready()
    found = f"{tmp_path}/numpy.py, found through PYTHONPATH, takes the place of the package numpy"
    assert caught.value.message == f"RuntimeError: mine; {found}"
    assert caught.value.hint == way_out(Status.FAILED, caught.value.message, otherwise="x") == inherited.RENAME


@pytest.mark.parametrize("code", [-9, 137])
def test_a_process_that_the_kernel_kills_for_memory_is_told_as_that(
    child: MakeChild, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    kills = iter((0, 1))
    monkeypatch.setattr("tuner.trial.process.oom_kills", lambda: next(kills))
    process = child("sys.exit(137)" if code > 0 else "os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(TrialFailure, match="the kernel killed the process because memory ran out") as caught:
        process.ready()
    assert caught.value.status is Status.OOM


def test_a_hang_ends_at_its_deadline(child: MakeChild) -> None:
    process = child("time.sleep(600)", deadline_s=0.5)
    began = time.monotonic()
    with pytest.raises(TrialFailure) as caught:
        process.ready()
    assert caught.value.status is Status.TIMEOUT
    assert time.monotonic() - began < 3
    assert gone(process.pid)


def test_a_process_that_ignores_every_signal_ends_all_the_same(child: MakeChild) -> None:
    process = child(
        "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
        "tell(READY)\nwhile True: time.sleep(1)"
    )
    process.ready()
    process.close()
    assert gone(process.pid)


def test_grandchildren_end_too_even_in_sessions_of_their_own(child: MakeChild) -> None:
    process = child(
        "a = subprocess.Popen(['sleep', '600'])\n"
        "b = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        # An orphan: its parent ends, and the guard adopts it.
        "c = int(subprocess.run(['sh', '-c', 'setsid sleep 600 >/dev/null 2>&1 & echo $!'],"
        " capture_output=True).stdout)\n"
        "tell(dict(READY, effective={'pids': [a.pid, b.pid, c]}))\ntime.sleep(600)"
    )
    pids = process.ready().effective["pids"]
    assert not any(gone(pid) for pid in pids)
    process.close()
    assert all(gone(pid) for pid in [process.pid, *pids])


def test_a_chatty_process_does_not_block_and_its_last_words_are_kept(child: MakeChild) -> None:
    process = child("sys.stdout.write('x' * 3_000_000 + 'the end'); sys.stdout.flush(); tell(READY); time.sleep(60)")
    process.ready()
    process.close()
    log = process.log_tail()
    assert log.endswith("the end")
    assert len(log) <= 16_384


def test_a_long_report_arrives_whole(child: MakeChild) -> None:
    process = child("tell(dict(READY, effective={'long': 'x' * 1_000_000})); time.sleep(60)")
    assert len(process.ready().effective["long"]) == 1_000_000
    process.close()


def test_a_paused_process_does_nothing(child: MakeChild, tmp_path: Path) -> None:
    counter = tmp_path / "count"
    process = child(
        "tell(READY)\nn = 0\nwhile True:\n    n += 1\n"
        f"    open({str(counter)!r}, 'w').write(str(n))\n    time.sleep(0.01)"
    )
    process.ready()
    assert wait_until(lambda: counter.exists() and counter.read_text() not in ("", "0"))
    process.pause()
    assert wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    before = counter.read_text()
    time.sleep(0.15)
    assert counter.read_text() == before
    process.resume()
    assert wait_until(lambda: counter.read_text() not in ("", before))
    process.pause()
    process.close()  # a stopped process ends as any other
    assert gone(process.pid)


def test_the_exit_tells_the_peak_memory_of_this_process(child: MakeChild) -> None:
    process = child("block = bytearray(200 << 20)\ntell(READY)\ntime.sleep(60)")
    process.ready()
    ended = process.close()
    assert ended.returncode == -signal.SIGKILL
    assert 200 << 20 < (ended.peak_memory_bytes or 0) < 300 << 20
    assert process.close() == ended


def test_a_slice_is_asked_for_and_read(child: MakeChild) -> None:
    process = child(
        "tell(READY)\n"
        "for line in os.fdopen(commands):\n"
        "    s = json.loads(line)['slice_s']\n"
        "    tell({'report': 'timed'})\n"
        "    tell({'report': 'slice', 'start_s': 0, 'elapsed_s': s, 'n_steps': 2, 'step_s': [s / 2] * 2})"
    )
    process.ready()
    assert process.slice(0.25).step_s == (0.125, 0.125)
    process.close()


def test_threads_that_move_after_the_warm_up_are_audited_again(child: MakeChild) -> None:
    process = child(
        "tell(READY)\n"
        "for line in os.fdopen(commands):\n"
        "    tell({'report': 'timed'})\n"
        "    ran = {'start_s': 0, 'elapsed_s': 1, 'n_steps': 1, 'step_s': [1]}\n"
        "    tell(dict(ran, report='slice', effective={'new': 1}))",
        audit_failure=lambda facts: "it moved" if "new" in facts.effective else None,
    )
    process.ready()
    with pytest.raises(TrialFailure, match="it moved") as caught:
        process.slice(0.25)
    assert caught.value.status is Status.UNAPPLIED


def test_the_cpus_of_all_threads_are_seen() -> None:
    """Here of a thread that is pinned by itself, which the process's own mask does not show."""
    everywhere, pinned, done = effective.affinities(), threading.Event(), threading.Event()

    def pin() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        pinned.set()
        done.wait(10.0)

    thread = threading.Thread(target=pin)
    thread.start()
    pinned.wait(10.0)
    try:
        assert effective.affinities() == everywhere | {str(min(os.sched_getaffinity(0)))}
    finally:
        done.set()
        thread.join()


def test_a_death_between_slices_is_told_at_the_next(child: MakeChild) -> None:
    process = child("tell(READY)\ntime.sleep(0.1)\nos.abort()")
    process.ready()
    assert wait_until(lambda: gone(process.pid))
    with pytest.raises(TrialFailure, match="SIGABRT"):
        process.slice(0.1)


TUNER = """
import json, os, sys, time
from pathlib import Path
from tuner.trial.fresh import interpreter
from tuner.trial.process import ChildProcess
process = ChildProcess(interpreter(Path(sys.argv[1]), dict(os.environ), {}), 60.0)
print(json.dumps([os.getpid(), process.guard_pid, process.pid, *process.ready().effective["pids"]]), flush=True)
if sys.argv[2] == "paused":
    process.pause()
time.sleep(600)
"""


@pytest.mark.alone  # it says within which time
@pytest.mark.parametrize("state", ["running", "paused"])
def test_when_the_tuner_is_killed_nothing_is_left_within_two_seconds(tmp_path: Path, state: str) -> None:
    script = tmp_path / "interpreter"
    script.write_text(
        PRELUDE
        + "b = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        + "tell(dict(READY, effective={'pids': [b.pid]}))\ntime.sleep(600)"
    )
    script.chmod(0o755)
    tuner = subprocess.Popen([sys.executable, "-c", TUNER, str(script), state], stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    pids = json.loads(tuner.stdout.readline())
    time.sleep(0.1)
    assert not any(gone(pid) for pid in pids)
    tuner.kill()
    tuner.wait()
    tuner.stdout.close()
    assert wait_until(lambda: all(gone(pid) for pid in pids), 2.0)


def test_when_the_guard_is_killed_the_process_ends_with_it(child: MakeChild) -> None:
    process = child("tell(READY)\ntime.sleep(600)")
    process.ready()
    os.kill(process.guard_pid, signal.SIGKILL)
    assert wait_until(lambda: gone(process.pid))
    with pytest.raises(TrialFailure):
        process.slice(0.1)


def test_the_kernel_is_told_to_take_the_trial_first(child: MakeChild) -> None:
    process = child("tell(READY)\ntime.sleep(60)")
    process.ready()
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == "1000"
    assert Path("/proc/self/oom_score_adj").read_text().strip() != "1000"
    process.close()
