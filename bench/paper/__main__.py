"""Run the missing cases, then write bench/results/paper.md.

    python -m bench.paper [--only table3,table4,...] [--no-run]

Results are kept under build/paper; remove a file there to run its case again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.paper.experiments import EXPERIMENTS
from bench.paper.page import write_page
from bench.paper.runs import load_run, run
from bench.run_cases import main

RUNS_FOLDER = Path("build/paper")

main(
    EXPERIMENTS,
    lambda case: load_run(case, RUNS_FOLDER) is not None,
    partial(run, folder=RUNS_FOLDER),
    partial(write_page, RUNS_FOLDER, Path("docs")),
)
