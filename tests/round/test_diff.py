"""Steps from what runs to what should run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, UserName
from hopsd.model.plan import Plan
from hopsd.model.reading import Hold, JobReading, Reading, SlurmState
from hopsd.model.step import Step, StepKind
from hopsd.round.diff import diff

NODES = ("n0", "n1", "n2")
allocations = st.dictionaries(st.sampled_from(NODES), st.integers(1, 4), max_size=2).map(
    Allocation.of
)


def job(number: int, allocation: Allocation, hold: Hold = Hold.HOPS) -> JobReading:
    return JobReading(
        id=JobId(str(number)),
        user=UserName("ann"),
        uid=1000,
        name="train",
        comment="hops:reqs=1",
        partition="main",
        state=SlurmState.RUNNING if allocation else SlurmState.PENDING,
        submit=0.0,
        hold=Hold.NONE if allocation else hold,
        allocation=allocation,
    )


def apply_steps(jobs: tuple[JobReading, ...], steps: list[Step]) -> tuple[JobReading, ...]:
    """The jobs after all steps have succeeded."""
    after = {j.id: j for j in jobs}
    for step in steps:
        runs = bool(step.target)
        after[step.job] = replace(
            after[step.job],
            state=SlurmState.RUNNING if runs else SlurmState.PENDING,
            hold=Hold.NONE if runs else Hold.HOPS,
            allocation=step.target,
        )
    return tuple(after.values())


clusters = st.lists(st.tuples(allocations, st.sampled_from(list(Hold))), max_size=8).map(
    lambda rows: tuple(job(i, a, h) for i, (a, h) in enumerate(rows))
)


@given(clusters, st.data(), st.booleans())
def test_a_plan_applied_twice_changes_nothing_the_second_time(
    jobs: tuple[JobReading, ...], data: st.DataObject, first: bool
) -> None:
    placements = {j.id: a for j in jobs if (a := data.draw(allocations))}
    if not first:
        placements = {j: a for j, a in placements.items() if not jobs[int(j)].allocation}
    plan = Plan(placements)
    steps = diff(Reading(0.0, (), jobs), plan, pinned_jobs=(), first=first)
    after = apply_steps(jobs, steps)
    assert diff(Reading(1.0, (), after), plan, pinned_jobs=(), first=first) == []
    for reading in after:
        if reading.id in placements:
            assert reading.allocation == placements[reading.id]


@given(clusters, st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_nothing(jobs: tuple[JobReading, ...], random: object) -> None:
    shuffled_jobs = list(jobs)
    random.shuffle(shuffled_jobs)  # type: ignore[attr-defined]
    plan = Plan({j.id: Allocation.of({"n0": 1}) for j in jobs if int(j.id) % 2})
    steps = diff(Reading(0.0, (), jobs), plan, pinned_jobs=(), first=True)
    two = diff(Reading(0.0, (), tuple(shuffled_jobs)), plan, pinned_jobs=(), first=True)
    assert steps == two


def test_a_first_plan_preempts_unplaced_jobs_except_pinned_ones() -> None:
    allocation = Allocation.of({"n0": 2})
    jobs = (job(1, allocation), job(2, allocation), job(3, allocation))
    target = Allocation.of({"n1": 2})
    steps = diff(
        Reading(0.0, (), jobs), Plan({JobId("2"): target}), pinned_jobs={JobId("3")}, first=True
    )
    assert [(s.job, s.kind, s.target) for s in steps] == [
        ("1", StepKind.PREEMPT, Allocation()),
        ("2", StepKind.MOVE, target),
    ]


def test_a_later_plan_leaves_running_jobs_alone() -> None:
    jobs = (job(1, Allocation.of({"n0": 2})), job(2, Allocation()))
    target = Allocation.of({"n1": 1})
    steps = diff(Reading(0.0, (), jobs), Plan({JobId("2"): target}), pinned_jobs=(), first=False)
    assert [(s.job, s.kind) for s in steps] == [("2", StepKind.START)]


def test_jobs_that_slurm_could_start_are_held_unless_released() -> None:
    jobs = (job(1, Allocation(), Hold.NONE), job(2, Allocation(), Hold.NONE))
    reading = Reading(0.0, (), jobs)
    steps = diff(reading, Plan({}), pinned_jobs=(), first=False, released_jobs={JobId("2")})
    assert [(s.job, s.kind) for s in steps] == [("1", StepKind.HOLD)]


def test_jobs_are_started_in_queue_order() -> None:
    """Because the port puts off the last steps if Slurm is too busy."""
    jobs = tuple(job(number, Allocation()) for number in range(4))
    single_gpu = Allocation.of({"n0": 1})
    plan = Plan(
        {j.id: single_gpu for j in jobs}, window=(JobId("2"), JobId("1")), adjusted=(JobId("3"),)
    )
    steps = diff(Reading(0.0, (), jobs), plan, pinned_jobs=(), first=True)
    assert [step.job for step in steps] == ["2", "1", "3", "0"]
