"""The process: clock, signals, scheduler, watchdog and socket. `controller.py` does the work."""

from __future__ import annotations

import contextlib
import gc
import os
import pwd
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import sdnotify
import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, JobSubmissionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from hopsd.config import ApiConfig, Config, NotifyConfig, SlurmConfig, WebConfig, load
from hopsd.core.interactive.sessions import is_session
from hopsd.ctl.terminal import printable
from hopsd.errors import (
    ConfigError,
    HopsError,
    InputError,
    SlurmUnavailableError,
    StoreUnavailableError,
)
from hopsd.formats.health import health_json
from hopsd.learning.reading_thread import BackgroundSaves
from hopsd.learning.save_reader import SaveReader
from hopsd.metrics import Metrics
from hopsd.model.ids import JobId, UserName
from hopsd.model.privacy import Private, Viewer
from hopsd.notify.news import KINDS
from hopsd.notify.notifier import Notifier
from hopsd.rest.server import RestServer
from hopsd.serve.answers import ASK_SECONDS, QueryService
from hopsd.serve.peers import RequestSlots
from hopsd.serve.socket import LocalServer, Request
from hopsd.serve.when import when
from hopsd.service import logs
from hopsd.service.controller import Controller
from hopsd.service.signals import SignalInbox
from hopsd.service.stalls import StallWatch
from hopsd.service.wake import Waker
from hopsd.slurm.accounting.rights import coordinated_accounts, own_missing_rights
from hopsd.slurm.ask import PrivacyReader, slurm_conf
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.port_choice import choose_port
from hopsd.slurm.probe.activity import read_activity
from hopsd.slurm.probe.pending import pending_comments
from hopsd.store.leader import Leader
from hopsd.store.migrate import pending
from hopsd.store.postgres import PostgresStore
from hopsd.web import Web

log = structlog.get_logger()

TICK = "tick"
CARRY_ON = "carry_on"
CARRY_ON_SECONDS = 1.0
"""Between polls of the steps under way, so that a job that left its nodes waits for no tick."""

FAILING_TICKS = 10
"""After so many ticks in a row with the same defect, systemd's watchdog is no longer notified."""

MAX_STATUS = 1000
"""Maximum characters of a status text for systemd."""

GC_THRESHOLDS = 100_000, 20, 50
"""A tick over 20,000 jobs makes millions of values that are not garbage: Python's default, a search
for cycles after every 700, takes a fifth of its time. With these thresholds few cycles are found
during a tick, so each tick ends with a search, which takes 0.1 CPU s over 20,000 jobs."""

CLOCK_STEP_SECONDS = 1.0
"""The scheduler sleeps until a time of day: a clock that is set back would delay the next tick."""


class Daemon:
    """Runs ticks until SIGTERM. Stopping it leaves jobs as they are."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._config = load(path)
        self._alive()
        self._notify = sdnotify.SystemdNotifier()
        self._metrics: Metrics | None = None

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; returns when the current tick has ended.

        Raises:
            HopsError: at the start, the configuration, Slurm or the database is unusable.
        """
        gc.set_threshold(*GC_THRESHOLDS)
        config = self._config
        logs.configure(config.daemon.log_level, config.daemon.log_format)
        log.info("starting", config=str(self._path), pid=os.getpid())
        _refuse_old_schema(config.database.dsn)
        commands = SlurmCommands(ASK_SECONDS)
        self._privacy = PrivacyReader(commands)
        leader = Leader(config.database.dsn)
        port, reason = choose_port(
            config.slurm,
            assure=leader.assure,
            note_answer=self._alive,
            saves=BackgroundSaves(
                SaveReader(
                    lambda: self._config.knowledge.report_dir,
                    accepted_names=lambda prefix: self._controller.accepted_reports(prefix),  # noqa: PLW0108 - made below
                )
            ),
        )
        with PostgresStore(config.database.dsn, leader=leader) as store:
            self._store = store

            def claim() -> None:
                store.claim_cluster(slurm_conf(commands).get("ClusterName", ""))

            with contextlib.suppress(StoreUnavailableError, SlurmUnavailableError):
                claim()  # otherwise the first tick that reaches both claims it
            self._controller = Controller(config, port, reason, store, leader, claim)
            self._answers = QueryService(self._controller, store, self._privacy, config)
            self._waker = Waker(
                partial(read_activity, commands), sessions=partial(_waiting_sessions, commands)
            )
            self._stalls = StallWatch()
            log.info("start", port=port.name, reason=reason)
            for missing in own_missing_rights(commands, _user(os.getuid())):
                log.error("rights", missing=missing)
            turns = RequestSlots()
            server = LocalServer(config.daemon.socket, self._answer, turns)
            self._metrics = Metrics(config)
            web = Web(config.web, self._answers, turns)
            self._notifier = Notifier(config.notify, store, commands)
            rest_server = RestServer(config.api, self._answer, turns)
            try:
                self._loop()
            finally:
                rest_server.close()
                self._notifier.close()
                web.close()
                self._metrics.close()
                server.close()
                leader.close()
        log.info("stop")

    def _loop(self) -> None:
        inbox = SignalInbox((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(1)}, timezone=UTC)
        scheduler.add_listener(self._on_late, EVENT_JOB_MAX_INSTANCES)
        self._schedule(scheduler)
        self._scheduler = scheduler
        scheduler.start()
        self._notify.notify("READY=1")
        watchdog = watchdog_seconds()
        offset = _wall_ahead()
        should_stop = False
        while not should_stop:
            signals = inbox.wait(min(watchdog or 60.0, 1.0))
            should_stop = signal.SIGTERM in signals or signal.SIGINT in signals
            before, offset = offset, _wall_ahead()
            if abs(offset - before) > CLOCK_STEP_SECONDS:
                log.warning("clock", set_by_seconds=round(offset - before, 1))
                self._schedule(scheduler)
            if signal.SIGHUP in signals:
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
        scheduler.add_job(
            self._carry_on,
            "interval",
            seconds=CARRY_ON_SECONDS,
            id=CARRY_ON,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
            replace_existing=True,
        )

    def _patience(self) -> float:
        """Seconds without a finished tick or an answer of Slurm's after which the watchdog may kill
        us. A whole tick may take longer, for example if it starts thousands of jobs.
        """
        slurm, plan = self._config.slurm, self._config.plan.settings
        slowest = slurm.command_timeout_seconds + plan.time_limit_seconds
        return 2 * (self._config.daemon.refresh_seconds + slowest) + 120.0

    def _healthy(self) -> bool:
        """Whether to notify systemd's watchdog. If not, systemd restarts hopsd: no tick has made
        progress for :meth:`_patience` seconds, or the last ticks all failed with the same defect,
        which a restart may cure by clearing the state in memory.
        """
        is_late = time.monotonic() - self._seen_alive >= self._patience()
        return not is_late and self._controller.failing < FAILING_TICKS

    def _tick(self) -> None:
        with self._waker.look(self._config.daemon.wake_seconds):
            sentence = self._controller.tick()
        if self._metrics is not None:
            controller = self._controller
            self._metrics.after_tick(
                controller.document, controller.result, controller.backing_off, self._config
            )
        if self._controller.failing >= FAILING_TICKS:
            sentence += "; the watchdog is no longer notified, so that systemd restarts hopsd"
        self._notify.notify(f"STATUS={printable(' '.join(sentence.split()))[:MAX_STATUS]}")
        self._notifier.after_tick(self._controller.document)
        gc.collect()
        self._alive()

    def _alive(self) -> None:
        self._seen_alive = time.monotonic()

    def _carry_on(self) -> None:
        """Continue the steps under way, and start the next tick early if that is worth it. The
        thread that runs the ticks does this, too.
        """
        self._controller.carry_on()
        seconds = self._config.daemon.wake_seconds
        document = self._controller.document
        if self._waker.due(seconds, document) or (seconds and self._training_stalls(document)):
            self._scheduler.modify_job(TICK, next_run_time=datetime.now(UTC))

    def _training_stalls(self, document: Mapping[str, Any]) -> bool:
        if document["mode"] != "active" or self._waker.pausing:
            return False
        return self._stalls.due(self._config.knowledge.report_dir)

    def _on_late(self, event: JobSubmissionEvent) -> None:
        if event.job_id == TICK:
            log.warning("late", did="the last tick is still running; this one is skipped")

    def _take_configuration(self, scheduler: BackgroundScheduler) -> None:
        """Reload the file: a valid one takes effect; with an invalid one the old one stays."""
        try:
            config = load(self._path)
            self._controller.configure(config)
        except InputError as error:
            log.error("reload refused", error=str(error), did="the old configuration stays")
            return
        logs.configure(config.daemon.log_level, config.daemon.log_format)
        needs_restart = [
            key for key in RESTART_KEYS if not _is_unchanged(key, self._config, config)
        ]
        old, self._config = self._config, config
        self._answers.config = config
        self._schedule(scheduler)
        longer = config.daemon.round_seconds != old.daemon.round_seconds
        log.info(
            "reloaded",
            config=str(self._path),
            needs_restart=needs_restart,
            **({"from_the_next_round": ["daemon.round_seconds"]} if longer else {}),
        )

    def _answer(self, request: Request) -> Any:
        """Answer a request on the local socket."""
        commands: dict[str, Callable[[Request], Any]] = {
            "status": lambda r: self._answers.excerpt(self._viewer(r), r.arguments),
            "explain": lambda r: self._answers.explain(
                self._viewer(r), str(r.arguments.get("job", ""))
            ),
            "throughput": self._throughput,
            "when": lambda r: when(self._controller.outlook, UserName(_user(r.uid)), r.arguments),
            "diary": lambda r: self._answers.diary(self._viewer(r), r.arguments, self._store),
            "report": lambda r: self._answers.report(self._viewer(r), r.arguments, self._store),
            "health": self._health_of_nodes,
            "notify": self._mail_kinds,
            "set_notify": self._set_mail_kinds,
            "pause": lambda r: self._control(r, paused=True),
            "resume": lambda r: self._control(r, paused=False),
            "release": self._release,
        }
        if request.command not in commands:
            raise InputError(f"command {request.command!r}; accepted: {', '.join(commands)}")
        return commands[request.command](request)

    def _viewer(self, request: Request) -> Viewer:
        return self._answers.viewer(request.uid, _user(request.uid))

    def _throughput(self, request: Request) -> Any:
        workload = request.arguments.get("workload")
        return self._answers.throughput(
            self._viewer(request), None if workload is None else str(workload)
        )

    def _health_of_nodes(self, request: Request) -> Any:
        if self._viewer(request).hides(Private.NODES):
            raise HopsError("the health of nodes is private here: ask root or Slurm's operators")
        return health_json(self._controller.health.health(self._answers.document["nodes"]))

    def _mail_kinds(self, request: Request) -> Any:
        kinds = self._store.mail_kinds(UserName(_user(request.uid)))
        return {
            "kinds": None if kinds is None else list(kinds),
            "mails": bool(self._config.notify.mail),
        }

    def _set_mail_kinds(self, request: Request) -> Any:
        kinds = request.arguments.get("kinds")
        if kinds is not None and not (
            isinstance(kinds, list) and set(map(str, kinds)) <= set(KINDS)
        ):
            raise InputError(f"kinds: give a list of {', '.join(KINDS)}, or null")
        chosen_kinds = None if kinds is None else [kind for kind in KINDS if kind in kinds]
        self._store.save_mail_kinds(UserName(_user(request.uid)), chosen_kinds)
        return self._mail_kinds(request)

    def _control(self, request: Request, *, paused: bool) -> Any:
        self._refuse_ordinary(request)
        user = _user(request.uid)
        self._store.set_paused(paused=paused, operator=user, time=time.time())
        return {"paused": paused, "by": user}

    def _release(self, request: Request) -> Any:
        request_jobs = request.arguments.get("jobs")
        if not isinstance(request_jobs, list):
            raise InputError("jobs: give a list of job ids, [] for all held jobs")
        document = self._controller.document
        array_of = {JobId(row["id"]): row["array"] for row in document["waiting"]}
        # Without duplicates: any user may send this, and name thousands of jobs.
        release_names = dict.fromkeys(JobId(str(job)) for job in request_jobs)
        # Naming an array means all of its waiting tasks.
        jobs = tuple(
            job for job, array in array_of.items() if job in release_names or array in release_names
        )
        known_names = {*array_of, *array_of.values()}
        unknown = [job for job in release_names if job not in known_names]
        self._refuse_ordinary(request, (*jobs, *unknown))
        if document["mode"] == "standby":
            raise HopsError(
                f"this hopsd is on standby ({document['sentence']}); retry on the active one"
            )
        if unknown:
            raise InputError(
                f"no waiting hops job {', '.join(unknown)[:200]}: name jobs that `hopsctl status`"
                f" lists (up to {self._config.daemon.refresh_seconds:g} s old)"
            )
        self._store.add_release_request(jobs, request.uid, time.time())
        return {"released": list(jobs) or "all"}

    def _refuse_ordinary(self, request: Request, jobs: Sequence[JobId] = ()) -> None:
        """Raise unless the caller is privileged, or coordinates the accounts of all of ``jobs``.

        Empty ``jobs`` means all jobs, which coordinators may not change.
        """
        if request.uid in (0, os.getuid()):
            return
        user, controllers = _user(request.uid), self._config.daemon.controllers
        if "operators" in controllers and user in self._privacy.read().privileged_users:
            return
        if "coordinators" in controllers and jobs:
            accounts = coordinated_accounts(SlurmCommands(ASK_SECONDS), user)
            if accounts.issuperset(self._controller.account_of(job) for job in jobs):
                return
        operators = " and ".join(
            ["root", _user(os.getuid()), *(f"Slurm's {role}" for role in controllers)]
        )
        raise HopsError(f"{request.command} is for {operators}, not for {user}")


RESTART_KEYS = (
    "daemon.socket",
    "database.dsn",
    "metrics.listen",
    *(f"web.{setting.name}" for setting in fields(WebConfig)),
    *(f"api.{setting.name}" for setting in fields(ApiConfig)),
    *(f"notify.{setting.name}" for setting in fields(NotifyConfig)),
    *(f"slurm.{setting.name}" for setting in fields(SlurmConfig)),
)
"""Settings that a reload does not change in a running daemon."""


def _refuse_old_schema(dsn: str) -> None:
    """Raise a ConfigError, after which systemd does not restart hopsd, if migrations are missing.
    If PostgreSQL does not answer yet, the ticks wait for it.
    """
    with contextlib.suppress(StoreUnavailableError):
        if missing := pending(dsn):
            raise ConfigError(
                f"the database lacks {', '.join(missing)}, which this release needs: run"
                " `hopsctl migrate` as the schema's owner, then start hopsd"
            )


def _is_unchanged(key: str, old: Config, new: Config) -> bool:
    section, name = key.split(".")
    return bool(getattr(getattr(old, section), name) == getattr(getattr(new, section), name))


def _waiting_sessions(commands: SlurmCommands) -> list[JobId]:
    return [job for job, comment in pending_comments(commands).items() if is_session(comment)]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _wall_ahead() -> float:
    """The seconds by which the time of day is ahead of the monotonic clock, which is never set."""
    return time.time() - time.monotonic()


def watchdog_seconds() -> float | None:
    """Half of systemd's WatchdogSec, as sd_watchdog_enabled(3) advises."""
    micros = os.environ.get("WATCHDOG_USEC", "")
    return int(micros) / 2e6 if micros.isdigit() else None
