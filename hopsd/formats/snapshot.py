"""`hopsctl plan --snapshot`: the state of a cluster and its queue at one instant."""

from __future__ import annotations

from collections import Counter

from hopsd.core.placement.available import kept_to_counts
from hopsd.errors import FormatError
from hopsd.formats.item import (
    Fields,
    Item,
    at_least_zero,
    bounded_number,
    flag,
    parse,
    positive,
    unique,
)
from hopsd.formats.tables import (
    read_app_of,
    read_requirements,
    read_server_factor,
    read_switches,
    read_tables,
)
from hopsd.model import bounds
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, UserName
from hopsd.model.job import Job, JobState, Node
from hopsd.model.plan import FTF_LAMBDA, PlanSettings, PriorityName, RoundInfo, Snapshot
from hopsd.model.rules import Limit, Rules, ShapeRule

_NODE_MAY_HAVE = "cores idle_cores memory_mb idle_memory_mb switches"
_JOB = "id user submit wait age priority reqs preemptible running sensitivity throughput"
_JOB_MAY_HAVE = (
    "samples state restart_seconds time_limit_seconds server_factor app running_since"
    " nodes shape per_node exclusive cores_per_gpu memory_mb_per_gpu memory_mb_per_node"
    " max_nodes max_per_node min_gpus segment spread_segments consolidate_segments max_switches"
    " across share qos_weight tier gives_way"
)
_SETTINGS = (
    "lambda sigma gap time_limit priority policy paper_exact seed filter_share lease_seconds"
    " alpha patience_seconds overdue_ratio tail_weight effort"
)


def read_snapshot(document: str) -> tuple[Snapshot, PlanSettings]:
    """Read a snapshot and the settings in it.

    Raises:
        FormatError: the message starts with the path of what is wrong.
    """
    top = parse(document).fields("now round nodes jobs", "settings limits")
    nodes = [_node(item) for item in top["nodes"].items()]
    unique([(n.name, i) for n, i in zip(nodes, top["nodes"].items(), strict=True)], "node")
    names = frozenset(node.name for node in nodes)
    jobs = [_job(item, names) for item in top["jobs"].items()]
    unique([(j.id, i) for j, i in zip(jobs, top["jobs"].items(), strict=True)], "job")
    _check_idle(nodes, jobs)
    snapshot = Snapshot(
        bounded_number(bounds.MOMENT)(top["now"]),
        _round(top["round"]),
        tuple(nodes),
        tuple(jobs),
        top.get("limits", lambda rows: tuple(map(_limit, rows.items())), ()),
    )
    return snapshot, top.get(
        "settings", lambda item: read_settings(item, PlanSettings()), PlanSettings()
    )


def _round(item: Item) -> RoundInfo:
    fields = item.fields("first seconds")
    return RoundInfo(
        first=fields["first"].flag(), seconds=bounded_number(bounds.RUN_SECONDS)(fields["seconds"])
    )


def _node(item: Item) -> Node:
    fields = item.fields("name gpu_type gpus idle", _NODE_MAY_HAVE)
    node = Node(
        NodeName(fields["name"].text()),
        GpuType(fields["gpu_type"].text()),
        fields["gpus"].whole(minimum=1),
        fields["idle"].whole(),
        cores=fields["cores"].or_none(Item.whole),
        idle_cores=fields["idle_cores"].or_none(Item.whole),
        memory_mb=fields["memory_mb"].or_none(at_least_zero),
        idle_memory_mb=fields["idle_memory_mb"].or_none(at_least_zero),
        switches=fields["switches"].or_none(read_switches) or (),
    )
    if node.idle > node.gpus:
        fields["idle"].refuse(f"at most the node's {node.gpus} GPUs")
    _check_part(fields, "idle_cores", "cores", node.idle_cores, node.cores)
    _check_part(fields, "idle_memory_mb", "memory_mb", node.idle_memory_mb, node.memory_mb)
    return node


def _check_part(
    fields: Fields, idle_key: str, key: str, idle: float | None, total: float | None
) -> None:
    if idle is not None and total is None:
        fields[idle_key].refuse(f"left out where the node's {key} is: it is never short of them")
    if idle is not None and total is not None and idle > total:
        fields[idle_key].refuse(f"at most the node's {key}, {total:g}")


def _job(item: Item, nodes: frozenset[NodeName]) -> Job:
    fields = item.fields(_JOB, _JOB_MAY_HAVE)
    app, phase = fields["app"].or_none(read_app_of) or (None, 0)
    job = Job(
        id=JobId(fields["id"].text()),
        user=UserName(fields["user"].text()),
        submit=bounded_number(bounds.MOMENT)(fields["submit"]),
        wait_seconds=bounded_number(bounds.DURATION)(fields["wait"]),
        reqs=read_requirements(fields["reqs"]),
        throughput=read_tables(fields["throughput"]),
        age_seconds=fields["age"].or_none(bounded_number(bounds.RUN_SECONDS)),
        priority=fields["priority"].or_none(bounded_number(bounds.PRIORITY)),
        samples=fields["samples"].or_none(bounded_number(bounds.SAMPLES)),
        state=fields.get("state", lambda state: state.choice(JobState), JobState.WAITING),
        restart_seconds=fields.get("restart_seconds", bounded_number(bounds.DURATION), 0.0),
        time_limit_seconds=fields["time_limit_seconds"].or_none(bounded_number(bounds.RUN_SECONDS)),
        preemptible=fields["preemptible"].flag(),
        running=_running(fields["running"], nodes),
        sensitivity=fields["sensitivity"].or_none(bounded_number(bounds.RATE)),
        server_factor=fields.get("server_factor", read_server_factor, {}),
        app=app,
        phase=phase,
        running_since=fields["running_since"].or_none(bounded_number(bounds.MOMENT)),
        rules=_rules(fields),
        across=fields["across"].or_none(Item.rates_by_count) or {},
        share=fields.get("share", _factor, 1.0),
        qos_weight=fields.get("qos_weight", _factor, 1.0),
        tier=fields.get("tier", Item.whole, 1),
        gives_way=fields.get("gives_way", flag, True),
    )
    return kept_to_counts(job)


def _rules(fields: Fields) -> Rules:
    shape = fields.get("shape", lambda s: s.choice(ShapeRule), ShapeRule.ANY)
    per_node = fields["per_node"].or_none(lambda count: count.whole(minimum=1))
    if per_node is not None and shape is not ShapeRule.EVEN:
        fields["per_node"].refuse(f'left out or null where shape is "{shape.value}", not "even"')
    return Rules(
        nodes=fields["nodes"].or_none(_names),
        shape=shape,
        per_node=per_node,
        exclusive=fields.get("exclusive", flag, False),
        cores_per_gpu=fields.get("cores_per_gpu", at_least_zero, 0.0),
        memory_mb_per_gpu=fields.get("memory_mb_per_gpu", at_least_zero, 0.0),
        memory_mb_per_node=fields.get("memory_mb_per_node", at_least_zero, 0.0),
        max_nodes=fields["max_nodes"].or_none(lambda count: count.whole(minimum=1)),
        max_per_node=fields["max_per_node"].or_none(lambda count: count.whole(minimum=1)),
        min_gpus=fields.get("min_gpus", _counts_by_type, ()),
        segment=fields["segment"].or_none(lambda count: count.whole(minimum=1)),
        max_switches=fields["max_switches"].or_none(lambda count: count.whole(minimum=1)),
        spread_segments=fields.get("spread_segments", flag, False),
        consolidate_segments=fields.get("consolidate_segments", flag, False),
    )


def _counts_by_type(item: Item) -> tuple[tuple[GpuType, int], ...]:
    counts = ((GpuType(name), count.whole(minimum=1)) for name, count in item.entries())
    return tuple(sorted(counts))


def _names(item: Item) -> frozenset[NodeName]:
    return frozenset(NodeName(name.text()) for name in item.items())


def _limit(item: Item) -> Limit:
    fields = item.fields("name jobs", "gpus count per_gpu unit exempt")
    return Limit(
        fields["name"].text(),
        _ids(fields["jobs"]),
        gpus=fields["gpus"].or_none(Item.whole),
        count=fields["count"].or_none(Item.whole),
        per_gpu=fields.get("per_gpu", _amounts, {}),
        unit=fields.get("unit", Item.text, "GPUs"),
        exempt=fields.get("exempt", _ids, frozenset()),
    )


def _ids(item: Item) -> frozenset[JobId]:
    return frozenset(JobId(job.text()) for job in item.items())


def _factor(item: Item) -> float:
    return item.number(minimum=0, maximum=1)


def _amounts(item: Item) -> dict[JobId, int]:
    return {JobId(job): amount.whole() for job, amount in item.entries()}


def _running(item: Item, nodes: frozenset[NodeName]) -> Allocation:
    """Read where the job runs; ``{}`` or null if it waits."""
    if item.value is None:
        return Allocation()
    gpus_by_node = {}
    for name, gpus in item.entries():
        if name not in nodes:
            raise FormatError(f"{gpus.path}: there is no node {name!r} in nodes")
        gpus_by_node[name] = gpus.whole(minimum=1)
    return Allocation.of(gpus_by_node)


def _check_idle(nodes: list[Node], jobs: list[Job]) -> None:
    gpus_in_use: Counter[NodeName] = Counter()
    for job in jobs:
        gpus_in_use.update(job.running.as_dict())
    for i, node in enumerate(nodes):
        if node.idle + gpus_in_use[node.name] > node.gpus:
            raise FormatError(
                f"nodes[{i}].idle: {node.idle} idle GPUs and {gpus_in_use[node.name]} that jobs run"
                f" on are more than the {node.gpus} GPUs of node {node.name!r}"
            )


def _weight(weight: Item) -> float:
    return weight.number(minimum=0, maximum=10)


def read_settings(item: Item, default: PlanSettings) -> PlanSettings:
    """Read planning settings; absent keys keep their values in ``default``.

    Raises:
        FormatError: the message starts with the key.
    """
    fields = item.fields("", _SETTINGS)
    priority = fields.get("priority", lambda name: name.choice(PriorityName), default.priority)
    return PlanSettings(
        lam=fields.get(
            "lambda",
            at_least_zero,
            FTF_LAMBDA if priority is PriorityName.FTF else default.lam,
        ),
        sigma=fields.get("sigma", positive, default.sigma),
        gap=fields.get("gap", lambda gap: gap.number(minimum=0, maximum=1), default.gap),
        time_limit_seconds=fields.get("time_limit", positive, default.time_limit_seconds),
        priority=priority,
        policy=fields.get("policy", Item.text, default.policy),
        paper_exact=fields.get("paper_exact", flag, default.paper_exact),
        seed=fields.get("seed", Item.whole, default.seed),
        filter_share=fields.get(
            "filter_share", lambda f: f.number(minimum=0, maximum=1), default.filter_share
        ),
        lease_seconds=fields.get("lease_seconds", at_least_zero, default.lease_seconds),
        alpha=fields.get("alpha", lambda a: a.number(minimum=0, maximum=1), default.alpha),
        patience_seconds=fields.get("patience_seconds", at_least_zero, default.patience_seconds),
        overdue_ratio=fields.get("overdue_ratio", at_least_zero, default.overdue_ratio),
        tail_weight=fields.get("tail_weight", _weight, default.tail_weight),
        effort=fields.get("effort", Item.whole, default.effort),
    )
