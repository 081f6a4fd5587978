"""``train.py listened BLOCKS``, ``many ITERATIONS`` or ``paced BLOCKS``: prints what it measured.

As JSON. Run by ``__main__.py`` with and without the plugin.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader

BLOCK, WIDTH, BATCH = 4, 1024, 80
PACE, WARM = 50, 500


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


def smallest(iterations: int) -> Iterator[int]:
    """Train the smallest model; yields after each iteration."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number, row in enumerate(DataLoader(torch.randn(iterations, 4), batch_size=None)):
        model(row).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield number


def many(iterations: int) -> dict[str, float]:
    """Peak memory (KiB), and by how much it grew over the last four fifths."""
    early = 0
    for number in smallest(iterations):
        if number == iterations // 5:
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_kib": peak, "grown_kib": peak - early}


def paced(blocks: int) -> None:
    """Processor seconds of an iteration of the smallest model, for each block of ``PACE`` of them.

    A block begins when a line is read, so that another process can do one in turn.
    """
    loop = smallest(WARM + (blocks + 1) * PACE)
    for _ in range(WARM):
        next(loop)
    for _ in sys.stdin:
        since = time.process_time()
        for _ in range(PACE):
            next(loop)
        print((time.process_time() - since) / PACE, flush=True)


torch.set_num_threads(1)
if sys.argv[1] == "paced":
    paced(int(sys.argv[2]))
else:
    what = {"listened": listened, "many": many}[sys.argv[1]]
    print(json.dumps(what(int(sys.argv[2]))))
