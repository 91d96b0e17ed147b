"""Only one search measures at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tuner.errors import MachineBusyError
from tuner.machine.exclusive import measuring_alone

ADDRESS = f"\0tftune-test-{os.getpid()}"
HOLDER = """
import sys, time
from tuner.machine.exclusive import measuring_alone
with measuring_alone(address="\\0" + sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(seconds: float) -> subprocess.Popen[str]:
    """Start a process that holds the right for so long."""
    made = subprocess.Popen(
        [sys.executable, "-c", HOLDER, ADDRESS[1:], str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "held\n"
    made.stdout.close()
    return made


def test_a_second_is_refused_in_one_line_that_says_who() -> None:
    other = holder(60)
    with pytest.raises(MachineBusyError) as caught, measuring_alone(address=ADDRESS):
        pass
    assert f"process {other.pid}" in str(caught.value)
    assert "\n" not in str(caught.value)
    other.kill()
    other.wait()


def test_the_right_of_a_killed_process_is_free_at_once() -> None:
    other = holder(60)
    other.kill()
    other.wait()
    with measuring_alone(address=ADDRESS):
        pass
    with measuring_alone(address=ADDRESS):
        pass


def test_waiting_says_so_once_and_goes_on() -> None:
    other = holder(1.5)
    lines: list[str] = []
    with measuring_alone(wait=True, waiting=lines.append, address=ADDRESS):
        other.wait()
    assert len(lines) == 1
