"""The daemon's local socket: everybody on the machine may ask, only some may change.

One JSON object a line each way. The kernel tells who asks (SO_PEERCRED, unix(7)), so no
password is needed and none can be guessed.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopsd.errors import HopsError

REQUEST_BYTES_MAX = 65536


class UnreachableError(HopsError):
    """No hopsd answers on the socket."""


class RefusedError(HopsError):
    """hopsd answered with an error."""


@dataclass(frozen=True, slots=True)
class Request:
    """``uid`` is the asking process's, as the kernel says."""

    command: str
    arguments: Mapping[str, Any]
    uid: int


Handler = Callable[[Request], Any]


class LocalServer:
    """Answers requests in threads until closed."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        self._server = _Server(str(path), handler)
        path.chmod(0o666)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="socket", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, handler: Handler) -> None:
        self.handler = handler
        super().__init__(path, _Connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up in the middle is its own affair."""


class _Connection(socketserver.StreamRequestHandler):
    timeout = 10
    server: _Server

    def handle(self) -> None:
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("3i", credentials)
        answer: dict[str, Any]
        try:
            asked = json.loads(self.rfile.readline(REQUEST_BYTES_MAX))
            command = asked.pop("command")
            answer = {"data": self.server.handler(Request(command, asked, uid))}
        except HopsError as error:
            answer = {"error": str(error)}
        except (ValueError, KeyError, TypeError, AttributeError):
            answer = {"error": 'a request is one line of JSON: {"command": NAME, ...}'}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def ask(path: Path, command: str, timeout_seconds: float = 30.0, **arguments: Any) -> Any:
    """Send one request and return its ``data``.

    Raises:
        UnreachableError: nobody listens at ``path``.
        RefusedError: hopsd's own words.
    """
    line = json.dumps({"command": command, **arguments}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_seconds)
            client.connect(str(path))
            client.sendall(line)
            with client.makefile("rb") as stream:
                answer = json.loads(stream.readline())
    except (OSError, ValueError) as error:
        raise UnreachableError(f"no hopsd answers at {path}: {error}") from None
    if "error" in answer:
        raise RefusedError(answer["error"])
    return answer["data"]
