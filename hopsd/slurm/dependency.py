"""Job dependencies: which of a held job's are still unmet.

slurmctld looks at the dependencies only of jobs that are not held (22.05: "afterany" on a job
long gone stays "unfulfilled" while the priority is 0). So hops looks itself, at the jobs of the
same answer. Slurm looks again after the release: what is wrong here costs a start, no order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hopsd.model.reading import SlurmState

_CLAUSE = re.compile(r"(\w+)(?::(\d+)(?:\+\d+)?)?(?:\((\w+)\))?")


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that a dependency may refer to: any that Slurm knows, not only hops jobs.

    ``state`` is PENDING also of a job that failed in a profile run: it goes back to the queue.
    ``wanted``: what it depends on itself, where Slurm alone decides when it starts.
    """

    id: int
    user: str
    name: str
    state: SlurmState
    wanted: str | Mapping[str, Any] | None = None


def unmet(
    wanted: str | Mapping[str, Any] | None, mine: KnownJob, others: Mapping[int, KnownJob]
) -> bool:
    """Whether the job must still wait.

    ``wanted`` is Slurm's text, such as ``afterok:17(unfulfilled),singleton(unfulfilled)``, with
    ``?`` between clauses of which one is enough, or pyslurm's mapping of the same. A job that is
    not among ``others`` ended long ago: Slurm lifts the dependency. A clause that is not
    understood keeps the job waiting.
    """
    return _keeps_back(wanted, lambda c: c is None or not _is_met(c, mine, others))


def stranded(wanted: str | Mapping[str, Any] | None, others: Mapping[int, KnownJob]) -> bool:
    """Whether the job would wait for ever, because the jobs it depends on ended in another way."""
    return _keeps_back(wanted, lambda c: c is not None and _is_stranded(c, others))


def dependency_text(wanted: str | Mapping[str, Any] | None) -> str:
    """The dependency in sbatch's syntax, without the status that Slurm adds."""
    text = _text(wanted) if isinstance(wanted, Mapping) else wanted or ""
    return re.sub(r"\(\w*\)", "", text)


def _keeps_back(
    wanted: str | Mapping[str, Any] | None, one_does: Callable[[re.Match[str] | None], bool]
) -> bool:
    if not wanted:
        return False
    text = _text(wanted) if isinstance(wanted, Mapping) else wanted
    clauses = [_CLAUSE.fullmatch(part.strip()) for part in re.split("[,?]", text) if part]
    keeping = [one_does(clause) for clause in clauses]
    return all(keeping) if "?" in text and keeping else any(keeping)


def awaited(jobs: Iterable[KnownJob]) -> frozenset[int]:
    """Jobs whose end decides whether Slurm starts another job.

    One that fails in a profile run ends for Slurm, for some seconds: "afterok" then reads
    "failed" for good, and "afterany" is met (22.05).
    """
    jobs = list(jobs)
    found: set[int] = set()
    for job in jobs:
        if not job.wanted or job.state is not SlurmState.PENDING:
            continue
        text = _text(job.wanted) if isinstance(job.wanted, Mapping) else job.wanted
        for clause in _CLAUSE.finditer(text):
            kind, target, _ = clause.groups()
            if kind == "singleton":
                found |= {other.id for other in jobs if _is_before(other, job)}
            elif target is not None and kind != "after":
                found.add(int(target))
    return frozenset(found)


def _ended(state: SlurmState) -> bool:
    return state.finished


_MET: Mapping[str, Callable[[SlurmState], bool]] = {
    "after": lambda state: state is not SlurmState.PENDING,
    "afterany": _ended,
    "afterburstbuffer": _ended,
    "afterok": lambda state: state is SlurmState.COMPLETED,
    "aftercorr": lambda state: state is SlurmState.COMPLETED,
    "afternotok": lambda state: _ended(state) and state is not SlurmState.COMPLETED,
}


def _is_met(clause: re.Match[str], mine: KnownJob, others: Mapping[int, KnownJob]) -> bool:
    kind, target, verdict = clause.groups()
    if kind == "singleton":
        return not any(_is_before(other, mine) for other in others.values())
    if verdict == "failed" or kind not in _MET or target is None:
        return False
    return int(target) not in others or _MET[kind](others[int(target)].state)


def _is_stranded(clause: re.Match[str], others: Mapping[int, KnownJob]) -> bool:
    kind, target, verdict = clause.groups()
    if verdict == "failed":
        return True
    if kind not in _MET or target is None or int(target) not in others:
        return False
    state = others[int(target)].state
    return _ended(state) and not _MET[kind](state)


def _is_before(other: KnownJob, mine: KnownJob) -> bool:
    """singleton: after all jobs of the same name and user that were submitted before."""
    same = (other.user, other.name) == (mine.user, mine.name)
    return same and other.id < mine.id and not other.state.finished


def _text(wanted: Mapping[str, Any]) -> str:
    """pyslurm: ``{"afterok": [17], "singleton": True, "satisfy": "any"}``, unused keys empty."""
    clauses = []
    for kind, given in wanted.items():
        if given is True:
            clauses.append(kind)
        elif isinstance(given, Iterable) and not isinstance(given, str):
            clauses += [f"{kind}:{job}" for job in given]
    return ("?" if wanted.get("satisfy") == "any" else ",").join(clauses)
