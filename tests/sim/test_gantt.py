"""Where the Gantt chart of a simulation draws runs, hours and waiting jobs."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from sim_cases import cluster

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.sim.gantt import LEFT, WIDTH, gantt
from hopsd.sim.metrics import AllocationChange, RoundState

HOUR = 3600.0
RIGHT = WIDTH - 10


def picture(changes: list[AllocationChange], rounds: list[RoundState]) -> ElementTree.Element:
    svg = gantt(cluster(n0=2, n1=4), changes, rounds)
    return ElementTree.fromstring(svg)  # noqa: S314 - our own text


def change(hours: float, job: str, **nodes: int) -> AllocationChange:
    return AllocationChange(hours * HOUR, JobId(job), Allocation.of(nodes))


def titled_rectangles(drawing: ElementTree.Element, words: str) -> list[tuple[float, float, float]]:
    """Return x, width and y of the rectangles whose title begins with ``words``."""
    return [
        (float(rect.attrib["x"]), float(rect.attrib["width"]), float(rect.attrib["y"]))
        for rect in drawing.iter("rect")
        if (title := rect.find("title")) is not None and (title.text or "").startswith(words)
    ]


def test_bars_use_free_lanes() -> None:
    drawing = picture(
        [
            change(1.0, "a", n0=1, n1=2),
            change(1.0, "b", n0=1),
            change(3.0, "a"),
            change(3.0, "a", n1=1),
            change(5.0, "a"),
            change(5.0, "b"),
        ],
        [],
    )
    width = RIGHT - LEFT
    first = titled_rectangles(drawing, "job a on {n0:1, n1:2}, 1.00 h to 3.00 h")
    assert [bar[:2] for bar in first] == [(LEFT, width / 2)] * 3
    assert len({bar[2] for bar in first}) == 3
    (second,) = titled_rectangles(drawing, "job a on {n1:1}, 3.00 h to 5.00 h")
    assert second[:2] == (LEFT + width / 2, width / 2)
    assert second[2] in {bar[2] for bar in first}  # a row that became free at that instant
    (other,) = titled_rectangles(drawing, "job b on {n0:1}, 1.00 h to 5.00 h")
    assert other[:2] == (LEFT, width)
    assert other[2] not in {bar[2] for bar in first}
    edges = [rect for rect in drawing.iter("rect") if rect.attrib["width"] == "1"]
    assert [float(edge.attrib["x"]) for edge in edges] == [second[0]]  # a restart


@pytest.mark.parametrize(("hours", "step"), [(1.0, 0.1), (4.0, 0.25), (12.0, 1.0), (100.0, 10.0)])
def test_hours_are_labelled_at_their_positions(hours: float, step: float) -> None:
    drawing = picture([change(0.0, "a", n0=1), change(hours, "a")], [])
    scale = (RIGHT - LEFT) / hours
    positions = {
        float((text.text or "").removesuffix(" h")): float(text.attrib["x"])
        for text in drawing.iter("text")
        if (text.text or "").endswith(" h")
    }
    expected_hours = [step * i for i in range(round(hours / step) + 1)]
    assert sorted(positions) == pytest.approx(expected_hours)
    assert [positions[hour] for hour in sorted(positions)] == pytest.approx(
        [LEFT + hour * scale for hour in expected_hours], abs=0.06
    )


def test_waiting_jobs_and_fragments_are_drawn_from_round_to_round() -> None:
    rounds = [
        RoundState(time * HOUR, queue_length, 1, 0, fragments, 1.0)
        for time, queue_length, fragments in [(0.0, 2, 0), (1.0, 4, 3), (3.0, 0, 0)]
    ]
    drawing = picture([change(0.0, "a", n0=1), change(4.0, "a")], rounds)
    quarter = (RIGHT - LEFT) / 4
    ((x, width, half_full),) = titled_rectangles(drawing, "2")
    assert (x, width) == pytest.approx((LEFT, quarter), abs=0.06)
    ((x, width, full),) = titled_rectangles(drawing, "4")
    assert (x, width) == pytest.approx((LEFT + quarter, 2 * quarter), abs=0.06)
    assert half_full - full == pytest.approx(10.0)  # half of the strip's height of 20
    ((x, width, _),) = titled_rectangles(drawing, "3")
    assert (x, width) == pytest.approx((LEFT + quarter, 2 * quarter), abs=0.06)
