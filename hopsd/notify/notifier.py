"""Sends the news after each tick that the site and its users want."""

from __future__ import annotations

from typing import Any

import structlog

from hopsd.config import NotifyConfig
from hopsd.errors import SlurmError
from hopsd.model.isolation import describe_error
from hopsd.notify import webhook
from hopsd.notify.news import Comparison
from hopsd.notify.postman import Postman
from hopsd.notify.recipients import read_mail_wish
from hopsd.slurm.ask import slurm_conf
from hopsd.slurm.command import SlurmCommands
from hopsd.store.history import History

log = structlog.get_logger()


class Notifier:
    """Notifies as ``[notify]`` says; does nothing if neither a webhook nor mail is configured."""

    def __init__(self, config: NotifyConfig, store: History, commands: SlurmCommands) -> None:
        self._kinds = config.kinds
        self._comparison = Comparison(store.newest_jobs, config.stuck_hours * 3600.0)
        shapes = {"slack": webhook.slack, "matrix": webhook.matrix}
        self._webhook = (
            webhook.Webhook(config.webhook, shapes[config.format]) if config.webhook else None
        )

        def domain() -> str:
            try:
                return slurm_conf(commands).get("MailDomain", "")
            except SlurmError:
                return ""

        self._postman = (
            Postman(config, store, lambda job: read_mail_wish(commands, job), domain)
            if config.mail
            else None
        )

    def after_tick(self, doc: dict[str, Any]) -> None:
        """Send the news in ``doc``, the status document. Failures are only logged."""
        if self._webhook is None and self._postman is None:
            return
        try:
            news = self._comparison.look(doc)
            if self._webhook is not None:
                self._webhook.send([item for item in news if item.kind in self._kinds])
            if self._postman is not None:
                self._postman.after_tick(news, doc)
        except Exception as error:
            log.warning("notify", error=describe_error(error))

    def close(self) -> None:
        for sender in (self._webhook, self._postman):
            if sender is not None:
                sender.close()
