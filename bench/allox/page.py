"""docs/allox.md: tables and figures of what was run, the paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench.allox.runs import LOAD, SAMPLE_SECONDS, Case, Kept, kept
from bench.allox.text import CLOSING, OPENING, PAPER
from hopsd.sim.svg import Axis, chart

JOBS_PER_USER = 80
POLICIES = ("allox", "allox+", "es", "drff", "drfs", "drfa", "sjf+", "jsq+", "srpt")
ALPHAS = (0.2, 0.3, 0.5, 0.7, 1.0)
NOISES = (0.0, 0.1, 0.2)
OVERHEADS = (0.0, 0.1, 0.2)
HIGH_LOAD = 2.0

MAIN = [Case(policy) for policy in POLICIES]
ALPHA = [Case("allox", alpha=alpha) for alpha in (0.1, *ALPHAS)]
NOISE = [Case(policy, noise=noise) for policy in ("allox", "es") for noise in (*NOISES, 0.04)]
OVERHEAD = [Case(p, overhead=share) for p in ("allox", "es") for share in (*OVERHEADS, 0.03)]
HIGH = [Case(policy, load=HIGH_LOAD) for policy in POLICIES]
CASES = list(dict.fromkeys([*MAIN, *HIGH, *ALPHA, *NOISE, *OVERHEAD]))

Found = Mapping[Case, Kept]


def write_page(folder: Path, docs: Path) -> None:
    """The page and its figures, of the cases that are there."""
    found = {case: result for case in CASES if (result := kept(case, folder)) is not None}
    sections = [OPENING.format(jobs=10 * JOBS_PER_USER)]
    for load, cases in ((LOAD, MAIN), (HIGH_LOAD, HIGH)):
        title = f"## Against the others (section 5.2.2), load {load:g}\n\n"
        sections.append(title + _against([case for case in cases if case in found], found))
    sections += [_alpha(found), _noise(found), _overhead(found)]
    sections += [_figures(found, docs / "img"), CLOSING]
    (docs / "allox.md").write_text("\n".join(sections))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _against(cases: Sequence[Case], found: Found) -> str:
    """The first case is AlloX's."""
    ours = found[cases[0]]
    rows = []
    for case in cases:
        result = found[case]
        than = "" if case is cases[0] else f"{100 * (ours.mean / result.mean - 1):+.0f} %"
        rows.append(
            [case.policy, f"{result.mean:.0f}", than, PAPER.get(case.policy, ""),
             f"{result.longest:.0f}", f"{result.spread:.4f}", f"{100 * result.gpu_use:.0f} %",
             f"{100 * result.cpu_use:.0f} %", f"{result.cpu_seconds:.0f}"]
        )  # fmt: skip
    head = ["policy", "mean completion, s", "AlloX against it", "*paper*", "longest 1 %, s",
            "spread of progress", "GPUs used", "CPUs used", "processor s"]  # fmt: skip
    return _table(head, rows)


def _alpha(found: Found) -> str:
    best = found[Case("srpt")].mean
    rows = [
        [f"{case.alpha:g}", f"{found[case].mean:.0f}",
         f"{100 * (found[case].mean / best - 1):+.0f} %", f"{found[case].spread:.4f}"]
        for case in ALPHA if case in found
    ]  # fmt: skip
    head = ["alpha", "mean completion, s", "against SRPT", "spread of progress"]
    return "## Performance and fairness (section 5.2.4)\n\n" + _table(head, rows)


def _noise(found: Found) -> str:
    rows = []
    for noise in sorted({case.noise for case in NOISE}):
        pair = [found.get(Case(policy, noise=noise)) for policy in ("allox", "es")]
        allox, equal = pair
        if allox is not None and equal is not None:
            rows.append([f"{100 * noise:.0f} %", f"{100 * allox.error:.0f} %",
                         f"{allox.mean:.0f}", f"{equal.mean:.0f}"])  # fmt: skip
    head = ["noise of a sample", "mean error of a run time", "allox, s", "es, s"]
    return "## Estimation errors (section 5.3.1)\n\n" + _table(head, rows)


def _overhead(found: Found) -> str:
    rows = []
    for share in sorted({case.overhead for case in OVERHEAD}):
        pair = [found.get(Case(policy, overhead=share)) for policy in ("allox", "es")]
        allox, equal = pair
        if allox is not None and equal is not None:
            rows.append([f"{100 * share:.0f} %", f"{allox.mean:.0f}", f"{equal.mean:.0f}"])
    head = ["samples, of the job", "allox, s", "es, s"]
    return "## Profiling overhead (section 5.3.2)\n\n" + _table(head, rows)


def _figures(found: Found, images: Path) -> str:
    shown = [Case(p) for p in ("allox", "es", "drfs", "drfa", "srpt") if Case(p) in found]
    long_user = {
        case.policy: [(0.0, 0.0)] + [(t / 3600, n + 1) for n, t in enumerate(found[case].long_ends)]
        for case in shown
    }
    progress = {
        case.policy: [(i * SAMPLE_SECONDS / 3600, s) for i, s in enumerate(found[case].spreads)]
        for case in shown
    }
    sweep = {"allox": [(case.alpha, found[case].mean) for case in ALPHA if case in found]}
    for policy in ("es", "srpt"):
        sweep[policy] = [(0.1, found[Case(policy)].mean), (1.0, found[Case(policy)].mean)]
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
