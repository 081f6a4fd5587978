"""The placement rules of a job: its script's options applied to the cluster's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from math import ceil, floor

from hopsd.core.submission.features import alternatives, holds
from hopsd.model.ids import NodeName, host_of
from hopsd.model.reading import JobReading, NodeReading, Reading, SeveralBlocks, SiteMemory
from hopsd.model.rules import Rules, ShapeRule, intern_nodes

_DECIMALS = 10**6
"""Cores per GPU are rounded down to this resolution: never more than was requested."""

_EVEN_NOTE = "the same number of GPUs on each node: topology/block does not start it otherwise"
_ONE_BLOCK_NOTE = "within one block: before 26.05 Slurm does not start it on named nodes of several"

_MAX_NAMES = 4
"""Maximum number of nodes that a note names."""


def rules_of(
    job: JobReading,
    nodes: Sequence[NodeReading],
    site: SiteMemory,
    cores_per_gpu: int,
    shape: ShapeRule | None = None,
    per_node: int | None = None,
) -> Rules:
    """Return the job's rules. ``cores_per_gpu``: the site's default.

    ``shape`` and ``per_node``: from the comment, for a job whose options are unknown. No job gets
    more cores per GPU than a GPU's share of its node, or the node's other GPUs would stay idle.
    """
    options = job.options
    eligible = allowed_nodes(job, nodes)
    cores = _cores(job, eligible or nodes, site.cores_per_gpu or cores_per_gpu)
    per_gpu, per_node_mb = _memory_mb(job, eligible or nodes, site, cores)
    if options.shape is not None:
        shape, per_node = options.shape, options.per_node
    return Rules(
        nodes=None
        if len(eligible) == len(nodes)
        else intern_nodes(frozenset(node.name for node in eligible)),
        shape=shape or ShapeRule.ANY,
        per_node=per_node if shape is ShapeRule.EVEN else None,
        exclusive=options.exclusive,
        cores_per_gpu=float(cores),
        memory_mb_per_gpu=float(per_gpu),
        memory_mb_per_node=float(per_node_mb),
    )


class RulesOnNodes:
    """Caches :func:`rules_of` for many jobs on the same nodes.

    The rules are computed once for all jobs with the same requests: there may be 15,000 jobs and
    5,000 nodes.
    """

    def __init__(self, nodes: Sequence[NodeReading], cores_per_gpu: int) -> None:
        self._nodes, self._cores_per_gpu = nodes, cores_per_gpu
        self._names = frozenset(node.name for node in nodes)
        self._cache: dict[object, Rules] = {}

    def for_job(
        self,
        job: JobReading,
        site: SiteMemory,
        shape: ShapeRule | None = None,
        per_node: int | None = None,
        access: frozenset[NodeName] | None = None,
    ) -> Rules:
        """Return the job's rules, restricted to the nodes ``access`` if given."""
        memory = job.memory_mb_per_node, job.memory_mb_per_cpu
        key = job.options, job.excluded_nodes, job.features, memory, site, shape, per_node, access
        if key not in self._cache:
            rules = rules_of(job, self._nodes, site, self._cores_per_gpu, shape, per_node)
            if access is not None and not access >= self._names:
                nodes = access if rules.nodes is None else access & rules.nodes
                rules = replace(rules, nodes=intern_nodes(nodes))
            self._cache[key] = rules
        return self._cache[key]


def allowed_nodes(job: JobReading, nodes: Iterable[NodeReading]) -> list[NodeReading]:
    """Return the nodes with the GPU type, features, memory, disk and GRES that the job asks for.

    For ``[a|b]``, the alternative with the most GPUs is chosen. Jobs on a node with several GPU
    types share it, so jobs with ``--exclusive`` do not get it.
    """
    options, required_mb = job.options, job.requested_node_mb
    gres = dict(_gres(item) for item in options.gres.split(",") if item)
    fitting_nodes = [
        node
        for node in nodes
        if options.gpu_type in ((node.gpu_type,) if node.by_type else (None, node.gpu_type))
        and (options.nodes is None or host_of(node.name) in options.nodes)
        and host_of(node.name) not in job.excluded_nodes
        and not (options.exclusive and node.is_mixed)
        and all(node.gres.get(name, 0) >= count for name, count in gres.items())
        and node.disk_mb >= options.disk_mb
        and (required_mb is None or node.memory_mb is None or node.memory_mb >= required_mb)
    ]
    if job.features:
        choices = [
            [node for node in fitting_nodes if holds(choice, node.features)]
            for choice in alternatives(job.features)
        ]
        fitting_nodes = max(
            choices, key=lambda candidate_nodes: sum(node.gpus for node in candidate_nodes)
        )
    return fitting_nodes


def on_racks(rules: Rules, job: JobReading, wait_seconds: float) -> Rules:
    """Add what ``--segment`` and ``--switches`` ask for after ``wait_seconds`` to ``rules``."""
    return replace(
        rules,
        segment=job.options.segment,
        max_switches=_switches(job, wait_seconds),
        spread_segments=job.options.spread_segments,
        consolidate_segments=job.options.consolidate_segments,
    )


@dataclass(frozen=True, slots=True)
class BlockRule:
    """The placements that Slurm's topology/block allows."""

    several: SeveralBlocks
    nodes: int = 0
    """Number of nodes in the largest block."""
    gpus: int = 0
    """Number of GPUs on the largest node."""

    @classmethod
    def from_reading(cls, reading: Reading) -> BlockRule:
        sizes = Counter(node.switches[-1] for node in reading.nodes if node.switches)
        largest_node = max((node.gpus for node in reading.nodes), default=0)
        return cls(reading.several_blocks, max(sizes.values(), default=0), largest_node)

    def apply(self, rules: Rules, reqs: Sequence[int]) -> tuple[Rules, str]:
        """Return rules that Slurm accepts for a job with these GPU counts, and a note for its user.

        The rules of a job that fits in no block remain as they are.
        """
        if rules.shape is ShapeRule.NODE:
            return rules, ""
        matters = max(reqs) > (rules.per_node or self.gpus)
        if self.several is SeveralBlocks.EVEN and rules.shape is ShapeRule.ANY:
            return replace(rules, shape=ShapeRule.EVEN), _EVEN_NOTE if matters else ""
        fewest = ceil(min(reqs) / (rules.per_node or self.gpus or 1))
        if self.several is SeveralBlocks.NONE and fewest <= self.nodes:
            return replace(rules, max_switches=1), _ONE_BLOCK_NOTE if matters else ""
        return rules, ""


def _switches(job: JobReading, wait_seconds: float) -> int | None:
    """Return the maximum number of leaf switches for the job; None for any number."""
    limit = job.options.switches_seconds
    return job.options.switches if limit is None or wait_seconds < limit else None


def racks_note(job: JobReading, wait_seconds: float, *, has_racks: bool) -> str:
    """Return what the job's user should know of ``--switches`` and ``--segment``; "" if nothing."""
    max_switches, limit = job.options.switches, job.options.switches_seconds
    options = ["--switches"] * (max_switches is not None) + ["--segment"] * bool(
        job.options.segment
    )
    if options and not has_racks:
        change = "changes" if len(options) == 1 else "change"
        return f"{' and '.join(options)} {change} nothing, since Slurm knows no switches or blocks"
    if max_switches is None or limit is None:
        return ""
    in_force = wait_seconds < limit
    state = "counts until" if in_force else "no longer counts:"
    return f"--switches={max_switches} {state} it has waited" + (
        f" {timedelta(seconds=limit)}"
        if in_force
        else f" the {timedelta(seconds=limit)} that it names"
    )


def segments_note(rules: Rules, reqs: Sequence[int]) -> str:
    """Return a note for the job's user on GPU counts that make no whole segments; "" if none."""
    per_node, segment = rules.per_node, rules.segment
    if per_node is None or segment is None:
        return ""
    nodes = {count: count // per_node for count in rules.counts(reqs)}
    partial_counts = [count for count, n in nodes.items() if n > segment and n % segment]
    if not partial_counts:
        return ""
    subject = "none of its GPU counts makes" if len(partial_counts) == len(nodes) else None
    subject = subject or f"not on {', '.join(map(str, partial_counts))} GPUs, which make no"
    return f"{subject} whole groups of {segment} nodes with {per_node} GPUs each"


class NodesNotes:
    """Notes for users on nodes that their jobs do not get.

    These are nodes for jobs that name a GPU type, and names that no node has. The notes are
    computed once for all jobs with the same choice of nodes.
    """

    def __init__(self, nodes: Iterable[NodeReading]) -> None:
        nodes = list(nodes)
        self._by_type = sorted(node.name for node in nodes if node.by_type)
        self._hosts = frozenset(host_of(node.name) for node in nodes)
        self._cache: dict[object, str] = {}

    def for_job(self, job: JobReading) -> str:
        """Return the note for a job, "" if there is none."""
        is_untyped = job.options.gpu_type is None
        if job.options.nodes is None and not (is_untyped and self._by_type):
            return ""
        key = job.options.nodes, job.excluded_nodes, is_untyped
        if key not in self._cache:
            types = _types_note(job, self._by_type) if is_untyped else ""
            notes = _unknown_note(job, self._hosts), types
            self._cache[key] = "; ".join(note for note in notes if note)
        return self._cache[key]


def _unknown_note(job: JobReading, hosts: frozenset[NodeName]) -> str:
    names = sorted((job.options.nodes or frozenset()) - hosts)
    return f"--nodelist: Slurm has no node {_first_names(names)}" if names else ""


def _types_note(job: JobReading, by_type: Iterable[NodeName]) -> str:
    names = [
        name
        for name in by_type
        if (job.options.nodes is None or host_of(name) in job.options.nodes)
        and host_of(name) not in job.excluded_nodes
    ]
    if not names:
        return ""
    return (
        f"not on {_first_names(names)}: before Slurm 23.11 GPUs of a node with several types are"
        " for jobs that name one, as in --gres=gpu:TYPE:1"
    )


def _first_names(names: Sequence[NodeName]) -> str:
    suffix = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + suffix


def _gres(item: str) -> tuple[str, int]:
    name, _, count = item.partition(":")
    return name, gres_count(count.rpartition(":")[2])


def gres_count(text: str) -> int:
    """Convert a count such as ``12G`` to a number; 1 if it cannot be read."""
    digits = text.rstrip("kKmMgGtTpP")
    if not digits.isdigit():
        return 1
    power = "KMGTP".find(text[-1].upper()) + 1 if text != digits else 0
    return int(digits) << (10 * power)


def _cores(job: JobReading, nodes: Sequence[NodeReading], default: int) -> Fraction:
    requested_cores = job.options.cores_per_gpu
    tasks = job.options.tasks_per_gpu or Fraction(0)  # Slurm gives each task at least a core
    if requested_cores is None:
        return max(Fraction(default), tasks)
    share = max((Fraction(n.cores, n.gpus) for n in nodes if n.gpus), default=requested_cores)
    return max(Fraction(floor(min(requested_cores, share) * _DECIMALS), _DECIMALS), tasks)


def _memory_mb(
    job: JobReading, nodes: Sequence[NodeReading], site: SiteMemory, cores: Fraction
) -> tuple[Fraction, int]:
    """Return the megabytes per GPU, and additional megabytes per node."""
    options = job.options
    per_gpu, per_node, per_cpu = options.memory_mb_per_gpu, None, None
    if options.default_memory:
        per_gpu, per_node, per_cpu = site.mb_per_gpu, site.mb_per_node, site.mb_per_cpu
    elif not options.whole_memory:
        per_node, per_cpu = job.memory_mb_per_node, job.memory_mb_per_cpu
    if (
        job.options.memory_mb_per_core is not None
    ):  # Slurm's own figure follows each placement's cores
        per_cpu, cores = (
            job.options.memory_mb_per_core,
            max(cores, job.options.cores_per_gpu or cores),
        )
    if not site.counted:
        return Fraction(0), 0
    if per_gpu is not None:
        return Fraction(per_gpu), 0
    if per_cpu is not None:
        return per_cpu * cores, 0
    if per_node is not None:
        return Fraction(0), per_node
    return Fraction(0 if options.exclusive else share_mb(nodes)), 0


def share_mb(nodes: Iterable[NodeReading]) -> int:
    """Return a GPU's share of its node's memory, on the node where the share is smallest."""
    parts = [floor(n.memory_mb / n.gpus) for n in nodes if n.memory_mb and n.gpus]
    return min(parts, default=0)
