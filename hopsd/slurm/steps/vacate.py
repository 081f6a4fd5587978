"""Vacates nodes: running jobs get a signal and time to save, then are requeued as held.

What is to be done with a leaving job follows from its state and the time alone
(:func:`next_action`); :class:`Evacuation` keeps who is leaving, and its caller decides how long
to look on.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf
from typing import Protocol

from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import JobReading, SaveTimes, SlurmState
from hopsd.model.reason import clock
from hopsd.model.step import OutcomeStatus, Phase, Step, StepKind, Transition
from hopsd.slurm.adapter import Adapter, SignalScope
from hopsd.slurm.steps.requeues import Requeues
from hopsd.slurm.steps.wave import StartResult
from hopsd.slurm.watch import ApplySettings, Jobs, Watch, refusals

_ON_NODES = frozenset({SlurmState.RUNNING, SlurmState.COMPLETING, SlurmState.SUSPENDED})


@dataclass(frozen=True, slots=True)
class LeavingJob:
    """A job that is to leave its nodes; all times but ``signal_time`` (epoch, 0: never) are ticks.

    ``grace_end``: when it is requeued if it still runs. ``requeue_time``: when that was requested,
    None: not yet; ``refusal``: why Slurm refused it. ``since``: when its phase began. ``save``: it
    leaves after its next save, if that comes before ``grace_end``.
    """

    step: Step
    since: float
    grace_end: float
    signal: str = ""
    signal_time: float = 0.0
    requeue_time: float | None = None
    refusal: str = ""
    save: SaveWait | None = None


@dataclass(frozen=True, slots=True)
class SaveWait:
    """A job without a signal leaves once its training has saved: it loses nothing then.

    ``saved_at``: the end of its last save when the wait began.
    """

    saved_at: float


SAVE_LOOK_SECONDS = 1.0
"""How often the reports of a job that leaves after its next save are read."""


class SaveWatch(Protocol):
    """Tells when a job saves."""

    def __call__(self, job: JobReading) -> SaveTimes | None:
        """None: it is not known."""


class Action(Enum):
    """What to do with a leaving job now. ``REQUEUE_ENDED``: only our signal ended it."""

    WAIT = auto()
    REQUEUE = auto()
    REQUEUE_ENDED = auto()
    VACATED = auto()
    ENDED = auto()
    GIVE_UP = auto()


def next_action(
    leaving_job: LeavingJob, job: JobReading | None, ticks: float, settings: ApplySettings
) -> Action:
    """The transition function of a leaving job.

    It may leave by itself, with the site's RequeueExitHold code; one that still runs after its
    grace is requeued, and one that handles no signal is requeued at once. A job that ended is left
    alone, since a requeue would run it again, unless only our signal ended it.
    """
    if job is None:
        return Action.ENDED
    if job.state in _ON_NODES:
        start = (
            leaving_job.grace_end if leaving_job.requeue_time is None else leaving_job.requeue_time
        )
        is_late = ticks >= start + settings.stop_timeout_seconds
        is_completing = job.state is SlurmState.COMPLETING
        if leaving_job.requeue_time is None and not is_completing:
            return Action.REQUEUE if ticks >= leaving_job.grace_end else Action.WAIT
        is_refused = bool(leaving_job.refusal) and not is_completing
        return Action.GIVE_UP if is_late or is_refused else Action.WAIT
    if job.state.finished and leaving_job.step.kind is not StepKind.REQUEUE:
        return Action.REQUEUE_ENDED if died_of_warning(job, settings) else Action.ENDED
    return Action.VACATED


@dataclass(frozen=True, slots=True)
class Departures:
    """``vacated_steps``: the steps of the jobs that have left; ``results``: of those that ended, or
    would not leave; ``nodes``: where all of these ran.
    """

    vacated_steps: Mapping[JobId, Step]
    results: Mapping[JobId, StartResult]
    nodes: Collection[NodeName]


class Evacuation:
    """The jobs that are to leave their nodes. All of a plan are signalled at once, and the grace of
    each begins then; it delays nothing but what needs the job's own GPUs.
    """

    def __init__(
        self,
        adapter: Adapter,
        watch: Watch,
        settings: ApplySettings,
        requeues: Requeues,
        saves: SaveWatch,
    ) -> None:
        self._adapter = adapter
        self._requeues = requeues
        self._saves = saves
        self._watch = watch
        self._settings = settings
        self._leaving_jobs: dict[JobId, LeavingJob] = {}
        self._nodes: dict[JobId, frozenset[NodeName]] = {}
        self._last_look = -inf  # the tick of the last :meth:`carry_on`

    def __contains__(self, job: JobId) -> bool:
        return job in self._leaving_jobs

    @property
    def jobs(self) -> Collection[JobId]:
        """The jobs that have not left yet."""
        return self._leaving_jobs.keys()

    @property
    def nodes(self) -> set[NodeName]:
        """The nodes that they are leaving."""
        return {node for nodes in self._nodes.values() for node in nodes}

    def begin(self, steps: Iterable[Step], jobs: Jobs) -> None:
        """Warn running jobs, as just read, that are to leave."""
        ticks = self._watch.ticks()
        for step in steps:
            job = jobs[step.job]
            warning = None
            if step.kind is not StepKind.REQUEUE and job.state is not SlurmState.COMPLETING:
                warning = signal_of(job, self._settings)
            if warning is None:
                leaving_job = self._leaving_after_save(step, job, ticks)
            else:
                end = ticks + warning.seconds
                leaving_job = LeavingJob(step, ticks, end, warning.name, self._watch.now())
            self._add(leaving_job, job)
            if warning is not None:
                self._warn(job.id, warning)

    def _leaving_after_save(self, step: Step, job: JobReading, ticks: float) -> LeavingJob:
        running = step.kind is not StepKind.REQUEUE and job.state is SlurmState.RUNNING
        times = self._saves(job) if running else None
        leaving_job = LeavingJob(step, ticks, ticks)
        if times is None:
            return leaving_job
        return self._waiting(replace(leaving_job, save=SaveWait(times.at)), times, ticks)

    def _waiting(
        self, leaving_job: LeavingJob, times: SaveTimes | None, ticks: float
    ) -> LeavingJob:
        """With the tick until which it waits for a save: now, once that has ended or none is near.
        One that is under way may take as long as the longest grace.
        """
        settings, save = self._settings, leaving_job.save
        if save is None or times is None:
            return replace(leaving_job, grace_end=ticks, save=None)
        remaining = leaving_job.since + settings.grace_seconds - ticks
        if times.saving:
            return replace(
                leaving_job, grace_end=leaving_job.since + settings.longest_grace_seconds
            )
        if times.at != save.saved_at or not times.ends_by(self._watch.now(), remaining):
            return replace(leaving_job, grace_end=ticks, save=None)
        return replace(leaving_job, grace_end=leaving_job.since + settings.grace_seconds)

    def _warn(self, job: JobId, warning: WarningSignal) -> None:
        """Send the signal. Where it is for the steps alone, the batch shell is stopped before: a
        step that dies of it, or exits, would let the script go on to its end, and Slurm call the
        job completed or failed, mail its user and start its dependents. The requeue lets a stopped
        shell go on as it ends it (22.05).
        """
        with refusals({}, job):  # of a job that just ended: its state tells
            if warning.scope is SignalScope.STEPS:
                self._adapter.signal(job, "STOP", SignalScope.BATCH)
            self._adapter.signal(job, warning.name, warning.scope)

    def let_go_on(self, jobs: Iterable[JobReading]) -> None:
        """Continue the batch shells that :meth:`_warn` may have stopped: these jobs stay after
        all.
        """
        for job in jobs:
            warning = signal_of(job, self._settings)
            if job.state is SlurmState.RUNNING and warning and warning.scope is SignalScope.STEPS:
                with refusals({}, job.id):
                    self._adapter.signal(job.id, "CONT", SignalScope.BATCH)

    def resume(self, transitions: Iterable[Transition], jobs: Jobs) -> None:
        """Take up what another process, or an interrupted tick, had under way."""
        self._leaving_jobs, self._nodes = {}, {}
        ticks = self._watch.ticks()
        for transition in transitions:
            grace_end = ticks + max(0.0, transition.grace - transition.seconds)
            leaving_job = LeavingJob(
                transition.step,
                ticks - transition.seconds,
                grace_end,
                transition.signal,
                transition.signalled,
            )
            if (
                transition.phase is Phase.LEAVING
                and not transition.signal
                and (job := jobs.get(transition.step.job))
            ):
                leaving_job = self._leaving_after_save(transition.step, job, ticks)
            if transition.phase is Phase.STOPPING:
                leaving_job = replace(leaving_job, since=ticks, requeue_time=ticks)
            self._add(leaving_job, jobs.get(transition.step.job))

    def transitions(self) -> list[Transition]:
        """What is under way, to be stored."""
        ticks = self._watch.ticks()
        return [
            Transition(
                leaving_job.step,
                Phase.LEAVING if leaving_job.requeue_time is None else Phase.STOPPING,
                ticks - leaving_job.since,
                signal=leaving_job.signal,
                signalled=leaving_job.signal_time,
                grace=leaving_job.grace_end - leaving_job.since
                if leaving_job.requeue_time is None
                else 0.0,
            )
            for leaving_job in self._leaving_jobs.values()
        ]

    def _add(self, leaving_job: LeavingJob, job: JobReading | None) -> None:
        self._leaving_jobs[leaving_job.step.job] = leaving_job
        self._requeues.expect(leaving_job.step.job)
        nodes = (
            leaving_job.step.current.nodes if job is None else job.allocation.nodes or job.ran_on
        )
        self._nodes[leaving_job.step.job] = frozenset(nodes)

    def next_look(self) -> float:
        """The tick at which something is to be done even if no job changes."""
        timeout, ticks = self._settings.stop_timeout_seconds, self._watch.ticks()

        def look(leaving_job: LeavingJob) -> float:
            if leaving_job.refusal:
                return ticks
            if leaving_job.requeue_time is None and leaving_job.save is not None:
                return min(self._last_look + SAVE_LOOK_SECONDS, leaving_job.grace_end)
            if leaving_job.requeue_time is None and self._last_look < leaving_job.grace_end:
                return leaving_job.grace_end
            return (
                leaving_job.grace_end
                if leaving_job.requeue_time is None
                else leaving_job.requeue_time
            ) + timeout

        return min(map(look, self._leaving_jobs.values()), default=inf)

    def needs_reading(self, jobs: Jobs, deadline: float) -> bool:
        """Whether the jobs are to be read in full: some are off their nodes. After the tick
        ``deadline`` one is enough, before it half of them.
        """
        departed_jobs = [
            job for job in self._leaving_jobs if job not in jobs or jobs[job].state not in _ON_NODES
        ]
        return bool(departed_jobs) and (
            self._watch.ticks() >= deadline or 2 * len(departed_jobs) >= len(self._leaving_jobs)
        )

    def carry_on(self, jobs: Jobs) -> Departures:
        """Do what is due by ``jobs``, just read."""
        ticks = self._last_look = self._watch.ticks()
        vacated_steps: dict[JobId, Step] = {}
        results: dict[JobId, StartResult] = {}
        for job_id, entry in list(self._leaving_jobs.items()):
            job, leaving_job = jobs.get(job_id), entry
            running = job is not None and job.state is SlurmState.RUNNING
            if (
                job is not None
                and running
                and entry.save is not None
                and entry.requeue_time is None
            ):
                leaving_job = self._leaving_jobs[job_id] = self._waiting(
                    entry, self._saves(job), ticks
                )
            action = next_action(leaving_job, job, ticks, self._settings)
            if action in (Action.REQUEUE, Action.REQUEUE_ENDED):
                self._requeue(leaving_job, ended=action is Action.REQUEUE_ENDED)
            elif action is Action.VACATED:
                vacated_steps[job_id] = leaving_job.step
            elif action is Action.ENDED:
                results[job_id] = _end_result(leaving_job, job)
            elif action is Action.GIVE_UP and job is not None:
                results[job_id] = _not_left(leaving_job, job)
                self.let_go_on([job])
        nodes: set[NodeName] = set()
        for job_id in (*vacated_steps, *results):
            del self._leaving_jobs[job_id]
            nodes |= self._nodes.pop(job_id)
        return Departures(vacated_steps, results, nodes)

    def _requeue(self, leaving_job: LeavingJob, *, ended: bool) -> None:
        job, errors = leaving_job.step.job, dict[JobId, str]()
        with refusals(errors, job):
            self._requeues.ask(job, ended=ended)
        ticks = self._watch.ticks()
        self._leaving_jobs[job] = replace(
            leaving_job, since=ticks, requeue_time=ticks, refusal=errors.get(job, "")
        )


def _end_result(leaving_job: LeavingJob, job: JobReading | None) -> StartResult:
    """A job that is over: by itself, or in the grace of our signal, which its user is to know."""
    if job is None:
        return StartResult(OutcomeStatus.GONE, error="Slurm knows no such job any more")
    if not leaving_job.signal_time or job.state is SlurmState.CANCELLED:
        return StartResult(OutcomeStatus.GONE, error=f"it is {job.state_text}")
    text = signal_end_text(leaving_job.signal, leaving_job.signal_time, job)
    return StartResult(OutcomeStatus.GONE, error=text, warned=leaving_job.signal_time)


def signal_end_text(name: str, signal_time: float, job: JobReading) -> str:
    """How a job ended in the grace of hops' signal, for its user."""
    seconds = max(0.0, job.end - signal_time)
    cause = f"signal {job.exit_signal}" if job.exit_signal else f"exit code {job.exit_code}"
    return (
        f"hops sent {name} at {clock(signal_time)}; the script ended {seconds:.0f} s later with"
        f" {cause} ({job.state_text or job.state})"
    )


def _not_left(leaving_job: LeavingJob, job: JobReading) -> StartResult:
    """A job that is still on its nodes though its time is over. Cleaning up is no failure: its
    nodes stay busy until Slurm says otherwise.
    """
    text = leaving_job.refusal or f"it is still {job.state_text} after the requeue"
    is_completing = job.state is SlurmState.COMPLETING and bool(leaving_job.step.target)
    status = OutcomeStatus.PUT_OFF if is_completing else OutcomeStatus.FAILED
    return StartResult(status, job.allocation, text, job.start)


@dataclass(frozen=True, slots=True)
class WarningSignal:
    """A signal by name, and the seconds of grace after it."""

    name: str
    scope: SignalScope
    seconds: float


def signal_of(job: JobReading, settings: ApplySettings) -> WarningSignal | None:
    """The script's own ``--signal``; otherwise the site's.

    The batch shell is sent one only if the script's text shows that it neither dies nor exits by
    it: Slurm would call the job completed or failed before it could be requeued,
    mail its user, and start or strand the jobs that depend on it. None: no signal is safe.
    """
    options = job.options
    name, scope, seconds = settings.checkpoint_signal, settings.signal_scope, settings.grace_seconds
    if options.signal:
        name, scope = options.signal, SignalScope.BATCH
        if options.signal_steps:
            scope = SignalScope.STEPS
        if options.signal_seconds is not None:
            seconds = options.signal_seconds
        seconds = min(seconds, settings.longest_grace_seconds)
    if (
        scope is not SignalScope.STEPS
        and options.survived_signals is not None
        and name not in options.survived_signals
    ):
        if scope is SignalScope.BATCH:
            return None
        scope = SignalScope.STEPS
    return WarningSignal(name, scope, seconds)


def died_of_warning(job: JobReading, settings: ApplySettings) -> bool:
    """Whether the job's script had no handler for our signal and died of it.

    A shell reports a child that died of signal n as exit code 128 + n.
    """
    warning = signal_of(job, settings)
    if warning is None:
        return False
    number = int(signal.Signals[f"SIG{warning.name}"])
    has_signal_exit = job.exit_signal == number or job.exit_code == 128 + number
    return job.state is SlurmState.FAILED and has_signal_exit
