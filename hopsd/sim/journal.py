"""Records plans as they are made, so that an interrupted run can be resumed.

A simulation is a pure function of its inputs and of the policy's answers. To resume, the run is
replayed from its start with the recorded answers, which costs no planning, and continues with
the policy where they end.

Each line begins with a checksum of itself and all lines before it. So a journal is valid up to its
first damaged line, even if the machine crashed.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import IO, Any
from zlib import crc32

from hopsd.errors import InputError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.protocol import Policy
from hopsd.policies.wrapper import Wrapper


def fingerprint(*inputs: object) -> str:
    """Hash a run's inputs; equal inputs have equal hashes."""
    return sha256(repr(inputs).encode()).hexdigest()[:16]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a lock that keeps other processes from simulating into ``folder`` at the same time.

    Raises:
        InputError: if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another simulation is writing there") from None
        yield


@dataclass(slots=True)
class _Lines:
    """Writes to a journal; ``checksum`` covers all of it, ``count`` is its number of lines."""

    file: IO[bytes]
    checksum: int = 0
    count: int = 0

    def write(self, entry: object) -> None:
        text = json.dumps(entry).encode() + b"\n"
        self.checksum = crc32(text, self.checksum)
        self.file.write(b"%08x " % self.checksum + text)
        self.file.flush()
        self.count += 1


class JournaledPolicy(Wrapper):
    """A policy that first replays the plans in ``old``, then records its own to ``lines``."""

    def __init__(self, policy: Policy, lines: _Lines, old: Iterator[dict[str, Any]]) -> None:
        super().__init__(policy)
        self._lines, self._old = lines, old

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        entry = next(self._old, None)
        if entry is not None:
            if (entry["time"], entry["first"]) != (snapshot.now, snapshot.round.first):
                raise InputError(
                    f"{self._lines.file.name} belongs to another run; remove it, or run without"
                    " --resume"
                )
            placements = _placements(snapshot, entry["changes"])
            return Plan(placements, gap=entry["gap"], seconds={"total": entry["seconds"]})
        began = perf_counter()
        plan = self._policy(snapshot, settings)
        plan = replace(plan, seconds={"total": perf_counter() - began})
        entry = {
            "time": snapshot.now,
            "first": snapshot.round.first,
            "gap": plan.gap,
            "seconds": plan.seconds["total"],
            "changes": _changes(snapshot, plan),
        }
        self._lines.write(entry)
        return plan


def _changes(snapshot: Snapshot, plan: Plan) -> dict[JobId, dict[NodeName, int]]:
    """Return the placements that differ from the present ones; an empty one stops the job. Full
    plans with a thousand running jobs each would take gigabytes for a year.
    """
    empty = Allocation()
    return {
        job.id: allocation.as_dict()
        for job in snapshot.jobs
        if (allocation := plan.placements.get(job.id, empty)) != job.running
    }


def _placements(snapshot: Snapshot, changes: dict[str, dict[str, int]]) -> dict[JobId, Allocation]:
    """Rebuild a plan's placements from its changes."""
    placements = {job.id: job.running for job in snapshot.jobs}
    placements |= {JobId(job): Allocation.of(allocation) for job, allocation in changes.items()}
    return {job: allocation for job, allocation in placements.items() if allocation}


@contextmanager
def journal_policy(policy: Policy, path: Path, run: str, *, resume: bool) -> Iterator[Policy]:
    """Add to ``policy`` a journal at ``path``; ``run`` is the fingerprint of the run's inputs.

    Raises:
        InputError: if the journal to resume from was written by a run with other inputs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"run": run, "plans": "changes"}
    with path.open("a+b" if resume else "w+b") as file, path.open("rb") as old:
        lines = _valid(file)
        entries = (json.loads(line[9:]) for line in old)
        first = next(entries, None)
        if first is None:
            lines.write(header)
        elif first != header:
            raise InputError(
                f"{path} was written by a run with other inputs, or by another version of hops;"
                " remove it, or run without --resume"
            )
        yield JournaledPolicy(policy, lines, islice(entries, lines.count - 1))


def _valid(file: IO[bytes]) -> _Lines:
    """Read a journal's valid lines and truncate the file after them."""
    lines, size = _Lines(file), 0
    file.seek(0)
    for line in file:
        checksum = crc32(line[9:], lines.checksum)
        if line[:9] != b"%08x " % checksum:
            break
        lines.checksum = checksum
        lines.count += 1
        size += len(line)
    file.truncate(size)
    return lines
