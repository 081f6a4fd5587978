"""Keeps one item, or one owner of many, from holding up the others.

A job, report or node on which a step fails is set aside by name; the others are served.
The culprit is found by trial, so no step has to know how it may fail. Where time is short, owners
are served in turn.
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
"""What says nothing of an item: it is raised at once, however few the items are."""


def in_turn(items: Iterable[T], owner: Callable[[T], Hashable]) -> list[T]:
    """The first item of each owner, then the second of each, and so on; else in their order."""
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
    """``attempt`` on all items, or on all but those that make it raise, and what each of them
    raised.

    With k culprits of n items it takes about 2 k log2 n attempts. Each is made anew on everything
    that was fine so far, so that also two items that only fail together are parted.

    Raises:
        Exception: what ``attempt`` raises without any item, or what is nobody's fault.
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
        """Take of ``items``, which raise beside the fine ones, as many as do not."""
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
    """Without the frames that it passed: in a cycle with them it would keep all that they read."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def describe_error(error: Exception) -> str:
    """One line about what an item raised: what hops or the system says of it, or a defect, with
    the exception's name for the person who is to fix it.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    first = " ".join(str(error).split())[:300]
    if first and isinstance(error, (HopsError, ImportError)):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
