"""Errors of predictions made at submission and later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.run_time.traces import LoggedJob
from hopsd.core.queue.run_time import RunTimeQuery, RunTimes
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState
from hopsd.store.past_runs import select_runs


@dataclass(frozen=True)
class Guess:
    """Predicted and true run time; ``is_within``: the 80 % interval, if any, contains the truth."""

    predicted_seconds: float
    run_seconds: float
    is_within: bool | None


def guesses(jobs: Sequence[LoggedJob], share: float) -> list[tuple[Guess, Guess]]:
    """Guesses for each job after ``share`` of its run: from past runs if any, and from the limit.

    Past runs are those that have ended by then.
    """
    records = [(job.submit + job.seconds, _record(n, job)) for n, job in enumerate(jobs)]
    pairs = []
    for job in jobs:
        now, elapsed_seconds = job.submit + share * job.seconds, share * job.seconds
        past = [record for end, record in records if end <= now]
        query = RunTimeQuery(
            job.user,
            "",
            str(job.workload),
            job.workload,
            job.gpus,
            elapsed_seconds,
            elapsed_seconds * job.gpus,
            most_seconds=job.limit - elapsed_seconds,
        )
        limit = Guess(job.limit, job.seconds, None)
        prediction = RunTimes(select_runs(past, [_record(0, job)])).expect(query)
        if prediction is None or prediction.seconds is None:
            pairs.append((limit, limit))
        else:
            seconds = prediction.seconds
            is_within = seconds * prediction.low <= job.seconds <= seconds * prediction.high
            pairs.append((Guess(seconds, job.seconds, is_within), limit))
    return pairs


def _record(number: int, job: LoggedJob) -> JobRecord:
    end = job.submit + job.seconds
    return JobRecord(
        JobId(str(number)), job.user, str(job.workload), "", job.workload, job.submit, end,
        SlurmState.COMPLETED, run_seconds=job.seconds, end=end,
        attained_gpu_seconds=job.seconds * job.gpus,
    )  # fmt: skip


def row(group: Sequence[Guess]) -> tuple[str, ...]:
    """Median factor, share within a factor of two, mean absolute error in hours, coverage."""
    factor = np.exp(np.abs(np.log([g.predicted_seconds / g.run_seconds for g in group])))
    hours = np.abs([g.predicted_seconds - g.run_seconds for g in group]) / 3600.0
    coverage = [g.is_within for g in group if g.is_within is not None]
    return (
        f"{np.median(factor):.2f}",
        f"{np.mean(factor <= 2.0):.0%}",
        f"{hours.mean():.2f}",
        f"{np.mean(coverage):.0%}" if coverage else "",
    )


def table(traces: Sequence[tuple[str, Sequence[LoggedJob]]]) -> str:
    """A Markdown table of the errors."""
    lines = [
        "| trace | known | by | jobs | median factor | within 2 x | mean error, h | in interval |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    columns: Sequence[tuple[str, Callable[[tuple[Guess, Guess]], Guess]]] = (
        ("time limit", lambda pair: pair[1]),
        ("past runs", lambda pair: pair[0]),
    )
    for name, jobs in traces:
        for share, moment in ((0.0, "at submission"), (0.5, "half way")):
            pairs = guesses(jobs, share)
            for method, pick in columns:
                if share and method == "time limit":
                    continue
                group = [pick(pair) for pair in pairs]
                cells = " | ".join(row(group))
                lines.append(f"| {name} | {moment} | {method} | {len(group)} | {cells} |")
            with_interval = [pair for pair in pairs if pair[0].is_within is not None]
            cells = " | ".join(row([pair[0] for pair in with_interval]))
            lines.append(
                f"| {name} | {moment} | past runs, where any | {len(with_interval)} | {cells} |"
            )
    return "\n".join(lines)
