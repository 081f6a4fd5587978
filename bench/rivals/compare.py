"""The authors' completion times beside ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hopsd.model.scenario import Workload


def compared(played: Workload, theirs: Sequence[float], ours: Sequence[float]) -> str:
    """Mean completion and makespan of both in hours, ours over theirs, and the correlation, of the
    jobs that ended in both.
    """
    submit = np.array([one.submit for one in played.jobs]) / 3600.0
    a, b = np.array(theirs), np.array(ours)
    ended = np.isfinite(a) & np.isfinite(b)
    submit, a, b = submit[ended], a[ended], b[ended]
    ends = [float((submit + times).max() - submit.min()) for times in (a, b)]
    figures = (a.mean(), b.mean(), b.mean() / a.mean(), *ends, ends[1] / ends[0])
    same = float(np.corrcoef(a, b)[0, 1])
    return " | ".join(f"{value:.4g}" for value in (*figures, same))
