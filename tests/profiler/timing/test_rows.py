"""Ranks compare through their store the rows that they read."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hops_profiler.timing import rows  # noqa: E402
from hops_profiler.timing.rows import SameRows  # noqa: E402


class CountingStore(torch.distributed.HashStore):  # type: ignore[misc]
    """Counts its calls."""

    requests = 0

    def set(self, key: str, value: str) -> None:
        self.requests += 1
        super().set(key, value)


@pytest.mark.parametrize("is_same", [True, False])
def test_ranks_compare_their_rows_until_all_have_reported(
    monkeypatch: pytest.MonkeyPatch, is_same: bool
) -> None:
    """Otherwise, each of 512 ranks would read 512 keys from the store, for ever."""
    store = CountingStore()
    monkeypatch.setattr(rows, "open_store", lambda: store)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    first, second = SameRows(), SameRows()
    first.add(torch.ones(3, 2))
    second.add(torch.ones(3, 2) if is_same else torch.zeros(3, 2))

    def exchange(rank: int, *, settles: bool = True) -> None:
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        (first, second)[rank].exchange(is_stage=rank == 0, settles=settles)

    exchange(0)  # the other rank has not reported yet
    exchange(1, settles=False)
    exchange(0)
    exchange(1)
    assert (first.sharing, second.sharing) == ((2, 2) if is_same else (1, 1))
    requests = store.requests
    exchange(0)
    exchange(1)
    assert store.requests == requests == 4


def test_samples_of_a_stage_are_unclear_until_another_stage_reads_the_same_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CountingStore()
    monkeypatch.setattr(rows, "open_store", lambda: store)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    stage, last = SameRows(), SameRows()
    for ranks_rows in (stage, last):
        ranks_rows.expect(is_stage=False)
        assert not ranks_rows.unclear
        ranks_rows.add(torch.ones(3, 2))
    stage.expect(is_stage=True)
    assert stage.unclear
    stage.expect(is_stage=False)
    assert stage.unclear, "it was a stage"
    for rank, ranks_rows in ((1, last), (0, stage)):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        ranks_rows.exchange(is_stage=rank == 0, settles=True)
    stage.expect(is_stage=True)
    assert (stage.sharing, stage.unclear) == (2, False)
