"""`hopsctl pause`, `resume`, `release`: for root, the daemon's own account, and others that the
configuration allows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from hopsd.ctl.daemon import ask_daemon, socket_option
from hopsd.ctl.options import FiniteRange
from hopsd.ctl.shell import completion as complete
from hopsd.ctl.terminal import complain, say

Document = dict[str, Any]

EXIT_NOT_DONE = 1
_LOOK_SECONDS = 0.3

wait_option = click.option(
    "--wait",
    type=FiniteRange(min=0.0, max=86400.0),
    default=90.0,
    show_default=True,
    help="Seconds to wait for the outcome.",
)


@click.command()
@socket_option
@click.option("--release-held", is_flag=True, help="Give all held jobs to plain Slurm, too.")
@wait_option
def pause(path: Path, release_held: bool, wait: float) -> None:
    """Leave everything to Slurm: nothing is placed, moved or held any more.

    \b
    Examples:
      hopsctl pause
      hopsctl pause --release-held

    Exit codes: 0 done, 1 not done yet or refused by Slurm, 4 hopsd is not reachable.
    """
    answer = ask_daemon(path, "pause")
    _until_mode(path, "paused", f"paused by {answer['by']}; `hopsctl resume` goes on", wait)
    if release_held:
        since = time.time()
        held = [row["id"] for row in ask_daemon(path, "status")["waiting"] if not row["released"]]
        ask_daemon(path, "release", jobs=[])
        _tell_released(path, held, since, wait)


@click.command()
@socket_option
@wait_option
def resume(path: Path, wait: float) -> None:
    """Schedule again. Jobs given to plain Slurm stay there to their end.

    \b
    Example:
      hopsctl resume

    Exit codes: 0 done, 1 not done yet, 4 hopsd is not reachable.
    """
    ask_daemon(path, "resume")
    _until_mode(path, "active", "resumed", wait)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=complete.waiting_jobs)
@socket_option
@wait_option
def release(jobs: tuple[str, ...], path: Path, wait: float) -> None:
    """Give held JOBS to plain Slurm, each with its smallest GPU count; of an array all that waits.

    \b
    Examples:
      hopsctl release 17
      hopsctl release 18 19_4

    Exit codes: 0 done, 1 not done yet or refused by Slurm, 4 hopsd is not reachable.
    """
    since = time.time()
    answer = ask_daemon(path, "release", jobs=list(jobs))
    _tell_released(path, answer["released"], since, wait)


def _until_mode(path: Path, mode: str, done: str, seconds: float) -> None:
    """Print ``done`` once it is; a standby hopsd leaves it to the leader."""

    def there() -> bool:
        return ask_daemon(path, "status", most=0)["mode"] in (mode, "standby")

    if not _within(seconds, there):
        complain(
            f"asked, and not so after {seconds:g} s: a round is under way; `hopsctl status` shows"
            f" {mode} when it has ended"
        )
        sys.exit(EXIT_NOT_DONE)
    standby = ask_daemon(path, "status", most=0)["mode"] == "standby"
    say(f"asked; this hopsd stands by, the one that leads takes it up: {done}" if standby else done)


def _tell_released(path: Path, jobs: Sequence[str], since: float, seconds: float) -> None:
    """One line per job with its outcome."""
    outcomes: dict[str, str | None] = dict.fromkeys(jobs)

    def all_told() -> bool:
        waiting = {row["id"]: row for row in ask_daemon(path, "status")["waiting"]}
        for job, told in outcomes.items():
            outcomes[job] = told or _outcome(path, job, waiting.get(job), since)
        return all(outcomes.values())

    all_told_in_time = _within(seconds, all_told)
    for job, told in outcomes.items():
        if told is not None and not told.startswith("not"):
            say(f"job {job}: {told}")
        else:
            complain(f"job {job}: {told or _not_yet(job)}")
    if not jobs:
        say("hops holds no job")
    if not all_told_in_time or any((told or "").startswith("not") for told in outcomes.values()):
        sys.exit(EXIT_NOT_DONE)


def _not_yet(job: str) -> str:
    return f"asked for, not carried out yet; `hopsctl explain {job}` shows what becomes of it"


def _outcome(path: Path, job: str, row: Document | None, since: float) -> str | None:
    """The outcome of a release; None: not known yet."""
    if row is not None and row["released"]:
        return "given to plain Slurm"
    for event in ask_daemon(path, "explain", job=job)["history"]["events"]:
        if event["time"] >= since - 1.0 and event["text"].startswith("release"):
            return f"not given to plain Slurm: {event['text']}"
    if row is None:
        return "waits no more: it runs, or it has ended"
    return None


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
