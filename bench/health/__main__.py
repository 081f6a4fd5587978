"""`python -m bench.health`: how soon slow servers are named, and how often healthy ones are.

Two experiments on simulated sites (`bench/health/site.py`): a server that becomes slow, looked at
again and again as it trains on; and a large site over months, looked at every third day with the
records of the last two weeks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.health.site import DAY, SiteSettings, Slowdown, simulate
from hopsd.health.records import HealthRecords
from hopsd.health.slow import find_slow
from hopsd.sim.svg import distribution

LOSSES = (0.02, 0.03, 0.05, 0.1)
LOOKS = (600, 1200, 1800, 3600, 7200, 14_400, 28_800, 57_600, 86_400)
"""Seconds of training on the slow server after which the site is judged."""

WINDOW = 14 * DAY
DAYS_BETWEEN = 3


def detection(loss: float, sites: int, settings: SiteSettings) -> list[tuple[float, bool]]:
    """When the slow server of each site was named, in seconds of training, infinite if never; and
    whether the true factor is in its interval.
    """
    results = []
    for seed in range(sites):
        since = 2.0 * DAY
        site = replace(settings, days=4.5, slow=(Slowdown(0, loss, since),))
        records = simulate(site, seed)
        trained = np.unique([r.at for r in records.records if r.at >= since and "n0" in r.nodes])
        named = (np.inf, False)
        for look in LOOKS:
            place = int(look / settings.every) - 1
            if place >= len(trained):
                break
            found = find_slow(replace(records, now=float(trained[place])))
            mine = [slow for slow in found if slow.node == "n0"]
            if mine:
                named = look, mine[0].low <= 1.0 - loss <= mine[0].high
                break
        results.append(named)
    return results


@dataclass(slots=True)
class Watch:
    """What a watch over months said. ``false``: beginnings of verdicts on healthy servers."""

    server_days: int = 0
    looks: int = 0
    false: int = 0
    days_to_name: list[float] = field(default_factory=list)
    missed: int = 0
    covered: int = 0
    intervals: int = 0
    seconds: float = 0.0


def watch(sites: int, days: int, settings: SiteSettings) -> Watch:
    """Look at each of ``sites`` every third day; 1 % of the servers become slow at some time."""
    result = Watch()
    for seed in range(sites):
        random = np.random.default_rng((seed, 99))
        slow = tuple(
            Slowdown(int(node), float(random.choice([0.03, 0.05, 0.1])), float(at))
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
    for day in range(3, days + 1, DAYS_BETWEEN):
        now = day * DAY
        rows = slice(*np.searchsorted(at, (now - WINDOW, now)).tolist())
        began = time.perf_counter()
        named = find_slow(replace(records, now=now, records=records.records[rows]))
        result.seconds += time.perf_counter() - began
        result.looks += 1
        result.server_days += DAYS_BETWEEN * len(records.nodes)
        for verdict in named:
            truth = slow.get(verdict.node)
            if truth is None or now < truth.since:
                result.false += verdict.node not in before
                continue
            first.setdefault(verdict.node, now)
            result.intervals += 1
            result.covered += verdict.low <= 1.0 - truth.loss <= verdict.high
        before = {verdict.node for verdict in named}
    result.missed += len(slow.keys() - first.keys())
    result.days_to_name += [(at - slow[name].since) / DAY for name, at in first.items()]


def main() -> None:
    options = _options()
    print(
        "| slower by | named within 10 min | 1 h | 1 day | of training; median | interval right |"
    )
    print("|---:|---:|---:|---:|---:|---:|")
    curves: dict[str, Sequence[float]] = {}
    for loss in LOSSES:
        found = detection(loss, options.sites, SiteSettings(nodes=20))
        times = np.array([at for at, _ in found])
        named = [right for at, right in found if np.isfinite(at)]
        shares = [f"{(times <= limit).mean():.0%}" for limit in (600, 3600, 86_400)]
        median = f"{np.median(times) / 60:.0f} min" if np.isfinite(np.median(times)) else "never"
        right = f"{sum(named)} of {len(named)}"
        print(f"| {loss:.0%} | {' | '.join(shares)} | {median} | {right} |", flush=True)
        curves[f"{loss:.0%} slower"] = [at / 3600.0 for at in times if np.isfinite(at)] or [24.0]
    if options.picture:
        Path(options.picture).write_text(
            distribution("Named after", "hours of training on the slow server", curves)
        )
    groups = max(1, options.servers // 100)
    settings = SiteSettings(nodes=min(100, options.servers), every=1800.0, workloads=30)
    result = watch(groups, options.days, settings)
    rate = 1000.0 * result.false / result.server_days
    days = result.days_to_name
    median_days = f"{np.median(days):.1f}" if days else "-"
    print(
        f"\n{result.server_days} server-days, {result.looks} looks of"
        f" {result.seconds / max(result.looks, 1):.1f} s: {result.false} healthy servers named"
        f" ({rate:.2f} per 1,000 server-days); {len(days)} of {len(days) + result.missed} slow ones"
        f" named, the median after {median_days} days; {result.covered} of {result.intervals}"
        " intervals hold the truth"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health")
    parser.add_argument("--sites", type=int, default=20, help="sites for each slowdown")
    parser.add_argument("--servers", type=int, default=1000, help="watched, by hundreds")
    parser.add_argument("--days", type=int, default=90, help="for how long they are watched")
    parser.add_argument("--picture", metavar="FILE", help="write times to detection as SVG")
    options = parser.parse_args()
    if options.sites < 1 or options.servers < 10 or options.days < 20:
        parser.error("--sites from 1, --servers from 10, --days from 20")
    return options


if __name__ == "__main__":
    main()
