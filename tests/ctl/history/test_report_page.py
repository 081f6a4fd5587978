"""What `hopsctl report --html` draws."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from hopsd.ctl.history.page import BOTTOM, HEIGHT, LEFT, USES, WIDTH, bars


def test_bars_are_drawn_side_by_side_at_their_hours() -> None:
    use = dict.fromkeys(USES, 1.0) | {"gpu_type": "a100"}
    drawing = bars([use | {"hour": 3600.0 * hour} for hour in (5, 6, 8)])  # nothing at 7
    boxes = [
        tuple(map(float, match))
        for match in re.findall(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', drawing)
    ]
    assert len(boxes) == 3 * len(USES)
    column = (WIDTH - LEFT) / 4
    assert [x for x, *_ in boxes[:: len(USES)]] == [LEFT, LEFT + column, LEFT + 3 * column]
    assert {width for _, _, width, _ in boxes} == {column - 1}
    stack = boxes[: len(USES)]
    assert stack[0][1] + stack[0][3] == HEIGHT - BOTTOM
    assert all(
        upper[1] + upper[3] == pytest.approx(lower[1], abs=0.02) for lower, upper in pairwise(stack)
    )
