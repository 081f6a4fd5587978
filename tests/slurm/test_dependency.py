"""Dependencies of held jobs, which slurmctld leaves to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hopsd.model.reading import SlurmState
from hopsd.slurm.dependency import KnownJob, awaited, dependency_text, stranded, unmet

OTHERS = {
    known.id: known
    for known in (
        KnownJob(1, "alice", "a", SlurmState.PENDING),
        KnownJob(2, "alice", "b", SlurmState.RUNNING),
        KnownJob(3, "bob", "a", SlurmState.COMPLETED),
        KnownJob(4, "alice", "c", SlurmState.FAILED),
    )
}


@pytest.mark.parametrize(
    ("wanted", "waits"),
    [
        ("", False),
        (None, False),
        ("after:1(unfulfilled)", True),
        ("after:2+5(unfulfilled)", False),
        ("afterany:2(unfulfilled)", True),
        ("afterany:4(unfulfilled)", False),
        ("afterok:3(unfulfilled)", False),
        ("afterok:4(failed)", True),
        ("afternotok:4(unfulfilled)", False),
        ("afternotok:3(unfulfilled)", True),
        ("afterok:99(unfulfilled)", False),
        ("afterok:3(unfulfilled),afterany:2(unfulfilled)", True),
        ("afterok:3(unfulfilled),afterany:4(unfulfilled)", False),
        ("afterok:4(failed)?afterok:3(unfulfilled)", False),
        ("afterok:1(unfulfilled)?afterok:2(unfulfilled)", True),
        ("afterok:3_7(unfulfilled)", True),
        ("moonphase:3(unfulfilled)", True),
        ({"afterok": [3], "afterany": [], "singleton": False, "satisfy": "all"}, False),
        ({"afterok": [3, 1], "afterany": [4], "singleton": False, "satisfy": "all"}, True),
        ({"afterok": [1], "afterany": [4], "singleton": False, "satisfy": "any"}, False),
        ({"afterok": [], "singleton": False, "satisfy": "all"}, False),
    ],
)
def test_clauses(wanted: object, waits: bool) -> None:
    mine = KnownJob(9, "carol", "z", SlurmState.PENDING)
    assert unmet(wanted, mine, OTHERS) is waits  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "for_good"),
    [
        (None, False),
        ("after:1(unfulfilled)", False),
        ("afterany:2(unfulfilled)", False),
        ("afterok:2(unfulfilled)", False),
        ("afterok:4(unfulfilled)", True),
        ("afterok:99(failed)", True),
        ("afterok:99(unfulfilled)", False),
        ("afternotok:3(unfulfilled)", True),
        ("afterok:4(failed),afterany:2(unfulfilled)", True),
        ("afterok:4(failed)?afterok:2(unfulfilled)", False),
        ("afterok:4(failed)?afternotok:3(unfulfilled)", True),
        ("singleton(unfulfilled)", False),
        ("moonphase:3(unfulfilled)", False),
        ({"afterok": [4], "singleton": False, "satisfy": "all"}, True),
    ],
)
def test_clauses_that_are_never_met(wanted: object, for_good: bool) -> None:
    assert stranded(wanted, OTHERS) is for_good  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("id_", "user", "name", "waits"),
    [
        (9, "alice", "a", True),
        (9, "bob", "a", False),
        (9, "alice", "c", False),
        (1, "alice", "a", False),
    ],
)
def test_singleton(id_: int, user: str, name: str, waits: bool) -> None:
    mine = KnownJob(id_, user, name, SlurmState.PENDING)
    assert unmet("singleton(unfulfilled)", mine, {**OTHERS, id_: mine}) is waits


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, set()),
        ("after:1(unfulfilled)", set()),
        ("afterok:1(unfulfilled),afternotok:2(unfulfilled)", {1, 2}),
        ("afterany:1(unfulfilled)?aftercorr:4_3(unfulfilled)", {1, 4}),
        ("singleton(unfulfilled)", {1}),
        ({"afterok": [1, 2], "after": [4], "singleton": False, "satisfy": "all"}, {1, 2}),
    ],
)
def test_whose_end_slurm_waits_for(wanted: str | None, found: set[int]) -> None:
    waiting = KnownJob(9, "alice", "a", SlurmState.PENDING, wanted)
    assert awaited([*OTHERS.values(), waiting]) == found
    assert awaited([replace(waiting, state=SlurmState.RUNNING)]) == set()


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("afterok:17(unfulfilled),singleton(unfulfilled)", "afterok:17,singleton"),
        ("afterany:3?afternotok:4(failed)", "afterany:3?afternotok:4"),
        ({"afterok": [17], "singleton": True, "satisfy": "any"}, "afterok:17?singleton"),
        (None, ""),
    ],
)
def test_it_is_told_as_it_was_asked_for(wanted: str | dict[str, Any] | None, text: str) -> None:
    assert dependency_text(wanted) == text
