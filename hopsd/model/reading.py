"""What a port has read from Slurm (or from the simulator's cluster) at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, Tasks, UserName, host_of
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions
from hopsd.model.site import NO_RULES, Bounds, Holder, Licence, SiteRules


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
        return self in _FINISHED_STATES


_FINISHED_STATES = frozenset(
    {
        SlurmState.COMPLETED,
        SlurmState.CANCELLED,
        SlurmState.FAILED,
        SlurmState.TIMEOUT,
        SlurmState.NODE_FAIL,
    }
)


# This begin time, 2100-01-01 UTC, marks a person's hold (`scontrol hold`, `sbatch -H`):
# slurm_plugin/job_submit.lua sets it, since an ordinary user's request can carry no other mark.
USER_HOLD_BEGIN = 4_102_444_800.0

# hopsd appends its own marks to the user's comment, each after a blank: Slurm operators may write
# there, but only administrators may write admin comments (22.05 to 26.05). Users cannot set marks:
# job_submit.lua rejects them at submission, and any later change of the comment.
MARK = " #hops-"

PROFILE_MARK = "#hops-profile"
"""Marks a job whose run is a profile run; also ``#hops-profile=ITERATIONS``."""

RELEASED_MARK = "#hops-released"
"""Marks a job that was given back to plain Slurm: its owner may change it again."""


MOVED_MARK = "#hops-moved"
"""``#hops-moved=n0:2,n4:4``: the allocation that the job had before hops moved it."""

PARTITIONS_MARK = "#hops-partitions"
"""``#hops-partitions=a,b>b``: a job that asks for a and b was placed on nodes of b only."""

TIME_MARK = "#hops-time"
"""``#hops-time=120>45``: a job with a time limit of 120 minutes (0: none) was started with one of
45, since its nodes are reserved afterwards and its ``--time-min`` allows that."""


def split_marks(comment: str) -> tuple[str, str]:
    """Split a comment into the user's own text and hopsd's marks, separated by blanks."""
    user_comment, mark, marks = comment.partition(MARK)
    return user_comment, (mark + marks).strip()


def with_marks(comment: str, marks: str) -> str:
    return f"{comment} {marks}" if marks else comment


def is_profile(marks: str) -> bool:
    return any(w.partition("=")[0] == PROFILE_MARK for w in marks.split())


def ended_in_profile(state: SlurmState, marks: str, *, requeue: bool) -> bool:
    """Whether a job ended in a profile run. Slurm considers it ended, but it can be requeued.

    Exit code 0 counts, too: a script may swallow the error of a training that needs more than one
    GPU (``train.py | tee log``), and must still get the GPUs that it asked for.
    """
    state_ended = state in (SlurmState.COMPLETED, SlurmState.FAILED, SlurmState.TIMEOUT)
    return state_ended and requeue and is_profile(marks)


NO_ARRAY = JobId("")


class Hold(StrEnum):
    """Who keeps a pending job from starting.

    ``HOPS``: the submit plugin or hopsd holds the job until a plan places it; ``USER``: the job's
    owner or an operator holds it, and hops leaves it alone.
    """

    NONE = "none"
    HOPS = "hops"
    USER = "user"


class SeveralBlocks(StrEnum):
    """Whether Slurm starts a job on named nodes in several blocks of topology/block.

    ``ANY``: always, since that plugin is not in use; ``EVEN``: with the same number of GPUs on each
    node; ``NONE``: never.
    """

    ANY = "any"
    EVEN = "even"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node with GPUs. ``usable`` is False while it is drained, down or unknown (``state_text``).

    ``cores``: Slurm's CPUs that are available to jobs; if Slurm counts hardware threads, they are
    threads, ``threads`` per core. ``foreign_gpus``: held by jobs that hops does not manage.
    ``partitions``: those that contain the node; if empty, it is open to every job.
    ``reserved_from``: when the next reservation begins, None if there is none; ``reservation``: the
    name of the current one; ``reserved_until``: when the current one, or else the next one, ends,
    None if unknown. ``idle_cores``, ``idle_memory_mb``: free now, None if unknown. ``gres``: counts
    of resources other than GPUs. ``switches``: those above the node, top down; the last is its leaf
    switch or block. A node with several GPU types has one reading for each
    (:func:`hopsd.model.ids.part_of`); ``by_type``: Slurm gives its GPUs only to jobs that ask for
    the type. ``disk_mb``: TmpDisk. ``completing_seconds``: how long a job that ended has been seen
    to clean up there.
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
    switches: tuple[str, ...] = ()
    by_type: bool = False
    disk_mb: int = 0
    completing_seconds: float = 0.0
    reserved_until: float | None = None

    @property
    def leaf(self) -> str:
        """The node's leaf switch, block or rack; nodes without one share the leaf ""."""
        return self.switches[-1] if self.switches else ""

    @property
    def completing(self) -> bool:
        """Whether a job that ended is cleaning up there, as in a long Epilog.

        Slurm reports its GPUs as free, but starts no job on the node (22.05).
        """
        return "COMPLETING" in self.state_text

    @property
    def is_mixed(self) -> bool:
        """Whether the machine also has GPUs of other types."""
        return host_of(self.name) != self.name


@dataclass(frozen=True, slots=True)
class JobReading:
    """A job with a ``hops:`` comment. ``submit`` is Slurm's, which a requeue resets.

    ``allocation``: as Slurm reports it, never as planned; ``gpu_indices``: by node, if the port
    knows them. ``begin``: the earliest start that Slurm allows, 0 for any time. ``requeued_held``:
    the job waits as ``scontrol requeuehold`` left it. ``dependency``: an unmet dependency holds the
    job back; ``is_stranded``: the dependency can never be met, because of how other jobs ended.
    ``per_job_gpus``: the job has nodes or cores, and asks for GPUs in total (as uneven placements
    do). ``marks``: hopsd's own marks (see ``MARK``), which ``comment`` does not contain.
    ``script``: hash of the batch script and its arguments, empty if there is none or it is not
    needed, None if it has not been read yet. ``is_awaited``: another job depends on the end of this
    one. ``options``: the job's sbatch options; ``features``: as in ``--constraint``; memory is None
    if not requested. ``magnetic``: the magnetic reservations that admit a job without
    ``reservation``. ``reason``: Slurm's one-word reason why a pending job waits, empty if there is
    none yet. ``bar``: why Slurm would not start the job on any placement, empty if it would.

    A task of an array is a job with an ``id`` such as ``17_4``, before and after Slurm gives it a
    ``number`` of its own, which its reports carry. ``array``: 17, of which at most ``task_limit``
    tasks (0: any number) run at a time. ``rest``: set if this is not a job, but the tasks of array
    ``id`` that are not planned yet. ``is_throttled``: the task waits because of the task limit.
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
    is_stranded: bool = False
    begin: float = 0.0
    requeued_held: bool = False
    launch_failed: bool = False
    """Slurm could not launch the last run (for example, a prolog failed), and holds the job."""
    start: float = 0.0
    end: float = 0.0
    time_limit_seconds: float | None = None
    deadline: float = 0.0
    """Slurm ends the job as soon as it cannot end by then; 0 if there is no deadline."""
    restarts: int = 0
    requeue: bool = True
    allocation: Allocation = field(default_factory=Allocation)
    gpu_indices: Mapping[NodeName, tuple[int, ...]] = field(default_factory=dict)
    exit_code: int = 0
    exit_signal: int = 0
    command: str = ""
    script: str | None = ""
    marks: str = ""
    state_text: str = ""
    reason: str = ""
    ran_on: tuple[NodeName, ...] = ()
    """Nodes of a finished job's last run (Slurm forgets its GPUs at once), or the nodes on which a
    job is still completing."""
    waits_for: str = ""
    """The job's dependency in sbatch's notation: ``afterok:17,singleton``."""
    per_job_gpus: bool = False
    is_awaited: bool = False
    options: ScriptOptions = NO_OPTIONS
    features: str = ""
    excluded_nodes: frozenset[NodeName] = frozenset()
    avoids: frozenset[NodeName] = frozenset()
    """The excluded nodes that hops avoids for a while, since Slurm did not start the job there."""
    reservation: str = ""
    magnetic: tuple[str, ...] = ()
    memory_mb_per_node: int | None = None
    memory_mb_per_cpu: int | None = None
    bar: str = ""
    account: str = ""
    qos: str = ""
    licences: Mapping[str, int] = field(default_factory=dict)
    tres: Bounds = field(default_factory=dict)
    """The resources that the job holds, by kind, as far as the port knows them."""
    number: str = ""
    array: JobId = NO_ARRAY
    task_limit: int = 0
    rest: Tasks | None = None
    is_throttled: bool = False

    @property
    def released(self) -> bool:
        return RELEASED_MARK in self.marks.split()

    @property
    def reservations(self) -> tuple[str, ...]:
        """The reservations of which the job may use one; "" stands for nodes in none."""
        return (*self.reservation.split(","), *self.magnetic)

    @property
    def requested_node_mb(self) -> int | None:
        """Megabytes per node that ``--mem`` asks for, None if it is not given or asks for all.

        After a placement, Slurm's figure for a job without ``--mem`` is what hops asked for.
        """
        options = self.options
        otherwise_sized = (
            options.whole_memory or options.default_memory or options.memory_mb_per_gpu is not None
        )
        return None if otherwise_sized or options == NO_OPTIONS else self.memory_mb_per_node

    @property
    def profiling(self) -> bool:
        """Whether the job's current or last run is a profile run."""
        return is_profile(self.marks)

    @property
    def was_killed(self) -> bool:
        """Whether the job failed, apparently because of a signal, and may run again.

        A shell reports a child that died of signal n as exit code 128 + n.
        """
        was_signalled = self.exit_signal > 0 or self.exit_code > 128
        return self.state is SlurmState.FAILED and self.requeue and was_signalled

    @property
    def ended_in_profile(self) -> bool:
        """Whether the job ended in a profile run: it has not ended then, although Slurm says so."""
        return ended_in_profile(self.state, self.marks, requeue=self.requeue)


def has_new_owner(job: JobReading, submit: float, restarts: int) -> bool:
    """Whether ``job`` is a new job with the id of an earlier one.

    ``submit`` and ``restarts`` are those of the earlier job. A job that was never requeued still
    has its first submit time.
    """
    return job.restarts < restarts or (job.restarts == 0 and job.submit != submit)


@dataclass(frozen=True, slots=True)
class SaveTimes:
    """When a training saves, as its processes report it.

    ``saving``: a save is under way; ``at``: when the last complete save ended, by the node's clock
    (epoch), 0 if none was seen; ``interval``: seconds between the last two, None if unknown.
    """

    saving: bool = False
    at: float = 0.0
    interval: float | None = None

    def ends_by(self, now: float, seconds: float) -> bool:
        """Whether a save is under way, or expected to end within ``seconds``."""
        return self.saving or (
            self.interval is not None and self.at + self.interval <= now + seconds
        )


@dataclass(frozen=True, slots=True)
class SiteMemory:
    """The site's defaults for memory and cores.

    ``counted``: whether Slurm allocates memory to jobs (SelectTypeParameters). A job without a
    memory request gets ``mb_per_gpu``, ``mb_per_cpu`` or ``mb_per_node`` or, if none is set, all
    memory of its nodes. ``cores_per_gpu``: DefCpuPerGPU, None if not set. ``most_mb_per_node``:
    MaxMemPerNode of one job, None if unlimited.
    """

    counted: bool = False
    mb_per_gpu: int | None = None
    mb_per_cpu: int | None = None
    mb_per_node: int | None = None
    cores_per_gpu: int | None = None
    most_mb_per_node: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The cluster at ``now``, with ``nodes`` in the cluster's node order.

    ``other_holders``: running jobs that hops does not manage; ``site``: what accounts, QOS and
    partitions allow. ``partition_memory``: the defaults of partitions that have their own.
    ``licences``: those that hops jobs request. ``problems``: servers that do not answer, and what
    is unknown meanwhile. ``several_blocks``: what Slurm allows across several blocks.
    """

    now: float
    nodes: tuple[NodeReading, ...]
    jobs: tuple[JobReading, ...]
    slurm_version: str = ""
    memory: SiteMemory = SiteMemory()
    other_holders: tuple[Holder, ...] = ()
    site: SiteRules = NO_RULES
    partition_memory: Mapping[str, SiteMemory] = field(default_factory=dict)
    licences: Mapping[str, Licence] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    several_blocks: SeveralBlocks = SeveralBlocks.ANY

    def memory_of(self, job: JobReading) -> SiteMemory:
        """Return the memory defaults of the job's first partition."""
        return self.memory_in(job.partition.split(",")[0])

    def memory_in(self, partition: str) -> SiteMemory:
        """Return the memory defaults of a partition."""
        return self.partition_memory.get(partition, self.memory)
