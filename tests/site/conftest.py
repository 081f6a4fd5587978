"""A site with two types of GPUs, whose hopsd is an unprivileged Slurm operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from daemon_site import Site
from operator_site import operator_site

from examples.demo.cluster import NodeSpec

NODES = [NodeSpec("rtx3090", gpus=4, cpus=8)] * 2 + [NodeSpec("v100", gpus=2, cpus=8)]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with operator_site(database, NODES) as site:
        yield site
