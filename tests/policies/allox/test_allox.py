"""AlloX and its rivals in virtual time: the paper's examples, fairness, and multi-GPU jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hops_rivals.allox import EqualShare
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.devices import CPU
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob
from hopsd.policies.allox.dominant_share import Configuration, dominant_share, eligible_users, value
from hopsd.policies.protocol import Policy
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import PolicyResult, play

GPU = GpuType("gpu")
FIGURE_4 = [(40, 50), (40, 50), (40, 160), (40, 160)]
FIGURE_5 = [(10, 20), (10, 20), (20, 90), (20, 90)]
TABLE_1 = [(10, 15), (8, 10), (10, 50), (5, 75), (10, 15), (10, 15)]


def hybrid(gpus: int = 2, cpus: int = 2) -> Cluster:
    return Cluster((Server(NodeName("g"), GPU, gpus), Server(NodeName("c"), CPU, cpus)))


def load(
    times: Sequence[tuple[float, float]],
    users: Sequence[str] = ("u",),
    submits: Sequence[float] = (),
) -> Workload:
    """Return jobs of one device each with their seconds on a GPU and a CPU; users alternate."""
    tables = {
        WorkloadName(f"w{i}"): {
            GPU: ThroughputTable({1: 1000.0 / gpu}),
            CPU: ThroughputTable({1: 1000.0 / cpu}),
        }
        for i, (gpu, cpu) in enumerate(times)
    }
    jobs = [
        WorkloadJob(
            JobId(str(i)),
            UserName(users[i % len(users)]),
            submits[i] if submits else 0.0,
            name,
            1000.0,
            (1,),
            cpu=True,
        )
        for i, name in enumerate(tables)
    ]
    return Workload(tables, tuple(jobs))


def run(policy: str | Policy, work: Workload, cluster: Cluster, **knobs: float) -> PolicyResult:
    chosen_policy = get(policy) if isinstance(policy, str) else policy
    plan = replace(PlanSettings(), **knobs)  # type: ignore[arg-type]
    settings = SimulationSettings(1e6, plan=plan, cluster=ClusterSettings(0.0))
    return play("policy", chosen_policy, cluster, work, settings)


def total(result: PolicyResult) -> float:
    assert not result.unfinished
    return sum(o.jct or 0.0 for o in result.outcomes)


@pytest.mark.parametrize(
    ("policy", "times", "mean"),
    [
        ("allox", FIGURE_4, 45.0),
        ("fifo", FIGURE_4, 100.0),  # as in figure 4a: the fastest idle device
        ("jsq+", FIGURE_4, 60.0),  # by its definition jobs 3 and 4 wait 40 for a GPU, not take 160
        ("allox", FIGURE_5, 20.0),
        ("sjf+", FIGURE_5, 50.0),
        ("allox", TABLE_1, 75 / 6),
    ],
)
def test_completion_times_match_the_papers(
    policy: str, times: list[tuple[float, float]], mean: float
) -> None:
    result = run(policy, load(times, ("u1", "u2")), hybrid(), alpha=1.0)
    assert total(result) / len(times) == pytest.approx(mean)


def test_equal_share_matches_table_1() -> None:
    result = run(EqualShare(in_order=True), load(TABLE_1, ("u1", "u2")), hybrid())
    assert total(result) == pytest.approx(181.0)


def least_completion_sum(times: Sequence[tuple[float, float]], gpus: int, cpus: int) -> float:
    """Return the least sum of completion times of jobs submitted at 0, by exhaustive search."""
    kinds = [0] * gpus + [1] * cpus
    sums = []
    for choice in product(range(len(kinds)), repeat=len(times)):
        runs = [sorted(times[j][kinds[m]] for j, c in enumerate(choice) if c == m)
                for m in set(choice)]  # fmt: skip
        sums.append(sum(float(np.cumsum(seconds_on_gpu).sum()) for seconds_on_gpu in runs))
    return min(sums)


@pytest.mark.slow
@hypothesis_settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=5),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_jobs_queued_together_finish_with_the_least_total_time(
    times: list[tuple[int, int]], gpus: int, cpus: int
) -> None:
    """Matching again whenever a job ends keeps the schedule optimal."""
    result = run("allox", load(times), hybrid(gpus, cpus), alpha=1.0)
    assert total(result) == pytest.approx(least_completion_sum(times, gpus, cpus))
    assert all(o.restarts == 0 for o in result.outcomes)


def test_progress_follows_section_3_3_2() -> None:
    """A job takes 1 CPU, 4 GB and 20 s or 1 GPU, 2 GB and 5 s, of 8 CPUs, 2 GPUs and 64 GB."""
    capacity = {"cpu": 8.0, "gpu": 2.0, "memory": 64.0}
    on_cpu = Configuration({"cpu": 1.0, "memory": 4.0}, 20.0)
    on_gpu = Configuration({"gpu": 1.0, "memory": 2.0}, 5.0)
    assert value((on_cpu, on_gpu), on_gpu, capacity) == 1 / 2
    assert value((on_cpu, on_gpu), on_cpu, capacity) == 1 / 8
    assert dominant_share(on_cpu.demand, capacity) == 1 / 8
    with pytest.raises(ValueError, match="no tpu; it has cpu, gpu, memory"):
        dominant_share({"tpu": 1.0}, capacity)


def test_alpha_determines_the_number_of_eligible_users() -> None:
    assert [eligible_users(20, a) for a in (0.0, 0.05, 0.3, 0.31, 1.0)] == [1, 1, 6, 7, 20]


def snapshot(jobs: Sequence[Job], gpus: int, idle: int, now: float = 0.0) -> Snapshot:
    nodes = (Node(NodeName("g"), GPU, gpus, idle),)
    return Snapshot(now, RoundInfo(False, 60.0), nodes, tuple(jobs))


def waiting(name: str, user: str, samples: float, *reqs: int, **changes: object) -> Job:
    """Return a waiting job that trains one sample per second on each GPU."""
    fields = {
        "id": JobId(name),
        "user": UserName(user),
        "submit": 0.0,
        "wait_seconds": 0.0,
        "reqs": reqs or (1,),
        "throughput": {GPU: ThroughputTable({1: 1.0})},
        "samples": samples,
    }
    return Job(**(fields | changes))  # type: ignore[arg-type]


def plan_with(policy: str, world: Snapshot, **knobs: float) -> Plan:
    return get(policy)(world, replace(PlanSettings(), **knobs))  # type: ignore[arg-type]


def test_a_small_alpha_serves_the_user_with_less_progress() -> None:
    """ann runs on one of two GPUs, and her next job is shorter than bob's."""
    runs = waiting("1", "ann", 100.0, running=Allocation.of({"g": 1}))
    jobs = [runs, waiting("2", "ann", 5.0), waiting("3", "bob", 10.0)]
    plan = plan_with("allox", snapshot(jobs, 2, 1), alpha=0.1)
    assert set(plan.placements) == {"3"}
    assert "other jobs come first" in plan.waiting[JobId("2")].text
    assert set(plan_with("allox", snapshot(jobs, 2, 1), alpha=1.0).placements) == {"2"}


def test_alpha_grows_if_the_eligible_users_leave_devices_idle() -> None:
    """bob has the least progress but no job that can run, so ann's second job starts."""
    runs = waiting("1", "ann", 100.0, running=Allocation.of({"g": 1}))
    finished_share = waiting("4", "bob", 1.0, running=Allocation())
    cpu_job = replace(finished_share, throughput={GpuType("b"): ThroughputTable({1: 1.0})})
    jobs = [runs, waiting("2", "ann", 5.0), cpu_job]
    plan = plan_with("allox", snapshot(jobs, 2, 1), alpha=0.1)
    assert set(plan.placements) == {"2"}
    assert "large enough" in plan.waiting[JobId("4")].text


def test_gpus_reserved_for_a_large_job_are_used_until_it_starts() -> None:
    """Two of four GPUs are busy for 50 s, and the job of four GPUs precedes the long ones.

    A job that ends within 50 s may run meanwhile; one that takes 70 s may not.
    """
    busy = waiting("1", "ann", 100.0, 2, running=Allocation.of({"g": 2}))
    gang = waiting("2", "ann", 8.0, 4)
    jobs = [busy, gang, waiting("3", "ann", 49.0), waiting("4", "ann", 70.0)]
    plan = plan_with("allox", snapshot(jobs, 4, 2), alpha=1.0)
    assert set(plan.placements) == {"3"}
    assert "4 of gpu are kept for it" in plan.waiting[JobId("2")].text
    assert plan.fragments == 1


def test_the_order_of_jobs_changes_nothing() -> None:
    jobs = [waiting(str(i), f"u{i % 3}", 10.0 + i % 4) for i in range(12)]
    plans = [
        plan_with(p, snapshot(j, 4, 4)) for p in ("allox", "allox+") for j in (jobs, jobs[::-1])
    ]
    assert plans[0].placements == plans[1].placements
    assert plans[2].placements == plans[3].placements


def test_patience_puts_a_long_job_before_shorter_ones() -> None:
    old = waiting("1", "ann", 90.0, wait_seconds=3601.0)
    old_snapshot = snapshot([old, waiting("2", "ann", 5.0)], 1, 1)
    assert set(plan_with("allox+", old_snapshot).placements) == {"1"}
    assert set(plan_with("allox+", old_snapshot, patience_seconds=4000.0).placements) == {"2"}


def test_drf_matches_values_by_hand() -> None:
    """In turn, the user with the smallest share gets a GPU; DRFS starts a user's shortest job."""
    jobs = [waiting("1", "ann", 9.0), waiting("2", "ann", 3.0), waiting("3", "bob", 7.0),
            waiting("4", "bob", 8.0)]  # fmt: skip
    busy_snapshot = snapshot(jobs, 2, 2)
    assert set(plan_with("drff", busy_snapshot).placements) == {"1", "3"}
    assert set(plan_with("drfs", busy_snapshot).placements) == {"2", "3"}


def test_drf_uses_no_cpu_that_is_nobodys_favourite() -> None:
    """Lemma 3.2: if every job is faster on GPUs, DRF uses no CPU; equal share and DRFA do."""
    work = load([(10, 15)] * 4)
    nodes_by_policy = {
        name: {node for c in run(name, work, hybrid()).changes for node in c.placement.nodes}
        for name in ("drff", "drfs", "es", "drfa")
    }
    assert nodes_by_policy == {"drff": {"g"}, "drfs": {"g"}, "es": {"g", "c"}, "drfa": {"g", "c"}}


def test_srpt_preempts_as_soon_as_a_shorter_job_arrives() -> None:
    """A job of 100 s from 0 and one of 10 s from 20 share a GPU: they end at 110 and at 30 s."""
    work = load([(100, 1e9), (10, 1e9)], submits=(0.0, 20.0))
    one_gpu = Cluster((Server(NodeName("g"), GPU, 1),))
    assert [o.end for o in run("srpt", work, one_gpu).outcomes] == pytest.approx([110.0, 30.0])
    assert [o.end for o in run("allox", work, one_gpu).outcomes] == pytest.approx([100.0, 110.0])


NEVER_PREEMPT = ("allox", "allox+", "sjf+", "jsq+", "es", "drff", "drfs", "drfa")


@pytest.mark.parametrize("policy", NEVER_PREEMPT)
@hypothesis_settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([(1,), (2,), (4,), (1, 2, 4), (6,)]),
            st.integers(1, 200),
            st.integers(0, 100),
            st.sampled_from("abc"),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_job_runs_once_until_its_end(
    policy: str, specs: list[tuple[tuple[int, ...], int, int, str, bool]]
) -> None:
    """Jobs of one or several GPUs, on up to two servers; some may run on CPUs."""
    cluster = Cluster(
        (
            *(Server(NodeName(f"g{i}"), GPU, 4) for i in range(2)),
            Server(NodeName("c"), CPU, 2),
        )
    )
    tables = {
        WorkloadName("w"): {
            GPU: ThroughputTable({1: 4.0, 4: 3.0}, {2: 2.0}),
            CPU: ThroughputTable({1: 1.0}),
        }
    }
    jobs = tuple(
        WorkloadJob(
            JobId(str(i)), UserName(user), float(submit), WorkloadName("w"), float(samples), reqs,
            cpu=cpu,
        )
        for i, (reqs, samples, submit, user, cpu) in enumerate(specs)
    )  # fmt: skip
    result = run(policy, Workload(tables, jobs), cluster)
    assert not result.unfinished
    assert all(o.restarts == 0 for o in result.outcomes)
