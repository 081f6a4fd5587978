"""The records of open jobs as the hopsd that leads last read or wrote them.

While it leads nobody else writes them, so that it need not read 20,000 records at every look, and
can tell what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hopsd.model.history import JobRecord
from hopsd.model.ids import JobId


class OpenJobs:
    """Valid for one ``epoch``, a time in the lead; None: no lead, so nothing is kept."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._records: dict[JobId, JobRecord] = {}

    def known(self, epoch: int | None) -> Mapping[JobId, JobRecord] | None:
        """All of them; None: they must be read."""
        return self._records if epoch is not None and epoch == self._epoch else None

    def keep(self, epoch: int | None, records: Mapping[JobId, JobRecord]) -> None:
        """They were read in that epoch."""
        self._epoch, self._records = epoch, dict(records)

    def saved(self, records: Iterable[JobRecord]) -> None:
        """These were written."""
        if self._epoch is None:
            return
        for record in records:
            if record.end is None:
                self._records[record.id] = record
            else:
                self._records.pop(record.id, None)

    def forget(self) -> None:
        """A write failed, or was made without these records."""
        self._epoch, self._records = None, {}
