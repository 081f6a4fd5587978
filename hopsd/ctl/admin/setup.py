"""`hopsctl setup`: guides an administrator through docs/admin.md's steps, or undoes them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hopsd.ctl.config_file import config_option
from hopsd.ctl.terminal import complain, say
from hopsd.model.reason import count_of
from hopsd.setup import slurm_conf
from hopsd.setup.change import Change, SetupError
from hopsd.setup.machine import Machine, read_machine
from hopsd.setup.steps import STEPS, SetupStep

NAMES = tuple(step.name for step in STEPS)


@click.command()
@click.option("--dry-run", is_flag=True, help="Show the changes without making any.")
@click.option("--yes", is_flag=True, help="Make the changes without asking.")
@click.option("--undo", is_flag=True, help="Take back what setup did, including its database.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(NAMES),
    help="Run only this step; may be given more than once.",
)
@click.option(
    "--keep",
    "skip",
    multiple=True,
    type=click.Choice(NAMES),
    help="Skip this step, as in `--undo --keep database`.",
)
@config_option
def setup(
    path: Path,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    undo: bool,
) -> None:
    """Set up hops on a Slurm controller, or remove it again with --undo.

    Each step looks at the present state, shows every change and asks before it makes any. It may be
    run again at any time: what is already done is skipped.

    \b
    Examples:
      hopsctl setup --dry-run
      hopsctl setup
      hopsctl setup --undo --keep database

    Exit codes: 0 done, 1 a step cannot be taken.
    """
    machine = read_machine(path)
    steps = [s for s in STEPS if s.name in (only or NAMES) and s.name not in skip]
    total = 0
    for step in reversed(steps) if undo else steps:
        total += _take(step, machine, undo=undo, dry_run=dry_run, yes=yes)
    if dry_run:
        say(f"{count_of(total, 'changes')}, none made" if total else "nothing to change")
    elif not undo:
        _remarks(machine)


def _take(step: SetupStep, machine: Machine, *, undo: bool, dry_run: bool, yes: bool) -> int:
    """Carry out a step; return the number of its changes."""
    try:
        changes = (step.undo if undo else step.apply)(machine)
        if not changes:
            say(f"{step.name}: {'nothing to take back' if undo else 'in place'}")
            return 0
        say(f"{step.name}: {step.title}")
        for change in changes:
            say(_indent(change))
        if dry_run:
            return len(changes)
        if not yes and not click.confirm("  Make these changes?"):
            complain(f"{step.name}: not done; run hopsctl setup again, or with --keep {step.name}")
            sys.exit(1)
        for change in changes:
            change.make()
    except SetupError as error:
        complain(f"{step.name}: {error}")
        complain("fix this and run hopsctl setup again; what is already done is skipped")
        sys.exit(1)
    return len(changes)


def _indent(change: Change) -> str:
    return "\n".join(f"    {line}" for line in change.description.splitlines())


def _remarks(machine: Machine) -> None:
    for sentence in slurm_conf.remarks(slurm_conf.values(machine.slurm_conf), machine.running):
        say(f"yours to decide: {sentence}")
