"""Run what is missing, then write docs/paper.md.

    python -m bench.paper [--only table3,table4,...] [--no-run]

Results are kept under build/paper; remove a file there to run its case again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.paper.experiments import ALL
from bench.paper.page import write_page
from bench.paper.runs import kept, run

KEPT = Path("build/paper")
DOCS = Path("docs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.paper")
    parser.add_argument("--only", default=",".join(ALL), help="experiments, joined by commas")
    parser.add_argument("--no-run", action="store_true", help="write the page of what is there")
    options = parser.parse_args()
    if not options.no_run:
        for experiment in options.only.split(","):
            for case in ALL[experiment]:
                if kept(case, KEPT) is None:
                    done = run(case, KEPT)
                    seconds = done.figures["wall_seconds"]
                    print(f"{experiment}: {case.name} in {seconds:.0f} s", file=sys.stderr)
    write_page(KEPT, DOCS)


main()
