"""Train with steps of a tenth of a second, mostly asleep: `steady.py FOLDER`.

The program writes its process id, and the time at which each step ended, from which a test reads
its speed.
"""

import os
import sys
import time
from pathlib import Path

import torch

folder, job = Path(sys.argv[1]), os.environ.get("SLURM_JOB_ID", "0")
torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = torch.utils.data.DataLoader(torch.randn(1_000_000, 256), batch_size=64)
(folder / f"{job}.pid").write_text(str(os.getpid()))
with (folder / f"{job}.steps").open("a", buffering=1) as steps:
    for batch in data:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(0.08)
        steps.write(f"{time.time():.4f}\n")
