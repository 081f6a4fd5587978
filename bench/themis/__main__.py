"""Run what is missing, then write bench/results/themis.md and its plots.

    python -m bench.themis [--only main,lying,...] [--no-run]

Results are kept under build/themis; remove a file there to run its case again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.kept_runs import main
from bench.themis.experiments import ALL
from bench.themis.measure import measure, measured
from bench.themis.page import write_page

KEPT = Path("build/themis")

main(
    ALL,
    lambda case: measured(case, KEPT) is not None,
    partial(measure, folder=KEPT),
    partial(write_page, KEPT, Path("docs")),
)
