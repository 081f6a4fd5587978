"""Parses Slurm's node lists, ``n[1-3,07],login``, in time proportional to the number of names."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product
from math import prod

from hopsd.model import bounds
from hopsd.model.ids import NodeName

_TOKEN = re.compile(r"\[(?P<inside>[0-9,-]+)\]|(?P<comma>,)|[^\[\],]+")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@lru_cache(maxsize=4096)
def node_names(text: str, limit: int = int(bounds.NODES.maximum)) -> tuple[NodeName, ...]:
    """Return the names in ``text``, each once, in their order.

    Users write such lists, so neither ``n[1-999999999]`` nor a thousand names with three numbers
    each may take long; ClusterShell's NodeSet takes 30 s for the first million of the former, and
    14 s for the latter.

    Raises:
        ValueError: ``text`` is not a node list, or has more than ``limit`` names.
    """
    names: dict[str, None] = {}
    parts: list[tuple[str, ...]] = []
    position = 0
    for token in _TOKEN.finditer(text):
        if token.start() != position:
            break
        position = token.end()
        if token["comma"]:
            _add(names, parts, limit)
            parts = []
        else:
            inside = token["inside"]
            parts.append(_numbers(inside, limit) if inside else (token[0],))
    if position != len(text):
        raise ValueError(f"{text[:80]!r} is not a list of nodes")
    _add(names, parts, limit)
    return tuple(map(NodeName, names))


def _add(names: dict[str, None], parts: list[tuple[str, ...]], limit: int) -> None:
    if not parts:
        return
    if len(names) + prod(map(len, parts)) > limit:
        raise ValueError(f"a list of more than {limit} nodes")
    names.update(dict.fromkeys(map("".join, product(*parts))))


def _numbers(inside: str, limit: int) -> tuple[str, ...]:
    """Return the numbers in brackets, padded to the width of a range's first number."""
    numbers: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"[{inside[:80]}] is not a list of numbers")
        low, high = int(match[1]), int(match[2] or match[1])
        if len(numbers) + high - low >= limit:
            raise ValueError(f"a list of more than {limit} nodes")
        numbers += (str(number).zfill(len(match[1])) for number in range(low, high + 1))
    return tuple(numbers)
