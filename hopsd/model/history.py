"""Jobs as they were: what hops remembers beyond what Slurm does, and when they ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.reading import SlurmState


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job's history so far. Slurm's requeue resets the submit time; ``submit`` is the first one.

    ``wait_seconds``: eligible but not running, over all restarts. ``allocation_since``: when
    ``allocation`` began or, for a job without one, when it lost its last, if Slurm recorded that.
    ``end`` is None until the job has finished. ``released``: an operator gave the job back to plain
    Slurm, and hops leaves it alone. ``run_seconds_by_type``: ``run_seconds`` by GPU type.
    ``app_seconds``: the number of apps present (a job without one counts as one), integrated over
    the time from ``submit`` to ``seen``. ``app_gpu_seconds``: used by jobs of the same app that
    have ended since ``submit``. ``program``: hash of the training script as reported, "" if
    unknown. ``saved``: whether it was seen to save a checkpoint, None: it reported nothing.
    ``samples_planned``: in all, as the training's own loops show it, None: they do not.
    ``account``: Slurm's, "" if it has none. ``communication_timed``: whether its ranks tell how
    long they communicate, None: unknown, or one rank. ``keeps_steps``: whether its steps have the
    same samples on any number of GPUs, None: unknown. ``time_known``: whether its reports show how
    long an iteration takes, None: it reported nothing. ``answers_signal``: whether its ranks handle
    the signal of the script's ``--signal``, None: it reported nothing. ``failed_again``: whether it
    failed soon after it was started again, having run longer before. ``gpus_most``: plans give it
    no more, since it held others for nothing; None: as it asks.
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
    """From ``start`` to ``end`` (epoch seconds; None: it still runs) the job held ``gpus`` GPUs."""

    start: float
    end: float | None
    gpus: int


ANY_TYPE = GpuType("")


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job that wanted to run from ``since`` on, and when it did: its ``runs``, in their order.

    ``runs`` empty: it never started. ``waits``: it still does, or waits again. ``gpus`` it asked
    for; ``gpu_type``: the type it asked for. ``time_limit_seconds`` None: none,
    or it is not known. ``ours``: hops placed it.
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
        """What of it lies between the two times; what runs longer is taken to run to ``end``.

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
        """Of its runs, which must all have ended."""
        return sum((r.end - r.start) * r.gpus for r in self.runs if r.end is not None)

    @property
    def run_seconds(self) -> float:
        """Of its runs, which must all have ended."""
        return sum(r.end - r.start for r in self.runs if r.end is not None)


@dataclass(frozen=True, slots=True)
class ProfileRun:
    """A short run of a job on one GPU of a type, to measure its workload's basic times there.

    ``run`` is the job's restart count in Slurm. ``end``: when the run was seen to be over or, if
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
        """False if it could not even start, which says nothing about the workload."""
        return self.end is None or self.end > self.begin
