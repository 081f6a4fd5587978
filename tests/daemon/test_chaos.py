"""A short run of the bench of faults, always with the same faults: `python -m bench.chaos`."""

from __future__ import annotations

import os
from random import Random

import pytest
from fixtures_cluster import skip_without_slurm

from bench.chaos.__main__ import torment
from bench.chaos.faults import FAULTS
from bench.chaos.judge import judge
from bench.chaos.world import world

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif("HOPS_CHAOS" not in os.environ, reason="takes minutes: make test-chaos"),
]

SLOW = "slurmctld_back_in_time"
"""After this fault, Slurm takes minutes to find out that a job does not exist."""


def test_faults_lose_no_job_and_give_no_gpu_twice() -> None:
    skip_without_slurm()
    kinds = [kind.name for kind in FAULTS if kind.name != SLOW]
    with world() as chaos_world:
        observation = torment(chaos_world, 18, Random(8), kinds)
        findings = [*observation.findings, *judge(chaos_world)]
    assert chaos_world.jobs
    assert not [finding for finding in findings if not finding.explanation]
