import torch
from common import BATCH, dataset, network, show
from torch.utils.data import DataLoader

model = network().eval()
with torch.no_grad():
    for features, _ in DataLoader(dataset(), batch_size=BATCH):
        show(model(features).sum())
