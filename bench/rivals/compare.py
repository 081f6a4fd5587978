"""The authors' completion times beside ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hopsd.model.scenario import Workload


def comparison(workload: Workload, their_hours: Sequence[float], our_hours: Sequence[float]) -> str:
    """Table row: mean completion and makespan of both in hours, their ratios and the correlation,
    over jobs that ended in both.
    """
    submit = np.array([job.submit for job in workload.jobs]) / 3600.0
    a, b = np.array(their_hours), np.array(our_hours)
    in_both = np.isfinite(a) & np.isfinite(b)
    submit, a, b = submit[in_both], a[in_both], b[in_both]
    ends = [float((submit + times).max() - submit.min()) for times in (a, b)]
    figures = (a.mean(), b.mean(), b.mean() / a.mean(), *ends, ends[1] / ends[0])
    correlation = float(np.corrcoef(a, b)[0, 1])
    return " | ".join(f"{value:.4g}" for value in (*figures, correlation))
