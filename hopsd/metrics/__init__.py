"""hopsd's metrics for Prometheus: docs/metrics.md."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog

from hopsd.config import Config
from hopsd.errors import HopsError
from hopsd.round.result import RoundResult
from hopsd.serve.http import Bounds, HttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping

try:
    from prometheus_client import make_wsgi_app

    from hopsd.metrics.exposition import Figures, Tick

    MISSING = ""
except ImportError as error:  # prometheus-client is an extra
    MISSING = str(error)

SCRAPES = Bounds(per_user=8, in_all=64, seconds=10.0)

log = structlog.get_logger()


class Metrics:
    """Serves the metrics of the last tick. If this fails, hopsd continues planning without it."""

    def __init__(self, config: Config) -> None:
        """Listen on ``metrics.listen``, if that is set."""
        self._server: HttpServer | None = None
        listen = config.metrics.listen
        if not listen:
            return
        if MISSING:
            hint = "pip install 'hops[metrics]', or apt-get install python3-prometheus-client"
            log.error("metrics", error=f"metrics.listen is set: {MISSING}; {hint}")
            return
        self._figures = Figures()
        try:
            self._server = HttpServer(
                listen, make_wsgi_app(self._figures.registry), SCRAPES, "metrics"
            )
        except HopsError as refused:
            log.error("metrics", error=str(refused), did="hopsd runs without metrics")

    def after_tick(
        self,
        document: Mapping[str, Any],
        result: RoundResult | None,
        backing_off: int,
        config: Config,
    ) -> None:
        """Serve a tick's metrics from now on."""
        if self._server is None:
            return
        try:
            self._figures.take(Tick(document, result, backing_off, time.time(), config))
        except Exception:  # the last tick's metrics stay
            log.exception("defect", where="metrics")

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
