"""The positions of what the pages draw."""

from __future__ import annotations

from typing import Any

import pytest

from hopsd.model.journal import PlanSummary
from hopsd.model.plan import PlanStatus
from hopsd.web import drawing


def placement(start: float, end: float | None, **nodes: int) -> dict[str, Any]:
    return {"start": start, "end": end, "nodes": nodes}


def test_a_timeline_goes_from_submission_to_now_while_a_job_runs() -> None:
    placements = [placement(100.0, 300.0, n0=2), placement(400.0, None, n0=4, n1=4)]
    timeline = drawing.timeline(placements, 0.0, 500.0)
    assert timeline is not None
    assert (timeline.begin, timeline.end, timeline.max_gpus) == (0.0, 500.0, 8)
    bars = [(stretch.x, stretch.width, stretch.gpus) for stretch in timeline.stretches]
    assert bars == [(200.0, 400.0, 2), (800.0, 200.0, 8)]


def test_a_timeline_of_an_ended_job_ends_with_it() -> None:
    timeline = drawing.timeline([placement(100.0, 300.0, n0=2)], 50.0, 1000.0)
    assert timeline is not None
    assert (timeline.begin, timeline.end) == (50.0, 300.0)
    assert [(stretch.x, stretch.width) for stretch in timeline.stretches] == [(200.0, 800.0)]


def test_a_run_of_zero_length_is_visible() -> None:
    timeline = drawing.timeline(
        [placement(100.0, 100.0, n0=2), placement(500.0, None, n0=2)], 0.0, None
    )
    assert timeline is not None
    assert [stretch.width for stretch in timeline.stretches] == [2.0, 2.0]
    assert drawing.timeline([], 0.0, 1.0) is None


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ("1", "It was number 2 of 2 in the last plan's service window."),
        (
            "2",
            (
                "It was outside the service window, and was let in since other jobs' sensitivity"
                " left GPUs for it."
            ),
        ),
        ("3", None),
    ],
)
def test_a_jobs_position_in_the_last_plan_is_described(job: str, sentence: str | None) -> None:
    document = {"round": {"window": ["7", "1"], "adjusted": ["2"]}}
    assert drawing.turn(document, {"id": job}) == sentence
    assert drawing.turn({"round": None}, {"id": job}) is None


def test_a_user_limited_to_own_jobs_learns_no_position() -> None:
    document = {"round": {"window": ["7", "1"], "adjusted": []}, "private": True}
    assert drawing.turn(document, {"id": "1"}) == "It was in the service window of the last plan."


def test_parts_of_a_node_fill_it_from_the_left() -> None:
    node = {
        "gpus": 8, "idle": 2, "usable": True, "foreign": 1, "jobs": {"5": 3},
    }  # fmt: skip
    segments = [(part.start, part.gpus, part.css_class) for part in drawing.parts(node)]
    assert segments == [(0, 3, "c5"), (3, 1, "foreign"), (4, 2, "idle"), (6, 2, "hidden")]
    assert drawing.describe_node(node) == (
        "8: 3 of job 5, 1 of plain Slurm jobs, 2 of jobs that are not shown to you, 2 idle"
    )
    down_node = {**node, "usable": False}
    assert [part.css_class for part in drawing.parts(down_node)] == [
        "c5",
        "foreign",
        "off",
        "hidden",
    ]


def test_a_course_goes_from_the_oldest_plan_to_the_newest() -> None:
    def plan(objective: float, upper_bound: float) -> PlanSummary:
        return PlanSummary(
            0.0, True, PlanStatus.OPTIMAL, objective, upper_bound, 0.0, 0, 1, 0.1, 0, 0
        )

    course = drawing.course([plan(10.0, 20.0), plan(5.0, 5.0), plan(0.0, 10.0)])
    assert course == drawing.ObjectiveCourse(
        "0.0,100.0 500.0,75.0 1000.0,50.0", "0.0,50.0 500.0,75.0 1000.0,0.0", 20.0
    )
    assert drawing.course([plan(10.0, 20.0)]) is None


def test_tasks_of_an_array_have_adjacent_colours() -> None:
    assert [drawing.colour(job) for job in ("23", "24", "17_4", "17_5")] == [23, 0, 21, 22]
    assert drawing.colour("odd name") == drawing.colour("odd name") < drawing.COLOURS
