"""What a lane reads, and which states it keeps on a GPU."""

from __future__ import annotations

import itertools
from argparse import ArgumentTypeError
from functools import cache
from pathlib import Path

import pytest
from hops_profiler.lane.residence import resident
from hops_profiler.lane.settings import parse, size
from hops_profiler.lane.trials import Journal, TrialsError, read_trials
from hypothesis import example, given, settings
from hypothesis import strategies as st


def test_a_trial_is_an_ordinary_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("trials.txt").write_text(
        "# a search\n\ntrain.py --lr 0.1\npython -u train.py --name 'a b'  # the second\n"
        "/usr/bin/python3.11 -m package.train -x\n"
        "iterations=300 ranks=2 train.py --lr 0.1\n"
    )
    trials = read_trials(Path("trials.txt"))
    assert [(t.number, t.arguments, t.module) for t in trials] == [
        (1, ("train.py", "--lr", "0.1"), False),
        (2, ("train.py", "--name", "a b"), False),
        (3, ("package.train", "-x"), True),
        (4, ("train.py", "--lr", "0.1"), False),
    ]
    assert len({trial.text for trial in trials}) == 4
    assert [(t.iterations, t.ranks) for t in trials] == [(0, 1)] * 3 + [(300, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.py\nnone.py --lr 1", "line 2: there is no script none.py"),
        ("train.py 'a", "line 1: No closing quotation"),
        ("python", r"write \[python\] SCRIPT"),
        ("--lr 0.1", r"write \[python\] SCRIPT"),
        ("# nothing", "no trial"),
        ("rank=2 train.py", "line 1: rank=2: only iterations=NUMBER and"),
        ("iterations=0 train.py", "iterations=0: only"),
        ("ranks=2", r"write \[python\] SCRIPT"),
    ],
)
def test_an_invalid_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("trials.txt").write_text(text)
    with pytest.raises(TrialsError, match=message):
        read_trials(Path("trials.txt"))
    with pytest.raises(TrialsError, match="cannot be read"):
        read_trials(Path("none.txt"))


def test_the_journal_survives_a_truncated_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "trials").write_text(f"{tmp_path}/train.py 1\n{tmp_path}/train.py 2")
    first, second = read_trials(tmp_path / "trials")
    Journal(tmp_path / "journal").record(first, 0)
    Journal(tmp_path / "journal").record(second, 3)
    with (tmp_path / "journal").open("a") as file:
        file.write('{"trial": 2, "comm')
    assert Journal(tmp_path / "journal").codes == {first.text: 0, second.text: 3}


def test_sizes_and_other_options_are_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [size(text) for text in ("7", "2k", "3MiB", "20G")] == [7, 2048, 3 << 20, 20 << 30]
    for text in ("", "-1", "0", "1.5G", "G"):
        with pytest.raises(ArgumentTypeError):
            size(text)
    assert parse(["t.txt", "--memory=1G"]).output == Path("t.txt.lane")
    for wrong in (["t.txt", "--turn=0"], ["t.txt", "--width", "none"], []):
        with pytest.raises(SystemExit):
            parse(wrong)
    assert "write seconds" in capsys.readouterr().err


trials = st.integers(0, 3)


@given(
    st.lists(trials, min_size=1, max_size=8),
    st.lists(trials, max_size=4),
    st.lists(st.integers(1, 5), min_size=4, max_size=4),
    st.integers(5, 12),
)
def test_resident_states_are_the_next_ones_then_the_latest(
    next_trials: list[int], completed_trials: list[int], sizes: list[int], capacity: int
) -> None:
    table = dict(enumerate(sizes))
    residents = resident(next_trials, completed_trials, table, capacity)
    assert residents[0] == next_trials[0]
    assert len(set(residents)) == len(residents)
    assert sum(table[trial] for trial in residents) <= capacity
    ranked_trials = list(dict.fromkeys([*next_trials, *completed_trials]))
    for trial in set(ranked_trials) - set(
        residents
    ):  # omitted ones did not fit next to those before them
        sizes_before = [
            table[t] for t in residents if ranked_trials.index(t) < ranked_trials.index(trial)
        ]
        assert sum(sizes_before) + table[trial] > capacity


def cost(sequence: list[int], sizes: dict[int, int], capacity: int) -> tuple[int, int]:
    """Return, for the rule, the number of turns that wait for their state and of copies."""
    present: set[int] = set()
    waits = copies = 0
    for place, trial in enumerate(sequence):
        waits += trial not in present
        next_trials = sequence[place:]
        residents = set(resident(next_trials, sequence[:place][::-1], sizes, capacity))
        residents &= present | set(next_trials)
        copies += len(residents - present)
        present = residents
    return waits, copies


def fewest_waits(sequence: list[int], sizes: dict[int, int], capacity: int) -> tuple[int, int]:
    """Return the fewest waits and the fewest copies of such plans, by exhaustive search."""

    @cache
    def best(place: int, present: frozenset[int]) -> tuple[int, int]:
        if place == len(sequence):
            return 0, 0
        trial = sequence[place]
        results = []
        for count in range(len(sizes)):
            for rest_of_set in itertools.combinations(sizes.keys() - {trial}, count):
                residents = frozenset((trial, *rest_of_set))
                if sum(sizes[t] for t in residents) <= capacity:
                    waits, copies = best(place + 1, residents)
                    results.append(
                        (waits + (trial not in present), copies + len(residents - present))
                    )
        return min(results)

    return best(0, frozenset())


@settings(max_examples=50)
@given(
    st.lists(trials, min_size=1, max_size=6),
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.integers(4, 9),
)
@example([0, 1, 2, 3, 0], [1, 1, 1, 1], 3)  # 5 copies; keeping 0 next to the next one would take 4
def test_no_other_plan_has_fewer_waits(
    sequence: list[int], sizes: list[int], capacity: int
) -> None:
    table = dict(enumerate(sizes))
    waits, copies = cost(sequence, table, capacity)
    fewest, fewest_copies = fewest_waits(sequence, table, capacity)
    assert waits == fewest
    assert copies <= 2 * fewest_copies
