"""Trials of shapes never measured: when, which and how many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.queue.trials import Trial, TrialSettings, begun, hopeful, trials
from hopsd.core.speed.throughput import per_gpu
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job, Node, Shape, ThroughputTable
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get

A, B = GpuType("a100"), GpuType("v100")
NODES = tuple(Node(NodeName(f"n{at}"), kind, 4, 4) for at, kind in enumerate((A, A, A, B, B)))
ON = TrialSettings(enabled=True)


@dataclass(frozen=True)
class Sure:
    """Each further server costs a fifth; ``sigma``: of the logarithm, but for one GPU."""

    alone: float
    sigma: float

    def per_gpu(self, gpus: int, nodes: int) -> float:
        return float(self.alone * 0.8 ** (nodes - 1))

    def between(self, gpus: int, nodes: int) -> tuple[float, float]:
        off = exp(self.sigma) if gpus > 1 else 1.0
        return self.per_gpu(gpus, nodes) / off, self.per_gpu(gpus, nodes) * off

    def source(self, gpus: int, nodes: int) -> str:
        return "theory"


def table(alone: float, sigma: float) -> ThroughputTable:
    speeds = Sure(alone, sigma)
    return ThroughputTable({1: alone}, {2: 0.8 * alone}, by_shape=speeds)


def job(number: int, *reqs: int, sigma: float = 0.5, **more: object) -> Job:
    tables = {A: table(100.0, sigma), B: table(90.0, sigma)}
    made = Job(JobId(str(number)), UserName("u"), float(number), 0.0, reqs, tables, samples=1e6)
    return replace(made, **more)  # type: ignore[arg-type]


def snapshot(*jobs: Job, now: float = 0.0, first: bool = True) -> Snapshot:
    return Snapshot(now, RoundInfo(first=first, seconds=60.0), NODES, jobs)


def names(jobs: tuple[Job, ...]) -> dict[JobId, WorkloadName]:
    """Two jobs of each workload."""
    return {one.id: WorkloadName(f"w{int(one.id) // 2}") for one in jobs}


def found(
    snap: Snapshot, settings: TrialSettings = ON, tried: tuple[Trial, ...] = ()
) -> tuple[Trial, ...]:
    return trials(snap, names(snap.jobs), {trial.key for trial in tried}, settings, 1.4)


JOBS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
        st.floats(0.0, 1.5),
    ),
    min_size=1,
    max_size=12,
).map(lambda every: tuple(job(n, *sorted(reqs), sigma=off) for n, (reqs, off) in enumerate(every)))


@given(JOBS, st.integers(0, 100), st.floats(0.0, 1.0), st.integers(1, 6))
def test_trials_are_bounded_and_never_the_same_twice(
    jobs: tuple[Job, ...], start: int, share: float, every: int
) -> None:
    settings = TrialSettings(enabled=True, share=share, every=every)
    tried: tuple[Trial, ...] = ()
    with_some = 0
    rounds = 4 * every
    for index in range(start, start + rounds):
        here = found(snapshot(*jobs, now=60.0 * index), settings, tried)
        assert sum(trial.shape[0] for trial in here) <= share * 20
        assert len({trial.job for trial in here}) == len(here)
        tried += here
        with_some += bool(here)
    assert with_some <= rounds // every
    assert len({trial.key for trial in tried}) == len(tried)


@given(JOBS, st.integers(0, 20))
def test_the_order_of_jobs_changes_nothing(jobs: tuple[Job, ...], index: int) -> None:
    now = 240.0 * index
    assert found(snapshot(*jobs, now=now)) == found(snapshot(*reversed(jobs), now=now))


@given(JOBS.map(lambda jobs: tuple(job(int(one.id), *one.reqs, sigma=0.0) for one in jobs)))
def test_nothing_changes_where_estimates_are_certain(jobs: tuple[Job, ...]) -> None:
    before = snapshot(*jobs)
    hopes = found(before)
    assert hopes == ()
    assert hopeful(before, hopes) is before


def test_the_plan_uses_the_hope_and_tells_the_estimate() -> None:
    held = Allocation.of({NodeName("n0"): 4})
    nodes = (replace(NODES[0], idle=0), *NODES[1:])
    present = replace(snapshot(job(1, 4, running=held, run_seconds=60.0)), nodes=nodes)
    plain = get("hops")(present, PlanSettings())
    assert plain.placements["1"] == held
    (trial,) = found(present)
    assert (trial.gpu_type, trial.shape) == (B, (4, 1))
    assert trial.expected == pytest.approx(360.0)
    assert trial.hoped == pytest.approx(360.0 * exp(0.5))
    assert trial.otherwise == pytest.approx(400.0)
    plan, trying = begun(get("hops")(hopeful(present, [trial]), PlanSettings()), present, [trial])
    assert trying == (trial,)
    assert set(plan.placements["1"].nodes) <= {"n3", "n4"}
    assert plan.jobs["1"].throughput == pytest.approx(360.0)
    assert plan.jobs["1"].between == pytest.approx((360.0 / exp(0.5), 360.0 * exp(0.5)))
    assert begun(plain, present, [trial]) == (plain, ())


@pytest.mark.parametrize(
    ("snap", "settings"),
    [
        (snapshot(job(1, 4)), TrialSettings()),
        (snapshot(job(1, 4), first=False), ON),
        (snapshot(job(1, 4), now=60.0), ON),
        (snapshot(job(1, 8)), ON),  # a quarter of 20 GPUs are 5
        (snapshot(job(1, 1)), ON),  # profile runs measure it
        (snapshot(job(1, 4, sigma=0.2)), ON),
        (snapshot(job(1, 4, preemptible=False, running=Allocation.of({NodeName("n0"): 4}))), ON),
    ],
)
def test_no_trial(snap: Snapshot, settings: TrialSettings) -> None:
    assert found(snap, settings) == ()


def test_only_jobs_that_may_restart_and_shapes_that_none_holds_are_tried() -> None:
    held = Allocation.of({NodeName("n3"): 4})
    present = snapshot(job(2, 4), job(3, 4, running=held, run_seconds=60.0))
    shapes: set[tuple[GpuType, Shape]] = {(t.gpu_type, t.shape) for t in found(present)}
    assert shapes == {(A, (4, 1))}
    assert trials(present, {}, (), ON, 1.4) == ()


def test_one_job_of_a_workload_tries_a_shape() -> None:
    both = found(snapshot(job(2, 2), job(3, 2)))
    assert len(both) == 2
    assert {trial.gpu_type for trial in both} == {A, B}
    assert per_gpu(hopeful(snapshot(job(2, 2)), both[:1]).jobs[0].throughput[A], 1, 1) == 100.0
