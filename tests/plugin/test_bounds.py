"""The bounds of numbers in comments are the same in Python, in Lua and in texts for users."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest

from hopsd.core.submission.comment import parse
from hopsd.core.submission.options_text import read_script_options
from hopsd.errors import CommentError
from hopsd.model import bounds
from hopsd.model.bounds import ValueRange

ROOT = Path(__file__).parents[2]
LUAS = [
    name
    for name in ("lua5.1", "lua5.2", "lua5.3", "lua5.4", "lua5.5", "luajit")
    if shutil.which(name)
]

BOUNDS_BY_COMMENT = {
    "hops:reqs={}": bounds.GPUS,
    "hops:reqs=1-8;num={}": bounds.RANGE_COUNTS,
    "hops:reqs=1;samples={}": bounds.SAMPLES,
    "hops:reqs=1;batch={}": bounds.BATCH,
    "hops:reqs=1;lr={}": bounds.LEARNING_RATE,
    "hops:reqs=1;lr=0.1@{}": bounds.GPUS,
    "hops:reqs=1;lr=4:{}": bounds.LEARNING_RATE,
    "hops:reqs=1;app=lm:{}": bounds.PHASE,
}
WHOLE = (bounds.GPUS, bounds.RANGE_COUNTS, bounds.BATCH, bounds.PHASE)
BOUNDS_BY_KEY = {
    "reqs": bounds.GPUS,
    "num": bounds.RANGE_COUNTS,
    "samples": bounds.SAMPLES,
    "batch": bounds.BATCH,
    "lr": bounds.LEARNING_RATE,
}


def edge_values(bound: ValueRange) -> list[tuple[str, bool]]:
    """Return values at and next to the ends of a bound, and whether each is accepted."""
    if bound in WHOLE:
        minimum, maximum = int(bound.minimum), int(bound.maximum)
        return [
            (str(minimum - 1), False),
            (str(minimum), True),
            (str(maximum), True),
            (str(maximum + 1), False),
        ]
    return [
        (repr(math.nextafter(bound.minimum, 0.0)), False),
        (repr(bound.minimum), True),
        (repr(bound.maximum), True),
        (repr(math.nextafter(bound.maximum, math.inf)), False),
    ]


CASES = [
    (text.format(value), is_within)
    for text, bound in BOUNDS_BY_COMMENT.items()
    for value, is_within in edge_values(bound)
]


def is_accepted(text: str) -> bool:
    try:
        parse(text)
    except CommentError:
        return False
    return True


def test_python_enforces_the_bounds() -> None:
    assert [(text, is_accepted(text)) for text, _ in CASES] == CASES


@pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")
@pytest.mark.parametrize("lua", LUAS)
def test_lua_enforces_the_same_bounds_with_the_same_words(lua: str) -> None:
    driver, plugin = ROOT / "tests/plugin/submit_driver.lua", ROOT / "slurm_plugin/job_submit.lua"
    lines = "".join(text.encode().hex() + "\n" for text, _ in CASES)
    result = subprocess.run(
        [lua, str(driver), str(plugin)], input=lines, capture_output=True, text=True, check=True
    )
    answers = [line.partition(" ") for line in result.stdout.splitlines()]
    assert [became == "held" for became, *_ in answers] == [is_within for _, is_within in CASES]
    for (text, is_within), (_, _, hex_message) in zip(CASES, answers, strict=True):
        key = text.removeprefix("hops:reqs=1").rpartition(";")[2].partition("=")[0] or "reqs"
        if not is_within and key in BOUNDS_BY_KEY:
            assert f"from {BOUNDS_BY_KEY[key]}" in bytes.fromhex(hex_message).decode(), text


@pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")
@pytest.mark.parametrize("lua", LUAS)
@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("n[1-1024]", ""),
        ("n[1-3,07]x,login,r[1-2]n[01-12]", ""),
        ("n[1-1024],m", "names 1025 nodes: name 1 to 1024"),
        ("r[1-100]n[1-100]", "names 10000 nodes"),
        ("n[1-99999999999999999999]", "nodes: name 1 to 1024"),
        ("n[1-999999999]x[5-1],m", "is not a list of nodes"),
        ("n[1-2", "is not a list of nodes"),
        ("n[-1]", "is not a list of nodes"),
        ("n]1[", "is not a list of nodes"),
        ("n[[1]]", "is not a list of nodes"),
        ("n[" * 4000, "is not a list of nodes"),
        ("n" * 8192, ""),
        ("n" * 8193, f"write at most {bounds.OPTION_CHARACTERS.maximum:.0f}"),
    ],
    ids=lambda value: value[:20],
)
def test_lists_of_nodes_have_the_same_bounds_in_lua_and_python(
    lua: str, nodes: str, message: str
) -> None:
    driver, plugin = ROOT / "tests/plugin/submit_driver.lua", ROOT / "slurm_plugin/job_submit.lua"
    line = " ".join(text.encode().hex() for text in ("hops:reqs=1", "#!/bin/sh", nodes))
    result = subprocess.run(
        [lua, str(driver), str(plugin)],
        input=f"{line}\n",
        capture_output=True,
        text=True,
        check=True,
    )
    became, hex_message, word = result.stdout.rstrip("\n").split(" ")
    assert became == ("refused" if message else "held")
    assert message in bytes.fromhex(hex_message).decode()
    read = read_script_options(bytes.fromhex(word).decode() or f"hops:asks|nodes:{nodes}").nodes
    assert bool(read) is not bool(message) or "at most" in message


@pytest.mark.slow
@pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")
@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\n#SBATCH --signal=USR1@" + "9" * 250_000,
        "#!/bin/sh\n#SBATCH --signal=B:" + "9" * 250_000 + "@60",
        "#!/bin/sh\n" + "trap x 10\ntrap x TERM\n" * 20_000,
        "#!/bin/sh\n" + "sbatch x\n" * 20_000,
        "#!/bin/sh\n#SBATCH --container-image=x\n" + "apptainer exec -e x\n" * 20_000,
        "#!/bin/sh\ntorchrun --nproc_per_node=" + "9" * 250_000,
    ],
    ids=["seconds", "signal", "traps", "sbatch", "starts", "ranks"],
)
def test_no_script_makes_its_admin_comment_long(script: str) -> None:
    """Every `squeue --json` contains it, for each of 15,000 jobs."""
    driver, plugin = ROOT / "tests/plugin/submit_driver.lua", ROOT / "slurm_plugin/job_submit.lua"
    line = " ".join(text.encode().hex() for text in ("hops:reqs=1", script))
    result = subprocess.run(
        [LUAS[0], str(driver), str(plugin)],
        input=line + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    became, _, word = result.stdout.rstrip("\n").split(" ")
    assert became == "held"
    assert len(bytes.fromhex(word)) < 200


def test_texts_for_users_state_the_same_bounds() -> None:
    rows = {
        cells[1].strip().strip("`"): line
        for line in (ROOT / "docs" / "users.md").read_text().splitlines()
        if line.startswith("| `") and len(cells := line.split("|")) > 3
    }
    assert {key: str(bound) in rows[key] for key, bound in BOUNDS_BY_KEY.items()} == dict.fromkeys(
        BOUNDS_BY_KEY, True
    )
    assert f"{int(bounds.COMMENT_CHARACTERS.maximum)} characters" in (
        ROOT / "docs" / "users.md"
    ).read_text().replace(",", "")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_out_of_bounds(value: float) -> None:
    bounds_by_name = {name: b for name, b in vars(bounds).items() if isinstance(b, ValueRange)}
    assert bounds_by_name
    assert not [name for name, bound in bounds_by_name.items() if bound.holds(value)]
