"""``--constraint``: finds nodes with the features that a job asks for (see sbatch's manual)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_TOKEN = re.compile(r"\s*([&,|()\[\]]|[^&,|()\[\]\s]+)")
_MATCHING_PART = re.compile(r"\[([^\[\]]*)\]")


def alternatives(constraint: str) -> list[str]:
    """Expand ``[a|b]&c`` to ``(a)&c`` and ``(b)&c``: all nodes of a job must have the same one."""
    match = _MATCHING_PART.search(constraint)
    if not match:
        return [constraint]
    return [
        f"{constraint[: match.start()]}({choice}){constraint[match.end() :]}"
        for choice in match[1].split("|")
    ]


def holds(constraint: str, features: Collection[str]) -> bool:
    """Whether a node with ``features`` meets a constraint, evaluated left to right as in Slurm.

    A constraint that cannot be parsed is met: Slurm accepted it, and has the last word.
    """
    try:
        return _expression(iter(_TOKEN.findall(constraint)), features)
    except (StopIteration, RecursionError):
        return True


def _expression(tokens: Iterator[str], features: Collection[str]) -> bool:
    value = _operand(tokens, features)
    for operator in tokens:
        if operator in ")]":
            break
        operand = _operand(tokens, features)
        # Slurm takes a comma for "&", and reports "&": only a script's own text has commas.
        value = (value and operand) if operator in "&," else (value or operand)
    return value


def _operand(tokens: Iterator[str], features: Collection[str]) -> bool:
    word = next(tokens)
    return _expression(tokens, features) if word in "([" else word in features
