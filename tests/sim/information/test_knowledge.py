"""What policies know about jobs in a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import pstdev

import pytest
from click.testing import CliRunner
from sim_cases import NET, A, cluster, job, workload

from hopsd.ctl.study.simulate import simulate
from hopsd.errors import InputError
from hopsd.model.ids import WorkloadName
from hopsd.model.job import Job
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.registry import get
from hopsd.sim.engine import Simulation, SimulationSettings
from hopsd.sim.information.knowledge import KnowledgeSettings, Knows, public_knowledge
from hopsd.sim.presets import preset

CLUSTER = cluster(n0=4)


class RecordingPolicy:
    """FIFO that records the jobs of every snapshot."""

    def __init__(self) -> None:
        self.seen_jobs: list[Job] = []

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        self.seen_jobs += snapshot.jobs
        return get("fifo")(snapshot, settings)

    def snapshots_of(self, name: str) -> list[Job]:
        return [job for job in self.seen_jobs if job.id == name]


def recorded_policy(knows: Knows) -> RecordingPolicy:
    """Run a job of 1000 s on two GPUs, then another one like it; return the policy."""
    policy = RecordingPolicy()
    jobs = [job(1, 2000.0, 2), job(2, 2000.0, 2, submit=1500.0), job(3, 9.0, 4, submit=1600.0)]
    settings = SimulationSettings(100.0, knowledge=KnowledgeSettings(knows))
    run = Simulation(CLUSTER, workload(jobs, a=1.0), policy, settings).run()
    assert run.finished == 3
    return policy


def test_perfect_knowledge_is_the_truth() -> None:
    truth = preset("paper-64").workload(1)
    assert (
        public_knowledge(preset("paper-64").cluster(), truth, KnowledgeSettings()).workload == truth
    )
    assert {j.samples for j in recorded_policy(Knows.PERFECT).snapshots_of("1")} == {2000.0}


def test_without_knowledge_only_the_time_limit_is_known() -> None:
    for job_seen in recorded_policy(Knows.NONE).snapshots_of("2"):
        assert job_seen.samples is None
        assert job_seen.age_seconds is None
        assert job_seen.time_limit_seconds in (3600.0, 7200.0)
        assert job_seen.throughput[A].aggregated == {1: 1.0}


def test_measured_knowledge_comes_from_ended_jobs() -> None:
    policy = recorded_policy(Knows.MEASURED)
    first = policy.snapshots_of("1")[0]
    assert (first.samples, first.age_seconds) == (None, None)
    assert first.time_limit_seconds is not None
    second = policy.snapshots_of("2")[0]
    assert second.samples == pytest.approx(2000.0, rel=0.05)
    assert second.throughput[A].aggregated == {1: 1.0}


def test_errors_have_the_requested_size_and_are_equal_for_all_policies() -> None:
    paper_preset = preset("paper-64")
    truth = paper_preset.workload(0, jobs=400)
    knows = KnowledgeSettings(speed_error=0.3, time_error=0.5, seed=7)
    known_workload = public_knowledge(paper_preset.cluster(), truth, knows).workload
    assert known_workload == public_knowledge(paper_preset.cluster(), truth, knows).workload
    log_errors = [
        log(k.samples / t.samples) for k, t in zip(known_workload.jobs, truth.jobs, strict=True)
    ]
    assert pstdev(log_errors) == pytest.approx(0.5, rel=0.15)
    speeds = [
        (count, log(known_workload.throughput[name][kind].aggregated[count] / rate))
        for name, kinds in truth.throughput.items()
        for kind, table in kinds.items()
        for count, rate in table.aggregated.items()
    ]
    assert {error for count, error in speeds if count == 1} == {0.0}
    assert pstdev([error for count, error in speeds if count > 1]) == pytest.approx(0.3, rel=0.25)


def test_an_error_of_an_unknown_value_is_refused() -> None:
    with pytest.raises(InputError, match="--time-error"):
        KnowledgeSettings(Knows.MEASURED, time_error=0.1)
    with pytest.raises(InputError, match="--speed-error"):
        KnowledgeSettings(Knows.NONE, speed_error=0.1)


def test_a_study_names_its_policies_knowledge(tmp_path: Path) -> None:
    common = ["--cluster=paper-64", "--workload=paper-64", "--jobs=3", "--policy=fifo", "--report"]
    plain = CliRunner().invoke(simulate, [*common, f"--out={tmp_path}"])
    assert "Policies knew: true speeds, true samples" in plain.output
    assert "true speeds, true samples" in (tmp_path / "report.html").read_text()
    options = ["--knowledge=measured", "--speed-error=0.2", "--json", f"--out={tmp_path / 'm'}"]
    answer = json.loads(CliRunner().invoke(simulate, [*common, *options]).output)
    assert answer["knowledge"]["of"] == "measured"
    assert answer["knowledge"]["speed_error"] == 0.2
    assert "past runs" in answer["knowledge"]["text"]


def test_a_final_report_is_read_after_the_job_has_ended() -> None:
    """Otherwise the samples known at the last plan would count as all that the job trained."""
    policy = RecordingPolicy()
    jobs = [job(1, 5000.0, 1), job(2, 10.0, 1, submit=6000.0)]
    settings = SimulationSettings(3000.0, knowledge=KnowledgeSettings(Knows.MEASURED))
    Simulation(CLUSTER, workload(jobs), policy, settings).run()
    assert policy.snapshots_of("2")[0].samples == pytest.approx(5000.0, rel=0.05)


def test_past_runs_of_another_workload_are_not_used() -> None:
    """A user's runs of other programs are used for a new program only from the fourth on."""
    policy = RecordingPolicy()
    load = workload([job(1, 5000.0, 1), job(2, 10.0, 1, submit=6000.0, workload="other")])
    load = replace(
        load, throughput={**load.throughput, WorkloadName("other"): load.throughput[NET]}
    )
    settings = SimulationSettings(1000.0, knowledge=KnowledgeSettings(Knows.MEASURED))
    Simulation(CLUSTER, load, policy, settings).run()
    assert policy.snapshots_of("2")[0].samples is None
