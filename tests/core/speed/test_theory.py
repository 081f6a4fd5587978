"""Basic times from the measurements of processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_values import NOW, A, process, theory

from hopsd.core.speed.mixture import bin_centers
from hopsd.core.speed.theory import alone, basic_times, fit_theory
from hopsd.model.knowledge import Bandwidth, PhaseRecord, Theory

DAY = 86400.0


def theory_of(*records: PhaseRecord, half_life: float = 7 * DAY) -> Theory:
    theory = fit_theory(records, half_life)
    assert theory is not None
    return theory


def test_one_process_gives_all_basic_times() -> None:
    theory = theory_of(process())
    assert (theory.t_f, theory.t_b, theory.t_u) == pytest.approx((0.02, 0.05, 0.01))
    assert (theory.p_cache, theory.mu_cache) == pytest.approx((1.0, 0.016))
    assert (theory.records, theory.iterations, theory.params) == (1, 100, 1e6)
    assert (theory.w_cache, theory.w_load) == (0.0, 0.0)


def test_data_times_are_stretched_to_their_exact_mean() -> None:
    exact = 100 * float(bin_centers([100])[0]) * 1.04
    assert theory_of(process(data_seconds=exact)).mu_cache == pytest.approx(exact / 100)


def test_compute_times_come_from_processes_that_ran_alone() -> None:
    theory = theory_of(process("1"), process("2", world=4, t_b=0.09, t_w=0.01, iterations=10_000,
                                         data_bins={100: 10_000}, data_seconds=160.0,
                                         backward_by_data={100: 1000.0}))  # fmt: skip
    assert theory.t_b == pytest.approx(0.05)
    assert theory.w_cache == pytest.approx(0.01)
    assert theory.iterations == 10_100


def test_compute_times_come_from_the_smallest_run_if_none_ran_alone() -> None:
    theory = theory_of(process("1", world=2, t_b=0.06), process("2", world=4, t_b=0.09))
    assert theory.t_b == pytest.approx(0.06)


def test_waits_are_separated_by_the_source_of_the_data() -> None:
    two_modes: dict[str, Any] = {"data_bins": {80: 60, 120: 40}, "data_seconds": 8.0}
    theory = theory_of(
        process("1", **two_modes, backward_by_data={80: 3.0, 120: 2.0}),
        process("2", world=2, **two_modes, backward_by_data={80: 60 * 0.052, 120: 40 * 0.08}),
    )
    assert theory.p_cache == pytest.approx(0.6, abs=0.01)
    assert (theory.w_cache, theory.w_load) == pytest.approx((0.002, 0.03), abs=1e-4)


def test_device_clocks_give_one_wait_for_both_sources() -> None:
    two_modes: dict[str, Any] = {"data_bins": {80: 60, 120: 40}, "data_seconds": 8.0}
    theory = theory_of(process("2", world=2, on_device=True, t_w=0.004, **two_modes))
    assert (theory.w_cache, theory.w_load) == pytest.approx((0.004, 0.004))


def test_old_processes_weigh_less() -> None:
    old = process("1", at=NOW - DAY, t_f=0.05)
    assert theory_of(old, process("2"), half_life=DAY).t_f == pytest.approx(
        (0.5 * 0.05 + 0.02) / 1.5
    )


def test_other_batch_sizes_are_not_mixed_in() -> None:
    older = process("1", at=NOW - 1.0, batch_size=64.0, t_f=0.2)
    assert theory_of(older, process("2")).t_f == pytest.approx(0.02)
    assert theory_of(process("1", at=NOW - 1.0), process("2", batch_size=64.0)).batch_size == 64.0


def test_inference_has_no_backward_pass() -> None:
    theory = theory_of(process(inference=True, t_b=0.3, t_u=0.1))
    assert (theory.t_f, theory.t_b, theory.t_u) == pytest.approx((0.02, 0.0, 0.0))
    times = basic_times(theory, None)
    assert times is not None
    assert times.params == 0.0


@pytest.mark.parametrize(
    "changes", [{"batch_size": 0.0}, {"t_f": 0.0, "t_b": 0.0}, {"t_f": 1e-300, "t_b": 0.0}]
)
def test_records_without_a_throughput_give_no_theory(changes: dict[str, Any]) -> None:
    assert fit_theory([process(**changes)], DAY) is None


def test_no_records_give_no_theory() -> None:
    assert fit_theory([], DAY) is None


def test_communication_needs_parameters_and_bandwidth() -> None:
    bandwidth = Bandwidth(A, 1e7, 4e6)
    assert basic_times(theory(), None) is None
    assert basic_times(theory(params=0.0), bandwidth) is None
    times = basic_times(theory(), bandwidth)
    assert times is not None
    assert (times.params, times.b_link, times.b_net) == (1e6, 1e7, 4e6)


def test_a_single_gpu_needs_neither() -> None:
    assert alone(theory(params=0.0, w_cache=5.0)) == pytest.approx(100.0)
    two_modes = theory(p_cache=0.5, mu_load=0.12)
    assert alone(two_modes) == pytest.approx(10 / (0.5 * 0.1 + 0.5 * 0.2))
    assert alone(replace(two_modes, pattern=1)) == pytest.approx(10 / (0.5 * 0.08 + 0.5 * 0.14))


some_bins = st.dictionaries(st.integers(0, 288), st.integers(1, 10**6), min_size=1, max_size=20)


@given(
    bins=some_bins,
    seconds=st.floats(0.0, 1e9),
    world=st.integers(1, 64),
    t_w=st.floats(0.0, 86400.0),
    batch=st.floats(1e-6, 1e7),
    on_device=st.booleans(),
)
def test_no_accepted_report_breaks_the_fit(
    bins: dict[int, int], seconds: float, world: int, t_w: float, batch: float, on_device: bool
) -> None:
    record = process(
        world=world,
        data_bins=bins,
        data_seconds=seconds,
        iterations=sum(bins.values()),
        backward_by_data=dict.fromkeys(bins, 1.0),
        t_w=t_w,
        batch_size=batch,
        on_device=on_device,
    )
    theory = fit_theory([record, process("2")], DAY)
    if theory is None:  # only a speed that no GPU has
        assert batch / (seconds / sum(bins.values()) + t_w + 1e7) < 1e-6
        return
    assert 0.0 <= theory.p_cache <= 1.0
    assert min(theory.mu_cache, theory.mu_load, theory.w_cache, theory.w_load) >= 0.0
    assert 0.0 < alone(theory) < float("inf")
