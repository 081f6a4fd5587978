"""Runs one set of contract tests once for each adapter that works on this machine."""

from __future__ import annotations

import pytest
from slurm_contract import SETTINGS, make_adapter

from examples.demo.cluster import PrivateCluster
from hopsd.slurm.adapter import Adapter
from hopsd.slurm.apply import SlurmPort


@pytest.fixture(params=["scontrol", "pyslurm"])
def adapter(request: pytest.FixtureRequest, cluster: PrivateCluster) -> Adapter:
    return make_adapter(request.param, cluster)


@pytest.fixture
def port(adapter: Adapter) -> SlurmPort:
    return SlurmPort(adapter, SETTINGS)
