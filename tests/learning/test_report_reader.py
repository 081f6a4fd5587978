"""The daemon's side of the spool: which reports are believed or refused, and what follows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_values import NOW, report, timed_part
from spooled_reports import UID, job, look, put_report, reading

from hopsd.learning.reader import MAX_PROGRAMS_PER_JOB, ReportReader
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName, Tasks
from hopsd.model.knowledge import Phases
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.script_options import ScriptOptions


def test_a_task_of_an_array_reports_under_its_number(tmp_path: Path) -> None:
    """The last task has the number of the array; the array's waiting tasks reported nothing."""
    put_report(tmp_path, report(job="17"))
    put_report(tmp_path, report(job="20"))
    last = job(id=JobId("17_9"), array=JobId("17"), number="17")
    first = job(id=JobId("17_0"), array=JobId("17"), number="20")
    pending_tasks = job(rest=Tasks.parse("1-8"), state=SlurmState.PENDING, allocation=Allocation())
    collection = look(ReportReader(tmp_path), reading(first, pending_tasks, last))
    assert collection.samples_done == {"17_0": 3296.0, "17_9": 3296.0}
    assert collection.refusals == ()


@pytest.mark.parametrize(
    ("saved_iterations", "samples_done"),
    [
        ((None, None), 3296 + 3296),  # how it saves cannot be seen
        ((100, None), 3200 + 3296),
        ((100, 50), 3200 + 3296),
        ((None, 50), 3296),  # stopped before its first save
    ],
)
def test_progress_that_a_stopped_run_had_not_saved_does_not_count(
    tmp_path: Path, saved_iterations: tuple[int | None, int | None], samples_done: float
) -> None:
    reader = ReportReader(tmp_path)
    put_report(tmp_path, report(saved=saved_iterations[0]))
    assert look(reader, reading(job())).samples_done == {"17": 3296}
    put_report(tmp_path, report(run=1, saved=saved_iterations[1]))
    collection = look(reader, reading(job(restarts=1)))
    assert collection.samples_done == {"17": pytest.approx(samples_done)}


def test_one_rank_may_save_for_all(tmp_path: Path) -> None:
    for run in range(2):
        put_report(tmp_path, report(run=run, world=2, saved=100))
        put_report(tmp_path, report(run=run, world=2, rank=1, pid=2))
    collection = look(ReportReader(tmp_path), reading(job(restarts=1)))
    assert collection.samples_done == {"17": pytest.approx(2 * 3200 + 2 * 3296)}


@pytest.mark.parametrize(
    ("rank_flags", "flags_by_job"),
    [((True, True), {"17": True}), ((True, False), {"17": False}), ((None, None), {})],
)
def test_all_ranks_must_report_communication_times(
    tmp_path: Path, rank_flags: tuple[bool | None, bool | None], flags_by_job: dict[str, bool]
) -> None:
    put_report(tmp_path, report(world=2, communication_timed=rank_flags[0]))
    put_report(tmp_path, report(world=2, rank=1, pid=2, communication_timed=rank_flags[1]))
    collection = look(ReportReader(tmp_path), reading(job()))
    assert collection.communication_timed == flags_by_job
    put_report(tmp_path, report(run=1, world=2, communication_timed=True))
    collection = look(ReportReader(tmp_path), reading(job(restarts=1)))
    assert collection.communication_timed == {"17": True}


@pytest.mark.parametrize(
    ("ranks", "flags_by_job"),
    [((True, True), {"17": True}), ((None, False), {"17": False}), ((None, None), {})],
)
def test_steps_have_equal_samples_on_any_gpus_if_all_reports_agree(
    tmp_path: Path, ranks: tuple[bool | None, bool | None], flags_by_job: dict[str, bool]
) -> None:
    for rank, keeps in enumerate(ranks):
        put_report(tmp_path, report(world=2, rank=rank, pid=rank, keeps_steps=keeps))
    collection = look(ReportReader(tmp_path), reading(job()))
    assert collection.keeps_steps == flags_by_job
    put_report(tmp_path, report(run=1, keeps_steps=True))  # the script was changed in between
    collection = look(ReportReader(tmp_path), reading(job(restarts=1)))
    assert collection.keeps_steps == {"17": True}


@pytest.mark.parametrize(
    ("ranks", "known_by_job"),
    [((True, True), {"17": True}), ((True, False), {"17": False}), ((None, None), {})],
)
def test_the_time_of_an_iteration_is_known_if_all_ranks_report_it(
    tmp_path: Path, ranks: tuple[bool | None, bool | None], known_by_job: dict[str, bool]
) -> None:
    for rank, time_known in enumerate(ranks):
        timed_part = {"iterations": 0, "samples": 0, "seconds": 0}
        ranks_report = report(world=2, rank=rank, pid=rank, time_known=time_known, timed=timed_part)
        put_report(tmp_path, ranks_report)
    collection = look(ReportReader(tmp_path), reading(job()))
    assert collection.time_known == known_by_job
    put_report(tmp_path, report(run=1, time_known=True))
    collection = look(ReportReader(tmp_path), reading(job(restarts=1)))
    assert collection.time_known == {"17": True}


@pytest.mark.parametrize(
    ("ranks", "answers_by_job"),
    [
        ((["USR1"], ["USR1", "TERM"]), {"17": True}),
        ((["USR1"], []), {"17": False}),  # when one rank dies, srun ends all
        ((["TERM"], ["TERM"]), {"17": False}),
    ],
)
def test_ranks_handle_the_signal_of_their_script_if_all_report_it(
    tmp_path: Path, ranks: tuple[list[str], list[str]], answers_by_job: dict[str, bool]
) -> None:
    for rank, names in enumerate(ranks):
        put_report(tmp_path, report(world=2, rank=rank, pid=rank, handled_signals=names))
    asks = replace(job(), options=ScriptOptions(signal="USR1", signal_steps=True))
    assert look(ReportReader(tmp_path), reading(asks)).answers_signal == answers_by_job


OLD, NEW = "0123456789ab", "ba9876543210"


def test_a_changed_training_program_is_another_workload(tmp_path: Path) -> None:
    reader = ReportReader(tmp_path)
    script = {"comment": "hops:reqs=1,2", "command": "/home/alice/train.sh"}
    put_report(tmp_path, report(program=OLD))
    first = look(reader, reading(job(**script)))
    put_report(tmp_path, report(run=1, program=NEW))
    second_look = look(reader, reading(job(**script, restarts=1)))
    assert (first.programs, second_look.programs) == ({"17": OLD}, {"17": NEW})
    for collection, program in ((first, OLD), (second_look, NEW)):
        assert [r.workload for r in collection.records] == [f"alice/train/train.sh+{program}"]
        assert [r.workload for r in collection.phases] == [f"alice/train/train.sh+{program}"]


def test_the_program_that_trains_longest_names_the_workload(tmp_path: Path) -> None:
    """Evaluations belong to its workload; a process with an old plugin names no program."""
    slow = timed_part(100, 3200, 50.0) | {"first_step": NOW - 60}
    put_report(tmp_path, report(pid=1, program=OLD))
    put_report(tmp_path, report(pid=2, program=NEW, **timed_part(100, 3200, 6.0)))
    put_report(tmp_path, report(pid=3, program="cccccccccccc", kind="inference", **slow))
    put_report(tmp_path, report(pid=4))
    collection = look(ReportReader(tmp_path), reading(job(comment="hops:reqs=1")))
    assert collection.programs == {"17": NEW}
    assert {record.workload for record in collection.phases} == {f"alice/train/+{NEW}"}


def test_a_job_that_reports_a_new_program_each_time_has_few_workloads(tmp_path: Path) -> None:
    """Regression: each program became a workload that was stored, fitted and read by every plan."""
    reader, workloads = ReportReader(tmp_path), set()
    for number in range(50):
        put_report(
            tmp_path,
            report(pid=number, program=f"{number:012x}", **timed_part(100, 3200, 6.0 + number)),
        )
        collection = look(reader, reading(job(comment="hops:reqs=1")))
        workloads |= {record.workload for record in collection.phases}
    assert 1 < len(workloads) <= MAX_PROGRAMS_PER_JOB


def test_a_named_workload_keeps_its_name_whatever_it_trains(tmp_path: Path) -> None:
    put_report(tmp_path, report(program=OLD))
    collection = look(ReportReader(tmp_path), reading(job()))
    assert {record.workload for record in collection.phases} == {"resnet"}


def test_lessons_that_were_not_stored_are_given_again(tmp_path: Path) -> None:
    reader = ReportReader(tmp_path)
    put_report(tmp_path, report())
    look(reader, reading(job()))
    last = {"iterations": 203, "samples": 6496, "at": NOW + 10, "final": True}
    path = put_report(tmp_path, report(**last, **timed_part(200, 6400, 10.0)))
    end_reading = reading(job(state=SlurmState.COMPLETED, allocation=Allocation()), now=NOW + 10)
    unsaved_collection = reader.collect(end_reading)
    assert unsaved_collection.samples_done == {"17": 6496}
    assert len(unsaved_collection.records) == 1
    assert reader.collect(end_reading) == unsaved_collection
    assert path.exists()
    reader.settle()
    assert not path.exists()
    assert reader.collect(end_reading).samples_done == {}


def test_one_process_gives_a_record_its_progress_and_its_start_up_time(tmp_path: Path) -> None:
    put_report(tmp_path, report())
    collection = look(ReportReader(tmp_path), reading(job()))
    (record,) = collection.records
    assert (record.workload, record.gpu_type, record.node) == ("resnet", "rtx3090", "n0")
    assert (record.gpus, record.nodes, record.per_gpu, record.at) == (1, 1, 640.0, NOW)
    assert record.batch == 32.0
    assert collection.samples_done == {"17": 3296}
    assert collection.restart_seconds == {"17": 20.0}
    assert collection.refusals == ()


def test_a_spread_job_gives_a_record_per_node_once_all_ranks_have_reported(tmp_path: Path) -> None:
    spread = job(allocation=Allocation.of({"n0": 2, "n4": 1}))
    reader = ReportReader(tmp_path)
    put_report(tmp_path, report(world=3))
    put_report(tmp_path, report(world=3, rank=1, pid=4243))
    assert look(reader, reading(spread)).records == ()
    put_report(tmp_path, report(world=3, rank=2, node="n4", pid=1, **timed_part(100, 3200, 10.0)))
    records = {r.node: r for r in look(reader, reading(spread)).records}
    assert {node: (r.gpu_type, r.per_gpu) for node, r in records.items()} == {
        "n0": ("rtx3090", 640.0),
        "n4": ("v100", 320.0),
    }
    assert {(r.gpus, r.nodes, r.batch) for r in records.values()} == {(3, 2, 32.0)}


def test_a_later_collection_uses_only_new_iterations(tmp_path: Path) -> None:
    reader = ReportReader(tmp_path)
    put_report(tmp_path, report())
    assert len(look(reader, reading(job())).records) == 1
    assert look(reader, reading(job(), now=NOW + 1)).records == ()
    # 100 further iterations at half the speed: the mean over all would be 427.
    put_report(
        tmp_path, report(iterations=203, samples=6496, at=NOW + 10, **timed_part(200, 6400, 15.0))
    )
    (record,) = look(reader, reading(job(), now=NOW + 10)).records
    assert record.per_gpu == pytest.approx(320.0)


def test_parts_of_an_iteration_are_recorded_once_per_report(tmp_path: Path) -> None:
    reader = ReportReader(tmp_path)
    put_report(tmp_path, report())
    (record,) = look(reader, reading(job())).phases
    identity = (record.workload, record.gpu_type, record.job, record.run, record.node, record.rank)
    assert identity == ("resnet", "rtx3090", "17", 0, "n0", 0)
    assert record.phases == Phases(
        inference=False,
        on_device=False,
        pattern=2,
        batch_size=32,
        params=25_600_000,
        t_f=0.01,
        t_b=0.02,
        t_u=0.003,
        t_w=0.001,
        iterations=100,
        data_seconds=pytest.approx(0.2),
        data_bins={75: 60, 90: 40},
        backward_by_data={75: 1.2, 90: 0.8},
    )
    assert look(reader, reading(job())).phases == ()
    put_report(
        tmp_path, report(iterations=203, samples=6496, at=NOW + 10, **timed_part(200, 6400, 15.0))
    )
    (record,) = look(reader, reading(job(), now=NOW + 10)).phases
    assert record.phases.iterations == 200


def test_a_report_before_any_timed_iteration_has_no_parts(tmp_path: Path) -> None:
    early_fields = {"timed": {"iterations": 0, "samples": 0, "seconds": 0.0}, "basics": None}
    put_report(tmp_path, report(iterations=1, samples=32, **early_fields))
    collection = look(ReportReader(tmp_path), reading(job()))
    assert (collection.phases, collection.refusals) == ((), ())
    assert collection.samples_done == {"17": 32}


def test_unused_gpus_lower_the_speed(tmp_path: Path) -> None:
    put_report(tmp_path, report())
    (record,) = look(
        ReportReader(tmp_path), reading(job(allocation=Allocation.of({"n0": 2, "n1": 2})))
    ).records
    assert record.per_gpu * 4 == pytest.approx(640.0)


def test_progress_accumulates_over_runs_and_survives_the_reader(tmp_path: Path) -> None:
    put_report(tmp_path, report())
    put_report(tmp_path, report(run=1, node="n1", samples=5000))
    moved_job = job(restarts=1, allocation=Allocation.of({"n1": 1}))
    for reader in (ReportReader(tmp_path), ReportReader(tmp_path)):
        assert look(reader, reading(moved_job)).samples_done == {"17": 8296}


def test_reports_of_a_finished_job_are_counted_and_removed(tmp_path: Path) -> None:
    path = put_report(tmp_path, report(final=True))
    finished_job = job(state=SlurmState.COMPLETED)
    assert look(ReportReader(tmp_path), reading(finished_job)).samples_done == {"17": 3296}
    assert not path.exists()


def test_reports_of_jobs_and_runs_newer_than_the_reading_are_kept(tmp_path: Path) -> None:
    path = put_report(tmp_path, report(run=1))
    os.utime(path, (NOW, NOW))
    collection = look(ReportReader(tmp_path), reading(job()))
    assert (collection.records, collection.samples_done, collection.refusals) == ((), {}, ())
    assert look(ReportReader(tmp_path), reading()).refusals == ()
    assert path.exists()


def test_orphaned_reports_are_removed_after_an_hour(tmp_path: Path) -> None:
    old, new = tmp_path / ".1.0.n0.0.1.json.partial", tmp_path / ".2.0.n0.0.1.json.partial"
    for path, age in ((old, 4000), (new, 10)):
        path.touch()
        os.utime(path, (NOW - age, NOW - age))
    assert look(ReportReader(tmp_path), reading()).refusals == ()
    assert not old.exists()
    assert new.exists()


def test_a_missing_folder_has_no_reports(tmp_path: Path) -> None:
    collection = look(ReportReader(tmp_path / "none"), reading(job()))
    assert collection.records == ()
    assert collection.unread == f"{tmp_path}/none: No such file or directory"


def refusal(folder: Path, *jobs: JobReading) -> str:
    """Return the reason of the only refusal; check that the file is gone and not reported again."""
    reader = ReportReader(folder)
    (refusal_entry,) = look(reader, reading(*jobs)).refusals
    assert list(folder.iterdir()) == []
    assert look(reader, reading(*jobs)).refusals == ()
    return refusal_entry.reason


def test_another_users_report_is_refused(tmp_path: Path) -> None:
    put_report(tmp_path, report())
    assert "owner" in refusal(tmp_path, job(uid=UID + 1))


def test_a_report_from_a_node_outside_the_allocation_is_refused(tmp_path: Path) -> None:
    put_report(tmp_path, report(node="n4"))
    assert "node: run 0 is on n0" in refusal(tmp_path, job())


def test_a_report_maps_to_slurms_name_of_a_node_with_several_gpu_types(tmp_path: Path) -> None:
    put_report(tmp_path, report())
    node_reading = reading(job(allocation=Allocation.of({"n0/a100": 1})))
    parts = tuple(
        replace(node_reading.nodes[0], name=NodeName(f"n0/{kind}"), gpu_type=GpuType(kind))
        for kind in ("1g.10gb", "a100")
    )
    collection = look(ReportReader(tmp_path), replace(node_reading, nodes=parts))
    assert [(r.node, r.gpu_type) for r in collection.records] == [("n0/a100", "a100")]
    assert {r.gpu_type for r in collection.phases} == {"a100"}


@pytest.mark.parametrize(("second", "leaves"), [("s0", 1), ("s1", 2)])
def test_a_speed_is_stored_with_its_number_of_leaf_switches(
    tmp_path: Path, second: str, leaves: int
) -> None:
    for rank, node in enumerate(("n0", "n1")):
        put_report(tmp_path, report(world=2, rank=rank, node=node, pid=rank + 1))
    node_reading = reading(job(allocation=Allocation.of({"n0": 1, "n1": 1})))
    switches = {"n0": ("core", "s0"), "n1": ("core", second)}
    racked_nodes = tuple(replace(n, switches=switches.get(n.name, ())) for n in node_reading.nodes)
    collection = look(ReportReader(tmp_path), replace(node_reading, nodes=racked_nodes))
    assert [(r.nodes, r.leaves) for r in collection.records] == [(2, leaves)] * 2


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    path = put_report(tmp_path, report())
    (spool / path.name).symlink_to(path)
    assert refusal(spool, job())


def test_a_hard_link_is_refused(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    path = put_report(tmp_path, report())
    (spool / path.name).hardlink_to(path)
    assert "regular file with one name" in refusal(spool, job())


def test_a_fifo_neither_blocks_the_daemon_nor_is_accepted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "17.0.n0.0.4242.json")
    assert "regular file" in refusal(tmp_path, job())


def test_an_endless_report_is_refused(tmp_path: Path) -> None:
    put_report(tmp_path, report(failure="x" * 70_000))
    assert "65536 bytes" in refusal(tmp_path, job())


def test_a_flood_of_reports_is_refused_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopsd.learning.reader.MAX_FILES_PER_JOB", 5)
    for pid in range(1, 9):
        put_report(tmp_path, report(pid=pid))
    assert len(look(ReportReader(tmp_path), reading(job())).refusals) == 3
    assert len(list(tmp_path.iterdir())) == 5


def test_a_job_counts_as_seen_to_save_once_a_regular_run_has_saved(tmp_path: Path) -> None:
    reader = ReportReader(tmp_path)
    assert look(reader, reading(job())).saved == {}
    put_report(tmp_path, report(mode="profiling", saved=3))
    assert look(reader, reading(job())).saved == {}
    put_report(tmp_path, report(run=1, saved=None))
    assert look(reader, reading(job(restarts=1))).saved == {"17": False}
    put_report(tmp_path, report(run=2, saved=0))
    assert look(reader, reading(job(restarts=2))).saved == {"17": True}


@pytest.mark.parametrize(
    ("state", "restarts", "is_kept"),
    [
        (SlurmState.FAILED, 0, True),
        (SlurmState.COMPLETED, 0, False),
        (SlurmState.RUNNING, 0, False),
        (SlurmState.PENDING, 1, True),
    ],
)
def test_a_type_has_too_little_memory_only_if_the_run_did_not_complete(
    tmp_path: Path, state: SlurmState, restarts: int, is_kept: bool
) -> None:
    """This holds before the first iteration, too; such a report teaches nothing else."""
    no_progress = {
        "iterations": 0,
        "samples": 0,
        "timed": timed_part(0, 0, 0.0)["timed"],
        "phases": {},
    }
    reader = ReportReader(tmp_path)
    running = job(allocation=Allocation.of({"n4": 2}))
    look(reader, reading(running))
    put_report(tmp_path, report(node="n4", out_of_memory=True, **no_progress))
    ended_job = job(state=state, restarts=restarts, allocation=Allocation())
    collection = look(reader, reading(running if state is SlurmState.RUNNING else ended_job))
    expected_rows = [("alice", "resnet", "v100", 2, NOW)] if is_kept else []
    shortage_rows = [(s.user, s.workload, s.gpu_type, s.gpus, s.at) for s in collection.shortages]
    assert (shortage_rows, collection.refusals, collection.saved, collection.records) == (
        expected_rows,
        (),
        {},
        (),
    )


def test_reports_of_an_earlier_job_with_the_same_number_are_refused(tmp_path: Path) -> None:
    """A slurmctld that lost its state assigns numbers a second time."""
    path = put_report(tmp_path, report())
    later = job(submit=NOW + 3000, start=NOW + 3600)
    collection = look(ReportReader(tmp_path), reading(later, now=NOW + 3700))
    assert [refusal.reason for refusal in collection.refusals] == [
        "at: before the job's start; from an earlier job with this number"
    ]
    assert not collection.samples_done
    assert not path.exists()


def test_a_reused_number_inherits_nothing_from_the_earlier_job(tmp_path: Path) -> None:
    reader = ReportReader(tmp_path)
    put_report(tmp_path, report())
    assert look(reader, reading(job())).samples_done == {"17": 3296}
    put_report(tmp_path, report(node="n1", started=NOW + 20, first_step=NOW + 30, at=NOW + 50))
    successor = job(submit=NOW + 10, start=NOW + 20, allocation=Allocation.of({"n1": 1}))
    (tmp_path / "17.0.n0.0.4242.json").unlink()
    collection = look(reader, reading(successor, now=NOW + 60))
    assert (collection.refusals, collection.samples_done) == ((), {"17": 3296})


STANDS_STILL = {
    "state": "waiting",
    "stalled": True,
    "quiet": 25.0,
    "still": 22.0,
    "limit": 20.0,
    "line": "train.py:7 in \x1b[31mf",
    "waits_in": "all_reduce" + 4000 * "_",  # text beyond the plugin's limit is cut
    "stacks": None,
}


def test_the_last_report_of_a_stalled_training_is_read(tmp_path: Path) -> None:
    put_report(tmp_path, report(stall=STANDS_STILL, world=2))
    put_report(tmp_path, report(rank=1, world=2, pid=4243))
    reader = ReportReader(tmp_path)
    rank_readings = look(reader, reading(job())).ranks
    assert [(rank.rank, rank.pause is None, rank.heard_at) for rank in rank_readings] == [
        (0, False, NOW),
        (1, True, NOW),
    ]
    pause = rank_readings[0].pause
    assert pause is not None
    assert (pause.line, pause.stacks) == ("train.py:7 in ?[31mf", "")
    assert pause.waits_in == "all_reduce" + 50 * "_"
    # A report read twice is not newer, and an earlier run is over.
    assert [r.heard_at for r in look(reader, reading(job(), now=NOW + 9)).ranks] == [NOW, NOW]
    assert look(reader, reading(job(restarts=1))).ranks == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "dead"},
        {"stalled": 1},
        {"still": -1},
        {"line": 5},
        {"line": "x" * 5000},
    ],
)
def test_invalid_pauses_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    put_report(tmp_path, report(stall=STANDS_STILL | wrong))
    (refusal_entry,) = look(ReportReader(tmp_path), reading(job())).refusals
    assert f"{next(iter(wrong))}: give" in refusal_entry.reason


def test_used_gpus_are_counted_after_some_minutes_of_training(tmp_path: Path) -> None:
    reader = ReportReader(tmp_path)
    for rank in (0, 1):
        put_report(tmp_path, report(rank=rank, world=2, pid=rank, gpus=1))
    assert look(reader, reading(job())).gpus_used == {}
    for rank in (0, 1):
        put_report(tmp_path, report(rank=rank, world=2, pid=rank, gpus=1, first_step=NOW - 200))
    assert look(reader, reading(job())).gpus_used == {"17": 2}
    assert look(reader, reading(job(restarts=1))).gpus_used == {}


def test_gpus_with_processes_are_counted_if_the_driver_sees_all(
    tmp_path: Path,
) -> None:
    reader = ReportReader(tmp_path)
    allocation_fields = {"allocation": Allocation.of({"n0": 4})}
    put_report(tmp_path, report(gpus=1, visible_gpus=2, taken_gpus=1))
    assert look(reader, reading(job(**allocation_fields))).gpus_taken == {}, (
        "it sees some of the job's"
    )
    put_report(tmp_path, report(gpus=1, visible_gpus=4, taken_gpus=1))
    assert look(reader, reading(job(**allocation_fields))).gpus_taken == {"17": 1}
    put_report(tmp_path, report(gpus=1, visible_gpus=4, taken_gpus=2))
    assert look(reader, reading(job(**allocation_fields))).gpus_taken == {"17": 2}, (
        "others are on one, too"
    )
    assert look(reader, reading(job(restarts=1, **allocation_fields))).gpus_taken == {}


def test_the_speed_of_a_single_gpu_is_stored_with_its_index(tmp_path: Path) -> None:
    put_report(tmp_path, report())
    single = job(gpu_indices={NodeName("n0"): (3,)})
    records = look(ReportReader(tmp_path), reading(single)).records
    assert [(record.job, record.gpu) for record in records] == [("17", 3)]
    several = job(allocation=Allocation.of({"n0": 2}), gpu_indices={NodeName("n0"): (3, 4)})
    records = look(ReportReader(tmp_path), reading(several)).records
    assert [(record.job, record.gpu) for record in records] == [("17", None)]


@pytest.mark.parametrize(("final", "seconds", "records"), [(True, 0.4, 1), (False, 0.4, 0)])
def test_a_complete_run_may_be_short(
    tmp_path: Path, final: bool, seconds: float, records: int
) -> None:
    """A training of a few short iterations has a speed once it has ended."""
    short = timed_part(20, 640, seconds)
    put_report(tmp_path, report(iterations=23, samples=736, final=final, **short))
    reader = ReportReader(tmp_path)
    collection = look(reader, reading(job()))
    assert [record.per_gpu for record in collection.records] == [1600.0] * records
    # In a longer run, the last report alone adds too little.
    timings = timed_part(40, 1280, 2 * seconds)
    put_report(tmp_path, report(iterations=43, samples=1376, final=True, at=NOW + 5, **timings))
    later = look(reader, reading(job(), now=NOW + 5))
    assert len(later.records) == 1 - records


def test_a_pending_run_cannot_report(tmp_path: Path) -> None:
    """Waiting jobs' reports were believed, from nodes that the jobs never had, in any number."""
    put_report(tmp_path, report(node="n4"))
    reader = ReportReader(tmp_path)
    waits: dict[str, Any] = {"state": SlurmState.PENDING, "allocation": Allocation()}
    collection = look(reader, reading(job(**waits)))
    assert (collection.phases, collection.samples_done, collection.refusals) == ((), {}, ())
    put_report(tmp_path, report())
    collection = look(reader, reading(job()))
    assert collection.samples_done == {"17": 3296}
    assert [refusal_entry.file for refusal_entry in collection.refusals] == ["17.0.n4.0.4242.json"]
    assert look(reader, reading(job(restarts=1, **waits))).samples_done == {"17": 3296}


def test_a_user_has_a_maximum_number_of_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: only the reports per job were limited, not the number of jobs."""
    monkeypatch.setattr("hopsd.learning.reader.MAX_FILES_PER_USER", 3)
    for number in ("17", "18"):
        for pid in (1, 2):
            put_report(tmp_path, report(job=number, pid=pid))
    (refusal_entry,) = look(ReportReader(tmp_path), reading(job(), job(id=JobId("18")))).refusals
    assert "more than 3 reports of one user" in refusal_entry.reason


def test_stored_parts_of_a_report_are_not_kept_in_memory(tmp_path: Path) -> None:
    put_report(tmp_path, report())
    reader = ReportReader(tmp_path)
    (record,) = reader.collect(reading(job())).phases
    assert record.phases.data_bins == {75: 60, 90: 40}
    (record,) = reader.collect(reading(job())).phases  # the store was not available
    assert record.phases.data_bins == {75: 60, 90: 40}
    reader.settle()
    ((_, report_entry),) = reader._reports_read.values()
    assert report_entry.phases is not None
    assert (report_entry.phases.data_bins, report_entry.phases.backward_by_data) == ({}, {})
    assert look(reader, reading(job())).phases == ()
