"""A team's storage on a PostgreSQL server: a real one, started here where it is installed, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import tftune
from tests.processes import wait_until

PROGRAM = 'n=$(( ${OMP_NUM_THREADS:-8} )); sleep 0.0$n; echo "rate: $(( 100 / n ))"'
SEARCH = ("search", "--framework", "command", "--metric-regex", r"rate: (\S+)", "--name", "program")


def _tool(name: str) -> str | None:
    """Return the path of a program of the server: Debian keeps them in a folder for each version."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]))


pytest.importorskip("psycopg2")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_tool("initdb") is None, reason="PostgreSQL's server is not installed"),
]


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server of our own, that listens on a socket in a folder."""

    folder: Path
    user: str | None
    """Whom it runs as: it refuses to run as the superuser."""

    @property
    def url(self) -> str:
        """Return the URL of its database."""
        return f"postgresql+psycopg2://tester@/postgres?host={self.folder}"

    def run(self, name: str, *words: str) -> None:
        """Run one of its programs."""
        tool = _tool(name)
        assert tool is not None
        command = [tool, *words]
        subprocess.run(command, check=True, capture_output=True, user=self.user, cwd=self.folder, env={"LC_ALL": "C"})

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        self.run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.run("pg_ctl", "-D", "data", "-m", "immediate", "stop")


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with an empty database."""
    user = None
    if os.geteuid() == 0:
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam("postgres").pw_name
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path has to be short
    if user is not None:
        shutil.chown(folder, user)
    folder.chmod(0o755)
    server = Server(folder, user)
    server.run("initdb", "-D", "data", "-U", "tester", "-A", "trust", "--no-sync")
    server.start()
    try:
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_search_ends_in_one_line_when_its_server_is_killed_and_goes_on_later(server: Server, tmp_path: Path) -> None:
    stored = ("--storage", server.url)
    words = ("--", "sh", "-c", PROGRAM)
    search = subprocess.Popen(
        [str(Path(sys.executable).with_name("tftune")), *SEARCH, "--time-budget", "60s", *stored, *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def n_trials() -> int:
        listed = tftune("list", "--json", *stored, cwd=tmp_path)
        studies = json.loads(listed.stdout) if listed.returncode == 0 else []
        return sum(each["trials"] for each in studies)

    try:
        assert wait_until(lambda: n_trials() >= 2, 60.0)
        kept = n_trials()
        server.kill()
        _, stderr = search.communicate(timeout=60)
    finally:
        search.kill()
        search.wait()
    assert search.returncode == 3
    last = stderr.strip().splitlines()[-1]
    assert last.startswith("tftune: storage error: ")
    assert last.endswith("then run the same command again to continue")
    assert "Traceback" not in stderr
    away = tftune("list", *stored, cwd=tmp_path)
    assert away.returncode == 3
    assert len(away.stderr.strip().splitlines()) == 1
    assert "cannot be opened" in away.stderr
    server.start()
    ended = tftune(*SEARCH, "--time-budget", "10s", "--json", *stored, *words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["trials"]["ok"] >= kept
    assert document["verdicts"]
