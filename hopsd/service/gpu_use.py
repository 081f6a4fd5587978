"""Measures how the cluster's GPUs are used from one reading to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from hopsd.core.queue.history import OCCUPYING_STATES
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.journal import HOUR, GpuUse
from hopsd.model.reading import Reading

_KINDS = tuple(item.name for item in fields(GpuUse) if item.name not in ("hour", "gpu_type"))


@dataclass(slots=True)
class Meter:
    """Sums up GPU use. Between two readings the cluster is assumed to stay as at the first."""

    _last: float | None = None
    _uses: dict[GpuType, Counter[str]] = field(default_factory=dict)

    def look(
        self,
        reading: Reading,
        *,
        demand: bool,
        cpu_demand: bool = False,
        rack_fragments: Mapping[GpuType, int] | None = None,
        longest: float,
    ) -> tuple[GpuUse, ...]:
        """Return the use since the last reading; empty if that was over ``longest`` seconds ago.

        ``demand`` says whether a job waits for GPUs now, ``cpu_demand`` whether one waits that
        accepts CPUs. ``rack_fragments`` are GPUs of the last plan, see
        :mod:`hopsd.policies.rack_fragments`.
        """
        since, self._last = self._last, reading.now
        uses, self._uses = self._uses, _gpus_by_use(reading, demand=demand, cpu_demand=cpu_demand)
        for gpu_type, counts in self._uses.items():
            on_racks = (rack_fragments or {}).get(gpu_type, 0)
            counts["rack_fragmented"] = min(on_racks, counts["fragmented"])
        if since is None or not 0.0 < reading.now - since <= longest:
            return ()
        entries, begin = [], since
        while begin < reading.now:
            hour = begin // HOUR * HOUR
            end = min(hour + HOUR, reading.now)
            for gpu_type, gpus in uses.items():
                seconds = {kind: gpus[kind] * (end - begin) for kind in _KINDS}
                entries.append(GpuUse(hour, gpu_type, **seconds))
            begin = end
        return tuple(entries)


def _gpus_by_use(
    reading: Reading, *, demand: bool, cpu_demand: bool
) -> dict[GpuType, Counter[str]]:
    """Count the GPUs of each type by their use; each GPU counts once."""
    allocated_gpus: Counter[NodeName] = Counter()
    for job in reading.jobs:
        if job.state in OCCUPYING_STATES:
            allocated_gpus.update(dict(job.allocation))
    by_type: dict[GpuType, Counter[str]] = {}
    for node in reading.nodes:
        hops = min(node.gpus, allocated_gpus[node.name])
        plain = min(node.gpus - hops, node.foreign_gpus)
        unmet_demand = cpu_demand if is_cpu(node.gpu_type) else demand
        state = "down" if not node.usable else "fragmented" if unmet_demand else "idle"
        counts = by_type.setdefault(node.gpu_type, Counter())
        counts.update({"hops": hops, "plain": plain, state: node.gpus - hops - plain})
    return by_type
