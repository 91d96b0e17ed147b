"""One contract for both launchers, fresh interpreters and forks, and what only forks can get wrong: real TensorFlow."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.conftest import setting
from tests.frameworks import deployed
from tests.processes import gone, wait_until
from tuner.errors import TunerError
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.space.deployment import Deployment
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher, Process, Target
from tuner.trial.outcome import Status, TrialFailure
from tuner.workload.spec import WorkloadSpec

pytestmark = pytest.mark.tensorflow

N_CPUS = len(os.sched_getaffinity(0))
FIRST_CPU = min(os.sched_getaffinity(0))
ONE = setting(inter_op=1, intra_op=1, batch_size=8)
ODD = setting(inter_op=3, intra_op=5, batch_size=8)

# A model small enough to come up as soon as TensorFlow does; what its inputs do on the way comes from a variable.
WORKLOAD = """
'''A product with a fixed matrix.'''
import os, signal, subprocess, sys, time
BATCH_SIZE = 8
def build():
    import tensorflow as tf
    w = tf.Variable(tf.ones((64, 64)))
    return lambda x: tf.linalg.matmul(x, w)
def inputs(batch_size):
    import numpy as np
    given = {"given": (np.ones((batch_size, 64), np.float32),), "np": np, "batch_size": batch_size}
    exec(os.environ.get("TFTUNE_TEST_BODY", ""), globals(), given)
    return given["given"]
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job on this interpreter."""
    path = tmp_path_factory.mktemp("workload") / "product.py"
    path.write_text(WORKLOAD)
    return prepare(parse_request(SearchRequest(workload=WorkloadSpec.of_name(str(path))), stores=False))


@pytest.fixture(scope="module")
def target(job: Job) -> Target:
    """What the processes have in common."""
    job.export()
    return job.target()


@pytest.fixture(scope="module")
def forks(target: Target) -> Iterator[ForkLauncher]:
    """One launcher of forks for the whole file; it must never have to say anything."""

    def told(line: str) -> None:
        raise AssertionError(line)

    with closing(ForkLauncher(target, notify=told)) as launcher:
        yield launcher


@pytest.fixture(params=["fresh", "fork"])
def launcher(request: pytest.FixtureRequest, target: Target, forks: ForkLauncher) -> Launcher:
    """Each launcher in turn."""
    return FreshLauncher(target=target) if request.param == "fresh" else forks


def launch(launcher: Launcher, body: str = "", **env: str) -> Process:
    return launcher.launch(ONE, deployed(ONE) | Deployment(env={"TFTUNE_TEST_BODY": body} | env))


def failure(process: Process) -> TrialFailure:
    with pytest.raises(TrialFailure) as caught:
        process.ready()
        process.slice(0.1)
    return caught.value


# ---- the contract of both -------------------------------------------------------------------------------------


def test_the_setting_holds_in_the_process(launcher: Launcher) -> None:
    process = launcher.launch(ODD, deployed(ODD))
    facts = process.ready()
    assert facts.effective["context"]["created"] == 3 + 5 + 1
    assert process.slice(1.0).n_steps > 10
    process.close()


def test_a_process_goes_on_with_other_batch_sizes(launcher: Launcher) -> None:
    process = launch(launcher)
    first = process.ready()
    peak_bytes = process.peak_memory_bytes
    assert peak_bytes is not None
    process.pause()
    process.resume()
    assert [process.slice(0.05).resumed for _ in range(2)] == [True, False]
    large = process.set_batch_size(1_000_000)  # a quarter of a gigabyte of inputs
    assert large.effective == first.effective
    assert (large.import_s, large.context_s, large.load_s) == (0.0, 0.0, 0.0)
    assert large.sample is None or first.sample is None or large.sample["inputs"] == first.sample["inputs"]
    assert large.step_s > 20 * first.step_s
    process.slice(0.05)
    peak = process.peak_memory_bytes
    assert peak is not None
    assert peak > peak_bytes + (1 << 28)
    small = process.set_batch_size(8)
    few = process.slice(0.5)
    assert few.n_steps > 10
    assert statistics.median(few.step_s) < 0.1 * large.step_s
    assert small.step_s < 0.1 * large.step_s
    assert process.peak_memory_bytes < peak  # the most that this batch size holds, not the one before
    process.close()


def test_a_batch_that_fails_ends_its_process_and_is_told(launcher: Launcher) -> None:
    process = launch(launcher, "if batch_size == 64: raise MemoryError('no room')")
    process.ready()
    assert process.slice(0.05).n_steps > 0
    with pytest.raises(TrialFailure, match="no room") as caught:
        process.set_batch_size(64)
    assert caught.value.status is Status.OOM
    process.close()
    assert gone(process.pid)  # type: ignore[attr-defined]


def test_the_environment_of_one_process_is_not_that_of_the_next(launcher: Launcher) -> None:
    process = launch(launcher, "import os\nos.environ['TFTUNE_TEST_MARK'] = '1'", TFTUNE_TEST_OTHER="1")
    process.ready()
    process.close()
    check = "assert 'TFTUNE_TEST_MARK' not in os.environ and 'TFTUNE_TEST_OTHER' not in os.environ"
    process = launch(launcher, check)
    process.ready()
    process.close()


def test_phases_are_told(launcher: Launcher) -> None:
    process = launch(launcher)
    facts = process.ready()
    assert 0 < facts.context_s < 60
    assert min(facts.import_s, facts.load_s, facts.first_step_s) >= 0
    ended = process.close()
    assert (ended.peak_memory_bytes or 0) > 100 << 20


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", Status.CRASHED, "SIGSEGV"),
        ("os._exit(9)", Status.CRASHED, "exit code 9"),
        ("sys.exit(5)", Status.FAILED, "SystemExit: 5"),
    ],
)
def test_however_a_process_ends_it_is_known(launcher: Launcher, body: str, status: Status, message: str) -> None:
    check_failure(launcher, body, status, message)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("raise RuntimeError('no data')", Status.FAILED, "RuntimeError: no data"),
        (
            "import tensorflow as tf; tf.config.threading.set_inter_op_parallelism_threads(7)",
            Status.UNAPPLIED,
            "the workload itself sets 7 threads",
        ),
        ("given = (np.full((batch_size, 64), np.nan, np.float32),)", Status.INVALID, "not finite"),
        ("given = (np.ones((1 << 45, 64), np.float32),)", Status.OOM, "allocate"),
        ("given = 5", Status.FAILED, "returned int, expected a tuple"),
    ],
)
def test_what_is_reported_of_bad_workloads(forks: ForkLauncher, body: str, status: Status, message: str) -> None:
    """By the worker itself, whoever started it."""
    check_failure(forks, body, status, message)


def check_failure(launcher: Launcher, body: str, status: Status, message: str) -> None:
    process = launch(launcher, body)
    caught = failure(process)
    assert caught.status is status, caught.message
    assert message in caught.message
    assert gone(process.pid)


def test_last_words_are_kept(launcher: Launcher) -> None:
    caught = failure(launch(launcher, "print('famous last words', flush=True); os.abort()"))
    assert (caught.status, "famous last words" in caught.log) == (Status.CRASHED, True)


def test_a_hang_ends_at_its_deadline(launcher: Launcher, target: Target) -> None:
    short = replace(target, deadline_s=6.0)
    launcher = FreshLauncher(target=short) if isinstance(launcher, FreshLauncher) else ForkLauncher(short, notify=print)
    try:
        caught = failure(launch(launcher, "time.sleep(600)"))
        assert (caught.status, "within 6 s" in caught.message) == (Status.TIMEOUT, True)
    finally:
        if isinstance(launcher, ForkLauncher):
            launcher.close()


def test_grandchildren_end_with_the_process(launcher: Launcher, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    body = (
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))"
    )
    process = launch(launcher, body)
    process.ready()
    grandchild = int(note.read_text())
    assert not gone(grandchild)
    process.close()
    assert gone(process.pid)
    assert gone(grandchild)


def test_a_paused_process_does_nothing(launcher: Launcher) -> None:
    process = launch(launcher)
    process.ready()
    process.pause()
    assert wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    used = psutil.Process(process.pid).cpu_times()
    time.sleep(0.2)
    assert psutil.Process(process.pid).cpu_times() == used
    process.resume()
    assert process.slice(0.05).n_steps > 0
    process.close()


def test_the_kernel_is_to_take_the_trial_first_and_ctrl_c_does_not_reach_it(launcher: Launcher) -> None:
    process = launch(launcher)
    process.ready()
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == "1000"
    assert os.getsid(process.pid) == process.pid
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    ignored = int(next(line for line in status if line.startswith("SigIgn")).split()[1], 16)
    assert not ignored >> 1 & 1  # SIGINT is not ignored in there: a workload may rely on it
    process.close()


def test_cpus_are_kept_to(launcher: Launcher) -> None:
    pinned_setting = ONE.with_values(cpus=str(FIRST_CPU))
    process = launcher.launch(pinned_setting, deployed(pinned_setting))
    assert process.ready().effective["mask"] == str(FIRST_CPU)
    process.close()


def test_cpus_that_the_workload_changes_are_not_those_of_the_setting(launcher: Launcher) -> None:
    if N_CPUS < 2:
        pytest.skip("with one CPU there is no other one to move to")
    other = max(os.sched_getaffinity(0))
    pinned_setting = ONE.with_values(cpus=str(FIRST_CPU))
    body = f"os.sched_setaffinity(0, {{{other}}})"
    caught = failure(
        launcher.launch(pinned_setting, deployed(pinned_setting) | Deployment(env={"TFTUNE_TEST_BODY": body}))
    )
    assert caught.status is Status.UNAPPLIED
    assert f"lets the process use CPU {other}, and it was given CPU {FIRST_CPU}" in caught.message


def test_processes_that_the_workload_starts_by_multiprocessing(launcher: Launcher, tmp_path: Path) -> None:
    """They import the main module again, which must not make workers of them."""
    note = tmp_path / "answer"
    body = (
        "import multiprocessing, operator\n"
        "with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        f"    open({str(note)!r}, 'w').write(str(pool.apply(operator.add, (20, 22))))"
    )
    process = launch(launcher, body)
    process.ready()
    process.close()
    assert note.read_text() == "42"


def test_a_knob_that_did_not_take_effect_makes_the_trial_unapplied(launcher: Launcher) -> None:
    caught = failure(launcher.launch(ONE, deployed(ONE) | Deployment(env={"TF_NUM_INTEROP_THREADS": "2"})))
    assert caught.status is Status.UNAPPLIED
    assert "inter_op=1 did not take effect" in caught.message


# ---- forks only -----------------------------------------------------------------------------------------------


def test_a_fork_is_ready_sooner(target: Target, forks: ForkLauncher) -> None:
    def cpu_s(launcher: Launcher) -> float:
        """Return the CPU time (s) that a process takes until it is ready, however busy the machine is."""
        process = launch(launcher)
        process.ready()
        cpu_times = psutil.Process(process.pid).cpu_times()
        process.close()
        return cpu_times.user + cpu_times.system

    assert cpu_s(forks) < cpu_s(FreshLauncher(target=target))


def test_what_is_read_early_gets_a_server_of_its_own(target: Target, job: Job) -> None:
    if job.build.onednn_runtime != "threadpool":
        pytest.skip("this TensorFlow was built without oneDNN")
    with_onednn, off = (ONE.with_values(onednn=switch) for switch in (1, 0))
    with closing(ForkLauncher(target, notify=print)) as launcher:
        for asked, expected in ((with_onednn, True), (off, False), (with_onednn, True)):
            process = launcher.launch(asked, deployed(asked))
            assert process.ready().effective["onednn"] is expected
            process.close()
        assert len(launcher.servers()) == 2
        for number in range(3):
            switched = Deployment(env={"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": str(number)})
            process = launcher.launch(ONE, deployed(ONE) | switched)
            process.close()
        assert len(launcher.servers()) == 3  # the oldest made room


def test_a_server_that_dies_is_started_again_once_and_its_trials_live_on(target: Target) -> None:
    lines: list[str] = []
    with closing(ForkLauncher(target, notify=lines.append)) as launcher:
        first = launch(launcher)
        first.ready()
        psutil.Process(launcher.servers()[0].pid).kill()
        second = launch(launcher)
        second.ready()
        assert first.slice(0.05).n_steps > 0
        killed = "the fork server was killed by SIGKILL: the machine or the container may be out of memory"
        assert lines == [f"{killed}; starting it again"]
        psutil.Process(launcher.servers()[0].pid).kill()
        with pytest.raises(TunerError, match="the fork server crashed twice"):
            launch(launcher)
        for process in (first, second):
            process.close()
            assert gone(process.pid)


def test_a_server_that_is_killed_while_it_comes_up_does_not_refuse(target: Target) -> None:
    with closing(ForkLauncher(target, notify=lambda _: None)) as launcher:
        launcher.start_server()
        os.kill(launcher.servers()[0].pid, 9)
        assert not launcher.is_refused()  # the next launch starts another
        process = launch(launcher)
        process.ready()
        process.close()


def test_a_context_that_is_live_after_the_import_is_seen_and_fresh_interpreters_stand_in(
    target: Target, tmp_path: Path
) -> None:
    """Such as a site's own start-up file that uses TensorFlow."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'forkserver' in sys.orig_argv:\n    import tensorflow as tf\n    tf.constant(1.0)\n"
    )
    lines: list[str] = []
    environment = target.base_env | {"PYTHONPATH": str(tmp_path)}
    with closing(ForkLauncher(replace(target, base_env=environment), notify=lines.append)) as launcher:
        for _ in range(2):
            process = launch(launcher)
            assert process.ready().import_s > 0.3
            process.close()
        assert len(lines) == 1
        assert "fresh interpreters" in lines[0]
        assert "context" in lines[0]


def test_a_server_that_does_not_come_up_leaves_it_to_fresh_interpreters(target: Target, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'forkserver' in sys.orig_argv:\n    print('no licence', flush=True)\n    os._exit(3)\n"
    )
    lines: list[str] = []
    environment = target.base_env | {"PYTHONPATH": str(tmp_path)}
    with closing(ForkLauncher(replace(target, base_env=environment), notify=lines.append)) as launcher:
        process = launch(launcher)
        process.ready()
        process.close()
    assert lines == ["trials start fresh interpreters instead of forks: the fork server did not start: no licence"]


@pytest.mark.alone  # it says within which time
def test_nothing_is_left_when_the_tuner_is_killed(target: Target) -> None:
    script = f"""
import json, time
from pathlib import Path
from tests.frameworks import deployed
from tuner.space.setting import Setting
from tuner.trial.forking import ForkLauncher
from tuner.trial.launcher import Target
from tuner.workload.workload import load
target = Target(
    python=Path({str(target.python)!r}),
    framework=Path({str(target.framework)!r}),
    device=Path({str(target.device)!r}),
    base_env={dict(target.base_env)!r},
    workload=load({str(target.workload.path)!r}),
    folder=Path({str(target.folder)!r}),
)
launcher = ForkLauncher(target, notify=print)
one = Setting.of({ONE.to_dict()!r})
running, paused = (launcher.launch(one, deployed(one)) for _ in range(2))
running.ready(), paused.ready(), paused.pause()
print(json.dumps([launcher.servers()[0].pid, running.pid, paused.pid]), flush=True)
time.sleep(600)
"""
    tuner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert tuner.stdout is not None
    named = json.loads(tuner.stdout.readline())
    children = {child.pid for child in psutil.Process(tuner.pid).children(recursive=True)}
    assert children >= set(named)
    tuner.kill()
    tuner.wait()
    tuner.stdout.close()
    assert wait_until(lambda: all(gone(pid) for pid in children), 2.0)


def test_forks_leave_nothing_behind(forks: ForkLauncher) -> None:
    """A few here; the benchmark does it two hundred times."""

    def peak_bytes() -> tuple[int, int, int]:
        server = psutil.Process(forks.servers()[0].pid)
        return server.num_fds(), len(server.children(recursive=True)), psutil.Process().num_fds()

    process = launch(forks)
    process.ready()
    process.close()
    assert wait_until(lambda: peak_bytes()[1] == 0)  # the guard too
    before = peak_bytes()
    for _ in range(5):
        process = launch(forks)
        process.ready()
        process.close()
    assert wait_until(lambda: peak_bytes() == before)
