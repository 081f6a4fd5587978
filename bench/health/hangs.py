"""`python -m bench.health.hangs`: false alarms of hung trainings in simulated job-hours.

Two ranks train; in each hour rank 0 pauses several times, as trainings do, while rank 1 waits for
it. Every hundredth hour ends in a hang: rank 0 stops, or both wait for each other. The plugin
judges each rank by a look every 2 s. hopsd judges both ranks every 30 s, and as soon as a rank is
newly reported as stalled, for which it checks every 5 s.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hops_profiler.stall.stacks import StackPosition
from hops_profiler.stall.watchdog import LOOK_SECONDS, Judgement, Sample

from bench.result_file import write_result
from hopsd.core.report.rank import Pause, Rank, RankState
from hopsd.health.hung import find_hung
from hopsd.model.ids import JobId, NodeName
from hopsd.service.stalls import EVERY_SECONDS

REFRESH_SECONDS = 30.0
HOURS_OF_A_JOB = 20


@dataclass(frozen=True)
class Kind:
    """A kind of pause: how often per hour, how many seconds, and what rank 0 shows meanwhile.
    ``life`` is the share of looks that see a sign of life.
    """

    name: str
    per_hour: float
    shortest: float
    longest: float
    life: float = 0.0
    side_work: bool = False
    interactive: bool = False


KINDS = (
    Kind("evaluation", 2.0, 10, 1200, life=0.9, side_work=True),
    Kind("evaluation elsewhere, asleep", 0.1, 60, 1200, side_work=True),
    Kind("save", 2.0, 2, 300, life=0.5, side_work=True),
    Kind("save to a file server that is stuck", 0.05, 60, 900, side_work=True),
    Kind("compilation in children", 0.2, 10, 600, life=1.0),
    Kind("preparation of data in C", 0.2, 10, 1200, life=0.8),
    Kind("wait for another program", 5.0, 1, 15),
    Kind("breakpoint", 0.05, 60, 1800, interactive=True),
)


class Training:
    """A training of two ranks, with the judgement of each, which learns."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.now = dice, 0.0
        self.judgements = Judgement(), Judgement()
        self.cpu = [0.0, 0.0]

    def step(self) -> None:
        """Train for a minute to an hour, in steps of a second."""
        steps = int(60 * 60 ** self.dice.random())
        for judgement in self.judgements:
            judgement.record_steps(self.now + LOOK_SECONDS, 1)
            judgement.record_steps(self.now + steps, steps - 1)
        self.now += steps

    def pause(self, kind: Kind, seconds: float, waits: tuple[bool, bool]) -> float | None:
        """Pause; return the seconds after which hopsd reports a hang, None if it does not.
        ``waits`` says which ranks wait for the other.
        """
        began, look = self.now, self.now + self.dice.uniform(0.0, REFRESH_SECONDS)
        wake, stall_count = self.now + self.dice.uniform(0.0, EVERY_SECONDS), 0
        while self.now < began + seconds:
            self.now += LOOK_SECONDS
            for rank, judgement in enumerate(self.judgements):
                self._look(rank, judgement, kind, waits=waits[rank])
            if self.now >= wake:
                wake += EVERY_SECONDS
                before = stall_count
                stall_count = sum(judgement.is_stalled for judgement in self.judgements)
                look = self.now if stall_count > before else look
            if self.now >= look:
                look = max(look, self.now) + REFRESH_SECONDS
                if find_hung(self._words(), self.now):
                    return self.now - began
        return None

    def _look(self, rank: int, judgement: Judgement, kind: Kind, *, waits: bool) -> None:
        if not waits and self.dice.random() < kind.life:
            self.cpu[rank] += 1.0
        place = StackPosition(
            0, "train.py:1 in f", "all_reduce" if waits else "", interactive=False, side_work=False
        )
        self.cpu[rank] += 0.005 * LOOK_SECONDS
        sample = Sample(
            place,
            self.cpu[rank],
            0,
            interactive=kind.interactive and not waits,
            side_work=kind.side_work and not waits,
        )
        judgement.look(self.now, sample)

    def _words(self) -> list[Rank]:
        return [
            Rank(
                JobId("1"),
                NodeName("n0"),
                rank,
                2,
                rank,
                "",
                ended=False,
                pause=Pause(
                    RankState(judgement.state),
                    judgement.is_stalled,
                    0.0,
                    judgement.still_seconds(self.now),
                    judgement.limit,
                ),
                heard_at=self.now,
                written_at=self.now,
            )
            for rank, judgement in enumerate(self.judgements)
        ]


HANG = Kind("hang", 0.0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    counts = {kind.name: [0, 0] for kind in KINDS}
    delays: list[float] = []
    deadlocks: list[bool] = []
    training = Training(dice)
    for hour in range(arguments.hours):
        if hour % HOURS_OF_A_JOB == 0:
            training = Training(dice)
        for kind in KINDS:
            for _ in range(_poisson(dice.random, kind.per_hour)):
                training.step()
                seconds = kind.shortest * (kind.longest / kind.shortest) ** dice.random()
                alarm = training.pause(kind, seconds, (False, True))
                counts[kind.name][0] += 1
                counts[kind.name][1] += alarm is not None
        if hour % 100 == 99:
            training.step()
            deadlocks.append(dice.random() < 0.5)
            alarm = training.pause(HANG, 3600.0, (deadlocks[-1], True))
            delays.append(np.inf if alarm is None else alarm)
    rows = "\n".join(f"| {name} | {n:,} | {false} |" for name, (n, false) in counts.items())
    times = np.array(delays)
    kinds = np.array(deadlocks)
    table = "\n".join(
        f"| {name} | {mask.sum()} | {np.median(times[mask]):.0f} s |"
        f" {(times[mask] <= 60).mean():.0%} | {np.isfinite(times[mask]).mean():.0%} |"
        for name, mask in (("one rank stops", ~kinds), ("all wait for each other", kinds))
    )
    text = (
        f"{arguments.hours:,} job-hours of {HOURS_OF_A_JOB} h each, two ranks.\n\n"
        f"| pause of rank 0 | times | false alarms |\n|---|---:|---:|\n{rows}\n\n"
        f"Hangs, with {REFRESH_SECONDS:.0f} s between two readings, and one within"
        f" {EVERY_SECONDS:.0f} s of a rank's word that it stands still:\n\n"
        "| hang | times | told after, median | within 60 s | within an hour |\n"
        f"|---|---:|---:|---:|---:|\n{table}"
    )
    print(text)
    write_result("health_hangs", "Hung trainings: false alarms and delays", text)


def _poisson(draw: Callable[[], float], mean: float) -> int:
    count, product, bound = 0, draw(), float(np.exp(-mean))
    while product > bound:
        product *= draw()
        count += 1
    return count


if __name__ == "__main__":
    main()
