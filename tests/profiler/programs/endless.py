"""Trains until it is stopped; prints a line if its end runs any code."""

import sys

import torch
from common import BATCH, dataset, network
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
print("begins", flush=True)
try:
    while True:
        for features, labels in DataLoader(dataset(), batch_size=BATCH):
            optimizer.zero_grad()
            cross_entropy(model(features), labels).backward()
            optimizer.step()
finally:
    print("unwound")
    sys.stdout.flush()
