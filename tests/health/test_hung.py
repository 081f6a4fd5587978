"""Which trainings hang, which ranks stopped, and which only wait for them."""

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
    """Of job 17; ``state`` None: it makes its steps."""
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


def test_the_rank_that_stopped_is_told_from_those_that_wait_for_it() -> None:
    (hung,) = find_hung([rank(0), rank(1, RankState.STOPPED), rank(2), rank(3)], NOW)
    assert [place.rank for place in hung.culprits] == [1]
    assert "rank 1 on n0 stands still; 3 others wait for that" in hung.text
    assert "t.py" not in hung.text  # the user's code is the user's


def test_a_rank_that_says_nothing_any_more_has_stopped() -> None:
    """As after SIGSTOP: its last word was that it makes its steps."""
    silent = rank(2, None, written_at=NOW - SILENT_SECONDS)
    (hung,) = find_hung([rank(0), rank(1), silent, rank(3)], NOW)
    assert [(p.rank, p.state) for p in hung.culprits] == [(2, RankState.SILENT)]
    assert find_hung([rank(0), rank(1), replace(silent, written_at=NOW - 5), rank(3)], NOW) == ()


def test_ranks_may_wait_for_one_that_has_ended() -> None:
    (hung,) = find_hung([rank(0, None, ended=True, written_at=NOW - 500), rank(1)], NOW)
    assert [(p.rank, p.state) for p in hung.culprits] == [(0, RankState.ENDED)]


def test_in_a_deadlock_no_rank_is_to_blame() -> None:
    (hung,) = find_hung([rank(number) for number in range(4)], NOW)
    assert hung.culprits == ()
    assert "all ranks wait for each other, in all_reduce" in hung.text


@pytest.mark.parametrize("state", MOVING_STATES)
def test_a_rank_that_does_something_may_free_the_others(state: RankState | None) -> None:
    """Rank 0 evaluates, or somebody debugs it."""
    assert find_hung([rank(0, state), *map(rank, (1, 2, 3))], NOW) == ()


def test_a_pause_that_is_usual_for_one_rank_is_usual() -> None:
    """Rank 0 saves for ten minutes; only those that wait find that long."""
    saves = rank(0, RankState.STOPPED)
    assert saves.pause is not None
    saves = replace(saves, pause=replace(saves.pause, is_stalled=False, limit=1800.0))
    assert find_hung([saves, *map(rank, (1, 2, 3))], NOW) == ()


def test_old_words_are_no_evidence() -> None:
    """The script has killed the training, and does something else."""
    words = [rank(number, heard_at=NOW - LIVE_SECONDS - 1) for number in range(4)]
    assert find_hung(words, NOW) == ()


def test_a_training_that_was_started_again_is_judged_by_its_new_ranks() -> None:
    before = [rank(number, written_at=NOW - 300, heard_at=NOW - 290) for number in range(4)]
    after = [rank(number, None, pid=200 + number) for number in range(4)]
    assert find_hung([*before, *after], NOW) == ()


def test_trainings_that_share_a_job_are_judged_apart() -> None:
    alone = {"world": 1, "node": NodeName("n0")}
    stopped_rank = rank(0, RankState.STOPPED, **alone)
    (hung,) = find_hung([stopped_rank, rank(0, None, pid=7, **alone)], NOW)
    assert [place.pid for place in hung.ranks] == [100]


def test_while_any_rank_moves_nothing_hangs() -> None:
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
