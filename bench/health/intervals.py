"""`python -m bench.health.intervals`: how often the interval of a slow server holds the truth.

The sites have 24 servers and last nine days. Two of the servers are 3, 5 or 10 % slow, from the
beginning or from a day in the middle on; they are judged at the end.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from bench.health.site import DAY, SiteSettings, Slowdown, simulate
from bench.result_file import write_result
from hopsd.health.slow import find_slow

SETTINGS = SiteSettings(nodes=24, days=9.0, interval=1800.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=100.0)
    arguments = parser.parse_args()
    began, seed = time.monotonic(), arguments.seed
    coverage: dict[str, list[bool]] = {"from the beginning": [], "from a day on": []}
    miss_count = false = 0
    while time.monotonic() - began < arguments.seconds:
        random = np.random.default_rng(seed)
        losses = random.choice([0.03, 0.05, 0.1], 2)
        sinces = random.choice([-np.inf, 3.0 * DAY, 6.0 * DAY], 2)
        slow = tuple(
            Slowdown(node, float(loss), float(since))
            for node, (loss, since) in enumerate(zip(losses, sinces, strict=True))
        )
        slow_nodes = {s.node: s for s in find_slow(simulate(replace(SETTINGS, slow=slow), seed))}
        for slow_node in slow:
            verdict = slow_nodes.pop(f"n{slow_node.node}", None)  # type: ignore[call-overload]
            if verdict is None:
                miss_count += 1
            else:
                kind = "from the beginning" if slow_node.since == -np.inf else "from a day on"
                coverage[kind].append(verdict.low <= 1.0 - slow_node.loss <= verdict.high)
        false += len(slow_nodes)
        seed += 1
    sites = seed - arguments.seed
    rows = "\n".join(
        f"| {kind} | {len(slow_node)} | {sum(slow_node)} | {np.mean(slow_node):.0%} |"
        for kind, slow_node in coverage.items()
    )
    text = (
        "| slow | named | interval holds the truth | part |\n|---|---:|---:|---:|\n"
        f"{rows}\n\n{sites} sites; {miss_count} of {2 * sites} slow servers were not named,"
        f" {false} of {22 * sites} healthy ones were."
    )
    print(text)
    write_result("health_intervals", "Intervals of slow servers", text)


if __name__ == "__main__":
    main()
