"""While slurmdbd hangs, one update waits for it, instead of one per job and per retry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from hopsd.errors import SlurmError, SlurmUnavailableError
from hopsd.model.ids import JobId
from hopsd.slurm.accounting.unrecorded import (
    PAUSE_SECONDS,
    UPDATE_SECONDS,
    UnrecordedJobs,
)
from hopsd.slurm.command import UNRECORDED, SlurmCommands
from hopsd.slurm.scontrol import ScontrolAdapter

REFUSAL = f"scontrol update: Job update not available right now, {UNRECORDED}, try again in a bit"


@dataclass
class Slurm:
    """A slurmctld whose updates of jobs submitted since ``hangs`` take five seconds and fail, as do
    all updates of ``stuck`` jobs.
    """

    hangs: float = 1000.0
    stuck: Sequence[float] = ()
    now: float = 1030.0
    call_times: list[float] = field(default_factory=list)
    jobs: UnrecordedJobs = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = UnrecordedJobs(lambda: self.now, lambda: self.now)

    def update(self, submit_time: float) -> str:
        """Return the reason why the update was refused, or ""."""
        try:
            with self.jobs.update(JobId(f"{submit_time:g}"), submit_time):
                self.call_times.append(submit_time)
                if submit_time >= self.hangs or submit_time in self.stuck:
                    self.now += 5.0
                    raise SlurmError(REFUSAL)
        except SlurmError as error:
            return str(error)
        return ""


def test_one_wait_is_enough_for_all_equally_new_jobs() -> None:
    slurm = Slurm()
    refusals = [slurm.update(submit_time) for submit_time in (1020.0, 1025.0, 1006.0, 1021.0)]
    assert all(UNRECORDED in refusal for refusal in refusals)
    assert slurm.call_times == [1020.0]
    assert slurm.update(990.0) == "", "a job that slurmdbd knows waits for nobody"


def test_an_older_job_than_assumed_costs_one_more_wait() -> None:
    slurm = Slurm()
    for submit_time in (1029.0, 1001.0, 1029.0, 1001.0):
        assert slurm.update(submit_time)
    assert slurm.call_times == [1029.0, 1001.0]


def test_updates_are_retried_after_a_pause_and_all_continue_once_slurmdbd_answers() -> None:
    slurm = Slurm()
    slurm.update(1020.0)
    slurm.now += PAUSE_SECONDS
    slurm.hangs = float("inf")
    assert [slurm.update(submitted) for submitted in (1021.0, 1020.0, 1025.0)] == [""] * 3


def test_a_job_that_slurmctld_never_updates_again_blocks_no_other() -> None:
    """If slurmctld is killed while it asks slurmdbd for a job's number, it refuses all updates."""
    slurm = Slurm(hangs=float("inf"), stuck=(1020.0,))
    begin, start_count = slurm.now, 0
    for _ in range(600):
        slurm.update(1020.0)
        start_count += slurm.update(1025.0) == ""
        slurm.now += 1.0
    assert start_count > 400
    assert slurm.call_times.count(1020.0) < 10
    assert slurm.now - begin < 650.0


def test_each_such_job_delays_the_others_by_one_pause() -> None:
    slurm = Slurm(hangs=float("inf"), stuck=(1017.0, 1018.0, 1019.0, 1020.0))
    begin = slurm.now
    while slurm.now < begin + 300.0:
        answers = [slurm.update(submit_time) for submit_time in (*slurm.stuck, 1025.0)]
        if not answers[-1]:
            break
        slurm.now += 1.0
    assert slurm.now <= begin + 60.0


def test_an_outage_of_slurmdbd_is_recognised_without_a_wait() -> None:
    slurm = Slurm()
    slurm.jobs.note_silence(slurm.now, "sacct: no answer within 4 s")
    assert UNRECORDED in slurm.update(1029.0)
    assert slurm.call_times == []


def test_other_refusals_concern_only_their_job() -> None:
    slurm = Slurm()
    with pytest.raises(SlurmError, match="no such node"), slurm.jobs.update(JobId("1"), 1020.0):
        raise SlurmError("no such node")
    slurm.update(1020.0)
    assert slurm.call_times == [1020.0]


def test_an_unanswered_update_is_postponed_for_new_jobs_and_fails_for_old_ones() -> None:
    silence = SlurmUnavailableError("scontrol update: no answer within 3 s")
    slurm = Slurm()
    with pytest.raises(SlurmUnavailableError), slurm.jobs.update(JobId("1"), 1029.0):
        raise SlurmUnavailableError("scontrol update: Connection refused")
    with pytest.raises(SlurmError, match=UNRECORDED) as new, slurm.jobs.update(JobId("1"), 1029.0):
        raise silence
    assert not isinstance(new.value, SlurmUnavailableError)
    with pytest.raises(SlurmUnavailableError), slurm.jobs.update(JobId("2"), 900.0):
        raise silence


@pytest.mark.parametrize(("submit_time", "seconds"), [(90.0, UPDATE_SECONDS), (80.0, 30.0)])
def test_updates_of_new_jobs_have_a_short_time_out(
    monkeypatch: pytest.MonkeyPatch, submit_time: float, seconds: float
) -> None:
    time_outs: list[float] = []

    def run(commands: SlurmCommands, *_: str) -> str:
        time_outs.append(commands.timeout_seconds)
        return "AccountingStorageType = accounting_storage/slurmdbd"

    monkeypatch.setattr(SlurmCommands, "run", run)
    adapter = ScontrolAdapter(clock=lambda: 100.0)
    adapter._submitted = {JobId("1"): submit_time}
    adapter.hold(JobId("1"))
    assert time_outs[-1] == seconds


def test_the_adapter_asks_slurm_once(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Sequence[str]] = []

    def run(_: SlurmCommands, *words: str) -> str:
        if words[1] == "show":
            return ""
        commands.append(words)
        raise SlurmError(REFUSAL)

    monkeypatch.setattr(SlurmCommands, "run", run)
    adapter = ScontrolAdapter()
    for job in ("1", "2", "1"):
        with pytest.raises(SlurmError, match=UNRECORDED):
            adapter.hold(JobId(job))
    assert [words[2] for words in commands] == ["jobid=1"]
