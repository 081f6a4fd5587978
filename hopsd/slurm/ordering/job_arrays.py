"""Job arrays: which of an array's tasks are jobs to plan for now.

Slurm keeps all untouched tasks of an array in one record, and turns a task into a job when it
starts or is changed: the job's number is new, but it is still called ``17_4``. So hops treats
tasks as jobs of these names from the first reading on, but only as many as could run at a time:
what the array allows (``0-99%8``), and at most what the cluster has GPUs for. The others stay
together as one entry, which keeps the array's waiting time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hopsd.model.ids import JobId, Tasks, job_order
from hopsd.model.reading import Hold, JobReading, SlurmState

TaskReader = Callable[[JobReading, int], JobReading]
"""Makes a job of a task (its number) of the array's record."""


def task_id(array: JobId, task: int) -> JobId:
    return JobId(f"{array}_{task}")


def in_turn(
    jobs: Iterable[JobReading], capacity: Callable[[JobReading], int], task_of: TaskReader
) -> list[JobReading]:
    """Return ``jobs`` with arrays' records replaced by the tasks whose turn it is.

    A record's ``rest`` has all tasks that Slurm has not made jobs of their own. ``capacity`` tells
    how many tasks of an array could run on the cluster. Tasks are taken by number, requeued ones
    first; a task that its user holds or that waits for a dependency delays no other.
    """
    arrays: dict[JobId, list[JobReading]] = defaultdict(list)
    placeable = []
    for job in jobs:
        if job.array or job.rest is not None:
            arrays[job.array or job.id].append(job)
        else:
            placeable.append(job)
    for members in arrays.values():
        placeable += _placeable_tasks(members, capacity, task_of)
    return placeable


def _placeable_tasks(
    members: Sequence[JobReading], capacity: Callable[[JobReading], int], task_of: TaskReader
) -> list[JobReading]:
    record = next((job for job in members if job.rest is not None), None)
    tasks_seen = [job for job in members if job.rest is None]
    limit = members[0].task_limit
    could_run = capacity(members[0])
    room = min(limit or could_run, could_run)
    waiting, occupied_places = (
        sorted(filter(_comes_up, tasks_seen), key=_turn),
        sum(map(_takes_a_place, tasks_seen)),
    )
    if limit:
        throttled_jobs = {job.id for job in waiting[max(0, limit - occupied_places) :]}
        tasks_seen = [
            replace(job, is_throttled=True) if job.id in throttled_jobs else job
            for job in tasks_seen
        ]
    if record is None or record.rest is None:
        return tasks_seen
    count = 0 if record.released else max(0, room - occupied_places - len(waiting))
    tasks, remaining = _choose(record, record.rest, count, task_of)
    if not remaining:
        return tasks_seen + tasks
    return [
        *tasks_seen,
        *tasks,
        replace(record, rest=remaining, is_throttled=bool(limit) and limit <= could_run),
    ]


def _takes_a_place(job: JobReading) -> bool:
    """Whether Slurm counts the job among the running tasks, or may do so at any moment."""
    waits = job.state is SlurmState.PENDING
    return (waits and job.released) or not (waits or job.state.finished)


def _comes_up(job: JobReading) -> bool:
    waits = job.state is SlurmState.PENDING or job.ended_in_profile
    return waits and not (job.released or job.dependency or job.hold is Hold.USER)


def _turn(job: JobReading) -> tuple[bool, tuple[int, int, int, str]]:
    return job.restarts == 0, job_order(job.id)


def _choose(
    record: JobReading, remaining: Tasks, count: int, task_of: TaskReader
) -> tuple[list[JobReading], Tasks]:
    """Split ``remaining`` into the next ``count`` tasks, as jobs, and the others."""
    if "aftercorr" not in record.waits_for:  # all tasks wait for the same thing
        first = remaining.first(count)
        return [task_of(record, task) for task in first], remaining.without_first(count)
    ready = sorted(
        (task_of(record, task) for task in remaining),
        key=lambda job: (job.is_stranded, job.dependency),
    )
    selection = sorted(ready[:count], key=_turn)
    remaining_tasks = (job_order(job.id)[2] for job in ready[count:])
    return selection, Tasks.from_numbers(remaining_tasks)


def as_task(record: JobReading, task: int) -> JobReading:
    """Make a job reading of a task that Slurm has not made a job of its own yet."""
    return replace(
        record,
        id=task_id(record.id, task),
        array=record.id,
        number="",
        rest=None,
        is_throttled=False,
    )
