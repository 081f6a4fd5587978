"""Find trainings that hang from the last reports of their ranks.

A training hangs if a rank has shown no sign of life for far longer than usual, and no other rank
does anything that could free it. Where each rank stands tells which rank stopped and which ones
only wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hopsd.core.report.rank import Rank, RankState
from hopsd.model.ids import JobId, NodeName

SILENT_SECONDS = 20.0
"""A process without a report for longer is silent: live ones write every 5 s between steps."""

LIVE_SECONDS = 60.0
"""An older report says nothing about the present."""

_CULPRITS = (RankState.STOPPED, RankState.SILENT, RankState.ENDED)
_MAX_PLACES = 8
_MAX_CALLS = 3


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank stands; ``line``, ``waits_in`` and ``stacks`` are "" if it reported none."""

    rank: int
    node: NodeName
    pid: int
    state: RankState
    line: str
    waits_in: str
    stacks: str


@dataclass(frozen=True, slots=True)
class HungTraining:
    """A training that hangs. ``since`` is the last sign of life, in epoch seconds, ``seconds`` the
    time without one, and ``limit`` the learnt longest usual pause, in seconds.

    ``ranks`` are in order of their numbers, without those that never reported.
    """

    job: JobId
    since: float
    seconds: float
    limit: float
    world: int
    ranks: tuple[RankPlace, ...]

    @property
    def culprits(self) -> tuple[RankPlace, ...]:
        """The ranks that others wait for; empty if all wait for each other."""
        return tuple(place for place in self.ranks if place.state in _CULPRITS)

    @property
    def text(self) -> str:
        """Describe the hang in a sentence, without showing the user's code."""
        waiting = [place for place in self.ranks if place.state is RankState.WAITING]
        phrases = [
            f"{_count(places)} {verb}"
            for state, verb in (
                (RankState.STOPPED, "stands still"),
                (RankState.SILENT, "does not answer"),
                (RankState.ENDED, "has ended"),
            )
            if (places := [place for place in self.ranks if place.state is state])
        ]
        if waiting and not phrases:
            calls = sorted({place.waits_in for place in waiting if place.waits_in})
            cause = "all ranks wait for each other" if self.world > 1 else "it waits for its GPU"
            more = ["others"] if len(calls) > _MAX_CALLS else []
            names = ", ".join(calls[:_MAX_CALLS] + more)
            phrases.append(f"{cause}, in {names}" if calls and self.world > 1 else cause)
        elif waiting:
            waiters = "another waits" if len(waiting) == 1 else f"{len(waiting)} others wait"
            phrases.append(f"{waiters} for that")
        return (
            f"hangs: no step and no other sign of life for {self.seconds:.0f} s"
            f" ({self.limit:.0f} s would be unusual): {'; '.join(phrases)}"
        )


def find_hung(ranks: Iterable[Rank], now: float) -> tuple[HungTraining, ...]:
    """Return the jobs of which a training hangs at ``now``, from the last reports ``ranks`` of
    their present runs.
    """
    trainings: dict[tuple[JobId, str, int, str], list[Rank]] = defaultdict(list)
    for rank in ranks:
        alone = f"{rank.node} {rank.pid}" if rank.world == 1 else ""
        trainings[rank.job, rank.program, rank.world, alone].append(rank)
    by_job: dict[JobId, HungTraining] = {}
    for members in trainings.values():
        hung = _judge(_newest(members), now)
        if hung is not None and (hung.job not in by_job or hung.seconds > by_job[hung.job].seconds):
            by_job[hung.job] = hung
    return tuple(by_job.values())


def _newest(members: Iterable[Rank]) -> list[Rank]:
    """Keep each rank's process that wrote last, since launchers restart ranks."""
    by_rank: dict[int, Rank] = {}
    for member in sorted(members, key=lambda member: member.written_at):
        by_rank[member.rank] = member
    return [by_rank[rank] for rank in sorted(by_rank)]


def _judge(members: Sequence[Rank], now: float) -> HungTraining | None:
    latest = max(member.written_at for member in members)
    states = [_state(member, latest) for member in members]
    stalled_ranks = [
        (member.pause, member.written_at)
        for member, state in zip(members, states, strict=True)
        if state in (RankState.WAITING, RankState.STOPPED)
        and member.pause is not None
        and now - member.heard_at <= LIVE_SECONDS
    ]
    moves = {RankState.TRAINING, RankState.BUSY, RankState.INTERACTIVE}
    if not stalled_ranks or not moves.isdisjoint(states):
        return None
    longest, last_report = max(stalled_ranks, key=lambda entry: entry[0].still_seconds)
    return HungTraining(
        members[0].job,
        last_report - longest.still_seconds,
        longest.still_seconds,
        longest.limit,
        members[0].world,
        tuple(
            RankPlace(
                member.rank,
                member.node,
                member.pid,
                state,
                member.pause.line if member.pause and state is not RankState.SILENT else "",
                member.pause.waits_in if member.pause and state is RankState.WAITING else "",
                member.pause.stacks if member.pause else "",
            )
            for member, state in zip(members, states, strict=True)
        ),
    )


def _state(member: Rank, latest: float) -> RankState:
    """Judge a rank's state; a pause that is not yet unusual may end by itself."""
    if member.ended:
        return RankState.ENDED
    if latest - member.written_at >= SILENT_SECONDS:
        return RankState.SILENT
    if member.pause is None:
        return RankState.TRAINING
    if member.pause.state in (RankState.WAITING, RankState.STOPPED) and not member.pause.is_stalled:
        return RankState.BUSY
    return member.pause.state


def _count(places: Sequence[RankPlace]) -> str:
    names = ", ".join(f"{place.rank} on {place.node}" for place in places[:_MAX_PLACES])
    suffix = f" and {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
    return f"rank {names}{suffix}"
