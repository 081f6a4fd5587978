"""`hopsctl pause`, `resume`, `release`: for root and the daemon's own account."""

from __future__ import annotations

from pathlib import Path

import click

from hopsd.ctl.daemon import ask_daemon, socket_option
from hopsd.ctl.terminal import say


@click.command()
@socket_option
@click.option("--release-held", is_flag=True, help="Give all held jobs to plain Slurm, too.")
def pause(path: Path, release_held: bool) -> None:
    """Leave everything to Slurm: nothing is placed, moved or held any more."""
    answer = ask_daemon(path, "pause")
    say(f"paused by {answer['by']}; `hopsctl resume` goes on")
    if release_held:
        ask_daemon(path, "release", jobs=[])
        say("asked hopsd to give all jobs that it holds to plain Slurm")


@click.command()
@socket_option
def resume(path: Path) -> None:
    """Schedule again. Jobs given to plain Slurm stay there to their end."""
    ask_daemon(path, "resume")
    say("resumed")


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@socket_option
def release(jobs: tuple[str, ...], path: Path) -> None:
    """Give held JOBS to plain Slurm, each with its smallest GPU count."""
    ask_daemon(path, "release", jobs=list(jobs))
    say(f"asked hopsd to give {', '.join(jobs)} to plain Slurm")
