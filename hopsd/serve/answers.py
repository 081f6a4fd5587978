"""Answers what people ask hopsd, by its local socket or its web page; changes nothing."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from hopsd.config import Config
from hopsd.errors import HopsError, InputError
from hopsd.learning.learnt import known_workloads, workload_document
from hopsd.model.bounds import EPOCH, MAX_DIARY_ROWS
from hopsd.model.ids import JobId, Tasks, UserName, WorkloadName
from hopsd.model.job import Node
from hopsd.model.journal import HOUR, PlanSummary
from hopsd.model.privacy import Privacy, Private, Viewer
from hopsd.round.result import RoundResult
from hopsd.round.settings import round_settings
from hopsd.serve.excerpt import JobSelection, excerpt
from hopsd.serve.privacy import (
    Document,
    history_for,
    knowledge_for,
    status_for,
    throughput_for,
    viewer,
)
from hopsd.slurm.ask import look_up, output_path
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.port import SHADOW
from hopsd.store.diary import JobKey
from hopsd.store.figures import RATIOS
from hopsd.store.history import DAY_SECONDS, History
from hopsd.store.postgres import PostgresStore

ASK_SECONDS = 5.0
"""The time-out of Slurm's commands, for which whoever asks must wait."""

STRANGER = -1
"""The uid of a reader without an account, who owns no job."""

HOURLY_SECONDS = 3 * DAY_SECONDS
"""Usage is reported by the hour for periods up to this long, else by the day (UTC)."""

MAX_OUTPUT_PATHS = 1000
"""How many paths are cached: an open page asks for the same one again and again."""

_MAX_NAMED = 10
"""How many tasks of an array a message names."""


class PrivacySource(Protocol):
    """Reads privacy settings, as `hopsd.slurm.ask.PrivacyReader` does."""

    def read(self) -> Privacy:
        """Return what Slurm hides, and the users who see everything."""


class RoundSource(Protocol):
    """Keeps the last round's result, as `hopsd.service.controller.Controller` does."""

    @property
    def document(self) -> Document:
        """The status document of the last tick."""

    @property
    def result(self) -> RoundResult | None:
        """The result of the last round that succeeded, if any."""


class QueryService:
    """Answers queries; thread-safe. ``config`` is the current one, replaced after a reload."""

    def __init__(
        self, rounds: RoundSource, store: History, privacy: PrivacySource, config: Config
    ) -> None:
        self.config = config
        self._rounds = rounds
        self._store = store
        self._privacy = privacy
        self._looking_up = threading.Lock()
        self._output_paths: dict[str, str] = {}

    @property
    def document(self) -> Document:
        """The status document of the last tick, including what not everybody may see."""
        return self._rounds.document

    @property
    def result(self) -> RoundResult | None:
        """The result of the last round that succeeded, if any."""
        return self._rounds.result

    def viewer(self, uid: int, user: str) -> Viewer:
        """Return what this user may see; ``STRANGER`` sees what a user without jobs may see."""
        extra = map(Private, self.config.daemon.private_data)
        return viewer(uid, user, os.getuid(), self._privacy.read(), extra)

    def status(self, viewer: Viewer) -> Document:
        return status_for(viewer, self.document)

    def excerpt(self, viewer: Viewer, arguments: Mapping[str, Any]) -> Document:
        """Return the part of the status that ``arguments`` select; see
        :meth:`hopsd.serve.excerpt.JobSelection.parse`.

        Raises:
            InputError: the arguments are invalid.
        """
        return excerpt(self.status(viewer), JobSelection.parse(arguments))

    def explain(self, viewer: Viewer, job: str) -> Document:
        """Return a job's row and history, or a sentence about a job that hops has not seen.

        Raises:
            InputError: ``job`` is not a job id.
        """
        if not re.fullmatch(r"[0-9]{1,18}(_[0-9]{1,18})?", job):
            raise InputError(f"job {job[:80]!r}; give the number of a job, or of a task as in 17_4")
        document = self.status(viewer)
        rows = {row["id"]: row for row in document["running"] + document["waiting"]}
        tasks = {row["number"]: row["id"] for row in rows.values() if row["array"]}
        if job not in rows:
            job = tasks.get(job, _waits_as(job, rows))
        history = history_for(viewer, self._store.job_history(JobId(job)))
        explanation = {"job": rows.get(job), "history": history, "unseen": None}
        if job not in rows and not history["placements"]:
            array_tasks = [row["id"] for row in rows.values() if row["array"] == job]
            explanation["unseen"] = (
                f"job {job} is an array; ask for one of its tasks: {_first_jobs(array_tasks)}"
                if array_tasks
                else self._explain_unknown(viewer, JobId(job))
            )
        return explanation

    def _explain_unknown(self, viewer: Viewer, job: JobId) -> str | None:
        """A sentence about a job that hopsd has not seen; None if Slurm does not know it either, or
        it is private.
        """
        with self._looking_up:  # one command at a time, however many users ask
            job_info = look_up(SlurmCommands(ASK_SECONDS), job)
        if job_info is None or (viewer.hides(Private.JOBS) and job_info.uid != viewer.uid):
            return None
        if not job_info.ours:
            return f"job {job} has no hops comment: only Slurm schedules it ({job_info.state})"
        seconds = self.config.daemon.refresh_seconds
        return (
            f"job {job} is {job_info.state}, and hops has not looked at it yet: it looks every"
            f" {seconds:g} s, or less often while jobs save their work"
        )

    def throughput(self, viewer: Viewer, workload: str | None) -> Document:
        """Return the speeds of a workload, or the names of the known workloads if None.

        Raises:
            InputError: no known workload, or more than one, begins with ``workload``.
        """
        user_workloads = self._store.workloads_of(UserName(viewer.user))
        knowledge = knowledge_for(viewer, self._store.knowledge(), user_workloads)
        if workload is None:
            return {"workloads": known_workloads(knowledge)}
        answer = workload_document(
            WorkloadName(workload),
            knowledge,
            [
                Node(node["name"], node["gpu_type"], node["gpus"], node["idle"])
                for node in self.document["nodes"]
            ],
            round_settings(self.config).snapshot.estimator,
            time.time(),
        )
        return throughput_for(viewer, answer)

    def report(
        self, viewer: Viewer, arguments: Mapping[str, Any], store: PostgresStore
    ) -> Document:
        """Return sums over the period from ``since`` to ``until`` (``arguments``), of ``viewer``'s
        own jobs if others' are private.

        Raises:
            InputError: these are not times, or the period is empty.
        """
        since, until = _time(arguments, "since"), _time(arguments, "until")
        if since >= until:
            raise InputError("since: give a time before until")
        user = UserName(viewer.user) if viewer.hides(Private.JOBS, Private.USAGE) else None
        is_usage_hidden = viewer.hides(Private.USAGE, Private.NODES)
        day = HOUR if until - since <= HOURLY_SECONDS else DAY_SECONDS
        restart = self.config.knowledge.assumed_restart_seconds
        shadow = self.document["port"] == SHADOW
        return {
            "since": since,
            "until": until,
            "user": user,
            "shadow": shadow,
            "use": None
            if is_usage_hidden
            else [asdict(use) for use in store.gpu_use(since, until, day)],
            "ranges": list(RATIOS),
            **store.figures(since, until, restart, user, shadow=shadow),
        }

    def diary(self, viewer: Viewer, arguments: Mapping[str, Any], store: PostgresStore) -> Document:
        """Return a shadow's entries on the newest ``most`` jobs from ``since`` to ``until``, with
        what is needed to simulate them. To get older ones, pass as ``before`` the submit time and
        id of the first job of the last answer.

        Raises:
            HopsError: something is hidden from ``viewer``: the diary covers everybody's jobs.
            InputError: an argument is not a time or a job, or ``most`` is out of range.
        """
        if viewer.secrets:
            raise HopsError(
                f"the diary covers everybody's jobs, and {', '.join(sorted(viewer.secrets))} are"
                " private here: only root, hopsd's account and Slurm's operators may read it"
            )
        limit = arguments.get("most")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MAX_DIARY_ROWS:
            raise InputError(f"most: give a number from 1 to {MAX_DIARY_ROWS}")
        before = None if arguments.get("before") is None else _place(arguments["before"])
        config = self.config
        return {
            "policy": config.plan.policy,
            "round_seconds": config.daemon.round_seconds,
            "restart_seconds": config.knowledge.assumed_restart_seconds,
            "nodes": [
                {key: node[key] for key in ("name", "gpu_type", "gpus", "usable")}
                for node in self.document["nodes"]
            ],
            "jobs": store.diary(
                _time(arguments, "since"), _time(arguments, "until"), limit, before
            ),
        }

    def ended_jobs(
        self, reader: Viewer, limit: int, user: UserName | None = None
    ) -> list[Document]:
        """The last ended jobs, of ``user`` or all; ``reader``'s own if others' are private."""
        if reader.hides(Private.JOBS, Private.USAGE):
            user = UserName(reader.user)
        return [
            {**asdict(job), "allocation": None, "latency_ratio": job.latency_ratio}
            for job in self._store.ended_jobs(limit, user)
        ]

    def past(self, reader: Viewer, since: float, until: float, seconds: float) -> Document:
        """Return GPU use, queue and waits by periods of ``seconds``, a multiple of an hour."""
        user = UserName(reader.user) if reader.hides(Private.JOBS, Private.USAGE) else None
        is_usage_hidden = reader.hides(Private.USAGE, Private.NODES)
        use = [] if is_usage_hidden else self._store.gpu_use(since, until, seconds)
        queue = self._store.queue_periods(since, until, seconds, user) if since < until else ()
        return {
            "since": since,
            "until": until,
            "seconds": seconds,
            "user": user,
            "use": None if is_usage_hidden else [asdict(row) for row in use],
            "queue": [asdict(period) for period in queue],
        }

    def output_path(self, job: str) -> str:
        """The path of a job's output file; ``""`` if Slurm no longer knows it."""
        if job not in self._output_paths:
            with self._looking_up:  # one command at a time, however many users ask
                path = output_path(SlurmCommands(ASK_SECONDS), JobId(job))
            if len(self._output_paths) >= MAX_OUTPUT_PATHS:
                self._output_paths.clear()
            self._output_paths[job] = path
        return self._output_paths[job]

    def plans(self, limit: int) -> tuple[PlanSummary, ...]:
        """The newest recorded plans, the newest first."""
        return self._store.plans(limit)


def _time(arguments: Mapping[str, Any], key: str) -> float:
    value = arguments.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not EPOCH.holds(value):
        raise InputError(f"{key}: give seconds since the epoch")
    return float(value)


def _place(value: Any) -> JobKey:
    match value:
        case [float() | int() as submit, str() as job]:
            return _time({"before": submit}, "before"), job
    raise InputError("before: give a job's submit time and its id")


def _waits_as(job: str, rows: Mapping[str, Document]) -> str:
    """The id of the row that has ``job``: for an array's task before its turn, the array's."""
    array, _, task = job.partition("_")
    waits = array in rows and task and int(task) in Tasks.parse(rows[array]["tasks"])
    return array if waits else job


def _first_jobs(jobs: Sequence[str]) -> str:
    return ", ".join(jobs[:_MAX_NAMED]) + (", ..." if len(jobs) > _MAX_NAMED else "")
