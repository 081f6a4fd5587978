"""Cost of the gate in an iteration in which no turn ends."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

CODE = """
import gc, json, time, torch
from hops_profiler.lane.link import WHOLE_TRIAL, pair
from hops_profiler.lane.state import State
from hops_profiler.lane.worker import Gate
from hops_profiler.timing import session

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.ones(1, 4)

def iterate(count):
    began = time.process_time()
    for _ in range(count):
        model(data).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.process_time() - began) / count

iterate(500)
session.stop_at(Gate(pair()[0], State(torch.device("cpu")), WHOLE_TRIAL))
step_gate = session._session._hooks._gate
gate = step_gate.gate
iterate(500)
found = []
for number in range(300):
    seconds = {}
    for which in (True, False) if number % 2 else (False, True):
        step_gate.gate = gate if which else None
        seconds[which] = iterate(50)
    found.append(seconds[True] - seconds[False])
print(json.dumps(found))
"""


def measure() -> float:
    """Extra microseconds of CPU time per iteration; runs with and without the gate alternate."""
    process = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True
    )
    return 1e6 * statistics.median(json.loads(process.stdout))
