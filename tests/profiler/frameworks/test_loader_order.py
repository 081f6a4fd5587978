"""Micro-batches computed by the ranks of a framework. Real frameworks: `tests/bench`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hops_profiler.data.order import Order, Share  # noqa: E402
from hops_profiler.data.source import Position  # noqa: E402
from hops_profiler.frameworks.loader_order import (  # noqa: E402
    EvenSampler,
    batches_per_epoch,
    is_plain,
    order_of,
    weighted_parts,
)
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


@given(size=st.integers(1, 40), ranks=st.integers(1, 9), micro_batch=st.none() | st.integers(1, 12))
def test_each_sample_of_a_step_has_the_same_weight_on_any_number_of_ranks(
    size: int, ranks: int, micro_batch: int | None
) -> None:
    order = Order(size, size, 0, shuffle=False)
    of_ranks = [weighted_parts(order, Share(r, ranks, micro_batch), 0) for r in range(ranks)]
    assert len({len(parts) for parts in of_ranks}) == 1  # otherwise some would wait for others
    weights = dict.fromkeys(range(size), 0.0)
    for parts in of_ranks:
        for part, weight in parts:
            assert len(part) <= (micro_batch or size)
            for place in part:
                weights[place] += weight / len(part) / ranks
    assert list(weights.values()) == pytest.approx([1 / size] * size)


@given(
    samples=st.integers(12, 60),
    ranks=st.integers(1, 5),
    micro_batch=st.integers(1, 5),
    drop_last=st.booleans(),
    offset=st.integers(0, 1),
)
def test_an_epoch_resumes_at_any_step(
    samples: int, ranks: int, micro_batch: int, drop_last: bool, offset: int
) -> None:
    order = Order(samples, 12, 3, shuffle=True, drop_last=drop_last)
    sample_ids, lengths = [], set()
    for rank in range(ranks):
        sampler, share = EvenSampler(order), Share(rank, ranks, micro_batch)
        sampler.begin(Position(2, offset), share)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        lengths.add(len(batches))
        weights = [
            weight
            for step in range(offset, order.steps_per_epoch)
            for _, weight in weighted_parts(order, share, step)
        ]
        for batch, weight in zip(batches, weights, strict=True):
            sample_ids += batch if weight else []
    assert len(lengths) == 1
    assert (
        len(sample_ids)
        == len(set(sample_ids))
        == samples - offset * 12 - (samples % 12) * drop_last
    )
    whole = batches_per_epoch(order, Share(0, ranks, micro_batch))
    assert lengths == {whole - offset * len(weighted_parts(order, Share(0, ranks, micro_batch), 0))}


@pytest.mark.parametrize(("drop_last", "steps"), [(False, 3), (True, 2)])
def test_a_loader_that_drops_its_last_batch_has_only_complete_steps(
    drop_last: bool, steps: int
) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(29)), batch_size=6, drop_last=drop_last)
    assert is_plain(loader)
    assert order_of(loader, 12, seed=0) == Order(29, 12, 0, shuffle=False, drop_last=drop_last)
    assert order_of(loader, 12, seed=0).steps_per_epoch == steps
