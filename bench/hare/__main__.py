"""Run the missing cases, then write bench/results/hare.md.

    python -m bench.hare [--only 12,small]

``--only`` runs some experiments and writes no page. Results are saved under build/hare; delete a
file there to run its case again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.hare.experiments import FIGURES
from bench.hare.page import in_turns, outcomes, switching_tables, write_page
from bench.hare.small import distances

RUNS_FOLDER = Path("build/hare")
DOCS = Path("docs")
SMALL, SWITCH_TABLE, TURNS = "small", "switched", "turns"


def main() -> None:
    names = [*(figure.number for figure in FIGURES), SMALL, SWITCH_TABLE, TURNS]
    parser = argparse.ArgumentParser(prog="python -m bench.hare")
    parser.add_argument("--only", help=f"comma-separated: {', '.join(names)}")
    options = parser.parse_args()
    selection = options.only.split(",") if options.only else names
    if unknown := set(selection) - set(names):
        parser.error(f"no experiment {min(unknown)!r}; there are {', '.join(names)}")
    for figure in FIGURES:
        for label, scenario in figure.cases if figure.number in selection else ():
            outcomes(scenario, RUNS_FOLDER)
            print(f"figure {figure.number}: {label}", file=sys.stderr, flush=True)
    if SMALL in selection:
        distances(RUNS_FOLDER)
    if SWITCH_TABLE in selection:
        print(switching_tables(RUNS_FOLDER))
    if TURNS in selection:
        print(in_turns(RUNS_FOLDER))
    if not options.only:
        write_page(RUNS_FOLDER, DOCS)


main()
