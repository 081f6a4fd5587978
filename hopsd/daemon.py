"""The process: clock, signals, scheduler, watchdog and socket. What it does: `controller.py`."""

from __future__ import annotations

import os
import pwd
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import sdnotify
import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from hopsd import logs
from hopsd.config import Config, SlurmConfig, load
from hopsd.controller import Controller, round_settings
from hopsd.ctl.terminal import printable
from hopsd.errors import ConfigError, HopsError, InputError
from hopsd.learning.learnt import known_workloads, workload_document
from hopsd.local_socket import LocalServer, Request
from hopsd.metrics import Metrics
from hopsd.model.cluster import Node
from hopsd.model.ids import JobId, Tasks, UserName, WorkloadName
from hopsd.model.privacy import Private, Viewer
from hopsd.slurm.accounting.rights import coordinated, own_missing_rights
from hopsd.slurm.ask import PrivacyReader, look_up
from hopsd.slurm.choose import choose_port
from hopsd.slurm.command import SlurmCommands
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore
from hopsd.views import history_for, knowledge_for, status_for, throughput_for, viewer

log = structlog.get_logger()

TICK = "tick"
PRIVACY_SECONDS = 5.0
"""Who asks for the status waits no longer for what Slurm says of PrivateData."""
FAILING_TICKS = 10
"""In a row, all with the same defect: after them systemd's watchdog is kept waiting."""

MAX_STATUS = 1000
"""Characters of what systemd is told."""

_MAX_NAMED = 10
"""Tasks of an array in a sentence."""

CLOCK_STEP_SECONDS = 1.0
"""The scheduler sleeps until a time of day: one that is set back would put off the next tick."""


class Daemon:
    """Runs ticks until SIGTERM. Stopping it leaves jobs as they are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._config = load(path)
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._wake = threading.Event()
        self._looking_up = threading.Lock()
        self._last_tick = time.monotonic()
        self._notify = sdnotify.SystemdNotifier()
        self._metrics: Metrics | None = None

    def run(self) -> None:
        """Returns after SIGTERM or SIGINT, when the tick under way has ended.

        Raises:
            HopsError: the configuration, Slurm or the database is unusable at the start.
        """
        config = self._config
        logs.configure(config.daemon.log_level, config.daemon.log_format)
        log.info("starting", config=str(self._path), pid=os.getpid())
        commands = SlurmCommands(PRIVACY_SECONDS)
        self._privacy = PrivacyReader(commands)
        leader = Leader(config.database.dsn)
        port, why = choose_port(config.slurm, assure=leader.assure)
        with PostgresStore(config.database.dsn, leader=leader) as store:
            self._store = store
            self._controller = Controller(config, port, why, store, leader)
            log.info("start", port=port.name, reason=why)
            for missing in own_missing_rights(commands, _user(os.getuid())):
                log.error("rights", missing=missing)
            server = LocalServer(config.daemon.socket, self._answer)
            self._metrics = Metrics(config)
            try:
                self._loop()
            finally:
                self._metrics.close()
                server.close()
                leader.close()
        log.info("stop")

    def _loop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(1)}, timezone=UTC)
        scheduler.add_listener(self._on_late, EVENT_JOB_MAX_INSTANCES)
        self._schedule(scheduler)
        scheduler.start()
        self._notify.notify("READY=1")
        watchdog = watchdog_seconds()
        ahead = _wall_ahead()
        while not self._stop.is_set():
            self._wake.wait(timeout=min(watchdog or 60.0, 1.0))
            self._wake.clear()
            before, ahead = ahead, _wall_ahead()
            if abs(ahead - before) > CLOCK_STEP_SECONDS:
                log.warning("clock", set_by_seconds=round(ahead - before, 1))
                self._schedule(scheduler)
            if self._reload.is_set():
                self._reload.clear()
                self._take_configuration(scheduler)
            if self._healthy():
                self._notify.notify("WATCHDOG=1")
        self._notify.notify("STOPPING=1")
        scheduler.shutdown(wait=True)

    def _schedule(self, scheduler: BackgroundScheduler) -> None:
        scheduler.add_job(
            self._tick,
            "interval",
            seconds=self._config.daemon.refresh_seconds,
            id=TICK,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            replace_existing=True,
            next_run_time=datetime.now(UTC),
        )

    def _patience(self) -> float:
        """Seconds without a finished tick after which the watchdog may kill us."""
        slurm = self._config.slurm
        slowest = (
            max(slurm.checkpoint_grace_seconds, slurm.longest_grace_seconds)
            + slurm.stop_timeout_seconds
            + slurm.start_timeout_seconds
        )
        return 2 * (self._config.daemon.refresh_seconds + slowest) + 120.0

    def _healthy(self) -> bool:
        """False if systemd's watchdog should restart hopsd. No tick has ended for long, or all of
        late ended with the same defect, which may lie in what this process remembers.
        """
        late = time.monotonic() - self._last_tick >= self._patience()
        return not late and self._controller.failing < FAILING_TICKS

    def _tick(self) -> None:
        sentence = self._controller.tick()
        if self._metrics is not None:
            told = self._controller
            self._metrics.after_tick(told.document, told.result, told.backing_off, self._config)
        if self._controller.failing >= FAILING_TICKS:
            sentence += "; systemd's watchdog is kept waiting, so that it starts hopsd anew"
        self._notify.notify(f"STATUS={printable(' '.join(sentence.split()))[:MAX_STATUS]}")
        self._last_tick = time.monotonic()

    def _on_late(self, _event: object) -> None:
        log.warning("late", did="the last tick still runs; this one is left out")

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        (self._reload if number == signal.SIGHUP else self._stop).set()
        self._wake.set()

    def _take_configuration(self, scheduler: BackgroundScheduler) -> None:
        """A valid new file takes effect; an invalid one is reported and the old one stays."""
        try:
            config = load(self._path)
        except ConfigError as error:
            log.error("reload refused", error=str(error), did="the old configuration stays")
            return
        logs.configure(config.daemon.log_level, config.daemon.log_format)
        needs_restart = [key for key in RESTART_KEYS if not _same(key, self._config, config)]
        self._controller.configure(config)
        old, self._config = self._config, config
        self._schedule(scheduler)
        longer = config.daemon.round_seconds != old.daemon.round_seconds
        log.info(
            "reloaded",
            config=str(self._path),
            needs_restart=needs_restart,
            **({"from_the_next_round": ["daemon.round_seconds"]} if longer else {}),
        )

    def _answer(self, request: Request) -> Any:
        """Serve the local socket."""
        commands: dict[str, Callable[[Request], Any]] = {
            "status": lambda r: status_for(self._viewer(r), self._controller.document),
            "explain": self._explain,
            "throughput": self._throughput,
            "pause": lambda r: self._control(r, paused=True),
            "resume": lambda r: self._control(r, paused=False),
            "release": self._release,
        }
        if request.command not in commands:
            raise InputError(f"command {request.command!r}; accepted: {', '.join(commands)}")
        return commands[request.command](request)

    def _explain(self, request: Request) -> Any:
        job = str(request.arguments.get("job", ""))
        if not re.fullmatch(r"[0-9]{1,18}(_[0-9]{1,18})?", job):
            raise InputError(
                f"job {job[:80]!r}; accepted is the number of a job, or of a task as in 17_4"
            )
        who = self._viewer(request)
        document = status_for(who, self._controller.document)
        rows = {row["id"]: row for row in document["running"] + document["waiting"]}
        tasks = {row["number"]: row["id"] for row in rows.values() if row["array"]}
        if job not in rows:
            job = tasks.get(job, _waits_as(job, rows))
        history = history_for(who, self._store.job_history(JobId(job)))
        told = {"job": rows.get(job), "history": history, "unseen": None}
        if job not in rows and not history["placements"]:
            of_array = [row["id"] for row in rows.values() if row["array"] == job]
            told["unseen"] = (
                f"job {job} is an array; ask for one of its tasks: {_some(of_array)}"
                if of_array
                else self._unseen(who, JobId(job))
            )
        return told

    def _unseen(self, who: Viewer, job: JobId) -> str | None:
        """Of a job that hopsd has not seen and Slurm knows, in a sentence."""
        with self._looking_up:  # one command at a time, however many users ask
            found = look_up(SlurmCommands(PRIVACY_SECONDS), job)
        if found is None or (who.hides(Private.JOBS) and found.uid != who.uid):
            return None
        if not found.ours:
            return f"job {job} has no hops comment: it is Slurm's alone ({found.state})"
        seconds = self._config.daemon.refresh_seconds
        return (
            f"job {job} is {found.state} and none that hops has looked at; it looks every"
            f" {seconds:g} s, and longer where it waits for jobs to save their work"
        )

    def _viewer(self, request: Request) -> Viewer:
        more = map(Private, self._config.daemon.private_data)
        privacy = self._privacy.read()
        return viewer(request.uid, _user(request.uid), os.getuid(), privacy, more)

    def _throughput(self, request: Request) -> Any:
        who = self._viewer(request)
        own = self._store.workloads_of(UserName(who.user))
        knowledge = knowledge_for(who, self._store.knowledge(), own)
        if "workload" not in request.arguments:
            return {"workloads": known_workloads(knowledge)}
        answer = workload_document(
            WorkloadName(str(request.arguments["workload"])),
            knowledge,
            [
                Node(node["name"], node["gpu_type"], node["gpus"], node["idle"])
                for node in self._controller.document["nodes"]
            ],
            round_settings(self._config).snapshot.estimator,
            time.time(),
        )
        return throughput_for(who, answer)

    def _control(self, request: Request, *, paused: bool) -> Any:
        self._refuse_ordinary(request)
        who = _user(request.uid)
        self._store.set_paused(paused=paused, by=who, at=time.time())
        return {"paused": paused, "by": who}

    def _release(self, request: Request) -> Any:
        asked = request.arguments.get("jobs")
        if not isinstance(asked, list):
            raise InputError("jobs: accepted is a list of job ids, [] for all held jobs")
        document = self._controller.document
        waiting = [JobId(row["id"]) for row in document["waiting"]]
        of_array = {row["id"]: row["array"] for row in document["waiting"]}
        named = [JobId(str(job)) for job in asked]
        # An array is all that waits of it.
        jobs = tuple(job for job in waiting if job in named or of_array[job] in named)
        unknown = [job for job in named if job not in {*waiting, *of_array.values()}]
        self._refuse_ordinary(request, (*jobs, *unknown))
        if document["mode"] == "standby":
            raise HopsError(f"this hopsd decides nothing ({document['sentence']}); ask again later")
        if unknown:
            raise InputError(
                f"no waiting hops job {', '.join(unknown)[:200]}; accepted are those of"
                f" `hopsctl status`, as of {self._config.daemon.refresh_seconds:g} s ago at most"
            )
        self._store.add_release_request(jobs, request.uid, time.time())
        return {"released": list(jobs) or "all"}

    def _refuse_ordinary(self, request: Request, jobs: Sequence[JobId] = ()) -> None:
        """Coordinators may have it for ``jobs`` of their accounts, none of them for all jobs."""
        if request.uid in (0, os.getuid()):
            return
        user, let = _user(request.uid), self._config.daemon.controllers
        if "operators" in let and user in self._privacy.read().privileged_users:
            return
        if "coordinators" in let and jobs:
            own = coordinated(SlurmCommands(PRIVACY_SECONDS), user)
            if own.issuperset(self._controller.account_of(job) for job in jobs):
                return
        whom = " and ".join(["root", _user(os.getuid()), *(f"Slurm's {who}" for who in let)])
        raise HopsError(f"{request.command} is for {whom}, not for {user}")


def _waits_as(job: str, rows: Mapping[str, Any]) -> str:
    """The array's, of one of its tasks before their turn."""
    array, _, task = job.partition("_")
    waits = array in rows and task and int(task) in Tasks.parse(rows[array]["tasks"])
    return array if waits else job


def _some(jobs: Sequence[str]) -> str:
    return ", ".join(jobs[:_MAX_NAMED]) + (", ..." if len(jobs) > _MAX_NAMED else "")


RESTART_KEYS = (
    "daemon.socket",
    "database.dsn",
    "metrics.listen",
    *(f"slurm.{setting.name}" for setting in fields(SlurmConfig)),
)
"""Settings that a reload does not change in a running daemon."""


def _same(key: str, old: Config, new: Config) -> bool:
    section, name = key.split(".")
    return bool(getattr(getattr(old, section), name) == getattr(getattr(new, section), name))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _wall_ahead() -> float:
    """Seconds that the time of day is ahead of the clock that nobody sets."""
    return time.time() - time.monotonic()


def watchdog_seconds() -> float | None:
    """Half of systemd's WatchdogSec, as sd_watchdog_enabled(3) advises."""
    micros = os.environ.get("WATCHDOG_USEC", "")
    return int(micros) / 2e6 if micros.isdigit() else None
