"""Selects and sorts the jobs that a reader asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hopsd.errors import InputError

Row = Mapping[str, Any]

MAX_WORD = 64
"""Maximum characters of the search text."""


def _time(row: Row) -> float | None:
    return row["predicted"]["expected"] if row["predicted"] else None


def progress(row: Row) -> float | None:
    """Share of a running job that is done: predicted, else by its samples; None if unknown."""
    prediction = row["predicted"]
    if prediction and prediction["kind"] == "end" and prediction["progress"] is not None:
        return float(prediction["progress"])
    return row["samples_done"] / row["samples"] if row["samples"] else None


KEYS: Mapping[str, Callable[[Row], Any]] = {
    "user": lambda row: row["user"],
    "name": lambda row: row["name"].lower(),
    "partition": lambda row: row["partition"],
    "gpus": lambda row: sum(row["placement"].values()) or max(row["reqs"], default=None),
    "since": lambda row: row["since"],
    "waited": lambda row: row["wait_seconds"],
    "ratio": lambda row: row["latency_ratio"],
    "when": _time,
    "done": progress,
    "restarts": lambda row: row["restarts"],
}
"""Keys to sort jobs by, each with a function that reads it from a row of the status document."""


@dataclass(frozen=True, slots=True)
class JobSearch:
    """Jobs of ``user`` in ``partition`` with ``word`` in their id, name, workload or reason; an
    empty field matches every job. ``sort`` is one of ``KEYS``, with ``-`` before it for
    descending order; empty for the queue's order.
    """

    user: str = ""
    partition: str = ""
    word: str = ""
    sort: str = ""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> JobSearch:
        """Read the search from the query of a page's address.

        Raises:
            InputError: if jobs cannot be sorted by the ``sort`` of the query.
        """
        words = {name: query.get(name, "").strip()[:MAX_WORD] for name in cls.__slots__}
        choice = cls(**words)
        if choice.sort and choice.sort.removeprefix("-") not in KEYS:
            raise InputError(f"sort {choice.sort!r}: choose from {', '.join(KEYS)}, with - before")
        return choice

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """Select and sort ``rows``; rows without a value to sort by come last."""
        matches = [row for row in rows if self._matches(row)]
        if not self.sort:
            return matches
        value = KEYS[self.sort.removeprefix("-")]
        sorted_rows = [row for row in matches if value(row) is not None]
        sorted_rows.sort(key=value, reverse=self.sort.startswith("-"))
        return sorted_rows + [row for row in matches if value(row) is None]

    def _matches(self, row: Row) -> bool:
        if self.user not in ("", row["user"]) or self.partition not in ("", row["partition"]):
            return False
        texts = (row["id"], row["name"], row["workload"], row["reason"] or "")
        return self.word.lower() in "\n".join(texts).lower()

    def query(self, **changes: str) -> dict[str, str]:
        """Return the query of this search with ``changes`` applied."""
        words = {name: getattr(self, name) for name in self.__slots__} | changes
        return {name: value for name, value in words.items() if value}

    def sorted_by(self, key: str) -> dict[str, str]:
        """Return a heading's query: sort by ``key``, descending if that is the order already."""
        return self.query(sort=f"-{key}" if self.sort == key else key)
