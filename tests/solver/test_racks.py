"""Rack-bound jobs on many blocks: exact packings are found, and bounds are close."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.racks.best_fit import best_fit
from bench.racks.instances import demanding_snapshot, mixed_snapshot, planted_snapshot
from hopsd.core.placement.rack_sets import Levels, keeps_racks
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.hops.policy import plan


def check_racks(snapshot: Snapshot, rack_plan: Plan) -> None:
    index = {node.name: i for i, node in enumerate(snapshot.nodes)}
    levels = Levels.from_nodes(snapshot.nodes)
    rules = {job.id: job.rules for job in snapshot.jobs}
    for job, place in rack_plan.placements.items():
        servers = [index[name] for name in place.nodes]
        leaves = [snapshot.nodes[server].leaf for server in servers]
        assert keeps_racks(rules[job], leaves, levels.at(np.array(servers)))


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "seed"), [(64, 0), (64, 2), (288, 1), (576, 3), (1152, 0)])
def test_every_job_of_an_exact_packing_is_placed(nodes: int, seed: int) -> None:
    snapshot = planted_snapshot(nodes, seed)
    packing_plan = plan(snapshot, PlanSettings(time_limit_seconds=60.0))
    assert len(packing_plan.placements) == len(snapshot.jobs)
    assert packing_plan.gap == 0.0
    check_racks(snapshot, packing_plan)


def test_best_fit_leaves_out_jobs_of_such_packings() -> None:
    snapshots = [planted_snapshot(288, seed) for seed in range(3)]
    placed_jobs = [best_fit(packing, packing.jobs, largest=True) for packing in snapshots]
    assert any(
        len(placed_part) < len(packing.jobs)
        for placed_part, packing in zip(placed_jobs, snapshots, strict=True)
    )


@pytest.mark.slow
def test_a_third_of_the_jobs_bound_to_racks_are_planned_within_the_gap() -> None:
    snapshot = mixed_snapshot(1000, 1 / 3, seed=0)
    rack_plan = plan(snapshot, PlanSettings(gap=0.01, time_limit_seconds=60.0))
    assert rack_plan.gap <= 0.01
    check_racks(snapshot, rack_plan)


@pytest.mark.long
def test_ten_thousand_gpus_with_many_fragments_are_planned_within_the_gap() -> None:
    """Regression: jobs took the first of equal servers, which left 706 GPUs idle."""
    snapshot = mixed_snapshot(10_000, 1 / 3, seed=3, idle=0.8)
    rack_plan = plan(snapshot, PlanSettings(gap=0.01, time_limit_seconds=300.0))
    assert rack_plan.gap <= 0.01
    check_racks(snapshot, rack_plan)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "idle"),
    [(0, 0.8), (1, 0.8), (0, 1.0), (0, 0.5), (1, 0.5), (2, 0.8), (3, 0.8), (3, 0.5)],
)
def test_limits_cores_and_memory_beside_racks_are_planned_within_the_gap(
    seed: int, idle: float
) -> None:
    snapshot = demanding_snapshot(600, 1 / 3, seed, idle)
    rack_plan = plan(snapshot, PlanSettings(gap=0.01, time_limit_seconds=300.0))
    assert rack_plan.gap <= 0.01
    check_racks(snapshot, rack_plan)


@pytest.mark.slow
def test_the_same_snapshot_gives_the_same_plan() -> None:
    settings = PlanSettings(gap=0.02, time_limit_seconds=60.0)
    first_plan, second_plan = (
        plan(mixed_snapshot(600, 0.5, seed=1, idle=0.8), settings) for _ in range(2)
    )
    assert first_plan.placements == second_plan.placements
    assert first_plan.upper_bound == second_plan.upper_bound


@pytest.mark.long
@pytest.mark.slow
def test_spread_and_consolidated_segments_are_planned_within_the_gap() -> None:
    snapshot = mixed_snapshot(1000, 0.5, seed=2, idle=0.9)
    wishes = [(True, False), (False, True), (True, True), (False, False)]
    jobs = [
        replace(
            job,
            rules=replace(
                job.rules,
                spread_segments=wishes[index % 4][0],
                consolidate_segments=wishes[index % 4][1],
            ),
        )
        if job.rules.segment is not None
        else job
        for index, job in enumerate(snapshot.jobs)
    ]
    snapshot = replace(snapshot, jobs=tuple(jobs))
    rack_plan = plan(snapshot, PlanSettings(gap=0.01, time_limit_seconds=60.0))
    assert rack_plan.gap <= 0.01
    check_racks(snapshot, rack_plan)
    assert any(
        job.rules.spread_segments and len(rack_plan.placements[job.id].nodes) > job.rules.segment
        for job in jobs
        if job.rules.segment is not None and job.id in rack_plan.placements
    )


@pytest.mark.parametrize(("speed_across", "leaves"), [({1: 1.0, 2: 0.8}, 1), ({}, 2)])
def test_a_job_without_options_stays_within_a_leaf_if_that_is_faster(
    speed_across: dict[int, float], leaves: int
) -> None:
    """The second and third node are the idle ones of a leaf; without it the first would be used."""
    snapshot = mixed_snapshot(16, 0.0, seed=0)
    nodes = tuple(
        replace(node, switches=("core", leaf))
        for node, leaf in zip(snapshot.nodes, "abbc", strict=True)
    )
    job = replace(snapshot.jobs[0], reqs=(8,), across=speed_across)
    rack_plan = plan(replace(snapshot, nodes=nodes, jobs=(job,)), PlanSettings())
    leaf_of = {node.name: node.leaf for node in nodes}
    assert len({leaf_of[name] for name in rack_plan.placements[job.id].nodes}) == leaves
