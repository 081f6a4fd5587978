"""Run what is missing, then write docs/hare.md's tables and figures.

    python -m bench.hare [--only 12,14,...,small]

Results are kept under build/hare; remove a file there to run its case again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.hare.experiments import FIGURES
from bench.hare.page import write_page
from bench.hare.runs import outcome
from bench.hare.small import distances

KEPT = Path("build/hare")
DOCS = Path("docs")


def main() -> None:
    numbers = [figure.number for figure in FIGURES]
    parser = argparse.ArgumentParser(prog="python -m bench.hare")
    parser.add_argument("--only", help="figures to run first, joined by commas; also: small")
    options = parser.parse_args()
    asked = options.only.split(",") if options.only else [*numbers, "small"]
    for figure in FIGURES:
        for label, scenario in figure.cases if figure.number in asked else ():
            outcome(scenario, KEPT)
            print(f"figure {figure.number}: {label}", file=sys.stderr, flush=True)
    if "small" in asked:
        distances(KEPT)
    if options.only is None:
        write_page(KEPT, DOCS)


main()
