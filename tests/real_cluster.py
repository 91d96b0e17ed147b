"""A cluster of this machine: Dask's scheduler, nodes and drivers as processes that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.processes import wait_until

TFTUNE = str(Path(sys.executable).with_name("tftune"))
DASK = Path(sys.executable).with_name("dask")
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
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        words = [
            str(DASK),
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dashboard-address",
            "127.0.0.1:0",
        ]
        env = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "60s"}
        self.scheduler = subprocess.Popen(
            [*words, "--scheduler-file", str(file)], env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        assert wait_until(file.exists, 60)
        self.port = int(json.loads(file.read_text())["address"].rpartition(":")[2])

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
