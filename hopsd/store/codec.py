"""Converts frozen values to JSON and back, by their type hints: a new field needs no code here.

JSON has no infinities, which are written as text. PostgreSQL's JSON has neither NUL nor lone
surrogates, which are replaced. Fields missing in a stored value take their default.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from hopsd.model.allocation import Allocation

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Return ``value`` in a form that json.dumps accepts."""
    return _encoder(cast(Hashable, type(value)))(value)


def decode(kind: type[T], value: Any) -> T:
    """Return the value of type ``kind`` that `encode` wrote."""
    return cast(T, _decoder(cast(Hashable, kind))(value))


def clean(text: str) -> str:
    """Replace the characters of ``text`` that PostgreSQL cannot store."""
    if text.isascii() and "\0" not in text:
        return str(text)
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


@cache
def _encoder(kind: Any) -> Callable[[Any], Any]:  # noqa: PLR0911 - one return a kind of type
    """Return the encoder of exactly this type; cached, since a tick writes millions of values."""
    if issubclass(kind, bool | int | types.NoneType):
        return lambda value: value
    if issubclass(kind, str):
        return clean
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else str(value)
    if issubclass(kind, Allocation):
        return lambda value: {clean(node): gpus for node, gpus in value}
    if is_dataclass(kind):
        names = [item.name for item in fields(kind)]
        return lambda value: {name: encode(getattr(value, name)) for name in names}
    if issubclass(kind, Mapping):
        return lambda value: {clean(str(key)): encode(item) for key, item in value.items()}
    if issubclass(kind, tuple | list):
        return lambda value: [encode(item) for item in value]
    raise TypeError(f"{kind.__name__} has no JSON form")


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:  # noqa: PLR0911 - one return a kind of type
    if kind is Any or kind in (str, int, bool):
        return lambda value: value
    if kind is float:
        return float
    if kind is Allocation:
        return Allocation.of
    if isinstance(kind, NewType):
        return _decoder(kind.__supertype__)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    if is_dataclass(kind):
        return _dataclass_decoder(kind)
    return _generic_decoder(get_origin(kind), get_args(kind))


def _generic_decoder(origin: Any, args: tuple[Any, ...]) -> Callable[[Any], Any]:
    if origin in (Union, types.UnionType):
        (inner,) = (_decoder(arg) for arg in args if arg is not types.NoneType)
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _decoder(args[0])
        return lambda value: tuple(item(part) for part in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key = int if args[0] is int else str
        item = _decoder(args[1])
        return lambda value: {key(name): item(part) for name, part in value.items()}
    raise TypeError(f"{origin} has no JSON form")


def _dataclass_decoder(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    parts = [(item.name, _decoder(hints[item.name])) for item in fields(kind)]
    mandatory = {
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    }

    def build(value: Mapping[str, Any]) -> Any:
        return kind(
            **{
                name: part(value[name])
                for name, part in parts
                if name in value or name in mandatory
            }
        )

    return build
