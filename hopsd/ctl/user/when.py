"""`hopsctl when`: predicts when a script would start if submitted now, for each GPU count."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from hopsd.ctl.address import Address
from hopsd.ctl.daemon_client import ask_daemon, socket_option
from hopsd.ctl.render import show, show_json, table
from hopsd.ctl.terminal import say
from hopsd.errors import InputError, SlurmUnavailableError
from hopsd.formats.source import read_text
from hopsd.model.reason import clock, duration
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.probe.plain_start import plain_start

Document = dict[str, Any]

_READ = {
    "--comment": "comment",
    "--time": "time",
    "-t": "time",
    "--partition": "partition",
    "-p": "partition",
    "--account": "account",
    "-A": "account",
    "--qos": "qos",
    "-q": "qos",
    "--constraint": "constraint",
    "-C": "constraint",
    "--reservation": "reservation",
}
"""Options that are read from a script; all but the comment are used for Slurm's estimate."""

_SLURM_SECONDS = 10.0
"""Timeout of each of Slurm's estimates."""

_NO_LIMIT = ("UNLIMITED", "INFINITE", "0")
"""Times that sbatch reads as no limit (sbatch(1), --time)."""

_TIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?")


@click.command()
@click.argument("script", required=False, type=click.Path(dir_okay=False))
@click.option("--comment", metavar="TEXT", help="As for sbatch; else the script's own.")
@click.option("--time", "limit", metavar="TIME", help="As for sbatch; else the script's own.")
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the document for programs.")
def when(
    script: str | None, comment: str | None, limit: str | None, path: Address, as_json: bool
) -> None:
    """Predict when SCRIPT would start if it were submitted now, and with which GPU count sooner.

    Nothing is submitted. The interval contains the start in 80 % of cases. Next to it is what
    `sbatch --test-only` says for a plain job with as many GPUs.

    \b
    Examples:
      hopsctl when train.sh
      hopsctl when --comment hops:reqs=1,2,4 --time 4:00:00

    Exit codes: 0 done, 1 nothing is predicted yet, 2 the comment is refused, 4 hopsd is not
    reachable.
    """
    script_options = options(read_text(script)) if script is not None else {}
    comment = comment if comment is not None else script_options.get("comment")
    if comment is None:
        raise InputError("give a script with '#SBATCH --comment=hops:...', or --comment")
    limit = limit if limit is not None else script_options.get("time")
    seconds = None if limit is None else limit_seconds(limit)
    answer = ask_daemon(path, "when", comment=comment, time_limit_seconds=seconds)
    script_options |= {} if limit is None else {"time": limit}
    _add_slurms_own(answer["ways"], script_options)
    if as_json:
        show_json(answer)
        return
    now = time.time()
    rows = [
        (way["reqs"], *_cells(way["predicted"], now), _remaining(way.get("plain_slurm"), now))
        for way in answer["ways"]
    ]
    columns = ["GPUs", "starts in", "80 % interval", "by", "plain Slurm, in"]
    show(table("If it were submitted now", columns, rows))
    rate = answer["arrivals_per_hour"]
    like = "as usual at this hour" if answer["arrivals_by_hour"] else "as seen recently"
    arrivals = f"{rate:.1f} jobs per hour {like}" if rate else "none: too few were seen yet"
    say(f"estimated from {clock(answer['at'])}; new jobs: {arrivals}")
    if answer.get("session"):  # Older versions of hopsd do not say.
        say("for a batch job: a session starts before other jobs, usually sooner")
    if any("plain_slurm" in way for way in answer["ways"]):
        say("plain Slurm: by running jobs' time limits, ahead of all jobs that wait for hops")


def _add_slurms_own(ways: Sequence[Document], script_options: Mapping[str, str]) -> None:
    """Add when plain Slurm would start a job with each single GPU count, if Slurm says."""
    limits = [f"--{key}={value}" for key, value in script_options.items() if key != "comment"]
    commands = SlurmCommands(timeout_seconds=_SLURM_SECONDS)
    for way in ways:
        if len(way["reqs"]) == 1:
            try:
                start = plain_start(commands, [f"--gpus={way['reqs'][0]}", *limits])
            except SlurmUnavailableError:
                return
            if start is not None:
                way["plain_slurm"] = start


def _cells(prediction: Document | None, now: float) -> tuple[str, str, str]:
    if prediction is None:
        return "not known", "-", "-"
    remaining, low, high = (_remaining(prediction[key], now) for key in ("expected", "low", "high"))
    return remaining, f"{low} to {high}", clock(prediction["high"])


def _remaining(at: float | None, now: float) -> str:
    return "-" if at is None else duration(max(0.0, at - now))


def options(script: str) -> dict[str, str]:
    """Read the comment, the time limit, and where the job may run from a batch script's #SBATCH
    lines before its first command, by long name.

    Raises:
        InputError: if the quotes in a line do not match.
    """
    values: dict[str, str] = {}
    for line in script.splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            break
        if not text.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(text.removeprefix("#SBATCH"), comments=True)
        except ValueError as error:
            raise InputError(f"{text}: {error}") from None
        for word, next_word in zip(words, [*words[1:], ""], strict=True):
            name, separator, value = word.partition("=")
            if len(word) > 2 and word[0] == "-" != word[1]:  # such as -t1:30:00
                name, separator, value = word[:2], "attached", word[2:]
            if (key := _READ.get(name)) is not None:
                values[key] = value if separator else next_word
    return values


def limit_seconds(text: str) -> float | None:
    """Convert sbatch's ``--time`` to seconds: minutes, minutes:seconds, hours:minutes:seconds, and
    after "days-" hours, hours:minutes or hours:minutes:seconds (sbatch(1)). None if unlimited.

    Raises:
        InputError: if ``text`` is none of these.
    """
    if text.strip().upper() in _NO_LIMIT:
        return None
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise InputError(f"time {text!r}; give a time such as 90, 1:30:00 or 2-12:00:00")
    days, *parts = match.groups()
    first, second, third = (int(part) if part else 0 for part in parts)
    if days is not None:
        seconds = int(days) * 86400 + first * 3600 + second * 60 + third
    elif parts[2] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    if seconds <= 0:
        raise InputError(f"time {text!r}; give a time above 0")
    return float(seconds)
