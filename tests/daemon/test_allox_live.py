"""AlloX on a live cluster: the shorter job goes first, and no job is ever moved."""

from __future__ import annotations

import pytest
from daemon_site import Site

pytestmark = [pytest.mark.live, pytest.mark.slow]

SPEEDS = """
[throughput.net.rtx3090]
aggregated = { "1" = 1.0 }
[throughput.net.v100]
aggregated = { "1" = 0.5 }
"""


def train(site: Site, seconds: float, gpus: int = 4) -> str:
    """Submit a job that takes this long on rtx3090."""
    return site.submit(f"hops:reqs={gpus};samples={seconds * gpus};workload=net", seconds)


@pytest.mark.long
def test_allox_runs_the_shorter_job_first_and_moves_none(site: Site) -> None:
    """Both large servers are busy, rounds pass, and a shorter job arrives after a longer one."""
    site.hopsd.configure(round_seconds=3.0, plan='policy = "allox"\nalpha = 1.0', tables=SPEEDS)
    site.hopsd.start()
    first = [train(site, 14.0), train(site, 26.0)]
    site.hopsd.wait_for(lambda s: len(s["running"]) == 2)
    longer, shorter = train(site, 9.0), train(site, 2.0)
    small = train(site, 1.0, gpus=1)
    site.wait_until_all_completed()
    runs = site.runs()
    jobs = [job for job, _, _ in runs]
    assert sorted(jobs) == sorted([*first, longer, shorter, small]), "each ran once"
    assert [restarts for _, restarts, _ in runs] == [0] * 5
    nodes_of = {job: nodes for job, _, nodes in runs}
    assert nodes_of[small] == ("n2",), "slower, and idle: better than to wait"
    assert jobs.index(shorter) < jobs.index(longer)
