"""Cuts and dives for programs that list only some of the sets of servers of rack-bound jobs.

Cuts change what servers cost, and at their prices other sets do better than those listed. So before
each round of steps the better ones are listed (column generation), and each round's bound is that
on all sets. The work runs in a child process, as in :mod:`hopsd.solver.tighten`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from math import inf
from time import monotonic

import numpy as np

from hopsd.core.placement.listing import (
    FoundSet,
    Listing,
    Sets,
    renumber,
    renumber_choice,
    with_sets,
)
from hopsd.core.placement.program import Program
from hopsd.core.placement.rack_sets import RackFamily
from hopsd.model.arrays import NONE, Floats, Ints
from hopsd.solver.backend import child
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import Prices, prices_at
from hopsd.solver.bound.reduced_cost import ItemPrices, prices_of_items
from hopsd.solver.bound.unlisted import better_sets, bound_of_items
from hopsd.solver.tighten import PrimalDual, rounds_by_steps

_TOLD_SHARE = 0.9
"""The child stops by itself a little before it is killed."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a round or a dive found: ``sets``, listed since the step before, the prices of the items
    of the program that lists all sets so far, and a choice (jobs,) of its columns, -1 for none.
    """

    sets: Sequence[FoundSet]
    item: Floats
    capacity: float
    choice: Ints | None

    def prices(self, program: Program) -> ItemPrices:
        """Return the prices; ``program`` lists all sets so far.

        Raises:
            ValueError: the program has other items.
        """
        if len(self.item) != len(program.configurations.demands):
            raise ValueError(f"{len(self.item)} prices of {len(program.configurations.demands)}")
        return prices_of_items(program, self.item, self.capacity)


def steps_in_child(
    program: Program,
    listing: Listing,
    sets: Sets,
    row: Floats,
    value: float,
    gap: float,
    give_up: float,
) -> Iterator[Step]:
    """Yield the steps from the prices ``row`` (rows,) on, until a plan or the known one worth
    ``value`` is within the ``gap`` or ``give_up`` (monotonic seconds). ``sets`` are those that
    ``listing`` got for ``program``.
    """
    deadline = monotonic() + _TOLD_SHARE * (give_up - monotonic())
    with child.Child("hopsd.solver.all_sets") as process:
        process.ask((program, listing, sets, row, value, gap, deadline))
        decode = partial(_decode, program.configurations.families)
        yield from child.decoded(process.answers(give_up), decode)


class AllSets(PrimalDual):
    """The relaxation with all cuts so far, and with ever more sets as columns.

    Cliques and cuts of jobs would not count unlisted sets; it has cuts of servers' kinds only.
    """

    def __init__(
        self,
        program: Program,
        listing: Listing,
        sets: Sets,
        prices: Prices,
    ) -> None:
        super().__init__(program, prices)
        self._listing, self._sets = listing, dict(sets)
        self._new: list[FoundSet] = []
        self._bound, self._rng = bound_of_items(program, prices), np.random.default_rng(0)

    @property
    def bound(self) -> float:
        return self._bound

    def go_on(self, give_up: float) -> ItemPrices:
        self._list(list(better_sets(self._program, self._last, self._rng)))
        best = super().go_on(give_up)
        self._bound = min(self._bound, bound_of_items(self._program, self._last))
        return best

    def take_step(self) -> Step:
        """Return what was found since the last call."""
        new, self._new = self._new, []
        return Step(new, self._last.item, self._last.capacity, self.choice)

    def _list(self, sets: Sequence[FoundSet]) -> None:
        """Add the sets as columns, and renumber what is known of the others."""
        if not sets:
            return
        self._new += sets
        self._sets = with_sets(self._sets, sets)
        before, after = self._program.configurations, self._listing(self._sets)
        columns = renumber(before, after.configurations, self._active)
        order = np.argsort(columns)
        self._active, self._x = columns[order], self._x[order]
        if self.choice is not None:
            self.choice = renumber_choice(before, after.configurations, self.choice)
        weight = self._parts.weight
        self._use(after)
        if not np.array_equal(self._parts.weight, weight):
            raise AssertionError("a set of whole servers has parts that are no server's")
        self.best = self._last = self._prices(self._row)

    def _add_cuts(self, give_up: float) -> bool:
        return self._cut_knapsacks(give_up)


def steps(
    program: Program,
    listing: Listing,
    sets: Sets,
    row: Floats,
    value: float,
    gap: float,
    give_up: float = inf,
) -> Iterator[Step]:
    """Compute what :func:`steps_in_child` yields, but in this process."""
    prices = prices_at(program, capacity_rows(program), row)
    relaxation = AllSets(program, listing, sets, prices)
    for _ in rounds_by_steps(relaxation, value, gap, give_up):
        yield relaxation.take_step()


def _encode(step: Step, families: Sequence[RackFamily]) -> bytes:
    numbers = {sets.key: number for number, sets in enumerate(families)}
    record = BytesIO()
    np.savez(
        record,
        family=np.array([numbers[sets.key] for sets, _ in step.sets], dtype=np.int64),
        servers=np.concatenate([NONE, *(servers for _, servers in step.sets)]),
        item=step.item,
        capacity=step.capacity,
        choice=NONE if step.choice is None else step.choice,
    )
    return record.getvalue()


def _decode(families: Sequence[RackFamily], record: bytes) -> Step:
    """Decode a record of the child.

    Raises:
        child.MALFORMED: the record is malformed.
    """
    with np.load(BytesIO(record), allow_pickle=False) as arrays:
        listed_families = [families[number] for number in arrays["family"].tolist()]
        ends = np.cumsum([sets.count for sets in listed_families], dtype=np.int64)
        servers = np.split(arrays["servers"], ends)[:-1] if listed_families else []
        choice = arrays["choice"] if len(arrays["choice"]) else None
        return Step(
            list(zip(listed_families, servers, strict=True)),
            arrays["item"],
            float(arrays["capacity"]),
            choice,
        )


if __name__ == "__main__":
    question = child.question()
    for found in steps(*question):
        child.answer(_encode(found, question[0].configurations.families))
