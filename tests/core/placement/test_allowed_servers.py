"""A job that may use only some servers has the shapes of a cluster of those servers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hopsd.core.placement.available import AvailableResources
from hopsd.core.placement.generate import generate
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.rules import Rules, ShapeRule

TYPE = GpuType("v")
TABLE = ThroughputTable(aggregated={1: 10.0}, distributed={2: 8.0})
IDLE = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=8)
CONTRACTS = st.one_of(
    st.builds(Rules, max_nodes=st.none() | st.integers(1, 4)),
    st.builds(Rules, shape=st.just(ShapeRule.EVEN), per_node=st.none() | st.integers(1, 4)),
)


def shapes(nodes: list[Node], rules: Rules, reqs: set[int]) -> list[dict[NodeName, int]]:
    job = Job(
        id=JobId("1"),
        user=UserName("u"),
        submit=0.0,
        wait_seconds=0.0,
        reqs=tuple(sorted(reqs)),
        throughput={TYPE: TABLE},
        rules=rules,
    )
    columns = generate(
        [job], AvailableResources.from_jobs(nodes, [], []), [1.0], sigma=1.4, keep_present=False
    )
    parts = (columns.shapes.parts(int(shape)) for shape in columns.shape)
    return [{nodes[server].name: gpus for server, gpus in part} for part in parts]


@given(IDLE, CONTRACTS, st.sets(st.integers(1, 9), min_size=1))
def test_excluded_servers_count_as_absent(
    servers: list[tuple[int, bool]], rules: Rules, reqs: set[int]
) -> None:
    nodes = [Node(NodeName(f"n{i}"), TYPE, 4, gpus) for i, (gpus, _) in enumerate(servers)]
    open_to_it = [node for node, (_, is_allowed) in zip(nodes, servers, strict=True) if is_allowed]
    names = frozenset(node.name for node in open_to_it)
    allowed_shapes = shapes(nodes, replace(rules, nodes=names), reqs)
    assert allowed_shapes == shapes(open_to_it, rules, reqs)
