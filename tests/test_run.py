"""`tftune run`: a program under a setting, alone or in several copies, and how they end; with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import scripted
from tests.command_line import CompletedCommand, tftune
from tests.conftest import Call, Finished
from tests.processes import gone, wait_until
from tuner.deploy import program, remembered
from tuner.deploy.program import copies
from tuner.errors import BadInputError
from tuner.machine.cgroup import CgroupLimits
from tuner.machine.cpulist import format_list
from tuner.machine.host import Machine
from tuner.measure.budget import Budget
from tuner.report import studycard
from tuner.report.emit import Format
from tuner.result import document
from tuner.space.deployment import Deployment
from tuner.space.space import Space

CPUS = sorted(os.sched_getaffinity(0))
TFTUNE = [sys.executable, "-m", "tuner"]
TELL = """
import json, os, sys
print(json.dumps({"cpus": sorted(os.sched_getaffinity(0)), "env": os.environ.get("A"),
                  "number": os.environ.get("TFTUNE_INSTANCE"), "words": sys.argv[1:], "pid": os.getpid()}))
"""
SLEEP = "import subprocess, sys, time; subprocess.Popen(['sleep', '300']); print('up', flush=True); time.sleep(300)"


def setting(folder: Path, **parts: object) -> str:
    """Return a file with a deployment, as `emit --json` writes it."""
    path = folder / "setting.json"
    path.write_text(json.dumps({"env": {}, "arguments": {}, "cpus": None, **parts}))
    return str(path)


def run(*words: str) -> CompletedCommand:
    return tftune("run", *words, cwd=Path.cwd())


def test_a_single_copy_is_this_process(tmp_path: Path) -> None:
    file = setting(tmp_path, env={"A": "1"}, cpus=str(CPUS[0]), arguments={"batch_size": 8})
    process = subprocess.Popen(
        [*TFTUNE, "run", file, "--", sys.executable, "-c", TELL, "{instance}", "--x"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    out, error = process.communicate(timeout=60)
    told = json.loads(out)
    assert told == {"cpus": [CPUS[0]], "env": "1", "number": None, "words": ["0", "--x"], "pid": process.pid}
    assert error == "tftune: Set the batch size in your own code: 8\n"


def test_the_batch_size_may_be_a_word_of_the_program(tmp_path: Path) -> None:
    file = setting(tmp_path, arguments={"batch_size": 8})
    ended = run(file, "--", sys.executable, "-c", TELL, "--batch-size={batch_size}", "{instance}-{batch_size}")
    assert json.loads(ended.stdout)["words"] == ["--batch-size=8", "0-8"]
    assert ended.stderr == ""  # nothing is left to do
    ended = run(setting(tmp_path), "--", sys.executable, "-c", TELL, "{batch_size}")
    assert ended.returncode == 2
    assert "{batch_size} has no value, as the answer changes no batch size; write the number instead" in ended.stderr


def test_knobs_may_be_words_of_the_program(finished: Finished, space: Space, tmp_path: Path) -> None:
    record, _ = finished(space, tmp_path, trials=16)
    storage = ("--storage", str(tmp_path / "t.db"))
    values = document.describe_study(record).recommended.setting
    words = (sys.executable, "-c", TELL, "{intra_op}", "--t={inter_op}", "{unknown}")
    ended = run(*storage, "--", *words, "${intra_op}")
    as_given = ["{unknown}", "${intra_op}"]  # the last is a shell's own
    assert json.loads(ended.stdout)["words"] == [str(values["intra_op"]), f"--t={values['inter_op']}", *as_given]
    assert "stays as it is" not in ended.stderr
    file = setting(tmp_path, arguments={"intra_op": 3}, framework="tensorflow")
    ended = run(file, "--", *words)
    assert json.loads(ended.stdout)["words"] == ["3", "--t={inter_op}", "{unknown}"]
    assert ended.stderr == (
        f"tftune: {{inter_op}} stays as it is: inter_op is a knob, and {file} holds no value of it; write the value "
        "instead\n"
    )


def test_knobs_that_were_words_of_the_command_are_arguments(finished: Finished, space: Space, tmp_path: Path) -> None:
    record, _ = finished(space, tmp_path, trials=16)
    without = document.describe_study(record).recommended
    record.put("asked", {"words": ["bench", "{intra_op}"], "metric_regex": "x", "folder": "."})
    told = document.describe_study(record)
    value = told.recommended.setting["intra_op"]
    assert "intra_op" not in without.arguments
    assert told.recommended.arguments == {**without.arguments, "intra_op": value}
    snippet = studycard.snippet(told, told.recommended, Format.SH)
    assert f"# Give the program intra_op = {value} among its words, in place of {{intra_op}}\n" in snippet
    assert json.loads(studycard.snippet(told, told.recommended, Format.JSON))["arguments"]["intra_op"] == value


def test_several_copies_have_numbers_and_cores_of_their_own(tmp_path: Path) -> None:
    sets = [str(CPUS[0]), str(CPUS[-1])]
    file = setting(tmp_path, env={"A": "1"}, processes=2, cpu_sets=sets)
    ended = run(file, "--", sys.executable, "-c", TELL, "80{instance}")
    assert ended.returncode == 0, ended.stderr
    lines = sorted(ended.stdout.splitlines())
    for number, line in enumerate(lines):
        assert line.startswith(f"[{number}] ")
        told = json.loads(line[4:])
        assert (told["cpus"], told["env"], told["number"]) == ([int(sets[number])], "1", str(number))
        assert told["words"] == [f"80{number}"]


def test_a_sum_with_the_number_of_a_copy_is_right_for_more_than_ten() -> None:
    group = copies(Deployment(processes=12), ["serve", "--port", "{8500+instance}", "{instance+95}-{instance}.log"])
    assert [copy.words[2] for copy in group] == [str(8500 + number) for number in range(12)]
    assert group[11].words[3] == "106-11.log"
    [single] = copies(Deployment(), ["{8500+instance}", "{8500-instance}", "{}"])
    assert single.words == ("8500", "{8500-instance}", "{}")


def test_digits_that_go_on_with_the_number_are_refused_for_more_than_ten() -> None:
    words = ["serve", "--port=850{instance}", "shard-{instance}"]
    with pytest.raises(BadInputError) as refused:
        copies(Deployment(processes=11), words)
    assert refused.value.message == "850{instance} becomes 85010 for copy 10 of 11"
    assert refused.value.hint == "write the sum {8500+instance} instead of 850{instance}"
    assert copies(Deployment(processes=10), words)[9].words[1] == "--port=8509"
    names = ["shard-{instance}", "run2{instance}.log", "v1.{instance}"]
    assert copies(Deployment(processes=11), names)[10].words == ("shard-10", "run210.log", "v1.10")
    for port in ("-p850{instance}", "http://localhost:850{instance}/v1", "850{instance}"):
        with pytest.raises(BadInputError, match="becomes 85010"):
            copies(Deployment(processes=11), [port])


def test_copies_on_unlike_cores_are_noted(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    hybrid = replace(machine, cores=["0", "1"], core_kinds=[0, 1])
    monkeypatch.setattr(program, "detect", lambda: hybrid)
    [note] = program.unlike_copies(Deployment(processes=2, cpu_sets=("0", "1")))
    assert note == "the cores of the processes are unlike: faster on CPUs 0, slower on CPUs 1"
    assert program.unlike_copies(Deployment(processes=2)) == []
    monkeypatch.setattr(program, "detect", lambda: machine)
    assert program.unlike_copies(Deployment(processes=2, cpu_sets=("0", "1"))) == []


def test_what_the_study_inherited_is_set_unless_the_shell_has_another_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = setting(tmp_path, env={"A": "0"}, inherited=["A"])
    monkeypatch.delenv("A", raising=False)
    unset = run(file, "--", sys.executable, "-c", TELL)
    assert (json.loads(unset.stdout)["env"], unset.stderr) == ("0", "")
    monkeypatch.setenv("A", "1")
    other = run(file, "--", sys.executable, "-c", TELL)
    assert json.loads(other.stdout)["env"] == "1"
    assert other.stderr == ("tftune: A is 1 here, and was 0 in the measurement: unset it, or search again with it\n")
    monkeypatch.setenv("A", "0")
    assert run(file, "--", "true").stderr == ""


def test_variables_that_trials_do_not_inherit_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults were measured without them, and threads of a setting do not act under a limit."""
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    defaults = run(setting(tmp_path, framework="command"), "--", "true")
    assert defaults.stderr == (
        "tftune: set here, and left out of the measurement: OMP_NUM_THREADS, OMP_THREAD_LIMIT; unset them\n"
    )
    threads = {"OMP_NUM_THREADS": "2"}
    own = run(setting(tmp_path, framework="command", env=threads), "--", "true")
    assert own.stderr == "tftune: set here, and left out of the measurement: OMP_THREAD_LIMIT; unset it\n"
    for unknown in ("", "of another package"):
        assert run(setting(tmp_path, framework=unknown), "--", "true").stderr == ""


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("docker run image", "docker may not pass on TF_NUM_INTRAOP_THREADS: see that your program gets them"),
        ("sudo python serve.py", "sudo may not pass on TF_NUM_INTRAOP_THREADS: see that your program gets them"),
        ("ssh host python serve.py", "ssh may not pass on TF_NUM_INTRAOP_THREADS: see that your program gets them"),
        (
            "env TF_NUM_INTRAOP_THREADS=8 python serve.py",
            "the command itself sets TF_NUM_INTRAOP_THREADS: remove that, or the setting does not apply",
        ),
        ("docker run -e TF_NUM_INTRAOP_THREADS image", None),
        ("docker run -e TF_NUM_INTRAOP_THREADS=$TF_NUM_INTRAOP_THREADS image", None),
        ("python serve.py --mode sudoku", None),
    ],
)
def test_variables_that_may_not_reach_the_program_are_noted(words: str, note: str | None) -> None:
    deployment = Deployment(env={"TF_NUM_INTRAOP_THREADS": "2"})
    assert program.not_passed_on(deployment, words.split()) == ([] if note is None else [note])


def test_fewer_cpus_than_were_measured_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(allowed: set[int], quota: float | None, **parts: Any) -> list[str]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
        monkeypatch.setattr(program, "read_limits", lambda: CgroupLimits(cpu_quota=quota, memory_bytes=None))
        return program.differences(Deployment(**parts))

    assert notes({1}, None, measured_cpus=2) == [
        "measured on 2 CPUs, and only 1 CPU may be busy here: search again under this limit"
    ]
    [of_quota] = notes({0, 1}, 0.3, measured_cpus=1.5)
    assert of_quota.startswith("measured on 1.5 CPUs, and only 0.3 CPUs may be busy here")
    assert notes({0, 1}, None, measured_cpus=2) == notes({0, 1}, 1.5, measured_cpus=1.5) == []
    assert notes({0, 1, 2}, None, measured_cpus=2) == [
        "measured on 2 CPUs, and 3 CPUs may be busy here: give it no more, e.g. docker run --cpus=2"
    ]
    assert notes({0, 1, 2}, None, measured_cpus=2, processes=2, cpu_sets=("0", "1")) == []
    assert notes({0}, None) == []  # an earlier file does not say
    assert notes({0}, None, measured_cpus=2, cpus="0") == []  # it needs no more than its own
    assert len(notes({0, 1}, 1.0, measured_cpus=2, processes=2, cpu_sets=("0", "1"))) == 1


def test_the_worst_exit_code_is_returned_and_each_message_is_shown(tmp_path: Path) -> None:
    file = setting(tmp_path, processes=3)
    code = "import os, sys; n = int(os.environ['TFTUNE_INSTANCE']); sys.stderr.write(f'port {n} in use'); sys.exit(n)"
    ended = run(file, "--keep-going", "--", sys.executable, "-c", code)
    assert ended.returncode == 2
    assert {"[1] port 1 in use", "[2] port 2 in use"} <= set(ended.stderr.splitlines())


def test_where_one_fails_the_others_are_ended(tmp_path: Path) -> None:
    file = setting(tmp_path, processes=2)
    ready, asked = tmp_path / "ready", tmp_path / "asked"
    code = f"""
import os, signal, sys, time
from pathlib import Path
if os.environ["TFTUNE_INSTANCE"] == "0":
    signal.signal(signal.SIGTERM, lambda *_: (Path({str(asked)!r}).touch(), sys.exit(0)))
    Path({str(ready)!r}).touch()
    time.sleep(300)
while not Path({str(ready)!r}).exists():
    time.sleep(0.01)
sys.exit(7)
"""
    ended = run(file, "--", sys.executable, "-c", code)
    assert asked.exists()
    assert ended.returncode == 7  # that of the others, which were ended, does not count
    assert "tftune: copy 1 ended with exit code 7; tftune now ends the others" in ended.stderr


def test_with_keep_going_they_are_not(tmp_path: Path) -> None:
    file = setting(tmp_path, processes=2)
    code = "import os, sys, time; n = int(os.environ['TFTUNE_INSTANCE']); n and sys.exit(7); time.sleep(1); print('on')"
    ended = run(file, "--keep-going", "--", sys.executable, "-c", code)
    assert ended.returncode == 7
    assert ended.stdout == "[0] on\n"


@pytest.fixture
def two_servers(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Two copies that run, each with a child, below a `tftune run`; and the numbers of all their processes."""
    file = setting(tmp_path, processes=2)
    runner = subprocess.Popen(
        [*TFTUNE, "run", file, "--", sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert runner.stdout is not None
    assert sorted([runner.stdout.readline(), runner.stdout.readline()]) == ["[0] up\n", "[1] up\n"]
    yield runner, [each.pid for each in psutil.Process(runner.pid).children(recursive=True)]
    runner.kill()
    runner.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_signals_go_to_all(
    two_servers: tuple[subprocess.Popen[str], list[int]], number: signal.Signals, code: int
) -> None:
    runner, pids = two_servers
    assert len(pids) == 6  # two guards, two programs, and a child of each
    runner.send_signal(number)
    if number is signal.SIGINT:  # Python's own traceback, and exit code
        code = 130
    assert runner.wait(20) == code
    assert wait_until(lambda: all(gone(pid) for pid in pids))


def test_nothing_outlives_a_runner_that_is_killed(two_servers: tuple[subprocess.Popen[str], list[int]]) -> None:
    runner, pids = two_servers
    runner.kill()
    runner.wait(10)
    assert wait_until(lambda: all(gone(pid) for pid in pids), 5)


def test_who_asks_all_to_end_is_told_of_no_failure(two_servers: tuple[subprocess.Popen[str], list[int]]) -> None:
    runner, _ = two_servers
    runner.send_signal(signal.SIGTERM)
    _, error = runner.communicate(timeout=20)
    assert (runner.returncode, error) == (143, "")


def test_a_guard_that_is_killed_counts_as_its_copy(two_servers: tuple[subprocess.Popen[str], list[int]]) -> None:
    runner, pids = two_servers
    guard = psutil.Process(runner.pid).children()[1]
    guard.kill()
    _, error = runner.communicate(timeout=20)
    assert runner.returncode == 128 + signal.SIGKILL
    assert "was killed by SIGKILL: the machine or the container may be out of memory; tftune now ends" in error
    assert wait_until(lambda: all(gone(pid) for pid in pids))


def test_a_signal_during_the_start_reaches_all(tmp_path: Path) -> None:
    """As soon as the first copy is there: it ends well, and the last ones are not left running for ever."""
    code = "import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(300)"
    words = [*TFTUNE, "run", setting(tmp_path, processes=8), "--", sys.executable, "-c", code]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as runner:
        assert wait_until(lambda: bool(psutil.Process(runner.pid).children()), 30)
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=60)


def test_the_program_goes_on_where_nobody_reads_its_output(tmp_path: Path) -> None:
    """The reader takes one line and goes; both copies still get to their end, and say so in a file."""
    code = (
        "import os, pathlib; [print('x' * 1000, flush=True) for _ in range(300)];"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['TFTUNE_INSTANCE']).touch()"
    )
    words = [*TFTUNE, "run", setting(tmp_path, processes=2), "--", sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        runner.stdout.readline()
        runner.stdout.close()
        error = runner.stderr.read() if runner.stderr is not None else b""
    assert (runner.returncode, error) == (0, b"")
    assert (tmp_path / "0").exists()
    assert (tmp_path / "1").exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_pipeline_of_the_program_ends_as_it_does_without_tftune(tmp_path: Path, processes: int) -> None:
    ended = run(setting(tmp_path, processes=processes), "--", "sh", "-c", "yes | head -n 1")
    assert ended.returncode == 0
    assert ended.stderr == ""  # `yes` ends by SIGPIPE, and says nothing


def test_a_line_without_an_end_is_shown_in_parts(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('x' * 200_000)"
    ended = run(setting(tmp_path, processes=2), "--", sys.executable, "-c", code)
    own = [line[4:] for line in ended.stdout.splitlines() if line.startswith("[0] ")]
    assert "".join(own) == 200_000 * "x"
    assert 1 < len(own) < 10


def test_closed_streams_are_no_failure(tmp_path: Path) -> None:
    file = setting(tmp_path, processes=2, arguments={"batch_size": 8})
    command = f"exec {' '.join(TFTUNE)} run {file} -- true >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False, timeout=60).returncode == 0


def test_a_copy_that_ignores_signals_is_killed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "GRACE_S", 0.5)
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "n = int(os.environ['TFTUNE_INSTANCE']); n and (time.sleep(0.5), sys.exit(3)); time.sleep(300)"
    )
    began = time.monotonic()
    group = copies(Deployment(processes=2), [sys.executable, "-c", code])
    assert program.run_together(group, keep_going=False) == 3
    assert time.monotonic() - began < 8


def test_bad_input_is_one_line(tmp_path: Path, call: Call) -> None:
    assert "cannot be read" in call("run", str(tmp_path / "none.json"), "--", "true")[2]
    for option in ("--instances", "--same-latency"):
        code, _, error = call("run", str(tmp_path / "none.json"), option, "--", "true")
        assert (code, f"{option} chooses among the answers of a study" in error) == (2, True)
    (tmp_path / "no.json").write_text("[1]")
    code, _, error = call("run", str(tmp_path / "no.json"), "--", "true")
    assert code == 2
    assert "no.json is not a setting: Expected `object`, got `array`; write it with: tftune emit STUDY" in error
    (tmp_path / "other.json").write_text('{"study": "made"}')
    assert "is not a setting: it has no arguments, cpus, env" in call("run", str(tmp_path / "other.json"), "--", "x")[2]
    for parts, reason in (
        ({"processes": "2"}, "Expected `int`, got `str`"),
        ({"processes": 0}, "has 0 processes"),
        ({"processes": 3, "cpu_sets": ["0"]}, "has 3 processes, and names 1"),
        ({"env": {"A": 1}}, "Expected `str`, got `int`"),
    ):
        code, _, error = call("run", setting(tmp_path, **parts), "--", "true")
        assert code == 2
        assert reason in error
    assert "no study 'nothing'" in call("run", "nothing", "--storage", f"sqlite:///{tmp_path}/n.db", "--", "true")[2]
    beyond = str(max(CPUS) + 1)
    with pytest.raises(BadInputError, match=f"uses CPUs {beyond}, and this process may use {format_list(set(CPUS))}"):
        copies(Deployment(processes=2, cpu_sets=(str(CPUS[0]), beyond)), ["true"])
    missing = run(setting(tmp_path), "--", "./no-such-program")
    assert missing.returncode == 2
    assert "tftune: cannot start ./no-such-program: No such file or directory" in missing.stderr


def test_without_a_study_before_the_program_the_newest_is_meant(
    finished: Finished, space: Space, tmp_path: Path
) -> None:
    finished(space, tmp_path, trials=16)
    storage = ("--storage", str(tmp_path / "t.db"))
    ended = run(*storage, "--", sys.executable, "-c", TELL, "a", "--", "--b")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["words"] == ["a", "--", "--b"]
    assert run(*storage, "--", "sh", "-c", "exit 7").returncode == 7
    named = run("made", *storage, "--", sys.executable, "-c", TELL, "last")
    assert json.loads(named.stdout)["words"] == ["last"]
    batch = run(*storage, "--", sys.executable, "-c", TELL, "{batch_size}")
    assert json.loads(batch.stdout)["words"] == ["16"]
    nowhere = run("--storage", str(tmp_path / "none.db"), "--", "true")
    assert (nowhere.returncode, "no study 'last'" in nowhere.stderr) == (2, True)
    alone = run("last", *storage)
    assert (alone.returncode, "Missing argument 'COMMAND...'" in alone.stderr) == (2, True)


def test_an_answer_that_keeps_the_batch_size_has_the_default_s(space: Space, tmp_path: Path) -> None:
    scripted.run(space, scripted.noisy(rate=lambda _: 100.0), folder=tmp_path, budget=Budget(trials=8))
    ended = run("--storage", str(tmp_path / "t.db"), "--", sys.executable, "-c", TELL, "{batch_size}")
    assert json.loads(ended.stdout)["words"] == [str(space.reference.batch_size)], ended.stderr


def test_what_a_study_recommends_is_remembered_until_its_storage_changes(tmp_path: Path) -> None:
    storage = tmp_path / "t.db"
    url = f"sqlite:///{storage}"
    assert remembered.of_study("last", url, groups=False) is None  # there is no such file
    assert remembered.of_study("last", "postgresql://host/team", groups=False) is None
    storage.write_text("one")
    place = remembered.of_study("last", url, groups=True)
    assert place is not None
    assert place.recall() is None
    deployment = Deployment(env={"A": "1"}, processes=2, cpu_sets=("0", "1"))
    place.remember(deployment, "something is better")
    again = remembered.of_study("last", url, groups=True)
    assert again is not None
    assert again.recall() == (deployment, "something is better")
    other = remembered.of_study("last", url, groups=False)
    assert other is not None
    assert other.recall() is None
    place.file.write_text("damaged")
    assert again.recall() is None
    place.remember(deployment)
    storage.write_text("one more trial")
    changed = remembered.of_study("last", url, groups=True)
    assert changed is not None
    assert changed.recall() is None
