"""Bandwidths that nobody calibrated, inferred from other workloads' measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_values import NODES, NOW, RESNET, A, record, theory

from hopsd.core.speed.estimator import Estimator, EstimatorSettings
from hopsd.core.speed.inferred import implied_bandwidths, informative
from hopsd.core.speed.theory import basic_times
from hopsd.core.speed.throughput import (
    Communication,
    IterationModel,
    per_gpu,
    theory_per_gpu,
)
from hopsd.model.ids import NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Bandwidth, Knowledge, Theory, ThroughputRecord

OTHER_WORKLOAD = WorkloadName("other")
ANN, BOB, EVE = UserName("ann"), UserName("bob"), UserName("eve")
REAL = Bandwidth(A, 3e7, 4e6)


def link_records(
    fit: Theory, model: IterationModel, shape: tuple[int, int], user: UserName = ANN
) -> list[ThroughputRecord]:
    """Records of a run over the real links."""
    times = basic_times(fit, REAL)
    assert times is not None
    rate = theory_per_gpu(times, *shape, model)
    return [
        record(
            rate, shape[0], nodes=shape[1], workload=fit.workload, node=NodeName(node), user=user
        )
        for node in ("n0", "n1")[: shape[1]]
        for _ in range(3)
    ]


def with_implied(knowledge: Knowledge, model: IterationModel | None = None) -> Knowledge:
    settings = EstimatorSettings(model=model or IterationModel())
    bandwidths = implied_bandwidths(knowledge, informative(knowledge), settings, NOW)
    return replace(knowledge, implied=bandwidths)


def table(knowledge: Knowledge, model: IterationModel) -> ThroughputTable:
    knowledge, settings = with_implied(knowledge, model), EstimatorSettings(model=model)
    return Estimator(NODES, knowledge, settings, NOW).estimate(RESNET).tables[A]


@given(
    st.sampled_from([Communication.RING, Communication.SWITCHED, Communication.PAPER]),
    st.sampled_from([1e6, 2.5e6]),
    st.sampled_from([(2, 2), (4, 2), (16, 2)]),
)
def test_a_new_training_spreads_as_well_as_the_network_carries_others(
    form: Communication, params: float, shape: tuple[int, int]
) -> None:
    model = IterationModel(communication=form)
    other_theory, resnet_theory = theory(workload=OTHER_WORKLOAD, params=3e6), theory(params=params)
    knowledge = Knowledge(
        records=tuple(link_records(other_theory, model, shape)),
        theory=(resnet_theory, other_theory),
    )
    times = basic_times(resnet_theory, REAL)
    assert times is not None
    for spread_shape in ((2, 2), (8, 2)):
        speed = per_gpu(table(knowledge, model), *spread_shape)
        assert speed == pytest.approx(theory_per_gpu(times, *spread_shape, model), rel=0.02)


def test_links_within_a_server_say_nothing_about_the_network() -> None:
    model = IterationModel()
    other_theory = theory(workload=OTHER_WORKLOAD, params=3e6)
    knowledge = Knowledge(
        records=tuple(link_records(other_theory, model, (4, 1))), theory=(theory(), other_theory)
    )
    alone = Knowledge(theory=(theory(),))
    assert per_gpu(table(knowledge, model), 2, 2) == per_gpu(table(alone, model), 2, 2)
    assert table(knowledge, model).source_of(2, 2) == "assumed"


def test_estimates_name_the_source_of_the_bandwidth() -> None:
    model = IterationModel()
    other_theory = theory(workload=OTHER_WORKLOAD, params=3e6)
    knowledge = Knowledge(
        records=tuple(link_records(other_theory, model, (2, 2))), theory=(theory(), other_theory)
    )
    source = table(knowledge, model).source_of(2, 2)
    assert source == "theory, 4 records, bandwidth inferred"
    assert table(knowledge, model).source_of(1, 1) == "theory, 4 records"


def test_calibration_takes_precedence() -> None:
    model = IterationModel()
    other_theory = theory(workload=OTHER_WORKLOAD, params=3e6)
    calibrated = (Bandwidth(A, 1e9, 1e9),)
    knowledge = Knowledge(
        records=tuple(link_records(other_theory, model, (2, 2))), theory=(theory(), other_theory)
    )
    only_calibrated = Knowledge(theory=(theory(),), bandwidth=calibrated)
    estimate = table(replace(knowledge, bandwidth=calibrated), model)
    assert per_gpu(estimate, 2, 2) == per_gpu(table(only_calibrated, model), 2, 2)


def test_paper_exact_infers_nothing() -> None:
    model = IterationModel(paper_exact=True)
    other_theory = theory(workload=OTHER_WORKLOAD, params=3e6)
    knowledge = Knowledge(
        records=tuple(link_records(other_theory, model, (2, 2))), theory=(theory(), other_theory)
    )
    alone = Knowledge(theory=(theory(),))
    assert per_gpu(table(knowledge, model), 2, 2) == per_gpu(table(alone, model), 2, 2)


def test_many_lies_of_one_user_are_one_vote() -> None:
    model = IterationModel()
    honest = [theory(workload=WorkloadName(user), params=3e6) for user in (ANN, BOB)]
    lies = [theory(workload=WorkloadName(f"lie{i}"), params=3e12) for i in range(20)]
    records = [
        *(r for fit in honest for r in link_records(fit, model, (2, 2), UserName(fit.workload))),
        *(replace(r, workload=fit.workload, user=EVE)
          for fit in lies for r in link_records(honest[0], model, (2, 2))),
    ]  # fmt: skip
    knowledge = Knowledge(records=tuple(records), theory=(*honest, *lies))
    (bandwidth,) = with_implied(knowledge, model).implied
    assert bandwidth.b_net == pytest.approx(REAL.b_net, rel=0.02)


def test_shapes_of_another_batch_imply_nothing() -> None:
    """A program that divides 64 samples among its GPUs has 8 on each of 8."""
    model = IterationModel()
    other_theory = theory(workload=OTHER_WORKLOAD, batch_size=64.0, params=3e6)
    for batch, implied_count in ((64.0, 1), (0.0, 1), (8.0, 0)):
        batch_records = [replace(r, batch=batch) for r in link_records(other_theory, model, (8, 2))]
        assert (
            len(
                with_implied(
                    Knowledge(records=tuple(batch_records), theory=(other_theory,)), model
                ).implied
            )
            == implied_count
        )


def test_speeds_that_no_bandwidth_explains_imply_none() -> None:
    """Examples: as fast on two servers as on one, slower than any network, or out of bounds."""
    model = IterationModel(communication=Communication.SWITCHED)
    for rate in (100.0, 99.5, 5000.0, 1e-3, 1e-12, 1e300):
        records = tuple(record(rate, 2, nodes=2) for _ in range(3))
        assert with_implied(Knowledge(records=records, theory=(theory(),)), model).implied == ()
