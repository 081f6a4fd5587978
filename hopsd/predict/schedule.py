"""Predicts starts and ends for rigid jobs without preemption, with a timetable of servers.

In the queue's order, each job gets its earliest place given the drawn run times. Backfill arrives
at the same schedule: it plans with time limits, and again at every early end. Future jobs are
ignored, as they queue behind all others or are too few to matter.
"""

from __future__ import annotations

from math import inf

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.model.ids import NodeName
from hopsd.policies.timetable import Gain, Timetable
from hopsd.predict.playout import Draw, Timeline
from hopsd.predict.situation import Situation
from hopsd.predict.traits import Ranking, Traits


def schedule_playouts(situation: Situation, traits: Traits, draw: Draw) -> Timeline:
    """Make one timetable per playout; playouts with the same run times share one."""
    starts, ends = np.full(draw.work.shape, inf), np.full(draw.work.shape, inf)
    deterministic = not situation.spread.any()
    for row in range(1 if deterministic else len(draw.work)):
        starts[row], ends[row] = _schedule_one(situation, traits, draw.work[row])
    if deterministic:
        starts[:], ends[:] = starts[0], ends[0]
    return Timeline(starts, ends)


def _schedule_one(situation: Situation, traits: Traits, work: Floats) -> tuple[Floats, Floats]:
    starts, ends = np.full(len(work), inf), np.full(len(work), inf)
    gains: dict[NodeName, list[Gain]] = {}
    for index, allocation in enumerate(situation.running):
        if allocation:
            rate = situation.rate[index]
            starts[index] = 0.0
            ends[index] = work[index] / rate if rate > 0.0 else inf
            for node, gpus in allocation:
                gains.setdefault(node, []).append((max(1e-6, float(ends[index])), gpus))
    idle = {node.name: node.idle for node in situation.nodes}
    table = Timetable(0.0, situation.nodes, idle, gains)
    key = situation.age if traits.order is Ranking.AGE else situation.submit
    latest_start = 0.0
    for index in np.argsort(key, kind="stable").tolist():
        if situation.gpus_held[index] > 0.0 or not situation.competes[index]:
            continue
        seconds = {
            t: float(work[index] / rate) for t, rate in situation.rigid_by_type[index].items()
        }
        place = table.soonest(int(situation.rigid[index]), seconds)
        if place is None:
            continue
        starts[index], ends[index] = place.start, place.end
        if not traits.overtakes:
            latest_start = max(latest_start, place.start)
            starts[index] = latest_start
        table.reserve(place)
    return starts, ends
