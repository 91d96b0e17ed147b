"""The commands `node` and `scheduler`."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import examples, other
from tuner.cli.output import console

EPILOG = examples("tftune node tcp://127.0.0.1:8786", "tftune node tls://head:8786 --tls certificates")
SCHEDULER_EPILOG = examples(
    "tftune scheduler tcp://127.0.0.1:8786", "tftune scheduler tls://head:8786 --tls certificates"
)

Tls = Annotated[
    Path | None,
    other("--tls FOLDER", "Folder with ca.pem, cert.pem and key.pem, for a scheduler at tls://…"),
]
Insecure = Annotated[
    bool,
    other(
        "--insecure",
        "Connect to another machine without TLS: whoever reaches the scheduler can run programs on all nodes.",
    ),
]


def node(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the scheduler, such as tls://head:8786.")],
    tls: Tls = None,
    insecure: Insecure = False,
) -> None:
    """Let this machine measure for the suites of others.

    It runs until interrupted. The node measures one case of a suite at a time, as `tftune suite` does here. If no suite
    collects a result, it stays in the cache folder for 30 days.
    """
    from tuner.cluster import ssh
    from tuner.cluster.daskengine import serve
    from tuner.job.nested import end_with_stdin

    out = console(stderr=True)
    with contextlib.ExitStack() as cleanup:
        if tls == Path("-"):  # from a driver, by ssh
            tls = cleanup.enter_context(ssh.certificates(ssh.received_certificate()))
            threading.Thread(target=end_with_stdin, daemon=True).start()
        serve(url, tls=tls, insecure=insecure, tell=lambda line: out.print(line, soft_wrap=True, markup=False))


def scheduler(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address to listen at, such as tls://head:8786.")],
    tls: Tls = None,
    insecure: Insecure = False,
) -> None:
    """Connect the nodes and the driver of suites on several machines.

    It runs until interrupted. It is Dask's scheduler without the parts that disturb measurements on the same machine.
    `dask scheduler` works, too.
    """
    from tuner.cluster.daskengine import schedule

    out = console(stderr=True)
    schedule(url, tls=tls, insecure=insecure, tell=lambda line: out.print(line, soft_wrap=True, markup=False))
