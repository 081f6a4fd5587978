"""The situations in which the first plans of policies are timed."""

from __future__ import annotations

from bench.first_plans import situations


def test_situations_are_starts_of_rounds_on_busy_clusters() -> None:
    busy_starts = situations("paper-64", 0, hours=2.0, count=3)
    assert len(busy_starts) == 3
    assert all(snapshot.round.first for snapshot in busy_starts)
    assert [snapshot.now for snapshot in busy_starts] == sorted(
        {snapshot.now for snapshot in busy_starts}
    )
    jobs = [len(snapshot.jobs) for snapshot in busy_starts]
    assert 2 * min(jobs) >= max(jobs) > 0
