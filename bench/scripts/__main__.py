"""``python -m bench.scripts FOLDER``: each script of FOLDER on plain Slurm and with hops' comment.

FOLDER has other people's sbatch scripts, which are not part of this repository. Whatever names
their site is removed, and their programs are replaced by stand-ins that note their ranks, GPUs and
cores (see rewrite.py, prelude.sh and stand_in.sh); in every third script the stand-in trains with
PyTorch, saves and continues. Both kinds of job run on one private cluster with hopsd's defaults,
except for short rounds, and as an account without rights. Compared are: whether sbatch accepted the
script, its state and exit code, the work of its last run with its ranks, GPUs and cores, its
output, and whether dependent jobs started.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.result_file import write_result
from bench.scripts.rewrite import GPU_TYPE, rewrite
from examples.demo.cluster import NodeSpec
from examples.demo.site import Site, say

FOLDER = Path(__file__).parent
NOBODY_UID = 65534
NODES = [NodeSpec(GPU_TYPE, gpus=8, cpus=256, memory_mb=2_000_000)] * 4
NAMES = (
    "python", "python3", "python2", "python3.6", "python3.7", "python3.8", "python3.9",
    "python3.10", "python3.11", "torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec",
    "horovodrun", "singularity", "apptainer", "conda", "mamba", "gmx", "gmx_mpi",
    "singularity_wrapper", "nvidia-smi", "jupyter", "jupyter-lab", "jupyter-notebook", "ray",
    "vllm", "wandb", "nvcc", "sbatch", "pythpc", "Rscript",
    "stand_in",
)  # fmt: skip
# Variables; a step that waits; if Slurm ends a job, either its shell or the sleep may go first.
_BY_CHANCE = r"[A-Za-z_]+=|srun: .*[Ss]tep creat|Terminated$"


@dataclass(slots=True)
class Trial:
    """One run of a script, and its results."""

    name: str
    folder: Path
    job: str = ""
    errors: str = ""
    jobs: list[dict[str, str]] = field(default_factory=list)
    after: tuple[str, str] = ("", "")
    dependents: tuple[str, str] = ("", "")

    @property
    def states(self) -> Counter[str]:
        return Counter(f"{job['JobState']} {job['ExitCode']}" for job in self.jobs)

    @property
    def gpus(self) -> int:
        """GPUs that each of the script's jobs asks for; if none, the GPUs that the job had."""
        if not self.jobs:
            return 0
        job = self.jobs[0]
        counts = (job.get(name, "").split("-")[0] for name in ("NumNodes", "NumTasks"))
        nodes, tasks = (int(count) if count.isdigit() else 1 for count in counts)  # or N/A
        for name, times in (("TresPerNode", nodes), ("TresPerJob", 1), ("TresPerTask", tasks)):
            match = re.search(r"gpu(?::[a-z]\w*)?(?::(\d+))?(?:,|$)", job.get(name, ""))
            if match:
                return times * int(match[1] or 1)
        path = self._notes_folder / f"gpus.{job['JobId']}"
        return int(path.read_text()) if path.exists() else 0

    @property
    def is_judged(self) -> bool:
        """Whether the script ran programs on GPUs and ended in time."""
        has_ended = not any(job["JobState"] in ("PENDING", "RUNNING") for job in self.jobs)
        return bool(self.job and self.gpus and self.work()) and has_ended

    @property
    def _notes_folder(self) -> Path:
        return self.folder.parents[1] / "notes"

    def work(self) -> Counter[str]:
        """Programs that ended in the last run of each job, as the stand-ins noted them."""
        line_counts: Counter[str] = Counter()
        for job in self.jobs:
            lines = self._notes(job)
            last = max((line.split()[1] for line in lines), key=int, default="0")
            line_counts.update(line for line in lines if line.startswith(f"end {last} "))
        return Counter({re.sub(r"^end \d+ ", "", line): n for line, n in line_counts.items()})

    def _notes(self, job: dict[str, str]) -> list[str]:
        path = self._notes_folder / f"job.{job['JobId']}"
        return path.read_text().splitlines() if path.exists() else []

    def submitted(self) -> int:
        """How many jobs the script has submitted."""
        paths = [self._notes_folder / f"submitted.{job['JobId']}" for job in self.jobs]
        return sum(len(path.read_text().splitlines()) for path in paths if path.exists())

    def began_anew(self) -> bool:
        """Whether a training of one of its jobs started from step 0 more than once."""
        paths = [self._notes_folder / f"steps.{job['JobId']}" for job in self.jobs]
        starts = [
            Counter(line for line in path.read_text().splitlines() if line.startswith("from 0 "))
            for path in paths
            if path.exists()
        ]
        return any(count > 1 for counts in starts for count in counts.values())

    def output(self) -> Counter[str]:
        text = "".join(
            path.read_text(errors="replace")
            for path in self.folder.glob("*.out")
            if path.name.startswith("slurm-")
        )
        text = re.sub(r"\bn\d\b|n\[[\d,-]+\]", "N", text)
        text = re.sub(r"\d\d:\d\d(:\d\d)?|\b\d{4,}\b|/[\w./-]*/(plain|hops)/", "T", text)
        return Counter(
            re.sub(r"\d+", "#", line).strip()
            for line in text.splitlines()
            if line.strip() and not re.match(_BY_CHANCE, line)
        )


class Sandbox(Site):
    """The cluster, hopsd, and the folder in which the scripts run."""

    def prepare(self, python: str) -> None:
        self.run_folder = self.work / "run"
        for name in ("notes", "notes/home", "plain", "hops"):
            folder = self.run_folder / name
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        bin_folder = self.run_folder / "bin"
        bin_folder.mkdir()
        shutil.copy(FOLDER / "stand_in.sh", bin_folder / "program")
        (bin_folder / "program").chmod(0o755)
        for name in NAMES:
            (bin_folder / name).symlink_to("program")
        trainer = self.run_folder / "trainer.py"
        shutil.copy(FOLDER / "trainer.py", trainer)
        trainer.chmod(0o644)
        paths = ":".join(path for path in sys.path if "site-packages" in path)
        train = f"PYTHONPATH={paths}:$PYTHONPATH {python} {trainer} $SLURM_STEP_ID.$SLURM_PROCID"
        for name, trainer_text in (("sleeps", ""), ("trains", train)):
            prelude = self.run_folder / f"{name}.sh"
            variables = f"BIN={bin_folder} NOTES={self.run_folder / 'notes'}\n"
            if trainer_text:
                variables += f"export TRAINER='{trainer_text}'\n"
            prelude.write_text(variables + (FOLDER / "prelude.sh").read_text())

    def submit(self, trial: Trial, text: str, comment: str) -> None:
        trial.folder.mkdir()
        trial.folder.chmod(0o777)
        script = trial.folder / "job.sh"
        script.write_text(text)
        options = [f"--comment={comment}"] if comment else []
        result = self._as_nobody(["sbatch", "--parsable", *options, "job.sh"], trial.folder)
        trial.errors = result.stderr.strip()
        trial.job = result.stdout.strip().partition(";")[0] if result.returncode == 0 else ""
        if trial.job:
            after = ["--output=/dev/null", "--ntasks=1", "--wrap=true", "--parsable"]
            trial.after = tuple(  # type: ignore[assignment]
                self._as_nobody(
                    ["sbatch", f"--dependency={kind}:{trial.job}", *after], trial.folder
                ).stdout.strip()
                for kind in ("afterok", "afternotok")
            )

    def _as_nobody(self, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        act_as = ["setpriv", f"--reuid={NOBODY_UID}", f"--regid={NOBODY_UID}", "--clear-groups"]
        locale_variables = {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}
        return subprocess.run(
            [*act_as, *command], cwd=folder, capture_output=True, text=True, check=False,
            env={"PATH": "/usr/bin:/bin", "USER": "nobody", **locale_variables, **self.cluster.env},
        )  # fmt: skip

    def watch(self, trials: Sequence[Trial], limit_seconds: float) -> None:
        """Wait until all trials have ended or the time is over."""
        deadline = time.monotonic() + limit_seconds
        while time.monotonic() < deadline:
            lines = self.cluster.run("squeue", "--all", "--noheader", "--format=%F %r").splitlines()
            queue = {line.split()[0] for line in lines if "PartitionNodeLimit" not in line}
            if not {trial.job for trial in trials if trial.job} & queue:
                break
            time.sleep(2)
        time.sleep(3)  # for dependent jobs
        records = self._records()
        # A job that waits for a missing server would hold its GPUs for ever.
        self.cluster.run("scancel", "--quiet", "--state=PENDING", "--user=nobody")
        self.cluster.run("scancel", "--quiet", "--state=RUNNING", "--user=nobody")
        for trial in trials:
            ours = [job for job in records if trial.job in (job["JobId"], job.get("ArrayJobId"))]
            trial.jobs = [job for job in ours if job.get("ArrayTaskId", "0").isdigit()] or ours
            states = {job["JobId"]: job["JobState"] for job in records}
            trial.dependents = tuple(  # type: ignore[assignment]
                "started" if states.get(job) == "COMPLETED" else "did not start"
                for job in trial.after
            )

    def _records(self) -> list[dict[str, str]]:
        lines = self.cluster.run("scontrol", "show", "job", "--oneliner").splitlines()
        return [
            dict(word.split("=", 1) for word in line.split() if "=" in word)
            for line in lines if line.startswith("JobId=")
        ]  # fmt: skip


def difference(plain: Trial, hops: Trial) -> list[str]:
    """Differences from plain Slurm."""
    if not hops.job:
        return [f"refused: {hops.errors}"]
    differences = []
    if plain.states != hops.states:
        differences.append(f"{dict(plain.states)} is {dict(hops.states)}")
    if plain.submitted() != hops.submitted():
        differences.append(f"{plain.submitted()} jobs submitted are {hops.submitted()}")
    if plain.gpus != hops.gpus:
        differences.append(f"{plain.gpus} GPUs are {hops.gpus}")
    ours, theirs = hops.work(), plain.work()
    if ours != theirs:
        lacks, has = (list(part.elements())[:3] for part in (theirs - ours, ours - theirs))
        differences.append(f"work: lacks {lacks}, has {has}")
    if missing := plain.output() - hops.output():
        differences.append(f"output lacks {list(missing)[:3]}")
    has_moved = any(int(job["Restarts"]) for job in hops.jobs)
    if not has_moved and (
        extra_lines := Counter(
            {k: n for k, n in (hops.output() - plain.output()).items() if "hops:" not in k}
        )
    ):
        differences.append(f"output has {list(extra_lines)[:3]}")
    if plain.dependents != hops.dependents:
        differences.append(f"afterok, afternotok: {plain.dependents} are {hops.dependents}")
    if hops.began_anew():
        differences.append("a restart lost what was trained")
    return differences


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scripts", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="scripts whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("/tmp/hops-scripts"))  # noqa: S108
    parser.add_argument(
        "--python", default="/usr/bin/python3", help="an interpreter for any account"
    )
    parser.add_argument(
        "--other-counts", action="store_true", help="accept half and twice the GPUs"
    )
    parser.add_argument("--limit", type=float, default=360.0, help="seconds with and without hops")
    parser.add_argument("--result", help="write the counts to bench/results/RESULT.md")
    options = parser.parse_args()
    paths = sorted(
        path for path in options.folder.iterdir() if path.is_file() and options.only in path.name
    )
    with contextlib.ExitStack() as stack:
        site = Sandbox(stack, options.out)
        site.start(NODES, round_seconds=20, refresh_seconds=2)
        site.prepare(options.python)
        pairs = run(site, paths, options.limit, other_counts=options.other_counts)
        table = report(pairs)
        if options.result:
            write_result(options.result, "Scripts on plain Slurm and with hops' comment", table)
        left_out = shutil.ignore_patterns("bin", "home")
        shutil.copytree(site.run_folder, options.out / "run", ignore=left_out)
        return 0


def run(
    site: Sandbox, paths: Sequence[Path], limit_seconds: float, *, other_counts: bool
) -> list[tuple[Trial, Trial]]:
    plain, hops = [], []
    texts = {}
    for at, path in enumerate(paths):
        trial = Trial(path.name, site.run_folder / "plain" / str(at))
        prelude = site.run_folder / ("sleeps.sh" if at % 3 else "trains.sh")
        texts[path.name] = rewrite(path.read_text(errors="replace"), str(prelude))
        site.submit(trial, texts[path.name], "")
        plain.append(trial)
    rejections = sum(not trial.job for trial in plain)
    say(f"{len(plain)} scripts on plain Slurm, {rejections} refused there")
    site.watch(plain, limit_seconds)
    for at, trial in enumerate(plain):
        twin = Trial(trial.name, site.run_folder / "hops" / str(at))
        if trial.is_judged:
            counts = (
                {trial.gpus // 2, trial.gpus, 2 * trial.gpus} - {0}
                if other_counts
                else {trial.gpus}
            )
            reqs = ",".join(map(str, sorted(counts)))
            site.submit(twin, texts[trial.name], f"hops:reqs={reqs}")
        hops.append(twin)
    say("the same scripts with the comment")
    site.watch(hops, limit_seconds)
    return list(zip(plain, hops, strict=True))


def report(pairs: Sequence[tuple[Trial, Trial]]) -> str:
    """Print the result of each script; return the counts as a table, without names."""
    judged_count, right, moved_count, restarts = 0, 0, 0, 0
    for plain, hops in pairs:
        if not plain.is_judged:
            print(
                f"- {plain.name}: not judged: {plain.errors or dict(plain.states)} on plain Slurm"
            )
            continue
        judged_count += 1
        restart_count = sum(int(job["Restarts"]) for job in hops.jobs)
        moved_count, restarts = moved_count + bool(restart_count), restarts + restart_count
        wrong = difference(plain, hops)
        right += not wrong
        summary = f"{plain.gpus} GPUs, job {hops.job}, {restart_count} restarts"
        print(f"- {plain.name} ({summary}): {'; '.join(wrong) or 'right'}")
        if wrong:
            print("    " + hops.errors.replace("\n", "\n    "))
    head = "| scripts | judged | as on plain Slurm | moved meanwhile | restarts |"
    part = f"{right} ({right / max(1, judged_count):.0%})"
    row = f"| {len(pairs)} | {judged_count} | {part} | {moved_count} | {restarts} |"
    table = "\n".join([head, "|---|---|---|---|---|", row])
    print(table)
    return table


if __name__ == "__main__":
    sys.exit(main())
