"""Writes bench/results/allox.md: our tables and figures beside the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from bench.allox.runs import LOAD, SAMPLE_SECONDS, Case, SavedRun, load_run
from bench.allox.text import CONCLUSION, INTRODUCTION, PAPER
from bench.result_file import save_svg, write_result
from bench.spread import mean_and_spread
from hopsd.sim.svg import Axis, chart

JOBS_PER_USER = 80
POLICIES = ("allox", "allox+", "es", "drff", "drfs", "drfa", "sjf+", "jsq+", "srpt")
ALPHAS = (0.2, 0.3, 0.5, 0.7, 1.0)
NOISES = (0.0, 0.1, 0.2)
OVERHEADS = (0.0, 0.1, 0.2)
HIGH_LOAD = 2.0
SEEDS = range(5)

MAIN = [Case(policy) for policy in POLICIES]
ALPHA = [Case("allox", alpha=alpha) for alpha in (0.1, *ALPHAS)]
NOISE = [Case(policy, noise=noise) for policy in ("allox", "es") for noise in (*NOISES, 0.04)]
OVERHEAD = [Case(p, overhead=share) for p in ("allox", "es") for share in (*OVERHEADS, 0.03)]
HIGH = [Case(policy, load=HIGH_LOAD) for policy in POLICIES]
ROWS = list(dict.fromkeys([*MAIN, *HIGH, *ALPHA, *NOISE, *OVERHEAD]))
CASES = [replace(case, seed=seed) for seed in SEEDS for case in ROWS]

Runs = Sequence[SavedRun]
"""Runs of one row, ordered by seed."""
RunsByCase = Mapping[Case, Runs]


def write_page(folder: Path, docs: Path) -> None:
    """Write the page and its figures from the rows that have a run for every seed."""
    by_case = {row: runs for row in ROWS if len(runs := _runs(row, folder)) == len(SEEDS)}
    sections = [INTRODUCTION.format(jobs=10 * JOBS_PER_USER, seeds=len(SEEDS))]
    for load, cases in ((LOAD, MAIN), (HIGH_LOAD, HIGH)):
        title = f"## Against the others (section 5.2.2), load {load:g}\n\n"
        sections.append(
            title + _comparison_table([case for case in cases if case in by_case], by_case)
        )
    sections += [_alpha(by_case), _noise(by_case), _overhead(by_case)]
    sections += [_figures(by_case, docs / "img"), CONCLUSION]
    write_result("allox", "AlloX's experiments", "\n".join(sections))


def _runs(row: Case, folder: Path) -> Runs:
    runs = [load_run(replace(row, seed=seed), folder) for seed in SEEDS]
    return [run for run in runs if run is not None]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _mean(runs: Runs, figure: Callable[[SavedRun], float], form: str = ".0f") -> str:
    return mean_and_spread([figure(run) for run in runs], form)


def _percent_above(runs: Runs, rival_runs: Runs) -> str:
    """Mean completion time relative to the rival, in percent, paired by seed."""
    changes = [100 * (a.mean / b.mean - 1) for a, b in zip(runs, rival_runs, strict=True)]
    return f"{mean_and_spread(changes, '+.0f')} %"


def _comparison_table(cases: Sequence[Case], by_case: RunsByCase) -> str:
    """Table of ``cases``; the first one is AlloX."""
    allox_runs = by_case[cases[0]]
    rows = []
    for case in cases:
        runs = by_case[case]
        rows.append(
            [case.policy, _mean(runs, lambda run: run.mean),
             "" if case is cases[0] else _percent_above(allox_runs, runs),
             PAPER.get(case.policy, ""),
             _mean(runs, lambda run: run.longest), _mean(runs, lambda run: run.spread, ".3f"),
             f"{100 * fmean(run.gpu_use for run in runs):.0f} %",
             f"{100 * fmean(run.cpu_use for run in runs):.0f} %",
             f"{fmean(run.cpu_seconds for run in runs):.0f}"]
        )  # fmt: skip
    head = ["policy", "mean completion, s", "AlloX against it", "*paper*", "longest 1 %, s",
            "spread of progress", "GPUs used", "CPUs used", "processor s"]  # fmt: skip
    return _table(head, rows)


def _alpha(by_case: RunsByCase) -> str:
    best = by_case[Case("srpt")]
    rows = [
        [f"{case.alpha:g}", _mean(by_case[case], lambda run: run.mean),
         _percent_above(by_case[case], best),
         _mean(by_case[case], lambda run: run.spread, ".3f")]
        for case in ALPHA if case in by_case
    ]  # fmt: skip
    head = ["alpha", "mean completion, s", "against SRPT", "spread of progress"]
    return "## Performance and fairness (section 5.2.4)\n\n" + _table(head, rows)


def _noise(by_case: RunsByCase) -> str:
    rows = []
    for noise in sorted({case.noise for case in NOISE}):
        allox, equal = (by_case.get(Case(policy, noise=noise)) for policy in ("allox", "es"))
        if allox is not None and equal is not None:
            error = fmean(run.error for run in allox)
            rows.append([f"{100 * noise:.0f} %", f"{100 * error:.0f} %",
                         _mean(allox, lambda run: run.mean),
                         _mean(equal, lambda run: run.mean)])  # fmt: skip
    head = ["noise of a sample", "mean error of a run time", "allox, s", "es, s"]
    return "## Estimation errors (section 5.3.1)\n\n" + _table(head, rows)


def _overhead(by_case: RunsByCase) -> str:
    rows = []
    for share in sorted({case.overhead for case in OVERHEAD}):
        pair = [by_case.get(Case(policy, overhead=share)) for policy in ("allox", "es")]
        cells = [_mean(runs, lambda run: run.mean) for runs in pair if runs is not None]
        if len(cells) == len(pair):
            rows.append([f"{100 * share:.0f} %", *cells])
    head = ["samples, of the job", "allox, s", "es, s"]
    return "## Profiling overhead (section 5.3.2)\n\n" + _table(head, rows)


def _figures(by_case: RunsByCase, images: Path) -> str:
    """Draw the charts: the first seed, except for means."""
    chart_cases = [Case(p) for p in ("allox", "es", "drfs", "drfa", "srpt") if Case(p) in by_case]
    first = {case.policy: by_case[case][0] for case in chart_cases}
    long_user = {
        policy: [(0.0, 0.0)] + [(t / 3600, n + 1) for n, t in enumerate(run.long_ends)]
        for policy, run in first.items()
    }
    progress = {
        policy: [(i * SAMPLE_SECONDS / 3600, s) for i, s in enumerate(run.spreads)]
        for policy, run in first.items()
    }
    means = {case: fmean(run.mean for run in runs) for case, runs in by_case.items()}
    sweep = {"allox": [(case.alpha, means[case]) for case in ALPHA if case in by_case]}
    for policy in ("es", "srpt"):
        sweep[policy] = [(alpha, means[Case(policy)]) for alpha in (0.1, 1.0)]
    charts = {
        "alpha": ("Mean completion by alpha", "alpha", "seconds", sweep),
        "long-user": ("Jobs done of the user with the longest", "hours", "jobs", long_user),
        "progress": ("Spread of the users' progress", "hours", "standard deviation", progress),
    }
    text = "## Figures\n"
    for name, (title, x, y, lines) in charts.items():
        points = [point for line in lines.values() for point in line]
        axes = [Axis(label, 0.0, max(p[i] for p in points)) for i, label in enumerate((x, y))]
        svg = chart(title, axes[0], axes[1], lines, steps=name == "long-user")
        save_svg(images / f"allox-{name}.svg", svg)
        text += f"\n{title}:\n\n![{title}](img/allox-{name}.svg)\n"
    return text
