"""What users are told about a limit that keeps their jobs waiting."""

from __future__ import annotations

from hopsd.core.placement.allowances import allowances
from hopsd.core.queue.service_window import limited
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, UserName
from hopsd.model.job import Job, ThroughputTable
from hopsd.model.reason import without_jobs
from hopsd.model.rules import Limit
from hopsd.policies.reasons import over_limit

ASKS = "it asks for 2 GPUs or more"


def job(name: str, gpus: int, on: Allocation | None = None) -> Job:
    tables = {GpuType("a"): ThroughputTable({gpus: 1.0})}
    running = on or Allocation()
    return Job(
        JobId(name),
        UserName("u"),
        submit=0.0,
        wait_seconds=0.0,
        reqs=(gpus,),
        throughput=tables,
        running=running,
    )


def test_a_running_job_before_it_uses_the_limit_and_a_waiting_one_asks_for_it() -> None:
    kept, competing = (job(name, 2, Allocation.of({f"n{name}": 2})) for name in "12")
    first, last = job("3", 1), job("4", 2)
    mine = frozenset(JobId(name) for name in "1234")
    told = []
    for limit in (Limit("QOS small", mine, gpus=5), Limit("QOS few", mine, count=3)):
        left = allowances([limit], [kept])
        blocked = limited([competing, first, last], 100, left)
        told.append(over_limit(last, blocked[last.id]).text)
    assert told == [
        f"QOS small: 4 of 5 GPUs in use by 1, 2; 1 of 5 GPUs asked for by 3; {ASKS}",
        f"QOS few: 2 of 3 jobs running: 1, 2; 1 of 3 jobs before it: 3; {ASKS}",
    ]
    assert [without_jobs(text, {"2"}) for text in told] == [
        f"QOS small: 4 of 5 GPUs in use by 2, others; 1 of 5 GPUs asked for by others; {ASKS}",
        f"QOS few: 2 of 3 jobs running: 2, others; 1 of 3 jobs before it: others; {ASKS}",
    ]
