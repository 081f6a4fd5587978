"""Schedules refits of basic times to the processes' reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from hopsd.core.speed.theory import fit_users
from hopsd.model.ids import GpuType, WorkloadName
from hopsd.model.isolation import find_failing_items
from hopsd.model.knowledge import PhaseRecord
from hopsd.store.history import History

FIT_SECONDS = 60.0
"""Minimum age of a fit before a refit: one takes 20 ms, and little changes in a minute."""

Pair = tuple[WorkloadName, GpuType]


class Fits:
    """Stores reports and keeps the theory layer up to date; new workloads are fitted at once."""

    def __init__(self, store: History) -> None:
        self._store = store
        self._stale: set[Pair] = set()
        self._last_fits: dict[Pair, float] = {}

    def note(self, records: Iterable[PhaseRecord]) -> None:
        """Store records and mark their workloads for a refit."""
        records = list(records)
        if records:
            self._store.add_phases(records)
            self._stale |= {(record.workload, record.gpu_type) for record in records}

    def renew(self, half_life_seconds: float, now: float) -> list[tuple[str, Exception]]:
        """Refit workloads with new reports, unless their last fit is less than a minute old.

        Returns those that could not be fitted, with the error; their next report retries them.
        """
        due_pairs = [p for p in self._stale if now - self._last_fits.get(p, -inf) >= FIT_SECONDS]

        def fit(pairs: Sequence[Pair]) -> None:
            fits = [fit_users(self._store.phases(*pair), half_life_seconds) for pair in pairs]
            self._store.save_theory(theory for theory in fits if theory is not None)

        if not due_pairs:
            return []
        _, failures = find_failing_items(due_pairs, fit)
        self._stale.difference_update(due_pairs)
        self._last_fits.update(dict.fromkeys(due_pairs, now))
        return [(f"{workload} on {gpu_type}", error) for (workload, gpu_type), error in failures]
