"""hopsctl accepts every command in the documentation.

Commands that need no server print what the pages show.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hopsd.ctl import cli
from hopsd.ctl.shell.manual import commands

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
COMMANDS_BY_NAME = dict(commands(cli))
SERVERLESS = ("comment", "estimate", "plan", "config explain", "completion")


def at_prompt(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands as typed, with the lines that the page shows below them."""
    block = r"^    [$#] (hopsctl (?:.*\\\n)*.*)\n((?:    (?![$#] ).*\n)*)"
    for line, lines in re.findall(block, page.read_text() + "\n", re.MULTILINE):
        command = re.sub(r"\\\n\s*", " ", line).partition("  #")[0].strip()
        yield command, [text.strip() for text in lines.splitlines()]


def words_of(line: str) -> list[str]:
    """Return the words of a command, with values substituted for shell variables."""
    line = re.sub(r"\$\w+", "17", re.sub(r"\$\([^)]*\)", "12:00", line))
    return shlex.split(re.split(r" [|<>] | && |; ", line)[0])[1:]


def command_of(words: list[str]) -> str | None:
    return next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS_BY_NAME), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_hopsctl_accepts_every_command_at_a_prompt(page: Path) -> None:
    for line, _ in at_prompt(page):
        words = words_of(line)
        name = command_of(words)
        assert name is not None, line
        try:
            with contextlib.suppress(click.exceptions.Exit):
                COMMANDS_BY_NAME[name].make_context(name, words[len(name.split()) :])
        except click.UsageError as error:
            raise AssertionError(f"{page.name}: {line}: {error.format_message()}") from None


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_command_in_a_sentence_exists_with_its_options(page: Path) -> None:
    for line in re.findall(r"`hopsctl ([^`]+)`", page.read_text()):
        words = line.split()
        name = command_of([*words, ""])
        if name is None:
            assert words[0] in ("config", "COMMAND", "--help"), f"{page.name}: hopsctl {line}"
            continue
        options = {option for param in COMMANDS_BY_NAME[name].params for option in param.opts} | {
            "--help"
        }
        for word in words:
            if re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word) and name != "check":
                assert word.partition("=")[0] in options, f"{page.name}: hopsctl {line}"


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for line, lines in at_prompt(page):
            if command_of(words_of(line)) in SERVERLESS and " > " not in line:
                yield line, lines


@pytest.mark.slow
@pytest.mark.parametrize(("line", "lines"), list(shown_commands()))
def test_commands_without_a_server_print_what_the_page_shows(line: str, lines: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-P", "-c", "from hopsd.ctl import main; main()", *words_of(line)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    output_lines = [text.strip() for text in (result.stdout + result.stderr).splitlines()]
    assert output_lines
    assert [text for text in lines if text not in output_lines] == []
