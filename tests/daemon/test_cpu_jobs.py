"""CPUs instead of GPUs on a live cluster: only for jobs that ask for it, and measured like GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from daemon_site import Site, measurable_example, measuring_site, placements, submit

from examples.demo.cluster import NodeSpec
from hopsd.ctl.daemon_client import ask
from hopsd.model.devices import CPU
from hopsd.model.ids import JobId

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]

NODES = [NodeSpec("rtx3090", gpus=1, cpus=4), NodeSpec("cpu", gpus=2, cpus=3)]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with measuring_site(NODES, database) as site:
        yield site


def train(site: Site, comment: str, samples: int = 2000) -> JobId:
    comment = f"hops:{comment};samples={samples};batch=32;workload=mlp"
    script = measurable_example(site.folder)
    return submit(site, comment, script, "--samples", str(samples), "--pace", "0.05")


def measured_on_cpus(site: Site) -> set[int]:
    """CPU counts for which speeds are known."""
    return {record.gpus for record in site.store.knowledge().records if record.gpu_type == CPU}


@pytest.mark.long
@pytest.mark.parametrize("policy", ["allox", "hops"])
def test_only_jobs_that_allow_it_run_on_cpus(site: Site, policy: str) -> None:
    plan = f'policy = "{policy}"\nalpha = 1.0'
    site.hopsd.configure(round_seconds=5.0, profiling=True, plan=plan)
    site.hopsd.start()
    cpu_jobs = [train(site, "reqs=1;cpu=yes") for _ in range(3)]
    pair = train(site, "reqs=2;cpu=yes")
    gpu_jobs = [train(site, "reqs=1") for _ in range(2)]
    unplaceable = train(site, "reqs=2")
    site.hopsd.wait_for(
        lambda _: all(site.states()[job] == "COMPLETED" for job in [*cpu_jobs, pair, *gpu_jobs]),
        480.0,
    )
    placements_of = {
        job: placements(site, job) for job in [*cpu_jobs, pair, *gpu_jobs, unplaceable]
    }
    for job in gpu_jobs:
        assert {node for _, nodes in placements_of[job] for node in nodes} == {"n0"}
    assert placements_of[unplaceable] == []
    answer = ask(site.hopsd.socket, "explain", job=unplaceable)
    assert isinstance(answer, dict)
    assert "no_configuration" in json.dumps(answer)

    assert placements_of[pair][-1] == (False, {"n1": 2}), "only the CPUs are two"
    history = (site.folder / "work" / pair / "history.jsonl").read_text().splitlines()
    assert json.loads(history[-1])["gpus"] == 2, "a process for each CPU"
    # A run's last report is read at the next reading, after Slurm has called the job COMPLETED.
    site.hopsd.wait_for(lambda _: measured_on_cpus(site) >= {1, 2})
    assert {fit.gpu_type for fit in site.store.knowledge().theory} == {"rtx3090", CPU}
    site.cluster.run("scancel", unplaceable)
