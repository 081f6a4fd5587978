"""Gives all scripts one cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures_cluster import running_cluster
from script_site import CONF, NODES, TOPOLOGY, ScriptSite


@pytest.fixture(scope="session")
def scripts() -> Iterator[ScriptSite]:
    files = {"topology.conf": TOPOLOGY}
    with running_cluster(nodes=NODES, extra_conf=CONF, extra_files=files) as cluster:
        yield ScriptSite(cluster)
