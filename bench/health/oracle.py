"""Compute what the best test can name that knows all of a simulated site's variances.

Neyman and Pearson: of all tests with as many false alarms, the likelihood ratio test is the most
powerful. This one knows how much runs, healthy servers and reports differ, warm-ups, what all share
by the hour, and when the server became slow, if it did; it does not know what each workload takes,
nor how a single server or run deviates. So it is the generalized least squares estimate of the step
over its standard error. It reads what hopsd stores of runs alone on a whole server.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import NormalDist

import numpy as np

from bench.health.site import GPUS, SiteSettings
from hopsd.health.records import HealthRecords, SpeedRecord
from hopsd.model.ids import JobId, NodeName

WARM_UP_SECONDS = 180.0
"""Reports of a run's first seconds, up to this age, are not compared."""


def whole_runs(records: HealthRecords) -> list[list[SpeedRecord]]:
    """Return the reports of each run alone on a whole server, without those of its warm-up."""
    begins = {stay.job: stay.start for stay in records.stays}
    runs: dict[JobId, list[SpeedRecord]] = defaultdict(list)
    for record in records.records:
        steady = record.at - begins[record.job] > WARM_UP_SECONDS + 60.0
        if steady and list(record.nodes.values()) == [GPUS]:
            runs[record.job].append(record)
    return list(runs.values())


def standard_error(
    records: HealthRecords, settings: SiteSettings, node: NodeName, since: float
) -> float:
    """Standard error of how much slower ``node`` is from ``since`` on, a logarithm; infinite if
    there is nothing to compare.
    """
    runs = whole_runs(records)
    types = {server.name: server.gpu_type for server in records.nodes}
    nodes = [next(iter(run[0].nodes)) for run in runs]
    levels = [(run[0].workload, types[name]) for run, name in zip(runs, nodes, strict=True)]
    step = [
        float(name == node and run[0].at > since) for run, name in zip(runs, nodes, strict=True)
    ]
    noise = [settings.run**2 + settings.noise**2 / len(run) for run in runs]
    covariance = [
        [settings.healthy**2 * (name == second_name) for second_name in nodes] for name in nodes
    ]
    inverse = np.linalg.inv(np.diag(noise) + np.array(covariance))
    member = np.array(
        [[level == member_level for member_level in set(levels)] for level in levels], np.float64
    )
    column = np.array(step)
    # The step, less the part that the workloads' unknown levels explain.
    fit = (
        member
        @ np.linalg.lstsq(member.T @ inverse @ member, member.T @ inverse @ column, rcond=None)[0]
    )
    information = float(column @ inverse @ (column - fit))
    return information**-0.5 if information > 1.0 else np.inf


def power(loss: float, error: float, false_alarms: float) -> float:
    """The probability of naming a server that loses ``loss``, if that of naming a healthy one is
    ``false_alarms``.
    """
    deviations = -np.log1p(-loss) / error
    return NormalDist().cdf(deviations - NormalDist().inv_cdf(1.0 - false_alarms))
