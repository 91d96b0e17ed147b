"""A cluster of this machine: a scheduler, nodes and drivers as processes that can be killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.processes import wait_until

TFTUNE = str(Path(sys.executable).with_name("tftune"))
SUITE = ["suite", "--space", "threads", "--time-budget", "5s"]


@dataclass
class Cluster:
    """A scheduler and nodes as processes, each with a cache folder of its own and confined to a mask."""

    folder: Path
    scheduler: subprocess.Popen[bytes] | None = None
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        if not self.port:  # else the scheduler was killed, and nodes try that port
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = int(probe.getsockname()[1])
        quiet = subprocess.DEVNULL
        self.scheduler = subprocess.Popen([TFTUNE, "scheduler", self.url], stderr=quiet, stdout=quiet)
        assert wait_until(self._listens, 60)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def node(self, name: str, cpus: set[int]) -> subprocess.Popen[bytes]:
        env = os.environ | {"TFTUNE_CACHE": str(self.folder / name)}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [TFTUNE, "node", self.url],
                env=env,
                stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),
                start_new_session=True,
            )
        self.nodes.append(process)
        return process

    def suite(self, workloads: str = "lenet5,mlp") -> subprocess.Popen[str]:
        words = [TFTUNE, *SUITE, "--workloads", workloads, "--cluster", self.url, "--json"]
        with (self.folder / "suite.log").open("w") as log:
            return subprocess.Popen(words, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True)

    def close(self) -> None:
        for process in (*self.nodes, self.scheduler):
            if process is not None:
                for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
                    child.kill()
                process.kill()
                process.wait()
