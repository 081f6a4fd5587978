"""Renders what `hopsctl plan --json` prints."""

from __future__ import annotations

from typing import Any

from hopsd.model.ids import job_order
from hopsd.model.plan import Plan


def plan_json(plan: Plan) -> dict[str, Any]:
    """Render ``plan`` as an object ready for ``json.dumps``; jobs are sorted by id."""
    return {
        "placements": {
            job: plan.placements[job].as_dict() for job in sorted(plan.placements, key=job_order)
        },
        "objective": plan.objective,
        "upper_bound": plan.upper_bound,
        "gap": plan.gap,
        "status": plan.status.value,
        "window": list(plan.window),
        "adjusted": list(plan.adjusted),
        "fragments": plan.fragments,
        "rack_fragments": plan.rack_fragments,
        "seconds": {stage: round(seconds, 6) for stage, seconds in plan.seconds.items()},
        "configurations": plan.configurations,
        "waiting": [
            {"id": job, "code": plan.waiting[job].code.value, "reason": plan.waiting[job].text}
            for job in sorted(plan.waiting, key=job_order)
        ],
        "jobs": {
            job: {
                "priority": plan.jobs[job].priority,
                "sensitivity": plan.jobs[job].sensitivity,
                "gain": plan.jobs[job].gain,
                "throughput": plan.jobs[job].throughput,
                "source": plan.jobs[job].source,
            }
            for job in sorted(plan.jobs, key=job_order)
        },
    }
