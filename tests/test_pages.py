"""The commands of the pages, run by a shell as they stand and in their order, in a folder with a reader's files.

A command that measures is interrupted as soon as it has read all that it was given: its measuring has tests of its own.
What needs something that a test does not have is listed with its reason in `NEEDS`.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.outputs import PAGES
from tuner.paths import COMMAND, shipped_profiles

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

CLUSTER = Path(__file__).parents[1] / "docs" / "cluster.md"
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NEEDS = {
    r"tls://|ssh:": "other machines; tests/test_cluster.py runs clusters",
    r"serve_rest": "TensorFlow Serving; tests/test_serve_rest.py runs another server",
    r"frameworks.*--stored": "a comparison of half an hour before it",
    r"emit.*--same-latency": "an answer at the same latency; tests/test_same_latency.py has one",
    r"--framework numpy": "a plugin's package on the path; tests/test_frameworks.py runs it",
    r"gunicorn": "gunicorn",
    r"--device gpu": "an NVIDIA GPU",
    r"env create": "a network",
    r"--open\b": "a browser",
}
"""What a command needs that is not there, by what it has in its text."""
MEASURING = re.compile(
    r"tftune (search|compare|check|noise|load(?!.*--stored)|suite(?!.*--dry-run)|frameworks|overhead|profile"
    r"|recommend.*--verify|inspect.*--audit|predict(?!.*--machine))\b"
)
READ = re.compile(r"ratios are relative to|^#  |^round 1|^profiling with|^1/\d", re.MULTILINE)
"""What a command prints after it has read its input and before it measures."""
READ_SHIPPED = re.compile(r"^searching \d+ settings", re.MULTILINE)
"""The same of a search of a shipped workload, which has no file to be read."""
LONGEST_S = 300
ENOUGH_S = 15
"""How long a command that measures may run if it prints no such line."""
SERVE = "import os, sys\nprint(os.getpid(), sys.argv[1:])\n"
MODELS = """
import tensorflow as tf
tf.keras.utils.set_random_seed(0)
mlp = tf.keras.Sequential([tf.keras.Input((20,)), tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)])
mlp.save("model.keras")
mlp.export("saved_model", verbose=False)
class Encoder(tf.Module):
    def __init__(self):
        self.table = tf.Variable(tf.random.normal((30522, 16)))
    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32, name="ids")])
    def serve(self, ids):
        return {"score": tf.reduce_mean(tf.gather(self.table, ids), (1, 2))}
    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32, name=name) for name in ("ids", "mask")])
    def rank(self, ids, mask):
        return {"score": self.serve(ids * mask)["score"]}
encoder = Encoder()
tf.saved_model.save(encoder, "served/1", signatures={"serve": encoder.serve})
tf.saved_model.save(encoder, "models/ranker/3", signatures={"serve": encoder.rank})
import onnx
from onnx import TensorProto as T, helper as h
for path, name in (("model.onnx", "ids"), ("bert-onnx/model.onnx", "input_ids")):
    table = h.make_tensor("table", T.FLOAT, (100, 4), [0.5] * 400)
    graph = h.make_graph(
        [h.make_node("Gather", ["table", name], ["rows"]),
         h.make_node("ReduceMean", ["rows"], ["y"], keepdims=0, axes=[1])],
        "encoder", [h.make_tensor_value_info(name, T.INT64, ("batch", "sequence"))],
        [h.make_tensor_value_info("y", T.FLOAT, ("batch", 4))], [table],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8), path)
"""


def lines_of(page: Path) -> list[str]:
    """Return the commands of tftune in the code of a page, each on one line and without its comment."""
    text = page.read_text()
    blocks = re.findall(r"^```(?:bash|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if not block.startswith("#!")]  # scripts have tests of their own
    blocks += re.findall(r"(?:^    \S.*\n)+", FENCE.sub("", text), re.MULTILINE)
    lines = [line.strip() for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    lines = [re.sub(r"\s+#.*", "", line) for line in lines]
    return [line for line in lines if re.match(r"(eval \"\$\()?tftune |python docs/", line)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what a reader of the pages has: models, programs, files of options, and a study."""
    folder = tmp_path_factory.mktemp("pages") / "project"
    for name in ("served", "models/ranker", "training", "bert-onnx", "tools", "www"):
        (folder / name).mkdir(parents=True)
    models = (CLUSTER.parent / "models.md").read_text()
    [mine] = re.findall(r'^```python\n(""".*?)^```', models, re.MULTILINE | re.DOTALL)
    [team] = re.findall(
        r"^```toml\n(# Options of `tftune suite`.*?)^```", CLUSTER.read_text(), re.MULTILINE | re.DOTALL
    )
    variables = (CLUSTER.parent / "variables.md").read_text()
    [space] = re.findall(r"`mine.toml`.*?^```toml\n(.*?)^```", variables, re.MULTILINE | re.DOTALL)
    programs = {
        "mine.py": mine,
        "model.py": mine,
        "training/mine.py": mine,
        "team.toml": team,
        "mine.toml": space,
        "train.py": "print('183.4 images/sec')\nprint('10/10 - 12ms/step')\n",
        "bench.py": "print('images/sec: 183.4')\n",
        "bench": "#!/bin/sh\necho rate 18.34\n",
        "serve.py": SERVE,
        "batch.py": SERVE,
        "tools/tftune": f'#!/bin/sh\nexec {sys.executable} -P {COMMAND} "$@"\n',
        "tools/python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    subprocess.run([sys.executable, "-c", MODELS], cwd=folder, check=True, capture_output=True)
    for line in (
        "tftune search lenet5 --space serving --time-budget 40s",
        "tftune load last --time-budget 20s",
        "tftune inspect --json > server.json",
    ):
        code, output = run(line, folder)
        assert code in (0, 1), output
    (folder / "prediction").mkdir()
    (folder / "prediction" / "capture.json").write_bytes(
        lzma.decompress((shipped_profiles() / "resnet50.json.xz").read_bytes())
    )
    (folder.parent / "reference.db").write_bytes(
        lzma.decompress((CLUSTER.parents[1] / "results" / "reference.db.xz").read_bytes())
    )
    (folder.parent / "other").mkdir()
    shutil.copy(folder / "results" / "tftune.db", folder.parent / "other" / "tftune.db")
    return folder


def run(line: str, folder: Path, *, interrupt: bool = False) -> tuple[int, str]:
    """Run a line as a shell does; return its exit code and its output. What is interrupted has a storage of its own."""
    environment = os.environ | {"COLUMNS": "120", "PATH": f"{folder / 'tools'}:{os.environ['PATH']}"}
    if interrupt:
        own = Path(tempfile.mkdtemp(dir=folder.parent)) / "tftune.db"
        environment["TFTUNE_STORAGE"] = str(shutil.copy(folder / "results" / "tftune.db", own))
    elif "tftune rules" in line:  # which needs studies of six workloads
        environment["TFTUNE_STORAGE"] = str(folder.parent / "reference.db")
    output = folder.parent / "output.txt"
    with output.open("w") as file:
        shell = subprocess.Popen(
            # A test run in the background ignores the signal, and what it starts would, too.
            ["env", "--default-signal=INT", "bash", "-c", f"exec {line}" if interrupt else line],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        began, interrupted = time.monotonic(), False
        while shell.poll() is None:
            elapsed_s = time.monotonic() - began
            is_shipped = re.search(r"search [a-z]+[0-9]+ ", line + " ") is not None
            read = (READ_SHIPPED if is_shipped else READ).search(output.read_text(errors="replace")) is not None
            patience_s = LONGEST_S if "tftune search" in line else ENOUGH_S
            if interrupt and not interrupted and (read or elapsed_s > patience_s):
                os.kill(shell.pid, signal.SIGINT)
                interrupted = True
            if elapsed_s > 2 * LONGEST_S:
                os.killpg(shell.pid, signal.SIGKILL)
            time.sleep(0.1)
    # One that is slow to start has no handler of the signal yet.
    is_ended = interrupted and shell.returncode in (130, -signal.SIGINT)
    return (0 if is_ended else shell.returncode), output.read_text(errors="replace")


def commands() -> Iterator[tuple[Path, str]]:
    """Yield each line of the pages once."""
    known = set()
    for page in PAGES:
        for line in lines_of(page):
            if line not in known and page.name not in ("commands.md", "options.md"):
                known.add(line)
                yield page, line


def runnable(line: str) -> bool:
    """Return whether a test has all that a command needs."""
    needs_openmp = ".openmp" in line and "TFTUNE_OPENMP_PYTHON" not in os.environ
    return not needs_openmp and not any(re.search(pattern, line) for pattern in NEEDS)


RUNNABLE = [pytest.param(line, id=f"{page.stem}: {line}") for page, line in commands() if runnable(line)]


def test_few_commands_cannot_be_run() -> None:
    assert len(RUNNABLE) > 0.7 * len(list(commands()))


@pytest.mark.parametrize("line", RUNNABLE)
def test_a_command_runs_as_it_stands(line: str, folder: Path) -> None:
    as_typed = line.replace("/srv/www", str(folder / "www")).replace("/path/to/python", sys.executable)
    if "STUDY" in line:
        _, listed = run("tftune list --json", folder)
        as_typed = as_typed.replace("STUDY", re.findall(r"lenet5-inference-\w+", listed)[0])
    if ".openmp" in line and not (folder / ".openmp").exists():
        (folder / ".openmp").symlink_to(Path(os.environ["TFTUNE_OPENMP_PYTHON"]).parents[1])
    code, output = run(as_typed, folder, interrupt=MEASURING.search(line) is not None)
    assert code in (0, 1), output
    assert "Traceback" not in output or "KeyboardInterrupt" in output, output
