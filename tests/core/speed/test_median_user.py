"""The speeds of a workload that several users name are those of the median user."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from speed_values import NOW, A, process

from hopsd.core.speed.layers import by_workload, factors_by_shape, server_factors
from hopsd.core.speed.theory import alone, fit_users
from hopsd.model.ids import NodeName, UserName, WorkloadName
from hopsd.model.knowledge import ThroughputRecord

W = WorkloadName("shared")


def reports_of(
    user: str, rate: float, time: float = NOW - 50.0, count: int = 3
) -> list[ThroughputRecord]:
    return [
        ThroughputRecord(W, A, NodeName("n0"), 1, 1, rate, time + i, UserName(user))
        for i in range(count)
    ]


def speed_of_type(*records: ThroughputRecord) -> float:
    (layers,) = by_workload(records, 86400.0, NOW).values()
    return layers.type[A].answering(3).aggregated[1].per_gpu


@pytest.mark.parametrize("lie", [1e-6, 1e9])
def test_no_user_poisons_others_measurements_however_much_he_reports(lie: float) -> None:
    ann, bob, mallory = (
        reports_of("ann", 100.0),
        reports_of("bob", 110.0),
        reports_of("mallory", lie, count=500),
    )
    for order in permutations((ann, bob, mallory)):
        assert speed_of_type(*(record for records in order for record in records)) in (100.0, 110.0)


@pytest.mark.parametrize("lie", [1e-6, 1e9])
def test_the_first_of_two_users_is_believed(lie: float) -> None:
    ann, mallory = (
        reports_of("ann", 100.0, NOW - 90.0),
        reports_of("mallory", lie, NOW - 10.0, count=500),
    )
    assert speed_of_type(*ann, *mallory) == speed_of_type(*mallory, *ann) == pytest.approx(100.0)


def test_records_of_a_single_user_are_a_weighted_mean() -> None:
    assert speed_of_type(*reports_of("ann", 100.0), *reports_of("ann", 200.0)) == pytest.approx(
        150.0, rel=1e-3
    )


@pytest.mark.parametrize("lie", [1e-3, 1e3])
def test_basic_times_are_those_of_the_median_user(lie: float) -> None:
    honest = [
        replace(process(str(i), at=NOW - 90.0), user=UserName(name))
        for i, name in enumerate(("ann", "bob"))
    ]
    lies = [
        replace(process(str(i), at=NOW, t_f=lie), user=UserName("mallory")) for i in range(9, 40)
    ]
    theory, truth = fit_users([*lies, *honest], 86400.0), fit_users(honest, 86400.0)
    assert theory is not None
    assert truth is not None
    assert alone(theory) == pytest.approx(alone(truth))


def test_a_server_uses_the_user_with_enough_records_and_its_type_the_median() -> None:
    """For the type, the slower user's two reports are the median; for n0, the other's three."""
    bob = [
        replace(report, node=NodeName("n1"))
        for report in reports_of("bob", 90.0, NOW - 99.0, count=2)
    ]
    (layers,) = by_workload([*reports_of("ann", 100.0), *bob], 86400.0, NOW).values()
    assert server_factors(layers, 3) == {}
    assert factors_by_shape(layers, 3)[1, 1] == {"n0": pytest.approx(100.0 / 90.0)}
