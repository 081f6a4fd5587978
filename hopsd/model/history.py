"""The history of jobs: what hops remembers beyond what Slurm does, and when the jobs ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.reading import SlurmState


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job's history so far. Slurm's requeue resets the submit time; ``submit`` is the first one.

    ``wait_seconds``: time eligible but not running, over all restarts. ``allocation_since``: when
    ``allocation`` began or, for a job without one, when its last one ended, if Slurm recorded that.
    ``end`` is None until the job has finished. ``released``: an operator gave the job back to plain
    Slurm, and hops leaves it alone. ``run_seconds_by_type``: ``run_seconds`` by GPU type.
    ``app_seconds``: the number of apps present (a job without one counts as one), integrated over
    the time from ``submit`` to ``seen``. ``app_gpu_seconds``: GPU-seconds of the jobs of the same
    app that have ended since ``submit``. ``program``: hash of the training script as reported, ""
    if unknown. ``saved``: whether the job was seen to save a checkpoint, None if it reported
    nothing. ``samples_planned``: samples in all, as the training's own loops show, None if they do
    not. ``account``: the account in Slurm, "" if there is none. ``communication_timed``: whether
    the ranks report how long they communicate, None if that is unknown or there is only one rank.
    ``keeps_steps``: whether a step has the same number of samples on any number of GPUs, None if
    unknown. ``time_known``: whether the reports show how long an iteration takes, None if the job
    reported nothing. ``answers_signal``: whether the ranks handle the signal of the script's
    ``--signal``, None if the job reported nothing. ``failed_again``: whether the job failed soon
    after a restart, having run longer before. ``gpus_most``: the most GPUs that plans give the job,
    since it left others unused; None if it gets what it asks for.
    """

    id: JobId
    user: UserName
    name: str
    comment: str
    workload: WorkloadName
    submit: float
    seen: float
    state: SlurmState
    wait_seconds: float = 0.0
    run_seconds: float = 0.0
    attained_gpu_seconds: float = 0.0
    restarts: int = 0
    samples_done: float = 0.0
    restart_seconds: float = 0.0
    allocation: Allocation = field(default_factory=Allocation)
    allocation_since: float | None = None
    profiling: bool = False
    age_seconds: float | None = None
    end: float | None = None
    released: bool = False
    run_seconds_by_type: Mapping[GpuType, float] = field(default_factory=dict)
    app_seconds: float = 0.0
    app_gpu_seconds: float = 0.0
    program: str = ""
    saved: bool | None = None
    samples_planned: float | None = None
    account: str = ""
    communication_timed: bool | None = None
    keeps_steps: bool | None = None
    time_known: bool | None = None
    answers_signal: bool | None = None
    failed_again: bool = False
    gpus_most: int | None = None

    @property
    def latency_ratio(self) -> float | None:
        """Waiting time over expected run time (eq. 8); None until the age is known."""
        return self.wait_seconds / self.age_seconds if self.age_seconds else None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A job held ``gpus`` GPUs from ``start`` to ``end`` (epoch seconds; None if it still runs)."""

    start: float
    end: float | None
    gpus: int


ANY_TYPE = GpuType("")


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job that was ready to run from ``since`` on, and its ``runs`` in chronological order.

    ``runs`` is empty if the job never started. ``waits``: it is waiting, for its first run or
    again. ``gpus`` and ``gpu_type``: as requested. ``time_limit_seconds`` is None if there is no
    limit or it is unknown. ``ours``: hops placed the job.
    """

    id: JobId
    user: UserName
    account: str
    since: float
    gpus: int
    runs: tuple[Stretch, ...] = ()
    waits: bool = False
    gpu_type: GpuType = ANY_TYPE
    time_limit_seconds: float | None = None
    ours: bool = False

    def clip(self, start: float, end: float) -> LoggedJob:
        """Return the part of the job between the two times; a run that has no end ends at ``end``.

        A job that waits from before ``start`` on waits from ``start`` on.
        """
        runs = []
        for run in self.runs:
            first, last = max(run.start, start), end if run.end is None else min(run.end, end)
            if first < last:
                runs.append(Stretch(first, last, run.gpus))
        return replace(self, since=min(max(self.since, start), end), runs=tuple(runs))

    @property
    def gpu_seconds(self) -> float:
        """The GPU-seconds of all runs, which must have ended."""
        return sum((r.end - r.start) * r.gpus for r in self.runs if r.end is not None)

    @property
    def run_seconds(self) -> float:
        """The seconds of all runs, which must have ended."""
        return sum(r.end - r.start for r in self.runs if r.end is not None)


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """A short run of a job on one GPU of a type, to measure its workload's basic times there.

    ``run`` is the job's restart count in Slurm. ``end``: when the run was seen to have ended or, if
    the job still holds the GPU, to have measured enough. ``closed``: no further result is expected.
    ``failure``: why nothing was measured, "" if nothing went wrong.
    """

    job: JobId
    run: int
    workload: WorkloadName
    gpu_type: GpuType
    node: NodeName
    begin: float
    end: float | None = None
    closed: bool = False
    failure: str = ""

    @property
    def ran(self) -> bool:
        """False if the run could not even start, which says nothing about the workload."""
        return self.end is None or self.end > self.begin
