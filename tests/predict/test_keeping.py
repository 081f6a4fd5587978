"""A running job of known work likely keeps the GPUs that it has until it ends."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PriorityName, RoundInfo, Snapshot
from hopsd.predict.keeping import PRIOR_CHANGES, PRIOR_SECONDS, Keeping
from hopsd.predict.predictor import Predictor
from hopsd.predict.situation import Situation, situation_of

T, N0, N1 = GpuType("t"), NodeName("n0"), NodeName("n1")
HOUR = 3600.0


def job(name: str, seconds: float, gpus: int, node: NodeName = N0) -> Job:
    """It may have one GPU or eight; ``seconds``: left with ``gpus``."""
    return Job(
        JobId(name), UserName("ann"), 0.0, 0.0, (1, 8), {T: ThroughputTable({1: 1.0, 8: 1.0})},
        samples=seconds * gpus, running=Allocation(((node, gpus),)) if gpus else Allocation(),
    )  # fmt: skip


def situation(now: float, *jobs: Job) -> Situation:
    held = {n: sum(g for j in jobs for name, g in j.running if name == n) for n in (N0, N1)}
    nodes = tuple(Node(n, T, 8, 8 - held[n]) for n in (N0, N1))
    snapshot = Snapshot(now, RoundInfo(first=False, seconds=360.0), nodes, jobs)
    return situation_of(snapshot, {}, now + 360.0, 360.0)


def test_changes_are_counted_by_how_long_jobs_ran() -> None:
    keeping = Keeping()
    first, second = job("1", 1e6, 8), job("2", 1e6, 8, N1)
    for hour in range(90):  # the second moves every other hour, the first never
        there = second if hour // 2 % 2 else replace(second, running=Allocation(((N1, 1),)))
        keeping.note(situation(hour * HOUR, first, there))
    assert keeping.changes == PRIOR_CHANGES + 44
    assert keeping.seconds == PRIOR_SECONDS + 2 * 89 * HOUR
    kept = keeping.chance(np.array([0.0, HOUR]))
    assert kept == pytest.approx([1.0, exp(-HOUR * keeping.changes / keeping.seconds)])


def test_who_starts_waits_or_ends_is_no_change() -> None:
    keeping = Keeping()
    keeping.note(situation(0.0, job("1", 1e6, 8), job("2", 1e6, 0)))
    keeping.note(situation(HOUR, job("2", 1e6, 8)))
    assert (keeping.changes, keeping.seconds) == (PRIOR_CHANGES, PRIOR_SECONDS)


@pytest.mark.parametrize(("seconds", "changes"), [(1e9, PRIOR_CHANGES), (PRIOR_SECONDS, 1e9)])
def test_an_end_is_when_the_present_speed_says_where_gpus_are_kept(
    seconds: float, changes: float
) -> None:
    """Playouts give a job that ends in 20 min all of a server, though plans may leave it where it
    is: 1200 s, or six minutes to the next round and an eighth of what is left then."""
    predictor = Predictor.of_policy("hops", PriorityName.LATENCY_RATIO)
    predictor.keeping.seconds, predictor.keeping.changes = seconds, changes
    (end,) = predictor.all_of(situation(0.0, job("1", 1200.0, 1)))
    kept = changes == PRIOR_CHANGES
    assert end.expected == pytest.approx(1200.0 if kept else 360.0 + 840.0 / 8, rel=0.1)
