"""The other build, for real: intel-tensorflow 2.14, where OMP and KMP variables act.

`tftune env create openmp --dir .openmp` makes its environment; TFTUNE_OPENMP_PYTHON names another one.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.command_line import tftune
from tests.conftest import setting
from tests.frameworks import deployed
from tests.processes import wait_until
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.job import Job, prepare
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.machine.libraries import intel_openmp
from tuner.measure.objective import Objective
from tuner.measure.pair import log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.space.setting import Setting
from tuner.trial.forking import ForkLauncher
from tuner.trial.fresh import FreshLauncher
from tuner.trial.launcher import Launcher, Target
from tuner.trial.outcome import Status, TrialFailure
from tuner.workload.spec import WorkloadSpec

PYTHON = Path(os.environ.get("TFTUNE_OPENMP_PYTHON", Path(__file__).parents[1] / ".openmp/bin/python"))
N_CPUS = len(os.sched_getaffinity(0))

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(
        "TFTUNE_OPENMP_PYTHON" not in os.environ and not PYTHON.exists(),
        reason="needs the OpenMP build of TensorFlow: tftune env create openmp --dir .openmp",
    ),
]
BOUND = setting(
    inter_op=1, intra_op=2, omp_num_threads=2, kmp_affinity="granularity=fine,compact", kmp_blocktime=7, batch_size=8
)


@pytest.fixture(scope="module")
def job() -> Job:
    """The shipped workload on the OpenMP build, with every knob that the extended space has."""
    return prepare(
        parse_request(
            SearchRequest(workload=WorkloadSpec.of_name("resnet50"), python=str(PYTHON), space="extended"), stores=False
        )
    )


@pytest.fixture(scope="module")
def target(job: Job) -> Target:
    """What the processes have in common."""
    job.export()
    return job.target()


def test_the_probe_proves_that_every_variable_reaches_it(job: Job) -> None:
    runtime: Build = job.build
    assert (runtime.onednn_runtime, runtime.onednn_why) == ("openmp", "on in an OpenMP build")
    assert runtime.openmp_library is not None
    assert "libiomp5" in runtime.openmp_library
    assert {reach.answer for reach in FRAMEWORK.reach(runtime).values()} == ({True} if N_CPUS > 1 else {True, None})
    assert runtime.defaults["omp_num_threads"] == job.machine.physical_cores


def test_affinities_that_bind_alike_are_one(job: Job) -> None:
    """Without SMT, compact and compact,1,0 put each thread on the same CPU; the guides' spelling stays."""
    if job.machine.threads_per_core > 1 or job.machine.sockets > 1:
        pytest.skip("on this machine the two bind differently")
    assert job.space.domains["kmp_affinity"] == ("none", "granularity=fine,compact,1,0")
    assert job.space.baselines["intel-zoo"]["kmp_affinity"] == "granularity=fine,compact,1,0"


@pytest.mark.parametrize("kind", ["fresh", "fork"])
def test_every_knob_holds_in_the_process(target: Target, kind: str) -> None:
    with ExitStack() as stack:
        launcher: Launcher = (
            FreshLauncher(target=target)
            if kind == "fresh"
            else stack.enter_context(closing(ForkLauncher(target, notify=print)))
        )
        process = stack.enter_context(closing(launcher.launch(BOUND, deployed(BOUND))))
        effective = process.ready().effective
    assert effective["openmp"]["settings"]["KMP_BLOCKTIME"] == "7"
    assert effective["openmp"]["settings"]["OMP_NUM_THREADS"] == "2"
    if N_CPUS > 1:
        bound = {mask for pool in ("framework", "later") for mask in effective["pools"][pool]} - {effective["mask"]}
        assert len(bound) == 2
        assert all(mask.isdigit() for mask in bound)


def test_the_package_s_library_takes_the_place_of_the_bundled_one(target: Target, job: Job) -> None:
    if intel_openmp() is None:
        pytest.skip("the intel-openmp package exists for x86-64 only")
    other = job.space.reference.with_values(openmp_library="intel-openmp", kmp_blocktime=3)
    with closing(ForkLauncher(target, notify=print)) as forks:
        process = forks.launch(other, job.space.deployment(other))
        loaded = process.ready().effective["openmp"]
        assert str(intel_openmp()) in loaded["libraries"]
        assert loaded["settings"]["KMP_BLOCKTIME"].startswith("3")
        process.close()


def thread_times_s(pid: int) -> dict[int, float]:
    """Return the CPU time (s) of each thread of a process so far."""
    return {each.id: each.user_time + each.system_time for each in psutil.Process(pid).threads()}


def state_of(pid: int, thread: int) -> str:
    """Return the state of a thread, as the kernel abbreviates it: T for one that is stopped."""
    return Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.alone
def test_two_bound_processes_of_a_pair_do_not_fight_for_the_first_cpu(target: Target, job: Job) -> None:
    """Both bind their threads to the same CPUs; as they take turns, each is as fast as if it were alone.

    A thread that spins while the other process runs would take half of the CPU.
    """
    if N_CPUS < 2:
        pytest.skip("on one CPU everything is bound to it")
    bound = job.space.baselines["intel"]
    fresh = FreshLauncher(target=target)
    a, b = (fresh.launch(bound, job.space.deployment(bound)) for _ in range(2))
    both = []
    for process in (a, b):
        both.append(Live(process=process, usual_s=[process.ready().step_s]))
        process.pause()
    pair = run_pair(*both, enough=lambda _: True, min_passes=6)
    threads = psutil.Process(b.pid).threads()
    assert wait_until(lambda: all(state_of(b.pid, each.id) == "T" for each in threads))
    idle_s = thread_times_s(b.pid)
    a.resume()
    a.slice(1.5)
    assert thread_times_s(b.pid) == idle_s
    for process in (a, b):
        process.close()
    assert 0.8 < math.exp(np.median(log_ratios(pair, Objective.THROUGHPUT, batch_sizes=(8, 8)))) < 1.25


@pytest.mark.usefixtures("forks_only")
def test_omp_threads_act_and_eigen_s_do_not(target: Target, job: Job) -> None:
    if N_CPUS < 2:
        pytest.skip("one CPU has no second thread to compare with")

    def second_share(of: Setting) -> float:
        """Return how much the second busiest thread works, of what the busiest does.

        CPU time tells it however busy the machine is.
        """
        process = FreshLauncher(target=target).launch(of, job.space.deployment(of))
        process.ready()
        before_s = thread_times_s(process.pid)
        process.slice(2.0)
        after_s = thread_times_s(process.pid)
        process.close()
        busiest_s, second_s = sorted((after_s[each] - before_s.get(each, 0.0) for each in after_s), reverse=True)[:2]
        return second_s / busiest_s

    one = job.space.reference.with_values(inter_op=1, intra_op=1, omp_num_threads=1)
    assert second_share(one) < 0.2
    assert second_share(one.with_values(intra_op=2)) < 0.2
    assert second_share(one.with_values(omp_num_threads=2)) > 0.35


@pytest.mark.usefixtures("forks_only")
def test_a_knob_that_did_not_take_effect_makes_the_trial_unapplied(target: Target) -> None:
    wanted = BOUND.with_values(kmp_blocktime=9)
    process = FreshLauncher(target=target).launch(wanted, deployed(BOUND))
    with pytest.raises(TrialFailure, match="kmp_blocktime=9 did not take effect") as caught:
        process.ready()
    assert caught.value.status is Status.UNAPPLIED


@pytest.mark.usefixtures("forks_only")
def test_a_workload_that_sets_the_variable_itself_is_caught_however_much_it_prints(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import os, sys\nos.environ['OMP_NUM_THREADS'] = '7'\nprint('x' * 3_000_000, file=sys.stderr, flush=True)\n"
        "BATCH_SIZE = 8\ndef build():\n    import tensorflow as tf\n    k = tf.Variable(tf.ones((3, 3, 8, 8)))\n"
        "    return lambda x: tf.nn.conv2d(x, k, 1, 'SAME')\n"
        "def inputs(batch_size):\n    import numpy as np\n"
        "    return (np.ones((batch_size, 32, 32, 8), np.float32),)\n"
    )
    loud = prepare(
        parse_request(
            SearchRequest(workload=WorkloadSpec.of_name(str(tmp_path / "loud.py")), python=str(PYTHON)), stores=False
        )
    )
    with pytest.raises(BadInputError, match="line 2: the workload itself sets OMP_NUM_THREADS=7"):
        loud.export()
    # The export is there, and a process of it is caught all the same.
    process = FreshLauncher(target=loud.target()).launch(BOUND, deployed(BOUND))
    with pytest.raises(TrialFailure, match="OMP_NUM_THREADS=7") as caught:
        process.ready()
    assert caught.value.status is Status.UNAPPLIED


def test_an_affinity_that_the_library_refuses_ends_the_search_before_any_trial(tmp_path: Path) -> None:
    done = tftune("search", "resnet50", "--python", str(PYTHON), "--set", "kmp_affinity=tight", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "rejects kmp_affinity=tight" in done.stderr
    assert 'ignoring "tight"' in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "mode"),
    [("bert-tiny", "training"), ("lstm", "training"), ("dcgan", "training"), ("wide-deep", "inference")],
)
@pytest.mark.usefixtures("forks_only")
def test_workloads_are_the_same_under_an_older_keras(name: str, mode: str) -> None:
    """That build has Keras 2: attention, loops, a step of one's own, many inputs."""
    request = SearchRequest(
        workload=WorkloadSpec.of_name(name, mode=mode),
        batch_size="4",  # a step of dcgan's own size takes seconds
        python=str(PYTHON),
    )
    job = prepare(parse_request(request, stores=False))
    launcher = job.launcher()
    process = launcher.launch(job.space.reference, job.space.deployment(job.space.reference))
    assert process.ready().sample is not None
    assert process.slice(0.1).n_steps > 0
    process.close()
    reach = job.features()
    assert reach is not None
    assert reach.heavy_operators == {"bert-tiny": 21, "lstm": 6, "dcgan": 15, "wide-deep": 56}[name]
    # How often Keras 2's loops run is computed in the graph, and so not known of it.
    assert reach.known is (name != "lstm")


def test_a_search_tunes_omp_and_kmp_knobs(tmp_path: Path) -> None:
    done = tftune(
        "search", "mobilenetv2", "--python", str(PYTHON), "--space", "quick", "--trials", "6", "--time-budget", "40s",
        "--one-process", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert all(document["knobs"][name]["active"] for name in ("omp_num_threads", "kmp_affinity", "kmp_blocktime"))
    assert {row["status"] for row in document["history"]} == {"ok"}
    assert document["finals"]["rounds"] >= 2
    intel = document["baselines"]["intel"]["setting"]
    assert (intel["kmp_blocktime"], intel["omp_num_threads"]) == (1, document["machine"]["physical_cores"])
    tried = {row["setting"]["kmp_affinity"] for row in document["history"]}
    assert len(tried) > 1


@pytest.mark.alone
def test_the_audit_proves_the_knobs(tmp_path: Path) -> None:
    done = tftune("inspect", "matmul", "--audit", "--python", str(PYTHON), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["knob"]: row for row in json.loads(done.stdout)["audit"]}
    assert rows["omp_num_threads"]["reaches"] is True
    assert rows["kmp_blocktime"]["reaches"] is True
    assert [process_row["applied"] for process_row in rows["kmp_blocktime"]["processes"]] == [True, True]
    if N_CPUS > 1:
        assert rows["omp_num_threads"]["measured"]["verdict"] == "better"
        assert rows["kmp_affinity"]["measured"]["verdict"] == "worse"  # all threads on one CPU


def test_what_its_profiler_does_not_tell_of_is_no_overhead(tmp_path: Path) -> None:
    """TensorFlow 2.14 shows no operators of a program that XLA compiled: that is not 100 % overhead."""
    words = [
        "overhead",
        "mlp",
        "--batch-size",
        "64",
        "--execution",
        "xla",
        "--python",
        str(PYTHON),
        "--time-budget",
        "20s",
    ]
    ended = tftune(*words, cwd=tmp_path)
    assert ended.returncode == 2
    assert "shows no operators of a program that XLA compiled; look at --execution graph,eager" in ended.stderr
