import torch
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

model = network()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for features, labels in DataLoader(dataset(), batch_size=BATCH, shuffle=True):
    optimizer.zero_grad()
    loss = cross_entropy(model(features), labels)
    loss.backward()
    optimizer.step()
    show(loss)
