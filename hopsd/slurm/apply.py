"""Applies steps through an adapter: settle no-ops, vacate, place, read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from hopsd.model.ids import JobId
from hopsd.model.reading import (
    RELEASED_MARK,
    USER_HOLD_BEGIN,
    Hold,
    JobReading,
    Reading,
    SlurmState,
    with_marks,
)
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.place import RELEASING_SECONDS, VACATED_SECONDS, Placer, Result
from hopsd.slurm.vacate import died_of_warning, vacate
from hopsd.slurm.watch import ApplySettings, Jobs, Watch, refusals

_LEAVING = frozenset({StepKind.PREEMPT, StepKind.MOVE})


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
    ) -> None:
        """``monotonic`` times the waiting; ``clock`` gives the times that are reported."""
        self._adapter = adapter
        self._clock = clock
        self._settings = settings or ApplySettings()
        self._watch = Watch(adapter, self._settings.poll_seconds, clock, monotonic, sleep)
        self._placer = Placer(adapter, self._watch, self._settings)
        self._seen: Reading | None = None  # None once anything was asked since

    @property
    def name(self) -> str:
        return self._adapter.name

    def read(self) -> Reading:
        return self._adapter.read()

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        if not steps:
            return []
        with self._adapter.together():
            return self._apply(steps)

    def _apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        begun = self._watch.ticks()
        until = begun + RELEASING_SECONDS
        results: dict[JobId, Result] = {}
        left: dict[JobId, float] = {}
        self._await_ends([step.job for step in steps if step.kind is StepKind.REQUEUE])
        jobs = self._look(steps)
        todo = self._judge(steps, results, self._settle, jobs)
        leaving = [step.job for step in todo if step.kind in _LEAVING]
        if leaving:
            results |= self._started_elsewhere(todo, leaving, until, jobs)
            todo = [step for step in todo if step.job not in results]
            vacated = vacate(self._adapter, self._watch, self._settings, leaving)
            jobs = self._look(todo)
            todo = self._judge(
                todo, results, lambda s, j: self._vacated(s, j, vacated.errors), jobs
            )
            left = vacated.left
            until = self._watch.ticks() + VACATED_SECONDS
            todo.sort(key=lambda step: step.job not in left)  # who was stopped restarts first
        results |= self._placer.start(todo, left, until, self._seen)
        seconds = self._watch.ticks() - begun
        return [_outcome(s, results[s.job], seconds, left.get(s.job)) for s in steps]

    def _look(self, steps: Sequence[Step]) -> Jobs:
        """The jobs as they are now. With the nodes, which for up to 30 s after its start slurmctld
        cannot tell, only where one of ``steps`` goes to some.
        """
        self._seen = None
        if not any(step.target for step in steps):
            return self._watch.jobs()
        self._seen = self._adapter.read()
        return {job.id: job for job in self._seen.jobs}

    def _started_elsewhere(
        self, todo: Sequence[Step], leaving: Collection[JobId], until: float, jobs: Jobs
    ) -> dict[JobId, Result]:
        """Start what goes to nodes that nobody has to leave: the grace of some jobs keeps no other
        from idle GPUs. What fails may need what they leave, such as its user's limit: it is tried
        again after them.
        """
        vacating = {node for job in leaving for node in jobs[job].allocation.nodes}
        results = self._placer.start(
            [
                step
                for step in todo
                if step.kind is StepKind.START and vacating.isdisjoint(step.target.nodes)
            ],
            {},
            until,
            self._seen,
        )
        return {
            job: result
            for job, result in results.items()
            if result.ran or result.status is not OutcomeStatus.FAILED
        }

    def _await_ends(self, jobs: Collection[JobId]) -> None:
        """Until none of ``jobs`` is completing any more: how one ended is told only then."""
        if jobs:
            self._watch.until(
                jobs,
                lambda seen: all(
                    seen[job].state is not SlurmState.COMPLETING for job in jobs if job in seen
                ),
                self._settings.stop_timeout_seconds,
            )

    def _judge(
        self,
        steps: Sequence[Step],
        results: dict[JobId, Result],
        judge: Callable[[Step, JobReading], Result | None],
        jobs: Jobs,
    ) -> list[Step]:
        """Judge every step by its job, just read; returns those without a result yet."""
        for step in steps:
            job = jobs.get(step.job)
            over = job is None or (job.state.finished and step.kind is not StepKind.REQUEUE)
            result = _gone(job) if job is None or over else judge(step, job)
            if result is not None:
                results[step.job] = result
        return [step for step in steps if step.job not in results]

    def _settle(self, step: Step, job: JobReading) -> Result | None:
        """The result of a step that needs neither vacating nor placing."""
        pending = job.state is SlurmState.PENDING
        if step.kind in (StepKind.RELEASE, StepKind.REQUEUE):
            back = step.kind is StepKind.REQUEUE
            return self._put_back(job) if back else self._give_back(step, job)
        if step.kind is StepKind.HOLD or (step.kind is StepKind.PREEMPT and pending):
            return self._hold(job)
        if job.state is SlurmState.RUNNING and job.allocation == step.target:
            return Result(OutcomeStatus.UNCHANGED, job.allocation, started=job.start)
        if pending:
            return self._not_ready(job)
        if step.kind is StepKind.START:
            return _failed(job, f"already {job.state_text} on {job.allocation}")
        return None if job.requeue else _failed(job, "it was submitted with --no-requeue")

    def _vacated(self, step: Step, job: JobReading, errors: dict[JobId, str]) -> Result | None:
        """The result after vacating; None where the job is still to be placed."""
        if step.job in errors:
            return _failed(job, errors[step.job])
        if step.kind is StepKind.PREEMPT:
            held = self._hold(job)
            unchanged = held.status is OutcomeStatus.UNCHANGED
            return Result(OutcomeStatus.DONE) if unchanged else held
        if job.state is not SlurmState.PENDING:
            return _failed(job, f"already {job.state_text} on {job.allocation}")
        return self._not_ready(job)

    def _not_ready(self, job: JobReading) -> Result | None:
        """None where the job may be placed: it is held, also where its start is put off."""
        blocked = self._blocked(job)
        if blocked is not None:
            return blocked
        held = self._hold(job)
        return held if held.status is OutcomeStatus.FAILED else None

    def _blocked(self, job: JobReading) -> Result | None:
        if job.hold is Hold.USER:
            return _failed(job, "its owner holds it")
        if job.dependency:
            return _failed(job, "it waits for a dependency")
        early = job.begin > self._clock()
        return _failed(job, "its begin time is not reached") if early else None

    def _hold(self, job: JobReading) -> Result:
        if job.state is not SlurmState.PENDING:
            return _failed(job, f"already {job.state_text} on {job.allocation}")
        if job.hold is not Hold.NONE:
            return Result(OutcomeStatus.UNCHANGED)
        result = self._asked(job, lambda: self._adapter.hold(job.id, self._wanted_begin(job)))
        if result.status is OutcomeStatus.FAILED:
            now = self._watch.jobs().get(job.id)
            if now is not None and now.hold is not Hold.NONE:  # a person was faster
                return Result(OutcomeStatus.UNCHANGED)
        return result

    def _wanted_begin(self, job: JobReading) -> float:
        """The user's own begin time, 0: none. The mark of a lifted hold does not count as one."""
        return job.begin if self._clock() < job.begin < USER_HOLD_BEGIN else 0.0

    def _put_back(self, job: JobReading) -> Result:
        """Requeue a job only if it failed in its profile run or died of our signal."""
        if job.state is SlurmState.PENDING:
            return self._hold(job)
        ours = job.requeue and died_of_warning(job, self._settings)
        if not (job.ended_in_profile or ours):
            return _gone(job) if job.state.finished else _failed(job, f"it is {job.state_text}")
        return self._asked(job, lambda: self._adapter.requeue_hold(job.id, ended=True))

    def _give_back(self, step: Step, job: JobReading) -> Result:
        """A job that its user holds stays held, as in plain Slurm: without the mark."""
        if job.state is not SlurmState.PENDING:
            return Result(OutcomeStatus.UNCHANGED, job.allocation, started=job.start)
        kept_back = job.hold is Hold.USER

        def give_back() -> None:
            if job.hold is Hold.NONE:  # it must not start half unpinned
                self._adapter.hold(job.id, self._wanted_begin(job))
            comment = with_marks(job.comment, RELEASED_MARK)
            self._adapter.unpin(
                job.id,
                step.gpus,
                comment,
                nodes=step.least_nodes,
                asked=job.asked,
                avoid=step.avoid,
                begin_now=kept_back,
                partition=job.partition if "," in job.partition else "",
            )
            if not kept_back:
                self._adapter.release([job.id])

        return self._asked(job, give_back)

    def _asked(self, job: JobReading, request: Callable[[], None]) -> Result:
        errors: dict[JobId, str] = {}
        self._seen = None  # it may take its time, and what was read is changed
        with refusals(errors, job.id):
            request()
        return _failed(job, errors[job.id]) if errors else Result(OutcomeStatus.DONE)


def _gone(job: JobReading | None) -> Result:
    text = "Slurm knows no such job any more" if job is None else f"it is {job.state_text}"
    return Result(OutcomeStatus.GONE, error=text)


def _failed(job: JobReading, text: str) -> Result:
    return Result(OutcomeStatus.FAILED, job.allocation, text, job.start)


def _outcome(step: Step, result: Result, seconds: float, vacated: float | None) -> StepOutcome:
    return StepOutcome(
        step=step,
        status=result.status,
        actual=result.actual,
        error=result.error,
        started=result.started,
        seconds=seconds,
        vacated=vacated,
        reason=result.reason,
        ran=result.ran,
    )
