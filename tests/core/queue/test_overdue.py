"""Jobs that have waited too long come before shares and QOS, on a part of the GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from queued_jobs import T4, V100, job, snapshot

from hopsd.core.queue.overdue import PART, STAY_FACTOR
from hopsd.core.queue.priority import queue
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, PriorityName, RoundInfo, Snapshot
from hopsd.model.rules import Limit, Rules, ShapeRule
from hopsd.policies.hops.policy import plan
from hopsd.policies.registry import get

SHARES = PlanSettings(priority=PriorityName.FAIR_SHARE_FIRST)
HOUR = 3600.0
LATE_SECONDS = 24 * HOUR
"""Some dozens of times the run time of a job that takes half an hour."""
LARGE = tuple(Node(NodeName(f"n{n}"), V100, 8, 8) for n in range(64))
"""512 GPUs, of which overdue jobs may have 51."""
TABLES = {V100: ThroughputTable({1: 1.0, 8: 0.9}, {2: 0.8})}


def late_job_of(name: str, *, user: str = "", ratio: float = 20.0, **given_values: object) -> Job:
    values = {"reqs": (1,), "age_seconds": HOUR, "share": 0.0, "throughput": TABLES}
    values |= given_values
    values |= {"user": UserName(user or name), "wait_seconds": ratio * HOUR}
    return job(name, **values)


def allocation_at(gpus: int, place: int = 0) -> Allocation:
    """Whole nodes, eight other ones for each ``place``."""
    return Allocation.of({NodeName(f"n{8 * place + n}"): 8 for n in range(gpus // 8)})


def large_cluster(
    *jobs: Job, turn: int = 1, first: bool = True, limits: Iterable[Limit] = ()
) -> Snapshot:
    """The large cluster in the ``turn``-th round of half an hour."""
    competitors = [
        job(f"other{n}", reqs=(64,), share=1.0, wait_seconds=0.0, throughput=TABLES)
        for n in range(9)
    ]
    info = RoundInfo(first, 1800.0)
    nodes = [
        replace(n, idle=8 - sum(held_by.running.on(n.name) for held_by in jobs)) for n in LARGE
    ]
    return Snapshot(1800.0 * turn + 9.0, info, tuple(nodes), (*jobs, *competitors), tuple(limits))


def overdue_jobs(world: Snapshot) -> list[Job]:
    """The overdue jobs, which come before all factors, in order."""
    order = queue(world, SHARES).jobs
    ordinary = [n for n, candidate in enumerate(order) if candidate.share]
    return list(order[: ordinary[0]])


def names(world: Snapshot) -> list[str]:
    return [job.id for job in overdue_jobs(world)]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_jobs_that_waited_too_long_come_before_shares(
    late_share: float, usual_share: float
) -> None:
    waits = job(
        "9", user=UserName("late"), share=late_share, age_seconds=1800.0, wait_seconds=LATE_SECONDS
    )
    punctual_jobs = [
        job(str(n), share=usual_share, age_seconds=1800.0, reqs=(1, 8)) for n in range(3)
    ]
    assert queue(snapshot(*punctual_jobs, replace(waits, reqs=(1, 8))), SHARES).jobs[0].id == "9"
    fair_share = replace(SHARES, priority=PriorityName.FAIR_SHARE)
    assert queue(snapshot(waits), fair_share).priority["9"] < LATE_SECONDS


SIZES = st.sampled_from([1, 8, 32, 48, 64, 512])


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sets(SIZES, min_size=1),
            st.sampled_from([0, 0, 8, 64]),
            st.floats(0.0, 1e6),
            st.sampled_from([None, None, None, 5.0]),
        ),
        max_size=8,
    ),
    st.integers(0, 100),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_each_user_has_one_overdue_job_and_a_larger_one_takes_turns(
    cases: list[tuple[str, set[int], int, float, float | None]],
    turn: int,
    first: bool,
    random: Random,
) -> None:
    jobs = [
        late_job_of(
            str(n),
            user=user,
            ratio=ratio,
            reqs=tuple(sorted(reqs)),
            running=allocation_at(gpus, n),
            priority=priority,
        )
        for n, (user, reqs, gpus, ratio, priority) in enumerate(cases)
    ]
    world = large_cluster(*jobs, turn=turn, first=first)
    boosted_jobs = [item for item in overdue_jobs(world) if item.priority is None]
    by_id = {item.id: item for item in jobs}
    part = PART * 512
    small = [item for item in boosted_jobs if min(item.reqs) <= part]
    assert len({item.user for item in small}) == len(small)
    assert sum(max(item.reqs) for item in small) <= part
    large = [item for item in boosted_jobs if min(item.reqs) > part]
    assert len(large) <= 1
    assert not large or (first and boosted_jobs[0] is large[0])
    for item in boosted_jobs:
        priority = by_id[item.id]
        assert priority.wait_seconds / HOUR > SHARES.overdue_ratio
        assert item.reqs == (min(priority.reqs),)
        assert item.running.gpus in {0, *item.reqs}
    random.shuffle(jobs)
    shuffled_world = replace(world, jobs=tuple(random.sample(world.jobs, len(world.jobs))))
    assert names(shuffled_world) == names(world)


def test_an_elastic_job_leaves_room_for_other_users() -> None:
    jobs = [late_job_of(str(n), ratio=20.0 + n, reqs=(1, 8, 32, 48)) for n in range(60)]
    boosted_jobs = overdue_jobs(large_cluster(*jobs))
    assert [item.id for item in boosted_jobs] == [str(n) for n in range(59, 8, -1)]
    assert {item.reqs for item in boosted_jobs} == {(1,)}


def test_an_elastic_job_grows_into_gpus_that_no_other_job_can_use() -> None:
    grows = late_job_of("1", reqs=(1, 2, 4, 8), share=0.5)
    nodes = LARGE[:2]
    competitors = [job(f"other{n}", reqs=(2, 4), share=1.0) for n in range(3)]
    world = Snapshot(9.0, RoundInfo(True, 1800.0), nodes, (grows, *competitors))
    assert queue(world, SHARES).jobs[0].reqs == (1, 2, 4)
    larger = replace(world, nodes=LARGE)
    assert queue(larger, SHARES).jobs[0] == grows


def test_gpus_of_jobs_that_stay_are_not_free_for_growth() -> None:
    grows = late_job_of("1", reqs=(1, 2, 4))
    competitor = job("other", reqs=(2,), share=1.0)
    stays = job("2", reqs=(8,), preemptible=False, running=allocation_at(8))
    nodes = (replace(LARGE[1], idle=0), replace(LARGE[0], idle=3))
    world = Snapshot(9.0, RoundInfo(False, 1800.0), nodes, (grows, competitor, stays))
    assert queue(world, SHARES).jobs[0].reqs == (1,)


@pytest.mark.parametrize(("gpus", "turns"), [(8, 1), (48, 1), (64, 2), (128, 3), (512, 10)])
def test_a_job_larger_than_the_part_comes_first_in_one_of_several_rounds(
    gpus: int, turns: int
) -> None:
    """Otherwise some jobs would be too large ever to come first."""
    large = late_job_of("1", reqs=(gpus,))
    rounds = [turn for turn in range(1, 51) if names(large_cluster(large, turn=turn))]
    assert abs(len(rounds) - 50 / turns) <= 2
    assert all(after - before <= 3 * turns for before, after in pairwise(rounds))


@pytest.mark.parametrize("period", [2, 3])
@pytest.mark.parametrize("phase", [0, 1, 2])
def test_turns_come_round_even_if_rounds_take_longer_than_their_nominal_length(
    period: int, phase: int
) -> None:
    """With ticks of 45 s a round of 60 s takes 90 s, so every third round number is skipped."""
    large = late_job_of("1", reqs=(128,))
    rounds = [n for n in range(30) if names(large_cluster(large, turn=phase + period * n))]
    assert 8 <= len(rounds) <= 12


def test_a_large_job_comes_before_other_overdue_jobs_in_its_turn() -> None:
    jobs = [late_job_of("1", reqs=(512,), ratio=11.0)]
    jobs += [late_job_of(str(n), ratio=1000.0, share=0.9) for n in range(2, 9)]
    turn = next(
        turn for turn in range(1, 40) if names(large_cluster(*jobs, turn=turn))[:1] == ["1"]
    )
    world = large_cluster(*jobs, turn=turn)
    assert plan(world, SHARES).placements.keys() == {"1"}
    assert "1" not in plan(replace(world, now=world.now + 1800.0), SHARES).placements


def test_the_most_overdue_large_job_gets_the_turn() -> None:
    jobs = [late_job_of(str(n), user="a", reqs=(64,), ratio=20.0 + n) for n in range(5)]
    assert names(large_cluster(*jobs, turn=0)) == ["4"]


def test_a_turn_begins_with_a_round() -> None:
    assert names(large_cluster(late_job_of("1", reqs=(64,)), turn=0, first=False)) == []


def test_a_running_job_keeps_its_place_until_another_is_twice_as_overdue() -> None:
    jobs = [late_job_of(str(n), reqs=(48,), ratio=20.0) for n in range(2)]
    jobs[0] = replace(jobs[0], running=allocation_at(48), reqs=(48,))
    for factor, first in ((0.99, "0"), (1.01, "1")):
        wait = STAY_FACTOR * factor * jobs[0].wait_seconds
        assert names(large_cluster(jobs[0], replace(jobs[1], wait_seconds=wait))) == [first]


@pytest.mark.long
@pytest.mark.slow
def test_users_with_running_jobs_do_not_take_the_part_of_starving_users() -> None:
    """Regression: the low user never ran, as with twice the demand each running job was overdue."""
    high = [
        late_job_of(
            f"1{n}", reqs=(8,), share=1.0, running=allocation_at(8, n), ratio=30.0, user=f"high{n}"
        )
        for n in range(8)
    ]
    low = late_job_of("2", reqs=(8,), ratio=11.0)
    assert "2" in plan(large_cluster(*high, low), SHARES).placements
    grown_jobs = [
        replace(item, reqs=(8, 16, 512), running=allocation_at(16, n))
        for n, item in enumerate(high[:7])
    ]
    order = queue(large_cluster(*grown_jobs, low), SHARES).jobs
    assert order[0].id == "2"
    assert all(item.running.gpus == 16 and 512 in item.reqs for item in order[1:8])


def test_a_job_that_grew_in_a_quiet_round_shrinks() -> None:
    """Regression: such a job was stopped, and started again a round later."""
    grew = late_job_of("1", reqs=(8, 64), running=allocation_at(64))
    assert plan(large_cluster(grew), SHARES).placements["1"].gpus == 8


ALONE = {V100: ThroughputTable({8: 1.0})}
"""Speeds of a job that was never measured on several servers."""


@pytest.mark.parametrize("policy", ["hops", "hops+"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("scene", ["types", "limit", "fragments"])
def test_idle_gpus_unusable_for_the_overdue_job_delay_no_other_job(
    scene: str, first: bool, policy: str
) -> None:
    low = late_job_of("9", reqs=(8,), ratio=500.0, throughput=ALONE)
    high = [
        late_job_of(f"1{n}", user="high", reqs=(8,), ratio=0.0, share=1.0, throughput=ALONE)
        for n in range(3)
    ]
    nodes, limits = LARGE[:10], []
    if scene == "types":
        nodes = (LARGE[0], *(replace(node, gpu_type=T4) for node in LARGE[1:10]))
    elif scene == "fragments":
        nodes = (LARGE[0], *(replace(node, idle=4) for node in LARGE[1:10]))
    else:
        limits = [Limit("account", frozenset(job.id for job in (*high, low)), gpus=8)]
    world = Snapshot(9.0, RoundInfo(first, 1800.0), nodes, (*high, low), tuple(limits))
    assert get(policy)(world, SHARES).placements.keys() == {"9"}


def test_a_job_that_may_not_run_uses_none_of_the_part() -> None:
    full = [late_job_of(f"1{n}", reqs=(8,), ratio=99.0) for n in range(6)]
    misfits = [
        replace(item, rules=Rules(nodes=frozenset({NodeName("gone")})), reqs=(8,)) for item in full
    ]
    waits = late_job_of("2", reqs=(8,))
    assert names(large_cluster(*misfits, waits)) == ["2"]
    full_limit = Limit("QOS full", frozenset(item.id for item in full), gpus=0)
    assert names(large_cluster(*full, waits, limits=[full_limit])) == ["2"]
    item = Limit("QOS one", frozenset(item.id for item in full), count=1)
    assert names(large_cluster(*full, waits, limits=[item])) == ["10", "2"]
    large = late_job_of("3", reqs=(64,), ratio=99.0), late_job_of("4", reqs=(64,))
    full_limit = Limit("QOS full", frozenset({JobId("3")}), gpus=0)
    assert names(large_cluster(*large, limits=[full_limit], turn=0)) == ["4"]


def test_an_overdue_job_that_stays_in_place_counts_in_the_part() -> None:
    stays = late_job_of("1", reqs=(48,), running=allocation_at(48), preemptible=False)
    assert names(large_cluster(stays, late_job_of("2", reqs=(8,)))) == []
    assert names(large_cluster(stays, late_job_of("2", reqs=(2,)))) == ["2"]


@given(st.floats(1.0, 1e6), st.floats(0.0, 5999.0))
def test_claiming_few_samples_makes_no_job_overdue(samples: float, wait: float) -> None:
    claims = late_job_of("1", age_seconds=None, samples=samples)
    assert names(large_cluster(replace(claims, wait_seconds=wait))) == []
    assert names(large_cluster(replace(claims, samples=1.0, wait_seconds=6001.0))) == ["1"]


def test_an_overdue_job_gets_a_count_that_its_rules_allow() -> None:
    rules = Rules(shape=ShapeRule.EVEN, per_node=8, min_gpus=((T4, 9), (V100, 32)))
    waits = late_job_of("1", reqs=(4, 8, 32, 64), rules=rules)
    assert [item.reqs for item in overdue_jobs(large_cluster(waits))] == [(32,)]
    assert names(large_cluster(replace(waits, reqs=(8, 64)))) == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["hops", "hops+"])
def test_the_plan_serves_overdue_jobs_before_all_shares(policy: str) -> None:
    small = late_job_of("1", reqs=(8, 16)), late_job_of("2", reqs=(4,), share=1.0, ratio=15.0)
    large = late_job_of("3", reqs=(128,), ratio=99.0)
    for turn in range(2):
        placements = get(policy)(large_cluster(*small, large, turn=turn), SHARES).placements
        boosted_gpus = {
            job: placements[job].gpus for job in placements if not job.startswith("other")
        }
        assert boosted_gpus == {"1": 8, "2": 4} | ({"3": 128} if turn == 0 else {})
