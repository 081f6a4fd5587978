"""What workloads measured on several GPU types imply for workloads that were not."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_values import NODES, NOW, PAPER, RESNET, TYPES, A, B, theory

from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.type_speeds import MAX_RATIO, type_speeds, with_type_speeds
from hopsd.model.ids import GpuType, NodeName, UserName, WorkloadName
from hopsd.model.knowledge import Knowledge, Theory, ThroughputRecord

NODE_OF_TYPE = {gpu_type: node for node, gpu_type in TYPES.items()}


def runs(name: str, user: str, gpu_type: GpuType, speed: float) -> list[ThroughputRecord]:
    """Three reports of one GPU."""
    return [
        ThroughputRecord(
            WorkloadName(name),
            gpu_type,
            NodeName(NODE_OF_TYPE[gpu_type]),
            1,
            1,
            speed,
            NOW,
            UserName(user),
        )
        for _ in range(3)
    ]


def runs_on_both(
    name: str, user: str, ratio: float, speed: float = 100.0
) -> list[ThroughputRecord]:
    return [*runs(name, user, A, speed * ratio), *runs(name, user, B, speed)]


def ratio(knowledge: Knowledge, workload: str = "new", **settings: object) -> float:
    """How many times faster a workload is expected to be on type A than on B."""
    estimator_settings = EstimatorSettings(**settings)  # type: ignore[arg-type]
    compared_knowledge = with_type_speeds(knowledge, estimator_settings)
    tables = (
        Estimator(NODES, compared_knowledge, estimator_settings, NOW)
        .estimate(WorkloadName(workload))
        .tables
    )
    return tables[A].aggregated[1] / tables[B].aggregated[1]


def test_a_new_workload_is_expected_to_gain_as_others_do() -> None:
    knowledge = Knowledge(records=(*runs_on_both("u", "ann", 3.0), *runs_on_both("v", "bob", 3.0)))
    assert ratio(knowledge) == pytest.approx(3.0)
    assert ratio(Knowledge()) == pytest.approx(1.0)
    assert ratio(Knowledge(records=tuple(runs("u", "ann", A, 10.0)))) == pytest.approx(1.0)


def test_a_workload_measured_on_one_type_is_scaled_to_the_others() -> None:
    knowledge = Knowledge(records=(*runs_on_both("u", "ann", 3.0), *runs("new", "bob", B, 50.0)))
    tables = (
        Estimator(NODES, with_type_speeds(knowledge, EstimatorSettings()), EstimatorSettings(), NOW)
        .estimate(WorkloadName("new"))
        .tables
    )
    assert tables[B].aggregated[1] == pytest.approx(50.0)
    assert tables[A].aggregated[1] == pytest.approx(150.0)


def test_a_workloads_own_measurements_outweigh_those_of_others() -> None:
    knowledge = Knowledge(
        records=(*runs_on_both("u", "ann", 3.0), *runs_on_both("new", "bob", 1.5))
    )
    assert ratio(knowledge) == pytest.approx(1.5)


def test_basic_times_count_if_nothing_else_was_measured() -> None:
    slow = replace(theory(gpu_type=B), t_f=0.12, t_b=0.3, t_u=0.06, mu_cache=0.02)
    fits: tuple[Theory, ...] = (theory(), slow)
    assert type_speeds(Knowledge(theory=fits), [RESNET])[B] == pytest.approx(0.2, rel=0.1)


def test_paper_exact_compares_no_types() -> None:
    knowledge = Knowledge(records=tuple(runs_on_both("u", "ann", 3.0)))
    assert ratio(knowledge, model=PAPER) == pytest.approx(1.0)


@given(st.floats(1e-6, 1e6), st.lists(st.floats(2.0, 2.5), min_size=2, max_size=4))
def test_one_user_of_three_cannot_move_the_ratio_beyond_the_others(
    lie: float, honest: list[float]
) -> None:
    records = [r for n, x in enumerate(honest) for r in runs_on_both(f"w{n}", f"user{n}", x)]
    records += [r for n in range(9) for r in runs_on_both(f"lie{n}", "mallory", lie)]
    assert min(honest) * 0.999 <= ratio(Knowledge(records=tuple(records))) <= max(honest) * 1.001


@given(
    st.lists(
        st.tuples(
            st.sampled_from("uvw"), st.sampled_from("xyz"), st.sampled_from([A, B]),
            st.floats(1e-300, 1e300),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_a_type_has_a_usable_speed_whatever_is_reported(
    reports: list[tuple[str, str, GpuType, float]],
) -> None:
    records = [r for name, user, kind, speed in reports for r in runs(name, user, kind, speed)]
    knowledge = with_type_speeds(Knowledge(records=tuple(records)), EstimatorSettings())
    for speed in knowledge.type_speed.values():
        assert isfinite(speed)
        assert 1.0 / MAX_RATIO <= speed <= MAX_RATIO * 1.0001
    reversed_knowledge = Knowledge(records=tuple(reversed(records)))
    assert with_type_speeds(reversed_knowledge, EstimatorSettings()).type_speed == pytest.approx(
        knowledge.type_speed
    )
