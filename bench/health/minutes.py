"""`python -m bench.health.minutes`: what ten minutes of training tell of a server that grows slow.

Servers of simulated sites lose 5 % (`--loss`); each is judged after ten minutes of training on it.
The table shows, by what ran there, how many are named, and how many the best test could name that
knows everything except what it looks for, with one false alarm in 1,000 server-days. A second
experiment counts the false alarms of `hopsd.health.sudden` on healthy sites, asking it every ten
minutes.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from bench.health.site import DAY, GPUS, SiteSettings, Slowdown, simulate
from bench.result_file import write_result
from hopsd.health.measurements import node_types, read_columns
from hopsd.health.records import HealthRecords, SpeedRecord
from hopsd.health.slow import find_slow
from hopsd.health.sudden import RunSeries, find_changes

TRAINING = 600.0
ONSET = 0.75 * DAY
SITE = SiteSettings(nodes=20, days=1.0)
LOOK_SECONDS = 600.0
FALSE_ALARMS = 1e-3
"""False alarms in a server-day."""


def judge(seed: int, loss: float, *, ranks: bool) -> tuple[str, bool, int, bool] | None:
    """Return what ran on the slow server, whether it was named after ten minutes, how many healthy
    servers were, and whether the interval holds the truth; None if nothing trained that long on it.
    """
    site = replace(SITE, ranks=ranks, slow=(Slowdown(0, loss, ONSET),))
    records = simulate(site, seed)
    node_records = [r for r in records.records if "n0" in r.nodes and r.at >= ONSET]
    minutes = np.unique([r.at // site.interval for r in node_records])
    place = round(TRAINING / site.interval) - 1
    if len(minutes) <= place:
        return None
    now = float(minutes[place] + 1) * site.interval
    slow = {verdict.node: verdict for verdict in find_slow(replace(records, now=now))}
    verdict = slow.pop(records.nodes[0].name, None)
    right = verdict is not None and verdict.low <= 1.0 - loss <= verdict.high
    return _situation(records, now), verdict is not None, len(slow), right


def _situation(records: HealthRecords, now: float) -> str:
    """Describe what trained on the first server in the ten minutes before ``now``."""
    node_records = [r for r in records.records if "n0" in r.nodes and r.at <= now]
    jobs: dict[str, list[SpeedRecord]] = defaultdict(list)
    for record in node_records:
        if record.at >= ONSET:
            jobs[record.job].append(record)
    longest = max(jobs.values(), key=len)
    record = longest[0]
    job_times = [r.at for r in node_records if r.job == record.job]
    age = "goes on" if min(job_times) < ONSET - TRAINING else "is new"
    if len(record.nodes) > 1:
        return f"a job on several servers, {'with' if record.ranks else 'without'} ranks, {age}"
    part = "the whole server" if record.nodes[records.nodes[0].name] == GPUS else "part of it"
    return f"a job on {part}, {age}"


def at_best(situation: str, loss: float) -> float:
    """Return the largest possible probability of naming a server that loses ``loss``.

    Neyman and Pearson: if everything else is known, the test of the mean is the most powerful of
    all tests with the same false alarms. A new run's own deviation is unknown; beside other jobs it
    is also unknown whether they slow it down. A job on k servers that reports no ranks shows which
    one is slow with probability 1/k.
    """
    records = TRAINING / SITE.interval
    variance = SITE.noise**2 / records
    if "with ranks" in situation:
        variance = (SITE.noise / 2.0) ** 2 / records
    if "is new" in situation:
        variance += SITE.run**2
    if "part" in situation and "is new" in situation:
        variance += SITE.busy**2 * 0.4 * 0.6
    chances = DAY / TRAINING
    threshold = NormalDist().inv_cdf(1.0 - FALSE_ALARMS / chances)
    power = NormalDist().cdf(-np.log1p(-loss) / np.sqrt(variance) - threshold)
    return power / 3.0 if "without ranks" in situation else power


def healthy(servers: int, days: int, seed: int) -> tuple[int, int]:
    """Simulate healthy servers; return server-days, and how often a verdict on one began."""
    alarms = 0
    for day in range(days):
        records = simulate(SiteSettings(nodes=servers, days=1.25), seed + day)
        columns, types = read_columns(records), node_types(records.nodes)
        series = RunSeries(columns, types)
        before: set[int] = set()
        for now in np.arange(0.25 * DAY, 1.25 * DAY, LOOK_SECONDS).tolist():
            changed_nodes = set(find_changes(series, now))
            alarms += len(changed_nodes - before)
            before = changed_nodes
    return servers * days, alarms


def main() -> None:
    options = _options()
    began = time.process_time()
    hits: dict[str, list[bool]] = defaultdict(list)
    false = judgements = right = 0
    for seed in range(options.sites):
        for ranks in (False, True):
            if (verdict := judge(seed, options.loss, ranks=ranks)) is not None:
                situation, sure, wrong, holds = verdict
                hits[situation].append(sure)
                false += wrong
                right += holds
                judgements += SITE.nodes - 1
    rows = [
        f"| {situation} | {len(item)} | {sum(item)} | {np.mean(item):.0%} |"
        f" {at_best(situation, options.loss):.0%} |"
        for situation, item in sorted(hits.items())
    ]
    days, alarms = healthy(options.servers, options.days, options.sites)
    total = sum(sum(item) for item in hits.values())
    text = "\n".join(
        [
            (
                f"{options.sites} sites with ranks and {options.sites} without; a server that loses"
                f" {options.loss:.0%}, a report a minute with noise of {SITE.noise:.0%}, judged"
                " after ten minutes of training on it."
            ),
            "",
            "| on it trained | servers | named | part | at best |",
            "|---|---:|---:|---:|---:|",
            *rows,
            "",
            (
                f"{right} of {total} intervals hold the truth; {false} of {judgements:,} healthy"
                " servers were named."
            ),
            "",
            (
                f"Healthy servers, asked every ten minutes for sudden changes: {alarms} named in"
                f" {days:,} server-days. {time.process_time() - began:.0f} CPU s in all."
            ),
        ]
    )
    print(text)
    write_result("health_minutes", "Slow servers after ten minutes of training", text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health.minutes")
    parser.add_argument("--loss", type=float, default=0.05)
    parser.add_argument("--sites", type=int, default=40)
    parser.add_argument("--servers", type=int, default=100, help="of a healthy site")
    parser.add_argument("--days", type=int, default=30, help="of a healthy site")
    return parser.parse_args()


if __name__ == "__main__":
    main()
