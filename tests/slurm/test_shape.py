"""How hops requests an uneven shape, and what Slurm makes of the request."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.script_options import ScriptOptions
from hopsd.slurm.adapter import Placement
from hopsd.slurm.shape import fill_nodes, fits, update_arguments

NODES = [NodeName(f"n{i}") for i in range(4)]
FREE = st.lists(st.integers(0, 8), min_size=1, max_size=4)


@given(FREE, st.integers(1, 32))
def test_filled_gives_all_or_nothing(free: list[int], gpus: int) -> None:
    nodes = NODES[: len(free)]
    free_gpus = dict(zip(nodes, free, strict=True))
    given_gpus = fill_nodes(free_gpus, nodes, gpus)
    possible = min(free) >= 1 and len(free) <= gpus <= sum(free)
    assert (given_gpus is not None) == possible
    if given_gpus is not None:
        assert given_gpus.gpus == gpus
        assert set(given_gpus.nodes) == set(nodes)
        assert fits(free_gpus, given_gpus)


@given(FREE, st.integers(1, 32))
def test_filled_takes_the_most_from_the_first(free: list[int], gpus: int) -> None:
    """Trying all other ways to spread the GPUs finds none that is lexicographically larger."""
    nodes = NODES[: len(free)]
    allocation = fill_nodes(dict(zip(nodes, free, strict=True)), nodes, gpus)
    gpus_by_node = None if allocation is None else tuple(allocation.on(node) for node in nodes)
    assert gpus_by_node == max(_ways(free, gpus), default=None)


def _ways(free: list[int], gpus: int) -> list[tuple[int, ...]]:
    if len(free) == 1:
        return [(gpus,)] if 1 <= gpus <= free[0] else []
    return [
        (first, *rest_of_way)
        for first in range(1, free[0] + 1)
        for rest_of_way in _ways(free[1:], gpus - first)
    ]


@pytest.mark.parametrize("release", [(22, 5), (24, 11), (26, 5)])
@given(st.dictionaries(st.sampled_from(NODES), st.integers(1, 8), min_size=1))
def test_every_request_names_nodes_and_their_count(
    release: tuple[int, int], gpus: dict[NodeName, int]
) -> None:
    allocation = Allocation.of(gpus)
    words = dict(
        word.split("=", 1) for word in update_arguments(Placement(JobId("7"), allocation), release)
    )
    assert words["reqnodelist"].split(",") == sorted(gpus)
    assert int(words["numnodes"]) == int(words["numtasks"]) == len(gpus)
    assert words["starttime"] == "now"
    gpu_request = words["tresPerNode"] or words["tresPerJob"]
    assert not (words["tresPerNode"] and words["tresPerJob"])
    count = int(gpu_request.removeprefix("gres:gpu:"))
    assert count * (len(gpus) if words["tresPerNode"] else 1) == allocation.gpus


@pytest.mark.parametrize(
    ("release", "by_gpu"), [((22, 5), False), ((24, 11), False), ((26, 5), True)]
)
def test_other_gres_are_not_mistaken_for_gpus_if_cores_are_requested_per_gpu(
    release: tuple[int, int], by_gpu: bool
) -> None:
    """24.11 would require a core for each byte of VRAM:20G."""
    options = ScriptOptions(gres="VRAM:20G")
    for gpus in ({"n0": 2}, {"n0": 2, "n1": 1}):
        allocation = Allocation.of({NodeName(node): count for node, count in gpus.items()})
        words = update_arguments(Placement(JobId("7"), allocation, options=options), release)
        assert any(word.startswith("cpusPerTres=gres:gpu") for word in words) == by_gpu
        assert any(word.startswith("numcpus=") for word in words) != by_gpu


@pytest.mark.parametrize("release", [(22, 5), (24, 11), (26, 5)])
def test_cores_of_an_exclusive_job_are_not_requested_per_gpu(release: tuple[int, int]) -> None:
    """24.11 and 26.05 count all GPUs of its nodes: 16 cores for each of 4 do not fit into 32."""
    allocation = Allocation.of({NODES[0]: 1})
    placement = Placement(
        JobId("7"), allocation, cores_per_gpu=Fraction(16), options=ScriptOptions(exclusive=True)
    )
    words = update_arguments(placement, release)
    assert {"numcpus=16", "cpuspertask=16", "mincpusnode=16"} <= {*words}
    assert not any(word.startswith("cpusPerTres") for word in words)
