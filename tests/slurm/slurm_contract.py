"""Steps and checks that the contract tests share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from examples.demo.cluster import PrivateCluster
from hopsd.errors import SlurmError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

SETTINGS = ApplySettings(
    grace_seconds=20.0, stop_timeout_seconds=60.0, start_timeout_seconds=60.0, poll_seconds=0.1
)
"""Time-outs that even a busy machine keeps; a test does not wait for them if it ends sooner."""


def make_adapter(name: str, cluster: PrivateCluster) -> Adapter:
    if name == "scontrol":
        return ScontrolAdapter(cluster.commands())
    from hopsd.slurm.pyslurm_adapter import PyslurmAdapter  # noqa: PLC0415

    try:
        return PyslurmAdapter(cluster.commands())
    except SlurmError as error:
        pytest.skip(str(error))


def start(job: JobId, **gpus: int) -> Step:
    return Step(job, StepKind.START, target=Allocation.of(gpus))


def move(job: JobId, **gpus: int) -> Step:
    return Step(job, StepKind.MOVE, target=Allocation.of(gpus))


def preempt(job: JobId) -> Step:
    return Step(job, StepKind.PREEMPT)


def hold(job: JobId) -> Step:
    return Step(job, StepKind.HOLD)


def reading(adapter: Adapter | SlurmPort, job: JobId) -> JobReading:
    return next(j for j in adapter.read().jobs if j.id == job)


def statuses(outcomes: Sequence[StepOutcome]) -> list[OutcomeStatus]:
    return [outcome.status for outcome in outcomes]


def assert_runs_as_planned(port: SlurmPort, outcomes: Sequence[StepOutcome]) -> None:
    """Every outcome is DONE with its target, and Slurm says the same, GPU by GPU."""
    jobs = {job.id: job for job in port.read().jobs}
    used_gpus: set[tuple[str, int]] = set()
    for outcome in outcomes:
        assert outcome.status is OutcomeStatus.DONE, outcome
        assert outcome.actual == outcome.step.target
        job = jobs[outcome.step.job]
        assert job.allocation == outcome.step.target
        indices = {(node, i) for node, ids in job.gpu_indices.items() for i in ids}
        assert len(indices) == job.allocation.gpus
        assert used_gpus.isdisjoint(indices)
        used_gpus |= indices
