"""The daemon with Themis as its policy, on a live cluster."""

from __future__ import annotations

import pytest
from daemon_site import Site

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.mark.long
def test_themis_shares_a_cluster_among_apps(site: Site) -> None:
    """10 GPUs: three apps and a single job ask for more. An app's second phase waits for the first,
    by Slurm's dependency. All end, no GPU is allocated twice, and waiting jobs get a reason.
    """
    plan = 'policy = "themis"\nlease_seconds = 4\nfilter_share = 0.5'
    site.hopsd.configure(round_seconds=4.0, plan=plan)
    site.hopsd.start()
    first = [site.submit("hops:reqs=1,2;app=lm:1;workload=a", 4.0) for _ in range(4)]
    after = f"--dependency=afterany:{':'.join(first)}"
    last = site.submit("hops:reqs=2,4;app=lm:2;workload=a", 2.0, after)
    other_apps = [site.submit(f"hops:reqs=2,4;app=cv{i % 2};workload=b", 4.0) for i in range(4)]
    alone = site.submit("hops:reqs=4;workload=c", 4.0)
    status = site.hopsd.wait_for(
        lambda s: (
            s["running"] and any("rho of its app is" in str(w["reason"]) for w in s["waiting"])
        )
    )
    assert last in {job["id"] for job in status["waiting"]}
    site.wait_until_all_completed(240.0)
    assert set(site.states()) == {*first, last, *other_apps, alone}
    starts = [job for job, restarts, _ in site.runs() if restarts == 0]
    assert starts.index(last) > max(starts.index(job) for job in first)
