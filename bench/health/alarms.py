"""`python -m bench.health.alarms`: how often healthy servers are named where hopsd looks all day.

The simulated sites (`bench/health/site.py`) have no slow server, and jobs report once a minute.
Each site is judged by what hopsd stores, as often as hopsd looks, or every `--every` seconds:
verdicts that last for less are missed. A verdict counts once, when it begins.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from bench.health.site import DAY, SiteSettings, Stored, simulate
from bench.result_file import write_result
from hopsd.health.slow import find_slow
from hopsd.service.node_health import EVERY_SECONDS

FIRST = 1.2 * DAY
"""The first look, in seconds: before, there is little to compare with."""


@dataclass(frozen=True, slots=True)
class Alarms:
    """How many verdicts on healthy servers began, and for how many looks each was in force."""

    begins: int
    looks: tuple[int, ...]


def alarms(settings: SiteSettings, seed: int, every: float) -> Alarms:
    """Count the verdicts on a site of healthy servers until its records end."""
    stored = Stored(simulate(settings, seed))
    in_force: dict[str, int] = {}
    over: list[int] = []
    for now in np.arange(FIRST, settings.days * DAY, every).tolist():
        named = {slow.node for slow in find_slow(stored.at(now))}
        over += [looks for node, looks in in_force.items() if node not in named]
        in_force = {node: in_force.get(node, 0) + 1 for node in named}
    looks = (*over, *in_force.values())
    return Alarms(len(looks), looks)


def main() -> None:
    options = _options()
    began = time.process_time()
    rows = []
    for noise in (0.005, 0.02):
        settings = SiteSettings(
            nodes=options.servers, days=FIRST / DAY + options.days, noise=noise, tails=options.tails
        )
        found = [alarms(settings, seed, options.every) for seed in range(options.sites)]
        server_days = options.sites * options.servers * options.days
        begins = sum(item.begins for item in found)
        minutes = [looks * options.every / 60.0 for item in found for looks in item.looks]
        typical = f"{np.median(minutes):.0f} min" if minutes else ""
        rate = 1000.0 * begins / server_days
        rows.append(f"| {noise:.1%} | {server_days:,.0f} | {begins} | {rate:.2f} | {typical} |")
    runs = "normally" if options.tails == np.inf else f"as Student's t({options.tails:g})"
    text = "\n".join(
        [
            (
                f"{options.sites} sites of {options.servers} healthy servers, judged every"
                f" {options.every / 60:g} minutes; runs differ {runs}, by {settings.run:.1%}."
            ),
            "",
            (
                "| noise of a report, one a minute | server-days | named | in 1,000 server-days |"
                " in force (median) |"
            ),
            "|---:|---:|---:|---:|---:|",
            *rows,
            "",
            f"{time.process_time() - began:.0f} CPU s.",
        ]
    )
    print(text)
    name = "health_alarms" if options.tails == np.inf else "health_alarms_tails"
    write_result(name, "Healthy servers named", text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.health.alarms")
    parser.add_argument("--sites", type=int, default=25)
    parser.add_argument("--servers", type=int, default=20, help="of each site")
    parser.add_argument("--days", type=float, default=2.0, help="for how long they are watched")
    parser.add_argument("--every", type=float, default=EVERY_SECONDS, help="seconds between looks")
    parser.add_argument("--tails", type=float, default=np.inf, help="degrees of freedom of runs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
