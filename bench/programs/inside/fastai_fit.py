"""fastai's Learner, which has its own optimizers."""

import hand_clock
import tiny
import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner


class Clocks(Callback):
    def after_batch(self):
        if self.training:
            hand_clock.step(len(self.xb[0]))

    def before_validate(self):
        hand_clock.pause()


data = DataLoaders(
    DataLoader(tiny.rows(4000), bs=32, shuffle=True), DataLoader(tiny.rows(200), bs=64)
)
learner = Learner(data, tiny.network(), loss_func=torch.nn.CrossEntropyLoss(), cbs=[Clocks()])
with learner.no_bar(), learner.no_logging():
    learner.fit(3, 1e-3)
