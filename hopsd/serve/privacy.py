"""Privacy: removes from the status document and a job's history what a user may not see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hopsd.model.ids import WorkloadName
from hopsd.model.knowledge import Knowledge
from hopsd.model.privacy import Privacy, Private, Viewer
from hopsd.model.reason import without_jobs

Document = dict[str, Any]


def viewer(uid: int, user: str, own_uid: int, privacy: Privacy, extra: Iterable[Private]) -> Viewer:
    """Return what a user may see. ``own_uid`` is hopsd's, which sees everything; ``extra`` is what
    hopsd's own configuration hides.
    """
    sees_everything = (
        uid == own_uid or uid in privacy.privileged_uids or user in privacy.privileged_users
    )
    return Viewer(uid, user, frozenset() if sees_everything else privacy.secrets | frozenset(extra))


def status_for(viewer: Viewer, document: Document) -> Document:
    """Return the status document as ``viewer`` may see it; ``private`` names what is left out."""
    doc = {**document, "private": sorted(viewer.secrets)}
    doc["running"] = [_without_code(viewer, row) for row in doc["running"]]
    if viewer.hides(Private.JOBS):
        doc = _own_jobs(viewer, doc)
    if viewer.hides(Private.NODES):
        doc["nodes"] = []
    if viewer.hides(Private.USAGE):
        doc["raqlr"] = None
    return doc


def _without_code(viewer: Viewer, row: Document) -> Document:
    """Remove lines of the user's code from a job's row, unless ``viewer`` is its user or root."""
    hung = row.get("hung")
    if hung is None or viewer.uid in (0, row["uid"]):
        return row
    ranks = [{**rank, "line": "", "stacks": ""} for rank in hung["ranks"]]
    return {**row, "hung": {**hung, "ranks": ranks}}


def _own_jobs(viewer: Viewer, doc: Document) -> Document:
    running, waiting = (
        [row for row in doc[kind] if row["uid"] == viewer.uid] for kind in ("running", "waiting")
    )
    user_jobs = {row["id"] for row in (*running, *waiting)}
    running, waiting = (
        [{**row, "reason": without_jobs(row["reason"] or "", user_jobs) or None} for row in rows]
        for rows in (running, waiting)
    )
    # The sentences about what a tick did and why it failed may name any job.
    return {
        **doc,
        "running": running,
        "waiting": waiting,
        "nodes": [
            {**node, "jobs": _jobs_of_user(user_jobs, node["jobs"])} for node in doc["nodes"]
        ],
        "round": doc["round"] and _own_round(user_jobs, doc["round"]),
        "sentence": doc["mode"],
        "error": doc["error"] and "the last round failed; operators see why",
    }


def _own_round(user_jobs: Collection[str], document: Document) -> Document:
    return {
        **document,
        "window": [job for job in document["window"] if job in user_jobs],
        "adjusted": [job for job in document["adjusted"] if job in user_jobs],
        "steps": [step for step in document["steps"] if step["job"] in user_jobs],
    }


def _jobs_of_user(user_jobs: Collection[str], gpus_by_job: Mapping[str, int]) -> dict[str, int]:
    return {job: gpus for job, gpus in gpus_by_job.items() if job in user_jobs}


def history_for(viewer: Viewer, history: Document) -> Document:
    """Return a job's history; if jobs are private, an empty one for another user's job, and for the
    user's own only reasons and events that name no other jobs.
    """
    record = history["record"]
    is_owner = record is not None and record["user"] == viewer.user
    if not viewer.hides(Private.JOBS, Private.USAGE):
        return history
    if is_owner:
        reasons, events = history["reasons"], history["events"]
        return {
            **history,
            "reasons": [{**row, "reason": without_jobs(row["reason"], ())} for row in reasons],
            "events": [{**row, "text": without_jobs(row["text"], ())} for row in events],
        }
    return {key: None if key == "record" else [] for key in history}


def knowledge_for(
    viewer: Viewer, knowledge: Knowledge, user_workloads: Collection[WorkloadName]
) -> Knowledge:
    """Keep the speeds of workloads that ``viewer`` ran: ``user_workloads``, and default names."""
    if not viewer.hides(Private.JOBS, Private.USAGE):
        return knowledge

    def is_visible(name: WorkloadName) -> bool:
        return name in user_workloads or name.startswith(f"{viewer.user}/")

    return replace(
        knowledge,
        tables={name: table for name, table in knowledge.tables.items() if is_visible(name)},
        records=tuple(record for record in knowledge.records if is_visible(record.workload)),
        theory=tuple(fit for fit in knowledge.theory if is_visible(fit.workload)),
    )


def throughput_for(viewer: Viewer, answer: Document) -> Document:
    """Remove nodes from the answer of `hopsctl throughput` if they are private."""
    if not viewer.hides(Private.NODES) or "types" not in answer:
        return answer
    types = [
        {**kind, "shapes": [{**shape, "entity": {}} for shape in kind["shapes"]]}
        for kind in answer["types"]
    ]
    return {**answer, "types": types, "servers": []}
