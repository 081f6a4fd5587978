"""Policies on workloads not used to choose their constants: geometric means with intervals.

    python -m bench.unseen [--policy NAME ...] [--sia DIR] [--shockwave DIR --speeds FILE]
        [--tail-weight L] [--label NAME] [--shard K/N] [--no-run]
        [--choice]

Draws of ``mix`` with new seeds, on its own cluster and on three others of 64 GPUs, and traces of
Sia's and Shockwave's authors if their folders are given (as for ``bench.rivals``). Runs are saved
under build/unseen, in a folder per policy. The table goes to bench/results/unseen.md. To compare
with an older commit, run this module there with ``--label 'hops+ COMMIT'`` and the same build
folder. ``--shard 0/4`` plays every fourth work. ``--choice`` plays the works on which the formula
was chosen instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path

from bench import saved_runs
from bench.result_file import write_result
from bench.rivals import shockwave, sia
from bench.spread import interval
from bench.study.cases import USUAL
from bench.study.works import draw
from hopsd.model.plan import PlanSettings
from hopsd.model.scenario import Cluster, Workload
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import MAX_PLAN_SECONDS, SimulationSettings
from hopsd.sim.presets import preset
from hopsd.sim.study import play

RUNS_FOLDER = Path("build/unseen")
FIGURES = {
    "mean": "avg_jct_h",
    "99 %": "p99_jct_h",
    "makespan": "makespan_h",
    "largest LR": "max_latency_ratio",
    "largest FTF": "max_ftf",
}
REFERENCE = "hops+"
POLICIES = (REFERENCE, "hops-srtf", "srtf", "sia", "hops")
MIN_LATENCY_RATIO = 0.1
TRACES = ("philly-5", "philly-6", "philly-8", "saturn-5", "saturn-6", "saturn-8")
Make = Callable[[], tuple[Cluster, Workload]]


@dataclass(frozen=True, slots=True)
class Work:
    """One work; the runs of a ``family`` are saved in the folder of that name."""

    family: str
    name: str
    make: Make


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.unseen", description=__doc__)
    parser.add_argument("--policy", action="append")
    parser.add_argument("--sia", type=Path)
    parser.add_argument("--shockwave", type=Path)
    parser.add_argument("--speeds", type=Path)
    parser.add_argument("--kept", type=Path, default=RUNS_FOLDER)
    parser.add_argument("--label")
    parser.add_argument("--tail-weight", type=float)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--choice", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    works = [*traces(options.sia, options.shockwave, options.speeds), *synthetic()]
    if options.choice:
        works = choice(options.sia)
    works = works[first::step]
    for policy in () if options.no_run else options.policy or POLICIES:
        for work in works:
            path = options.kept / (options.label or policy) / work.family / f"{work.name}.json"
            saved_runs.load_or_run(path, partial(run, policy, work, options.tail_weight))
    if step > 1:
        return
    if options.choice:
        write_result("choice", "Works on which hops+ was chosen", page(options.kept))
    else:
        write_result("unseen", "Works that chose no constant", page(options.kept))


def synthetic() -> list[Work]:
    """Drawn works, each seed on one cluster; starts with one of every family."""
    busy, rigid = replace(USUAL, load=1.5), replace(USUAL, rigid=1.0)
    families = {
        "mix, elastic": ("mix", USUAL, range(100, 107)),
        "mix, rigid": ("mix", rigid, range(110, 117)),
        "mix, half rigid, load 1.5": ("mix", replace(busy, rigid=0.5), range(120, 124)),
        "one type, elastic": ("alike-8", busy, range(130, 134)),
        "one type, rigid": ("alike-4", rigid, range(140, 144)),
        "two types, elastic": ("two-types", busy, range(150, 154)),
        "two types, rigid": ("two-types", rigid, range(160, 164)),
    }
    works = [
        (index, Work(family, str(seed), partial(draw, name, conditions, seed)))
        for family, (name, conditions, seeds) in families.items()
        for index, seed in enumerate(seeds)
    ]
    return [work for _, work in sorted(works, key=itemgetter(0))]


def choice(folder: Path | None) -> list[Work]:
    """The works on which the formula was chosen; without Sia's ``folder`` all but two."""
    busy, rigid = replace(USUAL, load=1.5), replace(USUAL, rigid=1.0)
    kinds = [
        *(("mix, elastic", "mix", USUAL, seed) for seed in (20, 21, 22)),
        *(("mix, rigid", "mix", rigid, seed) for seed in (20, 21, 22)),
        ("mix, half rigid, load 1.5", "mix", replace(busy, rigid=0.5), 20),
        ("one type, elastic", "alike-8", busy, 20),
        ("one type, rigid", "alike-4", rigid, 20),
        ("two types, elastic", "two-types", busy, 20),
        ("two types, rigid", "two-types", rigid, 20),
    ]
    works = [
        Work(family, str(seed), partial(draw, name, conditions, seed))
        for family, name, conditions, seed in kinds
    ]
    works.append(Work("paper-64", "20", _paper))
    if folder is not None:
        works.append(
            Work("Sia's traces, rigid", "philly-1", partial(_of_sia, folder, "philly-1", True))
        )
        works.append(
            Work("Sia's traces, elastic", "saturn-1", partial(_of_sia, folder, "saturn-1", False))
        )
    return works


def _paper() -> tuple[Cluster, Workload]:
    scenario = preset("paper-64")
    return scenario.cluster(), scenario.workload(20)


def traces(sia_folder: Path | None, folder: Path | None, speeds: Path | None) -> list[Work]:
    """Published traces, elastic and rigid."""
    works = []
    for name, rigid in product(TRACES, (False, True)):
        if sia_folder is not None:
            family = f"Sia's traces, {'rigid' if rigid else 'elastic'}"
            works.append(Work(family, name, partial(_of_sia, sia_folder, name, rigid)))
    for kind, rigid in product(shockwave.CLUSTERS, (False, True)):
        if folder is not None and speeds is not None:
            name = f"{kind}-{'rigid' if rigid else 'elastic'}"
            make = partial(_of_shockwave, folder, speeds, kind, rigid)
            works.append(Work("Shockwave's 120 jobs", name, make))
    return works


def _of_sia(folder: Path, name: str, rigid: bool) -> tuple[Cluster, Workload]:
    return sia.cluster(), sia.workload(folder, sia.traces(folder)[name], rigid=rigid)


def _of_shockwave(folder: Path, speeds: Path, kind: str, rigid: bool) -> tuple[Cluster, Workload]:
    trace = next(path for name, path in shockwave.traces(folder).items() if name.startswith("120_"))
    return (
        shockwave.cluster(trace, kind),
        shockwave.workload(speeds, trace, kind, rigid=rigid),
    )


def run(policy: str, work: Work, tail_weight: float | None = None) -> dict[str, float]:
    """Figures of one simulation: rounds of 360 s, restarts of 30 s, known run times."""
    cluster, workload = work.make()
    plan = PlanSettings(policy=policy, time_limit_seconds=MAX_PLAN_SECONDS, effort=0)
    if tail_weight is not None:
        plan = replace(plan, tail_weight=tail_weight)
    settings = SimulationSettings(360.0, plan=plan, cluster=ClusterSettings(30.0))
    summary = play(policy, get(policy), cluster, workload, settings).summary
    print(f"{policy}: {work.family} {work.name}", file=sys.stderr, flush=True)
    return {key: getattr(summary, key) for key in FIGURES.values()}


def page(runs_folder: Path) -> str:
    """Ratios of every policy to the reference: all works together, then each family."""
    ratios = {
        folder.name: {
            (path.parent.name, path.stem): saved_runs.read(path) or {}
            for path in sorted(folder.glob("*/*.json"))
        }
        for folder in sorted(runs_folder.iterdir())
    }
    reference = ratios[REFERENCE]
    head = (
        f"Geometric means of the ratio to `{REFERENCE}`'s figure on the same work, with 95 %"
        f" intervals;\nabove 1, `{REFERENCE}` is better. Latency ratios below"
        f" {MIN_LATENCY_RATIO} count as {MIN_LATENCY_RATIO}.\n\n"
    )
    lines = [head]
    families = ["all", *sorted({family for family, _ in reference})]
    for family in families:
        keys = [key for key in reference if family in ("all", key[0])]
        rows = []
        for policy, runs in ratios.items():
            common = [key for key in keys if key in runs]
            if policy != REFERENCE and len(common) > 1:
                cells = [_cell([runs[k] for k in common], [reference[k] for k in common], figure)
                         for figure in FIGURES.values()]  # fmt: skip
                rows.append(f"| `{policy}` | {len(common)} | {' | '.join(cells)} |\n")
        if rows:
            lines += [f"## {family}\n\n", f"| policy | works | {' | '.join(FIGURES)} |\n",
                      "|---|---:" + "|---:" * len(FIGURES) + "|\n", *rows, "\n"]  # fmt: skip
    return "".join(lines)


def _cell(
    values: Sequence[dict[str, float]], reference: Sequence[dict[str, float]], figure: str
) -> str:
    minimum = MIN_LATENCY_RATIO if figure == "max_latency_ratio" else 0.0
    baseline = interval(
        [max(minimum, figures_of_run[figure]) for figures_of_run in values],
        [max(minimum, figures_of_run[figure]) for figures_of_run in reference],
    )
    return f"{baseline.mean:.2f} ({baseline})"


if __name__ == "__main__":
    main()
