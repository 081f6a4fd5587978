"""Sentences with counts: a count of one is singular."""

from __future__ import annotations

import pytest

from hopsd.model.reason import count_of
from hopsd.model.site import ResourceKind, kind_of_type


@pytest.mark.parametrize(
    ("number", "things", "text"),
    [
        (0, "jobs", "0 jobs"),
        (1, ResourceKind.GPUS, "1 GPU"),
        (2, ResourceKind.GPUS, "2 GPUs"),
        (1.0, ResourceKind.RUNNING_GPU_MINUTES, "1 GPU minute to run"),
        (1, ResourceKind.BILLING, "1 billing unit"),
        (1.5, ResourceKind.BILLING, "1.5 billing units"),
        (1, ResourceKind.MEMORY, "1 MB of memory"),
        (1, kind_of_type("gts"), "1 GPU of type gts"),
        (2**53 + 1, "jobs", "9007199254740993 jobs"),
    ],
)
def test_counts_of_one_are_singular(number: float, things: str, text: str) -> None:
    assert count_of(number, things) == text
