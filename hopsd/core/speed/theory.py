"""The theory layer: basic times fitted to what processes measured (sections 3.3 and 3.5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from hopsd.core.speed.layers import median_of_users, weight_of
from hopsd.core.speed.mixture import BIN_WIDTH, Mixture, bin_centers, fit_bins
from hopsd.core.speed.throughput import (
    BasicTimes,
    DataTime,
    IterationModel,
    Pattern,
    PeerWait,
    iteration_seconds,
    theory_per_gpu,
)
from hopsd.model import bounds
from hopsd.model.ids import GpuType, UserName
from hopsd.model.knowledge import Bandwidth, PhaseRecord, Theory

SAME_BATCH = 0.1
"""Runs whose batch size differs by more than this share from that of the newest run are left out:
their per-GPU times are not comparable."""


LINK = 10.0
"""Factor by which communication within a server is assumed to be faster than between two."""

SHORTEST_SECONDS = 1e-6
"""Shorter compute times are not credible, and no throughput is derived from them."""


def fit_theory(records: Sequence[PhaseRecord], half_life_seconds: float) -> Theory | None:
    """Fit the basic times of one workload on one GPU type; None if no record determines them.

    Compute times are taken from processes that ran alone, if there are any: with peers, the
    backward pass contains communication. Waits for peers are taken from the other processes, data
    times from all.
    """
    newest = max(records, key=lambda r: r.at, default=None)
    if newest is None or newest.phases.batch_size <= 0:
        return None
    comparable = [r for r in records if _is_comparable(r, newest)]
    # Ages are relative to the newest record: no fit is possible if all weights vanish.
    weight = {id(r): weight_of(newest.at - r.at, half_life_seconds) for r in comparable}
    fewest = min(r.world for r in comparable)
    alone = [r for r in comparable if r.world == fewest]

    def mean(value: Callable[[PhaseRecord], float]) -> float:
        total = sum(weight[id(r)] * r.phases.iterations for r in alone)
        return sum(weight[id(r)] * r.phases.iterations * value(r) for r in alone) / total

    data = _data_time(comparable, weight)
    inference = newest.phases.inference
    t_f, t_b = mean(lambda r: r.phases.t_f), mean(lambda r: 0.0 if inference else r.phases.t_b)
    if t_f + t_b < SHORTEST_SECONDS:
        return None
    w_cache, w_load = _peer_wait([r for r in comparable if r.world > 1], weight, data)
    theory = Theory(
        workload=newest.workload,
        gpu_type=newest.gpu_type,
        inference=inference,
        pattern=2 if mean(lambda r: r.phases.pattern) > 1.5 else 1,
        batch_size=newest.phases.batch_size,
        params=max(r.phases.params for r in comparable),
        t_f=t_f,
        t_b=t_b,
        t_u=0.0 if inference else mean(lambda r: r.phases.t_u),
        p_cache=data.p_cache,
        mu_cache=data.mu_cache,
        sigma_cache=data.sigma_cache,
        mu_load=data.mu_load,
        sigma_load=data.sigma_load,
        w_cache=w_cache,
        w_load=w_load,
        records=len(comparable),
        iterations=sum(r.phases.iterations for r in comparable),
        at=newest.at,
    )
    return theory if credible(theory) else None


def fit_users(records: Sequence[PhaseRecord], half_life_seconds: float) -> Theory | None:
    """Apply :func:`fit_theory` to each user's records; return that of median one-GPU speed."""
    users: dict[UserName, list[PhaseRecord]] = defaultdict(list)
    for record in records:
        users[record.user].append(record)
    fits = [
        (alone(theory), min(record.at for record in user_records), theory)
        for user_records in users.values()
        if (theory := fit_theory(user_records, half_life_seconds)) is not None
    ]
    return median_of_users(fits) if fits else None


def credible(theory: Theory) -> bool:
    """Whether the speed that the theory predicts for one GPU is within bounds."""
    return bounds.SPEED.holds(alone(theory))


def basic_times(theory: Theory, bandwidth: Bandwidth | None) -> BasicTimes | None:
    """Return the inputs of eq. 1 to 5; None if communication cannot be determined.

    Inference consists of data and forward pass only (section 3.5): no gradients are exchanged.
    """
    if theory.inference:
        return times_without_communication(theory)
    if bandwidth is None or theory.params <= 0:
        return None
    return replace(
        times_without_communication(theory),
        params=theory.params,
        b_link=bandwidth.b_link,
        b_net=bandwidth.b_net,
    )


def times_without_bandwidth(
    theory: Theory | None, per_gpu: float, sensitivity: float, model: IterationModel
) -> BasicTimes:
    """Return basic times for unknown bandwidths.

    Two GPUs on two servers are assumed to be ``sensitivity`` times as slow as one, and a server's
    links ``LINK`` times as fast as the network. Without a ``theory``, the times are based on one
    GPU with ``per_gpu`` samples per second.
    """
    times = (
        times_without_communication(theory) if theory is not None else _times_from_speed(per_gpu)
    )
    single_gpu_seconds = iteration_seconds(replace(times, t_w=PeerWait()), 1, 1)
    wait = (
        iteration_seconds(replace(times, params=1e-9 * single_gpu_seconds), 2, 2, model)
        - single_gpu_seconds
    )
    extra_seconds = max(0.0, (sensitivity - 1.0) * single_gpu_seconds - wait)
    hidden_up_to = times.t_b / (1.0 - model.exposed_share) if model.exposed_share < 1.0 else inf
    seconds = times.t_b + extra_seconds
    if seconds < hidden_up_to:
        seconds = extra_seconds / model.exposed_share if model.exposed_share else times.t_b
    return replace(times, params=seconds, b_net=1.0, b_link=LINK)


def _times_from_speed(per_gpu: float) -> BasicTimes:
    """Return basic times for a speed: a third of the time is forward, the rest backward."""
    seconds = 1.0 / per_gpu
    no_loading = DataTime(1.0, 0.0, 0.0)
    return BasicTimes(
        1.0, 0.0, Pattern.SERIAL, seconds / 3, 2 * seconds / 3, 0.0, no_loading, 1.0, 1.0
    )


def alone(theory: Theory, model: IterationModel | None = None) -> float:
    """Return samples per second of one GPU alone: no communication and no waiting for peers."""
    return theory_per_gpu(replace(times_without_communication(theory), t_w=PeerWait()), 1, 1, model)


def scaled_to_speed(theory: Theory, gpu_type: GpuType, per_gpu: float) -> Theory:
    """Return the basic times on another type, where one GPU does ``per_gpu`` samples per second.

    All times keep their proportions, so the training scales equally well.
    """
    slower = alone(theory) / per_gpu
    return replace(
        theory,
        gpu_type=gpu_type,
        t_f=theory.t_f * slower,
        t_b=theory.t_b * slower,
        t_u=theory.t_u * slower,
        mu_cache=theory.mu_cache * slower,
        sigma_cache=theory.sigma_cache * slower,
        mu_load=theory.mu_load * slower,
        sigma_load=theory.sigma_load * slower,
        w_cache=theory.w_cache * slower,
        w_load=theory.w_load * slower,
    )


def times_without_communication(theory: Theory) -> BasicTimes:
    """Return the basic times without any communication."""
    return BasicTimes(
        batch_size=theory.batch_size,
        params=0.0,
        pattern=Pattern(theory.pattern),
        t_f=theory.t_f,
        t_b=theory.t_b,
        t_u=theory.t_u,
        t_d=DataTime(
            theory.p_cache,
            theory.mu_cache,
            theory.sigma_cache,
            theory.mu_load,
            theory.sigma_load,
        ),
        b_link=1.0,
        b_net=1.0,
        t_w=PeerWait(theory.w_cache, theory.w_load),
    )


def _is_comparable(record: PhaseRecord, newest: PhaseRecord) -> bool:
    phases, reference = record.phases, newest.phases
    same_batch = abs(phases.batch_size - reference.batch_size) <= SAME_BATCH * reference.batch_size
    return phases.inference == reference.inference and same_batch


def _data_time(records: Sequence[PhaseRecord], weight: Mapping[int, float]) -> Mixture:
    """Return the mixture of all histograms, scaled to the measured mean.

    A histogram's resolution is 10 %, while the sum of all times is exact if reported honestly.
    """
    bins: dict[int, float] = defaultdict(float)
    for record in records:
        for bin_, count in record.phases.data_bins.items():
            bins[bin_] += weight[id(record)] * count
    mean_seconds = sum(weight[id(r)] * r.phases.data_seconds for r in records) / sum(bins.values())
    by_bins = fit_bins(bins)
    stretch = min(max(mean_seconds / by_bins.mean, 1.0 / BIN_WIDTH), BIN_WIDTH)
    return Mixture(
        by_bins.p_cache,
        *(
            stretch * seconds
            for seconds in (
                by_bins.mu_cache,
                by_bins.sigma_cache,
                by_bins.mu_load,
                by_bins.sigma_load,
            )
        ),
    )


def _peer_wait(
    records: Sequence[PhaseRecord], weight: Mapping[int, float], data: Mixture
) -> tuple[float, float]:
    """Return the mean waits for peers while data came from memory, and while it came from storage.

    With GPU timing, a tenth of the iterations are timed, without their data times, so the two cases
    cannot be distinguished.
    """
    wait_sums, weight_sums = np.zeros(2), np.zeros(2)
    for record in records:
        phases = record.phases
        bins = sorted(phases.backward_by_data)
        if phases.on_device or not bins:
            wait_sums += weight[id(record)] * phases.iterations * phases.t_w
            weight_sums += weight[id(record)] * phases.iterations
            continue
        counts = np.array([phases.data_bins[bin_] for bin_ in bins], dtype=float)
        backward = np.array([phases.backward_by_data[bin_] for bin_ in bins])
        cache = data.share_cache(bin_centers(bins))
        for case, share in enumerate((cache, 1.0 - cache)):
            wait = float(share @ (backward - counts * phases.t_b))
            wait_sums[case] += weight[id(record)] * max(0.0, wait)
            weight_sums[case] += weight[id(record)] * float(share @ counts)
    means = np.divide(wait_sums, weight_sums, out=np.zeros(2), where=weight_sums > 0)
    return float(means[0]), float(means[1])
