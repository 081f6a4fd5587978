"""Rounds with the profiling queue and a cluster in memory, interrupted at any point."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cluster import NODES, Cluster, cluster
from memory_store import MemoryStore

from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.errors import SlurmUnavailableError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, WorkloadName
from hopsd.model.knowledge import Theory
from hopsd.model.plan import PlanSettings
from hopsd.model.reading import Hold, SlurmState
from hopsd.model.step import Step
from hopsd.policies.hops.policy import plan as hops
from hopsd.round.recover import recover
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow

SETTINGS = RoundSettings(
    seconds=600.0,
    plan=PlanSettings(time_limit_seconds=5.0),
    profiling=ProfilingSettings(enabled=True),
)
A100 = GpuType("a100")


class MarkingCluster(Cluster):
    """Like Slurm, marks a measuring run in the admin comment until the next placement."""

    def _do(self, step: Step) -> None:
        super()._do(step)
        if step.target:
            mark = "#hops-profile" if step.profiling else ""
            self.jobs[step.job] = replace(self.jobs[step.job], marks=mark)

    def leaves(self, job: JobId) -> None:
        """Let a job's script ask Slurm to requeue it."""
        old = self.jobs[job]
        self.jobs[job] = replace(
            old,
            state=SlurmState.PENDING,
            hold=Hold.HOPS,
            allocation=Allocation(),
            restarts=old.restarts + 1,
        )


def marking_cluster(*comments: str) -> MarkingCluster:
    return MarkingCluster(cluster(*comments).jobs)


def learn(memory: MemoryStore, workload: str, time: float) -> None:
    times = dict.fromkeys(
        ["t_f", "t_b", "t_u", "mu_cache", "sigma_cache", "mu_load", "sigma_load"], 0.01
    )
    memory.save_theory(
        [
            Theory(
                workload=WorkloadName(workload), gpu_type=A100, inference=False, pattern=1,
                batch_size=32.0, params=1e6, p_cache=1.0, w_cache=0.0, w_load=0.0,
                records=1, iterations=20, at=time, **times,
            )
        ]
    )  # fmt: skip


def test_a_job_is_measured_then_placed_and_the_next_one_follows_at_once() -> None:
    port, memory = marking_cluster("hops:reqs=1,4;workload=new"), MemoryStore()
    first = run_round(port, memory, hops, SETTINGS, None)
    job = JobId("1")
    assert port.placements()[job].gpus == 1
    assert first.plan.placements == {}
    assert first.plan.waiting == {}
    port.now += 10.0
    run_round(port, memory, hops, SETTINGS, first.window)
    assert memory.jobs()[job].profiling
    learn(memory, "new", port.now)
    port.leaves(job)
    port.jobs[JobId("2")] = replace(
        port.jobs[job], id=JobId("2"), restarts=0, marks="", submit=1005.0
    )
    port.now += 5.0
    later = run_round(port, memory, hops, SETTINGS, first.window)
    assert {j: a.gpus for j, a in port.placements().items()} == {job: 4, "2": 4}
    assert [(run.closed, run.failure) for run in later.profile_runs] == [(True, "")]
    port.now += 5.0
    run_round(port, memory, hops, SETTINGS, first.window)
    runs = [(p.job, p.profiling, p.allocation.gpus) for p in memory.placements()]
    assert sorted(runs) == [("1", False, 4), ("1", True, 1), ("2", False, 4)]


def test_a_run_without_figures_is_mentioned_in_its_jobs_reason() -> None:
    port, memory = marking_cluster("hops:reqs=1,4;workload=new"), MemoryStore()
    window = run_round(port, memory, hops, SETTINGS, None).window
    port.leaves(JobId("1"))
    port.nodes = tuple(replace(node, foreign_gpus=node.gpus) for node in NODES)
    for _ in range(2):
        port.now += 10.0
        result = run_round(port, memory, hops, SETTINGS, window)
    assert "profile run on a100" in result.plan.waiting[JobId("1")].text


def test_without_profiling_no_run_is_recorded() -> None:
    port, memory = marking_cluster("hops:reqs=1,4;workload=new"), MemoryStore()
    without_profiling = replace(SETTINGS, profiling=ProfilingSettings())
    result = run_round(port, memory, hops, without_profiling, None)
    assert port.placements()[JobId("1")].gpus == 4
    assert result.profile_runs == ()
    assert memory.profile_runs(0.0) == ()


@pytest.mark.long
@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["u", "v", "w"]), min_size=1, max_size=6),
    st.integers(0, 8),
    st.sampled_from([0.0, 700.0]),
)
def test_interrupted_anywhere_profile_runs_continue_and_none_is_lost(
    workloads: list[str], breaks_after: int, pause: float
) -> None:
    port = marking_cluster(*(f"hops:reqs=1,2;workload={w}" for w in workloads))
    memory = MemoryStore()
    port.breaks_after = breaks_after
    window: RoundWindow | None = None
    try:
        window = run_round(port, memory, hops, SETTINGS, None).window
    except SlurmUnavailableError:
        port.breaks_after = None
        port.now += pause
        before = {j for j, a in port.placements().items() if port.jobs[j].profiling}
        recover(port, memory, 8)
        assert before <= port.placements().keys()
    port.breaks_after = None
    for _ in range(4):
        for job in list(port.jobs.values()):
            if job.state is SlurmState.RUNNING and job.profiling:
                learn(memory, memory.jobs()[job.id].workload, port.now)
                port.leaves(job.id)
        port.now += 30.0
        window = run_round(port, memory, hops, SETTINGS, window).window
    assert all(job.allocation.gpus == 2 for job in port.jobs.values())
    assert all(run.closed and not run.failure for run in memory.profile_runs(0.0))


def test_explain_gives_the_reason_why_a_job_is_not_measured() -> None:
    port, memory = marking_cluster("hops:reqs=1;workload=a;preempt=no"), MemoryStore()
    build = run_round(port, memory, hops, SETTINGS, None).build
    assert "to measure its speed: preempt=no forbids" in build.notes[JobId("1")]
