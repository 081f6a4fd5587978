"""Identifies a training by what it was started with, to recognise it in another run."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from typing import Any, Tuple  # noqa: UP035 - Python 3.8

_SIZE_WORDS = re.compile(
    r".*(gpus|devices|nodes|nproc|processes|workers|ntasks|cpus|threads|world.size|learning.rate"
    r"|(\b|_)lr\b)",
    re.IGNORECASE,
)
"""Options whose value may be one of the job's sizes, unlike that of ``--fold 2`` on two GPUs."""


Digests = Tuple[str, str]  # noqa: UP006
"""Two digests of a word or a value: one that does not depend on the names of the job's nodes, and
one that does not depend on its sizes, either. Words may be secret, so only digests are kept."""


def words(nodes: Collection[str], sizes: Collection[str]) -> list[tuple[str, Digests]]:
    """Digest this program's command line; a word's name is its option or its position."""
    digests: list[tuple[str, Digests]] = []
    before = ""
    for position, word in enumerate(sys.argv):
        option, equals, value = word.partition("=")
        if not equals:
            option, value = before if before.startswith("-") else "", word
        exact = _digest(_mask_names(word, nodes))
        size_digest = _digest(_without_size(word, option, value, nodes, sizes))
        name = option if option.startswith("-") else f"word {position}"
        digests.append((name, (exact, size_digest)))
        before = "" if equals else word
    return digests


def variables(
    environ: Mapping[str, str], nodes: Collection[str], sizes: Collection[str]
) -> dict[str, Digests]:
    """Digest each of the user's variables, by name."""
    return {
        name: (
            _digest(_mask_names(value, nodes)),
            _digest(_without_size(value, name, value, nodes, sizes)),
        )
        for name, value in environ.items()
    }


@dataclass(frozen=True)
class TrainingIdentity:
    """Identifies a training: those started with the same script, words and variables are equal."""

    script: str
    words: list[tuple[str, Digests]]
    variables: dict[str, Digests]

    def as_json(self) -> dict[str, Any]:
        digests = [digests for _, digests in self.words]
        return {"script": self.script, "words": digests, "variables": self.variables}

    def change_since(self, before: Any) -> str:
        """Name what differs from the `as_json` of an earlier run, read from a file; "" if none."""
        if not isinstance(before, dict):
            return "its note"
        if before.get("script") != self.script:
            return "the script's text"
        variables = before.get("variables")
        if not isinstance(variables, dict):
            return "its note"
        for name in sorted({*variables, *self.variables}):
            if not _match(variables.get(name), self.variables.get(name)):
                return f"the variable {name}"
        words = before.get("words")
        if not isinstance(words, list) or len(words) != len(self.words):
            return "the number of words"
        pairs = zip(words, self.words)  # noqa: B905 - Python 3.8
        return next((name for old, (name, now) in pairs if not _match(old, now)), "")


def _match(before: Any, now: Digests | None) -> bool:
    """Whether two digests are of the same word, or of words that differ only in a size."""
    return isinstance(before, (list, tuple)) and now is not None and any(map(eq, before, now))


def script() -> str:
    """Digest the text of this program's script; "" if it is not a file."""
    try:
        return hashlib.sha256(Path(sys.argv[0]).read_bytes()).hexdigest()
    except (OSError, IndexError, ValueError):
        return ""


def _without_size(
    word: str, name: str, value: str, nodes: Collection[str], sizes: Collection[str]
) -> str:
    """Replace the ``value`` at the end of ``word`` if it is a size, judging by its ``name``."""
    if value in sizes and _SIZE_WORDS.match(name):
        return f"{word[: -len(value)]}\0a size"
    return _mask_names(word, nodes)


def _mask_names(word: str, names: Collection[str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        word = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "$", word)
    return word


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
