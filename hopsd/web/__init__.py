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

READERS = Bounds(per_user=64, in_all=128, seconds=80.0)
"""A proxy is one user: what each of its readers may have is bounded by their turns."""


class Web(OptionalServer):
    """Serves what hopsd answers. Whatever goes wrong here, hopsd plans on without it."""

    def __init__(
        self, config: WebConfig, answers: QueryService, turns: RequestSlots | None = None
    ) -> None:
        """Listen at ``web.listen``, if that is set. ``turns``: with others who give answers."""

        def serve() -> HttpServer:
            app = application(config, answers, turns or RequestSlots())
            return HttpServer(config.listen, app, READERS, "web")

        super().__init__("web", MISSING, serve if config.listen else None)
