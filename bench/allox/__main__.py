"""Run what is missing of AlloX's experiments, then write bench/results/allox.md.

    python -m bench.allox [--no-run]

Results are kept under build/allox; remove a file there to run its case again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.allox.page import CASES, JOBS_PER_USER, write_page
from bench.allox.runs import kept, run

KEPT, DOCS = Path("build/allox"), Path("docs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.allox")
    parser.add_argument("--no-run", action="store_true", help="write the page of what is there")
    options = parser.parse_args()
    for case in CASES if not options.no_run else ():
        if kept(case, KEPT) is None:
            done = run(case, KEPT, JOBS_PER_USER)
            print(f"{case.name}: mean {done.mean:.0f} s, {done.cpu_seconds} s", file=sys.stderr)
    write_page(KEPT, DOCS)


if __name__ == "__main__":
    main()
