"""hopsd's uid is added to hops_site.lua; Lua reads the result."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hopsd.setup.site_lua import with_operator

SHIPPED_FILE = (Path(__file__).resolve().parents[2] / "slurm_plugin" / "hops_site.lua").read_text()


def operators(text: str) -> list[int]:
    lua = next((p for p in map(shutil.which, ("lua5.4", "lua5.3", "lua5.1", "luajit")) if p), None)
    if lua is None:
        pytest.skip("no lua is installed")
    code = "for _, uid in ipairs(assert(loadfile('/dev/stdin'))().operators) do print(uid) end"
    result = subprocess.run(
        [lua, "-e", code], input=text, capture_output=True, text=True, check=True
    )
    return [int(uid) for uid in re.findall(r"\d+", result.stdout)]


@pytest.mark.parametrize(
    ("text", "expected_uids"),
    [
        (SHIPPED_FILE, [998]),
        ("return { operators = { 5, 6 } }\n", [5, 6, 998]),
        ("return { operators = {} }\n", [998]),
        ("-- operators = { 1 }\nreturn {\n  partitions = { 'a' },\n}\n", [998]),
        ("return {\n  -- operators = { 1 },\n  operators = { 7 },\n}\n", [7, 998]),
        ("return {}\n", [998]),
    ],
)
def test_a_uid_is_added_once(text: str, expected_uids: list[int]) -> None:
    new = with_operator(text, 998)
    assert new is not None
    assert operators(new) == expected_uids
    assert with_operator(new, 998) == new


def test_a_file_of_unknown_form_is_left_to_the_administrator() -> None:
    assert with_operator("local t = {}\nreturn t\n", 998) is None
