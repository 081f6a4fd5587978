"""`python -m bench.health.intervals`: how often the interval of a slow server holds the truth.

Sites of 24 servers over nine days, two of which are 3, 5 or 10 % slow, from the beginning or from a
day in the middle on; judged at the end.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from bench.health.site import DAY, SiteSettings, Slowdown, simulate
from bench.result_file import write_result
from hopsd.health.slow import find_slow

SETTINGS = SiteSettings(nodes=24, days=9.0, every=1800.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=100.0)
    arguments = parser.parse_args()
    began, seed = time.monotonic(), arguments.seed
    held: dict[str, list[bool]] = {"from the beginning": [], "from a day on": []}
    missed = false = 0
    while time.monotonic() - began < arguments.seconds:
        random = np.random.default_rng(seed)
        losses = random.choice([0.03, 0.05, 0.1], 2)
        sinces = random.choice([-np.inf, 3.0 * DAY, 6.0 * DAY], 2)
        slow = tuple(
            Slowdown(node, float(loss), float(since))
            for node, (loss, since) in enumerate(zip(losses, sinces, strict=True))
        )
        found = {s.node: s for s in find_slow(simulate(replace(SETTINGS, slow=slow), seed))}
        for each in slow:
            verdict = found.pop(f"n{each.node}", None)  # type: ignore[call-overload]
            if verdict is None:
                missed += 1
            else:
                kind = "from the beginning" if each.since == -np.inf else "from a day on"
                held[kind].append(verdict.low <= 1.0 - each.loss <= verdict.high)
        false += len(found)
        seed += 1
    sites = seed - arguments.seed
    rows = "\n".join(
        f"| {kind} | {len(each)} | {sum(each)} | {np.mean(each):.0%} |"
        for kind, each in held.items()
    )
    text = (
        "| slow | named | interval holds the truth | part |\n|---|---:|---:|---:|\n"
        f"{rows}\n\n{sites} sites; {missed} of {2 * sites} slow servers were not named,"
        f" {false} of {22 * sites} healthy ones were."
    )
    print(text)
    write_result("health_intervals", "Intervals of slow servers", text)


if __name__ == "__main__":
    main()
