"""SRPT as in the AlloX paper (section 5.1.1), a reference with preemption at no cost.

At any time the job and device type with the shortest remaining run time come first. With one type,
no schedule has a lower mean completion time; with several, SRPT is a greedy rule and not a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hopsd.core.queue.competing import competes, idle_gpus
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.allox.machines import WorkAndMachines
from hopsd.policies.allox.policy import plan_of


@dataclass(frozen=True, slots=True)
class Srpt:
    """SRPT. In simulations every plan is a first one and may preempt (``every_first``)."""

    every_first: ClassVar[bool] = True

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:  # noqa: ARG002
        present = {job.id: job.running for job in snapshot.jobs if job.running}
        situation = WorkAndMachines(_as_waiting(snapshot))
        work, machines = situation.work, situation.machines
        placements: dict[JobId, Allocation] = {}
        assignment = _shortest(situation)
        types = {node.name: node.gpu_type for node in snapshot.nodes}
        stay = {
            job: kind
            for job, kind in assignment.items()
            if work.jobs[job].id in present
            and types[present[work.jobs[job].id].nodes[0]] == work.types[kind]
        }
        for job, kind in stay.items():
            placements[work.jobs[job].id] = machines.keep(kind, present[work.jobs[job].id])
        for job, kind in assignment.items():
            if job not in stay:
                start, parts = machines.earliest(kind, int(work.gpus[job]))
                if start <= machines.now:
                    end = machines.now + float(work.seconds[job, kind])
                    placements[work.jobs[job].id] = machines.start(kind, parts, end)
        return plan_of(situation, placements, {})


def _as_waiting(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which jobs that may be moved hold nothing."""
    first = snapshot.round.first
    return replace(
        snapshot,
        nodes=tuple(
            replace(node, idle=idle)
            for node, idle in zip(snapshot.nodes, idle_gpus(snapshot), strict=True)
        ),
        jobs=tuple(
            replace(job, running=Allocation()) if competes(job, first=first) else job
            for job in snapshot.jobs
        ),
    )


def _shortest(situation: WorkAndMachines) -> dict[int, int]:
    """Assign jobs to types by remaining run time until no devices are left."""
    work = situation.work
    unclaimed_gpus = [situation.machines.unclaimed_devices(kind) for kind in range(len(work.types))]
    assignment: dict[int, int] = {}
    for flat in np.argsort(work.seconds, axis=None, kind="stable").tolist():
        job, kind = divmod(flat, len(work.types))
        if job not in assignment and work.gpus[job] <= unclaimed_gpus[kind]:
            if not np.isfinite(work.seconds[job, kind]):
                break
            assignment[job] = kind
            unclaimed_gpus[kind] -= int(work.gpus[job])
    return assignment


plan = Srpt()
