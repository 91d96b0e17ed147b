"""`tftune run` with a small real server of a model, under load from clients, and ended in each way."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import gone, wait_until
from tuner.space.deployment import Deployment

pytestmark = pytest.mark.tensorflow

N = 2
SERVER = '''
"""Serves a small model: python serve.py BASE_PORT NUMBER."""
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        total = float(model(rows).sum())
        body = json.dumps({"total": total, "number": os.environ["TFTUNE_INSTANCE"], "pid": os.getpid(),
                           "cpus": sorted(os.sched_getaffinity(0)),
                           "intra_op": os.environ["TF_NUM_INTRAOP_THREADS"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) + int(sys.argv[2])), Handler)
MODEL
print("serving", flush=True)
server.serve_forever()
'''
MODELS = {
    "tensorflow": """
import tensorflow as tf
weights = tf.random.stateless_normal((64, 8), (1, 2))
softmax = tf.function(lambda rows: tf.nn.softmax(rows @ weights))
softmax(tf.zeros((1, 64)))
def model(rows):
    return softmax(tf.constant(rows)).numpy()
""",
    # Where it is no matter what computes: it is there at once.
    "numpy": """
import numpy as np
def model(rows):
    return np.full((len(rows), 8), 1 / 8)
""",
}


class Load:
    """Clients that ask all servers, one request after the other, until they are stopped."""

    def __init__(self, ports: list[int]) -> None:
        self.answers: dict[int, list[dict[str, Any]]] = {port: [] for port in ports}
        self.failed: dict[int, int] = dict.fromkeys(ports, 0)
        self.stopped = threading.Event()
        self.threads = [
            threading.Thread(target=self.ask, args=(port,), daemon=True) for port in ports for _ in range(2)
        ]
        for thread in self.threads:
            thread.start()

    def ask(self, port: int) -> None:
        body = json.dumps([[1.0] * 64] * 4).encode()
        while not self.stopped.is_set():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", body, timeout=5) as answer:
                    self.answers[port].append(json.load(answer))
            except (OSError, http.client.HTTPException):
                self.failed[port] += 1
                time.sleep(0.05)

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(10)


def free_ports() -> int:
    """Return a port that is free, and the next one too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


@pytest.fixture
def words(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[list[str], int]:
    """The command that runs two servers with cores of their own, and the port of the first.

    The model is NumPy's, where a test does not ask for another.
    """
    cpus = sorted(os.sched_getaffinity(0))
    deployment = Deployment(env={"TF_NUM_INTRAOP_THREADS": "1"}, processes=N, cpu_sets=(str(cpus[0]), str(cpus[-1])))
    (tmp_path / "setting.json").write_text(json.dumps(deployment.to_dict()))
    (tmp_path / "serve.py").write_text(SERVER.replace("MODEL", MODELS[getattr(request, "param", "numpy")]))
    port = free_ports()
    program = [sys.executable, str(tmp_path / "serve.py"), str(port), "{instance}"]
    return [sys.executable, "-m", "tuner", "run", str(tmp_path / "setting.json"), "--", *program], port


@pytest.fixture
def served(words: tuple[list[str], int]) -> Iterator[tuple[subprocess.Popen[str], Load, list[int]]]:
    """The runner, its servers under load, and the numbers of all processes below it."""
    command, port = words
    runner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    assert sorted(runner.stdout.readline() for _ in range(N)) == ["[0] serving\n", "[1] serving\n"]
    load = Load([port, port + 1])
    assert wait_until(lambda: all(len(each) > 20 for each in load.answers.values()), 30)
    yield runner, load, [each.pid for each in psutil.Process(runner.pid).children(recursive=True)]
    load.stop()
    runner.kill()
    runner.communicate()


@pytest.mark.parametrize("words", ["tensorflow"], indirect=True)
def test_each_server_has_a_core_and_one_that_is_killed_takes_the_others_along(
    served: tuple[subprocess.Popen[str], Load, list[int]],
) -> None:
    runner, load, pids = served
    cpus = sorted(os.sched_getaffinity(0))
    for number, answers in enumerate(load.answers.values()):
        last = answers[-1]
        assert (last["number"], last["cpus"], last["intra_op"]) == (str(number), [cpus[-number]], "1")
        assert last["total"] == pytest.approx(4.0, rel=1e-5)
    assert sum(load.failed.values()) == 0
    os.kill(list(load.answers.values())[1][-1]["pid"], signal.SIGKILL)
    _, error = runner.communicate(timeout=30)
    assert runner.returncode == 128 + signal.SIGKILL
    assert "copy 1 was killed by SIGKILL: the machine or the container may be out of memory; tftune now" in error
    assert wait_until(lambda: all(gone(pid) for pid in pids), 5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_a_runner_that_is_ended(
    served: tuple[subprocess.Popen[str], Load, list[int]], number: signal.Signals
) -> None:
    runner, load, pids = served
    runner.send_signal(number)
    runner.wait(30)
    assert runner.returncode == (143 if number is signal.SIGTERM else -number)
    assert wait_until(lambda: all(gone(pid) for pid in pids), 5)
    before = {port: len(answers) for port, answers in load.answers.items()}
    time.sleep(0.3)
    assert {port: len(answers) for port, answers in load.answers.items()} == before


def test_a_port_that_is_taken_is_told_by_the_program_itself(words: tuple[list[str], int]) -> None:
    command, port = words
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port + 1))
        other.listen()
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "[1] OSError: [Errno 98] Address already in use" in ended.stderr
    assert "copy 1 ended with exit code 1; tftune now ends the others" in ended.stderr
