"""hopsd as an unprivileged Slurm operator on a cluster with slurmdbd, accounts and QOS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from daemon_site import Site
from fixtures_accounting import OPERATOR, accounting_cluster, python_of, uid_of
from psycopg.conninfo import conninfo_to_dict

from examples.demo.cluster import NodeSpec


@contextlib.contextmanager
def operator_site(
    database: str, nodes: Sequence[NodeSpec], extra_conf: Sequence[str] = ()
) -> Iterator[Site]:
    """A site whose hopsd, not started yet, runs under OPERATOR's account."""
    python = python_of(OPERATOR)
    Path(str(conninfo_to_dict(database)["host"])).chmod(0o711)  # for the operator
    with accounting_cluster(nodes, extra_conf) as cluster:
        folder = cluster.directory / "hopsd"
        folder.mkdir()
        folder.chmod(0o777)
        with contextlib.closing(Site(folder, database, cluster)) as site:
            site.hopsd.uid = uid_of(OPERATOR)
            site.hopsd.command = [*python, "-m", "hopsd"]
            yield site
