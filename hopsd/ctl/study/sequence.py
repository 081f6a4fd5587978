"""`hopsctl sequence`: orders the turns of trainings by Hare."""

from __future__ import annotations

import re

import click

from hopsd.ctl.terminal import say
from hopsd.errors import InputError
from hopsd.policies.hare.schedulers import SCHEDULERS
from hopsd.policies.hare.sequence import sequence as order

MAX_TURNS = 10_000


@click.command()
@click.argument("trainings", nargs=-1, required=True, metavar="TURNSxSECONDS...")
@click.option("--gpus", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option(
    "--policy", type=click.Choice(list(SCHEDULERS)), default="hare-dispatch", show_default=True
)
def sequence(trainings: tuple[str, ...], gpus: int, policy: str) -> None:
    """Order the turns of trainings that share equal GPUs, by Hare.

    Give for each training the turns that it has left and the seconds of one. The command prints a
    line for each GPU with the trainings, numbered from 1 by their places in the command.

    \b
    Example:
      hopsctl sequence --gpus 1 4x1.0 2x1.0

    Exit codes: 0 done, 2 bad input.
    """
    parsed_trainings = [_parse_training(text) for text in trainings]
    if sum(turns for turns, _ in parsed_trainings) > MAX_TURNS:
        raise InputError(f"more than {MAX_TURNS} turns; combine several of a training into one")
    turns, seconds = [t for t, _ in parsed_trainings], [s for _, s in parsed_trainings]
    for line in order(turns, seconds, gpus, SCHEDULERS[policy]):
        say(" ".join(str(training + 1) for training in line))


def _parse_training(text: str) -> tuple[int, float]:
    match = re.fullmatch(r"([1-9][0-9]{0,5})x([0-9]{1,9}(?:\.[0-9]{1,9})?)", text)
    if match is None or not float(match.group(2)):
        raise InputError(f"{text!r}: give turns and seconds above 0, such as 30x1.5")
    return int(match.group(1)), float(match.group(2))
