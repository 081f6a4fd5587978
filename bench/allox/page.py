"""bench/results/allox.md: tables and figures of what was run, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from bench.allox.runs import LOAD, SAMPLE_SECONDS, Case, Kept, kept
from bench.allox.text import CLOSING, OPENING, PAPER
from bench.result_file import write_result
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

Runs = Sequence[Kept]
"""Of one row, in the order of seeds."""
Found = Mapping[Case, Runs]


def write_page(folder: Path, docs: Path) -> None:
    """The page and its figures, of the rows that are there with every seed."""
    found = {row: runs for row in ROWS if len(runs := _runs(row, folder)) == len(SEEDS)}
    sections = [OPENING.format(jobs=10 * JOBS_PER_USER, seeds=len(SEEDS))]
    for load, cases in ((LOAD, MAIN), (HIGH_LOAD, HIGH)):
        title = f"## Against the others (section 5.2.2), load {load:g}\n\n"
        sections.append(title + _against([case for case in cases if case in found], found))
    sections += [_alpha(found), _noise(found), _overhead(found)]
    sections += [_figures(found, docs / "img"), CLOSING]
    write_result("allox", "AlloX's experiments", "\n".join(sections))


def _runs(row: Case, folder: Path) -> Runs:
    runs = [kept(replace(row, seed=seed), folder) for seed in SEEDS]
    return [run for run in runs if run is not None]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _mean(runs: Runs, figure: Callable[[Kept], float], form: str = ".0f") -> str:
    return mean_and_spread([figure(run) for run in runs], form)


def _above(runs: Runs, others: Runs) -> str:
    """By how many percent jobs take longer than under another policy, seed by seed."""
    changes = [100 * (a.mean / b.mean - 1) for a, b in zip(runs, others, strict=True)]
    return f"{mean_and_spread(changes, '+.0f')} %"


def _against(cases: Sequence[Case], found: Found) -> str:
    """The first case is AlloX's."""
    ours = found[cases[0]]
    rows = []
    for case in cases:
        runs = found[case]
        rows.append(
            [case.policy, _mean(runs, lambda run: run.mean),
             "" if case is cases[0] else _above(ours, runs), PAPER.get(case.policy, ""),
             _mean(runs, lambda run: run.longest), _mean(runs, lambda run: run.spread, ".3f"),
             f"{100 * fmean(run.gpu_use for run in runs):.0f} %",
             f"{100 * fmean(run.cpu_use for run in runs):.0f} %",
             f"{fmean(run.cpu_seconds for run in runs):.0f}"]
        )  # fmt: skip
    head = ["policy", "mean completion, s", "AlloX against it", "*paper*", "longest 1 %, s",
            "spread of progress", "GPUs used", "CPUs used", "processor s"]  # fmt: skip
    return _table(head, rows)


def _alpha(found: Found) -> str:
    best = found[Case("srpt")]
    rows = [
        [f"{case.alpha:g}", _mean(found[case], lambda run: run.mean), _above(found[case], best),
         _mean(found[case], lambda run: run.spread, ".3f")]
        for case in ALPHA if case in found
    ]  # fmt: skip
    head = ["alpha", "mean completion, s", "against SRPT", "spread of progress"]
    return "## Performance and fairness (section 5.2.4)\n\n" + _table(head, rows)


def _noise(found: Found) -> str:
    rows = []
    for noise in sorted({case.noise for case in NOISE}):
        allox, equal = (found.get(Case(policy, noise=noise)) for policy in ("allox", "es"))
        if allox is not None and equal is not None:
            error = fmean(run.error for run in allox)
            rows.append([f"{100 * noise:.0f} %", f"{100 * error:.0f} %",
                         _mean(allox, lambda run: run.mean),
                         _mean(equal, lambda run: run.mean)])  # fmt: skip
    head = ["noise of a sample", "mean error of a run time", "allox, s", "es, s"]
    return "## Estimation errors (section 5.3.1)\n\n" + _table(head, rows)


def _overhead(found: Found) -> str:
    rows = []
    for share in sorted({case.overhead for case in OVERHEAD}):
        pair = [found.get(Case(policy, overhead=share)) for policy in ("allox", "es")]
        cells = [_mean(runs, lambda run: run.mean) for runs in pair if runs is not None]
        if len(cells) == len(pair):
            rows.append([f"{100 * share:.0f} %", *cells])
    head = ["samples, of the job", "allox, s", "es, s"]
    return "## Profiling overhead (section 5.3.2)\n\n" + _table(head, rows)


def _figures(found: Found, images: Path) -> str:
    """Of the first seed, but for the means."""
    shown = [Case(p) for p in ("allox", "es", "drfs", "drfa", "srpt") if Case(p) in found]
    first = {case.policy: found[case][0] for case in shown}
    long_user = {
        policy: [(0.0, 0.0)] + [(t / 3600, n + 1) for n, t in enumerate(run.long_ends)]
        for policy, run in first.items()
    }
    progress = {
        policy: [(i * SAMPLE_SECONDS / 3600, s) for i, s in enumerate(run.spreads)]
        for policy, run in first.items()
    }
    means = {case: fmean(run.mean for run in runs) for case, runs in found.items()}
    sweep = {"allox": [(case.alpha, means[case]) for case in ALPHA if case in found]}
    for policy in ("es", "srpt"):
        sweep[policy] = [(alpha, means[Case(policy)]) for alpha in (0.1, 1.0)]
    drawn = {
        "alpha": ("Mean completion by alpha", "alpha", "seconds", sweep),
        "long-user": ("Jobs done of the user with the longest", "hours", "jobs", long_user),
        "progress": ("Spread of the users' progress", "hours", "standard deviation", progress),
    }
    text = "## Figures\n"
    for name, (title, x, y, lines) in drawn.items():
        points = [point for line in lines.values() for point in line]
        axes = [Axis(label, 0.0, max(p[i] for p in points)) for i, label in enumerate((x, y))]
        svg = chart(title, axes[0], axes[1], lines, steps=name == "long-user")
        alone = '<svg xmlns="http://www.w3.org/2000/svg" font-size="11" font-family="sans-serif" '
        (images / f"allox-{name}.svg").write_text(svg.replace("<svg ", alone, 1))
        text += f"\n{title}:\n\n![{title}](img/allox-{name}.svg)\n"
    return text
