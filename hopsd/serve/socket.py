"""The daemon's local socket: every user may ask, only some may change anything.

Request and answer are one line of JSON each. The kernel identifies the caller (SO_PEERCRED,
unix(7)), so no password is needed and none can be guessed.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopsd.errors import HopsError, InputError
from hopsd.serve.peers import BoundedThreads, RequestSlots, is_trusted

MAX_REQUEST_BYTES = 65536
REQUEST_SECONDS = 10.0
CONNECTIONS_PER_USER = 32
CONNECTIONS = 512
"""The most connections in all; each takes a thread and a descriptor."""


@dataclass(frozen=True, slots=True)
class Request:
    """A caller's request; ``uid`` is the calling process's, from the kernel."""

    command: str
    arguments: Mapping[str, Any]
    uid: int


Handler = Callable[[Request], Any]


class LocalServer:
    """Answers requests in threads until closed."""

    def __init__(self, path: Path, handler: Handler, turns: RequestSlots | None = None) -> None:
        """Listen at ``path``; a socket on which nobody listens any more is replaced. ``turns`` are
        shared with other servers of the same answers.

        Raises:
            HopsError: another process listens there, or the socket cannot be created.
        """
        self._path = path
        try:
            clear_socket(path, "daemon.socket")
            self._server = _Server(str(path), handler, turns or RequestSlots())
            path.chmod(0o666)
        except OSError as error:
            raise HopsError(
                f"cannot create a socket at {path}: {error.strerror or error}; daemon.socket must"
                " be a path of at most 107 bytes in a folder that hopsd may write to"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="socket", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)


def clear_socket(path: Path, setting: str) -> None:
    """Remove a socket left behind by a hopsd that was killed, and nothing else.

    Raises:
        HopsError: another process listens there; ``setting`` is the setting with the path.
    """
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        if client.connect_ex(str(path)) == 0:
            raise HopsError(f"another hopsd listens at {path}; each needs its own {setting}")
    path.unlink()


class _Server(BoundedThreads, socketserver.UnixStreamServer):
    """The server, which lets no user lock others out or hold up the round."""

    per_user = CONNECTIONS_PER_USER

    def __init__(self, path: str, handler: Handler, turns: RequestSlots) -> None:
        self.handler = handler
        self.turns = turns
        self.in_all = CONNECTIONS
        super().__init__(path, _Connection)

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Ignore a client that hangs up midway; log a defect of ours."""
        if not isinstance(sys.exception(), OSError):
            _log_defect()


def _log_defect() -> None:
    """Log the exception that is being handled."""
    import structlog  # noqa: PLC0415 - it takes 0.14 s, and hopsctl imports this module, too

    structlog.get_logger().exception("defect", where="local socket")


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        with ExitStack() as until_sent:
            try:
                answer = self._answer(until_sent)
            except HopsError as error:
                answer = _encode({"error": str(error), "input": isinstance(error, InputError)})
            except OSError:
                raise
            except Exception as defect:  # the caller gets the error, and the log says where
                _log_defect()
                text = f"a defect of hops, {type(defect).__name__}: {defect}"
                answer = _encode({"error": text})
            self.request.settimeout(REQUEST_SECONDS)
            self.request.sendall(answer)

    def _answer(self, until_sent: ExitStack) -> bytes:
        command, arguments = _parse_request(_line(self.request, REQUEST_SECONDS))
        uid = int(self.server.caller(self.request))
        question = until_sent.enter_context(
            self.server.turns.question(uid, waiting=CONNECTIONS_PER_USER, at_once=is_trusted(uid))
        )
        with question.turn():
            answer = _encode({"data": self.server.handler(Request(command, arguments, uid))})
        question.keep(len(answer))
        return answer


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _line(connection: socket.socket, seconds: float) -> bytes:
    """Read up to the first newline, the end or the size limit, for at most ``seconds`` in all."""
    deadline = time.monotonic() + seconds
    request_bytes = b""
    while b"\n" not in request_bytes and len(request_bytes) < MAX_REQUEST_BYTES:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(MAX_REQUEST_BYTES)
        if not part:
            break
        request_bytes += part
    return request_bytes.partition(b"\n")[0]


def _parse_request(line: bytes) -> tuple[str, Mapping[str, Any]]:
    try:
        request = json.loads(line)
        command = request.pop("command")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, IndexError):
        raise InputError(
            'a request is one line of JSON, {"command": NAME, ...}, of at most'
            f" {MAX_REQUEST_BYTES} bytes"
        ) from None
    return str(command), request
