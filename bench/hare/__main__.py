"""Run what is missing, then write bench/results/hare.md.

    python -m bench.hare [--only 12,small]

``--only`` runs some experiments and writes no page. Results are kept under build/hare; remove a
file there to run its case again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.hare.experiments import FIGURES
from bench.hare.page import in_turns, outcomes, switched, write_page
from bench.hare.small import distances

KEPT = Path("build/hare")
DOCS = Path("docs")
SMALL, SWITCHED, TURNS = "small", "switched", "turns"


def main() -> None:
    known = [*(figure.number for figure in FIGURES), SMALL, SWITCHED, TURNS]
    parser = argparse.ArgumentParser(prog="python -m bench.hare")
    parser.add_argument("--only", help=f"joined by commas: {', '.join(known)}")
    options = parser.parse_args()
    asked = options.only.split(",") if options.only else known
    if unknown := set(asked) - set(known):
        parser.error(f"no experiment {min(unknown)!r}; there are {', '.join(known)}")
    for figure in FIGURES:
        for label, scenario in figure.cases if figure.number in asked else ():
            outcomes(scenario, KEPT)
            print(f"figure {figure.number}: {label}", file=sys.stderr, flush=True)
    if SMALL in asked:
        distances(KEPT)
    if SWITCHED in asked:
        print(switched(KEPT))
    if TURNS in asked:
        print(in_turns(KEPT))
    if not options.only:
        write_page(KEPT, DOCS)


main()
