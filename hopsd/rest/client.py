"""Sends requests to a hopsd on another host, as this process's user."""

from __future__ import annotations

import json
import pwd
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any

from hopsd.errors import HopsError, InputError, RefusedError, UnreachableError
from hopsd.rest.contract import (
    ANSWER_HEADER,
    SCHEME,
    answer_payload,
    operations,
    request_payload,
)
from hopsd.rest.munge import Munge

ACCOUNT = "hops"
"""hopsd's account, unless the client's configuration names another one."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where hopsd listens, and the socket of this host's munged ("" for libmunge's default).

    Answers by root and by ``account`` are trusted.
    """

    host: str
    port: int
    munge_socket: str = ""
    account: str = ACCOUNT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def ask_server(
    server: Server,
    command: str,
    arguments: Mapping[str, Any],
    timeout_seconds: float,
    object_hook: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    """Send a command of hopsd's local socket; returns hopsd's answer.

    Raises:
        UnreachableError: hopsd or munged does not answer, or the answer is not hopsd's.
        InputError, RefusedError: with hopsd's message.
    """
    operation = operations()[command]
    target, body = operation.request(arguments)
    munge = Munge(server.munge_socket)
    credential = munge.encode(request_payload(operation.method, target, body))
    headers = {"Authorization": f"{SCHEME} {credential}", "Accept": "application/json"}
    if body:
        headers["Content-Type"] = "application/json"
    connection = HTTPConnection(server.host, server.port, timeout=timeout_seconds)
    try:
        connection.request(operation.method, target, body or None, headers)
        with connection.getresponse() as response:
            status, answer = response.status, response.read()
            signature = response.getheader(ANSWER_HEADER, "")
        document = json.loads(answer, object_hook=object_hook)
    except (OSError, HTTPException, ValueError) as error:
        raise UnreachableError(f"no hopsd answers at {server}: {error}") from None
    finally:
        connection.close()
    try:
        seal = munge.decode(signature)
    except HopsError as error:
        # hopsd cannot sign without its munged, but its answer says so.
        message = document.get("error", "") if isinstance(document, dict) else ""
        raise UnreachableError(
            f"the answer from {server} is not signed by hopsd ({error}) {message}".rstrip()
        ) from None
    if seal.payload != answer_payload(status, credential, answer):
        raise UnreachableError(f"the answer from {server} is not the one that hopsd signed")
    if seal.uid not in _trusted_uids(server.account):
        raise UnreachableError(
            f"uid {seal.uid} answers at {server}, not hopsd: if that is hopsd's account, set"
            f" `account` in hopsctl.toml (root and {server.account!r} are trusted)"
        )
    if status != 200:
        raise (InputError if status == 400 else RefusedError)(document["error"])
    return document


def _trusted_uids(account: str) -> set[int]:
    uids = {0}
    if account.isascii() and account.isdigit():
        uids.add(int(account))
    with suppress(KeyError):
        uids.add(pwd.getpwnam(account).pw_uid)
    return uids
