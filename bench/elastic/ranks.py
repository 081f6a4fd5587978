"""examples/elastic.py on some ranks of this machine, over Gloo: started, stopped, and judged."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
LEFT = 128 + signal.SIGUSR1
"""The exit code outside of Slurm of a training that has saved on request."""

_PATIENCE = 60.0

_IMPORTED_ONCE = (
    "torch._dynamo",
    "hops_profiler.data.elastic",
    "hops_profiler.data.gradients",
    "hops_profiler.checkpoint.kept",
)
"""Here, and not in every rank."""


@dataclass(frozen=True)
class Step:
    """What the ranks of one run have computed in a step."""

    ids: frozenset[int]
    loss: float


@dataclass
class Training:
    """One training in ``folder``, over any number of runs."""

    folder: Path
    options: tuple[str, ...]
    runs: list[int] = field(default_factory=list)
    """The ranks of each run."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "elastic.pt"

    def run(self, ranks: int, stop: Callable[[Run], int] | None = None) -> bool:
        """Run it on ``ranks`` until ``stop`` returns the signal to send; None: to its end. Returns
        whether it has come to its end. Raises RuntimeError where a rank fails.
        """
        record = self.folder / f"run-{len(self.runs)}"
        record.mkdir(parents=True)
        self.runs.append(ranks)
        run = Run(ranks, record, ["--checkpoint", str(self.checkpoint), *self.options])
        number = stop(run) if stop else 0
        if number:
            run.send(number)
        codes = run.wait()
        allowed = {0, -signal.SIGKILL, -signal.SIGUSR1, LEFT} if number else {0}
        if not set(codes) <= allowed:
            raise RuntimeError(f"ranks ended with codes {codes}")
        return not any(codes)

    def steps(self) -> list[dict[tuple[int, int], Step]]:
        """Of each run, the steps that all of its ranks have noted, by epoch and number."""
        return [
            _steps(self.folder / f"run-{number}", ranks) for number, ranks in enumerate(self.runs)
        ]

    def weights(self) -> dict[str, Any]:
        import torch  # noqa: PLC0415 - the ranks are forked from this process

        model: dict[str, Any] = torch.load(self.checkpoint)["model"]
        return model


class Run:
    """Ranks of one run, forked from this process, which has PyTorch imported."""

    def __init__(self, ranks: int, record: Path, options: list[str]) -> None:
        self.record = record
        program = _from_examples("elastic")
        for module in _IMPORTED_ONCE:
            importlib.import_module(module)
        port = _free_port()
        self._pids = []
        sys.stdout.flush()
        for rank in range(ranks):
            pid = os.fork()
            if not pid:
                environ = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
                os.environ.update({name: str(value) for name, value in environ.items()})
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                _become(program.main, [*options, "--record", str(record)], record / f"{rank}.err")
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
        """The ranks' codes. As launchers do, ends the others where a signal has ended one."""
        codes: dict[int, int] = {}
        began = time.monotonic()
        while len(codes) < len(self._pids):
            time.sleep(0.002)
            for pid in self._pids:
                if pid not in codes and (done := os.waitpid(pid, os.WNOHANG))[0]:
                    codes[pid] = os.waitstatus_to_exitcode(done[1])
            late = time.monotonic() - began > _PATIENCE
            if late or any(code not in (0, LEFT) for code in codes.values()):
                for pid in self._pids:
                    if pid not in codes:
                        os.kill(pid, signal.SIGKILL)
            if late:
                raise RuntimeError(f"ranks did not end: {codes}, see {self.record}")
        return list(codes.values())


def example_models() -> dict[str, Any]:
    """Those of examples/models.py, by name."""
    models: dict[str, Any] = _from_examples("models").EXAMPLES
    return models


def _from_examples(module: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(module)


def _become(main: Callable[[list[str]], None], options: list[str], errors: Path) -> None:
    """Run ``main`` in a forked rank; does not return."""
    code = 1
    try:
        with errors.open("w") as file:
            os.dup2(file.fileno(), 2)
        main(options)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


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
    found = {}
    for key, of_ranks in parts.items():
        if len(of_ranks) == ranks:
            ids = [sample for part, _ in of_ranks for sample in part]
            if len(ids) != len(set(ids)):
                raise ValueError(f"{record}: step {key} has samples twice")
            found[key] = Step(frozenset(ids), sum(loss for _, loss in of_ranks) / len(ids))
    return found
