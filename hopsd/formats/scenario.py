"""The simulator's input: a cluster and a workload."""

from __future__ import annotations

from collections.abc import Mapping

from hopsd.core.speed.throughput import theory_table
from hopsd.errors import FormatError
from hopsd.formats.item import Item, at_least_zero, flag, number, parse, positive, unique
from hopsd.formats.tables import (
    read_app_of,
    read_requirements,
    read_server_factor,
    read_switches,
    read_tables,
)
from hopsd.formats.theory import read_times
from hopsd.model.ids import GpuType, JobId, NodeName, UserName, WorkloadName
from hopsd.model.job import ThroughputTable
from hopsd.model.scenario import Cluster, Links, Server, Workload, WorkloadJob


def read_cluster(document: str) -> Cluster:
    """Read a cluster file.

    Raises:
        FormatError: the message starts with the path of what is wrong.
    """
    top = parse(document).fields("nodes", "gpu_types")
    items = top["nodes"].items()
    servers = [_server(item) for item in items]
    if not servers:
        top["nodes"].refuse("a list of one node or more")
    unique([(s.name, item) for s, item in zip(servers, items, strict=True)], "node")
    return Cluster(tuple(servers), top.get("gpu_types", _links, {}))


def _server(item: Item) -> Server:
    fields = item.fields("name gpu_type gpus", "switches")
    return Server(
        NodeName(fields["name"].text()),
        GpuType(fields["gpu_type"].text()),
        fields["gpus"].whole(minimum=1),
        fields["switches"].or_none(read_switches) or (),
    )


def _links(item: Item) -> dict[GpuType, Links]:
    links = {}
    for name, value in item.entries():
        fields = value.fields("b_link b_net")
        links[GpuType(name)] = Links(positive(fields["b_link"]), positive(fields["b_net"]))
    return links


def read_workload(document: str, cluster: Cluster) -> Workload:
    """Read a workload file; basic times become tables for the servers of ``cluster``.

    Raises:
        FormatError: the message starts with the path of what is wrong.
    """
    top = parse(document).fields("throughput jobs", "server_factor across")
    throughput = {
        WorkloadName(name): _tables(value, cluster) for name, value in top["throughput"].entries()
    }
    items = top["jobs"].items()
    jobs = [_job(item, throughput) for item in items]
    unique([(j.id, item) for j, item in zip(jobs, items, strict=True)], "job")
    no_across: dict[WorkloadName, Mapping[int, float]] = {}
    no_factors: dict[WorkloadName, Mapping[NodeName, float]] = {}
    factors = top.get("server_factor", _factors, no_factors)
    for name in factors:
        if name not in throughput:
            raise FormatError(f"server_factor.{name}: there is no workload {name!r} in throughput")
    leaf_factors = top.get("across", _leaf_factors, no_across)
    for name in leaf_factors:
        if name not in throughput:
            raise FormatError(f"across.{name}: there is no workload {name!r} in throughput")
    return Workload(throughput, tuple(jobs), factors, leaf_factors)


def _tables(item: Item, cluster: Cluster) -> dict[GpuType, ThroughputTable]:
    if not isinstance(item.value, dict) or "theory" not in item.value:
        return read_tables(item)
    sizes: dict[GpuType, int] = {}
    for server in cluster.servers:
        sizes[server.gpu_type] = max(server.gpus, sizes.get(server.gpu_type, 0))
    return {
        GpuType(name): theory_table(read_times(value), sizes.get(GpuType(name), 1))
        for name, value in item.fields("theory")["theory"].entries()
    }


def _factors(item: Item) -> dict[WorkloadName, Mapping[NodeName, float]]:
    return {WorkloadName(name): read_server_factor(value) for name, value in item.entries()}


def _leaf_factors(item: Item) -> dict[WorkloadName, Mapping[int, float]]:
    return {WorkloadName(name): value.rates_by_count() for name, value in item.entries()}


def _job(item: Item, throughput: Mapping[WorkloadName, object]) -> WorkloadJob:
    fields = item.fields(
        "id user submit workload samples reqs",
        "batch_size preemptible cpu app restart_seconds segment max_switches per_node interactive",
    )
    workload = WorkloadName(fields["workload"].text())
    if workload not in throughput:
        fields["workload"].refuse("a workload of throughput")
    app, phase = fields["app"].or_none(read_app_of) or (None, 0)
    reqs = read_requirements(fields["reqs"])
    interactive = fields.get("interactive", flag, default=False)
    if interactive and len(fields["reqs"].items()) > 1:
        fields["reqs"].refuse("one GPU count for a session (interactive)")
    return WorkloadJob(
        id=JobId(fields["id"].text()),
        user=UserName(fields["user"].text()),
        submit=number(fields["submit"]),
        workload=workload,
        samples=positive(fields["samples"]),
        reqs=reqs,
        batch_size=fields["batch_size"].or_none(lambda size: size.whole(minimum=1)),
        preemptible=fields.get("preemptible", flag, default=True),
        cpu=fields.get("cpu", flag, default=False),
        app=app,
        phase=phase,
        restart_seconds=fields["restart_seconds"].or_none(at_least_zero),
        segment=fields["segment"].or_none(lambda count: count.whole(minimum=1)),
        max_switches=fields["max_switches"].or_none(lambda count: count.whole(minimum=1)),
        per_node=fields["per_node"].or_none(lambda count: count.whole(minimum=1)),
        interactive=interactive,
    )
