"""The commands' descriptions: `--help`, its examples, and the man pages made from it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hopsd.config.reference import options_by_path
from hopsd.ctl import COMMANDS, cli
from hopsd.ctl.shell.manual import commands, help_of, pages

COMMANDS_BY_NAME = dict(commands(cli))


def command_lines(command: click.Command) -> list[str]:
    return "\n".join(help_of(command).examples).replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("words", COMMANDS_BY_NAME)
def test_every_command_accepts_its_own_examples(words: str) -> None:
    lines = command_lines(COMMANDS_BY_NAME[words])
    assert lines
    for line in lines:
        bare = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line)
        example_words = shlex.split(re.split(" [<>] ", bare)[0])
        assert example_words[: 1 + len(words.split())] == ["hopsctl", *words.split()]
        COMMANDS_BY_NAME[words].make_context(words, example_words[1 + len(words.split()) :])


@pytest.mark.parametrize("words", ["", *COMMANDS_BY_NAME])
def test_help_fits_80_columns(words: str) -> None:
    output = CliRunner().invoke(cli, [*words.split(), "--help"], terminal_width=80).stdout
    assert [line for line in output.splitlines() if len(line) > 80] == []
    if not words:
        assert "..." not in output.replace("[ARGS]...", "")


def test_the_list_of_commands_is_complete() -> None:
    assert {words.split()[0] for words in COMMANDS_BY_NAME} == set(COMMANDS)


def test_an_unknown_command_or_setting_is_answered_with_a_suggestion() -> None:
    assert "did you mean 'status'?" in CliRunner().invoke(cli, ["statsu"]).output
    result = CliRunner().invoke(cli, ["config", "explain", "plan.polcy"])
    assert "did you mean plan.policy" in str(result.exception)


def test_a_setting_is_explained_within_80_columns() -> None:
    for path in options_by_path():
        result = CliRunner().invoke(cli, ["config", "explain", path])
        assert result.exit_code == 0
        assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.fixture(scope="module")
def manual() -> dict[str, str]:
    return pages()


def test_the_manual_has_every_command_option_and_setting(manual: dict[str, str]) -> None:
    plain_manual = {name: text.replace("\\-", "-") for name, text in manual.items()}
    for words, command in COMMANDS_BY_NAME.items():
        assert f'.SS "hopsctl {words} ' in plain_manual["hopsctl.1"]
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.opts[-1] in plain_manual["hopsctl.1"]
    for path, option in options_by_path().items():
        assert f'"{path.split(".")[1]} = ' in plain_manual["hopsd.toml.5"], option
    assert "--nproc-per-node" in plain_manual["hops-run.1"]


def test_groff_finds_nothing_wrong(manual: dict[str, str], tmp_path: Path) -> None:
    """This is lintian's check; the output also shows each option as it is typed."""
    if shutil.which("man") is None:
        pytest.skip("man is not installed (man-db)")
    environ = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    for name, text in manual.items():
        (tmp_path / name).write_text(text)
        result = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", tmp_path / name],
            env=environ, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert result.stderr == ""
        plain = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout)
        if name == "hopsd.toml.5":
            assert 'log_level = "info"' in plain
        if name == "hopsctl.1":
            assert "--restart-cost SECONDS" in plain
            assert "hopsctl comment 'hops:reqs=1,2,4;samples=2e6;batch=128'" in plain
