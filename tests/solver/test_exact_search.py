"""Which programs are too large for the exact search."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import snapshot
from programs import program_of

from hopsd.core.placement.program import Program
from hopsd.solver.exact import solve_exactly


def _steps(program: Program) -> int:
    """Return the columns tried: each job's, for each vector of free GPUs left by earlier jobs."""
    columns = program.configurations
    states = {tuple(program.capacity.tolist())}
    steps = 0
    for first, last in pairwise(columns.start.tolist()):
        steps += len(states) * (last - first)
        reached_states = set(states)
        for state in states:
            for column in range(first, last):
                free_gpus = list(state)
                for server, gpus in columns.shapes.parts(int(columns.shape[column])):
                    free_gpus[server] -= gpus
                if min(free_gpus) >= 0:
                    reached_states.add(tuple(free_gpus))
        states = reached_states
    return steps


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), limit=st.integers(1, 4_000))
def test_the_search_gives_up_exactly_on_programs_with_too_many_steps(seed: int, limit: int) -> None:
    program = program_of(snapshot(seed, servers=4, jobs=4))
    whole = solve_exactly(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hopsd.solver.exact._MAX_STEPS", limit)
        solution = solve_exactly(program)
    alone = np.count_nonzero(np.diff(program.configurations.start)) == 1
    if _steps(program) > limit and not alone:
        assert solution is None
    else:
        assert solution is not None
        assert whole is not None
        assert solution.tolist() == whole.tolist()


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), servers=st.integers(1, 12))
def test_a_single_job_is_placed_as_by_the_search(seed: int, servers: int) -> None:
    program = program_of(snapshot(seed, servers=servers, jobs=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hopsd.solver.exact._alone", lambda _: None)
        exact_choice = solve_exactly(program)
    solution = solve_exactly(program)
    assert exact_choice is not None
    assert solution is not None
    assert solution.tolist() == exact_choice.tolist()
