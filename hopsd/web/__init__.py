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
"""Eight users who read large answers byte by byte take all connections: no fewer."""
PROXY = Bounds(per_user=64, in_all=128, seconds=80.0)
"""On the socket: a proxy is one user, and reads answers as they come. What each of its readers may
have is bounded by their turns."""


class Web(OptionalServer):
    """Serves what hopsd answers. Whatever goes wrong here, hopsd plans on without it."""

    def __init__(
        self, config: WebConfig, answers: QueryService, turns: RequestSlots | None = None
    ) -> None:
        """Listen at ``web.listen``, if that is set. ``turns``: with others who give answers."""

        def serve() -> HttpServer:
            app = application(config, answers, turns or RequestSlots())
            bounds = PROXY if config.listen.path is not None else READERS
            return HttpServer(config.listen, app, bounds, "web")

        super().__init__("web", MISSING, serve if config.listen else None)
