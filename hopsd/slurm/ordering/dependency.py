"""Job dependencies: which of a held job's dependencies are still unmet.

slurmctld evaluates dependencies only for jobs that are not held (22.05: "afterany" on a job that
ended long ago stays "unfulfilled" while the priority is 0). So hops evaluates them itself, from the
jobs of the same answer. Slurm checks again after the release: a mistake here costs a failed start,
but never breaks the order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hopsd.model.ids import NO_TASKS, Tasks
from hopsd.model.reading import SlurmState

_CLAUSE = re.compile(r"([a-z]+)(?::(\d+(?:_(?:\d+|\*))?)(?:\+\d+)?)?(?:\((\w+)\))?")


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that a dependency may refer to: any that Slurm knows, not only hops jobs.

    ``state`` is also PENDING for a job that failed in a profile run, since it returns to the queue.
    ``dependency`` is the job's own, if Slurm alone decides when it starts. ``array`` is 0 for a job
    outside arrays. ``task`` is its number in the array, None for the record of those in ``rest``.
    """

    id: int
    user: str
    name: str
    state: SlurmState
    dependency: str | Mapping[str, Any] | None = None
    array: int = 0
    task: int | None = None
    rest: Tasks = NO_TASKS

    @property
    def turn(self) -> int:
        """The job's position in the order of submission, in which "singleton" lets jobs run."""
        return self.array or self.id

    @property
    def key(self) -> str:
        """``17`` or ``17_4``; for the record of an array, the array's own id."""
        return str(self.id) if self.task is None else f"{self.array}_{self.task}"


class KnownJobs:
    """The jobs of one answer, by the names that a dependency may use."""

    def __init__(self, jobs: Iterable[KnownJob]) -> None:
        self.jobs = tuple(jobs)
        self._by_key = {job.key: job for job in self.jobs}
        self._by_number = {str(job.id): job for job in self.jobs}
        self._arrays: dict[str, list[KnownJob]] = {}
        self._rests: dict[str, list[KnownJob]] = {}
        self._first: dict[tuple[str, str], int] = {}
        for job in self.jobs:
            if job.array:
                self._arrays.setdefault(str(job.array), []).append(job)
            if job.rest:
                self._rests.setdefault(str(job.array), []).append(job)
            if not job.state.finished:
                name = (job.user, job.name)
                self._first[name] = min(job.turn, self._first.get(name, job.turn))

    def one_before(self, job: KnownJob) -> bool:
        """Whether a job of the same name and user was submitted earlier and has not ended."""
        return self._first.get((job.user, job.name), job.turn) < job.turn

    def find(self, target: str) -> Sequence[KnownJob]:
        """Find a job or array (``17``, ``17_*``) or a task (``17_4``); empty if Slurm has none."""
        array, mark, task = target.partition("_")
        if array in self._arrays and task in ("", "*"):
            return self._arrays[array]
        if not mark:
            return [self._by_number[array]] if array in self._by_number else []
        if target in self._by_key:
            return [self._by_key[target]]
        return [j for j in self._rests.get(array, ()) if task.isdigit() and int(task) in j.rest]


def unmet(dependency: str | Mapping[str, Any] | None, job: KnownJob, jobs: KnownJobs) -> bool:
    """Whether the job must still wait.

    ``dependency`` is Slurm's text, such as ``afterok:17(unfulfilled),singleton(unfulfilled)``, with
    ``?`` between clauses if any one is enough, or pyslurm's mapping of the same. A job that is
    not among ``jobs`` ended long ago, and Slurm lifts the dependency. An unknown clause keeps the
    job waiting.
    """
    return _keeps_back(dependency, lambda c: c is None or not _is_met(c, job, jobs))


def is_stranded(dependency: str | Mapping[str, Any] | None, job: KnownJob, jobs: KnownJobs) -> bool:
    """Whether the job can never start, because jobs it depends on did not end as required."""
    return _keeps_back(dependency, lambda c: c is not None and _is_stranded(c, job, jobs))


def dependency_text(dependency: str | Mapping[str, Any] | None) -> str:
    """The dependency in sbatch's syntax, without the status that Slurm adds."""
    text = _text(dependency) if isinstance(dependency, Mapping) else dependency or ""
    return re.sub(r"\(\w*\)", "", text)


def _keeps_back(
    dependency: str | Mapping[str, Any] | None, one_does: Callable[[re.Match[str] | None], bool]
) -> bool:
    if not dependency:
        return False
    text = _text(dependency) if isinstance(dependency, Mapping) else dependency
    clauses = [_CLAUSE.fullmatch(part.strip()) for part in re.split("[,?]", text) if part]
    verdicts = [one_does(clause) for clause in clauses]
    return all(verdicts) if "?" in text and verdicts else any(verdicts)


def awaited_jobs(jobs: Iterable[KnownJob]) -> frozenset[str]:
    """Find the jobs, tasks and arrays (``17``, ``17_4``) on whose end another job of the same user
    depends: dependencies that other users set do not change how hops treats a job.

    To Slurm, a job that fails in a profile run has ended for some seconds: "afterok" then stays
    "failed", and "afterany" is met (22.05).
    """
    jobs = list(jobs)
    owners = {name: job.user for job in jobs for name in (str(job.array), str(job.id), job.key)}
    targets: set[str] = set()
    last: dict[tuple[str, str], int] = {}  # last job with "singleton", by user and name
    for job in jobs:
        if not job.dependency or job.state is not SlurmState.PENDING:
            continue
        text = _text(job.dependency) if isinstance(job.dependency, Mapping) else job.dependency
        for clause in _CLAUSE.finditer(text):
            kind, target, _ = clause.groups()
            if kind == "singleton":
                name = (job.user, job.name)
                last[name] = max(job.turn, last.get(name, 0))
            elif target is not None and kind != "after":
                target = target.removesuffix("_*")
                if owners.get(target, job.user) == job.user:
                    targets.add(target)
    before = {
        job.key
        for job in jobs
        if not job.state.finished and job.turn < last.get((job.user, job.name), 0)
    }
    return frozenset(targets | before)


def _all_ended(states: Sequence[SlurmState]) -> bool:
    return all(state.finished for state in states)


def _all_completed(states: Sequence[SlurmState]) -> bool:
    return all(state is SlurmState.COMPLETED for state in states)


_IS_MET: Mapping[str, Callable[[Sequence[SlurmState]], bool]] = {
    "after": lambda states: SlurmState.PENDING not in states,
    "afterany": _all_ended,
    "afterburstbuffer": _all_ended,
    "afterok": _all_completed,
    "aftercorr": _all_completed,
    "afternotok": lambda states: _all_ended(states) and not _all_completed(states),
}
"""The condition of each kind on the states of the job, or of all tasks of the array."""


def _states(kind: str, target: str, own_job: KnownJob, jobs: KnownJobs) -> list[SlurmState]:
    """The states to check; for ``aftercorr`` that of the same-numbered task or, if none, of all."""
    targets: Sequence[KnownJob] = ()
    if kind == "aftercorr" and own_job.task is not None:
        targets = jobs.find(f"{target.partition('_')[0]}_{own_job.task}")
    return [job.state for job in targets or jobs.find(target)]


def _is_met(clause: re.Match[str], job: KnownJob, jobs: KnownJobs) -> bool:
    kind, target, verdict = clause.groups()
    if kind == "singleton":
        return not jobs.one_before(job)
    if verdict == "failed" or kind not in _IS_MET or target is None:
        return False
    states = _states(kind, target, job, jobs)
    return not states or _IS_MET[kind](states)


def _is_stranded(clause: re.Match[str], job: KnownJob, jobs: KnownJobs) -> bool:
    kind, target, verdict = clause.groups()
    if verdict == "failed":
        return True
    if kind not in _IS_MET or target is None:
        return False
    states = _states(kind, target, job, jobs)
    return bool(states) and _all_ended(states) and not _IS_MET[kind](states)


def _text(dependency: Mapping[str, Any]) -> str:
    """Convert pyslurm's ``{"afterok": [17], "singleton": True, "satisfy": "any"}`` to text."""
    clauses = []
    for kind, targets in dependency.items():
        if targets is True:
            clauses.append(kind)
        elif isinstance(targets, Iterable) and not isinstance(targets, str):
            clauses += [f"{kind}:{job}" for job in targets]
    return ("?" if dependency.get("satisfy") == "any" else ",").join(clauses)
