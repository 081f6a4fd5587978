"""Run what is missing, then write docs/themis.md and its plots.

    python -m bench.themis [--only main,lying,...] [--no-run]

Results are kept under build/themis; remove a file there to run its case again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from bench.themis.experiments import ALL
from bench.themis.measure import measure, measured
from bench.themis.page import write_page

KEPT = Path("build/themis")
DOCS = Path("docs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.themis")
    parser.add_argument("--only", default=",".join(ALL), help="experiments, joined by commas")
    parser.add_argument("--no-run", action="store_true", help="write the page of what is there")
    options = parser.parse_args()
    if not options.no_run:
        for experiment in options.only.split(","):
            for case in ALL[experiment]:
                if measured(case, KEPT) is None:
                    began = perf_counter()
                    measure(case, KEPT)
                    seconds = perf_counter() - began
                    print(f"{experiment}: {case.name} in {seconds:.0f} s", file=sys.stderr)
    write_page(KEPT, DOCS)


main()
