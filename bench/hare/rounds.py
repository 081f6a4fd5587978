"""Hare's policies beside others in the round-based simulator: the Hops paper's 64 GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.paper.experiments import Case
from bench.paper.runs import Kept, kept, run
from hopsd.policies.hare.schedulers import SCHEDULERS

POLICIES = (*SCHEDULERS, "hops", "allox", "gavel", "srtf", "sjf")
SEEDS = (0, 1, 2)


def rounds(folder: Path) -> Iterator[tuple[str, list[Kept]]]:
    """By policy, one run a seed; run what is missing."""
    for policy in POLICIES:
        cases = [Case("paper-64", policy, seed) for seed in SEEDS]
        yield policy, [kept(case, folder) or run(case, folder) for case in cases]
