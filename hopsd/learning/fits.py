"""Schedules refits of basic times to the processes' reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from hopsd.core.speed.theory import fit_users
from hopsd.model.ids import GpuType, UserName, WorkloadName
from hopsd.model.isolation import find_failing_items, in_turn
from hopsd.model.knowledge import PhaseRecord
from hopsd.store.history import History

FIT_SECONDS = 60.0
"""Minimum age of a fit before a refit: one takes 20 ms, and little changes in a minute."""

RENEW_SECONDS = 1.0
"""The time for fits in one tick. A user's reports may be of thousands of workloads: the rest is
fitted in the next ticks, with users taking turns."""

_AT_A_TIME = 8

Pair = tuple[WorkloadName, GpuType]


class Fits:
    """Stores reports and keeps the theory layer up to date; new workloads are fitted at once."""

    def __init__(self, store: History, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._stale: dict[Pair, UserName] = {}
        """Pairs to refit, those that wait longest first, with the user of the first report."""
        self._last_fits: dict[Pair, float] = {}

    def note(self, records: Iterable[PhaseRecord]) -> None:
        """Store records and mark their workloads for a refit."""
        records = list(records)
        if records:
            self._store.add_phases(records)
            for record in records:
                self._stale.setdefault((record.workload, record.gpu_type), record.user)

    def renew(self, half_life_seconds: float, now: float) -> list[tuple[str, Exception]]:
        """Refit workloads with new reports for :data:`RENEW_SECONDS`, except those whose last fit
        is less than a minute old.

        Returns the workloads that could not be fitted, with the error; their next report makes them
        be tried again.
        """
        self._last_fits = {p: at for p, at in self._last_fits.items() if now - at < FIT_SECONDS}
        due_pairs = in_turn(
            (pair for pair in self._stale if pair not in self._last_fits), self._stale.__getitem__
        )

        def fit(pairs: Sequence[Pair]) -> None:
            fits = [fit_users(self._store.phases(*pair), half_life_seconds) for pair in pairs]
            self._store.save_theory(theory for theory in fits if theory is not None)

        failures: list[tuple[Pair, Exception]] = []
        deadline = self._clock() + RENEW_SECONDS
        for start in range(0, len(due_pairs), _AT_A_TIME):
            pairs = due_pairs[start : start + _AT_A_TIME]
            failures += find_failing_items(pairs, fit)[1]
            for pair in pairs:
                del self._stale[pair]
            self._last_fits.update(dict.fromkeys(pairs, now))
            if self._clock() >= deadline:
                break
        return [(f"{workload} on {gpu_type}", error) for (workload, gpu_type), error in failures]
