import sys

import torch
from common import BATCH, dataset, network, show
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


def main() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loader = DataLoader(
        dataset(), batch_size=BATCH, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    for features, labels in loader:
        loss = cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        show(loss)


if __name__ == "__main__":
    main()
