"""The profiling queue with clusters in memory: which jobs run where, and what it leaves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopsd.config import parse as parse_config
from hopsd.core.queue.competing import idle_gpus
from hopsd.core.queue.profile_runs import Pair, ProfilingSettings, unstarted_runs
from hopsd.core.queue.profiling import LEAVE_SECONDS, ClusterView, Profiling, known_pairs, profiling
from hopsd.core.submission.comment import Comment, parse
from hopsd.model.allocation import Allocation
from hopsd.model.devices import CPU, usable
from hopsd.model.history import JobRecord, ProfileRun
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import Job, JobState, Node, ThroughputTable
from hopsd.model.knowledge import Knowledge, Shortage, ThroughputRecord
from hopsd.model.plan import Plan, RoundInfo, Snapshot
from hopsd.model.reading import Hold, JobReading, NodeReading, Reading, SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.rules import Limit, Rules, ShapeRule
from hopsd.model.script_options import ScriptOptions
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.round.settings import round_settings

A, V = GpuType("a100"), GpuType("v100")
NOW = 1000.0
PROFILING = ProfilingSettings(enabled=True)
TABLE = ThroughputTable({1: 1.0}, {2: 0.7})
ANN = UserName("ann")
NODES = (
    Node(NodeName("n0"), A, 4, 4),
    Node(NodeName("n1"), A, 2, 1),
    Node(NodeName("n2"), V, 2, 2),
)


class World:
    """A snapshot and the reading that it is built from, changed job by job."""

    def __init__(self, nodes: tuple[Node, ...] = NODES, *, first: bool = True) -> None:
        self.nodes, self.first = nodes, first
        self.jobs: list[Job] = []
        self.readings: dict[JobId, JobReading] = {}
        self.comments: dict[JobId, Comment] = {}
        self.records: dict[JobId, JobRecord] = {}

    def add(
        self, number: int, workload: str, *reqs: int, suffix: str = "", **reading: object
    ) -> JobId:
        name = JobId(str(number))
        comment = f"hops:reqs={','.join(map(str, reqs or (1, 2)))};workload={workload}{suffix}"
        self.readings[name] = replace(
            JobReading(name, ANN, 1, "x", comment, "p", SlurmState.PENDING, 1.0, Hold.HOPS),
            **reading,  # type: ignore[arg-type]
        )
        running = self.readings[name].allocation
        self.comments[name] = parse(comment)
        self.records[name] = JobRecord(
            name, ANN, "x", comment, WorkloadName(workload), float(number), NOW,
            self.readings[name].state,
        )  # fmt: skip
        if not self.readings[name].state.finished:
            tables = usable({A: TABLE, V: TABLE, CPU: TABLE}, cpu=self.comments[name].cpu)
            self.jobs.append(
                Job(name, ANN, float(number), 0.0, reqs or (1, 2), tables, running=running)
            )
        return name

    def look(
        self,
        *runs: ProfileRun,
        known_pairs: set[Pair] | None = None,
        now: float = NOW,
        settings: ProfilingSettings = PROFILING,
        head: JobId | None = None,
        limits: tuple[Limit, ...] = (),
        shortages: Sequence[Shortage] = (),
    ) -> Profiling:
        nodes = tuple(NodeReading(n.name, n.gpu_type, n.gpus, 8) for n in self.nodes)
        return profiling(
            Snapshot(now, RoundInfo(self.first, 60.0), self.nodes, tuple(self.jobs), limits),
            ClusterView(
                Reading(now, nodes, tuple(self.readings.values())), self.records, self.comments
            ),
            runs,
            known_pairs or set(),
            settings,
            sorted(self.jobs, key=lambda job: (job.id != head, job.submit)) if head else (),
            shortages,
        )


def starts(profiling: Profiling) -> dict[str, str]:
    return {s.job: s.target.nodes[0] for s in profiling.steps if s.kind is StepKind.START}


def run(job: str, workload: str = "w", gpu_type: GpuType = A, **fields: object) -> ProfileRun:
    node = NodeName("n0" if gpu_type == A else "n2")
    profile_run = ProfileRun(JobId(job), 0, WorkloadName(workload), gpu_type, node, NOW - 30.0)
    return replace(profile_run, **fields)  # type: ignore[arg-type]


def on_gpu(node: str, **fields: object) -> dict[str, object]:
    return {
        "state": SlurmState.RUNNING,
        "allocation": Allocation.of({node: 1}),
        "marks": "#hops-profile=20",
        "start": NOW - 30.0,
        "hold": Hold.NONE,
    } | fields


def test_a_run_that_reported_its_program_is_known_by_it() -> None:
    world = World()
    job, trained_name = world.add(1, "w", **on_gpu("n0")), WorkloadName("w+0123456789ab")
    world.records[job] = replace(world.records[job], workload=trained_name)
    (update,) = world.look(run("1"), known_pairs={(trained_name, A)}).updates
    assert (update.workload, update.end) == (trained_name, NOW)


def test_types_are_measured_in_parallel_by_the_oldest_jobs_of_a_workload() -> None:
    world = World()
    for number in (3, 1, 2):
        world.add(number, "w")
    world.add(4, "x")
    profiling = world.look()
    assert starts(profiling) == {"1": "n1", "2": "n2", "4": "n0"}
    assert [s.iterations for s in profiling.steps] == [20, 20, 20]
    assert [(r.job, r.workload, r.gpu_type) for r in profiling.updates] == [
        ("1", "w", A), ("2", "w", V), ("4", "x", A),
    ]  # fmt: skip
    states = {job.id: job.state for job in profiling.snapshot.jobs}
    assert states == {
        "1": JobState.PROFILING, "2": JobState.PROFILING, "3": JobState.WAITING,
        "4": JobState.PROFILING,
    }  # fmt: skip
    assert [node.idle for node in profiling.snapshot.nodes] == [3, 0, 1]


def test_a_measuring_run_keeps_the_rules_of_its_job_except_the_shape() -> None:
    narrow = replace(NODES[0], cores=8, idle_cores=7, memory_mb=1000.0)
    world = World((narrow, *NODES[1:]))
    for number, workload in ((1, "w"), (2, "x"), (3, "y")):
        world.add(number, workload, 1, 2, 4)
    allowed_nodes = frozenset({NodeName("n0")})
    rules = Rules(nodes=allowed_nodes, shape=ShapeRule.EVEN, per_node=2, cores_per_gpu=4.0)
    larger_rules = replace(rules, cores_per_gpu=3.0, memory_mb_per_node=600.0)
    alone = replace(rules, nodes=None, exclusive=True)
    world.jobs = [
        replace(job, rules=job_rules)
        for job, job_rules in zip(world.jobs, (rules, larger_rules, alone), strict=True)
    ]
    profiling = world.look()
    assert starts(profiling) == {"1": "n0", "2": "n0", "3": "n2"}
    assert profiling.snapshot.nodes[0].idle_cores == 0
    assert profiling.snapshot.nodes[0].idle_memory_mb == 400.0
    world.jobs[1] = replace(world.jobs[1], rules=replace(larger_rules, cores_per_gpu=4.0))
    assert starts(world.look()) == {"1": "n0", "3": "n2"}


def test_nothing_changes_if_profiling_is_off_or_all_is_measured() -> None:
    world = World()
    world.add(1, "w")
    without_settings = world.look(settings=ProfilingSettings())
    all_known = world.look(known_pairs={(WorkloadName("w"), A), (WorkloadName("w"), V)})
    for result in (without_settings, all_known):
        assert result == Profiling(result.snapshot)
        assert result.snapshot.jobs == tuple(world.jobs)
        assert result.snapshot.nodes == world.nodes


def test_fixed_unrequeueable_running_and_held_jobs_are_not_profiled() -> None:
    world = World()
    world.add(1, "fixed", suffix=";preempt=no")
    world.add(2, "once", requeue=False)
    world.add(3, "runs", **on_gpu("n1", marks=""))
    world.add(4, "held")
    world.jobs[-1] = replace(world.jobs[-1], state=JobState.HELD)
    world.add(5, "huge", 64)
    world.add(6, "first", is_awaited=True)
    world.add(7, "urgent", deadline=1e9)
    assert starts(world.look()) == {}


def test_the_reason_why_a_job_is_not_measured_is_given() -> None:
    world = World()
    world.add(1, "pinned", suffix=";preempt=no")
    world.add(2, "once", requeue=False)
    world.add(3, "first", is_awaited=True)
    world.add(4, "ranks", options=ScriptOptions(ranks=8))
    world.add(5, "measured", suffix=";preempt=no")
    world.add(6, "able")
    world.add(7, "runs", **on_gpu("n1", marks=""))
    known_pairs = {(WorkloadName("measured"), A)}
    reasons = world.look(known_pairs=known_pairs).unmeasurable
    assert {job: text.partition(": ")[2] for job, text in reasons.items()} == {
        "1": "preempt=no forbids stopping it",
        "2": "--no-requeue forbids starting it again",
        "3": "jobs outside hops depend on it",
        "4": "its script starts 8 ranks on each node, and the run has one GPU",
    }
    assert world.look(settings=ProfilingSettings()).unmeasurable == {}


def test_measured_pairs_and_operators_tables_need_no_run() -> None:
    w = WorkloadName("w")
    record = ThroughputRecord(w, A, NodeName("n0"), 1, 1, 100.0, NOW)
    spread = replace(record, gpu_type=V, nodes=2, gpus=2)
    knowledge = Knowledge(tables={WorkloadName("t"): {A: TABLE}}, records=(record, spread))
    tables = {("t", A), ("t", V)}
    assert known_pairs(knowledge, [A, V], 1) == {(w, A), *tables}
    assert known_pairs(knowledge, [A, V], 2) == tables


def test_a_run_continues_until_it_has_measured_and_left() -> None:
    world = World()
    world.add(1, "w", **on_gpu("n0"))
    in_progress = world.look(run("1"))
    assert (in_progress.steps, in_progress.updates, in_progress.staying) == ((), (), {"1"})
    known_pairs = {(WorkloadName("w"), A)}
    profile = world.look(run("1"), known_pairs=known_pairs)
    assert profile.updates == (run("1", end=NOW),)
    assert profile.staying == {"1"}
    past_deadline = NOW + LEAVE_SECONDS
    after_deadline = world.look(run("1", end=NOW), known_pairs=known_pairs, now=past_deadline)
    assert [(s.kind, s.current, s.profiling) for s in after_deadline.steps] == [
        (StepKind.PREEMPT, Allocation.of({"n0": 1}), True)
    ]
    world = World()
    world.add(1, "w", restarts=1, marks="#hops-profile=20")
    after_leaving = world.look(run("1"), known_pairs=known_pairs)
    assert after_leaving.updates[0] == run("1", end=NOW, closed=True)
    assert starts(after_leaving) == {"1": "n2"}, "the next type"


def test_a_run_over_its_time_is_ended_with_a_reason() -> None:
    world = World()
    world.add(1, "w", **on_gpu("n0", start=NOW - 200.0))
    profiling = world.look(run("1", begin=NOW - 201.0))
    assert [s.kind for s in profiling.steps] == [StepKind.PREEMPT]
    assert "after 120 s" in profiling.updates[0].failure


def test_the_launcher_of_the_script_is_named() -> None:
    world = World()
    docker = ScriptOptions(starts=frozenset({"docker"}))
    world.add(1, "w", options=docker, **on_gpu("n0", start=NOW - 200.0))
    profiling = world.look(run("1", begin=NOW - 201.0))
    assert "starts Python with docker" in profiling.updates[0].failure


def test_a_type_with_too_little_memory_is_named() -> None:
    world = World()
    world.add(1, "w", state=SlurmState.FAILED, exit_code=1, marks="#hops-profile=20")
    short = Shortage(ANN, WorkloadName("w"), A, 1, NOW - 5.0)
    profiling = world.look(run("1", begin=NOW - 20.0), shortages=[short])
    assert profiling.updates[0].failure == "it ran out of the memory of one a100"
    without_shortage = world.look(run("1", begin=NOW - 1.0), shortages=[short])
    assert "exit code 1" in without_shortage.updates[0].failure
    assert not profiling.updates[0].closed


def test_a_run_without_figures_waits_one_reading_for_its_report_then_fails() -> None:
    world = World()
    world.add(1, "w", restarts=1, marks="#hops-profile=20")
    world.add(2, "w")
    first = world.look(run("1"))
    assert first.updates[0].end == NOW
    assert not first.updates[0].closed
    assert starts(first) == {"2": "n2"}
    second = world.look(first.updates[0], now=NOW + 5.0)
    assert second.updates[0].closed
    waiting = {JobId("1"): Reason(ReasonCode.LOST_TO_OTHERS, "lost")}
    assert second.explain(waiting)[JobId("1")].text == (
        "lost; its profile run on a100 (n0) failed: it ended before it had measured enough"
    )
    assert starts(second) == {"2": "n2"}, "neither job 1 again, nor w on a100"
    assert starts(world.look(second.updates[0], now=NOW + 86400.0)) == {"1": "n1", "2": "n2"}


def test_a_job_that_failed_on_its_single_gpu_goes_back_to_the_queue() -> None:
    world = World()
    failed_run = on_gpu("n0", state=SlurmState.FAILED, allocation=Allocation(), exit_code=3)
    world.add(1, "w", **failed_run)
    world.add(2, "w", **(failed_run | {"state": SlurmState.CANCELLED}))
    profiling = world.look(run("1"))
    assert [(s.job, s.kind) for s in profiling.steps] == [("1", StepKind.REQUEUE)]
    assert "exit code 3" in profiling.updates[0].failure


def test_a_run_that_never_began_or_whose_node_is_gone_is_not_the_jobs_fault() -> None:
    world = World()
    world.add(1, "w")
    profiling = world.look(run("1"))
    assert profiling.updates[0] == run("1", end=NOW - 30.0, closed=True)
    assert starts(profiling) == {"1": "n1"}
    smaller_world = World(NODES[1:])
    smaller_world.add(1, "w", restarts=1)
    assert smaller_world.look(run("1")).updates[0].failure == ""


def test_a_job_whose_run_slurm_would_not_start_competes_without_figures() -> None:
    world = World()
    world.add(1, "w")
    profiling = world.look()
    (step,) = profiling.steps
    (closed_run,) = unstarted_runs(
        profiling.updates, [StepOutcome(step, OutcomeStatus.FAILED, error="busy")]
    )
    assert closed_run.failure == "it could not start: busy"
    assert not closed_run.ran
    world.add(2, "w")
    assert starts(world.look(closed_run, now=NOW + 1.0)) == {"2": "n1"}


def test_a_run_that_slurm_has_but_the_store_lost_is_followed() -> None:
    world = World()
    world.add(1, "w", **on_gpu("n2"))
    profiling = world.look(settings=ProfilingSettings())
    assert [(r.gpu_type, r.begin) for r in profiling.updates] == [(V, NOW - 30.0)]
    assert profiling.staying == {"1"}


def test_a_policy_that_does_not_preempt_keeps_its_gpus() -> None:
    full = (Node(NodeName("n0"), A, 1, 0),)
    world = World(full)
    holder = world.add(1, "old", 1, **on_gpu("n0", marks=""))
    world.add(2, "new", 1)
    profile = world.look()
    assert starts(profile) == {"2": "n0"}, "at a round's start profile runs come first"
    assert idle_gpus(profile.snapshot) == [0]
    assert profile.compatible_with(Plan({})) == profile
    empty_profile = profile.compatible_with(Plan({holder: Allocation.of({"n0": 1})}))
    assert (empty_profile.steps, empty_profile.updates) == ((), ())
    later = World(full, first=False)
    later.add(1, "old", 1, **on_gpu("n0", marks=""))
    later.add(2, "new", 1)
    assert starts(later.look()) == {}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, set[Pair], list[ProfileRun]]:
    nodes = tuple(
        Node(NodeName(f"n{i}"), draw(st.sampled_from([A, V, CPU])), 4, draw(st.integers(0, 4)))
        for i in range(draw(st.integers(1, 4)))
    )
    world = World(nodes, first=draw(st.booleans()))
    room = {node.name: node.gpus - node.idle for node in nodes}
    for number in range(draw(st.integers(0, 8))):
        workload = draw(st.sampled_from("uvw"))
        node = draw(st.sampled_from(nodes)).name
        if draw(st.booleans()) and room[node] > 0:
            room[node] -= 1
            mark = draw(st.sampled_from(["", "#hops-profile"]))
            world.add(number, workload, **on_gpu(node, marks=mark))
        else:
            options = draw(st.sampled_from(["", ";cpu=yes"]))
            world.add(number, workload, suffix=options, restarts=draw(st.integers(0, 1)))
    pairs = st.tuples(st.sampled_from("uvw").map(WorkloadName), st.sampled_from([A, V]))
    runs = [
        run(str(number), workload, gpu_type, closed=draw(st.booleans()),
            end=draw(st.sampled_from([None, NOW - 5.0])), failure=draw(st.sampled_from(["", "x"])))
        for number, (workload, gpu_type) in enumerate(draw(st.lists(pairs, max_size=3)))
    ]  # fmt: skip
    return world, draw(st.sets(pairs, max_size=3)), runs


@pytest.mark.long
@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(worlds(), st.randoms(use_true_random=False))
def test_no_gpu_is_given_twice_whatever_waits_in_any_order(
    case: tuple[World, set[Pair], list[ProfileRun]], rng: random.Random
) -> None:
    world, known_pairs, runs = case
    profiling = world.look(*runs, known_pairs=known_pairs)
    starts_of_runs = [s for s in profiling.steps if s.kind is StepKind.START]
    assert all(s.target.gpus == 1 for s in starts_of_runs)
    assert max(Counter(s.job for s in profiling.steps).values(), default=0) <= 1
    assert all(idle >= 0 for idle in idle_gpus(profiling.snapshot))
    original = Snapshot(NOW, RoundInfo(world.first, 60.0), world.nodes, tuple(world.jobs))
    runs_on_node = Counter(s.target.nodes[0] for s in starts_of_runs)
    for node, could in zip(world.nodes, idle_gpus(original), strict=True):
        assert runs_on_node[node.name] <= (could if world.first else node.idle)
    type_of = {node.name: node.gpu_type for node in world.nodes}
    on_cpus = {s.job for s in starts_of_runs if type_of[s.target.nodes[0]] == CPU}
    assert all(world.comments[job].cpu for job in on_cpus)
    pairs = Counter(
        (world.records[s.job].workload, type_of[s.target.nodes[0]]) for s in starts_of_runs
    )
    open_pairs = {
        (r.workload, r.gpu_type) for r in profiling.updates if not r.closed and r.begin < NOW
    }
    assert max(pairs.values(), default=0) <= 1
    assert not pairs.keys() & (known_pairs | open_pairs)

    shuffled_world = World(world.nodes, first=world.first)
    shuffled_world.comments, shuffled_world.records = world.comments, world.records
    shuffled_world.jobs = rng.sample(world.jobs, len(world.jobs))
    order = rng.sample(list(world.readings.items()), len(world.readings))
    shuffled_world.readings = dict(order)
    second_profiling = shuffled_world.look(*rng.sample(runs, len(runs)), known_pairs=known_pairs)
    assert (second_profiling.steps, second_profiling.updates, second_profiling.staying) == (
        profiling.steps,
        profiling.updates,
        profiling.staying,
    )


def test_a_step_names_the_purpose_of_its_run() -> None:
    world = World()
    world.add(1, "w")
    assert world.look().steps == (
        Step(
            JobId("1"),
            StepKind.START,
            target=Allocation.of({"n1": 1}),
            profiling=True,
            iterations=20,
        ),
    )


def test_a_shadow_profiles_no_job() -> None:
    assert round_settings(parse_config("")).profiling.enabled
    assert not round_settings(parse_config('[slurm]\nport = "shadow"')).profiling.enabled
    assert not round_settings(parse_config("[profiling]\nenabled = false")).profiling.enabled


BIG = (
    Node(NodeName("n0"), A, 16, 16),
    Node(NodeName("n1"), A, 4, 4),
    Node(NodeName("n2"), V, 8, 8),
)


def test_runs_take_at_most_their_share_of_a_type_but_at_least_one_gpu() -> None:
    world = World(BIG)
    for number in range(1, 41):
        world.add(number, f"new{number}")
    profiling = world.look(settings=replace(PROFILING, share=0.1))
    assert Counter(run.gpu_type for run in profiling.updates) == {A: 2, V: 1}
    later = World(BIG)
    holder = later.add(1, "new1", **on_gpu("n0"))
    for number in range(2, 41):
        later.add(number, f"new{number}")
    profiling = later.look(run("1", "new1"), settings=replace(PROFILING, share=0.1))
    assert Counter(r.gpu_type for r in profiling.updates if r.job != holder) == {A: 1, V: 1}


def test_a_user_has_few_runs_at_a_time_and_leaves_room_for_others() -> None:
    world = World(BIG)
    for number in range(1, 21):
        world.add(number, f"new{number}")
    bob = world.add(30, "bobs")
    world.records[bob] = replace(world.records[bob], user=UserName("bob"))
    profiling = world.look(settings=replace(PROFILING, runs_per_user=3))
    assert Counter(world.records[run.job].user for run in profiling.updates) == {"ann": 3, "bob": 1}


def test_forty_new_workloads_leave_the_head_of_the_queue_its_gpus() -> None:
    """This holds both if those GPUs are free now and if the head waits for them."""
    for idle in (4, 1):
        world = World((Node(NodeName("n0"), A, 4, idle), Node(NodeName("n1"), A, 2, 2)))
        for number in range(1, 41):
            world.add(number, f"new{number}")
        head = world.add(50, "known", 4)
        profiling = world.look(known_pairs={(WorkloadName("known"), A)}, head=head)
        assert set(starts(profiling).values()) == {"n1"}
        assert profiling.snapshot.nodes[0].idle == idle


def test_the_heads_own_run_is_not_delayed_by_its_reservation() -> None:
    world = World((Node(NodeName("n0"), A, 4, 4),))
    head, newer_job = world.add(1, "new", 1, 4), world.add(2, "newer", 1)
    assert set(starts(world.look(head=head))) == {head, newer_job}
    alone = World((Node(NodeName("n0"), A, 1, 1),))
    alone.add(2, "newer", 1)
    head = alone.add(5, "new", 1)
    assert list(starts(alone.look(head=head))) == [head]


def test_runs_obey_site_limits_and_reserve_nothing_for_a_head_over_a_limit() -> None:
    world = World((Node(NodeName("n0"), A, 4, 4),))
    new_jobs = frozenset(world.add(number, f"new{number}") for number in range(1, 5))
    profiling = world.look(limits=(Limit("QOS small", new_jobs, gpus=2),))
    assert len(starts(profiling)) == 2
    minutes = Limit("QOS short", new_jobs, gpus=100, per_gpu=dict.fromkeys(new_jobs, 60))
    assert len(starts(world.look(limits=(minutes,)))) == 1
    head = world.add(9, "known", 4)
    spent_limit = Limit("QOS spent", frozenset({head}), gpus=2)
    known_pairs = {(WorkloadName("known"), A)}
    assert starts(world.look(known_pairs=known_pairs, head=head)) == {}
    assert (
        starts(world.look(known_pairs=known_pairs, head=head, limits=(spent_limit,))).keys()
        == new_jobs
    )


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        ("submits", "submits jobs"),
        ("requeues", "requeues itself"),
        ("counts", "reads SLURM_RESTART_COUNT"),
        ("refuses", "fails at a second start"),
    ],
)
def test_a_script_with_repeatable_side_effects_is_not_measured(effect: str, words: str) -> None:
    """Regression: a job that submits its successor submitted one at each start."""
    world = World()
    world.add(1, "w", options=ScriptOptions(repeats=frozenset({effect})))
    world.add(2, "x", options=ScriptOptions())
    profiling = world.look()
    assert starts(profiling).keys() == {"2"}
    assert words in profiling.unmeasurable["1"]


def test_a_script_that_always_starts_several_ranks_is_not_measured_on_one_gpu() -> None:
    world = World()
    world.add(1, "w", options=ScriptOptions(ranks=8))
    world.add(2, "x", options=ScriptOptions(ranks=1))
    assert starts(world.look()).keys() == {"2"}


@pytest.mark.parametrize(("new_workloads", "asks"), [(False, False), (False, True), (True, False)])
def test_only_jobs_that_ask_are_measured_unless_the_site_decides_otherwise(
    new_workloads: bool, asks: bool
) -> None:
    world = World()
    job = world.add(1, "w", suffix=";profile=yes" if asks else "")
    settings = ProfilingSettings(enabled=True, new_workloads=new_workloads)
    assert list(starts(world.look(settings=settings))) == ([job] if asks or new_workloads else [])
    assert world.look(settings=settings).unmeasurable == {}


def test_a_job_that_needs_several_gpus_is_never_measured_on_one() -> None:
    world = World()
    job = world.add(1, "w", 2, 4, suffix=";profile=yes")
    profiling = world.look(settings=PROFILING)
    assert starts(profiling) == {}
    assert "2 GPUs or more" in profiling.unmeasurable[job]
