"""A job that was not seen to save stays where it runs; once it has saved, it may be moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fixtures_cluster import as_user, wait_until
from script_site import OWNER, SETTINGS, ScriptSite

from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId, NodeName
from hopsd.model.job import JobState
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.round.result import RoundResult
from hopsd.round.run import run_round

pytestmark = pytest.mark.live

NODE = NodeName("n4")


def newest_first(snapshot: Snapshot, _: PlanSettings) -> Plan:
    """A policy that gives the node to the newest job."""
    room = next(node.idle for node in snapshot.nodes if node.name == NODE)
    jobs = sorted(snapshot.jobs, key=lambda job: -job.submit)
    able = [job for job in jobs if job.preemptible and job.state is JobState.WAITING]
    return Plan({job.id: Allocation.of({NODE: 4}) for job in able[:1] if room >= 4})


def test_an_unsaved_job_stays_and_its_child_is_not_lost(scripts: ScriptSite) -> None:
    def submit_job(*options: str) -> JobId:
        result = scripts.sbatch(path, *options)
        assert result.returncode == 0, result.stderr
        return JobId(result.stdout.strip())

    def round_() -> RoundResult:
        settings = replace(SETTINGS, seconds=0.001)
        return run_round(scripts.port, scripts.store, newest_first, settings, None)

    def save(*, has_saved: bool) -> None:
        record = scripts.store.jobs()[first]
        scripts.store.save_jobs([replace(record, saved=has_saved)])

    def state(job: JobId) -> str:
        return scripts.cluster.run("squeue", "-h", "-o", "%T", "-j", job).strip()

    path = scripts.write("sleep 300")
    ours = ("--comment=hops:reqs=4", f"--nodelist={NODE}", "--gres=gpu:4", "--nodes=1")
    first = submit_job(*ours)
    child = submit_job(f"--dependency=afterok:{first}")
    round_()
    wait_until(lambda: state(first) == "RUNNING")
    second = submit_job(*ours, "--job-name=second")
    save(has_saved=False)
    build = round_().build
    assert "seen to save" in build.notes[first]
    assert (state(first), state(second)) == ("RUNNING", "PENDING")
    save(has_saved=True)
    expected_states = ("PENDING", "RUNNING")
    wait_until(lambda: round_().first and (state(first), state(second)) == expected_states)
    assert "never" not in scripts.cluster.run("squeue", "-h", "-o", "%r", "-j", child).lower()
    assert as_user(scripts.cluster, OWNER, "scancel", first, second, child).returncode == 0
