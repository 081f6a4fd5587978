"""`hops+`: its formula against every possible plan, and mistakes of the myopic policy."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_cases import cluster, job, workload

from hopsd.core.placement import generate
from hopsd.core.placement.configurations import Configurations
from hopsd.core.queue.priority import priorities
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, Node, ThroughputTable
from hopsd.model.plan import PlanSettings, PriorityName, RoundInfo, Snapshot
from hopsd.model.rules import Rules, ShapeRule
from hopsd.policies.registry import get
from hopsd.sim.cluster import ClusterSettings
from hopsd.sim.engine import SimulationSettings
from hopsd.sim.study import PolicyResult, play

A, B = GpuType("a"), GpuType("b")
SERVERS = {"a0": (A, 2), "a1": (A, 1), "b0": (B, 2)}


@st.composite
def small(draw: st.DrawFn) -> Snapshot:
    """Up to four jobs on five GPUs, equal or not; running jobs hold one GPU each."""
    jobs = []
    same_tables = draw(st.booleans())
    free = ["a0", "a1", "b0"]
    for number in range(draw(st.integers(1, 4))):
        home = draw(st.sampled_from(["", *free]))
        free = [name for name in free if name != home]
        tables = {
            t: ThroughputTable({1: draw(st.floats(1, 9)), 2: draw(st.floats(1, 9))}) for t in (A, B)
        }
        tables = dict.fromkeys(tables, tables[A]) if same_tables else tables
        ran = draw(st.sampled_from([0.0, 100.0]))
        jobs.append(
            Job(
                JobId(str(number)),
                UserName("u"),
                submit=0.0,
                wait_seconds=draw(st.floats(0.0, 5000.0)),
                reqs=draw(st.sampled_from([(1,), (2,), (1, 2)])) if not home else (1, 2),
                throughput=tables,
                samples=5000.0,
                samples_done=draw(st.floats(0.0, 4900.0)),
                restart_seconds=draw(st.sampled_from([0.0, 30.0, 300.0])),
                running=Allocation.of({home: 1} if home else {}),
                run_seconds=ran,
            )
        )
    busy_nodes = {name for candidate in jobs for name in candidate.running.nodes}
    nodes = [
        Node(NodeName(name), t, gpus, gpus - (name in busy_nodes))
        for name, (t, gpus) in SERVERS.items()
    ]
    return Snapshot(6000.0, RoundInfo(True, 360.0), tuple(nodes), tuple(jobs))


@st.composite
def absurd_snapshots(draw: st.DrawFn) -> Snapshot:
    """Honest jobs, and one whose numbers are at or beyond the limits of what a job may declare."""
    snapshot = draw(small())
    liar = replace(
        snapshot.jobs[0],
        samples=draw(st.sampled_from([None, 1e-300, 1e-3, 1e18, 1e160])),
        age_seconds=draw(st.sampled_from([None, 1e-3, 1e10])),
        samples_done=draw(st.sampled_from([0.0, 1e-300, 1e-3])),
        wait_seconds=draw(st.sampled_from([0.0, 1e10, 1e200])),
        run_seconds=draw(st.sampled_from([0.0, 1e10])),
        restart_seconds=draw(st.sampled_from([0.0, 1e10, 1e300])),
        throughput={A: ThroughputTable({1: draw(st.sampled_from([1e-6, 1.0, 1e9]))})},
    )
    return replace(snapshot, jobs=(liar, *snapshot.jobs[1:]))


SPEED = 3.0


def twelve_jobs() -> Snapshot:
    """Twelve jobs, three of which run, on eight servers of four GPUs."""
    table = ThroughputTable({1: SPEED})
    jobs = [
        Job(
            JobId(str(number)),
            UserName("u"),
            submit=0.0,
            wait_seconds=100.0 * number,
            reqs=((1, 2), (2, 4), (4,))[number % 3],
            throughput={A: table},
            samples=1e5 * (1 + number),
            samples_done=1e4,
            restart_seconds=30.0,
            running=Allocation.of({f"n{number}": 2} if number < 3 else {}),
            run_seconds=100.0,
        )
        for number in range(12)
    ]
    nodes = [Node(NodeName(f"n{i}"), A, 4, 2 if i < 3 else 4) for i in range(8)]
    return Snapshot(6000.0, RoundInfo(True, 360.0), tuple(nodes), tuple(jobs))


def latency_ratio(job: Job) -> float:
    mean = sum(job.reqs) / len(job.reqs)
    alone = {t: 5000.0 / (job.throughput[t].aggregated[1] * mean) for t in (A, B)}
    return job.wait_seconds / max((3 * alone[A] + 2 * alone[B]) / 5, job.run_seconds)


def weight(job: Job, snapshot: Snapshot, tail_weight: float) -> float:
    """Return W, from the formula as printed."""

    def remaining_seconds(job: Job) -> float:
        mean = sum(job.reqs) / len(job.reqs)
        count = {A: 3, B: 2}
        age = sum(
            n / 5 * 5000.0 / (job.throughput[t].aggregated[1] * mean) for t, n in count.items()
        )
        return age * (1.0 - job.samples_done / 5000.0) * mean

    jobs = snapshot.jobs
    share = sum(
        min(1.0, remaining_seconds(competitor) / remaining_seconds(job)) ** 8 for competitor in jobs
    ) / len(jobs)
    drain_seconds = max(sum(map(remaining_seconds, jobs)) / 5, *map(shortest, jobs))
    urgency = share + tail_weight * (shortest(job) / drain_seconds) ** 3
    fairness_loss = latency_ratio(job) ** 2 + 3.0 * max(0.0, rho(job, len(jobs)) - 1.0) ** 2
    stop_cost = best(job) / effective_speed(
        job, best(job), job.restart_seconds if job.running else 0.0
    )
    return (1.0 + fairness_loss) * urgency * stop_cost


def shortest(job: Job) -> float:
    return (5000.0 - job.samples_done) / fastest(job)


def fastest(job: Job) -> float:
    return max(n * job.throughput[t].aggregated[n] for t in (A, B) for n in job.reqs)


def unit(job: Job) -> float:
    """Return the samples per second of one GPU of the mean type."""
    return 5 / (3 / job.throughput[A].aggregated[1] + 2 / job.throughput[B].aggregated[1])


def best(job: Job) -> float:
    """Return the same, with the GPU count that is fastest per GPU on each type."""
    per_gpu = {t: max(job.throughput[t].aggregated[n] for n in job.reqs) for t in (A, B)}
    return 5 / (3 / per_gpu[A] + 2 / per_gpu[B])


def rho(job: Job, jobs: int) -> float:
    """Return the smallest finish-time fairness that the job can still reach."""
    alone = 5000.0 / (unit(job) * min(5 / jobs, max(job.reqs)))
    remaining_seconds = (5000.0 - job.samples_done) / max(fastest(job), unit(job) * max(job.reqs))
    return (job.wait_seconds + job.run_seconds + remaining_seconds) / alone


def effective_speed(job: Job, speed: float, restart: float) -> float:
    lasts = max(min((5000.0 - job.samples_done) / speed, 300.0), restart)
    return speed * lasts / (lasts + restart)


def worth(job: Job, name: str, size: int) -> float:
    """Return U, from the formula as printed."""
    restart_seconds = job.restart_seconds if job.running or job.run_seconds else 0.0
    speed = size * job.throughput[SERVERS[name][0]].aggregated[size]
    stays = job.running == Allocation.of({name: size})
    return (
        effective_speed(job, speed, 0.0 if stays else restart_seconds)
        / effective_speed(job, best(job), restart_seconds)
    ) ** 0.65


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(snapshot=small(), tail_weight=st.sampled_from((0.0, 0.4)))
def test_no_plan_is_worth_more(snapshot: Snapshot, tail_weight: float) -> None:
    settings_ = PlanSettings(gap=0.0, time_limit_seconds=20.0, tail_weight=tail_weight)
    plan = get("hops+")(snapshot, settings_)
    ways = [
        [(0.0, "", 0)]
        + [
            (weight(job, snapshot, tail_weight) * worth(job, name, size), name, size)
            for name, (_, gpus) in SERVERS.items()
            for size in job.reqs
            if size <= gpus
        ]
        for job in snapshot.jobs
    ]
    best = max(
        sum(value for value, _, _ in choice)
        for choice in product(*ways)
        if all(
            sum(size for _, server, size in choice if server == name) <= gpus
            for name, (_, gpus) in SERVERS.items()
        )
    )
    assert plan.objective == pytest.approx(best, rel=1e-6)


@pytest.mark.slow
def test_a_plan_has_the_same_worth_with_and_without_explicit_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = twelve_jobs()
    full_plan = get("hops+")(snapshot, PlanSettings(gap=0.0, time_limit_seconds=20.0))
    monkeypatch.setattr(generate, "MAX_WRITTEN", 0)
    monkeypatch.setattr(generate, "_COLUMNS_PER_SET", 0)
    monkeypatch.setattr(Configurations, "write_out", None)
    plan = get("hops+")(snapshot, PlanSettings(gap=0.0, time_limit_seconds=20.0))
    assert plan.configurations == full_plan.configurations
    assert plan.objective <= full_plan.upper_bound * (1 + 1e-9)
    assert full_plan.objective <= plan.upper_bound * (1 + 1e-9)
    assert plan.objective > 0.9 * full_plan.objective
    for name, placement in plan.placements.items():
        assert plan.jobs[name].throughput == pytest.approx(SPEED * placement.gpus)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    snapshot=absurd_snapshots(),
    priority=st.sampled_from(PriorityName),
    tail_weight=st.floats(0.0, 10.0),
)
def test_absurd_numbers_of_a_job_do_not_prevent_a_plan(
    snapshot: Snapshot, priority: PriorityName, tail_weight: float
) -> None:
    plan = get("hops+")(snapshot, PlanSettings(priority=priority, tail_weight=tail_weight))
    figures = [
        (numbers.priority, numbers.gain or 0.0, numbers.throughput or 0.0)
        for numbers in plan.jobs.values()
    ]
    assert all(map(math.isfinite, chain(*figures)))
    assert plan.placements.keys() | plan.waiting.keys() == {numbers.id for numbers in snapshot.jobs}


def test_a_wait_beyond_every_run_time_does_not_prevent_a_plan() -> None:
    """A wait of 300 years for a moment's work: a float cannot hold the ratio of the two."""
    first, *rest_of_jobs = twelve_jobs().jobs
    liar = replace(first, samples=1e-300, samples_done=0.0, run_seconds=0.0, wait_seconds=1e10)
    liar = replace(liar, running=Allocation())
    plan = get("hops+")(replace(twelve_jobs(), jobs=(liar, *rest_of_jobs)), PlanSettings())
    assert liar.id in plan.placements
    assert math.isfinite(plan.jobs[liar.id].priority)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(snapshot=small(), random=st.randoms(use_true_random=False))
def test_the_order_of_the_jobs_changes_nothing(snapshot: Snapshot, random: Random) -> None:
    jobs = random.sample(snapshot.jobs, len(snapshot.jobs))
    plans = [
        get("hops+")(replace(snapshot, jobs=tuple(job_order)), PlanSettings(gap=0.0))
        for job_order in (snapshot.jobs, jobs)
    ]
    assert plans[0].placements == plans[1].placements


@settings(max_examples=30, deadline=None)
@given(snapshot=small())
def test_a_job_that_may_not_be_stopped_keeps_its_gpus(snapshot: Snapshot) -> None:
    stays = [replace(candidate, preemptible=not candidate.running) for candidate in snapshot.jobs]
    plan = get("hops+")(replace(snapshot, jobs=tuple(stays)), PlanSettings())
    assert not {candidate.id for candidate in stays if candidate.running} & (
        plan.placements.keys() | plan.waiting.keys()
    )
    allocations = [*plan.placements.values(), *(candidate.running for candidate in stays)]
    for name, (_, gpus) in SERVERS.items():
        assert sum(allocation.on(NodeName(name)) for allocation in allocations) <= gpus


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(snapshot=small(), tail_weight=st.sampled_from((0.0, 0.4)))
def test_a_job_beyond_the_bound_runs(snapshot: Snapshot, tail_weight: float) -> None:
    """Above the bound of docs/policies.md, the job runs.

    The bound is r^2 + 3 p^2 > 3.2 (1 + l) n g (F / b)^0.65 (1 + R^2 + 3 P^2)
    """
    job = replace(snapshot.jobs[0], running=Allocation.of({}))
    competitors, n = snapshot.jobs[1:], len(snapshot.jobs)
    largest_ratio = max(map(latency_ratio, competitors), default=0.0)
    unfair = max((max(0.0, rho(competitor, n) - 1.0) for competitor in competitors), default=0.0)
    largest_gain = max(
        (max(1.0, fastest(competitor) / best(competitor)) for competitor in competitors),
        default=1.0,
    )
    ways = [k * job.throughput[t].aggregated[k] for t in (A, B) for k in job.reqs]
    least_ratio = min(1.0, min(ways) / best(job))
    bound = 3.2 * (1 + tail_weight) * n * min(job.reqs) * (largest_gain / least_ratio) ** 0.65
    bound *= 1 + largest_ratio**2 + 3 * unfair**2

    def enough(wait_seconds: float) -> bool:
        waiter = replace(job, wait_seconds=wait_seconds)
        return latency_ratio(waiter) ** 2 + 3.0 * max(0.0, rho(waiter, n) - 1.0) ** 2 > bound

    low, high = 0.0, math.sqrt(bound) / latency_ratio(replace(job, wait_seconds=1.0))
    while high - low > 1e-4 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if enough(middle) else (middle, high)
    job = replace(job, wait_seconds=1.001 * high)
    busy_nodes = {name for competitor in competitors for name in competitor.running.nodes}
    nodes = tuple(
        replace(node, idle=node.gpus - (node.name in busy_nodes)) for node in snapshot.nodes
    )
    idle_snapshot = replace(snapshot, nodes=nodes, jobs=(job, *competitors))
    settings_ = PlanSettings(gap=0.0, time_limit_seconds=20.0, tail_weight=tail_weight)
    assert job.id in get("hops+")(idle_snapshot, settings_).placements


def test_the_longest_of_n_jobs_on_one_gpu_starts_after_sqrt_n_of_its_lengths() -> None:
    n = 100

    def single_job(name: int, samples: float, wait_seconds: float = 0.0) -> Job:
        return Job(
            JobId(str(name)), UserName("u"), submit=0.0, wait_seconds=wait_seconds, reqs=(1,),
            throughput={A: ThroughputTable({1: 1.0})}, samples=samples,
        )  # fmt: skip

    competitors = [single_job(k, 100.0) for k in range(1, n)]

    def runs(ratio: float) -> bool:
        late_job = single_job(0, 10_000.0, ratio * 10_000.0)
        nodes = (Node(NodeName("a0"), A, 1, 1),)
        snapshot = Snapshot(1e6, RoundInfo(True, 360.0), nodes, (late_job, *competitors))
        return late_job.id in get("hops+")(snapshot, PlanSettings(gap=0.0)).placements

    assert runs(1.01 * math.sqrt(n - 1))
    assert not runs(0.99 * math.sqrt(n - 1))


@pytest.mark.parametrize("rules", [Rules(exclusive=True), Rules(memory_mb_per_node=6400.0)])
def test_a_job_for_a_whole_server_waits_until_it_outweighs_all_jobs_there(rules: Rules) -> None:
    """64 jobs of one GPU each have to stop for it, so the bound's g is 64; 1 would be too few."""
    fast, slow = ThroughputTable({1: 9.0}), ThroughputTable({1: 1.0})
    nodes = (
        Node(NodeName("a0"), A, 64, 0, memory_mb=6400.0, idle_memory_mb=0.0),
        Node(NodeName("b0"), B, 1, 0, memory_mb=1600.0, idle_memory_mb=1500.0),
    )

    def server_job(
        name: int, samples: float, node: str, rules: Rules, **tables: ThroughputTable
    ) -> Job:
        return Job(
            JobId(str(name)), UserName("u"), submit=0.0, wait_seconds=1.0, reqs=(1,),
            throughput={GpuType(t): table for t, table in tables.items()}, samples=samples,
            running=Allocation.of({node: 1} if node else {}), run_seconds=100.0 if node else 0.0,
            rules=rules,
        )  # fmt: skip

    small = Rules(memory_mb_per_node=100.0)
    competitors = [server_job(k, 9_000.0, "a0", small, a=fast, b=slow) for k in range(64)]
    competitors.append(server_job(64, 1e7, "b0", small, b=slow))
    competitors += [server_job(k, 3_000.0, "", small, b=slow) for k in range(65, 125)]
    late_job = replace(
        server_job(125, 80_000.0, "", rules, a=ThroughputTable({1: 9.0, 2: 9.0})), reqs=(1, 2)
    )
    ratio = priorities([*competitors, late_job], nodes, PlanSettings(), 6000.0)
    competitors = [replace(job, wait_seconds=1.0 / ratio[job.id]) for job in competitors]  # R = 1
    mean = 65 / (64 / 9 + 1 / 1)  # of one GPU; shares are too small for any job to be behind: P = 0

    def runs(stop: int) -> bool:
        bound = math.sqrt(3.2 * stop * 126 * (9 / mean) ** 0.65 * (1.0 + 1.0))
        waiting = replace(late_job, wait_seconds=1.001 * bound / ratio[late_job.id])
        snapshot = Snapshot(6000.0, RoundInfo(True, 360.0), nodes, (*competitors, waiting))
        plan = get("hops+")(snapshot, PlanSettings(gap=0.0, time_limit_seconds=20.0))
        return late_job.id in plan.placements

    assert runs(64)
    assert not runs(1)


def simulate(
    policy: str,
    result_of: tuple[object, ...],
    round_seconds: float,
    plan: PlanSettings | None = None,
) -> PolicyResult:
    cluster, load = result_of
    settings_ = SimulationSettings(
        round_seconds, plan=plan or PlanSettings(), cluster=ClusterSettings(30.0)
    )
    return play(policy, get(policy), cluster, load, settings_)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_job_moves_to_a_faster_gpu_however_short_the_rounds() -> None:
    """Hours on a GPU four times as fast are worth 30 s; hops weighs them against one round only."""
    case = (
        cluster(a0=1, b0=1),
        workload([job(1, 4_000.0, 1), job(2, 40_000.0, 1, submit=1.0)], a=1.0, b=4.0),
    )
    with_moves = simulate("hops+", case, 31.0)
    without_moves = simulate("hops", case, 31.0)
    assert max(o.end or 0.0 for o in with_moves.outcomes) < 13_000.0
    assert max(o.end or 0.0 for o in without_moves.outcomes) > 30_000.0


def test_tail_weight_decides_between_the_last_and_the_shortest() -> None:
    """A job of one hour and a job of ten hours, which is the last to end, compete for one GPU."""
    jobs = [
        Job(
            JobId(name), UserName("u"), submit=0.0, wait_seconds=0.0, reqs=(1,),
            throughput={A: ThroughputTable({1: 1.0})}, samples=samples,
        )
        for name, samples in (("short", 3_600.0), ("last", 36_000.0))
    ]  # fmt: skip
    snapshot = Snapshot(0.0, RoundInfo(True, 60.0), (Node(NodeName("n0"), A, 1, 1),), tuple(jobs))
    for weight, winner in ((0.0, "short"), (10.0, "last")):
        plan = get("hops+")(snapshot, PlanSettings(tail_weight=weight))
        assert set(plan.placements) == {JobId(winner)}


@pytest.mark.long
@pytest.mark.slow
def test_the_mean_jct_of_rigid_jobs_is_within_two_percent_of_the_least() -> None:
    """The comparison is with shortest remaining time first, on equal GPUs."""
    ratios = []
    for seed in range(4):
        draw = Random(seed)
        jobs = [
            job(i, 60.0 * 10**lengths, draw.choice((1, 2, 4, 4, 8)), submit=150.0 * i)
            for i, lengths in enumerate(draw.uniform(0.5, 2.5) for _ in range(60))
        ]
        case = (cluster(a0=4, a1=4, a2=4, a3=4), workload(jobs, a=1.0))
        ours, srtf = (simulate(policy, case, 360.0).summary for policy in ("hops+", "srtf"))
        ratios.append(ours.avg_jct_h / srtf.avg_jct_h)
        assert ours.max_latency_ratio < 1.5 * srtf.max_latency_ratio
    assert math.prod(ratios) ** (1 / len(ratios)) < 1.02


@pytest.mark.slow
def test_equal_jobs_do_not_alternate() -> None:
    """Two jobs of an hour compete for one GPU; each swap costs 30 s and gains nothing."""
    case = cluster(a0=1), workload([job(1, 3600.0, 1), job(2, 3600.0, 1)])
    assert sum(o.restarts for o in simulate("hops", case, 60.0).outcomes) > 50
    assert sum(o.restarts for o in simulate("hops+", case, 60.0).outcomes) <= 10


def test_idle_gpus_that_nobody_else_wants_are_used() -> None:
    """Spreading makes each GPU slower than sigma allows, but the job as a whole faster."""
    case = cluster(a0=2, a1=2), workload([job(1, 4000.0, 2, 4)], spread=0.6)
    assert simulate("hops+", case, 60.0).outcomes[0].end == pytest.approx(4000 / 2.4)
    assert simulate("hops", case, 60.0).outcomes[0].end == pytest.approx(2000.0)


def test_a_preempted_job_that_is_nearly_done_ends_soon() -> None:
    """Its restart takes longer than its remaining work, but it must not wait forever."""
    nearly_finished = Job(
        JobId("1"), UserName("u"), submit=0.0, wait_seconds=3000.0, reqs=(1,),
        throughput={A: ThroughputTable({1: 1.0})}, samples=1000.0, samples_done=990.0,
        restart_seconds=300.0, run_seconds=990.0,
    )  # fmt: skip
    competitor = Job(
        JobId("2"), UserName("u"), submit=0.0, wait_seconds=0.0, reqs=(1,),
        throughput={A: ThroughputTable({1: 1.0})}, samples=9000.0,
    )  # fmt: skip
    nodes = (Node(NodeName("n0"), A, 1, 1),)
    snapshot = Snapshot(4000.0, RoundInfo(True, 60.0), nodes, (competitor, nearly_finished))
    assert set(get("hops+")(snapshot, PlanSettings()).placements) == {nearly_finished.id}


@pytest.mark.slow
def test_a_short_job_does_not_wait_for_a_long_one_to_end() -> None:
    """Both want the only GPU; the long job has 2.5 hours to go."""
    case = cluster(a0=1), workload([job(1, 9000.0, 1), job(2, 300.0, 1)])
    ends = {o.id: o.end or 0.0 for o in simulate("hops+", case, 60.0).outcomes}
    assert ends["2"] < 900.0
    assert ends["1"] < 9400.0


TABLES = {A: ThroughputTable({1: 1.0}, {2: 0.5})}


def job_with_rules(name: str, rules: Rules) -> Job:
    return Job(
        JobId(name), UserName("u"), submit=0.0, wait_seconds=10.0, reqs=(2,),
        throughput=TABLES, samples=1000.0, rules=rules,
    )  # fmt: skip


def test_equal_jobs_with_different_rules_are_planned_by_their_own_rules() -> None:
    jobs = job_with_rules("1", Rules(nodes=frozenset())), job_with_rules("2", Rules())
    nodes = (Node(NodeName("a0"), A, 2, 2),)
    snapshot = Snapshot(100.0, RoundInfo(True, 60.0), nodes, jobs)
    assert set(get("hops+")(snapshot, PlanSettings()).placements) == {JobId("2")}


def test_a_sensitive_job_is_spread_if_its_rules_allow_nothing_else() -> None:
    jobs = (job_with_rules("1", Rules(shape=ShapeRule.EVEN, cores_per_gpu=2.0)),)
    nodes = tuple(Node(NodeName(name), A, 2, 2, cores=2) for name in ("a0", "a1"))
    snapshot = Snapshot(100.0, RoundInfo(True, 60.0), nodes, jobs)
    placements = get("hops+")(snapshot, PlanSettings()).placements
    assert placements == {JobId("1"): Allocation.of({"a0": 1, "a1": 1})}


@settings(max_examples=40, deadline=None)
@given(
    idle=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    tasks=st.integers(1, 12),
    reqs=st.sampled_from([(1,), (2,), (3,), (1, 2), (2, 4), (1, 2, 4)]),
    first=st.booleans(),
    seed=st.integers(0, 99),
)
def test_tasks_of_an_array_start_in_the_order_of_their_numbers(
    idle: list[int], tasks: int, reqs: tuple[int, ...], first: bool, seed: int
) -> None:
    nodes = tuple(Node(NodeName(f"n{index}"), A, 4, gpus) for index, gpus in enumerate(idle))
    tables = {A: ThroughputTable({count: 100.0 * count**0.9 for count in reqs})}
    jobs = [
        Job(JobId(f"17_{number}"), UserName("u"), 0.0, 60.0, reqs, tables, age_seconds=3600.0)
        for number in range(tasks)
    ]
    Random(seed).shuffle(jobs)
    plan = get("hops+")(
        Snapshot(1000.0, RoundInfo(first=first, seconds=60.0), nodes, tuple(jobs)), PlanSettings()
    )
    task_numbers = sorted(int(job.partition("_")[2]) for job in plan.placements)
    assert task_numbers == list(range(len(task_numbers)))
