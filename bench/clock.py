"""The processor's clock: a wall clock would measure what else a machine does."""

from __future__ import annotations

import resource


def cpu_seconds() -> float:
    """Processor time of this process and of its children that ended, such as solvers."""
    usages = (
        resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(u.ru_utime + u.ru_stime for u in usages)
