"""Starts and ends under policies of rigid jobs that are never preempted: a timetable of servers.

In the queue's order, each job gets its earliest place, with run times as drawn: what backfill
arrives at by planning with time limits and again at every early end. Jobs to come are behind all
others, or too few to matter.
"""

from __future__ import annotations

from math import inf

import numpy as np

from hopsd.model.arrays import Floats
from hopsd.model.ids import NodeName
from hopsd.policies.timetable import Gain, Timetable
from hopsd.predict.playout import Drawn, Played
from hopsd.predict.situation import Situation
from hopsd.predict.traits import Order, Traits


def listed(of: Situation, traits: Traits, draw: Drawn) -> Played:
    """One timetable for each playout; playouts with the same run times share one."""
    starts, ends = np.full(draw.left.shape, inf), np.full(draw.left.shape, inf)
    same = not of.spread.any()
    for row in range(1 if same else len(draw.left)):
        starts[row], ends[row] = _one(of, traits, draw.left[row])
    if same:
        starts[:], ends[:] = starts[0], ends[0]
    return Played(starts, ends)


def _one(of: Situation, traits: Traits, left: Floats) -> tuple[Floats, Floats]:
    starts, ends = np.full(len(left), inf), np.full(len(left), inf)
    gains: dict[NodeName, list[Gain]] = {}
    for at, allocation in enumerate(of.running):
        if allocation:
            rate = of.rate[at]
            starts[at] = 0.0
            ends[at] = left[at] / rate if rate > 0.0 else inf
            for node, gpus in allocation:
                gains.setdefault(node, []).append((max(1e-6, float(ends[at])), gpus))
    idle = {node.name: node.idle for node in of.nodes}
    table = Timetable(0.0, of.nodes, idle, gains)
    key = of.age if traits.order is Order.AGE else of.submit
    begun = 0.0
    for at in np.argsort(key, kind="stable").tolist():
        if of.held[at] > 0.0 or not of.competes[at]:
            continue
        seconds = {t: float(left[at] / rate) for t, rate in of.rigid_by_type[at].items()}
        place = table.soonest(int(of.rigid[at]), seconds)
        if place is None:
            continue
        starts[at], ends[at] = place.start, place.end
        if not traits.overtakes:
            begun = max(begun, place.start)
            starts[at] = begun
        table.reserve(place)
    return starts, ends
