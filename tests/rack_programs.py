"""Small programs of rack-bound jobs short of cores and memory, with all sets of servers or few."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np

from bench.racks.instances import demanding_snapshot
from hopsd.core.placement import rack_sets
from hopsd.core.placement.generate import NO_MORE, generate
from hopsd.core.placement.listing import Sets
from hopsd.core.placement.program import Program, build
from hopsd.model.plan import PlanSettings
from hopsd.policies.hops.candidates import candidates
from hopsd.solver.bound.cuts import capacity_rows
from hopsd.solver.bound.dual_prices import Prices, prices_at


def program_of(seed: int, sets: Sets = NO_MORE) -> Program:
    """16 servers in leaves of four, two of which have a switch in common."""
    snapshot = demanding_snapshot(64, 0.8, seed, idle=0.8)
    nodes = tuple(
        replace(node, switches=(f"s{index // 8}", f"l{index // 4}"))
        for index, node in enumerate(snapshot.nodes)
    )
    jobs = tuple(
        replace(
            job,
            rules=replace(
                job.rules,
                spread_segments=index % 4 == 1,
                consolidate_segments=index % 4 == 2,
            ),
        )
        if job.rules.segment
        else job
        for index, job in enumerate(snapshot.jobs)
    )
    choice = candidates(replace(snapshot, nodes=nodes, jobs=jobs), PlanSettings())
    columns = generate(
        choice.jobs,
        choice.available,
        choice.sensitivity,
        sigma=1.4,
        keep_present=False,
        remaining_limits=choice.remaining_limits,
        sets=sets,
    )
    priorities = [choice.priority[job.id] for job in choice.jobs]
    return build(columns, priorities, 1.0, np.ones(len(choice.jobs)))


def random_prices(program: Program, seed: int) -> Prices:
    """Return random prices of about the worth of GPUs to the jobs."""
    rng, rows = np.random.default_rng(seed), capacity_rows(program)
    worth = float(program.weight.sum()) / program.idle.sum()
    return prices_at(program, rows, rng.uniform(0.0, 0.5 * worth, len(rows.limit)))


def program_with_few_sets(seed: int, sets: Sets = NO_MORE) -> Program:
    """:func:`program_of` with a selection of sets, and ``sets``."""
    with patch.object(rack_sets, "MAX_SETS", 0):
        return program_of(seed, sets)
