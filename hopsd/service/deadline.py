"""A policy with a deadline: a plan that is not ready in time is used in the next round.

The paper leaves this as future work (section 4.7). Planning runs in a separate thread, so a slow
solver never keeps the daemon from reading the queue.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace

from hopsd.core.placement.ledger import grant_in_order
from hopsd.core.queue.competing import competing_jobs, ledger_of
from hopsd.errors import PlanLateError
from hopsd.model.allocation import Allocation
from hopsd.model.ids import JobId
from hopsd.model.plan import Plan, PlanSettings, PlanStatus, Snapshot
from hopsd.policies.protocol import Policy
from hopsd.policies.wrapper import Wrapper


@dataclass(frozen=True, slots=True)
class _Running:
    future: Future[Plan]
    first: bool


class WithDeadline(Wrapper):
    """A policy that waits for another one, for ``allowance`` times the plan's time limit.

    The paper leaves late plans as future work: under ``paper_exact`` none is used.
    """

    def __init__(self, policy: Policy, allowance: float = 1.5) -> None:
        super().__init__(policy)
        self._allowance = allowance
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._late: _Running | None = None

    def __call__(self, snapshot: Snapshot, settings: PlanSettings) -> Plan:
        """Return the policy's plan, or what still fits of an earlier call's late plan.

        Raises:
            PlanLateError: neither is ready; planning continues for the next call.
        """
        patience = settings.time_limit_seconds * self._allowance
        late_call = self._late
        if late_call is not None:
            if not late_call.future.done():
                raise PlanLateError("the last plan is still being solved; placements stay")
            self._late = None
            usable = late_call.first == snapshot.round.first and not settings.paper_exact
            if usable and late_call.future.exception() is None:
                return drop_stale(late_call.future.result(), snapshot)
        future = self._executor.submit(self._policy, snapshot, settings)
        try:
            return future.result(timeout=patience)
        except FutureTimeoutError:
            self._late = _Running(future, snapshot.round.first)
            later = "is not used" if settings.paper_exact else "is used in the next round"
            raise PlanLateError(
                f"no plan after {patience:.1f} s; it {later}; placements stay"
            ) from None

    def close(self) -> None:
        """Abandon a plan that is still being made."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def drop_stale(plan: Plan, snapshot: Snapshot) -> Plan:
    """Drop placements that no longer fit: ended or held jobs, lost nodes, GPUs taken meanwhile.

    If two placements no longer fit together, window order decides which job keeps its own. A job
    whose new nodes are gone stays where it runs, unless its GPUs were given to another job.
    """
    ledger = ledger_of(snapshot)
    jobs = {job.id: job for job in competing_jobs(snapshot)}
    rank = {job: i for i, job in enumerate(plan.window + plan.adjusted)}
    grants: dict[JobId, Allocation] = {}
    order = sorted(plan.placements.keys() & jobs.keys(), key=lambda j: (rank.get(j, len(rank)), j))
    for places in (plan.placements, {job: jobs[job].running for job in order}):
        remaining = [job for job in order if job not in grants]
        grants |= grant_in_order(ledger, ((jobs[job], places[job]) for job in remaining))
    return replace(plan, placements=grants, status=PlanStatus.FALLBACK)
