"""Run the missing cases, then write bench/results/themis.md and its plots.

    python -m bench.themis [--only main,lying,...] [--no-run]

Results are saved under build/themis; delete a file there to run its case again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.run_cases import main
from bench.themis.experiments import EXPERIMENTS
from bench.themis.measure import load_measurement, measure
from bench.themis.page import write_page

RUNS_FOLDER = Path("build/themis")

main(
    EXPERIMENTS,
    lambda case: load_measurement(case, RUNS_FOLDER) is not None,
    partial(measure, folder=RUNS_FOLDER),
    partial(write_page, RUNS_FOLDER, Path("docs")),
)
