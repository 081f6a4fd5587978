"""When a training is judged to be stalled, from periodic observations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hops_profiler.stall.stacks import StackPosition, place
from hops_profiler.stall.watchdog import (
    LOOK_SECONDS,
    MIN_SECONDS,
    MIN_SIDE_SECONDS,
    TIMES,
    Judgement,
    Sample,
)

SAME_PLACE: Any = ((1, 1),)


def looks(
    judgement: Judgement,
    now: float,
    seconds: float,
    *,
    busy: float = 0.0,
    read: int = 0,
    moves: bool = False,
    waits_in: str = "",
    **sample: bool,
) -> float:
    """Observe it every two seconds; return when it was first stalled, or infinity."""
    first = float("inf")
    for look in range(int(seconds / LOOK_SECONDS)):
        at = now + look * LOOK_SECONDS
        signature: Any = ((1, look),) if moves else SAME_PLACE
        sampled_place = StackPosition(
            signature, "train.py:1 in f", waits_in, interactive=False, side_work=False
        )
        if judgement.look(at, Sample(sampled_place, busy * at, int(read * at), **sample)):
            first = at
    return first


def test_a_training_without_signs_of_life_is_stalled_within_half_a_minute() -> None:
    judgement = Judgement()
    judgement.record_steps(100.0)
    assert looks(judgement, 102.0, 60.0) <= 102.0 + MIN_SECONDS
    assert (judgement.is_stalled, judgement.state) == (True, "stopped")
    judgement.record_steps(200.0)
    assert (judgement.is_stalled, judgement.state) == (False, "busy")


def test_waiting_for_others_differs_from_having_stopped() -> None:
    judgement = Judgement()
    looks(judgement, 0.0, 60.0, waits_in="all_reduce")
    assert judgement.state == "waiting"


@pytest.mark.parametrize(
    "life",
    [{"moves": True}, {"busy": 0.1}, {"read": 2 << 20}, {"interactive": True}],
    ids=["evaluates", "computes in C or in children", "saves", "debugs"],
)
def test_a_training_with_a_sign_of_life_is_never_stalled(life: dict[str, Any]) -> None:
    assert looks(Judgement(), 0.0, 4 * 3600.0, **life) == float("inf")


def test_a_first_evaluation_that_sleeps_for_ten_minutes_is_not_stalled() -> None:
    judgement = Judgement()
    assert looks(judgement, 0.0, 660.0, side_work=True) == float("inf")
    assert looks(judgement, 662.0, 2 * MIN_SIDE_SECONDS, side_work=True) < float("inf")


def test_pauses_that_have_ended_are_regular() -> None:
    """A rollout on other machines may take 18 s each time."""
    judgement = Judgement()
    looks(judgement, 0.0, 18.0)
    judgement.record_steps(18.0)
    learnt = looks(judgement, 20.0, 300.0)
    assert 20.0 + TIMES * 14.0 <= learnt <= 20.0 + TIMES * 18.0 + LOOK_SECONDS


def test_a_process_that_spins_for_its_gpu_is_stalled() -> None:
    assert looks(Judgement(), 0.0, 60.0, busy=1.0, gpu_unfinished=True) <= MIN_SECONDS
    assert looks(Judgement(), 0.0, 60.0, busy=1.0) == float("inf")


def test_the_stack_position_is_the_line_of_the_user() -> None:
    def evaluate_all() -> StackPosition:
        return place(sys._getframe(), several_ranks=False)

    user_line = evaluate_all()
    assert user_line.line.startswith("test_judgement.py:")
    assert user_line.line.endswith("in evaluate_all")
    assert user_line.side_work
    assert not user_line.interactive
    assert user_line.signature != evaluate_all().signature


def test_a_debugger_is_recognized(tmp_path: Path) -> None:
    script = tmp_path / "debugged.py"
    script.write_text(
        "import pdb, sys, io\n"
        "from hops_profiler.stall.stacks import place\n"
        "class In(io.StringIO):\n"
        "    def readline(self, *size):\n"
        "        print('seen', place(sys._getframe(), several_ranks=False).interactive)\n"
        "        return 'continue\\n'\n"
        "pdb.Pdb(stdin=In(), stdout=io.StringIO()).set_trace()\n"
        "print('end')\n"
    )
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "seen True" in result.stdout


def test_a_rank_that_waited_for_an_evaluation_soon_treats_such_a_wait_as_unusual() -> None:
    judgement = Judgement()
    looks(judgement, 0.0, 600.0, waits_in="barrier")
    judgement.record_steps(600.0)
    judgement.record_steps(602.0, 100)
    assert looks(judgement, 604.0, 60.0, waits_in="all_reduce") <= 604.0 + MIN_SECONDS


def test_long_communication_in_each_step_is_regular() -> None:
    judgement = Judgement()
    for step in range(20):
        looks(judgement, 40.0 * step, 30.0, waits_in="all_reduce")
        judgement.record_steps(40.0 * step + 30.0)
    assert looks(judgement, 800.0, 80.0, waits_in="all_reduce") == float("inf")
