"""Both stores give the same answers after any sequence of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from fixtures_postgres import Databases, connected_store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from values import job, plan_record

from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName
from hopsd.model.plan import Plan
from hopsd.model.reading import SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.store.history import History
from hopsd.store.port import PlanRecord
from hopsd.store.postgres import PostgresStore

pytestmark = pytest.mark.live

JOBS = tuple(JobId(name) for name in "123")
Act = Callable[[History], object]

times = st.integers(0, 12).map(float)
ids = st.sampled_from(JOBS)
allocations = st.dictionaries(st.sampled_from(["n0", "n1"]), st.integers(1, 2), max_size=2).map(
    Allocation.of
)


@st.composite
def records(draw: st.DrawFn) -> JobRecord:
    end_time = draw(st.none() | times)
    return replace(
        job(draw(ids)),
        submit=draw(st.sampled_from([0.0, 5.0])),
        user=draw(st.sampled_from([UserName("alice"), UserName("bob")])),
        seen=draw(times),
        end=end_time,
        state=SlurmState.COMPLETED if end_time is not None else SlurmState.RUNNING,
        allocation=draw(allocations),
        allocation_since=draw(st.none() | times),
        run_seconds=draw(times),
        wait_seconds=draw(times),
        age_seconds=draw(st.none() | times),
        profiling=draw(st.booleans()),
    )


@st.composite
def saves(draw: st.DrawFn) -> Act:
    batch = draw(st.lists(records(), max_size=3, unique_by=lambda record: record.id))
    return lambda store: store.save_jobs(batch)


@st.composite
def plans(draw: st.DrawFn) -> Act:
    """A plan that begins at some time and may have finished."""
    waiting = draw(st.dictionaries(ids, st.sampled_from(list(ReasonCode)), max_size=3))
    plan = Plan(
        draw(st.dictionaries(ids, allocations, max_size=2)),
        objective=draw(times),
        seconds={"total": draw(times)},
        waiting={name: Reason(code, f"{code} at {draw(times)}") for name, code in waiting.items()},
    )
    step = Step(draw(ids), StepKind.MOVE)
    start = draw(times)
    record = PlanRecord(start, start + 2.0, True, start, plan, (step,))
    vacate_time, finish_time = draw(st.none() | times), draw(st.none() | times)
    status = draw(st.sampled_from(list(OutcomeStatus)))

    def act(store: History) -> object:
        plan_id = store.begin_plan(record)
        if finish_time is not None:
            store.finish_plan(
                plan_id, [StepOutcome(step, status, vacated=vacate_time)], finish_time
            )
        return store.outcomes(plan_id)

    return act


@st.composite
def prunes(draw: st.DrawFn) -> Act:
    now = draw(times)
    return lambda store: store.prune(now + 86400.0, 1.0)


def contents(store: History) -> dict[str, object]:
    unfinished_plan = store.unfinished_plan()
    return {
        "jobs": store.jobs(),
        "each job": [store.job(name) for name in JOBS],
        "raqlr": None if (mean := store.raqlr(3.0)) is None else round(mean, 9),
        "medians": store.knowledge(),
        "placements": store.placements(),
        "reasons": [store.reasons(name) for name in JOBS],
        "unfinished": unfinished_plan and unfinished_plan[1],
        "last": store.last_plan(),
        "plans": store.plans(3),
    }


@pytest.fixture
def pair(postgres: Databases) -> Iterator[tuple[Databases, PostgresStore]]:
    with connected_store(postgres.empty_database()) as store:
        yield postgres, store


# If the stores differ, hypothesis spends minutes on shrinking the case, which is worth the wait.
@pytest.mark.long
@pytest.mark.timeout(900)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(acts=st.lists(saves() | plans() | prunes(), min_size=1, max_size=12))
def test_both_stores_give_the_same_answers(
    pair: tuple[Databases, PostgresStore], acts: list[Act]
) -> None:
    databases, postgres = pair
    databases.empty_database()
    memory = MemoryStore()
    for act in acts:
        assert act(memory) == act(postgres)
        assert contents(memory) == contents(postgres)


def test_the_comparison_detects_a_difference(pair: tuple[Databases, PostgresStore]) -> None:
    _, postgres = pair
    memory = MemoryStore()
    memory.begin_plan(plan_record())
    assert contents(memory) != contents(postgres)
