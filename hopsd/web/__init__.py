"""The web page: docs/web.md."""

from __future__ import annotations

import structlog

from hopsd.answers import Answers
from hopsd.config import WebConfig
from hopsd.errors import HopsError
from hopsd.local_http import Bounds, LocalHttp

try:
    from hopsd.web.pages import application

    MISSING = ""
except ImportError as error:  # Flask is an extra
    MISSING = str(error)

READERS = Bounds(connections=32, seconds=80.0)

log = structlog.get_logger()


class Web:
    """Serves what hopsd answers. Whatever goes wrong here, hopsd plans on without it."""

    def __init__(self, config: WebConfig, answers: Answers) -> None:
        """Listen at ``web.listen``, if that is set."""
        self._server: LocalHttp | None = None
        if not config.listen:
            return
        if MISSING:
            how = "pip install 'hops[web]', or apt-get install python3-flask"
            log.error("web", error=f"web.listen is set: {MISSING}; {how}")
            return
        try:
            self._server = LocalHttp(config.listen, application(config, answers), READERS, "web")
        except HopsError as refused:
            log.error("web", error=str(refused), did="hopsd goes on without its page")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
