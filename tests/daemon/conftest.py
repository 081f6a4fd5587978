"""Gives a test its own daemon, with a private cluster, database and configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from daemon_site import Site
from fixtures_cluster import running_cluster

from examples.demo.cluster import NodeSpec

NODES = [NodeSpec("rtx3090", gpus=4, cpus=8)] * 2 + [NodeSpec("v100", gpus=2, cpus=8)]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with (
        running_cluster(nodes=NODES) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        yield site
