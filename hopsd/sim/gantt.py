"""Draws a Gantt chart: which job held which GPUs, where GPUs were idle, how many jobs waited."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from zlib import crc32

from hopsd.model.ids import JobId
from hopsd.model.scenario import Cluster
from hopsd.sim.metrics import AllocationChange, GpuHold, RoundState, holds_by_job

WIDTH, LEFT, GPU_HEIGHT, GAP, STRIP = 1160, 150, 5, 3, 26


def gantt(
    cluster: Cluster, changes: Sequence[AllocationChange], rounds: Sequence[RoundState]
) -> str:
    """Draw an SVG: a band per server, a lane per GPU, a rectangle per stretch of a job.

    A black edge marks a stretch that began with a restart. White inside a band is idle. The
    strips above show waiting jobs and, in red, GPUs that are idle although jobs wait.
    """
    end = changes[-1].time if changes else 1.0
    start = min((change.time for change in changes), default=0.0)
    scale = (WIDTH - LEFT - 10) / max(end - start, 1e-9)
    tops, top = {}, 2 * STRIP + 14
    parts = [_strips(rounds, start, scale, end)]
    for server in cluster.servers:
        tops[server.name] = top
        height = server.gpus * GPU_HEIGHT
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 10}" height="{height}"'
            ' fill="#fff" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{top + height / 2 + 4}" text-anchor="end">'
            f"{escape(server.name)}</text>"
        )
        top += height + GAP
    lanes = {server.name: [start] * server.gpus for server in cluster.servers}
    for job, hold, is_restart in _in_order(changes):
        for node, gpus in hold.allocation:
            parts += [
                _bar(job, hold, tops[node] + lane * GPU_HEIGHT, start, scale, is_restart=is_restart)
                for lane in _take(lanes[node], hold, gpus)
            ]
    parts.append(_hours(start, end, scale, top))
    return f'<svg class="gantt" viewBox="0 0 {WIDTH} {top + 24}" role="img">{"".join(parts)}</svg>'


def _in_order(changes: Sequence[AllocationChange]) -> list[tuple[JobId, GpuHold, bool]]:
    """Return stretches ordered by start, and whether the job of each had run before."""
    holds_by_node = [
        (job, hold, number > 0)
        for job, holds in holds_by_job(changes).items()
        for number, hold in enumerate(holds)
    ]
    return sorted(holds_by_node, key=lambda f: (f[1].start, f[1].end, f[0]))


def _take(lanes: list[float], hold: GpuHold, gpus: int) -> list[int]:
    """Take lanes of a server that are free from the start of ``hold`` on."""
    free = [i for i, until in enumerate(lanes) if until <= hold.start + 1e-9][:gpus]
    for lane in free:
        lanes[lane] = hold.end
    return free


def _bar(
    job: JobId, hold: GpuHold, top: float, start: float, scale: float, *, is_restart: bool
) -> str:
    x = LEFT + (hold.start - start) * scale
    width = max(0.4, (hold.end - hold.start) * scale)
    hue = crc32(job.encode()) % 360
    edge = f'<rect x="{x:.1f}" y="{top}" width="1" height="{GPU_HEIGHT - 1}"/>'
    return (
        f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{GPU_HEIGHT - 1}"'
        f' fill="hsl({hue} 55% 62%)"><title>job {escape(job)} on {escape(str(hold.allocation))},'
        f" {hold.start / 3600:.2f} h to {hold.end / 3600:.2f} h</title></rect>"
        + (edge if is_restart else "")
    )


def _strips(rounds: Sequence[RoundState], start: float, scale: float, end: float) -> str:
    """Draw waiting jobs and fragments, round by round."""
    parts = []
    rows = (
        ("jobs waiting", "#7a8ca3", [r.queued for r in rounds]),
        ("fragments", "#d1495b", [r.fragments for r in rounds]),
    )
    for number, (label, colour, values) in enumerate(rows):
        base = (number + 1) * STRIP + 4
        maximum = max(values, default=0) or 1
        parts.append(f'<text x="{LEFT - 6}" y="{base - 6}" text-anchor="end">{label}</text>')
        for i, value in enumerate(values):
            x = LEFT + (max(rounds[i].time, start) - start) * scale
            end_time = rounds[i + 1].time if i + 1 < len(rounds) else end
            height = (STRIP - 6) * value / maximum
            if value:
                parts.append(
                    f'<rect x="{x:.1f}" y="{base - height:.1f}" fill="{colour}"'
                    f' width="{max(0.5, (end_time - rounds[i].time) * scale):.1f}"'
                    f' height="{height:.1f}"><title>{value}</title></rect>'
                )
    return "".join(parts)


def _hours(start: float, end: float, scale: float, top: float) -> str:
    hours = (end - start) / 3600.0
    step = next((s for s in (0.1, 0.25, 0.5, 1, 2, 5, 10, 24, 48, 168) if hours / s <= 16), 720)
    parts = []
    for number in range(int(hours / step) + 1):
        x = LEFT + number * step * 3600.0 * scale
        parts.append(
            f'<path d="M{x:.1f} {top}v5" stroke="#888"/>'
            f'<text x="{x:.1f}" y="{top + 18}" text-anchor="middle">{number * step:g} h</text>'
        )
    return "".join(parts)
