"""Plot how planning time grows with the cluster and with the queue (the paper's figure 15).

Times are CPU seconds of all processes, including CBC: unlike wall time they hardly depend on what
else runs on the machine.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from bench.plan.instances import Case, Noise
from bench.plan.row import run_row

_GPUS = (128, 256, 512, 1000, 1504, 2048)
_QUEUES = (100, 250, 500, 1000, 1500, 2000)
_TIME_LIMIT = 60.0


def draw(path: Path, seed: int) -> None:
    """Draw two panels: by GPUs (queue of GPUs / 2 jobs), and by jobs in the queue of 512 GPUs."""
    figure, (gpus_panel, queue_panel) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for case, label in ((Case.IDLE, "idle"), (Case.FRAGMENTED, "fragmented")):
        rows = [run_row(g, case, Noise.SERVER, seed, _TIME_LIMIT, plain=False) for g in _GPUS]
        gpus_panel.plot(_GPUS, [row["cpu_seconds"] for row in rows], "o-", label=label)
        rows = [
            run_row(512, case, Noise.SERVER, seed, _TIME_LIMIT, plain=False, jobs=jobs)
            for jobs in _QUEUES
        ]
        queue_panel.plot(_QUEUES, [row["cpu_seconds"] for row in rows], "o-", label=label)
    gpus_panel.set(xlabel="GPUs", ylabel="CPU seconds, whole planning")
    queue_panel.set(xlabel="jobs in the queue, 512 GPUs")
    for panel in (gpus_panel, queue_panel):
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
