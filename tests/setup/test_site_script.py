"""A site's own job_submit.lua: where it calls ours, and what is wrong with a call."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.setup.site_script import call_problem, called_plugin, with_call, without_call

PLUGIN = Path(__file__).parents[2] / "slurm_plugin" / "job_submit.lua"
RULES = "function slurm_job_submit(job, partitions, uid)\n  return slurm.SUCCESS\nend\n"
LINES = st.lists(
    st.one_of(
        st.sampled_from(["return slurm.SUCCESS", "-- return 0", "end", "  return 0", "return"]),
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])),
    )
)


@given(LINES)
def test_removing_a_call_restores_the_script(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    one_call = with_call(text, PLUGIN)
    assert without_call(one_call) == text
    assert with_call(one_call, PLUGIN) == one_call


@pytest.mark.parametrize(
    "end", ["", "return slurm.SUCCESS\n", "return slurm.SUCCESS -- loaded\n\n", "-- return 0\n"]
)
def test_the_call_is_inserted_before_a_final_return(end: str) -> None:
    text = with_call(RULES + end, PLUGIN)
    assert called_plugin(text) == PLUGIN
    assert call_problem(text, PLUGIN) is None
    if end.startswith("return"):
        assert text.endswith(end)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (RULES, "does not call"),
        (f'{RULES}-- dofile("{PLUGIN}")\n', "does not call"),
        (f'{RULES}--[[ dofile("{PLUGIN}")\n]]\n', "does not call"),
        (f'{RULES}dofile("/no/such/job_submit.lua")\n', "does not exist; slurmctld does not start"),
        (f'dofile("{PLUGIN}")\n{RULES}', "before its own rules"),
        (f"dofile '{PLUGIN}'\nslurm_job_modify = function() end\n", "before its own rules"),
    ],
)
def test_a_wrong_call_is_named(text: str, word: str) -> None:
    assert word in str(call_problem(text, PLUGIN))


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        (with_call(RULES, Path("/usr/share/hops/slurm/job_submit.lua")), True),
        (f'{RULES}dofile("/usr/share/hops/slurm/job_submit.lua")\n', True),
        (f'{RULES}-- dofile("/usr/share/hops/slurm/job_submit.lua")\n', False),
        (RULES, False),
    ],
)
def test_the_package_stays_while_a_script_calls_it(tmp_path: Path, text: str, stays: bool) -> None:
    """Otherwise slurmctld would not start again."""
    prerm = Path(__file__).parents[2] / "debian" / "hops-slurm.prerm"
    (tmp_path / "job_submit.lua").write_text(text)
    code = prerm.read_text().replace("/etc/slurm", str(tmp_path))
    result = subprocess.run(
        ["sh", "-c", code, "prerm", "remove"], capture_output=True, text=True, check=False
    )
    assert bool(result.returncode) == stays
    assert ("hopsctl setup --undo" in result.stderr) == stays
