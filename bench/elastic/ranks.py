"""Starts, stops and judges a training on some ranks of this machine, over Gloo."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Process
from pathlib import Path
from typing import Any

from bench.elastic.ways import way

REQUEUE_EXIT_CODE = 85
"""The exit code of a training that has saved on request."""

_PATIENCE = 120.0


@dataclass(frozen=True)
class Step:
    """What the ranks of one run computed in a step."""

    ids: frozenset[int]
    loss: float


@dataclass
class Training:
    """One training in ``folder``, written in one of the ways, over any number of runs."""

    folder: Path
    way: str
    runs: list[int] = field(default_factory=list)
    """The ranks of each run."""

    first_ranks: int = 0
    """Ranks of the run that began the training; earlier runs were stopped before they had begun."""

    def run(self, ranks: int, stop: Callable[[Ranks], int] | None = None) -> bool:
        """Run the training on ``ranks`` until ``stop`` returns the signal to send; without
        ``stop``, to its end. Return whether the training has ended. Raise RuntimeError if a rank
        fails.
        """
        _import_once(self.way)
        record = self.folder / f"run-{len(self.runs)}"
        record.mkdir(parents=True)
        prepare = getattr(way(self.way), "prepare", None)
        if prepare and not self.runs:
            prepare(self.folder)
        self.runs.append(ranks)
        if not self._has_begun():
            self.first_ranks = ranks
        run = Ranks(self, record)
        number = stop(run) if stop else 0
        if number:
            run.send(number)
        codes = run.wait()
        allowed_codes = {0, -signal.SIGKILL, -signal.SIGUSR1, REQUEUE_EXIT_CODE} if number else {0}
        if not set(codes) <= allowed_codes:
            raise RuntimeError(f"ranks ended with codes {codes}, see {record}")
        return not any(codes)

    @property
    def has_ended(self) -> bool:
        """Whether the script has saved the final weights. A script that is killed after that, as it
        exits, would begin another training.
        """
        return (self.folder / "weights.pt").exists()

    def _has_begun(self) -> bool:
        """Whether a run has noted a step, or the samples of one."""
        notes = ("run-*/*.jsonl", "**/beginning.json", ".*hops-17.json")
        return any(any(self.folder.glob(pattern)) for pattern in notes)

    def steps(self) -> list[dict[tuple[int, int], Step]]:
        """For each run, the steps that all of its ranks have noted, by epoch and number."""
        return [
            _steps(self.folder / f"run-{number}", ranks) for number, ranks in enumerate(self.runs)
        ]

    def weights(self) -> dict[str, Any]:
        import torch  # noqa: PLC0415 - the ranks are forked from this process

        path = self.folder / "weights.pt"
        weights: dict[str, Any] = torch.load(path if path.exists() else self.folder / "elastic.pt")
        return weights.get("model", weights)


class Ranks:
    """The ranks of a training's last run, forked from this process, which has imported what they
    need, as in a job of hops.
    """

    def __init__(self, training: Training, record: Path) -> None:
        self.record = record
        ranks = training.runs[-1]
        port = _free_port()
        self._pids = []
        sys.stdout.flush()
        for rank in range(ranks):
            pid = os.fork()
            if not pid:
                # Its stack begins here, as in any process of multiprocessing.
                Process(target=_become, args=(training, rank, port, record))._bootstrap()  # type: ignore[attr-defined]
            self._pids.append(pid)

    @property
    def steps(self) -> int:
        """How many steps the first rank has noted."""
        path = next(self.record.glob("*.0.jsonl"), None)
        return path.read_bytes().count(b"\n") if path else 0

    def is_running(self) -> bool:
        return all(os.waitid(os.P_PID, p, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
                   for p in self._pids)  # fmt: skip

    def send(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)

    def wait(self) -> list[int]:
        """The ranks' exit codes. As launchers do, kills the others once one has failed."""
        codes: dict[int, int] = {}
        began = time.monotonic()
        while len(codes) < len(self._pids):
            time.sleep(0.002)
            for pid in self._pids:
                if pid not in codes and (wait_result := os.waitpid(pid, os.WNOHANG))[0]:
                    codes[pid] = os.waitstatus_to_exitcode(wait_result[1])
            is_late = time.monotonic() - began > _PATIENCE
            if is_late or any(codes.values()):
                for pid in self._pids:
                    if pid not in codes:
                        os.kill(pid, signal.SIGKILL)
            if is_late:
                raise RuntimeError(f"ranks did not end: {codes}, see {self.record}")
        return list(codes.values())


def _become(training: Training, rank: int, port: int, record: Path) -> None:
    """Train in a forked rank; does not return."""
    code = 1
    try:
        with (record / f"{rank}.err").open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        _enter(training, rank, port)
        common = importlib.import_module("bench.elastic.ways.common")
        run = common.Run(training.folder, record, rank, training.runs[-1], training.first_ranks)
        way(training.way).train(run)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _import_once(name: str) -> None:
    """Import what the ranks need, as in a job of hops without Slurm's commands."""
    values = {"HOPS_JOB": 1, "SLURM_JOB_ID": 17, "HOPS_REQUEUE_EXIT_CODE": REQUEUE_EXIT_CODE}
    values |= {"OMP_NUM_THREADS": 1, "HOPS_FRAMEWORK_SAVES": 1, "HOPS_RESTART_COUNT": 0}
    os.environ.update({name: str(value) for name, value in values.items()})
    os.environ.update(PATH="/nowhere", ACCELERATE_USE_CPU="true")
    importlib.import_module("hops_profiler.startup").install()
    for module in way(name).MODULES:
        importlib.import_module(module)


def _enter(training: Training, rank: int, port: int) -> None:
    """Turn this process into a rank of the training's last run."""
    number, ranks = len(training.runs) - 1, training.runs[-1]
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    values |= {"HOPS_RESTART_COUNT": number, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in values.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1")
    tempfile.tempdir = str(training.folder)  # where a training keeps its turn file
    os.chdir(training.folder)
    importlib.import_module("torch").set_num_threads(1)
    faulthandler.dump_traceback_later(_PATIENCE - 10)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _steps(record: Path, ranks: int) -> dict[tuple[int, int], Step]:
    parts: dict[tuple[int, int], list[tuple[list[int], float]]] = defaultdict(list)
    for path in record.glob("*.jsonl"):
        for line in path.read_text().split("\n")[:-1]:
            entry = json.loads(line)
            parts[entry["epoch"], entry["step"]].append((entry["ids"], entry["loss_sum"]))
    steps = {}
    for key, of_ranks in parts.items():
        if len(of_ranks) == ranks:
            ids = [sample for part, _ in of_ranks for sample in part]
            if len(ids) != len(set(ids)):
                raise ValueError(f"{record}: step {key} has samples twice")
            steps[key] = Step(frozenset(ids), sum(loss for _, loss in of_ranks) / len(ids))
    return steps
