"""Run the missing cases of AlloX's experiments, then write bench/results/allox.md.

    python -m bench.allox [--no-run]

Results are saved under build/allox; delete a file there to run its case again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.allox.page import CASES, JOBS_PER_USER, write_page
from bench.allox.runs import load_run, run

RUNS_FOLDER, DOCS = Path("build/allox"), Path("docs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.allox")
    parser.add_argument(
        "--no-run", action="store_true", help="only write the page, from saved runs"
    )
    options = parser.parse_args()
    for case in CASES if not options.no_run else ():
        if load_run(case, RUNS_FOLDER) is None:
            result = run(case, RUNS_FOLDER, JOBS_PER_USER)
            print(f"{case.name}: mean {result.mean:.0f} s, {result.cpu_seconds} s", file=sys.stderr)
    write_page(RUNS_FOLDER, DOCS)


if __name__ == "__main__":
    main()
