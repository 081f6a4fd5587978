"""Privacy: the status document and a job's history without what a user may not see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hopsd.model.ids import WorkloadName
from hopsd.model.knowledge import Knowledge
from hopsd.model.privacy import Privacy, Private, Viewer
from hopsd.model.reason import without_jobs

Document = dict[str, Any]


def viewer(uid: int, user: str, own_uid: int, privacy: Privacy, more: Iterable[Private]) -> Viewer:
    """``own_uid``: hopsd's, which sees all; ``more``: hidden by hopsd's own configuration."""
    everything = (
        uid == own_uid or uid in privacy.privileged_uids or user in privacy.privileged_users
    )
    return Viewer(uid, user, frozenset() if everything else privacy.hidden | frozenset(more))


def status_for(who: Viewer, document: Document) -> Document:
    """The status document as ``who`` may see it; ``private`` in it names what is left out."""
    doc = {**document, "private": sorted(who.hidden)}
    doc["running"] = [_without_code(who, row) for row in doc["running"]]
    if who.hides(Private.JOBS):
        doc = _own_jobs(who, doc)
    if who.hides(Private.NODES):
        doc["nodes"] = []
    if who.hides(Private.USAGE):
        doc["raqlr"] = None
    return doc


def _without_code(who: Viewer, row: Document) -> Document:
    """A job's row without lines of its user's code, unless that is ``who``, or root."""
    hung = row.get("hung")
    if hung is None or who.uid in (0, row["uid"]):
        return row
    ranks = [{**rank, "line": "", "stacks": ""} for rank in hung["ranks"]]
    return {**row, "hung": {**hung, "ranks": ranks}}


def _own_jobs(who: Viewer, doc: Document) -> Document:
    running, waiting = (
        [row for row in doc[kind] if row["uid"] == who.uid] for kind in ("running", "waiting")
    )
    own = {row["id"] for row in (*running, *waiting)}
    running, waiting = (
        [{**row, "reason": without_jobs(row["reason"] or "", own) or None} for row in rows]
        for rows in (running, waiting)
    )
    # The sentences on what a tick did and why it failed may name any job.
    return {
        **doc,
        "running": running,
        "waiting": waiting,
        "nodes": [{**node, "jobs": _of(own, node["jobs"])} for node in doc["nodes"]],
        "round": doc["round"] and _own_round(own, doc["round"]),
        "sentence": doc["mode"],
        "error": doc["error"] and "the last round failed; operators see why",
    }


def _own_round(own: Collection[str], told: Document) -> Document:
    return {
        **told,
        "window": [job for job in told["window"] if job in own],
        "adjusted": [job for job in told["adjusted"] if job in own],
        "steps": [step for step in told["steps"] if step["job"] in own],
    }


def _of(own: Collection[str], held: Mapping[str, int]) -> dict[str, int]:
    return {job: gpus for job, gpus in held.items() if job in own}


def history_for(who: Viewer, history: Document) -> Document:
    """A job's history; empty if it is another user's and jobs are private. Of its own job a user
    then sees reasons that name no jobs.
    """
    record = history["record"]
    own = record is not None and record["user"] == who.user
    if not who.hides(Private.JOBS, Private.USAGE):
        return history
    if own:
        reasons = history["reasons"]
        told = [{**row, "reason": without_jobs(row["reason"], ())} for row in reasons]
        return {**history, "reasons": told}
    return {key: None if key == "record" else [] for key in history}


def knowledge_for(who: Viewer, knowledge: Knowledge, own: Collection[WorkloadName]) -> Knowledge:
    """Speeds of the workloads that ``who`` ever ran (``own``, or by their default name)."""
    if not who.hides(Private.JOBS, Private.USAGE):
        return knowledge

    def seen(name: WorkloadName) -> bool:
        return name in own or name.startswith(f"{who.user}/")

    return replace(
        knowledge,
        tables={name: table for name, table in knowledge.tables.items() if seen(name)},
        records=tuple(record for record in knowledge.records if seen(record.workload)),
        theory=tuple(fit for fit in knowledge.theory if seen(fit.workload)),
    )


def throughput_for(who: Viewer, answer: Document) -> Document:
    """The answer of `hopsctl throughput` without nodes, where these are private."""
    if not who.hides(Private.NODES) or "types" not in answer:
        return answer
    types = [
        {**kind, "shapes": [{**shape, "entity": {}} for shape in kind["shapes"]]}
        for kind in answer["types"]
    ]
    return {**answer, "types": types, "servers": []}
