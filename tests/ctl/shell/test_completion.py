"""What the Tab key offers: quickly, from the daemon if there is one, and never an error."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hopsd.ctl import COMMANDS, cli
from hopsd.ctl.shell.completion import SHELLS
from hopsd.serve.socket import LocalServer, Request

pytestmark = pytest.mark.slow  # waits for daemons that do not answer

JOB = {"name": "net", "user": "ann", "partition": "main,big", "state": "RUNNING", "code": ""}
DOCUMENT = {
    "running": [{**JOB, "id": "17"}],
    "waiting": [
        {**JOB, "id": "18_4", "state": "PENDING", "code": "lost_to_others", "name": "a\n\x1b[2Jb"},
        {**JOB, "id": "$(reboot)", "state": "PENDING"},
    ],
    "nodes": [{"gpu_type": "a100"}, {"gpu_type": "h100"}],
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    def answer(request: Request) -> Any:
        if request.command == "throughput":
            return {"workloads": [{"workload": "resnet50"}, {"workload": "bert base"}]}
        return DOCUMENT

    server = LocalServer(tmp_path / "sock", answer)
    yield tmp_path / "sock"
    server.close()


def candidates_for(*words: str, **variables: str) -> list[str]:
    """Return the values offered for the last of ``words``."""
    result = CliRunner().invoke(
        cli,
        prog_name="hopsctl",
        env={
            "_HOPSCTL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("hopsctl", *words)),
            "COMP_CWORD": str(len(words)),
            **variables,
        },
    )
    assert not isinstance(result.exception, Exception), result.exception
    return [line.split(",", 1)[1] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("explain", ""), ["17", "18_4"]),
        (("explain", "18"), ["18_4"]),
        (("release", ""), ["18_4"]),
        (("status", "--user", ""), ["ann"]),
        (("status", "--partition", ""), ["main", "big"]),
        (("status", "--state", ""), ["running", "pending", "lost_to_others"]),
        (("throughput", ""), ["resnet50"]),
        (("calibrate", "--type", "h"), ["h100"]),
    ],
)
def test_values_come_from_the_daemon(
    daemon: Path, words: tuple[str, ...], values: list[str]
) -> None:
    assert candidates_for(*words, HOPS_SOCKET=str(daemon)) == values


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("st",), ["status"]),
        (("si",), ["simulate"]),
        (("--ver",), ["--version"]),
        (("simulate", "--policy", "hops-s"), ["hops-sjf", "hops-srtf"]),
        (("simulate", "--knowledge", ""), ["perfect", "measured", "none"]),
        (("config", ""), ["check", "explain", "show"]),
        (("config", "explain", "plan.pol"), ["plan.policy"]),
        (("completion", "f"), ["fish"]),
        (("explain", ""), []),
    ],
)
def test_completion_works_without_a_daemon(
    tmp_path: Path, words: tuple[str, ...], values: list[str]
) -> None:
    assert candidates_for(*words, HOPS_SOCKET=str(tmp_path / "none")) == values


def test_all_commands_are_offered_without_importing_them() -> None:
    script = "import sys; from hopsd.ctl import main; sys.argv = ['hopsctl']\n"
    script += "try: main()\nfinally: print(sorted({'numpy', 'rich'} & set(sys.modules)))"
    environ = {"_HOPSCTL_COMPLETE": "bash_complete", "COMP_WORDS": "hopsctl ", "COMP_CWORD": "1"}
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environ}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert result.stdout.splitlines() == [*(f"plain,{name}" for name in sorted(COMMANDS)), "[]"]


def test_completion_does_not_wait_for_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "sock"))
        mute.listen()
        began = time.monotonic()
        assert candidates_for("explain", "", HOPS_SOCKET=str(tmp_path / "sock")) == []
    assert time.monotonic() - began < 30.0


def run(shell: str, script: str, folder: Path, **environ: str) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    bin_dir = Path(sys.executable).parent
    (folder / "script").write_text(script)
    result = subprocess.run(
        [shell, str(folder / "script")],
        env={**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": str(folder),
             "XDG_CONFIG_HOME": str(folder), **environ},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert result.stderr == ""
    return result.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_loads(shell: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["completion", shell], prog_name="hopsctl")
    assert result.exit_code == 0
    run(shell, f"autoload -U compinit; compinit -D\n{result.stdout}" * (shell == "zsh")
        or result.stdout, tmp_path)  # fmt: skip


def test_bash_completes_job_ids(tmp_path: Path, daemon: Path) -> None:
    script = """eval "$(hopsctl completion bash)"
        COMP_WORDS=(hopsctl explain 1) COMP_CWORD=2
        _hopsctl_completion hopsctl
        echo "${COMPREPLY[@]}"
    """
    assert run("bash", script, tmp_path, HOPS_SOCKET=str(daemon)) == "17 18_4\n"


def test_fish_completes_job_ids(tmp_path: Path, daemon: Path) -> None:
    script = 'hopsctl completion fish | source\ncomplete -C "hopsctl explain 1"\n'
    lines = run("fish", script, tmp_path, HOPS_SOCKET=str(daemon)).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["17", "18_4"]
    assert lines[0].endswith("\tnet of ann (running)")
