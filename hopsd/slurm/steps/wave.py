"""Decides which planned starts can be released together, and the results of those that cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.reading import Reading
from hopsd.model.step import OutcomeStatus, Step
from hopsd.slurm.shape import fill_nodes, fits, free_gpus


@dataclass(frozen=True, slots=True)
class StartResult:
    """The result for one job; ``actual`` was read back from Slurm. See :class:`StepOutcome`."""

    status: OutcomeStatus
    actual: Allocation = field(default_factory=Allocation)
    error: str = ""
    started: float = 0.0
    reason: str = ""
    ran: Allocation = field(default_factory=Allocation)
    warned: float = 0.0


def usable_gpus(reading: Reading) -> dict[NodeName, int]:
    """The GPUs that Slurm would allocate now on each usable node, in the cluster's node order."""
    free = free_gpus((node for node in reading.nodes if node.usable), reading.jobs)
    return free | {node.name: 0 for node in reading.nodes if node.completing and node.name in free}


def startable_together(
    steps: Iterable[Step], free: Mapping[NodeName, int], under_way: Sequence[Allocation] = ()
) -> list[Step]:
    """Choose the steps that can start together now, besides those ``under_way``.

    Uneven shapes depend on the GPUs that are free on their nodes at that moment: while one starts,
    no other job starts on its nodes.
    """
    remaining, place = dict(free), {node: position for position, node in enumerate(free)}
    for target in under_way:
        for node, gpus in target:
            remaining[node] = remaining.get(node, 0) - gpus
    busy_nodes = {node for target in under_way for node in target.nodes}
    filling = {node for target in under_way if not target.even for node in target.nodes}
    wave = []
    for step in steps:
        target = step.target
        if target.even and fits(remaining, target) and filling.isdisjoint(target.nodes):
            wave.append(step)
            busy_nodes.update(target.nodes)
            for node, gpus in target:
                remaining[node] -= gpus
        elif (
            not target.even
            and busy_nodes.isdisjoint(target.nodes)
            and _is_filled(free, place, target)
        ):
            wave.append(step)
            busy_nodes.update(target.nodes)
            filling.update(target.nodes)
    return wave


def _is_filled(
    free: Mapping[NodeName, int], place: Mapping[NodeName, int], target: Allocation
) -> bool:
    """Whether Slurm's own way of filling nodes gives exactly ``target``. ``place`` has each node's
    position in the cluster's order.
    """
    if not place.keys() >= set(target.nodes):
        return False
    return fill_nodes(free, sorted(target.nodes, key=place.__getitem__), target.gpus) == target


def unstartable(
    waiting: Iterable[Step],
    results: Mapping[JobId, StartResult],
    targets: Mapping[JobId, Allocation],
    free: Mapping[NodeName, int],
) -> dict[JobId, StartResult]:
    """Return the results of steps that cannot start although nothing is under way.

    Steps are put off rather than failed if other jobs did not start: the GPUs of those are free
    now, and Slurm would fill the nodes otherwise than planned.
    """
    if any(result.status is OutcomeStatus.PUT_OFF for result in results.values()):
        return {step.job: put_off(step.target) for step in waiting}
    missing = [job for job, result in results.items() if result.status is not OutcomeStatus.DONE]
    nodes = {node for job in missing for node in targets[job].nodes}
    remaining_steps = {step.job: step for step in waiting}
    postponements: dict[JobId, StartResult] = {}
    while put_off_steps := [
        step
        for step in remaining_steps.values()
        if fits(free, step.target) and not nodes.isdisjoint(step.target.nodes)
    ]:
        for step in put_off_steps:
            del remaining_steps[step.job]
            nodes.update(step.target.nodes)
            postponements[step.job] = put_off(step.target, "other jobs on its nodes did not start")
    return postponements | {job: _no_room(step, free) for job, step in remaining_steps.items()}


def _no_room(step: Step, free: Mapping[NodeName, int]) -> StartResult:
    idle_text = ", ".join(f"{node}:{free.get(node, 0)}" for node in step.target.nodes)
    cause = "not free" if not fits(free, step.target) else "not what Slurm would allocate"
    return StartResult(
        OutcomeStatus.FAILED, error=f"{step.target} is {cause} ({{{idle_text}}}); still held"
    )


def put_off(target: Allocation, cause: str = "Slurm is busy starting other jobs") -> StartResult:
    error = f"its start on {target} is postponed until the next plan: {cause}"
    return StartResult(OutcomeStatus.PUT_OFF, error=error)
