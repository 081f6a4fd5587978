"""Simulates one case and measures what the paper does: rho, GPU time, and placement score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from bench.saved_runs import read, save
from bench.themis.workload import apps, for_liars, identical, testbed_cluster
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Cluster, Workload, WorkloadJob
from hopsd.policies.protocol import Policy
from hopsd.policies.registry import get
from hopsd.policies.themis.agents import Agent, AppScheduler, Market, Offer, honest
from hopsd.policies.themis.apps import App
from hopsd.policies.themis.finish_time import JobInfo, independent_seconds, share_seconds
from hopsd.policies.themis.policy import Themis
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.metrics import AllocationChange, holds_by_job
from hopsd.sim.speed import AllocationSpeeds
from hopsd.sim.study import play

ROUND_SECONDS = 300.0
APPS = 32
LIAR = JobId("0")
IDENTICAL = 8


@dataclass(frozen=True, slots=True)
class Case:
    """``kind`` of workload (0: identical apps on the liars' cluster); ``lie`` is X, from 0 to 1."""

    policy: str
    kind: int
    seed: int
    contention: int = 1
    filter_share: float = 0.8
    lease: float = 600.0
    network: float = 0.5
    lie: float = 0.0

    @property
    def name(self) -> str:
        return (
            f"{self.policy}-w{self.kind}-x{self.contention}-f{self.filter_share:g}"
            f"-l{self.lease:g}-n{self.network:g}-lie{self.lie:g}-{self.seed}"
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """Results by app in order of arrival: ``rho`` with T_id as eq. 2 prints it, ``rho_share`` with
    exactly 1/N, ``hours`` from submission to end, ``score`` of placement (1 is best). ``gpu_hours``
    is the total of all apps.
    """

    rho: list[float]
    rho_share: list[float]
    hours: list[float]
    score: list[float]
    gpu_hours: float
    makespan_hours: float
    restarts: int
    plan_seconds: list[float]


def load_measurement(case: Case, folder: Path) -> Measurement | None:
    """The saved measurement; None if there is none."""
    document = read(_path(case, folder))
    return None if document is None else Measurement(**document)


def measure(case: Case, folder: Path) -> Measurement:
    """Simulate the case and save its measurement."""
    if case.kind:
        cluster = testbed_cluster(case.contention)
        workload = apps(case.kind, APPS, case.network, case.seed)
    else:
        cluster, workload = for_liars(), identical(IDENTICAL)
    policy: Policy = get(case.policy)
    if case.lie:
        policy = Themis(partial(add_liar, share=case.lie))
    plan = PlanSettings(
        policy=case.policy,
        seed=case.seed,
        filter_share=case.filter_share,
        lease_seconds=case.lease,
    )
    result = play(
        case.policy, policy, cluster, workload, SimulationSettings(ROUND_SECONDS, plan=plan)
    )
    if result.unfinished:
        raise AssertionError(f"{case.name}: {len(result.unfinished)} jobs never ended")
    measurement = measure_changes(result.changes, cluster, workload)
    measurement = replace(
        measurement,
        restarts=result.summary.restarts,
        plan_seconds=[round_plan.seconds for round_plan in result.first_plans],
    )
    save(_path(case, folder), asdict(measurement))
    return measurement


def _path(case: Case, folder: Path) -> Path:
    return folder / f"{case.name}.json"


def measure_changes(
    changes: Sequence[AllocationChange], cluster: Cluster, workload: Workload
) -> Measurement:
    """Compute all figures from the changes of allocations."""
    members: dict[str, list[WorkloadJob]] = {}
    for job in workload.jobs:
        members.setdefault(job.app or job.id, []).append(job)
    holds = holds_by_job(changes)
    ends = {change.job: change.time for change in changes}
    lives = [
        (min(j.submit for j in jobs), max(ends[j.id] for j in jobs)) for jobs in members.values()
    ]
    speeds = AllocationSpeeds(cluster, workload)

    def score(job: WorkloadJob, allocation: Allocation) -> float:
        close = workload.throughput[job.workload][cluster.servers[0].gpu_type].aggregated[1]
        return speeds.rate(job.workload, allocation) / allocation.gpus / close

    rho, exact, scores = [], [], []
    for jobs, (start, end) in zip(members.values(), lives, strict=True):
        budget = sum(job.samples for job in jobs)
        wide: dict[int, int] = {}
        for job in jobs:
            wide[job.phase] = wide.get(job.phase, 0) + max(job.reqs)
        present = sum(max(0.0, min(end, e) - max(start, s)) for s, e in lives) / (end - start)
        ideal_inputs = (budget, cluster.gpus, max(wide.values()), present)
        rho.append((end - start) / independent_seconds(*ideal_inputs))
        exact.append((end - start) / share_seconds(*ideal_inputs))
        scored_holds = [
            (h.allocation.gpus * (h.end - h.start), score(job, h.allocation))
            for job in jobs
            for h in holds[job.id]
        ]
        scores.append(sum(w * s for w, s in scored_holds) / sum(w for w, _ in scored_holds))
    return Measurement(
        rho=rho,
        rho_share=exact,
        hours=[(end - start) / 3600.0 for start, end in lives],
        score=scores,
        gpu_hours=sum(
            h.allocation.gpus * (h.end - h.start) for job_holds in holds.values() for h in job_holds
        )
        / 3600.0,
        makespan_hours=(max(e for _, e in lives) - min(s for s, _ in lives)) / 3600.0,
        restarts=0,
        plan_seconds=[],
    )


@dataclass(frozen=True, slots=True)
class Liar:
    """Overstates the slowdown across servers by ``share`` and understates it within one."""

    truth: AppScheduler
    share: float

    def phases(self) -> int:
        return self.truth.phases()

    def jobs_in_phase(self, phase: int, offer: Offer) -> Sequence[JobInfo]:
        factor = 1.0 - self.share if len(offer.parts) == 1 else 1.0 + self.share
        return [
            replace(job, locality_sensitivity=job.locality_sensitivity * factor)
            for job in self.truth.jobs_in_phase(phase, offer)
        ]


def add_liar(app: App, market: Market, offer: Offer, share: float) -> Agent:
    """Give the first app's agent a lying scheduler; the others stay honest."""
    agent = honest(app, market, offer)
    if app.key != LIAR:
        return agent
    return replace(agent, scheduler=Liar(agent.scheduler, share))
