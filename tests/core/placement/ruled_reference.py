"""Demands of scripts and sites, written from the text of the snapshot's format.

It extends :mod:`exhaustive_reference`, whose rules hold unless this file says otherwise, and shares
no code with the product. Shapes are found by trying runs of neighbours, plans by trying all.
"""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any

from exhaustive_reference import Column, Json, Placement, Reference

Free = tuple[int, Fraction | None, Fraction | None, str]
"""Of a node: GPUs, cores, memory (None: never short) and the job to which the plan gives a part."""


def exact(number: float) -> Fraction:
    return Fraction(str(number))


class RuledReference(Reference):
    """Everything the rules say about one snapshot with any of the optional keys."""

    def __init__(self, doc: Json) -> None:
        doc = deepcopy(doc)
        for job in doc["jobs"]:
            k = job.get("per_node")
            job["all_reqs"] = job["reqs"]
            job["reqs"] = [r for r in job["reqs"] if k is None or r % k == 0]
        super().__init__(doc)
        self.node = {n["name"]: n for n in self.nodes}
        self.limits = doc.get("limits", [])

    # Free resources ------------------------------------------------------------------------

    def cores(self, job: Json, gpus: int) -> int:
        return ceil(exact(job.get("cores_per_gpu", 0)) * gpus)

    def memory(self, job: Json, gpus: int) -> Fraction:
        return exact(job.get("memory_mb_per_gpu", 0)) * gpus + exact(
            job.get("memory_mb_per_node", 0)
        )

    def whole_of(self, name: str, key: str) -> Fraction | None:
        value = self.node[name].get(key)
        return None if value is None else exact(value)

    def free(self) -> dict[str, Free]:
        """Free resources now; in a first plan, with all that running jobs of the queue hold."""
        free_resources = {}
        for name, node in self.node.items():
            gpus, amounts = self.idle()[name], []
            for key in ("cores", "memory_mb"):
                total = self.whole_of(name, key)
                idle = node.get(f"idle_{key}")
                amounts.append(total if idle is None else exact(idle))
            whole = False
            for job in self.doc["jobs"]:
                gpus_in_use = (job["running"] or {}).get(name)
                if gpus_in_use is None or not self.in_plan(job):
                    continue
                whole = whole or job.get("exclusive", False)
                demand = (Fraction(self.cores(job, gpus_in_use)), self.memory(job, gpus_in_use))
                amounts = [a if a is None else a + t for a, t in zip(amounts, demand, strict=True)]
            totals = [self.whole_of(name, key) for key in ("cores", "memory_mb")]
            pairs = list(zip(amounts, totals, strict=True))
            rest_amounts = [t if a is None or t is None or whole else min(a, t) for a, t in pairs]
            free_resources[name] = (gpus, rest_amounts[0], rest_amounts[1], "")
        return free_resources

    def all_free(self) -> dict[str, Free]:
        """Free resources of an idle cluster."""
        return {
            name: (n["gpus"], self.whole_of(name, "cores"), self.whole_of(name, "memory_mb"), "")
            for name, n in self.node.items()
        }

    def closed_nodes(self) -> set[str]:
        """Nodes on which an exclusive job keeps running."""
        return {
            name
            for job in self.doc["jobs"]
            if job.get("exclusive") and not self.in_plan(job)
            for name in job["running"] or {}
        }

    def could_take(self, job: Json, name: str, free: Free, *, is_closed: bool) -> int:
        """S_t: the GPUs that the job could take of a server."""
        gpus, cores, memory, _ = free
        gpus = min(gpus, job.get("max_per_node") or gpus)
        allowed_nodes = job.get("nodes")
        if is_closed or (allowed_nodes is not None and name not in allowed_nodes):
            return 0
        if job.get("exclusive"):
            total = self.whole_of(name, "cores")
            if free[0] < self.node[name]["gpus"] or (cores is not None and cores < total):
                return 0
        largest_count = 0
        for count in range(1, gpus + 1):
            if cores is not None and self.cores(job, count) > cores:
                break
            if memory is not None and self.memory(job, count) > memory:
                break
            largest_count = count
        return largest_count

    # Shapes -------------------------------------------------------------------------------

    def many_servers(self, job: Json, gpu_type: str) -> bool:
        """Whether the job may be spread on this type."""
        rho, k = self.rho(job), job.get("per_node")
        if not job["throughput"][gpu_type].get("distributed") or rho is None:
            return False
        if job.get("shape", "any") == "node" or job.get("max_nodes") == 1:
            return False
        smallest = min(job["reqs"])
        return (
            float(rho) <= self.sigma
            or smallest > self.largest[gpu_type]
            or (k is not None and k < smallest)
        )

    def shapes(self, job: Json, gpu_type: str, *, idle_cluster: bool) -> list[Placement]:
        if gpu_type not in job["throughput"] or gpu_type not in self.total:
            return []
        free = self.all_free() if idle_cluster else self.free()
        closed_nodes = set() if idle_cluster else self.closed_nodes()
        allowed_nodes = self.node if job.get("nodes") is None else job["nodes"]
        servers = [
            n["name"]
            for n in self.nodes
            if n["gpu_type"] == gpu_type and n["name"] in allowed_nodes
        ]
        capacity = {
            s: self.could_take(job, s, free[s], is_closed=s in closed_nodes) for s in servers
        }
        rule, k = job.get("shape", "any"), job.get("per_node")
        placements: list[Placement] = []
        min_gpus = job.get("min_gpus", {}).get(gpu_type, 1)
        for size in sorted(count for count in set(job["reqs"]) if count >= min_gpus):
            if k is None or size == k:
                placements += [((s, size),) for s in servers if capacity[s] >= size]
            if not self.many_servers(job, gpu_type):
                continue
            if rule == "even":
                several = self.even(servers, capacity, size, k)
            else:
                several = self.fill(servers, capacity, size)
            placements += [s for s in several if len(s) <= (job.get("max_nodes") or len(s))]
        return placements

    @staticmethod
    def even(
        servers: list[str], capacity: dict[str, int], size: int, k: int | None
    ) -> list[Placement]:
        for n in range(2, len(servers) + 1):
            if size % n or (k is not None and size != n * k):
                continue
            gpus_each = size // n
            runs = [servers[i : i + n] for i in range(len(servers) - n + 1)]
            good = [run for run in runs if all(capacity[s] >= gpus_each for s in run)]
            if good:
                return [tuple(sorted((s, gpus_each) for s in run)) for run in good]
        return []

    @staticmethod
    def fill(servers: list[str], capacity: dict[str, int], size: int) -> list[Placement]:
        placements = []
        for start, first in enumerate(servers):
            if capacity[first] >= size:
                continue
            shape: dict[str, int] = {}
            for name in servers[start:]:
                missing = size - sum(shape.values())
                if capacity[name] == 0 or missing == 0:
                    break
                shape[name] = min(capacity[name], missing)
            if sum(shape.values()) == size:
                placements.append(tuple(sorted(shape.items())))
        fewest = min(map(len, placements), default=0)
        return [shape for shape in placements if len(shape) == fewest]

    def can_run_on(self, job: Json, gpu_type: str) -> bool:
        return bool(job["reqs"]) and bool(self.shapes(job, gpu_type, idle_cluster=True))

    def columns(self, job: Json) -> list[Column]:
        placements = [s for t in self.gpu_types for s in self.shapes(job, t, idle_cluster=False)]
        present = tuple(sorted((job["running"] or {}).items()))
        if present and not self.paper_exact and present not in placements:
            placements.append(present)
        columns = [Column(p, r) for p in placements if (r := self.throughput(job, p)) is not None]
        smallest = min((c.throughput for c in columns), default=Fraction(1))
        lost_share = Fraction(job.get("restart_seconds", 0)) / Fraction(
            self.doc["round"]["seconds"]
        )
        for c in columns:
            c.gain = c.throughput / smallest
            if present and c.placement != present and not self.paper_exact:
                c.gain *= max(Fraction(0), 1 - lost_share)
        return columns

    # The window ---------------------------------------------------------------------------

    def left_of_limits(self) -> list[tuple[int | None, int | None]]:
        """GPUs and jobs that every limit leaves beside the kept jobs; none if those exceed it.

        As in Slurm, a job that takes nothing of an exceeded limit may still run.
        """
        rows = []
        for row in self.limits:
            staying_gpus = [
                sum(job["running"].values()) * row.get("per_gpu", {}).get(job["id"], 1)
                for job in self.doc["jobs"]
                if job["id"] in row["jobs"] and job["running"] and not self.in_plan(job)
            ]
            gpus, count = row.get("gpus"), row.get("count")
            rows.append(
                (
                    None if gpus is None else max(0, gpus - sum(staying_gpus)),
                    None if count is None else max(0, count - len(staying_gpus)),
                )
            )
        return rows

    def walk(self) -> tuple[list[Json], list[Json], list[Json]]:
        """Jobs inside the window, jobs behind it, and jobs passed over for a limit."""
        inside: list[Json] = []
        later_jobs: list[Json] = []
        skipped_jobs: list[Json] = []
        for job in self.queue():
            if not self.could_run(job):
                continue
            is_blocked = False
            for row, (gpus, count) in zip(self.limits, self.left_of_limits(), strict=True):
                if job["id"] not in row["jobs"]:
                    continue
                weight = row.get("per_gpu", {})
                member_gpus = [
                    min(j["reqs"]) * weight.get(j["id"], 1)
                    for j in inside
                    if j["id"] in row["jobs"]
                ]
                min_gpus = min(job["reqs"]) * weight.get(job["id"], 1)
                if gpus is not None and sum(member_gpus) + min_gpus > gpus:
                    is_blocked = True
                if count is not None and len(member_gpus) + 1 > count:
                    is_blocked = True
            min_gpus_inside = sum(min(j["reqs"]) for j in inside)
            if is_blocked:
                skipped_jobs.append(job)
            elif min_gpus_inside < sum(self.total.values()):
                inside.append(job)
            else:
                later_jobs.append(job)
        return inside, later_jobs, skipped_jobs

    def window(self) -> tuple[list[Json], list[Json]]:
        inside, later_jobs, _ = self.walk()
        joiners: list[Json] = []
        known_rhos = [r for r in map(self.rho, inside + later_jobs) if r is not None]
        if self.first or not known_rhos:
            return inside, joiners
        queue_mean, idle = sum(known_rhos) / len(known_rhos), sum(self.idle().values())
        for job in later_jobs:
            rhos = [r for r in map(self.rho, inside + joiners) if r is not None]
            if not rhos or sum(rhos) / len(rhos) <= queue_mean:
                break
            rho = self.rho(job)
            if rho is not None and rho < queue_mean and min(job["reqs"]) <= idle:
                joiners.append(job)
        return inside, joiners

    # Plans --------------------------------------------------------------------------------

    def start(self) -> tuple[Any, ...]:
        free = self.free()
        return tuple(free[n["name"]] for n in self.nodes), tuple(self.left_of_limits())

    def remaining_after(self, state: Any, job: Json, placement: Placement) -> Any | None:
        """What remains after the placement; None if it is not allowed."""
        nodes, limits = list(state[0]), list(state[1])
        index = {n["name"]: i for i, n in enumerate(self.nodes)}
        present = placement == tuple(sorted((job["running"] or {}).items()))
        for name, count in placement:
            gpus, cores, memory, use = nodes[index[name]]
            if gpus < count or use == "closed" or (use == "used" and job.get("exclusive")):
                return None
            need_cores, need_memory = Fraction(self.cores(job, count)), self.memory(job, count)
            if present:  # a running job keeps what it holds, whatever its rules say now
                first = self.free()[name]
                need_cores = need_cores if first[1] is None else min(need_cores, first[1])
                need_memory = need_memory if first[2] is None else min(need_memory, first[2])
            cores = None if cores is None else cores - need_cores
            memory = None if memory is None else memory - need_memory
            if (cores is not None and cores < 0) or (memory is not None and memory < 0):
                return None
            mark = "closed" if job.get("exclusive") else "used"
            nodes[index[name]] = (gpus - count, cores, memory, mark)
        size = sum(count for _, count in placement)
        for i, row in enumerate(self.limits):
            if job["id"] in row["jobs"]:
                gpus, count = limits[i]
                limits[i] = (
                    None
                    if gpus is None
                    else gpus - size * row.get("per_gpu", {}).get(job["id"], 1),
                    None if count is None else count - 1,
                )
                if any(slack is not None and slack < 0 for slack in limits[i]):
                    return None
        return tuple(nodes), tuple(limits)

    def optimum(self) -> Fraction:
        program = self.program()
        jobs = {job["id"]: job for job in self.doc["jobs"]}

        @cache
        def best(i: int, state: Any) -> Fraction:
            if i == len(program):
                return Fraction(0)
            job, weight, columns = program[i]
            value = best(i + 1, state)
            for column in columns:
                after = self.remaining_after(state, jobs[job], column.placement)
                if after is not None:
                    value = max(value, weight * column.gain + best(i + 1, after))
            return value

        return best(0, self.start())

    def after(self, placements: dict[str, dict[str, int]]) -> Any:
        """What remains after a plan; refuses a plan that breaks a rule."""
        state, jobs = self.start(), {job["id"]: job for job in self.doc["jobs"]}
        for job, place in placements.items():
            state = self.remaining_after(state, jobs[job], tuple(sorted(place.items())))
            assert state is not None, f"job {job} breaks a rule at {place}"
        return state

    def objective(self, placements: dict[str, dict[str, int]]) -> Fraction:
        self.after(placements)
        total, rest_of_jobs = Fraction(0), set(placements)
        for job, weight, columns in self.program():
            if job in placements:
                placement = tuple(sorted(placements[job].items()))
                [column] = [c for c in columns if c.placement == placement]
                total += weight * column.gain
                rest_of_jobs.discard(job)
        assert not rest_of_jobs, f"jobs outside the program were placed: {rest_of_jobs}"
        return total

    def jobs_that_fit(self, placements: dict[str, dict[str, int]]) -> list[str]:
        state, jobs = self.after(placements), {job["id"]: job for job in self.doc["jobs"]}
        return [
            job
            for job, _, columns in self.program()
            if job not in placements
            and any(
                c.gain > 0 and self.remaining_after(state, jobs[job], c.placement) is not None
                for c in columns
            )
        ]

    def codes(self, placements: dict[str, dict[str, int]]) -> dict[str, str]:
        """Code of the reason for which each waiting job waits."""
        columns = {job: c for job, _, c in self.program()}
        skipped_ids = {job["id"] for job in self.walk()[2]}
        codes = {}
        for job in self.doc["jobs"]:
            state = job.get("state", "waiting")
            if state != "waiting":
                codes[job["id"]] = state
            elif self.in_plan(job) and job["id"] not in placements:
                if not self.could_run(job) or columns.get(job["id"]) == []:
                    codes[job["id"]] = "no_configuration"
                elif job["id"] in skipped_ids:
                    codes[job["id"]] = "limit"
                else:
                    inside = job["id"] in columns
                    codes[job["id"]] = "lost_to_others" if inside else "outside_window"
        return codes

    def age(self, job: Json) -> Fraction:
        if not job["reqs"]:
            job = {**job, "reqs": job["all_reqs"], "nodes": []}
        return super().age(job)
