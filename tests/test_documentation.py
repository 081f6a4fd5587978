"""Shell in the documentation: it parses, and its programs, modules, options and files exist.

tests/ctl/shell/test_documented.py checks the commands of hopsctl; the tests that run the tutorial
and the installation check theirs.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_cluster import as_user

from examples.demo.cluster import PrivateCluster
from hopsd.core.submission.comment import parse
from hopsd.slurm.submit_line import options_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
TEXTS = {page: page.read_text() for page in PAGES}
SLURM = frozenset({"sbatch", "scancel", "scontrol", "sinfo", "squeue"})
OTHER_PROGRAMS = frozenset(
    {"apt", "hopsctl", "pip", "python", "python3", "systemctl", "systemd-sysusers"}
)
"""Programs that this machine may lack, or have under another name."""


def commands(text: str) -> list[str]:
    """Commands typed at a prompt."""
    command_lines = re.findall(r"^    [$#] ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    return [re.sub(r"\\\n\s*", "", line) for line in command_lines]


def scripts(text: str) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def every_word() -> Iterator[tuple[str, list[str]]]:
    """Yield the words of each command; of a command over several lines, those of the first one."""
    for page, text in TEXTS.items():
        for line in commands(text):
            first = re.split(r" [|<>] | && |; ", line.partition("  #")[0])[0]
            words = shlex.split(re.sub(r"^\w+=\$\((.*)\)$", r"\1", first))
            while re.match(r"\w+=", words[0]):  # variables in front of the command
                words.pop(0)
            yield f"{page.name}: {line}", words


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_shell_code_parses(page: Path) -> None:
    for text in ["\n".join(commands(TEXTS[page])), *scripts(TEXTS[page])]:
        result = subprocess.run(
            ["bash", "-n"], input=text, capture_output=True, text=True, check=False
        )
        assert (result.returncode, result.stderr) == (0, ""), text


def test_every_program_exists() -> None:
    for place, words in every_word():
        program = words[0].removeprefix("/opt/hops/bin/")
        is_known = (
            program in SLURM | OTHER_PROGRAMS or shutil.which(program) or program in {"echo", "cd"}
        )
        assert is_known, place


def test_every_file_of_ours_exists() -> None:
    for place, words in every_word():
        for word in words:
            if re.match(r"(bench|conf|docs|examples|migrations)/", word):
                assert (ROOT / word).exists(), place


def test_every_module_and_its_options_exist() -> None:
    calls = re.findall(r"python -m (bench[.\w]*)([^`\n]*)", "\n".join(TEXTS.values()))
    assert len(calls) > 30
    for name, options in calls:
        spec = importlib.util.find_spec(name.rstrip("."))
        assert spec is not None, name
        assert spec.origin is not None
        folder = Path(spec.origin).parent
        of_package = spec.submodule_search_locations is not None
        files = folder.rglob("*.py") if of_package else [Path(spec.origin)]
        source = "".join(file.read_text() for file in files)
        for option in re.findall(r"--[a-z][a-z0-9-]*", options):
            assert f'"{option}"' in source, f"python -m {name}{options}"


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)", "\n".join(TEXTS.values())):
        assert re.search(rf"^(?:[a-z-]+ )*{target}(?: [a-z-]+)*:", makefile, re.MULTILINE), target


def test_every_hops_comment_is_valid() -> None:
    batch = re.findall(r"^#SBATCH --comment=(.*)$", "\n".join(TEXTS.values()), re.MULTILINE)
    comments = [
        word.removeprefix("--comment=")
        for _, words in every_word()
        for word in words
        if word.startswith("--comment=")
    ]
    assert batch
    assert len(comments) > 3
    for comment in [*(shlex.split(text)[0] for text in batch), *comments]:
        parse(comment)


@pytest.mark.skipif(not shutil.which("sbatch"), reason="needs Slurm")
def test_every_option_of_slurm_exists() -> None:
    """Slurm's programs and their library contain the names of the options that they accept."""
    library = b"".join(path.read_bytes() for path in Path("/usr/lib").glob("*/slurm*/libslurm*.so"))
    lines = [f"sbatch {line}" for text in TEXTS.values() for script in scripts(text)
             for line in re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)]  # fmt: skip
    for words in [*(shlex.split(line, comments=True) for line in lines),
                  *(words for _, words in every_word() if words[0] in SLURM)]:  # fmt: skip
        program = shutil.which(words[0])
        assert program is not None
        program_bytes = Path(program).read_bytes() + library
        for word in options_of(words[1:]):
            if option := re.match(r"--([a-z][a-z-]*)", word):
                assert f"{option[1]}\0".encode() in program_bytes, words


def test_comments_are_shown_as_hopsctl_shows_them() -> None:
    examples = re.findall(
        r"^    \$ hopsctl (comment .+)\n((?:    (?!\$).+\n)*)",
        TEXTS[ROOT / "docs" / "users.md"],
        re.MULTILINE,
    )
    assert len(examples) > 1
    for command, answer in examples:
        result = subprocess.run(
            [Path(sys.executable).with_name("hopsctl"), *shlex.split(command)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert result.stdout == textwrap.dedent(answer), command


@pytest.mark.live
def test_every_submission_is_accepted(cluster: PrivateCluster, tmp_path: Path) -> None:
    """A script on the page is submitted as it is, others as one that sleeps."""
    command_lines = [words for _, words in every_word() if words[0] == "sbatch"]
    command_lines = [words for words in command_lines if any("hops:" in word for word in words)]
    assert len(command_lines) > 4
    sleeper = tmp_path / "sleep.sh"
    sleeper.write_text("#!/bin/bash\nsleep 60\n")
    for words in command_lines:
        arguments = [sleeper if word.endswith(".sh") else word for word in words[1:]]
        assert_accepted(cluster, *map(str, arguments))
    batch_scripts = [script for text in TEXTS.values() for script in scripts(text)]
    batch_scripts = [
        script for script in batch_scripts if re.search(r"^#SBATCH .*hops:", script, re.MULTILINE)
    ]
    assert batch_scripts
    for script in batch_scripts:
        sleeper.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}")
        assert_accepted(cluster, str(sleeper))


def assert_accepted(cluster: PrivateCluster, *options: str) -> None:
    result = as_user(cluster, None, "sbatch", "--output=/dev/null", *options)
    assert result.returncode == 0, (options, result.stderr)
    assert "hops: accepted: " in result.stderr, (options, result.stderr)
