"""The operations of `openapi.json`, and how a credential is bound to a request and its answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from hopsd.errors import InputError

SPECIFICATION = Path(__file__).with_name("openapi.json")
SCHEME = "MUNGE"
"""The scheme in the Authorization header: ``MUNGE CREDENTIAL``."""
ANSWER_HEADER = "Hops-Credential"
"""The header of an answer that has hopsd's own credential."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A command of hopsd's as an HTTP request. ``query`` has the type of each query parameter by
    name; ``body`` says whether the arguments are a JSON object in the request's body.
    """

    command: str
    method: str
    path: str
    query: Mapping[str, str]
    body: bool

    def request(self, arguments: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the target (path and query) and body of a request; None arguments are left out."""
        given_arguments = {key: value for key, value in arguments.items() if value is not None}
        path = self.path
        for key in [key for key in given_arguments if f"{{{key}}}" in path]:
            path = path.replace(f"{{{key}}}", quote(str(given_arguments.pop(key)), safe=""))
        if self.body:
            return path, json.dumps(given_arguments).encode()
        query = urlencode(given_arguments, doseq=True)
        return f"{path}?{query}" if query else path, b""

    def arguments(self, query: Mapping[str, list[str]]) -> dict[str, Any]:
        """Parse the arguments in a query's values.

        Raises:
            InputError: a parameter is unknown, or its value has the wrong type.
        """
        return {key: self._value(key, values) for key, values in query.items()}

    def _value(self, key: str, values: list[str]) -> Any:
        kind = self.query.get(key)
        if kind is None:
            accepted_keys = ", ".join(self.query) or "none"
            raise InputError(
                f"{key[:80]!r} is not a parameter of {self.path}; accepted: {accepted_keys}"
            )
        if kind == "array":
            return values
        try:
            (text,) = values
            return _TYPES[kind](text)
        except ValueError:
            raise InputError(f"{key}: give one {kind}") from None


_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float}


@cache
def operations() -> Mapping[str, Operation]:
    """The operations by command, as hopsd's local socket names them."""
    paths = json.loads(SPECIFICATION.read_text())["paths"]
    supported_operations = (
        Operation(
            command=item["operationId"],
            method=method.upper(),
            path=path,
            query=dict(_query(item.get("parameters", []))),
            body="requestBody" in item,
        )
        for path, methods in paths.items()
        for method, item in methods.items()
    )
    return {operation.command: operation for operation in supported_operations}


def _query(parameters: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    return ((p["name"], p["schema"]["type"]) for p in parameters if p["in"] == "query")


def request_payload(method: str, target: str, body: bytes) -> bytes:
    """The payload of a request's credential, which makes it valid for this request only."""
    text = f"{method} {target}"
    return (f"{text} {sha256(body).hexdigest()}" if body else text).encode()


def answer_payload(status: int, credential: str, body: bytes) -> bytes:
    """The payload of an answer's credential, valid only for the request with ``credential``."""
    digest = sha256(credential.encode("ascii", "replace")).hexdigest()
    return f"{status} {digest} {sha256(body).hexdigest()}".encode()
