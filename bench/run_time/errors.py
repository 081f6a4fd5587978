"""Predictions made at submission and later, against what the jobs then took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.run_time.traces import Logged
from hopsd.core.queue.run_time import RunTimeQuery, RunTimes
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState
from hopsd.store.past_runs import select_runs


@dataclass(frozen=True)
class Guess:
    """In seconds; ``within``: the truth is in its 80 % interval, None: it has none."""

    told: float
    true: float
    within: bool | None


def guesses(jobs: Sequence[Logged], share: float) -> list[tuple[Guess, Guess]]:
    """Of each job after ``share`` of its run: by past runs where there are any, and by the limit.

    Only jobs that have ended by then are known.
    """
    ended = [(job.submit + job.seconds, _record(n, job)) for n, job in enumerate(jobs)]
    made = []
    for job in jobs:
        now, done = job.submit + share * job.seconds, share * job.seconds
        past = [record for end, record in ended if end <= now]
        asked = RunTimeQuery(
            job.user,
            "",
            str(job.workload),
            job.workload,
            job.gpus,
            done,
            done * job.gpus,
            most_seconds=job.limit - done,
        )
        limit = Guess(job.limit, job.seconds, None)
        found = RunTimes(select_runs(past, [_record(0, job)])).expect(asked)
        if found is None or found.seconds is None:
            made.append((limit, limit))
        else:
            told = found.seconds
            within = told * found.low <= job.seconds <= told * found.high
            made.append((Guess(told, job.seconds, within), limit))
    return made


def _record(number: int, job: Logged) -> JobRecord:
    end = job.submit + job.seconds
    return JobRecord(
        JobId(str(number)), job.user, str(job.workload), "", job.workload, job.submit, end,
        SlurmState.COMPLETED, run_seconds=job.seconds, end=end,
        attained_gpu_seconds=job.seconds * job.gpus,
    )  # fmt: skip


def row(found: Sequence[Guess]) -> tuple[str, ...]:
    """Median factor, share within a factor of two, mean absolute error in hours, coverage."""
    factor = np.exp(np.abs(np.log([g.told / g.true for g in found])))
    hours = np.abs([g.told - g.true for g in found]) / 3600.0
    covered = [g.within for g in found if g.within is not None]
    return (
        f"{np.median(factor):.2f}",
        f"{np.mean(factor <= 2.0):.0%}",
        f"{hours.mean():.2f}",
        f"{np.mean(covered):.0%}" if covered else "",
    )


def table(traces: Sequence[tuple[str, Sequence[Logged]]]) -> str:
    """Markdown."""
    lines = [
        "| trace | known | by | jobs | median factor | within 2 x | mean error, h | in interval |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    columns: Sequence[tuple[str, Callable[[tuple[Guess, Guess]], Guess]]] = (
        ("time limit", lambda pair: pair[1]),
        ("past runs", lambda pair: pair[0]),
    )
    for name, jobs in traces:
        for share, when in ((0.0, "at submission"), (0.5, "half way")):
            pairs = guesses(jobs, share)
            for by, pick in columns:
                if share and by == "time limit":
                    continue
                found = [pick(pair) for pair in pairs]
                cells = " | ".join(row(found))
                lines.append(f"| {name} | {when} | {by} | {len(found)} | {cells} |")
            known = [pair for pair in pairs if pair[0].within is not None]
            cells = " | ".join(row([pair[0] for pair in known]))
            lines.append(f"| {name} | {when} | past runs, where any | {len(known)} | {cells} |")
    return "\n".join(lines)
