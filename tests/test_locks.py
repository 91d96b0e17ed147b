"""Only one search measures at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tuner.errors import MachineBusyError
from tuner.machine.locks import machine_lock

ADDRESS = f"\0tftune-test-{os.getpid()}"
HOLDER = """
import sys, time
from tuner.machine.locks import machine_lock
with machine_lock(address="\\0" + sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(seconds: float) -> subprocess.Popen[str]:
    """Start a process that holds the right for so long."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, ADDRESS[1:], str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.stdout.close()
    return process


def test_a_second_is_refused_in_one_line_that_says_who() -> None:
    other = holder(60)
    with pytest.raises(MachineBusyError) as caught, machine_lock(address=ADDRESS):
        pass
    assert f"process {other.pid}" in str(caught.value)
    assert "\n" not in str(caught.value)
    other.kill()
    other.wait()


def test_the_right_of_a_killed_process_is_free_at_once() -> None:
    other = holder(60)
    other.kill()
    other.wait()
    with machine_lock(address=ADDRESS):
        pass
    with machine_lock(address=ADDRESS):
        pass


def test_waiting_says_so_once_and_goes_on() -> None:
    other = holder(60)
    lines: list[str] = []

    def on_wait(line: str) -> None:
        lines.append(line)
        other.kill()

    with machine_lock(wait=True, on_wait=on_wait, address=ADDRESS):
        other.wait()
    assert len(lines) == 1
