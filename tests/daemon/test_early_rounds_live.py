"""A round of a real cluster that ends early; slow, since no round is shorter than a minute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from daemon_site import LONG, Site, placements
from fixtures_cluster import running_cluster

from examples.demo.cluster import NodeSpec
from hopsd.model.ids import JobId

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with (
        running_cluster(nodes=[NodeSpec("rtx3090", gpus=2, cpus=8)]) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        yield site


@pytest.mark.long
@pytest.mark.timeout(900)  # its own waits are longer than the default
def test_a_short_job_starts_within_the_round_and_the_next_one_ends_it(site: Site) -> None:
    """Its limit of one minute ends before the round of 400 s; then the other job has both GPUs."""
    site.hopsd.configure(round_seconds=400.0, plan='policy = "hops+"')
    long = JobId(site.submit("hops:reqs=1,2", LONG, "--time=60"))
    site.hopsd.start()
    site.hopsd.wait_for(lambda s: len(s["running"]) == 1)
    opening_plan = site.store.last_plan()
    assert opening_plan is not None
    short = JobId(site.submit("hops:reqs=1", 3.0, "--time=1"))
    site.hopsd.wait_for(lambda _: site.states()[short] == "COMPLETED", 300.0)
    assert placements(site, short) == [(False, {"n0": 1})]
    split = site.store.last_plan()
    assert split is not None
    assert split.round_end == opening_plan.round_end
    site.hopsd.wait_for(lambda _: placements(site, long)[-1] == (False, {"n0": 2}), 400.0)
    assert len(placements(site, long)) >= 3
    site.let_go()
    site.wait_until_all_completed()
