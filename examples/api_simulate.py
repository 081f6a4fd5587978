"""Compare policies on the paper's 64 GPUs, and read the results as arrays or as pandas frames.

python examples/api_simulate.py 25 hops srtf slurm
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np

from hopsd import api


def main(count: str, *policies: str) -> None:
    cluster = api.read_cluster("paper-64")
    workload = api.read_workload("paper-64", cluster, seed=1, jobs=int(count))
    results = [api.simulate(cluster, workload, policy) for policy in policies]

    figures = api.summaries(*results)
    for row, policy in enumerate(figures["policy"]):
        hours, use = figures["avg_jct_h"][row], figures["gpu_utilisation"][row]
        print(f"{policy}: {hours:.2f} h a job on average, {use:.0%} of the GPUs in use")

    jobs = api.jobs(*results)
    slowest = int(np.nanargmax(jobs["jct"]))
    print(f"longest: job {jobs['id'][slowest]} under {jobs['policy'][slowest]}")

    if find_spec("pandas"):
        import pandas as pd  # noqa: PLC0415 - the examples run without it

        frame = pd.DataFrame(jobs)
        print(frame.groupby("policy")[["wait", "latency_ratio", "restarts"]].mean().round(2))


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["25", "hops", "srtf", "slurm"]))
