"""What the machine did meanwhile: made trees, this machine, and the warnings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from msgspec import convert

from tests.conftest import QUIET
from tests.processes import wait_until
from tests.trees import add_cgroup_v1, add_cgroup_v2, write
from tuner.machine import conditions
from tuner.machine.conditions import Conditions, Reading, between, read
from tuner.measure.warning import ADVICE, Code, condition_warnings, merge
from tuner.result.study import WarningResult

HZ = os.sysconf("SC_CLK_TCK")


def stat(root: Path, *cpus: list[int]) -> None:
    """Write /proc/stat with these seconds of user, nice, system, idle, iowait, irq, softirq, steal for each CPU."""
    rows = [f"cpu{i} " + " ".join(str(s * HZ) for s in row) + " 0 0" for i, row in enumerate(cpus)]
    write(root, "proc/stat", "\n".join(["cpu  1 2 3 4", *rows, "intr 5"]))


def test_counters_of_the_cpus_in_the_mask(tmp_path: Path) -> None:
    stat(tmp_path, [10, 1, 5, 100, 7, 1, 2, 3], [20, 0, 0, 100, 0, 0, 0, 4], [1000, 0, 0, 0, 0, 0, 0, 99])
    write(tmp_path, "proc/pressure/cpu", "some avg10=0.00 avg60=0.04 avg300=3.87 total=2500000\nfull total=1")
    for cpu, mhz, hot in ((0, 2000, 1), (1, 3000, 2), (2, 9000, 50)):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq", str(mhz * 1000))
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count", str(hot))
    counters = read("0-1", tmp_path)
    assert counters.busy_s == pytest.approx(19 + 20)
    assert counters.steal_s == pytest.approx(7)
    assert counters.pressure_s == pytest.approx(2.5)
    assert (counters.mhz, counters.hot) == (2500, 3)


def test_counters_of_a_container_that_numbers_its_cpus_from_0(tmp_path: Path) -> None:
    stat(tmp_path, [10, 0, 0, 0, 0, 0, 0, 1], [20, 0, 0, 0, 0, 0, 0, 2])
    for mask in ("8-9", "1-2"):
        counters = read(mask, tmp_path)
        assert (counters.busy_s, counters.steal_s) == (pytest.approx(30), pytest.approx(3))
    assert read("1", tmp_path).busy_s == pytest.approx(20)


def test_a_pinned_process_and_unlike_cores_are_warned_of_first() -> None:
    seen = replace(
        QUIET, foreign_cpus=float(QUIET.n_cpus), pinned="pinned to CPU 0", unlike_cores="4 processes: unlike"
    )
    assert [each.code for each in condition_warnings(seen)][:2] == [Code.PINNED, Code.UNLIKE_CORES]
    strange = replace(QUIET, not_finite="y: 2 of 4 values are not finite (NaN)")
    [warning] = condition_warnings(strange)
    assert (warning.code, warning.observation) == (Code.NOT_FINITE, f"{strange.not_finite}, under the default")
    assert convert(seen.to_dict(), Conditions) == seen


def test_what_a_kernel_does_not_tell_is_unknown(tmp_path: Path) -> None:
    counters = read("0-1", tmp_path)
    assert (counters.pressure_s, counters.hot, counters.mhz) == (None, None, None)
    assert between(counters, counters, cpus="0-1").pressure_share is None


@pytest.mark.parametrize("version", [1, 2])
def test_the_time_that_a_quota_held_back(tmp_path: Path, version: int) -> None:
    if version == 2:
        text = "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000"
        add_cgroup_v2(tmp_path, "/a/b", {"a/b/cpu.stat": "throttled_usec 7", "a/cpu.stat": text})
    else:
        add_cgroup_v1(tmp_path, "/a", {"cpu/a/cpu.stat": "nr_periods 4\nthrottled_time 1500000000"})
    assert read("0", tmp_path).throttled_s == pytest.approx(1.5)


def test_shares_of_the_time_between() -> None:
    before = Reading(
        monotonic_s=100, boot_s=200, busy_s=50, steal_s=3, own_s=20, pressure_s=1, throttled_s=0.5, hot=2, mhz=2000
    )
    after = replace(
        before,
        monotonic_s=110,
        boot_s=240,
        busy_s=65,
        steal_s=4,
        own_s=25,
        pressure_s=6,
        throttled_s=1.5,
        hot=5,
        mhz=1000,
    )
    conditions = between(before, after, cpus="0-1")
    assert conditions.steal_share == pytest.approx(1 / 20)
    assert conditions.foreign_cpus == pytest.approx(1.0)
    assert conditions.pressure_share == pytest.approx(0.5)
    assert conditions.throttled_share == pytest.approx(0.1)
    assert (conditions.hot, conditions.mhz, conditions.asleep_s) == (3, 1500, 30)
    assert convert(conditions.to_dict(), Conditions) == conditions


def test_our_own_children_are_not_foreign() -> None:
    """Both a child that has ended and one that lives on count as ours, however busy they are."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    # They are busy for so much CPU time, however long that takes beside other tests.
    spin = "import time\nwhile time.process_time() < {}: pass"
    before = read(cpus)
    living = subprocess.Popen([sys.executable, "-c", spin.format(600)])
    try:
        subprocess.run([sys.executable, "-c", spin.format(0.8)], check=True)
        wait_until(lambda: sum(psutil.Process(living.pid).cpu_times()[:2]) > 0.6, 60.0)
        after = read(cpus)
    finally:
        living.kill()
        living.wait()
    assert after.own_s - before.own_s > 1.2
    assert after.busy_s - before.busy_s > 1.0
    assert between(before, after, cpus=cpus).asleep_s == pytest.approx(0.0, abs=0.1)
    assert conditions.suspended_s() >= 0.0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"foreign_cpus": 0.4}, Code.BUSY),
        ({"foreign_cpus": 1.4}, Code.OVERSUBSCRIBED),
        ({"foreign_cpus": 0.9, "pressure_share": 0.95}, Code.OVERSUBSCRIBED),
        ({"foreign_cpus": 0.9, "pressure_share": 0.3}, Code.BUSY),
        ({"steal_share": 0.1}, Code.STEAL),
        ({"throttled_share": 0.3}, Code.QUOTA),
        ({"hot": 4}, Code.HEAT),
        ({"asleep_s": 30.0}, Code.ASLEEP),
    ],
)
def test_each_disturbance_has_its_warning(change: dict[str, float], code: Code) -> None:
    assert [w.code for w in condition_warnings(replace(QUIET, **change))] == [code]


def test_a_quiet_machine_has_none_and_each_kind_comes_once() -> None:
    assert condition_warnings(QUIET) == []
    twice = condition_warnings(replace(QUIET, steal_share=0.1)), condition_warnings(replace(QUIET, steal_share=0.2))
    [only] = merge(*twice)
    assert "20 %" in only.observation
    assert WarningResult.of(only).advice


def test_every_warning_says_what_to_do() -> None:
    assert set(ADVICE) == set(Code)
