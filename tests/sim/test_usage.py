"""Users' shares in virtual time: factors as in Slurm's classic fair share, and users' usage."""

from __future__ import annotations

import pytest

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName, UserName
from hopsd.sim.metrics import AllocationChange
from hopsd.sim.usage import HALF_LIFE_SECONDS, DecayedUsage, gpu_seconds, unmet

ANN, BEN = UserName("ann"), UserName("ben")
SHARES = {ANN: 3.0, BEN: 1.0}


def test_an_unused_share_has_factor_1_and_a_used_up_share_one_half() -> None:
    usage = DecayedUsage(SHARES)
    assert usage.factors(0.0) == {ANN: 1.0, BEN: 1.0}
    usage.holds(0.0, JobId("1"), ANN, 3)
    usage.holds(0.0, JobId("2"), BEN, 1)
    assert usage.factors(100.0) == pytest.approx({ANN: 0.5, BEN: 0.5})
    usage.holds(100.0, JobId("1"), ANN, 0)
    later = usage.factors(100.0 + 3 * HALF_LIFE_SECONDS)
    assert later[BEN] < 0.1
    assert later[ANN] > 0.9
    [ann, ben] = usage.rules(200.0).associations.values()
    assert (ann.user, ben.user) == (ANN, BEN)
    assert not DecayedUsage({}).rules(0.0).associations


def test_usage_is_counted_between_two_times() -> None:
    allocation = Allocation(((NodeName("n0"), 2),))
    changes = [
        AllocationChange(0.0, JobId("1"), allocation),
        AllocationChange(50.0, JobId("2"), allocation),
        AllocationChange(80.0, JobId("1"), Allocation()),
    ]
    gpu_seconds_by_user = gpu_seconds(changes, {JobId("1"): ANN, JobId("2"): BEN}, 20.0, 100.0)
    assert gpu_seconds_by_user == {ANN: 120.0, BEN: 100.0}
    far = unmet(gpu_seconds_by_user, SHARES)
    assert far[ANN] == pytest.approx(120 / 220 / 0.75 - 1)
    assert unmet({}, SHARES) == {ANN: -1.0, BEN: -1.0}
