"""An executor: has the trials of one GPU take turns, and decides whose state is on it."""

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
from hops_profiler.lane.link import UNLIMITED, Link, pair
from hops_profiler.lane.order import arrange
from hops_profiler.lane.settings import OUT_OF_MEMORY, Settings
from hops_profiler.lane.trials import Trial
from hops_profiler.launch.ranks import exit_code, fork


@dataclass(eq=False)
class Worker:
    """A process. ``trial`` None: it stands by. ``size``: bytes of its state, None before its first
    gate. ``peak``: most that it has held while it ran; ``held``: since its last turn, if its state
    stayed. ``place`` of the state: on the "device", "leaving", on the "host", "coming". ``copied``:
    the host has room for it. ``alone``: why it needs all memory. ``pace``: seconds an iteration;
    ``done`` of those ``planned``, None if unknown.
    """

    pid: int
    link: Link
    trial: Trial | None = None
    size: int | None = None
    peak: int = 0
    held: int = 0
    place: str = "host"
    copied: bool = False
    alone: str = ""
    stays: bool = False
    pace: float = 0.0
    done: int = 0
    planned: float | None = None
    started: bool = False
    ready: bool = False
    free: int = 0
    gone: bool = False


class Executor:
    """``name`` of the GPU, "" for the CPU. ``lane``: the link to the process with the trials."""

    def __init__(self, settings: Settings, name: str, lane: Link) -> None:
        self._settings = settings
        self._lane = lane
        self._capacity = settings.memory
        self._standby: list[Worker] = []
        self._active: list[Worker] = []
        self._latest: list[Worker] = []
        self._again: list[tuple[Trial, str]] = []
        self._running: Worker | None = None
        self._answer: dict[str, Any] | None = None
        self._drained = False
        self._signal = 0
        self._turns = (settings.output / f"turns.{name or 'cpu'}").open("a")

    def run(self) -> None:
        """Until the lane has no more trials, or says that it ends."""
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
        """Have as many workers waiting as are to be made in advance."""
        while len(self._standby) < self._settings.standby and not self._drained:
            self._standby.append(self._fork())

    def _fork(self, *, leads: bool = False) -> Worker:
        """A new process that stands by; ``leads``: for a trial of several ranks."""
        own, other = pair()
        pid = fork()
        if not pid:
            self._become_worker(other, own, leads=leads)
        other.close()
        return Worker(pid, own)

    def _find_capacity(self) -> int:
        """What a GPU has left with all the workers' contexts on it, less a tenth; where there is
        none, what the host has.
        """
        while not all(worker.ready for worker in self._standby):
            self._hear()
            if len(self._standby) < self._settings.standby:
                sys.exit("hops-lane: a worker ended before it was ready")
        free = min(worker.free for worker in self._standby)
        return int(0.9 * free) or self._settings.host_memory

    def _become_worker(self, link: Link, *others: Link, leads: bool) -> None:
        """Does not return."""
        for other in (*others, self._lane, *(w.link for w in self._everybody())):
            other.close()
        self._standby, self._active = [], []
        from hops_profiler.lane import gang, worker  # noqa: PLC0415 - needs torch

        (gang if leads else worker).serve(link)

    def _everybody(self) -> list[Worker]:
        return [*self._active, *self._standby]

    def _kill(self, worker: Worker) -> None:
        os.kill(worker.pid, signal.SIGKILL)  # it may not have got to a session of its own
        self._reap(worker, os.waitpid(worker.pid, 0)[1])

    def _reap(self, worker: Worker, status: int) -> None:
        """A worker has ended: its trial has, and whatever that has started ends."""
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
        if not worker.started:
            self._again.append((worker.trial, worker.alone))
            return
        if code == OUT_OF_MEMORY and not worker.alone and not self._signal:
            self._again.append((worker.trial, "it ran out of memory"))
            return
        self._lane.send(ended=worker.trial.number, code=code)

    # Whose turn it is

    def _admit(self) -> None:
        """Take up trials while there are few."""
        while len(self._active) < self._settings.width:
            trial, alone = self._again.pop(0) if self._again else (self._ask(), "")
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
            drained, self._drained = self._drained, False
            self._stand_by()
            self._drained = drained

    def _ask(self) -> Trial | None:
        """A trial from the lane; None if there is none left."""
        if self._drained or self._signal:
            return None
        self._lane.send(want=True)
        while self._answer is None and not self._signal:
            self._hear()
        answer, self._answer = self._answer, None
        if not answer or not answer["trial"]:
            self._drained = True
            return None
        told = answer["trial"]
        return Trial(**{**told, "arguments": tuple(told["arguments"])})

    def _choose(self) -> Worker:
        """The next in turn for whom there can be room; one that cannot be moved, until its end."""
        for worker in self._active:
            if worker.stays:
                return worker
        return next((w for w in self._active if self._can_have_room(w)), self._active[0])

    def _can_have_room(self, worker: Worker) -> bool:
        """True if the host can hold what would have to leave."""
        excess = self._used(but=worker) + self._need(worker) - self._capacity
        excess -= sum(w.size or 0 for w in self._active if w.place == "leaving")
        room = self._settings.host_memory - sum(w.size or 0 for w in self._active if w.copied)
        for other in self._last_used_last(worker):
            if excess <= 0:
                break
            if not other.copied:
                room -= other.size or 0
            if room < 0:
                return False
            excess -= other.size or 0
        return True

    def _turn(self, worker: Worker) -> None:
        """Run a trial for one turn, and meanwhile prepare what follows."""
        self._active.remove(worker)
        self._active.insert(0, worker)
        self._make_room(worker)
        while worker.gone and worker in self._active:
            self._hear()  # it has closed its link, and not ended yet
        if worker.gone or self._signal:
            return
        kept = worker.place == "device"
        self._go(worker, self._iterations(worker))
        self._note(worker, kept=kept)
        while self._running is worker and not self._signal:
            self._prepare()
            self._hear()
        if self._running is None and worker in self._active:
            self._active.remove(worker)  # to the end of the circle
            self._active.append(worker)
            self._active = arrange(
                self._settings.order, self._active, {w: self._left(w) for w in self._active}
            )

    def _go(self, worker: Worker, iterations: int, number: int = 0) -> None:
        """Let it run; load what is not there."""
        trial = worker.trial
        assert trial is not None  # noqa: S101
        worker.place = "device"
        self._running = worker
        if not worker.started:
            worker.started = True
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

    def _note(self, worker: Worker, *, kept: bool) -> None:
        """A line on each turn, beside the journal: what was on the device when it began."""
        here = [w.trial.number for w in self._active if w.trial and w.place != "host"]
        entry = {
            "trial": worker.trial and worker.trial.number, "kept": kept, "on_device": here,
            "bytes": self._used(), "capacity": self._capacity,
        }  # fmt: skip
        self._turns.write(f"{json.dumps(entry)}\n")
        self._turns.flush()

    def _iterations(self, worker: Worker) -> int:
        """How many a turn has; the first ends at the first gate, where the size is seen."""
        if worker.stays:
            return UNLIMITED
        if worker.size is None:
            return 1
        return self._settings.iterations or max(1, int(self._settings.turn / worker.pace))

    def _left(self, worker: Worker) -> float | None:
        """Seconds that it has to train; None if that is unknown, or was wrong by a turn.

        0 until its second gate: the time to the first one is mostly its start, not an iteration.
        """
        if worker.done <= 1 and not worker.stays:
            return 0.0
        if worker.planned is None or worker.stays:
            return None
        left = worker.planned - worker.done
        return None if left < -self._iterations(worker) else left * worker.pace

    # Whose state is where

    def _need(self, worker: Worker) -> int:
        if worker.size is None or worker.alone:
            return self._capacity
        return max(worker.size, worker.peak)

    def _tight(self) -> bool:
        """True if not all trials can keep what they hold while they run."""
        return sum(self._need(w) for w in self._active) > self._capacity

    def _used(self, but: Worker | None = None) -> int:
        return sum(
            self._need(w) if w is self._running else max(w.size or 0, w.held)
            for w in self._active
            if w is not but and w.place != "host"
        )

    def _last_used_last(self, worker: Worker) -> list[Worker]:
        """Who may leave for ``worker``: first who is needed last."""
        return [
            w
            for w in reversed(self._active)
            if w is not worker and w.place == "device" and not w.stays
        ]

    def _make_room(self, worker: Worker) -> None:
        while self._used(but=worker) + self._need(worker) > self._capacity:
            if not any(w.place == "leaving" for w in self._active):
                others = self._last_used_last(worker)
                if not others:
                    return  # what is left there cannot be moved
                self._evict(others[0])
            self._hear()
            if worker not in self._active or self._signal:
                return

    def _evict(self, worker: Worker) -> None:
        worker.place, worker.copied = "leaving", True
        worker.link.send(do="evict")

    def _prepare(self) -> None:
        """While a trial runs, have the next ones' states come, and others leave for them."""
        if self._settings.load != "ahead":
            return
        if self._running is None or any(w.place == "leaving" for w in self._active):
            return
        sizes = {w: self._need(w) if w is self._running else w.size or 0 for w in self._active}
        wanted = residence.resident(self._active, self._latest, sizes, self._capacity)
        for worker in wanted:
            if worker.place != "host" or worker.size is None or worker.alone:
                continue
            if self._used() + worker.size <= self._capacity:
                worker.place = "device"
                worker.link.send(do="load")
                continue
            others = [w for w in self._last_used_last(worker) if w not in wanted]
            if others and self._host_can_hold(others[0]):
                self._evict(others[0])
            return

    def _host_can_hold(self, worker: Worker) -> bool:
        held = sum(w.size or 0 for w in self._active if w.copied and w is not worker)
        return held + (worker.size or 0) <= self._settings.host_memory

    # What is heard

    def _hear(self, seconds: float = 1.0) -> None:
        """Wait until something happens, and note it."""
        poll = select.poll()
        links: dict[int, tuple[Link, Worker | None]] = {self._lane.fileno(): (self._lane, None)}
        for worker in self._everybody():
            if not worker.gone:
                links[worker.link.fileno()] = (worker.link, worker)
        for number in links:
            poll.register(number, select.POLLIN)
        hurry = any(worker.gone for worker in self._everybody())
        heard = poll.poll(20 if hurry else int(seconds * 1000))
        for number, _ in heard:
            link, of = links[number]
            message = link.receive()
            if of is None:
                self._from_lane(message)
            elif message is None:
                of.gone = True
            else:
                self._from_worker(of, message)
        if hurry or not heard or any(worker.gone for worker in self._everybody()):
            for worker in self._everybody():
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    worker.gone = True
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
            worker.place, worker.size, worker.held = "host", message["evicted"], 0
        elif "paused" in message:
            worker.size, worker.peak = message["bytes"], message["peak"]
            worker.held = message["held"]
            worker.pace = max(1e-6, message["seconds"] / message["paused"])
            worker.done += message["paused"]
            worker.planned = (
                message["planned"] or (worker.trial and worker.trial.iterations) or None
            )
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
            f"hops-lane: trial {worker.trial.number} is ended: its state has {worker.size} bytes,"
            f" there are {self._capacity}\n"
        )
        self._kill(worker)

    # The end

    def _save_all(self) -> None:
        """Give each trial, its state loaded, the signal and a share of the time, then end it."""
        end = time.monotonic() + self._settings.grace
        for worker in sorted(self._active, key=lambda w: w is not self._running):
            if worker is self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, self._signal)
            elif worker.size is not None and not worker.gone:
                self._bring_back(worker)
                self._go(worker, UNLIMITED, self._signal)
            left = end - time.monotonic()
            until = time.monotonic() + left / max(1, len(self._active))
            while worker.size is not None and worker in self._active and time.monotonic() < until:
                self._hear(0.05)
                if self._running is None and worker in self._active:
                    self._go(worker, UNLIMITED)
            if worker in self._active:
                self._kill(worker)

    def _bring_back(self, worker: Worker) -> None:
        """Make room whatever it takes: the others have saved, or can."""
        while self._used(but=worker) + self._need(worker) > self._capacity:
            if not any(w.place == "leaving" for w in self._active):
                others = self._last_used_last(worker)
                if not others:
                    return
                self._evict(others[0])
            self._hear(0.05)
