"""The class program: patterns fill servers, and its plan has a slot for every chosen group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import cycle
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import snapshot
from programs import program_of

from hopsd.model.allocation import Allocation
from hopsd.model.rules import Rules, ShapeRule
from hopsd.solver.backend.solver_choice import backend
from hopsd.solver.bound.column_groups import column_groups
from hopsd.solver.bound.dual_prices import find_prices
from hopsd.solver.search.cutting_patterns import (
    class_program,
    classes_of,
    ends_could_share,
    equally_idle,
    partitions,
    read_class_plan,
)
from hopsd.solver.search.greedy import greedy_by_weight
from hopsd.solver.search.server_assignment import assign_servers


@given(st.integers(0, 12), st.integers(1, 12))
def test_patterns_list_each_partition_once(gpus: int, largest: int) -> None:
    patterns = partitions(gpus, largest)
    assert len(set(patterns)) == len(patterns)
    for pattern in patterns:
        assert sum(pattern) == gpus
        assert list(pattern) == sorted(pattern, reverse=True)
        assert max(pattern, default=0) <= largest
    # The coefficient of x^gpus in the product of 1 / (1 - x^k) over k up to the largest slot.
    ways = [1] + [0] * gpus
    for slot in range(1, largest + 1):
        for total in range(slot, gpus + 1):
            ways[total] += ways[total - slot]
    assert len(patterns) == ways[gpus]


@pytest.mark.parametrize("seed", range(4))
def test_a_class_plan_has_no_more_slots_than_servers_offer(seed: int) -> None:
    program = program_of(snapshot(seed, servers=12, jobs=20))
    parts = column_groups(program)
    floor = program.scaled_objective(greedy_by_weight(program))
    prices = find_prices(program, parts, floor, inf)
    classes = class_program(program, parts, prices.rows.per_gpu(prices.row))
    assert classes is not None
    plan = read_class_plan(classes, backend()(classes.model, None, 0.1, 60.0, None))
    assert plan is not None
    assert len(np.unique(parts.job[plan.column_groups])) == len(plan.column_groups)
    slots_offered: Counter[int] = Counter()
    for group, patterns in plan.bins:
        assert patterns.total() <= len(group.servers)
        for pattern, servers in patterns.items():
            assert sum(map(abs, pattern)) == group.idle
            assert sum(size < 0 for size in pattern) <= 1
            slots_offered[group.pool] += servers * group.idle
    slots_used: Counter[int] = Counter()
    for group in plan.column_groups.tolist():
        slots_used[int(parts.pool[group])] += int(parts.size[group])
    assert all(gpus <= slots_offered[pool] for pool, gpus in slots_used.items())
    choice = assign_servers(program, parts, plan)
    assert program.feasible(choice)
    assert set(np.flatnonzero(choice >= 0)) <= set(parts.job[plan.column_groups].tolist())


@pytest.mark.parametrize("seed", range(4))
def test_every_job_of_a_class_plan_gets_servers_if_all_are_idle(seed: int) -> None:
    """Jobs of 9 to 15 GPUs fill one server and end on the next, which no other of them may use."""
    rng = np.random.default_rng(seed)
    instance = snapshot(seed, servers=12, jobs=20, factors=False)
    nodes = tuple(replace(node, gpus=8, idle=8) for node in instance.nodes)
    jobs = tuple(
        replace(job, reqs=tuple(sorted({int(rng.integers(1, 8)), int(rng.integers(9, 16))})))
        for job in instance.jobs
    )
    program = program_of(replace(instance, nodes=nodes, jobs=jobs))
    parts = column_groups(program)
    floor = program.scaled_objective(greedy_by_weight(program))
    prices = find_prices(program, parts, floor, inf)
    classes = class_program(program, parts, prices.rows.per_gpu(prices.row))
    assert classes is not None
    plan = read_class_plan(classes, backend()(classes.model, None, 0.01, 60.0, None))
    assert plan is not None
    assert any(parts.servers[plan.column_groups] > 1)
    choice = assign_servers(program, parts, plan)
    assert program.feasible(choice)
    assert np.array_equal(np.flatnonzero(choice >= 0), np.sort(parts.job[plan.column_groups]))


def test_a_fully_used_type_does_not_decide_whether_servers_are_equally_idle() -> None:
    instance = snapshot(0, servers=12)
    types = sorted({node.gpu_type for node in instance.nodes})
    assert len(types) > 1

    def idle(*of_last: int) -> bool:
        """Give the last type's servers these idle GPUs in turn, and the others none."""
        turn = cycle(of_last)
        nodes = tuple(
            replace(node, gpus=8, idle=next(turn) if node.gpu_type == types[-1] else 0)
            for node in instance.nodes
        )
        return equally_idle(classes_of(program_of(replace(instance, nodes=nodes))))

    assert idle(8)
    assert idle(8, 0)
    assert not idle(8, 4)


@pytest.mark.parametrize(
    ("shape", "size", "share"),
    [
        (ShapeRule.EVEN, 12, False),  # 6+6
        (ShapeRule.EVEN, 11, True),  # 1 on each of 11
        (ShapeRule.EVEN, 9, True),  # 3+3+3
        (ShapeRule.EVEN, 16, False),
        (ShapeRule.ANY, 9, False),  # 8+1
        (ShapeRule.ANY, 4, False),
    ],
)
def test_only_even_shapes_of_half_servers_could_share_them(
    shape: ShapeRule, size: int, share: bool
) -> None:
    instance = snapshot(0, servers=24, jobs=4, factors=False)
    gpu_type = instance.nodes[0].gpu_type
    nodes = tuple(replace(node, gpu_type=gpu_type, gpus=8, idle=8) for node in instance.nodes)
    jobs = tuple(replace(job, reqs=(size,), rules=Rules(shape=shape)) for job in instance.jobs)
    program = program_of(replace(instance, nodes=nodes, jobs=jobs))
    parts = column_groups(program)
    assert set(parts.size.tolist()) == {size}
    assert ends_could_share(program, parts, classes_of(program)) == share


def test_a_placement_from_fuller_servers_is_not_an_even_shape() -> None:
    """Most clusters in use have such placements; class plans would never be tried first there."""
    instance = snapshot(0, servers=24, jobs=4, factors=False)
    gpu_type = instance.nodes[0].gpu_type
    nodes = tuple(replace(node, gpu_type=gpu_type, gpus=8, idle=8) for node in instance.nodes)
    spread = Allocation.of({nodes[0].name: 2, nodes[1].name: 2})
    jobs = tuple(replace(job, reqs=(4,), running=spread) for job in instance.jobs[:1])
    program = program_of(replace(instance, nodes=nodes, jobs=jobs))
    parts = column_groups(program)
    assert program.configurations.present[0] >= 0
    assert set(zip(parts.size.tolist(), parts.servers.tolist(), strict=True)) == {(4, 1), (4, 2)}
    assert not ends_could_share(program, parts, classes_of(program))


def test_servers_with_too_many_patterns_are_left_to_the_other_methods() -> None:
    program = program_of(snapshot(0))
    prices = find_prices(program, column_groups(program), 1.0, inf)
    program.capacity[0] = 17
    per_gpu = prices.rows.per_gpu(prices.row)
    assert class_program(program, column_groups(program), per_gpu) is None
