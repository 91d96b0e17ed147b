"""The command `node`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import examples, other
from tuner.cli.output import console

EPILOG = examples("tftune node tcp://127.0.0.1:8786", "tftune node tls://head:8786 --tls certificates")

Tls = Annotated[
    Path | None,
    other("--tls FOLDER", "Folder with ca.pem, cert.pem and key.pem, for a scheduler at tls://…"),
]
Insecure = Annotated[
    bool,
    other("--insecure", "Use a scheduler of another machine without TLS: whoever reaches it runs programs on nodes."),
]


def node(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the scheduler, such as tls://head:8786.")],
    tls: Tls = None,
    insecure: Insecure = False,
) -> None:
    """Let this machine measure for suites elsewhere, until interrupted.

    Each unit of `tftune suite --cluster` is measured as `tftune suite` measures here, one at a time. What ended without
    a suite to take it waits in the cache folder.
    """
    from tuner.cluster.daskengine import serve

    out = console(stderr=True)
    serve(url, tls=tls, insecure=insecure, tell=lambda line: out.print(line, soft_wrap=True, markup=False))
