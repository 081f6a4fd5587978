"""The arithmetic of the order: every position once, the same on all ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from hops_profiler.data.order import Order, Share, even_ranges, permute, sample_seed  # noqa: E402


@given(st.integers(1, 3000), st.text(max_size=3))
def test_a_permutation_contains_every_number_once(length: int, key: str) -> None:
    assert sorted(permute(torch.arange(length), length, key).tolist()) == list(range(length))


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 3, 4, 5, 10, 37, 100])
def test_every_position_gets_every_number_about_equally_often(length: int) -> None:
    """Chi-squared of each position over 500 keys is about ``length`` - 1."""
    keys, places = 500, torch.arange(length)
    table = torch.zeros(length, length)
    for key in range(keys):
        table[places, permute(places, length, str(key))] += 1
    expected = keys / length
    squares = float(((table - expected) ** 2 / expected).sum())
    freedom = (length - 1) ** 2
    assert abs(squares - freedom) < 5 * (2 * freedom) ** 0.5


def test_neighbours_do_not_stay_together() -> None:
    length = 1000
    gaps: Counter[int] = Counter()
    for key in range(100):
        numbers = permute(torch.arange(length), length, str(key))
        gaps.update((numbers[1:] - numbers[:-1]).abs().tolist())
    assert gaps[1] / gaps.total() < 2 * 2 / length  # by chance, 2 / length


def test_a_late_position_in_a_huge_epoch_takes_no_longer_than_the_first() -> None:
    """No list is built: 10^15 samples would not fit into memory."""
    length = 10**15
    numbers = permute(torch.tensor([0, length // 2, length - 1]), length, "0")
    assert len({*numbers.tolist()} | {0}) == 4
    assert all(0 <= number < length for number in numbers.tolist())


def test_the_order_is_the_same_in_every_release() -> None:
    """A checkpoint of an older release continues in the same order."""
    order = Order(samples=10, global_batch=4, seed=5, shuffle=True)
    assert order.sample_ids(0, torch.arange(10)).tolist() == FIRST
    assert order.sample_ids(1, torch.arange(10)).tolist() == SECOND
    assert sample_seed(5, 0, 3) == 1000276999


FIRST = [9, 2, 7, 0, 3, 8, 6, 5, 4, 1]
SECOND = [2, 4, 0, 1, 8, 7, 5, 6, 3, 9]


@given(st.integers(0, 100), st.integers(1, 20))
def test_parts_differ_by_at_most_one(count: int, parts: int) -> None:
    ranges = even_ranges(count, parts)
    assert [place for part in ranges for place in part] == list(range(count))
    sizes = [len(part) for part in ranges]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 60), st.integers(1, 9), st.none() | st.integers(1, 7))
def test_ranks_share_a_step(size: int, ranks: int, micro_batch: int | None) -> None:
    parts = [Share(rank, ranks, micro_batch).parts(size) for rank in range(ranks)]
    places = [place for rank in parts for part in rank for place in part]
    assert places == list(range(size))
    assert all(0 < len(part) <= (micro_batch or size) for rank in parts for part in rank)
    counts = {len(rank) for rank in parts if rank}
    assert len(counts) == 1 or (micro_batch == 1 and max(counts) - min(counts) == 1)
    weights = sum(len(part) * ranks / size for rank in parts for part in rank)
    assert weights == pytest.approx(ranks)
