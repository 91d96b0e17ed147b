"""The command line: help, bad input, and the words of the docs."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console
from typer.main import get_command

from tests.command_line import ROOT, tftune_here, tftune_started
from tests.conftest import Call
from tests.frameworks import read_space
from tests.processes import wait_until
from tuner.cli import app, command_names
from tuner.cli.help import NEW_NAMES, renamed
from tuner.errors import BadInputError, BaselineError, FindingError, MachineBusyError, TunerError
from tuner.machine.host import Machine
from tuner.paths import storage_url
from tuner.report.layout import Shell, table
from tuner.study.database import cannot_open, shown
from tuner.study.storage import check_storage
from tuner.workload.workload import load, names

COMMANDS = command_names()


def options_of(command: str) -> dict[str, str]:
    """Return the options of a command, each with its metavar; "" for a flag."""
    found: Any = get_command(app)
    for word in command.split():
        found = found.commands.get(word, found)
    names = ((each, name) for each in found.params for name in [*each.opts, *each.secondary_opts])
    return {name: each.metavar or "" for each, name in names if name.startswith("--")}


def test_every_command_is_known_here() -> None:
    assert {"search", "rules", "workloads", "workloads show", "env create", "schema"} <= set(COMMANDS)
    assert len(COMMANDS) == len(set(COMMANDS)) == 27


def test_help_names_every_command(tmp_path: Path) -> None:
    done = tftune_here("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert all(re.search(rf"\b{command.split()[0]}\b", done.stdout) for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_is_documented(command: str, tmp_path: Path) -> None:
    done = tftune_here(*command.split(), "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert f"tftune {command}" in (ROOT / "docs" / "commands.md").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_all_options_are_on_the_page_of_all(call: Call, command: str) -> None:
    _, usual, _ = call(*command.split(), "--help")
    _, page, _ = call(*command.split(), "--help-all")
    assert all(re.search(rf"(?<!\S){option}\b", page) for option in options_of(command))
    assert ("--help-all" in usual) == (len(usual) < len(page))


def test_an_option_takes_the_same_in_all_commands() -> None:
    """Or, in some commands, several of the same."""
    metavars: dict[str, set[str]] = {}
    for command in COMMANDS:
        for option, metavar in options_of(command).items():
            metavars.setdefault(option, set()).add(metavar)
    assert {option: each for option, each in metavars.items() if len(each) > 1} == {
        "--batch-size": {"N", "N,N…|N..N"},
        "--device": {"NAME", "cpu|gpu"},
        "--execution": {"graph|eager|xla", "NAME[,NAME…]"},
        "--format": {
            "sh|dotenv|docker|compose|k8s|systemd|tfserving|tfserving-k8s|python", "html|md", "text|md|html",
            "csv|parquet",
        },
        "--mode": {"MODE", "MODE[,MODE]"},
        "--out": {"FILE", "FOLDER", "FILE|FOLDER"},
        "--python": {"PATH", "[NAME=]PATH"},
    }  # fmt: skip


@pytest.mark.parametrize("command", NEW_NAMES)
def test_options_are_known_by_their_old_names(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = options_of(command)
    for old, new in NEW_NAMES[command].items():
        assert new in now
        assert old not in now
        words = [*old.split(), "x", "--", *old.split()]
        assert renamed(words, NEW_NAMES[command]) == [new, "x", "--", *old.split()]
        assert capsys.readouterr().err == f"tftune: {old} is now {new}; the old name works until version 0.3\n"


def test_the_value_of_an_old_name_is_read(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["--machine", "here"], ["--machine=here"]):
        assert call("list", *words)[:2] == call("list", "--machines", "here")[:2]
    assert "--scan is '8..1'" in call("frameworks", "--batch=8..1")[2]
    assert "--scan is '8..1'" in call("frameworks", "--batch", "8..1")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_two_screens(command: str, tmp_path: Path) -> None:
    done = tftune_here(*command.split(), "--help", cwd=tmp_path, env={**os.environ, "COLUMNS": "80"})
    lines = done.stdout.splitlines()
    assert len(lines) <= (50 if command == "search" else 75)
    examples = lines[lines.index("Examples:") + 1 :]
    assert examples
    assert all(line.startswith("  ") and "tftune" in line for line in examples)


BAD = [
    (["search", "resnet5"], "did you mean resnet50 or "),
    (["search", "./none.py"], "no workload file"),
    (["search", "resnet50", "--set", "intraop=1"], "unknown knob 'intraop'; did you mean intra_op"),
    (["search", "resnet50", "--set", "intra_op"], "expected KNOB=VALUE"),
    (["search", "resnet50", "--set", "INTRA_OP=2"], "unknown knob 'INTRA_OP'; did you mean intra_op?"),
    (["search", "resnet50", "--set", "intra_op_parallelism_threads=2"], "did you mean intra_op or "),
    (["search", "resnet50", "--set", "TF_NUM_INTRAOP_THREADS=2"], "did you mean intra_op?"),
    (["search", "resnet50", "--set", "inter_op=1,intra_op=two"], "intra_op=two is not a whole number"),
    (["search", "resnet50", "--set", "intra_op=two"], "is not a whole number"),
    (["search", "resnet50", "--set", "intra_op=0"], "is out of range"),
    (["search", "resnet50", "--set", "intra_op=1", "--set", "intra_op=2"], "is given twice"),
    (["search", "resnet50", "--set", "kmp_affinity=tight"], "would have no effect"),
    (["search", "resnet50", "--space", "cpus"], "unknown tensorflow search space 'cpus'; did you mean cpu or gpu?"),
    (["search", "resnet50", "--space", "none.toml"], "no search space file none.toml"),
    (["search", "resnet50", "--objective", "speed"], "unknown objective 'speed'"),
    (["search", "resnet50", "--batch-size", "1,x"], "expected whole numbers"),
    (["search", "resnet50", "--batch-size", "0"], "at least 1"),
    (["search", "resnet50", "--trials", "0"], "expected at least 1"),
    (["search", "resnet50", "--trials=-3"], "expected at least 1"),
    (["search", "resnet50", "--time-budget", "0s"], "expected more than 0 s"),
    (["search", "resnet50", "--time-budget=-5m"], "expected e.g. 90s, 5m or 1h"),
    (["search", "resnet50", "--trial-timeout", "soon"], "--trial-timeout is 'soon'"),
    (["search", "resnet50", "--python", "/nowhere/python"], "no interpreter at /nowhere/python"),
    (["search", "resnet50", "--python", "/bin/ls"], "is not a working Python interpreter"),
    (["search", "resnet50", "--storage", "/proc/none/x.db"], "cannot be written"),
    (["search", "resnet50", "--storage", "nosuch://x/y"], "cannot be opened"),
    (["search", "resnet50", "--storage", "sqlite:////proc/none/x.db"], "cannot be written"),
    (["search", "resnet50", "--storage", "sqlite:////no/such/x.db"], "there is no folder /no; create it"),
    (["search", "resnet50", "--name", ""], "--name is ''; expected at most 200 printable characters"),
    (["search", "resnet50", "--name=-x"], "the first no hyphen"),
    (["search", "resnet50", "--name", "two\nlines"], "--name is 'two\\nlines'"),
    (["search", "resnet50", "--name", "\x1b[31mred"], "--name is '\\x1b[31mred'"),
    (["search", "resnet50", "--name", "x" * 201], "expected at most 200 printable characters"),
    (["search", "resnet50", "--seed", "-1"], "'--seed': Input should be greater than or equal to 0"),
    (["search", "resnet50", "--trials", "many"], "'--trials': Input should be a valid integer"),
    (["search", "resnet50", "--summary", "missing/s.md"], "--summary: folder missing does not exist"),
    (["check", "--summary", "."], "--summary . is a folder; give a file name"),
    (["rules", "--rules", "none.json"], "no rules file none.json"),
    (["rules", "--rules", "shipped", "--save"], "--rules shows rules that were learned already"),
    (["list", "--since", "soon"], "--since is 'soon'; expected a date such as 2026-11-01"),
    (["export", "--workloads", ","], "--workloads is empty"),
    (["search", "resnet50", "--bogus"], "No such option: --bogus"),
    (["search"], "no workload given; give the path of a model, or one of: bert-base,"),
    (["search", "resnet50", "mlp"], "more than one workload given: resnet50 mlp"),
    (["search", "matmul", "--mode", "training"], "matmul has no mode 'training'; known: inference"),
    (["search", "resnet50", "--mode", "serving"], "resnet50 has no mode 'serving'; known: inference, training"),
    (["search", "resnet50", "--execution", "lazy"], "unknown execution 'lazy'; did you mean xla?"),
    (["search", "bert-base", "--param", "seq_length=3"], "unknown parameter 'seq_length'; did you mean seq_len?"),
    (["search", "dcgan", "--param", "size=3"], "unknown parameter 'size'; known: none"),
    (["search", "bert-base", "--param", "seq_len"], "is not of the form NAME=VALUE"),
    (["search", "bert-base", "--param", "seq_len=long"], "--param seq_len is 'long'; expected a whole number"),
    (["search", "resnet50", "--signature", "serve"], "--signature does not apply to a Python file"),
    (["search", "resnet50", "--minimize"], "--minimize does not apply to a model"),
    (["search", "none.keras"], "no model file none.keras"),
    (["search", "."], "is a folder without saved_model.pb"),
    (["search", "--metric-regex", "x"], "--metric-regex without a command"),
    (["search", "--metric-regex", "(", "--", "true"], "expected a regular expression"),
    (["search", "--metric-regex", "(a)(b)", "--", "true"], "has 2 groups"),
    (
        ["search", "--metric-regex", "x", "--", "no-such-command"],
        "command 'no-such-command' not found, or not executable",
    ),
    (
        ["search", "--metric-regex", "x", "--", "true", "{batchsize}"],
        "unknown knob 'batchsize'; did you mean batch_size",
    ),
    (
        ["search", "--metric-regex", "x", "--", "true", "{malloc}"],
        "cannot fill in {malloc} in the command: it is not part",
    ),
    (["search", "--metric-regex", "x", "--", "cd /tmp && true"], "write: sh -c 'cd /tmp && true'"),
    (["search", "--metric-regex", "x", "--", "source", "x"], "a word of the shell: write bash -c 'source x'"),
    (
        ["search", "--metric-regex", "x", "--", "cd", "a", "&&", "./b"],
        "a word of the shell: write bash -c 'cd a && ./b'",
    ),
    (["search", "~/none.onnx"], f"no model file {Path.home()}/none.onnx"),
    (["search", "--metric-regex", "x", "--", f"{ROOT}/README.md"], "name its interpreter, such as python "),
    (["search", "--metric-regex", "x", "--", "FOO=1", "true"], "to set a variable write: env FOO=1 true"),
    (["search", "--metric-regex", "x", "--", "echo x"], "without quotes around them all, or: sh -c 'echo x'"),
    (["search", "mlp", "--python", f"{sys.executable} -X dev"], "give --python the path alone, without arguments"),
    (
        ["search", "mlp", "--rate", "0"],
        "--rate is 0; expected requests per second, a number above 0 and at most 100,000",
    ),
    (["profile", "mlp", "--batch-size", "1,2"], "--batch-size is '1,2'; expected one whole number of at least 1"),
    (["predict", "mlp", "--machine", "cores=4,smt=on"], "expected the threads per core, e.g. smt=2 for on"),
    (["emit", "none", "--format", "kubernetes"], "no study 'none'"),
    (["search", "mlp", "--batch-size", ","], "expected whole numbers, e.g. 1,2,4,8"),
    (["search", "Makefile"], "unknown workload 'Makefile'"),
    (["search", "/bin/true"], "/bin/true is not a Python file; to measure a command, put it after --"),
    (
        ["search", "--metric-regex", "x", "--batch-size", "2,4", "--", "true"],
        "the command has no",
    ),
    (["search", "--metric-regex", "x", "--mode", "training", "--", "true"], "--mode does not apply to a command"),
    (
        ["search", "--metric-regex", "x", "--objective", "latency", "--", "true"],
        "the number that it prints is the objective; add --minimize if smaller is better",
    ),
    (
        ["inspect", "--audit", "--metric-regex", "x", "--", "true"],
        "--audit does not work for a command: tftune cannot look inside its processes",
    ),
    (["workloads", "show", "none"], "unknown workload 'none'"),
    (["serch"], "No such command 'serch'"),
    (["show", "none"], "no study 'none'"),
    (["emit", "none"], "no study 'none'"),
    (["emit", "none", "--format", "yaml"], "unknown format 'yaml'"),
    (["inspect", "resnet50", "--set", "nothing=1"], "unknown knob 'nothing'"),
    (["search", "resnet50", "--max-p99", "0"], "--max-p99 is 0"),
    (["search", "resnet50", "--max-p99", "inf"], "expected a finite number"),
    (["search", "resnet50", "--max-memory", "0.00001K"], "0.0102 bytes"),
    (["search", "resnet50", "--max-memory", "9" * 400 + "G"], "expected e.g. 800MiB"),
    (["search", "resnet50", "--time-budget", "9" * 400 + "s"], "at most 1000h"),
    (["search", "resnet50", "--time-budget", "5m5m"], "expected e.g. 90s"),
    (["search", "resnet50", "--trial-timeout", "3000000h"], "at most 1000h"),
    (["search", "resnet50", "--max-memory", "much"], "expected e.g. 800MiB or 2GiB"),
    (["search", "resnet50", "--margin", "-1"], "--margin is -1"),
    (["search", "resnet50", "--margin", "nan"], "--margin is nan"),
    (["search", "resnet50", "--margin", "0"], "expected a percentage above 0 and at most 50"),
    (["compare", "resnet50", "--margin", "51"], "--margin is 51"),
    (["search", "resnet50", "--every", "2h"], "--every 2h needs more than one session"),
    (["search", "resnet50", "--sessions", "2", "--every", "soon"], "--every is 'soon'"),
    (["compare", "resnet50", "--a", "intel", "--b", "inter_op=1,inter_op=2"], "inter_op is given twice"),
    (["compare", "resnet50", "--a", "tf-default"], "Missing option '--b'"),
    (["compare", "resnet5", "--a", "intel", "--b", "intel"], "did you mean resnet50 or "),
    (["compare", "resnet50", "--a", "intel", "--b", "intle"], "'intle'"),
    (["compare", "resnet50", "--a", "intel", "--b", "intraop=1"], "unknown knob 'intraop'"),
    (["compare", "resnet50", "--a", "intel", "--b", "intra_op=two"], "is not a whole number"),
    (
        ["compare", "resnet50", "--a", "intel", "--b", "intra_op=1,2"],
        "'2' in 'intra_op=1,2' is not of the form knob=value",
    ),
    (["compare", "resnet50", "--a", "intel", "--b", "omp_num_threads=1"], "would have no effect"),
    (["compare", "resnet50", "--a", "intel", "--b", "xla=auto"], "choose a --space that has it"),
    (["compare", "resnet50", "--a", "intel", "--b", "intel", "--time-budget", "x"], "--time-budget is 'x'"),
    (["check", "none"], "no study 'none'"),
    (["noise", "resnet5"], "did you mean resnet50 or "),
    (["noise", "--time-budget", "0s"], "expected more than 0 s"),
    (["search", "resnet50", "--launcher", "clone"], "unknown launcher 'clone'"),
    (["search", "resnet50", "--set", "malloc=mimalloc"], "malloc=mimalloc is not one of its values"),
    (["search", "resnet50", "--set", "cpus=4095"], "cpus=4095 is not a list of CPUs of this process"),
    (["inspect", "--affinity", "tight"], "libiomp5.so rejects KMP_AFFINITY=tight"),
    (["env", "create", "stock", "--dir", "x"], "unknown build 'stock'; known: openmp"),
    (["env", "create", "openmp", "--dir", "/proc"], "already exists and is not empty"),
    (["env", "create", "openmp", "--dir", "/proc/x"], "cannot be written"),
    (["env", "create", "openmp", "--dir", "x", "--python", "/bin/ls"], "/bin/ls is not a Python interpreter"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_bad_input_is_one_clear_line_exit_code_2_and_nothing_written(
    args: list[str],
    message: str,
    tmp_path: Path,
) -> None:
    done = tftune_here(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, 0),
        (FindingError("it is slower here"), 1),
        (BadInputError("there is no such thing"), 2),
        (TunerError("the database is gone"), 3),
        (MachineBusyError("another tftune measures"), 3),
        (BaselineError("the default does not run"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_end_has_its_exit_code(
    error: BaseException | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> list[object]:
        if error is not None:
            raise error
        return []

    monkeypatch.setattr("tuner.cli.studies.described", read)
    assert tftune_here("list", cwd=tmp_path).returncode == code


def test_a_fault_of_its_own_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text("def main():\n    raise ZeroDivisionError('made')\n")
    code = "import sys; sys.path.append(sys.argv[1]); from tuner.__main__ import main; main('faulty')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: made"


def test_a_server_that_is_down_is_no_bad_input(tmp_path: Path) -> None:
    pytest.importorskip("psycopg2")
    done = tftune_here("list", "--storage", "postgresql://u@127.0.0.1:1/x", cwd=tmp_path)
    assert done.returncode == 3
    assert "refused; check the host and the port in the URL, and that the server runs" in " ".join(done.stderr.split())
    misspelt = tftune_here("list", "--storage", "postgresqll://u@127.0.0.1:1/x", cwd=tmp_path)
    assert misspelt.returncode == 2


def test_the_help_names_the_exit_codes(tmp_path: Path) -> None:
    named = re.findall(r"\b\d+(?= [a-z])", tftune_here("--help", cwd=tmp_path).stdout.split("Exit codes:")[1])
    table = (ROOT / "docs/commands.md").read_text().split("**Exit codes.**")[1].split("**Time.**")[0]
    assert named == re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == ["0", "1", "2", "3", "130"]


def test_an_interpreter_without_tensorflow(tmp_path: Path) -> None:
    """A virtual environment with nothing in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    work = tmp_path / "work"
    work.mkdir()
    done = tftune_here("search", "resnet50", "--python", str(tmp_path / "bare/bin/python"), cwd=work)
    assert done.returncode == 2
    assert "has no TensorFlow" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(work.iterdir()) == []


def test_a_tensorflow_that_fails_to_import_is_told_in_its_own_words(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "broken")], check=True)
    [site] = (tmp_path / "broken/lib").glob("python*/site-packages")
    (site / "tensorflow").mkdir()
    (site / "tensorflow/__init__.py").write_text("raise ImportError('libfoo.so.1: no such file')\n")
    done = tftune_here("inspect", "--python", str(tmp_path / "broken/bin/python"), cwd=tmp_path)
    assert done.returncode == 2
    assert "libfoo.so.1: no such file" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_preload_that_does_not_exist_is_told_before_anything_runs(tmp_path: Path) -> None:
    """The loader itself only warns, for each process, and goes on without."""
    env = os.environ | {"LD_PRELOAD": "/nowhere/libtcmalloc.so"}
    done = tftune_started("search", "resnet50", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "LD_PRELOAD names /nowhere/libtcmalloc.so, which cannot be loaded" in done.stderr.strip().splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("says", ["1", "null", "{}", "", "Python 3.11"])
def test_what_only_talks_like_an_interpreter_is_none(tmp_path: Path, says: str) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho '{says}'\n")
    script.chmod(0o755)
    done = tftune_here("inspect", "--python", str(script), cwd=tmp_path)
    assert done.returncode == 2
    assert "is not a working Python interpreter" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_environment_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("tftune")), "env", "create", "openmp", "--dir", "half"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    )
    assert wait_until(lambda: (tmp_path / "half" / "bin").is_dir(), 20.0)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_where_a_library_binds_threads(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    value = f"granularity=fine,proclist=[{cpu}],explicit"
    done = tftune_here("inspect", "--affinity", value, "--set", "omp_num_threads=2", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert [row["cpus"] for row in document["threads"]] == [str(cpu)] * 2
    shown = tftune_here("inspect", "--affinity", value, cwd=tmp_path)
    assert shown.stdout.splitlines()[0] == f"KMP_AFFINITY={value}: bound by libiomp5.so"


def test_an_empty_storage_is_no_error(tmp_path: Path) -> None:
    done = tftune_here("list", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tftune search resnet50" in done.stdout
    assert tftune_here("list", "--json", cwd=tmp_path).stdout == "[]\n"
    assert list(tmp_path.iterdir()) == []


def test_a_bare_command_shows_its_help(tmp_path: Path) -> None:
    done = tftune_here(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "search" in done.stdout


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_names_stay_in_one_piece_on_a_narrow_screen(columns: int, tmp_path: Path) -> None:
    done = tftune_here("workloads", cwd=tmp_path, env={**os.environ, "COLUMNS": str(columns)})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert {line.split()[0] for line in lines if line and line[0] != " "} >= set(names())
    assert "DenseNet-201" in done.stdout  # a word of a description


def test_prose_is_broken_between_words_on_a_terminal_and_commands_never_are() -> None:
    def lines(line: str, *, is_terminal: bool = True) -> list[str]:
        out = StringIO()
        Shell(file=out, width=40, force_terminal=is_terminal, no_color=True).print(line, soft_wrap=True)
        return out.getvalue().splitlines()

    prose = "Why      one process: 2 rounds cannot tell which of these is faster"
    assert lines(prose) == ["Why      one process: 2 rounds cannot", "         tell which of these is faster"]
    assert lines(prose, is_terminal=False) == [prose]
    command = "Apply    tftune emit last --instances --format k8s --same-latency"
    assert lines(command) == [command]
    setting = "  TF_NUM_INTEROP_THREADS=1  TF_NUM_INTRAOP_THREADS=2  batch 16"
    assert lines(setting) == [setting]
    assert lines("✔ FASTER  short") == ["✔ FASTER  short"]
    assert lines("a sentence without a title that is longer than the terminal")[1] == "longer than the terminal"


def test_the_heading_of_a_narrow_table_is_one_line() -> None:
    rows, console = table("knob", title="search space 'cpu': 2 settings"), Console(file=StringIO(), width=100)
    rows.add_row("intra_op")
    console.print(rows)
    assert console.file.getvalue().splitlines()[0] == "search space 'cpu': 2 settings"  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["env"])
def test_a_bare_group_shows_its_help(command: str, tmp_path: Path) -> None:
    done = tftune_here(command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "create" in done.stdout


OUTPUTS = [["workloads"], ["inspect"], ["rules", "--rules", "shipped"]]
SEPARATOR = "<the next>"
SEVERAL = f"""
import json, sys
from tuner.cli import main
commands, codes = json.loads(sys.argv[1]), []
for words in [*commands, ["search", sys.argv[2]]]:
    sys.argv = ["tftune", *words]
    try:
        main()
    except SystemExit as ended:
        codes.append(ended.code)
    print({SEPARATOR!r}, end="")
print(json.dumps(codes))
"""


@pytest.mark.parametrize(
    "encoding",
    [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["latin-1", "ascii"],
)
def test_an_output_that_is_not_utf_8_has_other_characters_for_what_it_lacks(
    encoding: dict[str, str], tmp_path: Path
) -> None:
    """One process writes all of them, one after the other."""
    command = [sys.executable, "-c", SEVERAL, json.dumps(OUTPUTS), "dcgän"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=os.environ | encoding, check=False)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"unknown workload" in done.stderr
    *outputs, codes = done.stdout.split(SEPARATOR.encode())
    assert json.loads(codes) == [0] * len(OUTPUTS) + [2]
    assert all(outputs[:-1])


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
class Interrupt:
    n = 0
    def find_spec(self, name, *_):
        self.n += self.n > 0 or name == "tuner.cli"
        if self.n == NUMBER:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["tftune", "inspect"]
SCRIPT
"""


@pytest.mark.parametrize("number", [1, 2, 10, 40, 80, 150, 300])
def test_control_c_at_any_moment_of_a_start_is_no_traceback(number: int, tmp_path: Path) -> None:
    """At the import of one module or another of ours; while Python itself starts nobody can help it."""
    script = Path(sys.executable).with_name("tftune").read_text()
    code = INTERRUPTED.replace("NUMBER", str(number)).replace("SCRIPT", script)
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.returncode in (130, -signal.SIGINT)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    done = tftune_here("search", "resnet50", cwd=tmp_path, env=os.environ | {"TFTUNE_CACHE": "/proc/none"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "TFTUNE_CACHE" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--space", "--storage", "workload"])
def test_files_that_may_not_be_read(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser may read everything, so the refusal is made here."""
    path = tmp_path / {"--space": "s.toml", "--storage": "s.db", "workload": "w.py"}[option]
    path.write_text("")
    for method in ("open", "read_text", "read_bytes"):
        monkeypatch.setattr(Path, method, _refuse)
    with pytest.raises(BadInputError):
        if option == "--space":
            read_space(str(path), detect_made())
        elif option == "--storage":
            check_storage(f"sqlite:///{path}")
        else:
            load(str(path))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://results.db", "'sqlite://results.db' is neither a path nor a URL; write sqlite:///results.db"),
        ("sqlite:results.db", "'sqlite:results.db' is neither a path nor a URL; write sqlite:///results.db"),
        ("sqlite:/results.db", "'sqlite:/results.db' is neither a path nor a URL; write sqlite:////results.db"),
        ("sqlite://", "names a folder"),
        ("mysql+pymysql://u@host:port/db", "mysql+pymysql://u@host:port/db cannot be opened: its port is no number"),
        ("mysql+pymysql://u@host:port/db", "write the number of the port after the host"),
    ],
)
def test_a_storage_that_is_written_wrongly(url: str, message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        check_storage(storage_url(url))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://u:secret@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:sec@ret@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:se/c@host/db", "postgresql://u:***@host/db"),
        ("postgresql://host/db?user=u&password=secret&x=1", "postgresql://host/db?user=u&password=***&x=1"),
        ("postgresql://u@host:5432/db", "postgresql://u@host:5432/db"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_no_part_of_a_password_is_shown(url: str, text: str) -> None:
    assert shown(url) == text


def test_an_at_sign_in_a_password_has_to_be_escaped() -> None:
    error = cannot_open("postgresql://u:p@ss@host/db", RuntimeError('could not translate host name "ss@host"'))
    assert error.hint == "write %40 for an @ in the user or the password"
    error = cannot_open("postgresql://u:p@host/db", RuntimeError('could not translate host name "host"'))
    assert error.hint.startswith("check the host")


def _refuse(*_args: object, **_options: object) -> NoReturn:
    raise PermissionError(errno.EACCES, "Permission denied")


def detect_made() -> Machine:
    """A machine that needs no file to be read."""
    return Machine(
        id="made", cpu_model="", architecture="", online_cpus=1, logical_cpus=1, physical_cores=1, threads_per_core=1,
        sockets=1, numa_nodes={}, affinity="0", cpu_quota=None, memory_bytes=0, memory_limit_bytes=None,
    )  # fmt: skip


def test_an_unusable_stdout_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [str(Path(sys.executable).with_name("tftune")), "list"]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    closed = subprocess.run(
        ["sh", "-c", f"{command[0]} list --json >&-"], cwd=tmp_path, stderr=subprocess.PIPE, check=False
    )
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_inspect_needs_no_place_to_write() -> None:
    done = tftune_here("inspect", "--json", cwd=Path("/proc"))
    assert done.returncode == 0, done.stderr


def test_the_version(tmp_path: Path) -> None:
    assert re.fullmatch(r"tftune \d+\.\d+\.\d+\n", tftune_started("--version", cwd=tmp_path).stdout)


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    command = [sys.executable, "-m", "tuner", "workloads"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
        assert running.wait() == 0
