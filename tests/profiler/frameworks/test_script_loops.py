"""In which scripts loops may be repeated with empty passes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hops_profiler.frameworks.script_loops import why_not_repeated

PLAIN = """
for epoch in range(2):
    for batch in batches():
        look()
    for batch in range(3):
        break
    while epoch > 5:
        pass
def later():
    while True:
        return 1
"""
IN_FUNCTIONS = """
def one(epoch):
    for batch in batches():
        look()
    return epoch
def main():
    for epoch in range(2):
        one(epoch)
    return 0
main()
"""
COUNTED_LOOP = """
done = 0
for epoch in range(2):
    for batch in batches():
        look()
        done += 1
        if done == 7:
            break
"""
RETURNS = """
def main():
    for epoch in range(2):
        for batch in batches():
            look()
        for row in range(3):
            if row > 5:
                return
main()
"""
ENDLESS = """
done = 0
while done < 7:
    for batch in batches():
        look()
        done += 1
"""
TRY_LOOP = """
for epoch in range(2):
    try:
        for batch in batches():
            look()
    except ValueError:
        break
"""


def reason(tmp_path: Path, source: str) -> str:
    """Return the reason found in the first pass of a script."""
    script = tmp_path / "train.py"
    script.write_text(source)
    reasons: list[str] = []
    names = {"batches": lambda: range(4), "look": lambda: reasons.append(why_not_repeated())}
    runpy.run_path(str(script), names, run_name="__main__")
    return reasons[0]


@pytest.mark.parametrize("source", [PLAIN, IN_FUNCTIONS])
def test_loops_over_epochs_and_batches_are_repeated(tmp_path: Path, source: str) -> None:
    assert not reason(tmp_path, source)


@pytest.mark.parametrize(
    ("source", "expected_reason"),
    [
        (COUNTED_LOOP, "the `break` in line 8"),
        (RETURNS, "the `return` in line 8"),
        (ENDLESS, "the `while` in line 3"),
        (TRY_LOOP, "the `break` in line 7"),
    ],
)
def test_counting_in_a_script_is_named_as_the_reason(
    tmp_path: Path, source: str, expected_reason: str
) -> None:
    assert expected_reason in reason(tmp_path, source)
    assert "train.py" in reason(tmp_path, source)
