"""Starts held jobs on exactly their planned GPUs; otherwise they stay held.

A start is queued, released, and settled by what Slurm did with it. No start waits for another:
:class:`Placer` keeps the starts under way, and its caller decides how long to poll.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, host_of
from hopsd.model.reading import (
    MOVED_MARK,
    PARTITIONS_MARK,
    PROFILE_MARK,
    TIME_MARK,
    USER_HOLD_BEGIN,
    Hold,
    JobReading,
    Reading,
    SlurmState,
    with_marks,
)
from hopsd.model.step import OutcomeStatus, Phase, Step, StepKind, Transition
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.shape import fits, free_gpus
from hopsd.slurm.steps.placement_request import Requests
from hopsd.slurm.steps.requeues import Requeues
from hopsd.slurm.steps.wave import (
    StartResult,
    put_off,
    startable_together,
    unstartable,
    usable_gpus,
)
from hopsd.slurm.watch import ApplySettings, Jobs, Watch, refusals

# slurmd refuses a credential made in the same second as the job's last kill on that node, or
# earlier: "Job credential revoked", and the job ends as FAILED (seen live on 22.05). Slurm avoids
# this by a begin time 120 s after the requeue, which a placement clears.
_REST_SECONDS = 1.1

# scontrol sends one request per job. While slurmctld starts thousands of jobs, an answer took 0.1 s
# and more (22.05): this many jobs take a fraction of a command's time-out, and their numbers fit on
# one line. They are placed immediately before, since the submit plugin detects a hold in between
# only for 60 s.
_RELEASED_AT_ONCE = 50

# The most starts under way at a time, unless twice as many have already started. The cluster is
# read once more before the next ones are released.
_AT_ONCE = 400

RELEASING_SECONDS = 60.0
"""slurmctld looks at each node of a job's partition before it starts the job: with 5,000 nodes this
takes 0.02 s of CPU (22.05). All starts of a first plan would take minutes, in which no other job
could start and hops would neither plan again nor report."""

VACATED_SECONDS = 180.0
"""The same limit for starts on GPUs that others were stopped for, which would otherwise be idle."""

_HOLDER_STATES = frozenset({SlurmState.RUNNING, SlurmState.SUSPENDED})

HELD_MEANWHILE = "its owner or an operator holds it"

# A job that Slurm passes over keeps its nodes from all other jobs for the rest of a scheduling
# cycle, and a job that asks for several partitions has the reason of the last one that was tried.
# So a pending reason is treated as final only after this time.
_CYCLE_SECONDS = 6.0

# The pause between two readings of results, as a multiple of a reading's own time: 0.15 s on a
# small cluster.
_RESTS_PER_READING = 3

# Slurm's reasons (22.05 to 26.05) that do not pass by waiting. Priority and Resources may pass
# while a leaving job still cleans up; BeginTime and Dependency are checked earlier.
_LASTING_REASONS = (
    "Account",
    "Assoc",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeld",
    "Licenses",
    "MaxMemPerLimit",
    "NodeDown",
    "Partition",
    "QOS",
    "ReqNodeNotAvail",
    "Reservation",
)

SHOWN_CHARACTERS = 200
"""The most characters that a job's former nodes may take in its comment."""

# While nothing starts or leaves, the nodes are read again for queued starts at this interval, and
# sooner if a node only has to finish its last job's epilog.
_RETRY_SECONDS = 6.0
_COMPLETING_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _ReleasedStart:
    """A released job. ``restarts`` is its restart count before the release. Until the tick
    ``patient_until`` its reason may still pass; at ``latest`` it is held again in any case.
    """

    step: Step
    released: float
    restarts: int
    patient_until: float
    latest: float
    since: float

    def waits(self, job: JobReading | None, ticks: float) -> bool:
        """Whether the job may still start; False once it ran and was requeued."""
        return _waits(job, patient=ticks < self.patient_until) and not self.was_requeued(job)

    def was_requeued(self, job: JobReading | None) -> bool:
        """Whether the job ran and waits again."""
        if job is None or job.state is not SlurmState.PENDING:
            return False
        return job.restarts > self.restarts


@dataclass(frozen=True, slots=True)
class _QueuedStart:
    """A held job that is to be released. ``vacate_time`` is when it left its last nodes (epoch), or
    None if it did not run. ``since`` and ``until`` are the ticks at which it was queued and after
    which it is put off.
    """

    step: Step
    since: float
    until: float
    vacate_time: float | None = None


class Placer:
    """Starts jobs in parallel.

    Each starts as soon as its GPUs are free and Slurm's way of filling nodes gives exactly the
    planned ones. A job that does not start delays only uneven jobs on its nodes. The start time-out
    is shared and begins anew whenever jobs are released or start, since Slurm needs time for
    hundreds. While others keep starting, a job has at most this time-out plus
    :data:`RELEASING_SECONDS` from its own release.

    After that time, or while nothing starts, no more jobs are released: queued starts are put off,
    and the jobs stay held. So is a start that Slurm did not consider in all of its time; the second
    time in a row it fails, and the next plan tries other nodes.
    """

    def __init__(
        self,
        adapter: Adapter,
        watch: Watch,
        settings: ApplySettings,
        unready: Callable[[JobReading], StartResult | None],
        requeues: Requeues,
    ) -> None:
        """``unready`` says why a held job may not be released now, such as a person's hold."""
        self._adapter = adapter
        self._watch = watch
        self._settings = settings
        self._unready = unready
        self._requeues = requeues
        self._overlooked_jobs: set[JobId] = set()
        self._queue: dict[JobId, _QueuedStart] = {}
        self._deferred_steps: dict[JobId, Step] = {}
        self._releases: dict[JobId, _ReleasedStart] = {}
        self._begin()

    def _begin(self) -> None:
        """Reset the state of earlier starts when none is under way."""
        self._results: dict[JobId, StartResult] = {}
        self._start = 0
        self._targets = {job: entry.step.target for job, entry in self._queue.items()}
        self._progress: float | None = None
        self._looks: dict[JobId, float] = {}
        self._retry = -inf

    def __contains__(self, job: JobId) -> bool:
        return job in self._queue or job in self._releases or job in self._deferred_steps

    @property
    def idle(self) -> bool:
        """Whether no start is under way."""
        return not (self._queue or self._releases or self._deferred_steps)

    @property
    def released(self) -> Collection[JobId]:
        """The released jobs, which Slurm has not started yet as far as hops knows."""
        return self._releases.keys()

    def enqueue(
        self,
        steps: Iterable[Step],
        seconds: float,
        vacate_times: Mapping[JobId, float] | None = None,
    ) -> None:
        """Queue starts of held jobs. Those that have just left other nodes (``vacate_times``) come
        first and are not put off for lack of time. All others, except the first few, are put off
        after ``seconds``.
        """
        vacate_times = vacate_times or {}
        if self.idle:
            self._begin()
        ticks = self._watch.ticks()
        until = ticks + seconds
        entries = {s.job: _QueuedStart(s, ticks, until, vacate_times.get(s.job)) for s in steps}
        if vacate_times:
            self._queue = entries | self._queue
        else:
            self._queue |= entries
        self._targets |= {job: entry.step.target for job, entry in entries.items()}
        self._retry = -inf

    def cancel(self, job: JobId) -> bool:
        """Drop a queued start, which leaves the job held; False if the job is already released."""
        return bool(self._queue.pop(job, None) or self._deferred_steps.pop(job, None))

    def after_vacating(self, nodes: Collection[NodeName], seconds: float, *, last: bool) -> None:
        """Note that jobs have left ``nodes``: starts there have ``seconds`` from now. ``last`` says
        that no other job is leaving: starts that Slurm refused meanwhile are tried again.
        """
        ticks = self._watch.ticks()
        self._queue |= {
            job: replace(entry, until=max(entry.until, ticks + seconds))
            for job, entry in self._queue.items()
            if not _disjoint(entry.step, nodes)
        }
        self._retry = -inf
        if not self._releases:
            self._progress = None
        if last and self._deferred_steps:
            steps, self._deferred_steps = [*self._deferred_steps.values()], {}
            self.enqueue(steps, seconds)

    def resume(self, transitions: Iterable[Transition]) -> None:
        """Take over starts that another process, or an interrupted tick, had under way."""
        self._queue, self._deferred_steps, self._releases = {}, {}, {}
        self._begin()
        ticks = self._watch.ticks()
        for transition in transitions:
            job = transition.step.job
            if transition.phase is Phase.STARTING:
                latest = ticks + self._settings.start_timeout_seconds
                self._releases[job] = _ReleasedStart(
                    transition.step,
                    transition.released,
                    transition.restarts,
                    ticks,
                    latest,
                    ticks - transition.seconds,
                )
                self._targets[job] = transition.step.target
                self._progress = ticks
            elif transition.phase is Phase.WAITING:
                stop_times = {job: transition.vacated} if transition.vacated is not None else None
                self.enqueue([transition.step], RELEASING_SECONDS, stop_times)
            else:
                self._deferred_steps[job] = transition.step

    def transitions(self) -> list[Transition]:
        """Return the starts under way, for the database."""
        ticks = self._watch.ticks()
        return [
            *(
                Transition(
                    entry.step, Phase.WAITING, ticks - entry.since, vacated=entry.vacate_time
                )
                for entry in self._queue.values()
            ),
            *(Transition(step, Phase.DEFERRED) for step in self._deferred_steps.values()),
            *(
                Transition(
                    entry.step,
                    Phase.STARTING,
                    ticks - entry.since,
                    released=entry.released,
                    restarts=entry.restarts,
                )
                for entry in self._releases.values()
            ),
        ]

    def release(
        self, observation: Reading | None, busy_nodes: Collection[NodeName], stop: float
    ) -> dict[JobId, StartResult]:
        """Release the starts that are possible now, in order; returns the results of those that can
        no longer happen.

        ``observation`` is the cluster, if just read. Jobs are leaving ``busy_nodes``, and starts
        there wait for them. No further part of the jobs is released after the tick ``stop``.
        """
        results = self._postpone(busy_nodes)
        should_release = observation is not None or self._watch.ticks() >= self._retry
        if not (self._queue and should_release and self._has_room):
            return results
        reading = observation or self._adapter.read()
        jobs = {job.id: job for job in reading.jobs}
        self._overlooked_jobs &= jobs.keys()
        results |= self._drop_over(jobs)
        completing_nodes = {node.name for node in reading.nodes if node.completing}
        self._retry = self._watch.ticks() + (
            _COMPLETING_RETRY_SECONDS if self._queued_on(completing_nodes) else _RETRY_SECONDS
        )
        free = usable_gpus(reading)
        under_way = [start.step.target for start in self._releases.values()]
        queue = [entry.step for entry in self._queue.values()]
        wave = startable_together(queue, free, under_way)
        if not wave and not self._releases:
            busy = completing_nodes.union(busy_nodes)
            stuck = [step for step in queue if _disjoint(step, busy)]
            results |= self._close(unstartable(stuck, self._results, self._targets, free))
            late_steps = [
                step for step in queue if self._completes_too_long(step, completing_nodes)
            ]
            return results | self._close(
                {
                    s.job: put_off(s.target, "its nodes are still completing a job")
                    for s in late_steps
                }
            )
        requests = Requests(reading, self._settings)
        wave = wave[: self._room - len(self._releases)]
        for first in range(0, len(wave), _RELEASED_AT_ONCE):
            ticks = self._watch.ticks()
            if first and ticks > stop:
                break
            part = wave[first : first + _RELEASED_AT_ONCE]
            if self._progress is not None:
                part = [step for step in part if not self._is_late(self._queue[step.job], ticks)]
            results |= self._release_together(part, jobs, requests, stop)
        if wave:
            self._retry = -inf
        return results

    @property
    def _room(self) -> int:
        """How many jobs may be starting at a time."""
        return max(_AT_ONCE, self._start // 2)

    @property
    def _has_room(self) -> bool:
        return len(self._releases) <= self._room / 2

    def _postpone(self, busy_nodes: Collection[NodeName]) -> dict[JobId, StartResult]:
        """Put off starts that are out of time, except those that wait for jobs to leave."""
        if self._progress is None:
            return {}
        ticks = self._watch.ticks()
        is_stalled = ticks > self._progress + self._settings.start_timeout_seconds / 2
        late_steps = [
            entry.step
            for entry in self._queue.values()
            if (is_stalled and entry.vacate_time is None) or self._is_late(entry, ticks)
            if _disjoint(entry.step, busy_nodes)
        ]
        return self._close({step.job: put_off(step.target) for step in late_steps})

    def _is_late(self, entry: _QueuedStart, ticks: float) -> bool:
        return entry.vacate_time is None and ticks > entry.until

    def _drop_over(self, jobs: Jobs) -> dict[JobId, StartResult]:
        """Close the starts of jobs that have ended, or run already, while they were queued."""
        results: dict[JobId, StartResult] = {}
        for job_id, entry in self._queue.items():
            job = jobs.get(job_id)
            if job is None or job.state.finished:
                state = "Slurm no longer knows this job" if job is None else job.state_text
                results[job_id] = StartResult(OutcomeStatus.GONE, error=state)
            elif job.state in _HOLDER_STATES and job.allocation == entry.step.target:
                results[job_id] = StartResult(OutcomeStatus.DONE, job.allocation, started=job.start)
        return self._close(results)

    def _queued_on(self, nodes: Collection[NodeName]) -> bool:
        return bool(nodes) and any(not _disjoint(q.step, nodes) for q in self._queue.values())

    def _completes_too_long(self, step: Step, completing_nodes: Collection[NodeName]) -> bool:
        since = self._queue[step.job].since if step.job in self._queue else inf
        is_late = self._watch.ticks() - since >= self._settings.stop_timeout_seconds
        return is_late and not _disjoint(step, completing_nodes)

    def _close(self, results: Mapping[JobId, StartResult]) -> dict[JobId, StartResult]:
        """Remove the jobs in ``results`` from the starts under way, and record their results."""
        for job, result in results.items():
            self._queue.pop(job, None)
            self._releases.pop(job, None)
            self._results[job] = result
            if result.status is OutcomeStatus.DONE:
                self._overlooked_jobs.discard(job)
                self._start += 1
        return dict(results)

    def next_look(self, busy_nodes: Collection[NodeName]) -> float:
        """The next tick at which there is something to do even if no job changes."""
        ticks = [start.latest for start in self._releases.values()]
        if self._releases and self._progress is not None:
            ticks.append(self._progress + self._settings.start_timeout_seconds)
        if self._queue:
            if self._has_room:
                ticks.append(self._retry)
            ticks += self._deadlines(busy_nodes)
        return min(ticks, default=inf)

    def _deadlines(self, busy_nodes: Collection[NodeName]) -> list[float]:
        """The ticks just after which queued starts are put off."""
        if self._progress is None:
            return []
        stall_time = self._progress + self._settings.start_timeout_seconds / 2
        return [
            min(entry.until, stall_time) + 0.001
            for entry in self._queue.values()
            if entry.vacate_time is None and _disjoint(entry.step, busy_nodes)
        ]

    def needs_reading(self, jobs: Jobs, deadline: float) -> bool:
        """Whether to read the jobs in full. Started jobs can wait until the tick ``deadline`` to be
        read together with others; jobs that must be held again cannot.
        """
        ticks = self._watch.ticks()
        candidates = [job for job, s in self._releases.items() if not s.waits(jobs.get(job), ticks)]
        running = [job for job in candidates if job in jobs and jobs[job].state in _HOLDER_STATES]
        is_late = ticks >= deadline or 2 * len(candidates) >= len(self._releases)
        is_settled = bool(candidates) and (is_late or len(running) < len(candidates))
        return is_settled or self._to_look(self._passed_over(jobs))

    def settle(self, jobs: Jobs, *, defer: bool) -> dict[JobId, StartResult]:
        """Return the results of the released jobs that ``jobs``, just read, decide; after the
        time-out, those of all. A job that may have lost its GPUs has its nodes checked; if it has
        not lost them, they are checked again only after a pause.

        With ``defer``, jobs are leaving: a start that Slurm refuses may need what they hold, such
        as their share of a user's limit, and is tried again after they have left.
        """
        if not self._releases:
            return {}
        deadline = (self._progress or 0.0) + self._settings.start_timeout_seconds
        started_at = self._watch.ticks()
        suspects = self._passed_over(jobs) if started_at < deadline else {}
        losers: frozenset[JobId] = frozenset()
        if self._to_look(suspects):
            losers = self._losers(suspects)
            ticks = self._watch.ticks()
            pause = max(_CYCLE_SECONDS, _RESTS_PER_READING * (ticks - started_at))
            self._looks |= dict.fromkeys(suspects, ticks + pause)
        results = {
            job: self._read_back(start, jobs.get(job))
            for job, start in self._releases.items()
            if started_at >= min(deadline, start.latest)
            or job in losers
            or not start.waits(jobs.get(job), started_at)
        }
        if results:
            self._retry = -inf
        if any(result.status is OutcomeStatus.DONE for result in results.values()):
            self._progress = self._watch.ticks()
        if defer:
            retries = [job for job, result in results.items() if _may_need_others(result)]
            for job in retries:
                self._deferred_steps[job] = self._releases.pop(job).step
                del results[job]
        return self._close(results)

    def _passed_over(self, jobs: Jobs) -> dict[JobId, _ReleasedStart]:
        """Released jobs whose reason should have passed by now: they may have lost their GPUs."""
        ticks = self._watch.ticks()
        return {
            job: s
            for job, s in self._releases.items()
            if ticks >= s.patient_until
            if job in jobs and jobs[job].reason and s.waits(jobs[job], ticks)
        }

    def _to_look(self, suspects: Iterable[JobId]) -> bool:
        return any(self._watch.ticks() >= self._looks.get(job, 0.0) for job in suspects)

    def _losers(self, releases: Mapping[JobId, _ReleasedStart]) -> frozenset[JobId]:
        """The jobs whose GPUs another job, such as a plain one, took first and still holds.

        Slurm's reason does not show it: it is Resources or Priority, as while a job is leaving.
        """
        reading = self._adapter.read()
        free = free_gpus(
            reading.nodes, [job for job in reading.jobs if job.state in _HOLDER_STATES]
        )
        waiting = {job.id for job in reading.jobs if job.state is SlurmState.PENDING}
        return frozenset(
            job for job in waiting & releases.keys() if not fits(free, releases[job].step.target)
        )

    def _release_together(
        self, steps: Sequence[Step], jobs: Jobs, requests: Requests, stop: float
    ) -> dict[JobId, StartResult]:
        """Release queued jobs in one request; returns the results of those that were refused.

        A slurmctld that waits for slurmdbd takes seconds for each update (22.05): jobs that are not
        prepared by the tick ``stop`` stay queued.
        """
        errors: dict[JobId, str] = {}
        unready: dict[JobId, StartResult] = {}
        attempts: list[Step] = []
        for step in steps:
            if attempts and self._watch.ticks() > stop:
                break
            attempts.append(step)
            job = jobs.get(step.job)
            if job is None or job.state is not SlurmState.PENDING:
                state = "gone" if job is None else job.state_text
                errors[step.job] = f"it is no longer pending: {state}"
                continue
            if (result := self._unready(job)) is not None:
                unready[step.job] = result
                continue
            with refusals(errors, step.job):
                self._prepare(step, job, requests)
        ready = [
            step.job for step in attempts if step.job not in errors and step.job not in unready
        ]
        movers = {step.job for step in attempts if _goes_elsewhere(step)}
        returners = [job for job in ready if job not in movers]
        stop_times = [self._queue[job].vacate_time or 0.0 for job in returners]
        # A requeue sets the submit time.
        stop_times += [jobs[job].submit for job in returners if jobs[job].restarts]
        self._watch.rest_until(max(stop_times, default=0.0) + _REST_SECONDS, _REST_SECONDS)
        release_time = self._watch.now()
        self._release(ready, errors)
        ticks = self._watch.ticks()
        patient = ticks + _CYCLE_SECONDS
        latest = ticks + self._settings.start_timeout_seconds + RELEASING_SECONDS
        for step in attempts:
            if step.job in ready and step.job not in errors:
                restarts = jobs[step.job].restarts
                start = _ReleasedStart(step, release_time, restarts, patient, latest, ticks)
                self._releases[step.job] = start
                self._requeues.forget(step.job)
                del self._queue[step.job]
                self._progress = ticks
        failures = {job: StartResult(OutcomeStatus.FAILED, error=e) for job, e in errors.items()}
        return self._close(failures | unready)

    def _prepare(self, step: Step, job: JobReading, requests: Requests) -> None:
        if job.hold is Hold.NONE:
            self._adapter.hold(job.id)
        partition = requests.partitions(job, step.target, step.partition)
        minutes = requests.time_limit(job, step.target)
        placement = requests.placement(
            job, step.target, _marked_comment(job, step, partition, minutes)
        )
        self._adapter.place(replace(placement, partition=partition, time_limit_minutes=minutes))

    def _release(self, jobs: Sequence[JobId], errors: dict[JobId, str]) -> None:
        """Release all in one request; if Slurm refuses, one by one, to find the refused ones."""
        if not jobs:
            return
        batch_errors: dict[JobId, str] = {}
        with refusals(batch_errors, jobs[0]):
            self._adapter.release(jobs)
        if not batch_errors:
            return
        by_id = self._watch.jobs()
        for job in jobs:
            if job in by_id and by_id[job].hold is Hold.USER:
                errors[job] = HELD_MEANWHILE
            elif job in by_id and by_id[job].hold is Hold.HOPS:
                with refusals(errors, job):
                    self._adapter.release([job])

    def _read_back(self, start: _ReleasedStart, job: JobReading | None) -> StartResult:
        step = start.step
        if job is None or job.state.finished:
            end_text = "it ended before its allocation was read"
            error = end_text if job else "Slurm no longer knows this job"
            return StartResult(OutcomeStatus.GONE, error=error, started=start.released)
        if job.state in _HOLDER_STATES and job.allocation == step.target:
            return StartResult(OutcomeStatus.DONE, job.allocation, started=job.start)
        if job.state is SlurmState.COMPLETING:
            error = f"it is {job.state_text}"
            return StartResult(OutcomeStatus.FAILED, job.allocation, error, started=start.released)
        refusal = self._take_back(job)
        now = self._watch.jobs().get(job.id) if refusal else job
        if now is None or (now.state, now.hold) != (job.state, job.hold):  # it has just started
            return self._read_back(start, now)
        result = self._not_started(start, job, refusal)
        if start.was_requeued(job):
            requeue_text = "it started, and was requeued before its allocation was read"
            return replace(result, error=requeue_text, started=start.released, ran=step.target)
        return replace(result, started=job.start, ran=job.allocation) if job.allocation else result

    def _take_back(self, job: JobReading) -> str:
        """Hold the job again; returns why Slurm refused, "" if it did not."""
        errors: dict[JobId, str] = {}
        with refusals(errors, job.id):
            if job.state is not SlurmState.PENDING:
                self._requeues.ask(job.id)
            elif job.hold is Hold.NONE:
                # Only a person's hold between placing and release leaves this mark.
                self._adapter.hold(job.id, USER_HOLD_BEGIN if _marked_held(job) else 0.0)
        return errors.get(job.id, "")

    def _not_started(self, start: _ReleasedStart, job: JobReading, refusal: str) -> StartResult:
        """The result of a job that did not start. ``refusal`` says why Slurm did not hold it again,
        "" if it did.
        """
        if job.hold is Hold.USER or _marked_held(job):
            return StartResult(OutcomeStatus.FAILED, error=HELD_MEANWHILE, reason="JobHeldUser")
        target = start.step.target
        is_overlooked = (
            job.state is SlurmState.PENDING and not job.reason and not start.was_requeued(job)
        )
        if is_overlooked and not refusal and job.id not in self._overlooked_jobs:
            self._overlooked_jobs.add(job.id)
            return put_off(target, "Slurm has not considered it yet")
        actual = job.allocation or "nothing"
        text = f"Slurm gave {actual} in place of {target}: {job.state_text}"
        return StartResult(
            OutcomeStatus.FAILED, error=f"{text}; {refusal or 'held again'}", reason=job.reason
        )


def _disjoint(step: Step, nodes: Collection[NodeName]) -> bool:
    return not nodes or all(node not in nodes for node in step.target.nodes)


def _may_need_others(result: StartResult) -> bool:
    is_held = result.reason.startswith("JobHeld")
    return result.status is OutcomeStatus.FAILED and not (result.ran or result.actual or is_held)


def _waits(job: JobReading | None, *, patient: bool) -> bool:
    """Whether a released job may still start.

    Slurm itself holds a job again that can never run (BadConstraints), and reports any other reason
    at once (22.05): waiting does not help against a limit or a lost node. With ``patient`` it may,
    if the reason may come from another job or another partition.
    """
    if job is None:
        return False
    if job.state is SlurmState.COMPLETING:
        return True
    return (
        job.state is SlurmState.PENDING
        and job.hold is Hold.NONE
        and not _marked_held(job)
        and not (job.reason.startswith(_LASTING_REASONS) and not (patient and _may_pass(job)))
    )


def _may_pass(job: JobReading) -> bool:
    return "," in job.partition or job.reason.startswith("ReqNodeNotAvail")


def _marked_held(job: JobReading) -> bool:
    return job.state is SlurmState.PENDING and job.begin >= USER_HOLD_BEGIN


def _goes_elsewhere(step: Step) -> bool:
    """Whether the job moves to hosts none of which it has just left."""
    before = {host_of(node) for node in step.current.nodes}
    return bool(before) and before.isdisjoint(map(host_of, step.target.nodes))


def _allocation_text(allocation: Allocation) -> str:
    """Format ``n0:2,n4:4``, or ``96:12`` (GPUs and nodes) for a long allocation."""
    text = ",".join(f"{node}:{gpus}" for node, gpus in allocation)
    return text if len(text) <= SHOWN_CHARACTERS else f"{allocation.gpus}:{len(allocation.nodes)}"


def _marked_comment(job: JobReading, step: Step, partition: str, minutes: int | None) -> str | None:
    """The comment with updated marks: those that prolog.sh reads, and the partitions and time limit
    that the job asks for if it is placed with less; None leaves the comment as it is.
    """
    own_marks = PROFILE_MARK, PARTITIONS_MARK, MOVED_MARK, TIME_MARK
    words = [word for word in job.marks.split() if word.partition("=")[0] not in own_marks]
    if step.profiling:
        words.append(f"{PROFILE_MARK}={step.iterations}" if step.iterations else PROFILE_MARK)
    if step.kind is StepKind.MOVE and step.current:
        words.append(f"{MOVED_MARK}={_allocation_text(step.current)}")
    if partition and partition != job.partition:
        words.append(f"{PARTITIONS_MARK}={job.partition}>{partition}")
    limit = round((job.time_limit_seconds or 0.0) / 60)
    if minutes is not None and minutes != limit:
        words.append(f"{TIME_MARK}={limit}>{minutes}")
    marks = " ".join(words)
    return with_marks(job.comment, marks) if marks != job.marks else None
