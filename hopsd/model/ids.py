"""Identifier types, distinct so that mypy tells them apart, and the task numbers of job arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NewType

JobId = NewType("JobId", str)
NodeName = NewType("NodeName", str)
GpuType = NewType("GpuType", str)
UserName = NewType("UserName", str)
WorkloadName = NewType("WorkloadName", str)
AppName = NewType("AppName", str)
RackName = NewType("RackName", str)


def script_of(workload: WorkloadName) -> str:
    """Return the name that all versions of a program share: up to the last ``+``, "" if none."""
    return workload.rpartition("+")[0]


def part_of(host: NodeName, gpu_type: GpuType) -> NodeName:
    """Name the GPUs of one type on a node with several: ``n0/a100``; Slurm's names have no '/'."""
    return NodeName(f"{host}/{gpu_type}")


def host_of(node: NodeName) -> NodeName:
    """Return Slurm's name of a node."""
    return NodeName(node.partition("/")[0])


_LAST = 2**63


def job_order(job: JobId) -> tuple[int, int, int, str]:
    """Return a sort key for job ids: numeric ids compare as numbers and come first.

    Tasks (``17_4``) are in numeric order, followed by their array (``17``).
    """
    number, mark, task = job.partition("_")
    if _is_number(number) and (not mark or _is_number(task)):
        return 0, int(number), int(task) if mark else _LAST, job
    return 1, 0, 0, job


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class Tasks:
    """Task numbers of an array, ascending, as disjoint ``ranges``: there may be a million."""

    ranges: tuple[range, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Tasks:
        """Parse Slurm's notation: ``0-98:2``, ``1,3-5%8``.

        Slurm may abbreviate it, as in ``0,2,4...%8``; the tasks left out are missing here, too.
        """
        items = text.strip("[]").partition("%")[0].split(",")
        if items[-1].endswith("..."):
            del items[-1]  # the last number may be cut off
        matches = filter(None, map(_RANGE.fullmatch, items))
        ranges = (
            range(int(a), int(b or a) + 1, max(1, int(s or 1))) for a, b, s in _groups(matches)
        )
        return cls(tuple(filter(None, ranges)))

    @classmethod
    def from_numbers(cls, numbers: Iterable[int]) -> Tasks:
        ranges: list[range] = []
        for number in sorted(numbers):
            if ranges and ranges[-1].stop == number:
                ranges[-1] = range(ranges[-1].start, number + 1)
            else:
                ranges.append(range(number, number + 1))
        return cls(tuple(ranges))

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.ranges)

    def __contains__(self, number: object) -> bool:
        return any(number in part for part in self.ranges)

    def first(self, count: int) -> list[int]:
        return list(islice(self, count))

    def without_first(self, count: int) -> Tasks:
        remaining = []
        for part in self.ranges:
            remaining.append(part[count:])
            count = max(0, count - len(part))
        return Tasks(tuple(filter(None, remaining)))

    def __str__(self) -> str:
        return ",".join(map(_text, self.ranges))


NO_TASKS = Tasks()


def _groups(ranges: Iterable[re.Match[str]]) -> Iterator[tuple[str, str | None, str | None]]:
    return ((match[1], match[2], match[3]) for match in ranges)


def _text(part: range) -> str:
    if len(part) == 1:
        return str(part[0])
    return f"{part[0]}-{part[-1]}" + (f":{part.step}" if part.step > 1 else "")
