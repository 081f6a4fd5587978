"""A plain loop over a map-style dataset."""

from __future__ import annotations

from typing import Any

import hops_profiler
from torch import Tensor, nn

from bench.elastic.ways.common import (
    EPOCHS,
    GLOBAL_BATCH,
    NumberedSamples,
    Run,
    network,
    optimizer,
)

MODULES = (
    "torch._dynamo",
    "hops_profiler.data.elastic",
    "hops_profiler.data.gradients",
    "hops_profiler.checkpoint.single_file",
)


def train(run: Run) -> None:
    run.join()
    loop(run, NumberedSamples(), network())


def loop(run: Run, dataset: Any, model: nn.Module, **options: Any) -> None:
    """The plain loop with hops' three lines, over any dataset of numbered samples."""
    steps = optimizer(model)
    loader = hops_profiler.ElasticLoader(
        dataset, GLOBAL_BATCH, micro_batch=5, epochs=EPOCHS, seed=5, **options
    )

    def state() -> dict[str, Any]:
        states = {"model": model, "optimizer": steps, "data": loader}
        return {name: part.state_dict() for name, part in states.items()}

    checkpoint = hops_profiler.Checkpoint(run.folder / "run.pt", state, every=0.02)
    if checkpoint_state := checkpoint.load():
        model.load_state_dict(checkpoint_state["model"])
        steps.load_state_dict(checkpoint_state["optimizer"])
        loader.load_state_dict(checkpoint_state["data"])
    for step in loader.steps():
        for (ids, inputs, targets), weight in step:
            (run.loss(_flat(model(inputs)), targets.flatten(), ids) * weight).backward()
        run.note(step.epoch, step.number)
        hops_profiler.average_gradients(model)
        steps.step()
        steps.zero_grad()
        checkpoint.step()
    run.save_weights(model)


def _flat(scores: Tensor) -> Tensor:
    return scores.view(-1, scores.shape[-1])
