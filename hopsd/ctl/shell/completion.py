"""Completes arguments and options in the shell, and `hopsctl completion`.

Completion never blocks for long: candidates that hopsd does not send within ``PATIENCE`` are not
offered. No error is shown.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, get_completion_class

from hopsd.ctl.address import AddressType, default_address
from hopsd.ctl.daemon_client import ask
from hopsd.ctl.terminal import printable
from hopsd.errors import HopsError

PATIENCE = 2.0
"""Time in seconds to wait for hopsd."""

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HOPSCTL_COMPLETE"

_WORD = re.compile(r"[\w.,:@%+-]+")
"""Candidates must match this, so that a shell takes each for a single word."""

Offer = tuple[str, str]
"""A value and its description."""
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, job ids and policies.

    \b
    Examples:
      eval "$(hopsctl completion bash)"
      hopsctl completion zsh > /usr/local/share/zsh/site-functions/_hopsctl
      hopsctl completion fish > ~/.config/fish/completions/hopsctl.fish
    """
    kind = get_completion_class(shell) or BashComplete
    click.echo(kind(context.find_root().command, {}, "hopsctl", VARIABLE).source())


def offering(find: Callable[[click.Context], Iterable[Offer]]) -> Complete:
    """Make a ``shell_complete=`` callback that offers what ``find`` returns and begins as typed."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        candidates: dict[str, str] = {}
        with suppress(Exception):
            candidates = dict(find(context))
        return [
            CompletionItem(value, help=printable(description))
            for value, description in candidates.items()
            if value.startswith(incomplete) and _WORD.fullmatch(value)
        ]

    return complete


def _query(context: click.Context, command: str) -> Any:
    """Ask hopsd.

    Raises:
        LookupError: if hopsd has not answered within ``PATIENCE``.
    """
    addresses = [p.name for p in context.command.params if isinstance(p.type, AddressType)]
    path = context.params.get(addresses[0] or "") if addresses else None
    answers = []

    def look() -> None:
        with suppress(HopsError):
            answers.append(ask(path or default_address(), command, timeout_seconds=PATIENCE))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if not answers:
        raise LookupError(command)
    return answers[0]


def _rows(context: click.Context) -> list[dict[str, Any]]:
    status = _query(context, "status")
    return [*status["running"], *status["waiting"]]


def _waiting(context: click.Context) -> Iterable[Offer]:
    return [_job(row) for row in _query(context, "status")["waiting"]]


def _job(row: dict[str, Any]) -> Offer:
    return row["id"], f"{row['name']} of {row['user']} ({row['state'].lower()})"


def _states(context: click.Context) -> Iterable[Offer]:
    for row in _rows(context):
        yield row["state"].lower(), "state"
        if row["code"]:
            yield row["code"], "reason"


def _policies(_: click.Context) -> Iterable[Offer]:
    from hopsd.policies.registry import names  # noqa: PLC0415

    return [(name, "") for name in names()]


def _settings(_: click.Context) -> Iterable[Offer]:
    from hopsd.config.reference import options_by_path  # noqa: PLC0415

    return [(path, option.doc) for path, option in options_by_path().items()]


def _workloads(context: click.Context) -> Iterable[Offer]:
    return [(row["workload"], "") for row in _query(context, "throughput")["workloads"]]


def _types(context: click.Context) -> Iterable[Offer]:
    return [(node["gpu_type"], "") for node in _query(context, "status")["nodes"]]


jobs = offering(lambda context: map(_job, _rows(context)))
waiting_jobs = offering(_waiting)
users = offering(lambda context: [(row["user"], "") for row in _rows(context)])
partitions = offering(
    lambda context: [(p, "") for row in _rows(context) for p in row["partition"].split(",")]
)
states = offering(_states)
policies = offering(_policies)
settings = offering(_settings)
workloads = offering(_workloads)
gpu_types = offering(_types)
