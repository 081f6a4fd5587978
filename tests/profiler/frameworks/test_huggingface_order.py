"""Real Trainer on one rank with another micro-batch. Several ranks: `tests/bench`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_spec("transformers") is None, reason="no Transformers"),
]

GLOBAL_BATCH, SAMPLES = 12, 31


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> Iterator[None]:
    """Trainer collects garbage at each end: 0.6 s for all objects that Transformers imports."""
    import transformers.trainer  # noqa: F401, PLC0415 - it may be missing

    gc.freeze()
    yield
    gc.unfreeze()


class Model(torch.nn.Module):  # type: ignore[misc]
    """Records its samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = torch.nn.Linear(3, 4)
        self.sample_ids: list[int] = []
        """Samples, in order."""

    def forward(self, input_ids: Any, labels: Any) -> dict[str, Any]:
        return self.score(input_ids, labels, "mean", 1)

    def score(self, rows: Any, labels: Any, reduction: str, parts: Any) -> dict[str, Any]:
        self.sample_ids += rows[:, 0].int().tolist()
        features = torch.stack([torch.sin(rows * number).sum(1) for number in (0.1, 0.2, 0.3)], 1)
        scores = self.body(features)
        loss = torch.nn.functional.cross_entropy(scores, labels, reduction=reduction)
        return {"loss": loss / parts, "logits": scores}


class CountModel(Model):
    """Like causal language models, divides a sum by Trainer's count."""

    def forward(self, input_ids: Any, labels: Any, **kwargs: Any) -> dict[str, Any]:
        return self.score(input_ids, labels, "sum", kwargs["num_items_in_batch"])


class Mean(Model):
    """Like regression models of Transformers, accepts Trainer's count but does not use it."""

    def forward(self, input_ids: Any, labels: Any, **_: Any) -> dict[str, Any]:
        return self.score(input_ids, labels, "mean", 1)


class WeightModel(Mean):
    """For a script that defines `compute_loss`."""


def own_loss(self: Any, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
    outputs = model(**inputs)
    return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A stream of rows; if ``sized``, it knows their number."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


class SizedStream(Stream):
    def __len__(self) -> int:
        return len(self.rows)


def train_model(folder: Path, kind: type[Model], micro_batch: int, **options: Any) -> Model:
    import transformers  # noqa: PLC0415 - it may be missing
    from hops_profiler.frameworks.batch import Note  # noqa: PLC0415
    from hops_profiler.frameworks.huggingface_order import KeptSteps  # noqa: PLC0415

    model = kind()
    methods = {"compute_loss": own_loss} if kind is WeightModel else {}
    methods |= options.pop("methods", {})
    data, position = options.pop("data", None), options.pop("position", None)
    options.setdefault("num_train_epochs", 2)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=micro_batch,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no",
        max_grad_norm=0.5, **options,
    )  # fmt: skip
    rows = [
        {"input_ids": [row] * (1 + row % 3), "labels": row % 4, "length": 1 + row % 3}
        for row in range(SAMPLES)
    ]
    trainer = type("Own", (transformers.Trainer,), methods)(
        model=model,
        args=arguments,
        train_dataset=data(rows) if data else rows,
        data_collator=collate,
        optimizers=(torch.optim.SGD(model.parameters(), lr=0.5), None),
    )
    with KeptSteps(trainer, Note(GLOBAL_BATCH, None), position).in_use():
        trainer.train()
    replaced_methods = {"training_step", "get_train_dataloader", "compute_loss"}
    assert vars(trainer).keys().isdisjoint(replaced_methods)
    assert trainer.state.global_step == 2 * (2 if options.get("dataloader_drop_last") else 3)
    return model


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ids = torch.zeros(len(rows), 3)
    for number, row in enumerate(rows):
        ids[number, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
    return {"input_ids": ids, "labels": torch.tensor([row["labels"] for row in rows])}


@pytest.mark.parametrize("kind", [Model, CountModel, Mean, WeightModel])
@pytest.mark.parametrize(
    "options",
    [{}, {"dataloader_drop_last": True}, {"train_sampling_strategy": "group_by_length"}],
    ids=str,
)
def test_steps_do_not_depend_on_the_micro_batch(
    tmp_path: Path, kind: type[Model], options: dict[str, Any]
) -> None:
    whole = train_model(tmp_path, kind, GLOBAL_BATCH, **options)
    for micro_batch in (5, 7):  # an epoch's last step has 7 samples
        parts = train_model(tmp_path, kind, micro_batch, **options)
        assert parts.sample_ids == whole.sample_ids
        for ours, theirs in zip(parts.parameters(), whole.parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)
    samples = whole.sample_ids[: len(whole.sample_ids) // 2]
    assert len(samples) == len(set(samples)) == (24 if "dataloader_drop_last" in options else 31)


@pytest.mark.long
@pytest.mark.parametrize("kind", [Model, CountModel, WeightModel])
@pytest.mark.parametrize(
    "options",
    [
        {"data": SizedStream},
        {"data": Stream, "num_train_epochs": 9, "max_steps": 6},
        {"data": Stream, "max_steps": 6, "accelerator_config": {"split_batches": True}},
    ],
    ids=str,
)
def test_steps_of_iterable_data_do_not_depend_on_the_micro_batch(
    tmp_path: Path, kind: type[Model], options: dict[str, Any]
) -> None:
    whole = train_model(tmp_path, kind, GLOBAL_BATCH, **options)
    for micro_batch in (5, 7):
        parts = train_model(tmp_path, kind, micro_batch, **options)
        assert parts.sample_ids == whole.sample_ids
        for ours, theirs in zip(parts.parameters(), whole.parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)
    assert whole.sample_ids == [*range(SAMPLES)] * 2


@pytest.mark.parametrize(("batch", "ranks"), [(12, 2), (12, 3), (2, 4)])
def test_a_split_batch_is_the_batch_of_all_ranks(batch: int, ranks: int) -> None:
    """Accelerate already keeps it if the number of ranks changes."""
    from hops_profiler.frameworks.huggingface_order import split  # noqa: PLC0415

    trainer = SimpleNamespace(
        args=SimpleNamespace(world_size=ranks, gradient_accumulation_steps=2),
        accelerator=SimpleNamespace(split_batches=True),
        _train_batch_size=batch,
    )
    assert split(trainer).global_batch == max(batch, ranks) * 2


def test_a_loader_made_by_the_script_is_not_replaced(tmp_path: Path) -> None:
    """It ignores the batch size of the arguments, and Accelerate has not prepared it."""

    def load(trainer: Any) -> Any:
        return torch.utils.data.DataLoader(trainer.train_dataset, batch_size=12, collate_fn=collate)

    model = train_model(tmp_path, Model, GLOBAL_BATCH, methods={"get_train_dataloader": load})
    assert model.sample_ids == [*range(SAMPLES)] * 2
