"""PyTorch Geometric: graphs of several sizes in batches."""

import hand_clock
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

torch.manual_seed(0)


def graph(nodes):
    return Data(
        x=torch.randn(nodes, 16),
        edge_index=torch.randint(nodes, (2, 4 * nodes)),
        y=torch.randint(4, (1,)),
    )


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(16, 64), GCNConv(64, 4)

    def forward(self, data):
        features = self.first(data.x, data.edge_index).relu()
        return global_mean_pool(self.second(features, data.edge_index), data.batch)


model = Network()
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader([graph(10 + n % 20) for n in range(1000)], batch_size=16, shuffle=True)
for batch in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch), batch.y).backward()
    optimizer.step()
    hand_clock.step(batch.num_graphs)
