"""A training that times itself with its own events, and prints the mean milliseconds of forward
passes, backward passes, updates and iterations as JSON. Any call that waits for the GPU raises.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

ITERATIONS, WARM_UP, WIDTH = 90, 10, 4096


def now() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def waits(*_: object, **__: object) -> None:
    raise AssertionError("somebody waits for the GPU")


model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(torch.randn(8 * ITERATIONS, WIDTH), batch_size=8)  # type: ignore[arg-type]
synchronize = torch.cuda.synchronize
torch.cuda.synchronize = torch.cuda.Event.synchronize = waits  # type: ignore[assignment,method-assign]
torch.cuda.set_sync_debug_mode("error")
marks = []
for features in loader:
    batch = features.pin_memory().cuda(non_blocking=True).repeat(256, 1)
    optimizer.zero_grad()
    began = now()
    loss = model(batch).square().mean()
    forward = now()
    loss.backward()
    backward = now()
    optimizer.step()
    marks.append((began, forward, backward, now()))
torch.cuda.set_sync_debug_mode("default")
synchronize()
time.sleep(0.2)
timed_marks = marks[WARM_UP:]
phases = [fmean(m[i].elapsed_time(m[i + 1]) for m in timed_marks) for i in range(3)]
whole = fmean(a[0].elapsed_time(b[0]) for a, b in pairwise(timed_marks))
print(json.dumps([*phases, whole]))
