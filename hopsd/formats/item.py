"""A value of a JSON document that knows its path, so that error messages can name it.

Numbers must be finite, a whole number may be written ``2`` or ``2.0``, ``true`` is not a
number, and an object has only known keys, each once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeVar

from hopsd.errors import FormatError
from hopsd.model import bounds
from hopsd.model.bounds import ValueRange

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

_COUNT = re.compile(r"[1-9][0-9]{0,9}")
_MAX_WHOLE = 2**53
"""A larger number written as a float may not be exact."""


def parse(text: str) -> Item:
    """Parse the document in ``text``.

    Raises:
        FormatError: if ``text`` is not JSON, or an object has a key twice.
    """
    try:
        return Item(json.loads(text, object_pairs_hook=_object), "")
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not a JSON document: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise FormatError(f"the key {duplicate!r} is given twice in one object")
    return members


def _all_positive(rates: dict[str, Any]) -> bool:
    return all(type(rate) in (float, int) and bounds.RATE.holds(rate) for rate in rates.values())


def _plain(names: dict[str, Any]) -> bool:
    return "" not in names and "".join(names).isascii()


@dataclass(frozen=True, slots=True)
class Item:
    """``path`` is such as ``jobs[3].reqs``; empty for the whole document."""

    value: Any
    path: str

    def refuse(self, expectation: str) -> NoReturn:
        """Raise a FormatError that shows the value and what it must be."""
        value = repr(self.value)
        if isinstance(self.value, dict | list):
            value = "an object" if isinstance(self.value, dict) else "a list"
        elif len(value) > 60:
            value = value[:57] + "..."
        raise FormatError(f"{self.path or 'the document'}: {value}, but it must be {expectation}")

    def fields(self, required_names: str, optional: str = "") -> Fields:
        """Refuse unknown and missing keys of an object; names are separated by blanks."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        required_keys, allowed_keys = (
            required_names.split(),
            [*required_names.split(), *optional.split()],
        )
        for key in self.value:
            if key not in allowed_keys:
                raise FormatError(
                    f"{self._key(key)}: unknown key; the keys are {', '.join(allowed_keys)}"
                )
        for key in required_keys:
            if key not in self.value:
                raise FormatError(f"{self._key(key)}: missing")
        return Fields(self)

    def entries(self) -> Iterator[tuple[str, Item]]:
        """Iterate over an object with arbitrary keys, none of them empty."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        for key, value in self.value.items():
            yield Item(key, self._key(key)).text(), Item(value, self._key(key))

    def rates(self) -> dict[str, float]:
        """Read an object of positive numbers with arbitrary keys in bulk, since they are large."""
        rates = self.value
        if isinstance(rates, dict) and _all_positive(rates) and _plain(rates):
            return {name: float(rate) for name, rate in rates.items()}
        return {name: bounded_number(bounds.RATE)(rate) for name, rate in self.entries()}

    def rates_by_count(self) -> dict[int, float]:
        """Read an object of positive numbers by count (1 or more), sorted by count."""
        by_count = {}
        for key, rate in self.rates().items():
            if not _COUNT.fullmatch(key):
                Item(key, self._key(key)).refuse('a key that is a count, such as "8"')
            by_count[int(key)] = rate
        return dict(sorted(by_count.items()))

    def items(self) -> list[Item]:
        if not isinstance(self.value, list):
            self.refuse("a list")
        return [Item(value, f"{self.path}[{i}]") for i, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.refuse("a text that is not empty")
        try:
            self.value.encode()
        except UnicodeEncodeError:
            self.refuse("text that UTF-8 can hold")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return self.value

    def number(
        self,
        *,
        minimum: float | None = None,
        above: float | None = None,
        maximum: float | None = None,
    ) -> float:
        expectation = "a finite number" + _limits(minimum, above, maximum)
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.refuse(expectation)
        try:
            number = float(self.value)
        except OverflowError:
            self.refuse(expectation)
        if (
            not math.isfinite(number)
            or (minimum is not None and number < minimum)
            or (above is not None and number <= above)
            or (maximum is not None and number > maximum)
        ):
            self.refuse(expectation)
        return number

    def whole(self, minimum: int = 0) -> int:
        number = self.value
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not minimum <= number <= _MAX_WHOLE
            or number != int(number)
        ):
            self.refuse(f"a whole number, {minimum} or more")
        return int(number)

    def choice(self, options: type[E]) -> E:
        """Return the member of ``options`` with this value."""
        by_value = {option.value: option for option in options}
        is_option = isinstance(self.value, str | int | float) and self.value in by_value
        if not is_option or isinstance(self.value, bool):
            self.refuse("one of " + ", ".join(map(str, by_value)))
        return by_value[self.value]

    def or_none(self, reader: Callable[[Item], T]) -> T | None:
        """Return None if the value is null, else what ``reader`` makes of it."""
        return None if self.value is None else reader(self)

    def _key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _limits(minimum: float | None, above: float | None, maximum: float | None) -> str:
    limits = []
    if minimum is not None:
        limits.append(f"{minimum:g} or more")
    if above is not None:
        limits.append(f"above {above:g}")
    if maximum is not None:
        limits.append(f"at most {maximum:g}")
    return ", " + " and ".join(limits) if limits else ""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one object whose keys have been checked."""

    item: Item

    def __getitem__(self, key: str) -> Item:
        """Return the value of a required or an optional key; null if the key is absent."""
        return Item(self.item.value.get(key), self.item._key(key))

    def get(self, key: str, reader: Callable[[Item], T], default: T) -> T:
        """Read an optional key; ``default`` if it is absent."""
        return reader(self[key]) if key in self.item.value else default


def number(item: Item) -> float:
    return item.number()


def at_least_zero(item: Item) -> float:
    return item.number(minimum=0)


def positive(item: Item) -> float:
    return item.number(above=0)


def bounded_number(bound: ValueRange) -> Callable[[Item], float]:
    """Return a reader of numbers within ``bound``."""
    return lambda item: item.number(minimum=bound.minimum, maximum=bound.maximum)


def text(item: Item) -> str:
    return item.text()


def flag(item: Item) -> bool:
    return item.flag()


def unique(items: list[tuple[str, Item]], noun: str) -> None:
    """Refuse a name that occurs twice; ``items`` are pairs of a name and its item."""
    first_items: dict[str, Item] = {}
    for name, item in items:
        if name in first_items:
            raise FormatError(
                f"{item.path}: the {noun} {name!r} is already at {first_items[name].path}"
            )
        first_items[name] = item
