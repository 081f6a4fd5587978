"""Accuracy of run-time predictions, and their effect on every policy.

    python -m bench.run_time [--philly FILE] [--policy NAME ...] [--seeds 3] [--jobs 60] [--write]

Results are saved under build/run_time; delete a file there to run it again. ``--write`` puts the
tables into bench/results/run_time.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from bench.result_file import write_result
from bench.run_time.errors import table
from bench.run_time.traces import log_jobs, philly_workload, repeat_programs
from hopsd.formats.source import read_text
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Cluster, Server
from hopsd.policies.registry import get
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows, public_knowledge
from hopsd.sim.presets import preset
from hopsd.sim.study import figures, play

RUNS_FOLDER = Path("build/run_time")
PRESET = "paper-64"
POLICIES = (
    *("hops", "srtf", "sjf", "allox", "fifo", "las", "slurm", "hops+", "gavel-ftf", "srtf-apps"),
    *("gavel-makespan", "themis", "allox+", "sia"),
)
COLUMNS = (("avg_jct_h", "{:.2f}"), ("max_latency_ratio", "{:.1f}"), ("makespan_h", "{:.1f}"))
RATE = 30.0
"""Jobs per hour: three times the preset's rate, so that jobs wait for each other."""


def run(policy: str, knows: Knows, seed: int, jobs: int) -> dict[str, float]:
    """Figures of one simulation, loaded if an earlier run saved them."""
    path = RUNS_FOLDER / f"{policy}-{knows}-{seed}-{jobs}.json"
    if path.exists():
        run_figures: dict[str, float] = json.loads(path.read_text())
        return run_figures
    plan = PlanSettings(policy=policy, time_limit_seconds=MAX_PLAN_SECONDS, effort=0, seed=seed)
    settings = SimulationSettings(plan=plan, knowledge=KnowledgeSettings(knows, seed=seed))
    workload = repeat_programs(PRESET, seed, jobs, RATE)
    result = play(policy, get(policy), preset(PRESET).cluster(), workload, settings)
    if result.unfinished:
        raise SystemExit(f"{policy}: jobs never ended: {result.unfinished}")
    run_figures = {key: figures(result)[key] for key, _ in COLUMNS}
    RUNS_FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run_figures))
    return run_figures


def effects(policies: Sequence[str], seeds: int, jobs: int) -> str:
    """Table of means over the seeds with perfect / measured / no knowledge."""
    lines = [
        "| policy | mean completion, h | largest latency ratio | makespan, h |",
        "|---|---:|---:|---:|",
    ]
    for policy in policies:
        cells = []
        figures_by_knowledge = {
            knows: [run(policy, knows, seed, jobs) for seed in range(seeds)] for knows in Knows
        }
        for key, text in COLUMNS:
            means = [
                np.mean([run_figures[key] for run_figures in figures_by_knowledge[knows]])
                for knows in Knows
            ]
            cells.append(" / ".join(text.format(mean) for mean in means))
        lines.append(f"| `{policy}` | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def errors(philly: Path | None, jobs: int) -> str:
    """The table of prediction errors."""
    scenario, traces = preset(PRESET), []
    if philly is not None:
        cluster = Cluster((Server(NodeName("n0"), GpuType("gpu"), 512),))
        workload = philly_workload(read_text(str(philly)), cluster)
        limits = public_knowledge(cluster, workload, KnowledgeSettings(Knows.NONE)).time_limits
        traces.append(("philly", log_jobs(cluster, workload, limits)))
    cluster, workload = scenario.cluster(), repeat_programs(PRESET, 0, jobs)
    limits = public_knowledge(cluster, workload, KnowledgeSettings(Knows.NONE)).time_limits
    traces.append(("generated", log_jobs(cluster, workload, limits)))
    return table(traces)


@click.command()
@click.option("--philly", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--policy", "policies", multiple=True, default=POLICIES)
@click.option("--seeds", type=click.IntRange(min=0), default=3)
@click.option("--jobs", type=click.IntRange(min=1), default=60)
@click.option("--write", is_flag=True, help="Put the tables into bench/results/run_time.md.")
def main(philly: Path | None, policies: Sequence[str], seeds: int, jobs: int, write: bool) -> None:
    tables = [errors(philly, 500)]
    print(tables[0], flush=True)
    if seeds:
        tables.append(effects(policies, seeds, jobs))
    if write:
        write_result("run_time", "Predicted run times", "\n\n".join(tables))


if __name__ == "__main__":
    main()
