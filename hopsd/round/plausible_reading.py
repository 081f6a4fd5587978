"""Bounds checks on Slurm's answers: a job or node with an implausible number is set aside by name.

The job or node stays in the reading, with a harmless number, since its GPUs are taken; no plan uses
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from hopsd.model import bounds
from hopsd.model.allocation import Allocation
from hopsd.model.bounds import ValueRange
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, NodeReading, Reading
from hopsd.model.reason import Reason, ReasonCode

_JOB: Mapping[str, ValueRange] = {
    "submit": bounds.EPOCH,
    "begin": bounds.EPOCH,
    "start": bounds.EPOCH,
    "end": bounds.EPOCH,
    "time_limit_seconds": bounds.DURATION,
    "restarts": bounds.RESTARTS,
}
_NODE: Mapping[str, ValueRange] = {
    "gpus": ValueRange(0, bounds.GPUS.maximum),
    "foreign_gpus": ValueRange(0, bounds.GPUS.maximum),
    "cores": ValueRange(0, bounds.ITERATIONS.maximum),
    "threads": ValueRange(1, bounds.GPUS.maximum),
    "reserved_from": bounds.EPOCH,
}
_HARMLESS = {"time_limit_seconds": None, "reserved_from": None, "threads": 1}
"""Replacements for numbers out of bounds; other fields get 0."""


@dataclass(frozen=True, slots=True)
class Plausible:
    """A ``reading`` that is safe to plan; ``aside``: the jobs to leave out of plans, and why."""

    reading: Reading
    aside: Mapping[JobId, Reason]


def plausible(reading: Reading) -> Plausible:
    """Set aside the jobs and nodes of ``reading`` whose numbers are out of bounds.

    Implausible nodes are treated as down, with the reason in their state.
    """
    asides: dict[JobId, Reason] = {}
    jobs = []
    for job in reading.jobs:
        wrong = _wrong(job, _JOB) or _wrong_allocation(job)
        if wrong:
            asides[job.id] = Reason(ReasonCode.ERROR, f"set aside: Slurm reports its {wrong}")
            job = _job(job)  # noqa: PLW2901
        jobs.append(_printable(job))
    nodes = tuple(_node(node) for node in reading.nodes)
    return Plausible(replace(reading, nodes=nodes, jobs=tuple(jobs)), asides)


def _wrong(value: object, bounds_by_field: Mapping[str, ValueRange]) -> str:
    """Describe the first number out of bounds, as in ``start as -1, not 0 to 1e11``; "" if none."""
    for name, bound in bounds_by_field.items():
        number = getattr(value, name)
        if number is not None and not bound.holds(number):
            return f"{name} as {number!r:.40}, not {bound}"
    return ""


def _wrong_allocation(job: JobReading) -> str:
    for node, gpus in job.allocation:
        if not bounds.GPUS.holds(gpus):
            return f"GPUs on {node} as {gpus!r:.40}, not {bounds.GPUS}"
    return ""


def _harmless(value: object, bounds_by_field: Mapping[str, ValueRange]) -> dict[str, Any]:
    return {
        name: _HARMLESS.get(name, 0)
        for name, bound in bounds_by_field.items()
        if (number := getattr(value, name)) is not None and not bound.holds(number)
    }


def _job(job: JobReading) -> JobReading:
    allocation = Allocation(tuple((n, g) for n, g in job.allocation if bounds.GPUS.holds(g)))
    return replace(job, allocation=allocation, **_harmless(job, _JOB))


def _node(node: NodeReading) -> NodeReading:
    wrong = _wrong(node, _NODE)
    if not wrong:
        return node
    text = f"{node.state_text} (set aside: Slurm reports its {wrong})"
    return replace(node, usable=False, state_text=text, **_harmless(node, _NODE))


_TEXTS = tuple(field.name for field in fields(JobReading) if field.type in ("str", "UserName"))
_texts_of = attrgetter(*_TEXTS)


def _printable(job: JobReading) -> JobReading:
    """Return the job with texts that a database can hold: valid Unicode without null characters."""
    if _clean("".join(_texts_of(job))):
        return job
    bad = [name for name in _TEXTS if not _clean(getattr(job, name))]
    texts = {name: _printable_text(getattr(job, name)) for name in bad}
    return replace(job, **texts)  # type: ignore[arg-type]


def _clean(text: str) -> bool:
    return (text.isascii() and "\0" not in text) or _printable_text(text) == text


def _printable_text(text: str) -> str:
    return text.replace("\0", "?").encode(errors="replace").decode()
