"""Conservative backfill against a search that knows only who holds which GPUs when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nextafter
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, RoundInfo, Snapshot
from hopsd.policies.registry import get

A, B = GpuType("a"), GpuType("b")
SIZES = {"a0": 4, "a1": 4, "a2": 4, "b0": 2, "b1": 2}
SPEED = {A: 1.0, B: 2.0}
SPREAD = 0.5
SLOW = {NodeName("a2"): 0.5}
NOW = 1000.0
NEXT_MOMENT = nextafter(NOW, inf)


def job(number: int, gpus: int, **changes: object) -> Job:
    fields = {
        "id": JobId(str(number)),
        "user": UserName("u"),
        "submit": float(number),
        "wait_seconds": 0.0,
        "reqs": (gpus,),
        "throughput": {
            A: ThroughputTable({1: SPEED[A]}, {2: SPREAD}),
            B: ThroughputTable({1: SPEED[B]}),
        },
        "server_factor": SLOW,
    }
    return Job(**(fields | changes))  # type: ignore[arg-type]


def snapshot(
    jobs: list[Job], lent_node: str = "", sizes: Mapping[str, int] = MappingProxyType(SIZES)
) -> Snapshot:
    """Return a snapshot; a job outside hops holds one GPU of ``lent_node`` for an unknown time."""
    idle_by_node = {name: size - (name == lent_node) for name, size in sizes.items()}
    for candidate in jobs:
        for node, gpus in candidate.running:
            idle_by_node[node] -= gpus
    nodes = tuple(
        Node(NodeName(name), GpuType(name[0]), sizes[name], idle)
        for name, idle in idle_by_node.items()
    )
    return Snapshot(NOW, RoundInfo(False, 60.0), nodes, tuple(jobs))


@dataclass
class Reservation:
    node: str
    gpus: int
    start: float
    end: float


def seconds(candidate: Job, gpu_type: GpuType, servers: int, slowest: float) -> float:
    if candidate.time_limit_seconds is not None:
        return max(0.0, candidate.time_limit_seconds - candidate.run_seconds)
    rate = SPEED[gpu_type] if servers == 1 else SPREAD
    assert candidate.samples is not None
    return (candidate.samples - candidate.samples_done) / (rate * slowest * candidate.reqs[0])


def first_starts(snap: Snapshot) -> dict[JobId, Allocation]:
    """Give each job, in order, the first time at which some servers can hold it to its end."""
    parts_in_use = []
    sizes = {str(node.name): node.gpus for node in snap.nodes}
    for node in snap.nodes:
        known_gpus = sum(candidate.running.on(node.name) for candidate in snap.jobs)
        parts_in_use.append(Reservation(node.name, node.gpus - node.idle - known_gpus, NOW, inf))
    for candidate in snap.jobs:
        for name, gpus in candidate.running:
            long = seconds(
                candidate, GpuType(name[0]), len(candidate.running.nodes), SLOW.get(name, 1.0)
            )
            parts_in_use.append(Reservation(name, gpus, NOW, max(NOW + long, NEXT_MOMENT)))
    placements = {}
    for candidate in (j for j in snap.jobs if not j.running):
        place = earliest_start(candidate, parts_in_use, sizes)
        if place is not None:
            parts_in_use += place
            if place[0].start == NOW:
                placements[candidate.id] = Allocation.of({part.node: part.gpus for part in place})
    return placements


def earliest_start(
    candidate: Job, parts_in_use: list[Reservation], sizes: dict[str, int]
) -> list[Reservation] | None:
    (gpus,) = candidate.reqs
    times = sorted({NOW, *(h.end for h in parts_in_use if h.end < inf)})

    def free(name: str, time: float) -> int:
        return sizes[name] - sum(
            h.gpus for h in parts_in_use if h.node == name and h.start <= time < h.end
        )

    def fits(name: str, need: int, start: float, end: float) -> bool:
        looks = [start, *(h.start for h in parts_in_use if start < h.start < end)]
        return all(free(name, look) >= need for look in looks)

    for start in times:
        single = [
            (free(name, start), index, name, end)
            for index, name in enumerate(sizes)
            if gpus <= sizes[name]
            for end in [
                start + seconds(candidate, GpuType(name[0]), 1, 0.5 if name[0] == "a" else 1.0)
            ]
            if fits(name, gpus, start, end)
        ]
        if single:
            _, _, name, end = min(single)
            return [Reservation(name, gpus, start, end)]
        if gpus <= max(sizes[name] for name in sizes if name[0] == "a"):
            continue
        end, remaining_gpus, parts = start + seconds(candidate, A, 2, 0.5), gpus, []
        for name in sorted((n for n in sizes if n[0] == "a"), key=lambda n: (-sizes[n], n)):
            if sizes[name] <= remaining_gpus and fits(name, sizes[name], start, end):
                parts.append(Reservation(name, sizes[name], start, end))
                remaining_gpus -= sizes[name]
        used_nodes = {part.node for part in parts}
        free_nodes = [
            n
            for n in sizes
            if n[0] == "a" and n not in used_nodes and fits(n, remaining_gpus, start, end)
        ]
        if remaining_gpus and free_nodes:
            last = min(free_nodes, key=lambda name: (free(name, start), name))
            return [*parts, Reservation(last, remaining_gpus, start, end)]
        if not remaining_gpus:
            return parts
    return None


@st.composite
def queues(draw: st.DrawFn) -> Snapshot:
    jobs: list[Job] = []
    lent_node = draw(st.sampled_from(["", *SIZES]))
    sizes = SIZES | {"a1": draw(st.sampled_from([2, 4, 6]))}
    idle_by_node = {name: size - (name == lent_node) for name, size in sizes.items()}
    for number in range(draw(st.integers(1, 9))):
        gpus = draw(st.integers(1, 4) | st.sampled_from([6, 8, 9, 13]))
        whole = draw(st.integers(1, 6)) * 32.0
        fields: dict[str, object] = (
            {"time_limit_seconds": whole} if draw(st.booleans()) else {"samples": whole * gpus}
        )
        node = draw(st.sampled_from(sorted(SIZES)))
        if draw(st.booleans()) and gpus <= idle_by_node[node]:
            idle_by_node[node] -= gpus
            run_seconds = draw(st.integers(0, 7)) * 32.0
            fields |= {
                "running": Allocation.of({node: gpus}),
                "run_seconds": run_seconds,
                "samples_done": min(run_seconds, whole) * gpus,
            }
        jobs.append(job(number, gpus, **fields))
    return snapshot(jobs, lent_node, sizes)


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(queues())
def test_the_jobs_whose_turn_it_is_start_now(snap: Snapshot) -> None:
    plan = get("slurm")(snap, PlanSettings())
    assert plan.placements == first_starts(snap)
    waiting = {
        candidate.id for candidate in snap.jobs if not candidate.running
    } - plan.placements.keys()
    assert plan.waiting.keys() == waiting


def test_a_job_past_its_time_limit_still_holds_its_gpus() -> None:
    overdue = job(1, 4, time_limit_seconds=60.0, run_seconds=61.0, running=Allocation.of({"a0": 4}))
    neighbours = [
        job(n, 4, samples=100.0, running=Allocation.of({node: 4}))
        for n, node in enumerate(["a1", "a2"], 2)
    ]
    waits = job(4, 4, samples=10.0)
    plan = get("slurm")(snapshot([overdue, *neighbours, waits]), PlanSettings())
    assert plan.placements == {}
    assert set(plan.waiting) == {waits.id}


def test_servers_of_several_sizes_hold_a_job_together() -> None:
    wide = job(1, 10, samples=100.0)
    plan = get("slurm")(snapshot([wide], sizes=SIZES | {"a1": 2}), PlanSettings())
    assert plan.placements == {wide.id: Allocation.of({"a0": 4, "a1": 2, "a2": 4})}
