"""Prints to a terminal, which names, comments and Slurm's messages must not be able to control."""

from __future__ import annotations

import shutil
import sys
import textwrap

from hopsd.errors import SlurmUnavailableError, StoreUnavailableError, UnreachableError


def printable(text: str) -> str:
    """Return one line of printable characters only; others are escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(text: str) -> None:
    """Print lines to standard output."""
    print(_lines(text), flush=True)


def say_prose(text: str) -> None:
    """Print a paragraph; on a terminal, wrap it between words."""
    text = printable(text)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    print(text, flush=True)


def complain(text: object, program: str = "hopsctl") -> None:
    """Print an error of one or more lines to standard error."""
    print(f"{program}: {_lines(str(text))}", file=sys.stderr)


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (
        UnreachableError,
        (
            "`systemctl status hopsd` on its host says whether it runs; --socket, HOPS_SERVER or"
            " /etc/hops/hopsctl.toml say where it is"
        ),
    ),
    (
        StoreUnavailableError,
        "`systemctl status postgresql` says whether it runs; database.dsn in hopsd.toml names it",
    ),
    (SlurmUnavailableError, "`scontrol ping` says whether slurmctld answers on this machine"),
    (PermissionError, "try again as root, or as the account that hopsd runs as"),
)


def advice(error: Exception) -> str | None:
    """Return a hint for the user who sees ``error``; None if its message is enough."""
    return next((text for kind, text in ADVICE if isinstance(error, kind)), None)
