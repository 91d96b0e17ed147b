"""Measure a server as its users do: start it, send it requests at random times, print the response times, end it.

    python docs/serve_rest.py --rate 40 --port 8501 --path /v1/models/resnet50:predict --request request.json \\
        -- tensorflow_model_server --rest_api_port=8501 --model_name=resnet50 --model_base_path=/models/resnet50

Requests are due at the times of a Poisson process with a fixed seed, and are sent whether or not earlier ones are
answered. A response time counts from when its request was due, so that waiting is in it. What is due in the warm-up is
not counted. An answer that is not 2xx, or does not come, is counted and not timed.

Exit codes: 0 every request was answered, 1 the server failed, 2 bad input. Python 3.9 or newer, and nothing else, but
grpcio with --grpc: it shares no code with tftune, so that each can check the other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import math
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

HOST = "127.0.0.1"
CLOCK = time.monotonic
NOT_ANSWERED = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)
GRACE_S = 5.0  # for the server to end by itself


class InputError(Exception):
    """What was asked for cannot be done."""


class ServerError(Exception):
    """The server did not do what it is for."""


class Answer(NamedTuple):
    """A request that was due (s after the first): how long its answer took from there, what went wrong if anything."""

    due_s: float
    response_s: float
    failure: str


def main() -> int:
    """Measure, and return the exit code."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, _leave)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    options, command = parser().parse_args(words[:at]), words[at + 1 :]
    try:
        requests = [request_of(options, path) for path in options.request]
        check(options, command)
        with tempfile.TemporaryFile() as log:
            server = start(command, log)
            try:
                answers, late_s = asyncio.run(measure(options, requests, server, log))
            finally:
                end(server)
        report(options, answers, late_s)
    except (InputError, ServerError) as error:
        print(f"serve_rest: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def _leave(signum: int, _: FrameType | None) -> None:
    raise SystemExit(128 + signum)


def parser() -> argparse.ArgumentParser:
    """Return what reads the words before the server's command."""
    made = argparse.ArgumentParser(
        usage="%(prog)s --rate R --port PORT --request FILE [options] -- SERVER...",
        description="Start a server, send it requests at random times, print the response times, end it.",
    )
    made.add_argument("--rate", type=float, required=True, help="requests per second")
    made.add_argument("--port", type=int, required=True, help="where the server listens on this machine")
    made.add_argument(
        "--request",
        type=Path,
        required=True,
        action="append",
        help="a file that is sent as the body of each request; of several each is sent in its turn",
    )
    made.add_argument("--path", default="/", help="of the URL, such as /v1/models/NAME:predict")
    made.add_argument(
        "--grpc",
        metavar="METHOD",
        help="call this method by gRPC instead, such as /tensorflow.serving.PredictionService/Predict; each file is a "
        "serialized message then (needs the package grpcio)",
    )
    made.add_argument("--seconds", type=float, default=20.0, help="how long it is measured (default 20)")
    made.add_argument("--warm-up", type=float, default=3.0, help="seconds before that (default 3)")
    made.add_argument("--start-timeout", type=float, default=60.0, help="for the first answer (default 60)")
    made.add_argument("--timeout", type=float, default=10.0, help="for the last answers (default 10)")
    made.add_argument("--seed", type=int, default=0, help="of the times; equal seeds give equal times")
    return made


def check(options: argparse.Namespace, command: list[str]) -> None:
    """Raise InputError for what cannot be measured."""
    if not command:
        raise InputError("no server given; put its command last, after --")
    for name in ("rate", "seconds", "start_timeout", "timeout"):
        if not (math.isfinite(getattr(options, name)) and getattr(options, name) > 0):
            raise InputError(f"--{name.replace('_', '-')} is {getattr(options, name):g}, expected more than 0")
    if not 0 <= options.warm_up < math.inf:
        raise InputError(f"--warm-up is {options.warm_up:g}, expected 0 or more")
    with socket.socket() as probe:
        if probe.connect_ex((HOST, options.port)) == 0:
            raise InputError(f"port {options.port} is in use, and another server would be measured; end that first")


def request_of(options: argparse.Namespace, path: Path) -> bytes:
    """Return the bytes of a request with a file as its body: of HTTP with a head, of gRPC the body alone."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise InputError(f"--request {path} cannot be read: {error.strerror}") from None
    if options.grpc:
        return body
    head = (
        f"POST {options.path} HTTP/1.1\r\nHost: {HOST}:{options.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


# ---- the server -----------------------------------------------------------------------------------------------------


def start(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the server in a process group of its own; what it prints goes to the log."""
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise InputError(f"{command[0]} cannot be started: {error.strerror}") from None


def end(server: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, signum)
            server.wait(GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def ended(server: subprocess.Popen[bytes], when: str, log: IO[bytes]) -> ServerError:
    """Return the error of a server that is gone, with the last that it printed."""
    code = server.wait()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return ServerError(f"the server {how} {when}" + (f": {lines[-1].strip()[:300]}" if lines else ""))


# ---- the requests ---------------------------------------------------------------------------------------------------


class Connections:
    """Connections to the server, which are kept open and used again."""

    def __init__(self, port: int) -> None:
        """Open none yet."""
        self.port = port
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the body of its answer."""
        while self.idle and self.idle[-1][0].at_eof():  # the server has closed it since
            self.idle.pop()[1].close()
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(HOST, self.port)
        is_kept = False
        try:
            writer.write(request)
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            status = int(first.split()[1])
            if fields.get("transfer-encoding", "").lower() == "chunked":
                body = await _chunks(reader)
            elif "content-length" in fields:
                body = await reader.readexactly(int(fields["content-length"]))
            else:
                fields["connection"], body = "close", await reader.read()
            is_kept = first.startswith("HTTP/1.1") and fields.get("connection", "").lower() != "close"
        finally:
            if is_kept:
                self.idle.append((reader, writer))
            else:
                writer.close()
        return status, body


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


class Calls:
    """Calls of a method by gRPC, over one connection; their codes are given as those of HTTP."""

    def __init__(self, port: int, method: str) -> None:
        """Connect when the first call is made; raises InputError without the package grpcio."""
        try:
            import grpc.aio
        except ImportError:
            raise InputError("--grpc needs the package grpcio: pip install grpcio") from None
        self.error, codes = grpc.aio.AioRpcError, grpc.StatusCode
        self.gone = codes.UNAVAILABLE
        wrong = (codes.INVALID_ARGUMENT, codes.NOT_FOUND, codes.UNIMPLEMENTED, codes.FAILED_PRECONDITION)
        self.statuses = dict.fromkeys(wrong, 400) | {codes.RESOURCE_EXHAUSTED: 503}
        any_size = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        at_once = [(f"grpc.{which}_reconnect_backoff_ms", 50) for which in ("initial", "min", "max")]
        self.call = grpc.aio.insecure_channel(f"{HOST}:{port}", options=[*any_size, *at_once]).unary_unary(method)

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the body of its answer, or what is said of the failure."""
        try:
            return 200, await self.call(request)
        except self.error as error:
            if error.code() is self.gone:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "no connection") from None
            return self.statuses.get(error.code(), 500), f"{error.code().name}: {error.details()}".encode()


async def measure(
    options: argparse.Namespace, requests: list[bytes], server: subprocess.Popen[bytes], log: IO[bytes]
) -> tuple[list[Answer], list[float]]:
    """Return what came of each request, and how late (s) each was sent, once the server answers."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file
    connections = Calls(options.port, options.grpc) if options.grpc else Connections(options.port)
    await wait_until_ready(options, connections, requests[0], server, log)
    answers, late_s = await send(options, connections, requests, server)
    if server.poll() is not None:
        raise ended(server, "under load", log)
    return answers, late_s


async def wait_until_ready(
    options: argparse.Namespace,
    connections: Connections | Calls,
    request: bytes,
    server: subprocess.Popen[bytes],
    log: IO[bytes],
) -> None:
    """Return when the first request is answered; raises ServerError where it is not."""
    deadline, problem = CLOCK() + options.start_timeout, f"has not opened port {options.port}"
    while (left_s := deadline - CLOCK()) > 0:
        if server.poll() is not None:
            raise ended(server, "before it answered", log)
        try:
            status, body = await asyncio.wait_for(connections.ask(request), left_s)
        except ConnectionRefusedError:
            pass
        except (TimeoutError, *NOT_ANSWERED):
            problem = f"has opened port {options.port} and not answered"
        else:
            if 200 <= status < 300:
                return
            text = " ".join(body.decode(errors="replace").split())[:300]
            problem = f"has answered {status} to the first request" + (f": {text}" if text else "")
            if status < 500:  # the request is wrong, and stays so
                raise ServerError(f"the server {problem}")
        await asyncio.sleep(0.05)
    raise ServerError(f"the server {problem}, {options.start_timeout:g} s after its start")


async def send(
    options: argparse.Namespace,
    connections: Connections | Calls,
    requests: list[bytes],
    server: subprocess.Popen[bytes],
) -> tuple[list[Answer], list[float]]:
    """Send each request when it is due; return what came of each, and how late (s) each was sent."""
    loop, all_sent = asyncio.get_running_loop(), asyncio.Event()
    due_s = due_times(options)
    answers: list[Answer] = []
    late_s: list[float] = []
    under_way: set[asyncio.Task[None]] = set()
    begin = CLOCK()

    async def ask(number: int) -> None:
        failure = "no answer"
        try:
            status, _ = await connections.ask(requests[number % len(requests)])
            failure = "" if 200 <= status < 300 else f"status {status}"
        except NOT_ANSWERED as error:
            failure = _why_not(error)
        finally:  # what is given up ends here, too
            answers.append(Answer(due_s[number], CLOCK() - begin - due_s[number], failure))

    def begin_one(number: int) -> None:
        late_s.append(CLOCK() - begin - due_s[number])
        task = loop.create_task(ask(number))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    def pace() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: by a signal
            for number, due in enumerate(due_s):
                time.sleep(max(0.0, begin + due - CLOCK()))
                if server.poll() is not None:
                    break
                loop.call_soon_threadsafe(begin_one, number)
            loop.call_soon_threadsafe(all_sent.set)

    # An event loop sleeps in whole milliseconds; a thread is woken up on time.
    threading.Thread(target=pace, daemon=True).start()
    await all_sent.wait()
    if under_way:
        _, given_up = await asyncio.wait(under_way, timeout=options.timeout)
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
    return answers, late_s


def _why_not(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "no connection"
    is_empty = isinstance(error, asyncio.IncompleteReadError) and not error.partial
    return "closed without an answer" if is_empty else "no whole answer"


def due_times(options: argparse.Namespace) -> list[float]:
    """Return when requests are due (s), by a Poisson process: the first at 0."""
    generator = random.Random(options.seed)
    due_s = [0.0]
    while (due := due_s[-1] + generator.expovariate(options.rate)) < options.warm_up + options.seconds:
        due_s.append(due)
    return due_s


# ---- the figures ----------------------------------------------------------------------------------------------------


def report(options: argparse.Namespace, answers: list[Answer], late_s: list[float]) -> None:
    """Print the figures; raises ServerError where requests failed."""
    counted = [each for each in answers if each.due_s >= options.warm_up]
    times_ms = sorted(1000 * each.response_s for each in counted if not each.failure)
    failures = Counter(each.failure for each in answers if each.failure)
    late_ms = 1000 * quantile(sorted(late_s), 0.99)
    print(
        f"{len(counted)} requests due in {options.seconds:g} s at {options.rate:g} per second, "
        f"{len(times_ms)} answered; 99 % were sent within {late_ms:.2f} ms of when they were due"
    )
    if times_ms:
        parts = [f"mean {math.fsum(times_ms) / len(times_ms):.3f} ms"]
        parts += [f"p{100 * q:g} {quantile(times_ms, q):.3f} ms" for q in (0.5, 0.9, 0.95, 0.99)]
        print(", ".join(parts))
    if failures:
        kinds = ", ".join(f"{failure} ({n})" for failure, n in failures.most_common())
        raise ServerError(f"{sum(failures.values())} of {len(answers)} requests failed: {kinds}")
    if not times_ms:
        raise InputError("no request was due; give more --seconds or a larger --rate")


def quantile(values: list[float], q: float) -> float:
    """Return the smallest of sorted values that a share of q lies at or below."""
    return values[max(0, math.ceil(q * len(values)) - 1)]


if __name__ == "__main__":
    raise SystemExit(main())
