"""``train.py listened BLOCKS`` or ``train.py many ITERATIONS``: prints what it measured, as JSON.

Run by ``__main__.py`` with and without the plugin.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

BLOCK, WIDTH, BATCH = 4, 1024, 80


def listened(blocks: int) -> dict[str, list[list[float]]]:
    """Mean seconds of an iteration, processor and wall, by block: off, on, on, off, and so on.

    In one process, so that both see the same memory, caches and neighbours. The first iteration
    of a block is not timed: the plugin begins anew there.
    """
    import hops_profiler  # noqa: PLC0415 - the job's site folder makes it known

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = torch.randn(2 * (blocks + 2) * (BLOCK + 1) * BATCH, 1).expand(-1, WIDTH)
    batches = iter(DataLoader(rows, batch_size=BATCH))

    def train(iterations: int) -> None:
        for _ in range(iterations):
            model(next(batches)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    found: dict[str, list[list[float]]] = {"off": [], "on": []}
    with hops_profiler.profile() as session:
        for pair in range(-1, blocks):
            for name in ("off", "on") if pair % 2 else ("on", "off"):
                (session.resume if name == "on" else session.pause)()
                train(1)
                cpu, wall = time.process_time(), time.perf_counter()
                train(BLOCK)
                spent = [time.process_time() - cpu, time.perf_counter() - wall]
                if pair >= 0:
                    found[name].append([seconds / BLOCK for seconds in spent])
        session.resume()
    return found


def many(iterations: int) -> dict[str, float]:
    """Least processor time of an iteration of the smallest model, and peak memory (KiB)."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    times, early = [], 0
    since = time.process_time()
    for number, row in enumerate(DataLoader(torch.randn(iterations, 4), batch_size=None)):
        model(row).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 1000 == 999:
            times.append((time.process_time() - since) / 1000)
            since = time.process_time()
        if number == iterations // 5:
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": min(times), "peak_kib": peak, "grown_kib": peak - early}


torch.set_num_threads(1)
what = {"listened": listened, "many": many}[sys.argv[1]]
print(json.dumps(what(int(sys.argv[2]))))
