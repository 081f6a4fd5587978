"""Plans for which not all sets of servers are listed: the bounds hold for all sets."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest
from best_plan import plan_document
from rack_reference import RackReference, rack_snapshot

from hopsd.core.placement import rack_sets
from hopsd.core.placement.rack_sets import LeafServers, RackRule, even_sets, filled_sets
from hopsd.solver import racks

Json = dict[str, Any]


def even_snapshot(seed: int) -> Json:
    """A snapshot in which rack-bound jobs accept equal counts only."""
    doc = rack_snapshot(seed, gap=0.0, time_limit=0.5)
    for job in doc["jobs"]:
        bound = job.get("segment") or job.get("max_switches")
        if bound and job.get("shape") != "node":
            job["shape"] = "even"
    return doc


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_for_unlisted_sets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    monkeypatch.setattr(racks, "_MAX_WHOLE", 0)
    doc = even_snapshot(seed)
    plan, reference = plan_document(doc), RackReference(doc)
    value, best = reference.objective(plan["placements"]), reference.optimum()
    assert plan["objective"] == pytest.approx(float(value), rel=1e-9)
    assert plan["upper_bound"] >= float(best) * (1 - 1e-9)


@pytest.mark.long
@pytest.mark.slow
def test_some_plans_list_only_a_part_of_the_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    docs = [even_snapshot(seed) for seed in range(60)]
    listed_counts = [plan_document(doc)["configurations"] for doc in docs]
    full_counts = [sum(len(c) for _, _, c in RackReference(doc).program()) for doc in docs]
    assert (
        sum(
            listed_count < full_count
            for listed_count, full_count in zip(listed_counts, full_counts, strict=True)
        )
        >= 5
    )


def leaves_of(*sizes: int) -> LeafServers:
    leaf = np.repeat(np.arange(len(sizes)), sizes)
    return LeafServers(np.arange(len(leaf)), np.full(len(leaf), 4), leaf)


def test_few_sets_are_listed_completely_and_many_in_part() -> None:
    small_sets = even_sets(leaves_of(5, 5), 12, 4, RackRule(max_switches=1))
    assert small_sets.complete
    assert len(small_sets.shapes) == 2 * comb(5, 3)
    large_sets = even_sets(leaves_of(*[18] * 20), 24, 4, RackRule(segment=3))
    assert not large_sets.complete
    assert 0 < len(large_sets.shapes) < 2 * rack_sets.MAX_SETS
    leaf = leaves_of(*[18] * 20).leaf[large_sets.shapes.servers]
    assert all((np.unique(row, return_counts=True)[1] % 3 == 0).all() for row in leaf)


@pytest.mark.parametrize("max_leaves", [1, 2, None])
def test_listed_sets_of_many_uneven_servers_fill_all_but_the_last(max_leaves: int | None) -> None:
    rng = np.random.default_rng(7)
    leaves = leaves_of(*[18] * 20)
    idle = rng.integers(0, 5, len(leaves.servers))
    sets = filled_sets(
        LeafServers(leaves.servers, idle, leaves.leaf),
        30,
        RackRule(segment=1, max_switches=max_leaves),
    )
    gpus, servers = sets.shapes.gpus, sets.shapes.servers
    assert len(gpus)
    assert (gpus.sum(axis=1) == 30).all()
    assert (gpus[:, :-1] == idle[servers[:, :-1]]).all()
    assert (gpus[:, -1] <= idle[servers[:, -1]]).all()
    if max_leaves:
        assert all(len(set(row)) <= max_leaves for row in leaves.leaf[servers].tolist())


def test_the_slowest_set_has_value_1_even_if_it_is_unlisted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The set has a slow server in the middle of a leaf, and one of the other leaf."""
    monkeypatch.setattr(rack_sets, "MAX_SETS", 0)
    monkeypatch.setattr(racks, "_MAX_WHOLE", 0)
    doc = even_snapshot(0)
    doc["nodes"] = [
        {"name": f"n{index}", "gpu_type": "a", "gpus": 2, "idle": 2, "switches": [f"l{index // 3}"]}
        for index in range(6)
    ]
    job = {
        "id": "1", "user": "u", "submit": 0, "wait": 1, "age": 1, "priority": 1.0, "reqs": [4],
        "preemptible": True, "running": {}, "sensitivity": 1.0, "shape": "even", "per_node": 2,
        "throughput": {"a": {"aggregated": {"1": 8.0}, "distributed": {"2": 8.0}}},
        "server_factor": {"n1": 0.5}, "segment": 1, "across": {"1": 1.0, "2": 0.5},
    }  # fmt: skip
    doc |= {"jobs": [job], "limits": []}
    doc["settings"]["paper_exact"] = False
    plan = plan_document(doc)
    assert plan["objective"] == float(RackReference(doc).optimum()) == 4.0
    assert plan["configurations"] < comb(6, 2)
