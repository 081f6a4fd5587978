"""Checks independently that a schedule meets the constraints of Hare_Sched (section 5.1).

It shares no code with the scheduler, and loops over the constraints as printed in the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import isfinite

from hopsd.policies.hare.tasks import Instance, Schedule

TOLERANCE = 1e-6
"""Tolerance in seconds and relative to the time, for rounding errors of floating-point sums."""


def violations(instance: Instance, schedule: Schedule) -> list[str]:
    """Return one sentence per violated constraint; empty for a feasible schedule.

    Constraint 6 defines C_n, so a value derived from the schedule cannot violate it; the others
    are checked as printed. A GPU's ``free_from`` counts with constraint 8.
    """
    task_count = int((instance.rounds * instance.scale).sum())
    if len(schedule.start) != task_count or len(schedule.gpu) != task_count:
        message = f"{len(schedule.start)} tasks have a start, {len(schedule.gpu)} a GPU"
        return [f"(5) {message}, there are {task_count}"]
    wrong = list(_assignment_errors(instance, schedule))
    if not wrong:
        wrong = [*_in_order(instance, schedule), *_one_at_a_time(instance, schedule)]
    return wrong


def _tasks(instance: Instance) -> Iterator[tuple[int, int, int]]:
    """Iterate over (task, job, round) in the numbering of tasks."""
    task = 0
    for job in range(len(instance.arrival)):
        for turn in range(int(instance.rounds[job])):
            for _ in range(int(instance.scale[job])):
                yield task, job, turn
                task += 1


def _assignment_errors(instance: Instance, schedule: Schedule) -> Iterator[str]:
    """Check constraints 4 and 5."""
    for task, job, _ in _tasks(instance):
        start, gpu = float(schedule.start[task]), int(schedule.gpu[task])
        if not isfinite(start) or _before(start, float(instance.arrival[job])):
            yield f"(4) task {task} starts at {start}, its job arrives at {instance.arrival[job]}"
        if not 0 <= gpu < len(instance.gpu_type):
            yield f"(5) task {task} is on GPU {gpu}, there are {len(instance.gpu_type)}"
        elif not isfinite(float(instance.train[job, instance.gpu_type[gpu]])):
            yield f"(5) task {task} is on GPU {gpu}, where its job cannot run"


def _in_order(instance: Instance, schedule: Schedule) -> Iterator[str]:
    """Check constraint 7: a round begins after all tasks of the previous one are synchronised."""
    synced_at: dict[tuple[int, int], float] = defaultdict(float)
    for task, job, turn in _tasks(instance):
        kind = instance.gpu_type[schedule.gpu[task]]
        end = float(schedule.start[task] + instance.train[job, kind] + instance.sync[job, kind])
        synced_at[job, turn] = max(synced_at[job, turn], end)
    for task, job, turn in _tasks(instance):
        start = float(schedule.start[task])
        if turn > 0 and _before(start, synced_at[job, turn - 1]):
            yield (f"(7) task {task} of round {turn} starts at {start}, round {turn - 1} is"
                   f" synchronised at {synced_at[job, turn - 1]}")  # fmt: skip


def _one_at_a_time(instance: Instance, schedule: Schedule) -> Iterator[str]:
    """Check constraint 8: of two tasks on one GPU, the later waits for the earlier's training."""
    busy: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for task, job, _ in _tasks(instance):
        gpu, start = int(schedule.gpu[task]), float(schedule.start[task])
        busy[gpu].append((start, float(instance.train[job, instance.gpu_type[gpu]]), task))
    for gpu, tasks in busy.items():
        free, occupant = float(instance.free_from[gpu]), "others"
        for start, seconds, task in sorted(tasks):
            if _before(start, free):
                yield f"(8) task {task} starts at {start} on GPU {gpu}, {occupant} end at {free}"
            free, occupant = start + seconds, f"task {task}'s training"


def _before(moment: float, limit: float) -> bool:
    return moment < limit - TOLERANCE * max(1.0, abs(limit))
