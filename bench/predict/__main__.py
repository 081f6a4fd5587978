"""How well starts and ends are predicted on traces that were not used to build the predictor.

    python -m bench.predict [--philly FILE] [--sia DIR] [--shockwave DIR --speeds FILE]
        [--only TEXT ...] [--no-run] [--workers N]
    python -m bench.predict --learn steady|elastic   # writes hopsd/predict/prior.json

Folders are those of ``bench.rivals``. Prints, for each trace, policy and kind: predictions, how
many intervals came true, the median and mean absolute error, those of Slurm's backfill with time
limits (starts under ``slurm``) or of ``samples left / present speed`` (ends), and shares within one
and ten minutes. Then the same by load, by how far ahead, and of starts said at submission. Replays
are kept under build/predict: only those that are missing are played, with ``--no-run`` none.
``--only``: cases whose name has the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import numpy as np

from bench.predict.replay import Case, Replay, replay, true_of
from bench.predict.works import LEARN, Folders, to_learn, works
from bench.result_file import write_result
from hopsd.model.arrays import Floats
from hopsd.predict.calibration import Kind, scale
from hopsd.predict.prior import FILE, Residual, family_of, learn_prior
from hopsd.predict.traits import traits_of

PRIOR = Path("hopsd/predict") / FILE
KEPT = Path("build/predict")
LOADS = (100, 150, 250)
AHEADS = (60.0, 600.0, 3600.0, 6 * 3600.0)
FAMILIES = ("steady", "elastic")


def learn(family: str, numbers: int, workers: int) -> None:
    """Write the family's prior; the others stay."""
    chosen = [
        number
        for number in range(numbers)
        if family_of(traits_of(LEARN[number % len(LEARN)][0])) == family
    ]
    with ProcessPoolExecutor(workers) as pool:
        found = [residual for part in pool.map(_residuals, chosen) for residual in part]
    shipped = json.loads(PRIOR.read_text())
    PRIOR.write_text(json.dumps(shipped | learn_prior(found), indent=0) + "\n")


def _residuals(number: int) -> list[Residual]:
    """Of one work to learn from."""
    result = replay(to_learn(number))
    true = true_of(result)
    traits = traits_of(result.case.policy)
    print(number, result.case.policy, result.case.knows, f"{result.seconds:.0f} s", flush=True)
    return [
        Residual(
            traits,
            p.of_class,
            scale(true[p.job, p.kind] - p.at) - p.forecast.centre,
            p.forecast.weight,
        )
        for p in result.said
        if p.forecast is not None and p.forecast.weight > 0.0 and (p.job, p.kind) in true
    ]


Row = tuple[float, float, float, float, float, float, float, float]
"""at, expected, low, high, true, rival (NaN: none), load, 1 if the first of its job."""


def measured(of: Replay, kind: Kind) -> Floats:
    """Rows of one kind that came true."""
    true = true_of(of)
    rival = of.backfill if kind is Kind.START else of.present_speed
    rows: list[Row] = []
    seen = set()
    for p in of.said:
        if p.kind is kind and (p.job, kind) in true:
            other = rival.get((p.job, p.at), np.nan)
            load, first = of.load.get(p.at, 0), float(p.job not in seen)
            rows.append((p.at, p.expected, p.low, p.high, true[p.job, kind], other, load, first))
            seen.add(p.job)
    return np.array(rows, dtype=np.float64).reshape(len(rows), 8)


def path_of(case: Case) -> Path:
    """Where its replay is kept."""
    return KEPT / f"{case.label.replace('/', ' per ')}.npz"


def kept(case: Case) -> dict[Kind, Floats]:
    """Rows of both kinds, from an earlier run or a replay."""
    path = path_of(case)
    if not path.exists():
        result = replay(case)
        KEPT.mkdir(parents=True, exist_ok=True)
        np.savez(path, **{kind.value: measured(result, kind) for kind in Kind})
        print(f"{case.label}: {result.seconds:.0f} s", flush=True)
    with np.load(path) as found:
        return {kind: found[kind.value] for kind in Kind}


def line(name: str, rows: Floats) -> str:
    """One line of a table."""
    if not len(rows):
        return f"| {name} | 0 | | | | | |"
    _, expected, low, high, true, rival, _, _ = rows.T
    error, other = np.abs(expected - true), np.abs(rival - true)
    other = other[~np.isnan(other)]
    beside = f"{np.median(other):,.0f} / {np.mean(other):,.0f}" if len(other) else ""
    right = np.mean((low - 1e-6 <= true) & (true <= high + 1e-6))
    return (
        f"| {name} | {len(rows):,} | {right:.0%} | {np.median(error):,.0f} /"
        f" {np.mean(error):,.0f} | {beside} | {np.mean(error < 60):.0%} |"
        f" {np.mean(error < 600):.0%} |"
    )


HEAD = (
    "## {}\n\n"
    "| {} | predictions | came true | error, s: median / mean | {}'s | < 1 min | < 10 min |\n"
    "|---|---:|---:|---:|---:|---:|---:|"
)
RIVALS = {Kind.START: "backfill", Kind.END: "present speed"}


def tables(results: Sequence[tuple[Case, dict[Kind, Floats]]]) -> Iterable[str]:
    """All tables."""
    for kind in Kind:
        yield HEAD.format(f"{kind.value.capitalize()}s", "trace", RIVALS[kind])
        for case, rows in results:
            yield line(case.label, rows[kind])
        everything = np.concatenate([rows[kind] for _, rows in results])
        for policy in sorted({case.policy for case, _ in results}):
            some = [rows[kind] for case, rows in results if case.policy == policy]
            yield line(f"all under `{policy}`", np.concatenate(some))
        if kind is Kind.START:
            yield line("all, at submission", everything[everything[:, 7] > 0.0])
        for low, high in zip((0, *LOADS), (*LOADS, np.inf), strict=True):
            inside = (everything[:, 6] >= low) & (everything[:, 6] < high)
            yield line(f"GPUs wanted: {low} to {high:g} %", everything[inside])
        ahead = everything[:, 1] - everything[:, 0]
        for first, last in zip((0.0, *AHEADS), (*AHEADS, np.inf), strict=True):
            inside = (ahead >= first) & (ahead < last)
            yield line(f"{first / 60:g} to {last / 60:g} min ahead", everything[inside])
        yield ""


EXISTING = click.Path(exists=True, path_type=Path)


@click.command()
@click.option("--philly", type=EXISTING)
@click.option("--sia", type=EXISTING)
@click.option("--shockwave", type=EXISTING)
@click.option("--speeds", type=EXISTING)
@click.option("--only", multiple=True, help="Cases whose name has this text.")
@click.option("--no-run", is_flag=True, help="Of the replays that are kept alone.")
@click.option("--learn", "family", type=click.Choice(FAMILIES), help="Write the prior instead.")
@click.option("--numbers", type=click.IntRange(min=1), default=50, help="To learn from: below.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Processes.")
def main(
    philly: Path | None,
    sia: Path | None,
    shockwave: Path | None,
    speeds: Path | None,
    only: Sequence[str],
    no_run: bool,
    family: str | None,
    numbers: int,
    workers: int,
) -> None:
    if family is not None:
        learn(family, numbers, workers)
        return
    cases = [
        case
        for case in works(Folders(philly, sia, shockwave, speeds))
        if (not only or any(text in case.label for text in only))
        and (not no_run or path_of(case).exists())
    ]
    with ProcessPoolExecutor(workers) as pool:
        results = list(zip(cases, pool.map(kept, cases), strict=True))
    text = "\n".join(tables(results))
    print(text)
    write_result("predictions", "Predicted starts and ends", text)


if __name__ == "__main__":
    main()
