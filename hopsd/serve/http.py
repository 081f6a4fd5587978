"""Serves a WSGI application: each user or host has some connections, for some seconds."""

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
"""Where an application finds the uid of who asks if the kernel knows it, else the host."""
UNTIL_SENT = "hops.until_sent"
"""Where an application finds an `ExitStack` that is closed once the answer is sent, or cut off."""
TARGET = "hops.target"
"""Where an application finds what was asked for as the client wrote it: path and query."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Bounds:
    """A user's connections at a time, and all users'. After ``seconds`` one is cut, whether it says
    nothing or is being answered; after ``silence_seconds``, if these are fewer, one that says
    nothing.
    """

    per_user: int
    in_all: int
    seconds: float
    silence_seconds: float | None = None


class HttpServer:
    """Answers requests until closed."""

    def __init__(
        self, address: ListenAddress, app: WSGIApplication, bounds: Bounds, section: str
    ) -> None:
        """Listen at ``address``; a socket is for hopsd's account and its group. ``section``: of
        the configuration, whose ``listen`` it is.

        Raises:
            HopsError: nothing can listen there.
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
            raise HopsError(
                f"{section}.listen: {address} cannot be listened on: {error}"
            ) from error
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
    """What hopsd goes on without: a server that starts if it is configured and can start."""

    def __init__(self, name: str, missing: str, serve: Callable[[], HttpServer] | None) -> None:
        """``serve``: None where ``name.listen`` is not set. ``missing``: why Flask cannot be
        imported.
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
            log.error(name, error=str(refused), did="hopsd goes on without it")

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
        """Without the look-up of the host's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "hopsd", 0
        self.setup_environ()

    def finish_request(self, request: Any, client_address: Any) -> None:
        # A client that sends or reads byte by byte is cut off, too.
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
        """A client that hangs up in the middle is its own affair; a defect is ours."""
        if not isinstance(sys.exception(), OSError):
            log.exception("defect", where=self._section)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def get_request(self) -> tuple[socket.socket, Any]:
        """With a client address of the form that wsgiref wants."""
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
        # Raw bytes, which no client of HTTP sends, would be no text of an application's.
        query = quote(environ["QUERY_STRING"], safe=punctuation, encoding="latin-1")
        own_values = {CALLER: caller, TARGET: self.path, UNTIL_SENT: self._until_sent}
        return {**environ, "QUERY_STRING": query, **own_values}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """A request every some seconds is no news."""
