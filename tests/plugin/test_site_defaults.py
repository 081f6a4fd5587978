"""Three files name the same paths and numbers, and agree as shipped."""

from __future__ import annotations

import shlex
from pathlib import Path

from hopsd.config.schema import Config

ROOT = Path(__file__).resolve().parents[2]


def site() -> dict[str, str]:
    lines = shlex.split((ROOT / "slurm_plugin" / "site.sh").read_text(), comments=True)
    return dict(line.split("=", 1) for line in lines)


def default(text: str, name: str) -> str:
    """Return a script's default if site.sh does not set the variable."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}=")]
    return line.partition("=")[2]


def test_jobs_report_to_the_folder_that_hopsd_reads() -> None:
    assert Path(site()["HOPS_REPORT_DIR"]) == Config().knowledge.report_dir
    for file in ("hops.tmpfiles.conf", "hopsd.service"):
        folders = (ROOT / "systemd" / file).read_text()
        assert str(Config().knowledge.report_dir.parent) in folders


def test_ranges_have_the_same_maximum_everywhere() -> None:
    assert int(site()["HOPS_RANGE_VALUES"]) == Config().plan.requirements_max


def test_the_exit_code_of_a_requeue_is_the_same_everywhere() -> None:
    conf = (ROOT / "slurm_plugin" / "slurm.conf.hops").read_text()
    assert default(conf, "RequeueExitHold") == site()["HOPS_REQUEUE_EXIT_CODE"]


def test_root_on_the_nodes_and_hopsd_have_separate_folders() -> None:
    unit = (ROOT / "systemd" / "hopsd.service").read_text()
    runtime = Path("/run") / default(unit, "RuntimeDirectory")
    assert Config().daemon.socket.parent == runtime
    folder = Path(site()["HOPS_RUN_DIR"])
    assert folder != runtime
    assert runtime not in folder.parents
    for script in ("prolog.sh", "epilog.sh", "task_prolog.sh"):
        text = (ROOT / "slurm_plugin" / script).read_text()
        assert default(text, "HOPS_RUN_DIR") == str(folder)
    assert f'"{folder}"' in (ROOT / "slurm_plugin" / "hops_spank.c").read_text()
