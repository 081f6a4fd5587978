"""Steps under way: continued by every tick, resumed after a restart, and considered by plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf

from hopsd.core.queue.history import OCCUPYING_STATES, is_another
from hopsd.core.queue.profile_runs import unstarted_runs
from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import OutcomeStatus, Phase, StepOutcome, Transition
from hopsd.slurm.port import Port
from hopsd.store.port import Store

COMPLETING_SECONDS = 5.0
"""A node that has been cleaning up after a job for longer, as in a long Epilog, counts as busy."""

_READINGS = 3


def carry_on(port: Port, store: Store) -> tuple[StepOutcome, ...]:
    """Continue the steps under way, record their phases and return the outcomes of finished ones.

    Raises:
        SlurmUnavailableError, StoreUnavailableError: :func:`resume` takes up the steps again.
    """
    if not port.under_way:
        return ()
    outcomes = tuple(port.carry_on())
    store.save_transitions(port.under_way)
    if outcomes:
        store.save_outcomes(outcomes)
        store.save_ended_by_signal([outcome.step.job for outcome in outcomes if outcome.warned])
        _close_profile_runs(store, outcomes)
    return outcomes


def _close_profile_runs(store: Store, outcomes: Sequence[StepOutcome]) -> None:
    failure = OutcomeStatus.FAILED
    if any(outcome.step.profiling and outcome.status is failure for outcome in outcomes):
        store.save_profile_runs(unstarted_runs(store.profile_runs(inf), outcomes))


def resume(port: Port, store: Store) -> None:
    """Let the port resume the steps under way when hopsd stopped, lost the lead or was interrupted.

    Steps of jobs whose number Slurm has given to another job in the meantime are dropped.
    """
    port.doubt_requeues()
    transitions = store.transitions()
    records = store.jobs()
    reading = port.read()
    ended_jobs = {
        job.id for job in reading.jobs if job.id in records and is_another(job, records[job.id])
    }
    requeue_jobs = _may_be_requeued(store)
    requeued_jobs = [
        job.id
        for job in reading.jobs
        if job.requeued_held and (job.id in requeue_jobs or _was_requeued(job, records.get(job.id)))
    ]
    port.resume(
        [transition for transition in transitions if transition.step.job not in ended_jobs],
        requeued_jobs,
    )


def _may_be_requeued(store: Store) -> set[JobId]:
    """Return the jobs that the newest plans may have requeued without having seen them wait."""
    interruption, last = store.unfinished_plan(), store.last_plan()
    final = (OutcomeStatus.DONE, OutcomeStatus.UNCHANGED)
    undone = [o.step for o in last.outcomes if o.status not in final] if last is not None else []
    return {
        step.job for step in (*undone, *(interruption[1].steps if interruption is not None else ()))
    }


def _was_requeued(job: JobReading, record: JobRecord | None) -> bool:
    """Whether hops saw the requeue: a person's would have the mark of a hold by now."""
    return record is None or record.restarts >= job.restarts


def read_settled(port: Port, store: Store) -> tuple[Reading, tuple[StepOutcome, ...]]:
    """Read the cluster until no leaving job has ended unnoticed.

    A job that our signal ended is thus requeued before its end is recorded. Returns the reading,
    and the outcomes of the steps that finished in the meantime.
    """
    outcomes: tuple[StepOutcome, ...] = ()
    reading = port.read()
    for _ in range(_READINGS):
        leaving_jobs = {
            transition.step.job for transition in port.under_way if transition.phase.on_nodes
        }
        if not any(job.id in leaving_jobs and job.state.finished for job in reading.jobs):
            break
        outcomes += carry_on(port, store)
        reading = port.read()
    return reading, outcomes


def reasons(transitions: Sequence[Transition]) -> dict[JobId, Reason]:
    """Return the reason that the user of each job under way sees."""
    return {
        transition.step.job: Reason(ReasonCode.LOST_TO_OTHERS, _text(transition))
        for transition in transitions
    }


def _text(transition: Transition) -> str:
    destination = f" to {transition.step.target}" if transition.step.target else ""
    if transition.phase is Phase.LEAVING and transition.signal:
        remaining = max(0.0, transition.grace - transition.seconds)
        return (
            f"hops is moving it{destination}: it was sent {transition.signal} and has"
            f" {remaining:.0f} s to save"
        )
    if transition.phase.on_nodes:
        return f"hops is moving it{destination}: it is leaving its nodes"
    if transition.phase is Phase.STARTING:
        return f"hops has asked Slurm to start it on {transition.step.target}"
    if transition.phase is Phase.DEFERRED:
        return (
            f"Slurm did not start it on {transition.step.target};"
            " hops tries again when other jobs have left"
        )
    return f"hops starts it on {transition.step.target} as soon as other jobs have left"


def planning_reading(
    reading: Reading, transitions: Sequence[Transition], cpus_per_gpu: int = 1
) -> Reading:
    """Return ``reading`` as plans are to see it.

    Jobs under way hold the GPUs that they are to get, and a node that has been completing for long
    has no idle GPUs. GPUs that a job still holds and another is to get count once. A job that moves
    counts on its target. Each GPU that a job is to get comes with ``cpus_per_gpu``, unless the job
    asks for another number.
    """
    if not transitions and not any(node.completing_seconds for node in reading.nodes):
        return reading
    by_job = {entry.step.job: entry for entry in transitions if entry.phase is not Phase.DEFERRED}
    unclaimed_gpus: Counter[NodeName] = Counter()  # GPUs of leaving jobs that others are to get
    for entry in by_job.values():
        if entry.phase is not Phase.STARTING:
            unclaimed_gpus.update(dict(entry.step.target))
    use = _Use()
    jobs = []
    for job in reading.jobs:
        transition = by_job.get(job.id)
        if transition is None or job.state.finished:
            jobs.append(job)
            continue
        target, remaining = transition.step.target, Counter(dict(job.allocation))
        if transition.phase.on_nodes:
            overlap = remaining & unclaimed_gpus
            unclaimed_gpus -= overlap
            use.claimed_of_leaving.update(overlap)
            remaining -= overlap
            if target:
                use.foreign.update(remaining)
        if target != job.allocation:
            use.take(job, target, cpus_per_gpu)
        allocation = target or Allocation.of(dict(remaining))
        jobs.append(replace(job, state=SlurmState.RUNNING, hold=Hold.NONE, allocation=allocation))
    gpus_in_use: Counter[NodeName] = Counter()
    for job in jobs:
        if job.state in OCCUPYING_STATES:
            gpus_in_use.update(dict(job.allocation))
    nodes = tuple(use.apply_to(node, gpus_in_use[node.name]) for node in reading.nodes)
    return replace(reading, nodes=nodes, jobs=tuple(jobs))


@dataclass(slots=True)
class _Use:
    """Resources of each node that jobs under way are to get, beyond those that Slurm allocated."""

    foreign: Counter[NodeName] = field(default_factory=Counter)
    claimed_of_leaving: Counter[NodeName] = field(default_factory=Counter)
    gpus: Counter[NodeName] = field(default_factory=Counter)
    cores: Counter[NodeName] = field(default_factory=Counter)
    memory_mb: Counter[NodeName] = field(default_factory=Counter)

    def take(self, job: JobReading, target: Allocation, cpus_per_gpu: int) -> None:
        cores, memory = (
            job.options.cores_per_gpu or cpus_per_gpu,
            job.options.memory_mb_per_gpu or 0,
        )
        for node, gpus in target:
            self.gpus[node] += gpus
            self.cores[node] += ceil(gpus * cores)
            self.memory_mb[node] += ceil(gpus * memory)

    def apply_to(self, node: NodeReading, gpus: int) -> NodeReading:
        """Return ``node`` without these resources; ``gpus``: the GPUs of hops jobs there."""
        foreign = node.foreign_gpus + self.foreign[node.name]
        if node.completing_seconds > COMPLETING_SECONDS:
            foreign += max(0, node.gpus - foreign - gpus)
        if foreign == node.foreign_gpus and not self.gpus[node.name]:
            return node
        fresh = max(0, self.gpus[node.name] - self.claimed_of_leaving[node.name])
        share = fresh / (self.gpus[node.name] or 1)
        return replace(
            node,
            foreign_gpus=foreign,
            idle_cores=_reduced_amount(node.idle_cores, share * self.cores[node.name]),
            idle_memory_mb=_reduced_amount(node.idle_memory_mb, share * self.memory_mb[node.name]),
        )


def _reduced_amount(idle: int | None, amount: float) -> int | None:
    return None if idle is None else max(0, idle - ceil(amount))
