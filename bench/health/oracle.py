"""What a test can name at best that knows all of a simulated site's variances.

Neyman and Pearson: of all tests with as many false alarms, the likelihood ratio's is the most
powerful. It knows how much runs, healthy servers and reports differ, warm-ups, what all share by
the hour, and when the server became slow, if it did; not what each workload takes, nor what a
server or a run has of its own. So it is the step's estimate by generalized least squares over its
standard error. It reads what hopsd stores of runs alone on a whole server.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import NormalDist

import numpy as np

from bench.health.site import GPUS, SiteSettings
from hopsd.health.records import HealthRecords, SpeedRecord
from hopsd.model.ids import JobId, NodeName

WARM_UP_SECONDS = 180.0
"""The first reports of a run are not compared."""


def whole_runs(records: HealthRecords) -> list[list[SpeedRecord]]:
    """The reports of each run alone on a whole server, without those of its warm-up."""
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
    """Of how much slower ``node`` is since then, a logarithm; infinite: nothing is compared."""
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
    # The step, less what the workloads' unknown levels explain of it.
    fit = (
        member
        @ np.linalg.lstsq(member.T @ inverse @ member, member.T @ inverse @ column, rcond=None)[0]
    )
    information = float(column @ inverse @ (column - fit))
    return information**-0.5 if information > 1.0 else np.inf


def power(loss: float, error: float, false_alarms: float) -> float:
    """The probability of naming a server that loses ``loss``, where ``false_alarms`` is that of a
    healthy one.
    """
    deviations = -np.log1p(-loss) / error
    return NormalDist().cdf(deviations - NormalDist().inv_cdf(1.0 - false_alarms))
