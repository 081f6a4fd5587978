"""Simulates the same workload under every policy and writes bench/results/policies.md.

    python -m bench.policies [--no-run] [POLICY ...]

Results are saved under build/policies; delete a file there to run its policy again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.clock import cpu_seconds
from bench.result_file import write_result
from hopsd.model.plan import PlanSettings
from hopsd.policies.registry import get, names
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.presets import preset
from hopsd.sim.study import figures, play

RUNS_FOLDER = Path("build/policies")
PRESET = "paper-64"
COLUMNS = {
    "mean completion, h": ("avg_jct_h", "{:.2f}"),
    "99th percentile, h": ("p99_jct_h", "{:.1f}"),
    "last end, h": ("makespan_h", "{:.1f}"),
    "mean wait, h": ("avg_wait_h", "{:.2f}"),
    "largest latency ratio": ("max_latency_ratio", "{:.1f}"),
    "mean latency ratio": ("mean_latency_ratio", "{:.2f}"),
    "largest rho": ("max_ftf", "{:.1f}"),
    "restarts": ("restarts", "{:.0f}"),
    "processor s": ("cpu_seconds", "{:.1f}"),
}


def run(policy: str) -> dict[str, Any]:
    """Simulate the workload and save the figures."""
    scenario = preset(PRESET)
    plan = PlanSettings(policy=policy, time_limit_seconds=MAX_PLAN_SECONDS, effort=0)
    began = cpu_seconds()
    settings = SimulationSettings(plan=plan)
    result = play(policy, get(policy), scenario.cluster(), scenario.workload(0), settings)
    run_figures = figures(result) | {
        "cpu_seconds": cpu_seconds() - began,
        "unfinished": len(result.unfinished),
    }
    RUNS_FOLDER.mkdir(parents=True, exist_ok=True)
    (RUNS_FOLDER / f"{policy}.json").write_text(json.dumps(run_figures))
    return run_figures


def table(figures_by_policy: dict[str, dict[str, Any]]) -> str:
    """Table ordered by mean completion time; the best of each column is bold."""
    best = {key: min(f[key] for f in figures_by_policy.values()) for key, _ in COLUMNS.values()}
    lines = ["| policy | " + " | ".join(COLUMNS) + " |", "|---" + "|---:" * len(COLUMNS) + "|"]
    for policy, f in sorted(figures_by_policy.items(), key=lambda item: item[1]["avg_jct_h"]):
        cells = [
            f"**{text.format(f[key])}**" if f[key] == best[key] else text.format(f[key])
            for key, text in COLUMNS.values()
        ]
        lines.append(f"| `{policy}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    policy_names = [name for name in arguments if name != "--no-run"] or names()
    figures_by_policy = {}
    for name in policy_names:
        path = RUNS_FOLDER / f"{name}.json"
        if not path.exists() and "--no-run" not in arguments:
            policy_figures = run(name)
            print(f"{name}: {policy_figures['cpu_seconds']:.0f} s", file=sys.stderr, flush=True)
        if path.exists():
            figures_by_policy[name] = json.loads(path.read_text())
    unfinished_counts = {
        name: f["unfinished"] for name, f in figures_by_policy.items() if f["unfinished"]
    }
    if unfinished_counts:
        raise SystemExit(f"jobs never ended: {unfinished_counts}")
    words = (
        "The paper's 64 GPUs and 25 jobs (`paper-64`, seed 0; rounds of 360 s, restarts of 30 s),"
        " true speeds\nand samples. One draw of few jobs says little about small differences.\n\n"
    )
    write_result(
        "policies",
        "One workload under every policy",
        words + table(figures_by_policy),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
