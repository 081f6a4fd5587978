"""A timetable of GPUs: when they are free, reservations, and the earliest place for a job."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, NodeName
from hopsd.model.job import Node

Gain = tuple[float, int]
"""A time, and the number of GPUs that become free then."""


@dataclass(frozen=True, slots=True)
class Slot:
    """GPUs from ``start`` until ``end`` (seconds).

    The lowest ``rank`` is best: the earliest, then on a single server, then on the fullest.
    """

    rank: tuple[float, bool, int]
    end: float
    allocation: Allocation

    @property
    def start(self) -> float:
        """When the job would start."""
        return self.rank[0]


class Timetable:
    """When the GPUs of servers of several types are free, from ``now`` on."""

    def __init__(
        self,
        now: float,
        nodes: Iterable[Node],
        idle: Mapping[NodeName, int],
        gains: Mapping[NodeName, Iterable[Gain]],
    ) -> None:
        """``idle``: GPUs free now; ``gains``: when others become free, after ``now``."""
        self.now = now
        self._servers: dict[NodeName, _Server] = {}
        servers_by_type: dict[GpuType, list[_Server]] = {}
        for node in nodes:
            server = _Server(node, now, idle[node.name], gains.get(node.name, ()))
            self._servers[node.name] = server
            servers_by_type.setdefault(node.gpu_type, []).append(server)
        self._groups = {t: _Group(servers) for t, servers in servers_by_type.items()}
        self._free_until: dict[int, dict[GpuType, float]] = {}

    def free_until(self, gpus: int) -> Mapping[GpuType, float]:
        """Until when each type that has ``gpus`` free for one job now keeps them free.

        For a job larger than a server, only whole servers are considered.
        """
        if gpus not in self._free_until:
            end_by_type = {t: group.free_until(gpus) for t, group in self._groups.items()}
            self._free_until[gpus] = {t: end for t, end in end_by_type.items() if end > self.now}
        return self._free_until[gpus]

    def soonest(self, gpus: int, seconds: Mapping[GpuType, float]) -> Slot | None:
        """The earliest place where a job fits for as long as it runs; None if unknown, since the
        job needs GPUs held by other than the known jobs.
        """
        best: Slot | None = None
        for gpu_type, long in seconds.items():
            place = self._groups[gpu_type].soonest(gpus, long, best.start if best else inf)
            if place is not None and (best is None or place.rank < best.rank):
                best = place
        return best

    def reserve(self, place: Slot) -> None:
        """Reserve a place."""
        for name, gpus in place.allocation:
            server = self._servers[name]
            server.take(place.start, place.end, gpus)
            self._groups[server.gpu_type].forget()
        self._free_until.clear()


class _Server:
    """One server: ``_free[i]`` GPUs are free from ``_times[i]`` until ``_times[i + 1]``."""

    __slots__ = ("_free", "_times", "_windows", "gpu_type", "gpus", "name")

    def __init__(self, node: Node, now: float, idle: int, gains: Iterable[Gain]) -> None:
        self.name, self.gpu_type, self.gpus = node.name, node.gpu_type, node.gpus
        self._times, self._free = [now], [idle]
        for time, gpus in sorted(gains):
            if time > self._times[-1]:
                self._times.append(time)
                self._free.append(self._free[-1])
            self._free[-1] += gpus
        self._windows: dict[int, list[tuple[float, float]]] = {}

    @property
    def idle(self) -> int:
        return self._free[0]

    def windows(self, gpus: int) -> list[tuple[float, float]]:
        """The maximal intervals in which ``gpus`` GPUs are free throughout."""
        if gpus not in self._windows:
            windows_found, begin = [], None
            for time, free in zip(self._times, self._free, strict=True):
                if free >= gpus:
                    begin = time if begin is None else begin
                elif begin is not None:
                    windows_found.append((begin, time))
                    begin = None
            if begin is not None:
                windows_found.append((begin, inf))
            self._windows[gpus] = windows_found
        return self._windows[gpus]

    def holds(self, gpus: int, start: float, end: float) -> bool:
        return any(begin <= start and end <= stop for begin, stop in self.windows(gpus))

    def free_at(self, time: float) -> int:
        return self._free[bisect_right(self._times, time) - 1]

    def take(self, start: float, end: float, gpus: int) -> None:
        first, stop = self._row(start), self._row(end)
        for row in range(first, stop):
            self._free[row] -= gpus
        self._windows.clear()

    def _row(self, time: float) -> int:
        """The row that begins at ``time``, inserted if missing."""
        row = bisect_left(self._times, time)
        if row == len(self._times) or self._times[row] != time:
            self._times.insert(row, time)
            self._free.insert(row, self._free[row - 1])
        return row


Window = tuple[float, float, _Server]
"""An interval in which a server has some number of GPUs free throughout."""


class _Group:
    """The servers of one type."""

    def __init__(self, servers: Sequence[_Server]) -> None:
        self._servers = servers
        self._largest_first = sorted(servers, key=lambda server: -server.gpus)
        self._size = self._largest_first[0].gpus
        self._has_equal_servers = self._largest_first[-1].gpus == self._size
        self._free_until: dict[int, float] = {}

    def forget(self) -> None:
        """Clear the caches; must be called after a server's GPUs were taken."""
        self._free_until.clear()

    def free_until(self, gpus: int) -> float:
        """Until when ``gpus`` GPUs stay free; a time before now if they are not free now."""
        if gpus not in self._free_until:
            count = max(1, gpus // self._size)
            needs = ((s, gpus if gpus <= self._size else s.gpus) for s in self._servers)
            ends = sorted([s.windows(need)[0][1] for s, need in needs if s.idle >= need])
            self._free_until[gpus] = ends[-count] if count <= len(ends) else -inf
        return self._free_until[gpus]

    def soonest(self, gpus: int, seconds: float, before: float) -> Slot | None:
        """The earliest place on one server, ties going to the fullest. A larger job takes whole
        servers, the largest first, and part of one more for the remainder. None if it would start
        after ``before``.
        """
        return (self._on_one if gpus <= self._size else self._on_many)(gpus, seconds, before)

    def _on_one(self, gpus: int, seconds: float, before: float) -> Slot | None:
        start, free, server_name = before, self._size + 1, None
        for server in self._servers:
            for begin, end in server.windows(gpus):
                if begin > start:
                    break
                if begin + seconds <= end:
                    free_after = server.free_at(begin)
                    if begin < start or free_after < free:
                        start, free, server_name = begin, free_after, server.name
                    break
        if server_name is None:
            return None
        return Slot((start, False, free), start + seconds, Allocation(((server_name, gpus),)))

    def _on_many(self, gpus: int, seconds: float, before: float) -> Slot | None:
        count, last_gpus = divmod(gpus, self._size)
        full_windows = [
            (begin, end, server)
            for server in self._largest_first
            for begin, end in server.windows(server.gpus)
            if begin + seconds <= end
        ]
        begins = sorted(begin for begin, _, _ in full_windows)[count - 1 :]
        if not begins or begins[0] > before:
            return None
        for part in (last_gpus,) if self._has_equal_servers else range(1, self._size):
            begins += self._begins(part, seconds, begins[0]) if part else []
        for start in sorted(set(begins)):
            if parts := self._parts(gpus, full_windows, start, start + seconds):
                return Slot((start, True, 0), start + seconds, Allocation.of(parts))
        return None

    def _begins(self, gpus: int, seconds: float, after: float) -> list[float]:
        """The beginnings of windows with ``gpus`` free GPUs that last long enough."""
        return [
            begin
            for server in self._servers
            for begin, end in server.windows(gpus)
            if begin > after and begin + seconds <= end
        ]

    def _parts(
        self, gpus: int, full_windows: Iterable[Window], start: float, end: float
    ) -> dict[NodeName, int]:
        """GPUs by server; empty if there is no room from ``start`` to ``end``."""
        parts: dict[NodeName, int] = {}
        for begin, stop, server in full_windows:
            if begin <= start and end <= stop and server.gpus <= gpus:
                parts[server.name] = server.gpus
                gpus -= server.gpus
        if not gpus:
            return parts
        if gpus > self._size:
            return {}
        candidates = [s for s in self._servers if s.name not in parts and s.holds(gpus, start, end)]
        if not candidates:
            return {}
        return parts | {min(candidates, key=lambda server: server.free_at(start)).name: gpus}
