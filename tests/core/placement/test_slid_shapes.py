"""Uneven shapes that leave GPUs on their first server: which jobs fit together as Slurm fills."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.placement.fill import as_filled
from hopsd.core.placement.program import Program
from hopsd.core.placement.shapes import Neighbours, ShapesOfSize
from hopsd.model.arrays import Ints
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.model.rules import ANYWHERE, Rules
from hopsd.model.step import Step, StepKind
from hopsd.policies.hops import policy
from hopsd.policies.registry import get
from hopsd.slurm.steps.wave import startable_together

A = GpuType("a")


def cluster(*gpus: int) -> tuple[Node, ...]:
    return tuple(Node(NodeName(f"n{i}"), A, count, count) for i, count in enumerate(gpus))


TABLE = ThroughputTable(dict.fromkeys(range(1, 9), 1.0), dict.fromkeys(range(2, 65), 1.0))


def job(number: int, reqs: tuple[int, ...], rules: Rules = ANYWHERE) -> Job:
    return Job(
        JobId(str(number)), UserName("u"), 0.0, 0.0, reqs, {A: TABLE}, samples=1e4, rules=rules
    )


def plan_of(nodes: tuple[Node, ...], *jobs: Job) -> Plan:
    snapshot = Snapshot(100.0, RoundInfo(first=True, seconds=360.0), nodes, jobs)
    return get("hops+")(snapshot, PlanSettings(policy="hops+", time_limit_seconds=20.0))


def rigid(*sizes: int) -> tuple[Job, ...]:
    return tuple(job(number, (size,)) for number, size in enumerate(sizes, 1))


@pytest.mark.parametrize(("servers", "sizes"), [(3, (12, 12)), (4, (10, 10, 12)), (4, (9, 11, 12))])
def test_jobs_that_together_fill_the_servers_run_together(
    servers: int, sizes: tuple[int, ...]
) -> None:
    assert len(plan_of(cluster(*[8] * servers), *rigid(*sizes)).placements) == len(sizes)


def test_a_first_server_that_no_other_job_uses_is_filled() -> None:
    (placement,) = plan_of(cluster(8, 8), *rigid(12)).placements.values()
    assert placement.as_dict() == {"n0": 8, "n1": 4}


def rows_of(shapes: ShapesOfSize) -> list[tuple[tuple[int, int], ...]]:
    return [
        tuple(zip(servers, gpus, strict=True))
        for servers, gpus in zip(shapes.servers.tolist(), shapes.gpus.tolist(), strict=True)
    ]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(2, 40))
def test_slid_shapes_use_as_few_servers_as_filled_ones(idle: list[int], size: int) -> None:
    neighbours = Neighbours(np.arange(len(idle)), np.array(idle, dtype=np.int64))
    plain, slid = neighbours.fill_servers(size), neighbours.slid(size)
    rows = rows_of(slid)
    assert len(rows) == len(set(rows))
    assert slid.servers.shape[1] == plain.servers.shape[1]
    assert set(rows_of(plain)) <= set(rows)
    assert np.all(np.diff(slid.servers[:, 0]) >= 0)
    for row in rows:
        assert sum(gpus for _, gpus in row) == size
        assert all(1 <= gpus <= idle[server] for server, gpus in row)
        assert all(gpus == idle[server] for server, gpus in row[1:-1])
        servers = [server for server, _ in row]
        assert servers == list(range(servers[0], servers[0] + len(servers)))


def test_sliding_only_moves_gpus_to_the_first_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """An elastic job keeps its size, and so its value."""
    calls: list[tuple[Program, Ints, Ints]] = []

    def spy(program: Program, choice: Ints) -> Ints:
        slid = choice.copy()
        [slid[0]] = [k for k in range(len(program.value)) if parts(program, k) == [(0, 4), (1, 8)]]
        calls.append((program, slid, as_filled(program, slid)))
        return choice

    monkeypatch.setattr(policy, "as_filled", spy)
    plan_of(cluster(8, 8), job(1, (10, 12)))
    [(program, slid, filled_choice)] = calls
    assert parts(program, int(filled_choice[0])) == [(0, 8), (1, 4)]
    assert program.scaled_objective(filled_choice) == program.scaled_objective(slid)


def parts(program: Program, column: int) -> list[tuple[int, int]]:
    return program.configurations.shapes.parts(int(program.configurations.shape[column]))


ON_TWO = [Rules(nodes=frozenset(map(NodeName, names))) for names in (("n0", "n1"), ("n0", "n2"))]


@pytest.mark.parametrize(
    ("nodes", "jobs"),
    [
        (cluster(8, 8, 8), (job(1, (12,), ON_TWO[0]), job(2, (12,), ON_TWO[1]))),
        (cluster(8, 8), (job(1, (12,), Rules(exclusive=True)),)),
        (
            tuple(replace(node, cores=32) for node in cluster(8, 8)),
            (job(1, (12,), Rules(cores_per_gpu=4.0)), job(2, (2,), Rules(cores_per_gpu=8.0))),
        ),
    ],
    ids=["other nodes", "exclusive", "short of cores"],
)
def test_planned_starts_never_wait_for_each_other_in_a_circle(
    nodes: tuple[Node, ...], jobs: tuple[Job, ...]
) -> None:
    plan = plan_of(nodes, *jobs)
    assert plan.placements
    assert not never_started(nodes, plan)


@pytest.mark.parametrize("seed", range(60))
def test_slurm_can_start_every_planned_job(seed: int) -> None:
    """In waves, as hopsd starts them."""
    draw = random.Random(seed)  # a test, not a secret
    nodes = cluster(*(draw.choice([4, 8]) for _ in range(draw.randint(3, 6))))
    nodes = tuple(replace(node, idle=draw.randint(1, node.gpus)) for node in nodes)
    jobs = []
    for number in range(8):
        reqs = tuple(sorted({draw.randint(1, 24) for _ in range(draw.choice([1, 1, 2]))}))
        node_subset = frozenset(node.name for node in nodes if draw.random() < 0.8)
        rules = Rules(
            nodes=node_subset if seed % 3 == 1 else None,
            exclusive=seed % 3 == 2 and draw.random() < 0.3,
        )
        jobs.append(job(number, reqs, rules))
    plan = plan_of(nodes, *jobs)
    assert not never_started(nodes, plan)


def never_started(nodes: tuple[Node, ...], plan: Plan) -> list[Step]:
    free = {node.name: node.idle for node in nodes}
    waiting = [Step(job, StepKind.START, target=target) for job, target in plan.placements.items()]
    while wave := startable_together(waiting, free):
        for step in wave:
            waiting.remove(step)
            for node, gpus in step.target:
                free[node] -= gpus
    return waiting
