"""Compare a custom policy with those of hops on three workloads.

python examples/api_policy.py 12
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from hopsd import api

sys.path.insert(0, str(Path(__file__).with_name("policy")))
from largest_first import plan


def main(count: str) -> None:
    cluster = api.read_cluster("paper-64")
    hours_by_policy: dict[str, list[float]] = {"largest_first": [], "hops": [], "fifo": []}
    for seed in range(3):
        workload = api.read_workload("paper-64", cluster, seed=seed, jobs=int(count))
        for name, hours in hours_by_policy.items():
            policy = plan if name == "largest_first" else name
            result = api.simulate(cluster, workload, policy, name=name)
            hours.append(result.summary.avg_jct_h)
    for name, hours in hours_by_policy.items():
        print(f"{name:14} {np.mean(hours):.2f} h a job (from {min(hours):.2f} to {max(hours):.2f})")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["12"]))
