"""Mails: recipients, number and wording; no text of a job becomes an option or a header."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mail_server import mail_server
from memory_store import MemoryStore

from hopsd.config import MailRoute, NotifyConfig, parse
from hopsd.errors import ConfigError, SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import GpuType, JobId, UserName, WorkloadName
from hopsd.model.journal import GpuUse
from hopsd.model.reading import SlurmState
from hopsd.notify.letters import paragraph
from hopsd.notify.mail import HOUR, Mail, MailBudget, MailError, deliver
from hopsd.notify.news import DONE, FAILED, FEWER, KINDS, STUCK, STUCK_CODES, News
from hopsd.notify.postman import MAX_WHOLE, Postman
from hopsd.notify.recipients import MailWish, address_of, read_mail_wish
from hopsd.notify.webhook import MAX_LINES

ANN = UserName("ann")
NOON = time.mktime((2026, 11, 27, 12, 0, 0, 0, 0, -1))
DOC: dict[str, Any] = {
    "mode": "active", "time": NOON, "error": None, "running": [], "waiting": [], "nodes": [],
}  # fmt: skip


class Slurm:
    """Answers `scontrol show job`."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def run(self, *_: str) -> str:
        if self.text is None:
            raise SlurmError("gone")
        return self.text


@pytest.mark.parametrize(
    ("slurm_output", "kinds", "address"),
    [
        ("   MailUser=ann@x.org MailType=END,FAIL\n", {DONE, FAILED, STUCK}, "ann@x.org"),
        ("   MailUser=ann MailType=ALL\n", set(KINDS), "ann"),
        ("   MailUser=(null) MailType=NONE\n", set(), ""),
        ("   Command=MailType=ALL_x\n", set(), ""),
        (None, set(), ""),
    ],
)
def test_mail_types_of_slurm_are_read(
    slurm_output: str | None, kinds: set[str], address: str
) -> None:
    assert read_mail_wish(Slurm(slurm_output), "17") == MailWish(frozenset(kinds), address)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wish", "user_choice", "address"),
    [
        (MailWish(), None, ""),
        (MailWish(frozenset(KINDS), "boss@x.org"), None, "boss@x.org"),
        (MailWish(frozenset(KINDS)), None, "ann@site.org"),
        (MailWish(), [FAILED], "ann@site.org"),
        (MailWish(frozenset(KINDS), "boss@x.org"), [], ""),
        (MailWish(frozenset(KINDS), "-Sevil"), None, ""),
        (MailWish(frozenset(KINDS), "a@x.org,b@x.org"), None, ""),
        (MailWish(frozenset(KINDS), "a@x.org\nBcc: b@x.org"), None, ""),
    ],
)
def test_a_users_own_setting_overrides_slurms_mail_types(
    wish: MailWish, user_choice: Sequence[str] | None, address: str
) -> None:
    assert address_of(News(FAILED, "1", "ann", "x"), wish, user_choice, "site.org") == address


@given(
    per_hour=st.integers(1, 5),
    times=st.lists(st.floats(0, 4 * HOUR), max_size=60).map(sorted),
)
def test_the_hourly_limit_is_kept_and_no_news_is_lost(per_hour: int, times: list[float]) -> None:
    allowance = MailBudget(per_hour)
    mails: list[tuple[float, int]] = []
    send_time = 0.0

    def send(_: str, paragraphs: Sequence[str], omitted_count: int) -> None:
        assert len(paragraphs) <= MAX_LINES
        mails.append((send_time, len(paragraphs) + omitted_count))

    for send_time in times:
        allowance.add("ann", ["x"])
        allowance.due(send_time, send)
    send_time = 10 * HOUR
    allowance.due(send_time, send)
    assert sum(count for _, count in mails) == len(times)
    for start, _ in mails:
        assert sum(start <= time < start + HOUR for time, _ in mails) <= per_hour


def test_a_mail_program_gets_the_mail_on_standard_input(tmp_path: Path) -> None:
    program = tmp_path / "mail"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/sent\ncat >> {tmp_path}/sent\n')
    program.chmod(0o755)
    deliver(Mail("ann@x.org", "a $(b) 'c'", "text\n"), MailRoute(str(program)), "hops")
    assert (tmp_path / "sent").read_text() == "-s|a $(b) 'c'|ann@x.org|text\n"
    program.write_text("#!/bin/sh\necho no such user >&2\nexit 67\n")
    with pytest.raises(MailError, match="exit code 67: no such user"):
        deliver(Mail("ann", "s", "t"), MailRoute(str(program)), "hops")
    with pytest.raises(MailError, match="FileNotFoundError"):
        deliver(Mail("ann", "s", "t"), MailRoute(str(tmp_path / "none")), "hops")


def test_an_smtp_server_gets_the_mail() -> None:
    with mail_server() as server:
        deliver(Mail("ann@x.org", "job 1: schön", "größer\n"), MailRoute(server.url), "hops@x.org")
        (mail,) = server.mails
        assert (mail["To"], mail["From"]) == ("ann@x.org", "hops@x.org")
        assert mail["Subject"] == "job 1: schön"
        assert mail["Auto-Submitted"] == "auto-generated"
        assert mail.get_content().strip() == "größer"
    with pytest.raises(MailError, match="ConnectionRefusedError"):
        deliver(Mail("ann@x.org", "s", "t"), MailRoute("smtp://127.0.0.1:1"), "hops")
    with pytest.raises(MailError, match="ValueError"):
        deliver(Mail("a@x.org", "s\nBcc: b@x.org", "t"), MailRoute("smtp://127.0.0.1:1"), "hops")


@pytest.mark.parametrize(
    "text", ["mail", "http://x", "smtp://", "smtp://h:x", "smtp://h:0", "smtp://u@h", "./m"]
)
def test_an_unsupported_mail_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="accepted: a program's absolute path, or an SMTP server"):
        parse(f'[notify]\nmail = "{text}"')


def ended_record(job: str, end: float, state: SlurmState = SlurmState.COMPLETED) -> JobRecord:
    return JobRecord(
        JobId(job), ANN, "net", "hops:reqs=2", WorkloadName("w"), end - 100.0, end, state,
        wait_seconds=60.0, run_seconds=40.0, end=end,
        allocation=Allocation.of({"n0": 2}), allocation_since=end - 40.0,
    )  # fmt: skip


class Post:
    """A postman whose mails are recorded."""

    def __init__(self, wish: MailWish, **settings: Any) -> None:
        self.mails: list[Mail] = []
        self.store = MemoryStore()
        config = NotifyConfig(mail=MailRoute("/usr/bin/mail"), **settings)
        self.postman = Postman(config, self.store, lambda _: wish, send=self.mails.append)

    def tick(self, *news: News, time: float = NOON, **doc: Any) -> None:
        self.postman.after_tick(news, {**DOC, "time": time, **doc})

    def close(self) -> list[Mail]:
        self.postman.close(60.0)
        return self.mails


ALL_MAILS = MailWish(frozenset(KINDS), "ann@x.org")


def test_a_mail_says_what_happened_and_where_the_job_ran() -> None:
    post = Post(ALL_MAILS)
    post.store.save_jobs([ended_record("1", NOON)])
    post.tick(News(DONE, "1", "ann", "net is done: it ran 40s and waited 1m00s"))
    (mail,) = post.close()
    assert mail.recipient == "ann@x.org"
    assert mail.subject == "hops: Job 1: net is done: it ran 40s and waited 1m00s"
    assert "ran on n0:2 from " in mail.text
    assert "hopsctl explain 1" in mail.text


def test_a_tick_sends_one_mail_and_the_users_setting_applies() -> None:
    post = Post(ALL_MAILS)
    post.store.save_mail_kinds(ANN, [FAILED])
    post.tick(*(News(FAILED, str(n), "ann", "net failed") for n in range(3)),
              News(FEWER, "9", "ann", "net runs on 2 GPUs, 4 before"))  # fmt: skip
    (mail,) = post.close()
    assert mail.subject.endswith("(and 2 more)")
    assert "Job 9" not in mail.text


def test_a_user_who_requested_nothing_gets_nothing() -> None:
    post = Post(MailWish())
    post.tick(News(FAILED, "1", "ann", "net failed"))
    assert post.close() == []


def test_a_rejected_mail_does_not_stop_the_next() -> None:
    post = Post(ALL_MAILS)

    def send(mail: Mail) -> None:
        if "1" in mail.subject:
            raise MailError("no")
        post.mails.append(mail)

    post.postman._send = send
    post.tick(News(FAILED, "1", "ann", "net failed"))
    post.tick(News(FAILED, "2", "ann", "net failed"), time=NOON + 1.0)
    assert [mail.subject for mail in post.close()] == ["hops: Job 2: net failed"]


def test_admins_get_the_daily_digest_once() -> None:
    post = Post(MailWish(), admins=("root@x.org",), digest_hour=7)
    morning = NOON - 5 * HOUR
    post.store.save_jobs(
        [ended_record("1", morning - HOUR), ended_record("2", morning - 30 * HOUR)]
    )
    post.store.save_jobs([ended_record("3", morning - HOUR, SlurmState.FAILED)])
    post.store.add_gpu_use(
        [GpuUse((morning - HOUR) // HOUR * HOUR, GpuType("a100"), 30.0, idle=10.0)]
    )
    waiting = [{"id": "7", "user": "bob", "wait_seconds": 7200.0, "code": STUCK_CODES[0],
                "reason": "its account has 8 GPUs"}]  # fmt: skip
    nodes = [{"name": "n3", "health": "", "state": "DOWN", "usable": False}]
    for minutes in (-10, -5, 1, 6, 60):
        post.tick(time=morning + 60.0 * minutes, waiting=waiting, nodes=nodes)
    (mail,) = post.close()
    assert mail.recipient == "root@x.org"
    assert "2 jobs ended: 1 completed, 1 failed" in mail.text
    assert "a100: 75 % for hops' jobs, 25 % idle" in mail.text
    assert "n3: down" in mail.text
    assert "7 of bob, 2h00m: its account has 8 GPUs" in mail.text


def test_no_job_name_adds_a_line() -> None:
    history = {"placements": [], "reasons": [{"reason": "x\ny\x1b[31m"}]}
    assert len(paragraph(News(DONE, "1", "ann", "a\nb"), history).splitlines()) == 3


def test_a_hanging_mail_program_delays_nothing() -> None:
    post = Post(ALL_MAILS)
    post.postman._send = lambda _: time.sleep(3600.0)
    start_time = time.monotonic()
    for number in range(2000):
        post.tick(News(FAILED, str(number), "ann", "net failed"))
    post.postman.close(0.1)
    assert time.monotonic() - start_time < 30.0


@pytest.mark.slow
def test_status_documents_do_not_pile_up_behind_a_hanging_mail_server() -> None:
    """A thousand were kept: 4 GiB within hours on a large site, because of a mail server."""

    class Row(dict[str, Any]):
        pass

    post, end = Post(ALL_MAILS), threading.Event()
    post.postman._send = lambda _: end.wait(60.0) and None
    rows: list[weakref.ref[Row]] = []
    for number in range(100):
        row = Row()
        rows.append(weakref.ref(row))
        post.tick(News(FAILED, str(number), "ann", "net failed"), running=[row])
    del row
    gc.collect()
    assert sum(reference() is not None for reference in rows) <= MAX_WHOLE + 1
    end.set()
    post.postman.close(60.0)
