"""Segments, switches and levels of bandwidth, written from the text of the snapshot's format.

Like :mod:`ruled_reference`, it tries every set of servers and shares no code with the product.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations
from random import Random
from typing import Any

from exhaustive_reference import Json, Placement, interpolate
from ruled_reference import RuledReference
from small_snapshots import ruled_snapshot


class RackReference(RuledReference):
    """Everything the rules say about one snapshot with racks."""

    def leaf(self, name: str) -> str:
        switches = self.node[name].get("switches") or [""]
        return str(switches[-1])

    def throughput(self, job: Json, placement: Placement) -> Fraction | None:
        plain = super().throughput(job, placement)
        if plain is None or not job.get("across"):
            return plain
        return plain * interpolate(job["across"], len({self.leaf(name) for name, _ in placement}))

    def on_leaves(self, job: Json, names: tuple[str, ...]) -> bool:
        """Whether a job's servers comply with its segments and its number of switches."""
        servers_per_leaf = Counter(self.leaf(name) for name in names)
        k, max_leaves = job.get("segment"), job.get("max_switches")
        if max_leaves is not None and len(servers_per_leaf) > max_leaves:
            return False
        if k is None:
            return True
        if len(names) < k:
            return len(servers_per_leaf) == 1
        if any(n % k for n in servers_per_leaf.values()):
            return False
        if job.get("spread_segments") and len(servers_per_leaf) != len(names) // k:
            return False
        return not job.get("consolidate_segments") or self.below_one_switch(job, names)

    def below_one_switch(self, job: Json, names: tuple[str, ...]) -> bool:
        """Whether the servers are below one switch of the lowest level that can hold as many."""
        k, kind = job["segment"], self.node[names[0]]["gpu_type"]
        same_type = [n["name"] for n in self.nodes if n["gpu_type"] == kind]
        servers_needed = len(names)
        if len(names) == k:
            return True
        if job.get("spread_segments"):
            servers_needed = len(names) // k * max(Counter(map(self.leaf, same_type)).values())
        deepest = max(len(self.node[name].get("switches") or []) for name in same_type)
        for level in range(1, deepest):
            switch = {}
            for name in same_type:
                path = tuple(self.node[name].get("switches") or [])
                switch[name] = path[:-level] or path[:1]
            if max(Counter(switch.values()).values()) >= servers_needed:
                return len({switch[name] for name in names}) == 1
        return True

    def shapes(self, job: Json, gpu_type: str, *, idle_cluster: bool) -> list[Placement]:
        if job.get("segment") is None and job.get("max_switches") is None:
            return super().shapes(job, gpu_type, idle_cluster=idle_cluster)
        if gpu_type not in job["throughput"] or gpu_type not in self.total:
            return []
        free = self.all_free() if idle_cluster else self.free()
        closed_nodes = set() if idle_cluster else self.closed_nodes()
        allowed_nodes = self.node if job.get("nodes") is None else job["nodes"]
        capacity = {
            n["name"]: self.could_take(
                job, n["name"], free[n["name"]], is_closed=n["name"] in closed_nodes
            )
            for n in self.nodes
            if n["gpu_type"] == gpu_type and n["name"] in allowed_nodes
        }
        k, min_gpus = job.get("per_node"), job.get("min_gpus", {}).get(gpu_type, 1)
        placements: list[Placement] = []
        for size in sorted(count for count in set(job["reqs"]) if count >= min_gpus):
            if k is None or size == k:
                placements += [((s, size),) for s in capacity if capacity[s] >= size]
            if self.many_servers(job, gpu_type):
                several = self.fewest_servers(job, capacity, size)
                placements += [s for s in several if len(s) <= (job.get("max_nodes") or len(s))]
        return placements

    def fewest_servers(self, job: Json, capacity: dict[str, int], size: int) -> list[Placement]:
        for count in range(2, len(capacity) + 1):
            sets = [names for names in combinations(capacity, count) if self.on_leaves(job, names)]
            placements = [
                shape for names in sets if (shape := self.given_by_each(job, capacity, size, names))
            ]
            if placements:
                return placements
        return []

    @staticmethod
    def given_by_each(
        job: Json, capacity: dict[str, int], size: int, names: tuple[str, ...]
    ) -> Placement:
        """What each server of a set gives, in node order; empty if they cannot give that."""
        if job.get("shape", "any") == "even":
            gpus_each, remainder = divmod(size, len(names))
            wrong = remainder or job.get("per_node") not in (None, gpus_each)
            wrong = wrong or any(capacity[name] < gpus_each for name in names)
            return () if wrong else tuple(sorted((name, gpus_each) for name in names))
        gpus_of_others = sum(capacity[name] for name in names[:-1])
        last = size - gpus_of_others
        if any(capacity[name] == 0 for name in names) or not 0 < last <= capacity[names[-1]]:
            return ()
        return tuple(sorted([*((name, capacity[name]) for name in names[:-1]), (names[-1], last)]))


def rack_snapshot(seed: int, **settings: Any) -> Json:
    """A small snapshot with every key: racks, and the demands of scripts and sites."""
    rng = Random(seed)
    doc = ruled_snapshot(seed, **settings)
    if rng.random() < 0.75:
        _make_spread(rng, doc)
    leaves = ["", "l0", "l1", "l2"][: rng.randint(1, 4)]
    for node in doc["nodes"]:
        leaf = rng.choice(leaves)
        if leaf:
            node["switches"] = [rng.choice(["s0", "s1"]), leaf][rng.randint(0, 1) :]
        elif rng.random() < 0.3:
            node["switches"] = []
    for job in doc["jobs"]:
        if rng.random() < 0.6:
            job["segment"] = rng.choice([1, 2, 2, 3])
        if rng.random() < 0.4:
            job["max_switches"] = rng.choice([1, 1, 2])
        if rng.random() < 0.5:
            counts = rng.sample(["1", "2", "3"], rng.randint(1, 3))
            job["across"] = {count: rng.choice([1.0, 0.8, 0.5, 1.1]) for count in counts}
    return doc


def segment_snapshot(seed: int, **settings: Any) -> Json:
    """A small snapshot whose jobs spread or consolidate segments below up to three levels."""
    doc = rack_snapshot(seed, **settings)
    rng = Random(seed)
    if len({node["gpu_type"] for node in doc["nodes"]}) > 1 or rng.random() < 0.5:
        doc["nodes"] += [
            {"name": f"x{i}", "gpu_type": "a", "gpus": 2, "idle": rng.choice([1, 2, 2])}
            for i in range(rng.randint(1, 3))
        ]
    for node in doc["nodes"]:
        leaf = rng.randrange(4)
        path = [f"t{leaf // 3}", f"s{leaf // 2}", f"l{leaf}"]
        node["switches"] = path[rng.choice([0, 0, 0, 1, 2]) :]
    for job in doc["jobs"]:
        if rng.random() < 0.9:
            job["segment"] = rng.choice([1, 1, 2])
            job.pop("max_switches", None)
            job["spread_segments"] = rng.random() < 0.5
            job["consolidate_segments"] = rng.random() < 0.5
            job.pop("nodes", None)
    return doc


def odd_snapshot(seed: int) -> Json:
    """A small snapshot with a topology that no site should have, chosen by ``seed`` modulo 4."""
    rng = Random(seed)
    doc = (segment_snapshot if rng.random() < 0.5 else rack_snapshot)(seed)
    for i, node in enumerate(doc["nodes"]):
        if seed % 4 == 0:  # a leaf for each node
            node["switches"] = ["core", f"leaf{i}"]
        elif seed % 4 == 1:  # switches with the same name on several levels, one above itself
            paths = [["x", "y"], ["y", "x"], ["x"], ["y"], ["x", "x"]]
            node["switches"] = rng.choice(paths)
        elif seed % 4 == 2:  # no leaf, or a leaf below more levels than others
            node["switches"] = rng.choice([[], ["a", "b", "c", "d"], ["d"]])
    for job in doc["jobs"]:
        if seed % 4 == 3 and job.get("segment") is not None:
            job["segment"] = rng.choice([3, 4, 9])  # more than any leaf has
    return doc


def _make_spread(rng: Random, doc: Json) -> None:
    """Add servers, and jobs that are spread over several."""
    doc["nodes"] += [
        {"name": f"m{i}", "gpu_type": "a", "gpus": 2, "idle": rng.choice([1, 2, 2, 2])}
        for i in range(rng.randint(1, 4))
    ]
    for job in doc["jobs"]:
        job["reqs"] = sorted(rng.sample([1, 2, 3, 4, 6], rng.randint(1, 2)))
        job["throughput"]["a"] = {
            "aggregated": {"1": 16.0, "2": rng.choice([15.0, 16.0])},
            "distributed": {"2": 16.0, "3": rng.choice([12.0, 15.0])},
        }
        job.pop("min_gpus", None)
        if job.get("shape") == "node" or job.get("per_node", 1) > 2:
            job["shape"] = "any"
            job.pop("per_node", None)
        if rng.random() < 0.5:
            job.pop("nodes", None)
            job.pop("max_nodes", None)
