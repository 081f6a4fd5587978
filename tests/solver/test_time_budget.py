"""The hard time limit of a plan while other programs use the CPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from instances import snapshot
from programs import assert_holds, in_time

from hopsd.model.plan import PlanSettings
from hopsd.policies.hops.policy import plan


@pytest.fixture
def busy_cpus() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize("seconds", [2.0, 4.0])
def test_the_limit_holds_under_load(seconds: float) -> None:
    """A gap of 0 is unreachable for 1,000 GPUs, so only the limit ends the search."""
    instance = snapshot(0, servers=130, jobs=400)
    settings = PlanSettings(gap=0.0, time_limit_seconds=seconds)
    result = in_time(lambda: plan(instance, settings), seconds * 1.2)
    assert_holds(instance, result)
    assert result.placements
    assert result.gap < 0.25
