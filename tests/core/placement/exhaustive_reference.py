"""The algorithm again, written from its description: slow, exact, on plain JSON values.

It shares no code with the product, so a mistake goes unseen only if it is made twice. Numbers are
fractions wherever the rules allow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

Json = dict[str, Any]
Placement = tuple[tuple[str, int], ...]
Number = Fraction


def interpolate(table: Json, count: int) -> Fraction:
    points = sorted((int(k), Fraction(v)) for k, v in table.items())
    if count <= points[0][0]:
        return points[0][1]
    if count >= points[-1][0]:
        return points[-1][1]
    for (k0, v0), (k1, v1) in pairwise(points):
        if k0 <= count <= k1:
            return v0 + (v1 - v0) * Fraction(count - k0, k1 - k0)
    raise AssertionError("unreachable")


@dataclass
class Column:
    placement: Placement
    throughput: Fraction
    gain: Fraction = Fraction(0)


class Reference:
    """Everything the rules say about one snapshot."""

    def __init__(self, doc: Json) -> None:
        self.doc = doc
        self.nodes = doc["nodes"]
        settings = doc.get("settings", {})
        self.lam = settings.get("lambda", 1.0)
        self.sigma = settings.get("sigma", 1.4)
        self.paper_exact = settings.get("paper_exact", False)
        self.first = doc["round"]["first"]
        self.gpu_types = list(dict.fromkeys(n["gpu_type"] for n in self.nodes))
        self.total = {
            t: sum(n["gpus"] for n in self.nodes if n["gpu_type"] == t) for t in self.gpu_types
        }
        self.largest = {
            t: max(n["gpus"] for n in self.nodes if n["gpu_type"] == t) for t in self.gpu_types
        }
        self.type_of = {n["name"]: n["gpu_type"] for n in self.nodes}

    # Section 3 ---------------------------------------------------------------------------

    def can_run_on(self, job: Json, gpu_type: str) -> bool:
        table = job["throughput"].get(gpu_type)
        if table is None or gpu_type not in self.total:
            return False
        need = min(job["reqs"])
        spread = bool(table.get("distributed"))
        return need <= self.largest[gpu_type] or (spread and need <= self.total[gpu_type])

    def age(self, job: Json) -> Fraction:
        if job["age"] is not None:
            return Fraction(job["age"])
        types = [t for t in self.gpu_types if self.can_run_on(job, t)]
        if job.get("samples") is not None and types:
            reqs = set(job["reqs"])
            mean = Fraction(sum(reqs), len(reqs))
            cluster = sum(self.total.values())
            share = sum(Fraction(self.total[t], cluster) for t in types)
            return sum(
                Fraction(self.total[t], cluster)
                / share
                * Fraction(job["samples"])
                / (interpolate(job["throughput"][t]["aggregated"], 1) * mean)
                for t in types
            )
        if job.get("time_limit_seconds") is not None:
            return Fraction(job["time_limit_seconds"])
        return Fraction(3600)

    def priority(self, job: Json) -> Fraction:
        if job["priority"] is not None:
            return Fraction(job["priority"])
        return Fraction(job["wait"]) / self.age(job)

    def in_plan(self, job: Json) -> bool:
        if job.get("state", "waiting") != "waiting":
            return False
        return not job["running"] or (self.first and job["preemptible"])

    def queue(self) -> list[Json]:
        jobs = [job for job in self.doc["jobs"] if self.in_plan(job)]

        def rank(job: Json) -> Any:
            digits = job["id"].isdigit()
            order = (0, int(job["id"]), "") if digits else (1, 0, job["id"])
            return (-self.priority(job), job["submit"], order)

        return sorted(jobs, key=rank)

    # Section 4 ---------------------------------------------------------------------------

    def could_run(self, job: Json) -> bool:
        return any(self.can_run_on(job, t) for t in self.gpu_types)

    def rho(self, job: Json) -> Fraction | None:
        if job["sensitivity"] is not None:
            return Fraction(job["sensitivity"])
        total, weight = Fraction(0), 0
        for t in self.gpu_types:
            table = job["throughput"].get(t)
            if table is not None and table.get("distributed"):
                ratio = interpolate(table["aggregated"], 1) / interpolate(table["distributed"], 2)
                total += self.total[t] * ratio
                weight += self.total[t]
        return total / weight if weight else None

    def idle(self) -> dict[str, int]:
        idle = {n["name"]: n["idle"] for n in self.nodes}
        for job in self.doc["jobs"]:
            if self.in_plan(job):
                for name, gpus in (job["running"] or {}).items():
                    idle[name] += gpus
        return idle

    def window(self) -> tuple[list[Json], list[Json]]:
        """The service window, and the jobs that join it."""
        queue = [job for job in self.queue() if self.could_run(job)]
        size, least_gpus = 0, 0
        while size < len(queue) and least_gpus < sum(self.total.values()):
            least_gpus += min(queue[size]["reqs"])
            size += 1
        inside, later_jobs = queue[:size], queue[size:]
        joiners: list[Json] = []
        known_rhos = [r for r in map(self.rho, queue) if r is not None]
        if not self.first and known_rhos:
            queue_mean = sum(known_rhos) / len(known_rhos)
            idle = sum(self.idle().values())
            for job in later_jobs:
                rhos = [r for r in map(self.rho, inside + joiners) if r is not None]
                if not rhos or sum(rhos) / len(rhos) <= queue_mean:
                    break
                rho = self.rho(job)
                if rho is not None and rho < queue_mean and min(job["reqs"]) <= idle:
                    joiners.append(job)
        return inside, joiners

    # Section 5 ---------------------------------------------------------------------------

    def throughput(self, job: Json, placement: Placement) -> Fraction | None:
        """Section 2.3; None if the tables have no value."""
        rates = []
        for name, gpus in placement:
            table = job["throughput"].get(self.type_of[name])
            if table is None:
                return None
            if len(placement) == 1:
                rate = interpolate(table["aggregated"], gpus)
            elif table.get("distributed"):
                rate = interpolate(table["distributed"], len(placement))
            else:
                return None
            rates.append(rate * Fraction(job.get("server_factor", {}).get(name, 1)))
        return min(rates) * sum(gpus for _, gpus in placement)

    def spread_shapes(self, gpu_type: str, size: int) -> Iterator[Placement]:
        servers = [n["name"] for n in self.nodes if n["gpu_type"] == gpu_type]
        idle = self.idle()
        shapes = []
        for start, first in enumerate(servers):
            if idle[first] >= size:
                continue
            shape: dict[str, int] = {}
            for name in servers[start:]:
                missing = size - sum(shape.values())
                if idle[name] == 0 or missing == 0:
                    break
                shape[name] = min(idle[name], missing)
            if sum(shape.values()) == size:
                shapes.append(tuple(sorted(shape.items())))
        fewest = min(map(len, shapes), default=0)
        return (shape for shape in shapes if len(shape) == fewest)

    def columns(self, job: Json) -> list[Column]:
        placements: list[Placement] = []
        rho, idle = self.rho(job), self.idle()
        for t in self.gpu_types:
            if t not in job["throughput"]:
                continue
            may_spread = (
                bool(job["throughput"][t].get("distributed"))
                and rho is not None
                and (float(rho) <= self.sigma or min(job["reqs"]) > self.largest[t])
            )
            for size in sorted(set(job["reqs"])):
                placements += [
                    ((n["name"], size),)
                    for n in self.nodes
                    if n["gpu_type"] == t and size <= idle[n["name"]]
                ]
                if may_spread:
                    placements += self.spread_shapes(t, size)
        present = tuple(sorted((job["running"] or {}).items()))
        if present and not self.paper_exact and present not in placements:
            placements.append(present)
        columns = [Column(p, r) for p in placements if (r := self.throughput(job, p)) is not None]
        if not columns:
            return []
        smallest = min(c.throughput for c in columns)
        seconds = Fraction(self.doc["round"]["seconds"])
        lost_share = Fraction(job.get("restart_seconds", 0)) / seconds
        for c in columns:
            c.gain = c.throughput / smallest
            if present and c.placement != present and not self.paper_exact:
                c.gain *= max(Fraction(0), 1 - lost_share)
        return columns

    # Section 6 ---------------------------------------------------------------------------

    def weights(self) -> dict[str, Fraction]:
        jobs = [job for part in self.window() for job in part]
        priority = {job["id"]: self.priority(job) for job in jobs}
        lowest = min(priority.values(), default=Fraction(1))
        bias = Fraction(0) if lowest > 0 else abs(lowest) + Fraction("0.01")
        if self.lam == int(self.lam):
            return {job: (p + bias) ** int(self.lam) for job, p in priority.items()}
        return {job: Fraction(float(p + bias) ** self.lam) for job, p in priority.items()}

    def program(self) -> list[tuple[str, Fraction, list[Column]]]:
        weights = self.weights()
        jobs = [job for part in self.window() for job in part]
        return [(job["id"], weights[job["id"]], self.columns(job)) for job in jobs]

    def optimum(self) -> Fraction:
        """The largest value of eq. 11, found by trying every plan."""
        program = self.program()
        names = [n["name"] for n in self.nodes]
        index = {name: i for i, name in enumerate(names)}
        idle = self.idle()

        @cache
        def best(i: int, free: tuple[int, ...]) -> Fraction:
            if i == len(program):
                return Fraction(0)
            _, weight, columns = program[i]
            value = best(i + 1, free)
            for column in columns:
                free_after = list(free)
                for name, gpus in column.placement:
                    free_after[index[name]] -= gpus
                if min(free_after) >= 0:
                    value = max(value, weight * column.gain + best(i + 1, tuple(free_after)))
            return value

        return best(0, tuple(idle[name] for name in names))

    def greedy_limit(self) -> list[Fraction]:
        """Gains by descending priority, as lambda grows beyond all limits.

        The most urgent job gets all it can, then the next one: the lexicographically best list.
        """
        program = sorted(self.program(), key=lambda entry: -entry[1])
        names = [n["name"] for n in self.nodes]
        idle = self.idle()

        @cache
        def best(i: int, free: tuple[int, ...]) -> tuple[Fraction, ...]:
            if i == len(program):
                return ()
            value = (Fraction(0), *best(i + 1, free))
            for column in program[i][2]:
                if column.gain < value[0]:
                    continue
                free_after = dict(zip(names, free, strict=True))
                for name, gpus in column.placement:
                    free_after[name] -= gpus
                if min(free_after.values()) >= 0:
                    value = max(value, (column.gain, *best(i + 1, tuple(free_after.values()))))
            return value

        return list(best(0, tuple(idle[name] for name in names)))

    def gains(self, placements: dict[str, dict[str, int]]) -> list[Fraction]:
        """Gains of a plan by descending priority, 0 for a job without a placement."""
        gains = []
        for job, _, columns in sorted(self.program(), key=lambda entry: -entry[1]):
            placement = tuple(sorted(placements.get(job, {}).items()))
            gains.append(sum((c.gain for c in columns if c.placement == placement), Fraction(0)))
        return gains

    def objective(self, placements: dict[str, dict[str, int]]) -> Fraction:
        """Eq. 11 for a plan; refuses a plan that is not allowed."""
        usage = dict.fromkeys(self.idle(), 0)
        total, rest_of_jobs = Fraction(0), set(placements)
        for job, weight, columns in self.program():
            if job in placements:
                placement = tuple(sorted(placements[job].items()))
                [column] = [c for c in columns if c.placement == placement]
                total += weight * column.gain
                rest_of_jobs.discard(job)
                for name, gpus in placement:
                    usage[name] += gpus
        assert not rest_of_jobs, f"jobs outside the program were placed: {rest_of_jobs}"
        idle = self.idle()
        assert all(usage[name] <= idle[name] for name in usage), "a server is over-allocated"
        return total

    def jobs_that_fit(self, placements: dict[str, dict[str, int]]) -> list[str]:
        """Jobs of the program without a placement that would still fit."""
        free = self.idle()
        for placement in placements.values():
            for name, gpus in placement.items():
                free[name] -= gpus
        return [
            job
            for job, _, columns in self.program()
            if job not in placements
            and any(c.gain > 0 and all(free[n] >= g for n, g in c.placement) for c in columns)
        ]
