"""When basic times are fitted again."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from memory_store import MemoryStore
from speed_values import NOW, RESNET, A, process

from hopsd.learning.fits import FIT_SECONDS, Fits
from hopsd.model.ids import UserName, WorkloadName

HALF_LIFE = 86400.0


def known_times(store: MemoryStore) -> list[float]:
    return [fit.t_f for fit in store.knowledge().theory]


def test_a_new_workload_is_fitted_at_once() -> None:
    store = MemoryStore()
    fits = Fits(store)
    fits.note([process()])
    fits.renew(HALF_LIFE, NOW)
    assert known_times(store) == [0.02]
    assert store.phases(RESNET, A) == (process(),)


def test_a_known_workload_is_fitted_once_a_minute_and_no_report_is_lost() -> None:
    store = MemoryStore()
    fits = Fits(store)
    fits.note([process()])
    fits.renew(HALF_LIFE, NOW)
    fits.note([process(t_f=0.03)])
    fits.renew(HALF_LIFE, NOW + FIT_SECONDS - 1)
    assert known_times(store) == [0.02]
    fits.note([])
    fits.renew(HALF_LIFE, NOW + FIT_SECONDS)
    assert known_times(store) == [0.03]


def test_reports_without_a_throughput_are_stored_but_not_fitted() -> None:
    store = MemoryStore()
    fits = Fits(store)
    fits.note([process(batch_size=0.0)])
    fits.renew(HALF_LIFE, NOW)
    assert known_times(store) == []
    assert len(store.phases(RESNET, A)) == 1


def test_a_user_of_thousands_of_workloads_delays_neither_ticks_nor_others() -> None:
    """Fitting all 2,000 workloads of 4 MB of reports in one tick took ten seconds."""
    store = MemoryStore()
    ticking = count(0.0, 0.4)  # each call is 0.4 s after the previous one
    fits = Fits(store, lambda: next(ticking))
    many = [replace(process(), workload=WorkloadName(f"m{i:03}")) for i in range(100)]
    fits.note([*many, replace(process(), workload=RESNET, user=UserName("bob"))])
    fits.renew(HALF_LIFE, NOW)
    workloads = {fit.workload for fit in store.knowledge().theory}
    assert RESNET in workloads
    assert len(workloads) < 50
    for _ in range(10):
        fits.renew(HALF_LIFE, NOW)
    assert len(store.knowledge().theory) == 101
