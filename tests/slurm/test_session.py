"""One scontrol for many requests: each has its own answer, and no user's text is a command."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.slurm.command import UNRECORDED, ScontrolSession, SlurmCommands

LIKE_SCONTROL = """
    import os, sys, time
    log = open(sys.argv[1], "a")
    if sys.argv[2:]:
        print("once", *map(repr, sys.argv[2:]), file=log)
        sys.exit("no such job" if sys.argv[-1] in ("99", "lies") else None)
    print("begun", file=log, flush=True)
    print("scontrol: error: an old key in slurm.conf", file=sys.stderr, flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words:
            continue
        elif words[0].startswith("hops-"):
            print("invalid keyword:", words[0], file=sys.stderr, flush=True)
            continue
        print("said", *words, file=log, flush=True)
        if words[-1] == "99":
            print("Invalid job id specified for job 99", file=sys.stderr, flush=True)
        elif words[-1] == "lies":
            print("invalid keyword: hops-0123456789abcdef\\nrefused", file=sys.stderr, flush=True)
        elif words[-1] == "warned":
            print("scontrol: warning: this site has rules", file=sys.stderr, flush=True)
        elif words[-1] == "unrecorded":
            print("slurm_update error: the DB index is being set", file=sys.stderr, flush=True)
        elif words[-1] == "away":
            print("slurm_update error: Connection refused", file=sys.stderr, flush=True)
        elif words[-1] == "silence":
            time.sleep(60)
        elif words[-1] == "dies":
            print("Segmentation fault", file=sys.stderr, flush=True)
            os._exit(1)
    print("ended", file=log, flush=True)
"""


class Session(ScontrolSession):
    """A session with a program that answers like scontrol, and notes its requests."""

    def __init__(self, folder: Path, seconds: float = 30.0) -> None:
        program, self._log = folder / "scontrol.py", folder / "log"
        program.write_text(textwrap.dedent(LIKE_SCONTROL))
        self._log.touch()
        commands = SlurmCommands(seconds)
        super().__init__(commands, (sys.executable, str(program), str(self._log)))

    def kill(self) -> None:
        assert self._running is not None
        self._running.process.terminate()
        os.waitid(os.P_PID, self._running.process.pid, os.WEXITED | os.WNOWAIT)

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with closing(Session(tmp_path)) as scontrol_session:
        yield scontrol_session


def test_one_process_handles_all_requests_and_ends(session: Session) -> None:
    session.run("update", "jobid=1", "reqnodelist=n[0-3],n7", "tresPerJob=")
    session.run("update", "jobid=17_[0-4]", "priority=0")
    session.close()
    assert session.log == [
        "begun",
        "said update jobid=1 reqnodelist=n[0-3],n7 tresPerJob=",
        "said update jobid=17_[0-4] priority=0",
        "ended",
    ]


def test_a_refusal_concerns_only_its_request(session: Session) -> None:
    session.run("update", "jobid=1")
    with pytest.raises(SlurmError, match="no such job") as error:
        session.run("update", "99")
    assert not isinstance(error.value, SlurmUnavailableError)
    session.run("update", "jobid=2")
    assert session.log.count("begun") == 1


def test_a_warning_is_not_a_refusal(session: Session) -> None:
    """Only the exit code of the same request decides, and only for an update."""
    session.run("update", "jobid=1", "warned")
    assert session.log[-1] == "once 'update' 'jobid=1' 'warned'"
    with pytest.raises(SlurmError, match="this site has rules"):
        session.run("write", "warned")


def test_a_request_may_have_a_shorter_time_out(session: Session) -> None:
    with pytest.raises(SlurmUnavailableError, match="no answer within 1 s"):
        session.run("update", "jobid=1", "silence", seconds=1.0)
    session.run("update", "jobid=2")
    assert session.log[-1] == "said update jobid=2"


def test_a_refusal_after_a_wait_for_slurmdbd_is_not_waited_for_again(session: Session) -> None:
    with pytest.raises(SlurmError, match=UNRECORDED):
        session.run("update", "jobid=1", "unrecorded")
    assert session.log[-1] == "said update jobid=1 unrecorded"


@pytest.mark.parametrize(
    "word",
    ["comment=a b", "comment=a\nrelease 7", "comment='a", 'comment="a"', "comment=\\x", "comment=é",
     "comment=\t", "comment=a\x0bb", "!!", ""],
)  # fmt: skip
def test_text_of_a_user_is_one_argument_of_a_separate_process(session: Session, word: str) -> None:
    session.run("update", "jobid=1", word)
    assert session.log == [f"once 'update' 'jobid=1' {word!r}"]


def test_a_line_too_long_for_scontrol_is_sent_separately(session: Session) -> None:
    """Without readline, scontrol takes such a line for the end of its input (22.05 to 26.05)."""
    jobs = ",".join(map(str, range(10_000, 11_000)))
    session.run("update", jobs)
    assert session.log == [f"once 'update' '{jobs}'"]


def test_an_answer_cannot_fake_the_end_of_another(session: Session) -> None:
    with pytest.raises(SlurmError, match="refused"):
        session.run("write", "lies")
    session.run("update", "jobid=2")


@pytest.mark.parametrize(
    ("word", "message"), [("away", "Connection refused"), ("dies", "Segmentation fault")]
)
def test_an_outage_ends_the_session_and_the_next_request_starts_a_new_one(
    session: Session, word: str, message: str
) -> None:
    with pytest.raises(SlurmUnavailableError, match=f"scontrol update {word}: .*{message}"):
        session.run("update", word)
    session.run("update", "jobid=2")
    assert session.log.count("begun") == 2


def test_a_killed_session_is_restarted_for_the_next_request(session: Session) -> None:
    """For example, a signal meant for hopsd kills it before the second request was sent."""
    session.run("update", "jobid=1")
    session.kill()
    session.run("update", "jobid=2")
    assert session.log == ["begun", "said update jobid=1", "begun", "said update jobid=2"]


def test_a_request_without_an_answer_in_time_is_an_error(tmp_path: Path) -> None:
    with (
        closing(Session(tmp_path, seconds=2.0)) as session,
        pytest.raises(SlurmUnavailableError, match="scontrol update silence: no answer within 2 s"),
    ):
        session.run("update", "silence")


def test_a_missing_program_is_an_error() -> None:
    session = ScontrolSession(SlurmCommands(), ("no-such-scontrol",))
    with pytest.raises(SlurmUnavailableError, match="scontrol update"):
        session.run("update", "jobid=1")
