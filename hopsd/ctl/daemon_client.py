"""Sends hopsctl's requests to the daemon."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import click

from hopsd import __version__
from hopsd.ctl.address import Address, AddressType, default_address
from hopsd.ctl.terminal import advice, complain
from hopsd.errors import InputError, RefusedError, UnreachableError
from hopsd.rest.client import Server, ask_server

EXIT_UNREACHABLE = 4

socket_option = click.option(
    "--socket",
    "path",
    type=AddressType(),
    default=default_address,
    show_default="/run/hops/hopsd.sock",
    metavar="ADDRESS",
    help="hopsd's socket, or HOST:PORT; also from HOPS_SOCKET or HOPS_SERVER, or on other hosts"
    " /etc/hops/hopsctl.toml.",
)


def ask_daemon(path: Address, command: str, **arguments: Any) -> Any:
    """Ask the daemon; the process ends with exit code 4 if no daemon answers."""
    try:
        return ask(path, command, **arguments)
    except UnreachableError as error:
        complain(error)
        complain(advice(error))
        sys.exit(EXIT_UNREACHABLE)


class AnswerPart(dict[str, Any]):
    """A part of hopsd's answer; a newer hopsctl may look for a key that it lacks."""

    def __missing__(self, key: str) -> Any:
        raise RefusedError(
            f"hopsd's answer lacks {key!r}: it is of another release than this hopsctl,"
            f" {__version__}; restart hopsd"
        )


def ask(path: Address, command: str, timeout_seconds: float = 30.0, **arguments: Any) -> Any:
    """Send one request and return its ``data``.

    Raises:
        UnreachableError: if nobody listens at ``path``, a socket or a server on another host.
        InputError, RefusedError: with hopsd's message. Reading a key that the answer lacks also
            raises RefusedError.
    """
    if isinstance(path, Server):
        return ask_server(path, command, arguments, timeout_seconds, AnswerPart)
    line = json.dumps({"command": command, **arguments}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_seconds)
            client.connect(str(path))
            client.sendall(line)
            with client.makefile("rb") as stream:
                answer = json.loads(stream.readline(), object_hook=AnswerPart)
    except (OSError, ValueError) as error:
        raise UnreachableError(f"no hopsd answers at {path}: {error}") from None
    if "error" in answer:
        raise (InputError if answer.get("input") else RefusedError)(answer["error"])
    return answer["data"]
