"""What `hops+` guarantees in every single plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.core.placement import generate
from hopsd.core.placement.configurations import Configurations
from hopsd.core.queue.priority import age_seconds
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get

A, B = GpuType("a"), GpuType("b")
NOW = 50_000.0
NODES = (
    Node(NodeName("a0"), A, 4, 4),
    Node(NodeName("a1"), A, 4, 4),
    Node(NodeName("b0"), B, 2, 2),
)
COUNTS = [(1,), (2,), (4,), (1, 2), (1, 2, 4)]


def new_job(
    name: str, submit: float, reqs: tuple[int, ...], samples: float, speed: float, scaling: float
) -> Job:
    """Return a job that never ran: twice as fast on B, and n^scaling times as fast on n GPUs."""
    per_gpu = {count: speed * count ** (scaling - 1.0) for count in (1, 2, 4)}
    tables = {A: ThroughputTable(per_gpu), B: ThroughputTable({1: 2 * speed, 2: 1.5 * speed})}
    return Job(
        JobId(name), UserName("u"), submit=submit, wait_seconds=NOW - submit, reqs=reqs,
        throughput=tables, samples=samples,
    )  # fmt: skip


jobs = st.builds(
    new_job,
    st.just(""),
    st.floats(0.0, NOW),
    st.sampled_from(COUNTS),
    st.floats(100.0, 100_000.0),
    st.floats(0.5, 4.0),
    st.floats(0.3, 1.0),
)


@st.composite
def crowds(draw: st.DrawFn) -> list[Job]:
    """Two to eight jobs, some of which have run."""
    crowd = []
    for number, drawn_job in enumerate(draw(st.lists(jobs, min_size=2, max_size=8))):
        ran = draw(st.sampled_from([0.0, 0.0, 0.2, 0.5]))
        job = replace(drawn_job, id=JobId(f"x{number}"))
        if ran:
            run_seconds = ran * age_seconds(job, NODES)
            samples_done = min(0.9 * ran * (job.samples or 0.0), 0.9 * run_seconds)
            wait_seconds = job.wait_seconds
            job = replace(
                job,
                run_seconds=run_seconds,
                samples_done=samples_done,
                submit=NOW - wait_seconds - run_seconds,
                restart_seconds=draw(st.sampled_from([0.0, 30.0, 400.0])),
            )
        crowd.append(job)
    return crowd


def plan(crowd: list[Job], gap: float = 0.0) -> Plan:
    snapshot = Snapshot(NOW, RoundInfo(True, 360.0), NODES, tuple(crowd))
    return get("hops+")(snapshot, PlanSettings(gap=gap, time_limit_seconds=20.0))


def ranks(crowd: list[Job]) -> dict[JobId, float]:
    crowd_plan = plan(crowd, gap=0.5)
    return {name: numbers.priority for name, numbers in crowd_plan.jobs.items()}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    pattern=jobs,
    submits=st.lists(st.floats(0.0, NOW), min_size=2, max_size=20),
    competitors=crowds(),
    gap=st.sampled_from([0.0, 0.01, 0.3]),
)
def test_equal_jobs_start_in_the_order_of_submission(
    pattern: Job, submits: list[float], competitors: list[Job], gap: float
) -> None:
    """This holds however early the solver stops. Earlier jobs also get the faster GPUs."""
    equal = [
        replace(pattern, id=JobId(str(i)), submit=submit, wait_seconds=NOW - submit)
        for i, submit in enumerate(submits)
    ]
    mixed_plan = plan([*reversed(equal), *competitors], gap)
    speeds = [
        mixed_plan.jobs[job.id].throughput or 0.0
        for job in sorted(equal, key=lambda twin: (twin.submit, int(twin.id)))
    ]
    assert speeds == sorted(speeds, reverse=True)


@pytest.mark.parametrize("explicit", [True, False])
def test_the_oldest_of_identical_jobs_start(
    explicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest used to start: 17 to 20 of 20, 57 to 60 of 60. ``explicit``: columns exist."""
    if not explicit:
        monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
        monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 0)
        monkeypatch.setattr(Configurations, "write_out", None)
    for count in (20, 60):
        equal = [
            Job(
                JobId(str(i)), UserName("u"), submit=10.0 * i, wait_seconds=1000.0 - 10.0 * i,
                reqs=(1,), throughput={A: ThroughputTable({1: 1.0})}, samples=3600.0,
            )
            for i in range(count)
        ]  # fmt: skip
        nodes = (Node(NodeName("a0"), A, 4, 4),)
        snapshot = Snapshot(1000.0, RoundInfo(True, 360.0), nodes, tuple(equal))
        assert set(get("hops+")(snapshot, PlanSettings()).placements) == set("0123")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(crowd=crowds())
def test_resubmitting_never_helps(crowd: list[Job]) -> None:
    """A job that is cancelled and resubmitted ranks no higher against any other job.

    If it has no progress to lose, it gets no GPUs that it would not have had.
    """
    first, *rest_of_crowd = crowd
    resubmission = replace(
        first, submit=NOW, wait_seconds=0.0, run_seconds=0.0, samples_done=0.0, restart_seconds=0.0
    )
    _assert_no_lower_against_anybody(first.id, ranks([resubmission, *rest_of_crowd]), ranks(crowd))
    if not first.run_seconds and first.id in plan([resubmission, *rest_of_crowd]).placements:
        assert first.id in plan(crowd).placements


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(crowd=crowds(), seconds=st.floats(1.0, 1e6))
def test_a_rank_only_rises_while_a_job_waits_and_changes_no_other(
    crowd: list[Job], seconds: float
) -> None:
    first, *rest_of_crowd = crowd
    before = ranks(crowd)
    later = ranks([replace(first, wait_seconds=first.wait_seconds + seconds), *rest_of_crowd])
    assert later[first.id] >= before[first.id]
    assert all(later[job.id] == before[job.id] for job in rest_of_crowd)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(crowd=crowds(), share=st.floats(0.05, 1.0))
def test_a_job_with_less_work_falls_behind_no_other(crowd: list[Job], share: float) -> None:
    first, *rest_of_crowd = crowd
    total = first.samples or 0.0
    samples_done = first.samples_done
    shorter = replace(first, samples=samples_done + share * (total - samples_done))
    if age_seconds(replace(shorter, run_seconds=0.0), NODES) < first.run_seconds:
        return  # the job has already run for longer than its shorter work should take
    _assert_no_lower_against_anybody(first.id, ranks(crowd), ranks([shorter, *rest_of_crowd]))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(crowd=crowds(), share=st.floats(0.05, 1.0))
def test_a_job_with_less_work_still_starts(crowd: list[Job], share: float) -> None:
    """Of jobs of one GPU each on equal GPUs, those that rank first start."""
    nodes = (Node(NodeName("a0"), A, 2, 2),)

    def starts(jobs: list[Job]) -> bool:
        alike_jobs = [
            replace(
                job,
                reqs=(1,),
                throughput={A: job.throughput[A]},
                run_seconds=0.0,
                samples_done=0.0,
                restart_seconds=0.0,
            )
            for job in jobs
        ]
        snapshot = Snapshot(NOW, RoundInfo(True, 360.0), nodes, tuple(alike_jobs))
        return jobs[0].id in get("hops+")(snapshot, PlanSettings(gap=0.0)).placements

    first, *rest_of_crowd = crowd
    if starts(crowd):
        assert starts([replace(first, samples=share * (first.samples or 0.0)), *rest_of_crowd])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(crowd=crowds(), factor=st.sampled_from([1e-9, 0.1, 0.5, 2.0, 1e9]))
def test_a_new_jobs_claims_about_several_gpus_change_no_rank(
    crowd: list[Job], factor: float
) -> None:
    """A job of eight GPUs used to rank 200 times as high if it declared them as fast as one."""
    first, *rest_of_crowd = crowd
    new = replace(first, submit=NOW, wait_seconds=0.0, run_seconds=0.0, samples_done=0.0)
    faked_tables = {
        gpu_type: replace(
            table,
            aggregated={n: s * (factor if n > 1 else 1.0) for n, s in table.aggregated.items()},
        )
        for gpu_type, table in new.throughput.items()
    }
    ranks_of_fake = ranks([replace(new, throughput=faked_tables), *rest_of_crowd])
    assert ranks_of_fake == pytest.approx(ranks([new, *rest_of_crowd]))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(crowd=crowds(), factor=st.sampled_from([2.0**-10, 0.5, 2.0, 2.0**10]))
def test_scaling_the_speeds_of_a_job_of_one_gpu_count_changes_no_plan(
    crowd: list[Job], factor: float
) -> None:
    first, *rest_of_crowd = crowd
    job = replace(
        first, reqs=(2,), submit=NOW, wait_seconds=0.0, run_seconds=0.0, samples_done=0.0,
        restart_seconds=0.0,
    )  # fmt: skip
    faked_tables = {
        gpu_type: replace(table, aggregated={**table.aggregated, 2: factor * table.aggregated[2]})
        for gpu_type, table in job.throughput.items()
    }
    plan_of_fake = plan([replace(job, throughput=faked_tables), *rest_of_crowd])
    assert plan_of_fake.placements == plan([job, *rest_of_crowd]).placements


def _assert_no_lower_against_anybody(
    name: JobId, low: dict[JobId, float], high: dict[JobId, float]
) -> None:
    """Check that ``name`` is ahead of every other job in ``high`` by no less than in ``low``."""
    for competitor in low.keys() - {name}:
        assert high[name] / high[competitor] >= low[name] / low[competitor] * (1.0 - 1e-9)


def test_a_running_job_is_not_stopped_for_an_equal_one() -> None:
    """A job that is equal, but newer, waits until the running one has ended."""
    first = new_job("1", 0.0, (1,), 5000.0, 1.0, 1.0)
    running = replace(
        first, running=Allocation.of({"a0": 1}), run_seconds=60.0, samples_done=60.0,
        wait_seconds=first.wait_seconds - 60.0, restart_seconds=30.0,
    )  # fmt: skip
    nodes = (Node(NodeName("a0"), A, 1, 0),)
    later = replace(first, id=JobId("2"), submit=60.0, wait_seconds=first.wait_seconds - 60.0)
    snapshot = Snapshot(NOW, RoundInfo(True, 360.0), nodes, (later, running))
    assert set(get("hops+")(snapshot, PlanSettings()).placements) == {running.id}
