"""The primitive operations of an adapter; ``apply.py`` composes them into steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import JobReading, Reading
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions


class SignalScope(StrEnum):
    """Which processes get a signal: the batch script's shell (``BATCH``), every process of every
    other step (``STEPS``), or both (``ALL``).
    """

    BATCH = "batch"
    STEPS = "children"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Placement:
    """The shape that a held, pending job gets before its release.

    Each GPU comes with ``cores_per_gpu`` cores. Memory is ``memory_mb_per_gpu``,
    ``memory_mb_per_node`` or ``memory_mb_per_core``, or Slurm's default if all are None.
    ``options`` has tasks, GPU type and other GRES.
    ``comment`` replaces the job's; None leaves it. ``reset`` says that an earlier placement left a
    request on the job that a separate update must clear first: GPUs per job
    (``JobReading.per_job_gpus``), or GPUs of another type. ``partition`` replaces the job's;
    "" leaves it. So does ``time_limit_minutes``; None leaves it, 0 means no limit.
    """

    job: JobId
    allocation: Allocation
    cores_per_gpu: Fraction = Fraction(1)
    comment: str | None = None
    reset: bool = False
    options: ScriptOptions = NO_OPTIONS
    memory_mb_per_gpu: int | None = None
    memory_mb_per_node: int | None = None
    memory_mb_per_core: int | None = None
    partition: str = ""
    time_limit_minutes: int | None = None

    @property
    def simple(self) -> bool:
        """Whether only GPUs and cores are requested, with one task per node, in any partition."""
        amounts = (self.memory_mb_per_gpu, self.memory_mb_per_node, self.memory_mb_per_core)
        memory = all(amount is None for amount in amounts)
        options = self.options
        plain = options.tasks_per_gpu is None and options.tasks_each == 1
        as_it_is = not self.partition and self.time_limit_minutes is None
        return memory and plain and as_it_is and not (options.gpu_type or options.gres)


class Adapter(Protocol):
    """Slurm's own requests, one method each, with neither waiting nor policy.

    Every method raises ``SlurmUnavailableError`` if slurmctld does not answer within the
    adapter's time-out. Those that write raise ``SlurmError`` with Slurm's own message if Slurm
    refuses: the call then changed nothing, except that a refused ``place`` may leave the job held
    with an emptied shape.
    """

    @property
    def name(self) -> str:
        """``pyslurm`` or ``scontrol``."""

    def read(self) -> Reading:
        """Read the GPU nodes in Slurm's node order and all hops jobs that Slurm still knows.

        ``foreign_gpus`` is computed from the jobs of the same answer. Heterogeneous jobs are
        foreign whatever their comment: the submit plugin refuses them. Of an array, the tasks
        whose turn it is are jobs (:mod:`hopsd.slurm.ordering.job_arrays`). Also raises
        ``SlurmUnavailableError`` while a restarted slurmctld has not heard from all GPU nodes.
        """

    def jobs(self) -> Sequence[JobReading]:
        """Read only the hops jobs, which is cheaper than ``read``."""

    def ended_jobs(self, records: Collection[JobRecord]) -> Mapping[JobId, JobReading | None]:
        """See :meth:`hopsd.slurm.port.Port.ended_jobs`."""

    def glance(self, jobs: Collection[JobId]) -> Mapping[JobId, JobReading]:
        """Poll only state, reason, hold, begin time and restarts of ``jobs``: far cheaper than
        :meth:`jobs`. Jobs that Slurm does not know, or whose reason cannot be read, are left out.
        An array's tasks are included once Slurm has made them jobs of their own.
        """

    def hold(self, job: JobId, begin: float = 0.0) -> None:
        """Hold with priority 0 as the administrator, so that the owner cannot release it.

        Sets the begin time to ``begin``, or to now if 0: job_submit.lua takes a hold that sets no
        begin time for an operator's.
        """

    def place(self, placement: Placement) -> None:
        """Update a held pending job so that its release starts exactly this shape at once.

        Sets the nodes and their count, GPUs per node (even shapes) or per job (uneven ones: Slurm
        fills the nodes in its order, leaving at least one GPU for each later node), and clears the
        begin time that a requeue sets to now + 120 s. Does not release the job.
        """

    def release(self, jobs: Sequence[JobId]) -> None:
        """Let held jobs start, in one request where the adapter can."""

    def signal(self, job: JobId, signal: str, scope: SignalScope) -> None:
        """Send ``signal`` (``USR1``, ``TERM``, ...) to a running job."""

    def requeue_hold(self, job: JobId, *, ended: bool = False) -> None:
        """Requeue a running job as held; does nothing if it has ended meanwhile.

        With ``ended``, requeue a job that has already ended.
        """

    def unpin(
        self,
        job: JobId,
        gpus: int,
        comment: str,
        *,
        nodes: int = 1,
        options: ScriptOptions = NO_OPTIONS,
        avoid: Sequence[NodeName] = (),
        begin_now: bool = False,
        partition: str = "",
    ) -> None:
        """Let a held job ask plain Slurm for ``gpus`` GPUs on any ``nodes`` nodes except ``avoid``,
        with the GPU type, other GRES and memory in ``options``.

        ``comment``, with ``RELEASED_MARK``, replaces the job's. The begin time stays unless
        ``begin_now``: a job that was just requeued must not start at once (see ``place.py``).
        ``partition`` replaces the job's; "" leaves it.
        """

    def batch(self) -> AbstractContextManager[None]:
        """Context manager in which requests may share resources such as one scontrol process."""
