"""Reads future failures from a JSON file: ``hopsctl simulate --failures FILE``."""

from __future__ import annotations

from hopsd.formats.item import Item, parse
from hopsd.model.ids import JobId, NodeName
from hopsd.model.scenario import Cluster, Workload
from hopsd.sim.admission import MAX_SPAN
from hopsd.sim.cluster import Failure


def read_failures(document: str, cluster: Cluster, workload: Workload) -> tuple[Failure, ...]:
    """Read ``{"failures": [{"at": 600, "job": "7"}, {"at": 900, "node": "n0", "seconds": 300}]}``.

    Raises:
        FormatError: the message starts with the path of what is wrong.
    """
    nodes = {str(server.name) for server in cluster.servers}
    jobs = {str(job.id) for job in workload.jobs}
    items = parse(document).fields("failures")["failures"].items()
    return tuple(_failure(item, nodes, jobs) for item in items)


def _failure(item: Item, nodes: set[str], jobs: set[str]) -> Failure:
    if isinstance(item.value, dict) and "node" in item.value:
        fields = item.fields("at node seconds")
        if fields["node"].text() not in nodes:
            fields["node"].refuse("a node of the cluster")
        return Failure(
            fields["at"].number(),
            server=NodeName(fields["node"].text()),
            seconds=fields["seconds"].number(above=0.0, maximum=MAX_SPAN),
        )
    fields = item.fields("at job")
    if fields["job"].text() not in jobs:
        fields["job"].refuse("a job of the workload")
    return Failure(fields["at"].number(), job=JobId(fields["job"].text()))
