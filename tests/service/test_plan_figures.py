"""Running jobs keep the figures of the plan that placed them."""

from __future__ import annotations

from pathlib import Path

from controller_rig import Rig, job


def test_running_jobs_keep_the_figures_of_the_plan_that_placed_them(tmp_path: Path) -> None:
    """Further plans of the round contain only waiting jobs."""
    rig = Rig(tmp_path, job(1, "hops:reqs=8"), job(2, "hops:reqs=8"), job(3, "hops:reqs=8"))
    rig.tick()
    running = sorted(rig.port.running)
    old_priorities = {number: rig.row(number)["priority"] for number in running}
    rig.tick()
    new_rows = {number: rig.row(number) for number in running}
    assert len(running) == 2
    assert all(old_priorities.values())
    assert {number: row["priority"] for number, row in new_rows.items()} == old_priorities
    assert all(row["gain"] is not None for row in new_rows.values())
