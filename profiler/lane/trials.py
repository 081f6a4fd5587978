"""The file of trials, and the journal of the trials that have ended."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_PYTHON = re.compile(r"(.*/)?python[0-9.]*")


KEYS = ("iterations", "ranks")
"""Settings of a trial before its command, such as ``iterations=3000``."""

_KEY = re.compile(r"([A-Za-z_]\w*)=(.*)")


class TrialsError(Exception):
    """The file of trials cannot be read, or a line is not the command of a trial."""


@dataclass(frozen=True)
class Trial:
    """One command: a script, or with ``module`` the name of a module, and its arguments. ``text``
    is its line, with a number if the file has it more than once; ``number`` its place in the file,
    from 1; ``iterations`` its length, 0 if the line does not say; ``ranks`` the number of processes
    that train together.
    """

    number: int
    text: str
    arguments: tuple[str, ...]
    module: bool
    iterations: int = 0
    ranks: int = 1


def read_trials(path: Path) -> list[Trial]:
    """Read the trials of a file, one per line; blank lines and comments after ``#`` are skipped.

    Raises:
        TrialsError: if the file cannot be read, or a line is not a Python command; it says which.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TrialsError(f"{path} cannot be read: {error}") from error
    trials: list[Trial] = []
    for place, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise TrialsError(f"{path}, line {place}: {error}: {line.strip()}") from error
        if words:
            position = f"{path}, line {place}"
            keys, words = _keys(words, position)
            arguments, module = _command(words, position)
            text = " ".join(words)
            repeats = sum(trial.arguments == arguments for trial in trials)
            text += f"  # {repeats + 1}" if repeats else ""
            trials.append(Trial(len(trials) + 1, text, arguments, module, **keys))
    if not trials:
        raise TrialsError(
            f"{path} has no trial: write one command a line, such as train.py --lr 0.1"
        )
    return trials


def _keys(words: list[str], position: str) -> tuple[dict[str, int], list[str]]:
    """Split words into the settings before the command, and the command."""
    keys: dict[str, int] = {}
    while words and (match := _KEY.fullmatch(words[0])):
        name, value = match.groups()
        if name not in KEYS or not re.fullmatch("[1-9][0-9]{0,11}", value):
            syntax = " and ".join(f"{key}=NUMBER" for key in KEYS)
            raise TrialsError(f"{position}: {words[0]}: only {syntax} may precede a command")
        keys[name], words = int(value), words[1:]
    return keys, words


def _command(words: list[str], position: str) -> tuple[tuple[str, ...], bool]:
    text = " ".join(words)
    if words and _PYTHON.fullmatch(words[0]):
        words = words[1:]
    while words and words[0] == "-u":
        words = words[1:]
    module = words[:1] == ["-m"]
    words = words[1:] if module else words
    if not words or words[0].startswith("-"):
        raise TrialsError(f"{position}: {text}: write [python] SCRIPT or -m MODULE, and arguments")
    if not module and not Path(words[0]).is_file():
        raise TrialsError(f"{position}: there is no script {words[0]}: {text}")
    return tuple(words), module


class Journal:
    """Trials that have ended, by their commands; a lane that starts again skips them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.codes: dict[str, int] = {}
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
                self.codes[str(entry["command"])] = int(entry["code"])
            except (ValueError, KeyError, TypeError):
                continue  # truncated by a crash

    def record(self, trial: Trial, code: int) -> None:
        """Record durably that ``trial`` has ended with ``code``."""
        self.codes[trial.text] = code
        entry = {"trial": trial.number, "command": trial.text, "code": code}
        with self._path.open("a") as file:
            file.write(f"{json.dumps(entry)}\n")
            file.flush()
            os.fsync(file.fileno())
