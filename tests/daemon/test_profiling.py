"""New workloads are measured on one GPU of each type, by real PyTorch, before they compete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from daemon_site import ROOT, Site, measurable_example, measuring_site, placements, submit

from examples.demo.cluster import NodeSpec
from hopsd.ctl.daemon_client import ask
from hopsd.model.ids import GpuType, JobId, WorkloadName

pytestmark = [pytest.mark.live, pytest.mark.slow]

NODES = [NodeSpec("rtx3090", gpus=2, cpus=8), NodeSpec("v100", gpus=1, cpus=8)]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with measuring_site(NODES, database) as site:
        yield site


def profile(site: Site, seconds: float = 90.0) -> None:
    profiling_settings = f"time_limit_seconds = {seconds}"
    site.hopsd.configure(round_seconds=10.0, profiling=True, tables=profiling_settings)
    site.hopsd.start()


def events(site: Site, job: JobId) -> list[tuple[str, str]]:
    """Events about measuring, without those about stops and moves."""
    events = reversed(site.store.events(job))
    return [(e.kind, e.text) for e in events if e.kind.startswith("profile")]


def explanation_of(site: Site, job: JobId) -> dict[str, Any]:
    answer = ask(site.hopsd.socket, "explain", job=job)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.long
def test_a_new_workload_is_measured_once_on_each_type(site: Site) -> None:
    profile(site)
    options = ("--model", "conv", "--samples", "2000", "--pace", "0.05")
    comment = "hops:reqs=1,2;samples=2000;batch=32;workload=conv"
    first = submit(site, comment, measurable_example(site.folder), *options)
    site.wait_until_all_completed(200.0)
    runs = placements(site, first)
    assert [placement for is_profile, placement in runs if is_profile] == [
        {"n0": 1},
        {"n1": 1},
    ] or [placement for is_profile, placement in runs if is_profile] == [{"n1": 1}, {"n0": 1}]
    assert not runs[-1][0]
    theories = {(t.workload, t.gpu_type): t for t in site.store.knowledge().theory}
    assert theories.keys() == {("conv", "rtx3090"), ("conv", "v100")}
    basic = theories[WorkloadName("conv"), GpuType("v100")]
    assert basic.iterations >= 10
    assert 0.04 < basic.t_f < 0.5  # the forward part includes the pace
    assert [kind for kind, _ in events(site, first)] == ["profiled", "profiled"]
    record = site.store.job(first)
    assert record is not None
    assert record.samples_done <= 2000  # a measuring run's training is discarded
    history = (site.folder / "work" / first / "history.jsonl").read_text().splitlines()
    assert json.loads(history[0])["begin"] == 0
    assert json.loads(history[-1])["end"] == 2000

    second = submit(site, comment, ROOT / "examples" / "train.sh", *options)
    site.wait_until_all_completed()
    assert all(not is_profile for is_profile, _ in placements(site, second))
    assert events(site, second) == []


@pytest.mark.long
def test_a_script_that_ignores_how_its_training_ends_loses_nothing(site: Site) -> None:
    """The script continues however its training ends, and exits with 0."""
    profile(site)
    script = 'cd "$ROOT/examples"; $PYTHON plain.py 1 || true; echo done >> $LOG; exit 0'
    job = submit(site, "hops:reqs=1;workload=plain", script)
    site.wait_until_all_completed(150.0)
    runs = placements(site, job)
    assert [is_profile for is_profile, _ in runs] == [True, True, False]
    assert (site.folder / "work" / "log").read_text() == "done\n"
    assert "epoch 0" in (site.folder / "work" / f"{job}.log").read_text()


@pytest.mark.long
def test_a_job_that_cannot_call_slurm_is_made_to_leave(site: Site) -> None:
    """As in a container without Slurm's commands: it keeps training, and hopsd ends its run."""
    profile(site)
    script = (
        'cd "$ROOT/examples"; echo run >> $LOG; [ -n "$HOPS_PROFILE" ] && epochs=1000;'
        " PATH=/nonexistent $PYTHON plain.py ${epochs:-1}"
    )
    job = submit(site, "hops:reqs=1;workload=contained", script)
    site.wait_until_all_completed(200.0)
    runs = placements(site, job)
    assert [is_profile for is_profile, _ in runs] == [True, True, False]
    assert [kind for kind, _ in events(site, job)] == ["profiled", "profiled"]


@pytest.mark.long
def test_a_job_that_fails_on_one_gpu_competes_without_figures(site: Site) -> None:
    profile(site)
    script = 'echo "${HOPS_GPUS}" >> $LOG; sleep 2; [ "$HOPS_GPUS" = 2 ] || exit 3'
    job = submit(site, "hops:reqs=1,2;workload=pair", script)
    site.wait_until_all_completed()
    assert placements(site, job) == [(True, {"n0": 1}), (False, {"n0": 2})]
    assert (site.folder / "work" / "log").read_text().split() == ["1", "2"]
    text = "its profile run on rtx3090 (n0) failed: it ended with exit code 3"
    ((kind, text_of_event),) = events(site, job)
    assert kind == "profile_failed"
    assert text_of_event.startswith(text)
    record = site.store.job(job)
    assert record is not None
    assert record.restarts == 1
    second_job = submit(site, "hops:reqs=1,2;workload=pair", script)
    site.wait_until_all_completed()
    assert (True, {"n0": 1}) not in placements(site, second_job)
    assert placements(site, second_job)[-1] == (False, {"n0": 2})


@pytest.mark.long
def test_a_run_without_figures_ends_in_time_and_its_user_is_notified(site: Site) -> None:
    profile(site, seconds=3.0)
    full = submit(site, "hops:reqs=1;preempt=no;workload=filler", "sleep 40")
    site.hopsd.wait_for(lambda s: len(s["running"]) == 1)
    assert placements(site, full)[0][0] is False, "preempt=no: its run is not broken off"
    job = submit(site, "hops:reqs=1,2;workload=silent", "sleep 12")
    site.hopsd.wait_for(lambda _: bool(events(site, job)))
    failure = "failed: it had not measured enough after 3 s"
    assert failure in events(site, job)[0][1]
    assert failure in str(explanation_of(site, job)["history"]["events"])
    site.wait_until_all_completed()
    assert [is_profile for is_profile, _ in placements(site, job)][-1] is False
