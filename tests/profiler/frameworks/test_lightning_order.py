"""Real Lightning on one rank with another micro-batch. Several ranks: `tests/bench`."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_spec("lightning") is None, reason="no Lightning"),
]

SAMPLES, STEPS = 31, 3
"""12 samples a step: an epoch's last step has 7."""


def train_module(folder: Path, batch: int, **options: Any) -> Any:
    """Train for two epochs, after a first run with micro-batches of 3 on 4 ranks."""
    import lightning  # noqa: PLC0415 - it may be missing
    from hops_profiler.frameworks.lightning_order import KeptOrder  # noqa: PLC0415
    from torch.utils.data import DataLoader  # noqa: PLC0415

    class Module(lightning.LightningModule):  # type: ignore[misc]
        """Records its samples, and the steps and learning rates of its validations."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.body = torch.nn.Linear(1, 1)
            self.sample_ids, self.checks, self.planned_steps = (
                list[int](),
                list[tuple[int, float]](),
                0,
            )

        def training_step(self, batch: Any) -> Any:
            batch = batch["one"] if isinstance(batch, dict) else batch
            self.sample_ids += batch[:, 0].int().tolist()
            return self.body(torch.sin(batch)).square().mean()

        def validation_step(self, _batch: Any) -> None:
            rate = self.optimizers().param_groups[0]["lr"]
            self.checks.append((self.global_step, round(rate, 6)))

        def configure_optimizers(self) -> Any:
            self.planned_steps = self.trainer.estimated_stepping_batches
            optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
            schedule_options = {"scheduler": schedule, "interval": "step", "frequency": 3}
            return {"optimizer": optimizer, "lr_scheduler": schedule_options}

    rows = torch.arange(SAMPLES).float()[:, None]
    stream = options.pop("stream", None)
    data = stream(rows) if stream else rows
    module, loader = Module(), DataLoader(data, batch_size=batch, shuffle=not stream)
    several = options.pop("several", False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        num_sanity_val_steps=0, **options,
    )  # fmt: skip
    note = {"global_batch": 12, "learning_rate": None, "accumulation": 1, "ranks": 4}
    checkpoint_folder: Any = SimpleNamespace(first_note=lambda _now: note)
    loaders: Any = {"one": loader, "two": DataLoader(rows, batch_size=2)} if several else loader
    with KeptOrder(trainer, checkpoint_folder) as order:
        trainer.fit(module, loaders, DataLoader(rows[:1], batch_size=1))
    module.is_kept = order.note is not None
    module.steps = trainer.global_step
    return module


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about workers and small data
@pytest.mark.parametrize("interval", [2, 0.7])
def test_steps_do_not_depend_on_the_micro_batch(tmp_path: Path, interval: float) -> None:
    """Neither do the times of validations and changes of the learning rate, even if the script
    requests the number of steps before Lightning has set up its data.
    """
    whole = train_module(tmp_path, 12, val_check_interval=interval)
    assert whole.is_kept
    assert whole.planned_steps == whole.steps == 2 * STEPS
    assert [step for step, _ in whole.checks] == [2, 5]
    for batch in (3, 5):
        parts = train_module(tmp_path, batch, val_check_interval=interval)
        assert parts.is_kept
        assert (parts.planned_steps, parts.checks) == (whole.planned_steps, whole.checks)
        assert parts.sample_ids == whole.sample_ids
        assert torch.allclose(parts.body.weight, whole.body.weight, atol=1e-6)


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


class SizedStream(Stream):
    def __len__(self) -> int:
        return len(self.rows)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("stream", "options", "checks"),
    [
        (SizedStream, {"val_check_interval": 2}, [2, 5]),
        (SizedStream, {"val_check_interval": 0.7}, [2, 5]),
        (Stream, {"val_check_interval": 2, "max_steps": 6}, [2, 5]),
        (Stream, {"max_steps": 6}, [3, 6]),
    ],
)
def test_steps_of_iterable_data_do_not_depend_on_the_micro_batch(
    tmp_path: Path, stream: Any, options: dict[str, Any], checks: list[int]
) -> None:
    whole = train_module(tmp_path, 12, stream=stream, **options)
    assert whole.is_kept
    assert whole.sample_ids == [*range(SAMPLES)] * 2
    assert [step for step, _ in whole.checks] == checks
    for batch in (3, 5):
        parts = train_module(tmp_path, batch, stream=stream, **options)
        assert (parts.planned_steps, parts.checks) == (whole.planned_steps, whole.checks)
        assert parts.sample_ids == whole.sample_ids
        assert torch.allclose(parts.body.weight, whole.body.weight, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_data_that_shards_itself_is_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class ShardedStream(Stream):
        def __iter__(self) -> Any:
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            return iter(self.rows[rank:])

    assert not train_module(tmp_path, 12, stream=ShardedStream).is_kept
    assert capsys.readouterr().err.count("in the script's order") == 1


@pytest.mark.filterwarnings("ignore")
def test_several_loaders_are_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each would change the other's accumulation and weights."""
    order = train_module(tmp_path, 12, several=True)
    assert (order.is_kept, order.steps) == (False, 2 * 16)
    assert capsys.readouterr().err.count("in the script's order") == 1
