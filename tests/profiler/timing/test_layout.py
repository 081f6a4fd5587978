"""Which ranks of a device mesh train on the same samples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hops_profiler.timing.layout import _mesh_ranks, _row_groups  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402


def mesh(names: tuple[str, ...] | None, *sizes: int) -> Any:
    def size(axis: int | None = None) -> int:
        return int(torch.tensor(sizes).prod()) if axis is None else sizes[axis]

    return SimpleNamespace(mesh_dim_names=names, size=size)


@pytest.mark.parametrize(
    ("names", "sizes", "placements", "ranks"),
    [
        (("dp", "tp"), (4, 2), [Shard(0), Shard(1)], 2),
        (("dp_replicate", "dp_shard", "tp"), (2, 2, 4), [Replicate(), Shard(0), Shard(1)], 4),
        (("dp", "cp", "tp"), (2, 3, 4), [Shard(0)] * 3, 12),
        (("data",), (8,), [Shard(0)], 1),
        (None, (8,), [Shard(0)], 1),
        (None, (8,), [Shard(1)], 8),
    ],
)
def test_axes_of_a_mesh_show_whether_their_ranks_share_a_batch(
    names: tuple[str, ...] | None, sizes: tuple[int, ...], placements: list[Any], ranks: int
) -> None:
    parameter = SimpleNamespace(device_mesh=mesh(names, *sizes), placements=placements)
    assert _mesh_ranks(parameter) == ranks


def test_a_batch_is_divided_only_along_its_first_axis() -> None:
    assert _row_groups(mesh(None, 2, 4), [Shard(0), Shard(1)]) == 2
    assert _row_groups(mesh(None, 2, 4), [Shard(0), Shard(0)]) == 8
    assert _row_groups(mesh(None, 8), [Replicate()]) == 1
