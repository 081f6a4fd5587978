"""Time the phases in the script and print their means, which the profiler should match."""

import json
import time

import torch
from common import FEATURES
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, BATCH, ITERATIONS = 1024, 512, 30


class Slow(Dataset):
    def __len__(self) -> int:
        return BATCH * ITERATIONS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0:
            time.sleep(0.010)
        return torch.full((FEATURES,), float(index))


model = nn.Sequential(
    nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batches = iter(DataLoader(Slow(), batch_size=BATCH))
seconds_by_phase = {"t_d": 0.0, "t_f": 0.0, "t_b": 0.0, "t_u": 0.0, "t_iter": 0.0}
for number in range(ITERATIONS):
    if number == 3:  # excludes the warm-up, as the profiler does
        seconds_by_phase = dict.fromkeys(seconds_by_phase, 0.0)
    begin = time.perf_counter()
    batch = next(batches)
    fetch_time = time.perf_counter()
    loss = model(batch).square().mean()
    forward = time.perf_counter()
    loss.backward()
    backward = time.perf_counter()
    optimizer.step()
    end = time.perf_counter()
    optimizer.zero_grad()
    # Freeing takes up to 2 ms: in an assignment above, it would lengthen that phase.
    del batch, loss
    for name, seconds in (
        ("t_d", fetch_time - begin),
        ("t_f", forward - fetch_time),
        ("t_b", backward - forward),
        ("t_u", end - backward),
        ("t_iter", time.perf_counter() - begin),
    ):
        seconds_by_phase[name] += seconds / (ITERATIONS - 3)
print(json.dumps(seconds_by_phase))
