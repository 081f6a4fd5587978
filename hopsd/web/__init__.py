"""The web page: docs/web.md."""

from __future__ import annotations

import structlog

from hopsd.config import WebConfig
from hopsd.errors import HopsError
from hopsd.serve.answers import QueryService
from hopsd.serve.http import Bounds, HttpServer
from hopsd.serve.peers import RequestSlots

try:
    from hopsd.web.pages import application

    MISSING = ""
except ImportError as error:  # Flask is an extra
    MISSING = str(error)

READERS = Bounds(per_user=64, in_all=128, seconds=80.0)
"""A proxy is one user: what each of its readers may have is bounded by their turns."""

log = structlog.get_logger()


class Web:
    """Serves what hopsd answers. Whatever goes wrong here, hopsd plans on without it."""

    def __init__(
        self, config: WebConfig, answers: QueryService, turns: RequestSlots | None = None
    ) -> None:
        """Listen at ``web.listen``, if that is set. ``turns``: with others who give answers."""
        self._server: HttpServer | None = None
        if not config.listen:
            return
        if MISSING:
            how = "pip install 'hops[web]', or apt-get install python3-flask"
            log.error("web", error=f"web.listen is set: {MISSING}; {how}")
            return
        try:
            app = application(config, answers, turns or RequestSlots())
            self._server = HttpServer(config.listen, app, READERS, "web")
        except HopsError as refused:
            log.error("web", error=str(refused), did="hopsd goes on without its page")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
