"""Hare's policies and others in the round-based simulator, on the Hops paper's 64 GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.paper.experiments import Case
from bench.paper.runs import SavedRun, load_run, run
from hopsd.policies.hare.schedulers import SCHEDULERS

POLICIES = (*SCHEDULERS, "hops", "allox", "gavel", "srtf", "sjf")
SEEDS = (0, 1, 2)


def rounds(folder: Path) -> Iterator[tuple[str, list[SavedRun]]]:
    """Yield by policy one run per seed; simulate missing runs."""
    for policy in POLICIES:
        cases = [Case("paper-64", policy, seed) for seed in SEEDS]
        yield policy, [load_run(case, folder) or run(case, folder) for case in cases]
