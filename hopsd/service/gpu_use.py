"""What becomes of the cluster's GPUs from one look to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from hopsd.core.queue.history import OCCUPYING
from hopsd.model.devices import is_cpu
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.journal import HOUR, GpuUse
from hopsd.model.reading import Reading

_KINDS = tuple(item.name for item in fields(GpuUse) if item.name not in ("hour", "gpu_type"))


@dataclass(slots=True)
class Meter:
    """Between two looks the cluster is taken to have stayed as it was at the first of them."""

    _last: float | None = None
    _held: dict[GpuType, Counter[str]] = field(default_factory=dict)

    def look(
        self,
        reading: Reading,
        *,
        wanted: bool,
        wanted_cpus: bool = False,
        rack_fragments: Mapping[GpuType, int] | None = None,
        longest: float,
    ) -> tuple[GpuUse, ...]:
        """The use since the last look; none if that was more than ``longest`` seconds ago.

        ``wanted``: whether a job waits for GPUs now; ``wanted_cpus``: one that CPUs would do for.
        ``rack_fragments``: GPUs of the last plan, see :mod:`hopsd.policies.rack_fragments`.
        """
        since, self._last = self._last, reading.now
        held, self._held = self._held, _held(reading, wanted=wanted, wanted_cpus=wanted_cpus)
        for gpu_type, gpus in (rack_fragments or {}).items():
            counts = self._held.get(gpu_type, Counter())
            counts["rack_fragmented"] = min(gpus, counts["fragmented"])
        if since is None or not 0.0 < reading.now - since <= longest:
            return ()
        found, at = [], since
        while at < reading.now:
            hour = at // HOUR * HOUR
            end = min(hour + HOUR, reading.now)
            for gpu_type, gpus in held.items():
                seconds = {kind: gpus[kind] * (end - at) for kind in _KINDS}
                found.append(GpuUse(hour, gpu_type, **seconds))
            at = end
        return tuple(found)


def _held(reading: Reading, *, wanted: bool, wanted_cpus: bool) -> dict[GpuType, Counter[str]]:
    """GPUs of each type by what they are used for; each is counted once."""
    own: Counter[NodeName] = Counter()
    for job in reading.jobs:
        if job.state in OCCUPYING:
            own.update(dict(job.allocation))
    found: dict[GpuType, Counter[str]] = {}
    for node in reading.nodes:
        hops = min(node.gpus, own[node.name])
        plain = min(node.gpus - hops, node.foreign_gpus)
        missed = wanted_cpus if is_cpu(node.gpu_type) else wanted
        rest = "down" if not node.usable else "fragmented" if missed else "idle"
        counts = found.setdefault(node.gpu_type, Counter())
        counts.update({"hops": hops, "plain": plain, rest: node.gpus - hops - plain})
    return found
