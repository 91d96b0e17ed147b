"""Commands as workloads: real processes, the numbers that they print, and the ways in which they go wrong."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import convert

from tests.command_line import tftune_here
from tests.conftest import Call, setting
from tests.frameworks import deployed
from tests.processes import gone, wait_until
from tuner.devices import registry as devices
from tuner.errors import BadInputError
from tuner.frameworks.command.framework import FRAMEWORK
from tuner.frameworks.framework import Framework
from tuner.frameworks.onnxruntime.framework import FRAMEWORK as ONNXRUNTIME
from tuner.frameworks.tensorflow.framework import FRAMEWORK as TENSORFLOW
from tuner.job.job import timing_variables
from tuner.job.parsed import parse_request
from tuner.job.request import SearchRequest
from tuner.measure.objective import Objective
from tuner.measure.pair import log_ratios, run_pair
from tuner.measure.passes import Live
from tuner.measure.warning import ADVICE, Code, run_warnings
from tuner.plain import to_plain
from tuner.result.study import WarningResult
from tuner.space.deployment import Deployment
from tuner.trial import running
from tuner.trial.outcome import Slice, Status, TrialFailure
from tuner.trial.running import CommandLauncher, CommandProcess
from tuner.workload import command
from tuner.workload.command import Command
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Kind, find

EIGHT = setting(inter_op=1, intra_op=2, batch_size=8)


def launcher(folder: Path, *words: str, pattern: str = r"rate: (\S+)", deadline_s: float = 20.0) -> CommandLauncher:
    return CommandLauncher(
        command=Command(words=words, pattern=pattern), base_env=dict(os.environ), folder=folder, deadline_s=deadline_s
    )


def shell(folder: Path, text: str, deadline_s: float = 20.0) -> CommandLauncher:
    return launcher(folder, "sh", "-c", text, deadline_s=deadline_s)


def process(launcher: CommandLauncher, deployment: Deployment | None = None) -> CommandProcess:
    return launcher.launch(EIGHT, deployed(EIGHT) if deployment is None else deployment)


def test_the_values_of_the_setting_stand_in_their_places() -> None:
    command = Command(words=("run", "--batch={batch_size}", "{intra_op}", "{unknown}", '{"a": 1}'), pattern="x")
    assert command.filled(EIGHT.to_dict()) == ["run", "--batch=8", "2", "{unknown}", '{"a": 1}']
    assert command.placeholders == {"batch_size", "intra_op", "unknown"}


@pytest.mark.parametrize(
    ("pattern", "output", "numbers"),
    [
        (r"images/sec: ([0-9.]+)", "images/sec: 12.5\nimages/sec: 13 +- 1\ntotal images/sec: 12\n", (12.5, 13.0, 12.0)),
        (r"\d+", "5 of 7", (5.0, 7.0)),
        (r"^rate (.*)$", "first\nrate 1e3\nlast", (1000.0,)),
    ],
)
def test_numbers_are_found_in_what_was_printed(pattern: str, output: str, numbers: tuple[float, ...]) -> None:
    assert Command(words=("run",), pattern=pattern).read(output).values == numbers


def test_a_variable_in_front_of_a_program_is_told_how_to_be_written(tmp_path: Path, call: Call) -> None:
    (tmp_path / "s.json").write_text('{"env": {}, "arguments": {}, "cpus": null}')
    code, _, err = call("run", str(tmp_path / "s.json"), "--", "FOO=1", "true", "a b")
    assert (code, err.partition("; ")[2]) == (2, "to set a variable write: env FOO=1 true 'a b'")


def test_the_scripts_among_the_words_are_part_of_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "bench.py"
    script.write_text("print(1)")
    spec = WorkloadSpec(words=("sh", "--config=bench.py", "bench.py"), metric_regex="x")
    measured = find(spec)
    assert (measured.kind, measured.name, measured.path, measured.item) == (Kind.COMMAND, "bench", tmp_path, "run")
    script.write_text("print(2)")
    assert find(spec).fingerprint != measured.fingerprint
    assert find(WorkloadSpec(words=spec.words, metric_regex="x", minimize=True)).fingerprint != find(spec).fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"echo rate: 5\n", "is a text whose first line names no interpreter"),
        (b"", "is a text whose first line names no interpreter"),
        (b"#!/bin/sh\r\necho rate: 5\r\n", "has the line ends of Windows"),
        (b"#!/usr/bin/env python3\r\n", "has the line ends of Windows"),
        (b"#!/no/such/python -u\n", "names the interpreter /no/such/python, which is not there"),
        (b"#!/bin/sh\necho rate: 5\n", None),
        (b"#! /usr/bin/env python3\n", None),
        (b"\x7fELF\0", None),
    ],
)
def test_a_script_that_the_kernel_cannot_start_is_told(tmp_path: Path, text: bytes, message: str | None) -> None:
    script = tmp_path / "bench"
    script.write_bytes(text)
    script.chmod(0o755)
    if message is None:
        command.check_program([str(script)])
        return
    with pytest.raises(BadInputError, match=message):
        command.check_program([str(script)])


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("bash", "-c", "cd . && python bench.py --out=x | tail -1"), "bench.py"),
        (("bash", "-c", "python bench.py>log;cat log"), "bench.py"),
        (("python", "-m", "own.bench"), "own/bench.py"),
        (("env", "A=1", "python", "-m", "own"), "own/__main__.py"),
        (("bench", "--config=my settings.yaml"), "my settings.yaml"),
        (("make", "bench"), "Makefile"),
        (("sh", "-c", "make -s bench"), "Makefile"),
    ],
)
def test_scripts_are_found_in_lines_for_a_shell_and_as_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "check_program", lambda _: None)
    script = tmp_path / file
    script.parent.mkdir(exist_ok=True)
    script.write_text("print(1)")
    first = find(WorkloadSpec(words=words, metric_regex="x"))
    script.write_text("print(2)")
    assert find(WorkloadSpec(words=words, metric_regex="x")).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("bench.sh", "echo rate: $((1000 / ${WIDTH:-1}))"),
        ("bench.py", "import os\nprint(os.environ.get('WIDTH'))"),
        ("bench.js", "console.log(process.env.WIDTH)"),
    ],
)
def test_the_variables_that_a_script_reads_are_part_of_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WIDTH", raising=False)
    (tmp_path / script).write_text(f"{text} # TF_NUM_INTRAOP_THREADS OMP_NUM_THREADS HOME WIDTHS\n")
    spec = WorkloadSpec(words=("run", script), metric_regex="x")
    monkeypatch.setattr(command, "check_program", lambda _: None)
    first = find(spec).fingerprint
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "HOME", "WIDTHS_OF", "OTHER"):
        monkeypatch.setenv(name, "7")
        assert find(spec).fingerprint == first
    monkeypatch.setenv("WIDTH", "64")
    wide = find(spec).fingerprint
    monkeypatch.setenv("WIDTH", "32")
    assert len({first, wide, find(spec).fingerprint}) == 3


def test_a_variable_among_the_words_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = WorkloadSpec(words=("sh", "-c", "echo $WIDTH"), metric_regex="x")
    prints = {find(spec).fingerprint}
    for width in ("32", "64"):
        monkeypatch.setenv("WIDTH", width)
        prints.add(find(spec).fingerprint)
    assert len(prints) == 3


def clock_of_runs(monkeypatch: pytest.MonkeyPatch, file: Path, run_s: float) -> None:
    """Let the clock of commands tell that each run, which has left a line in a file, took so long."""
    file.touch()
    told = SimpleNamespace(monotonic=lambda: run_s * len(file.read_text().splitlines()))
    monkeypatch.setattr(running, "time", told)


def test_a_slice_is_a_run_and_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_of_runs(monkeypatch, tmp_path / "here", 0.125)
    launcher = shell(tmp_path, "echo rate: $TF_NUM_INTRAOP_THREADS; echo rate: 9 >&2; echo x >> here")
    one = process(launcher).slice(0.0)
    assert (one.n_steps, one.metrics) == (1, (2.0, 9.0))
    several = process(launcher).slice(0.3)
    assert several.n_steps == 3
    assert len(several.metrics) == 6
    assert several.elapsed_s == pytest.approx(sum(several.step_s)) == 0.375
    assert convert(to_plain(several), Slice).metrics == several.metrics


def test_a_slice_has_one_unit_and_what_its_numbers_cannot_show(tmp_path: Path) -> None:
    """All runs of a launcher are converted to the unit of its first one."""
    launcher = shell(tmp_path, "echo rate: 0; echo rate: $TFTUNE_TEST_RATE")
    first, second, inverse = (
        process(launcher, Deployment(env={"TFTUNE_TEST_RATE": rate})) for rate in ("2ms/step", "917us/step", "3step/s")
    )
    measured = first.slice(0.0)
    assert (measured.metrics, measured.unit, measured.resolution, measured.n_left_out) == ((2.0,), "ms/step", 1.0, 1)
    stored = convert(to_plain(measured), Slice)
    assert stored == replace(measured, start_s=stored.start_s, elapsed_s=stored.elapsed_s)
    assert second.slice(0.0).metrics == pytest.approx((0.917,))
    with pytest.raises(
        TrialFailure, match=r"different units, step/s and ms/step, one the inverse of the other"
    ) as caught:
        inverse.slice(0.0)
    assert caught.value.status is Status.FAILED
    assert "let the command print one unit" in caught.value.hint


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("1.012", "980"),
        ("980", "1.012"),
        ("1.012 img/s", "980 img/s"),
        ("850,250", "1.050,250"),
        ("1.050,250", "850,250"),
    ],
)
def test_a_dot_or_comma_that_may_part_thousands_is_a_failed_trial(tmp_path: Path, first: str, later: str) -> None:
    launcher = shell(tmp_path, "echo rate: $TFTUNE_TEST_RATE")
    process(launcher, Deployment(env={"TFTUNE_TEST_RATE": first})).slice(0.0)
    with pytest.raises(TrialFailure, match="a dot or comma may part thousands in one of them") as caught:
        process(launcher, Deployment(env={"TFTUNE_TEST_RATE": later})).slice(0.0)
    assert "LC_ALL=C" in caught.value.hint


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("1.012", "0.980"),
        ("1.012", "1"),
        ("980", "1012"),
        ("1.01", "980"),
        ("1.012", "12.5"),
        ("1.012k", "980"),
        ("1,050.250", "850.250"),
        ("850,250", "1,050,250"),
    ],
)
def test_numbers_that_differ_in_their_digits_alone_are_compared(tmp_path: Path, first: str, later: str) -> None:
    launcher = shell(tmp_path, "echo rate: $TFTUNE_TEST_RATE")
    for rate in (first, later):
        assert process(launcher, Deployment(env={"TFTUNE_TEST_RATE": rate})).slice(0.0).metrics


def test_a_slice_keeps_which_figures_its_runs_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_of_runs(monkeypatch, tmp_path / "here", 0.125)
    both = "echo x >> here; echo train rate: 12; echo eval rate: 4"
    assert process(shell(tmp_path, both)).slice(0.2).figures == ("train rate #", "eval rate #")
    once = f"{both}; case $(wc -l < here) in 1) echo step rate: 12;; esac"
    (tmp_path / "here").write_text("")
    assert process(shell(tmp_path, once)).slice(0.2).figures == ()


def test_runs_of_a_slice_are_as_fine_as_those_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_of_runs(monkeypatch, tmp_path / "here", 0.125)
    script = "echo x >> here; case $(wc -l < here) in 1) echo rate: 1s;; 2) echo rate: 985ms;; *) echo rate: 1s;; esac"
    several = process(shell(tmp_path, script)).slice(0.3)
    assert (several.metrics, several.resolution) == (pytest.approx((1.0, 0.985, 1.0)), 1.0)


def test_of_many_numbers_some_are_kept(tmp_path: Path) -> None:
    measured = process(shell(tmp_path, "seq -f 'rate: %g' 5000")).slice(0.0)
    assert 1000 < len(measured.metrics) <= 1200


def test_what_is_compared_is_the_median_of_the_numbers() -> None:
    slice_ = Slice(start_s=0.0, elapsed_s=9.0, n_steps=1, step_s=(9.0,), metrics=(1.0, 100.0, 102.0))
    more, less = (objective.log_rate(slice_, 64) for objective in (Objective.MAXIMIZE, Objective.MINIMIZE))
    assert more == -less
    assert Objective.MAXIMIZE.shown(more) == pytest.approx(100.0)
    assert Objective.MINIMIZE.shown(less) == pytest.approx(100.0)
    assert Objective.MINIMIZE.unit == "metric"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("echo nothing", Status.FAILED, "no line of its output matches '"),
        ("echo rate: fast", Status.FAILED, "'fast', which is not a number"),
        ("true", Status.FAILED, "it printed nothing"),
        ("echo rate: 5; echo sorry >&2; exit 3", Status.CRASHED, "the process ended with exit code 3: sorry"),
        ("kill -SEGV $$", Status.CRASHED, "killed by SIGSEGV"),
    ],
)
def test_a_run_that_goes_wrong_is_a_failed_trial(tmp_path: Path, text: str, status: Status, message: str) -> None:
    with pytest.raises(TrialFailure) as caught:
        process(shell(tmp_path, text)).slice(0.0)
    assert caught.value.status is status
    assert message in caught.value.message
    with pytest.raises(BadInputError, match="cannot measure the command:"):
        shell(tmp_path, text).run_once(EIGHT, deployed(EIGHT))


def test_a_number_before_the_end_of_a_long_output_is_reported_as_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LOG_BYTES", 1 << 20)
    with pytest.raises(TrialFailure, match="of its output only the last 1 MiB are looked at"):
        process(shell(tmp_path, "echo rate: 5; yes | head -c 2000000")).slice(0.0)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("kill -XCPU $$", "raise the limit on CPU time, see ulimit -t"),
        ("kill -KILL $$", "free some memory, or raise the container's limit"),
        ("sh -c 'kill -KILL $$'; exit 137", "free some memory, or raise the container's limit"),
        (
            "echo 'numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB'; exit 1",
            "let the command take less",
        ),
        ("exec python3 -c 'raise MemoryError'", "free some memory, or let the command take less"),
        (": {batch_size}; exec python3 -c 'raise MemoryError'", "free some memory, or give a smaller --batch-size"),
        ("exit 3", "fix the command, or --metric-regex"),
        ("true > x", "a log file by sh -c '… && cat FILE'; some print to terminals alone"),
    ],
)
def test_what_to_do_about_a_command_fits_how_it_ended(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(BadInputError) as caught:
        shell(tmp_path, text).run_once(EIGHT, deployed(EIGHT))
    assert caught.value.hint.endswith(hint)


def test_a_program_that_crashes_as_it_ends_can_be_measured(tmp_path: Path) -> None:
    """Native libraries often abort while an interpreter ends, when all is printed."""
    text = "echo rate: 5; kill -SEGV $$"
    with pytest.raises(BadInputError) as caught:
        shell(tmp_path, text).run_once(EIGHT, deployed(EIGHT))
    begin = "it had printed its number: if it does not matter how it ends, measure sh -c "
    assert caught.value.hint.startswith(begin)
    around = shlex.split(caught.value.hint.removeprefix(begin))
    assert launcher(tmp_path, "sh", "-c", *around).run_once(EIGHT, deployed(EIGHT)).metrics == (5.0,)
    with pytest.raises(BadInputError) as caught:  # which is no matter of its end
        shell(tmp_path, "echo rate: 5; kill -KILL $$").run_once(EIGHT, deployed(EIGHT))
    assert "printed its number" not in caught.value.hint


def test_a_run_ends_at_its_deadline_with_all_that_it_started(tmp_path: Path) -> None:
    launcher = shell(
        tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; setsid sleep 601 & echo rate: 1; wait", deadline_s=5.0
    )
    began = time.monotonic()
    with pytest.raises(TrialFailure) as caught:
        process(launcher).slice(0.0)
    assert caught.value.status is Status.TIMEOUT
    assert time.monotonic() - began < 9.0  # as long after the deadline as ever
    assert wait_until(lambda: gone(int((tmp_path / "pid").read_text())), 2.0)


def test_what_a_run_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    process(shell(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; echo rate: 1")).slice(0.0)
    assert wait_until(lambda: gone(int((tmp_path / "pid").read_text())), 2.0)


def test_the_variables_of_the_setting_and_its_cpus_reach_the_command(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    launcher = shell(tmp_path, "echo rate: $TF_NUM_INTRAOP_THREADS; grep Cpus_allowed_list /proc/self/status > cpus")
    measured = process(launcher, deployed(EIGHT) | Deployment(cpus=str(cpu))).slice(0.0)
    assert measured.metrics == (2.0,)
    assert (tmp_path / "cpus").read_text().split() == ["Cpus_allowed_list:", str(cpu)]


def test_of_all_runs_the_most_memory_is_told(tmp_path: Path) -> None:
    """The first run takes 200 MB, the second next to nothing."""
    code = "import os; x = b'x' * (0 if os.path.exists('once') else 200 << 20); open('once', 'w'); print('rate: 1')"
    running = process(launcher(tmp_path, sys.executable, "-c", code))
    for _ in range(2):
        running.slice(0.0)
    assert (running.close().peak_memory_bytes or 0) > 150 << 20


def test_two_commands_are_compared_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_of_runs(monkeypatch, tmp_path / "order", 0.25)
    launcher = shell(tmp_path, "echo rate: $TFTUNE_TEST_RATE; echo $TFTUNE_TEST_RATE >> order")
    launcher.run_once(EIGHT, Deployment(env={"TFTUNE_TEST_RATE": "7"}))
    processes = [process(launcher, Deployment(env={"TFTUNE_TEST_RATE": rate})) for rate in ("100", "150")]
    a, b = (Live(process=each, usual_s=[each.ready().step_s]) for each in processes)
    pair = run_pair(a, b, enough=lambda _: True, slice_s=0.001, min_passes=2)
    ratios = log_ratios(pair, Objective.MAXIMIZE, batch_sizes=(8, 8))
    assert ratios == pytest.approx([0.405465, 0.405465], abs=1e-5)
    order = "".join({"100": "a", "150": "b"}.get(line, "") for line in (tmp_path / "order").read_text().split())
    assert order in ("abbabaab", "baababba")


@pytest.mark.tensorflow
def test_any_openmp_program_is_searched(tmp_path: Path) -> None:
    """Nothing is known of it but the number that it prints: here less where nothing is set."""
    script = 'sleep 0.05; t=${OMP_NUM_THREADS:-64}; echo "rate: $((6400 / t))"'
    search = ("search", "--framework", "command", "--metric-regex", r"rate: (\S+)", "--name", "bench")
    ended = tftune_here(*search, "--trials", "4", "--json", "--", "sh", "-c", script, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["runtime"] == {"framework": "command", "id": "command", "python": ""}
    assert document["verdicts"]["command-default"]["verdict"] == "better"
    assert document["recommended"]["env"].keys() == {"OMP_NUM_THREADS", "OMP_PROC_BIND"}
    model = tftune_here("search", "lenet5", "--framework", "command", cwd=tmp_path)
    assert model.returncode == 2
    assert "--framework command cannot run the model lenet5; give a command after --" in model.stderr


def test_a_command_whose_interpreter_lacks_the_framework_can_do_without(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "bare"], cwd=tmp_path, check=True)
    ended = tftune_here("search", "--metric-regex", r"(\d+)", "--", "bare/bin/python", "-c", "print(1)", cwd=tmp_path)
    assert ended.returncode == 2
    assert "has no TensorFlow" in ended.stderr
    assert "or add --framework command" in ended.stderr


def test_a_placeholder_for_another_frameworks_knob_is_refused(call: Call) -> None:
    """Nothing would fill it in, and the program would get it as it stands."""
    code, out, err = call("search", "--framework", "command", "--metric-regex", r"(\d+)", "--", "echo", "{intra_op}")
    assert (code, out) == (2, "")
    assert "intra_op is a knob of tensorflow, not of command" in err


def test_a_comparison_of_batch_sizes_needs_a_place_for_them(tmp_path: Path) -> None:
    """The command would run at its own size both times."""
    of = ("compare", "--framework", "command", "--metric-regex", r"rate: (\S+)", "--time-budget", "1s", "--json")
    settings = ("--a", "command-default", "--b", "batch_size=64", "--", "echo")
    refused = tftune_here(*of, *settings, "rate: 1.0", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no {batch_size} placeholder, and the settings have batch sizes 1 and 64; put {batch" in refused.stderr
    for b, word in (("batch_size=64", "rate: 1.{batch_size}"), ("openmp_threads=1", "rate: 1.0")):
        settings = ("--a", "command-default", "--b", b, "--", "echo")
        assert tftune_here(*of, *settings, word, cwd=tmp_path).returncode == 0


OFTEN = "n=$(($(cat n 2>/dev/null || echo 0) + 1)); echo $n > n; "


def test_a_run_that_fails_now_and_then_is_repeated_and_counted(tmp_path: Path) -> None:
    running = process(shell(tmp_path, OFTEN + "[ $((n % 4)) -eq 0 ] && { echo bad luck; exit 7; }; echo rate: $n"))
    slices = [running.slice(0.0) for _ in range(6)]
    assert [each.metrics for each in slices] == [(1.0,), (2.0,), (3.0,), (5.0,), (6.0,), (7.0,)]
    [failed] = [each for each in slices if each.failed]
    assert failed.failed == ("the process ended with exit code 7: bad luck",)
    assert convert(to_plain(failed), Slice).failed == failed.failed
    [warning] = run_warnings(slices)
    assert warning.observation == "1 of 7 runs failed, the last one with: the process ended with exit code 7: bad luck"


def test_a_run_that_fails_again_and_again_is_a_failed_trial(tmp_path: Path) -> None:
    running = process(shell(tmp_path, OFTEN + "[ $n -gt 1 ] && exit 7; echo rate: $n"))
    running.slice(0.0)
    with pytest.raises(TrialFailure, match="exit code 7; 3 runs in a row failed"):
        running.slice(0.0)
    assert (tmp_path / "n").read_text().split() == ["4"]
    for text, n_runs in (("exit 7", 6), ("echo nothing", 7)):  # nothing has ever run
        with pytest.raises(TrialFailure):
            process(shell(tmp_path, OFTEN + text)).slice(0.0)
        assert (tmp_path / "n").read_text().split() == [str(n_runs)]


SPIN = """
import os, time
{}
end, n = time.monotonic() + 1, 0
while time.monotonic() < end: n += 1
print('rate: 1')
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be narrowed")
@pytest.mark.parametrize(
    ("code", "deployment", "found"),
    [
        ("pass", Deployment(), ""),
        ("os.sched_setaffinity(0, {CPU})", Deployment(), "pins the process to CPU CPU, 1 of N CPUs"),
        ("os.sched_setaffinity(0, {CPU})", Deployment(env={"OMP_PROC_BIND": "close"}), ""),
        ("os.sched_setaffinity(0, range(4096))", Deployment(cpus="CPU"), "lets the process use CPUs"),
    ],
)
def test_a_command_that_pins_itself_is_seen(tmp_path: Path, code: str, deployment: Deployment, found: str) -> None:
    cpus = sorted(os.sched_getaffinity(0))

    def here(text: str) -> str:
        return (
            text.replace("CPU CPU", f"CPU {cpus[0]}")
            .replace("{CPU}", f"{{{cpus[0]}}}")
            .replace("N CPUs", f"{len(cpus)} CPUs")
        )

    deployment = replace(deployment, cpus=None if deployment.cpus is None else str(cpus[0]))
    seen: list[str] = []
    script = here(SPIN.replace("{}", code))
    pinning = replace(
        launcher(tmp_path, "sh", "-c", f'{sys.executable} -c "{script}"; true'),
        see_pinned=lambda text, _: seen.append(text),
        typical_run=Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,)),
    )
    running = process(pinning, deployment)
    running.slice(0.0)
    assert [here(found) in each for each in seen] == ([True] if found else [])
    running.slice(0.0)
    assert len(seen) == bool(found)  # it is looked at once


@pytest.mark.tensorflow
def test_a_command_that_fails_in_every_fourth_run_is_searched(tmp_path: Path) -> None:
    script = OFTEN + "[ $((n % 4)) -eq 0 ] && exit 7; sleep 0.05; echo rate: 1$n"
    search = ("search", "--framework", "command", "--metric-regex", r"rate: (\S+)", "--name", "fourth")
    ended = tftune_here(*search, "--time-budget", "5s", "--json", "--", "sh", "-c", script, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    [warning] = [each for each in json.loads(ended.stdout)["warnings"] if each["code"] == "failed runs"]
    assert "runs failed, the last one with: the process ended with exit code 7" in warning["found"]


@pytest.mark.tensorflow
@pytest.mark.parametrize("fails_at", [1, 3])
def test_a_command_that_fails_once_in_a_search(fails_at: int, tmp_path: Path) -> None:
    """It may be the first run of all, or one of the default's."""
    script = (
        "n=$(($(cat n 2>/dev/null || echo 0) + 1)); echo $n > n; "
        f"[ $n -eq {fails_at} ] && {{ echo out of luck >&2; exit 7; }}; sleep 0.05; echo rate: 1$n"
    )
    search = ("search", "--framework", "command", "--metric-regex", r"rate: (\S+)", "--name", "unlucky")
    ended = tftune_here(*search, "--time-budget", "5s", "--json", "--", "sh", "-c", script, cwd=tmp_path)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0, ended.stderr
    again = tftune_here(*search, "--time-budget", "5s", "--json", "--", "sh", "-c", script, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["verdicts"]


GUIDED = """
inter=${TF_NUM_INTEROP_THREADS:-2} intra=${TF_NUM_INTRAOP_THREADS:-2}
case $inter$intra in 12) echo "3.20s/it";; 11) echo "1.50it/s";; *) echo "1.25it/s";; esac
"""


@pytest.mark.tensorflow
def test_a_guide_whose_setting_fails_does_not_end_the_search_of_a_command(tmp_path: Path) -> None:
    """It prints a time where the default prints a rate, which is larger and must not win."""
    search = ("search", "--metric-regex", r"([0-9.]+)(?:it/s|s/it)", "--name", "guided", "--one-process")
    ended = tftune_here(*search, "--trials", "4", "--json", "--", "sh", "-c", GUIDED, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    guide = next(trial for trial in document["history"] if "intel" in trial["baselines"])
    assert (guide["status"], guide["setting"]["inter_op"]) == ("failed", 1)
    assert "different units, s/it and it/s, one the inverse of the other" in guide["message"]
    assert "intel" not in [name for names in document["finals"]["names"].values() for name in names]
    assert document["finals"]["incumbent"] | {"batch_size": 1} == {"inter_op": 1, "intra_op": 1, "batch_size": 1}
    assert document["recommended"]["gain"]["speedup"] == pytest.approx(1.2, abs=0.01)


@pytest.mark.tensorflow
def test_a_command_that_takes_no_variables_is_not_proven_to_need_none(tmp_path: Path) -> None:
    search = ("search", "--metric-regex", r"rate: (\S+)", "--name", "deaf", "--one-process", "--trials", "4")
    deaf = 'echo "rate: 1520.$(($(date +%N | sed "s/^0*//") % 9))"'
    ended = tftune_here(*search, "--json", "--", "sh", "-c", deaf, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    [warning] = [each for each in json.loads(ended.stdout)["warnings"] if each["code"] == "unseen"]
    assert warning["found"] == "variables may not reach the program: 2 and 4 threads gave the same number"
    shown = tftune_here("show", "last", cwd=tmp_path)
    [head] = [line for line in shown.stdout.splitlines() if "NO DIFFERENCE" in line]
    assert "whether its variables reach the program was not seen" in head


@pytest.mark.parametrize(
    ("framework", "knob"),
    [
        (TENSORFLOW, "{intra_op}; without TensorFlow {openmp_threads}, and --framework command"),
        (ONNXRUNTIME, "{intra_op_num_threads}; without ONNX Runtime {openmp_threads}, and --framework command"),
        (FRAMEWORK, "{openmp_threads}"),
    ],
)
def test_what_to_put_among_the_words_is_a_knob_of_the_framework(framework: Framework, knob: str) -> None:
    assert WarningResult.of(Code.UNSEEN.seen("x"), framework.advice).advice == f"{ADVICE[Code.UNSEEN]} ({knob})"
    assert WarningResult.of(Code.BUSY.seen("x"), framework.advice).advice == ADVICE[Code.BUSY]


@pytest.mark.tensorflow
@pytest.mark.parametrize(("b", "is_unseen"), [("openmp_threads=1,batch_size=32", True), ("batch_size=32", False)])
def test_a_larger_batch_does_not_show_that_variables_arrive(b: str, is_unseen: bool, tmp_path: Path) -> None:
    compare = ("compare", "--framework", "command", "--a", "command-default", "--b", b, "--batch-size", "8,32")
    text = "n=$(date +%N | cut -c5-6); echo images/sec: $((1000 + 10 * {batch_size})).$n"
    options = ("--metric-regex", r"images/sec: (\S+)", "--time-budget", "9s", "--json", "--", "sh", "-c", text)
    ended = tftune_here(*compare, *options, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["verdict"] == "better"
    assert ("unseen" in {each["code"] for each in document["warnings"]}) is is_unseen


@pytest.mark.tensorflow
@pytest.mark.parametrize(("word", "is_unseen"), [("x", True), ("{openmp_threads}", False)])
def test_threads_among_the_words_show_no_variables(word: str, is_unseen: bool, tmp_path: Path) -> None:
    compare = ("compare", "--framework", "command", "--a", "command-default", "--b", "openmp_threads=1")
    options = (
        "--metric-regex",
        r"rate: (\S+)",
        "--time-budget",
        "1s",
        "--json",
        "--",
        "sh",
        "-c",
        "echo rate: 1.0",
        word,
    )
    ended = tftune_here(*compare, *options, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ("unseen" in {each["code"] for each in json.loads(ended.stdout)["warnings"]}) is is_unseen


@pytest.mark.tensorflow
def test_few_digits_decide_nothing(tmp_path: Path) -> None:
    """The step of 3.4 and 2.9 ms is printed as 3 both times."""
    search = ("search", "--metric-regex", r"(\d+)ms", "--minimize", "--name", "coarse", "--one-process")
    ended = tftune_here(*search, "--time-budget", "6s", "--", "sh", "-c", "echo 3ms", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "? UNDECIDED" in ended.stdout
    assert "the command prints whole numbers, and 2 % of 3 ms cannot be seen" in ended.stdout
    assert "no budget decides it before the command prints more digits" in ended.stdout
    compare = ("compare", "--a", "tf-default", "--b", "intra_op=1", "--metric-regex", r"(\d+)ms", "--time-budget", "3s")
    compared = tftune_here(*compare, "--json", "--", "sh", "-c", "echo 3ms", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    document = json.loads(compared.stdout)
    assert (document["verdict"], document["reason"]) == (
        "undecided",
        "the command prints whole numbers, and 2 % of 3 ms cannot be seen",
    )
    codes = {each["code"] for each in document["warnings"]}
    assert {"few digits", "unseen", "wrong way"} <= codes


@pytest.mark.tensorflow
def test_a_recommendation_for_a_command_without_a_batch_size_is_checked(tmp_path: Path) -> None:
    (tmp_path / "bench.sh").write_text(
        'case "$TF_NUM_INTEROP_THREADS" in 1) r=2000;; *) r=1000;; esac\n'
        'echo "rate: $r.$(($(date +%N | sed "s/^0*//") % 9))"\n'
    )
    search = ("search", "--metric-regex", r"rate: (\S+)", "--name", "timed", "--one-process", "--time-budget", "12s")
    ended = tftune_here(*search, "--json", "--", "sh", "bench.sh", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    study = json.loads(ended.stdout)["study"]
    checked = tftune_here("check", study, "--time-budget", "5s", "--json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["helps"] is True


def test_threads_of_linear_algebra_are_part_of_what_was_measured() -> None:
    """These libraries take their own variable before OMP_NUM_THREADS."""
    env = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HOME": "/root"}
    kept, ignored = FRAMEWORK.catalogue.scrub(env)
    assert ignored == ["OMP_NUM_THREADS"]
    assert timing_variables(kept, FRAMEWORK, devices.find("cpu")) == {
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def test_variables_that_change_timings_are_part_of_what_was_measured() -> None:
    env = dict.fromkeys(("TF_SET_ONEDNN_FPMATH_MODE", "TF_DETERMINISTIC_OPS", "TF_CPP_MAX_VLOG_LEVEL"), "1")
    kept = timing_variables({**env, "TF_VAR_secret": "x", "TF_CPP_MIN_LOG_LEVEL": "3"}, TENSORFLOW, devices.find("cpu"))
    assert kept == env


@pytest.mark.parametrize(
    ("words", "is_named"),
    [
        (["PYTHON", "x.py"], True),
        (["env", "A=1", "PYTHON", "x.py"], True),
        (["taskset", "-c", "0", "PYTHON", "x.py"], True),
        (["/usr/bin/nice", "-n", "5", "PYTHON", "x.py"], True),
        (["env", "-i", "PATH=/opt/bin", "PYTHON", "x.py"], False),
        (["sh", "-c", "PYTHON"], False),
        (["echo", "PYTHON"], False),
    ],
)
def test_an_interpreter_is_found_behind_what_starts_it_here(tmp_path: Path, words: list[str], is_named: bool) -> None:
    python = tmp_path / "python3.12"
    python.symlink_to(sys.executable)
    spec = WorkloadSpec(words=[word.replace("PYTHON", str(python)) for word in words], metric_regex="x")
    found = parse_request(SearchRequest(workload=spec), stores=False).python
    assert found == (python if is_named else Path(sys.executable))


@pytest.mark.parametrize(
    ("pattern", "minimize", "told"),
    [
        (r"latency: ([0-9.]+)", False, "a time, and the largest is taken for the best"),
        (r"^real ([0-9.]+)", False, "a time"),
        (r"train_runtime\D+([0-9.]+)", False, "a time"),
        (r"Time per request: +([0-9.]+)", False, "a time"),
        (r"\btime: ([0-9.]+)", False, "a time"),
        (r"\bp99=([0-9.]+)", False, "a time"),
        (r"clat.*avg=([0-9.]+)", False, "a time"),
        (r"finished in ([0-9.]+)", False, "a time"),
        (r"Throughput: ([0-9.]+)", True, "a rate, and --minimize takes the smallest for the best"),
        (r"examples_per_second\D+([0-9.]+)", True, "a rate"),
        (r"IOPS=([0-9.]+)", True, "a rate"),
        (r"latency: ([0-9.]+)", True, ""),
        (r"Throughput: ([0-9.]+)", False, ""),
        (r"time: ([0-9.]+) images/s", False, ""),
        (r"(\d+)ms/step", True, ""),
        (r"mean = ([0-9.]+)", False, ""),
    ],
)
def test_a_pattern_that_names_a_time_is_told_of_minimize(pattern: str, minimize: bool, told: str) -> None:
    notes = Command(words=("bench",), pattern=pattern, minimize=minimize).notes
    assert [each.startswith(f"the pattern names {told}") for each in notes] == [True] * bool(told)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("label", "words", "codes"),
    [
        ("latency", "OMP_NUM_THREADS=2", ["wrong way", "own setting"]),
        ("score", "OMP_NUM_THREADS={openmp_threads}", []),
    ],
)
def test_what_is_doubtful_of_a_command_stands_in_every_answer(
    label: str, words: str, codes: list[str], tmp_path: Path
) -> None:
    bench = f"t=${{OMP_NUM_THREADS:-2}}; echo '\"{label}\": '$((1000 / t)).$(($(date +%N | cut -c5) + 1))"
    of = ("--framework", "command", "--metric-regex", rf'"{label}": ([0-9.]+)')
    command = ("--json", "--", "env", words, "sh", "-c", bench)
    run = partial(tftune_here, cwd=tmp_path)
    found = run("search", *of, "--name", "doubted", "--time-budget", "3s", *command)
    assert found.returncode == 0, found.stderr
    answers = [found, run("show", "--json")]
    answers.append(
        run("compare", *of, "--a", "command-default", "--b", "openmp_threads=1", "--time-budget", "1s", *command)
    )
    for each in answers:
        told = [warning["code"] for warning in json.loads(each.stdout)["warnings"]]
        assert [code for code in told if code in ("wrong way", "own setting")] == codes
    assert ("own setting: its words: the command itself sets OMP_NUM_THREADS" in run("show").stdout) is bool(codes)
    assert ("the numbers stand behind 'latency', of which less is better" in run("emit").stdout) is bool(codes)


@pytest.mark.tensorflow
def test_options_of_a_session_that_no_variable_carries_are_told(call: Call) -> None:
    inspect = ("inspect", "--framework", "onnxruntime", "--metric-regex", r"(\d+)", "--", "echo")
    told = call(*inspect, "1")[2]
    assert told.startswith("no variable carries intra_op_num_threads, ")
    assert "e.g. {intra_op_num_threads}; they do not act; `tftune inspect` lists the knobs" in told
    assert "carries intra_op_num_threads" not in call(*inspect, "{intra_op_num_threads}")[2]


def test_threads_that_come_before_those_of_a_setting_are_told(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    error = call("inspect", "--framework", "command", "--metric-regex", r"(\d+)", "--", "true")[2]
    assert error == "OPENBLAS_NUM_THREADS=1 is inherited; a library that reads it heeds no other number of threads\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("#!/bin/sh\n# OMP_NUM_THREADS=1\nexport OMP_NUM_THREADS=4\n./bench\n", 3),
        ("OMP_NUM_THREADS='4' ./bench\n", 1),
        ("docker run -e OMP_NUM_THREADS=4 image\n", 1),
        ("import os\nos.environ['OMP_NUM_THREADS'] = str(n)\n", 2),
        ("os.putenv('OMP_NUM_THREADS', '4')\n", 1),
        ("export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}\n", None),
        ("[ $OMP_NUM_THREADS=4 ] && ./bench\n", None),
        ("os.environ.setdefault('OMP_NUM_THREADS', '4')\n", None),
        ("if os.environ['OMP_NUM_THREADS'] == '4': pass\n", None),
        ("os.environ.update({'A': '1', 'OMP_NUM_THREADS': '4'})\n", 1),
        ("run(env={**os.environ,\n    'OMP_NUM_THREADS': '4'})\n", 1),
        ("os.environ.update({'OMP_NUM_THREADS': os.environ.get('OMP_NUM_THREADS', '4')})\n", None),
        ("n = os.environ['OMP_NUM_THREADS']\nprint({'OMP_NUM_THREADS': n})\n", None),
        ("export OMP_NUM_THREADS=$(nproc); ./bench $OMP_NUM_THREADS\n", 1),
        ("export OMP_NUM_THREADS=`nproc`\n", 1),
        ("N=4\nOMP_NUM_THREADS=$N ./bench\n", 2),
        ('export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-2}"\n', 1),
        ("export OMP_NUM_THREADS=$1\n", 1),
        ("export OMP_NUM_THREADS=$((OMP_NUM_THREADS * 2))\n", None),
        ("N=${OMP_NUM_THREADS:-4}\nOMP_NUM_THREADS=$N ./bench\n", None),
        ('[ -z "$OMP_NUM_THREADS" ] && export OMP_NUM_THREADS=$(nproc)\n', None),
        ('if [ "$OMP_NUM_THREADS" = "" ]; then export OMP_NUM_THREADS=$(nproc); fi\n', None),
        ("[[ $OMP_NUM_THREADS ]] || export OMP_NUM_THREADS=$(nproc)\n", None),
        ("test x$OMP_NUM_THREADS = x && export OMP_NUM_THREADS=$(nproc)\n", None),
        ('case "${OMP_NUM_THREADS}" in "") export OMP_NUM_THREADS=$(nproc);; esac\n', None),
        ("[ $N = 4 ] && export OMP_NUM_THREADS=$(nproc)\n", 1),
        ("docker run -e OMP_NUM_THREADS=$OMP_NUM_THREADS image\n", None),
        ('services:\n  bench:\n    environment:\n      OMP_NUM_THREADS: "2"\n', 4),
        ("    environment:\n      OMP_NUM_THREADS: ${OMP_NUM_THREADS}\n", None),
        ("mpirun -genv OMP_NUM_THREADS 4 ./bench\n", 1),
        ("setenv OMP_NUM_THREADS 4\n", 1),
        ("set -gx OMP_NUM_THREADS 4\n", 1),
        ("set -x\n./bench\n", None),
        ("setenv OMP_NUM_THREADS $OMP_NUM_THREADS\n", None),
        ("os.environ['OMP_NUM_THREADS'] = '%d' % n\n", 1),
        ("env = {'OMP_NUM_THREADS': '4'}\n", 1),
        ("row = {'OMP_NUM_THREADS': 4}\n", None),
        ("env = {'OMP_NUM_THREADS': os.environ['OMP_NUM_THREADS']}\n", None),
        ("for v in ('LANES', 'OMP_NUM_THREADS'): os.environ[v] = '2'\n", 1),
        ("for v in ('MKL_NUM_THREADS', 'OMP_NUM_THREADS'):\n    print(v, os.environ[v])\n", None),
    ],
)
def test_a_command_that_sets_a_knobs_variable_itself_is_told(
    text: str, line: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """Each of its trials would run with the same threads, and none would differ from the others."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.txt").write_text(text)
    error = call("inspect", "--framework", "command", "--metric-regex", r"(\d+)", "--", "cat", "bench.txt")[2]
    told = f"bench.txt, line {line}: the command itself sets OMP_NUM_THREADS, and openmp_threads may have no effect"
    assert error == ("" if line is None else f"{told}; {ADVICE[Code.OWN_SETTING]}\n")


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("unset OMP_NUM_THREADS\n", True),
        ("exec env -i PATH=$PATH ./bench\n", True),
        ("env -u OMP_NUM_THREADS ./bench\n", True),
        ("os.environ.pop('OMP_NUM_THREADS', None)\n", True),
        ("del os.environ['OMP_NUM_THREADS']\n", True),
        ("env -i OMP_NUM_THREADS=$OMP_NUM_THREADS ./bench\n", False),
        ("unset MKL_NUM_THREADS\n", False),
        ("env python -u bench.py\n", False),
        ("# unset OMP_NUM_THREADS\n", False),
    ],
)
def test_a_command_that_removes_a_knobs_variable_is_told(
    text: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.txt").write_text(text)
    error = call("inspect", "--framework", "command", "--metric-regex", r"(\d+)", "--", "cat", "bench.txt")[2]
    assert ("bench.txt, line 1: the command itself removes OMP_NUM_THREADS, and openmp_" in error) is is_told


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"rate: ([[:digit:].]+)", r"\[:digit:\] is not known in Python's patterns.*write \[0-9\]"),
        (r"rate: \K[0-9.]+", "put parentheses around the number instead"),
        ("rate: (", "expected a regular expression"),
        (r"rate: (?<n>[0-9]+)", r"Python writes a named group \(\?P<name>…\)"),
    ],
)
def test_patterns_of_other_programs_are_told_how_to_be_written(pattern: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        command.command(("true",), pattern, minimize=False)


def test_a_limit_on_memory_that_the_command_does_not_hold_itself_is_refused(call: Call) -> None:
    search = ("search", "--framework", "command", "--metric-regex", r"(\d+)", "--max-memory", "1GiB", "--")
    error = call(*search, "sh", "-c", "docker run -e OMP_NUM_THREADS image")[2]
    assert "--max-memory limits the command's own processes, and docker starts the program elsewhere" in error


def test_a_word_that_sets_a_knobs_variable_is_told(call: Call) -> None:
    inspect = ("inspect", "--framework", "command", "--metric-regex", r"(\d+)", "--", "env")
    told = "its words: the command itself sets OMP_NUM_THREADS, and openmp_threads may have no effect"
    assert call(*inspect, "OMP_NUM_THREADS=4", "true")[2] == f"{told}; {ADVICE[Code.OWN_SETTING]}\n"
    assert call(*inspect, "OMP_NUM_THREADS={openmp_threads}", "true")[2] == ""
    assert call(*inspect, "-i", "PATH=/bin", "true", "{openmp_threads}", "{openmp_binding}")[2] == ""
    assert "the command itself removes OMP_NUM_THREADS" in call(*inspect, "-i", "PATH=/bin", "true")[2]
    assert call(*inspect, "sh", "-c", "OMP_NUM_THREADS=$0 true", "{openmp_threads}")[2] == ""
    assert call(*inspect, "sh", "-c", "true | awk '{print}'")[2] == ""
    assert "{prints} in the command is not a knob" in call(*inspect, "true", "{prints}")[2]
    other = (
        "its words: the command itself sets MKL_NUM_THREADS; a library that reads it heeds no other number of threads"
    )
    assert call(*inspect, "MKL_NUM_THREADS=4", "true")[2] == f"{other}; {ADVICE[Code.OWN_SETTING]}\n"


@pytest.mark.tensorflow
def test_a_call_that_sets_threads_and_another_interpreter_are_told(tmp_path: Path, call: Call) -> None:
    script = tmp_path / "bench.py"
    script.write_text("config = tf.compat.v1.ConfigProto(\n    intra_op_parallelism_threads=4)\n")
    inspect = ("inspect", "--metric-regex", r"(\d+)", "--")
    told = call(*inspect, "sh", "-c", f"python {script}")[2]
    assert f"{script}, line 2: the command itself sets intra_op_parallelism_threads, and intra_op may have" in told
    assert f"the knobs belong to TensorFlow in {sys.executable}; if the command runs another interpreter" in told
    assert "the knobs belong to" not in call(*inspect, sys.executable, str(script))[2]


@pytest.mark.tensorflow
def test_several_numbers_of_a_run_are_told(tmp_path: Path) -> None:
    compare = ("compare", "--framework", "command", "--a", "command-default", "--b", "openmp_threads=1", "--wait")
    pattern = ("--metric-regex", r"images/sec: (\S+)", "--time-budget", "1s", "--json")
    text = "echo warm-up images/sec: 10.5; seq -f 'images/sec: 100.%.0f' ${OMP_NUM_THREADS:-9}"
    ended = tftune_here(*compare, *pattern, "--", "sh", "-c", text, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "the command prints 10 numbers, 10.5 to 100.9 images/sec: the median is used\n" in ended.stderr
    [several] = [each for each in json.loads(ended.stdout)["warnings"] if each["code"] == "several numbers"]
    assert several["found"].startswith("a run prints 2 numbers under one setting and ")


def test_every_task_shows_which_variables_its_trials_do_not_inherit(
    monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)  # whoever runs the tests may set them
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code, _, error = call("inspect", "--framework", "command", "--metric-regex", r"(\d+)", "--", "true")
    assert (code, error) == (0, "ignored in the trials, though set in your environment: OMP_NUM_THREADS\n")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert call("inspect", "--framework", "command", "--metric-regex", r"(\d+)", "--", "true")[2] == ""
