"""`make demo`: hopsd schedules real PyTorch jobs on a private, real Slurm cluster.

`python -m examples.demo [FOLDER]` writes the report and the logs to FOLDER, by default build/demo.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.live import Live

from examples.demo import predictions
from examples.demo.accounts import Account, accounts
from examples.demo.cluster import ClusterError, NodeSpec
from examples.demo.jobs import JOBS, PACE_SECONDS, DemoJob
from examples.demo.predictions import PredictionLog
from examples.demo.report import JobEnd, any_moved, problems, report, training_log
from examples.demo.site import PROGRAMS, ROOT, DemoError, Site, say
from hopsd.ctl.daemon_client import ask
from hopsd.ctl.render import console, show, table
from hopsd.ctl.user.status import view
from hopsd.errors import HopsError
from hopsd.model.reason import duration

LIMIT_SECONDS = 450.0
NODES = [NodeSpec("rtx3090", gpus=2, cpus=8)] * 4 + [NodeSpec("v100", gpus=2, cpus=8)] * 2


class Demo(Site):
    """One run of the demo: everything it started is stopped when its stack closes."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        super().__init__(stack, folder)
        stack.callback(self._save_logs)
        self.submitted: list[tuple[str, DemoJob, Path]] = []
        self.predictions = PredictionLog()
        self._started = time.time()

    def run(self) -> None:
        """Start cluster, database, daemon and accounts."""
        self.start(NODES, round_seconds=45, refresh_seconds=3)
        say("hopsctl calibrate: how fast gradients travel")
        self._calibrate()
        self.accounts = accounts(self.work)

    def _calibrate(self) -> None:
        """Calibrate all GPU types at once; small sizes suffice between processes of one machine."""
        hopsctl = [PROGRAMS / "hopsctl", "calibrate", "--config", self.config]
        options = ["--python", sys.executable, "--sizes", "100000", "--sizes", "1000000"]
        log = self.out / "calibration.log"
        with log.open("w") as log_file:
            running = [
                subprocess.Popen(
                    [*hopsctl, *options, "--type", name],
                    env=self.env,
                    stdout=log_file,
                    stderr=log_file,
                )
                for name in sorted({node.gpu_type for node in NODES})
            ]
            if any([process.wait() for process in running]):  # noqa: C419 - wait for all of them
                raise DemoError(f"hopsctl calibrate failed; see {log}")

    def _save_logs(self) -> None:
        for path in self.work.glob("job-*/*.log"):
            shutil.copy2(path, self.out / path.name)

    def submit(self, wave: int) -> None:
        """Submit the jobs of one wave with plain sbatch."""
        for index, job in enumerate(JOBS):
            if job.wave == wave:
                self._submit(job, self.accounts[index % len(self.accounts)])

    def _submit(self, job: DemoJob, account: Account) -> None:
        folder = self.work / f"job-{job.name}"
        ignore = shutil.ignore_patterns("demo", "__*")
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=ignore)
        if account.uid is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, account.uid, account.gid or 0)
        command = ["sbatch", "--parsable", f"--comment={job.comment}", f"--job-name={job.name}"]
        command += ["examples/train.sh", "--model", job.model, "--samples", str(job.samples)]
        command += ["--pace", str(PACE_SECONDS)]
        env = {**self.env, "PYTHON": str(account.python), "HOME": str(folder)}
        env["PYTHONPATH"] = account.pythonpath
        process = account.run(command, env, folder)
        if process.returncode != 0:
            raise DemoError(f"sbatch refused {job.name}: {process.stderr.strip()}")
        job_id = process.stdout.strip().split(";")[0]
        say(f"job {job_id} of {account.name}: sbatch --comment='{job.comment}'  ({job.shows})")
        self.submitted.append((job_id, job, folder / "checkpoints" / job_id))

    def watch(self) -> dict[str, Any]:
        """Show the status until every job has ended; return the last document."""
        rounds: set[float] = set()
        waves = [1, 2]
        ticks = 0
        doc = ask(self.socket, "status")
        with live() as update:
            while time.time() - self._started < LIMIT_SECONDS:
                doc = ask(self.socket, "status")
                update(doc)
                self.predictions.note(doc)
                if doc["round"]:
                    rounds.add(doc["round"]["start"])
                if waves and self._due(waves[0], len(rounds), doc):
                    self.submit(waves.pop(0))
                    ticks = doc["ticks"]
                all_waves_planned = not waves and doc["ticks"] > ticks + 1
                if all_waves_planned and not (doc["running"] or doc["waiting"]):
                    break
                time.sleep(1.0)
        return {**doc, "rounds": len(rounds)}

    def _due(self, wave: int, rounds: int, doc: dict[str, Any]) -> bool:
        """Whether a wave is due: the second when the first trains, the third two rounds later."""
        if wave == 1:
            return bool(doc["running"] and not doc["waiting"]) or rounds >= 3
        return rounds >= 3

    def job_ends(self) -> list[JobEnd]:
        """Collect the end of each job."""
        readings = {job.id: job for job in self.cluster.read_jobs()}
        return [
            JobEnd(
                id=job_id,
                name=job.name,
                comment=job.comment,
                state=readings[job_id].state_text,
                restarts=readings[job_id].restarts,
                explanation=ask(self.socket, "explain", job=job_id),
                history=training_log(folder),
            )
            for job_id, job, folder in self.submitted
        ]


@contextlib.contextmanager
def live() -> Iterator[Any]:
    """Yield a function that shows a status: in place on a terminal, occasionally in a log."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as display:
            yield lambda doc: display.update(view(doc), refresh=True)
        return
    last = [0.0, ""]

    def print_now_and_then(doc: dict[str, Any]) -> None:
        steps = json.dumps((doc["round"] or {}).get("steps"))
        if steps != last[1] or time.monotonic() - float(last[0]) > 15.0:
            last[:] = [time.monotonic(), steps]
            show(view(doc))

    yield print_now_and_then


def _placement_text(placement: dict[str, Any]) -> str:
    """A placement such as `n0:2 n1:1`, in brackets if it was for a profile run."""
    text = " ".join(f"{node}:{gpus}" for node, gpus in placement["nodes"].items())
    return f"({text})" if placement["profiling"] else text


def summary(jobs: list[JobEnd]) -> Any:
    """Make the table at the end."""
    rows = [
        (
            job.id,
            job.name,
            job.state,
            job.restarts,
            duration(job.record.get("wait_seconds")),
            job.record.get("latency_ratio"),
            job.samples_done,
            " -> ".join(f"{run['losses'][0]:.2f}" for run in job.history[:1])
            + "".join(f" -> {run['losses'][-1]:.2f}" for run in job.history),
            "  ".join(_placement_text(placement) for placement in job.placements),
        )
        for job in jobs
    ]
    columns = ["job", "name", "state", "restarts", "waited", "wait/run"]
    wide = ("restarts", "wait/run", "samples")
    return table(
        "What became of the jobs",
        [*columns, "samples", "loss", "placements"],
        rows,
        wide=wide,
        long=("name",),
    )


def main() -> int:
    """Run the demo; return 0 only if every job completed and each allocation was in its set."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "build" / "demo"
    if sys.argv[1:] and folder.exists() and any(folder.iterdir()):
        print(f"demo: {folder} is not empty; name a new folder", file=sys.stderr)
        return 2
    began = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            demo = Demo(stack, folder)
            demo.run()
            demo.submit(0)
            last = demo.watch()
            jobs = demo.job_ends()
    except (DemoError, ClusterError, HopsError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped; everything it started is stopped, too", file=sys.stderr)
        return 130
    result = report(last, last["rounds"], jobs)
    (folder / "report.json").write_text(json.dumps(result, indent=2) + "\n")
    show(summary(jobs))
    outcomes = [job.outcome for job in jobs]
    prediction_rows = demo.predictions.rows(outcomes)
    predictions.write(prediction_rows, folder / "predictions.csv")
    show(predictions.summary(prediction_rows, outcomes))
    if not any_moved(jobs):
        say("no job was moved, since each ended within its round; another run may show a move")
    wrong = problems(jobs)
    for problem in wrong:
        say(f"[red]{problem}[/red]")
    say(f"{duration(time.monotonic() - began)}, {last['rounds']} rounds; {folder / 'report.json'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
