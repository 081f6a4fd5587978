"""No text from jobs, users or Slurm can control the terminal that shows it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from hopsd import ctl
from hopsd.ctl.terminal import say_prose
from hopsd.errors import ConfigError, HopsError, SlurmError
from hopsd.serve.socket import LocalServer, Request
from hopsd.service import logs

EVIL = "\x1b]0;owned\x07 \x1b[2J\u202egnp\r\x9b31m"


def harmless(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize(
    "error",
    [HopsError(EVIL), SlurmError(f"scontrol: {EVIL}"), ConfigError(f"one\ntwo {EVIL}")],
    ids=lambda error: type(error).__name__,
)
def test_no_error_text_controls_the_terminal(
    error: HopsError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(ctl, "cli", fail)
    with pytest.raises(SystemExit):
        ctl.main()
    error_output = capsys.readouterr().err
    assert harmless(error_output)
    assert r"\x1b[2J\u202egnp" in error_output
    assert error_output.count("\n") == 1 + str(error).count("\n")


def test_a_file_name_does_not_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hopsctl", "plan", "--snapshot", EVIL])
    with pytest.raises(SystemExit):
        ctl.main()
    assert harmless(capsys.readouterr().err)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    def refuse(request: Request) -> None:
        raise HopsError(f"{request.command}: {EVIL}")

    server = LocalServer(tmp_path / "sock", refuse)
    yield tmp_path / "sock"
    server.close()


@pytest.mark.parametrize("command", ["status", "explain 7", "throughput", "pause", "release 7"])
def test_no_answer_of_the_daemon_controls_the_terminal(
    daemon: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["hopsctl", *command.split(), "--socket", str(daemon)])
    with pytest.raises(SystemExit):
        ctl.main()
    error_output = capsys.readouterr().err
    assert "owned" in error_output
    assert harmless(error_output)


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_log_line_controls_the_terminal(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        logs.configure("info", form)
        structlog.get_logger().info("tick", did=EVIL, job=7)
        error_output = capsys.readouterr().err
    finally:
        structlog.reset_defaults()
    assert "owned" in error_output
    assert harmless(error_output)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_prose_is_wrapped_between_words_on_a_terminal_only(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    text = "squeue shows it held until hops starts it; `hopsctl explain JOB` says why"
    say_prose(text)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines) == text
    assert (max(map(len, lines)) <= 40) == is_terminal
