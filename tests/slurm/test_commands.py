"""Slurm's commands: never through a shell, always with a time-out, failures of known kinds."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import pytest
from canned import CannedCommands

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.slurm.ask import slurm_conf
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.scontrol import ScontrolAdapter


def fail_with(monkeypatch: pytest.MonkeyPatch, returncode: int, stderr: str) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, returncode, b"", stderr.encode())

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "away"),
        ("slurm_load_node error: Connection reset by peer", "away"),
        ("slurm_load_node error: Transport endpoint is not connected", "away"),
        ("slurm_update error: Unexpected message received", "away"),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", "away"),
        ("error: Munge encode failed: Failed to access socket", "away"),
        ("slurm_load_jobs error: Protocol authentication error", "away"),
        ("Invalid generic resource (gres) specification for job 18", "refused"),
        ("Job is no longer pending execution for job 1", "refused"),
        ("", "refused"),
    ],
)
def test_failures_are_distinguished_by_their_text(
    monkeypatch: pytest.MonkeyPatch, stderr: str, error: str
) -> None:
    fail_with(monkeypatch, 1, stderr)
    with pytest.raises(SlurmError, match="scontrol hold 1") as error_info:
        SlurmCommands().run("scontrol", "hold", "1")
    assert isinstance(error_info.value, SlurmUnavailableError) == (error == "away")
    assert stderr in str(error_info.value)


def test_an_error_names_the_command_but_not_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is shown to a job's user as the reason why the job waits."""
    fail_with(monkeypatch, 1, "Requested nodes are busy")
    with pytest.raises(SlurmError) as error_info:
        SlurmCommands().run("scontrol", "update", "jobid=7", "reqnodelist=n1", "starttime=now")
    assert str(error_info.value) == "scontrol update: Requested nodes are busy"


def test_arguments_do_not_go_through_a_shell() -> None:
    text = "a b; echo $HOME `id` \n'\""
    assert SlurmCommands().run("printf", "%s", text) == text


def test_commands_have_our_environment_and_locale() -> None:
    commands = SlurmCommands(environment={"SLURM_CONF": "/x/slurm.conf"})
    lines = commands.run("env").splitlines()
    assert "SLURM_CONF=/x/slurm.conf" in lines
    assert "LC_ALL=C" in lines


def test_a_command_that_does_not_answer_in_time_is_an_error() -> None:
    with pytest.raises(SlurmUnavailableError, match=r"sleep 9: no answer within 0\.1 s"):
        SlurmCommands(timeout_seconds=0.1).run("sleep", "9")


def test_messages_of_a_command_that_timed_out_are_reported() -> None:
    words = "import sys, time; print('no slurm.conf, retrying', file=sys.stderr); time.sleep(9)"
    with pytest.raises(SlurmUnavailableError, match=r"within 1 s; it said: no slurm\.conf, retr"):
        SlurmCommands(timeout_seconds=1.0).run(sys.executable, "-uc", words)


def test_a_command_is_stopped_at_the_expected_message() -> None:
    """scancel would send a signal ten times, at intervals of five seconds or more."""
    shell = (
        "sh",
        "-c",
        "echo a line >&2; echo Job is in transitional state, retrying >&2; sleep 60",
    )
    start_time = time.monotonic()
    SlurmCommands().run_until("transitional state", *shell)
    assert time.monotonic() - start_time < 30.0


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("exit 0", None, ""),
        ("echo Access denied >&2; exit 1", SlurmError, "sh: Access denied"),
        ("echo Connection refused >&2; exit 1", SlurmUnavailableError, "Connection refused"),
        ("exec sleep 60", SlurmUnavailableError, "no answer within 1 s"),
    ],
)
def test_a_command_without_the_expected_message_ends_by_itself(
    script: str, error: type[SlurmError] | None, message: str
) -> None:
    commands = SlurmCommands(1.0 if "sleep" in script else 30.0)
    with contextlib.nullcontext() if error is None else pytest.raises(error, match=message):
        commands.run_until("transitional state", "sh", "-c", script)


def test_a_missing_command_is_an_error() -> None:
    with pytest.raises(SlurmUnavailableError, match="no-such-command"):
        SlurmCommands().run("no-such-command")


@pytest.mark.parametrize("answer", ["", "not json", "[]", "{}"])
def test_an_unknown_answer_is_an_error(answer: str) -> None:
    commands = CannedCommands()
    object.__setattr__(commands, "jobs", answer)
    with pytest.raises(SlurmError, match="squeue --json"):
        ScontrolAdapter(commands).read()


@pytest.mark.parametrize("state", ["UNKNOWN", "UNKNOWN*"])
def test_an_incompletely_known_cluster_is_not_a_reading(state: str) -> None:
    """Otherwise all jobs would be planned onto the nodes that slurmctld already knows."""
    commands = CannedCommands()
    assert ScontrolAdapter(commands).read().nodes[0].usable
    text = f"{commands.nodes}\nNodeName=n1 CPUTot=8 Gres=gpu:a:2 State={state} Partitions=main"
    object.__setattr__(commands, "nodes", text)
    with pytest.raises(SlurmUnavailableError, match="n1"):
        ScontrolAdapter(commands).read()
    draining_nodes = text.replace(f"State={state}", "State=UNKNOWN+DRAIN")
    object.__setattr__(commands, "nodes", draining_nodes)
    assert [node.usable for node in ScontrolAdapter(commands).read().nodes] == [True, False]


@pytest.mark.parametrize("state", ["MIXED", "ALLOCATED", "UNKNOWN"])
def test_a_node_that_does_not_register_is_awaited_and_then_left_out(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A job placed there starts without a GPU; without a bound, no other job would start either."""
    seconds = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    commands = CannedCommands()
    absent_node = (
        f"NodeName=n1 CPUTot=8 Gres=gpu:a:2 State={state} Partitions=main SlurmdStartTime=None"
    )
    object.__setattr__(commands, "nodes", f"{commands.nodes}\n{absent_node}")
    adapter = ScontrolAdapter(commands)
    with pytest.raises(SlurmUnavailableError, match="n1"):
        adapter.read()
    seconds = 31.0
    assert [node.usable for node in adapter.read().nodes] == [True, False]


def test_a_numbered_key_is_joined_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """24.11 and newer show Prolog and Epilog like this."""
    text = "KillWait = 30 sec\nProlog[0] = /a/x\nProlog[1] = /b/y\nEpilog = (null)\n"

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 0, text.encode(), b"")

    monkeypatch.setattr(subprocess, "run", run)
    assert slurm_conf(SlurmCommands()) == {"KillWait": "30 sec", "Prolog": "/a/x,/b/y"}
