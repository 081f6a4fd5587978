"""`python -m bench.health`: how soon slow servers are named, and how often healthy ones are.

A large site over months (`bench/health/site.py`) is judged every sixth day by the records of the
last two weeks, and every day after a server's slowdown. `bench.health.minutes` shows what minutes
of training tell.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.health.site import DAY, SiteSettings, Slowdown, simulate
from bench.result_file import write_result
from hopsd.health.records import HealthRecords
from hopsd.health.slow import find_slow
from hopsd.sim.svg import Axis, chart

WINDOW = 14 * DAY
DAYS_BETWEEN = 6
LOSSES = (0.02, 0.03, 0.05, 0.1)


@dataclass(slots=True)
class Watch:
    """The outcome of a watch over months. ``false`` counts the verdicts on healthy servers.

    ``days_to_name`` is by loss, infinite for servers that were never named.
    """

    server_days: int = 0
    looks: int = 0
    false: int = 0
    days_to_name: dict[float, list[float]] = field(default_factory=dict)
    hits: int = 0
    intervals: int = 0
    seconds: float = 0.0


def watch(sites: int, days: int, settings: SiteSettings) -> Watch:
    """Watch each of ``sites`` simulated sites; 1 % of the servers become slow at some time."""
    result = Watch()
    for seed in range(sites):
        random = np.random.default_rng((seed, 99))
        slow = tuple(
            Slowdown(int(node), float(random.choice(LOSSES)), float(at))
            for node, at in zip(
                random.choice(settings.nodes, max(1, settings.nodes // 100), replace=False),
                random.uniform(5.0, days - 10.0, settings.nodes) * DAY,
                strict=False,
            )
        )
        records = simulate(replace(settings, days=days, slow=slow), seed)
        _watch_site(records, {f"n{s.node}": s for s in slow}, days, result)
    return result


def _watch_site(
    records: HealthRecords, slow: Mapping[str, Slowdown], days: int, result: Watch
) -> None:
    at = np.array([record.at for record in records.records])
    first: dict[str, float] = {}
    before: set[str] = set()
    regular = set(range(DAYS_BETWEEN, days + 1, DAYS_BETWEEN))
    for day in range(3, days + 1):
        now = day * DAY
        waiting = [
            name
            for name, truth in slow.items()
            if name not in first and 0.0 < now - truth.since < 5.0 * DAY
        ]
        if day not in regular and not waiting:
            continue
        rows = slice(*np.searchsorted(at, (now - WINDOW, now)).tolist())
        began = time.process_time()
        slow_nodes = find_slow(replace(records, now=now, records=records.records[rows]))
        result.seconds += time.process_time() - began
        result.looks += 1
        for verdict in slow_nodes:
            truth = slow.get(verdict.node)
            if truth is None or now < truth.since:
                result.false += verdict.node not in before
                continue
            first.setdefault(verdict.node, now)
            result.intervals += 1
            result.hits += verdict.low <= 1.0 - truth.loss <= verdict.high
        before = {verdict.node for verdict in slow_nodes}
    result.server_days += days * len(records.nodes)
    for name, truth in slow.items():
        days_to_name = (first.get(name, np.inf) - truth.since) / DAY
        result.days_to_name.setdefault(truth.loss, []).append(days_to_name)


def main() -> None:
    options = _options()
    settings = SiteSettings(nodes=min(100, options.servers), interval=3600.0, workloads=30)
    result = watch(max(1, options.servers // 100), options.days, settings)
    rows = [
        f"| {loss:.0%} | {len(days)} | {_share(days, 1)} | {_share(days, 2)} | {_share(days, 7)} |"
        f" {_share(days, np.inf)} |"
        for loss, days in sorted(result.days_to_name.items())
    ]
    rate = 1000.0 * result.false / result.server_days
    text = "\n".join(
        [
            f"{options.servers:,} servers, {options.days} days, a report an hour; 1 % become slow.",
            "",
            "| slower by | servers | named within a day | 2 days | 7 days | ever |",
            "|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
            (
                f"{result.looks} looks of {result.seconds / max(result.looks, 1):.1f} CPU s;"
                f" {result.false} times a healthy server was named ({rate:.3f} in 1,000"
                f" server-days); {result.hits} of {result.intervals} intervals hold the truth."
            ),
        ]
    )
    print(text)
    write_result("health_site", "Slow servers on a large site", text)
    if options.picture:  # afterwards, or the result would be of a changed working tree
        Path(options.picture).write_text(_picture(result.days_to_name))


def _picture(days_to_name: Mapping[float, Sequence[float]]) -> str:
    """Draw the share of slow servers that are named, by days since they became slow."""
    curves = {}
    for loss, days in sorted(days_to_name.items()):
        finite = sorted(day for day in days if np.isfinite(day))
        steps = [(day, (i + 1) / len(days)) for i, day in enumerate(finite)]
        curves[f"{loss:.0%} slower"] = [(0.0, 0.0), *steps]
    high = max((day for curve in curves.values() for day, _ in curve), default=1.0)
    axes = Axis("days since it became slow", 0.0, high), Axis("share named", 0.0, 1.0)
    return chart("Slow servers named", *axes, curves, steps=True, legend_below=True)


def _share(days: Sequence[float], limit: float) -> str:
    return f"{sum(day <= limit and day < np.inf for day in days)}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health")
    parser.add_argument("--servers", type=int, default=1000, help="watched, by hundreds")
    parser.add_argument("--days", type=int, default=90, help="for how long they are watched")
    parser.add_argument("--picture", metavar="FILE", help="write times to detection as SVG")
    options = parser.parse_args()
    if options.servers < 10 or options.days < 20:
        parser.error("--servers from 10, --days from 20")
    return options


if __name__ == "__main__":
    main()
