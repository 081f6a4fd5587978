"""Ignite's engine, with an evaluation after some iterations."""

import hand_clock
import tiny
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from torch.utils.data import DataLoader

model = tiny.network()
trainer = create_supervised_trainer(
    model, torch.optim.Adam(model.parameters()), torch.nn.CrossEntropyLoss()
)
evaluator = create_supervised_evaluator(model)


@trainer.on(Events.ITERATION_COMPLETED)
def _step(engine):
    hand_clock.step(len(engine.state.batch[0]))


@trainer.on(Events.ITERATION_COMPLETED(every=10))
def _evaluate(_):
    hand_clock.pause()
    evaluator.run(DataLoader(tiny.rows(64), batch_size=64))


trainer.run(DataLoader(tiny.rows(4000), batch_size=64), max_epochs=2)
