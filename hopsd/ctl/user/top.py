"""`hopsctl top`: shows what runs and what waits, on the whole screen."""

from __future__ import annotations

import sys
from functools import partial

import click

from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask, socket_option
from hopsd.ctl.options import FiniteRange
from hopsd.ctl.user.status import ask_status
from hopsd.errors import InputError

ROWS = 1000
"""Maximum rows of each table; the title counts the rest."""


@click.command()
@socket_option
@click.option(
    "--every",
    type=FiniteRange(min=0.1, max=3600.0),
    default=2.0,
    show_default=True,
    help="Seconds between refreshes.",
)
def top(path: Address, every: float) -> None:
    """Show the cluster on the whole screen: GPUs by type, what runs, what waits and why.

    Arrow keys scroll, Tab changes the table, / filters, s sorts, Enter explains a job, c cancels
    it, ? lists all keys, q quits. This needs a terminal; `hopsctl status` prints the same once.

    \b
    Examples:
      hopsctl top
      hopsctl top --every 10

    Exit codes: 0 ended, 2 there is no terminal, 4 hopsd is not reachable.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("top needs a terminal; `hopsctl status` prints the same once")
    from hopsd.ctl.user.screen import Top  # noqa: PLC0415 - textual takes 0.3 s to import

    first = ask_status(path, most=ROWS)
    screen = Top(
        first,
        every,
        status=partial(ask_status, path, ask, most=ROWS),
        explain=lambda job: ask(path, "explain", job=job),
    )
    sys.exit(screen.run_until_asked_to_end())
