"""Keeps one item, or one owner of many items, from holding up the others.

A job, report or node on which a step fails is set aside by name; the others are processed.
The culprit is found by trial, so no step has to know how it may fail. Where time is short, owners
take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from hopsd.errors import (
    HopsError,
    NotLeaderError,
    PlanLateError,
    SlurmUnavailableError,
    StoreUnavailableError,
)

T = TypeVar("T")
R = TypeVar("R")

PASS_THROUGH_ERRORS = (
    NotLeaderError,
    PlanLateError,
    SlurmUnavailableError,
    StoreUnavailableError,
)
"""Errors that no item causes: they are raised at once, and no culprit is searched for."""


def in_turn(items: Iterable[T], owner: Callable[[T], Hashable]) -> list[T]:
    """Return the first item of each owner, then the second of each, and so on, in stable order."""
    counts: Counter[Hashable] = Counter()
    turns: list[tuple[int, T]] = []
    for item in items:
        name = owner(item)
        turns.append((counts[name], item))
        counts[name] += 1
    return [item for _, item in sorted(turns, key=lambda entry: entry[0])]


def find_failing_items(
    items: Sequence[T], attempt: Callable[[Sequence[T]], R]
) -> tuple[R, list[tuple[T, Exception]]]:
    """Call ``attempt`` on all items except those that make it raise.

    Returns its result, and the excluded items with the error of each. With k culprits among n items
    this takes about 2 k log2 n attempts. Each of them includes all items that succeeded so far, so
    two items that only fail together are separated, too.

    Raises:
        Exception: the error if ``attempt`` fails even without items, or is in PASS_THROUGH_ERRORS.
    """
    try:
        return attempt(items), []
    except PASS_THROUGH_ERRORS:
        raise
    except Exception as error:
        if not items:
            raise
        search = _Search(attempt, _alone(error))
        search.part(items)
        return search.result, search.aside


class _Search(Generic[T, R]):
    def __init__(self, attempt: Callable[[Sequence[T]], R], error: Exception) -> None:
        self._attempt = attempt
        self._error = error
        self._fine: list[T] = []
        self.aside: list[tuple[T, Exception]] = []
        self.result = attempt([])

    def part(self, items: Sequence[T]) -> None:
        """Split ``items``, which fail with the fine ones, into fine items and culprits."""
        if len(items) == 1:
            self.aside.append((items[0], self._error))
            return
        middle = len(items) // 2
        for half in (items[:middle], items[middle:]):
            try:
                self.result = self._attempt([*self._fine, *half])
            except PASS_THROUGH_ERRORS:
                raise
            except Exception as error:
                self._error = _alone(error)
                self.part(half)
            else:
                self._fine += half


def _alone(error: Exception) -> Exception:
    """Drop the traceback and causes: their frames would keep everything they refer to in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def describe_error(error: Exception) -> str:
    """Describe the error of an item in one line.

    The line is the message of hops or the system. For a defect, it starts with the name of the
    exception, for whoever has to fix it.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    first = " ".join(str(error).split())[:300]
    if first and isinstance(error, (HopsError, ImportError)):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
