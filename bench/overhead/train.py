"""``train.py listened BLOCKS``, ``many ITERATIONS`` or ``paced BLOCKS``: measure, and print JSON.

``__main__.py`` runs this with and without the plugin.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader

FIRST, BLOCK, WIDTH, BATCH = 13, 8, 512, 400
PACE, WARM = 50, 500


def compare_blocks(blocks: int) -> dict[str, list[list[float]]]:
    """Mean CPU and wall seconds of an iteration by block: off, on, on, off, and so on.

    One process measures both, with the same memory, caches and neighbours. The plugin restarts with
    each block and examines the first ``FIRST`` iterations more closely, so these are timed apart
    (``first_off``, ``first_on``).
    """
    import hops_profiler  # noqa: PLC0415 - on the path only inside a job

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = torch.randn(2 * (blocks + 2) * (FIRST + BLOCK) * BATCH, 1).expand(-1, WIDTH)
    batches = iter(DataLoader(rows, batch_size=BATCH))  # type: ignore[arg-type]  # a tensor has rows

    def train(iterations: int) -> list[float]:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(iterations):
            model(next(batches)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        durations = [time.process_time() - cpu, time.perf_counter() - wall]
        return [seconds / iterations for seconds in durations]

    seconds_by_mode: dict[str, list[list[float]]] = defaultdict(list)
    with hops_profiler.profile() as session:
        for pair in range(-1, blocks):
            for name in ("off", "on") if pair % 2 else ("on", "off"):
                (session.resume if name == "on" else session.pause)()
                first, steady = train(FIRST), train(BLOCK)
                if pair >= 0:
                    seconds_by_mode[f"first_{name}"].append(first)
                    seconds_by_mode[name].append(steady)
        session.resume()
    return seconds_by_mode


def smallest(iterations: int) -> Iterator[int]:
    """Train the smallest model; yield after each iteration."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = torch.randn(iterations, 4)
    for number, row in enumerate(DataLoader(rows, batch_size=None)):  # type: ignore[arg-type]
        model(row).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield number


def measure_memory(iterations: int) -> dict[str, float]:
    """Peak memory (KiB), and by how much it grew over the last four fifths."""
    memory_before = 0
    for number in smallest(iterations):
        if number == iterations // 5:
            memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_kib": peak, "grown_kib": peak - memory_before}


def run_paced(blocks: int) -> None:
    """Print the CPU seconds per iteration of the smallest model for each block of ``PACE``.

    A block starts when a line arrives, so that two processes can alternate.
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
    run_paced(int(sys.argv[2]))
else:
    measurements = {"listened": compare_blocks, "many": measure_memory}[sys.argv[1]]
    print(json.dumps(measurements(int(sys.argv[2]))))
