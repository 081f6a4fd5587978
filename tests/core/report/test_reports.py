"""Which reports hopsd believes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_values import NOW, report

from hopsd.core.report.reports import parse_report
from hopsd.errors import FormatError


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"samples": -1},
        {"samples": float("inf")},
        {"samples": float("nan")},
        {"samples": True},
        {"samples": "3296"},
        {"samples": 10**400},
        {"samples": 1e12},
        {"iterations": 1.5},
        {"rank": 1},
        {"world": 0},
        {"world": 10**6},
        {"at": NOW + 3600},
        {"timed": None},
        {"timed": {"iterations": 104, "samples": 1, "seconds": 1.0}},
        {"timed": {"iterations": 100, "samples": 3297, "seconds": 1.0}},
        {"timed": {"iterations": 100, "samples": 3200, "seconds": 0.0}},
        {"timed": {"iterations": 100, "samples": 3200, "seconds": 1e6}},
        {"basics": None},
        {"basics": report()["basics"] | {"pattern": 3}},
        {"basics": report()["basics"] | {"t_b": -0.1}},
        {"basics": report()["basics"] | {"t_b": 1e6}},
        {"basics": report()["basics"] | {"t_w": None}},
        {"params": 1e15},
        {"phases": {}},
        {"phases": {"data": {"mean": 0.002, "bins": {"75": 99}}}},
        {"phases": {"data": {"mean": 0.002, "bins": {"75": 100, "x": 0}}}},
        {"phases": {"data": {"mean": 0.002, "bins": {"75": 60, "999": 40}}}},
        {"backward_by_data": {"76": 1.0}},
        {"backward_by_data": {"75": float("nan")}},
        {"job": "18"},
        {"job": 17},
        {"node": ""},
        {"node": "n1"},
        {"pid": 1},
        {"saved": 104},
        {"saved": -1},
        {"communication_timed": "yes"},
        {"keeps_steps": "yes"},
        {"time_known": 1},
        {"handled_signals": "USR1"},
        {"handled_signals": [["USR1"]]},
        {"program": None},
        {"program": "/etc/passwd"},
        {"program": "0123456789AB"},
    ],
    ids=str,
)
def test_absurd_values_are_refused(changes: dict[str, Any]) -> None:
    name = "17.0.n0.0.4242.json"
    parse_report(json.dumps(report()).encode(), name, NOW)
    with pytest.raises(FormatError):
        parse_report(json.dumps(report(**changes)).encode(), name, NOW)


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(sorted(report())) | st.text(), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_text_is_refused_without_a_crash(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_report(data, "17.0.n0.0.4242.json", NOW)
