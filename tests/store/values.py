"""Values of every kind that a store keeps: simple ones for examples, any for properties."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from hopsd.model.allocation import Allocation
from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId, UserName, WorkloadName
from hopsd.model.plan import JobNumbers, Plan, PlanStatus
from hopsd.model.reading import SlurmState
from hopsd.model.reason import Reason, ReasonCode
from hopsd.model.step import OutcomeStatus, Step, StepKind, StepOutcome
from hopsd.store.port import PlanRecord


def job(job_id: str = "1", **fields: Any) -> JobRecord:
    """Return a waiting job, submitted at 100."""
    record: dict[str, Any] = {
        "id": JobId(job_id),
        "user": UserName("alice"),
        "name": "train",
        "comment": "hops:reqs=1,2",
        "workload": WorkloadName("resnet50"),
        "submit": 100.0,
        "seen": 110.0,
        "state": SlurmState.PENDING,
    }
    return JobRecord(**(record | fields))


def running(job_id: str, nodes: dict[str, int], since: float, **fields: Any) -> JobRecord:
    return job(
        job_id,
        **{"state": SlurmState.RUNNING, "seen": since + 1.0}
        | {"allocation": Allocation.of(nodes), "allocation_since": since}
        | fields,
    )


def ended_job(job_id: str, end: float, **fields: Any) -> JobRecord:
    return job(job_id, **{"state": SlurmState.COMPLETED, "seen": end, "end": end} | fields)


def plan_record(plan: Plan | None = None, *steps: Step, time: float = 100.0) -> PlanRecord:
    """Return a plan of the round that begins at 100 and lasts 60 s."""
    return PlanRecord(100.0, 160.0, time == 100.0, time, plan or Plan({}), steps)


def waiting(**codes: ReasonCode) -> Plan:
    """Return a plan that places no job and gives reasons: ``waiting(j1=HELD)``."""
    reasons = {JobId(name[1:]): Reason(code, f"because {code}") for name, code in codes.items()}
    return Plan({}, waiting=reasons)


def every_field(kind: type, /, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate any value of ``kind``; fail if a new field has no strategy here."""
    assert strategies.keys() == {item.name for item in fields(kind)}
    return st.builds(kind, **strategies)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = texts.filter(bool)
reals = st.floats(allow_nan=False)
counts = st.integers(0, 2**31 - 1)
allocations = st.dictionaries(names, st.integers(1, 65536), max_size=4).map(Allocation.of)
steps = every_field(
    Step,
    job=names,
    kind=st.sampled_from(StepKind),
    current=allocations,
    target=allocations,
    profiling=st.booleans(),
    gpus=counts,
    avoid=st.lists(names, max_size=3).map(tuple),
    iterations=counts,
    least_nodes=counts,
    partition=texts,
    cause=texts,
)
outcomes = every_field(
    StepOutcome,
    step=steps,
    status=st.sampled_from(OutcomeStatus),
    actual=allocations,
    error=texts,
    started=reals,
    seconds=reals,
    vacated=st.none() | reals,
    reason=texts,
    ran=allocations,
    warned=reals,
)
numbers = every_field(
    JobNumbers,
    priority=reals,
    sensitivity=st.none() | reals,
    gain=st.none() | reals,
    throughput=st.none() | reals,
    source=st.none() | texts,
    between=st.none() | st.tuples(reals, reals),
)
reasons = every_field(Reason, code=st.sampled_from(ReasonCode), text=texts)
plans = every_field(
    Plan,
    placements=st.dictionaries(names, allocations, max_size=4),
    objective=reals,
    upper_bound=reals,
    gap=reals,
    status=st.sampled_from(PlanStatus),
    window=st.lists(names, max_size=4).map(tuple),
    adjusted=st.lists(names, max_size=4).map(tuple),
    fragments=counts,
    rack_fragments=counts,
    seconds=st.dictionaries(texts, reals, max_size=3),
    configurations=counts,
    waiting=st.dictionaries(names, reasons, max_size=4),
    jobs=st.dictionaries(names, numbers, max_size=4),
)
plan_records = every_field(
    PlanRecord,
    round_start=reals,
    round_end=reals,
    first=st.booleans(),
    made=reals,
    plan=plans,
    steps=st.lists(steps, max_size=4).map(tuple),
    outcomes=st.just(()),  # a store has outcomes only of executed plans
)
job_records = every_field(
    JobRecord,
    id=names,
    user=texts,
    name=texts,
    comment=texts,
    workload=texts,
    submit=reals,
    seen=reals,
    state=st.sampled_from(SlurmState),
    wait_seconds=reals,
    run_seconds=reals,
    attained_gpu_seconds=reals,
    restarts=counts,
    samples_done=reals,
    restart_seconds=reals,
    allocation=allocations,
    allocation_since=st.none() | reals,
    profiling=st.booleans(),
    age_seconds=st.none() | reals,
    end=st.none(),
    released=st.booleans(),
    run_seconds_by_type=st.dictionaries(names, reals, max_size=3),
    app_seconds=reals,
    app_gpu_seconds=reals,
    program=texts,
    saved=st.none() | st.booleans(),
    samples_planned=st.none() | reals,
    account=texts,
    communication_timed=st.none() | st.booleans(),
    keeps_steps=st.none() | st.booleans(),
    time_known=st.none() | st.booleans(),
    answers_signal=st.none() | st.booleans(),
    failed_again=st.booleans(),
    gpus_most=st.none() | counts,
)
