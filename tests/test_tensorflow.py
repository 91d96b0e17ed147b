"""The real thing: TensorFlow in real processes, the shipped workload, and the ways in which one can go wrong."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.command_line import tftune_here
from tests.conftest import setting
from tests.frameworks import cached_folder, deployed, export, target_of
from tests.processes import gone, wait_until
from tuner.errors import TunerError
from tuner.frameworks import probing
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.build import describe, read_onednn
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.measure.pair import run_pair
from tuner.measure.passes import Live
from tuner.quantity import plural
from tuner.space.setting import Setting
from tuner.trial.fresh import FreshLauncher
from tuner.trial.outcome import Status, TrialFailure
from tuner.workload.workload import load

pytestmark = pytest.mark.tensorflow

ONE_THREAD = setting(inter_op=1, intra_op=1, batch_size=8)
ALL_THREADS = setting(inter_op=1, intra_op=len(os.sched_getaffinity(0)), batch_size=8)


@pytest.fixture(scope="module")
def runtime(python: Path, clean_env: dict[str, str]) -> Build:
    """The runtime of this interpreter, probed for real."""
    return FRAMEWORK.probe(python, clean_env)


@pytest.fixture(scope="module")
def resnet_launcher(python: Path, clean_env: dict[str, str], runtime: Build) -> FreshLauncher:
    """A launcher of the shipped workload, exported for real."""
    workload = load("resnet50")
    folder = export(workload, runtime, python=python, env=clean_env)
    return FreshLauncher(target=target_of(workload, folder, python=python, env=clean_env))


def test_the_probe_asks_onednn_itself(
    runtime: Build, python: Path, clean_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime.tensorflow.startswith("2.")
    assert runtime.onednn_runtime in ("threadpool", "openmp", None)
    assert runtime.onednn_runtime is None or runtime.onednn_threads == len(os.sched_getaffinity(0))
    monkeypatch.setattr(probing, "run_probe", None)
    assert FRAMEWORK.probe(python, clean_env) == runtime  # from the cache


def test_what_onednn_says_is_read_in_both_of_its_spellings() -> None:
    new = (
        "onednn_verbose,v1,info,oneDNN v3.7.3 (commit N/A)\n"
        "onednn_verbose,v1,info,cpu,runtime:threadpool,nthr:2\n"
        "onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost\n"
    )
    old = (
        "onednn_verbose,info,oneDNN v2.7.3 (commit 6dbeffbae1f23cbbeae17adb7b5b13f1f37c080e)\n"
        "onednn_verbose,info,cpu,runtime:OpenMP,nthr:2\n"
        "onednn_verbose,info,cpu,isa:Intel AVX2\n"
    )
    assert read_onednn(new)["runtime"] == "threadpool"
    assert read_onednn(old) == {"version": "2.7.3", "runtime": "OpenMP", "threads": "2", "isa": "Intel AVX2"}
    assert read_onednn("nothing") == {}
    facts = {"python": "3.11.7", "tensorflow": "2.14.0", "openmp_libraries": [], "xla": True, "cuda": None}
    facts |= {"refused": None, "observations": [], "enabled": None}
    assert describe(facts, read_onednn(old), switches={}, flags=[]).onednn_why == "on in an OpenMP build"
    why = [
        describe(facts, found, switches=switches, flags=flags).onednn_why
        for found, switches, flags in (
            (read_onednn(new), {}, ["avx512_vnni"]),
            ({}, {}, ["avx2"]),
            ({}, {"TF_ENABLE_ONEDNN_OPTS": "0"}, ["avx512_vnni"]),
        )
    ]
    off = describe(facts | {"enabled": False}, read_onednn(new), switches={}, flags=["avx2"])
    assert off.onednn_why == "off by default on this CPU: only Eigen's matrix products use it"
    assert not off.has_onednn
    assert why == [
        "on by default on a CPU with avx512_vnni",
        "off by default on this CPU",
        "TF_ENABLE_ONEDNN_OPTS=0 is set",
    ]


def test_what_a_passing_circumstance_hid_from_the_probe_is_not_remembered(
    python: Path, clean_env: dict[str, str], runtime: Build, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nprint('hello')\nif 'probe' in sys.orig_argv:\n    import tensorflow as tf\n    tf.constant(1.0)\n"
    )
    hidden = FRAMEWORK.probe(python, clean_env | {"PYTHONPATH": str(tmp_path)})
    assert hidden.refused is not None
    assert hidden.observations == []
    (tmp_path / "sitecustomize.py").unlink()
    assert FRAMEWORK.reach(FRAMEWORK.probe(python, clean_env | {"PYTHONPATH": str(tmp_path)})) == FRAMEWORK.reach(
        runtime
    )


def test_the_probe_proves_what_reaches_this_build(runtime: Build) -> None:
    assert runtime.refused is None
    reached = {variable: found.answer for variable, found in FRAMEWORK.reach(runtime).items()}
    assert reached["TF_NUM_INTEROP_THREADS"] is True
    assert reached["TF_NUM_INTRAOP_THREADS"] is True
    assert reached["OMP_NUM_THREADS"] is (runtime.onednn_runtime == "openmp")
    assert runtime.defaults["intra_op"] == len(os.sched_getaffinity(0))


def test_the_export_is_made_once_and_loaded_with_its_numbers(resnet_launcher: FreshLauncher, runtime: Build) -> None:
    assert cached_folder(load("resnet50"), runtime) == resnet_launcher.target.folder
    assert (resnet_launcher.target.folder / "saved_model.pb").is_file()
    process = resnet_launcher.launch(ONE_THREAD, deployed(ONE_THREAD))
    facts = process.ready()
    timed = process.slice(0.5)
    ended = process.close()
    assert timed.elapsed_s >= 0.5
    assert timed.n_steps == len(timed.step_s)
    assert sum(timed.step_s) == pytest.approx(timed.elapsed_s, rel=1e-3)
    assert facts.effective["threads"].get("tf_Compute", 1) == 1
    assert (ended.peak_memory_bytes or 0) > 300 << 20


@pytest.mark.alone
def test_the_threads_act_and_the_pair_sees_it(resnet_launcher: FreshLauncher) -> None:
    """One thread against all of them: on two or more CPUs the difference is far beyond any noise."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU has no second thread to compare with")
    with (
        contextlib.closing(resnet_launcher.launch(ONE_THREAD, deployed(ONE_THREAD))) as a,
        contextlib.closing(resnet_launcher.launch(ALL_THREADS, deployed(ALL_THREADS))) as b,
    ):
        both = []
        for process in (a, b):
            both.append(Live(process=process, usual_s=[process.ready().step_s]))
            process.pause()
        pair = run_pair(*both, enough=lambda _: True, min_passes=6)
    # Others only make steps longer, so that the shortest of many are the ones to compare.
    one_s, all_s = (min(min(each.step_s) for each in side) for side in (pair.reference, pair.candidate))
    assert one_s / all_s > 1.2


@pytest.mark.usefixtures("forks_only")
def test_odd_but_good_workloads_run(tmp_path: Path, python: Path, clean_env: dict[str, str], runtime: Build) -> None:
    """A name that is a pattern, a dataclass, a bare array, a bfloat16 output; and a cache that lost a file."""
    path = tmp_path / "[odd] name.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Size:\n    n: int = 16\n"
        "def build():\n    import tensorflow as tf\n"
        "    return lambda x: tf.cast(x @ tf.ones((Size().n, 4)), tf.bfloat16)\n"
        "def inputs(batch_size):\n    import numpy as np\n    return np.ones((batch_size, Size().n), np.float32)\n"
    )
    workload = load(str(path))
    folder = export(workload, runtime, python=python, env=clean_env)
    (folder / "saved_model.pb").unlink()
    assert export(workload, runtime, python=python, env=clean_env) == folder
    process = FreshLauncher(target=target_of(workload, folder, python=python, env=clean_env)).launch(
        ALL_THREADS, deployed(ALL_THREADS)
    )
    process.ready()
    assert process.slice(1.0).n_steps > 10
    process.close()


@pytest.mark.usefixtures("forks_only")
def test_nan_in_a_narrow_type_is_seen(tmp_path: Path, python: Path, clean_env: dict[str, str], runtime: Build) -> None:
    path = tmp_path / "nan.py"
    path.write_text(
        "def build():\n    import tensorflow as tf\n    return lambda x: tf.cast(tf.math.log(x - 2), tf.bfloat16)\n"
        "def inputs(batch_size):\n    import numpy as np\n    return np.ones((batch_size, 4), np.float32)\n"
    )
    workload = load(str(path))
    folder = export(workload, runtime, python=python, env=clean_env)
    process = FreshLauncher(target=target_of(workload, folder, python=python, env=clean_env)).launch(
        ALL_THREADS, deployed(ALL_THREADS)
    )
    with pytest.raises(TrialFailure) as caught:
        process.ready()
    assert caught.value.status is Status.INVALID


def test_sigterm_ends_a_search_even_where_ctrl_c_is_ignored(tmp_path: Path) -> None:
    """A script's background job inherits an ignored SIGINT."""
    command = [str(Path(sys.executable).with_name("tftune")), "search", "resnet50", "--json"]
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$0" "$@"', *command], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert wait_until(lambda: len(psutil.Process(process.pid).children()) > 0, 20.0)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(out)["schema"] == 1


def test_a_model_that_cannot_be_built_is_told_with_its_own_message(
    tmp_path: Path, python: Path, clean_env: dict[str, str], runtime: Build
) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def build(): raise ValueError('no such layer')\ndef inputs(batch_size): return ()\n")
    workload = load(str(path))
    with pytest.raises(TunerError, match="no such layer"):
        export(workload, runtime, python=python, env=clean_env)
    assert not cached_folder(workload, runtime).exists()


# ---- the whole command ---------------------------------------------------------------------------------------


def tftune(*args: str, cwd: Path) -> subprocess.Popen[str]:
    """Start the command as a user does, in a session of its own so that Ctrl-C can be sent to it."""
    command = [str(Path(sys.executable).with_name("tftune")), *args]
    process = subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    STARTED.append(process)
    return process


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _no_search_outlives_its_test() -> Iterator[None]:
    """End what a test that failed left running: every other test would wait for it."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=400)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A real search of lenet5 with a small budget."""
    cwd = tmp_path_factory.mktemp("search")
    code, out, err = finished(
        tftune("search", "lenet5", "--space", "quick", "--trials", "3", "--time-budget", "30s", "--json", cwd=cwd)
    )
    assert code == 0, err
    return cwd, json.loads(out)


def test_a_real_search_keeps_the_contract(searched: tuple[Path, dict]) -> None:
    cwd, document = searched
    assert document["schema"] == 1
    assert document["workload"]["name"] == "lenet5"
    assert document["machine"]["logical_cpus"] == len(os.sched_getaffinity(0))
    assert document["knobs"]["intra_op"]["active"]
    if document["runtime"]["onednn_runtime"] == "threadpool":
        assert "Eigen" in document["knobs"]["omp_num_threads"]["reason"]
    assert document["history"][0]["baselines"][0] == "tf-default"
    default, *others = document["history"]
    assert default["low"] == default["ratio"] == default["high"] == 1.0  # all others are relative to it
    assert all(each["low"] < each["ratio"] < each["high"] for each in others if each["ratio"] is not None)
    assert set(document["verdicts"]) >= {"tf-default", "tf-guide", "tf-guide-mkl", "intel", "intel-zoo"}
    assert all(math.isfinite(rate) and rate > 1 for rate in document["finals"]["rates"].values())
    assert document["finals"]["rounds"] >= 2
    assert 0 < document["measured_s"] <= document["wall_s"] <= 120
    assert (cwd / "results/tftune.db").is_file()


def test_the_other_verbs_read_what_the_search_kept(searched: tuple[Path, dict]) -> None:
    cwd, document = searched
    study = document["study"]
    listed = tftune_here("list", "--json", cwd=cwd)
    assert (listed.returncode, [row["study"] for row in json.loads(listed.stdout)]) == (0, [study])
    shown = tftune_here("show", study, "--json", cwd=cwd)
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["verdicts"] == document["verdicts"]
    details = tftune_here("show", "last", "--details", cwd=cwd)
    assert details.returncode == 0
    assert "intel" in details.stdout
    # Which answer is the first that sets anything is for the measurement to decide: here, one process or several.
    one, several = document["recommended"], (document["groups"] or {}).get("recommended")
    is_one_set = bool(one["env"] or one["arguments"] or one["cpus"])
    first = several if several is not None and not is_one_set and several.get("processes", 1) > 1 else one
    for words, advice in [((), first), (("--one-process",), one)]:
        snippet = tftune_here("emit", study, "--json", *words, cwd=cwd)
        assert snippet.returncode == 0
        emitted = json.loads(snippet.stdout)
        assert all(emitted[key] == advice[key] for key in ("env", "arguments", "cpus"))


def as_measured(history: Sequence[dict]) -> list[dict]:
    """Return trials without their intervals, which allow for what is known by now of the variance between processes."""
    return [{key: value for key, value in row.items() if key not in ("low", "high")} for row in history]


def of_one_process(history: Sequence[dict]) -> list[dict]:
    """Return the trials of the space itself: `--trials` counts these, and not those of several processes."""
    return [row for row in history if not row["group"]]


def test_the_same_command_again_continues_and_holds_fresh_finals(searched: tuple[Path, dict]) -> None:
    cwd, document = searched
    words = ["--space", "quick", "--trials", "3", "--time-budget", "15s", "--one-process", "--json"]
    code, out, _ = finished(tftune("search", "lenet5", *words, cwd=cwd))
    again = json.loads(out)
    assert (code, again["study"]) == (0, document["study"])
    tried = document["history"]
    assert as_measured(again["history"])[: len(tried)] == as_measured(tried)
    assert len(of_one_process(again["history"])) <= 3
    assert again["ended_because"] == "the study has 3 trials" or len(of_one_process(tried)) < 3
    assert again["groups"] == document["groups"]  # what was not asked again stays as it was


@pytest.mark.alone
def test_a_gain_of_large_batches_has_an_answer_at_the_latency_of_the_default_beside_it(tmp_path: Path) -> None:
    """A call of 512 items takes many times as long as one of 8, however many more it does a second."""
    words = ["--batch-size", "8,512", "--one-process", "--time-budget", "100s", "--json"]
    code, out, err = finished(tftune("search", "lenet5", *words, cwd=tmp_path))
    assert code == 0, err
    document = json.loads(out)
    assert document["recommended"]["latency"]["low"] > 1.25
    answer = document["same_latency"]
    assert (answer is None) != (document["why_no_same_latency"] is None)
    if answer is not None and answer["recommended"]["gain"] is not None:
        assert answer["recommended"]["latency"]["low"] <= 1
        assert answer["finals"]["incumbent"]["batch_size"] == 8


def begin(cwd: Path, workload: str, *more: str) -> tuple[subprocess.Popen[str], set[int]]:
    """Start a search and wait until its first trial is in the storage; return it and its living descendants."""
    process = tftune("search", workload, "--storage", "sqlite:///t.db", *more, cwd=cwd)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("0 "):
            break
    children = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
    assert len(children) >= 4  # the reference and a candidate, each behind its guard
    return process, children


def stored(cwd: Path) -> dict:
    shown = tftune_here("show", "last", "--storage", "sqlite:///t.db", "--json", cwd=cwd)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_kill_9_loses_no_finished_trial_leaves_no_process_and_the_next_run_continues(tmp_path: Path) -> None:
    process, children = begin(tmp_path, "lenet5")
    process.kill()
    process.communicate()
    assert wait_until(lambda: all(gone(pid) for pid in children), 20.0)  # how soon: test_launchers
    before = stored(tmp_path)
    assert {row["status"] for row in before["history"]} == {"ok"}
    again = begin_again(tmp_path, "lenet5", n_trials=len(before["history"]))
    again.send_signal(signal.SIGINT)
    code, _, err = finished(again)
    assert code == 130, err
    after = stored(tmp_path)
    assert after["study"] == before["study"]
    assert as_measured(after["history"])[: len(before["history"])] == as_measured(before["history"])
    assert len(after["history"]) > len(before["history"])


def begin_again(cwd: Path, workload: str, n_trials: int) -> subprocess.Popen[str]:
    """Start the same search, which has so many trials, and wait for its first new row."""
    process = tftune("search", workload, "--storage", "sqlite:///t.db", cwd=cwd)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line[:1].isdigit():
            break
    assert any(f"continuing with {plural(n_trials, 'trial')}" in line for line in lines), lines
    return process


def test_ctrl_c_ends_at_once_and_tells_what_is_known(tmp_path: Path) -> None:
    process, children = begin(tmp_path, "lenet5", "--json")
    second = tftune("search", "lenet5", "--storage", "sqlite:///other.db", cwd=tmp_path)
    code, _, err = finished(second)
    assert code == 3
    assert f"process {process.pid}" in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "other.db").exists()
    process.send_signal(signal.SIGINT)
    code, out, err = finished(process)
    assert code == 130, err
    assert wait_until(lambda: all(gone(pid) for pid in children), 20.0)
    document = json.loads(out)
    assert document["trials"]["ok"] >= 1
    assert document["verdicts"] is None


@pytest.mark.usefixtures("forks_only")
def test_a_workload_that_fails_stops_the_study_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "def build():\n    import tensorflow as tf\n    return lambda x: tf.nn.relu(x)\n"
        "def inputs(batch_size):\n    import numpy as np\n    if batch_size == 2:  # the export\n"
        "        return (np.ones((2, 64), np.float32),)\n"
        "    print('no licence', flush=True)\n    raise RuntimeError('no data')\n"
    )
    done = tftune_here("search", "./bad.py", cwd=tmp_path)
    code, out, err = done.returncode, done.stdout, done.stderr
    last = err.strip().splitlines()[-1]
    assert (code, out) == (3, "")
    assert last.startswith("tftune: the default setting failed: RuntimeError: no data (line ")
    assert "no licence" in err
    assert tftune_here("show", "last", cwd=tmp_path).returncode == 0


def test_a_model_that_cannot_be_built_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def build(): raise ValueError('no such layer')\ndef inputs(n): return ()\n")
    done = tftune_here("search", "./bad.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "ValueError: no such layer (line 1 of bad.py)" in done.stderr.strip().splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.py"]


def test_kill_9_in_the_probe_leaves_no_process(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [str(Path(sys.executable).with_name("tftune")), "search", "resnet50"]
    process = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"TFTUNE_CACHE": str(cache)})

    def probing() -> list[int]:
        pids = []
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(
                psutil.NoSuchProcess
            ):  # it ended meanwhile: the interpreter asked before the probe
                pids += [child.pid] if any(word == "probe" for word in child.cmdline()) else []
        return pids

    assert wait_until(lambda: bool(probing()), 20.0)
    time.sleep(0.5)
    children = probing()
    process.kill()
    process.wait()
    assert children
    assert wait_until(lambda: all(gone(pid) for pid in children), 20.0)


def test_a_real_quota_is_seen(tmp_path: Path) -> None:
    group = Path("/sys/fs/cgroup/cpu") / f"tftune-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("150000")
    except OSError as error:
        pytest.skip(f"making a cgroup needs the rights, and cgroup v1: {error}")
    try:
        script = f"echo $$ > {group}/cgroup.procs && exec {Path(sys.executable).with_name('tftune')} inspect --json"
        done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
        document = json.loads(done.stdout)
        assert document["machine"]["cpu_quota"] == 1.5
        assert document["baselines"]["tf-default"]["setting"]["intra_op"] == len(os.sched_getaffinity(0))
    finally:
        group.rmdir()


def test_settings_of_a_search_reach_the_process(searched: tuple[Path, dict]) -> None:
    """The thread counts that TensorFlow shows by name are those of the setting."""
    cwd, document = searched
    import optuna

    study = optuna.load_study(study_name=document["study"], storage=f"sqlite:///{cwd}/results/tftune.db")
    for trial in study.trials:
        if "facts" in trial.user_attrs:
            threads = trial.user_attrs["facts"]["effective"]["threads"]
            assert threads["tf_Compute"] == Setting.of(trial.params)["inter_op"]
