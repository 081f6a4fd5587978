"""Messages reach a chat in its own format; a chat that does not answer does no harm."""

from __future__ import annotations

import pytest
from chat_server import chat
from fixtures_cluster import wait_until
from memory_store import MemoryStore

from hopsd.config import parse
from hopsd.config.secret_url import SecretUrl
from hopsd.errors import ConfigError
from hopsd.notify.news import News
from hopsd.notify.notifier import Notifier
from hopsd.notify.webhook import MAX_LINES, Webhook, lines_of, matrix, slack
from hopsd.slurm.command import SlurmCommands

EVIL = "<!channel> & \x1b[31m\nx"


def news(count: int = 1, text: str = "net is done") -> list[News]:
    return [News("done", str(number), "ann", text) for number in range(count)]


def test_messages_have_the_formats_of_slack_and_matrix() -> None:
    lines = lines_of(news(1, EVIL))
    assert slack(lines) == {"text": "job 0 of ann: &lt;!channel&gt; &amp;  [31m x"}
    assert matrix(["a <b>", "c"]) == {"text": "a <b>\nc", "html": "a &lt;b&gt;<br/>c"}


def test_a_long_message_is_truncated() -> None:
    lines = lines_of(news(MAX_LINES + 3))
    assert (len(lines), lines[-1]) == (MAX_LINES + 1, "and 3 more")


def test_a_tick_sends_one_message() -> None:
    with chat() as server:
        webhook = Webhook(server.url, slack)
        webhook.send([])
        webhook.send(news(2))
        wait_until(lambda: bool(server.posts))
        webhook.close()
        assert server.posts == [{"text": "job 0 of ann: net is done\njob 1 of ann: net is done"}]


def test_a_message_is_retried_and_then_dropped() -> None:
    with chat(failure_count=2) as server:
        webhook = Webhook(server.url, slack, pauses=(0.0, 0.0))
        webhook.send(news())
        wait_until(lambda: len(server.posts) == 1)
        server.failing = 3
        webhook.send(news(1, "lost"))
        webhook.send(news(1, "next"))
        wait_until(lambda: len(server.posts) == 2)
        webhook.close()
        assert "next" in server.posts[1]["text"]


def test_an_unreachable_chat_delays_nothing() -> None:
    webhook = Webhook("http://127.0.0.1:1/", slack, pauses=(3600.0,))
    for _ in range(300):
        webhook.send(news())
    webhook.close()


def test_the_site_chooses_the_kinds_of_news() -> None:
    doc = {"mode": "active", "error": None, "running": [], "waiting": []}
    job = {"id": "1", "user": "ann", "name": "net", "profiling": False, "code": None}
    with chat() as server:
        text = f'[notify]\nwebhook = "{server.url}"\nformat = "matrix"\nkinds = ["fewer"]\n'
        notifier = Notifier(parse(text).notify, MemoryStore(), SlurmCommands(1.0))
        for gpus in (4, 2):
            notifier.after_tick({**doc, "running": [{**job, "placement": {"n0": gpus}}]})
        notifier.after_tick({})  # logged and ignored, as there is no status document
        wait_until(lambda: bool(server.posts))
        notifier.close()
        assert server.posts[0]["html"].startswith("job 1 of ann: net runs on 2 GPUs, 4 before")


def test_the_url_is_secret() -> None:
    url = SecretUrl("https://hooks.example.org/services/T0/B0/xyz")
    assert url.masked_url == "https://hooks.example.org/***"
    with pytest.raises(ConfigError, match="accepted: an http or https URL") as error:
        parse('[notify]\nwebhook = "hooks.example.org/xyz"')
    assert "xyz" not in str(error.value)
