"""`hopsctl pause`, `resume`, `release`: for root, the daemon's own account, and others that the
configuration allows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask_daemon, socket_option
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
def pause(path: Address, release_held: bool, wait: float) -> None:
    """Leave everything to Slurm: nothing is placed, moved or held any more.

    \b
    Examples:
      hopsctl pause
      hopsctl pause --release-held

    Exit codes: 0 done, 1 not done yet or refused by Slurm, 4 hopsd is not reachable.
    """
    answer = ask_daemon(path, "pause")
    _wait_for_mode(path, "paused", f"paused by {answer['by']}; `hopsctl resume` goes on", wait)
    if release_held:
        start = time.time()
        held_jobs = [
            row["id"] for row in ask_daemon(path, "status")["waiting"] if not row["released"]
        ]
        ask_daemon(path, "release", jobs=[])
        _show_outcomes(path, held_jobs, start, wait)


@click.command()
@socket_option
@wait_option
def resume(path: Address, wait: float) -> None:
    """Schedule again. Jobs given to plain Slurm stay there until they end.

    \b
    Example:
      hopsctl resume

    Exit codes: 0 done, 1 not done yet, 4 hopsd is not reachable.
    """
    ask_daemon(path, "resume")
    _wait_for_mode(path, "active", "resumed", wait)


@click.command()
@click.argument("jobs", nargs=-1, required=True, shell_complete=complete.waiting_jobs)
@socket_option
@wait_option
def release(jobs: tuple[str, ...], path: Address, wait: float) -> None:
    """Give held JOBS to plain Slurm, each with its smallest GPU count; of an array, all that waits.

    \b
    Examples:
      hopsctl release 17
      hopsctl release 18 19_4

    Exit codes: 0 done, 1 not done yet or refused by Slurm, 4 hopsd is not reachable.
    """
    start = time.time()
    answer = ask_daemon(path, "release", jobs=list(jobs))
    _show_outcomes(path, answer["released"], start, wait)


def _wait_for_mode(path: Address, mode: str, message: str, seconds: float) -> None:
    """Wait for ``mode`` and print ``message``; a standby hopsd leaves the change to the leader."""

    def is_in_mode() -> bool:
        return ask_daemon(path, "status", most=0)["mode"] in (mode, "standby")

    if not _wait_until(seconds, is_in_mode):
        complain(
            f"asked, but not {mode} after {seconds:g} s: a round is under way; `hopsctl status`"
            f" shows {mode} when it has ended"
        )
        sys.exit(EXIT_NOT_DONE)
    standby = ask_daemon(path, "status", most=0)["mode"] == "standby"
    say(
        f"asked; this hopsd is on standby, the leading one will follow: {message}"
        if standby
        else message
    )


def _show_outcomes(path: Address, jobs: Sequence[str], start: float, seconds: float) -> None:
    """Wait for the outcome of each job, and print a line per job."""
    outcomes: dict[str, str | None] = dict.fromkeys(jobs)

    def all_known() -> bool:
        waiting = {row["id"]: row for row in ask_daemon(path, "status")["waiting"]}
        for job, outcome in outcomes.items():
            outcomes[job] = outcome or _outcome(path, job, waiting.get(job), start)
        return all(outcomes.values())

    complete = _wait_until(seconds, all_known)
    for job, outcome in outcomes.items():
        if outcome is not None and not outcome.startswith("not"):
            say(f"job {job}: {outcome}")
        else:
            complain(f"job {job}: {outcome or _pending_text(job)}")
    if not jobs:
        say("hops holds no job")
    if not complete or any((outcome or "").startswith("not") for outcome in outcomes.values()):
        sys.exit(EXIT_NOT_DONE)


def _pending_text(job: str) -> str:
    return f"requested, not done yet; see `hopsctl explain {job}`"


def _outcome(path: Address, job: str, row: Document | None, start: float) -> str | None:
    """Return the outcome of a release; None while it is unknown."""
    if row is not None and row["released"]:
        return "given to plain Slurm"
    for event in ask_daemon(path, "explain", job=job)["history"]["events"]:
        if event["time"] >= start - 1.0 and event["text"].startswith("release"):
            return f"not given to plain Slurm: {event['text']}"
    if row is None:
        return "no longer waiting: it runs or has ended"
    return None


def _wait_until(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
