"""Accelerate, without a line of code for hops."""

from __future__ import annotations

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader

from bench.elastic.ways.common import EPOCHS, NumberedSamples, Run, network, optimizer

MODULES = ("torch._dynamo", "accelerate.accelerator")


def train(run: Run) -> None:
    accelerator = Accelerator(cpu=True, project_dir=str(run.folder))
    set_seed(1)
    data = DataLoader(NumberedSamples(), batch_size=run.batch, shuffle=True)
    model = network()
    steps = optimizer(model)
    schedule = LinearLR(steps, 1.0, 0.1, total_iters=EPOCHS * len(data))
    loader, model, steps, schedule = accelerator.prepare(data, model, steps, schedule)
    for epoch in range(EPOCHS):
        for ids, inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(run.loss(model(inputs), targets, ids))
                if accelerator.sync_gradients:
                    run.note(epoch, schedule.scheduler.last_epoch // run.first_ranks)
                steps.step()
                schedule.step()
                steps.zero_grad()
    run.keep_to_the_end(accelerator, model)
    run.save_weights(accelerator.unwrap_model(model))
    accelerator.end_training()
