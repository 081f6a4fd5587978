"""The request to Slurm that makes a held job start on exactly its planned GPUs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, floor

from hopsd.core.submission.partitions import shortened_minutes
from hopsd.core.submission.placement_rules import RulesOnNodes
from hopsd.model.allocation import Allocation
from hopsd.model.devices import cores_of, is_cpu
from hopsd.model.reading import TIME_MARK, JobReading, NodeReading, Reading, SiteMemory
from hopsd.model.rules import exact
from hopsd.model.script_options import ScriptOptions
from hopsd.slurm.adapter import Placement
from hopsd.slurm.watch import ApplySettings


class Requests:
    """Builds requests to Slurm for placements on the nodes of one reading."""

    def __init__(self, reading: Reading, settings: ApplySettings) -> None:
        self._reading, self._settings = reading, settings
        self._rules = RulesOnNodes(reading.nodes, settings.cpus_per_gpu)
        self._at = {node.name: position for position, node in enumerate(reading.nodes)}
        self._for_any_type = any(node.is_mixed and not node.by_type for node in reading.nodes)

    def _nodes(self, target: Allocation) -> list[NodeReading]:
        """The nodes of ``target`` in the cluster's order."""
        positions = (self._at[name] for name in target.nodes if name in self._at)
        return [self._reading.nodes[position] for position in sorted(positions)]

    def placement(
        self, job: JobReading, target: Allocation, comment: str | None = None
    ) -> Placement:
        """Build the request for ``target``, with the cores and memory that the plan assumed.

        Slurm takes one number of cores for all nodes of a job; on CPU nodes this is the smallest
        number that all of them have.
        """
        memory = self._reading.memory_of(job)
        rules, nodes = self._rules.for_job(job, memory), self._nodes(target)
        cores = exact(rules.cores_per_gpu)
        options, share = job.options, floor(rules.memory_mb_per_gpu)
        any_type = options.gpu_type is None
        # Without a type Slurm would give GPUs of all types of a mixed node.
        if any_type and any(node.is_mixed for node in nodes):
            options = replace(options, gpu_type=nodes[0].gpu_type)
        if options.exclusive and options.cores_per_gpu and nodes:  # no other job shares these nodes
            shares = (Fraction(n.cores, target.on(n.name)) for n in nodes)
            cores = min(options.cores_per_gpu, *shares)
        if any(is_cpu(node.gpu_type) for node in nodes):
            cores = Fraction(min(cores_of(node, self._settings.kept_cores) for node in nodes))
        memory_mb: int | None = None
        if options.whole_memory and share:
            whole_nodes = all(
                target.on(node.name) == node.gpus and not node.is_mixed for node in nodes
            )
            memory_mb = 0 if whole_nodes else share * max(gpus for _, gpus in target)
        by_gpu = share and memory_mb is None and _by_gpu(options, memory)
        return Placement(
            job=job.id,
            allocation=target,
            cores_per_gpu=cores,
            comment=comment,
            reset=job.per_job_gpus or (any_type and self._for_any_type),
            options=options,
            memory_mb_per_gpu=share if by_gpu else None,
            memory_mb_per_node=memory_mb,
            memory_mb_per_core=_memory_per_core(options, cores),
        )

    def time_limit(self, job: JobReading, target: Allocation) -> int | None:
        """The time limit to request on ``target`` in minutes; 0: no limit, None: keep the job's."""
        minutes = shortened_minutes(job, self._nodes(target), self._reading.now)
        if minutes is None and TIME_MARK in job.marks:  # an earlier start had a shortened limit
            minutes = round((job.time_limit_seconds or 0.0) / 60)
        return minutes

    def partitions(self, job: JobReading, target: Allocation, allowed_partitions: str = "") -> str:
        """The job's partitions that contain all nodes of ``target``, restricted to
        ``allowed_partitions`` of the plan; "" if the job names only one partition.

        Slurm tries one partition after the other, and gives up on the named nodes for the whole
        cycle if the first lacks them or one of its limits is reached (22.05, job_scheduler.c):
        neither this job nor any other would start there.
        """
        names = job.partition.split(",")
        if len(names) == 1:
            return ""
        names = [name for name in names if name in allowed_partitions.split(",")] or names
        nodes = self._nodes(target)
        hold = [name for name in names if all(name in node.partitions for node in nodes)]
        return ",".join(hold or names)


def _memory_per_core(options: ScriptOptions, cores: Fraction) -> int | None:
    """Megabytes per core that give each GPU, with ``cores``, the memory ``--mem-per-cpu`` asks."""
    if options.memory_mb_per_core is None or options.cores_per_gpu is None:
        return None
    return ceil(options.memory_mb_per_core * max(Fraction(1), options.cores_per_gpu / cores))


def _by_gpu(options: ScriptOptions, site: SiteMemory) -> bool:
    """Whether to request memory per GPU. Unless the site sets a default, Slurm would give a job
    without a memory request all memory of its nodes.
    """
    unset = site.mb_per_gpu is None and site.mb_per_cpu is None and site.mb_per_node is None
    return options.memory_mb_per_gpu is not None or (options.default_memory and unset)
