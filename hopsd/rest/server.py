"""Serves other hosts. If anything fails here, hopsd continues planning without it."""

from __future__ import annotations

from hopsd.config import ApiConfig
from hopsd.rest.munge import Munge
from hopsd.serve.http import Bounds, HttpServer, OptionalServer
from hopsd.serve.peers import RequestSlots
from hopsd.serve.socket import Handler

try:
    from hopsd.rest.application import application

    MISSING = ""
except ImportError as error:  # Flask is an extra
    MISSING = str(error)

HOSTS = Bounds(per_user=64, in_all=512, seconds=300.0, silence_seconds=10.0)
"""A host counts as one user here; request slots limit its users."""


class RestServer(OptionalServer):
    """Serves requests at ``api.listen``, if that is set, until closed."""

    def __init__(
        self, config: ApiConfig, handler: Handler, turns: RequestSlots | None = None
    ) -> None:
        """``handler`` is the local socket's; ``turns`` are shared with other servers."""

        def serve() -> HttpServer:
            app = application(handler, Munge(config.munge_socket), turns or RequestSlots())
            return HttpServer(config.listen, app, HOSTS, "api")

        super().__init__("api", MISSING, serve if config.listen else None)
