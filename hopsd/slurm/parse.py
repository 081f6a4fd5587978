"""Parses the output of Slurm's commands into a reading.

Jobs come from ``squeue --json``: users choose names, comments and paths, and in the text of
``scontrol show job`` a newline in a comment can pretend to be another job. Nodes come from
``scontrol show node -o``, which only administrators influence and whose form has not changed
since 22.05. The text that is polled between two readings contains nothing that users wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from hopsd.core.submission.comment import is_ours
from hopsd.core.submission.nodelist import node_names
from hopsd.core.submission.options_text import read_script_options
from hopsd.core.submission.placement_rules import gres_count
from hopsd.errors import SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import NO_TASKS, GpuType, JobId, NodeName, Tasks, UserName, part_of
from hopsd.model.isolation import describe_error
from hopsd.model.reading import (
    NO_ARRAY,
    PARTITIONS_MARK,
    RELEASED_MARK,
    TIME_MARK,
    USER_HOLD_BEGIN,
    Hold,
    JobReading,
    NodeReading,
    SlurmState,
    ended_in_profile,
    split_marks,
)
from hopsd.model.site import Holder, ResourceKind, kind_of_type
from hopsd.slurm.mixed import parts
from hopsd.slurm.ordering.dependency import KnownJob, KnownJobs, dependency_text, is_stranded, unmet
from hopsd.slurm.ordering.job_arrays import as_task, task_id

UNTYPED_GPU = "gpu"

UNNAMED_RESERVATION = "?"
"""The name of a reservation known only from the state of its nodes."""

UNREGISTERED_TEXT = " (slurmd has not registered)"
"""Marks a node that takes no job for a moment after a restart of slurmctld."""

# slurmctld lets a requeued job begin only when its old credential has expired: after 120 s by
# default, plus a second (22.05, 24.11, 26.05). This is not the user's own begin time.
_REQUEUE_DELAY_SECONDS = 125
_CREDENTIAL_SECONDS = 119

_PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_RUNNING = frozenset({"RUNNING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"})
_STATES: Mapping[str, SlurmState] = {
    **dict.fromkeys(_PENDING, SlurmState.PENDING),
    **dict.fromkeys(_RUNNING, SlurmState.RUNNING),
    "BOOT_FAIL": SlurmState.FAILED,
    "DEADLINE": SlurmState.TIMEOUT,
    "LAUNCH_FAILED": SlurmState.FAILED,
    "OUT_OF_MEMORY": SlurmState.FAILED,
    "PREEMPTED": SlurmState.CANCELLED,
    "REVOKED": SlurmState.CANCELLED,
}
_HOLDING_GPUS = frozenset(
    {SlurmState.RUNNING, SlurmState.COMPLETING, SlurmState.SUSPENDED, SlurmState.OTHER}
)
_NODE_STATES = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_HARMLESS_FLAGS = frozenset(
    {"CLOUD", "COMPLETING", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "PLANNED", "RESERVED"}
)
_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_UP"})
"""States of a cloud or power-saving node that Slurm wakes up for a job placed on it."""

_GPU = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::([^:(),=]+))?[:=](\d+)(?:\((?:IDX:)?([^)]*)\))?")
_FIELD = re.compile(r"(\w+)=(\S*)")


def number(value: Any) -> float | None:
    """Read a JSON number of either schema: plain (22.05) or ``{set, infinite, number}``."""
    if isinstance(value, dict):  # not Mapping, which is slower: this runs twenty times per job
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def state_words(job: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of the job's state, in either schema."""
    words = job.get("job_state") or ()
    return (words,) if isinstance(words, str) else tuple(words)


@lru_cache(maxsize=1000)
def slurm_state(words: tuple[str, ...]) -> SlurmState:
    """The state to act on: a job that still cleans up is COMPLETING, whatever its next state."""
    states = set(words)
    if "COMPLETING" in states:
        return SlurmState.COMPLETING
    for word in sorted(states, key=lambda w: w not in _PENDING - {"PENDING"}):
        if word in _STATES:
            return _STATES[word]
        if word in SlurmState.__members__:
            return SlurmState[word]
    return SlurmState.OTHER


def job_allocation(
    job: Mapping[str, Any], order: Mapping[NodeName, int]
) -> dict[NodeName, tuple[int, tuple[int, ...]]]:
    """Return the job's GPU count and indices by node; ``gres_detail`` follows the node table."""
    names = node_names(job.get("nodes") or "")
    nodes = sorted(names, key=lambda n: (order.get(n, len(order)), n))
    details = job.get("gres_detail") or ()
    parts: dict[NodeName, tuple[int, tuple[int, ...]]] = {}
    for node, detail in zip(nodes, details, strict=False):
        for kind, count, ids in gpus_in(detail):
            part = part_of(node, GpuType(kind))
            name = part if part in order else node
            gpus, before = parts.get(name, (0, ()))
            parts[name] = gpus + count, before + ids
    return {name: devices for name, devices in parts.items() if devices[0] or name in names}


def gpus_in(text: str) -> list[tuple[str, int, tuple[int, ...]]]:
    """Parse type, count and indices of ``gpu:rtx3090:4(IDX:0-2,5)``; other GRES are left out."""
    return [
        (kind or UNTYPED_GPU, int(count), _indices(ids))
        for kind, count, ids in _GPU.findall(text or "")
    ]


def _indices(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[\d,-]+", text):
        return ()
    ranges = (part.partition("-") for part in text.split(",") if part)
    return tuple(i for first, _, last in ranges for i in range(int(first), int(last or first) + 1))


def is_hops_job(job: Mapping[str, Any]) -> bool:
    """Whether hops schedules the job.

    It never schedules a heterogeneous job: one job id would stand for several shapes.
    """
    return is_ours(job.get("comment") or "") and not number(job.get("het_job_id"))


def array_of(job: Mapping[str, Any]) -> tuple[JobId, int | None, Tasks | None]:
    """Return the array that a job belongs to ("" if none), and the job's task number or, for the
    array's record, the numbers of all tasks that are not jobs of their own yet.
    """
    array, task = number(job.get("array_job_id")), number(job.get("array_task_id"))
    text = job.get("array_task_string") or ""
    if not array or (task is None and not text):
        return NO_ARRAY, None, None
    array_id = JobId(str(int(array)))
    return (array_id, None, Tasks.parse(text)) if task is None else (array_id, int(task), None)


def holds_gpus(job: Mapping[str, Any]) -> bool:
    """Whether the job holds GPUs now."""
    return slurm_state(state_words(job)) in _HOLDING_GPUS


def holder(job: Mapping[str, Any], order: Mapping[NodeName, int]) -> Holder:
    """Read a running job that hops does not schedule."""
    return Holder(
        id=JobId(str(job.get("job_id"))),
        user=UserName(job.get("user_name") or str(job.get("user_id"))),
        account=job.get("account") or "",
        qos=job.get("qos") or "",
        partition=job.get("partition") or "",
        gpus=sum(gpus for gpus, _ in job_allocation(job, order).values()),
        cpus=int(number(job.get("cpus")) or 0),
        tres=tres(job.get("tres_alloc_str") or ""),
        time_limit_seconds=minutes * 60 if (minutes := number(job.get("time_limit"))) else None,
        start=number(job.get("start_time")) or 0.0,
    )


_KINDS: Mapping[str, str] = {
    "gres/gpu": ResourceKind.GPUS,
    "cpu": ResourceKind.CPUS,
    "mem": ResourceKind.MEMORY,
    "node": ResourceKind.NODES,
    "billing": ResourceKind.BILLING,
}
_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


def kind_of(name: str) -> str | None:
    """The kind of resource that Slurm's TRES name stands for; None if hops does not count it."""
    base, _, gpu_type = name.partition(":")
    return kind_of_type(gpu_type) if base == "gres/gpu" and gpu_type else _KINDS.get(name)


def tres(text: str) -> dict[str, int]:
    """Parse ``cpu=4,mem=1.50G,gres/gpu:a100=2`` into amounts by kind; memory is in MB."""
    amounts = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        kind = kind_of(name)
        amount = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", value)
        if kind is not None and amount is not None:
            amounts[kind] = int(float(amount[1]) * (_MB[amount[2]] if amount[2] else 1))
    return amounts


def licences(text: str) -> dict[str, int]:
    """Parse a job's licences, ``matlab:2,ansys``, with 1 as the default count.

    Alternatives (``a|b``) are not counted.
    """
    if not text or "|" in text:
        return {}
    items = (item.partition(":") for item in text.split(","))
    return {name: int(count) if count.isdigit() else 1 for name, _, count in items if name}


def known_jobs(jobs: Iterable[Mapping[str, Any]]) -> KnownJobs:
    """Index every job of an answer, for checking dependencies."""
    return KnownJobs(map(_known_job, jobs))


def _known_job(job: Mapping[str, Any]) -> KnownJob:
    user = job.get("user_name") or str(job.get("user_id"))
    state, marks = slurm_state(state_words(job)), split_marks(job.get("comment") or "")[1]
    if ended_in_profile(state, marks, requeue=bool(job.get("requeue", True))):
        state = SlurmState.PENDING
    is_hops = is_hops_job(job) and RELEASED_MARK not in marks.split()
    array, task, remaining = array_of(job)
    return KnownJob(
        id=int(number(job.get("job_id")) or 0),
        user=user,
        name=job.get("name") or "",
        state=state,
        dependency=None if is_hops else job.get("dependency"),
        array=int(array or 0),
        task=task,
        rest=remaining or NO_TASKS,
    )


def job_reading(
    job: Mapping[str, Any], order: Mapping[NodeName, int], known_jobs: KnownJobs
) -> JobReading:
    """Parse one job of ``squeue --json``; ``known_jobs`` are all jobs of the same answer.

    An array's record becomes one reading, with the tasks that are not jobs yet in ``rest``.

    Raises:
        SlurmError: the job has no id, so this release's JSON is not understood.
    """
    if number(job.get("job_id")) is None:
        raise SlurmError("squeue --json: a job without job_id; unknown JSON of this Slurm release")
    words = state_words(job)
    state = slurm_state(words)
    parts = job_allocation(job, order) if state in _HOLDING_GPUS else {}
    gpus_by_node = {node: gpus for node, (gpus, _) in parts.items()}
    is_over = state.finished or state is SlurmState.COMPLETING
    options = read_script_options(job.get("admin_comment") or "")
    code, signal = _exit(job.get("exit_code"))
    comment, marks = split_marks(job.get("comment") or "")
    minutes = _minutes(number(job.get("time_limit")), state, marks)
    array, task, remaining = array_of(job)
    job_id, known_job = JobId(str(job["job_id"])), _known_job(job)
    return JobReading(
        id=job_id if task is None else task_id(array, task),
        user=UserName(job.get("user_name") or str(job.get("user_id"))),
        uid=int(number(job.get("user_id")) or 0),
        name=job.get("name") or "",
        comment=comment,
        partition=_partitions(job.get("partition") or "", state, marks),
        state=state,
        submit=number(job.get("submit_time")) or 0.0,
        hold=_hold(job, state),
        dependency=unmet(job.get("dependency"), known_job, known_jobs),
        is_stranded=is_stranded(job.get("dependency"), known_job, known_jobs),
        waits_for=dependency_text(job.get("dependency")),
        begin=_begin(job, state),
        requeued_held=_requeued_held(job, words),
        launch_failed=state is SlurmState.PENDING
        and (job.get("state_description") or "").startswith(_LAUNCH_FAILED),
        start=(number(job.get("start_time")) or 0.0) if state is not SlurmState.PENDING else 0.0,
        end=(number(job.get("end_time")) or 0.0) if state.finished else 0.0,
        time_limit_seconds=minutes * 60 if minutes else None,
        deadline=number(job.get("deadline")) or 0.0,
        restarts=int(number(job.get("restart_cnt")) or 0),
        requeue=bool(job.get("requeue", True)),
        allocation=Allocation.of(
            _wanted_gpus(job, gpus_by_node) if options.exclusive else gpus_by_node
        ),
        gpu_indices={node: ids for node, (_, ids) in parts.items() if ids},
        exit_code=code,
        exit_signal=signal,
        command=job.get("command") or "",
        marks=marks,
        state_text=_state_text(words, job),
        reason=_reason(job) if state is SlurmState.PENDING else "",
        ran_on=node_names(job.get("nodes") or "") if is_over else (),
        per_job_gpus="gpu" in (job.get("tres_per_job") or "") and _has_more(job),
        options=options,
        features=job.get("features") or "",
        excluded_nodes=frozenset(node_names(job.get("excluded_nodes") or "")),
        reservation=job.get("resv_name") or "",
        memory_mb_per_node=_megabytes(job.get("memory_per_node")),
        memory_mb_per_cpu=_megabytes(job.get("memory_per_cpu")),
        account=job.get("account") or "",
        qos=job.get("qos") or "",
        licences=licences(job.get("licenses") or ""),
        tres=tres(job.get("tres_alloc_str") or "") if gpus_by_node else {},
        number="" if remaining else job_id,
        array=array if remaining is None else NO_ARRAY,
        task_limit=int(number(job.get("array_max_tasks")) or 0),
        rest=remaining,
    )


_OF_SLURM = (
    "job_id", "job_state", "user_id", "user_name", "comment", "partition", "priority", "requeue",
    "submit_time", "eligible_time", "start_time", "end_time", "restart_cnt", "nodes", "gres_detail",
    "array_job_id", "array_task_id", "array_task_string", "array_max_tasks",
)  # fmt: skip
"""The fields that Slurm fills in itself, and the comment."""


def isolated_reading(
    job: Mapping[str, Any], order: Mapping[NodeName, int], known_jobs: KnownJobs
) -> JobReading:
    """As :func:`job_reading`; if a user's text makes that raise, read only Slurm's own fields."""
    try:
        return job_reading(job, order, known_jobs)
    except SlurmError:
        raise
    except Exception as defect:  # one job must not keep the others from being read
        bare = job_reading({key: job[key] for key in _OF_SLURM if key in job}, order, known_jobs)
        text = f"set aside: an option cannot be read, {describe_error(defect)}"
        return replace(bare, bar=text)


_GLANCE_FIELDS = {
    "JobID": "job_id",
    "ArrayJobID": "array_job_id",
    "ArrayTaskID": "array_task_id",
    "State": "job_state",
    "PriorityLong": "priority",
    "RestartCnt": "restart_cnt",
    "SubmitTime": "submit_time",
    "EligibleTime": "eligible_time",
    "Reason": "state_reason",
}
GLANCE = ",".join(f"{field}:|" for field in _GLANCE_FIELDS)
"""The value of ``squeue --Format`` whose output :func:`glance_readings` parses."""


def glance_readings(text: str, jobs: Collection[JobId]) -> dict[JobId, JobReading]:
    """Parse squeue's text about ``jobs``; see :meth:`hopsd.slurm.adapter.Adapter.glance`.

    For some jobs squeue prints a sentence instead of the reason code; these are left out.
    """
    job_ids = set(jobs)
    numbers = {job.partition("_")[0] for job in job_ids}
    glances = {}
    for line in text.splitlines():
        words = line.removesuffix("|").split("|")
        if len(words) != len(_GLANCE_FIELDS) or words[1] not in numbers:
            continue
        job: dict[str, Any] = dict(zip(_GLANCE_FIELDS.values(), words, strict=True))
        for key in ("job_id", "array_job_id", "array_task_id", "priority", "restart_cnt"):
            job[key] = int(job[key]) if job[key].isdecimal() else None
        for key in ("submit_time", "eligible_time"):
            job[key] = _local_time(job[key])
        reading = job_reading(job, {}, KnownJobs(()))
        has_reason = reading.state is not SlurmState.PENDING or words[-1].isalnum()
        if reading.id in job_ids and has_reason:
            glances[reading.id] = reading
    return glances


def _local_time(text: str) -> float | None:
    """Parse a local time as Slurm's commands print it; None for N/A."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def task_reading(record: JobReading, task: int, known_jobs: KnownJobs) -> JobReading:
    """Make a job of a task of an array's ``record``, with the task's own dependencies."""
    job = as_task(record, task)
    if "aftercorr" not in record.waits_for:  # all tasks wait for the same thing
        return job
    known_job = KnownJob(0, job.user, job.name, job.state, array=int(record.id), task=task)
    dependency = record.waits_for
    return replace(
        job,
        dependency=unmet(dependency, known_job, known_jobs),
        is_stranded=is_stranded(dependency, known_job, known_jobs),
    )


def _megabytes(value: Any) -> int | None:
    megabytes = number(value)
    return int(megabytes) if megabytes else None


def _has_more(job: Mapping[str, Any]) -> bool:
    """Whether the job requests nodes or cores besides GPUs, by its placement or its submission."""
    return bool(job.get("required_nodes")) or (number(job.get("cpus")) or 1) > 1


def _partitions(partition: str, state: SlurmState, marks: str) -> str:
    """The partition that a job runs in. While it waits, all that its owner asked for: hopsd may
    have left some out when it placed the job.
    """
    for word in marks.split() if state is SlurmState.PENDING else ():
        name, _, value = word.partition("=")
        original, _, current = value.partition(">")
        if name == PARTITIONS_MARK and current == partition:
            return original
    return partition


def _minutes(limit: float | None, state: SlurmState, marks: str) -> float | None:
    """The time limit (minutes) that a job runs with. While it waits, the one that its owner asked
    for: hopsd may have placed it with a shorter one.
    """
    for word in marks.split() if state is SlurmState.PENDING else ():
        name, _, value = word.partition("=")
        original, _, current = value.partition(">")
        if name == TIME_MARK and original.isdecimal() and current == f"{limit or 0:.0f}":
            return float(original)
    return limit


def _wanted_gpus(
    job: Mapping[str, Any], gpus_by_node: Mapping[NodeName, int]
) -> dict[NodeName, int]:
    """The GPUs that an exclusive job asks for: its steps get these, the job all of its nodes'."""
    requested_gpus = sum(count for _, count, _ in gpus_in(job.get("tres_per_node") or ""))
    return {node: min(gpus, requested_gpus or gpus) for node, gpus in gpus_by_node.items()}


def is_held(job: Mapping[str, Any]) -> bool:
    """Whether the job waits and is held, by whomever."""
    return _hold(job, slurm_state(state_words(job))) is not Hold.NONE


def _hold(job: Mapping[str, Any], state: SlurmState) -> Hold:
    if state is not SlurmState.PENDING or number(job.get("priority")):
        return Hold.NONE
    begin = number(job.get("eligible_time")) or 0.0
    return Hold.USER if begin >= USER_HOLD_BEGIN else Hold.HOPS


def _reason(job: Mapping[str, Any]) -> str:
    reason = str(job.get("state_reason") or "None")
    return "" if reason == "None" else reason


def _state_text(words: Sequence[str], job: Mapping[str, Any]) -> str:
    reason = _reason(job) if "PENDING" in words else ""
    return "+".join(words) + (f" ({reason})" if reason else "")


def _begin(job: Mapping[str, Any], state: SlurmState) -> float:
    begin = number(job.get("eligible_time")) or 0.0
    submit = number(job.get("submit_time")) or 0.0
    was_requeued = bool(number(job.get("restart_cnt"))) and begin - submit <= _REQUEUE_DELAY_SECONDS
    return begin if state is SlurmState.PENDING and begin > submit and not was_requeued else 0.0


_LAUNCH_FAILED = "launch failed"
"""How slurmctld describes such a job: "launch failed requeued held" (22.05)."""


def _requeued_held(job: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Whether the job waits as `scontrol requeuehold` left it. SPECIAL_EXIT means RequeueExitHold:
    the script itself asked to be started again.
    """
    delay = (number(job.get("eligible_time")) or 0.0) - (number(job.get("submit_time")) or 0.0)
    return (
        slurm_state(words) is SlurmState.PENDING
        and "SPECIAL_EXIT" not in words
        and number(job.get("priority")) == 0
        and _reason(job) == "JobHeldUser"
        and bool(number(job.get("restart_cnt")))
        and _CREDENTIAL_SECONDS <= delay <= _REQUEUE_DELAY_SECONDS
    )


def _exit(value: Any) -> tuple[int, int]:
    """Parse exit code and signal from a wait status (22.05) or ``{return_code, signal}``."""
    if isinstance(value, Mapping) and "return_code" in value:
        signal = (value.get("signal") or {}).get("id", value.get("signal", {}).get("signal_id"))
        return int(number(value["return_code"]) or 0), int(number(signal) or 0)
    status = int(number(value) or 0)
    return status >> 8, status & 0x7F


def records(text: str) -> list[Mapping[str, str]]:
    """Parse the fields of each line of ``scontrol show -o``; the first of duplicate keys counts."""
    return [dict(reversed(_FIELD.findall(line))) for line in text.splitlines()]


def closed_partitions(records: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Partitions in which Slurm starts no job, with their state; a draining one is not closed."""
    return {
        fields["PartitionName"]: fields["State"]
        for fields in records
        if fields.get("State") in ("DOWN", "INACTIVE") and "PartitionName" in fields
    }


def bar_reason(partition: str, closed_partitions: Mapping[str, str]) -> str:
    """Why Slurm starts no job that asks for ``partition`` (such as ``a,b``); empty if it may."""
    partitions = partition.split(",")
    if not all(name in closed_partitions for name in partitions):
        return ""
    states = " and ".join(f"partition {name} is {closed_partitions[name]}" for name in partitions)
    return f"{states}: Slurm starts none of its jobs"


def node_readings(
    records: Iterable[Mapping[str, str]],
    partitions: Sequence[str],
    closed_partitions: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[NodeReading], list[NodeName]]:
    """Return the GPU nodes among ``records`` and the names of all nodes, in the records' order.

    Empty ``partitions`` means nodes of all partitions. A node counts as being in those of its
    partitions among ``partitions`` that are not closed: hops would lose sight of a job in another.
    """
    readings, names = [], []
    for fields in records:
        if "NodeName" not in fields:
            continue
        names.append(NodeName(fields["NodeName"]))
        gpus = gpus_in(fields.get("Gres", ""))
        node_partitions = fields.get("Partitions", "").split(",")
        served_partitions = [
            name for name in node_partitions if not partitions or name in partitions
        ]
        if gpus and (served_partitions or not partitions):
            readings += _nodes(
                {**fields, "Partitions": ",".join(served_partitions)}, gpus, closed_partitions
            )
    return readings, names


def _nodes(
    fields: Mapping[str, str],
    gpus: Sequence[tuple[str, int, tuple[int, ...]]],
    closed_partitions: Mapping[str, str],
) -> list[NodeReading]:
    """Return the node, once for each of its GPU types."""
    counts: Counter[GpuType] = Counter()
    for kind, count, _ in gpus:
        counts[GpuType(kind)] += count
    node = _node(fields, counts, closed_partitions)
    return [node] if len(counts) == 1 or UNTYPED_GPU in counts else parts(node, counts)


def _node(
    fields: Mapping[str, str], counts: Mapping[GpuType, int], closed_partitions: Mapping[str, str]
) -> NodeReading:
    state = fields.get("State", "UNKNOWN")
    base, *flags = state.split("+")
    is_unnamed = len(counts) > 1 and UNTYPED_GPU in counts
    node_partitions = tuple(filter(None, fields.get("Partitions", "").split(",")))
    partitions = tuple(name for name in node_partitions if name not in closed_partitions)
    # After a restart slurmctld takes a node with a job on it to be up. Until its slurmd registers,
    # a job placed there starts without GPUs (22.05).
    asleep = not _ASLEEP.isdisjoint(flags)
    is_registered = fields.get("SlurmdStartTime") not in ("None", "Unknown") or asleep
    if is_unnamed:
        state += " (GPUs with and without a type on one node)"
    if not node_partitions:
        state += " (in no partition)"
    elif not partitions:
        closures = (f"partition {name} {closed_partitions[name]}" for name in node_partitions)
        state += f" ({', '.join(closures)})"
    if not is_registered and base in _NODE_STATES:
        state += UNREGISTERED_TEXT
    usable = (
        base in _NODE_STATES and (_HARMLESS_FLAGS | _ASLEEP).issuperset(flags) and is_registered
    )
    return NodeReading(
        name=NodeName(fields["NodeName"]),
        gpu_type=min(counts),
        gpus=sum(counts.values()),
        cores=int(fields.get("CPUEfctv") or fields.get("CPUTot", "0")),
        usable=usable and not is_unnamed and bool(partitions),
        state_text=state,
        partitions=partitions,
        threads=int(fields.get("ThreadsPerCore", "1")),
        idle_cores=_difference(
            fields.get("CPUEfctv") or fields.get("CPUTot"), fields.get("CPUAlloc")
        ),
        memory_mb=_digits(fields.get("RealMemory")),
        idle_memory_mb=_difference(fields.get("RealMemory"), fields.get("AllocMem")),
        features=frozenset(_words(fields.get("ActiveFeatures"))),
        gres=_other_gres(fields.get("Gres", "")),
        reservation=UNNAMED_RESERVATION if "RESERVED" in flags else "",
        disk_mb=_digits(fields.get("TmpDisk")) or 0,
    )


def _words(text: str | None) -> list[str]:
    return [] if text in (None, "", "(null)") else str(text).split(",")


def _digits(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _difference(total: str | None, in_use: str | None) -> int | None:
    total_digits, part = _digits(total), _digits(in_use)
    return None if total_digits is None or part is None else max(0, total_digits - part)


def _other_gres(text: str) -> dict[str, int]:
    """Parse ``gpu:a100:8(S:0),VRAM:40G,nvme:1000``, without the GPUs."""
    counts: dict[str, int] = {}
    for item in _words(re.sub(r"\([^)]*\)", "", text)):
        name, *details = item.split(":")
        if name != "gpu" and details:
            counts[name] = counts.get(name, 0) + gres_count(details[-1])
    return counts
