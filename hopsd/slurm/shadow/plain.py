"""Plain jobs as they would be if the submit plugin had made them hops jobs.

A shadow plans for all jobs with GPUs, on a site whose users have not heard of hops. Their requests
come from Slurm's own record; text that users wrote is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hopsd.core.submission.options_text import MARK
from hopsd.model import bounds
from hopsd.model.reading import USER_HOLD_BEGIN, SlurmState
from hopsd.model.site import ResourceKind
from hopsd.slurm.parse import (
    UNTYPED_GPU,
    gpus_in,
    holds_gpus,
    is_hops_job,
    number,
    slurm_state,
    state_words,
    tres,
)


def as_hops_job(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a plain job of ``squeue --json`` the comment and contract of a hops job that must not be
    moved, and hold it as the plugin does. A job without GPUs and a hops job stay as they are.
    """
    gpus = _gpus(job)
    if is_hops_job(job) or number(job.get("het_job_id")) or not bounds.GPUS.holds(gpus):
        return job
    plain = {
        **job,
        "comment": f"hops:reqs={gpus};preempt=no",
        "admin_comment": _contract(job, gpus),
    }
    if slurm_state(state_words(job)) is SlurmState.PENDING:
        if not number(job.get("priority")):  # held by its user or an operator
            plain["eligible_time"] = USER_HOLD_BEGIN
        plain["priority"] = 0
    return plain


def _gpus(job: Mapping[str, Any]) -> int:
    """How many GPUs the job asks for. Slurm has the sum only if it accounts for GPUs (``gres/gpu``
    in AccountingStorageTRES); otherwise count those it holds, or those in its options.
    """
    if gpus := tres(job.get("tres_req_str") or "").get(ResourceKind.GPUS, 0):
        return gpus
    if holds_gpus(job):
        return _gpu_count(job.get("gres_detail") or ())
    times = {"tres_per_job": 1, "tres_per_node": _integer(job, "node_count"),
             "tres_per_task": _integer(job, "tasks")}  # fmt: skip
    return max(count * _gpu_count([job.get(key) or ""]) for key, count in times.items())


def _gpu_count(texts: Iterable[str]) -> int:
    return sum(count for text in texts for _, count, _ in gpus_in(text))


def _integer(job: Mapping[str, Any], key: str) -> int:
    return max(1, int(number(job.get(key)) or 1))


def _contract(job: Mapping[str, Any], gpus: int) -> str:
    """The job's options as the plugin would pass them on."""
    requested_gres = [
        entry
        for key in ("tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task")
        for entry in gpus_in(job.get(key) or "")
    ]
    types = {kind for kind, *_ in requested_gres} - {UNTYPED_GPU}
    per_node = _gpu_count([job.get("tres_per_node") or ""])
    parts = [MARK, f"shape:even|per_node:{per_node}" if per_node else "shape:any"]
    if cores := int(number(job.get("cpus")) or 0):
        parts.append(f"cores:{cores}/{gpus}")
    if len(types) == 1:
        parts.append(f"type:{types.pop()}")
    return "|".join(parts)
