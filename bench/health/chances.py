"""`python -m bench.health.chances`: how many independent chances of a false alarm a day has.

Sites of healthy servers, as in `bench.health.alarms`, are judged by what hopsd stores. At every
look each server has a probability that a healthy one would seem as slow. If a day has k independent
chances, the probability falls below a level L about k · L times per server-day. Counted is each
time when it was above L at the look before. A verdict also needs a clear loss and runs that agree,
so these numbers are upper bounds.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np

from bench.health.alarms import FIRST
from bench.health.site import DAY, SiteSettings, Stored, simulate
from bench.result_file import write_result
from hopsd.health.measurements import join_blocks, node_types, read_columns
from hopsd.health.records import HealthRecords
from hopsd.health.slow import fit_course

LEVELS = (0.03, 0.01, 0.003, 0.001)


def probabilities(records: HealthRecords) -> dict[int, tuple[float, bool]]:
    """Return, by the index of each node that is compared with others, the probability that a
    healthy one would seem as slow, and whether a single run is all that is known of it.
    """
    units = join_blocks(read_columns(records).steady(), records.now)
    course = fit_course(units, node_types(records.nodes))
    estimates = {node: course.estimate(node) for node in range(len(records.nodes))}
    return {
        node: (estimate.probability, estimate.single)
        for node, estimate in estimates.items()
        if estimate is not None
    }


def count_begins(
    settings: SiteSettings, seed: int, every: float, first: float = FIRST
) -> Counter[tuple[float, bool]]:
    """Count how often servers' probabilities fall below each of LEVELS, by level and by whether
    a single run is all that is known of the server. The site is judged from ``first`` on, every
    ``every`` seconds.
    """
    stored = Stored(simulate(settings, seed))
    begins: Counter[tuple[float, bool]] = Counter()
    last: dict[int, float] = {}
    for now in np.arange(first, settings.days * DAY, every).tolist():
        judged = probabilities(stored.at(now))
        for node, (probability, single) in judged.items():
            for level in LEVELS:
                begins[level, single] += probability < level <= last.get(node, 1.0)
        last = {node: probability for node, (probability, _) in judged.items()}
    return begins


def main() -> None:
    options = _options()
    began = time.process_time()
    rows = []
    for noise in (0.005, 0.02):
        days = options.first / DAY + options.days
        settings = SiteSettings(options.servers, days=days, noise=noise, tails=options.tails)
        begins: Counter[tuple[float, bool]] = Counter()
        for seed in range(options.seed, options.seed + options.sites):
            begins += count_begins(settings, seed, options.every, options.first)
        server_days = options.sites * options.servers * options.days
        for level in LEVELS:
            counts = [begins[level, single] for single in (False, True)]
            chances = " | ".join(f"{count / server_days / level:.1f}" for count in counts)
            rows.append(f"| {noise:.1%} | {level:.1%} | {counts[0]} | {counts[1]} | {chances} |")
    runs = "normally" if options.tails == np.inf else f"as Student's t({options.tails:g})"
    text = "\n".join(
        [
            (
                f"{options.sites} sites of {options.servers} healthy servers for each noise, judged"
                f" every {options.every / 60:g} minutes for {options.days:g} days, first at the age"
                f" of {options.first / 3600:g} hours; runs differ {runs}, by {settings.run:.1%}."
            ),
            "",
            (
                "| noise of a report, one a minute | level | times below it, by several runs"
                " | by a single run | chances a day, by several runs | by a single run |"
            ),
            "|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
            f"{time.process_time() - began:.0f} CPU s.",
        ]
    )
    print(text)
    write_result("health_chances", "Chances of a false alarm in a day", text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health.chances")
    parser.add_argument("--sites", type=int, default=2, help="for each noise")
    parser.add_argument("--servers", type=int, default=60, help="of each site")
    parser.add_argument("--days", type=float, default=1.0, help="for how long they are watched")
    parser.add_argument("--every", type=float, default=3600.0, help="seconds between looks")
    parser.add_argument("--first", type=float, default=FIRST, help="seconds before the first look")
    parser.add_argument("--tails", type=float, default=np.inf, help="degrees of freedom of runs")
    parser.add_argument("--seed", type=int, default=0, help="of the first site")
    return parser.parse_args()


if __name__ == "__main__":
    main()
