"""A daemon with an API for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from daemon_site import Site
from fixtures_cluster import running_cluster

from examples.demo.cluster import NodeSpec


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    nodes = [NodeSpec("a100", gpus=4, cpus=8)]
    with (
        running_cluster(nodes=nodes) as cluster,
        closing(Site(cluster.directory, database, cluster)) as site,
    ):
        yield site
