"""Sessions whose time is over get a message in their terminal and are ended by scancel."""

from __future__ import annotations

from dataclasses import replace

from memory_cluster import submission

from hopsd.core.interactive.settings import EndingSettings
from hopsd.errors import SlurmError
from hopsd.model.ids import JobId
from hopsd.model.reading import SlurmState
from hopsd.service.session_ends import SessionEnds

SETTINGS = EndingSettings(idle_seconds=600.0, warning_seconds=300.0)


class Store:
    def __init__(self) -> None:
        self.events: list[tuple[str, JobId]] = []

    def add_event(self, kind: str, text: str, *, job: JobId) -> None:
        assert text
        self.events.append((kind, job))


class Slurm:
    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.refuses = ""

    def run(self, *words: str) -> str:
        if words[0] == self.refuses:
            raise SlurmError("refused")
        self.calls.append(words)
        return ""


def test_a_session_is_warned_then_ended() -> None:
    store, slurm = Store(), Slurm()
    ends = SessionEnds(store, slurm, lambda work: work())  # type: ignore[arg-type]
    job = submission(5, "hops:reqs=1;interactive")
    job = replace(job, state=SlurmState.RUNNING, start=100.0)
    training = replace(job, id=JobId("6"), comment="hops:reqs=1")
    idle = {job.id: 700.0, training.id: 700.0}
    ends.look([job, training], idle, 1000.0, SETTINGS)
    assert [words[:3] for words in slurm.calls] == [("scontrol", "notify", "5")]
    assert "it has used no processor time for 12 min" in slurm.calls[0][3]
    slurm.refuses = "scancel"
    ends.look([job, training], idle, 1300.0, SETTINGS)
    assert store.events == [("session_warned", job.id)]
    slurm.refuses = ""
    ends.look([job, training], idle, 1360.0, SETTINGS)
    assert slurm.calls[-1] == ("scancel", "5")
    assert store.events[-1] == ("session_ended", job.id)
