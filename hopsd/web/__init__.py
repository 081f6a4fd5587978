"""The web page: docs/web.md."""

from __future__ import annotations

from hopsd.config import WebConfig
from hopsd.serve.answers import QueryService
from hopsd.serve.http import Bounds, HttpServer, OptionalServer
from hopsd.serve.peers import RequestSlots

try:
    from hopsd.web.pages import application

    MISSING = ""
except ImportError as error:  # Flask is an extra
    MISSING = str(error)

READERS = Bounds(per_user=16, in_all=128, seconds=80.0)
"""It takes at least eight users who read large answers byte by byte to hold all connections."""
PROXY = Bounds(per_user=64, in_all=128, seconds=80.0)
"""Bounds on the socket, where a proxy is a single user and reads answers as they come. Each of its
readers is bounded by their request slots."""


class Web(OptionalServer):
    """Serves the pages. If anything fails here, hopsd goes on planning without them."""

    def __init__(
        self, config: WebConfig, answers: QueryService, turns: RequestSlots | None = None
    ) -> None:
        """Listen at ``web.listen``, if set; ``turns`` are slots shared with other servers."""

        def serve() -> HttpServer:
            app = application(config, answers, turns or RequestSlots())
            bounds = PROXY if config.listen.path is not None else READERS
            return HttpServer(config.listen, app, bounds, "web")

        super().__init__("web", MISSING, serve if config.listen else None)
