"""hopsctl accepts the commands of docs/history.md and of the pages about leaving shadow mode."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from hopsd.config import parse as parse_config
from hopsd.config.schema import PortName
from hopsd.ctl import cli

DOCS = Path(__file__).resolve().parents[3] / "docs"
CHAPTER = (DOCS / "admin.md").read_text().split("## From a shadow to one partition to all")[1]
CHAPTER = CHAPTER.split("\n## ")[0]
TEXT = CHAPTER + (DOCS / "history.md").read_text()
COMMANDS = sorted(set(re.findall(r"^    [$#] hopsctl (.*)$", TEXT, re.MULTILINE))) + sorted(
    set(re.findall(r"`hopsctl ([^`]*--[^`]*)`", TEXT))
)


def test_the_pages_have_commands() -> None:
    assert any(line.startswith("shadow report") for line in COMMANDS)
    assert any(line.startswith("what-if") for line in COMMANDS)
    assert any(line.startswith("setup") for line in COMMANDS)


@pytest.mark.parametrize("line", COMMANDS)
def test_hopsctl_accepts_every_command(line: str) -> None:
    """The command is only parsed, not run."""
    command: click.Command = cli
    context = click.Context(cli)
    words = shlex.split(line)
    while isinstance(command, click.Group):
        subcommand = command.get_command(context, words.pop(0))
        assert subcommand is not None
        command = subcommand
    command.make_context(line, words)


@pytest.mark.parametrize("text", re.findall(r"(?:^    .*\n)+", CHAPTER, re.MULTILINE))
def test_hopsd_accepts_every_setting(text: str) -> None:
    if "[slurm]" in text:
        config = parse_config(re.sub(r"^    ", "", text, flags=re.MULTILINE))
        shadow = config.slurm.port is PortName.SHADOW
        assert shadow or config.slurm.partitions == ("trial",)
