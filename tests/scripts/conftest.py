"""One cluster for all scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures_cluster import running_cluster
from script_site import CONF, NODES, ScriptSite


@pytest.fixture(scope="session")
def scripts() -> Iterator[ScriptSite]:
    with running_cluster(nodes=NODES, extra_conf=CONF) as cluster:
        yield ScriptSite(cluster)
