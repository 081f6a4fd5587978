"""Plans written down as they are made, so that an interrupted run can go on.

A simulation is a pure function of its inputs and of the policy's answers. To resume, the run is
played again from its start with the answers that were written down, which costs no planning,
and goes on with the policy where they end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import IO, Any, cast

from hopsd.errors import InputError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.plan import Plan, PlanSettings, Snapshot
from hopsd.policies.protocol import Policy


def fingerprint(*inputs: object) -> str:
    """A short name of a run's inputs: equal inputs, equal name."""
    return sha256(repr(inputs).encode()).hexdigest()[:16]


@dataclass(slots=True)
class Journaled:
    """A policy that writes its plans to ``file`` after answering from ``old`` while it lasts."""

    policy: Policy
    file: IO[str]
    old: list[dict[str, Any]]
    answered: int = 0

    def __getattr__(self, name: str) -> bool:
        """The policy's own attributes: when it plans."""
        return cast(bool, getattr(self.policy, name))

    @property
    def every_first(self) -> bool:
        """Whether every plan of the policy is a first one."""
        return bool(getattr(self.policy, "every_first", False))

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        if self.answered < len(self.old):
            entry = self.old[self.answered]
            self.answered += 1
            if (entry["time"], entry["first"]) != (snapshot.now, snapshot.round.first):
                raise InputError(
                    f"the journal {self.file.name} belongs to another run; remove it or --resume"
                )
            placements = {JobId(j): Allocation.of(p) for j, p in entry["placements"].items()}
            return Plan(placements, gap=entry["gap"], seconds={"total": entry["seconds"]})
        began = perf_counter()
        plan = self.policy(snapshot, settings)
        plan = replace(plan, seconds={"total": perf_counter() - began})
        entry = {
            "time": snapshot.now,
            "first": snapshot.round.first,
            "gap": plan.gap,
            "seconds": plan.seconds["total"],
            "placements": {job: a.as_dict() for job, a in plan.placements.items()},
        }
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()
        return plan


@contextmanager
def journaled(policy: Policy, path: Path, run: str, *, resume: bool) -> Iterator[Policy]:
    """``policy`` with a journal at ``path`` for the run whose inputs are named ``run``.

    Raises:
        InputError: the journal to resume from was written by a run with other inputs.
    """
    old = _entries(path, run) if resume and path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if old else "w") as file:
        if not old:
            file.write(json.dumps({"run": run}) + "\n")
        yield Journaled(policy, file, old)


def _entries(path: Path, run: str) -> list[dict[str, Any]]:
    """The whole lines of a journal; a last line cut short is dropped from the file."""
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    lines = [json.loads(line) for line in whole.splitlines()]
    if not lines or lines[0] != {"run": run}:
        raise InputError(f"{path} was written by a run with other inputs; remove it or --resume")
    return lines[1:]
