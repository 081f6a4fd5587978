"""Writes bench/results/themis.md: tables and plots of the measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bench.result_file import save_svg, write_result
from bench.spread import mean_and_spread
from bench.themis.experiments import (
    ALL_POLICIES,
    CONTENTION,
    FILTERS,
    LEASES,
    LIE_SEEDS,
    LIES,
    NETWORK,
    NETWORK_POLICIES,
    SEEDS,
)
from bench.themis.measure import Case, Measurement, load_measurement
from bench.themis.text import (
    CONTENTION_TEXT,
    FINDINGS,
    INTRODUCTION,
    LIE_SECTION,
    MAIN,
    MIX,
    OTHER_IMPLEMENTATION,
    RHO_RATIOS,
    SWEEPS,
)
from hopsd.sim.svg import Axis, chart, distribution

Value = Callable[[Measurement], float]
NOT_RUN = "not run"
REFERENCE = "themis-share"
DEFAULT = [Case("themis", 2, seed) for seed in SEEDS]
RATIO_COLUMNS = (2, 4, 6)
CHART_POLICIES = ("themis", "themis-share", "gandiva", "tiresias", "srtf-apps", "srsf")

COLUMNS: tuple[tuple[str, Value], ...] = (
    ("max rho", lambda m: max(m.rho)),
    ("spread", lambda m: max(m.rho) - min(m.rho)),
    ("max rho, exact 1/N", lambda m: max(m.rho_share)),
    ("spread", lambda m: max(m.rho_share) - min(m.rho_share)),
    ("GPU hours", lambda m: m.gpu_hours),
    ("placement", lambda m: fmean(m.score)),
    ("mean hours", lambda m: fmean(m.hours)),
    ("makespan, h", lambda m: m.makespan_hours),
    ("restarts", lambda m: float(m.restarts)),
)


def write_page(folder: Path, docs: Path) -> None:
    """Write the page from the runs in ``folder``; mark experiments without runs."""
    images = docs / "img"
    images.mkdir(parents=True, exist_ok=True)
    parts = [INTRODUCTION, _main(folder, images), CONTENTION_TEXT, _contention(folder)]
    parts += [LIE_SECTION, _lie_section(folder, images), FINDINGS]
    parts += [
        RHO_RATIOS,
        _largest_rho_ratios(folder),
        MIX,
        _mix(folder, images),
        SWEEPS,
        _sweeps(folder),
        OTHER_IMPLEMENTATION,
    ]
    write_result("themis", "Themis and its rivals", "\n".join(parts))


def _mean(cases: Iterable[Case], folder: Path, value: Value) -> float | None:
    measurements = [load_measurement(case, folder) for case in cases]
    values = [value(m) for m in measurements if m is not None]
    return fmean(values) if values and len(values) == len(measurements) else None


def _cell(cases: Iterable[Case], folder: Path, value: Value) -> str:
    """Mean over the cases and, for several, the standard deviation."""
    measurements = [load_measurement(case, folder) for case in cases]
    values = [value(m) for m in measurements if m is not None]
    if not values or len(values) < len(measurements):
        return NOT_RUN
    mean = fmean(values)
    return mean_and_spread(values, f",.{0 if mean >= 100 else 1 if mean >= 10 else 2}f")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _main(folder: Path, images: Path) -> str:
    text = MAIN
    for kind in (1, 2):
        rows = []
        for policy in ALL_POLICIES:
            cases = [Case(policy, kind, seed) for seed in SEEDS]
            rows.append([policy, *(_cell(cases, folder, value) for _, value in COLUMNS)])
        text += f"\nWorkload {kind}:\n\n"
        text += _table(["policy", *(name for name, _ in COLUMNS)], rows)
    values: dict[str, list[float]] = {}
    for policy in CHART_POLICIES:
        measurements = [load_measurement(Case(policy, 2, seed), folder) for seed in SEEDS]
        values[policy] = [rho for m in measurements if m is not None for rho in m.rho_share]
    svg = distribution("finish-time fairness", "rho, exact 1/N; workload 2", values)
    return text + _image(svg, images, "themis-rho.svg", "Distribution of rho")


def _largest_rho_ratios(folder: Path) -> str:
    """Largest rho by exact 1/N of themis-share over that of every rival, seed by seed."""
    settings: Mapping[str, Callable[[str], list[Case]]] = {
        "workload 1": lambda p: [Case(p, 1, seed) for seed in SEEDS],
        "x2": lambda p: [Case(p, 1, seed, contention=2) for seed in SEEDS],
        "x4": lambda p: [Case(p, 1, seed, contention=4) for seed in SEEDS],
        "workload 2": lambda p: [Case(p, 2, seed) for seed in SEEDS],
    }
    rows = [
        [
            p,
            *(
                _ratio(cases_of(REFERENCE), cases_of(p), folder, COLUMNS[2][1])
                for cases_of in settings.values()
            ),
        ]
        for p in ALL_POLICIES
        if p != REFERENCE
    ]
    return _table([f"`{REFERENCE}` over", *settings], rows)


def _contention(folder: Path) -> str:
    rows = []
    for policy in ALL_POLICIES:
        row = [policy]
        for value in (COLUMNS[0][1], COLUMNS[2][1]):
            for times in CONTENTION:
                cases = [Case(policy, 1, seed, contention=times) for seed in SEEDS]
                row.append(_cell(cases, folder, value))
        rows.append(row)
    head = ["policy", *(f"x{t}" for t in CONTENTION), *(f"x{t}, exact 1/N" for t in CONTENTION)]
    return _table(head, rows)


def _mix(folder: Path, images: Path) -> str:
    text = ""
    for label, value in (COLUMNS[2], COLUMNS[4], COLUMNS[5]):
        rows = []
        for policy in NETWORK_POLICIES:
            rows.append(
                [policy, *(_cell(_network_cases(policy, s), folder, value) for s in NETWORK)]
            )
        text += f"\n{label[0].upper()}{label[1:]}:\n\n"
        text += _table(["policy", *(f"{share:.0%}" for share in NETWORK)], rows)
    lines: dict[str, list[tuple[float, float]]] = {}
    for policy in NETWORK_POLICIES:
        means = [(s, _mean(_network_cases(policy, s), folder, COLUMNS[2][1])) for s in NETWORK]
        lines[policy] = [(100 * s, mean) for s, mean in means if mean is not None]
    svg = _chart("share of network-bound apps", "%", "max rho, exact 1/N", lines)
    return text + _image(svg, images, "themis-network.svg", "Largest rho by share")


def _network_cases(policy: str, share: float) -> list[Case]:
    return [Case(policy, 2, seed, network=share) for seed in SEEDS]


def _sweeps(folder: Path) -> str:
    text = ""
    sweeps: Mapping[str, Mapping[str, Sequence[Case]]] = {
        "f": {f"{f:g}": [Case("themis", 2, s, filter_share=f) for s in SEEDS] for f in FILTERS},
        "lease, s": {f"{t:g}": [Case("themis", 2, s, lease=t) for s in SEEDS] for t in LEASES},
    }
    for knob, settings in sweeps.items():
        rows = [
            [name, *(_cell(cases, folder, value) for _, value in COLUMNS)]
            for name, cases in settings.items()
        ]
        text += "\n" + _table([knob, *(name for name, _ in COLUMNS)], rows)
        rows = [
            [name, *(_ratio(cases, DEFAULT, folder, COLUMNS[at][1]) for at in RATIO_COLUMNS)]
            for name, cases in settings.items()
        ]
        head = [f"{knob}, over the default", *(COLUMNS[at][0] for at in RATIO_COLUMNS)]
        text += "\n" + _table(head, rows)
    return text


def _lie_section(folder: Path, images: Path) -> str:
    rows, liar, truthful_hours = [], [], []
    for lie in LIES:
        cases = [Case("themis", 0, seed, lie=lie) for seed in LIE_SEEDS]
        liar_hours = _mean(cases, folder, lambda m: m.hours[0])
        truthful = _mean(cases, folder, lambda m: fmean(m.hours[1:]))
        score = _mean(cases, folder, lambda m: m.score[0])
        rows.append([f"{lie:.0%}", *(_text3(v) for v in (liar_hours, truthful, score))])
        if liar_hours is not None and truthful is not None:
            liar.append((100 * lie, liar_hours))
            truthful_hours.append((100 * lie, truthful))
    table = _table(["X", "the liar's hours", "others' mean hours", "the liar's placement"], rows)
    svg = _chart(
        "a lying app", "X, %", "hours to the end", {"liar": liar, "truthful": truthful_hours}
    )
    return table + _image(svg, images, "themis-lying.svg", "Hours of the liar and of the others")


def _ratio(cases: Sequence[Case], base: Sequence[Case], folder: Path, value: Value) -> str:
    """Mean and standard deviation of the seeds' ratios, and how many are below 1."""
    measurements, base_measurements = (
        [load_measurement(case, folder) for case in group] for group in (cases, base)
    )
    pairs = [
        (a, b)
        for a, b in zip(measurements, base_measurements, strict=True)
        if a is not None and b is not None
    ]
    if len(pairs) < len(base):
        return NOT_RUN
    ratios = [value(a) / value(b) for a, b in pairs]
    count_below = sum(ratio < 1.0 for ratio in ratios)
    return f"{mean_and_spread(ratios, '.2f')} ({count_below})"


def _text3(value: float | None) -> str:
    return NOT_RUN if value is None else f"{value:.3f}"


def _chart(title: str, x: str, y: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    points = [point for line in lines.values() for point in line] or [(0.0, 0.0)]
    x_axis = Axis(x, min(p[0] for p in points), max(p[0] for p in points))
    y_axis = Axis(y, 0.0, 1.1 * max(p[1] for p in points))
    return chart(title, x_axis, y_axis, lines, steps=False, legend_below=True)


def _image(svg: str, images: Path, name: str, alt: str) -> str:
    save_svg(images / name, svg)
    return f"\n![{alt}](img/{name})\n"
