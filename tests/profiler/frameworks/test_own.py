"""From which checkpoints saved on request a training resumes."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from hops_profiler import environment
from hops_profiler.frameworks import request
from hops_profiler.frameworks.own import OwnCheckpoints
from hops_profiler.frameworks.training_identity import TrainingIdentity, script, variables, words


@pytest.fixture
def own_folder(tmp_path: Path) -> OwnCheckpoints:
    checkpoints = OwnCheckpoints(tmp_path / "_hops-17", "state.json")
    checkpoints.sign(checkpoints.at(99))
    return checkpoints


def checkpoint(folder: Path, step: int, *, complete: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    if complete:
        (path / "state.json").touch()
    return path


def test_the_latest_complete_checkpoint_counts(own_folder: OwnCheckpoints) -> None:
    assert own_folder.latest() is None
    checkpoint(own_folder.folder, 9)
    latest = checkpoint(own_folder.folder, 10)
    checkpoint(own_folder.folder, 30, complete=False)
    (own_folder.folder / "checkpoint-x").mkdir()
    assert own_folder.latest() == latest


def test_checkpoints_in_other_folders_do_not_count(own_folder: OwnCheckpoints) -> None:
    latest = checkpoint(own_folder.folder, 120)
    for folder in (own_folder.folder.parent, own_folder.folder.with_name("_hops-18")):
        checkpoint(folder, 340)
    assert own_folder.latest() == latest


def test_clearing_removes_all_other_checkpoints_in_the_folder(own_folder: OwnCheckpoints) -> None:
    scheduled_save = checkpoint(own_folder.folder.parent, 5)
    checkpoint(own_folder.folder, 10)
    checkpoint(own_folder.folder / ".checkpoint-15.partial", 15)
    last = checkpoint(own_folder.folder, 20)
    own_folder.clear(last)
    assert list(own_folder.folder.glob("*checkpoint*")) == [last]
    assert scheduled_save.exists()


def test_a_training_with_another_command_does_not_resume_from_the_checkpoint(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(own_folder.folder, 10)
    monkeypatch.setattr("sys.argv", ["finetune.py"])
    assert own_folder.latest() is None


def test_an_edited_script_starts_from_scratch(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(own_folder.folder, 10)
    monkeypatch.setattr("hops_profiler.frameworks.own._SCRIPT", "another text")
    assert own_folder.latest() is None


def test_a_training_with_another_environment_does_not_resume_from_the_checkpoint(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``for seed in 1 2; do SEED=$seed python train.py; done``"""
    checkpoint(own_folder.folder, 10)
    monkeypatch.setattr("hops_profiler.frameworks.own._VARIABLES", {"SEED": "2"})
    assert own_folder.latest() is None


def test_checkpoints_of_two_commands_are_kept_apart(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(own_folder.folder, 10)
    monkeypatch.setattr("sys.argv", ["finetune.py"])
    own_folder.note_scheduled(checkpoint(own_folder.folder.parent, 20))
    own_folder.remove()
    monkeypatch.undo()
    assert own_folder.latest() == own_folder.folder / "checkpoint-10"
    assert own_folder.last_scheduled() is None
    monkeypatch.setattr("sys.argv", ["finetune.py"])
    own_folder.sign(own_folder.at(99))
    latest_of_other = checkpoint(own_folder.folder, 5)
    assert own_folder.latest() == latest_of_other
    foreign_folder = own_folder.folder.with_name("_hops-17.other")
    assert [path.name for path in foreign_folder.glob("checkpoint-*")] == ["checkpoint-10"]


def test_a_checkpoint_that_cannot_be_set_aside_is_not_overwritten(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(own_folder.folder, 10)
    monkeypatch.setattr("sys.argv", ["finetune.py"])
    monkeypatch.setattr(OwnCheckpoints, "set_aside", lambda *_: False)
    with pytest.raises(OSError, match="another command"):
        own_folder.sign(own_folder.at(99))


def test_a_checkpoint_set_aside_is_neither_used_nor_removed(own_folder: OwnCheckpoints) -> None:
    """`set_aside` returns False if it fails: otherwise, each run would try again and restart."""
    failed_folder = own_folder.folder.with_name("_hops-17.failed")
    checkpoint(own_folder.folder, 10)
    assert own_folder.set_aside()
    assert not own_folder.is_usable()
    checkpoint(own_folder.folder, 20)
    assert not own_folder.set_aside()
    assert own_folder.latest() is None
    assert (failed_folder / "checkpoint-10").exists()
    assert (own_folder.folder / "checkpoint-20").exists()


SMALL = {"HOPS_GPUS": "1", "HOPS_LR": "0.1", "SLURMD_NODENAME": "n1", "MASTER_ADDR": "n1"}
LARGE = {"HOPS_GPUS": "2", "HOPS_LR": "2e-1", "SLURMD_NODENAME": "n7", "MASTER_ADDR": "n7"}


def differences(line: list[str], now: list[str], *environments: dict[str, str]) -> str:
    """Return what differs between runs of two command lines with these environments."""
    runs = []
    for arguments, environ in zip((line, now), environments, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["train.py", *arguments])
            names = environment.node_names(environ), environment.sizes(environ)
            runs.append(TrainingIdentity("text", words(*names), {}))
    return runs[1].change_since(json.loads(json.dumps(runs[0].as_json())))


@pytest.mark.parametrize(
    ("line", "now", "differs"),
    [
        (["--lr=0.1", "tcp://n1:29500"], ["--lr=2e-1", "tcp://n7:29500"], ""),
        (["--lr", "0.1", "--num_gpus", "1"], ["--lr", "2e-1", "--num_gpus", "2"], ""),
        (["trainer.devices=1"], ["trainer.devices=2"], ""),
        (["--num_workers=1"], ["--num_workers=1"], ""),  # equals the old size, but is a literal
        (["--fold", "1"], ["--fold", "1"], ""),
        (["--fold", "1"], ["--fold", "2"], "--fold"),
        (["--fold=0.1"], ["--fold=2e-1"], "--fold"),
        (["--seed=17"], ["--seed=18"], "--seed"),
        (["--lr=0.1"], ["--lr=0.05"], "--lr"),  # it may belong to a search
        (["--gpus=1"], ["--gpus=3"], "--gpus"),
        (["1"], ["2"], "word 1"),
        (["key=c2VjcmV0"], ["key=b3RoZXI="], "word 1"),
        (["tcp://n1:29500"], ["tcp://n8:29500"], "word 1"),
        (["--lr=0.1"], [], "the number of words"),
    ],
)
def test_only_values_set_by_hops_may_differ(line: list[str], now: list[str], differs: str) -> None:
    assert differences(line, now, SMALL, LARGE) == differs


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        ({"SEED": "1"}, {"SEED": "1", "RANK": "1", "HOSTNAME": "n7", "SLURM_JOB_ID": "9"}, ""),
        ({"SEED": "1"}, {"SEED": "2"}, "the variable SEED"),
        ({"SEED": "1"}, {}, "the variable SEED"),
        ({}, {"FOLD": "1"}, "the variable FOLD"),
        ({"LR": "0.1"}, {"LR": "2e-1"}, ""),  # LR=$HOPS_LR
        ({"LR": "0.1"}, {"LR": "0.05"}, "the variable LR"),
        ({"FOLD": "1"}, {"FOLD": "2"}, "the variable FOLD"),  # also the numbers of GPUs
        ({"URL": "tcp://n1:29500"}, {"URL": "tcp://n7:29500"}, ""),
        ({}, {"TORCHINDUCTOR_CACHE_DIR": "/scratch/torchinductor"}, ""),
    ],
)
def test_variables_of_the_user_identify_the_training(
    before: dict[str, str], now: dict[str, str], differs: str
) -> None:
    runs = [
        TrainingIdentity(
            "text",
            [],
            variables(
                environment.user_variables(user | user_environment),
                environment.node_names(user_environment),
                environment.sizes(user_environment),
            ),
        )
        for user, user_environment in ((before, SMALL), (now, LARGE))
    ]
    assert runs[1].change_since(json.loads(json.dumps(runs[0].as_json()))) == differs


@pytest.mark.slow
def test_variables_set_by_libraries_during_import_do_not_count() -> None:
    """With hops-run, two ranks first import `torch._dynamo`, which sets one; one rank does not."""
    code = (
        "from hops_profiler import startup; startup.install();"
        "import os, torch; os.environ['SET_BY_A_LIBRARY'] = '1';"
        "from hops_profiler.frameworks import own; print(sorted(own._VARIABLES))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, env={"SEED": "1"}, text=True
    )
    assert "'SEED'" in result.stdout
    assert "SET_BY_A_LIBRARY" not in result.stdout


@pytest.mark.parametrize(
    "unknown",
    [None, {}, [None], ["train.py"], "text", 3, {"script": "", "variables": {"SEED": 3}}],
)
def test_an_unreadable_note_belongs_to_another_command(
    unknown: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py"])
    assert TrainingIdentity("", words((), ()), {}).change_since(unknown)


def test_no_word_of_the_command_is_stored(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word may be a token, and the folder may be readable by all."""
    monkeypatch.setattr("sys.argv", ["train.py", "--key=secret"])
    monkeypatch.setenv("SLURM_JWT", "secret")
    own_folder.sign(own_folder.at(99))
    assert "secret" not in (own_folder.folder / "started.json").read_text()


def test_a_handler_unknown_to_python_counts_as_a_handler() -> None:
    handler_before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        faulthandler.register(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
        assert not request.is_free()
        faulthandler.unregister(signal.SIGUSR1)
        assert request.is_free()
    finally:
        signal.signal(signal.SIGUSR1, handler_before)


def test_printed_output_is_flushed_before_the_signal_ends_the_process() -> None:
    code = "from hops_profiler.checkpoint.leaving import end_by_signal as end; print('loss'); end()"
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert (result.returncode, result.stdout) == (-signal.SIGUSR1, b"loss\n")


def test_the_restart_count_does_not_excuse_another_command() -> None:
    """``--fold $SLURM_RESTART_COUNT`` starts another training in each run."""
    runs = [{"SLURM_RESTART_COUNT": run, "HOPS_RESTART_COUNT": run} for run in ("0", "1")]
    assert differences(["--fold", "0"], ["--fold", "1"], *runs) == "--fold"


def test_if_saves_of_several_ranks_fail_in_a_run_no_rank_ends_the_job(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_folder.fails_anew()
    own_folder.has_saved()  # of a rank whose part succeeded
    assert own_folder.fails_anew()
    monkeypatch.setenv("HOPS_RESTART_COUNT", "1")
    assert not own_folder.fails_anew()
    own_folder.has_saved()
    assert own_folder.fails_anew()


def test_a_failed_save_that_cannot_be_noted_does_not_restart_the_job(tmp_path: Path) -> None:
    assert not OwnCheckpoints(tmp_path / "missing" / "_hops-17", "state.json").fails_anew()


def test_a_checkpoint_replaced_by_another_training_does_not_count(
    own_folder: OwnCheckpoints,
) -> None:
    path = checkpoint(own_folder.folder.parent, 9)
    own_folder.note_scheduled(path)
    assert own_folder.last_scheduled() == path
    os.utime(path / "state.json", (1, 1))  # with the same number of steps
    assert own_folder.last_scheduled() is None


def test_only_one_training_of_a_run_resumes_from_the_checkpoint(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one with the same command may use other data."""
    latest = checkpoint(own_folder.folder, 10)
    monkeypatch.setenv("HOPS_RESTART_COUNT", "1")
    assert own_folder.latest() == latest
    own_folder.take()
    assert own_folder.latest() is None
    monkeypatch.setenv("HOPS_RESTART_COUNT", "2")
    assert own_folder.latest() == latest


def test_the_folder_does_not_depend_on_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run may skip earlier steps."""
    monkeypatch.setenv("HOPS_JOB", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    names = set()
    for step in ("0", "3"):
        monkeypatch.setenv("SLURM_STEP_ID", step)
        names.add(request.folder_in(tmp_path).name)
    assert names == {"_hops-17"}


def test_the_first_of_several_trainings_in_a_folder_has_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second, foreign_turn = (
        request.Turn(tmp_path / name) for name in ("out", "out", "other")
    )
    assert first.take()
    assert not first.is_shared()
    assert not second.take()
    assert first.is_shared()
    assert foreign_turn.take()
    assert not foreign_turn.is_shared()
    monkeypatch.setenv("HOPS_RESTART_COUNT", "1")
    assert request.Turn(tmp_path / "out").take()


def test_the_note_of_the_first_run_is_valid_in_later_runs(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPS_RESTART_COUNT", "0")
    assert own_folder.first_note({"batch": 8}) == {"batch": 8}
    monkeypatch.setenv("HOPS_RESTART_COUNT", "1")
    assert own_folder.first_note({"batch": 16}) == {"batch": 8}
    own_folder.sign(own_folder.at(3))  # a save follows
    assert own_folder.first_note({"batch": 16}) == {"batch": 8}
    own_folder.remove()
    assert not own_folder.folder.exists()
    assert own_folder.first_note({"batch": 16}) == {"batch": 16}


@pytest.mark.parametrize("text", ["", "[]", '{"identity": {}, "note": 3}'])
def test_the_first_note_of_another_training_is_ignored(
    own_folder: OwnCheckpoints, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("HOPS_RESTART_COUNT", "1")
    (own_folder.folder / "beginning.json").write_text(text)
    assert own_folder.first_note(5) == 5


def test_the_first_note_is_next_to_a_folder_that_must_stay_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPS_RESTART_COUNT", "0")
    external_note = OwnCheckpoints(
        tmp_path / "out" / "_hops-17", "state.json", tmp_path / ".out.json"
    )
    external_note.first_note(1)
    assert [path.name for path in tmp_path.iterdir()] == [".out.json"]
    external_note.remove()
    assert not list(tmp_path.iterdir())


def test_a_script_is_identified_by_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "train.py", tmp_path / "data"
    data.write_text("other text")
    monkeypatch.setattr(sys, "argv", [str(path), str(data)])
    assert script() == ""  # as with python -c
    texts = ["print(1)", "print(2)", "print(1)"]
    digests = [path.write_text(text) and script() for text in texts]
    assert digests[0] == digests[2] != digests[1]
    data.write_text("more data")
    assert script() == digests[0]
