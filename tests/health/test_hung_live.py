"""Live: hopsd reports trainings that hang, but not one with a long evaluation."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from fixtures_cluster import report_folder, running_cluster, wait_until
from health_rig import ROOT, hopsd, submit

from examples.demo.cluster import NodeSpec

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(900)]

APPEND = "--open-mode=append"
KINDS = ("stopped", "deadlock", "evaluation")
EVENTS = ("hung", "hung_over", "idle", "requeue_announced", "requeued")


def test_hung_trainings_are_reported_within_a_minute_and_requeued(
    database: str, tmp_path: Path
) -> None:
    """Readings are 30 s apart, as by default, and the ranks' reports wake hopsd. A hang is reported
    after 20 s, plus up to 2 s until the plugin looks and 5 s until hopsd does; a busy machine may
    take some seconds more.
    """
    tmp_path.chmod(0o755)
    script = tmp_path / "train.sh"
    script.write_text(
        f"#!/bin/sh\nexec {sys.executable} -W ignore -m torch.distributed.run --standalone"
        f" --nproc-per-node=2 {Path(__file__).with_name('hangs.py')} $1\n"
    )

    with (
        report_folder() as spool,
        running_cluster(
            nodes=(NodeSpec("rtx3090", gpus=7),),
            extra_conf=("JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=10"),
            profiler_path=ROOT / "profiler" / "site",
            report_dir=spool,
        ) as cluster,
        hopsd(
            cluster,
            tmp_path,
            database,
            f'round_seconds = 600\nrefresh_seconds = 30\n[knowledge]\nreport_dir = "{spool}"\n'
            "[health]\nrequeue_hung_minutes = 4\n",
        ) as ask,
    ):

        def events(job: str) -> dict[str, str]:
            """Return the texts of a job's health events by kind, in order of time."""
            rows = sorted(ask("explain", job)["history"]["events"], key=lambda e: e["time"])
            return {e["kind"]: e["text"] for e in rows if e["kind"] in EVENTS}

        def begins(job: str) -> list[int]:
            """Return the step from which each rank of each run resumed."""
            lines = (tmp_path / f"slurm-{job}.out").read_text().splitlines()
            return [int(line.split()[-1]) for line in lines if "goes on from step" in line]

        jobs = {}
        for kind in KINDS:
            jobs[kind] = submit(
                cluster, tmp_path, "hops:reqs=2", f"exec sh train.sh {kind}", APPEND
            )
        notebook, began = submit(cluster, tmp_path, "hops:reqs=1", "exec sleep 1000"), time.time()
        wait_until(lambda: len(ask("health")["hung"]) == 2, 240.0)
        hung = {row["job"]: row for row in ask("health")["hung"]}
        text = {job: ask("explain", job) for job in hung}
        assert set(hung) == {jobs["stopped"], jobs["deadlock"]}
        for job, row in hung.items():
            (event,) = [e for e in text[job]["history"]["events"] if e["kind"] == "hung"]
            assert event["time"] - row["since"] <= 60.0
        states = [rank["state"] for rank in hung[jobs["stopped"]]["ranks"]]
        assert states == ["waiting", "silent"]
        calls = [rank["waits_in"] for rank in hung[jobs["deadlock"]]["ranks"]]
        assert calls == ["all_reduce", "recv"]
        for rank in hung[jobs["deadlock"]]["ranks"]:
            assert "hangs.py" in rank["line"]
            assert "hangs.py" in Path(rank["stacks"]).read_text()
        wait_until(lambda: notebook in [row["job"] for row in ask("health")["idle"]], 320.0)
        (event,) = ask("explain", notebook)["history"]["events"]
        assert (event["kind"], event["time"] - began <= 300.0) == ("idle", True)
        wait_until(lambda: all("requeued" in events(job) for job in hung), 400.0)
        for job in hung:
            assert "no step and no other sign of life" in events(job)["requeued"]
            assert "of processor time in" in events(job)["requeued"]
        wait_until(lambda: all(len(begins(job)) == 4 for job in hung), 300.0)
        for job in hung:
            assert begins(job) == [0, 0, 50, 50], "it goes on from its save"
        wait_until(lambda: ask("health")["hung"] == [], 90.0)
        # The evaluation is not reported as hung even after minutes, only as idle while it sleeps.
        assert {"hung", "requeued"}.isdisjoint(events(jobs["evaluation"]))
