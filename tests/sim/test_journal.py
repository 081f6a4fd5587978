"""A journal changes neither when a policy is asked nor the result of a run."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_cases import cluster, job, workload

from hopsd.errors import InputError
from hopsd.policies.registry import get
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.journal import alone, journal_policy
from hopsd.sim.metrics import AllocationChange
from hopsd.sim.study import play

TRAITS = ("only_first", "every_first", "settles", "steady")


@pytest.mark.parametrize(
    ("name", "traits"),
    [("sia", ["only_first"]), ("las", ["settles"]), ("sjf", ["settles", "steady"]), ("hops", [])],
)
def test_a_journaled_policy_has_the_policys_traits(
    name: str, traits: list[str], tmp_path: Path
) -> None:
    with journal_policy(get(name), tmp_path / "j.jsonl", "run", resume=False) as policy:
        assert [t for t in TRAITS if getattr(policy, t, False)] == traits


def run(path: Path, *, resume: bool) -> tuple[AllocationChange, ...]:
    load = workload([job(i, 100.0 * (1 + i % 3), 1, 2, submit=20.0 * i) for i in range(8)])
    with journal_policy(get("srtf"), path, "run", resume=resume) as policy:
        result = play("srtf", policy, cluster(n0=2, n1=1), load, SimulationSettings(50.0))
    return result.changes


@pytest.fixture(scope="module")
def uninterrupted_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[tuple[AllocationChange, ...], bytes]:
    path = tmp_path_factory.mktemp("whole") / "j.jsonl"
    return run(path, resume=False), path.read_bytes()


@pytest.mark.long
@given(st.data())
def test_a_damaged_journal_gives_the_same_result(
    uninterrupted_run: tuple[tuple[AllocationChange, ...], bytes], data: st.DataObject
) -> None:
    """The journal is cut short, or bytes are lost, changed or doubled: what is intact is used."""
    changes, journal = uninterrupted_run
    first = data.draw(st.integers(0, len(journal)))
    last = data.draw(st.integers(first, len(journal)))
    middle = data.draw(st.binary(max_size=20) | st.just(journal[first:last] * 2))
    end = data.draw(st.sampled_from([b"", journal[last:]]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        path.write_bytes(journal[:first] + middle + end)
        assert run(path, resume=True) == changes
        assert path.read_bytes().count(b"\n") == journal.count(b"\n")


def test_recorded_plans_are_not_computed_again(
    uninterrupted_run: tuple[tuple[AllocationChange, ...], bytes], tmp_path: Path
) -> None:
    (tmp_path / "j.jsonl").write_bytes(uninterrupted_run[1])
    assert run(tmp_path / "j.jsonl", resume=True) == uninterrupted_run[0]
    assert (tmp_path / "j.jsonl").read_bytes() == uninterrupted_run[1]


def test_a_plan_is_stored_as_its_changes(
    uninterrupted_run: tuple[tuple[AllocationChange, ...], bytes],
) -> None:
    """Otherwise each of a year's plans would write thousands of running jobs again."""
    changes, journal = uninterrupted_run
    changes_by_plan = [json.loads(line[9:])["changes"] for line in journal.splitlines()[1:]]
    assert sum(map(len, changes_by_plan)) <= len(changes)
    assert {} in changes_by_plan


def test_the_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    text = b'{"run": "run"}\n'
    (tmp_path / "j.jsonl").write_bytes(b"%08x " % crc32(text) + text)
    with pytest.raises(InputError, match="another version"):
        run(tmp_path / "j.jsonl", resume=True)


def _is_refused(folder: Path) -> bool:
    try:
        with alone(folder):
            return False
    except InputError:
        return True


@pytest.mark.slow
def test_a_folder_holds_one_simulation_at_a_time(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with alone(tmp_path / "out"):
            assert pool.apply(_is_refused, [tmp_path / "out"])
            assert not pool.apply(_is_refused, [tmp_path / "else"])
        assert not pool.apply(_is_refused, [tmp_path / "out"])
