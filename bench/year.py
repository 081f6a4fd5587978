"""`python -m bench.year --out DIR`: a year of 100,000 jobs on 10,240 GPUs, for `hopsctl simulate`.

DIR gets cluster.json and workload.json: twenty times the servers of `paper-512`, and jobs like
those of that preset, lengthened so that on single GPUs they load the cluster as requested for a
year.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.facts import facts_of
from hopsd.sim.presets import preset

TIMES = 20
"""Factor on the servers of `paper-512`, which has 512 GPUs."""

YEAR_HOURS = 365 * 24.0


def year(jobs: int, load: float, seed: int) -> tuple[Cluster, Workload]:
    """The cluster, and ``jobs`` jobs at the rate of 100,000 a year."""
    scenario = preset("paper-512")
    groups = tuple((hardware, TIMES * count, gpus) for hardware, count, gpus in scenario.groups)
    large = replace(scenario, groups=groups, jobs=100_000, hours=YEAR_HOURS)
    cluster, base_workload = large.cluster(), large.workload(seed, jobs=jobs)
    mean = sum(facts.gpu_seconds for facts in facts_of(cluster, base_workload)) / jobs
    longer = load * cluster.gpus * 3600.0 * YEAR_HOURS / large.jobs / mean
    scaled_jobs = tuple(
        replace(job, samples=round(longer * job.samples)) for job in base_workload.jobs
    )
    return cluster, replace(base_workload, jobs=scaled_jobs)


def cluster_document(cluster: Cluster) -> dict[str, object]:
    """A cluster file (docs/formats.md)."""
    nodes = [{"name": s.name, "gpu_type": s.gpu_type, "gpus": s.gpus} for s in cluster.servers]
    links = {t: {"b_link": link.b_link, "b_net": link.b_net} for t, link in cluster.links.items()}
    return {"nodes": nodes, "gpu_types": links}


def workload_document(workload: Workload) -> dict[str, object]:
    """A workload file (docs/formats.md)."""
    jobs = [
        {
            "id": job.id,
            "user": job.user,
            "submit": job.submit,
            "workload": job.workload,
            "samples": job.samples,
            "batch_size": job.batch_size,
            "reqs": job.reqs,
        }
        for job in workload.jobs
    ]
    tables = {
        name: {gpu_type: _table(table) for gpu_type, table in by_type.items()}
        for name, by_type in workload.throughput.items()
    }
    factors = {name: dict(by_type) for name, by_type in workload.server_factor.items()}
    return {"throughput": tables, "jobs": jobs, "server_factor": factors}


def _table(table: ThroughputTable) -> Mapping[str, Mapping[int, float]]:
    return {"aggregated": dict(table.aggregated), "distributed": dict(table.distributed)}


def main() -> None:
    options = _options()
    cluster, workload = year(options.jobs, options.load, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    documents = {"cluster": cluster_document(cluster), "workload": workload_document(workload)}
    for name, document in documents.items():
        (options.out / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.year", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--jobs", type=int, default=100_000, help="fewer are the year's first ones")
    parser.add_argument("--load", type=float, default=0.8, help="of the cluster, on single GPUs")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
