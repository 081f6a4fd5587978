"""Small made-up snapshots that exercise every rule."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

Json = dict[str, Any]
TYPES = ("a", "b", "c")


def small_snapshot(seed: int, **settings: Any) -> Json:
    """A few servers of a few types, some partly idle, and jobs of all kinds."""
    rng = Random(seed)
    nodes = _nodes(rng, count=rng.randint(1, 5), gpus_max=4)
    return _snapshot(rng, nodes, jobs=rng.randint(0, 7), lambdas=[0, 1, 1, 2, 50], **settings)


def medium_snapshot(seed: int, **settings: Any) -> Json:
    """A snapshot with servers of up to 8 GPUs and a queue longer than the window."""
    rng = Random(seed)
    nodes = _nodes(rng, count=rng.randint(6, 10), gpus_max=8)
    return _snapshot(rng, nodes, jobs=rng.randint(15, 40), lambdas=[0, 0.5, 1, 2], **settings)


def _nodes(rng: Random, count: int, gpus_max: int) -> list[Json]:
    nodes = []
    for i in range(count):
        gpus = rng.randint(1, gpus_max)
        nodes.append(
            {
                "name": f"n{i}",
                "gpu_type": rng.choice(TYPES[: rng.randint(1, 3)]),
                "gpus": gpus,
                "idle": rng.choice([gpus, gpus, rng.randint(0, gpus)]),
            }
        )
    return nodes


def _snapshot(
    rng: Random, nodes: list[Json], jobs: int, lambdas: list[float], **settings: Any
) -> Json:
    spread = rng.choice(["equal", "zero", "negative", "decades", "plain", "plain", "plain"])
    queue = [_job(rng, i, nodes, spread) for i in range(jobs)]
    rng.shuffle(queue)
    return {
        "now": 10_000,
        "round": {"first": rng.random() < 0.5, "seconds": 1800},
        "nodes": nodes,
        "jobs": queue,
        "settings": {
            "gap": 0,
            "lambda": rng.choice(lambdas),
            "time_limit": 60,
            "paper_exact": rng.random() < 0.15,
            **settings,
        },
    }


def _job(rng: Random, i: int, nodes: list[Json], spread: str) -> Json:
    age_field = rng.choice(["age", "samples", "limit", "nothing"])
    job: Json = {
        "id": rng.choice([str(i), f"job{i}"]),
        "user": "u",
        "submit": rng.choice([0, 0, rng.randint(0, 9000)]),
        "wait": rng.choice([0, rng.randint(0, 9000)]),
        "age": rng.uniform(60, 9000) if age_field == "age" else None,
        "priority": _priority(rng, spread),
        "reqs": sorted(
            {rng.randint(1, rng.choice([2, 4, 4, 9])) for _ in range(rng.randint(1, 3))}
        ),
        "preemptible": rng.random() < 0.7,
        "running": {},
        "sensitivity": rng.choice([None, None, None, rng.choice([1.0, 1.4, 1.5, 2.0])]),
        "throughput": {t: _table(rng) for t in TYPES if rng.random() < 0.75},
        "server_factor": {
            n["name"]: round(rng.uniform(0.8, 1.2), 2) for n in nodes if rng.random() < 0.4
        },
    }
    if age_field == "samples":
        job["samples"] = rng.uniform(1e3, 1e7)
    if age_field == "limit":
        job["time_limit_seconds"] = rng.randint(60, 9000)
    if rng.random() < 0.1:
        job["state"] = rng.choice(["held", "dependency", "profiling"])
    elif rng.random() < 0.35:
        _start(rng, job, nodes)
    return job


def _priority(rng: Random, spread: str) -> float | None:
    if spread == "equal":
        return 1.0
    if spread == "zero":
        return rng.choice([0.0, 0.5, 1.0])
    if spread == "negative":
        return rng.choice([-3.0, -0.5, 0.0, 2.0])
    if spread == "decades":
        return 10.0 ** rng.uniform(-6, 6)
    return None if rng.random() < 0.7 else round(rng.uniform(0.01, 5), 2)


def _table(rng: Random) -> Json:
    single_gpu = rng.choice([10.0, 50.0, 100.0, rng.uniform(10, 100)])
    table: Json = {"aggregated": {"1": single_gpu}}
    for k in (2, 3, 4, 8):
        if rng.random() < 0.5:
            table["aggregated"][str(k)] = single_gpu * rng.choice([1.0, 0.9, rng.uniform(0.6, 1.0)])
    if rng.random() < 0.65:
        ratio = rng.choice([1.0, 1.25, 1.4, 2.0, rng.uniform(1, 2)])
        table["distributed"] = {"2": single_gpu / ratio}
        if rng.random() < 0.5:
            table["distributed"]["4"] = single_gpu / ratio * 0.9
    return table


def _start(rng: Random, job: Json, nodes: list[Json]) -> None:
    """Start the job on idle GPUs of one server, or of neighbours of one type."""
    gpu_type = rng.choice([n["gpu_type"] for n in nodes])
    table = job["throughput"].get(gpu_type)
    if table is None:
        return
    servers = [n for n in nodes if n["gpu_type"] == gpu_type and n["idle"]]
    node_count = rng.randint(1, 2) if table.get("distributed") else 1
    for node in servers[:node_count]:
        gpus = rng.randint(1, node["idle"])
        job["running"][node["name"]] = gpus
        node["idle"] -= gpus
    if job["running"]:
        job["restart_seconds"] = rng.choice([0, 60, 900, 3600])


def ruled_snapshot(seed: int, **settings: Any) -> Json:
    """A small snapshot with demands of scripts and of a site: every key, mixed."""
    rng = Random(seed)
    doc = small_snapshot(seed, **{"lambda": rng.choice([0, 1, 1, 2]), **settings})
    for job in doc["jobs"]:
        for table in job["throughput"].values():
            _make_even(rng, table)
    if rng.random() < 0.6:
        _make_roomy(rng, doc)
    for job in doc["jobs"]:
        _demand(rng, job, doc["nodes"])
    for node in doc["nodes"]:
        _measure_out(rng, node, doc["jobs"])
    if rng.random() < 0.6:
        doc["limits"] = [_limit(rng, doc["jobs"], i) for i in range(rng.randint(1, 3))]
    for job in doc["jobs"]:
        if rng.random() < 0.15:
            job["min_gpus"] = {rng.choice(TYPES): rng.randint(1, 5)}
    return doc


def _make_even(rng: Random, table: Json) -> None:
    """Use sensitivities that a float holds exactly, so that their means compare as fractions do."""
    table["aggregated"]["1"] = rng.choice([16.0, 32.0, 48.0])
    if "distributed" in table:
        table["distributed"]["2"] = table["aggregated"]["1"] * rng.choice([1.0, 1.0, 0.5])


def _make_roomy(rng: Random, doc: Json) -> None:
    """Use one type on which every job's spread speed is known, and counts that can be even."""
    node_names = {name for job in doc["jobs"] for name in job["running"]}
    for node in doc["nodes"]:
        node["gpu_type"] = TYPES[0]
        if node["name"] not in node_names:
            node["gpus"] = node["idle"] = rng.choice([2, 2, 3, 4])
    for job in doc["jobs"]:
        table: Json = {"aggregated": {"1": 1.0, "4": rng.choice([12.0, 30.0])}}
        table["distributed"] = {"2": 1.0, "4": rng.choice([10.0, 20.0])}
        _make_even(rng, table)
        job["throughput"][TYPES[0]] = table
        counts = {rng.choice([1, 2, 2, 3, 4, 4, 6, 8]) for _ in range(rng.randint(1, 3))}
        job["reqs"] = sorted(counts)


def _demand(rng: Random, job: Json, nodes: list[Json]) -> None:
    names = [node["name"] for node in nodes]
    if rng.random() < 0.2:
        job["nodes"] = rng.sample(names, rng.randint(min(1, len(names)), len(names)))
    if rng.random() < 0.5:
        job["shape"] = rng.choice(["any", "even", "even", "node"])
    if job.get("shape") == "even" and rng.random() < 0.5:
        job["per_node"] = rng.choice([1, 1, 2, 2, 3])
    alone = not job["running"] or all(
        sum(
            1 for node in nodes if node["name"] == name and node["idle"] + gpus_here == node["gpus"]
        )
        for name, gpus_here in job["running"].items()
    )
    if alone and rng.random() < 0.2:
        job["exclusive"] = True
    if rng.random() < 0.4:
        job["cores_per_gpu"] = rng.choice([1, 2, 2.5, 0.5, 0.3, 4])
    if rng.random() < 0.3:
        job["memory_mb_per_gpu"] = rng.choice([100, 250, 333.3])
    if rng.random() < 0.3:
        job["memory_mb_per_node"] = rng.choice([100, 500])
    if rng.random() < 0.2:
        job["max_nodes"] = rng.choice([1, 2, 2, 3])
    if rng.random() < 0.2:
        job["max_per_node"] = rng.choice([1, 2, 3])


def _measure_out(rng: Random, node: Json, jobs: list[Json]) -> None:
    """Add cores and memory; the jobs that run there, and others, hold some of them."""
    jobs_here = [
        (job, job["running"][node["name"]]) for job in jobs if node["name"] in job["running"]
    ]
    whole = any(job.get("exclusive") for job, _ in jobs_here)
    if rng.random() < 0.6:
        cores_in_use = sum(
            ceil(Fraction(str(job.get("cores_per_gpu", 0))) * gpus) for job, gpus in jobs_here
        )
        foreign = 0 if whole else rng.choice([0, 0, 1, 3])
        node["cores"] = cores_in_use + foreign + rng.choice([2, node["gpus"] * 2, 16])
        if cores_in_use or foreign or rng.random() < 0.5:
            node["idle_cores"] = 0 if whole else node["cores"] - cores_in_use - foreign
    if rng.random() < 0.6:
        mb = [
            job.get("memory_mb_per_gpu", 0) * gpus + job.get("memory_mb_per_node", 0)
            for job, gpus in jobs_here
        ]
        foreign = rng.choice([0, 0, 100])
        node["memory_mb"] = ceil(sum(mb)) + foreign + rng.choice([100, 500, 1000, 2000])
        if mb or foreign:
            node["idle_memory_mb"] = 0 if whole else node["memory_mb"] - ceil(sum(mb)) - foreign


def _limit(rng: Random, jobs: list[Json], number: int) -> Json:
    ids = [job["id"] for job in jobs]
    weighed_ids = rng.sample(ids, rng.randint(0, len(ids))) if rng.random() < 0.4 else []
    return {
        "name": f"QOS {number}",
        "per_gpu": {job: rng.choice([0, 2, 3, 5]) for job in weighed_ids},
        "jobs": rng.sample(ids, rng.randint(0, len(ids))),
        "gpus": rng.choice([None, rng.randint(0, 8), rng.randint(2, 6)]),
        "count": rng.choice([None, None, rng.randint(1, 3), 0]),
    }
