"""Find which trainings hang, which ranks stopped, and which only wait for them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from hopsd.core.report.rank import Pause, Rank, RankState
from hopsd.health.hung import LIVE_SECONDS, SILENT_SECONDS, find_hung
from hopsd.model.ids import JobId, NodeName

NOW = 1e9
MOVING_STATES = [None, RankState.BUSY, RankState.INTERACTIVE]


def rank(
    number: int, state: RankState | None = RankState.WAITING, world: int = 4, **changes: Any
) -> Rank:
    """Return a rank of job 17, which is making steps if ``state`` is None."""
    is_still = state in (RankState.WAITING, RankState.STOPPED)
    pause = (
        None
        if state is None
        else Pause(state, is_still, 40.0, 38.0 * is_still, 20.0, "t.py:7 in f")
    )
    if pause is not None and state is RankState.WAITING:
        pause = replace(pause, waits_in="all_reduce")
    values: dict[str, Any] = {
        "job": JobId("17"),
        "node": NodeName(f"n{number // 2}"),
        "rank": number,
        "world": world,
        "pid": 100 + number,
        "program": "",
        "ended": False,
        "pause": pause,
        "heard_at": NOW,
        "written_at": NOW,
    }
    return Rank(**values | changes)


def test_the_stopped_rank_is_named_and_not_those_that_wait() -> None:
    (hung,) = find_hung([rank(0), rank(1, RankState.STOPPED), rank(2), rank(3)], NOW)
    assert [place.rank for place in hung.culprits] == [1]
    assert "rank 1 on n0 stands still; 3 others wait for that" in hung.text
    assert "t.py" not in hung.text  # lines of code are shown only to the job's user


def test_a_silent_rank_has_stopped() -> None:
    """As after SIGSTOP: the last report of the rank says that it is making steps."""
    silent = rank(2, None, written_at=NOW - SILENT_SECONDS)
    (hung,) = find_hung([rank(0), rank(1), silent, rank(3)], NOW)
    assert [(p.rank, p.state) for p in hung.culprits] == [(2, RankState.SILENT)]
    assert find_hung([rank(0), rank(1), replace(silent, written_at=NOW - 5), rank(3)], NOW) == ()


def test_ranks_may_wait_for_a_rank_that_has_ended() -> None:
    (hung,) = find_hung([rank(0, None, ended=True, written_at=NOW - 500), rank(1)], NOW)
    assert [(p.rank, p.state) for p in hung.culprits] == [(0, RankState.ENDED)]


def test_a_deadlock_has_no_culprit() -> None:
    (hung,) = find_hung([rank(number) for number in range(4)], NOW)
    assert hung.culprits == ()
    assert "all ranks wait for each other, in all_reduce" in hung.text


@pytest.mark.parametrize("state", MOVING_STATES)
def test_nothing_hangs_while_a_rank_is_active(state: RankState | None) -> None:
    """Rank 0 makes steps, computes, or is being debugged."""
    assert find_hung([rank(0, state), *map(rank, (1, 2, 3))], NOW) == ()


def test_a_pause_that_is_usual_for_one_rank_is_no_hang() -> None:
    """Rank 0 saves for ten minutes, which is unusually long only for the ranks that wait."""
    saves = rank(0, RankState.STOPPED)
    assert saves.pause is not None
    saves = replace(saves, pause=replace(saves.pause, is_stalled=False, limit=1800.0))
    assert find_hung([saves, *map(rank, (1, 2, 3))], NOW) == ()


def test_old_reports_are_ignored() -> None:
    """The script has killed the training and is doing something else."""
    reports = [rank(number, heard_at=NOW - LIVE_SECONDS - 1) for number in range(4)]
    assert find_hung(reports, NOW) == ()


def test_a_restarted_training_is_judged_by_its_new_ranks() -> None:
    before = [rank(number, written_at=NOW - 300, heard_at=NOW - 290) for number in range(4)]
    after = [rank(number, None, pid=200 + number) for number in range(4)]
    assert find_hung([*before, *after], NOW) == ()


def test_trainings_in_the_same_job_are_judged_separately() -> None:
    alone = {"world": 1, "node": NodeName("n0")}
    stopped_rank = rank(0, RankState.STOPPED, **alone)
    (hung,) = find_hung([stopped_rank, rank(0, None, pid=7, **alone)], NOW)
    assert [place.pid for place in hung.ranks] == [100]


def test_no_random_training_hangs_while_any_rank_is_active() -> None:
    dice = random.Random(5)
    for _ in range(2_000):
        world = dice.choice([2, 4, 8])
        moving_ranks = set(dice.sample(range(world), dice.randint(1, world)))
        ranks = [
            rank(number, dice.choice(MOVING_STATES), world, written_at=NOW - dice.uniform(0, 10))
            if number in moving_ranks
            else rank(number, dice.choice([RankState.WAITING, RankState.STOPPED]), world)
            for number in range(world)
        ]
        assert find_hung(ranks, NOW) == ()
