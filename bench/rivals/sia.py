"""Sia's traces and measured speeds (siasosp23/artifacts, ``sia-simulator``) in hops' terms.

A job keeps the global batch of its trace: its samples are the iterations that this batch needs
times the batch, and with more GPUs each trains on less ("strong scaling"). What a GPU cannot hold
at once is accumulated. Speeds are the authors' measured step times divided by the slowdowns of
their ``simulator_config.py``; shapes that were not measured are interpolated.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from hopsd.errors import InputError
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Server, Workload, WorkloadJob

SERVERS = {"aws": (6, 4), "dgx-ext": (2, 8), "rtx": (3, 8)}
"""Servers by type and GPUs of each: the 64 GPUs of the authors' experiments."""

SLOWDOWN = {"cifar10": 1.8, "ncf": 1.5}
SLOWDOWN_OF_OTHERS = 1.2
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
MAX_LOCAL = {("deepspeech2", "rtx"): 57.0}
COUNTS = (1, 2, 4, 8, 12, 16, 20, 24)

RESTART_SECONDS = {
    "bert": 120.0,
    "cifar10": 50.0,
    "deepspeech2": 25.0,
    "imagenet": 250.0,
    "ncf": 15.0,
    "yolov3": 80.0,
}
"""Seconds of a restart in the authors' ``applications.py``."""

POLICY = (
    "--policy=sia",
    "--policy_p_val=-0.5",
    "--mip_lambda_a=0.01",
    "--mip_lambda_n=1.1",
    "--project_throughputs",
    "--share_max_replicas",
    "--oracle_num_nodes=16",
    "--oracle_num_replicas=64",
)
"""Options as the authors set them (``run_experiment.sh``); all speeds are known from the start."""


def cluster() -> Cluster:
    """The authors' 64 GPUs of three types."""
    servers = [
        Server(NodeName(f"{name}{i}"), GpuType(name), gpus)
        for name, (count, gpus) in SERVERS.items()
        for i in range(count)
    ]
    return Cluster(tuple(servers))


def traces(folder: Path) -> dict[str, Path]:
    """The traces of the authors' folder by name, such as ``philly-1``."""
    return {
        f"{path.parent.name}-{path.stem.removeprefix('workload-')}": path
        for path in sorted((folder / "workloads").glob("*/workload-*.csv"))
    }


def workload(folder: Path, trace: Path, *, rigid: bool) -> Workload:
    """The jobs of one trace; ``rigid`` jobs accept only the GPU count of the trace."""
    tables: dict[WorkloadName, Mapping[GpuType, ThroughputTable]] = {}
    jobs = []
    for number, row in enumerate(_rows(trace), 1):
        application, batch = row["application"], int(row["batch_size"])
        name = WorkloadName(f"{application}-{batch}")
        models = {t: _model(folder, application, t) for t in SERVERS}
        if name not in tables:
            tables[name] = {GpuType(t): model.table(batch) for t, model in models.items()}
        max_count = max(1, int(batch // min(model.local_min for model in models.values())))
        counts = tuple(count for count in COUNTS if count <= max_count)
        jobs.append(
            WorkloadJob(
                id=JobId(str(number)),
                user=UserName(application),
                submit=float(row["time"]),
                workload=name,
                samples=models["rtx"].iterations(batch) * batch,
                reqs=(int(row["num_replicas"]),) if rigid else counts,
            )
        )
    return Workload(tables, tuple(jobs))


def with_their_restarts(load: Workload) -> Workload:
    """Give the jobs the restarts of the authors' simulator, which differ by application."""
    jobs = (replace(job, restart_seconds=RESTART_SECONDS[job.user]) for job in load.jobs)
    return replace(load, jobs=tuple(jobs))


def run_authors_simulator(
    folder: Path, python: str, trace: Path, *, rigid: bool, round_seconds: float
) -> list[float]:
    """Completion times in hours under the authors' own scheduler, in the order of the trace; NaN
    for jobs that did not end.

    ``python`` is an interpreter with their requirements.

    Raises:
        InputError: their simulator failed.
    """
    # Their categories, even "scale-gpus", cap a job at the trace's count; elastic jobs get none.
    category = {"category": "rigid"} if rigid else {}
    batch_options = () if rigid else ("--disable_bsz_tuning",)
    rows = [row | category for row in _rows(trace)]
    with TemporaryDirectory() as temporary:
        trace_csv, log = Path(temporary) / "trace.csv", Path(temporary) / "log"
        with trace_csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        process = subprocess.run(
            [python, "multi_simulator.py", str(trace_csv), *POLICY, *batch_options,
             f"--interval={round_seconds:.0f}", f"--output={log}"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if process.returncode:
            last = process.stderr.strip().splitlines() or ["no message"]
            raise InputError(f"Sia's simulator in {folder} failed: {last[-1]}")
        ends = json.loads(log.read_text().splitlines()[-1])["submitted_jobs"]
    took = {
        entry["name"]: entry["completion_time"] - entry["submission_time"]
        for entry in ends
        if entry["completion_time"] is not None
    }
    return [took.get(row["name"], math.nan) / 3600.0 for row in rows]


@cache
def _model(folder: Path, application: str, gpu_type: str) -> Model:
    return Model(folder / "traces" / application, application, gpu_type)


@dataclass(frozen=True)
class Model:
    """One application on one GPU type, as measured."""

    folder: Path
    application: str
    gpu_type: str

    @cached_property
    def _steps(self) -> dict[str, list[tuple[float, float, float]]]:
        """By placement such as ``44``: local batch, seconds of a step and of its exchange."""
        steps_by_placement = defaultdict(list)
        for row in _rows(self.folder / f"placements-{self.gpu_type}.csv"):
            steps_by_placement[row["placement"]].append(
                (float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))
            )
        return {placement: sorted(steps) for placement, steps in steps_by_placement.items()}

    @cached_property
    def _interpolators(self) -> tuple[LinearNDInterpolator, NearestNDInterpolator]:
        """Interpolators of seconds by servers, GPUs and local batch."""
        points: list[tuple[float, ...]] = [
            (len(placement), sum(map(int, placement)), *step)
            for placement, steps in self._steps.items()
            for step in steps
        ]
        columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        points += [
            tuple(float(row[column]) for column in columns)
            for row in _rows(self.folder / f"scalability-{self.gpu_type}.csv")
        ]
        measurements = np.array(points)
        return (
            LinearNDInterpolator(measurements[:, :3], measurements[:, 3:]),
            NearestNDInterpolator(measurements[:, :3], measurements[:, 3:], rescale=True),
        )

    @cached_property
    def local_min(self) -> float:
        return min(step[0] for steps in self._steps.values() for step in steps)

    @cached_property
    def local_max(self) -> float:
        largest = max(step[0] for steps in self._steps.values() for step in steps)
        return MAX_LOCAL.get((self.application, self.gpu_type), largest)

    @cached_property
    def _iterations(self) -> dict[int, float]:
        """Iterations to the end by global batch."""
        last, iterations = EPOCHS[self.application] - 1, {}
        for path in self.folder.glob("validation-*.csv"):
            rows = _rows(path)
            batch = int(path.stem.removeprefix("validation-"))
            iterations[batch] = float(rows[min(last, len(rows) - 1)]["iteration"])
        return dict(sorted(iterations.items()))

    def iterations(self, batch: int) -> float:
        """Iterations of the whole training with this global batch."""
        return float(np.interp(batch, list(self._iterations), list(self._iterations.values())))

    def table(self, batch: int) -> ThroughputTable:
        """Samples per second per GPU: counts within a server, and whole servers if spread."""
        count, gpus = SERVERS[self.gpu_type]
        local_counts = [
            n for n in (1, 2, 4, 8) if n == 1 or (n <= gpus and batch >= n * self.local_min)
        ]
        return ThroughputTable(
            {n: self._rate((n,), batch) / n for n in local_counts},
            {n: self._rate((gpus,) * n, batch) / (gpus * n) for n in range(2, count + 1)},
            source="measured",
        )

    def _rate(self, placement: tuple[int, ...], batch: int) -> float:
        local = max(math.ceil(batch / sum(placement) - 1e-8), self.local_min)
        turns = max(1, math.ceil(local / self.local_max - 1e-8))
        step, exchange = self._seconds(placement, math.ceil(local / turns - 1e-8))
        slowdown = SLOWDOWN.get(self.application, SLOWDOWN_OF_OTHERS)
        return batch / (step + (turns - 1) * (step - exchange)) / slowdown

    def _seconds(self, placement: tuple[int, ...], local: float) -> tuple[float, float]:
        """Seconds of a step and of its exchange."""
        placement_steps = self._steps.get("".join(map(str, placement)))
        if placement_steps is not None:
            sizes, steps, exchanges = zip(*placement_steps, strict=True)
            return float(np.interp(local, sizes, steps)), float(np.interp(local, sizes, exchanges))
        point = (len(placement), sum(placement), local)
        linear, nearest = self._interpolators
        estimate = np.ravel(linear(*point))
        step, exchange = np.ravel(nearest(*point)) if np.isnan(estimate).any() else estimate
        return float(step), float(exchange)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
