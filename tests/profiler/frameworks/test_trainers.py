"""The integration of frameworks, with stub trainers that only count."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402 - it may be missing
from hops_profiler.frameworks import (  # noqa: E402
    accelerate,
    accelerate_order,
    huggingface,
    lightning,
    request,
)


@pytest.fixture(autouse=True)
def job(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    for name in (
        "HOPS_FRAMEWORK_SAVES",
        "HOPS_REPORT_DIR",
        "HOPS_STATE_DIR",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("HOPS_JOB", "1"), ("HOPS_TRIAL", "1"), ("HOPS_REQUEUE_EXIT_CODE", "85")):
        monkeypatch.setenv(name, value)  # a trial does not ask Slurm
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("HOPS_RESTART_COUNT", "0")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("node")))
    monkeypatch.setattr(huggingface, "_begun_folders", set())
    monkeypatch.setattr(lightning, "_begun_folders", set())
    monkeypatch.setattr(request, "end_by_signal", Mock(side_effect=EndedBySignal))
    handler_before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, handler_before)


class EndedBySignal(BaseException):
    """Raised where hops' signal would end the process."""


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = int(os.environ["HOPS_RESTART_COUNT"])
    monkeypatch.setenv("HOPS_RESTART_COUNT", str(runs + 1))
    for framework in (huggingface, lightning):
        monkeypatch.setattr(framework, "_begun_folders", set())


class State:
    """The attributes of Trainer's state that these tests need."""

    def __init__(self) -> None:
        self.global_step, self.epoch = 0, 0.0
        self.best_model_checkpoint: str | None = None

    def save_to_json(self, path: str) -> None:
        Path(path).write_text(json.dumps(vars(self)))


class Trainer:
    """Two epochs of three steps; asked to leave at the step ``request_step``."""

    def __init__(self, folder: Path, request_step: int = 0, stops: int = 6) -> None:
        self.args = SimpleNamespace(
            output_dir=str(folder),
            world_size=1,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=1,
            save_only_model=False,
            push_to_hub=False,
            save_on_each_node=False,
            should_save=True,
            n_gpu=0,
        )
        self._train_batch_size = 16
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.state = State()
        self.control = SimpleNamespace(should_training_stop=False, should_epoch_stop=False)
        self.request_step, self.stops, self.resume_path = request_step, stops, None
        self.best, self.interval = 0, 0
        self.fails: type[Exception] | None = None
        self.log = list[str]()

    def train(self, resume_from_checkpoint: Any = None) -> None:
        self.resume_path = resume_from_checkpoint
        if self.resume_path:
            self._load_from_checkpoint()
        if isinstance(self.resume_path, str):
            self.state.global_step = int(self.resume_path.rpartition("-")[2])
        while not self.control.should_training_stop:
            self.state.global_step += 1
            self.state.epoch = self.state.global_step / 3
            if self.state.global_step == self.request_step:
                signal.raise_signal(signal.SIGUSR1)
            self.control.should_training_stop = self.state.global_step >= self.stops
            self._maybe_log_save_evaluate("step")
            if self.state.epoch % 1 == 0:
                self._maybe_log_save_evaluate("epoch")

    def _load_from_checkpoint(self) -> None:
        if self.fails:
            raise self.fails("cannot be loaded")

    def _maybe_log_save_evaluate(self, event: str) -> None:
        self.log.append(f"{event} {self.state.global_step}")
        if self.interval and event == "step" and self.state.global_step % self.interval == 0:
            self._save_checkpoint(self.model, trial=None)

    def _get_output_dir(self, trial: None) -> str:
        return self.args.output_dir

    def _save_checkpoint(self, _model: object, trial: None) -> None:
        run = Path(self._get_output_dir(trial))
        checkpoint_path = run / f"checkpoint-{self.state.global_step}"
        write_checkpoint(checkpoint_path, self.state.global_step)
        if self.best and (run / f"checkpoint-{self.best}").exists():
            self.state.best_model_checkpoint = str(run / f"checkpoint-{self.best}")
        self.state.save_to_json(str(checkpoint_path / "trainer_state.json"))


def write_checkpoint(folder: Path, step: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> type[Trainer]:
    trainer_class = type("Attached", (Trainer,), {"train": Trainer.train})
    utils = ModuleType("transformers.trainer_utils")
    vars(utils)["get_last_checkpoint"] = last_in
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    monkeypatch.setitem(sys.modules, "transformers.trainer_utils", utils)
    huggingface.attach_search(utils)
    huggingface.attach(SimpleNamespace(Trainer=trainer_class))  # type: ignore[arg-type]
    return trainer_class


def last_in(folder: str) -> str | None:
    steps = [int(path.name.split("-")[1]) for path in Path(folder).glob("checkpoint-*")]
    return f"{folder}/checkpoint-{max(steps)}" if steps else None


def train_until_exit(instance: Trainer) -> Trainer:
    with pytest.raises(SystemExit) as end:
        instance.train()
    assert end.value.code == 85
    return instance


def test_a_checkpoint_of_another_job_is_never_used(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_until_exit(trainer(tmp_path, 2))
    write_checkpoint(tmp_path / "_hops-18" / "checkpoint-340", 340)
    write_checkpoint(tmp_path / "checkpoint-340", 340)
    restart(monkeypatch)
    second_run = trainer(tmp_path)
    second_run.train()
    assert second_run.resume_path == str(tmp_path / "_hops-17" / "checkpoint-2")
    assert (tmp_path / "_hops-18" / "checkpoint-340").exists()


def test_a_later_training_in_a_folder_saves_nothing(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the next run it may be the first, and another training the second."""
    trainer(tmp_path).train()
    second = trainer(tmp_path)
    handlers = []
    second._maybe_log_save_evaluate = lambda _: handlers.append(signal.getsignal(signal.SIGUSR1))  # type: ignore[method-assign]
    second.train()
    assert set(handlers) == {signal.SIG_DFL}


def test_finished_folds_that_a_later_run_skips_do_not_matter(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_until_exit(trainer(tmp_path, 2))
    restart(monkeypatch)
    first = trainer(tmp_path)
    first.train()
    assert first.resume_path == str(tmp_path / "_hops-17" / "checkpoint-2")
    assert not (tmp_path / "_hops-17").exists()
    restart(monkeypatch)  # skips the first fold, which has ended
    second = train_until_exit(trainer(tmp_path, 4))
    assert second.resume_path is None
    restart(monkeypatch)
    second, third = trainer(tmp_path), trainer(tmp_path)
    second.train()
    third.train()
    assert second.resume_path == str(tmp_path / "_hops-17" / "checkpoint-4")
    assert third.resume_path is None


def test_two_simultaneous_trainings_in_a_folder_save_nothing(
    trainer: type[Trainer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outer = trainer(tmp_path, 4)
    do = outer._maybe_log_save_evaluate

    def train_beside(event: str) -> None:
        if outer.state.global_step == 1:
            request.Turn(tmp_path).take()  # as in another process
        do(event)

    outer._maybe_log_save_evaluate = train_beside  # type: ignore[method-assign]
    train_until_exit(outer)
    assert vars(outer)["_maybe_log_save_evaluate"] is train_beside
    assert "another training" in capsys.readouterr().err
    assert not list(tmp_path.glob("_hops-17/checkpoint-*"))


@pytest.mark.parametrize("best", [2, 4])
def test_the_best_checkpoint_keeps_its_path(
    trainer: type[Trainer], tmp_path: Path, best: int
) -> None:
    """Trainer assumes that the best checkpoint is in the folder in which it saves."""
    best_trainer = trainer(tmp_path, 4)
    best_trainer.best, best_trainer.interval = best, 2
    train_until_exit(best_trainer)
    written_state = json.loads((tmp_path / "_hops-17/checkpoint-4/trainer_state.json").read_text())
    expected_path = str(tmp_path / f"checkpoint-{best}")
    assert [written_state["best_model_checkpoint"], best_trainer.state.best_model_checkpoint] == [
        expected_path
    ] * 2


def test_a_later_scheduled_save_counts(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends without a request, as after a node failure, leaves it to the next run."""
    train_until_exit(trainer(tmp_path, 2))
    write_checkpoint(tmp_path / "checkpoint-9", 9)  # another training's
    restart(monkeypatch)
    second_run = trainer(tmp_path)
    second_run.interval = 3

    def fails() -> None:
        raise RuntimeError("the node fails")

    do = second_run._maybe_log_save_evaluate
    second_run._maybe_log_save_evaluate = lambda event: (
        fails() if second_run.state.global_step > 4 else do(event)
    )  # type: ignore[func-returns-value, method-assign]
    with pytest.raises(RuntimeError):
        second_run.train()
    restart(monkeypatch)
    last = trainer(tmp_path)
    last.train()
    assert last.resume_path == str(tmp_path / "checkpoint-3")


def test_a_checkpoint_that_cannot_be_loaded_is_not_tried_again(
    trainer: type[Trainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job then starts from scratch, as without hops."""
    train_until_exit(trainer(tmp_path, 2))
    restart(monkeypatch)
    second_run = trainer(tmp_path)
    second_run.fails = ValueError
    train_until_exit(second_run)
    assert "cannot be loaded" in capsys.readouterr().err
    restart(monkeypatch)
    last = trainer(tmp_path)
    last.fails = ValueError
    last.request_step = 2  # its saves could not be loaded, either
    signal_steps = []
    signal.signal(signal.SIGUSR1, lambda *_: signal_steps.append(last.state.global_step))
    last.train()
    assert (last.resume_path, signal_steps) == (None, [2])
    assert (tmp_path / "_hops-17.failed" / "checkpoint-2").exists()
    assert not (tmp_path / "_hops-17").exists()


@pytest.mark.parametrize("transient", [OSError, MemoryError, torch.cuda.OutOfMemoryError])
def test_a_checkpoint_that_the_next_run_may_load_is_kept(
    trainer: type[Trainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transient: type[Exception],
) -> None:
    train_until_exit(trainer(tmp_path, 2))
    restart(monkeypatch)
    second_run = trainer(tmp_path)
    second_run.fails = transient
    with pytest.raises(transient):
        second_run.train()
    restart(monkeypatch)
    last = trainer(tmp_path)
    last.train()
    assert last.resume_path == str(tmp_path / "_hops-17" / "checkpoint-2")


@pytest.mark.parametrize(
    ("steps", "expected_checkpoint"), [(1, "_hops-17/checkpoint-4"), (5, None)]
)
def test_a_checkpoint_named_by_the_script_counts_if_it_has_more_steps(
    trainer: type[Trainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    expected_checkpoint: str | None,
) -> None:
    train_until_exit(trainer(tmp_path, 4))
    restart(monkeypatch)
    write_checkpoint(tmp_path / f"checkpoint-{steps}", steps)
    second_run = trainer(tmp_path)
    second_run.train(True)
    assert second_run.resume_path == (
        str(tmp_path / expected_checkpoint) if expected_checkpoint else True
    )


@pytest.mark.slow
def test_a_script_that_searches_for_a_checkpoint_finds_the_one_of_its_job(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run_clm.py fails if a folder has files but no checkpoint."""
    train_until_exit(trainer(tmp_path, 2))
    look = sys.modules["transformers.trainer_utils"].get_last_checkpoint
    assert look(str(tmp_path)) is None
    restart(monkeypatch)
    assert look(str(tmp_path)) == str(tmp_path / "_hops-17" / "checkpoint-2")


def test_an_incomplete_checkpoint_is_not_found(trainer: type[Trainer], tmp_path: Path) -> None:
    look = sys.modules["transformers.trainer_utils"].get_last_checkpoint
    (tmp_path / "checkpoint-14").mkdir()
    assert look(str(tmp_path)) is None
    write_checkpoint(tmp_path / "checkpoint-7", 7)
    assert look(str(tmp_path)) == str(tmp_path / "checkpoint-7")


def test_the_batch_of_the_first_run_is_kept_if_nothing_was_saved(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = trainer(tmp_path / "out")
    monkeypatch.setattr(first, "_maybe_log_save_evaluate", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        first.train()
    assert not (tmp_path / "out").exists()
    restart(monkeypatch)
    second = trainer(tmp_path / "out")
    second._train_batch_size = second.args.per_device_train_batch_size = 32  # for half the ranks
    second.train()
    assert second.args.per_device_train_batch_size == 16
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("request_step", "last"), [(2, "step 2"), (3, "epoch 3"), (4, "step 4")])
def test_due_actions_are_completed_before_the_exit(
    trainer: type[Trainer], tmp_path: Path, request_step: int, last: str
) -> None:
    assert train_until_exit(trainer(tmp_path, request_step)).log[-1] == last


def test_a_training_asked_at_its_last_step_finishes(trainer: type[Trainer], tmp_path: Path) -> None:
    trainer(tmp_path, request_step=6).train()
    assert not list(tmp_path.iterdir())


def test_one_failed_save_does_not_fail_the_job(
    trainer: type[Trainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """hops may be moving it. After a second failure in a row, the signal ends it, as without hops:
    if the signal announces a time limit, the job would otherwise restart for ever.
    """
    works = huggingface.save
    fails = Mock(side_effect=OSError("the disk is full"))
    for step, save in ((2, fails), (3, works), (4, fails)):
        monkeypatch.setattr(huggingface, "save", save)
        train_until_exit(trainer(tmp_path, step))
        restart(monkeypatch)
    assert "checkpoint-2: not saved" in capsys.readouterr().err
    with pytest.raises(EndedBySignal):
        trainer(tmp_path, 5).train()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_a_second_training_does_not_resume_from_the_checkpoint_of_the_first(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first resumes and fails; the batch script continues with the next fold."""
    train_until_exit(trainer(tmp_path, 2))
    restart(monkeypatch)
    first = trainer(tmp_path)
    first.fails = MemoryError
    with pytest.raises(MemoryError):
        first.train()
    monkeypatch.setattr(huggingface, "_begun_folders", set())  # another process
    assert sys.modules["transformers.trainer_utils"].get_last_checkpoint(str(tmp_path)) is None
    second = trainer(tmp_path)
    second.train()
    assert second.resume_path is None
    assert (tmp_path / "_hops-17" / "checkpoint-2").exists()


def test_a_checkpoint_found_by_one_training_is_not_given_to_another(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_until_exit(trainer(tmp_path, 2))
    restart(monkeypatch)
    look = sys.modules["transformers.trainer_utils"].get_last_checkpoint
    first = trainer(tmp_path)
    first.args.push_to_hub = True  # not asked to leave
    first.train(look(str(tmp_path)))
    assert first.resume_path == str(tmp_path / "_hops-17" / "checkpoint-2")
    monkeypatch.setattr(huggingface, "_begun_folders", set())  # another process
    assert look(str(tmp_path)) is None


def test_a_job_whose_checkpoint_could_not_be_used_saves_no_more(
    trainer: type[Trainer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Otherwise, each move of the job would lose its progress."""
    monkeypatch.setattr("sys.argv", ["train.py", "--seed", "4711"])
    train_until_exit(trainer(tmp_path, 2))
    handlers = []
    for seed in ("4712", "4713"):
        restart(monkeypatch)
        monkeypatch.setattr("sys.argv", ["train.py", "--seed", seed])
        second_run = trainer(tmp_path)
        second_run._maybe_log_save_evaluate = lambda _: handlers.append(
            signal.getsignal(signal.SIGUSR1)
        )  # type: ignore[method-assign]
        second_run.train()
        assert second_run.resume_path is None
    assert set(handlers) == {signal.SIG_DFL}
    error_output = capsys.readouterr().err
    assert error_output.count("--seed differs") == 1
    assert "4712" not in error_output
    assert (tmp_path / "_hops-17" / "checkpoint-2").exists()


@pytest.mark.parametrize("option", ["push_to_hub", "save_only_model", "save_on_each_node"])
def test_trainer_does_not_handle_the_signal_with_unsupported_options(
    trainer: type[Trainer], tmp_path: Path, option: str
) -> None:
    excluded_trainer = trainer(tmp_path)
    setattr(excluded_trainer.args, option, True)
    handlers = []
    excluded_trainer._maybe_log_save_evaluate = lambda _: handlers.append(
        signal.getsignal(signal.SIGUSR1)
    )  # type: ignore[method-assign]
    excluded_trainer.train()
    assert set(handlers) == {signal.SIG_DFL}


class Fit:
    """Stands for Lightning's Trainer, with one step."""

    def __init__(
        self, folder: Path, launcher: str = "_Launcher", *, has_request: bool = True
    ) -> None:
        self.request_step, self.resume_path, self.peers_agree = has_request, None, True
        base = type(launcher, (), {})
        self.log = list[str]()
        self.state = SimpleNamespace(finished=True)
        self.strategy = SimpleNamespace(
            broadcast=lambda word: word,
            reduce_boolean_decision=lambda wish: wish and self.peers_agree,
            launcher=type("Ours", (base,), {})(),
            checkpoint_io=SimpleNamespace(teardown=self._touch_pending),
        )
        self.lightning_module, self.optimizers = torch.nn.Linear(2, 2), list[Any]()
        self.default_root_dir, self.callbacks = str(folder), list[Any]()
        self.num_nodes = self.world_size = 1
        self.is_last_batch = False
        self.is_global_zero, self.global_step = True, 0
        self.pending: Path | None = None

    def fit(self, ckpt_path: Any = None) -> None:
        self.resume_path = ckpt_path
        for callback in self.callbacks:
            callback.on_fit_start(self)
            callback.on_train_start(self)
            self.global_step += 1
            if self.request_step:
                signal.raise_signal(signal.SIGUSR1)
            callback.on_train_batch_end(self)

    def save_checkpoint(self, path: Path) -> None:
        self.pending = path  # by a thread

    def _touch_pending(self) -> None:
        assert self.pending is not None
        self.pending.parent.mkdir()
        self.pending.touch()


@pytest.fixture
def fit() -> type[Fit]:
    trainer_class = type("Attached", (Fit,), {"fit": Fit.fit})
    module = SimpleNamespace(Trainer=trainer_class, Callback=object)
    lightning.attach(module)  # type: ignore[arg-type]
    return trainer_class


def test_an_asynchronous_save_is_waited_for(fit: type[Fit], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        fit(tmp_path).fit()
    assert (tmp_path / "_hops-17" / "checkpoint-1" / "lightning.ckpt").exists()


def train_lightning_until_exit(instance: Fit) -> Fit:
    with pytest.raises(SystemExit):
        instance.fit()
    return instance


def test_lightning_resumes_only_in_its_first_training(
    fit: type[Fit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_lightning_until_exit(fit(tmp_path))
    restart(monkeypatch)
    first, second = fit(tmp_path, has_request=False), fit(tmp_path)
    first.fit()
    second.fit()
    assert first.resume_path == str(tmp_path / "_hops-17" / "checkpoint-1" / "lightning.ckpt")
    assert (second.resume_path, second.callbacks) == (None, [])
    assert not list(tmp_path.iterdir())


def test_a_learning_rate_search_is_not_the_training(
    fit: type[Fit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_lightning_until_exit(fit(tmp_path))
    restart(monkeypatch)
    search, training = fit(tmp_path, has_request=False), fit(tmp_path, has_request=False)
    search.callbacks = [Mock(_early_exit=True)]
    search.fit()
    training.fit()
    assert search.resume_path is None
    assert training.resume_path is not None


def test_a_later_checkpoint_named_by_the_script_counts(
    fit: type[Fit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_lightning_until_exit(fit(tmp_path))
    ours = tmp_path / "_hops-17" / "checkpoint-1" / "lightning.ckpt"
    theirs = tmp_path / "last.ckpt"
    theirs.touch()
    for seconds, expected_checkpoint in ((-9, ours), (9, theirs)):
        restart(monkeypatch)
        modified_at = ours.stat().st_mtime + seconds
        os.utime(theirs, (modified_at, modified_at))
        instance = fit(tmp_path)
        instance.state.finished = False
        with pytest.raises(SystemExit):
            instance.fit(ckpt_path=str(theirs))
        assert str(instance.resume_path) == str(expected_checkpoint)


def test_no_rank_leaves_if_another_rank_handles_the_signal(fit: type[Fit], tmp_path: Path) -> None:
    """A script that saves on its first rank may do so."""
    instance = fit(tmp_path, has_request=False)
    instance.peers_agree = False
    handlers = []
    instance.strategy.checkpoint_io = None
    callback = Mock(on_train_batch_end=lambda _: handlers.append(signal.getsignal(signal.SIGUSR1)))
    callback._early_exit = False
    instance.callbacks = [callback]
    instance.fit()
    assert handlers  # our rank has declined by the end of the step
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert not list(tmp_path.iterdir())


def test_trainer_leaves_only_if_all_ranks_agree(
    trainer: type[Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "several", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)

    def gather(answers: list[bool], mine: bool) -> None:
        answers[:] = [mine, False]

    monkeypatch.setattr(dist, "all_gather_object", gather)
    first_rank = trainer(tmp_path, 0)
    handlers = []
    first_rank._maybe_log_save_evaluate = lambda _: handlers.append(
        signal.getsignal(signal.SIGUSR1)
    )  # type: ignore[method-assign]
    first_rank.train()  # without a broadcast, which the other rank would not join
    assert set(handlers) == {signal.SIG_DFL}


def test_accelerate_leaves_after_the_script_has_recorded_its_save(tmp_path: Path) -> None:
    def save_state(_: object) -> None:
        (tmp_path / "state").touch()

    def backward(_: object) -> None:
        (tmp_path / "backward").touch()

    module = SimpleNamespace()
    module.Accelerator = type(
        "Accelerator", (), {"save_state": save_state, "backward": backward, "num_processes": 1}
    )
    accelerate.attach(module)
    accelerator = module.Accelerator()
    accelerator.save_state()
    signal.raise_signal(signal.SIGUSR1)
    accelerator.backward()
    (tmp_path / "backward").unlink()
    accelerator.save_state()
    (tmp_path / "noted").touch()
    with pytest.raises(SystemExit) as end:
        accelerator.backward()
    assert end.value.code == 85
    assert not (tmp_path / "backward").exists()


def test_a_script_that_does_not_accumulate_sees_gradients_only_of_whole_steps() -> None:
    """It may clip them through PyTorch, or clear those of the model, after each micro-batch."""
    model = torch.nn.Linear(1, 1, bias=False)
    accelerator = SimpleNamespace(_models=[model], sync_gradients=False)
    training = Mock(_accelerator=accelerator, _parts=[], _script_accumulates=False)
    for accelerator.sync_gradients in (False, False, True):
        with accelerate_order.Training.adding_up(training):
            model(torch.ones(1)).sum().backward()
        if not accelerator.sync_gradients:
            assert torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5) == 0.0
            model.zero_grad()
    assert model.weight.grad is not None
    assert float(model.weight.grad) == 3.0


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_schedule_is_detected_before_the_first_step(*, is_prepared: bool) -> None:
    """It may be attached to the optimizer that `prepare` has returned."""
    inner = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    outer = torch.optim.SGD(inner.param_groups, lr=0.1)
    vars(outer)["optimizer"] = inner
    assert not accelerate_order._is_scheduled(outer)
    torch.optim.lr_scheduler.StepLR(outer if is_prepared else inner, 1)
    assert accelerate_order._is_scheduled(outer)


def test_gradients_are_not_clipped_within_a_step() -> None:
    """Clipping by norm would also divide them by float16's loss scale, once for each part."""
    clip_calls = list[str]()

    def method(name: str) -> Any:
        return lambda *_args, **_options: clip_calls.append(name)

    kinds = {"Accelerator": ("save_state", *accelerate._PRIVATE_NAMES["Accelerator"])}
    module = ModuleType("accelerate.accelerator")
    for kind, names in {**accelerate._PRIVATE_NAMES, **kinds}.items():
        vars(module)[kind] = type(kind, (), {name: method(name) for name in names})
    accelerate.attach(module)
    accelerator = vars(module)["Accelerator"]()
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.full((1,), 3.0)
    for training, is_whole in ((None, False), (object(), True), (object(), False)):
        accelerator._hops_training, accelerator.sync_gradients = training, is_whole
        accelerator.clip_grad_norm_([parameter], 0.5)
        accelerator.clip_grad_value_([parameter], 0.5)
    assert clip_calls == ["clip_grad_norm_", "clip_grad_value_"] * 2
    assert float(parameter.grad) == 3.0


def test_lightning_leaves_in_the_next_epoch_if_asked_at_the_last_batch(
    fit: type[Fit], tmp_path: Path
) -> None:
    """Otherwise, the next run would repeat the epoch."""
    instance = fit(tmp_path)
    instance.is_last_batch = True
    instance.fit()
    assert not list(tmp_path.rglob("checkpoint-*"))


def test_lightning_never_leaves_if_fit_spawns_the_ranks(fit: type[Fit], tmp_path: Path) -> None:
    fit(tmp_path, "_MultiProcessingLauncher").fit()
    assert not list(tmp_path.iterdir())


def test_lightning_never_leaves_with_hydra(
    fit: type[Fit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of its ranks differ, so only the first rank would accept the checkpoint."""
    monkeypatch.setitem(sys.modules, "hydra", ModuleType("hydra"))
    instance = fit(tmp_path)
    instance.world_size = 2
    instance.fit()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("backend", "free"), [("nccl", True), ("gloo", True), ("hccl", False)])
def test_ranks_agree_only_over_a_tested_backend(
    monkeypatch: pytest.MonkeyPatch, backend: str, free: bool
) -> None:
    monkeypatch.setattr(request, "several", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: backend)
    assert request.can_agree() is free


def test_lightning_never_leaves_on_several_nodes(fit: type[Fit], tmp_path: Path) -> None:
    instance = fit(tmp_path)
    instance.num_nodes = 2
    instance.fit()
    assert not list(tmp_path.iterdir())


def test_ranks_that_save_at_different_times_agree_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has given up when the second arrives, which alone would not requeue the job."""
    store = dist.HashStore()
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(accelerate, "several", lambda: True)
    monkeypatch.setattr(accelerate, "_PATIENCE", timedelta(seconds=0.1))
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    assert not accelerate._all_have(1)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    assert not accelerate._all_have(1)
    other_rank = Thread(target=lambda: store.set("hops/2/0", "saved"))
    other_rank.start()
    assert accelerate._all_have(2)
    other_rank.join()


@pytest.mark.long
@pytest.mark.slow
def test_a_signal_during_the_exit_does_not_restart_a_finished_job() -> None:
    code = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGUSR1)  # after what is registered later
from hops_profiler.frameworks import request
with request.listen_for_signal():
    pass
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
