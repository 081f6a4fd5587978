"""An executor gives the trials of one GPU their turns, and decides whose state is on it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

from hops_profiler.lane import residence
from hops_profiler.lane.link import WHOLE_TRIAL, Link, pair
from hops_profiler.lane.order import arrange
from hops_profiler.lane.settings import OUT_OF_MEMORY, Settings
from hops_profiler.lane.trials import Trial
from hops_profiler.launch.ranks import exit_code, fork


@dataclass(eq=False)
class Worker:
    """A process. ``trial`` is None while it stands by. ``size``: bytes of its state, None before
    its first gate. ``peak``: maximum bytes on the device while it ran; ``idle_bytes``: those since
    its last turn, if its state stayed. ``place`` of the state: "device", "leaving" or "host".
    ``has_copy``: the host has room for the state. ``alone``: why it needs all memory. ``stays``:
    its state cannot be moved. ``pace``: seconds per iteration; ``iterations`` so far, of ``total``,
    which is None if unknown. ``has_begun``: its trial has begun. ``ready``: it has reported
    ``free`` bytes on the device. ``is_gone``: it has closed its link.
    """

    pid: int
    link: Link
    trial: Trial | None = None
    size: int | None = None
    peak: int = 0
    idle_bytes: int = 0
    place: str = "host"
    has_copy: bool = False
    alone: str = ""
    stays: bool = False
    pace: float = 0.0
    iterations: int = 0
    total: float | None = None
    has_begun: bool = False
    ready: bool = False
    free: int = 0
    is_gone: bool = False


class Executor:
    """``name`` is that of the GPU, "" for the CPU; ``lane`` is the link to the lane's process."""

    def __init__(self, settings: Settings, name: str, lane: Link) -> None:
        self._settings = settings
        self._lane = lane
        self._capacity = settings.memory
        self._standby: list[Worker] = []
        self._active: list[Worker] = []
        self._latest: list[Worker] = []
        self._retries: list[tuple[Trial, str]] = []
        self._running: Worker | None = None
        self._answer: dict[str, Any] | None = None
        self._no_more = False
        self._signal = 0
        self._turns = (settings.output / f"turns.{name or 'cpu'}").open("a")

    def run(self) -> None:
        """Run trials until the lane has no more, or ends."""
        self._stand_by()
        self._capacity = self._capacity or self._find_capacity()
        while not self._signal:
            self._admit()
            if not self._active:
                break
            self._turn(self._choose())
        if self._signal:
            self._save_all()
        for worker in list(self._standby):
            self._kill(worker)

    # Workers

    def _stand_by(self) -> None:
        """Fork workers until as many stand by as the settings say."""
        while len(self._standby) < self._settings.standby and not self._no_more:
            self._standby.append(self._fork())

    def _fork(self, *, leads: bool = False) -> Worker:
        """Fork a process that stands by; with ``leads``, one for a trial of several ranks."""
        parent, child = pair()
        pid = fork()
        if not pid:
            self._become_worker(child, parent, leads=leads)
        child.close()
        return Worker(pid, parent)

    def _find_capacity(self) -> int:
        """Return the bytes for states: nine tenths of what is free on the GPU after the workers'
        contexts; without a GPU, the host's memory for states.
        """
        while not all(worker.ready for worker in self._standby):
            self._hear()
            if len(self._standby) < self._settings.standby:
                sys.exit("hops-lane: a worker ended before it was ready")
        free = min(worker.free for worker in self._standby)
        return int(0.9 * free) or self._settings.host_memory

    def _become_worker(self, link: Link, parent: Link, *, leads: bool) -> None:
        """Serve ``link`` in a forked process. Does not return."""
        for inheritance in (parent, self._lane, *(w.link for w in self._all_workers())):
            inheritance.close()
        self._standby, self._active = [], []
        from hops_profiler.lane import gang, worker  # noqa: PLC0415 - needs torch

        (gang if leads else worker).serve(link)

    def _all_workers(self) -> list[Worker]:
        return [*self._active, *self._standby]

    def _kill(self, worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGKILL)  # it may not have its own session yet
        self._reap(worker, os.waitpid(worker.pid, 0)[1])

    def _reap(self, worker: Worker, status: int) -> None:
        """Report the trial of a worker that has ended, and kill all processes of the trial."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.link.close()
        for group in (self._standby, self._active, self._latest):
            if worker in group:
                group.remove(worker)
        if self._running is worker:
            self._running = None
        if worker.trial is None:
            return
        code = exit_code(status)
        if not worker.has_begun:
            self._retries.append((worker.trial, worker.alone))
            return
        if code == OUT_OF_MEMORY and not worker.alone and not self._signal:
            self._retries.append((worker.trial, "it ran out of memory"))
            return
        self._lane.send(ended=worker.trial.number, code=code)

    # Whose turn it is

    def _admit(self) -> None:
        """Ask for trials until ``width`` of them take turns."""
        while len(self._active) < self._settings.width:
            trial, alone = self._retries.pop(0) if self._retries else (self._ask(), "")
            if trial is None:
                return
            if trial.ranks > 1:
                worker = self._fork(leads=True)  # it must have no context when it forks the ranks
            else:
                self._stand_by_at_least_one()
                worker = self._standby.pop(0)
            worker.trial, worker.alone = trial, alone
            self._active.append(worker)
            self._stand_by()

    def _stand_by_at_least_one(self) -> None:
        if not self._standby:
            no_more, self._no_more = self._no_more, False
            self._stand_by()
            self._no_more = no_more

    def _ask(self) -> Trial | None:
        """Ask the lane for a trial; None if it has no more."""
        if self._no_more or self._signal:
            return None
        self._lane.send(want=True)
        while self._answer is None and not self._signal:
            self._hear()
        answer, self._answer = self._answer, None
        if not answer or not answer["trial"]:
            self._no_more = True
            return None
        trial = answer["trial"]
        return Trial(**{**trial, "arguments": tuple(trial["arguments"])})

    def _choose(self) -> Worker:
        """Choose the next worker that can get room; one that cannot be moved runs to its end."""
        for worker in self._active:
            if worker.stays:
                return worker
        return next((w for w in self._active if self._can_have_room(w)), self._active[0])

    def _can_have_room(self, worker: Worker) -> bool:
        """Whether the host can hold what would have to leave."""
        excess = self._bytes_in_use(but=worker) + self._need(worker) - self._capacity
        excess -= sum(w.size or 0 for w in self._active if w.place == "leaving")
        room = self._settings.host_memory - sum(w.size or 0 for w in self._active if w.has_copy)
        for candidate in self._evictable_for(worker):
            if excess <= 0:
                break
            if not candidate.has_copy:
                room -= candidate.size or 0
            if room < 0:
                return False
            excess -= candidate.size or 0
        return True

    def _turn(self, worker: Worker) -> None:
        """Run a trial for one turn, and prepare the next turns meanwhile."""
        self._active.remove(worker)
        self._active.insert(0, worker)
        self._make_room(worker)
        while worker.is_gone and worker in self._active:
            self._hear()  # it has closed its link but not ended yet
        if worker.is_gone or self._signal:
            return
        was_there = worker.place == "device"
        self._go(worker, self._turn_length(worker))
        self._log_turn(worker, was_there=was_there)
        while self._running is worker and not self._signal:
            self._prepare()
            self._hear()
        if self._running is None and worker in self._active:
            self._active.remove(worker)  # move it to the end of the circle
            self._active.append(worker)
            self._active = arrange(
                self._settings.order, self._active, {w: self._remaining(w) for w in self._active}
            )

    def _go(self, worker: Worker, iterations: int, number: int = 0) -> None:
        """Let ``worker`` load its state and run for some iterations; ``number`` is a signal that it
        gets first.
        """
        trial = worker.trial
        assert trial is not None  # noqa: S101
        worker.place = "device"
        self._running = worker
        if not worker.has_begun:
            worker.has_begun = True
            worker.link.send(
                number=trial.number, arguments=trial.arguments, module=trial.module,
                log=str(self._settings.output / f"{trial.number}.log"), iterations=iterations,
                ranks=trial.ranks,
            )  # fmt: skip
        else:
            worker.link.send(
                do="run", iterations=iterations, signal=number,
                pipelined=self._settings.load != "plain", trim=self._tight(),
            )  # fmt: skip

    def _log_turn(self, worker: Worker, *, was_there: bool) -> None:
        """Log the turn, next to the journal, with what was on the device when it began."""
        numbers = [w.trial.number for w in self._active if w.trial and w.place != "host"]
        entry = {
            "trial": worker.trial and worker.trial.number, "kept": was_there, "on_device": numbers,
            "bytes": self._bytes_in_use(), "capacity": self._capacity,
        }  # fmt: skip
        self._turns.write(f"{json.dumps(entry)}\n")
        self._turns.flush()

    def _turn_length(self, worker: Worker) -> int:
        """Return a turn's iterations; the first ends at the first gate, which shows the size."""
        if worker.stays:
            return WHOLE_TRIAL
        if worker.size is None:
            return 1
        return self._settings.iterations or max(1, int(self._settings.turn / worker.pace))

    def _remaining(self, worker: Worker) -> float | None:
        """Return the seconds until the end of its training; None if unknown or overdue by a turn.

        This is 0 until its second gate, as the time to the first one is mostly startup.
        """
        if worker.iterations <= 1 and not worker.stays:
            return 0.0
        if worker.total is None or worker.stays:
            return None
        remaining = worker.total - worker.iterations
        return None if remaining < -self._turn_length(worker) else remaining * worker.pace

    # Whose state is where

    def _need(self, worker: Worker) -> int:
        """Return the bytes on the device that its turn needs."""
        if worker.size is None or worker.alone:
            return self._capacity
        return max(worker.size, worker.peak)

    def _tight(self) -> bool:
        """Whether the device has no room for the needs of all trials at once."""
        return sum(self._need(w) for w in self._active) > self._capacity

    def _bytes_in_use(self, but: Worker | None = None) -> int:
        """Return the bytes on the device of all workers ``but`` one."""
        return sum(
            self._need(w) if w is self._running else max(w.size or 0, w.idle_bytes)
            for w in self._active
            if w is not but and w.place != "host"
        )

    def _evictable_for(self, worker: Worker) -> list[Worker]:
        """Return workers whose state may make room for ``worker``, the last in turn first."""
        return [
            w
            for w in reversed(self._active)
            if w is not worker and w.place == "device" and not w.stays
        ]

    def _make_room(self, worker: Worker) -> None:
        while self._bytes_in_use(but=worker) + self._need(worker) > self._capacity:
            if not any(w.place == "leaving" for w in self._active):
                candidates = self._evictable_for(worker)
                if not candidates:
                    return  # the remaining states cannot be moved
                self._evict(candidates[0])
            self._hear()
            if worker not in self._active or self._signal:
                return

    def _evict(self, worker: Worker) -> None:
        worker.place, worker.has_copy = "leaving", True
        worker.link.send(do="evict")

    def _prepare(self) -> None:
        """While a trial runs, load the states of the next trials, and evict others for them."""
        if self._settings.load != "ahead":
            return
        if self._running is None or any(w.place == "leaving" for w in self._active):
            return
        sizes = {w: self._need(w) if w is self._running else w.size or 0 for w in self._active}
        residents = residence.resident(self._active, self._latest, sizes, self._capacity)
        for worker in residents:
            if worker.place != "host" or worker.size is None or worker.alone:
                continue
            if self._bytes_in_use() + worker.size <= self._capacity:
                worker.place = "device"
                worker.link.send(do="load")
                continue
            candidates = [w for w in self._evictable_for(worker) if w not in residents]
            if candidates and self._host_has_room(candidates[0]):
                self._evict(candidates[0])
            return

    def _host_has_room(self, worker: Worker) -> bool:
        copies = sum(w.size or 0 for w in self._active if w.has_copy and w is not worker)
        return copies + (worker.size or 0) <= self._settings.host_memory

    # Messages

    def _hear(self, seconds: float = 1.0) -> None:
        """Wait until something happens, at most for ``seconds``, and handle it."""
        poll = select.poll()
        links: dict[int, tuple[Link, Worker | None]] = {self._lane.fileno(): (self._lane, None)}
        for worker in self._all_workers():
            if not worker.is_gone:
                links[worker.link.fileno()] = (worker.link, worker)
        for number in links:
            poll.register(number, select.POLLIN)
        hurry = any(worker.is_gone for worker in self._all_workers())
        events = poll.poll(20 if hurry else int(seconds * 1000))
        for number, _ in events:
            link, sender = links[number]
            message = link.receive()
            if sender is None:
                self._from_lane(message)
            elif message is None:
                sender.is_gone = True
            else:
                self._from_worker(sender, message)
        if hurry or not events or any(worker.is_gone for worker in self._all_workers()):
            for worker in self._all_workers():
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    worker.is_gone = True
                    self._reap(worker, status)

    def _from_lane(self, message: dict[str, Any] | None) -> None:
        if message is None:
            sys.exit(1)
        if "stop" in message:
            self._signal = message["stop"]
        else:
            self._answer = message

    def _from_worker(self, worker: Worker, message: dict[str, Any]) -> None:
        if "evicted" in message:
            worker.place, worker.size, worker.idle_bytes = "host", message["evicted"], 0
        elif "paused" in message:
            worker.size, worker.peak = message["bytes"], message["peak"]
            worker.idle_bytes = message["held"]
            worker.pace = max(1e-6, message["seconds"] / message["paused"])
            worker.iterations += message["paused"]
            worker.total = message["planned"] or (worker.trial and worker.trial.iterations) or None
            if message["alone"]:
                worker.stays, worker.alone = True, message["alone"]
            self._running = None
            if worker in self._latest:
                self._latest.remove(worker)
            self._latest.insert(0, worker)
            if worker.size > self._capacity:
                self._refuse(worker)
        elif "ready" in message:
            worker.ready, worker.free = True, message["ready"]
        elif "refused" in message:
            worker.place, worker.stays, worker.alone = "device", True, message["refused"]

    def _refuse(self, worker: Worker) -> None:
        assert worker.trial is not None  # noqa: S101
        sys.stderr.write(
            f"hops-lane: trial {worker.trial.number} is killed: its state has {worker.size} bytes,"
            f" but there are only {self._capacity} for all states\n"
        )
        self._kill(worker)

    # The end

    def _save_all(self) -> None:
        """Load each trial's state, send the signal, and kill it after its share of the grace."""
        end = time.monotonic() + self._settings.grace
        for worker in sorted(self._active, key=lambda w: w is not self._running):
            if worker is self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, self._signal)
            elif worker.size is not None and not worker.is_gone:
                self._bring_back(worker)
                self._go(worker, WHOLE_TRIAL, self._signal)
            share = (end - time.monotonic()) / max(1, len(self._active))
            deadline = time.monotonic() + share
            while (
                worker.size is not None and worker in self._active and time.monotonic() < deadline
            ):
                self._hear(0.05)
                if self._running is None and worker in self._active:
                    self._go(worker, WHOLE_TRIAL)
            if worker in self._active:
                self._kill(worker)

    def _bring_back(self, worker: Worker) -> None:
        """Make room for its state despite the host's limit: the others have saved, or will."""
        while self._bytes_in_use(but=worker) + self._need(worker) > self._capacity:
            if not any(w.place == "leaving" for w in self._active):
                candidates = self._evictable_for(worker)
                if not candidates:
                    return
                self._evict(candidates[0])
            self._hear(0.05)
