"""Judge a site's nodes by its records."""

from __future__ import annotations

from hopsd.health.gpus import find_slow_gpus
from hopsd.health.lemons import find_lemons
from hopsd.health.measurements import read_past
from hopsd.health.records import Health, HealthRecords
from hopsd.health.slow import judge_nodes


def judge(records: HealthRecords) -> Health:
    """Return the verdicts that are certain at ``records.now``, from what happened before."""
    past = read_past(records)
    slow, shared_nodes = judge_nodes(records, past)
    return Health((*slow, *find_slow_gpus(records, past)), find_lemons(records), shared_nodes)
