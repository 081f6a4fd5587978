"""Loops that are easily counted wrong: samples, steps and iterations are those of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Node

pytestmark = pytest.mark.live

STEPS, BATCH, WARMUP = 24, 8, 3


@pytest.mark.parametrize(
    "kind",
    ["slices_of_what_is_read", "ready_batches", "recomputed", "blind_look", "compiled_helper"],
)
def test_samples_are_those_that_lead_to_a_backward_pass(node: Node, kind: str) -> None:
    alone = node.program("counts", kind, profiler=False)
    watched = node.program("counts", kind)
    assert watched.losses == alone.losses
    assert len(alone.losses) == STEPS
    (report,) = watched.reports
    assert report["failure"] == ""
    assert (report["iterations"], report["samples"]) == (STEPS, STEPS * BATCH)
    timed = report["timed"]
    assert timed["samples"] == timed["iterations"] * BATCH
    assert timed["iterations"] >= STEPS - WARMUP - 1


@pytest.mark.parametrize("kind", ["packed_texts", "time_first", "bags"])
def test_a_batch_of_another_layout_is_what_the_loader_says(node: Node, kind: str) -> None:
    """A model is given fewer rows, or more, than there are samples."""
    (report,) = node.program("counts", kind).reports
    assert report["samples"] == STEPS * (1 if kind == "bags" else BATCH)
    assert report["samples_from"] == "batch"


def test_steps_of_all_learner_threads_count(node: Node) -> None:
    alone = node.program("counts", "learners", profiler=False)
    watched = node.program("counts", "learners")
    assert watched.losses == alone.losses
    (report,) = watched.reports
    # The last step of the other thread has no iteration behind it.
    assert 2 * STEPS - 1 <= report["iterations"] <= 2 * STEPS
    assert report["timed"]["samples"] == report["timed"]["iterations"] * BATCH
    assert report["timed"]["iterations"] >= 2 * (STEPS - WARMUP) - 2


def test_a_single_step_has_the_speed_of_its_closures_passes(node: Node) -> None:
    alone = node.program("counts", "lbfgs", profiler=False)
    watched = node.program("counts", "lbfgs")
    assert watched.losses == alone.losses
    (report,) = watched.reports
    assert report["iterations"] == len(alone.losses) > 40
    assert report["samples"] == report["iterations"] * BATCH
    assert report["timed"]["samples"] == report["timed"]["iterations"] * BATCH > 0


@pytest.mark.parametrize(("kind", "interrupted"), [("sampling", 2), ("rollouts", 0)])
def test_an_evaluation_that_says_nothing_of_itself_is_not_timed(
    node: Node, kind: str, interrupted: int
) -> None:
    """Rollouts are part of the training, as often as they come; the first may be taken for one."""
    alone = node.program("counts", kind, profiler=False)
    watched = node.program("counts", kind)
    assert watched.losses == alone.losses
    (report,) = watched.reports
    assert (report["iterations"], report["samples"]) == (3 * STEPS, 3 * STEPS * BATCH)
    assert interrupted <= report["interrupted"] <= interrupted + (kind == "rollouts")
    if kind == "sampling":
        assert report["timed"]["seconds"] < 0.5
    else:
        assert report["timed"]["seconds"] > 0.5
