"""A site's records judged."""

from __future__ import annotations

from hopsd.health.gpus import find_slow_gpus
from hopsd.health.lemons import find_lemons
from hopsd.health.records import Health, HealthRecords
from hopsd.health.slow import find_slow


def judge(records: HealthRecords) -> Health:
    """What is certain at ``records.now``, from what happened before."""
    slow = (*find_slow(records), *find_slow_gpus(records))
    return Health(slow, find_lemons(records))
