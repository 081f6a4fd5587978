"""The pages and who may read them. The pages change nothing: every request is a GET."""

from __future__ import annotations

import hashlib
import math
import pwd
import secrets
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from urllib.parse import urlencode

import structlog
from flask import Flask, Response, abort, g, json, render_template, request
from werkzeug.exceptions import HTTPException

from hopsd.config import WebConfig
from hopsd.errors import HopsError, InputError
from hopsd.model.ids import UserName
from hopsd.model.journal import HOUR
from hopsd.model.privacy import Private, Viewer
from hopsd.model.reason import clock, duration, without_jobs
from hopsd.serve.answers import STRANGER, QueryService
from hopsd.serve.http import CALLER, UNTIL_SENT
from hopsd.serve.peers import BusyError, OpenQuestion, RequestSlots
from hopsd.web import drawing
from hopsd.web.choice import JobSearch, progress
from hopsd.web.links import links
from hopsd.web.what_if import PlanComparison, Planner, with_reqs, without_node

HEADERS = {
    # No script, style or address of another origin, and no inline script or style.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "private, no-cache",
}
JSON = "application/json"
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
PLANS = 60
"""Number of most recent plans shown."""
PERIODS = {"day": (24 * HOUR, HOUR), "month": (30 * 24 * HOUR, 24 * HOUR)}
"""Periods of the history page: their length and the length of a bar, in seconds."""
OPEN_QUESTIONS = 8
"""Questions that one reader may have open at a time; browsers open six connections."""
ROWS, ALL_ROWS = 200, 5000
"""Maximum rows of a table, and of one with "show all"; the rows beyond are only counted."""

log = structlog.get_logger()


def application(config: WebConfig, answers: QueryService, turns: RequestSlots) -> Flask:
    """Build the Flask application according to ``config``."""
    app = Flask(__name__)
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
    app.jinja_env.filters.update(
        duration=duration,
        clock=clock,
        figure=figure,
        iso=iso,
        percent=percent,
        sentence=sentence,
        colour=drawing.colour,
    )
    app.jinja_env.globals.update(drawing=drawing, progress=progress)
    gate = _Gate(config, answers)
    app.before_request(gate.admit)
    app.after_request(gate.protect)
    pages = _Pages(config, answers, turns)
    for rule, page in (
        ("/", pages.cluster),
        ("/jobs", pages.jobs),
        ("/jobs/<job>", pages.job),
        ("/nodes/<path:node>", pages.node),  # such as n0/a100, if n0 has several types
        ("/finished", pages.finished),
        ("/history", pages.history),
        ("/plans", pages.plans),
    ):
        app.add_url_rule(rule, view_func=pages.in_turn(page))
    app.add_url_rule("/what-if", view_func=pages.what_if)
    app.register_error_handler(HTTPException, _http_error_page)
    app.register_error_handler(HopsError, _error_page)
    app.register_error_handler(Exception, _defect)
    return app


class _Gate:
    """Decides who may read and as which user, and adds the headers that protect the answer."""

    def __init__(self, config: WebConfig, answers: QueryService) -> None:
        self._answers = answers
        self._on_socket = config.listen.path is not None
        self._header = config.user_header if self._on_socket else ""
        listen_host = () if self._on_socket else (config.listen.rpartition(":")[0],)
        self._names = {name.lower() for name in (*OWN_NAMES, *listen_host, *config.names)}

    def admit(self) -> None:
        """Refuse requests that are not for these pages, and identify the reader.

        Raises:
            HTTPException: if the request is refused; the message says why.
        """
        if request.method not in ("GET", "HEAD"):
            abort(405, "This page is read-only: use GET or HEAD.")
        # If another site's name resolved to this server, that site's scripts could read the page.
        if not self._on_socket and _host_name(request.host) not in self._names:
            abort(421, "This page does not have that name; web.names may list more.")
        user = request.headers.get(self._header, "") if self._header else ""
        g.viewer = self._reader(user)
        g.reader = g.viewer.uid if user else request.environ[CALLER]

    def _reader(self, user: str) -> Viewer:
        if not user:
            return self._answers.viewer(STRANGER, "")
        try:
            return self._answers.viewer(pwd.getpwnam(user).pw_uid, user)
        except (KeyError, ValueError):
            abort(403, "The user whom the proxy names has no account on this machine.")

    def protect(self, response: Response) -> Response:
        response.headers.extend(HEADERS)
        if request.endpoint == "static":
            response.headers["Cache-Control"] = "public, max-age=3600"
        if self._header:
            response.vary.add(self._header)
        return response


class _Pages:
    """Has one method for each page."""

    def __init__(self, config: WebConfig, answers: QueryService, turns: RequestSlots) -> None:
        self._config = config
        self._answers = answers
        self._turns = turns
        self._start = secrets.token_hex(8)
        self._planner = Planner()

    def in_turn(self, page: Callable[..., Response]) -> Callable[..., Response]:
        """Wrap ``page`` so that it is built only once the reader has a request slot."""

        @wraps(page)
        def respond(**arguments: str) -> Response:
            question = self._question()
            with question.turn():
                answer = page(**arguments)
            question.keep(answer.calculate_content_length() or 0)
            return answer

        return respond

    def _question(self) -> OpenQuestion:
        """Open a question of the reader; it stays open until the answer is sent."""
        question: OpenQuestion = request.environ[UNTIL_SENT].enter_context(
            self._turns.question(g.reader, waiting=OPEN_QUESTIONS)
        )
        return question

    def cluster(self) -> Response:
        doc = self._answers.status(g.viewer)
        return self._page(
            "cluster.html", doc, lambda: {"kinds": drawing.by_type(doc["nodes"])}, lambda: doc
        )

    def jobs(self) -> Response:
        doc = self._answers.status(g.viewer)
        choice = JobSearch.from_query(request.args)
        max_rows = ALL_ROWS if "all" in request.args else ROWS

        def context() -> dict[str, Any]:
            rows = {kind: choice.rows(doc[kind]) for kind in ("waiting", "running")}
            ratios = [row["latency_ratio"] or 0.0 for kind in rows.values() for row in kind]
            all_rows = [*doc["waiting"], *doc["running"]]
            return {
                "rows": rows,
                "choice": choice,
                "partitions": sorted({row["partition"] for row in all_rows}),
                "me": g.viewer.user,
                "top": max([2.0, *ratios]),
                "most": max_rows,
            }

        def data() -> Any:
            return {kind: choice.rows(doc[kind]) for kind in ("waiting", "running")}

        return self._page("jobs.html", doc, context, data)

    def finished(self) -> Response:
        """Show jobs that ended; readers who may not see others' jobs get their own."""
        doc = self._answers.status(g.viewer)
        user = request.args.get("user", g.viewer.user).strip()
        only_own_jobs = g.viewer.hides(Private.JOBS, Private.USAGE)
        max_rows = ALL_ROWS if "all" in request.args else ROWS

        def context() -> dict[str, Any]:
            jobs = self._answers.ended_jobs(
                g.viewer, max_rows + 1, UserName(user) if user else None
            )
            return {
                "jobs": jobs[:max_rows],
                "user": g.viewer.user if only_own_jobs else user,
                "own": only_own_jobs,
                "more": len(jobs) > max_rows,
            }

        return self._page("finished.html", doc, context, lambda: context()["jobs"])

    def node(self, node: str) -> Response:
        doc = self._answers.status(g.viewer)
        rows = [row for row in doc["nodes"] if row["name"] == node]
        if not rows:
            abort(404, f"hops knows no node {node}, or you may not see it")

        def context() -> dict[str, Any]:
            jobs = [row for row in doc["running"] if node in row["placement"]]
            node_links = links(self._config.node_links, node=node)
            return {"node": rows[0], "jobs": jobs, "links": node_links}

        return self._page(
            "node.html", doc, context, lambda: {"node": rows[0], "jobs": context()["jobs"]}
        )

    def history(self) -> Response:
        """Show the use of the GPUs, the queue and the waits over a period."""
        doc = self._answers.status(g.viewer)
        name = request.args.get("over", "day")
        if name not in PERIODS:
            raise InputError(f"over={name[:80]}: choose from {', '.join(PERIODS)}")
        whole, bar = PERIODS[name]
        # Start at a full hour, or a full day in UTC, as the use of GPUs is summed up by these.
        until = doc["time"] or 0.0
        since = max(0.0, (until // bar + 1) * bar - whole)

        def data() -> dict[str, Any]:
            return self._answers.past(g.viewer, since, until, bar)

        def context() -> dict[str, Any]:
            past = data()
            return {"over": name, "overs": PERIODS, "past": past, "bars": drawing.bars(past)}

        return self._page("history.html", doc, context, data)

    def job(self, job: str) -> Response:
        doc = self._answers.status(g.viewer)
        explanation = self._answers.explain(g.viewer, job)
        row, history = explanation["job"], explanation["history"]
        if row is None and history["record"] is None:
            abort(404, explanation["unseen"] or f"hops knows no job {job}")

        def context() -> dict[str, Any]:
            record = history["record"] or row
            times = drawing.timeline(history["placements"], record["submit"], doc["time"])
            needs_log = any("{log}" in link for link in self._config.job_links)
            log_path = self._answers.output_path(job) if row and needs_log else ""
            return {
                "id": row["id"] if row else job,
                "row": row,
                "known": record,
                "history": history,
                "turn": drawing.turn(doc, row),
                "times": times,
                "speeds": drawing.speeds(self._speeds(record["workload"]), row, doc["nodes"]),
                "links": links(
                    self._config.job_links,
                    job=row["id"] if row else job,
                    user=record["user"],
                    log=log_path,
                    start=str(int(times.begin * 1000)) if times else "",
                    end=str(int(times.end * 1000)) if times else "",
                ),
            }

        return self._page("job.html", doc, context, lambda: explanation)

    def _speeds(self, workload: str) -> list[dict[str, Any]]:
        try:
            types: list[dict[str, Any]] = self._answers.throughput(g.viewer, workload)["types"]
        except InputError:  # nothing is known of the workload yet
            return []
        return types

    def plans(self) -> Response:
        doc = self._answers.status(g.viewer)

        def context() -> dict[str, Any]:
            plans = self._answers.plans(PLANS)
            return {"plans": plans, "chart": drawing.course(plans)}

        def data() -> Any:
            return {"round": doc["round"], "plans": [asdict(p) for p in self._answers.plans(PLANS)]}

        return self._page("plans.html", doc, context, data)

    def what_if(self) -> Response:
        """Compare two plans; the slot is free meanwhile, since another process plans, slowly."""
        question = self._question()
        with question.turn():
            doc = self._answers.status(g.viewer)
        fields = {key: request.args.get(key, "").strip() for key in ("drain", "job", "reqs")}
        filled_fields = [key for key, value in fields.items() if value]
        if filled_fields and request.headers.get("Sec-Fetch-Site", "none") not in (
            "same-origin",
            "none",
        ):
            abort(403, "Other sites may not request plans.")
        nodes = [node["name"] for node in doc["nodes"] if node["usable"]]
        answer = self._plan_anew(doc, nodes, fields) if filled_fields else None
        if _wants_json():
            document = None if answer is None else asdict(answer)
            return Response(json.dumps({"nodes": nodes, "answer": document}), mimetype=JSON)
        query = urlencode({key: fields[key] for key in filled_fields} | {"format": "json"})
        with question.turn():
            page = render_template(
                "what-if.html", doc=doc, nodes=nodes, answer=answer, json_query=query, **fields
            )
        question.keep(len(page))
        return Response(page)

    def _plan_anew(
        self, doc: dict[str, Any], nodes: list[str], fields: dict[str, str]
    ) -> PlanComparison:
        result, config = self._answers.result, self._answers.config
        if result is None:
            raise HopsError("no plan has been made since hopsd took the lead")
        visible_jobs = {row["id"] for row in (*doc["running"], *doc["waiting"])}
        snapshot = result.build.snapshot
        if fields["drain"]:
            if fields["drain"] not in nodes:
                raise InputError(f"node {fields['drain'][:80]!r}: give a usable one")
            variant = without_node(snapshot, fields["drain"])
        elif fields["job"] in visible_jobs:
            variant = with_reqs(snapshot, fields["job"], fields["reqs"])
        else:
            raise InputError(f"job {fields['job'][:80]!r}: give one of the page of jobs")
        answer = self._planner.compare(
            snapshot, variant, config.plan.settings, config.daemon.round_seconds
        )
        hides_jobs = g.viewer.hides(Private.JOBS)
        visible_differences = tuple(
            replace(difference, reason=without_jobs(difference.reason, visible_jobs))
            if hides_jobs
            else difference
            for difference in answer.differences
            if difference.job in visible_jobs
        )
        return replace(answer, differences=visible_differences)

    def _page(
        self,
        template: str,
        doc: dict[str, Any],
        context: Callable[[], dict[str, Any]],
        data: Callable[[], Any],
    ) -> Response:
        """Answer with the rendered template, or ``data`` for ``format=json``; 304 if unchanged."""
        as_json = _wants_json()
        hidden_kinds = sorted(kind.value for kind in g.viewer.secrets)
        version = (self._start, doc["ticks"], g.viewer.uid, hidden_kinds, request.full_path)
        answer = Response(mimetype=JSON if as_json else "text/html")
        answer.set_etag(hashlib.sha256(repr(version).encode()).hexdigest()[:32])
        answer.make_conditional(request)
        if answer.status_code == 304:
            return answer
        if as_json:
            answer.set_data(json.dumps(data()))
        else:
            refresh = self._answers.config.daemon.refresh_seconds
            address = request.args.to_dict() | {"format": "json"}
            answer.set_data(
                render_template(
                    template, doc=doc, refresh=refresh, json_query=urlencode(address), **context()
                )
            )
        return answer


def _wants_json() -> bool:
    return request.args.get("format") == "json"


def _host_name(host: str) -> str:
    """Return the host of `name:port`, `name` or `[address]:port`."""
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _http_error_page(error: HTTPException) -> Response:
    return _message_page(error.code or 500, error.name, error.description or "")


def _error_page(error: HopsError) -> Response:
    if isinstance(error, InputError):
        return _message_page(400, "That is not accepted", str(error))
    if isinstance(error, BusyError):
        return _message_page(429, "Too many requests at a time", str(error))
    return _message_page(503, "hopsd cannot answer now", str(error))


def _defect(error: Exception) -> Response:
    log.error("defect", where="web", exc_info=error)
    return _message_page(500, "A defect of hops", f"{type(error).__name__}: hopsd's log says more.")


def _message_page(status: int, title: str, text: str) -> Response:
    if _wants_json():
        return Response(json.dumps({"error": text or title}), status, mimetype=JSON)
    return Response(render_template("error.html", title=title, text=text), status)


def figure(value: float | None) -> str:
    """Format a number with three digits; a dash for None."""
    if value is None or not math.isfinite(value):
        return "-" if value is None else str(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def sentence(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]


def iso(time: float | None) -> str:
    return "" if time is None else datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
