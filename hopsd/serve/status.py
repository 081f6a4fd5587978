"""The status document, shown by `hopsctl status` and `hopsctl explain`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

from hopsd import __version__
from hopsd.core.queue.history import OCCUPYING_STATES
from hopsd.core.submission.comment import Comment, parse
from hopsd.errors import InputError
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, WorkloadName, job_order
from hopsd.model.job import Job
from hopsd.model.plan import JobNumbers
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.reason import Reason, ReasonCode, count_of
from hopsd.model.step import OutcomeStatus, StepOutcome
from hopsd.round.observation import Observation
from hopsd.round.result import RoundResult

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Service:
    """The daemon's own state. ``mode`` is active, paused or standby; ``sentence`` says what the
    last tick did.

    Since the daemon's start, ``reports_refused`` reports of jobs were invalid, and no job gained by
    ``needless_restarts`` moves.
    """

    mode: str
    port: str
    port_reason: str
    sentence: str
    ticks: int
    reports_refused: int
    raqlr: float | None = None
    error: str | None = None
    needless_restarts: int = 0


class Predictions(Protocol):
    """Predictions, such as `hopsd.predict.outlook.Outlook`."""

    @property
    def document(self) -> Document | None:
        """The time of the predictions, and how far off earlier ones were."""

    def row(self, job: JobId) -> Document | None:
        """The prediction of the job's start or end."""


def document(
    service: Service,
    observation: Observation | None,
    result: RoundResult | None,
    predictions: Predictions | None = None,
    hung: Mapping[JobId, Document] = MappingProxyType({}),
    idle: Mapping[JobId, Document] = MappingProxyType({}),
    numbers: Mapping[JobId, JobNumbers] = MappingProxyType({}),
) -> Document:
    """Build the status document at the end of a tick. ``result`` is None if no round was run.
    ``hung`` has the rows of jobs whose training hangs (`hopsd.service.hung_jobs`), ``idle`` those
    of jobs that do not use their GPUs (`hopsd.service.idle_jobs`), ``numbers`` the figures of
    running jobs in the plan that placed them.
    """
    doc: Document = {
        "version": __version__,
        "mode": service.mode,
        "port": service.port,
        "port_reason": service.port_reason,
        "sentence": service.sentence,
        "ticks": service.ticks,
        "reports_refused": service.reports_refused,
        "raqlr": service.raqlr,
        "restarts_per_job_hour": _restarts_per_job_hour(observation) if observation else None,
        "needless_restarts": service.needless_restarts,
        "error": service.error,
        "time": observation.reading.now if observation else None,
        "slurm_version": observation.reading.slurm_version if observation else None,
        "round": _round(result) if result else None,
        "nodes": _nodes(observation) if observation else [],
        "predictions": predictions.document if predictions is not None else None,
        "running": [],
        "waiting": [],
    }
    if observation is not None:
        plans = {job.id: job for job in result.build.snapshot.jobs} if result else {}
        undone = _not_done(result.outcomes) if result else {}
        for job in sorted(observation.reading.jobs, key=lambda j: job_order(j.id)):
            if job.state.finished:
                continue
            row = _row(job, observation, plans.get(job.id), result, undone)
            if row["priority"] is None and job.state in OCCUPYING_STATES:
                row |= _figures(numbers.get(job.id))
            row["predicted"] = _prediction_document(job, predictions)
            row["hung"] = hung.get(job.id) if job.state in OCCUPYING_STATES else None
            row["idle"] = idle.get(job.id) if job.state in OCCUPYING_STATES else None
            if job.state is SlurmState.PENDING and row["reason"] is None:
                row["reason"] = _left_to_slurm(row, service)
            doc["running" if job.state in OCCUPYING_STATES else "waiting"].append(row)
        doc["waiting"].sort(key=lambda row: -(row["priority"] or 0.0))
    return doc


def with_health(doc: Document, slow: Mapping[str, str], lemons: Mapping[str, str]) -> Document:
    """Add the nodes' health to the document: a sentence on each node that is ``slow``, or one of
    the ``lemons`` that break jobs.
    """
    nodes = []
    for node in doc["nodes"]:
        texts = [text[node["name"]] for text in (slow, lemons) if node["name"] in text]
        nodes.append(
            {
                **node,
                "health": "; ".join(texts),
                "slow": node["name"] in slow,
                "breaks_jobs": node["name"] in lemons,
            }
        )
    return {**doc, "nodes": nodes}


def _prediction_document(job: JobReading, predictions: Predictions | None) -> Document | None:
    """The job's predicted start or, if it runs, end; None if unknown or of the other kind."""
    prediction = predictions.row(job.id) if predictions is not None else None
    runs = job.state in OCCUPYING_STATES
    return prediction if prediction is not None and (prediction["kind"] == "end") == runs else None


def _restarts_per_job_hour(observation: Observation) -> float | None:
    """Restarts per hour of running, over the present jobs; None if none has run."""
    records = [
        observation.records[job] for job in observation.comments if job in observation.records
    ]
    hours = sum(record.run_seconds for record in records) / 3600.0
    return sum(record.restarts for record in records) / hours if hours > 0 else None


def _round(result: RoundResult) -> Document:
    plan = result.plan
    return {
        "start": result.window.start,
        "end": result.window.end,
        "first": result.first,
        "status": plan.status.value,
        "objective": plan.objective,
        "upper_bound": plan.upper_bound,
        "gap": plan.gap,
        "fragments": plan.fragments,
        "rack_fragments": plan.rack_fragments,
        "configurations": plan.configurations,
        "window": list(plan.window),
        "adjusted": list(plan.adjusted),
        "seconds": dict(plan.seconds),
        "steps": [_outcome(outcome) for outcome in result.outcomes],
    }


def _outcome(outcome: StepOutcome) -> Document:
    return {
        "job": outcome.step.job,
        "kind": outcome.step.kind.value,
        "status": outcome.status.value,
        "from": outcome.step.current.as_dict(),
        "to": outcome.step.target.as_dict(),
        "actual": outcome.actual.as_dict(),
        "error": outcome.error,
        "seconds": outcome.seconds,
    }


def _nodes(observation: Observation) -> list[Document]:
    jobs_by_node: Mapping[str, dict[JobId, int]] = defaultdict(dict)
    for job in observation.reading.jobs:
        if job.state in OCCUPYING_STATES:
            for node, gpus in job.allocation:
                jobs_by_node[node][job.id] = gpus
    return [
        {
            "name": node.name,
            "gpu_type": node.gpu_type,
            "gpus": node.gpus,
            "idle": max(0, node.gpus - node.foreign_gpus - sum(jobs_by_node[node.name].values())),
            "foreign": node.foreign_gpus,
            "usable": node.usable,
            "state": node.state_text,
            "jobs": dict(jobs_by_node[node.name]),
        }
        for node in observation.reading.nodes
    ]


_NOT_DONE = {
    OutcomeStatus.FAILED: ReasonCode.ERROR,
    OutcomeStatus.PUT_OFF: ReasonCode.LOST_TO_OTHERS,
}


def _not_done(outcomes: Sequence[StepOutcome]) -> dict[JobId, Reason]:
    """For each job, why its first step that failed or was put off did so."""
    return {
        outcome.step.job: Reason(_NOT_DONE[outcome.status], outcome.error)
        for outcome in reversed(outcomes)
        if outcome.status in _NOT_DONE
    }


def _row(
    job: JobReading,
    observation: Observation,
    plan_job: Job | None,
    result: RoundResult | None,
    undone: Mapping[JobId, Reason],
) -> Document:
    """A job's row, even if nothing is known about it or planning failed on it."""
    record = observation.records.get(job.id)
    if record is None:
        record = JobRecord(
            job.id, job.user, job.name, job.comment, WorkloadName(""), job.submit, 0.0, job.state
        )
    return _job(job, record, observation, plan_job, result, undone)


def _job(
    job: JobReading,
    record: JobRecord,
    observation: Observation,
    plan_job: Job | None,
    result: RoundResult | None,
    undone: Mapping[JobId, Reason],
) -> Document:
    numbers = result.plan.jobs.get(job.id) if result else None
    reason = _reason(job, observation, result, undone)
    request = plan_job or _comment_of(job, observation)
    expected = _expected(record, result)
    return {
        "id": job.id,
        "number": job.number,
        "array": job.array,
        "tasks": str(job.rest) if job.rest is not None else "",
        "user": job.user,
        "uid": job.uid,
        "name": job.name,
        "partition": job.partition,
        "comment": job.comment,
        "state": job.state.value,
        "workload": record.workload,
        "reqs": list(request.reqs) if request else [],
        "placement": job.allocation.as_dict(),
        "since": record.allocation_since,
        "submit": record.submit,
        "wait_seconds": record.wait_seconds,
        "run_seconds": record.run_seconds,
        "age_seconds": record.age_seconds,
        "expected": expected,
        "latency_ratio": record.latency_ratio,
        "restarts": record.restarts,
        "samples": request.samples if request and expected is None else None,
        "samples_done": record.samples_done,
        "preemptible": plan_job.preemptible if plan_job else None,
        **_figures(numbers),
        "code": reason.code.value if reason else None,
        "reason": reason.text if reason else None,
        "noticed": _notice(job, observation, result),
        "released": job.id in observation.released,
        "profiling": record.profiling,
    }


def _figures(numbers: JobNumbers | None) -> Document:
    """A job's figures in a plan; all None if it was in none."""
    keys = ("priority", "sensitivity", "gain", "throughput", "between", "source")
    return {key: getattr(numbers, key) if numbers else None for key in keys}


def _expected(record: JobRecord, result: RoundResult | None) -> Document | None:
    """The expected run time, its 80 % interval and its source; None if the user stated it."""
    expectation = result.build.expected.get(record.id) if result else None
    age = (expectation.seconds or record.age_seconds) if expectation else None
    if expectation is None or age is None:
        return None
    low, high = age * expectation.low, age * expectation.high
    return {"seconds": age, "low": low, "high": high, "source": expectation.source}


def _comment_of(job: JobReading, observation: Observation) -> Comment | None:
    """The comment of a job that is in no plan; None if it is not accepted."""
    with suppress(InputError):
        return observation.comments.get(job.id) or parse(job.comment)
    return None


def _notice(job: JobReading, observation: Observation, result: RoundResult | None) -> str | None:
    """What the job's user should know although it does not keep the job waiting."""
    if job.state is not SlurmState.PENDING and job.id in observation.errors:
        return observation.errors[job.id].text
    return result.build.notes.get(job.id) if result else None


def _reason(
    job: JobReading,
    observation: Observation,
    result: RoundResult | None,
    undone: Mapping[JobId, Reason],
) -> Reason | None:
    if job.state is not SlurmState.PENDING:
        return None
    if job.id in undone:
        return undone[job.id]
    if result is not None and job.id in result.plan.waiting:
        reason = result.plan.waiting[job.id]
        is_dependency = reason.code is ReasonCode.DEPENDENCY and not job.is_stranded
        return (
            replace(reason, text=_kept_back(job, observation.reading.now))
            if is_dependency
            else reason
        )
    return observation.errors.get(job.id)


def _kept_back(job: JobReading, now: float) -> str:
    """Why the job is held back at its user's own request."""
    notes = []
    if job.dependency:
        notes.append(f"depends on other jobs ({job.waits_for})")
    if job.begin > now:
        begin = datetime.fromtimestamp(job.begin, UTC).astimezone()
        notes.append(f"may not begin before {begin:%Y-%m-%d %H:%M:%S}")
    return ", ".join(notes) or "was held back when the plan was made"


def _left_to_slurm(row: Document, service: Service) -> str | None:
    if row["released"]:
        return "given back to plain Slurm, which starts it by its own rules"
    if service.port == "shadow" and service.mode == "active":
        return "hops would start it now; a shadow leaves that to Slurm"
    return "hops is paused" if service.mode == "paused" else None


def sentence_of(result: RoundResult) -> str:
    """Say what a round did, for people and logs."""
    plan = result.plan
    kind = "first plan" if result.first else "further plan"
    seconds = plan.seconds.get("total", 0.0)
    text = (
        f"{kind} of {count_of(len(plan.window) + len(plan.adjusted), 'jobs')} in {seconds:.2f} s"
        f" ({plan.status}, gap {plan.gap:.2%}), {len(plan.waiting)} wait,"
        f" {plan.fragments} fragments{rack_fragments_text(plan.rack_fragments)}"
    )
    return f"{text}: {count_outcomes(result.outcomes)}" if result.outcomes else text


def rack_fragments_text(rack_fragments: int) -> str:
    """The addition to a number of fragments; "" if there are no rack fragments."""
    return f", {rack_fragments} of them useless to rack-bound jobs" if rack_fragments else ""


def count_outcomes(outcomes: Collection[StepOutcome]) -> str:
    """Count outcomes, as in `2 start done, 1 move failed`."""
    counts = Counter((o.step.kind.value, o.status.value) for o in outcomes)
    return (
        ", ".join(f"{n} {kind} {status}" for (kind, status), n in sorted(counts.items()))
        or "nothing"
    )
