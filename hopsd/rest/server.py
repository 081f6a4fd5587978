"""Serves other hosts. Whatever goes wrong here, hopsd plans on without it."""

from __future__ import annotations

import structlog

from hopsd.config import ApiConfig
from hopsd.errors import HopsError
from hopsd.rest.munge import Munge
from hopsd.serve.http import Bounds, HttpServer
from hopsd.serve.peers import RequestSlots
from hopsd.serve.socket import Handler

try:
    from hopsd.rest.application import application

    MISSING = ""
except ImportError as error:  # Flask is an extra
    MISSING = str(error)

HOSTS = Bounds(per_user=64, in_all=512, seconds=300.0, silence_seconds=10.0)
"""A host is one user here: what its users may have is bounded by their turns."""

log = structlog.get_logger()


class RestServer:
    """Answers at ``api.listen`` until closed, if that is set."""

    def __init__(
        self, config: ApiConfig, handler: Handler, turns: RequestSlots | None = None
    ) -> None:
        """``handler``: the local socket's. ``turns``: with others who give answers."""
        self._server: HttpServer | None = None
        if not config.listen:
            return
        if MISSING:
            how = "pip install 'hops[web]', or apt-get install python3-flask"
            log.error("api", error=f"api.listen is set: {MISSING}; {how}")
            return
        try:
            app = application(handler, Munge(config.munge_socket), turns or RequestSlots())
            self._server = HttpServer(config.listen, app, HOSTS, "api")
        except HopsError as refused:
            log.error("api", error=str(refused), did="hopsd goes on without its API")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
