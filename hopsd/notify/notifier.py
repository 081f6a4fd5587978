"""Tells after each tick what the site wants to be told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from hopsd.config import NotifyConfig
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.isolation import describe_error
from hopsd.notify import webhook
from hopsd.notify.news import Comparison

log = structlog.get_logger()


class Notifier:
    """As ``[notify]`` says; without a webhook it does nothing."""

    def __init__(
        self,
        config: NotifyConfig,
        ended_jobs: Callable[[Collection[JobId]], Mapping[JobId, JobRecord]],
    ) -> None:
        self._kinds = config.kinds
        self._comparison = Comparison(ended_jobs, config.stuck_hours * 3600.0)
        shapes = {"slack": webhook.slack, "matrix": webhook.matrix}
        self._webhook = (
            webhook.Webhook(config.webhook, shapes[config.format]) if config.webhook else None
        )

    def after_tick(self, doc: dict[str, Any]) -> None:
        """``doc``: the status document. A failure is logged: no tick depends on it."""
        if self._webhook is None:
            return
        try:
            news = self._comparison.look(doc)
            self._webhook.send([item for item in news if item.kind in self._kinds])
        except Exception as error:
            log.warning("notify", error=describe_error(error))

    def close(self) -> None:
        if self._webhook is not None:
            self._webhook.close()
