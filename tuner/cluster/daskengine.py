"""Dask's distributed scheduler as the engine: one seam to Slurm, PBS, Kubernetes and SSH.

What it is not asked to do: to choose nodes, to repeat, or to keep results. A task bound to a worker that is lost would
wait for it for ever, so that the driver compares the workers with what it expects, each turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tuner.cluster.engine import Answer
from tuner.cluster.node import ask, stop
from tuner.errors import BadInputError, TunerError
from tuner.paths import COMMAND
from tuner.study.database import first_line

if TYPE_CHECKING:
    from distributed import Client, Future, Security

LOCAL = "local"
_UNIT = {"unit": 1.0}
"""The resource of a node: it runs one unit at a time, and answers other questions meanwhile."""
_CONNECT_S = 10.0
_RETRY_S = 5.0
_SEND_S = 60.0
_FILES = {"tls_ca_file": "ca.pem", "tls_{}_cert": "cert.pem", "tls_{}_key": "key.pem"}
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.scheduler.worker-ttl": "60s",
}
"""Nothing but heartbeats is awake on a node while something is timed."""


def security_of(url: str, tls: Path | None, *, insecure: bool) -> Security | None:
    """Return how to talk to a scheduler: by TLS with the files of a folder, or without, if that is safe or wanted.

    Whoever reaches a scheduler runs programs on its nodes. Raises BadInputError for one that others reach without TLS.
    """
    with contextlib.suppress(ValueError):  # of a port that is none
        place = urlsplit(url)
        port = place.port
        if place.scheme in ("tcp", "tls") and place.hostname and port:
            return _security(url, place.scheme, place.hostname, tls, insecure=insecure)
    raise BadInputError(f"'{url}' is no scheduler", "expected an address such as tls://host:8786, or local")


def _security(url: str, scheme: str, host: str, tls: Path | None, *, insecure: bool) -> Security | None:
    if tls is not None and scheme == "tcp":
        raise BadInputError(f"--tls with {url}", f"use tls://{url.partition('://')[2]}, or leave --tls out")
    if scheme == "tls":
        if tls is None:
            raise BadInputError(f"{url} needs certificates", "add --tls FOLDER, with ca.pem, cert.pem and key.pem")
        for name in _FILES.values():
            if not (tls / name).is_file():
                raise BadInputError(f"there is no {tls / name}", "see docs/cluster.md for how to make certificates")
        files = {
            key.format(role): str(tls / name)
            for key, name in _FILES.items()
            for role in ("client", "worker", "scheduler")
        }
        security: Security = _distributed().Security(**files, require_encryption=True)
        return security
    if not insecure and not _is_loopback(host):
        raise BadInputError(
            f"{url} is not encrypted: whoever reaches it runs programs on all nodes",
            "use tls://… with --tls FOLDER, or --insecure on a network that is yours alone",
        )
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return False


class DaskEngine:
    """The nodes that are connected to a scheduler."""

    def __init__(self, url: str, security: Security | None) -> None:
        """Connect; raises BadInputError if no scheduler answers, or one of another version of Dask."""
        distributed = _distributed()
        try:
            self._client: Client = distributed.Client(url, security=security, timeout=_CONNECT_S, set_as_default=False)
            there = self._called("versions")["packages"]["distributed"]
        except (OSError, TimeoutError, ValueError, ImportError) as error:
            raise BadInputError(
                f"no scheduler answers at {url}: {first_line(error)}", "start one: dask scheduler --host 127.0.0.1"
            ) from error
        if there != distributed.__version__:
            self.close()
            raise BadInputError(
                f"the scheduler at {url} has version {there} of distributed, and this is {distributed.__version__}",
                "install the same version on all machines",
            )
        self._url = url
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._expected: dict[Future, str] = {}
        self._is_lost = False

    def addresses(self) -> Collection[str]:
        """Return the nodes that are there now; raises TunerError if the scheduler is lost, or was for a moment."""
        try:
            if self._is_lost:
                raise OSError("the connection was interrupted")
            workers = self._called("identity", n_workers=-1)["workers"]
        except Exception as error:  # Dask, Tornado and asyncio each raise their own
            raise TunerError(
                f"the scheduler at {self._url} is lost: {first_line(error)}",
                "start it again, then the same command goes on and fetches what nodes have ended",
            ) from error
        return [address for address, worker in workers.items() if _UNIT.keys() <= worker["resources"].keys()]

    def _called(self, what: str, **options: Any) -> Any:
        """Return what the scheduler itself says; nodes are not disturbed."""
        return self._client.sync(getattr(self._client.scheduler, what), callback_timeout=_CONNECT_S, **options)

    def ask(self, address: str, name: str, question: bytes, *, measures: bool) -> None:
        """Send a question to a node. One that measures needs the node's resource, and others are answered beside it."""
        future = self._client.submit(
            ask,
            question,
            key=f"{name}-{time.monotonic_ns()}",
            workers=[address],
            allow_other_workers=False,
            resources=_UNIT if measures else None,
            retries=0,
            pure=False,
        )
        self._expected[future] = address
        future.add_done_callback(functools.partial(self._done, address, name))

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers that have come; waits so long (s) for the first."""
        came: list[Answer] = []
        with contextlib.suppress(queue.Empty):
            came.append(self._answers.get(timeout=timeout_s))
            while True:
                came.append(self._answers.get_nowait())
        return came

    def drop(self, address: str) -> None:
        """Expect no more answers of a node that is gone: Dask would wait for it."""
        for future in [future for future, at in [*self._expected.items()] if at == address]:
            del self._expected[future]
            with contextlib.suppress(Exception):
                future.cancel(force=True)

    def close(self) -> None:
        """Disconnect; what runs on nodes goes on."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=_CONNECT_S)

    def _done(self, address: str, name: str, future: Future) -> None:
        """Take an answer; Dask calls this in a thread of its own."""
        if future not in self._expected:
            return
        answer = None
        if future.status == "finished":
            # A node that is lost before it has sent the answer sends none, and `addresses` shows that.
            with contextlib.suppress(Exception):
                answer = Answer(address=address, name=name, data=future.result(timeout=_SEND_S))
        elif future.status == "error":
            answer = Answer(address=address, name=name, failure=first_line(future.exception()))
        else:  # cancelled or lost, with the connection to the scheduler
            self._is_lost = True
        if answer is not None and self._expected.pop(future, None) is not None:
            self._answers.put(answer)


@contextlib.contextmanager
def engine(url: str, *, tls: Path | None = None, insecure: bool = False) -> Iterator[DaskEngine]:
    """Yield the engine at a URL, or a scheduler and a node of our own on this machine (`local`)."""
    with contextlib.ExitStack() as cleanup:
        security = None
        if url == LOCAL:
            url = cleanup.enter_context(_own_cluster())
        else:
            security = security_of(url, tls, insecure=insecure)
        connected = DaskEngine(url, security)
        cleanup.callback(connected.close)
        yield connected


@contextlib.contextmanager
def _own_cluster() -> Iterator[str]:
    distributed = _distributed()
    with distributed.LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address=None, silence_logs=logging.CRITICAL
    ) as cluster:
        url = str(cluster.scheduler_address)
        words = [sys.executable, "-P", str(COMMAND), "node", url]
        node = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield url
        finally:
            node.terminate()
            node.wait()


def serve(url: str, *, tls: Path | None, insecure: bool, tell: Callable[[str], None]) -> None:
    """Be a node of the scheduler at a URL until interrupted; one that is lost is waited for."""
    security = security_of(url, tls, insecure=insecure)
    distributed = _distributed()

    async def one_life(folder: str) -> None:
        host = None if not _is_loopback(str(urlsplit(url).hostname)) else "127.0.0.1"
        worker = distributed.Worker(
            url,
            nthreads=2,
            resources=_UNIT,
            security=security,
            host=host,
            memory_limit=0,
            local_directory=folder,
            dashboard_address="127.0.0.1:0",
            death_timeout=_CONNECT_S,
        )
        async with worker:
            tell(f"{socket.gethostname()} is a node of {url}; press Ctrl-C to leave")
            await worker.finished()

    was_lost = False
    try:
        with tempfile.TemporaryDirectory(prefix="tftune-node-") as folder:
            while True:
                try:
                    asyncio.run(one_life(folder))
                    was_lost = False
                except (OSError, TimeoutError, RuntimeError, ValueError) as error:
                    if not was_lost:
                        why = first_line(error.__cause__ or error)
                        tell(f"no scheduler takes this node at {url}: {why}; trying again every {_RETRY_S:.0f} s")
                    was_lost = True
                time.sleep(_RETRY_S)
    finally:  # a scheduler that is lost ends nothing: what runs goes on, and is fetched later
        stop()


def _distributed() -> Any:
    """Return Dask's package, made quiet; raises BadInputError if it is not installed."""
    try:
        import dask
        import distributed
    except ImportError as error:
        raise BadInputError(
            "a cluster needs Dask's scheduler, which is not installed", "pip install 'tftune[cluster]' on all machines"
        ) from error
    dask.config.set(_QUIET)
    for name in ("distributed", "distributed.client", "distributed.worker", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed
