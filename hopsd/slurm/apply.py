"""Applies steps through an adapter: settle no-ops, vacate, place, read back.

Nothing here blocks on a single job: :meth:`SlurmPort.apply` begins the steps and polls for at most
``ApplySettings.patience_seconds``. Steps that have not finished by then are UNDER_WAY, and later
calls of :meth:`SlurmPort.carry_on` continue them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import (
    RELEASED_MARK,
    USER_HOLD_BEGIN,
    Hold,
    JobReading,
    Reading,
    SlurmState,
    has_new_owner,
    with_marks,
)
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome, Transition
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.command import UNRECORDED
from hopsd.slurm.steps.place import RELEASING_SECONDS, VACATED_SECONDS, Placer
from hopsd.slurm.steps.requeues import Requeues
from hopsd.slurm.steps.vacate import Evacuation, SaveWatch, died_of_warning
from hopsd.slurm.steps.wave import StartResult, put_off
from hopsd.slurm.watch import ApplySettings, Jobs, Watch, refusals

_LEAVE_KINDS = frozenset({StepKind.PREEMPT, StepKind.MOVE})

_READINGS_PER_LOOK = 3
_MAX_LOOK_SECONDS = 6.0


class SlurmPort:
    """A :class:`hopsd.slurm.port.Port` over any adapter."""

    def __init__(
        self,
        adapter: Adapter,
        settings: ApplySettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        saves: SaveWatch = lambda job: None,  # noqa: ARG005
    ) -> None:
        """``monotonic`` times the waiting; ``clock`` gives the times that are reported. ``saves``
        tells when jobs save, so that jobs that get no signal are stopped just after a save.
        """
        self._adapter = adapter
        self._clock = clock
        self._settings = settings or ApplySettings()
        self._watch = Watch(adapter, self._settings.poll_seconds, clock, monotonic, sleep)
        self._requeues = Requeues(adapter)
        self._evacuation = Evacuation(adapter, self._watch, self._settings, self._requeues, saves)
        self._placer = Placer(adapter, self._watch, self._settings, self._not_ready, self._requeues)
        self._steps: dict[JobId, Step] = {}
        self._begin_times: dict[JobId, float] = {}
        self._stop_times: dict[JobId, float] = {}
        self._completing_since: dict[NodeName, float] = {}
        self._begun_as: dict[JobId, JobReading] = {}
        self._reading: Reading | None = None  # None once any request was sent since

    @property
    def name(self) -> str:
        return self._adapter.name

    @property
    def under_way(self) -> tuple[Transition, ...]:
        return (*self._evacuation.transitions(), *self._placer.transitions())

    def read(self) -> Reading:
        reading = self._adapter.read()
        reading = replace(reading, jobs=self._requeues.settle(reading.jobs))
        ticks = self._watch.ticks()
        since = {
            n.name: self._completing_since.get(n.name, ticks) for n in reading.nodes if n.completing
        }
        self._completing_since = since
        if not since:
            return reading
        nodes = (
            replace(node, completing_seconds=ticks - since[node.name])
            if node.name in since
            else node
            for node in reading.nodes
        )
        return replace(reading, nodes=tuple(nodes))

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        return self._adapter.ended_jobs(records)

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        if not steps:
            return []
        with self._adapter.batch():
            return self._apply(steps)

    def carry_on(self) -> Sequence[StepOutcome]:
        ticks, active_jobs = self._watch.ticks(), self._active_jobs
        if not active_jobs and self._placer.idle:
            return []
        if ticks < self._next_look() and not (active_jobs and self._has_changes(active_jobs)):
            return []
        with self._adapter.batch():
            stop = ticks + self._settings.patience_seconds
            return self._outcomes(self._carry_on(self._watch.jobs(), None, stop))

    def let_go_on(self, jobs: Collection[JobId]) -> None:
        by_id = self._watch.jobs()
        self._evacuation.let_go_on(by_id[job] for job in jobs if job in by_id)

    def doubt_requeues(self) -> None:
        self._requeues.doubt()

    def resume(
        self, transitions: Sequence[Transition], requeued_jobs: Collection[JobId] = ()
    ) -> None:
        self._requeues.resume(
            {*requeued_jobs, *(transition.step.job for transition in transitions)}
        )
        jobs = self._watch.jobs() if transitions else {}
        self._evacuation.resume(
            (transition for transition in transitions if transition.phase.on_nodes), jobs
        )
        self._placer.resume(
            transition for transition in transitions if not transition.phase.on_nodes
        )
        ticks = self._watch.ticks()
        self._steps = {transition.step.job: transition.step for transition in transitions}
        self._begin_times = dict.fromkeys(self._steps, ticks)
        self._begun_as = {job: jobs[job] for job in self._steps if job in jobs}
        self._stop_times = {t.step.job: t.vacated for t in transitions if t.vacated is not None}

    def _apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        ticks = self._watch.ticks()
        results: dict[JobId, StartResult] = {}
        jobs = self._look(steps)
        fresh: list[Step] = []
        for step in steps:
            if self._is_under_way(step):
                results[step.job] = StartResult(OutcomeStatus.UNDER_WAY)
                continue
            fresh.append(step)
            job = jobs.get(step.job)
            is_over = job is None or (job.state.finished and step.kind is not StepKind.REQUEUE)
            result = _departed_result(job) if job is None or is_over else self._settle(step, job)
            if result is not None:
                results[step.job] = result
        todo = [step for step in fresh if step.job not in results]
        self._steps |= {step.job: step for step in todo}
        self._begin_times |= {step.job: ticks for step in fresh}
        self._begun_as |= {step.job: jobs[step.job] for step in todo}
        for step in fresh:
            self._stop_times.pop(step.job, None)
        self._placer.enqueue([s for s in todo if s.kind is StepKind.START], RELEASING_SECONDS)
        leave_steps = [s for s in todo if s.kind in _LEAVE_KINDS or s.kind is StepKind.REQUEUE]
        pending = [s for s in leave_steps if jobs[s.job].state is SlurmState.PENDING]
        self._placer.enqueue(pending, RELEASING_SECONDS)
        leave_steps = [s for s in leave_steps if jobs[s.job].state is not SlurmState.PENDING]
        self._evacuation.begin(leave_steps, jobs)
        results |= self._look_on(jobs if not leave_steps else self._watch.jobs(), self._reading)
        order = {step.job: step for step in steps}
        outcomes = {o.step.job: o for o in self._outcomes(results, order)}
        return [outcomes[step.job] for step in steps if step.job in outcomes] + [
            outcome for job, outcome in outcomes.items() if job not in order
        ]

    def _is_under_way(self, step: Step) -> bool:
        """Whether the job has a step under way that ``step`` does not replace."""
        if step.job in self._evacuation:
            return True
        return step.job in self._placer and not self._placer.cancel(step.job)

    def _look(self, steps: Sequence[Step]) -> Jobs:
        """Read the jobs, and the nodes too if any of ``steps`` has a target: for up to 30 s after
        its start slurmctld cannot report the nodes.
        """
        self._reading = None
        if not any(step.target for step in steps):
            return self._watch.jobs()
        self._reading = self._adapter.read()
        return {job.id: job for job in self._reading.jobs}

    def _look_on(self, jobs: Jobs, reading: Reading | None) -> dict[JobId, StartResult]:
        """Continue the steps under way until all have finished or ``patience_seconds`` are over.

        Returns the results of those that finished. ``jobs`` were just read, as part of ``reading``
        if the nodes were read too.
        """
        stop = self._watch.ticks() + self._settings.patience_seconds
        results: dict[JobId, StartResult] = {}
        while True:
            results |= self._carry_on(jobs, reading, stop)
            reading = None
            ticks, active_jobs = self._watch.ticks(), self._active_jobs
            if ticks >= stop or (not active_jobs and self._placer.idle):
                return results
            look = min(stop, self._next_look())
            deadline = ticks + min(
                _MAX_LOOK_SECONDS, _READINGS_PER_LOOK * self._watch.reading_seconds
            )
            jobs = self._watch.until(
                active_jobs,
                lambda jobs, deadline=deadline: (  # type: ignore[misc]
                    self._evacuation.needs_reading(jobs, deadline)
                    or self._placer.needs_reading(jobs, deadline)
                ),
                max(0.0, look - ticks),
            )

    @property
    def _active_jobs(self) -> set[JobId]:
        """The jobs whose state decides how a step continues."""
        return {*self._evacuation.jobs, *self._placer.released}

    def _next_look(self) -> float:
        return min(self._evacuation.next_look(), self._placer.next_look(self._evacuation.nodes))

    def _has_changes(self, active_jobs: Collection[JobId]) -> bool:
        """Whether a glance shows that a step can continue."""
        states = self._watch.glance(active_jobs)
        return self._evacuation.needs_reading(states, -inf) or self._placer.needs_reading(
            states, -inf
        )

    def _carry_on(
        self, jobs: Jobs, reading: Reading | None, stop: float
    ) -> dict[JobId, StartResult]:
        """Make one pass over the steps under way, with ``jobs`` as just read."""
        jobs = {job: state for job, state in jobs.items() if not self._is_another(state)}
        results: dict[JobId, StartResult] = {}
        if self._evacuation.jobs:
            departures = self._evacuation.carry_on(jobs)
            results |= departures.results
            results |= self._after_vacating(departures.vacated_steps, jobs)
            if departures.nodes or results:
                last = not self._evacuation.jobs
                self._placer.after_vacating(departures.nodes, VACATED_SECONDS, last=last)
                reading = None
        results |= self._placer.settle(jobs, defer=bool(self._evacuation.jobs))
        return results | self._placer.release(reading, self._evacuation.nodes, stop)

    def _is_another(self, job: JobReading) -> bool:
        """Whether Slurm lost its state and gave the id of a job under way to another job."""
        first_reading = self._begun_as.get(job.id)
        if first_reading is None or job.state is SlurmState.COMPLETING:  # a requeue is half done
            return False
        return has_new_owner(job, first_reading.submit, first_reading.restarts)

    def _after_vacating(
        self, vacated_steps: Mapping[JobId, Step], jobs: Jobs
    ) -> dict[JobId, StartResult]:
        """Hold the jobs that have left their nodes, and queue those that move to others."""
        results: dict[JobId, StartResult] = {}
        time = self._watch.now()
        for job_id, step in vacated_steps.items():
            job = self._requeues.settle_one(jobs[job_id])
            self._stop_times[job_id] = time
            if step.kind is StepKind.REQUEUE:
                results[job_id] = self._put_back(job)
            elif step.kind is StepKind.PREEMPT:
                hold = self._hold(job)
                is_unchanged = hold.status is OutcomeStatus.UNCHANGED
                results[job_id] = StartResult(OutcomeStatus.DONE) if is_unchanged else hold
            elif (result := self._not_ready(job)) is not None:
                results[job_id] = result
        moves = [step for job, step in vacated_steps.items() if job not in results]
        if moves:
            self._placer.enqueue(moves, VACATED_SECONDS, dict.fromkeys(vacated_steps, time))
        return results

    def _outcomes(
        self, results: Mapping[JobId, StartResult], steps: Mapping[JobId, Step] | None = None
    ) -> list[StepOutcome]:
        """Return the outcomes of ``results``; ``steps`` without a result are under way."""
        ticks = self._watch.ticks()
        outcomes = []
        for job in {**(steps or {}), **results}:
            result = results.get(job, StartResult(OutcomeStatus.UNDER_WAY))
            step = (steps or {}).get(job) or self._steps[job]
            if step.target and result.status is OutcomeStatus.FAILED and _passes(result.error):
                result = put_off(step.target, result.error)
            seconds = ticks - self._begin_times.get(job, ticks)
            outcomes.append(_outcome(step, result, seconds, self._stop_times.get(job)))
            if result.status is not OutcomeStatus.UNDER_WAY:
                for table in (self._steps, self._begin_times, self._begun_as, self._stop_times):
                    table.pop(job, None)
        return outcomes

    def _settle(self, step: Step, job: JobReading) -> StartResult | None:
        """Return the result of a step that needs neither vacating nor placing; None if it does."""
        pending = job.state is SlurmState.PENDING
        if step.kind is StepKind.RELEASE:
            return self._give_back(step, job)
        if step.kind is StepKind.REQUEUE:  # how a job ended is known only after its cleanup
            return None if job.state is SlurmState.COMPLETING else self._put_back(job)
        if step.kind is StepKind.HOLD or (step.kind is StepKind.PREEMPT and pending):
            return self._hold(job)
        if job.state is SlurmState.RUNNING and job.allocation == step.target:
            return StartResult(OutcomeStatus.UNCHANGED, job.allocation, started=job.start)
        if pending or step.kind is StepKind.START:
            return self._not_ready(job)
        return None if job.requeue else _failure(job, "it was submitted with --no-requeue")

    def _not_ready(self, job: JobReading) -> StartResult | None:
        """Hold the job and return None if it may be placed, also if its start is put off."""
        if self._is_another(job):
            return _departed_result(None)
        if job.state is not SlurmState.PENDING:
            return _failure(job, f"already {job.state_text} on {job.allocation}")
        block = self._block(job)
        if block is not None:
            return block
        hold = self._hold(job)
        return hold if hold.status is OutcomeStatus.FAILED else None

    def _block(self, job: JobReading) -> StartResult | None:
        if job.hold is Hold.USER:
            return _failure(job, "its owner holds it")
        if job.dependency:
            return _failure(job, "it waits for a dependency")
        early = job.begin > self._clock()
        return _failure(job, "its begin time is not reached") if early else None

    def _hold(self, job: JobReading) -> StartResult:
        if job.state is not SlurmState.PENDING:
            return _failure(job, f"already {job.state_text} on {job.allocation}")
        if job.hold is not Hold.NONE:
            return StartResult(OutcomeStatus.UNCHANGED)
        result = self._request(job, lambda: self._adapter.hold(job.id, self._wanted_begin(job)))
        if result.status is OutcomeStatus.FAILED:
            now = self._watch.jobs().get(job.id)
            if now is not None and now.hold is not Hold.NONE:  # a person held it meanwhile
                return StartResult(OutcomeStatus.UNCHANGED)
        return result

    def _wanted_begin(self, job: JobReading) -> float:
        """The user's own begin time, or 0 if none; the mark of a lifted hold does not count."""
        return job.begin if self._clock() < job.begin < USER_HOLD_BEGIN else 0.0

    def _put_back(self, job: JobReading) -> StartResult:
        """Requeue a job only if it failed in its profile run or died of our signal."""
        if job.state is SlurmState.PENDING:
            return self._hold(job)
        is_own_signal = job.requeue and died_of_warning(job, self._settings)
        if not (job.ended_in_profile or is_own_signal):
            return (
                _departed_result(job)
                if job.state.finished
                else _failure(job, f"it is {job.state_text}")
            )
        return self._request(job, lambda: self._requeues.ask(job.id, ended=True))

    def _give_back(self, step: Step, job: JobReading) -> StartResult:
        """Give the job to plain Slurm. If its user holds it, it stays held, without hops' mark."""
        if job.state is not SlurmState.PENDING:
            return StartResult(OutcomeStatus.UNCHANGED, job.allocation, started=job.start)
        kept_back = job.hold is Hold.USER

        def give_back() -> None:
            if job.hold is Hold.NONE:  # the job must not start half unpinned
                self._adapter.hold(job.id, self._wanted_begin(job))
            comment = with_marks(job.comment, RELEASED_MARK)
            self._adapter.unpin(
                job.id,
                step.gpus,
                comment,
                nodes=step.least_nodes,
                options=job.options,
                avoid=step.avoid,
                begin_now=kept_back,
                partition=job.partition if "," in job.partition else "",
            )
            if not kept_back:
                self._adapter.release([job.id])

        return self._request(job, give_back)

    def _request(self, job: JobReading, request: Callable[[], None]) -> StartResult:
        errors: dict[JobId, str] = {}
        self._reading = None  # the request may take a while, and changes what was read
        with refusals(errors, job.id):
            request()
        return _failure(job, errors[job.id]) if errors else StartResult(OutcomeStatus.DONE)


def _passes(refusal: str) -> bool:
    """Whether the refusal is temporary: Slurm changes no job that slurmdbd has not recorded, for
    example while slurmdbd hangs (22.05: ESLURM_JOB_SETTING_DB_INX).
    """
    return UNRECORDED in refusal


def _departed_result(job: JobReading | None) -> StartResult:
    text = "Slurm no longer knows this job" if job is None else f"it is {job.state_text}"
    return StartResult(OutcomeStatus.GONE, error=text)


def _failure(job: JobReading, text: str) -> StartResult:
    return StartResult(OutcomeStatus.FAILED, job.allocation, text, job.start)


def _outcome(
    step: Step, result: StartResult, seconds: float, stop_time: float | None
) -> StepOutcome:
    return StepOutcome(
        step=step,
        status=result.status,
        actual=result.actual,
        error=result.error,
        started=result.started,
        seconds=seconds,
        vacated=stop_time,
        reason=result.reason,
        ran=result.ran,
        warned=result.warned,
    )
