"""A job on an idle site starts within seconds; a job that waits for GPUs gets them at once."""

from __future__ import annotations

import time

import pytest
from daemon_site import Site

pytestmark = pytest.mark.live
REFRESH = 120.0


@pytest.mark.long
def test_hopsd_wakes_for_submissions_and_ends(site: Site) -> None:
    text = site.hopsd.config.read_text().replace(
        "refresh_seconds = 1\n", f"refresh_seconds = {REFRESH}\n"
    )
    site.hopsd.config.write_text(text.replace("round_seconds = 8.0", "round_seconds = 600"))
    site.hopsd.start()
    site.hopsd.wait_for(lambda status: status["mode"] == "active")
    begin = time.monotonic()
    first = site.submit("hops:reqs=4;preempt=no", 600.0)
    rigid_jobs = [site.submit("hops:reqs=4,2;preempt=no", 600.0) for _ in range(2)]
    last = site.submit("hops:reqs=4;preempt=no", 600.0)
    site.hopsd.wait_for(lambda status: len(status["running"]) == 3)
    site.cluster.run("scancel", first)
    site.hopsd.wait_for(lambda status: last in {job["id"] for job in status["running"]})
    assert rigid_jobs
    assert time.monotonic() - begin < REFRESH, "no regular look found them"
