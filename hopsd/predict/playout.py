"""Simulates the jobs from the present on, in many playouts at once, with a coarse planning model.

Each playout draws the remaining work of every job, and future jobs. GPUs are one pool: servers,
types and racks are ignored, except for a job's mean speed and for the GPUs that are idle at first.
Those that no waiting job can use stay idle until running jobs move. A plan assigns GPUs in the
order of the policy's objective per GPU (the relaxation of its program), or to rigid jobs in the
order of its queue. Calibration corrects the mean error of this model (``calibration.py``).

Arrays are (playouts, jobs); every playout has its own clock. A step advances to the next event, and
combines more events the further ahead they are, so the number of steps hardly depends on the number
of jobs. A step of less than a round ends no later than the round, since most jobs start then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopsd.model.arrays import Bools, Floats, Ints
from hopsd.predict.limit_share import LimitShares
from hopsd.predict.past_errors import COMMON_ERROR
from hopsd.predict.situation import MAX_COUNTS, RunTimeSource, Situation
from hopsd.predict.strata import normal_points, normals, shares
from hopsd.predict.traits import Ranking, Traits

HORIZON_SECONDS = 14 * 86400.0
"""Later events are not predicted."""

COARSENESS = 0.025
"""A step combines the events within this share of the time ahead."""

MIN_ROUND = 60.0, 1 / 6
"""Minimum length of a round that may end early: seconds, and share of its full length."""

MAX_STEPS = 4000

POINTS = 32
"""Number of points of a job's distribution by past runs, if they are weighted by its time limit."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Remaining work (playouts, jobs), and the arrival times of future jobs with the present jobs
    that they resemble. ``change_times`` (playouts, changes) and ``change_gpus`` (changes,) are the
    changes in capacity.
    """

    work: Floats
    arrivals: Floats
    likeness: Ints
    change_times: Floats
    change_gpus: Floats


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds from now of each job's start and end (playouts, jobs); infinity if beyond the
    horizon. The start of a running job is 0.
    """

    starts: Floats
    ends: Floats


def draw_sample(
    situation: Situation,
    samples: int,
    arrivals: Floats,
    likeness: Ints,
    rng: np.random.Generator,
    limits: LimitShares,
    past_scale: float = 1.0,
) -> Draw:
    """Draw the remaining work from each job's distribution, never more than its time limit allows.
    ``past_scale`` multiplies the spread predicted from past runs.

    Each playout has a common factor for all jobs whose run time is known from past runs, as these
    may be wrong for all jobs together. Jobs with only a time limit use a share of it as learnt by
    ``limits``. Jobs with past runs and a time limit are drawn by both.
    """
    z = normals(samples, len(situation.ids), rng)
    sources = np.array(situation.sources, dtype=object)
    by_runs = sources == RunTimeSource.PAST_RUNS
    scale = np.where(by_runs, past_scale, 1.0) * (situation.spread > 0.0)
    spread, common = scale * situation.spread, scale * COMMON_ERROR * normals(samples, 1, rng)
    work = situation.remaining_work * np.exp(spread * z + common)
    by_both = by_runs & (spread > 0.0) & np.isfinite(situation.work_cap)
    if by_both.any():
        points = spread[by_both, None] * normal_points(POINTS) + common[:, by_both, None]
        work[:, by_both] = _by_runs_and_limits(situation, by_both, points, rng, limits)
    by_limit = sources == RunTimeSource.TIME_LIMIT
    if by_limit.any():
        limit = (situation.work_cap + situation.ran)[by_limit]
        share = limits.draw((situation.ran[by_limit] / np.maximum(limit, 1e-6)), samples, rng)
        work[:, by_limit] = share * limit - situation.ran[by_limit]
    work = np.clip(work, 1e-6, np.maximum(situation.work_cap, 1e-6))
    return Draw(work, arrivals, likeness, *situation.capacity.draw(samples, rng, limits))


def _by_runs_and_limits(
    situation: Situation, jobs: Bools, points: Floats, rng: np.random.Generator, limits: LimitShares
) -> Floats:
    """Draw the remaining work of ``jobs`` (a mask, (jobs,)) by Bayes' rule, (playouts, those jobs).
    Past runs give the prior; its points are weighted by how likely their share of the time limit
    is, judged by other jobs. ``points`` (playouts, those jobs, :data:`POINTS`) are the logarithms
    of the work relative to the median.
    """
    rate, ran = situation.rate[jobs, None], situation.ran[jobs, None]
    work = situation.remaining_work[jobs, None] * np.exp(points)
    cap = situation.work_cap[jobs, None]
    share = (ran + work / np.where(rate > 0.0, rate, 1.0)) / np.maximum(ran + cap, 1e-6)
    fit = limits.log_likelihood(share)
    best = fit.max(axis=2, keepdims=True)
    weight = np.cumsum(np.exp(fit - np.where(np.isfinite(best), best, 0.0)), axis=2)
    wanted = shares(len(work), work.shape[1], rng)[:, :, None] * weight[:, :, -1:]
    point = (weight < wanted).sum(axis=2, keepdims=True)
    drawn: Floats = np.take_along_axis(work, point, axis=2)[:, :, 0]
    return drawn


class Playout:
    """Playouts of one situation; ``run`` may be called only once."""

    def __init__(self, situation: Situation, traits: Traits, draw: Draw) -> None:
        samples, arrival_count = draw.arrivals.shape
        self._situation, self._traits = situation, traits
        self._jobs = len(situation.ids)
        self._arrival_count = arrival_count
        source = np.concatenate(
            [np.broadcast_to(np.arange(self._jobs), (samples, self._jobs)), draw.likeness], axis=1
        )
        new = np.zeros(source.shape, dtype=bool)
        new[:, self._jobs :] = True
        self._source = source
        self._arrives = np.zeros(source.shape)
        self._arrives[:, self._jobs :] = draw.arrivals
        total = (
            situation.remaining_work + situation.ran
        )  # work of a future job: the total work of the one that it resembles
        self._work = np.concatenate([draw.work, total[draw.likeness]], axis=1)
        self._restart = situation.restart[source]
        self._gpus = np.where(new, 0.0, situation.gpus_held[source])
        self._rate = np.where(new, 0.0, situation.rate[source])
        self._has_started = np.where(new, False, situation.started[source])
        self._wait_seconds = np.where(new, 0.0, situation.waiting_time[source])
        self._age = situation.age[source]
        self._ran = np.where(new, 0.0, situation.ran[source])
        self._attained_service = np.where(new, 0.0, situation.attained_service[source])
        self._submit = np.where(new, self._arrives, situation.submit[source])
        self._allotment = situation.allotment[source]
        self._is_pinned = situation.is_pinned[source] & ~new
        self._competes = situation.competes[source]
        self._overhead = np.zeros(source.shape)
        self._change_times, self._change_gpus = draw.change_times, draw.change_gpus
        self._limit = situation.work_cap[source]
        self._options()
        self._min_count, self._largest = self._sizes[source, 0], self._sizes[source, -1]
        self._fits_now = np.where(new, True, situation.fits_now[source])
        idle = max(0.0, situation.gpus - float(situation.gpus_held.sum()))
        small = situation.competes & (situation.gpus_held == 0.0) & (self._sizes[:, 0] <= idle)
        self._stranded_gpus = idle if (small & ~situation.fits_now).any() else 0.0
        self._planned_once = False
        self._clock = np.zeros(samples)
        self._boundary = np.full(samples, max(situation.round_left, 0.0))
        self._round_start = self._boundary - situation.round_seconds
        self._start = np.where(self._gpus > 0.0, 0.0, np.inf)
        self._end = np.full(source.shape, np.inf)

    def _options(self) -> None:
        """Compute each job's increments of GPUs, in descending order of the gain per GPU."""
        situation, traits = self._situation, self._traits
        if not traits.elastic:
            self._sizes, self._speeds = situation.rigid[:, None], situation.rigid_rate[:, None]
            return
        sizes, speeds = situation.counts, situation.rates
        base = np.maximum(speeds[:, :1], 1e-12)
        if traits.order is Ranking.WORK:  # relative to one GPU of the mean type
            base = base / np.maximum(sizes[:, :1], 1.0)
        value = (speeds / base) ** traits.power
        self._sizes, self._speeds = sizes, speeds
        increment = np.diff(sizes, axis=1, prepend=0.0)
        gain = np.diff(value, axis=1, prepend=0.0)
        for bound in situation.bounds:  # no job gets more than the whole limit
            exceeds_bound = bound.members & ~bound.exempt
            exceeds_bound = exceeds_bound[:, None] & (sizes * bound.per_gpu[:, None] > bound.gpus)
            increment = np.where(exceeds_bound, 0.0, increment)
        density = np.where(increment > 0.0, gain / np.maximum(increment, 1e-12), -1.0)
        last = density[:, 0]
        for m in range(1, MAX_COUNTS):  # never above the previous one: increments go in order
            density[:, m] = np.where(
                increment[:, m] > 0.0, np.minimum(density[:, m], last * 0.999999), -1.0
            )
            last = np.where(increment[:, m] > 0.0, density[:, m], last)
        count = int(np.flatnonzero((increment > 0.0).any(axis=0)).max(initial=0)) + 1
        self._cost = increment[self._source, :count]
        self._density = density[self._source, :count]

    def run(self, wanted_jobs: Sequence[int] | None = None) -> Timeline:
        """Run the playouts until all ``wanted_jobs`` have started (or ended, for those that run
        now); if None, until all jobs have ended. Events that have not happened are at infinity.
        """
        runs = self._situation.gpus_held > 0.0
        columns = list(range(self._jobs)) if wanted_jobs is None else wanted_jobs
        self._plan(np.zeros(len(self._clock), dtype=bool))
        for _ in range(MAX_STEPS):
            moments = self._end[:, columns]
            if wanted_jobs is not None:
                moments = np.where(runs[columns], moments, self._start[:, columns])
            if not (~np.isfinite(moments) & self._competes[:, columns]).any() or not self._step():
                break
        jobs = slice(0, self._jobs)
        return Timeline(self._start[:, jobs], self._end[:, jobs])

    def _step(self) -> bool:
        """Advance each playout to its next event; False if no playout has any."""
        running = self._gpus > 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(
                running & (self._rate > 0.0), self._overhead + self._work / self._rate, np.inf
            )
        arrive = np.where(
            self._arrives > self._clock[:, None], self._arrives - self._clock[:, None], np.inf
        )
        waiting = self._present() & ~running
        waits: Bools = np.asarray((waiting | running).any(axis=1))
        # While no job waits and all have their largest counts, a new round's plan changes nothing.
        calm = ~(waiting | (running & (self._gpus < self._largest))).any(axis=1)
        replans = waits & ~calm & self._traits.preempts
        boundary = np.where(replans, np.maximum(self._boundary - self._clock, 1e-6), np.inf)
        event = np.minimum(ends.min(axis=1, initial=np.inf), arrive.min(axis=1, initial=np.inf))
        event = np.minimum(event, boundary)
        if self._change_gpus.size:
            to_come = self._change_times - self._clock[:, None]
            to_come = np.where(waits[:, None] & (to_come > 0.0), to_come, np.inf)
            event = np.minimum(event, to_come.min(axis=1))
        event = np.where(self._clock + event > HORIZON_SECONDS, np.inf, event)
        alive = np.isfinite(event)
        if not alive.any():
            return False
        length = self._situation.round_seconds
        coarse = COARSENESS * self._clock
        coarse = np.where(coarse < length, np.minimum(coarse, boundary), coarse)
        self._advance(np.where(alive, np.maximum(event, coarse), 0.0), ends)
        ends_round = alive & self._traits.preempts & (self._clock >= self._boundary - 1e-6)
        overdue_rounds = np.ceil((self._clock - self._boundary + 1e-6) / length).clip(0)
        self._boundary = np.where(
            ends_round, self._boundary + overdue_rounds * length, self._boundary
        )
        self._round_start = np.where(ends_round, self._boundary - length, self._round_start)
        at_boundary = ends_round & ~calm
        if self._traits.ends_early:
            min_length = max(MIN_ROUND[0], MIN_ROUND[1] * self._situation.round_seconds)
            at_boundary |= alive & (self._clock - self._round_start >= min_length)
        self._round_start = np.where(at_boundary, self._clock, self._round_start)
        self._plan(at_boundary)
        return True

    def _present(self) -> Bools:
        """Jobs that have arrived, have not ended and may compete."""
        present: Bools = (self._arrives <= self._clock[:, None]) & ~np.isfinite(self._end)
        present &= self._competes
        return present

    def _advance(self, step: Floats, ends: Floats) -> None:
        running = self._gpus > 0.0
        waiting = self._present() & ~running
        elapsed_seconds = np.broadcast_to(step[:, None], running.shape)
        ending = running & (ends <= elapsed_seconds)
        self._end = np.where(ending, self._clock[:, None] + ends, self._end)
        trained_seconds = np.maximum(0.0, elapsed_seconds - self._overhead)
        self._work = np.where(running, self._work - trained_seconds * self._rate, self._work)
        self._overhead = np.maximum(0.0, self._overhead - elapsed_seconds)
        self._ran += np.where(running, elapsed_seconds, 0.0)
        self._attained_service += np.where(running, elapsed_seconds * self._gpus, 0.0)
        self._allotment = self._allotment - np.where(running, elapsed_seconds, 0.0)
        self._wait_seconds += np.where(waiting, elapsed_seconds, 0.0)
        self._gpus = np.where(ending, 0.0, self._gpus)
        self._rate = np.where(ending, 0.0, self._rate)
        self._clock = self._clock + step

    def _plan(self, first: Bools) -> None:
        """Assign GPUs; running jobs compete, too, in playouts whose round begins (``first``)."""
        present = self._present()
        running = self._gpus > 0.0
        competing = present & (~running | (first[:, None] & ~self._is_pinned))
        if not competing.any():
            return
        total = self._total(self._clock)
        free = np.maximum(0.0, total - np.where(running & ~competing, self._gpus, 0.0).sum(axis=1))
        if not self._planned_once:  # the GPUs idle now are known, server by server
            competing &= self._fits_now
        elif self._stranded_gpus:
            should_replan = first & self._traits.elastic  # jobs that may move make room
            free = np.where(should_replan, free, np.maximum(0.0, free - self._stranded_gpus))
        self._planned_once = True
        if (self._change_gpus < 0.0).any():
            competing &= self._min_count <= free[:, None] - self._gpus_reserved_soon(total)
        if self._situation.bounds:
            self._keep_limits(competing, running)
        if not competing.any():
            return
        if self._traits.overtakes and not self._traits.reserves:
            competing &= self._min_count <= free[:, None]
            if not competing.any():
                return
        if self._traits.elastic:
            options = self._elastic(competing, free, present)
        else:
            options = self._rigid(competing, free)
        self._give(competing, options)

    def _total(self, time: Floats) -> Floats:
        """GPUs at a ``time`` of each playout (playouts,), without nodes that are reserved then."""
        has_happened = (self._change_times <= time[:, None] + 1e-6) * self._change_gpus
        total: Floats = self._situation.gpus + has_happened.sum(axis=1)
        return total

    def _gpus_reserved_soon(self, total: Floats) -> Floats:
        """Number of present GPUs that become reserved before each job reaches its time limit."""
        smallest_total = np.broadcast_to(total[:, None], self._limit.shape)
        last = self._clock[:, None] + self._limit
        for change in np.flatnonzero(self._change_gpus < 0.0).tolist():
            time = self._change_times[:, change]
            before_limit = (time > self._clock)[:, None] & (time[:, None] < last)
            smallest_total = np.where(
                before_limit, np.minimum(smallest_total, self._total(time)[:, None]), smallest_total
            )
        return total[:, None] - smallest_total

    def _keep_limits(self, competing: Bools, running: Bools) -> None:
        """Remove the jobs that a limit holds back from ``competing``. Running jobs get their part
        of the limit first, the others in the order of submission.
        """
        for bound in self._situation.bounds:
            members = bound.members[self._source]
            per_gpu = bound.per_gpu[self._source]
            holds = members & running & ~competing
            room = bound.gpus - np.where(holds, per_gpu * self._gpus, 0.0).sum(axis=1)
            places = bound.count - holds.sum(axis=1)
            asks = members & competing & ~bound.exempt[self._source]
            turn = np.where(asks, np.where(running, -np.inf, self._submit), np.inf)
            order = np.argsort(turn, axis=1, kind="stable")
            real = np.take_along_axis(asks, order, axis=1)
            price = np.take_along_axis(np.where(asks, per_gpu * self._min_count, 0.0), order, 1)
            grants = _fit(price, room) & real
            grants &= np.cumsum(grants, axis=1) <= places[:, None]
            may = np.zeros(asks.shape, dtype=bool)
            np.put_along_axis(may, order, grants, axis=1)
            competing &= may | ~asks

    def _weight(self, present: Bools) -> Floats:
        """Urgency of each job: larger first."""
        order = self._traits.order
        age = np.maximum(np.maximum(self._age, self._ran), 1e-6)
        weight: Floats
        if order is Ranking.SUBMISSION:
            weight = self._clock[:, None] - self._submit + 1e-3
        elif order is Ranking.AGE:
            weight = 1.0 / age
        elif order is Ranking.REMAINING:
            weight = 1.0 / np.maximum(self._work, 1e-6)
        elif order is Ranking.ATTAINED:
            weight = 1.0 / (1.0 + self._attained_service)
        elif order is Ranking.LATENCY_RATIO:
            weight = self._wait_seconds / age
            minimum = np.where(present, weight, np.inf).min(axis=1, keepdims=True)
            weight = weight + np.where(minimum <= 0.0, 0.01, 0.0)
        else:
            weight = self._by_work(self._wait_seconds / age, present)
        return weight

    def _by_work(self, ratio: Floats, present: Bools) -> Floats:
        """Approximate weight of ``hops+``: the share of jobs with at least as much work left."""
        work = np.where(present, self._work, np.inf)
        rank = np.argsort(np.argsort(work, axis=1), axis=1)
        count = np.maximum(present.sum(axis=1, keepdims=True), 1)
        weight: Floats = np.clip((count - rank) / count, 1.0 / count, 1.0)
        weight *= 1.0 + np.minimum(ratio, 1e3) ** 2
        return weight

    def _elastic(self, competing: Bools, free: Floats, present: Bools) -> Ints:
        """Index of each job's option (-1 for none), by value per GPU as long as GPUs remain."""
        weight = self._weight(present)
        if self._traits.order is not Ranking.WORK:  # hops has a service window
            inside = self._service_window(competing, weight)
        else:
            inside = competing
        # Credit a job that stays in place, as it does not restart.
        stays = (self._gpus > 0.0) & competing
        bonus = 1.0 + stays * np.minimum(
            1.0, self._restart / max(self._situation.round_seconds, 1.0)
        )
        columns = np.flatnonzero(inside.any(axis=0))
        density = self._density[:, columns]
        value = np.where(
            inside[:, columns, None] & (density > 0.0),
            density * (weight * bonus)[:, columns, None],
            -1.0,
        )
        playouts, jobs, options = value.shape
        value, cost = value.reshape(playouts, -1), self._cost[:, columns].reshape(playouts, -1)
        width = int((value > 0.0).sum(axis=1).max(initial=0))
        selection: Ints = np.full(competing.shape, -1, dtype=np.int64)
        if not width:
            return selection
        order = np.argsort(-value, axis=1)[:, :width]
        price = np.take_along_axis(cost, order, axis=1)
        real = np.take_along_axis(value, order, axis=1) > 0.0
        grants = _fit(np.where(real, price, 0.0), free) & real
        flat = np.zeros(value.shape, dtype=bool)
        np.put_along_axis(flat, order, grants, axis=1)
        increments = flat.reshape(playouts, jobs, options)
        prefix = np.logical_and.accumulate(increments, axis=2)
        selection[:, columns] = prefix.sum(axis=2) - 1
        return selection

    def _service_window(self, competing: Bools, weight: Floats) -> Bools:
        """The service window: jobs from the head until their smallest counts fill all GPUs."""
        order = np.argsort(np.where(competing, -weight, np.inf), axis=1, kind="stable")
        need = np.take_along_axis(np.where(competing, self._min_count, 0.0), order, axis=1)
        need_ahead = np.cumsum(need, axis=1) - need
        inside = np.zeros(competing.shape, dtype=bool)
        total = self._total(self._clock)[:, None]
        np.put_along_axis(inside, order, need_ahead < total, axis=1)
        inside &= competing
        return inside

    def _rigid(self, competing: Bools, free: Floats) -> Ints:
        weight = self._weight(competing)
        need = self._min_count
        order = np.argsort(np.where(competing, -weight, np.inf), axis=1, kind="stable")
        width = int(competing.sum(axis=1).max(initial=0))
        order = order[:, :width]
        real = np.take_along_axis(competing & (need > 0.0), order, axis=1)
        price = np.where(real, np.take_along_axis(need, order, axis=1), 0.0)
        if self._traits.reserves:
            grants = self._backfill(order, price, real, free)
        elif self._traits.overtakes:
            grants = _fit(price, free) & real
        else:
            grants = (np.cumsum(price, axis=1) <= free[:, None]) & real
        selection = np.zeros(competing.shape, dtype=bool)
        np.put_along_axis(selection, order, grants, axis=1)
        return np.where(selection, 0, -1).astype(np.int64)

    def _backfill(self, order: Ints, price: Floats, real: Bools, free: Floats) -> Bools:
        """Grant the head of the queue while it fits, then jobs that do not delay the first that
        does not fit.
        """
        head = (np.cumsum(price, axis=1) <= free[:, None]) & real
        stuck = real & ~head
        if not stuck.any():
            return head
        spare = free - np.where(head, price, 0.0).sum(axis=1)
        first = np.argmax(stuck, axis=1)[:, None]
        need = np.take_along_axis(price, first, axis=1)[:, 0]
        seconds = np.maximum(np.take_along_axis(self._allotment, order, axis=1), 1.0)
        running = self._gpus > 0.0
        ends = np.where(running, np.maximum(self._allotment, 1.0), np.inf)
        ends = np.concatenate([ends, np.where(head, seconds, np.inf)], axis=1)
        gives = np.concatenate(
            [np.where(running, self._gpus, 0.0), np.where(head, price, 0.0)], axis=1
        )
        by_end = np.argsort(ends, axis=1)
        total = spare[:, None] + np.cumsum(np.take_along_axis(gives, by_end, axis=1), axis=1)
        position = np.argmax(total >= need[:, None], axis=1)[:, None]
        shadow = np.take_along_axis(np.take_along_axis(ends, by_end, axis=1), position, axis=1)
        extra = np.take_along_axis(total, position, axis=1)[:, 0] - need
        index = np.arange(order.shape[1])[None, :]
        is_behind_head = stuck & (index != first)
        short = is_behind_head & (seconds <= shadow)
        short_fillers = _fit(np.where(short, price, 0.0), spare) & short
        spare = spare - np.where(short_fillers, price, 0.0).sum(axis=1)
        small = is_behind_head & ~short
        fillers = _fit(np.where(small, price, 0.0), np.minimum(spare, extra)) & small
        head |= short_fillers | fillers
        return head

    def _give(self, competing: Bools, options: Ints) -> None:
        gets = options >= 0
        column = np.maximum(options, 0)
        size = np.where(gets, self._sizes[self._source, column], 0.0)
        speed = np.where(gets, self._speeds[self._source, column], 0.0)
        stays = competing & (size == self._gpus) & (size > 0.0)
        changes = competing & ~stays
        begins = changes & (size > 0.0)
        self._overhead = np.where(
            begins, np.where(self._has_started, self._restart, 0.0), self._overhead
        )
        self._overhead = np.where(changes & ~begins, 0.0, self._overhead)
        self._gpus = np.where(changes, size, self._gpus)
        self._rate = np.where(changes, speed, self._rate)
        self._has_started |= begins
        self._start = np.where(
            begins & ~np.isfinite(self._start), self._clock[:, None], self._start
        )


def _fit(price: Floats, free: Floats) -> Bools:
    """Grant prices in turn, skipping those that do not fit; ``price`` is (playouts, turns),
    ``free`` is (playouts,).
    """
    grants: Bools = np.cumsum(price, axis=1) <= free[:, None]
    for _ in range(3):
        remaining = free - np.where(grants, price, 0.0).sum(axis=1)
        candidates = ~grants & (price <= remaining[:, None])
        further = candidates & (
            np.cumsum(np.where(candidates, price, 0.0), axis=1) <= remaining[:, None]
        )
        if not further.any():
            break
        grants |= further
    return grants
