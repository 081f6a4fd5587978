"""hopsd as an unprivileged Slurm operator on a cluster with slurmdbd, accounts and QOS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from daemon_site import Site
from fixtures_accounting import OPERATOR, accounting_cluster, python_of, uid_of
from psycopg.conninfo import conninfo_to_dict

from examples.demo.cluster import NodeSpec

NODES = [NodeSpec("rtx3090", gpus=4, cpus=8)] * 2 + [NodeSpec("v100", gpus=2, cpus=8)]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    python = python_of(OPERATOR)
    Path(str(conninfo_to_dict(database)["host"])).chmod(0o711)  # for the operator
    with accounting_cluster(NODES) as cluster:
        folder = cluster.directory / "hopsd"
        folder.mkdir()
        folder.chmod(0o777)
        with closing(Site(folder, database, cluster)) as site:
            site.hopsd.uid = uid_of(OPERATOR)
            site.hopsd.command = [*python, "-m", "hopsd"]
            yield site
