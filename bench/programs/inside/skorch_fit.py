"""skorch, which uses closures for its steps and validates after each epoch."""

import hand_clock
import numpy
import tiny
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback


class Clocks(Callback):
    def on_batch_end(self, net, batch=None, training=None, **_):
        if training:
            hand_clock.step(len(batch[0]))
        else:
            hand_clock.pause()


features, labels = tiny.rows(4000).tensors
NeuralNetClassifier(
    tiny.network,
    criterion=torch.nn.CrossEntropyLoss,
    max_epochs=5,
    batch_size=128,
    callbacks=[Clocks()],
    verbose=0,
).fit(features.numpy(), labels.numpy().astype(numpy.int64))
