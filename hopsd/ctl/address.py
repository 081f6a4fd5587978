"""Finds hopsd: a local socket on its own host, HOST:PORT and MUNGE on all others."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hopsd.errors import ConfigError, InputError
from hopsd.rest.client import Server

Address = Path | Server

DEFAULT_SOCKET = Path("/run/hops/hopsd.sock")
SOCKET_VARIABLE = "HOPS_SOCKET"
SERVER_VARIABLE = "HOPS_SERVER"
MUNGE_VARIABLE = "HOPS_MUNGE_SOCKET"
CLIENT_FILE = Path("/etc/hops/hopsctl.toml")

_KEYS = ("server", "munge_socket", "account")


def default_address() -> Address:
    """Return HOPS_SOCKET, else HOPS_SERVER; else the default socket if it exists on this host;
    else the server in /etc/hops/hopsctl.toml.

    Raises:
        ConfigError: if that file is invalid.
        InputError: if a variable is invalid.
    """
    if path := os.environ.get(SOCKET_VARIABLE):
        return Path(path)
    if address := os.environ.get(SERVER_VARIABLE):
        return server(address, SERVER_VARIABLE)
    if not DEFAULT_SOCKET.exists() and (address := client_settings().get("server", "")):
        return server(address, f"{CLIENT_FILE}: server")
    return DEFAULT_SOCKET


def parse_address(text: str) -> Address:
    """Parse a path, which has a slash or no port; else HOST:PORT.

    Raises:
        InputError: if ``text`` is neither.
    """
    return Path(text) if "/" in text or ":" not in text else server(text, "--socket")


def server(text: str, setting: str) -> Server:
    """Parse HOST:PORT in ``text``; ``setting`` says in errors where it is set.

    Raises:
        InputError: if ``text`` is malformed.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"{setting}: {text[:80]!r}; give HOST:PORT, as in ctl1:6822")
    settings = client_settings()
    munge_socket = os.environ.get(MUNGE_VARIABLE) or settings.get("munge_socket", "")
    account = {"account": settings["account"]} if "account" in settings else {}
    return Server(host.removeprefix("[").removesuffix("]"), int(port), munge_socket, **account)


def client_settings() -> dict[str, str]:
    """Read the keys of /etc/hops/hopsctl.toml; none if there is no such file.

    Raises:
        ConfigError: if the file is invalid.
    """
    try:
        settings = tomllib.loads(CLIENT_FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{CLIENT_FILE}: {error}") from None
    for key, value in settings.items():
        if key not in _KEYS:
            raise ConfigError(f"{CLIENT_FILE}: {key}: accepted keys are {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{CLIENT_FILE}: {key}: give a string")
    return settings


if TYPE_CHECKING:
    _TypeOfAddress = click.ParamType[Address]
else:  # click 8.1's class is not generic
    _TypeOfAddress = click.ParamType


class AddressType(_TypeOfAddress):
    """The value of --socket."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        return parse_address(value) if isinstance(value, str) else value
