"""Queries to Slurm: its configuration, privacy settings, nodes with GPUs, and single jobs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hopsd.core.submission.comment import is_ours
from hopsd.errors import SlurmError
from hopsd.model.devices import is_cpu
from hopsd.model.ids import JobId
from hopsd.model.privacy import UNKNOWN, Privacy, Private
from hopsd.model.scenario import Cluster, Server
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.parse import node_readings, records

KEEP_SECONDS = 60.0


def slurm_conf(commands: SlurmCommands) -> dict[str, str]:
    """Return slurmctld's running configuration; keys that are not set are left out.

    Keys that newer releases number, such as ``Prolog[0]`` (24.11), become one value with commas.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    settings: dict[str, str] = {}
    for line in commands.run("scontrol", "show", "config").splitlines():
        pair = re.fullmatch(r"(\w+)(\[\d+\])?\s*=\s*(.*?)\s*", line)
        if pair and pair[3] not in ("", "(null)", "N/A"):
            before = f"{settings[pair[1]]}," if pair[2] and pair[1] in settings else ""
            settings[pair[1]] = before + pair[3]
    return settings


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job's owner and state. ``ours`` says whether it has a hops comment."""

    uid: int
    state: str
    ours: bool


def look_up(commands: SlurmCommands, job: JobId) -> JobSummary | None:
    """Look up a job by its id; None if Slurm does not know it or does not answer."""
    try:
        output = commands.run(
            "squeue", "--noheader", "--all", "--states=all", f"--jobs={job}", "--format=%U %T %k"
        )
    except SlurmError:
        return None
    match = re.match(r"(\d+) (\S+) ?(.*)", output)
    return JobSummary(int(match[1]), match[2], is_ours(match[3])) if match else None


def output_path(commands: SlurmCommands, job: JobId) -> str:
    """The path of a job's output file; ``""`` if Slurm does not know it or does not answer."""
    try:
        output = commands.run("scontrol", "show", "job", job)
    except SlurmError:
        return ""
    match = re.search(r"^\s*StdOut=(/.*)$", output, re.MULTILINE)
    return match[1].strip() if match else ""


def read_cluster(commands: SlurmCommands, partitions: Sequence[str]) -> tuple[Cluster, list[str]]:
    """Return the nodes of these partitions (of all if empty), and which of them take no job now.

    A node with GPUs of several types counts as one node for each type; CPUs are left out.

    Raises:
        SlurmError: slurmctld does not answer, or no node has GPUs.
    """
    output = commands.run("scontrol", "show", "node", "-a", "-o")
    readings, _ = node_readings(records(output), partitions)
    nodes = [
        node
        for node in readings
        if "without a type" not in node.state_text and not is_cpu(node.gpu_type)
    ]
    if not nodes:
        scope = f" of partition {', '.join(partitions)}" if partitions else ""
        raise SlurmError(f"no node{scope} has GPUs of one type")
    servers = tuple(Server(node.name, node.gpu_type, node.gpus) for node in nodes)
    return Cluster(servers), [node.name for node in nodes if not node.usable]


class PrivacyReader:
    """Slurm's privacy settings, cached for a minute; thread-safe.

    While Slurm is unreachable the last known settings apply; before any are known, nothing about
    other users is shown.
    """

    def __init__(
        self, commands: SlurmCommands, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._clock = clock
        self._lock = threading.Lock()
        self._privacy = UNKNOWN
        self._operators: frozenset[str] = frozenset()
        self._next_reading = float("-inf")

    def read(self) -> Privacy:
        with self._lock:
            if self._clock() >= self._next_reading:
                with suppress(SlurmError):
                    self._privacy = self._ask()
                self._next_reading = self._clock() + KEEP_SECONDS
            return self._privacy

    def _ask(self) -> Privacy:
        conf = slurm_conf(self._commands)
        words = conf.get("PrivateData", "").lower().split(",")
        slurm_user = re.fullmatch(r".*\((\d+)\)", conf.get("SlurmUser", ""))
        if "slurmdbd" in conf.get("AccountingStorageType", ""):
            self._read_operators()
        else:
            self._operators = frozenset()
        return Privacy(
            frozenset(kind for kind in Private if kind.value in words),
            frozenset({0} | ({int(slurm_user[1])} if slurm_user else set())),
            self._operators,
        )

    def _read_operators(self) -> None:
        """Read the operators, or keep the last ones: slurmdbd may be down while slurmctld is up."""
        try:
            output = self._commands.run("sacctmgr", "-nP", "show", "user", "format=user,adminlevel")
        except SlurmError:
            return
        pairs = (line.partition("|")[::2] for line in output.splitlines())
        self._operators = frozenset(
            user for user, level in pairs if level in ("Operator", "Administrator")
        )
