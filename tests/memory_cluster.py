"""A cluster in memory behind the port, and jobs submitted to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from memory_store import MemoryStore

from hopsd.errors import SlurmUnavailableError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.site import NO_RULES, Holder, SiteRules
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.slurm.port import InstantPort

A100 = GpuType("a100")
NODES = tuple(NodeReading(NodeName(f"n{i}"), A100, 4, cores=16) for i in range(3))
TABLE = ThroughputTable({1: 100.0, 4: 90.0}, {2: 80.0})


@dataclass
class Cluster(InstantPort):
    """A port that carries out its steps, until it breaks after a number of them."""

    jobs: dict[JobId, JobReading]
    now: float = 1000.0
    nodes: tuple[NodeReading, ...] = NODES
    breaks_after: int | None = None
    never: set[JobId] = field(default_factory=set)
    started: list[tuple[JobId, Allocation]] = field(default_factory=list)
    name: str = "memory"
    site: SiteRules = NO_RULES
    other_holders: tuple[Holder, ...] = ()

    def read(self) -> Reading:
        jobs = tuple(self.jobs.values())
        return Reading(
            self.now, self.nodes, jobs, "22.05.8", site=self.site, other_holders=self.other_holders
        )

    def apply(self, steps: Sequence[Step]) -> Sequence[StepOutcome]:
        vacating_steps = [replace(s, target=Allocation()) for s in steps if s.current]
        placing_steps = [s for s in steps if s.target]
        holding_steps = [s for s in steps if s.kind in (StepKind.HOLD, StepKind.REQUEUE)]
        for step_number, step in enumerate([*vacating_steps, *holding_steps, *placing_steps]):
            if self.breaks_after is not None and step_number >= self.breaks_after:
                raise SlurmUnavailableError("slurmctld does not answer")
            if step.job not in self.never:
                self._do(step)
        return [
            StepOutcome(s, OutcomeStatus.FAILED, error="BadConstraints", started=self.now)
            if s.job in self.never
            else StepOutcome(s, OutcomeStatus.DONE, self.jobs[s.job].allocation, started=self.now)
            for s in steps
        ]

    def _do(self, step: Step) -> None:
        job = self.jobs[step.job]
        if not step.target:
            restarts = job.restarts + bool(job.allocation)
            job = replace(job, restarts=restarts, allocation=Allocation(), hold=Hold.HOPS)
            self.jobs[step.job] = replace(job, state=SlurmState.PENDING)
            return
        assert job.state is SlurmState.PENDING, f"{job.id} was started twice"
        assert self._fits(step.target), f"{job.id} over-allocates {step.target}"
        self.started.append((step.job, step.target))
        self.jobs[step.job] = replace(
            job,
            state=SlurmState.RUNNING,
            hold=Hold.NONE,
            allocation=step.target,
            start=self.now,
        )

    def _fits(self, target: Allocation) -> bool:
        return all(
            sum(job.allocation.on(node) for job in self.jobs.values()) + gpus <= 4
            for node, gpus in target
        )

    def placements(self) -> dict[JobId, Allocation]:
        return {job.id: job.allocation for job in self.jobs.values() if job.allocation}


def submission(number: int, comment: str, submit: float = 900.0) -> JobReading:
    return JobReading(
        id=JobId(str(number)),
        user=UserName("ann"),
        uid=1000,
        name="train",
        comment=comment,
        partition="main",
        state=SlurmState.PENDING,
        submit=submit,
        hold=Hold.HOPS,
        time_limit_seconds=3600.0,
    )


def cluster(*comments: str) -> Cluster:
    jobs = [submission(i, c, 900.0 + i) for i, c in enumerate(comments, start=1)]
    return Cluster({job.id: job for job in jobs})


def store() -> MemoryStore:
    return MemoryStore(tables={WorkloadName("w"): {A100: TABLE}})


def comment(*reqs: int, extra: str = "") -> str:
    return f"hops:reqs={','.join(map(str, reqs))};workload=w{extra}"
