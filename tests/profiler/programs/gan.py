"""Two networks, two optimizers: the critic steps twice for each step of the generator."""

import torch
from common import BATCH, FEATURES, dataset, show
from torch import nn
from torch.utils.data import DataLoader

generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, FEATURES))
critic = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
judge = nn.BCEWithLogitsLoss()
true_labels, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
for number, (real, _) in enumerate(DataLoader(dataset(), batch_size=BATCH)):
    fake = generator(torch.randn(BATCH, 8))
    of_critic.zero_grad()
    judge(critic(real), true_labels).backward()
    judge(critic(fake.detach()), zeros).backward()
    of_critic.step()
    if number % 2:
        of_generator.zero_grad()
        loss = judge(critic(fake), true_labels)
        loss.backward()
        of_generator.step()
        show(loss)
