"""Nodes that a driver starts on other machines by ssh. They end with it.

Each node gets a new certificate on its stdin, which stays open. If the driver ends in any way, ssh closes that stdin,
and the node ends.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuner.errors import BadInputError
from tuner.machine.exits import last_words
from tuner.paths import COMMAND

CERTIFICATES = ("ca.pem", "cert.pem", "key.pem")
_LAST = b"-----END CERTIFICATE-----\n"
_END_S = 15.0
_OPENSSL = "openssl req -x509 -newkey rsa:3072 -nodes -days 30 -subj /CN=tftune -keyout /dev/stdout -out /dev/stdout"
_SSH = ("ssh", "-4", "-T", "-o", "BatchMode=yes", "--")
# The first word of SSH_CONNECTION is the address by which a host reaches the driver.
_NODE = 'exec {command} node "tls://${{SSH_CONNECTION%% *}}:{port}" --tls -'


def new_certificate() -> bytes:
    """Return a new key with its certificate, which is its own authority; raises BadInputError without the tools."""
    for tool in ("ssh", "openssl"):
        if shutil.which(tool) is None:
            raise BadInputError(f"--cluster ssh:… needs {tool}, which is not in PATH", f"install {tool} here")
    made = subprocess.run(_OPENSSL.split(), capture_output=True, check=False)
    if made.returncode != 0:
        raise BadInputError(f"openssl makes no certificate: {last_words(made.stderr.decode())}", "repair openssl here")
    return made.stdout


@contextlib.contextmanager
def certificates(pem: bytes) -> Iterator[Path]:
    """Yield a private folder that has a key with its certificate under the three names."""
    with tempfile.TemporaryDirectory(prefix="tftune-tls-") as folder:
        for name in CERTIFICATES:
            (Path(folder) / name).write_bytes(pem)
        yield Path(folder)


def received_certificate() -> bytes:
    """Return what a driver sends to a node on stdin; raises BadInputError if that is no certificate."""
    lines: list[bytes] = []
    for line in sys.stdin.buffer:
        lines.append(line)
        if line == _LAST:
            return b"".join(lines)
    raise BadInputError("--tls - needs a certificate on stdin", f"name a folder with {', '.join(CERTIFICATES)}")


def hosts_of(file: Path) -> dict[str, str]:
    """Return the hosts in the lines of a file, each with the command of tftune there; raises BadInputError."""
    try:
        lines = [line.split(maxsplit=1) for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    except (OSError, ValueError) as error:
        raise BadInputError(f"{file} cannot be read: {error}", "expected a file with one host in each line") from error
    own, hosts = shlex.join([sys.executable, "-P", str(COMMAND)]), dict[str, str]()
    for host, *command in filter(None, lines):
        if host in hosts:
            raise BadInputError(f"{file} names {host} twice", "keep one line for each host")
        hosts[host] = command[0] if command else own
    if not hosts:
        raise BadInputError(f"{file} has no hosts", "expected one host in each line")
    return hosts


@contextlib.contextmanager
def nodes(hosts: dict[str, str], port: int, pem: bytes, tell: Callable[[str], None]) -> Iterator[None]:
    """Run a node on each host for the scheduler at a port of this machine; `tell` gets the lines of each."""
    ending = threading.Event()
    started = []

    def watch(host: str, ssh: subprocess.Popen[bytes]) -> None:
        assert ssh.stderr is not None
        with ssh.stderr:
            for line in ssh.stderr:
                if not ending.is_set():
                    tell(f"{host}: {line.decode(errors='replace').strip()}")

    try:
        for host, command in hosts.items():
            words = [*_SSH, host, _NODE.format(command=command, port=port)]
            pipe = subprocess.PIPE
            ssh = subprocess.Popen(words, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, start_new_session=True)
            started.append(ssh)
            assert ssh.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                ssh.stdin.write(pem)
                ssh.stdin.flush()
            threading.Thread(target=watch, args=(host, ssh), daemon=True).start()
        yield
    finally:
        ending.set()
        for ssh in started:
            assert ssh.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                ssh.stdin.close()
        deadline_s = time.monotonic() + _END_S
        for ssh in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                ssh.wait(max(0.0, deadline_s - time.monotonic()))
            ssh.kill()
