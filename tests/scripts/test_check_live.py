"""`hopsctl check` shows before a submission what sbatch and hops would say about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from script_site import ScriptSite

pytestmark = pytest.mark.live


def check(scripts: ScriptSite, text: str, *options: str) -> tuple[int, list[str], str]:
    hopsctl = Path(sys.executable).with_name("hopsctl")
    result = subprocess.run(
        [hopsctl, "check", *options, scripts.write(text)],
        env={**os.environ, **scripts.cluster.env},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout.splitlines(), result.stderr


def test_check_shows_counts_and_shapes_and_submits_nothing(scripts: ScriptSite) -> None:
    before = scripts.cluster.run("squeue", "--all", "-h", "-o", "%A")
    text = "#SBATCH --nodes=2 --gres=gpu:a100:4\n#SBATCH --comment=hops:reqs=2,4,8,16\nrank"
    code, (move_notice, *lines), _ = check(scripts, text)
    assert code == 0
    assert move_notice.startswith("the job may be stopped and restarted")
    assert lines[0].startswith(
        "accepted: 4, 8 or 16 GPUs, 4 on each node (not 2, being no multiple"
    )
    assert lines[1:] == [
        "2 GPUs: never on this cluster as it is",
        "4 GPUs: now, as on {n0:4}",
        "8 GPUs: now, as on {n0:4, n1:4}",
        "16 GPUs: never on this cluster as it is",
    ]
    after = scripts.cluster.run("squeue", "--all", "-h", "-o", "%A")
    assert set(after.split()) <= set(before.split())


HETEROGENEOUS = (
    "#SBATCH --gres=gpu:1 --comment={}\n#SBATCH hetjob\n#SBATCH --gres=gpu:1 --comment={}\nrank"
)


@pytest.mark.parametrize("comments", [("hops:reqs=1", "x"), ("x", "hops:reqs=1")])
def test_check_refuses_a_heterogeneous_job(scripts: ScriptSite, comments: tuple[str, str]) -> None:
    code, lines, _ = check(scripts, HETEROGENEOUS.format(*comments))
    assert code == 2
    assert "heterogeneous" in lines[0]


def test_check_reads_a_signal_from_the_command_line(scripts: ScriptSite) -> None:
    options = ("--comment=hops:reqs=1", "--signal=B:USR1@60")
    code, lines, _ = check(scripts, "#SBATCH --gres=gpu:1\ntrap : USR1\nrank", *options)
    assert code == 0
    assert any("hops sends it USR1 60 s ahead" in line for line in lines)


def test_check_explains_why_measuring_is_impossible(scripts: ScriptSite) -> None:
    text = "#SBATCH --gres=gpu:1\nexport PYTHONPATH=$HOME/lib\nrank"
    _, lines, _ = check(scripts, text, "--comment=hops:reqs=1")
    assert any(line.startswith("hops may not see its speed: its script") for line in lines)


def test_check_names_dependencies_and_begin_times(scripts: ScriptSite) -> None:
    text = "#SBATCH --nodes=2 --gres=gpu:a100:8 --constraint=hbm\nrank"
    code, lines, _ = check(scripts, text, "--comment=hops:reqs=8,16")
    assert code == 0
    assert lines[-1] == "16 GPUs: when others have left, as on {n0:8, n1:8}"


def test_check_names_cores_that_do_not_come_with_a_gpu(scripts: ScriptSite) -> None:
    text = "#SBATCH --nodes=1 --gres=gpu:v100:1 --cpus-per-task=16\nrank"
    _, lines, _ = check(scripts, text, "--comment=hops:reqs=1")
    assert any(
        line.startswith("it gets 8 CPU cores with each GPU instead of the 16") for line in lines
    )


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--comment=hops:reqs=3 --nodes=2 --gres=gpu:2", 2, "has no multiple of the 2 GPUs"),
        ("--comment=hops:reqs=0", 2, "give GPU counts from 1 to 65536"),
        ("--comment=mine --gres=gpu:2", 3, "there is no 'hops:' in its comment"),
        ("--comment=hops:reqs=1 --partition=none", 2, "nvalid partition"),
    ],
)
def test_check_exits_as_sbatch_would(
    scripts: ScriptSite, options: str, code: int, words: str
) -> None:
    exit_code, lines, error_output = check(scripts, "rank", *options.split())
    assert exit_code == code
    assert words in error_output + "\n".join(lines)
