"""What hopsd does at each tick: keep the lead, finish interrupted plans, learn, run a round.

Clock, signals and threads are in `daemon.py`, which calls :meth:`Controller.tick`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf

import structlog

from hopsd.config import Config, PortName
from hopsd.core.interactive.sessions import session_limits
from hopsd.core.queue.backoff import Backoff, after_defects, after_outcomes, backing_off
from hopsd.core.queue.history import eligible
from hopsd.core.queue.profile_runs import run_summary
from hopsd.core.queue.restarts import needless_restarts
from hopsd.core.snapshot.build import with_racks
from hopsd.core.submission.comment import Comment, parse
from hopsd.errors import HopsError, InputError, NotLeaderError, PlanLateError
from hopsd.health.remedy import RemedyDelays, remedies, shrinks
from hopsd.learning.learner import Learner
from hopsd.model.devices import cpu_nodes
from hopsd.model.history import ProfileRun
from hopsd.model.ids import JobId, job_order
from hopsd.model.isolation import PASS_THROUGH_ERRORS, describe_error
from hopsd.model.plan import JobNumbers
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.policies.rack_fragments import rack_fragments_by_type
from hopsd.policies.registry import get as get_policy
from hopsd.predict.capacity import capacity_of
from hopsd.predict.outlook import Outlook, RoundReport
from hopsd.round.intervention import intervention
from hopsd.round.observation import SET_ASIDE, Observation
from hopsd.round.observe import observe
from hopsd.round.recover import recover
from hopsd.round.result import RoundResult
from hopsd.round.run import run_round
from hopsd.round.settings import round_settings
from hopsd.round.under_way import carry_on, read_settled, reasons
from hopsd.round.window import RoundWindow
from hopsd.serve import status
from hopsd.serve.health import HealthService
from hopsd.service import logs
from hopsd.service.deadline import WithDeadline
from hopsd.service.failed_starts import FailedStarts
from hopsd.service.gpu_use import Meter
from hopsd.service.hung_jobs import HungJobs
from hopsd.service.idle_jobs import IdleJobs
from hopsd.service.node_health import NodeHealth
from hopsd.service.remedies import Remedies, delays, requeueable
from hopsd.service.session_ends import SessionEnds
from hopsd.service.shadow_diary import Diary
from hopsd.slurm.accounting.rights import processor_time_refusal
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.port import Port
from hopsd.store.leader import Leader
from hopsd.store.postgres import PostgresStore

log = structlog.get_logger()


HEALTH_ASK_SECONDS = 30.0
"""Time-out of Slurm's commands that report jobs' processor time or drain a node."""

UNSEEN_SECONDS = 900.0
"""GPU use is not counted over a longer time without a reading, as while hopsd was off."""


def _give_back(job: JobReading, comment: Comment, observation: Observation) -> Step:
    """Build the step that gives the job to Slurm. To Slurm, CPUs are GPUs like any other, so a job
    that does not accept CPUs must avoid their nodes.
    """
    cpus = () if comment.cpu else cpu_nodes(observation.reading)
    gpus = comment.reqs[0]
    largest = max((n.gpus for n in observation.reading.nodes if n.name not in cpus), default=gpus)
    nodes = ceil(gpus / max(largest, 1))
    return Step(job.id, StepKind.RELEASE, gpus=gpus, avoid=cpus, least_nodes=nodes)


def _accepted_comment(job: JobReading, observation: Observation) -> Comment | None:
    """The comment of a job that is hops', whether it can be planned now or not."""
    if job.id in observation.comments or job.id in observation.released:
        return observation.comments.get(job.id)
    with suppress(InputError):
        return parse(job.comment)
    return None


@dataclass(slots=True)
class _Defects:
    """Counts consecutive ticks that end with the same defect: one type, raised at one line."""

    last: tuple[type, int] | None = None
    count: int = 0

    def note(self, defect: Exception | None) -> None:
        if defect is None:
            self.last, self.count = None, 0
            return
        trace = defect.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        location = type(defect), trace.tb_lineno if trace is not None else 0
        self.count = self.count + 1 if location == self.last else 1
        self.last = location


class Controller:
    """Runs ticks, and keeps the state between them: the current round, the last status document."""

    def __init__(
        self,
        config: Config,
        port: Port,
        port_reason: str,
        store: PostgresStore,
        leader: Leader,
        claim: Callable[[], None] = lambda: None,
    ) -> None:
        """``claim`` raises if the database is another cluster's; it is called until it succeeds."""
        self._claim = claim
        self._has_claimed_lead = False
        self._port = port
        self._port_reason = port_reason
        self._store = store
        self._leader = leader
        self._window: RoundWindow | None = None
        self._is_recovered = False
        self._ticks = 0
        self._observation: Observation | None = None
        self._result: RoundResult | None = None
        self._numbers: dict[JobId, JobNumbers] = {}
        """The figures of running jobs, from the last plan that each was in."""
        self._needless = 0
        self._backoffs: dict[JobId, Backoff] = {}
        self._told_aside: set[str] = set()
        self._defects = _Defects()
        self._last_pruning = -inf
        self._meter = Meter()
        self._diary = Diary(store)
        self._config = self._next_config = config
        self._policy = WithDeadline(get_policy(config.plan.policy))
        self._learner = Learner(store, config.knowledge.report_dir)
        self._hung_jobs = HungJobs(store)
        commands = SlurmCommands(HEALTH_ASK_SECONDS)
        self._idle_jobs = IdleJobs(
            store, commands, refusal=partial(processor_time_refusal, commands)
        )
        self._session_ends = SessionEnds(store, commands)
        self.health = HealthService(store)
        self._remedies = Remedies(store)
        self._failed_starts = FailedStarts(store)
        self._node_health = NodeHealth(store, self.health, commands)
        self.outlook = Outlook(config.plan.policy, config.plan.priority)
        self._take(config)
        self.document = self._document("standby", "starting", None)

    def configure(self, config: Config) -> None:
        """Use a new configuration from the next tick on; a tick under way ends with the old one.

        Raises:
            InputError: its policy, from an installed package, cannot be loaded; the old
                configuration stays.
        """
        get_policy(config.plan.policy)
        self._next_config = config

    def _take(self, config: Config) -> None:
        if config.plan.policy != self._config.plan.policy:
            self._policy.close()
            self._policy = WithDeadline(get_policy(config.plan.policy))
        if (config.plan.policy, config.plan.priority) != self.outlook.policy:
            self.outlook = self.outlook.successor(config.plan.policy, config.plan.priority)
        if config.knowledge.report_dir != self._config.knowledge.report_dir:
            self._learner.use_folder(config.knowledge.report_dir)
        self._config = config
        self._settings = round_settings(config)
        self._store.use_tables(config.throughput)

    @property
    def failing(self) -> int:
        """How many consecutive ticks have ended with the same defect of hops."""
        return self._defects.count

    @property
    def result(self) -> RoundResult | None:
        """The result of the last round that succeeded; None if none has run, as on standby."""
        return self._result

    @property
    def backing_off(self) -> int:
        """How many jobs are left out of plans for a while because they failed."""
        now = self._observation.reading.now if self._observation is not None else inf
        return len(backing_off(self._backoffs, now))

    def tick(self) -> str:
        """Read the cluster and, as leader and unless paused, make one plan. Returns what was done.

        After a failure nothing more is changed in Slurm, and the returned sentence says so;
        the next tick finishes what was interrupted.
        """
        self._ticks += 1
        mode, error, defect = "standby", None, None
        try:
            if self._next_config is not self._config:
                self._take(self._next_config)
            self._leader.acquire()
            if not self._has_claimed_lead:
                self._claim()
                self._has_claimed_lead = True
            mode = "paused" if self._store.control().paused else "active"
            sentence = self._lead(mode)
        except NotLeaderError as refusal:
            mode = "standby"
            self._is_recovered, self._observation, self._result = False, None, None
            if self.outlook.is_restored:  # from now on, another hopsd learns
                self.outlook.close()
                self.outlook = Outlook(*self.outlook.policy)
            sentence = f"standing by: {refusal}"
        except HopsError as failure:
            self._is_recovered = False
            sentence = error = str(failure)
        except Exception as exception:  # the outermost handler: jobs run on, the status tells
            self._is_recovered, defect = False, exception
            sentence = error = f"a defect of hops, {type(exception).__name__}: {exception}"
            log.exception("defect")
        self._defects.note(defect)
        if mode != "standby":
            self._whatever_happens(lambda: self._keep_house(observe_anew=defect is not None))
        if log_problem := logs.problem():
            sentence = f"{sentence}; log lines are being lost: {log_problem}"
        if self._defects.count > 1:
            sentence = f"{sentence} ({self._defects.count} ticks in a row)"
        self.document = self._document(mode, sentence, error)
        log.log(40 if error else 20, "tick", mode=mode, did=sentence, number=self._ticks)
        return sentence

    def carry_on(self) -> None:
        """Continue the steps under way between ticks, without waiting or planning."""
        if not (self._is_recovered and self._port.under_way):
            return
        try:
            self._carry_on()
        except HopsError as failure:  # the next tick takes over the steps under way
            self._is_recovered = False
            log.warning("carry on", problem=str(failure))
        except Exception:
            self._is_recovered = False
            log.exception("defect")

    def _carry_on(self) -> None:
        self._note_outcomes(carry_on(self._port, self._store))

    def _lead(self, mode: str) -> str:
        problems = []
        if mode == "paused":
            if self._is_recovered:  # steps that were begun are still finished
                self._carry_on()
            if self.outlook.document is not None:  # jobs no longer start by hops' plans
                self.outlook = self.outlook.successor(*self.outlook.policy)
            problems.append(self._release_requested())
            self._observation, self._result = self._observe(), None
            problems.append("paused: everything is left to Slurm")
        else:
            if not self._is_recovered:
                problems.append(self._take_up())
            problems.append(self._release_requested())
            unread = self._learn()
            problems.append(self._requeue_hung_and_idle())
            problems.append(self._round())
            problems.append(f"no report of a job can be read: {unread}" if unread else "")
            problems += self._observation.reading.problems if self._observation is not None else ()
        return "; ".join(filter(None, problems))

    def _keep_house(self, *, observe_anew: bool) -> None:
        """Count GPU use, judge nodes and delete old data, even if rounds fail. With
        ``observe_anew`` the round failed and its observation is lost, so the cluster is read again.
        """
        if observe_anew:
            self._observation = self._observe()
        if self._observation is None:
            return
        self._count_use(self._observation)
        self._failed_starts.look(self._observation.reading.jobs)
        now = self._observation.reading.now
        acts = self._config.slurm.port is not PortName.SHADOW and not self._store.control().paused
        health = replace(self._config.health, drain=self._config.health.drain and acts)
        self._node_health.look(self.document["nodes"], health, now)
        if acts:
            ending = self._config.interactive.ending
            jobs = self._observation.reading.jobs
            self._session_ends.look(jobs, self._idle_jobs.seconds(), now, ending)
        if not 0.0 <= now - self._last_pruning < self._settings.seconds:
            self._store.prune(now, self._config.database.retention_days)
            if self.outlook.is_restored:  # a hopsd started while paused would erase what is saved
                self._store.save_predictions(self.outlook.state())
            self._last_pruning = now

    def _count_use(self, observation: Observation) -> None:
        """Record how the GPUs were used since the last reading.

        A job that even an idle cluster could not run, such as one that asks for more GPUs than
        there are, does not make idle GPUs count as fragmented.
        """
        now = observation.reading.now
        impossible = self._result.never_runnable if self._result is not None else frozenset()
        waiting = [
            observation.comments[job.id]
            for job in observation.reading.jobs
            if job.id in observation.comments
            and job.state is SlurmState.PENDING
            and eligible(job, now)
            if job.id not in impossible
        ]
        use = self._meter.look(
            observation.reading,
            demand=bool(waiting),
            cpu_demand=any(comment.cpu for comment in waiting),
            rack_fragments={}
            if self._result is None
            else rack_fragments_by_type(self._result.build.snapshot, self._result.plan),
            longest=max(UNSEEN_SECONDS, 4.0 * self._config.daemon.refresh_seconds),
        )
        self._store.add_gpu_use(use)

    def _whatever_happens(self, work: Callable[[], None]) -> None:
        """Do ``work`` on which no tick depends; a failure is only logged."""
        try:
            work()
        except Exception as failure:
            log.warning("housekeeping", error=describe_error(failure))

    def _round(self) -> str:
        try:
            result = run_round(
                self._port,
                self._store,
                self._policy,
                self._settings,
                self._window,
                self._backoffs,
                self._node_health.unreliable if self._config.health.avoid else {},
            )
        except PlanLateError as error:
            self._observation = self._observe()
            return str(error)
        before = self._observation.reading.now if self._observation is not None else -inf
        self._window, self._result = result.window, result
        present = {job.id for job in result.observation.reading.jobs}
        figures = {**self._numbers, **result.plan.jobs}
        self._numbers = {job: n for job, n in figures.items() if job in present}
        shadow = self._config.slurm.port is PortName.SHADOW
        has_acted = bool(result.outcomes) and not shadow
        if has_acted:
            self._needless += len(needless_restarts(result.build.snapshot, result.plan))
        now = result.observation.reading.now
        # If the clock was set back, no job waits longer because of it.
        backoffs = self._backoffs if now >= before else {}
        self._backoffs = after_defects(
            after_outcomes(backoffs, result.outcomes, now), result.defects, now
        )
        self._observation = self._observe() if has_acted else result.observation
        self._whatever_happens(lambda: self._note_steps(result.outcomes))
        self._whatever_happens(lambda: self._note_profiles(result.profile_runs))
        self._whatever_happens(lambda: self._note_asides(result))
        if shadow:
            self._whatever_happens(lambda: self._diary.note(result))
        else:
            self._whatever_happens(lambda: self._predict(result))
        return status.sentence_of(result)

    def _predict(self, result: RoundResult) -> None:
        """Predict starts and ends from the round's result, in the background."""
        records = (
            self._observation.records
            if self._observation is not None
            else result.observation.records
        )
        build, end = result.build, result.window.end
        comments = result.observation.comments
        sessions = {job for job, comment in comments.items() if comment.interactive}
        self.outlook.offer(
            RoundReport(
                build.snapshot,
                result.outcomes,
                build.expected,
                records,
                end,
                self._settings.seconds,
                capacity_of(result.observation.reading),
                self._config.daemon.refresh_seconds,
                session_limits(build.snapshot, sessions, self._settings.sessions),
            )
        )

    def _observe(self) -> Observation:
        reading, outcomes = read_settled(self._port, self._store)
        self._note_outcomes(outcomes)
        observation = observe(self._port, self._store, self._settings.requirements_max, reading)
        under_way = self._port.under_way
        return observation.carrying_on(under_way, reasons(under_way))

    def _take_up(self) -> str:
        """After a start or a failure, finish or undo an interrupted plan, and resume its round."""
        outcomes = recover(self._port, self._store, self._settings.requirements_max)
        self._whatever_happens(lambda: self.outlook.restore(self._store.predictions()))
        last = self._store.last_plan()
        if last is not None:
            self._window = RoundWindow(last.round_start, last.round_end)
        self._is_recovered = True
        if outcomes is None:
            return ""
        self._note_steps(outcomes)
        text = f"took up an unfinished plan: {status.count_outcomes(outcomes)}"
        self._store.add_event("recovered", text)
        return text

    def _learn(self) -> str:
        if self._observation is None:
            return ""
        half_life = self._settings.snapshot.estimator.half_life_seconds
        reading = self._observation.reading
        try:
            reading = with_racks(reading, self._settings.snapshot.racks)
            unread = self._learner.learn(reading, half_life)
            self._hung_jobs.look(self._learner.ranks, reading.jobs, reading.now)
            hung = self._hung_jobs.hung
            self._idle_jobs.look(reading.jobs, self._learner.steps, reading.now, hung)
            gpus_by_report, gpus_by_driver = self._learner.gpus_used, self._learner.gpus_taken
            self._idle_jobs.note_used(reading.jobs, gpus_by_report, gpus_by_driver, reading.now)
            return unread
        except PASS_THROUGH_ERRORS:
            raise
        except Exception as defect:  # the round works without what would be learnt now
            log.exception("defect of learning")
            return describe_error(defect)

    def _requeue_hung_and_idle(self) -> str:
        """Requeue hung and idle jobs, some for fewer GPUs, if the site has enabled that and both
        witnesses (reports and Slurm or the driver) agree.
        """
        limits = delays(self._config.health)
        shadow = self._config.slurm.port is PortName.SHADOW
        if self._observation is None or shadow or limits == RemedyDelays():
            return ""
        jobs = requeueable(self._observation)
        remedies_due = remedies(
            [job.id for job in jobs], self._hung_jobs.hung, self._idle_jobs.idle, limits
        )
        reqs = {job.id: self._observation.comments[job.id].reqs for job in jobs}
        remedies_due += shrinks(reqs, self._idle_jobs.partly, limits.unused)
        steps = self._remedies.steps(jobs, remedies_due)
        if not steps:
            return ""
        stopped_jobs = {step.job for step in steps}
        self._store.save_jobs(
            replace(self._observation.records[remedy.job], gpus_most=remedy.gpus)
            for remedy in remedies_due
            if remedy.job in stopped_jobs and remedy.gpus is not None
        )
        outcomes = tuple(self._port.apply(steps))
        self._store.save_transitions(self._port.under_way)
        self._note_steps(outcomes)
        return f"requeued {len(steps)} hung or idle jobs"

    def account_of(self, job: JobId) -> str:
        """The job's Slurm account, "" if unknown."""
        jobs = self._observation.reading.jobs if self._observation is not None else ()
        return next((job_reading.account for job_reading in jobs if job_reading.id == job), "")

    def accepted_reports(self, prefix: str) -> list[str]:
        """See :meth:`hopsd.learning.reader.ReportReader.accepted_names`."""
        return self._learner.accepted_reports(prefix)

    def _release_requested(self) -> str:
        """Carry out requests to release jobs to plain Slurm; tried again at the next tick if it
        fails as a whole, for example while Slurm is down.
        """
        requests = self._store.release_requests()
        if not requests:
            return ""
        observation = self._observe()
        pending = {
            job.id: _give_back(job, comment, observation)
            for job in observation.reading.jobs
            if job.state is SlurmState.PENDING
            and (comment := _accepted_comment(job, observation)) is not None
        }
        releases: set[JobId] = set()
        for request in requests:
            releases |= pending.keys() & set(request.jobs) if request.jobs else pending.keys()
        outcomes = self._port.apply([pending[job] for job in sorted(releases, key=job_order)])
        released_jobs = {o.step.job for o in outcomes if o.status is OutcomeStatus.DONE}
        self._store.save_jobs(
            replace(observation.records[job], released=True) for job in released_jobs
        )
        self._note_steps(outcomes)
        text = f"gave {len(released_jobs)} of {len(releases)} jobs back to plain Slurm"
        askers = ", ".join(sorted({str(request.uid) for request in requests}))
        self._store.add_event("released", f"{text} for uid {askers}")
        if not any(o.status is OutcomeStatus.UNDER_WAY for o in outcomes):  # else: tried again
            self._store.end_release_requests(requests)
        return text

    def _note_outcomes(self, outcomes: Sequence[StepOutcome]) -> None:
        """Record the outcomes of steps that were under way, as a round does with its own."""
        if outcomes:
            now = max((outcome.started for outcome in outcomes), default=0.0)
            now = max(now, self._observation.reading.now if self._observation is not None else 0.0)
            self._backoffs = after_outcomes(self._backoffs, outcomes, now)
            log.info("carried on", did=status.count_outcomes(outcomes))
            self._whatever_happens(lambda: self._note_steps(outcomes))

    def _note_steps(self, outcomes: Sequence[StepOutcome]) -> None:
        """Record each intervention as an event and in the log, so that users know what hops did."""
        for outcome in outcomes:
            if (event := intervention(outcome)) is not None:
                kind, text = event
                job = outcome.step.job
                log.info(kind, job=job, did=text)
                self._store.add_event(kind, text, job=job)
        self._failed_starts.note_outcomes(outcomes)

    def _note_asides(self, result: RoundResult) -> None:
        """Record jobs and nodes that are newly set aside, as events and in the log."""
        asides = {
            **{f"job {job}": reason.text for job, reason in result.observation.errors.items()},
            **{
                f"node {n.name}": n.state_text
                for n in result.observation.reading.nodes
                if not n.usable
            },
        }
        asides = {culprit: text for culprit, text in asides.items() if SET_ASIDE in text}
        for culprit, text in asides.items():
            if culprit not in self._told_aside:
                kind, _, name = culprit.partition(" ")
                log.error("set aside", **{kind: name}, reason=text)
                self._store.add_event(
                    "set_aside", f"{culprit}: {text}", job=JobId(name) if kind == "job" else None
                )
        self._told_aside = set(asides)

    def _note_profiles(self, runs: Sequence[ProfileRun]) -> None:
        for run in runs:
            if run.closed and (run.ran or run.failure):
                kind = "profile_failed" if run.failure else "profiled"
                self._store.add_event(kind, run_summary(run), job=run.job)

    def _document(self, mode: str, sentence: str, error: str | None) -> status.Document:
        service = status.Service(
            mode=mode,
            port=self._port.name,
            port_reason=self._port_reason,
            sentence=sentence,
            ticks=self._ticks,
            reports_refused=self._learner.refusal_count,
            raqlr=self._raqlr() if error is None and mode != "standby" else None,
            error=error,
            needless_restarts=self._needless,
        )
        try:
            hung, idle = self._hung_jobs.rows(), self._idle_jobs.rows()
            document = status.document(
                service, self._observation, self._result, self.outlook, hung, idle, self._numbers
            )
            return status.with_health(document, self._node_health.slow, self._node_health.lemons)
        except Exception as defect:  # every tick ends with a status document
            log.exception("defect of status")
            return status.document(replace(service, error=describe_error(defect)), None, None)

    def _raqlr(self) -> float | None:
        """The mean latency ratio of recently ended jobs; None if it cannot be computed."""
        if self._observation is None:
            return None
        hours = self._config.metrics.raqlr_hours
        return self._store.raqlr(self._observation.reading.now - hours * 3600.0)
