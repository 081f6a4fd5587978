"""Plays jobs on from the present, many times at once, with a coarse model of planning.

Each playout draws the work that every job has left, and jobs to come. GPUs are one amount: servers,
types and racks are left out, but for a job's mean speed and for what is idle at first: what no
waiting job can use then stays idle until running jobs move. A plan gives them in the order of what
the policy maximises per GPU (the relaxation of its program), or to rigid jobs in its queue's order.
What that gets wrong on average, calibration corrects (``calibration.py``).

Arrays are (playouts, jobs); every playout has its own clock. A step goes to its next event, and the
further ahead, the more events it takes together, so the number of steps hardly depends on the
number of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.predict.limit_share import LimitShares
from hopsd.predict.situation import COUNTS_MAX, Situation, Source
from hopsd.predict.traits import Order, Traits

HORIZON_SECONDS = 14 * 86400.0
"""What lies beyond is not predicted."""

COARSENESS = 0.025
"""A step takes the events of this share of the time ahead together."""

LEAST_EARLY = 60.0, 1 / 6
"""A round that may end early lasts so many seconds, and such a share of its length."""

STEPS_MAX = 4000

COMMON_ERROR = 0.2
"""Standard deviation of the error of ln(work) that all jobs have in common."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Work left (playouts, jobs), and jobs to come: when, and like which job of the situation."""

    left: Floats
    arrivals: Floats
    like: Ints


@dataclass(frozen=True, slots=True)
class Played:
    """Seconds from now of each job's start and end, (playouts, jobs); infinity: beyond the horizon.
    The start of a running job is 0.
    """

    starts: Floats
    ends: Floats


def drawn(
    of: Situation,
    samples: int,
    arrivals: Floats,
    like: Ints,
    rng: np.random.Generator,
    limits: LimitShares,
) -> Drawn:
    """Work left by each job's distribution, never more than what it may take.

    Each playout has a factor of its own for all jobs whose run time past runs tell: these may be
    wrong for all together. Jobs of which only a time limit is known use the share of it that
    ``limits`` has seen.
    """
    z = rng.standard_normal((samples, len(of.ids)))
    common = COMMON_ERROR * rng.standard_normal((samples, 1)) * (of.spread > 0.0)
    left = of.left * np.exp(of.spread * z + common)
    by_limit = np.array([source is Source.TIME_LIMIT for source in of.sources], dtype=bool)
    if by_limit.any():
        limit = (of.most + of.ran)[by_limit]
        share = limits.drawn((of.ran[by_limit] / np.maximum(limit, 1e-6)), samples, rng)
        left[:, by_limit] = share * limit - of.ran[by_limit]
    return Drawn(np.clip(left, 1e-6, np.maximum(of.most, 1e-6)), arrivals, like)


class Playout:
    """Playouts of one situation. ``run`` may be called once."""

    def __init__(self, of: Situation, traits: Traits, draw: Drawn) -> None:
        samples, coming = draw.arrivals.shape
        self._of, self._traits = of, traits
        self._jobs = len(of.ids)
        self._coming = coming
        which = np.concatenate(
            [np.broadcast_to(np.arange(self._jobs), (samples, self._jobs)), draw.like], axis=1
        )
        new = np.zeros(which.shape, dtype=bool)
        new[:, self._jobs :] = True
        self._which = which
        self._arrives = np.zeros(which.shape)
        self._arrives[:, self._jobs :] = draw.arrivals
        total = of.left + of.ran  # of a job to come: what one like it needed in all
        self._left = np.concatenate([draw.left, total[draw.like]], axis=1)
        self._restart = of.restart[which]
        self._held = np.where(new, 0.0, of.held[which])
        self._rate = np.where(new, 0.0, of.rate[which])
        self._started = np.where(new, False, of.started[which])
        self._waited = np.where(new, 0.0, of.waited[which])
        self._age = of.age[which]
        self._ran = np.where(new, 0.0, of.ran[which])
        self._attained = np.where(new, 0.0, of.attained[which])
        self._submit = np.where(new, self._arrives, of.submit[which])
        self._asked = of.asked[which]
        self._pinned = of.pinned[which] & ~new
        self._competes = of.competes[which]
        self._overhead = np.zeros(which.shape)
        self._options()
        self._least = self._sizes[which, 0]
        self._fits_now = np.where(new, True, of.fits_now[which])
        idle = max(0.0, of.gpus - float(of.held.sum()))
        small = of.competes & (of.held == 0.0) & (self._sizes[:, 0] <= idle)
        self._stranded = idle if (small & ~of.fits_now).any() else 0.0
        self._begun = False
        self._clock = np.zeros(samples)
        self._boundary = np.full(samples, max(of.round_left, 0.0))
        self._began = self._boundary - of.round_seconds
        self._start = np.where(self._held > 0.0, 0.0, np.inf)
        self._end = np.full(which.shape, np.inf)

    def _options(self) -> None:
        """Increments of GPUs in order of what each GPU adds, by job of the situation."""
        of, traits = self._of, self._traits
        if not traits.elastic:
            self._sizes, self._speeds = of.rigid[:, None], of.rigid_rate[:, None]
            return
        sizes, speeds = of.counts, of.rates
        base = np.maximum(speeds[:, :1], 1e-12)
        if traits.order is Order.WORK:  # relative to one GPU of the mean type
            base = base / np.maximum(sizes[:, :1], 1.0)
        value = (speeds / base) ** traits.power
        self._sizes, self._speeds = sizes, speeds
        more = np.diff(sizes, axis=1, prepend=0.0)
        gain = np.diff(value, axis=1, prepend=0.0)
        density = np.where(more > 0.0, gain / np.maximum(more, 1e-12), -1.0)
        last = density[:, 0]
        for m in range(1, COUNTS_MAX):  # never more than the increment before: taken in order
            density[:, m] = np.where(
                more[:, m] > 0.0, np.minimum(density[:, m], last * 0.999999), -1.0
            )
            last = np.where(more[:, m] > 0.0, density[:, m], last)
        self._cost, self._density = more[self._which], density[self._which]

    def run(self, only_start: int | None = None) -> Played:
        """``only_start``: stop once this job has started in all playouts."""
        self._plan(np.zeros(len(self._clock), dtype=bool))
        for _ in range(STEPS_MAX):
            if only_start is not None and np.isfinite(self._start[:, only_start]).all():
                break
            busy = ~np.isfinite(self._end[:, : self._jobs])
            if only_start is None and not (busy & self._competes[:, : self._jobs]).any():
                break
            if not self._step():
                break
        jobs = slice(0, self._jobs)
        return Played(self._start[:, jobs], self._end[:, jobs])

    def _step(self) -> bool:
        """On to each playout's next event; False: none has one."""
        running = self._held > 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(
                running & (self._rate > 0.0), self._overhead + self._left / self._rate, np.inf
            )
        arrive = np.where(
            self._arrives > self._clock[:, None], self._arrives - self._clock[:, None], np.inf
        )
        there = self._present() & ~running
        waits = there.any(axis=1) | running.any(axis=1)
        boundary = np.where(
            waits & self._traits.preempts, np.maximum(self._boundary - self._clock, 1e-6), np.inf
        )
        event = np.minimum(ends.min(axis=1, initial=np.inf), arrive.min(axis=1, initial=np.inf))
        event = np.minimum(event, boundary)
        event = np.where(self._clock + event > HORIZON_SECONDS, np.inf, event)
        alive = np.isfinite(event)
        if not alive.any():
            return False
        step = np.where(alive, np.maximum(event, COARSENESS * self._clock), 0.0)
        self._advance(step, ends)
        crossed = alive & self._traits.preempts & (self._clock >= self._boundary - 1e-6)
        if self._traits.ends_early:
            least = max(LEAST_EARLY[0], LEAST_EARLY[1] * self._of.round_seconds)
            crossed |= alive & (self._clock - self._began >= least)
        self._began = np.where(crossed, self._clock, self._began)
        length = self._of.round_seconds
        behind = np.ceil((self._clock - self._boundary + 1e-6) / length).clip(0)
        self._boundary = np.where(crossed, self._boundary + behind * length, self._boundary)
        self._plan(crossed)
        return True

    def _present(self) -> Bools:
        """Jobs that have come and not ended, and may compete."""
        here: Bools = (self._arrives <= self._clock[:, None]) & ~np.isfinite(self._end)
        here &= self._competes
        return here

    def _advance(self, step: Floats, ends: Floats) -> None:
        running = self._held > 0.0
        waiting = self._present() & ~running
        passed = np.broadcast_to(step[:, None], running.shape)
        over = running & (ends <= passed)
        self._end = np.where(over, self._clock[:, None] + ends, self._end)
        trained = np.maximum(0.0, passed - self._overhead)
        self._left = np.where(running, self._left - trained * self._rate, self._left)
        self._overhead = np.maximum(0.0, self._overhead - passed)
        self._ran += np.where(running, passed, 0.0)
        self._attained += np.where(running, passed * self._held, 0.0)
        self._asked = self._asked - np.where(running, passed, 0.0)
        self._waited += np.where(waiting, passed, 0.0)
        self._held = np.where(over, 0.0, self._held)
        self._rate = np.where(over, 0.0, self._rate)
        self._clock = self._clock + step

    def _plan(self, first: Bools) -> None:
        """Give GPUs; in playouts where a round is ``first`` to begin, running jobs compete too."""
        present = self._present()
        running = self._held > 0.0
        competing = present & (~running | (first[:, None] & ~self._pinned))
        if not competing.any():
            return
        free = self._of.gpus - np.where(running & ~competing, self._held, 0.0).sum(axis=1)
        if not self._begun:  # what is idle now is known, server by server
            competing &= self._fits_now
        elif self._stranded:
            again = first & self._traits.elastic  # who may move makes room
            free = np.where(again, free, np.maximum(0.0, free - self._stranded))
        self._begun = True
        if self._traits.overtakes and not self._traits.reserves:
            competing &= self._least <= free[:, None]
            if not competing.any():
                return
        if self._traits.elastic:
            chosen = self._elastic(competing, free, present)
        else:
            chosen = self._rigid(competing, free)
        self._give(competing, chosen)

    def _weight(self, present: Bools) -> Floats:
        """How urgent each job is: larger comes first."""
        order = self._traits.order
        age = np.maximum(np.maximum(self._age, self._ran), 1e-6)
        weight: Floats
        if order is Order.SUBMISSION:
            weight = self._clock[:, None] - self._submit + 1e-3
        elif order is Order.AGE:
            weight = 1.0 / age
        elif order is Order.REMAINING:
            weight = 1.0 / np.maximum(self._left, 1e-6)
        elif order is Order.ATTAINED:
            weight = 1.0 / (1.0 + self._attained)
        elif order is Order.LATENCY_RATIO:
            weight = self._waited / age
            least = np.where(present, weight, np.inf).min(axis=1, keepdims=True)
            weight = weight + np.where(least <= 0.0, 0.01, 0.0)
        else:
            weight = self._by_work(self._waited / age, present)
        return weight

    def _by_work(self, ratio: Floats, present: Bools) -> Floats:
        """The weight of ``hops+``, nearly: the share of jobs with at least as much work left."""
        work = np.where(present, self._left, np.inf)
        rank = np.argsort(np.argsort(work, axis=1), axis=1)
        count = np.maximum(present.sum(axis=1, keepdims=True), 1)
        weight: Floats = np.clip((count - rank) / count, 1.0 / count, 1.0)
        weight *= 1.0 + np.minimum(ratio, 1e3) ** 2
        return weight

    def _elastic(self, competing: Bools, free: Floats, present: Bools) -> Ints:
        """The option of each job, -1: none: by value per GPU, as long as there are GPUs."""
        weight = self._weight(present)
        if self._traits.order is not Order.WORK:  # hops has a service window
            inside = self._inside(competing, weight)
        else:
            inside = competing
        # Who stays where he is does not restart: that counts for him.
        stays = (self._held > 0.0) & competing
        bonus = 1.0 + stays * np.minimum(1.0, self._restart / max(self._of.round_seconds, 1.0))
        some = np.flatnonzero(inside.any(axis=0))
        density = self._density[:, some]
        value = np.where(
            inside[:, some, None] & (density > 0.0),
            density * (weight * bonus)[:, some, None],
            -1.0,
        )
        playouts, jobs, options = value.shape
        value, cost = value.reshape(playouts, -1), self._cost[:, some].reshape(playouts, -1)
        wanted = int((value > 0.0).sum(axis=1).max(initial=0))
        chosen: Ints = np.full(competing.shape, -1, dtype=np.int64)
        if not wanted:
            return chosen
        order = np.argsort(-value, axis=1)[:, :wanted]
        price = np.take_along_axis(cost, order, axis=1)
        real = np.take_along_axis(value, order, axis=1) > 0.0
        granted = _fit(np.where(real, price, 0.0), free) & real
        flat = np.zeros(value.shape, dtype=bool)
        np.put_along_axis(flat, order, granted, axis=1)
        had = flat.reshape(playouts, jobs, options)
        prefix = np.logical_and.accumulate(had, axis=2)
        chosen[:, some] = prefix.sum(axis=2) - 1
        return chosen

    def _inside(self, competing: Bools, weight: Floats) -> Bools:
        """The service window: from the head, until the smallest counts are all GPUs."""
        order = np.argsort(np.where(competing, -weight, np.inf), axis=1, kind="stable")
        need = np.take_along_axis(np.where(competing, self._least, 0.0), order, axis=1)
        before = np.cumsum(need, axis=1) - need
        inside = np.zeros(competing.shape, dtype=bool)
        np.put_along_axis(inside, order, before < self._of.gpus, axis=1)
        inside &= competing
        return inside

    def _rigid(self, competing: Bools, free: Floats) -> Ints:
        weight = self._weight(competing)
        need = self._least
        order = np.argsort(np.where(competing, -weight, np.inf), axis=1, kind="stable")
        some = int(competing.sum(axis=1).max(initial=0))
        order = order[:, :some]
        real = np.take_along_axis(competing & (need > 0.0), order, axis=1)
        price = np.where(real, np.take_along_axis(need, order, axis=1), 0.0)
        if self._traits.reserves:
            granted = self._backfilled(order, price, real, free)
        elif self._traits.overtakes:
            granted = _fit(price, free) & real
        else:
            granted = (np.cumsum(price, axis=1) <= free[:, None]) & real
        chosen = np.zeros(competing.shape, dtype=bool)
        np.put_along_axis(chosen, order, granted, axis=1)
        return np.where(chosen, 0, -1).astype(np.int64)

    def _backfilled(self, order: Ints, price: Floats, real: Bools, free: Floats) -> Bools:
        """The head of the queue while it fits; others that do not delay the first that does not."""
        head = (np.cumsum(price, axis=1) <= free[:, None]) & real
        stuck = real & ~head
        if not stuck.any():
            return head
        spare = free - np.where(head, price, 0.0).sum(axis=1)
        first = np.argmax(stuck, axis=1)[:, None]
        need = np.take_along_axis(price, first, axis=1)[:, 0]
        asked = np.maximum(np.take_along_axis(self._asked, order, axis=1), 1.0)
        running = self._held > 0.0
        until = np.where(running, np.maximum(self._asked, 1.0), np.inf)
        until = np.concatenate([until, np.where(head, asked, np.inf)], axis=1)
        gives = np.concatenate(
            [np.where(running, self._held, 0.0), np.where(head, price, 0.0)], axis=1
        )
        by_end = np.argsort(until, axis=1)
        total = spare[:, None] + np.cumsum(np.take_along_axis(gives, by_end, axis=1), axis=1)
        at = np.argmax(total >= need[:, None], axis=1)[:, None]
        shadow = np.take_along_axis(np.take_along_axis(until, by_end, axis=1), at, axis=1)
        extra = np.take_along_axis(total, at, axis=1)[:, 0] - need
        index = np.arange(order.shape[1])[None, :]
        behind = stuck & (index != first)
        short = behind & (asked <= shadow)
        filled = _fit(np.where(short, price, 0.0), spare) & short
        spare = spare - np.where(filled, price, 0.0).sum(axis=1)
        small = behind & ~short
        more = _fit(np.where(small, price, 0.0), np.minimum(spare, extra)) & small
        head |= filled | more
        return head

    def _give(self, competing: Bools, chosen: Ints) -> None:
        gets = chosen >= 0
        at = np.maximum(chosen, 0)
        size = np.where(gets, self._sizes[self._which, at], 0.0)
        speed = np.where(gets, self._speeds[self._which, at], 0.0)
        stays = competing & (size == self._held) & (size > 0.0)
        changes = competing & ~stays
        begins = changes & (size > 0.0)
        self._overhead = np.where(
            begins, np.where(self._started, self._restart, 0.0), self._overhead
        )
        self._overhead = np.where(changes & ~begins, 0.0, self._overhead)
        self._held = np.where(changes, size, self._held)
        self._rate = np.where(changes, speed, self._rate)
        self._started |= begins
        self._start = np.where(
            begins & ~np.isfinite(self._start), self._clock[:, None], self._start
        )


def _fit(price: Floats, free: Floats) -> Bools:
    """Who gets what he asks for, in turn, if who does not fit is passed over. ``price``
    (playouts, turns), ``free`` (playouts,).
    """
    granted: Bools = np.cumsum(price, axis=1) <= free[:, None]
    for _ in range(3):
        left = free - np.where(granted, price, 0.0).sum(axis=1)
        again = ~granted & (price <= left[:, None])
        more = again & (np.cumsum(np.where(again, price, 0.0), axis=1) <= left[:, None])
        if not more.any():
            break
        granted |= more
    return granted
