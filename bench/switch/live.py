"""A real restart in Slurm: from hops' request to leave to the first iteration on another node.

Two jobs of examples/train.sh, one under hops' launcher and one under torchrun, alternately move
between two nodes each. Their final states are compared, bit for bit, with an uninterrupted training
under torchrun.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from examples.demo.cluster import NodeSpec, PrivateCluster
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.scontrol import ScontrolAdapter
from hopsd.slurm.watch import ApplySettings

from .restarts import LAUNCHERS

ROOT = Path(__file__).parents[2]
TRAIN = ROOT / "examples" / "train.py"
COLUMNS = ("ranks", "launcher s", "torchrun s", "ratio, median of pairs", "range", "checkpoints")
PATIENCE_SECONDS = 300.0
SLURMCTLD_SECONDS = 1.0
"""Seconds between slurmctld's scheduling cycles (22.05)."""
BATCH = 16
PACE_SECONDS = 0.05
"""Minimum length of an iteration. Each restart includes one iteration, and this pace also sets the
load that the other job causes."""


def measure(ranks: int, pairs: int) -> list[str]:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory(prefix="hops-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with PrivateCluster(
            folder / "slurm", nodes=(NodeSpec("rtx3090", gpus=ranks),) * 4
        ) as slurm:
            jobs = {
                launcher: _MovingJob(slurm, folder / launcher, module, ranks, at)
                for at, (launcher, module) in enumerate(LAUNCHERS.items())
            }
            restarts = [{n: jobs[n].restart() for n in _in_turns(pair)} for pair in range(pairs)]
            for job in jobs.values():
                job.leave()
        equal = all(_as_uninterrupted(job.checkpoint, ranks, folder) for job in jobs.values())
    ratios = sorted(pair["launcher"] / pair["torchrun"] for pair in restarts)
    medians = [f"{statistics.median(pair[name] for pair in restarts):.2f}" for name in LAUNCHERS]
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    verdict = "equal" if equal else "DIFFERENT"
    return [str(ranks), *medians, f"{statistics.median(ratios):.2f}", spread, verdict]


def _in_turns(pair: int) -> list[str]:
    return list(LAUNCHERS)[:: -1 if pair % 2 else 1]


@dataclass
class _MovingJob:
    """A training that moves between the two nodes of ``pair``."""

    slurm: PrivateCluster
    folder: Path
    module: str
    ranks: int
    pair: int
    at: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o755)
        self.port = SlurmPort(ScontrolAdapter(self.slurm.commands()), ApplySettings())
        process = subprocess.run(
            ["sbatch", "--parsable", f"--comment=hops:reqs={self.ranks};batch={BATCH}",
             f"--output={self.folder}/log", f"--chdir={self.folder}",
             ROOT / "examples" / "train.sh", "--samples=100000000", f"--pace={PACE_SECONDS}",
             "--print-every=1", "--agree-every=1"],
            env={**os.environ, **self.slurm.env, "PYTHON": sys.executable, "TRAIN": str(TRAIN),
                 "CHECKPOINTS": str(self.folder), "LAUNCHER": self.module},
            cwd=self.folder, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.id = JobId(process.stdout.strip())
        self._apply(Step(self.id, StepKind.START, target=self._place()))
        self._trains(0)

    @property
    def checkpoint(self) -> Path:
        return self.folder / self.id / "checkpoint.pt"

    def restart(self) -> float:
        """Seconds from the request until the first iteration elsewhere.

        The request comes at a random moment of slurmctld's cycle; restarts in immediate succession
        would all wait for the same part of it.
        """
        time.sleep(random.uniform(0.0, SLURMCTLD_SECONDS))
        place, runs = self._place(), len(self._ends())
        self.at = 1 - self.at
        step = Step(self.id, StepKind.MOVE, current=place, target=self._place())
        with ThreadPoolExecutor(1) as thread:
            began = time.monotonic()
            move = thread.submit(self._apply, step)
            self._trains(runs + 1)
            seconds = time.monotonic() - began
            move.result()
        return seconds

    def leave(self) -> None:
        """Have the training save and end."""
        self._apply(Step(self.id, StepKind.PREEMPT, current=self._place()))

    def _place(self) -> Allocation:
        return Allocation.of({f"n{2 * self.pair + self.at}": self.ranks})

    def _apply(self, step: Step) -> None:
        (outcome,) = self.port.apply([step])
        assert outcome.status is OutcomeStatus.DONE, outcome.error

    def _trains(self, runs: int) -> None:
        """Wait until ``runs`` runs have ended and the next has trained for an iteration."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._has_trained(runs):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.module} does not train:\n{self._log()[-2000:]}")
            time.sleep(0.02)

    def _has_trained(self, runs: int) -> bool:
        ends = self._ends()
        samples = re.findall(r"^samples (\d+) ", self._log(), re.MULTILINE)
        return len(ends) == runs and bool(samples) and int(samples[-1]) > (ends or [0])[-1]

    def _ends(self) -> list[int]:
        """The numbers of samples at which runs have ended."""
        lines = self._text(self.checkpoint.with_name("history.jsonl")).splitlines()
        return [json.loads(line)["end"] for line in lines]

    def _log(self) -> str:
        return self._text(self.folder / "log")

    @staticmethod
    def _text(path: Path) -> str:
        return path.read_text() if path.exists() else ""


def _as_uninterrupted(checkpoint: Path, ranks: int, folder: Path) -> bool:
    """Whether an uninterrupted training by torchrun reaches the same state, bit for bit."""
    result = torch.load(checkpoint)
    alone = Path(tempfile.mkdtemp(dir=folder))
    subprocess.run(
        [sys.executable, "-m", LAUNCHERS["torchrun"], f"--nproc-per-node={ranks}", TRAIN,
         "--checkpoints", alone, "--samples", str(result["samples"]), "--batch", str(BATCH)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
    )  # fmt: skip
    reference = torch.load(alone / "checkpoint.pt")
    is_equal = result["samples"] == reference["samples"]
    weights = [state["model"] for state in (result, reference)]
    moments = [_flat(state["optimizer"]["state"]) for state in (result, reference)]
    return is_equal and all(_equal(*pair) for pair in (weights, moments))


def _flat(states: dict[int, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {
        f"{index}.{name}": tensor
        for index, state in states.items()
        for name, tensor in state.items()
    }


def _equal(state: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> bool:
    return state.keys() == reference.keys() and all(
        torch.equal(state[k], reference[k]) for k in state
    )
