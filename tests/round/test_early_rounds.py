"""Rounds that end early: because GPUs become idle that no waiting job gets, or because jobs would
be done before the round ends.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_cluster import A100, NODES, TABLE, Cluster, cluster, comment, submission
from memory_store import MemoryStore

from hopsd.core.queue.profile_runs import ProfilingSettings
from hopsd.errors import PlanLateError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, WorkloadName
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.model.reading import Hold, JobReading, NodeReading
from hopsd.model.reason import ReasonCode
from hopsd.model.script_options import ScriptOptions
from hopsd.model.site import Partition, Qos, ResourceKind, SiteRules
from hopsd.policies.protocol import Policy
from hopsd.policies.registry import get
from hopsd.round.result import RoundResult
from hopsd.round.run import run_round
from hopsd.round.settings import RoundSettings
from hopsd.round.window import RoundWindow, idle_beside
from hopsd.slurm.port import SHADOW

SETTINGS = RoundSettings(
    360.0,
    PlanSettings(policy="hops+", time_limit_seconds=5.0),
    profiling=ProfilingSettings(enabled=False),
)
PLUS = get("hops+")


def ending(port: Cluster, job: str) -> None:
    del port.jobs[JobId(job)]


class Site:
    """Two jobs of 1 to 4 GPUs on one server of four; ``look`` runs a round."""

    def __init__(self, policy: Policy = PLUS, seconds: float = 360.0) -> None:
        self.port = cluster(comment(1, 2, 4), comment(1, 2, 4))
        self.port.nodes = NODES[:1]
        self.memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE}})
        self.policy, self.settings = policy, replace(SETTINGS, seconds=seconds)
        self.window: RoundWindow | None = None

    def look(self, now: float) -> RoundResult:
        """Run a round ``now`` seconds after the first round's start."""
        self.port.now = 1000.0 + now
        result = run_round(self.port, self.memory, self.policy, self.settings, self.window)
        self.window = result.window
        return result

    def gpus(self, job: str) -> int:
        return self.port.jobs[JobId(job)].allocation.gpus


def test_a_running_job_grows_onto_gpus_that_become_idle_within_a_round() -> None:
    site = Site()
    site.look(0.0)
    assert (site.gpus("1"), site.gpus("2")) == (2, 2)
    ending(site.port, "1")
    result = site.look(200.0)
    assert result.first
    assert result.window == RoundWindow(1200.0, 1360.0, idle=0)
    assert site.gpus("2") == 4
    assert not site.look(230.0).first


def test_gpus_that_a_waiting_job_gets_end_no_round() -> None:
    site = Site()
    site.look(0.0)
    ending(site.port, "1")
    site.port.jobs[JobId("9")] = submission(9, comment(2), submit=1090.0)
    result = site.look(200.0)
    assert not result.first
    assert result.window.end == 1360.0
    assert (site.gpus("2"), site.gpus("9")) == (2, 2)


def test_a_round_lasts_at_least_a_minute_and_remembers_idle_gpus() -> None:
    site = Site()
    site.look(0.0)
    ending(site.port, "1")
    assert [site.look(now).first for now in (20.0, 50.0, 59.0)] == [False] * 3
    assert site.look(60.0).first
    assert site.gpus("2") == 4


def test_the_rest_of_a_round_also_lasts_at_least_a_minute() -> None:
    site = Site()
    site.look(0.0)
    ending(site.port, "1")
    assert not site.look(301.0).first
    assert site.look(360.0).window == RoundWindow(1360.0, 1720.0, idle=0)


def test_a_long_round_lasts_at_least_a_sixth_and_a_short_one_its_full_length() -> None:
    site = Site(seconds=1800.0)
    site.look(0.0)
    ending(site.port, "1")
    assert not site.look(299.0).first
    assert site.look(300.0).first
    short = Site(seconds=60.0)
    short.look(0.0)
    ending(short.port, "1")
    assert not short.look(59.0).first
    assert short.look(60.0).window.end == 1120.0


def test_a_few_gpus_of_many_end_no_round() -> None:
    """Two of 68 are 3 % of the GPUs, but not of their time in the round once a tenth is over."""
    site = Site()
    more_nodes = (replace(NODES[1], name=NodeName(f"m{i}")) for i in range(16))
    site.port.nodes = (*NODES[:1], *more_nodes)
    rigid_jobs = {
        JobId(str(i)): submission(i, comment(4, extra=";preempt=no")) for i in range(10, 26)
    }
    pair = {JobId(str(i)): submission(i, comment(2), submit=900.0 + i) for i in (1, 2)}
    site.port.jobs = pair | rigid_jobs
    site.look(0.0)
    assert sum(place.gpus for place in site.port.placements().values()) == 68
    ending(site.port, "1")
    assert not site.look(70.0).first
    ending(site.port, "10")
    assert site.look(80.0).first


def test_gpus_that_stay_idle_end_a_round_once() -> None:
    """A job of two GPUs leaves two idle in any plan."""
    site = Site()
    site.port.jobs[JobId("2")] = submission(2, comment(2), submit=902.0)
    site.look(0.0)
    ending(site.port, "1")
    assert site.look(200.0).first
    assert site.gpus("2") == 2
    assert [site.look(now).first for now in (240.0, 280.0, 300.0)] == [False] * 3


def test_gpus_that_no_running_job_can_use_end_no_round() -> None:
    site = Site()
    v100 = GpuType("v100")
    site.port.nodes = (*NODES[:1], NodeReading(NodeName("v0"), v100, 4, cores=16))
    site.memory = MemoryStore(tables={WorkloadName("w"): {A100: TABLE, v100: TABLE}})
    for job, node in (("1", "v0"), ("2", "n0")):
        options = ScriptOptions(nodes=frozenset({NodeName(node)}))
        site.port.jobs[JobId(job)] = replace(site.port.jobs[JobId(job)], options=options)
    site.look(0.0)
    assert site.gpus("1") == 4
    ending(site.port, "1")
    assert not site.look(200.0).first


def test_gpus_that_no_running_job_can_use_do_not_delay_the_end() -> None:
    """Two of four GPUs are half of what the jobs can have, however large the cluster is."""
    site = Site()
    large_nodes = (replace(NODES[1], name=NodeName(f"m{i}"), gpus=64) for i in range(16))
    site.port.nodes = (*NODES[:1], *large_nodes)
    for job in site.port.jobs.values():
        site.port.jobs[job.id] = replace(
            job, options=ScriptOptions(nodes=frozenset({NodeName("n0")}))
        )
    site.look(0.0)
    ending(site.port, "1")
    assert site.look(100.0).first


@pytest.mark.parametrize("reason", ["policy", "shadow"])
def test_rounds_end_early_only_if_the_policy_says_so_and_never_in_a_shadow(reason: str) -> None:
    """GPUs that a shadow gives to a job stay idle at every reading."""
    site = Site(get("hops") if reason == "policy" else PLUS)
    site.look(0.0)
    if reason == "shadow":
        site.port.name = SHADOW
    ending(site.port, "1")
    assert not site.look(200.0).first


def test_a_late_plan_delays_nothing() -> None:
    """Waiting jobs get the idle GPUs, and no later round asks for that plan again."""
    plan_calls: list[float] = []

    class Slow:
        ends_early = True

        def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
            if snapshot.round.first and snapshot.now > 1000.0:
                plan_calls.append(snapshot.now - 1000.0)
                raise PlanLateError("no plan after 15.0 s")
            return PLUS(snapshot, settings)

    site = Site(Slow())
    site.look(0.0)
    ending(site.port, "1")
    site.port.jobs[JobId("9")] = submission(9, comment(1), submit=1090.0)
    site.port.jobs[JobId("10")] = short_job(10, 30.0, submit=1090.0, gpus=4)
    result = site.look(100.0)
    assert not result.first
    assert result.window.end == 1360.0
    assert site.gpus("9") == 1
    assert [site.look(now).first for now in (130.0, 159.0)] == [False] * 2
    assert plan_calls == [100.0]


def test_idle_gpus_are_known_from_the_first_reading_after_a_restart() -> None:
    site = Site()
    site.look(0.0)
    last = site.memory.last_plan()
    assert last is not None
    site.window = RoundWindow(last.round_start, last.round_end)
    ending(site.port, "1")
    assert not site.look(185.0).first
    ending(site.port, "2")
    site.port.jobs[JobId("9")] = submission(9, comment(1), submit=1090.0)
    site.port.jobs[JobId("10")] = submission(10, comment(1), submit=1090.0)
    site.look(190.0)
    ending(site.port, "9")
    assert site.look(200.0).first


def short_job(number: int, seconds: float, submit: float, gpus: int = 1) -> JobReading:
    """A job that trains 100 samples a second on each GPU."""
    samples = f";samples={100 * seconds * gpus}"
    return submission(number, comment(gpus, extra=samples), submit=submit)


def full_site() -> Site:
    """A site whose two jobs hold all four GPUs, and have hours to run."""
    site = Site()
    for job in ("1", "2"):
        site.port.jobs[JobId(job)] = submission(int(job), comment(1, 2, 4, extra=";samples=1e8"))
    site.look(0.0)
    assert (site.gpus("1"), site.gpus("2")) == (2, 2)
    return site


def test_a_job_shorter_than_the_rest_of_the_round_starts_before_its_end() -> None:
    site = full_site()
    site.port.jobs[JobId("9")] = short_job(9, 30.0, submit=1010.0)
    assert not site.look(40.0).first
    result = site.look(70.0)
    assert result.first
    assert result.window.end == 1360.0
    assert site.gpus("9") == 1


@pytest.mark.parametrize("reason", ["long", "held", "earlier", "late", "too large"])
def test_other_jobs_end_no_round(reason: str) -> None:
    """Other jobs are longer, too large, held, older than the round, or come in its last minute."""
    site = full_site()
    job = short_job(9, 290.0 if reason == "long" else 30.0, submit=1010.0)
    if reason == "too large":
        job = replace(submission(9, comment(8), submit=1010.0), time_limit_seconds=30.0)
    if reason == "held":
        job = replace(job, hold=Hold.USER)
    if reason == "earlier":
        job = replace(job, submit=1000.0)
        site.window = RoundWindow(1010.0, 1360.0)
    site.port.jobs[JobId("9")] = job
    site.look(40.0 if reason != "late" else 301.0)
    assert not site.look(75.0 if reason != "late" else 310.0).first


def test_a_job_waiting_for_a_limit_ends_no_round() -> None:
    site = full_site()
    site.port.site = SiteRules(
        has_limits=True,
        qos={"four": Qos("four", group={ResourceKind.GPUS: 4})},
        partitions={"main": Partition("main", own_qos="four")},
    )
    site.port.jobs[JobId("9")] = short_job(9, 30.0, submit=1010.0)
    site.look(40.0)
    result = site.look(75.0)
    assert result.plan.waiting[JobId("9")].code is ReasonCode.LIMIT
    assert not result.first


def test_an_over_allocating_plan_is_not_an_error_here() -> None:
    """The error is reported when the plan is carried out."""
    snapshot = full_site().look(30.0).build.snapshot
    placements = {JobId("8"): Allocation.of({"n0": 99, "gone": 1})}
    assert idle_beside(Plan(placements), snapshot) == (0, 4)
