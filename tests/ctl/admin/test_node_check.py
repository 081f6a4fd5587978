"""`hopsctl config check --node` accepts a good node and names each problem of a bad one."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import pytest

from hopsd import ctl
from hopsd.config import Config
from hopsd.ctl.admin.node_check import NodeInstallation, problems, read_site, release_plugin_folder
from hopsd.errors import InputError
from hopsd.setup.machine import plugin_folder
from hopsd.setup.site_script import with_call

pytestmark = pytest.mark.slow  # each test runs programs of the site

OTHER_UID = 4242


@dataclass(frozen=True)
class Machine:
    """A node set up as in admin.md, in a folder, and what slurmctld says about it."""

    root: Path

    @property
    def scripts(self) -> Path:
        return self.root / "etc"

    @property
    def config(self) -> Config:
        default = Config()
        return replace(
            default,
            daemon=replace(default.daemon, socket=self.root / "hops" / "sock"),
            knowledge=replace(default.knowledge, report_dir=self.root / "reports"),
        )

    @property
    def slurm(self) -> dict[str, str]:
        return {
            "Prolog": f"{self.scripts}/prolog.sh",
            "Epilog": f"{self.scripts}/epilog.sh",
            "TaskProlog": f"{self.scripts}/task_prolog.sh",
            "RequeueExitHold": "85,90-95",
            "JobSubmitPlugins": "lua",
            "SLURM_CONF": f"{self.root}/slurm.conf",
            "PlugStackConfig": f"{self.root}/plugstack.conf",
        }

    def wrong(self, slurm: Mapping[str, str] | None = None) -> list[str]:
        settings = read_site(self.scripts / "site.sh", os.geteuid())
        conf = self.slurm if slurm is None else slurm
        return list(
            problems(NodeInstallation(self.scripts, self.config, conf, os.geteuid(), settings))
        )

    def set_variable(self, name: str, value: object) -> None:
        with (self.scripts / "site.sh").open("a") as file:
            file.write(f"{name}={value}\n")


@pytest.fixture
def machine() -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="hops-test-"))
    root.chmod(0o755)
    checked_machine = Machine(root)
    old_umask = os.umask(0o022)
    shutil.copytree(release_plugin_folder(), checked_machine.scripts)
    shutil.copytree(
        str(files("hops_profiler")), root / "profiler", ignore=shutil.ignore_patterns("*.pyc")
    )
    for name in ("run", "hops", "reports"):
        (root / name).mkdir()
    (root / "reports").chmod(0o1733)
    shutil.copy(release_plugin_folder() / "job_submit.lua", root)
    os.umask(old_umask)
    for name, folder in (("RUN_DIR", "run"), ("REPORT_DIR", "reports")):
        checked_machine.set_variable(f"HOPS_{name}", root / folder)
    checked_machine.set_variable("HOPS_PROFILER_PATH", root / "profiler" / "site")
    yield checked_machine
    shutil.rmtree(root)


def test_a_site_set_up_as_documented_is_good(machine: Machine) -> None:
    assert machine.wrong() == []


def test_shipped_files_agree_with_the_default_configuration() -> None:
    settings = read_site(release_plugin_folder() / "site.sh", os.geteuid())
    sentences = problems(
        NodeInstallation(release_plugin_folder(), Config(), None, os.geteuid(), settings)
    )
    absences = ("is not there", "not there;", "no sitecustomize.py")
    assert [s for s in sentences if not any(word in s for word in absences)] == []


SPOILS: dict[str, tuple[Callable[[Machine], object], str]] = {
    "a script is missing": (lambda m: (m.scripts / "run_dir.sh").unlink(), "run_dir.sh: not there"),
    "a script is old": (
        lambda m: (m.scripts / "epilog.sh").write_text("#!/bin/sh\n"),
        "epilog.sh: of another release",
    ),
    "a script cannot run": (
        lambda m: (m.scripts / "prolog.sh").chmod(0o700),
        "prolog.sh: not executable by all",
    ),
    "anybody may write a script": (
        lambda m: (m.scripts / "comment.awk").chmod(0o666),
        "it is read as root",
    ),
    "hopsd's folder": (lambda m: m.set_variable("HOPS_RUN_DIR", m.root / "hops"), "to hopsd;"),
    "another's folder": (lambda m: (m.root / "run").chmod(0o777), "prolog.sh writes there as root"),
    "no such run folder": (
        lambda m: m.set_variable("HOPS_RUN_DIR", "/no/such"),
        "/no is not there",
    ),
    "another's memory": (
        lambda m: (
            (m.root / "memory").mkdir(),
            (m.root / "memory").chmod(0o777),
            m.set_variable("HOPS_STATE_DIR", m.root / "memory"),
        ),
        "prolog.sh writes there as root",
    ),
    "a link for memory": (
        lambda m: (
            (m.root / "memory").symlink_to(m.root / "run"),
            m.set_variable("HOPS_STATE_DIR", m.root / "memory"),
        ),
        "memory: a link",
    ),
    "no memory": (lambda m: m.set_variable("HOPS_STATE_DIR", "/no/such"), "choose one in memory"),
    "reports elsewhere": (
        lambda m: ((m.root / "other").mkdir(), m.set_variable("HOPS_REPORT_DIR", m.root / "other")),
        "hopsd reads",
    ),
    "no reports": (lambda m: m.set_variable("HOPS_REPORT_DIR", ""), "speeds stay unknown"),
    "no report folder": (lambda m: (m.root / "reports").rmdir(), "make a shared folder"),
    "reports of each other": (
        lambda m: (m.root / "reports").chmod(0o777),
        "mode 777; chmod 1733",
    ),
    "reports listed": (lambda m: (m.root / "reports").chmod(0o1777), "mode 1777"),
    "closed reports": (lambda m: (m.root / "reports").chmod(0o755), "mode 755"),
    "no profiler": (lambda m: m.set_variable("HOPS_PROFILER_PATH", m.root), "no sitecustomize.py"),
    "an old profiler": (
        lambda m: (m.root / "profiler" / "startup.py").write_text(""),
        "startup.py: of another release",
    ),
    "anybody's profiler": (
        lambda m: (m.root / "profiler" / "site").chmod(0o777),
        "every user's Python runs it",
    ),
    "another range": (lambda m: m.set_variable("HOPS_RANGE_VALUES", 9), "hopsd takes 8"),
    "another exit code": (
        lambda m: m.set_variable("HOPS_REQUEUE_EXIT_CODE", 86),
        "not in RequeueExitHold",
    ),
    "an old submit plugin": (
        lambda m: (m.root / "job_submit.lua").write_text("-- hops: old\nslurm_job_submit"),
        "job_submit.lua: of another release",
    ),
}


@pytest.mark.parametrize("key", SPOILS)
def test_each_mistake_is_named(machine: Machine, key: str) -> None:
    spoil, words = SPOILS[key]
    spoil(machine)
    assert any(words in sentence for sentence in machine.wrong()), machine.wrong()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another account")
@pytest.mark.parametrize("place", ["etc/prolog.sh", "run", "profiler/site"])
def test_files_of_another_account_are_named(machine: Machine, place: str) -> None:
    os.chown(machine.root / place, OTHER_UID, OTHER_UID)
    assert any(f"of uid {OTHER_UID}" in sentence for sentence in machine.wrong())


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another account")
def test_a_report_folder_that_hopsd_cannot_list_is_named(machine: Machine) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(machine.root / "hops" / "sock"))
        os.chown(machine.root / "hops" / "sock", OTHER_UID, OTHER_UID)
        assert any("cannot list it" in sentence for sentence in machine.wrong())
        os.chown(machine.root / "reports", OTHER_UID, OTHER_UID)
        assert machine.wrong() == []


def test_a_sites_own_submit_script_may_call_ours(machine: Machine) -> None:
    script = machine.root / "job_submit.lua"
    script.write_text("function slurm_job_submit() end\n")
    assert any("does not call" in sentence for sentence in machine.wrong())
    script.write_text(with_call(script.read_text(), plugin_folder() / "job_submit.lua"))
    assert machine.wrong() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Prolog": ""}, "no Prolog"),
        ({"Epilog": "/no/such"}, "Epilog=/no/such is not there"),
        ({"TaskProlog": ""}, "jobs are not told"),
        ({"RequeueExitHold": ""}, "has no RequeueExitHold"),
        ({"JobSubmitPlugins": "all_partitions"}, "without lua"),
    ],
)
def test_slurm_conf_is_checked(machine: Machine, changes: dict[str, str], words: str) -> None:
    conf = {key: value for key, value in (machine.slurm | changes).items() if value}
    assert any(words in sentence for sentence in machine.wrong(conf)), machine.wrong(conf)


def test_a_task_prolog_with_pyxis_is_named_and_our_plugin_is_not(machine: Machine) -> None:
    folder = machine.root / "plugstack.conf.d"
    folder.mkdir()
    (machine.root / "plugstack.conf").write_text("include plugstack.conf.d/*\n# optional x.so\n")
    (folder / "pyxis.conf").write_text("required /usr/lib/slurm/spank_pyxis.so\n")
    assert any("every job in a container fails" in sentence for sentence in machine.wrong())
    conf = {key: value for key, value in machine.slurm.items() if key != "TaskProlog"}
    library = machine.root / "hops_spank.so"
    (folder / "z.conf").write_text(f"optional {library}\n")
    assert any(f"{library} is not there" in sentence for sentence in machine.wrong(conf))
    library.touch()
    assert machine.wrong(conf) == []
    (folder / "z.conf").write_text(f"required {library}\n")
    assert any("write optional" in sentence for sentence in machine.wrong(conf))


def test_a_missing_or_malformed_site_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not there"):
        read_site(tmp_path / "site.sh", os.geteuid())
    (tmp_path / "site.sh").write_text("if\n")
    with pytest.raises(InputError, match="the shell refuses it"):
        read_site(tmp_path / "site.sh", os.geteuid())


@pytest.mark.parametrize("place", ["", "site.sh"])
def test_a_site_file_writable_by_others_is_not_run(tmp_path: Path, place: str) -> None:
    (tmp_path / "site.sh").write_text(f"touch {tmp_path}/ran\n")
    (tmp_path / place).chmod(0o777)
    with pytest.raises(InputError, match="root runs what is in it"):
        read_site(tmp_path / "site.sh", os.geteuid())
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the command takes root's files alone")
def test_the_command_exits_with_1_if_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    shutil.copytree(release_plugin_folder(), tmp_path / "etc")
    (tmp_path / "etc" / "comment.awk").unlink()
    words = ["config", "check", "--node", "--scripts", str(tmp_path / "etc")]
    monkeypatch.setattr(sys, "argv", ["hopsctl", *words, str(tmp_path / "hopsd.toml")])
    with pytest.raises(SystemExit) as end:
        ctl.main()
    assert end.value.code == 1
    error_output = capsys.readouterr().err
    assert "comment.awk: not there" in error_output
    assert "cannot ask Slurm: " in error_output
