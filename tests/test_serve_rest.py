"""The script that measures a server: what it finds where theory says what that is, and servers that misbehave."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from docs import serve_rest
from tests.command_line import tftune_here
from tests.processes import gone, wait_until

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs/serve_rest.py"
SERVER = """
import os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, service_s, how = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
lock, numbers = threading.Lock(), iter(range(10**6))

class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with lock:
            number = next(numbers)
            time.sleep(service_s)
        if how == "dies" and number == 20:
            print("out of memory, as it seems", flush=True)
            os._exit(7)
        if how == "silent" and number > 20:
            time.sleep(60)
        if how == "hangs up" and number % 10 == 5:
            self.close_connection = True
            return
        self.send_response(503 if how == "full" and number % 10 == 5 else 404 if how == "lost" else 200)
        if how == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"2\\r\\n[]\\r\\n0\\r\\n\\r\\n")
        else:
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close" if how == "closes" else "keep-alive")
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass

if how == "slow to load":
    time.sleep(0.5)
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a server and a request."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "request.json").write_text('{"instances": [[1.0]]}')
    return tmp_path


def free_port() -> int:
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return int(any_port.getsockname()[1])


def words(folder: Path, *options: str, how: str = "well", service_s: float = 0.001, port: int = 0) -> list[str]:
    """Return the command that measures the server of a folder for a second, unless options say otherwise."""
    port = port or free_port()
    usual = ["--rate", "60", "--seconds", "1", "--warm-up", "0.2", "--timeout", "0.5", "--request", "request.json"]
    server = [sys.executable, str(folder / "server.py"), str(port), str(service_s), how]
    return [sys.executable, str(SCRIPT), "--port", str(port), *usual, *options, "--", *server]


def measured(folder: Path, *options: str, how: str = "well", service_s: float = 0.001) -> SimpleNamespace:
    """Return the exit code, what was printed, and the error."""
    command = words(folder, *options, how=how, service_s=service_s)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr.strip())


def figure(out: str, name: str) -> float:
    """Return a figure (ms) by its name."""
    [found] = re.findall(rf"{name} ([0-9.]+) ms", out)
    return float(found)


@pytest.mark.alone
def test_response_times_are_those_of_the_queue(folder: Path) -> None:
    """A server that takes the same time for each request: Lindley's recursion says how long each waits."""
    options = Namespace(rate=25.0, seconds=6.0, warm_up=0.0, seed=0)
    service_s = 0.02
    due_s = serve_rest.due_times(options)
    response_s = [service_s]
    for before, after in itertools.pairwise(due_s):
        response_s.append(service_s + max(0.0, response_s[-1] - (after - before)))
    mean, p99 = (1000 * each for each in (sum(response_s) / len(due_s), serve_rest.quantile(sorted(response_s), 0.99)))
    assert mean > 1000 * service_s * 1.2  # there is a queue
    outs = []
    for _ in range(3):
        done = measured(folder, "--rate", "25", "--seconds", "6", "--warm-up", "0", service_s=service_s)
        assert (done.code, done.err) == (0, "")
        assert f"{len(due_s)} requests due in 6 s at 25 per second, {len(due_s)} answered" in done.out
        outs.append(done.out)
        if figure(done.out, "mean") < 1.25 * mean and figure(done.out, "p99") < 1.25 * p99:
            break
    # What others on the machine do can only make a request wait for longer.
    assert min(figure(out, "mean") for out in outs) == pytest.approx(mean, rel=0.25)
    assert min(figure(out, "p99") for out in outs) == pytest.approx(p99, rel=0.25)


def test_times_are_a_poisson_process_of_the_rate_and_the_same_again() -> None:
    options = Namespace(rate=50.0, seconds=190.0, warm_up=10.0, seed=0)
    due_s = serve_rest.due_times(options)
    gaps = [b - a for a, b in itertools.pairwise(due_s)]
    assert len(due_s) == pytest.approx(10_000, abs=400)  # four standard deviations
    assert sum(gap > 0.02 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.02)  # exp(-1)
    assert serve_rest.due_times(options) == due_s
    assert serve_rest.due_times(Namespace(**{**vars(options), "seed": 1})) != due_s


@pytest.mark.parametrize("how", ["well", "chunked", "closes", "slow to load"])
def test_answers_of_each_form_are_read(folder: Path, how: str) -> None:
    done = measured(folder, how=how)
    assert (done.code, done.err) == (0, "")
    assert 0 < figure(done.out, "p50") <= figure(done.out, "p99")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("full", r"\d of \d+ requests failed: status 503 \(\d\)"),
        ("hangs up", r"\d of \d+ requests failed: closed without an answer \(\d\)"),
        ("silent", r"\d+ of \d+ requests failed: no answer \(\d+\)"),
        ("dies", "the server ended with exit code 7 under load: out of memory, as it seems"),
        ("lost", r'the server has answered 404 to the first request: \{"instances": \[\[1.0\]\]\}'),
    ],
)
def test_a_server_that_fails_is_one_line_and_exit_code_1(folder: Path, how: str, message: str) -> None:
    done = measured(folder, how=how)
    assert done.code == 1
    assert re.fullmatch(f"serve_rest: {message}", done.err)
    if how in ("full", "hangs up"):  # what was answered is timed, and nothing else
        answered = re.search(r"(\d+) requests due .* (\d+) answered", done.out)
        assert answered is not None
        assert int(answered[2]) < int(answered[1])
        assert figure(done.out, "p99") > 0


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (["sleep", "60"], "the server has not opened port {port}, 0.5 s after its start"),
        (["sh", "-c", "echo no such model >&2; exit 3"], "the server ended with exit code 3 before it answered: "
         "no such model"),
        (["sh", "-c", "kill -KILL $$"], "the server was killed by SIGKILL before it answered"),
    ],
)  # fmt: skip
def test_a_server_that_never_answers(folder: Path, server: list[str], message: str) -> None:
    command = words(folder, "--start-timeout", "0.5")
    port = command[command.index("--port") + 1]
    command = [*command[: command.index("--") + 1], *server]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == f"serve_rest: {message.format(port=port)}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rate", "0"], "--rate is 0, expected more than 0"),
        (["--rate", "nan"], "--rate is nan, expected more than 0"),
        (["--seconds", "-1"], "--seconds is -1, expected more than 0"),
        (["--warm-up", "-1"], "--warm-up is -1, expected 0 or more"),
        (["--request", "none.json"], "--request none.json cannot be read: No such file or directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder: Path, options: list[str], message: str) -> None:
    done = measured(folder, *options)
    assert (done.code, done.out, done.err) == (2, "", f"serve_rest: {message}")


def test_a_missing_server_and_a_port_in_use_are_bad_input(folder: Path) -> None:
    def error(command: list[str]) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr.strip()

    command = words(folder)
    before = command[: command.index("--")]
    assert error(before) == "serve_rest: no server given; put its command last, after --"
    assert error([*before, "--", "./none"]) == "serve_rest: ./none cannot be started: No such file or directory"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = f"serve_rest: port {port} is in use, and another server would be measured; end that first"
        assert error(words(folder, port=port)) == taken


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_the_script(folder: Path, signum: signal.Signals) -> None:
    script = subprocess.Popen(words(folder, "--seconds", "60"), cwd=folder, stderr=subprocess.PIPE, text=True)
    assert wait_until(lambda: bool(psutil.Process(script.pid).children()), 10)
    [server] = psutil.Process(script.pid).children()
    time.sleep(0.5)
    script.send_signal(signum)
    assert (script.communicate(timeout=20)[1], script.returncode) == ("", 128 + signum)
    assert wait_until(lambda: gone(server.pid), 5)


MODEL_SERVER = """#!{python}
import sys
flags = dict(word.partition("=")[::2] for word in sys.argv[1:])
if "--enable_batching" in flags:
    print(open(flags["--batching_parameters_file"]).read())
sys.argv = ["server.py", flags["--rest_api_port"], "0.001", "well"]
exec(open("server.py").read())
"""


def test_the_commands_of_the_page_run_as_they_stand(folder: Path) -> None:
    """All but the port, the length and the place of the batching file; a program stands in for TensorFlow Serving."""
    server = folder / "bin/tensorflow_model_server"
    server.parent.mkdir()
    server.write_text(MODEL_SERVER.format(python=sys.executable))
    server.chmod(0o755)
    (folder / "docs").symlink_to(ROOT / "docs")
    (server.parent / "python").symlink_to(sys.executable)
    page = (ROOT / "docs/servers.md").read_text()
    blocks = [each for each in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "tftune" not in each]
    assert len(blocks) == 2
    for block in blocks:
        script = block.replace("8501", str(free_port())).replace("/tmp/batching.config", "batching.config")
        script = script.replace("--rate 40", "--rate 40 --seconds 0.3 --warm-up 0")
        env = {**os.environ, "PATH": f"{server.parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-eu", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("p99") == (4 if "for wait" in block else 1)


@pytest.mark.tensorflow
def test_it_is_a_command_whose_number_is_tuned(folder: Path) -> None:
    """The server takes 9 ms with one thread, and 4 ms with the two that it has where nothing is set."""
    server = f'exec {shlex.quote(sys.executable)} server.py "$0" 0.00$((9 - 5 * (${{OMP_NUM_THREADS:-2}} > 1))) well'
    port = free_port()
    load = words(folder, "--seconds", "0.4", "--warm-up", "0", "--rate", "40", port=port)
    command = [*load[: load.index("--") + 1], "sh", "-c", server, str(port)]
    compare = ("compare", "--framework", "command", "--minimize", "--metric-regex", "p50 ([0-9.]+) ms")
    settings = ("--a", "command-default", "--b", "openmp_threads=1,openmp_binding=false")
    ended = tftune_here(*compare, *settings, "--time-budget", "30s", "--json", "--", *command, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["verdict"] == "worse"
    assert document["speedup"] < 0.75


@pytest.mark.tensorflow
def test_a_saved_model_is_served_and_measured(folder: Path) -> None:
    port = free_port()
    made = """import tensorflow as tf
m = tf.Module()
m.f = tf.function(lambda x: {'y': x + 1}, [tf.TensorSpec([None, 1])])
tf.saved_model.save(m, 'served', signatures=m.f)"""
    subprocess.run([sys.executable, "-c", made], cwd=folder, check=True, capture_output=True)
    server = [sys.executable, "-m", "tests.model_server", str(folder / "served"), str(port)]
    command = words(folder, "--rate", "30", "--path", "/v1/models/served:predict", "--warm-up", "1", port=port)
    command = [*command[: command.index("--") + 1], *server]
    command[command.index("request.json")] = str(folder / "request.json")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert figure(done.stdout, "p50") < 100
    (folder / "request.json").write_text('{"instances": [["text"]]}')
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("serve_rest: the server has answered 400 to the first request")


GRPC_SERVER = """
import sys, threading, time
from concurrent import futures
import grpc

port, service_s, how = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
lock, numbers = threading.Lock(), iter(range(10**6))

def predict(request, context):
    with lock:
        number = next(numbers)
        time.sleep(service_s)
    if how == "full" and number % 10 == 5:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full")
    if how == "lost":
        context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
    return request

methods = {"Predict": grpc.unary_unary_rpc_method_handler(predict)}
server = grpc.server(futures.ThreadPoolExecutor(64))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", methods)])
server.add_insecure_port(f"127.0.0.1:{port}")
server.start()
server.wait_for_termination()
"""


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("well", 0, ""),
        ("full", 1, r"serve_rest: \d of \d+ requests failed: status 503 \(\d\)"),
        ("lost", 1, "serve_rest: the server has answered 400 to the first request: NOT_FOUND: no such model"),
    ],
)
def test_a_server_is_measured_by_grpc(folder: Path, how: str, code: int, message: str) -> None:
    pytest.importorskip("grpc")
    (folder / "server.py").write_text(GRPC_SERVER)
    done = measured(folder, "--grpc", "/tensorflow.serving.PredictionService/Predict", how=how, service_s=0.002)
    assert done.code == code, done.err
    assert re.fullmatch(message, done.err)
    if how != "lost":
        assert figure(done.out, "p50") > 2


def test_a_server_that_opens_no_port_for_grpc(folder: Path) -> None:
    pytest.importorskip("grpc")
    command = words(folder, "--start-timeout", "0.5", "--grpc", "/tensorflow.serving.PredictionService/Predict")
    command = [*command[: command.index("--") + 1], "sleep", "60"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, "has not opened port" in done.stderr) == (1, True)
