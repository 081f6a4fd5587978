"""Computes the positions of what the pages draw; templates write them as SVG."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType
from hopsd.model.journal import PlanSummary
from hopsd.model.reason import clock

Document = Mapping[str, Any]

COLOURS = 24
"""hops.css has classes ``c0`` to ``c23``."""


def colour(job: str) -> int:
    """Return a job's colour, the same on every page; consecutive ids get contrasting colours."""
    number, _, task = job.partition("_")
    if number.isdigit() and (not task or task.isdigit()):
        return (int(number) + int(task or 0)) % COLOURS
    return zlib.crc32(job.encode()) % COLOURS


@dataclass(frozen=True, slots=True)
class GpuTypeRows:
    """The nodes of one GPU type."""

    name: str
    unit: str
    nodes: Sequence[Document]
    gpus: int
    idle: int


def by_type(nodes: Iterable[Document]) -> list[GpuTypeRows]:
    """Group nodes by GPU type: GPUs before CPUs, otherwise in the cluster's order."""
    groups: dict[str, list[Document]] = {}
    for node in nodes:
        groups.setdefault(node["gpu_type"], []).append(node)
    kinds = [
        GpuTypeRows(
            name,
            "CPUs" if is_cpu(GpuType(name)) else "GPUs",
            group,
            sum(node["gpus"] for node in group),
            sum(node["idle"] for node in group if node["usable"]),
        )
        for name, group in groups.items()
    ]
    return sorted(kinds, key=lambda kind: kind.unit != "GPUs")


@dataclass(frozen=True, slots=True)
class GpuStrip:
    """Adjacent GPUs of a node. ``css_class``: a job's colour, foreign, idle, off or hidden."""

    start: int
    gpus: int
    css_class: str


def parts(node: Document) -> list[GpuStrip]:
    """Divide a node's GPUs from left to right, jobs first, since Slurm does not number them."""
    node_parts, start = [], 0
    remainder = "idle" if node["usable"] else "off"
    for css_class, gpus in (
        *((f"c{colour(job)}", gpus) for job, gpus in node["jobs"].items()),
        ("foreign", node["foreign"]),
        (remainder, node["gpus"]),
    ):
        gpus = min(gpus, node["gpus"] - start)  # noqa: PLW2901 - the last strip gets the rest
        if css_class == remainder:
            gpus = min(gpus, node["idle"])  # noqa: PLW2901
        if gpus > 0:
            node_parts.append(GpuStrip(start, gpus, css_class))
            start += gpus
    if start < node["gpus"]:  # GPUs of jobs that this reader may not see
        node_parts.append(GpuStrip(start, node["gpus"] - start, "hidden"))
    return node_parts


def describe_node(node: Document) -> str:
    """Describe the picture of a node in words."""
    phrases = [f"{gpus} of job {job}" for job, gpus in node["jobs"].items()]
    if node["foreign"]:
        phrases.append(f"{node['foreign']} of plain Slurm jobs")
    hidden_gpus = node["gpus"] - node["idle"] - node["foreign"] - sum(node["jobs"].values())
    if hidden_gpus > 0:
        phrases.append(f"{hidden_gpus} of jobs that are not shown to you")
    if node["idle"]:
        phrases.append(f"{node['idle']} idle")
    return f"{node['gpus']}: " + ", ".join(phrases)


def turn(doc: Document, row: Document | None) -> str | None:
    """Say in a sentence where the job stood in the last plan's queue; None if there is no more."""
    if row is None or doc["round"] is None:
        return None
    plan_round = doc["round"]
    if row["id"] in plan_round["window"]:
        position = plan_round["window"].index(row["id"]) + 1
        if doc.get("private"):
            return "It was in the service window of the last plan."
        size = len(plan_round["window"])
        return f"It was number {position} of {size} in the last plan's service window."
    if row["id"] in plan_round["adjusted"]:
        return (
            "It was outside the service window, and was let in since other jobs' sensitivity left"
            " GPUs for it."
        )
    return None


@dataclass(frozen=True, slots=True)
class StretchBox:
    """A period that a job spent on the same GPUs; ``x`` and ``width`` are out of 1000."""

    x: float
    width: float
    gpus: int
    placement: Document


@dataclass(frozen=True, slots=True)
class TimelineDrawing:
    """``begin`` and ``end`` are in seconds since 1970; ``max_gpus`` is the maximum at one time."""

    begin: float
    end: float
    max_gpus: int
    stretches: Sequence[StretchBox]


def timeline(
    placements: Sequence[Document], submit: float, now: float | None
) -> TimelineDrawing | None:
    """Draw a job's placements from its submission to now, or to its end."""
    if not placements:
        return None
    all_ended = all(placement["end"] is not None for placement in placements)
    ends = [placement["end"] for placement in placements if placement["end"] is not None]
    end = max([*ends, *([] if all_ended or now is None else [now]), placements[-1]["start"]])
    begin = min(submit, placements[0]["start"])
    scale = 1000.0 / max(end - begin, 1.0)
    stretches = [
        StretchBox(
            (placement["start"] - begin) * scale,
            max(
                2.0,
                ((end if placement["end"] is None else placement["end"]) - placement["start"])
                * scale,
            ),
            sum(placement["nodes"].values()),
            placement,
        )
        for placement in placements
    ]
    return TimelineDrawing(begin, end, max(stretch.gpus for stretch in stretches), stretches)


@dataclass(frozen=True, slots=True)
class Speed:
    """Samples per second of a whole job in one shape; ``low`` and ``high`` bound the 80 % interval.
    ``x``, ``from_x``, ``to_x`` and ``measured_x`` are these speeds as positions out of 1000.
    """

    gpu_type: str
    gpus: int
    nodes: int
    rate: float
    low: float | None
    high: float | None
    measured: float | None
    records: int
    source: str
    now: bool
    scale: float

    @property
    def x(self) -> float:
        return self.rate * self.scale

    @property
    def from_x(self) -> float:
        return (self.low if self.low is not None else self.rate) * self.scale

    @property
    def to_x(self) -> float:
        return min(1000.0, (self.high if self.high is not None else self.rate) * self.scale)

    @property
    def measured_x(self) -> float:
        return (self.measured or 0.0) * self.scale


def speeds(
    types: Sequence[Document], row: Document | None, nodes: Sequence[Document]
) -> list[Speed]:
    """Return the expected speeds of the shapes that the job requests or that were measured."""
    reqs = set(row["reqs"]) if row else set()
    placement = row["placement"] if row else {}
    types_in_use = {node["gpu_type"] for node in nodes if node["name"] in placement}
    present_shape = (sum(placement.values()), len(placement))
    rows = []
    for kind in types:
        for shape in kind["shapes"]:
            is_gpu_shape = shape["kind"] == "gpus"
            gpus = shape["count"] if is_gpu_shape else shape.get("gpus")
            if gpus is None or not (shape["type"] or gpus in reqs):
                continue
            servers = 1 if is_gpu_shape else shape["count"]
            low, high = shape.get("between") or (None, None)
            record = shape["type"]
            rows.append(
                {
                    "gpu_type": kind["gpu_type"],
                    "gpus": gpus,
                    "nodes": servers,
                    "rate": shape["per_gpu"] * gpus,
                    "low": None if low is None else low * gpus,
                    "high": None if high is None else high * gpus,
                    "measured": record["per_gpu"] * gpus if record else None,
                    "records": record["records"] if record else 0,
                    "source": shape["source"],
                    "now": types_in_use == {kind["gpu_type"]} and (gpus, servers) == present_shape,
                }
            )
    ends = (max(values["rate"] * 1.6, values["measured"] or 0.0) for values in rows)
    largest = max(ends, default=1.0)
    rows.sort(key=lambda values: (values["gpu_type"], values["gpus"], values["nodes"]))
    return [Speed(**values, scale=1000.0 / (largest or 1.0)) for values in rows]


@dataclass(frozen=True, slots=True)
class ObjectiveCourse:
    """Points of the last plans' objectives and bounds, from left to right, in a box of 1000 by
    100; ``top`` is the largest of all values.
    """

    objective: str
    bound: str
    top: float


def course(plans: Sequence[PlanSummary]) -> ObjectiveCourse | None:
    if len(plans) < 2:
        return None
    oldest_first = list(reversed(plans))
    top = max(max(plan.upper_bound, plan.objective) for plan in plans) or 1.0
    step = 1000.0 / (len(plans) - 1)

    def points(values: Iterable[float]) -> str:
        return " ".join(
            f"{i * step:.1f},{100.0 - 100.0 * max(0.0, value) / top:.1f}"
            for i, value in enumerate(values)
        )

    return ObjectiveCourse(
        points(plan.objective for plan in oldest_first),
        points(plan.upper_bound for plan in oldest_first),
        top,
    )


@dataclass(frozen=True, slots=True)
class PeriodBar:
    """The bar of one period, at ``x`` and ``width`` wide in a box of 1000 by 100. ``parts`` are
    the y, height and CSS class of each part, from the bottom; ``title`` has the figures in words.
    """

    x: float
    width: float
    parts: Sequence[tuple[float, float, str]]
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """``top`` is the value that the box's height stands for."""

    name: str
    unit: str
    top: float
    bars: Sequence[PeriodBar]


USES = {
    "hops": "jobs of hops",
    "plain": "plain Slurm jobs",
    "fragmented": "idle while jobs waited",
    "idle": "idle",
    "down": "down",
}
"""Fields of `GpuUse` in the order in which they are drawn, and their labels."""


def bars(past: Document) -> list[Chart]:
    """Chart the use of each GPU type, the queue, and the waits of jobs that ended."""
    queue = past["queue"]
    charts = []
    types: dict[str, dict[float, Document]] = {}
    for row in past["use"] or ():
        types.setdefault(row["gpu_type"], {})[row["hour"]] = row
    starts = [period["start"] for period in queue]
    for gpu_type, rows in types.items():
        # Percent of the GPU time that hopsd saw: it may have been down, or the hour is not over.
        stacks = [_shares(rows[start]) if start in rows else [] for start in starts]
        charts.append(_chart(gpu_type, "% of its GPU time", starts, stacks, USES))
    waiting = [[(period["waiting"], "queue")] for period in queue]
    charts.append(_chart("Jobs waiting", "on average", starts, waiting, {"queue": "waiting"}))
    hours = [[((period["wait_seconds"] or 0.0) / 3600.0, "queue")] for period in queue]
    charts.append(_chart("Wait of jobs that ended", "hours", starts, hours, {"queue": "hours"}))
    return charts


def _shares(row: Document) -> list[tuple[float, str]]:
    total = sum(row[use] for use in USES)
    return [(100.0 * row[use] / total, use) for use in USES] if total else []


def _chart(
    name: str,
    unit: str,
    starts: Sequence[float],
    stacks: Sequence[Sequence[tuple[float, str]]],
    words: Mapping[str, str],
) -> Chart:
    top = max((sum(value for value, _ in stack) for stack in stacks), default=0.0) or 1.0
    width = 1000.0 / max(len(starts), 1)
    elements = []
    for position, (start, stack) in enumerate(zip(starts, stacks, strict=True)):
        parts, height = [], 0.0
        for value, css_class in stack:
            size = 100.0 * value / top
            height += size
            parts.append((100.0 - height, size, css_class))
        figures = ", ".join(f"{value:.3g} {words[css]}" for value, css in stack if value)
        elements.append(
            PeriodBar(position * width, width * 0.9, parts, f"{clock(start)}: {figures or '-'}")
        )
    return Chart(name, unit, top, elements)
