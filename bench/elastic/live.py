"""``python -m bench.elastic.live``: a training that hopsd moves, on the demo's real Slurm cluster.

Other jobs come and go beside the training, so that it is moved five times. Draws its loss over the
unbroken run's, to docs/img/elastic-live.svg; exits with 1 if it is not the same training.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.elastic.moves import LOSS
from bench.elastic.plot import draw_moves
from bench.elastic.ranks import Training
from bench.elastic.ways.example import OPTIONS
from examples.demo.cluster import NodeSpec
from examples.demo.site import PROGRAMS, ROOT, Site, say
from hopsd.model.ids import JobId

MOVES = 5

LIMIT_SECONDS = 360.0

PACE = "0.3"

NEIGHBOUR = ("--global-batch", "16", "--micro-batch", "8", "--epochs", "1", "--samples", "800")
"""Options of the neighbouring jobs, which take about half a minute on their GPUs."""


class Cluster(Site):
    """One node with four GPUs."""

    def submit(self, name: str, reqs: str, options: tuple[str, ...]) -> tuple[str, Path]:
        """Submit a training; return the job's number, and the folder of its notes."""
        record = self.work / name
        record.mkdir()
        program = [str(PROGRAMS / "hops-run"), str(ROOT / "examples" / "elastic.py")]
        words = [*program, "--checkpoint", str(record / "run.pt"), "--record", str(record)]
        samples = 12288 if name == "elastic" else 800
        comment = f"hops:reqs={reqs};workload={name.partition('-')[0]};batch=8;samples={samples}"
        script = record / "job.sh"
        script.write_text(
            "#!/bin/bash\n#SBATCH --signal=USR1@60 --open-mode=append --requeue\n"
            f"srun {' '.join([*words, '--pace', PACE, *options])}\n"
        )
        sbatch = ["sbatch", "--parsable", f"--comment={comment}", f"--job-name={name}"]
        sbatch += [f"--output={self.out}/{name}-%j.log", str(script)]
        process = subprocess.run(
            sbatch, env=self.env, cwd=self.work, check=True, capture_output=True, text=True
        )
        say(f"{name}: reqs={reqs}")
        return process.stdout.strip().split(";")[0], record


def runs(record: Path) -> list[tuple[int, dict[int, float]]]:
    """For each run its number of ranks, and the loss of each step by number."""
    parts: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for path in record.glob("*.jsonl"):
        ranks = int(path.name.partition(".")[0])
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            parts[entry["step"], ranks].append((len(entry["ids"]), entry["loss_sum"]))
    losses_by_run: list[tuple[int, dict[int, float]]] = []
    for (step, ranks), entries in sorted(parts.items()):
        if not losses_by_run or losses_by_run[-1][0] != ranks:
            losses_by_run.append((ranks, {}))
        losses_by_run[-1][1][step] = sum(loss for _, loss in entries) / sum(
            count for count, _ in entries
        )
    return losses_by_run


def watch(site: Cluster) -> list[tuple[int, dict[int, float]]]:
    """Submit the training, add neighbours so that hops moves it, and wait for its end."""
    job, record = site.submit("elastic", "1,2,4", (*OPTIONS, "--every", "5"))
    began, neighbours, moves = time.monotonic(), 0, 0
    while time.monotonic() - began < LIMIT_SECONDS:
        time.sleep(1.0)
        now = runs(record)
        if len(now) != moves:
            moves = len(now)
            say(f"on {now[-1][0]} GPUs from step {min(now[-1][1])} on")
        states = {job.id: job.state_text for job in site.cluster.read_jobs()}
        alone = all(state == "COMPLETED" for number, state in states.items() if number != job)
        if alone and now and now[-1][0] == 4 and len(now[-1][1]) > 15 and len(now) <= MOVES:
            for _ in range(2):  # a single one may not be worth a move
                neighbours += 1
                site.submit(f"neighbour-{neighbours}", "1", NEIGHBOUR)
        if states.get(JobId(job)) == "COMPLETED":
            break
    return runs(record)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic.live", description=__doc__)
    parser.add_argument("--plot", type=Path, default=Path("docs/img/elastic-live.svg"))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        site = Cluster(stack, ROOT / "build" / "elastic")
        site.start([NodeSpec("rtx3090", gpus=4, cpus=8)], round_seconds=15, refresh_seconds=2)
        moves = watch(site)
    with tempfile.TemporaryDirectory() as folder:
        alone = Training(Path(folder), "example")
        alone.run(1)
        (steps,) = alone.steps()
    expected_losses = [step.loss for _, step in sorted(steps.items())]
    losses = {number: loss for _, run in moves for number, loss in run.items()}
    draw_moves(options.plot, expected_losses, moves)
    missing = len(set(range(len(expected_losses))) - losses.keys())
    difference = max(abs(loss - expected_losses[number]) for number, loss in losses.items())
    print(f"moves                    {len(moves) - 1}: {[ranks for ranks, _ in moves]} GPUs")
    print(f"steps                    {len(losses)}, missing {missing}")
    print(f"largest loss difference  {difference:.1e}")
    return 0 if not missing and difference <= LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
