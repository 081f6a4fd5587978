"""One valid document of each format, with every key, and ways to damage it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Json = Any

TABLE = {
    "rtx3090": {
        "aggregated": {"1": 100.0, "2": 98.0, "8": 90.0},
        "distributed": {"2": 70.0, "3": 65.0},
    }
}
SNAPSHOT = {
    "now": 1700000000,
    "round": {"first": True, "seconds": 1800},
    "nodes": [
        {"name": "n0", "gpu_type": "rtx3090", "gpus": 8, "idle": 8},
        {
            "name": "n3",
            "gpu_type": "rtx3090",
            "gpus": 8,
            "idle": 6,
            "cores": 64,
            "idle_cores": 48,
            "memory_mb": 512000,
            "idle_memory_mb": 480000.5,
        },
    ],
    "limits": [{"name": "QOS small, alice", "jobs": ["17"], "gpus": 4, "count": None}],
    "jobs": [
        {
            "id": "17",
            "user": "alice",
            "submit": 1699990000,
            "wait": 4000,
            "age": 7200,
            "priority": 0.5,
            "samples": 1.2e8,
            "state": "waiting",
            "restart_seconds": 30,
            "time_limit_seconds": 86400,
            "reqs": [1, 2, 4],
            "preemptible": True,
            "running": {"n3": 2},
            "sensitivity": 1.2,
            "throughput": TABLE,
            "server_factor": {"n0": 0.97},
            "app": "lm:2",
            "running_since": 1699995000,
            "nodes": ["n0", "n3"],
            "shape": "even",
            "per_node": 1,
            "exclusive": False,
            "cores_per_gpu": 7.5,
            "memory_mb_per_gpu": 16000,
            "memory_mb_per_node": 100.5,
        }
    ],
    "settings": {
        "lambda": 1.0,
        "sigma": 1.4,
        "gap": 0.01,
        "time_limit": 10,
        "priority": "latency_ratio",
        "policy": "hops",
        "paper_exact": False,
        "seed": 0,
        "filter_share": 0.8,
        "lease_seconds": 600,
    },
}
HEALTH = {
    "now": 1700000000,
    "nodes": [
        {"name": "n0", "gpu_type": "a100", "gpus": 4},
        {"name": "n1", "gpu_type": "a100", "gpus": 4},
    ],
    "records": [
        {
            "at": 1699990000.5,
            "workload": "w1",
            "job": "17",
            "nodes": {"n0": 4, "n1": 2},
            "seconds_per_iteration": 0.21,
            "ranks": [{"node": "n0", "compute": 0.18, "wait": 0.02}],
        }
    ],
    "ends": [
        {
            "at": 1699991000,
            "job": "17",
            "workload": "w1",
            "nodes": {"n0": 4},
            "state": "LAUNCH_FAILED",
        }
    ],
}
THEORY = {
    "batch_size": 128,
    "params": 25.6e6,
    "pattern": 1,
    "t_f": 0.03,
    "t_b": 0.06,
    "t_u": 0.01,
    "t_d": {
        "p_cache": 0.75,
        "mu_cache": 0.02,
        "sigma_cache": 0.001,
        "mu_load": 0.2,
        "sigma_load": 0.02,
    },
    "t_w": {"cache": 0.0, "load": 0.01},
    "b_link": 2.5e9,
    "b_net": 1.1e9,
}
CLUSTER = {
    "nodes": [
        {"name": "n0", "gpu_type": "rtx3090", "gpus": 8},
        {"name": "n1", "gpu_type": "t4", "gpus": 4},
    ],
    "gpu_types": {"rtx3090": {"b_link": 2.5e9, "b_net": 1.1e9}},
}
WORKLOAD = {
    "throughput": {"resnet50": TABLE, "vgg": {"theory": {"rtx3090": THEORY}}},
    "server_factor": {"resnet50": {"n0": 0.97}},
    "jobs": [
        {
            "id": "1",
            "user": "u1",
            "submit": 0.0,
            "workload": "resnet50",
            "samples": 1.2e8,
            "batch_size": 128,
            "reqs": [1, 2, 4],
            "preemptible": True,
            "restart_seconds": 12.5,
        },
        {
            "id": "2",
            "user": "u2",
            "submit": 60.0,
            "workload": "resnet50",
            "samples": 1e6,
            "reqs": [1],
            "interactive": True,
        },
    ],
}

WRONG = (None, True, -1, 0, 0.5, 2, 2.0, "", "x", [], {}, [0], [1, 1], {"": 1}, {"01": 1.0})


def damage(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield copies with one value replaced, one key removed or one added; each with its path."""
    for path in list(_paths(document, ())):
        for wrong in WRONG:
            yield (
                _text(path),
                _changed_copy(document, path, lambda spot, key, w=wrong: _put_value(spot, key, w)),
            )
        if isinstance(path[-1], str):
            yield _text(path), _changed_copy(document, path, lambda spot, key: spot.pop(key))
            surplus_path = (*path[:-1], "surplus")
            yield (
                _text(surplus_path),
                _changed_copy(document, surplus_path, lambda spot, key: _put_value(spot, key, 1)),
            )


def _put_value(spot: Json, key: str | int, value: Json) -> None:
    spot[key] = copy.deepcopy(value)


def _changed_copy(document: Json, path: tuple[str | int, ...], change: Any) -> Json:
    document = copy.deepcopy(document)
    spot = document
    for key in path[:-1]:
        spot = spot[key]
    change(spot, path[-1])
    return document


def _paths(value: Json, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in inside:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from _paths(child, (*path, key))


def _text(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.lstrip(".")
