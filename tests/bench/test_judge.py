"""The judge of the bench of faults blames hops for nothing that slurmctld forgot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.chaos import judge
from bench.chaos.world import Submitted


@pytest.mark.parametrize(("forgot", "explained"), [((138.0, 147.0), True), ((200.0, 210.0), False)])
def test_a_job_whose_requeue_slurmctld_forgot_is_not_lost_by_hops(
    forgot: tuple[float, float], explained: bool
) -> None:
    """It went back to a state in which the job had failed, of the checkpoint signal."""
    job = Submitted("t", "36", 30.0, "6", "broken", 9)
    run = judge.Run("t", "36", 0, start=121.0, last=128.0, nodes=("n0",))
    world: Any = SimpleNamespace(forgot=[forgot])
    (found,) = judge.never_ended(world, job, [run], {"t": [("FAILED", 128.0), ("PENDING", 141.0)]})
    assert bool(found.explained) is explained
