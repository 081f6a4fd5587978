"""Times are slurmctld's whatever the clock of hopsd's machine shows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from fixtures_cluster import PrivateCluster

from hopsd.errors import SlurmUnavailableError
from hopsd.slurm.probe.clock import CHECK_SECONDS, TOLERANCE_SECONDS, SlurmClock


@dataclass
class Site:
    """slurmctld at the time ``now``, and a machine whose clock is ``offset`` seconds ahead."""

    now: float = 1_795_830_371.25
    offset: float = 0.0
    is_away: bool = False
    question_count: int = 0

    def with_time_out(self, seconds: float) -> Site:
        return self

    def run(self, *arguments: str) -> str:
        assert arguments == ("sdiag",)
        self.question_count += 1
        if self.is_away:
            raise SlurmUnavailableError("sdiag: no answer")
        head = f"sdiag output at Sat Nov 28 01:26:11 2026 ({int(self.now)})"
        return f"{'*' * 55}\n{head}\nData since      Sat Nov 28 01:00:00 2026 (1795828800)\n"

    def clock(self) -> SlurmClock:
        return SlurmClock(self, lambda: self.now + self.offset, lambda: self.now - 1e9)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds_ahead", [3600.0, -3600.0, 5.0])
def test_a_clock_an_hour_ahead_changes_no_time(seconds_ahead: float) -> None:
    site = Site()
    clock = site.clock()
    assert clock() == site.now
    for site.offset in (seconds_ahead, 0.0, seconds_ahead):
        for _ in range(100):
            site.now += 3.7
            assert clock() == pytest.approx(site.now, abs=0.51)
    assert site.question_count <= 300 * 3.7 / CHECK_SECONDS + 2


def test_a_hopsd_started_with_a_wrong_clock_is_right() -> None:
    site = Site(offset=7200.0)
    assert site.clock()() == pytest.approx(site.now, abs=0.51)


def test_the_machines_clock_is_used_within_the_tolerance() -> None:
    site = Site(offset=TOLERANCE_SECONDS - 0.6)
    assert site.clock()() == site.now + site.offset


def test_time_continues_while_slurmctld_is_away() -> None:
    site = Site(is_away=True)
    clock = site.clock()
    assert clock() == site.now
    site.is_away, site.now = False, site.now + CHECK_SECONDS
    assert clock() == site.now
    site.is_away, site.offset, site.now = True, 3600.0, site.now + 10 * CHECK_SECONDS
    assert clock() == site.now


@pytest.mark.live
def test_slurmctlds_time_is_read(cluster: PrivateCluster) -> None:
    commands = cluster.commands()
    clock = SlurmClock(commands, wall=lambda: 1_000_000_000.0)
    assert clock() != pytest.approx(1_000_000_000.0, abs=86_400.0)
