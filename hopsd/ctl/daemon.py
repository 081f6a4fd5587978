"""How hopsctl finds the daemon."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from hopsd.ctl.shell.advice import advice
from hopsd.ctl.terminal import complain
from hopsd.local_socket import UnreachableError, ask

EXIT_UNREACHABLE = 4

DEFAULT_SOCKET = Path("/run/hops/hopsd.sock")
SOCKET_VARIABLE = "HOPS_SOCKET"

socket_option = click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_SOCKET,
    envvar=SOCKET_VARIABLE,
    show_default=True,
    help="The daemon's local socket; also from HOPS_SOCKET.",
)


def ask_daemon(path: Path, command: str, **arguments: Any) -> Any:
    """The daemon's answer; ends with exit code 4 where no daemon answers."""
    try:
        return ask(path, command, **arguments)
    except UnreachableError as error:
        complain(error)
        complain(advice(error))
        sys.exit(EXIT_UNREACHABLE)
