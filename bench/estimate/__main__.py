"""``python -m bench.estimate``: error by number of executions; ``--pollux DIR``: error, over
placements, of the speeds that hopsd plans with; ``--formula``: also of variants of its formula.

Each takes about two minutes. Plots go to docs/img.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.estimate import placements, unseen, unstable
from hopsd.ctl.render import show, table

EXECUTION_COUNTS = (1, 2, 3, 5, 8, 12, 20, 30, 40)


def main() -> None:
    options = _options()
    if options.executions:
        _executions(options)
    if options.pollux:
        _unseen_shapes(options.pollux)
    if options.pollux and options.formula:
        _placements(options.pollux, options.plots)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.estimate", description=__doc__)
    parser.add_argument("--executions", type=int, default=60, help="0 skips this part")
    parser.add_argument("--iterations", type=int, default=40, help="iterations of each execution")
    parser.add_argument("--orders", type=int, default=200, help="orders of the executions")
    parser.add_argument("--pollux", type=Path, metavar="DIR", help="folder of APPLICATION.csv")
    parser.add_argument(
        "--formula", action="store_true", help="also compare variants of the formula"
    )
    parser.add_argument("--plots", type=Path, default=Path("docs/img"))
    options = parser.parse_args()
    if options.pollux and not any(options.pollux.glob("*.csv")):
        parser.error(f"--pollux: {options.pollux} has no APPLICATION.csv")
    return options


def _executions(options: argparse.Namespace) -> None:
    executions = unstable.executions(options.executions, options.iterations)
    counts = [count for count in EXECUTION_COUNTS if count < options.executions]
    errors = unstable.errors(executions, counts, options.orders)
    rows = [
        (e.executions, _percent(e.median), _percent(e.p90), _percent(e.two_modes)) for e in errors
    ]
    title = f"Error of predicted throughput, executions of {options.iterations} iterations"
    show(table(title, ["executions", "median", "90th percentile", "two modes found"], rows))
    from bench.estimate.plot import draw_executions  # noqa: PLC0415  # needs matplotlib

    draw_executions(options.plots / "estimator-executions.svg", errors, options.iterations)


def _unseen_shapes(folder: Path) -> None:
    workloads = unseen.read(folder)
    accuracies = unseen.rows(workloads)
    methods = list(accuracies[0].errors)
    rows = [
        (
            row.shapes,
            row.predictions,
            *(f"{_percent(row.errors[m])} ({_percent(row.medians[m])})" for m in methods),
            _percent(row.within_spread),
        )
        for row in accuracies
    ]
    columns = ["measured", "predictions", *methods, "within the spread"]
    show(table("Error of shapes that were not measured: mean (median)", columns, rows))
    before = ", ".join(unseen.SHAPES_BEFORE)
    changes = [unseen.changed_batch(workloads, shapes) for shapes in unseen.SHAPES_SINCE]
    _show_compared(f"After a change of the batch size, {before} measured before it", changes)
    new = [unseen.new_application(workloads, shapes) for shapes in unseen.SOURCE_SHAPES]
    _show_compared("An application of which one GPU was measured, by others' shapes", new)


def _show_compared(title: str, accuracies: Sequence[unseen.Comparison]) -> None:
    methods = list(accuracies[0].errors)
    rows = [
        (
            row.shapes,
            row.predictions,
            *(f"{_percent(row.errors[m])} ({_percent(row.medians[m])})" for m in methods),
        )
        for row in accuracies
    ]
    show(table(title, ["measured", "predictions", *methods], rows))


def _placements(folder: Path, plots: Path) -> None:
    applications = placements.read(folder)
    results = [
        placements.cross_validated(applications, candidate, net)
        for net in ("11", "22", "44")
        for candidate in placements.CANDIDATES
    ]
    rows = [
        (
            result.net,
            result.candidate,
            _percent(float(np.median(result.all_errors))),
            _percent(float(np.quantile(result.all_errors, 0.9))),
            " ".join(
                f"{name} {_percent(float(np.median(e)))}" for name, e in result.errors.items()
            ),
        )
        for result in results
    ]
    columns = ["B_net from", "T_c = params / B_net *", "median", "90th percentile", "medians"]
    show(table(f"{len(results[0].all_errors)} placements and batch sizes", columns, rows))
    for result in results:
        if any(result.exponents):
            print(f"B_net from {result.net}, {result.candidate}: {result.exponents}")
    curves = [r for r in results if r.candidate.partition(":")[0] in ("paper", "ring")]
    from bench.estimate.plot import draw_placements  # noqa: PLC0415  # needs matplotlib

    draw_placements(plots / "estimator-placements.svg", curves)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    main()
