"""CPUs that stand in for GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.devices import CPU, cores_of, is_cpu
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.reading import NodeReading


def node(cpus: int, cores: int, threads: int = 1) -> NodeReading:
    return NodeReading(NodeName("n"), CPU, cpus, cores, threads=threads)


@pytest.mark.parametrize(
    ("name", "cpu"),
    [("cpu", True), ("cpu-epyc", True), ("cpu (hops)", True), ("cpux", False), ("a100", False)],
)
def test_a_type_of_cpus_is_recognised_by_its_name(name: str, cpu: bool) -> None:
    assert is_cpu(GpuType(name)) == cpu


@pytest.mark.parametrize(
    ("reading", "kept_cores", "cores"),
    [
        (node(1, 20), 1, 19),  # section 5.1 of the AlloX paper
        (node(2, 32), 0, 16),
        (node(2, 32), 1, 15),
        (node(4, 28, threads=2), 1, 6),
        (node(2, 1), 1, 1),
    ],
)
def test_the_cpus_of_a_node_share_its_unreserved_cores(
    reading: NodeReading, kept_cores: int, cores: int
) -> None:
    assert cores_of(reading, kept_cores) == cores


@given(st.integers(1, 8), st.integers(1, 64), st.integers(1, 4), st.integers(0, 8))
def test_all_cpus_of_a_node_fit_beside_the_reserved_cores(
    cpus: int, cores: int, threads: int, kept_cores: int
) -> None:
    cores_per_gpu = cores_of(node(cpus, cores * threads, threads), kept_cores)
    assert cores_per_gpu > 0
    assert cores_per_gpu % threads == 0
    if cores - kept_cores >= cpus:
        assert cpus * cores_per_gpu <= (cores - kept_cores) * threads
