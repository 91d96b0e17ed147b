"""How processes end, in words; and the folder and the environment that tftune starts things in."""

from __future__ import annotations

import errno
import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ROOT, tftune_started
from tuner import inherited
from tuner.cli import system_hint
from tuner.errors import BadInputError
from tuner.frameworks.command.framework import FRAMEWORK as COMMAND_FRAMEWORK
from tuner.frameworks.probing import ProbedPackage, locate, run_probe
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job.request import SearchRequest
from tuner.machine.cgroup import CgroupLimits
from tuner.machine.exits import ended_text, last_words, reason_in, remedy
from tuner.paths import COMMAND
from tuner.trial.outcome import KERNELS_MEMORY, Status, way_out
from tuner.workload.spec import WorkloadSpec

OMP_15 = "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized."
SHADOW = "raise SystemExit('a file of the user was run')\n"


@pytest.mark.parametrize(
    ("code", "log", "text"),
    [
        (0, "", "ended with exit code 0"),
        (3, "", "ended with exit code 3"),
        (129, "usage: git", "ended with exit code 129"),
        (124, "", "ended with exit code 124: a time limit, such as the one of timeout, may have ended it"),
        (126, "", "ended with exit code 126: what it ran may not be executed"),
        (127, "sh: 1: foo: not found", "ended with exit code 127: what it ran was not found"),
        (127, "x: error while loading shared libraries: libfoo.so", "ended with exit code 127: x: error while loading"),
        (None, "", "ended, and nothing is known of how"),
        (
            -4,
            "",
            "was killed by SIGILL (illegal instruction): this build needs instructions, such as AVX, that this CPU",
        ),
        (-9, "", "was killed by SIGKILL: the machine or the container may be out of memory"),
        (-7, "", "was killed by SIGBUS (bus error): a disk or shared memory (/dev/shm) is full"),
        (-24, "", "was killed by SIGXCPU: a limit on CPU time is reached"),
        (-11, "", "was killed by SIGSEGV (segmentation fault)"),
        (-40, "", "was killed by signal 40"),
        (132, "", "ended with exit code 132: what it ran was killed by SIGILL (illegal instruction)"),
        (
            137,
            "",
            "ended with exit code 137: what it ran was killed by SIGKILL: the machine or the container may be out",
        ),
        (-6, f"loading\n{OMP_15}\nOMP: Hint This means …\nmore", f"was killed by SIGABRT (abort): {OMP_15} OMP: Hint"),
        (-6, "terminate called after throwing\n  what():  std::bad_alloc\n", "terminate called after throwing what():"),
        (
            -6,
            "compiled\nF x.cc:7] Check failed: a == b\n*** frames\n" * 9,
            "SIGABRT (abort): F x.cc:7] Check failed: a",
        ),
        (-6, "nothing of note", "was killed by SIGABRT (abort): a native library gave up"),
    ],
)
def test_a_signal_is_named_with_its_usual_cause(code: int | None, log: str, text: str) -> None:
    assert text in ended_text(code, log)


def test_the_front_of_a_reason_is_kept() -> None:
    assert reason_in("all went well\n") == ""
    assert last_words("first\nlast\n\n") == "last"
    for advice in ("Run 'docker run --help' for more information", "Try 'ls --help' for more information.", "See x -h"):
        assert last_words(f"usage: x\nls: unrecognized option\n\n{advice}\n") == "ls: unrecognized option"
        assert last_words(advice) == advice
    long = "Check failed: " + "x" * 5000
    assert long.startswith(last_words(f"{long}\n" + "frame\n" * 100))
    assert remedy(-4) is not None
    assert "memory" in str(remedy(-9))
    assert remedy(1) is remedy(None) is None


@pytest.mark.parametrize(("name", "cause"), [("SIGILL", "AVX"), ("SIGKILL", "out of memory"), ("SIGSEGV", "native")])
def test_a_framework_that_dies_when_it_is_imported(tmp_path: Path, name: str, cause: str) -> None:
    (tmp_path / "dying.py").write_text(f"import os, signal\nos.kill(os.getpid(), signal.{name})\n")
    (tmp_path / "probe.py").write_text("def describe(_):\n    import dying\n")
    subject = ProbedPackage(title="Dying", package="dying", install="dying", folder=tmp_path)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(BadInputError, match=rf"Dying does not work in .*killed by {name}.*{cause}"):
        run_probe(Path(sys.executable), env, subject, {})


def test_an_interpreter_that_says_what_is_wrong(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'error while loading shared libraries: libfoo.so' >&2\nexit 127\n")
    script.chmod(0o755)
    subject = ProbedPackage(title="X", package="x", install="x", folder=tmp_path)
    with pytest.raises(BadInputError, match=r"not a working Python interpreter: it ended with exit code 127: .*libfoo"):
        locate(script, dict(os.environ), subject)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "TMPDIR"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "TMPDIR"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.EROFS, "Read-only file system", "results"), "TFTUNE_CACHE"),
        (OSError("something"), "check the path"),
    ],
)
def test_an_error_of_the_system_has_its_own_way_out(error: OSError, hint: str) -> None:
    assert hint in system_hint(error)


def test_memory_that_a_container_limits_is_to_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = CgroupLimits(cpu_quota=None, memory_bytes=900 << 20)
    monkeypatch.setattr("tuner.machine.cgroup.read_limits", lambda: limit)
    hint = "raise the container's memory limit of 900 MiB, or give a smaller --batch-size"
    assert way_out(Status.OOM, f"oom: {KERNELS_MEMORY}", otherwise="x") == hint
    other = "free some memory, or let it take less"  # such as of a GPU
    assert way_out(Status.OOM, "RESOURCE_EXHAUSTED", otherwise="x", less="let it take less") == other
    monkeypatch.setattr("tuner.machine.cgroup.read_limits", lambda: CgroupLimits(cpu_quota=None, memory_bytes=None))
    assert "free some memory, or give" in way_out(Status.OOM, KERNELS_MEMORY, otherwise="x")


@pytest.mark.parametrize(
    ("module", "is_found"),
    [("typing", True), ("json", True), ("rich", True), ("numpy", True), ("mine", False), ("test", False)],
)
def test_a_file_in_the_place_of_a_module_is_found_through_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, is_found: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{module}.py").touch()
    log = f'File "{tmp_path}/./{module}.py", line 1, in <module>\nRuntimeError'
    found = inherited.shadow({"PYTHONPATH": "/none:."}, log) or ""
    assert found.startswith(f"./{module}.py, found through PYTHONPATH, takes the place of ") == is_found
    assert bool(inherited.shadow({"PYTHONPATH": "."}, f"module '{module}' has no attribute 'x'")) == is_found
    assert inherited.shadow({"PYTHONPATH": "."}, "RuntimeError: another reason") is None
    assert inherited.shadow({"PYTHONPATH": ""}, log) is inherited.shadow({}, log) is None
    (tmp_path / "mine-1.0.dist-info").mkdir()  # what is installed there is what is meant
    assert inherited.shadow({"PYTHONPATH": "."}, log) is None


def test_an_interpreter_whose_path_hides_a_module_is_not_the_one_to_blame(tmp_path: Path) -> None:
    (tmp_path / "typing.py").write_text("raise RuntimeError('mine')\n")
    subject = ProbedPackage(title="X", package="x", install="x", folder=tmp_path)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(
        BadInputError, match=r"does not start: RuntimeError: mine; .*takes the place of Python's typing"
    ):
        locate(Path(sys.executable), env, subject)
    (tmp_path / "typing.py").rename(tmp_path / "rich.py")
    (tmp_path / "probe.py").write_text("def describe(_):\n    import rich\n")
    with pytest.raises(BadInputError, match=r"X does not work in .*: mine; .*place of the package rich; rename it, or"):
        run_probe(Path(sys.executable), env, subject, {})


def test_a_failure_has_the_way_out_of_its_kind() -> None:
    assert "ulimit -t" in way_out(Status.CRASHED, ended_text(-24), otherwise="x")
    assert "free some memory" in way_out(Status.CRASHED, ended_text(137), otherwise="x")
    assert way_out(Status.CRASHED, ended_text(-11), otherwise="x") == "x"
    assert "--trial-timeout" in way_out(Status.TIMEOUT, "no answer", otherwise="x")
    assert "TMPDIR" in way_out(Status.FAILED, "OSError: [Errno 28] No space left on device", otherwise="x")
    assert way_out(Status.FAILED, "ValueError", otherwise="x") == "x"


@pytest.mark.parametrize("framework", [FRAMEWORK, COMMAND_FRAMEWORK])
def test_a_variable_is_removed_for_what_it_does_and_not_for_how_it_begins(framework: object) -> None:
    kept = (
        "KMP_DUPLICATE_LIB_OK",
        "KMP_WARNINGS",
        "KMP_INIT_AT_FORK",
        "KMP_STACKSIZE",
        "OMP_STACKSIZE",
        "OMP_DISPLAY_ENV",
    )
    removed = (
        "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_WAIT_POLICY", "OMP_DYNAMIC", "OMP_THREAD_LIMIT",
        "KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_HW_SUBSET", "KMP_LIBRARY", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT",
    )  # fmt: skip
    env, ignored = framework.catalogue.scrub(dict.fromkeys((*kept, *removed, "PATH"), "1"))  # type: ignore[attr-defined]
    assert env == dict.fromkeys((*kept, "PATH"), "1")
    assert ignored == sorted(removed)


def test_what_libraries_set_is_not_taken_for_the_users() -> None:
    code = (
        "import os, tuner\n"
        "tuner.search, tuner.predict, tuner.learn_rules\n"
        "import tuner.machine.blas\n"
        "print('KMP_DUPLICATE_LIB_OK' in tuner.inherited.environment())"
    )
    env = {name: value for name, value in os.environ.items() if name != "KMP_DUPLICATE_LIB_OK"}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, cwd=ROOT, text=True).strip() == "False"


def test_the_environment_is_kept_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inherited, "_kept", None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("KMP_DUPLICATE_LIB_OK", raising=False)  # a library that another test imported may have set it
    with inherited.unchanged():
        os.environ["OMP_NUM_THREADS"] = "2"
        os.environ["KMP_DUPLICATE_LIB_OK"] = "True"
    assert inherited.environment()["OMP_NUM_THREADS"] == "1"
    assert "KMP_DUPLICATE_LIB_OK" not in inherited.environment()
    inherited.keep()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert inherited.environment()["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("path", [None, "."])
def test_no_file_of_the_user_is_run_by_the_command(tmp_path: Path, path: str | None) -> None:
    names = ("tuner", "optuna", "statistics", "random", "inputs", "device", "rich", "msgspec", "queue", "json")
    for name in names:
        (tmp_path / f"{name}.py").write_text(SHADOW)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {} if path is None else {"PYTHONPATH": path}
    command, options = [sys.executable, "-P", str(COMMAND)], {"cwd": tmp_path, "env": env, "capture_output": True}
    done = subprocess.run([*command, "list"], **options, check=False)  # type: ignore[call-overload]
    assert (done.returncode, done.stdout.partition(b" in ")[0]) == (0, b"no studies"), done.stderr
    # As `suite` and `frameworks` start their searches.
    asked = pickle.dumps(SearchRequest(workload=WorkloadSpec.of_name("lenet6")))
    words = [*command, "-m", "tuner.cli.nested"]
    done = subprocess.run(words, **options, input=asked, check=False)  # type: ignore[call-overload]
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"tftune: unknown workload 'lenet6'; did you mean lenet5"), done.stderr


def test_a_folder_that_was_removed_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    python = f"env -u PYTHONPATH {shlex.quote(sys.executable)} -P"  # which fails itself where a relative path is in it
    line = f"cd gone && rmdir ../gone && exec {python} {shlex.quote(str(COMMAND))} list"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("tftune: the current folder has been removed"), done.stderr


def test_the_console_script_does_not_run_a_tuner_py(tmp_path: Path) -> None:
    (tmp_path / "tuner.py").write_text(SHADOW)
    assert tftune_started("list", cwd=tmp_path).returncode == 0
    assert 'tftune = "tftune_command:main"' in (ROOT / "pyproject.toml").read_text()


def test_folders_with_installed_packages_keep_their_place(tmp_path: Path) -> None:
    for name in ("project", "installed"):
        (tmp_path / name).mkdir()
    (tmp_path / "installed" / "numpy-2.0.dist-info").mkdir()
    code = f"import sys; sys.path.insert(0, {str(COMMAND.parent)!r}); import tftune_command; tftune_command.take_path()"
    code += "; print(*(each for each in sys.path if each), sep='\\n')"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}/project:{tmp_path}/installed"}
    path = subprocess.check_output([sys.executable, "-c", code], cwd="/", env=env, text=True).split()
    standard = next(number for number, each in enumerate(path) if each.endswith("/lib-dynload"))
    assert path.index(f"{tmp_path}/installed") < standard < path.index(f"{tmp_path}/project")


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("panic: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n", "panic: index out of range"),
        (
            "thread 'main' panicked at src/main.rs:1:\nno such file\nnote: run with RUST_BACKTRACE=1\n",
            "thread 'main' pan",
        ),
        ("libc++abi: terminating due to uncaught exception\nstack:\n#0\n", "libc++abi: terminating"),
        ("==7==ERROR: AddressSanitizer: heap-use-after-free\n#0\n#1\n", "==7==ERROR: AddressSanitizer"),
        ("Intel MKL FATAL ERROR: Cannot load libmkl_avx2.so.\nbye\n", "Intel MKL FATAL ERROR: Cannot load"),
        ("OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64\nbye\n", "OpenBLAS blas_thread_init"),
        (
            "TypeError: Descriptors cannot be created directly.\nIf this call came from a _pb2.py file\n",
            "TypeError: Desc",
        ),
    ],
)
def test_the_reason_of_a_failure_comes_before_what_follows_it(log: str, words: str) -> None:
    assert last_words(log).startswith(words)
