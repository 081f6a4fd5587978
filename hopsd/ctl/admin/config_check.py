"""Settings that hopsd.toml may have and no site wants: each alone is valid."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import combinations

from hopsd.config import Config
from hopsd.config.listen import ListenAddress
from hopsd.config.option import hide_password
from hopsd.errors import ConfigError
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.parse import records
from hopsd.store.connection import conninfo

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


def file_problems(config: Config) -> Iterator[str]:
    """What is wrong whatever the cluster is, a sentence each."""
    yield from _database(config)
    if config.notify.webhook and _open_to_all(config):
        yield "notify.webhook is a secret, and every user may read the file"
    yield from _addresses(config)
    if config.web.user_header and config.web.listen.path is None:
        yield (
            "web.user_header has no effect: web.listen is"
            f" {config.web.listen or 'empty'}; accepted with it is a Unix socket"
        )
    slurm = config.slurm
    if slurm.checkpoint_grace_seconds > slurm.longest_grace_seconds:
        yield (
            f"slurm.checkpoint_grace_seconds is {slurm.checkpoint_grace_seconds:g}; accepted: at"
            f" most longest_grace_seconds = {slurm.longest_grace_seconds:g}"
        )
    seconds, round_seconds = config.plan.settings.time_limit_seconds, config.daemon.round_seconds
    if seconds > round_seconds:
        yield (
            f"plan.time_limit is {seconds:g}; accepted: at most daemon.round_seconds ="
            f" {round_seconds:g}, or a plan is late in each round"
        )


def cluster_problems(config: Config, commands: SlurmCommands) -> Iterator[str]:
    """Partitions and nodes in the file that Slurm does not have, a sentence each.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    partitions = _names(commands, "partition", "PartitionName") if config.slurm.partitions else []
    for name in config.slurm.partitions:
        if name not in partitions:
            yield f"slurm.partitions: Slurm has no partition {name}{_hint(name, partitions)}"
    if not config.racks:
        return
    nodes = _names(commands, "node", "NodeName")
    for rack, names in config.racks.items():
        unknown = [name for name in names if name not in nodes]
        if unknown:
            suffix = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            yield f"racks.{rack}: Slurm has no node {unknown[0]}{suffix}{_hint(unknown[0], nodes)}"


def _database(config: Config) -> Iterator[str]:
    dsn = config.database.dsn
    try:
        conninfo(dsn)
    except ConfigError as error:
        yield str(error)
    if hide_password(dsn) != dsn and _open_to_all(config):
        yield (
            "database.dsn has a password, and every user may read the file; use a passfile, or peer"
            " authentication, or take the right to read from others"
        )


def _open_to_all(config: Config) -> bool:
    return config.path is not None and bool(config.path.stat().st_mode & stat.S_IROTH)


def _addresses(config: Config) -> Iterator[str]:
    """Two servers cannot listen at the same place."""
    listening = {
        "daemon.socket": ListenAddress(str(config.daemon.socket)),
        "metrics.listen": config.metrics.listen,
        "web.listen": config.web.listen,
        "api.listen": config.api.listen,
    }
    for (first_key, first), (second_key, second) in combinations(listening.items(), 2):
        if first and second and _same_place(first, second):
            yield f"{first_key} and {second_key} are the same place, {second}; each needs its own"


def _same_place(first: ListenAddress, second: ListenAddress) -> bool:
    if first.path is not None or second.path is not None:
        return first == second
    (host, port), (other_host, other_port) = first.host_and_port, second.host_and_port
    same_host = host == other_host or host in EVERYWHERE or other_host in EVERYWHERE
    return port == other_port and same_host


def _names(commands: SlurmCommands, kind: str, key: str) -> list[str]:
    rows = records(commands.run("scontrol", "show", kind, "-a", "-o"))
    return [record[key] for record in rows if key in record]


def _hint(name: str, names: Iterable[str]) -> str:
    names = list(names)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    suffix = ", ..." if len(names) > 10 else ""
    return f"; it has {', '.join(names[:10])}{suffix}"
