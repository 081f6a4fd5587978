"""Writes bench/results/paper.md: the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from bench.paper.claims import claims
from bench.paper.experiments import (
    ARRIVALS,
    FTF,
    KNOWLEDGE,
    NO_GAP,
    PAPERS_RIVALS,
    PRIORITIES,
    RATE_JOBS,
    RATES,
    SEARCH,
    SEEDS,
    TABLE_3,
    TABLE_4,
    TABLE_4_OTHERS,
    Case,
)
from bench.paper.runs import SavedRun, load_run
from bench.paper.search import Assumptions, Figures, tables
from bench.paper.text import (
    AGREES,
    CONCLUSION,
    FINDINGS,
    INTRODUCTION,
    KNOWLEDGE_FINDINGS,
    KNOWLEDGE_OPENING,
    SEARCH_FINDINGS,
    SEARCH_OPENING,
)
from bench.result_file import save_svg, write_result
from hopsd.core.queue.priority import age_seconds
from hopsd.model.job import Node
from hopsd.sim.facts import jobs_of
from hopsd.sim.information.knowledge import Knows
from hopsd.sim.presets import preset
from hopsd.sim.svg import Axis, chart, distribution

NOT_RUN = "Not run yet: `make paper` runs what is missing.\n"
Value = Callable[[SavedRun], float]

COLUMNS: tuple[tuple[str, Value], ...] = (
    ("makespan, h", lambda k: k.figures["makespan_h"]),
    ("mean JCT, h", lambda k: k.figures["avg_jct_h"]),
    ("mean wait, h", lambda k: k.figures["avg_wait_h"]),
    ("max LR", lambda k: k.figures["max_latency_ratio"]),
    ("max LR, jobs >= 1 round", lambda k: max(k.long_ratios)),
    ("fragments", lambda k: k.figures["avg_fragments"]),
    ("max FTF", lambda k: k.figures["max_ftf"]),
)

PAPER_TABLE_3: Mapping[str, tuple[float | None, ...]] = {
    "hops": (9.51, 3.20, 0.95, 0.37, None, 0.15, None),
    "sia-hops": (11.68, 4.41, 1.47, 1.03, None, 5.89, None),
    "gavel-queue": (14.46, 5.92, 2.11, 1.31, None, 3.36, None),
}
PAPER_TABLE_4: Mapping[str, tuple[float | None, ...]] = {
    "hops": (10.48, 2.24, 0.87, 3.22, None, 0.45, None),
    "sia-hops": (12.36, 3.79, 1.68, 78.5, None, 56.0, 28.27),
    "gavel-queue": (15.42, 4.04, 2.24, 70.43, None, 18.0, 32.01),
    "hops-ftf": (None, None, None, None, None, None, 2.15),
}


def write_page(folder: Path, docs: Path) -> None:
    """Write the page from the runs in ``folder``; mark experiments without runs."""
    images = docs / "img"
    images.mkdir(parents=True, exist_ok=True)
    parts = [
        INTRODUCTION,
        "## What is claimed, and what agrees\n",
        _claims(folder),
        AGREES,
        "## 64 GPUs, 25 jobs (table 3)\n",
        _table(TABLE_3, PAPER_TABLE_3, folder),
        "## 512 GPUs, 500 jobs (table 4)\n",
        _table([*TABLE_4, *FTF, *TABLE_4_OTHERS], PAPER_TABLE_4, folder),
        _figures(folder, images),
        _findings(),
        "## Priorities (figure 13, left)\n",
        _priorities(folder),
        "## Arrival rates (figure 13, right)\n",
        _arrivals(folder),
        "## Planning time (figure 14)\n",
        _planning_table(folder),
        CONCLUSION,
        "## What policies know, 512 GPUs\n",
        _knowledge(folder),
        "## Under other assumptions\n",
        _search(folder),
        _last_jobs(folder),
    ]
    write_result("paper", "The Hops paper, reproduced", "\n".join(parts))


def _load_runs(cases: Iterable[Case], folder: Path) -> list[SavedRun]:
    return [k for case in cases if (k := load_run(case, folder)) is not None]


def _policies(runs: Sequence[SavedRun]) -> list[str]:
    return list(dict.fromkeys(k.case.policy for k in runs))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over the seeds."""
    return _figure(fmean(values)) + (f" ± {_figure(stdev(values))}" if len(values) > 1 else "")


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(
    cases: Sequence[Case], paper: Mapping[str, tuple[float | None, ...]], folder: Path
) -> str:
    runs = _load_runs(cases, folder)
    if not runs:
        return NOT_RUN
    text = _row(["policy", "seeds", *(name for name, _ in COLUMNS)])
    text += _row(["---"] + ["---:"] * (len(COLUMNS) + 1))
    for policy in _policies(runs):
        policy_runs = [k for k in runs if k.case.policy == policy]
        cells = [_spread([value(k) for k in policy_runs]) for _, value in COLUMNS]
        text += _row([policy, str(len(policy_runs)), *cells])
        if policy in paper:
            paper_cells = ["" if v is None else _figure(v) for v in paper[policy]]
            text += _row([f"*{policy}, paper*", "", *paper_cells])
    return text


def _claims(folder: Path) -> str:
    text = _row(["claim", "paper", "ours", "seeds", "agrees"])
    text += _row(["---", "---:", "---:", "---:", "---"])
    for claim in claims(lambda case: load_run(case, folder)):
        text += _row([claim.text, claim.paper, claim.result, str(claim.seeds), claim.agrees])
    return text


def _findings() -> str:
    """The text of the findings; the shortest job is over all seeds on 512 GPUs."""
    scenario = preset("paper-512")
    cluster, workloads = scenario.cluster(), [scenario.workload(seed) for seed in SEEDS]
    nodes = [Node(s.name, s.gpu_type, s.gpus, s.gpus) for s in cluster.servers]
    ages = [age_seconds(job, nodes) for workload in workloads for job in jobs_of(workload)]
    return FINDINGS.format(shortest=min(ages))


def _last_jobs(folder: Path) -> str:
    """The jobs that determine hops' makespan on 512 GPUs."""
    parts = []
    for k in _load_runs(TABLE_4, folder):
        if k.case.policy == "hops" and len(k.jct) == len(k.age):
            jobs = preset(k.case.preset).workload(k.case.seed).jobs
            ends = [job.submit + jct for job, jct in zip(jobs, k.jct, strict=True)]
            last = ends.index(max(ends))
            parts.append(
                f"seed {k.case.seed}: expected to run {k.age[last] / 3600:.1f} h, submitted at"
                f" {jobs[last].submit / 3600:.1f} h, waited"
                f" {k.age[last] * k.latency_ratio[last] / 3600:.1f} h"
            )
    return f"The job that ends last under hops: {'; '.join(parts)}.\n" if parts else ""


def _figures(folder: Path, images: Path) -> str:
    runs = _load_runs(TABLE_4, folder)
    if not runs:
        return ""
    by_policy = {p: [k for k in runs if k.case.policy == p] for p in _policies(runs)}
    fair = {k.case.policy: k for k in _load_runs(FTF, folder)}
    charts = {
        "jct": distribution(
            "completion times", "completion time, h",
            {p: [j / 3600 for k in ks for j in k.jct] for p, ks in by_policy.items()}),
        "latency-ratio": distribution(
            "latency ratios", "latency ratio",
            {p: [r for k in ks for r in k.latency_ratio] for p, ks in by_policy.items()}),
        "ftf": distribution(
            "finish-time fairness", "finish-time fairness",
            {p: [r for k in ks for r in k.ftf] for p, ks in by_policy.items()}
            | {p: k.ftf for p, k in fair.items()}),
        "throughput": _throughput({p: ks[0] for p, ks in by_policy.items()}),
    }  # fmt: skip
    labels = {
        "jct": "Completion times (figure 9 and 10)",
        "latency-ratio": "Latency ratios (figure 12)",
        "ftf": "Finish-time fairness (figure 12)",
        "throughput": "Throughput over time, seed 0 (figure 11)",
    }
    text = ""
    for name, svg in charts.items():
        save_svg(images / f"paper-{name}.svg", svg)
        text += f"\n{labels[name]}:\n\n![{labels[name]}](img/paper-{name}.svg)\n"
    return text


def _throughput(runs: dict[str, SavedRun]) -> str:
    lines = {p: [(i / 60, v) for i, v in enumerate(k.throughput)] for p, k in runs.items()}
    points = [point for line in lines.values() for point in line]
    x = Axis("hours", 0.0, max(p[0] for p in points))
    y = Axis("samples per second", 0.0, max(p[1] for p in points))
    return chart("throughput", x, y, lines, steps=True)


def _priorities(folder: Path) -> str:
    priority_runs = _load_runs(PRIORITIES, folder)
    if not priority_runs:
        return NOT_RUN
    runs = [k for k in _load_runs(TABLE_4, folder) if k.case.policy == "hops"] + priority_runs
    text = _row(["priority", "seeds", "max LR", "max LR, jobs >= 1 round", "jobs with LR > 3",
                 "mean JCT, h", "paper's max LR"])  # fmt: skip
    text += _row(["---"] + ["---:"] * 6)
    for policy in _policies(runs):
        policy_runs = [k for k in runs if k.case.policy == policy]
        text += _row([
            "latency ratio" if policy == "hops" else policy.removeprefix("hops-"),
            str(len(policy_runs)),
            _spread([k.figures["max_latency_ratio"] for k in policy_runs]),
            _spread([max(k.long_ratios) for k in policy_runs]),
            _spread([float(sum(r > 3 for r in k.latency_ratio)) for k in policy_runs]),
            _spread([k.figures["avg_jct_h"] for k in policy_runs]),
            "3.22" if policy == "hops" else "> 80",
        ])  # fmt: skip
    return text


def _arrivals(folder: Path) -> str:
    runs = _load_runs(ARRIVALS, folder)
    if not runs:
        return NOT_RUN
    seeds = len({k.case.seed for k in runs})
    text = f"Mean JCT in hours, {RATE_JOBS} jobs, {seeds} seeds:\n\n"
    text += _row(["jobs an hour", *PAPERS_RIVALS]) + _row(["---:"] * 4)
    for rate in RATES:
        at_rate = [k for k in runs if k.case.rate == rate]
        by_policy = [[k for k in at_rate if k.case.policy == policy] for policy in PAPERS_RIVALS]
        cells = [
            _spread([k.figures["avg_jct_h"] for k in group]) if group else "not run"
            for group in by_policy
        ]
        text += _row([f"{rate:g}", *cells])
    return text


def _planning_table(folder: Path) -> str:
    text = _row(["policy", "rounds", "median, s", "99 %, s", "proven gap, median", "largest"])
    text += _row(["---"] + ["---:"] * 5)
    runs = _load_runs(TABLE_4, folder)
    named_runs = [
        (policy, [k for k in runs if k.case.policy == policy]) for policy in _policies(runs)
    ]
    named_runs += (
        [("hops, gap 0 asked", no_gap_runs)] if (no_gap_runs := _load_runs(NO_GAP, folder)) else []
    )
    for name, policy_runs in named_runs:
        seconds = [s for k in policy_runs for s in k.plan_seconds]
        text += _row([
            name,
            str(len(seconds)),
            _figure(float(np.median(seconds))),
            _figure(float(np.percentile(seconds, 99))),
            *_gaps(policy_runs),
        ])  # fmt: skip
    return text if runs else NOT_RUN


def _knowledge(folder: Path) -> str:
    runs = _load_runs(KNOWLEDGE, folder)
    if not runs:
        return NOT_RUN
    keys = ("makespan_h", "avg_jct_h", "max_latency_ratio", "avg_fragments")
    text = KNOWLEDGE_OPENING.format(seeds=len({k.case.seed for k in runs}))
    text += _row(["policy", "makespan, h", "mean JCT, h", "max LR", "fragments"])
    text += _row(["---"] + ["---:"] * len(keys))
    for policy in _policies(runs):
        groups = [
            [k for k in runs if (k.case.policy, k.case.knows) == (policy, knows)] for knows in Knows
        ]
        if all(groups):
            text += _row([
                policy,
                *(
                    " / ".join(_figure(fmean(k.figures[key] for k in group)) for group in groups)
                    for key in keys
                ),
            ])  # fmt: skip
    return text + KNOWLEDGE_FINDINGS


def _search(folder: Path) -> str:
    def find(assumptions: Assumptions, policy: str) -> dict[int, Figures]:
        cases = [
            case for case in SEARCH if (case.assumptions, case.policy) == (assumptions, policy)
        ]
        return {run.case.seed: run.figures for run in _load_runs(cases, folder)}

    return f"{SEARCH_OPENING}{tables(find)}\n{SEARCH_FINDINGS}"


def _gaps(runs: Sequence[SavedRun]) -> tuple[str, str]:
    """Proven gaps, of hops only: the rivals' programs have other tolerances."""
    if not runs[0].case.policy.startswith("hops"):
        return "", ""
    gaps = [k.figures["proven_gap"] for k in runs]
    return f"{fmean(g['median'] for g in gaps):.2%}", f"{max(g['max'] for g in gaps):.2%}"
