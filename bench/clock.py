"""CPU clock: wall time would measure the load of the machine as well."""

from __future__ import annotations

import resource


def cpu_seconds() -> float:
    """CPU seconds of this process and of its ended children, such as solvers."""
    usages = (
        resource.getrusage(target) for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(u.ru_utime + u.ru_stime for u in usages)
