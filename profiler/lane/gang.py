"""A trial of several ranks on one GPU, whose leader is a worker like any other to the executor.

The leader forks the ranks, forwards the executor's messages, and answers once all ranks have: they
pause after the same iteration, and their states move together. In between they compute one after
the other (`turnstile.py`). If one fails, the others get the same signal and grace as hops-run's
ranks. The process group that the script makes sums their gradients, as on several GPUs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from hops_profiler.lane.link import WHOLE_TRIAL, Link, pair
from hops_profiler.lane.settings import SIGNALS
from hops_profiler.launch.ranks import GRACE_SECONDS, ends_others, exit_code, fork
from hops_profiler.launch.rendezvous import free_port

if TYPE_CHECKING:
    from hops_profiler.lane.turnstile import Turnstile


def serve(link: Link) -> None:
    """Lead the trial that the executor names next. Does not return."""
    message = link.receive()
    if message is None:
        sys.exit(1)
    Gang(link, message["ranks"]).run(message)


class Gang:
    """The leader of ``count`` ranks, the children of this process."""

    def __init__(self, link: Link, count: int) -> None:
        self._executor = link
        self._ranks: dict[int, Link] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._has_turn = True
        self._code = 0
        port = str(free_port())
        from hops_profiler.lane.turnstile import Turnstile  # noqa: PLC0415 - needs torch

        turnstile = Turnstile()
        for rank in range(count):
            self._start(rank, count, port, turnstile)
        for number in (*SIGNALS, signal.SIGALRM):
            signal.signal(number, self._pass_on)

    def run(self, start: dict[str, Any]) -> None:
        """Send ``start`` to the ranks and wait for them; exit with the first failure's code."""
        self._send(start)
        while self._ranks:
            poll = select.poll()
            links = {link.fileno(): (pid, link) for pid, link in self._ranks.items()}
            for number in (self._executor.fileno(), *links):
                poll.register(number, select.POLLIN)
            for number, _ in poll.poll():
                if number in links:
                    self._hear(*links[number])
                    continue
                message = self._executor.receive()
                if message is None:
                    os._exit(1)
                self._has_turn = message["do"] == "run"
                self._send(message)
        os._exit(self._code)

    def _start(self, rank: int, count: int, port: str, turnstile: Turnstile) -> None:
        parent, child = pair()
        pid = fork()
        if pid:
            child.close()
            self._ranks[pid] = parent
            return
        for link in (parent, self._executor, *self._ranks.values()):
            link.close()
        # All ranks see the only GPU as number 0.
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
        )  # fmt: skip
        from hops_profiler.lane import worker  # noqa: PLC0415 - needs torch

        worker.serve(child, turnstile)

    def _send(self, message: dict[str, Any]) -> None:
        for link in self._ranks.values():
            link.send(**message)

    def _hear(self, pid: int, link: Link) -> None:
        message = link.receive()
        if message is None:
            code = exit_code(os.waitpid(pid, 0)[1])
            del self._ranks[pid]
            self._answers.pop(pid, None)
            if code and not self._code:
                self._fail(code)
        elif "ready" not in message:
            self._answers[pid] = message
        if self._code:
            self._let_end()
        elif self._answers and len(self._answers) == len(self._ranks):
            answers, self._answers = list(self._answers.values()), {}
            self._has_turn = False
            self._executor.send(**merge(answers))

    def _fail(self, code: int) -> None:
        """End the other ranks after one has failed. In their turn, they may be about to save."""
        self._code = code
        if not self._has_turn:
            os._exit(code)  # they are waiting, and die with this process
        if ends_others(code):
            self._pass_on(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    def _let_end(self) -> None:
        """Let the ranks at their gate run to their end: it is still their turn, and the last."""
        for pid in self._answers:
            self._ranks[pid].send(
                do="run", iterations=WHOLE_TRIAL, signal=0, pipelined=False, trim=False
            )
        self._answers = {}

    def _pass_on(self, number: int, _: FrameType | None = None) -> None:
        for pid in list(self._ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if number == signal.SIGALRM else number)


def merge(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the answers of all ranks: bytes add up, the slowest counts."""
    refusal = next((answer for answer in answers if "refused" in answer), None)
    if refusal is not None:
        return refusal
    result = dict(answers[0])
    for key in ("bytes", "held", "peak", "evicted"):
        if key in result:
            result[key] = sum(answer[key] for answer in answers)
    if "seconds" in result:
        result["seconds"] = max(answer["seconds"] for answer in answers)
        result["alone"] = next((a["alone"] for a in answers if a["alone"]), "")
    return result
