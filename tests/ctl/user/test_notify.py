"""`hopsctl notify`: its requests to hopsd and its output."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from hopsd.ctl.user import notify as module
from hopsd.errors import InputError
from hopsd.notify.news import KINDS


class Hopsd:
    """Stores one user's setting."""

    def __init__(self) -> None:
        self.kinds: list[str] | None = None

    def ask(self, _: object, command: str, **arguments: Any) -> dict[str, Any]:
        if command == "set_notify":
            self.kinds = arguments["kinds"]
        return {"kinds": self.kinds, "mails": True}


@pytest.fixture
def hopsd(monkeypatch: pytest.MonkeyPatch) -> Hopsd:
    daemon = Hopsd()
    monkeypatch.setattr(module, "ask_daemon", daemon.ask)
    return daemon


@pytest.mark.parametrize(
    ("words", "kinds", "text"),
    [
        ([], None, "what each job's sbatch asked for"),
        (["failed", "stuck"], ["failed", "stuck"], "By mail: failed, stuck"),
        (["all"], list(KINDS), "By mail: done, failed, fewer, stuck"),
        (["none"], [], "By mail: nothing"),
        (["default"], None, "what each job's sbatch asked for"),
    ],
)
def test_a_user_sees_and_changes_their_notifications(
    hopsd: Hopsd, words: list[str], kinds: list[str] | None, text: str
) -> None:
    result = CliRunner().invoke(module.notify, words)
    assert result.exit_code == 0, result.output
    assert text in result.output
    assert hopsd.kinds == kinds


def test_contradicting_words_are_refused(hopsd: Hopsd) -> None:
    result = CliRunner().invoke(module.notify, ["none", "failed"])
    assert isinstance(result.exception, InputError)
    assert "stand alone" in str(result.exception)
    assert CliRunner().invoke(module.notify, ["sometimes"]).exit_code == 2
