"""How well starts and ends are predicted on traces that were not used to build the predictor.

    python -m bench.predict [--philly FILE] [--small]
    python -m bench.predict --learn      # writes hopsd/predict/prior.json, from other seeds

Prints, for each trace, policy and kind: predictions, how many intervals came true, the median
absolute error, the same of Slurm's backfill with time limits (starts under ``slurm``) or of
``samples left / present speed`` (ends), and shares within one and ten minutes. Then the same by
load and by how far ahead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import click
import numpy as np

from bench.predict.replay import Case, Replay, replay, true_of
from bench.result_file import write_result
from hopsd.formats.source import read_text
from hopsd.model.arrays import Floats
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.scenario import Cluster, Server
from hopsd.predict.calibration import Class, Kind
from hopsd.predict.prior import FILE, learnt
from hopsd.predict.traits import Traits, traits_of
from hopsd.sim.information.knowledge import Knows
from hopsd.sim.logs.importers import IMPORTERS, workload_of
from hopsd.sim.presets import preset

PRIOR = Path("hopsd/predict") / FILE
LEARN_SEED = 1000
"""Seeds from here on are for the prior alone."""

LEARN = (
    ("hops", Knows.PERFECT, 20.0),
    ("hops", Knows.PERFECT, 35.0),
    ("hops", Knows.MEASURED, 25.0),
    ("hops+", Knows.PERFECT, 30.0),
    ("hops+", Knows.MEASURED, 25.0),
    ("slurm", Knows.PERFECT, 25.0),
    ("slurm", Knows.MEASURED, 20.0),
    ("slurm", Knows.MEASURED, 30.0),
    ("slurm", Knows.NONE, 25.0),
)
PHILLY_GPUS = 48
"""The trace needs 54 on average: jobs wait, but not for days."""

LOADS = (100, 150, 250)
AHEADS = (60.0, 600.0, 3600.0, 6 * 3600.0)


Residual = tuple[Traits, Class, float]


def learn(jobs: int, workers: int) -> None:
    """Write the prior."""
    with ProcessPoolExecutor(workers) as pool:
        said = [r for part in pool.map(partial(_residuals, jobs), range(len(LEARN))) for r in part]
    PRIOR.write_text(json.dumps(learnt(said), indent=0) + "\n")


def _residuals(jobs: int, number: int) -> list[Residual]:
    """Of one workload to learn from."""
    policy, knows, rate = LEARN[number]
    seed, made = LEARN_SEED + number, preset("paper-64")
    workload = made.workload(seed, jobs=jobs, rate_per_hour=rate)
    result = replay(Case("learn", made.cluster(), workload, policy, knows, seed))
    print(policy, knows, rate, f"{result.seconds:.0f} s", flush=True)
    return [
        (traits_of(policy), p.of_class, p.said.residual)
        for p in result.said
        if p.said is not None and p.said.residual is not None
    ]


def cases(philly: str | None, *, small: bool) -> Iterator[Case]:
    """What is measured."""
    made = preset("paper-64")
    for rate in (10.0, 25.0):
        workload = made.workload(7, jobs=50, rate_per_hour=rate)
        for policy, knows in (
            ("slurm", Knows.PERFECT),
            ("slurm", Knows.MEASURED),
            ("slurm", Knows.NONE),
            ("hops", Knows.PERFECT),
            ("hops", Knows.MEASURED),
            ("hops+", Knows.PERFECT),
        ):
            yield Case(f"paper-64, {rate:g}/h", made.cluster(), workload, policy, knows, 7)
    if philly is not None:
        servers = tuple(
            Server(NodeName(f"n{i}"), GpuType("gpu"), 8) for i in range(PHILLY_GPUS // 8)
        )
        cluster = Cluster(servers)
        workload = workload_of(IMPORTERS["philly"](read_text(philly)), cluster)
        for policy, knows in (
            ("slurm", Knows.MEASURED),
            ("slurm", Knows.NONE),
            ("hops", Knows.MEASURED),
        ):
            yield Case("philly", cluster, workload, policy, knows)
    if not small:
        made = preset("paper-512")
        for policy, knows in (("slurm", Knows.MEASURED), ("hops", Knows.PERFECT)):
            yield Case("paper-512", made.cluster(), made.workload(7), policy, knows, 7)


Row = tuple[float, float, float, float, float, float, float]
"""at, expected, low, high, true, rival (NaN: none), load."""


def measured(of: Replay, kind: Kind) -> Floats:
    """Rows of one kind that came true."""
    true = true_of(of)
    rival = of.backfill if kind is Kind.START else of.present_speed
    rows: list[Row] = [
        (
            p.at,
            p.expected,
            p.low,
            p.high,
            true[p.job, kind],
            rival.get((p.job, p.at), np.nan),
            of.load.get(p.at, 0),
        )
        for p in of.said
        if p.kind is kind and (p.job, kind) in true
    ]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 7)


def line(name: str, rows: Floats) -> str:
    """One line of a table."""
    if not len(rows):
        return f"| {name} | 0 | | | | | |"
    _, expected, low, high, true, rival, _ = rows.T
    error = np.abs(expected - true)
    told = ~np.isnan(rival)
    other = f"{np.median(np.abs(rival - true)[told]):,.0f}" if told.any() else ""
    right = np.mean((low <= true) & (true <= high))
    return (
        f"| {name} | {len(rows):,} | {right:.1%} | {np.median(error):,.0f} | {other} |"
        f" {np.mean(error < 60):.0%} | {np.mean(error < 600):.0%} |"
    )


HEAD = (
    "| {} | predictions | in the interval | median error, s | rival's, s | < 1 min | < 10 min |\n"
    "|---|---:|---:|---:|---:|---:|---:|"
)


def tables(results: Sequence[Replay]) -> Iterable[str]:
    """All tables."""
    for kind in Kind:
        yield HEAD.format(kind.value)
        own = [(r, measured(r, kind)) for r in results]
        for r, rows in own:
            name = f"{r.case.name}, `{r.case.policy}`, {r.case.knows.value}"
            yield line(name, rows)
        everything = np.concatenate([rows for _, rows in own])
        yield line("all", everything)
        for low, high in zip((0, *LOADS), (*LOADS, np.inf), strict=True):
            inside = (everything[:, 6] >= low) & (everything[:, 6] < high)
            yield line(f"GPUs wanted: {low} to {high:g} %", everything[inside])
        ahead = everything[:, 1] - everything[:, 0]
        for first, last in zip((0.0, *AHEADS), (*AHEADS, np.inf), strict=True):
            inside = (ahead >= first) & (ahead < last)
            yield line(f"{first / 60:g} to {last / 60:g} min ahead", everything[inside])
        yield ""


@click.command()
@click.option("--philly", type=click.Path(exists=True, dir_okay=False))
@click.option("--small", is_flag=True, help="Without paper-512.")
@click.option("--learn", "learning", is_flag=True, help="Write the prior instead.")
@click.option("--jobs", type=click.IntRange(min=1), default=60, help="Of a workload to learn from.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Processes.")
def main(philly: str | None, small: bool, learning: bool, jobs: int, workers: int) -> None:
    if learning:
        learn(jobs, workers)
        return
    with ProcessPoolExecutor(workers) as pool:
        results = list(pool.map(replay, cases(philly, small=small)))
    for result in results:
        case = result.case
        print(f"{case.name} {case.policy} {case.knows.value}: {result.seconds:.0f} s")
    text = "\n".join(tables(results))
    print(text)
    write_result("predict", "Predicted starts and ends", text)


if __name__ == "__main__":
    main()
