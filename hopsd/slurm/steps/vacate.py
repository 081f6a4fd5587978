"""Vacates nodes: running jobs get a signal and time to save, then are requeued as held.

The next action for a leaving job follows from its state and the time alone (:func:`next_action`).
:class:`Evacuation` keeps the leaving jobs, and its caller decides how long to poll.
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
    """A job that is to leave its nodes. ``signal_time`` is in epoch seconds (0 without a signal),
    all other times are ticks.

    A job that still runs at ``grace_end`` is requeued. ``requeue_time`` is when that was requested
    (None if not yet), ``refusal`` why Slurm refused it. ``since`` is when its phase began. With
    ``save``, it leaves after its next save, if that comes before ``grace_end``.
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
    """A wait for a save: a job that gets no signal loses nothing if it leaves just after one.

    ``saved_at`` is when its last save before the wait ended.
    """

    saved_at: float


SAVE_LOOK_SECONDS = 1.0
"""How often the reports of a job that leaves after its next save are read."""


class SaveWatch(Protocol):
    """Tells when a job saves."""

    def __call__(self, job: JobReading) -> SaveTimes | None:
        """Return the job's save times; None if unknown."""


class Action(Enum):
    """What to do with a leaving job; ``REQUEUE_ENDED`` if only our signal ended it."""

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

    A job may leave by itself, with the site's RequeueExitHold code. One that still runs after its
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
    """Jobs that are no longer leaving: ``vacated_steps`` has the steps of those that have left,
    ``results`` the results of those that ended or would not leave, ``nodes`` where they all ran.
    """

    vacated_steps: Mapping[JobId, Step]
    results: Mapping[JobId, StartResult]
    nodes: Collection[NodeName]


class Evacuation:
    """The jobs that are to leave their nodes. All jobs of a plan are signalled at once, and each
    job's grace begins then; it delays only starts that need the job's own GPUs.
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
        """The nodes that these jobs are leaving."""
        return {node for nodes in self._nodes.values() for node in nodes}

    def begin(self, steps: Iterable[Step], jobs: Jobs) -> None:
        """Warn the running jobs of ``steps`` to leave; ``jobs`` were just read."""
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
        """Set ``grace_end`` to the tick until which the job waits for a save: now, if the save has
        ended or none is near. A save under way may take as long as the longest grace.
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
        """Send the signal. If only the steps get it, the batch shell is stopped first: otherwise,
        when a step dies of the signal or exits, the script would run on to its end, and Slurm would
        call the job completed or failed, mail its user and start its dependents. The requeue
        continues a stopped shell as it ends it (22.05).
        """
        with refusals({}, job):  # a job that has just ended: the next reading shows it
            if warning.scope is SignalScope.STEPS:
                self._adapter.signal(job, "STOP", SignalScope.BATCH)
            self._adapter.signal(job, warning.name, warning.scope)

    def let_go_on(self, jobs: Iterable[JobReading]) -> None:
        """Continue the batch shells that :meth:`_warn` may have stopped, of jobs that stay."""
        for job in jobs:
            warning = signal_of(job, self._settings)
            if job.state is SlurmState.RUNNING and warning and warning.scope is SignalScope.STEPS:
                with refusals({}, job.id):
                    self._adapter.signal(job.id, "CONT", SignalScope.BATCH)

    def resume(self, transitions: Iterable[Transition], jobs: Jobs) -> None:
        """Take over jobs that another process, or an interrupted tick, made leave."""
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
        """Return the steps of the leaving jobs, for the database."""
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
        """The next tick at which there is something to do even if no job changes."""
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
        """Whether to read the jobs in full, because some have left their nodes: after the tick
        ``deadline`` one is enough, before it half of them.
        """
        departed_jobs = [
            job for job in self._leaving_jobs if job not in jobs or jobs[job].state not in _ON_NODES
        ]
        return bool(departed_jobs) and (
            self._watch.ticks() >= deadline or 2 * len(departed_jobs) >= len(self._leaving_jobs)
        )

    def carry_on(self, jobs: Jobs) -> Departures:
        """Take each leaving job's next action, with ``jobs`` as just read."""
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
    """The result of a job that ended; if in the grace of our signal, the text tells its user so."""
    if job is None:
        return StartResult(OutcomeStatus.GONE, error="Slurm no longer knows this job")
    if not leaving_job.signal_time or job.state is SlurmState.CANCELLED:
        return StartResult(OutcomeStatus.GONE, error=f"it is {job.state_text}")
    text = signal_end_text(leaving_job.signal, leaving_job.signal_time, job)
    return StartResult(OutcomeStatus.GONE, error=text, warned=leaving_job.signal_time)


def signal_end_text(name: str, signal_time: float, job: JobReading) -> str:
    """Tell the user how a job ended in the grace of hops' signal."""
    seconds = max(0.0, job.end - signal_time)
    cause = f"signal {job.exit_signal}" if job.exit_signal else f"exit code {job.exit_code}"
    return (
        f"hops sent {name} at {clock(signal_time)}; the script ended {seconds:.0f} s later with"
        f" {cause} ({job.state_text or job.state})"
    )


def _not_left(leaving_job: LeavingJob, job: JobReading) -> StartResult:
    """The result of a job that is still on its nodes after its time. Cleaning up is not a failure:
    the nodes stay busy until Slurm says otherwise.
    """
    text = leaving_job.refusal or f"it is still {job.state_text} after the requeue"
    is_completing = job.state is SlurmState.COMPLETING and bool(leaving_job.step.target)
    status = OutcomeStatus.PUT_OFF if is_completing else OutcomeStatus.FAILED
    return StartResult(status, job.allocation, text, job.start)


@dataclass(frozen=True, slots=True)
class WarningSignal:
    """A signal by name, who gets it, and the seconds of grace after it."""

    name: str
    scope: SignalScope
    seconds: float


def signal_of(job: JobReading, settings: ApplySettings) -> WarningSignal | None:
    """Return the script's own ``--signal``, otherwise the site's; None if no signal is safe.

    The batch shell gets a signal only if the script's text shows that it neither dies of it nor
    exits: Slurm would call the job completed or failed before it could be requeued, mail its user,
    and start or strand the jobs that depend on it.
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
