"""Jobs that ended and were forgotten by slurmctld while hopsd was down, from a live slurmdbd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from daemon_site import Site
from fixtures_accounting import ALICE, uid_of
from fixtures_cluster import submit, wait_until
from operator_site import operator_site

from examples.demo.cluster import NodeSpec
from hopsd.errors import SlurmError
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState

pytestmark = pytest.mark.live


@pytest.fixture
def forgetful_site(database: str) -> Iterator[Site]:
    with operator_site(database, [NodeSpec("a100", gpus=4, cpus=8)], ["MinJobAge=2"]) as site:
        yield site


@pytest.mark.long
def test_jobs_that_ended_while_hopsd_was_down_have_their_true_ends(forgetful_site: Site) -> None:
    site, cluster = forgetful_site, forgetful_site.cluster
    jobs = {
        submit(
            cluster,
            script=f"while [ ! -e {site.folder}/go ]; do sleep 0.2; done; exit {code}",
            comment="hops:reqs=1",
            uid=uid_of(ALICE),
        ): state
        for code, state in ((0, SlurmState.COMPLETED), (3, SlurmState.FAILED))
    }
    site.hopsd.start()
    site.hopsd.wait_for(lambda status: {row["id"] for row in status["running"]} == set(jobs))
    assert site.hopsd.terminate() == 0
    site.let_go()

    def is_forgotten(job: str) -> bool:
        with contextlib.suppress(SlurmError):
            return not cluster.run("squeue", "--noheader", "--states=all", f"--jobs={job}").strip()
        return True  # "Invalid job id specified"

    wait_until(lambda: all(map(is_forgotten, jobs)), 180.0)
    site.hopsd.start()

    def records() -> dict[JobId, JobRecord]:
        newest_records = site.store.newest_jobs(list(map(JobId, jobs)))
        return {job: record for job, record in newest_records.items() if record.end is not None}

    wait_until(lambda: len(records()) == len(jobs))
    assert {job: record.state for job, record in records().items()} == jobs
    for job, record in records().items():
        fields = cluster.run("sacct", "-nPX", "--format=ElapsedRaw", f"--jobs={job}")
        assert record.run_seconds == pytest.approx(float(fields), abs=1.0)
        (placement,) = site.store.placements(job)
        assert placement.end == record.end
