"""Finds settings in hopsd.toml that are valid one by one, but that no site wants."""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

from hopsd.config import Config, NotifyConfig
from hopsd.config.listen import ListenAddress
from hopsd.config.option import hide_password
from hopsd.config.schema import PortName
from hopsd.errors import ConfigError, SlurmError, SlurmUnavailableError
from hopsd.notify.recipients import is_address
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.parse import gpus_in, records
from hopsd.slurm.port_choice import choose_port
from hopsd.store.connection import conninfo

ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
PRIVILEGED_PORTS = 1024
"""Only root may listen on ports below this (ip(7))."""


def file_problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each problem that does not depend on the cluster."""
    yield from _database(config)
    if config.notify.webhook and _open_to_all(config):
        yield "notify.webhook is a secret, and every user may read the file: chmod o-r it"
    yield from _addresses(config)
    yield from _libraries(config)
    yield from _without_effect(config)
    yield from _mails(config.notify)
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


def cluster_problems(
    config: Config, commands: SlurmCommands, conf: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each setting that does not fit the cluster: partitions, nodes and GPU
    types that Slurm does not have, and figures that it does not record. ``conf``: slurm.conf's
    keys.

    Raises:
        SlurmError: if slurmctld does not answer.
    """
    if config.slurm.port is PortName.PYSLURM:
        try:
            choose_port(config.slurm, commands)
        except SlurmUnavailableError:
            raise
        except SlurmError as error:
            yield f"slurm.port is pyslurm: {error}"
    yield from _slurm_ports(config, conf)
    gather = conf.get("JobAcctGatherType", "jobacct_gather/none")
    minutes_without_use = {
        "interactive.idle_minutes": config.interactive.idle_minutes,
        "health.requeue_idle_minutes": config.health.requeue_idle_minutes,
        "health.requeue_hung_minutes": config.health.requeue_hung_minutes,
    }
    for name, minutes in minutes_without_use.items():
        if minutes and gather.endswith("none"):
            yield (
                f"{name} has no effect: slurm.conf has JobAcctGatherType={gather};"
                " set jobacct_gather/cgroup"
            )
    partitions = _partitions(commands) if config.slurm.partitions else []
    for name in config.slurm.partitions:
        if name not in partitions:
            yield f"slurm.partitions: Slurm has no partition {name}{_hint(name, partitions)}"
    if not (config.racks or config.throughput or config.bandwidth or config.interactive.reserve):
        return
    rows = records(commands.run("scontrol", "show", "node", "-a", "-o"))
    nodes = [row["NodeName"] for row in rows if "NodeName" in row]
    for rack, names in config.racks.items():
        unknown = [name for name in names if name not in nodes]
        if unknown:
            suffix = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            yield f"racks.{rack}: Slurm has no node {unknown[0]}{suffix}{_hint(unknown[0], nodes)}"
    yield from _gpu_problems(
        config, [entry for row in rows for entry in gpus_in(row.get("Gres", ""))]
    )


def _gpu_problems(config: Config, gpus: Sequence[tuple[str, int, object]]) -> Iterator[str]:
    """Yield problems of GPU types and counts. ``gpus``: type, count and more of each node."""
    types = sorted({kind for kind, _, _ in gpus if kind})
    types_by_key = {f"bandwidth.{kind}": kind for kind in config.bandwidth} | {
        f"throughput.{workload}.{kind}": kind
        for workload, tables in config.throughput.items()
        for kind in tables
    }
    for key, kind in types_by_key.items():
        if kind not in types:
            yield f"{key}: Slurm has no GPU type {kind}{_hint(kind, types)}"
    total = sum(count for _, count, _ in gpus)
    if config.interactive.reserve >= total > 0:
        yield (
            f"interactive.reserve is {config.interactive.reserve} and the cluster has {total} GPUs:"
            " no job that was not seen to save could start; give fewer"
        )


def _without_effect(config: Config) -> Iterator[str]:
    """Yield settings that have no effect because of others."""
    web, notify = config.web, config.notify
    if web.user_header and web.listen.path is None:
        yield (
            f"web.user_header has no effect: web.listen is {web.listen or 'empty'}; accepted with"
            " it is a Unix socket"
        )
    if web.names and (not web.listen or web.listen.path is not None):
        address_text = "a socket, where every name is accepted" if web.listen else "empty"
        yield f"web.names has no effect: web.listen is {address_text}"
    if notify.admins and not notify.mail:
        yield "notify.admins has no effect: notify.mail is empty"
    if notify.webhook and not notify.kinds:
        yield "notify.webhook has no effect: notify.kinds is empty"


def _libraries(config: Config) -> Iterator[str]:
    """Yield missing libraries of servers: hopsd would run without these servers."""
    servers = {
        "web.listen": (config.web.listen, "flask", "web"),
        "api.listen": (config.api.listen, "flask", "web"),
        "metrics.listen": (config.metrics.listen, "prometheus_client", "metrics"),
    }
    for key, (address, module, extra) in servers.items():
        if address and find_spec(module) is None:
            package = f"python3-{module.replace('_', '-')}"
            yield f"{key} needs {module}: apt-get install {package}, or pip install 'hops[{extra}]'"


def _mails(notify: NotifyConfig) -> Iterator[str]:
    program = notify.mail
    if program.startswith("/") and not (Path(program).is_file() and os.access(program, os.X_OK)):
        yield f"notify.mail: {program} is not a program on this machine"
    for address in notify.admins:
        if not is_address(address):
            yield f"notify.admins: {address!r} is not a mail address"


def _database(config: Config) -> Iterator[str]:
    dsn = config.database.dsn
    try:
        conninfo(dsn)
    except ConfigError as error:
        yield str(error)
    if hide_password(dsn) != dsn and _open_to_all(config):
        yield (
            "database.dsn has a password, and every user may read the file; use a passfile, or peer"
            " authentication, or make the file unreadable for others"
        )


def _open_to_all(config: Config) -> bool:
    return config.path is not None and bool(config.path.stat().st_mode & stat.S_IROTH)


def _addresses(config: Config) -> Iterator[str]:
    """Yield addresses that two servers share, and those at which this machine cannot listen."""
    addresses = {
        "daemon.socket": ListenAddress(str(config.daemon.socket)),
        "metrics.listen": config.metrics.listen,
        "web.listen": config.web.listen,
        "api.listen": config.api.listen,
    }
    for (first_key, first), (second_key, second) in combinations(addresses.items(), 2):
        if first and second and _same_place(first, second):
            yield f"{first_key} and {second_key} are the same address, {second}; each needs its own"
    for key, address in addresses.items():
        if address and address.path is None:
            yield from _unbindable(key, address)
    munge_socket = config.api.munge_socket
    if munge_socket and not Path(munge_socket).is_socket():
        yield f"api.munge_socket: {munge_socket} is not a socket; give munged's"
    if not re.fullmatch(r"[A-Za-z0-9-]*", config.web.user_header):
        yield f"web.user_header: {config.web.user_header!r} is not the name of an HTTP header"


def _unbindable(key: str, address: ListenAddress) -> Iterator[str]:
    host, port = address.host_and_port
    if port < PRIVILEGED_PORTS:
        yield f"{key} is {address}: hopsd is not root; give a port from {PRIVILEGED_PORTS}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((host, 0))
    except OSError as error:
        yield f"{key} is {address}: this machine cannot listen there: {error.strerror}"


def _slurm_ports(config: Config, conf: Mapping[str, str]) -> Iterator[str]:
    """Yield ports that Slurm uses; in slurm.conf (``conf``) a daemon may have a range of them."""
    for key, address in (("api.listen", config.api.listen), ("web.listen", config.web.listen)):
        for name in ("SlurmctldPort", "SlurmdPort"):
            low, _, high = conf.get(name, "").partition("-")
            if not address or address.path is not None or not low.isdigit():
                continue
            if int(low) <= address.host_and_port[1] <= int(high or low):
                yield f"{key} is {address}: that is slurm.conf's {name}; give another port"


def _same_place(first: ListenAddress, second: ListenAddress) -> bool:
    if first.path is not None or second.path is not None:
        return first == second
    (host, port), (other_host, other_port) = first.host_and_port, second.host_and_port
    same_host = host == other_host or host in ALL_ADDRESSES or other_host in ALL_ADDRESSES
    return port == other_port and same_host


def _partitions(commands: SlurmCommands) -> list[str]:
    rows = records(commands.run("scontrol", "show", "partition", "-a", "-o"))
    return [row["PartitionName"] for row in rows if "PartitionName" in row]


def _hint(name: str, names: Iterable[str]) -> str:
    names = list(names)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    suffix = ", ..." if len(names) > 10 else ""
    return f"; it has {', '.join(names[:10])}{suffix}"
