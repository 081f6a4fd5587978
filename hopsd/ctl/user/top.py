"""`hopsctl top`: the cluster on the whole screen, until q or Ctrl-C."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from hopsd.ctl import render
from hopsd.ctl.address import Address
from hopsd.ctl.daemon import ask, socket_option
from hopsd.ctl.options import FiniteRange
from hopsd.ctl.terminal import printable
from hopsd.ctl.user.status import ask_status, headline, running, totals_of, waiting
from hopsd.errors import HopsError, InputError
from hopsd.model.reason import clock

Document = dict[str, Any]
Table = Callable[[Document, int], RenderableType]

BAR = 30
"""Width of a type's bar."""
ROWS = 200
"""More than a screen has."""
TYPES = 6
"""GPU types with a bar, at most."""
CTRL_Z = "\x1a"
KEYS = "q: end   hopsctl explain JOB: why a job runs or waits"


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
    """The cluster on the whole screen: GPUs by type, what runs, what waits and why.

    q or Ctrl-C ends it. It needs a terminal; `hopsctl status` prints the same once.

    \b
    Examples:
      hopsctl top
      hopsctl top --every 10

    Exit codes: 0 ended, 2 there is no terminal, 4 hopsd is not reachable.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("top needs a terminal; `hopsctl status` prints the same once")
    doc: Document | None = ask_status(path, most=ROWS)
    with suppress(KeyboardInterrupt):
        while doc is not None and (doc := _until_suspended(path, every, doc)) is not None:
            os.kill(0, signal.SIGTSTP)  # as the terminal would; returns after fg


def _until_suspended(path: Address, every: float, doc: Document) -> Document | None:
    """Show the screen until Ctrl-Z is pressed; None: until it is to end."""
    error = ""
    with keys(), Live(console=render.console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(page(doc, error), refresh=True)
            key = _pressed(every)
            if key in ("q", "Q"):
                return None
            if key == CTRL_Z:
                return doc
            try:
                doc, error = ask_status(path, ask, most=ROWS), ""
            except HopsError as problem:
                error = f"as of {clock(doc['time'])}: {problem}"


@contextmanager
def keys() -> Iterator[None]:
    """Keys are read as they are pressed, and not shown; at the end the terminal is as before.

    Ctrl-Z is a key, too: who stops it leaves the screen first. The end also comes when the process
    is asked to end, or its terminal is closed.
    """

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = termios.tcgetattr(sys.stdin)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        tty.setcbreak(sys.stdin)
        modes = termios.tcgetattr(sys.stdin)
        modes[6][termios.VSUSP] = bytes([os.fpathconf(sys.stdin.fileno(), "PC_VDISABLE")])
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(seconds: float) -> str:
    """The next key; "" if none is pressed for so long."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            return os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q"
    return ""


def page(doc: Document, error: str = "") -> Group:
    """A page that fits the console: bars, then as many rows of both tables as there is room for."""
    parts: list[RenderableType] = [headline(doc)]
    if wrong := error or doc["error"]:
        parts.append(Text(printable(wrong), style="bold red"))
    parts += [Text(), *_bars(totals_of(doc)["types"])]
    room = render.console.height - sum(map(render.lines, parts)) - 1
    below = _fitting(waiting, doc, len(doc["waiting"]), room // 2)
    above = _fitting(running, doc, len(doc["running"]), room - render.lines(below))
    below = _fitting(waiting, doc, len(doc["waiting"]), room - render.lines(above))
    return Group(*parts, above, below, Text(KEYS, style="dim", no_wrap=True, overflow="ellipsis"))


def _fitting(table: Table, doc: Document, rows: int, lines: int) -> RenderableType:
    """The table with the most rows that ``lines`` lines have room for."""
    return table(doc, render.fitting(partial(table, doc), min(rows, max(0, lines)), lines))


def _bars(types: Sequence[Document]) -> Iterator[Text]:
    """A bar for each type: how many of its GPUs are in use, of those that may be."""
    wide = max((len(kind["gpu_type"]) for kind in types), default=0)
    for kind in types[:TYPES]:
        there = kind["usable"]
        used, away = there - kind["idle"], kind["gpus"] - there
        filled = round(BAR * used / there) if there else 0
        bar = Text(f"{printable(kind['gpu_type']):{wide}} ")
        bar.append("█" * filled, style="green").append("░" * (BAR - filled), style="dim")
        bar.append(f" {used} of {there} in use")
        if away:
            bar.append(f", {away} not usable", style="yellow")
        bar.truncate(render.console.width)
        yield bar
    if len(types) > TYPES:
        yield Text(f"and {len(types) - TYPES} more types: hopsctl status")
