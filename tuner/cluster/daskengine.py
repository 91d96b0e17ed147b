"""Dask's distributed scheduler as the engine. Its nodes are `tftune node`, wherever that was started.

The driver chooses nodes, repeats cases and keeps results; Dask does none of these. A task that is bound to a lost
worker waits for ever, so the driver checks the list of workers in each turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
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

from tuner.cluster import ssh
from tuner.cluster.node import ask, stop
from tuner.cluster.wire import Answer
from tuner.errors import BadInputError, TunerError
from tuner.job.nested import end_with_parent
from tuner.machine.host import NODE_VARIABLE, node_name
from tuner.paths import COMMAND
from tuner.study.database import first_line

if TYPE_CHECKING:
    from distributed import Client, Future, Security

LOCAL = "local"
SSH = "ssh:"
_UNIT = {"unit": 1.0}
"""A node has one of this resource, so it runs one unit at a time. Other questions need none."""
_CONNECT_S = 10.0
_RETRY_S = 5.0
_SEND_S = 60.0
_CLOSE_S = 20.0
_FILES = dict(zip(("tls_ca_file", "tls_{}_cert", "tls_{}_key"), ssh.CERTIFICATES, strict=True))
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.nvml": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.client.scheduler-info-interval": "60s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.scheduler.worker-ttl": "60s",
}
"""A node sends nothing but heartbeats during a measurement."""


def security_of(url: str, tls: Path | None, *, insecure: bool) -> Security | None:
    """Return the TLS settings of a scheduler, from the files of a folder; None for a connection without TLS.

    Whoever reaches a scheduler can run programs on its nodes. Raises BadInputError if others may reach it without TLS.
    """
    with contextlib.suppress(ValueError):  # of a port that is none
        place = urlsplit(url)
        port = place.port
        if place.scheme in ("tcp", "tls") and place.hostname and port:
            return _security(url, place.scheme, place.hostname, tls, insecure=insecure)
    raise BadInputError(
        f"'{url}' is no address of a scheduler", "expected tls://HOST:PORT, tcp://127.0.0.1:PORT, ssh:FILE or local"
    )


def _security(url: str, scheme: str, host: str, tls: Path | None, *, insecure: bool) -> Security | None:
    if tls is not None and scheme == "tcp":
        raise BadInputError(f"--tls with {url}", f"use tls://{url.partition('://')[2]}, or leave --tls out")
    if scheme == "tls":
        if tls is None:
            raise BadInputError(f"{url} needs certificates", "add --tls FOLDER, with ca.pem, cert.pem and key.pem")
        for name in _FILES.values():
            if not (tls / name).is_file():
                raise BadInputError(
                    f"{tls} has no {name}", f"expected {', '.join(_FILES.values())}: copy the scheduler's folder here"
                )
        files = {
            key.format(role): str(tls / name)
            for key, name in _FILES.items()
            for role in ("client", "worker", "scheduler")
        }
        security: Security = _distributed().Security(**files, require_encryption=True)
        try:
            security.get_connection_args("worker")
        except OSError as error:
            raise BadInputError(
                f"the certificates in {tls} cannot be read: {first_line(error)}", "make them again"
            ) from error
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

    def __init__(self, url: str, security: Security | None, *, n_started: int = 0) -> None:
        """Connect; raises BadInputError if no scheduler answers, or if its version of Dask differs."""
        distributed = _distributed()
        try:
            self._client: Client = distributed.Client(url, security=security, timeout=_CONNECT_S, set_as_default=False)
            there = self._called("versions")["packages"]["distributed"]
            for topic in ("print", "warn"):  # by which any node could write on this terminal
                self._client.unsubscribe_topic(topic)
        except Exception as error:  # an open port may be anything
            raise BadInputError(
                f"no scheduler answers at {url}: {first_line(error)}",
                "start tftune scheduler there, or check the firewall and the certificates",
            ) from error
        if there != distributed.__version__:
            self.close()
            raise BadInputError(
                f"the scheduler at {url} has version {there} of distributed, and this is {distributed.__version__}",
                f"install that one here: pip install distributed=={there}",
            )
        self.n_started = n_started
        self._url = url
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._expected: dict[Future, str] = {}

    def addresses(self) -> Collection[str]:
        """Return the connected nodes; raises TunerError if the scheduler is lost."""
        try:
            workers = self._called("identity", n_workers=-1)["workers"]
        except Exception as error:  # Dask, Tornado and asyncio each raise their own
            raise TunerError(
                f"the scheduler at {self._url} is lost: {first_line(error)}",
                "start it again, then the same command goes on and fetches what nodes have ended",
            ) from error
        return [
            address
            for address, worker in workers.items()
            if worker["status"] == "running" and _UNIT.keys() <= worker["resources"].keys()
        ]

    def _called(self, what: str, **options: Any) -> Any:
        """Return what the scheduler itself reports; this sends nothing to nodes."""
        return self._client.sync(getattr(self._client.scheduler, what), callback_timeout=_CONNECT_S, **options)

    def ask(self, address: str, name: str, question: bytes, *, measures: bool) -> None:
        """Send a question to a node. One that measures takes the node's resource; others are answered meanwhile."""
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
        """Return the answers that have arrived. Wait at most `timeout_s` (s) for the first."""
        came: list[Answer] = []
        with contextlib.suppress(queue.Empty):
            came.append(self._answers.get(timeout=timeout_s))
            while True:
                came.append(self._answers.get_nowait())
        return came

    def drop(self, address: str) -> None:
        """Expect no more answers from a lost node; Dask would wait for ever."""
        for future in [future for future, at in [*self._expected.items()] if at == address]:
            del self._expected[future]
            with contextlib.suppress(Exception):
                future.cancel(force=True)

    def close(self) -> None:
        """Disconnect; nodes finish their searches."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=_CONNECT_S)

    def _done(self, address: str, name: str, future: Future) -> None:
        """Take an answer; Dask calls this in a thread of its own."""
        if future not in self._expected or future.status == "lost":  # with its node, as `addresses` shows
            return
        data, failure = None, ""
        if future.status == "cancelled":  # not by us: the connection to the scheduler was interrupted
            data = b""
        elif future.status == "error":
            failure = first_line(future.exception(timeout=_SEND_S))
        else:
            try:
                data = future.result(timeout=_SEND_S)
            except Exception as error:  # noqa: BLE001  # Dask, Tornado and asyncio each raise their own
                failure = f"the scheduler cannot fetch its answer ({first_line(error)}): check the firewall of the node"
        if self._expected.pop(future, None) is not None:
            self._answers.put(Answer(address=address, name=name, data=data, failure=failure))


@contextlib.contextmanager
def engine(
    url: str, *, tls: Path | None = None, insecure: bool = False, tell: Callable[[str], None] = lambda _: None
) -> Iterator[DaskEngine]:
    """Yield the engine at a URL, or a scheduler on this machine with nodes of our own.

    `local` has one node on this machine. `ssh:FILE` has one on each host of a file, whose lines `tell` gets.
    """
    with contextlib.ExitStack() as cleanup:
        security, n_started = None, 0
        is_own = url == LOCAL or url.startswith(SSH)
        if is_own and (tls is not None or insecure):
            option = "--insecure" if tls is None else "--tls"
            raise BadInputError(f"{option} with --cluster {url}", f"leave {option} out: tftune starts this cluster")
        if url == LOCAL:
            url, n_started = cleanup.enter_context(_own_cluster()), 1
        elif is_own:
            hosts = ssh.hosts_of(Path(url.removeprefix(SSH)))
            n_started = len(hosts)
            url, security = cleanup.enter_context(_ssh_cluster(hosts, tell))
        else:
            security = security_of(url, tls, insecure=insecure)
        connected = DaskEngine(url, security, n_started=n_started)
        cleanup.callback(connected.close)
        yield connected


@contextlib.contextmanager
def _own_cluster() -> Iterator[str]:
    with _own_scheduler(host="127.0.0.1") as cluster:
        url = str(cluster.scheduler_address)
        words = [sys.executable, "-P", str(COMMAND), "node", url]
        quiet = subprocess.DEVNULL
        node = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, preexec_fn=end_with_parent)
        try:
            yield url
        finally:
            node.terminate()
            node.wait()


@contextlib.contextmanager
def _ssh_cluster(hosts: dict[str, str], tell: Callable[[str], None]) -> Iterator[tuple[str, Security | None]]:
    pem = ssh.new_certificate()
    with ssh.certificates(pem) as folder:
        security = security_of("tls://127.0.0.1:1", folder, insecure=False)
        with _own_scheduler(host="0.0.0.0", protocol="tls", security=security) as cluster:  # by TLS alone
            port = urlsplit(cluster.scheduler_address).port
            with ssh.nodes(hosts, int(port or 0), pem, tell):
                yield f"tls://127.0.0.1:{port}", security


def _own_scheduler(**options: Any) -> Any:
    return _distributed().LocalCluster(
        n_workers=0,
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        silence_logs=logging.CRITICAL,
        **options,
    )


def schedule(url: str, *, tls: Path | None, insecure: bool, tell: Callable[[str], None]) -> None:
    """Run a scheduler at a URL until interrupted: it listens on that address alone, and is as quiet as a node."""
    security = security_of(url, tls, insecure=insecure)
    place, distributed = urlsplit(url), _distributed()

    async def run() -> None:
        scheduler = distributed.Scheduler(
            host=place.hostname,
            port=place.port,
            protocol=place.scheme,
            security=security,
            dashboard_address="127.0.0.1:0",
        )
        async with scheduler:
            tell(f"the scheduler listens at {url} until Ctrl-C")
            if _is_loopback(urlsplit(scheduler.address).hostname or "") and not _is_loopback(place.hostname or ""):
                tell(f"here {place.hostname} is this machine alone, which others cannot reach: use its IP address")
            await scheduler.finished()

    try:
        asyncio.run(run())
    except (OSError, RuntimeError) as error:
        why = first_line(error.__cause__ or error)
        hint = "choose an address of this machine and a free port"
        raise BadInputError(f"no scheduler can listen at {url}: {why}", hint) from error


def serve(url: str, *, tls: Path | None, insecure: bool, tell: Callable[[str], None]) -> None:
    """Serve the scheduler at a URL as a node until interrupted. If the scheduler is lost, try to connect again."""
    security = security_of(url, tls, insecure=insecure)
    distributed = _distributed()
    os.environ[NODE_VARIABLE] = node_name() or socket.gethostname()

    async def one_life(folder: str) -> None:
        host = str(urlsplit(url).hostname)
        worker = distributed.Worker(
            url,
            nthreads=2,
            resources=_UNIT,
            security=security,
            host="127.0.0.1" if _is_loopback(host) else _address_towards(host),
            memory_limit=0,
            local_directory=folder,
            dashboard_address="127.0.0.1:0",
            death_timeout=_CONNECT_S,
        )
        await worker
        try:
            for name, callback in worker.periodic_callbacks.items():
                if name not in ("heartbeat", "keep-alive"):
                    callback.stop()
            tell(f"{os.environ[NODE_VARIABLE]} is a node of {url}")
            await worker.finished()
        except asyncio.CancelledError:
            stop()
            raise
        finally:  # if the scheduler ends at the same time, a worker waits for its own end for ever
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.close(), _CLOSE_S)

    was_lost = False
    try:
        with tempfile.TemporaryDirectory(prefix="tftune-node-") as folder:
            while True:
                try:
                    asyncio.run(one_life(folder))
                    was_lost = False
                except (OSError, TimeoutError, RuntimeError, ValueError) as error:
                    if not was_lost:
                        why = first_line(next((each for each in (error.__cause__, error) if each and str(each)), error))
                        hint = (
                            f"check the address, the firewall and the certificates; trying again every {_RETRY_S:.0f} s"
                        )
                        tell(f"no scheduler takes this node at {url}: {why}; {hint}")
                    was_lost = True
                time.sleep(_RETRY_S)
    finally:  # a scheduler that is lost ends nothing: what runs goes on, and is fetched later
        stop()


def _address_towards(host: str) -> str:
    """Return the address of this machine by which another reaches it: Dask would listen on all of them."""
    family, kind, _, _, place = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # sends nothing
        address = str(probe.getsockname()[0])
    return f"[{address}]" if ":" in address else address


def _distributed() -> Any:
    """Return Dask's package, made quiet; raises BadInputError if it is not installed."""
    try:
        import dask
        import distributed
    except ImportError as error:
        raise BadInputError(
            "a cluster needs Dask's scheduler, which is not installed",
            f"{sys.executable} -m pip install 'distributed>=2025.4', the same version on all machines",
        ) from error
    dask.config.set(_QUIET)
    for name in ("distributed", "distributed.client", "distributed.gc", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed
