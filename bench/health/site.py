"""A simulated site: servers, some of them slow, and what ordinary trainings on them report.

Runs arrive at random, on part of a server, a whole one or several. They report the seconds of an
iteration: the time of the workload on the type in that shape, multiplied by factors for the run's
own deviation; noise; a warm-up; the server's and the room's temperature; drift over weeks; busy
neighbours; and the slowness of the slowest server.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from hopsd.health.records import HealthNode, HealthRecords, RankTime, SpeedRecord, Stay
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName

DAY = 86_400.0
GPUS = 4
NEW = 1_000_000
"""The number of the workload whose runs begin together."""

KEPT_RUNS = 32
"""How many reports hopsd keeps per workload, shape and server (`hopsd/store/throughput.py`)."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A server, by index, that runs at ``1 - loss`` of its speed from ``since`` to ``until``."""

    node: int
    loss: float
    since: float = -np.inf
    until: float = np.inf


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """Deviations, losses and amplitudes are parts of a run's time.

    ``interval`` is the seconds between reports, ``run_hours`` the mean length of a run, and
    ``new_each`` the days until half of the workloads are replaced by new ones. ``spread`` and
    ``shared_share`` are the shares of runs that take several servers, or part of one; ``busy`` is
    what a busy neighbour costs. Runs differ by Student's t with ``tails`` degrees of freedom,
    normally if infinite. ``common_servers``, by index, begin runs of one new workload at once when
    all are free after ``together_at``. Each run's speed alternates by ``swing`` every
    ``swing_seconds``, out of phase with other runs.
    """

    nodes: int = 40
    types: int = 2
    days: float = 3.0
    workloads: int = 12
    interval: float = 60.0
    run_hours: float = 4.0
    noise: float = 0.02
    run: float = 0.005
    tails: float = np.inf
    warm_up: float = 0.3
    heat: float = 0.01
    drift: float = 0.01
    healthy: float = 0.001
    busy: float = 0.06
    spread: float = 0.15
    shared_share: float = 0.3
    ranks: bool = False
    new_each: float = 30.0
    common_servers: tuple[int, ...] = ()
    together_at: float = 0.0
    swing: float = 0.0
    swing_seconds: float = 3600.0
    slow: tuple[Slowdown, ...] = field(default=())


def simulate(settings: SiteSettings, seed: int) -> HealthRecords:
    """Simulate the site and return all its records, in time order."""
    return _Site(settings, np.random.default_rng(seed)).records()


class Stored:
    """What hopsd keeps of a site's records: the newest of each workload, shape and server, and the
    stays of jobs.
    """

    def __init__(self, site: HealthRecords) -> None:
        self._site, self._read = site, 0
        self._kept: dict[object, deque[SpeedRecord]] = defaultdict(lambda: deque(maxlen=KEPT_RUNS))
        self._of_job: dict[JobId, tuple[SpeedRecord, deque[SpeedRecord]]] = {}
        self._last: dict[JobId, float] = {}

    def at(self, now: float) -> HealthRecords:
        """What hopsd has at ``now``, which must not be earlier than in the last call."""
        past = bisect_right(self._site.records, now, key=attrgetter("at"))
        for record in self._site.records[self._read : past]:
            if record.job not in self._of_job:
                key = record.workload, tuple(sorted(record.nodes.items()))
                self._of_job[record.job] = record, self._kept[key]
            self._of_job[record.job][1].append(record)
            self._last[record.job] = record.at
        self._read = max(past, self._read)
        kept = [record for records in self._kept.values() for record in records]
        stays = tuple(
            Stay(job, tuple(first.nodes), first.at - 60.0, self._last[job])
            for job, (first, _) in self._of_job.items()
        )
        records = tuple(sorted(kept, key=attrgetter("at")))
        return replace(self._site, now=now, records=records, stays=stays)


def as_stored(records: HealthRecords, now: float) -> HealthRecords:
    """Return what hopsd has of ``records`` at ``now``."""
    return Stored(records).at(now)


class _Site:
    def __init__(self, settings: SiteSettings, random: np.random.Generator) -> None:
        self.settings, self.random = settings, random
        s = settings
        self.end = s.days * DAY
        self.nodes = tuple(
            HealthNode(NodeName(f"n{i}"), GpuType(f"t{i % s.types}"), GPUS) for i in range(s.nodes)
        )
        self.healthy = random.normal(0.0, s.healthy, s.nodes)
        self.drifts = random.normal(0.0, s.drift, (64, 2))

    def records(self) -> HealthRecords:
        """Fill one server after the other with runs; runs on several start together if possible."""
        s, random = self.settings, self.random
        free = np.zeros(s.nodes)
        timed_records: list[tuple[float, SpeedRecord]] = []
        job = 0
        run_together = list(s.common_servers)
        while (start := float(free.min())) < self.end:
            node = int(free.argmin())
            length = 600.0 + random.exponential(s.run_hours * 3600.0)
            chance = random.random()
            if node in run_together and start >= s.together_at:
                start = float(free[run_together].max())
                for server in run_together:
                    timed_records += self._run(job, [server], GPUS, start, 600.0 + length, (), NEW)
                    job += 1
                free[run_together] = (
                    start + 600.0 + length + random.exponential(600.0, len(run_together))
                )
                run_together = []
                continue
            several = [
                n
                for n in range(node % s.types, s.nodes, s.types)
                if n != node and free[n] < start + 1800.0
            ]
            if chance < s.spread and several:
                count = min(len(several), int(random.integers(1, 4)))
                nodes = [node, *random.choice(several, count, replace=False).tolist()]
                start = max(float(free[n]) for n in nodes)
                timed_records += self._run(job, nodes, GPUS, start, length, ())
                job += 1
            elif chance < s.spread + s.shared_share:
                nodes = [node]
                begins = start + random.uniform(0.0, 0.3, 2) * length
                ends = start + length * random.uniform(0.7, 1.0, 2)
                loads = random.random(2) < 0.4
                for part in (0, 1):
                    other_part = 1 - part
                    neighbour_span = (
                        ((begins[other_part], ends[other_part]),) if loads[other_part] else ()
                    )
                    timed_records += self._run(
                        job,
                        nodes,
                        GPUS // 2,
                        begins[part],
                        ends[part] - begins[part],
                        neighbour_span,
                    )
                    job += 1
            else:
                nodes = [node]
                timed_records += self._run(job, nodes, GPUS, start, length, ())
                job += 1
            free[nodes] = start + length + random.exponential(600.0)
        timed_records.sort(key=lambda pair: pair[0])
        return HealthRecords(self.end, self.nodes, tuple(record for _, record in timed_records))

    def _run(
        self,
        job: int,
        nodes: list[int],
        gpus: int,
        start: float,
        length: float,
        neighbour_spans: tuple[tuple[float, float], ...],
        workload: int | None = None,
    ) -> list[tuple[float, SpeedRecord]]:
        s, random = self.settings, self.random
        at = np.arange(start + s.interval, min(start + length, self.end), s.interval)
        if not len(at):
            return []
        generation = int((start / DAY / s.new_each) * s.workloads / 2.0)
        if workload is None:
            workload = generation + int(random.integers(s.workloads))
        speed_random = np.random.default_rng((workload, nodes[0] % s.types))
        usual = speed_random.uniform(0.05, 1.0) * (1.0 + 0.1 * np.log2(gpus * len(nodes)))
        own = random.normal(0.0, s.run) if s.tails == np.inf else s.run * random.standard_t(s.tails)
        value = np.log(usual) + own + random.normal(0.0, s.noise, len(at))
        value += np.log1p(s.warm_up * np.exp(-(at - start) / 90.0))
        value += s.heat * np.sin(2.0 * np.pi * at / DAY)
        amplitude, phase = self.drifts[workload % len(self.drifts)]
        value += amplitude * np.sin(2.0 * np.pi * at / (30.0 * DAY) + 100.0 * phase)
        if s.swing:
            swings = at / s.swing_seconds + random.uniform(0.0, 2.0)
            value += s.swing * (np.floor(swings) % 2.0)
        for begin, end in neighbour_spans:
            value += s.busy * ((at > begin) & (at < end))
        losses = np.array([self._loss(n, at) for n in nodes])
        whole = np.exp(value + losses.max(axis=0))
        names = {self.nodes[n].name: gpus for n in nodes}
        records = []
        ranks: list[tuple[RankTime, ...]] = [()] * len(at)
        if s.ranks and len(nodes) > 1:
            own_noise = random.normal(0.0, s.noise / 2.0, losses.shape)
            rank_seconds = 0.9 * np.exp(value + losses + own_noise)
            ranks = [
                tuple(
                    RankTime(self.nodes[n].name, float(seconds), 0.0)
                    for n, seconds in zip(nodes, column, strict=True)
                )
                for column in rank_seconds.T
            ]
        name, number = WorkloadName(f"w{workload}"), JobId(str(job))
        for time, seconds, times in zip(at.tolist(), whole.tolist(), ranks, strict=True):
            records.append((time, SpeedRecord(time, name, number, names, seconds, times)))
        return records

    def _loss(self, node: int, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much a server adds to the logarithm of the time."""
        loss = np.full(len(at), self.healthy[node])
        for slow in self.settings.slow:
            if slow.node == node:
                is_slow = (at >= slow.since) & (at < slow.until)
                loss -= np.where(is_slow, np.log1p(-slow.loss), 0.0)
        return loss
