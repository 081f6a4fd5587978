"""Many short iterations: prints the cost of one, and the memory growth of the later ones.

Costs are CPU time, the best of many thousands, so that other load on the machine does not matter.
"""

import json
import resource
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

iterations = int(sys.argv[1])
torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = DataLoader(torch.randn(iterations, 4), batch_size=None)
times, peak = [], 0
since = time.process_time()
for number, row in enumerate(data):
    model(row).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if number % 1000 == 999:
        times.append((time.process_time() - since) / 1000)
        since = time.process_time()
    if number == iterations // 5:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
print(json.dumps({"seconds": min(times), "grown_kib": growth_kib}))
