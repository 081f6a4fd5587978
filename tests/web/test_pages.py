"""The pages after real ticks: what they show, to whom, and what they never let through."""

from __future__ import annotations

import html
import json
import os
import pwd
import queue
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from controller_rig import Rig, job

from hopsd.config import Config, WebConfig
from hopsd.config.listen import ListenAddress
from hopsd.errors import HopsError
from hopsd.model.ids import GpuType, JobId, UserName
from hopsd.model.journal import GpuUse, PlanSummary
from hopsd.model.plan import PlanSettings
from hopsd.model.privacy import Privacy, Private
from hopsd.model.reading import SlurmState
from hopsd.model.reason import duration
from hopsd.web import READERS, Web, drawing

pytest.importorskip("flask")
from web_site import Page, WebSite

from hopsd.web.pages import OPEN_QUESTIONS, ROWS
from hopsd.web.what_if import Planner

EVIL = "<script>alert(1)</script>\"'><img src=x>"
PATHS = (
    "/", "/jobs", "/jobs/1", "/jobs/2", "/nodes/n0", "/finished", "/history", "/plans", "/what-if"
)  # fmt: skip
ME = pwd.getpwuid(os.getuid()).pw_name


def rig(folder: Path, **changes: object) -> Rig:
    (folder / "reports").mkdir(exist_ok=True)
    jobs = [job(1, "hops:reqs=2"), job(2, "hops:reqs=32"), job(3, "hops:reqs=8,16")]
    return Rig(folder / "reports", *(replace(job_reading, **changes) for job_reading in jobs))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WebSite]:
    web_site = WebSite(tmp_path, rig(tmp_path), user_header="X-Remote-User")
    web_site.rig.tick()
    yield web_site
    web_site.close()


class CheckedPage(HTMLParser):
    """Collects tags and attributes; fails at a tag that is closed wrongly or an id used twice."""

    VOID = ("meta", "link", "input", "br", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def words(page: Page) -> str:
    """Return the text of a page with whitespace collapsed."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.text).split())


@pytest.mark.parametrize("path", PATHS)
def test_pages_are_well_formed_and_self_contained(site: WebSite, path: str) -> None:
    page = site.get(path)
    assert page.status == 200
    for tag, attributes in CheckedPage(page.text).tags:
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "action"):
            assert re.match(r"/(?!/)|#|$", attributes.get(name) or ""), (tag, attributes)


def test_the_cluster_shows_each_gpu(site: WebSite) -> None:
    page = site.get("/")
    assert "16 GPUs" in words(page)
    document = site.rig.controller.document
    for node in document["nodes"]:
        assert drawing.describe_node(node) in page.text
        widths = sum(part.gpus for part in drawing.parts(node))
        assert widths == node["gpus"]
    for row in document["running"]:
        assert f'href="/jobs/{row["id"]}"' in page.text


def test_the_queue_is_in_order_with_reasons(site: WebSite) -> None:
    page = site.get("/jobs")
    page_words = words(page)
    for row in site.rig.controller.document["waiting"]:
        assert row["reason"][1:] in page_words
    order = [row["id"] for row in site.rig.controller.document["waiting"]]
    places = [page.text.index(f'href="/jobs/{number}"') for number in order]
    assert places == sorted(places)
    assert "No job runs." in words(site.get("/jobs?user=nobody-here"))
    assert site.get("/jobs?user=ann").text.count('href="/jobs/') >= 3


def test_jobs_show_when_they_start_and_end(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    jobs = [
        replace(job(number, "hops:reqs=4"), time_limit_seconds=3600.0) for number in range(1, 30)
    ]
    site = WebSite(tmp_path, Rig(tmp_path / "reports", *jobs))
    site.rig.tick()
    outlook = site.rig.controller.outlook
    deadline = time.monotonic() + 30.0
    while outlook.document is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    site.rig.tick()
    document = site.rig.controller.document
    page_words, page = words(site.get("/jobs")), site.get("/jobs").text
    assert "Starts in" in page_words
    assert "Ends in" in page_words
    assert 'data-name="ends in"' in page
    assert 'data-name="done"' in page
    row = next(row for row in document["running"] if row["predicted"])
    low, high = (
        duration(max(0.0, row["predicted"][k] - document["time"])) for k in ("low", "high")
    )
    assert f"{low} to {high}" in page_words
    assert f"{low} to {high}" in words(site.get(f"/jobs/{row['id']}"))


def test_a_long_queue_is_truncated_and_can_be_shown_completely(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    jobs = [job(number, "hops:reqs=64") for number in range(1, ROWS + 8)]
    web_site = WebSite(tmp_path, Rig(tmp_path / "reports", *jobs))
    web_site.rig.tick()
    assert "and 7 more: show all" in words(web_site.get("/jobs"))
    assert f'href="/jobs/{ROWS + 7}"' in web_site.get("/jobs?all=1").text
    web_site.close()


def test_a_jobs_page_has_its_placements_and_alternatives(site: WebSite) -> None:
    site.rig.tick()
    running = site.rig.controller.document["running"][0]["id"]
    page_words = words(site.get(f"/jobs/{running}"))
    for text in ("Where it ran", "What was weighed", "restarts", "sensitivity to spreading"):
        assert text in page_words
    waits = words(site.get("/jobs/2"))
    assert "Waits:" in waits
    assert "Why it waited" in waits


def test_speeds_are_shown_against_expectations(site: WebSite) -> None:
    row = {"reqs": [1, 2], "placement": {"n0": 2}}
    kind = {
        "gpu_type": "a100",
        "shapes": [
            {"kind": "gpus", "count": 1, "per_gpu": 10.0, "source": "", "type": None},
            {"kind": "gpus", "count": 2, "per_gpu": 9.0, "source": "", "between": [8.0, 10.0],
             "type": {"per_gpu": 9.5, "records": 3, "newest": 1.0}},
            {"kind": "gpus", "count": 8, "per_gpu": 7.0, "source": "", "type": None},
        ],
    }  # fmt: skip
    first_speed, two = drawing.speeds([kind], row, [{"name": "n0", "gpu_type": "a100"}])
    assert (first_speed.gpus, first_speed.rate, first_speed.measured, first_speed.now) == (
        1,
        10.0,
        None,
        False,
    )
    assert (two.gpus, two.rate, two.low, two.high) == (2, 18.0, 16.0, 20.0)
    assert (two.measured, two.records, two.now) == (19.0, 3, True)
    assert two.from_x < two.x < two.measured_x < two.to_x <= 1000.0


def test_plans_are_shown_with_bound_and_time(site: WebSite) -> None:
    page_words = words(site.get("/plans"))
    plan = site.answers.plans(1)[0]
    assert f"{plan.seconds:.2f} s" in page_words
    assert plan.status.value.replace("_", " ") in page_words


@pytest.mark.slow
def test_what_if_shows_the_effect_of_emptying_a_node(site: WebSite) -> None:
    old_document = site.rig.controller.document
    page = site.get("/what-if?drain=n0")
    assert page.status == 200, words(page)
    CheckedPage(page.text)
    assert "GPUs 8 now 16" in words(page)
    assert site.rig.controller.document is old_document


@pytest.mark.slow
def test_what_if_shows_the_effect_of_other_counts(site: WebSite) -> None:
    page_words = words(site.get("/what-if?job=2&reqs=1,2"))
    assert "Job 2 with 1,2 GPUs" in page_words
    assert re.search(r"2 ann . n\d .[12]", page_words)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("drain=n9", "give a usable one"),
        ("job=2&reqs=x", "reqs"),
        ("job=2&reqs=1;cpu=yes", "give counts"),
        ("job=2", "reqs"),
        ("job=99&reqs=1", "give one of the page"),
    ],
)
def test_an_invalid_question_is_refused(site: WebSite, query: str, message: str) -> None:
    page = site.get(f"/what-if?{query}")
    assert page.status == 400
    assert message in words(page)


@pytest.mark.parametrize(
    "query", [b"/jobs?user=\xff", b"/jobs/\xff\xfe", b"/what-if?job=\xc3(", b"/\x00"]
)
def test_raw_bytes_cause_no_defect(site: WebSite, query: bytes) -> None:
    answer = site.raw(b"GET " + query + b" HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert answer[9:12] in (b"200", b"400", b"404"), answer[:200]


def test_only_one_question_is_computed_at_a_time_and_briefly(site: WebSite) -> None:
    result = site.answers.result
    assert result is not None
    snapshot = result.build.snapshot
    planner = Planner(seconds=0.01)
    with pytest.raises(HopsError, match="not planned within"):
        planner.compare(snapshot, snapshot, PlanSettings(), 60.0)
    planner._busy.acquire()
    with pytest.raises(HopsError, match="ask again"):
        planner.compare(snapshot, snapshot, PlanSettings(), 60.0)


def test_another_site_cannot_trigger_plans(site: WebSite) -> None:
    assert site.get("/what-if?drain=n0", Sec_Fetch_Site="cross-site").status == 403
    assert site.get("/what-if", Sec_Fetch_Site="cross-site").status == 200


@pytest.mark.slow
def test_a_reader_without_access_to_jobs_or_nodes_learns_nothing_of_them(site: WebSite) -> None:
    site.slurm.privacy = Privacy(frozenset({Private.JOBS}))
    assert 'href="/jobs/' not in site.get("/what-if?drain=n0").text
    assert site.get("/what-if?job=1&reqs=1").status == 400
    site.slurm.privacy = Privacy(frozenset({Private.NODES}))
    assert site.get("/what-if?drain=n0").status == 400


def test_texts_of_users_are_escaped(tmp_path: Path) -> None:
    web_site = WebSite(tmp_path, rig(tmp_path, name=EVIL, user=UserName(EVIL)))
    web_site.rig.tick()
    web_site.rig.store.add_event("drift", EVIL, job=JobId("1"), time=web_site.rig.port.now)
    for path in (*PATHS, f"/jobs?user={EVIL.replace(' ', '%20')}", "/jobs/%3Cscript%3E"):
        page = web_site.get(path)
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        CheckedPage(page.text)
    web_site.close()


def test_headers_protect_every_answer(site: WebSite) -> None:
    for path in (*PATHS, "/jobs/999999", "/nothing", "/static/hops.css"):
        headers = site.get(path).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_only_read_requests_are_accepted(site: WebSite, method: str) -> None:
    assert site.get("/", method).status == 405


def test_missing_pages_and_invalid_ids_are_reported(site: WebSite) -> None:
    assert site.get("/jobs/999999").status == 404
    page = site.get("/jobs/x")
    assert page.status == 400
    assert "give the number of a job" in words(page)
    assert site.get("/jobs/../../etc/passwd").status == 404
    assert site.get("/static/../pages.py").status == 404


def test_unchanged_pages_are_not_sent_again(site: WebSite) -> None:
    first = site.get("/jobs")
    unchanged_reply = site.get("/jobs", If_None_Match=first.headers["ETag"])
    assert (unchanged_reply.status, unchanged_reply.text) == (304, "")
    site.rig.tick()
    assert site.get("/jobs", If_None_Match=first.headers["ETag"]).status == 200


def test_a_stranger_sees_what_private_data_allows(site: WebSite) -> None:
    site.slurm.privacy = Privacy(frozenset({Private.JOBS}))
    for path in ("/", "/jobs"):
        assert 'href="/jobs/' not in site.get(path).text
    assert site.get("/jobs/1").status == 404
    assert "not shown to you" in words(site.get("/"))
    site.slurm.privacy = Privacy(frozenset({Private.NODES}))
    assert "n0" not in words(site.get("/"))


def test_the_proxy_names_the_reader_on_the_socket(site: WebSite) -> None:
    site.slurm.privacy = Privacy(frozenset({Private.JOBS}))
    assert site.get("/jobs/1", X_Remote_User=ME).status == 200
    assert site.get("/jobs", X_Remote_User="no-such-user").status == 403
    own_page = site.get("/jobs", X_Remote_User=ME)
    assert 'href="/jobs/' in own_page.text
    assert own_page.headers["Vary"] == "X-Remote-User"
    # The page sent to one reader is not cached for another.
    assert site.get("/jobs", If_None_Match=own_page.headers["ETag"]).status == 200


def test_a_port_trusts_no_header_and_no_other_host_name(tmp_path: Path) -> None:
    web_site = WebSite(
        tmp_path, rig(tmp_path), on_port=True, user_header="X-Remote-User", names=("gpu.site",)
    )
    web_site.slurm.privacy = Privacy(frozenset({Private.JOBS}))
    web_site.rig.tick()
    assert 'href="/jobs/' not in web_site.get("/jobs", X_Remote_User=ME).text
    for name in ("localhost:8080", "127.0.0.1", "GPU.site", "[::1]:99"):
        assert web_site.get("/", Host=name).status == 200
    for name in ("evil.example", "localhost.evil.example:80", "[::1].evil.example", ""):
        assert web_site.get("/", Host=name).status == 421
    web_site.close()


@pytest.mark.slow
def test_a_defect_fails_one_page_and_is_not_blamed_on_the_reader(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(site.answers, "plans", fails)
    page = site.get("/plans")
    assert page.status == 500
    assert "secret" not in page.text
    assert site.get("/").status == 200


def test_a_failure_to_listen_stops_nothing(tmp_path: Path) -> None:
    web_site = WebSite(tmp_path, rig(tmp_path))
    listen = ListenAddress(str(tmp_path / "none" / "w.sock"))
    for config in (WebConfig(listen=listen), Config().web):
        Web(config, web_site.answers).close()
    web_site.close()


def test_pages_exist_before_the_first_tick(tmp_path: Path) -> None:
    web_site = WebSite(tmp_path, rig(tmp_path))
    for path in ("/", "/jobs", "/plans"):
        assert web_site.get(path).status == 200
    web_site.close()


def test_questions_of_one_reader_are_answered_one_by_one(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one reader would take the processor and PostgreSQL connections that rounds need."""
    answer_starts: queue.Queue[None] = queue.Queue()
    go_on = threading.Event()

    def slow(_: int) -> tuple[PlanSummary, ...]:
        answer_starts.put(None)
        assert go_on.wait(60.0)
        return ()

    monkeypatch.setattr(site.answers, "plans", slow)
    with ThreadPoolExecutor(OPEN_QUESTIONS + 1) as readers:
        replies = [
            readers.submit(site.get, "/plans", X_Remote_User=ME) for _ in range(OPEN_QUESTIONS + 1)
        ]
        answer_starts.get(timeout=60.0)
        reply = next(as_completed(replies, timeout=60.0))
        assert reply.result().status == 429
        assert "ask again later" in words(reply.result())
        assert site.get("/", X_Remote_User="nobody").status == 200
        assert answer_starts.empty()
        go_on.set()
    assert sorted(page.result().status for page in replies) == [200] * OPEN_QUESTIONS + [429]


def large_answers(site: WebSite, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Have job 1's page answer ``size`` bytes as JSON."""
    document = {"job": {"id": "1"}, "history": {}, "text": "x" * size}
    monkeypatch.setattr(site.answers, "explain", lambda _viewer, _job: document)


LARGE = "/jobs/1?format=json"


def test_a_proxys_slow_reader_blocks_no_other_reader(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: one reader of large answers took all 64 connections of the proxy."""
    large_answers(site, monkeypatch, 1 << 20)
    request = f"GET {LARGE} HTTP/1.1\r\nHost: hops\r\nX-Remote-User: {ME}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(OPEN_QUESTIONS):
            reader = stack.enter_context(socket.socket(socket.AF_UNIX))
            reader.connect(str(site.listen.path))
            reader.sendall(request.encode())
            assert reader.recv(1)
        assert site.get(LARGE, X_Remote_User=ME).status == 429
        assert site.get(LARGE, X_Remote_User="nobody").status == 200
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        if site.get(LARGE, X_Remote_User=ME).status == 200:
            return
    pytest.fail("no answer after the others hung up")


HOLDER = """
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[2]))]
for client in held:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        client.connect(("127.0.0.1", int(sys.argv[1])))
        client.sendall(f"GET {sys.argv[3]} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
    except OSError:
        pass
print("held", flush=True)
sys.stdin.read()
"""
READER = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=90).status)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="acts as other accounts")
def test_an_account_that_reads_nothing_blocks_no_other_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web_site = WebSite(tmp_path, rig(tmp_path), on_port=True)
    web_site.rig.tick()
    large_answers(web_site, monkeypatch, 1 << 22)  # more than the kernel buffers for a connection
    words = ["/usr/bin/python3", "-c", HOLDER, str(web_site.listen.host_and_port[1])]
    with (
        closing(web_site),
        subprocess.Popen(
            [*words, str(READERS.in_all), LARGE], user=65531, stdin=-1, stdout=-1, text=True
        ) as holder,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        reader = subprocess.run(
            ["/usr/bin/python3", "-c", READER, f"{web_site.url}/jobs"],
            user=65532, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert reader.stdout == "200\n", reader.stderr
        holder.communicate(timeout=60)


def test_the_jobs_page_is_filtered_and_sorted(site: WebSite) -> None:
    assert 'href="/jobs/2"' not in site.get("/jobs?word=no-such-text").text
    page = site.get("/jobs?sort=-gpus")
    CheckedPage(page.text)
    rows = [(row["id"], sum(row["placement"].values())) for row in site.answers.document["running"]]
    places = [
        page.text.index(f'href="/jobs/{job}"') for job, _ in sorted(rows, key=lambda r: -r[1])
    ]
    assert places == sorted(places)
    assert 'aria-sort="descending"' in page.text
    assert site.get("/jobs?sort=x").status == 400


@pytest.mark.parametrize("path", [*PATHS, "/what-if?drain=n0"])
def test_each_page_is_available_as_json(site: WebSite, path: str) -> None:
    page = site.get(path)
    (address,) = re.findall(r'href="([^"]*)">JSON', page.text)
    answer = site.get(html.unescape(address))
    assert answer.headers["Content-Type"] == "application/json"
    document = json.loads(answer.text)
    if path == "/jobs":
        rows = {row["id"] for kind in document.values() for row in kind}
        assert rows == {"1", "2", "3"}
    if path == "/what-if?drain=n0":
        assert document["answer"]["then"]["gpus"] < document["answer"]["now"]["gpus"]


@pytest.mark.parametrize("path", ["/jobs/99", "/jobs?sort=x", "/nodes/n99", "/history?over=year"])
def test_programs_get_errors_as_json(site: WebSite, path: str) -> None:
    reply = site.get(f"{path}{'&' if '?' in path else '?'}format=json")
    assert reply.status in (400, 404)
    assert reply.headers["Content-Type"] == "application/json"
    assert json.loads(reply.text)["error"]


def test_a_node_with_two_types_has_a_page_for_each(tmp_path: Path) -> None:
    web_site = WebSite(tmp_path, rig(tmp_path))
    web_site.rig.tick()
    document = web_site.rig.controller.document
    document["nodes"][0]["name"] = "n0/a100"
    (address,) = re.findall(r'href="(/nodes/n0[^"]+)"', web_site.get("/").text)
    page = web_site.get(address)
    assert page.status == 200
    assert "Node n0/a100" in words(page)
    web_site.close()


def test_a_nodes_page_has_its_jobs_and_links(tmp_path: Path) -> None:
    web_site = WebSite(tmp_path, rig(tmp_path), node_links=("Load https://g.site/d?node={node}",))
    web_site.rig.tick()
    row = web_site.rig.controller.document["running"][0]
    node = next(iter(row["placement"]))
    page = web_site.get(f"/nodes/{node}")
    assert f'href="/jobs/{row["id"]}"' in page.text
    assert f'href="https://g.site/d?node={node}"' in page.text
    assert web_site.get("/nodes/n99").status == 404
    assert 'href="/nodes/n0"' in web_site.get("/").text
    web_site.slurm.privacy = Privacy(frozenset({Private.NODES}))
    assert web_site.get(f"/nodes/{node}").status == 404
    web_site.close()


def test_only_own_finished_jobs_are_shown_if_others_are_private(site: WebSite) -> None:
    record = next(iter(site.rig.store.jobs().values()))
    now = site.rig.port.now
    finished_record = replace(record, state=SlurmState.COMPLETED, end=now)
    site.rig.store.save_jobs(
        [
            replace(finished_record, id=JobId("50")),
            replace(finished_record, id=JobId("51"), user=UserName(ME)),
        ]
    )
    assert 'href="/jobs/50"' in site.get("/finished").text
    own_page = site.get("/finished", X_Remote_User=ME).text
    assert 'href="/jobs/51"' in own_page
    assert 'href="/jobs/50"' not in own_page
    assert 'href="/jobs/50"' in site.get("/finished?user=ann", X_Remote_User=ME).text
    site.slurm.privacy = Privacy(frozenset({Private.JOBS}), frozenset(), frozenset())
    assert 'href="/jobs/' not in site.get("/finished?user=ann").text


def test_the_history_page_has_use_queue_and_waits(site: WebSite) -> None:
    site.rig.tick()
    now = site.rig.controller.document["time"]
    site.rig.store.add_gpu_use([GpuUse(now // 3600 * 3600, GpuType("h200"), 7200.0, 3600.0)])
    page = site.get("/history")
    assert "% of its GPU time, 100 at most" in words(page)
    assert "66.7 jobs of hops, 33.3 plain Slurm jobs" in page.text
    assert len(json.loads(site.get("/history?format=json").text)["queue"]) == 24
    assert site.get("/history?over=month").status == 200
    assert site.get("/history?over=year").status == 400
    site.slurm.privacy = Privacy(frozenset({Private.USAGE}))
    page_of_others = site.get("/history")
    assert "not shown to you" in words(page_of_others)
    assert "h200" not in page_of_others.text
