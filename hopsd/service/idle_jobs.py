"""Reports jobs that do not use their GPUs; Slurm is asked in a thread, outside the tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from hopsd.errors import HopsError
from hopsd.health.idle import IdleJob, IdleWatch, PartialUse, Use, update_watches
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState
from hopsd.service.background import in_thread
from hopsd.slurm.command import Runner
from hopsd.slurm.probe.processor_time import MAX_JOBS, processor_seconds
from hopsd.store.history import History

log = structlog.get_logger()

EVERY_SECONDS = 55.0
"""Between two queries about a job's processor time."""

AGAIN_SECONDS = 3600.0
"""That a run uses only some of its GPUs is reported at most once in this time: its reports may
alternate."""


class IdleJobs:
    """The jobs that do not use their GPUs, as of the last look."""

    def __init__(
        self,
        store: History,
        commands: Runner,
        begin: Callable[[Callable[[], None]], None] = in_thread,
        refusal: Callable[[], str] = str,
    ) -> None:
        """``refusal``: why Slurm would not answer, empty if it would."""
        self._store, self._commands, self._begin = store, commands, begin
        self._read_refusal = refusal
        self._refusal: str | None = None
        self._watches: dict[tuple[JobId, int], IdleWatch] = {}
        self._steps: dict[tuple[JobId, int], int] = {}
        self._idle: dict[JobId, IdleJob] = {}
        self._hung: frozenset[JobId] = frozenset()
        self._partly: dict[JobId, PartialUse] = {}
        self._agreements: dict[tuple[JobId, int], tuple[int, float]] = {}
        self._uses: dict[JobId, int] = {}
        self._notice_times: dict[tuple[JobId, int], float] = {}
        self._last_request = float("-inf")
        self._next = 0
        self._is_asking = False

    @property
    def idle(self) -> Mapping[JobId, IdleJob]:
        """The jobs without steps and processor time at the last look, hung ones included."""
        return self._idle

    def look(
        self,
        jobs: Iterable[JobReading],
        steps: Mapping[JobId, int],
        now: float,
        hung: Iterable[JobId] = (),
    ) -> None:
        """Update the state of the running jobs that hold GPUs. ``steps`` has the steps that their
        trainings have done; Slurm is asked about jobs without new steps, at most once a minute.

        A job in ``hung`` is not reported as idle too, since more is known about it.
        """
        self._hung = frozenset(hung)
        running = {
            (job.id, job.restarts): job
            for job in jobs
            if job.state is SlurmState.RUNNING and job.allocation.gpus > 0 and job.rest is None
        }
        self._forget({job for job, _ in running})
        self._uses = {job.id: job.allocation.gpus for job in running.values()}
        if self._refusal or self._is_asking or not now - self._last_request >= EVERY_SECONDS:
            return
        before, self._steps = self._steps, {run: steps.get(run[0], 0) for run in running}
        stepless_runs = {
            run: j for run, j in running.items() if before.get(run, 0) == self._steps[run]
        }
        self._forget({job for job, _ in stepless_runs})
        self._last_request = now
        if stepless_runs:
            self._is_asking = True
            self._begin(lambda: self._ask(stepless_runs, dict(self._steps), now))

    @property
    def partly(self) -> Mapping[JobId, PartialUse]:
        """The jobs that use only some of their GPUs."""
        return self._partly

    def note_used(
        self,
        jobs: Iterable[JobReading],
        gpus_by_report: Mapping[JobId, int],
        gpus_by_driver: Mapping[JobId, int],
        now: float,
    ) -> None:
        """Report jobs that use only some of the GPUs that they hold. ``gpus_by_report`` counts the
        GPUs that their trainings report, ``gpus_by_driver`` those with a process by the driver.
        """
        partly, runs = {}, {}
        agreements: dict[tuple[JobId, int], tuple[int, float]] = {}
        for job in jobs:
            gpus, held_gpus = gpus_by_report.get(job.id, 0), job.allocation.gpus
            if not 0 < gpus < held_gpus:
                continue
            run, seconds = (job.id, job.restarts), 0.0
            runs[job.id] = run
            # If the driver sees fewer, it does not see all processes.
            if gpus_by_driver.get(job.id) == gpus:
                before = self._agreements.get(run, (gpus, now))
                agreements[run] = before if before[0] == gpus else (gpus, now)
                seconds = max(0.0, now - agreements[run][1])
            partly[job.id] = PartialUse(gpus, held_gpus, seconds)
        self._notice_times = {
            run: at for run, at in self._notice_times.items() if 0.0 <= now - at < AGAIN_SECONDS
        }
        for job_id, use in partly.items():
            if job_id not in self._partly and runs[job_id] not in self._notice_times:
                self._notice_times[runs[job_id]] = now
                log.warning("gpus_unused", job=job_id, reason=use.text)
                self._store.add_event("gpus_unused", use.text, job=job_id)
        self._partly, self._agreements = partly, agreements

    def rows(self) -> dict[JobId, dict[str, Any]]:
        """Rows for the status document, by job: a sentence, and how many GPUs are unused."""
        idle = {
            job: {"text": idle.text, "gpus": self._uses.get(job, 0)}
            for job, idle in self._idle.items()
            if job not in self._hung
        }
        partly = {
            job: {"text": use.text, "gpus": use.gpus_held - use.gpus_in_use}
            for job, use in self._partly.items()
        }
        return partly | idle

    def seconds(self) -> dict[JobId, float]:
        """How long each idle job has done nothing."""
        return {job: idle.seconds for job, idle in self._idle.items()}

    def _ask(
        self,
        runs: Mapping[tuple[JobId, int], JobReading],
        steps: Mapping[tuple[JobId, int], int],
        now: float,
    ) -> None:
        try:
            if self._refusal is None:
                self._refusal = self._read_refusal()
            if self._refusal:
                log.warning("idle jobs", problem=self._refusal, did="no job counts as idle")
                return
            numbers = {run: JobId(job.number or job.id) for run, job in runs.items()}
            # Jobs take turns if there are more than one query may name.
            order = sorted(set(numbers.values()))
            turn = (order + order)[self._next : self._next + min(MAX_JOBS, len(order))]
            self._next = (self._next + len(turn)) % len(order)
            seconds = processor_seconds(self._commands, turn)
            uses = {
                run: Use(now, steps[run], seconds.get(number))
                for run, number in numbers.items()
                if number in turn
            }
            pending = {
                run: w for run, w in self._watches.items() if run in runs and run not in uses
            }
            idle = update_watches(self._watches, uses)
            self._watches.update(pending)
            self._tell(
                idle | {job: i for job, i in self._idle.items() for r in pending if r[0] == job}
            )
        except HopsError as error:
            log.warning("idle jobs", problem=str(error))
        finally:
            self._is_asking = False

    def _tell(self, idle: Mapping[JobId, IdleJob]) -> None:
        for job, idle_job in idle.items():
            if job not in self._idle and job not in self._hung:
                log.warning("idle", job=job, reason=idle_job.text)
                self._store.add_event("idle", idle_job.text, job=job)
        self._idle = dict(idle)

    def _forget(self, running: set[JobId]) -> None:
        self._idle = {job: idle for job, idle in self._idle.items() if job in running}
