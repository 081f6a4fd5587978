"""Setup steps on separate files: first run, repeated run, and removal."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopsd.setup.change import BACKUP, SymbolicLink, Write
from hopsd.setup.machine import Machine, plugin_folder
from hopsd.setup.steps import STEPS, configuration, no_plugin, no_slurm, plugin, slurm

OLD = "ClusterName=a\nKillWait=17\nJobSubmitPlugins=all_partitions\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    conf = tmp_path / "slurm.conf"
    conf.write_text(OLD)
    running = {
        "SLURM_CONF": str(conf),
        "SelectType": "select/cons_tres",
        "GresTypes": "gpu",
        "JobSubmitPlugins": "all_partitions",
    }
    return Machine(running, "root", tmp_path / "hopsd.toml")


def test_step_names_are_unique() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)


def test_the_plugin_is_installed_once_and_removed(machine: Machine) -> None:
    folder = machine.slurm_conf.parent
    for change in plugin(machine):
        change.make()
    assert (folder / "job_submit.lua").readlink() == plugin_folder() / "job_submit.lua"
    assert (folder / "hops_site.lua").is_file()
    assert plugin(machine) == []
    for change in no_plugin(machine):
        change.make()
    assert sorted(path.name for path in folder.iterdir()) == ["slurm.conf"]
    assert no_plugin(machine) == []


def test_a_copy_of_our_plugin_is_replaced_by_a_link(machine: Machine) -> None:
    script = machine.slurm_conf.parent / "job_submit.lua"
    script.write_text("-- hops: of an older release\n")
    assert SymbolicLink(script, plugin_folder() / script.name) in plugin(machine)


def test_a_sites_own_plugin_stays(machine: Machine) -> None:
    script = machine.slurm_conf.parent / "job_submit.lua"
    text = "function slurm_job_submit() end\nreturn slurm.SUCCESS\n"
    script.write_text(text)
    for change in plugin(machine):
        change.make()
    assert f'dofile("{plugin_folder() / "job_submit.lua"}")' in script.read_text()
    assert script.read_text().endswith("return slurm.SUCCESS\n")
    assert plugin(machine) == []
    for change in no_plugin(machine):
        change.make()
    assert script.read_text() == text
    assert sorted(path.name for path in script.parent.iterdir()) == ["job_submit.lua", "slurm.conf"]


def test_a_call_added_by_the_site_is_left_alone(machine: Machine) -> None:
    script = machine.slurm_conf.parent / "job_submit.lua"
    script.write_text(f'dofile("{plugin_folder()}/job_submit.lua")\n')
    for changes in (plugin(machine), no_plugin(machine)):
        assert script not in [change.path for change in changes if hasattr(change, "path")]


def test_slurm_conf_is_extended_and_restored(machine: Machine) -> None:
    path = machine.slurm_conf
    writes = [change for change in slurm(machine) if isinstance(change, Write)]
    assert len(writes) == 1
    writes[0].make()
    assert path.read_text().startswith(OLD)
    assert "JobSubmitPlugins=all_partitions,lua\n" in path.read_text()
    assert "KillWait" not in path.read_text().removeprefix(OLD)
    assert not [change for change in slurm(machine) if isinstance(change, Write)]
    assert slurm(machine), "slurmctld does not run with it yet"
    for change in no_slurm(machine)[:2]:
        change.make()
    assert path.read_text() == OLD
    assert not Path(f"{path}{BACKUP}").exists()
    assert no_slurm(machine) == []


def test_a_missing_configuration_is_written_and_an_existing_one_kept(machine: Machine) -> None:
    for change in configuration(machine):
        assert isinstance(change, Write)
        assert change.path == machine.config
    machine.config.write_text("")
    assert configuration(machine) == []
