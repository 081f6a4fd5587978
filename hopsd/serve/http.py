"""Serves a WSGI application, with limits on each user's or host's connections and their time."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from socketserver import TCPServer
from string import punctuation
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog

from hopsd.config.listen import ListenAddress
from hopsd.errors import HopsError
from hopsd.serve.peers import BoundedThreads
from hopsd.serve.socket import clear_socket

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

CALLER = "hops.caller"
"""The WSGI environment's key of the caller: the uid if the kernel knows it, else the host."""
UNTIL_SENT = "hops.until_sent"
"""The key of an `ExitStack` that is closed once the answer is sent, or cut off."""
TARGET = "hops.target"
"""The key of the request target as the client wrote it: path and query."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of connections at a time, for one user and for all. A connection is cut after
    ``seconds`` even while it is being answered; a silent one after ``silence_seconds``, if less.
    """

    per_user: int
    in_all: int
    seconds: float
    silence_seconds: float | None = None


class HttpServer:
    """Serves requests until closed."""

    def __init__(
        self, address: ListenAddress, app: WSGIApplication, bounds: Bounds, section: str
    ) -> None:
        """Listen on ``address``; a socket is open to hopsd's account and group. ``section`` is the
        section of the configuration that has this ``listen``.

        Raises:
            HopsError: the address cannot be listened on.
        """
        self._path = address.path
        try:
            if self._path is not None:
                clear_socket(self._path, f"{section}.listen")
            self._server = (_UnixServer if self._path else _server_of(address))(
                str(self._path) if self._path else address.host_and_port, bounds, section
            )
            if self._path is not None:
                self._path.chmod(0o660)
        except (OSError, ValueError) as error:
            raise HopsError(f"{section}.listen: cannot listen on {address}: {error}") from error
        self._server.set_app(app)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name=section, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


class OptionalServer:
    """A server that starts if it is configured and can start; otherwise hopsd runs without it."""

    def __init__(self, name: str, missing: str, serve: Callable[[], HttpServer] | None) -> None:
        """``serve`` is None if ``name.listen`` is not set. ``missing`` says why Flask cannot be
        imported, if so.
        """
        self._server: HttpServer | None = None
        if serve is None:
            return
        if missing:
            hint = "pip install 'hops[web]', or apt-get install python3-flask"
            log.error(name, error=f"{name}.listen is set: {missing}; {hint}")
            return
        try:
            self._server = serve()
        except HopsError as refused:
            log.error(name, error=str(refused), did="hopsd runs without it")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class _Server(BoundedThreads, WSGIServer):
    def __init__(self, address: Any, bounds: Bounds, section: str) -> None:
        self.per_user, self.in_all = bounds.per_user, bounds.in_all
        self.seconds = bounds.seconds
        self.silence_seconds = bounds.silence_seconds or bounds.seconds
        self._section = section
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "hopsd", 0
        self.setup_environ()

    def finish_request(self, request: Any, client_address: Any) -> None:
        # This also cuts off a client that sends or reads byte by byte.
        timer = threading.Timer(self.seconds, _abort, [request])
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError as error:  # no more threads
            raise ConnectionAbortedError(str(error)) from error
        try:
            super().finish_request(request, client_address)
        finally:
            timer.cancel()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Ignore a client that hangs up midway; log a defect of ours."""
        if not isinstance(sys.exception(), OSError):
            log.exception("defect", where=self._section)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, with a client address of the form that wsgiref expects."""
        return self.socket.accept()[0], ("local", 0)


def _server_of(address: ListenAddress) -> type[_Server]:
    return _Server6 if ":" in address.host_and_port[0] else _Server


def _abort(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.silence_seconds)
        self._until_sent = ExitStack()

    def finish(self) -> None:
        with self._until_sent:
            super().finish()

    def get_environ(self) -> dict[str, Any]:
        caller = self.server.caller(self.connection)
        environ = super().get_environ()
        # Quoted, since raw bytes, which no HTTP client should send, are not valid text.
        query = quote(environ["QUERY_STRING"], safe=punctuation, encoding="latin-1")
        own_values = {CALLER: caller, TARGET: self.path, UNTIL_SENT: self._until_sent}
        return {**environ, "QUERY_STRING": query, **own_values}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Do not log requests: pages send one every few seconds."""
