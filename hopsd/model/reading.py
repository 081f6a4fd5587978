"""What a port read from Slurm (or from the simulator's cluster) at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.allocation import Allocation
from hopsd.model.asked import NOTHING_ASKED, Asked
from hopsd.model.ids import GpuType, JobId, NodeName, Tasks, UserName
from hopsd.model.site import NO_RULES, Holder, Licence, SiteRules


class SlurmState(StrEnum):
    """Slurm's base job states, as ``squeue -o %T`` names them, reduced to what hops acts on."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    OTHER = "OTHER"

    @property
    def finished(self) -> bool:
        return self in _FINISHED


_FINISHED = frozenset(
    {
        SlurmState.COMPLETED,
        SlurmState.CANCELLED,
        SlurmState.FAILED,
        SlurmState.TIMEOUT,
        SlurmState.NODE_FAIL,
    }
)


# A person's hold (`scontrol hold`, `sbatch -H`) shows as this begin time, 2100-01-01 UTC:
# slurm_plugin/job_submit.lua writes it, since a plain user's request cannot carry another mark.
USER_HOLD_BEGIN = 4_102_444_800.0

# hopsd's own marks stand behind the user's comment, a blank before each: a Slurm operator may write
# there, while an admin comment is for administrators alone (22.05 to 26.05). No user may:
# job_submit.lua refuses them at submission, and changes of the comment afterwards.
MARK = " #hops-"

PROFILE_MARK = "#hops-profile"
"""Of a job whose run is a profile run, or ``#hops-profile=ITERATIONS``."""

RELEASED_MARK = "#hops-released"
"""Of a job that was given back to plain Slurm: job_submit.lua no longer keeps its owner from
changing it."""


def split_marks(comment: str) -> tuple[str, str]:
    """The user's own comment, and hopsd's marks as words."""
    own, mark, rest = comment.partition(MARK)
    return own, (mark + rest).strip()


def with_marks(comment: str, marks: str) -> str:
    return f"{comment} {marks}" if marks else comment


def is_profile(marks: str) -> bool:
    return any(w.partition("=")[0] == PROFILE_MARK for w in marks.split())


def is_failed_profile(state: SlurmState, marks: str, *, requeue: bool) -> bool:
    """Slurm takes such a job for ended; ``requeue``: hopsd can have it put back."""
    broken = state in (SlurmState.FAILED, SlurmState.TIMEOUT)
    return broken and requeue and is_profile(marks)


NO_ARRAY = JobId("")


class Hold(StrEnum):
    """Who keeps a pending job from starting.

    ``HOPS``: the submit plugin or hopsd holds it until a plan places it;
    ``USER``: its owner or an operator wants it held, hops leaves it alone.
    """

    NONE = "none"
    HOPS = "hops"
    USER = "user"


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node with GPUs. ``usable`` False while drained, down or unknown (``state_text`` says).

    ``cores`` that jobs may have are Slurm's CPUs: hardware threads, ``threads`` to a core, where
    it counts those.
    ``foreign_gpus`` are held by jobs that hops does not manage. ``partitions``: those that it is
    in, none: open to every job. ``reserved_from``: when a reservation begins there, None: never;
    ``reservation``: the one that it is in. ``idle_cores`` and memory: free now, None: not known.
    ``gres``: other than GPUs, with its count.
    """

    name: NodeName
    gpu_type: GpuType
    gpus: int
    cores: int
    foreign_gpus: int = 0
    usable: bool = True
    state_text: str = "IDLE"
    partitions: tuple[str, ...] = ()
    reserved_from: float | None = None
    threads: int = 1
    idle_cores: int | None = None
    memory_mb: int | None = None
    idle_memory_mb: int | None = None
    features: frozenset[str] = frozenset()
    gres: Mapping[str, int] = field(default_factory=dict)
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class JobReading:
    """A job with a ``hops:`` comment. ``submit`` is Slurm's, which a requeue resets.

    ``allocation`` as Slurm gives it (never as planned); ``gpu_indices`` per node where the
    port can tell. ``begin`` is the earliest start that Slurm allows, 0: at once.
    ``dependency`` is True while one keeps the job back, ``stranded`` where it always will: the
    jobs it is about ended in another way. ``per_job_gpus`` is True while the job asks for GPUs
    as a whole (an uneven placement does), not per node. ``marks`` are hopsd's own (see ``MARK``),
    ``comment`` is without them. ``script`` is a hash of the batch script
    and its arguments, empty where that is not known or not needed.
    ``awaited``: Slurm starts another job by itself, or never, when this one ends. ``asked``: what
    its options ask for; ``features`` as in ``--constraint``; memory None: not asked for.
    ``reason``: Slurm's one word for what a pending job waits for, empty: none yet.
    ``barred``: why Slurm would not start it wherever it is placed, empty: it would.

    A task of an array is a job: ``id`` is ``17_4``, which it has before and after Slurm gives it a
    ``number`` of its own, that of its reports. ``array``: 17, of which at most ``task_limit`` tasks
    run at a time, 0: any number. ``rest``: this is no job, but those tasks of array ``id`` that
    nothing is planned for yet. ``throttled``: that limit of its own keeps it waiting.
    """

    id: JobId
    user: UserName
    uid: int
    name: str
    comment: str
    partition: str
    state: SlurmState
    submit: float
    hold: Hold = Hold.NONE
    dependency: bool = False
    stranded: bool = False
    begin: float = 0.0
    start: float = 0.0
    end: float = 0.0
    time_limit_seconds: float | None = None
    restarts: int = 0
    requeue: bool = True
    allocation: Allocation = field(default_factory=Allocation)
    gpu_indices: Mapping[NodeName, tuple[int, ...]] = field(default_factory=dict)
    exit_code: int = 0
    exit_signal: int = 0
    command: str = ""
    script: str = ""
    marks: str = ""
    state_text: str = ""
    reason: str = ""
    ran_on: tuple[NodeName, ...] = ()
    """Nodes of a finished job's last run: Slurm forgets its GPUs at once."""
    waits_for: str = ""
    """What it depends on, as sbatch has it: ``afterok:17,singleton``."""
    per_job_gpus: bool = False
    awaited: bool = False
    asked: Asked = NOTHING_ASKED
    features: str = ""
    excluded: frozenset[NodeName] = frozenset()
    reservation: str = ""
    memory_mb_per_node: int | None = None
    memory_mb_per_cpu: int | None = None
    barred: str = ""
    account: str = ""
    qos: str = ""
    licences: Mapping[str, int] = field(default_factory=dict)
    number: str = ""
    array: JobId = NO_ARRAY
    task_limit: int = 0
    rest: Tasks | None = None
    throttled: bool = False

    @property
    def released(self) -> bool:
        return RELEASED_MARK in self.marks.split()

    @property
    def profiling(self) -> bool:
        """Whether its run, or its last one, is to measure it and not to get it done."""
        return is_profile(self.marks)

    @property
    def failed_profile(self) -> bool:
        """Slurm takes it for ended, but it failed on the one GPU of a profile run."""
        return is_failed_profile(self.state, self.marks, requeue=self.requeue)


@dataclass(frozen=True, slots=True)
class SiteMemory:
    """``counted``: whether Slurm gives memory to jobs (SelectTypeParameters). Of a job that asks
    for none, megabytes a GPU, a CPU or a node; without any of them, all that its nodes have.
    ``cores_per_gpu``: the site's own number (DefCpuPerGPU), None: none.
    """

    counted: bool = False
    mb_per_gpu: int | None = None
    mb_per_cpu: int | None = None
    mb_per_node: int | None = None
    cores_per_gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The cluster at ``now``; ``nodes`` in the cluster's node order. ``others``: the jobs that are
    not ours and run; ``site``: what accounts, QOS and partitions allow. ``partition_memory``: of
    partitions with defaults of their own. ``licences``: those that our jobs ask for.
    """

    now: float
    nodes: tuple[NodeReading, ...]
    jobs: tuple[JobReading, ...]
    slurm_version: str = ""
    memory: SiteMemory = SiteMemory()
    others: tuple[Holder, ...] = ()
    site: SiteRules = NO_RULES
    partition_memory: Mapping[str, SiteMemory] = field(default_factory=dict)
    licences: Mapping[str, Licence] = field(default_factory=dict)

    def memory_of(self, job: JobReading) -> SiteMemory:
        """The defaults of the first of its partitions."""
        return self.partition_memory.get(job.partition.split(",")[0], self.memory)
