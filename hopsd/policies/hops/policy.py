"""The Hops policy (section 3.6 of the paper): priorities, window, configurations, program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from hopsd.core.placement.configurations import Configurations
from hopsd.core.placement.fill import as_filled
from hopsd.core.placement.generate import generate
from hopsd.core.placement.listing import Sets
from hopsd.core.placement.program import Program, build
from hopsd.model.allocation import Allocation
from hopsd.model.arrays import Floats, Ints
from hopsd.model.ids import JobId
from hopsd.model.job import Job, Node, Shape, ThroughputTable
from hopsd.model.plan import JobNumbers, Plan, PlanSettings, RoundInfo, Snapshot
from hopsd.model.reason import Reason, ReasonCode
from hopsd.policies import reasons
from hopsd.policies.hops.candidates import Candidates, candidates
from hopsd.policies.hops.interchange import in_queue_order
from hopsd.solver.racks import solve_with_racks
from hopsd.solver.solution import Solution
from hopsd.solver.solve import solve

Worth = Callable[[Candidates, Configurations, RoundInfo, PlanSettings], Program]
"""Values the configurations of all candidates: returns the program to solve."""


def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:
    """Place the jobs of the service window on idle GPUs, maximising eq. 11.

    A first plan counts preemptible running jobs' GPUs as idle and lets those jobs compete; a later
    plan only starts waiting jobs. The function is pure except for the clock that bounds the solver.
    """
    return place(snapshot, settings, _eq11)


def place(
    snapshot: Snapshot,
    settings: PlanSettings,
    worth: Worth,
    reach: int = 1,
    *,
    slide: bool = False,
) -> Plan:
    """Plan as `plan` does, with the same rules and reasons, but maximise the sum of ``worth``.

    ``reach``: as in :func:`candidates`. ``slide``: as in :func:`generate`; also, among jobs that
    could swap their GPUs, the first in the queue gets the best.
    """
    clock = _Stages()
    plan_candidates = candidates(snapshot, settings, reach)
    clock.lap("window")
    generate_configurations = partial(
        generate,
        plan_candidates.jobs,
        plan_candidates.available,
        plan_candidates.sensitivity,
        sigma=settings.sigma,
        keep_present=snapshot.round.first and not settings.paper_exact,
        remaining_limits=plan_candidates.remaining_limits,
        slide=slide,
    )
    configurations = generate_configurations()
    clock.lap("configurations")
    listing = _Listing(
        plan_candidates, generate_configurations, worth, snapshot.round, settings, configurations
    )
    program = listing.program()
    clock.lap("model")
    seconds = settings.time_limit_seconds - clock.total()
    if configurations.families:
        program, solution = solve_with_racks(
            program,
            listing,
            settings.gap,
            seconds,
            seed=settings.seed,
            turns=settings.effort,
        )
    else:
        solution = solve(program, settings.gap, seconds, seed=settings.seed, turns=settings.effort)
    choice = without_needless_moves(program, solution.choice)
    if slide:
        choice = as_filled(program, in_queue_order(program, choice))
    solution = replace(solution, choice=choice)
    clock.lap("solve")
    return _plan(snapshot, plan_candidates, listing.configurations, program, solution, clock)


@dataclass(slots=True)
class _Listing:
    """Builds programs that also list given sets of servers; child processes get it pickled.

    ``configurations``: those of the program that was built last, with their speeds, which ``worth``
    may have replaced.
    """

    candidates: Candidates
    generate: Callable[..., Configurations]
    worth: Worth
    round: RoundInfo
    settings: PlanSettings
    configurations: Configurations

    def __call__(self, sets: Sets) -> Program:
        self.configurations = self.generate(sets=sets)
        return self.program()

    def program(self) -> Program:
        return self.worth(self.candidates, self.configurations, self.round, self.settings)


def _eq11(
    candidates: Candidates, configurations: Configurations, info: RoundInfo, settings: PlanSettings
) -> Program:
    return build(
        configurations,
        [candidates.priority[job.id] for job in candidates.jobs],
        settings.lam,
        _restart_shares(candidates.jobs, info, settings),
    )


def without_needless_moves(program: Program, choice: Ints) -> Ints:
    """Remove needless moves from ``choice`` (jobs,): even if no restart cost is known, a job stays
    where it is if its present column is worth as much and no other job got those GPUs.
    """
    present = program.configurations.present
    settled_choice = choice.copy()
    movers = np.flatnonzero((present >= 0) & (choice >= 0) & (choice != present))
    if not len(movers):
        return settled_choice
    free = program.capacity - program.usage(choice)
    for job in movers.tolist():
        present_column, new_column = present[job : job + 1], settled_choice[job : job + 1]
        if program.value[present_column[0]] < program.value[new_column[0]]:
            continue
        residual = free + program.usage(new_column) - program.usage(present_column)
        if np.all(residual >= 0):
            settled_choice[job], free = present_column[0], residual
    return settled_choice


class _Stages:
    """Measures the seconds that each stage of planning takes."""

    def __init__(self) -> None:
        self._start = self._last = perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        current_time = perf_counter()
        self.seconds[stage] = current_time - self._last
        self._last = current_time

    def total(self) -> float:
        return perf_counter() - self._start


def _restart_shares(jobs: Sequence[Job], info: RoundInfo, settings: PlanSettings) -> Floats:
    """Share of the round that remains for each job after a restart, (jobs,); 1 if not running."""
    shares = np.ones(len(jobs))
    if settings.paper_exact or info.seconds <= 0:
        return shares
    for i, job in enumerate(jobs):
        if job.running:
            shares[i] = max(0.0, (info.seconds - job.restart_seconds) / info.seconds)
    return shares


def _plan(
    snapshot: Snapshot,
    candidates: Candidates,
    configurations: Configurations,
    program: Program,
    solution: Solution,
    clock: _Stages,
) -> Plan:
    jobs, choice = candidates.jobs, solution.choice
    if not program.feasible(choice):
        raise AssertionError("the solver's choice was checked, but breaks a capacity or a limit")
    placements = {
        job.id: _allocation(configurations, int(column), snapshot.nodes)
        for job, column in zip(jobs, choice, strict=True)
        if column >= 0
    }
    objective = _objective(program, choice)
    bound = max(objective, program.unscale(solution.bound))
    waiting = {
        **candidates.waiting,
        **_waiting_reasons(candidates, placements, configurations, snapshot.nodes),
    }
    idle_left = int(candidates.available.gpus.sum()) - program.gpus(choice)
    has_queue = any(
        job.id not in placements and _may_run(candidates, job) for job in candidates.queue
    )
    clock.lap("check")
    clock.seconds["total"] = clock.total()
    return Plan(
        placements=placements,
        objective=objective,
        upper_bound=bound,
        gap=(bound - objective) / bound if bound > 0 else 0.0,
        status=solution.status,
        window=tuple(job.id for job in candidates.window),
        adjusted=tuple(job.id for job in candidates.adjusted_jobs),
        fragments=idle_left if has_queue else 0,
        seconds=clock.seconds,
        configurations=len(configurations),
        waiting=waiting,
        jobs=_numbers(candidates, configurations, program, choice, snapshot.nodes),
    )


def _may_run(candidates: Candidates, job: Job) -> bool:
    """Whether the job could use idle GPUs: no site limit excludes it, and an idle cluster could run
    it.
    """
    reason = candidates.waiting.get(job.id)
    return reason is None or reason.code not in (ReasonCode.LIMIT, ReasonCode.NO_CONFIGURATION)


def _objective(program: Program, choice: Ints) -> float:
    return program.unscale(program.scaled_objective(choice))


def _allocation(configurations: Configurations, column: int, nodes: Sequence[Node]) -> Allocation:
    parts = configurations.shapes.parts(int(configurations.shape[column]))
    return Allocation.of({nodes[server].name: gpus for server, gpus in parts})


def _waiting_reasons(
    candidates: Candidates,
    placements: Mapping[JobId, Allocation],
    configurations: Configurations,
    nodes: Sequence[Node],
) -> dict[JobId, Reason]:
    """Give the reason of each candidate without a placement."""
    idle = [*zip(nodes, candidates.available.gpus.tolist(), strict=True)]
    return {
        job.id: reasons.lost_to_others(job, count, candidates.priority[job.id], len(placements))
        if count
        else reasons.nothing_fits(job, idle)
        for job, count in zip(candidates.jobs, np.diff(configurations.start).tolist(), strict=True)
        if job.id not in placements
    }


def _numbers(
    candidates: Candidates,
    configurations: Configurations,
    program: Program,
    choice: Ints,
    nodes: Sequence[Node],
) -> dict[JobId, JobNumbers]:
    """Collect the figures of every job in the queue, with those of its placement if it has one."""
    column_of = {job.id: int(c) for job, c in zip(candidates.jobs, choice, strict=True) if c >= 0}
    numbers = {}
    for job in candidates.queue:
        column = column_of.get(job.id)
        gain = throughput = source = interval = None
        if column is not None:
            gain = float(program.gain(np.array([column]))[0])
            throughput = float(configurations.throughput[column])
            parts = configurations.shapes.parts(int(configurations.shape[column]))
            table = job.throughput[nodes[parts[0][0]].gpu_type]
            shape = sum(gpus for _, gpus in parts), len(parts)
            source = table.source_of(*shape)
            interval = _speed_range(table, shape, throughput)
        numbers[job.id] = JobNumbers(
            candidates.priority[job.id], candidates.rho[job.id], gain, throughput, source, interval
        )
    return numbers


def _speed_range(
    table: ThroughputTable, shape: Shape, throughput: float
) -> tuple[float, float] | None:
    """The 80 % interval of the job's throughput, scaled from the interval of its shape."""
    if table.by_shape is None:
        return None
    low, high = table.by_shape.interval(*shape)
    scale = throughput / table.by_shape.per_gpu(*shape)
    return scale * low, scale * high
