"""Run what is missing, then write bench/results/paper.md.

    python -m bench.paper [--only table3,table4,...] [--no-run]

Results are kept under build/paper; remove a file there to run its case again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.kept_runs import main
from bench.paper.experiments import ALL
from bench.paper.page import write_page
from bench.paper.runs import kept, run

KEPT = Path("build/paper")

main(
    ALL,
    lambda case: kept(case, KEPT) is not None,
    partial(run, folder=KEPT),
    partial(write_page, KEPT, Path("docs")),
)
