"""What a training was started with, and whether another run was started with the same."""

from __future__ import annotations

import hashlib
import operator
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

_SIZED = re.compile(
    r".*(gpus|devices|nodes|nproc|processes|workers|ntasks|cpus|threads|world.size|learning.rate"
    r"|(\b|_)lr\b)",
    re.IGNORECASE,
)
"""Options whose value may be one of the job's sizes. That of ``--fold 2`` on two GPUs is none."""


def command(nodes: Collection[str], sizes: Collection[str]) -> list[tuple[str, str, str]]:
    """This program's command line, in digests, since words may be secret. For each word: its name,
    which is its option or its position; a digest that does not depend on the names of the job's
    ``nodes``; and one that does not depend on its ``sizes``, either.
    """
    found: list[tuple[str, str, str]] = []
    before = ""
    for position, word in enumerate(sys.argv):
        option, equals, value = word.partition("=")
        if not equals:
            option, value = before if before.startswith("-") else "", word
        exact = _digest(_masked(word, nodes))
        sized = _digest(_without_size(word, option, value, nodes, sizes))
        found.append((option if option.startswith("-") else f"word {position}", exact, sized))
        before = "" if equals else word
    return found


def variables(
    environ: Mapping[str, str], nodes: Collection[str], sizes: Collection[str]
) -> tuple[str, str, str]:
    """The user's variables together, as :func:`command` has a word."""
    items = sorted(environ.items())
    exact = [f"{name}={_masked(value, nodes)}" for name, value in items]
    sized = [f"{name}={_without_size(value, name, value, nodes, sizes)}" for name, value in items]
    return "the environment", _digest("\0".join(exact)), _digest("\0".join(sized))


def script() -> str:
    """A digest of the text of this program's script; "" where that is not a file."""
    try:
        return hashlib.sha256(Path(sys.argv[0]).read_bytes()).hexdigest()
    except (OSError, IndexError, ValueError):
        return ""


def change(before: Any, now: Sequence[tuple[str, str, str]]) -> str:
    """What of a command differs from that ``before``, from a file; "": nothing."""
    if not isinstance(before, list) or len(before) != len(now):
        return "the number of words"
    for old, (name, *digests) in zip(before, now):  # noqa: B905 - Python 3.8
        if not isinstance(old, list) or not any(map(operator.eq, old, digests)):
            return name
    return ""


def _without_size(
    word: str, name: str, value: str, nodes: Collection[str], sizes: Collection[str]
) -> str:
    """``word`` without the ``value`` that it ends with, if that is a size by its ``name``."""
    if value in sizes and _SIZED.match(name):
        return f"{word[: -len(value)]}\0a size"
    return _masked(word, nodes)


def _masked(word: str, names: Collection[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        word = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "$", word)
    return word


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
