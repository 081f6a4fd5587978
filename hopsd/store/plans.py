"""Tables ``rounds``, ``plans``, ``steps``, ``outcomes`` and ``reasons``."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hopsd.errors import StoreError
from hopsd.model.ids import JobId
from hopsd.model.journal import PlanSummary, ReasonRecord
from hopsd.model.plan import Plan
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import OutcomeStatus, Step, StepOutcome, Transition
from hopsd.store.codec import clean, decode, encode
from hopsd.store.connection import Connection, insert
from hopsd.store.port import PlanId, PlanRecord


def begin(connection: Connection, record: PlanRecord) -> PlanId:
    connection.execute(
        "INSERT INTO rounds (started, ends) VALUES (%s, %s)"
        " ON CONFLICT (started) DO UPDATE SET ends = excluded.ends",
        [record.round_start, record.round_end],
    )
    row = connection.execute(
        "INSERT INTO plans (round, round_end, first, made, plan)"
        " VALUES (%s, %s, %s, %s, %s) RETURNING id",
        [
            record.round_start,
            record.round_end,
            record.first,
            record.made,
            json.dumps(encode(record.plan), allow_nan=False),
        ],
    ).fetchone()
    if row is None:
        raise StoreError("PostgreSQL returned no number for the new plan")
    plan = PlanId(row[0])
    insert(
        connection,
        "steps",
        [
            _step_key(plan, position, step) | {"step": encode(step)}
            for position, step in enumerate(record.steps)
        ],
    )
    _note_reasons(connection, record.plan.waiting, record.made)
    return plan


def finish(
    connection: Connection, plan: PlanId, outcomes: Sequence[StepOutcome], time: float
) -> None:
    result = connection.execute("UPDATE plans SET finished = %s WHERE id = %s", [time, plan])
    if result.rowcount != 1:
        raise StoreError(
            f"plan {plan} is not in the database; only a recorded plan can be finished"
        )
    connection.execute("DELETE FROM outcomes WHERE plan = %s", [plan])
    insert(
        connection,
        "outcomes",
        [
            _step_key(plan, position, outcome.step)
            | {"status": outcome.status.value, "outcome": encode(outcome)}
            for position, outcome in enumerate(outcomes)
        ],
    )


def unfinished_plan(connection: Connection) -> tuple[PlanId, PlanRecord] | None:
    return _newest(connection, only_unfinished=True)


def last(connection: Connection) -> PlanRecord | None:
    newest_plan = _newest(connection, only_unfinished=False)
    return None if newest_plan is None else newest_plan[1]


def newest(connection: Connection, limit: int) -> tuple[PlanSummary, ...]:
    """Return summaries, computed by PostgreSQL because a large cluster's plan has megabytes."""
    rows = connection.execute(
        "SELECT jsonb_build_object('made', made, 'first', first, 'status', plan->'status',"
        " 'objective', plan->'objective', 'upper_bound', plan->'upper_bound', 'gap', plan->'gap',"
        " 'fragments', plan->'fragments', 'configurations', plan->'configurations',"
        " 'rack_fragments', coalesce(plan->'rack_fragments', '0'),"
        " 'seconds', coalesce(plan->'seconds'->'total', '0'),"
        " 'placed', (SELECT count(*) FROM jsonb_object_keys(plan->'placements')),"
        " 'waiting', (SELECT count(*) FROM jsonb_object_keys(plan->'waiting')))"
        " FROM (SELECT made, first, plan FROM plans ORDER BY id DESC LIMIT %s) AS newest",
        [limit],
    )
    return tuple(decode(PlanSummary, row[0]) for row in rows)


def outcomes(connection: Connection, plan: PlanId) -> tuple[StepOutcome, ...]:
    rows = connection.execute(
        "SELECT outcome FROM outcomes WHERE plan = %s ORDER BY position", [plan]
    )
    return tuple(decode(StepOutcome, row[0]) for row in rows)


def last_outcomes(connection: Connection, jobs: Collection[JobId]) -> dict[JobId, StepOutcome]:
    rows = connection.execute(
        "SELECT DISTINCT ON (job) job, outcome FROM outcomes WHERE job = ANY(%s)"
        " ORDER BY job, plan DESC, position DESC",
        [[clean(job) for job in jobs]],
    )
    return {JobId(name): decode(StepOutcome, outcome) for name, outcome in rows}


def save_outcomes(connection: Connection, outcomes: Sequence[StepOutcome]) -> None:
    """Replace the newest outcome of each job if it says that the step is under way."""
    for outcome in outcomes:
        connection.execute(
            "UPDATE outcomes SET status = %s, outcome = %s WHERE (plan, position) ="
            " (SELECT plan, position FROM outcomes WHERE job = %s"
            " ORDER BY plan DESC, position DESC LIMIT 1) AND status = %s",
            [
                outcome.status.value,
                json.dumps(encode(outcome), allow_nan=False),
                clean(outcome.step.job),
                OutcomeStatus.UNDER_WAY.value,
            ],
        )


def transitions(connection: Connection) -> tuple[Transition, ...]:
    rows = connection.execute("SELECT transition FROM transitions ORDER BY position")
    return tuple(decode(Transition, row[0]) for row in rows)


def save_transitions(connection: Connection, transitions: Sequence[Transition]) -> None:
    connection.execute("DELETE FROM transitions")
    rows = [
        {"position": position, "job": clean(transition.step.job), "transition": encode(transition)}
        for position, transition in enumerate(transitions)
    ]
    insert(connection, "transitions", rows)


def reasons(connection: Connection, job: JobId) -> tuple[ReasonRecord, ...]:
    rows = connection.execute(
        "SELECT job, since, code, text, until FROM reasons WHERE job = %s ORDER BY id", [job]
    )
    return tuple(
        ReasonRecord(JobId(name), since, Reason(ReasonCode(code), text), until)
        for name, since, code, text, until in rows
    )


def _newest(connection: Connection, *, only_unfinished: bool) -> tuple[PlanId, PlanRecord] | None:
    row = connection.execute(
        "SELECT id, round, round_end, first, made, plan FROM plans"
        " WHERE (finished IS NULL) = %s ORDER BY id DESC LIMIT 1",
        [only_unfinished],
    ).fetchone()
    if row is None:
        return None
    steps = connection.execute("SELECT step FROM steps WHERE plan = %s ORDER BY position", row[:1])
    plan = PlanId(row[0])
    return plan, PlanRecord(
        round_start=row[1],
        round_end=row[2],
        first=row[3],
        made=row[4],
        plan=decode(Plan, row[5]),
        steps=tuple(decode(Step, step[0]) for step in steps),
        outcomes=() if only_unfinished else outcomes(connection, plan),
    )


def _step_key(plan: PlanId, position: int, step: Step) -> dict[str, Any]:
    return {"plan": plan, "position": position, "job": clean(step.job), "kind": step.kind.value}


def _note_reasons(connection: Connection, waiting: Mapping[JobId, Reason], now: float) -> None:
    """Update the reasons: a reason lasts while plans give the same code, with the latest text."""
    codes = [[clean(j) for j in waiting], [r.code.value for r in waiting.values()]]
    connection.execute(
        "UPDATE reasons r SET until = %s WHERE until IS NULL AND NOT EXISTS (SELECT FROM"
        " unnest(%s::text[], %s::text[]) AS given (job, code)"
        " WHERE given.job = r.job AND given.code = r.code)",
        [now, *codes],
    )
    insert(
        connection,
        "reasons",
        [
            {
                "job": clean(job),
                "since": encode(now),
                "code": reason.code.value,
                "text": clean(reason.text),
            }
            for job, reason in waiting.items()
        ],
        on_conflict="ON CONFLICT (job) WHERE until IS NULL DO UPDATE SET text = excluded.text"
        " WHERE reasons.text <> excluded.text",
    )
