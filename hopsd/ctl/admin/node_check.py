"""Checks a node's part of hops against hopsd.toml, slurm.conf and this release.

Each check yields sentences about what is wrong, none if all is well.
"""

from __future__ import annotations

import re
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from hopsd.config import Config
from hopsd.errors import InputError
from hopsd.setup import site_script
from hopsd.setup.machine import plugin_folder
from hopsd.setup.machine import shipped as shipped_folder

SCRIPTS = ("prolog.sh", "task_prolog.sh", "epilog.sh")
READ_BY_SCRIPTS = ("comment.awk", "run_dir.sh", "save.sh")
PROLOGS = {"Prolog": "prolog.sh", "Epilog": "epilog.sh"}
CONTAINERS = ("pyxis",)
"""Plugins in plugstack.conf that move a task into a container before its TaskProlog."""


@dataclass(frozen=True, slots=True)
class Site:
    """One machine's part. ``config`` None: no hopsd.toml here; ``slurm``: slurm.conf's keys, None:
    slurmctld does not answer. ``owner``: the account that everything here should belong to.
    """

    folder: Path
    config: Config | None = None
    slurm: Mapping[str, str] | None = None
    owner: int = 0
    said: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> Path | None:
        return Path(self.said[name]) if self.said.get(name) else None


def shipped() -> Path:
    """The plugin's files of this release."""
    return shipped_folder("slurm_plugin")


def read_site(path: Path, owner: int = 0) -> dict[str, str]:
    """The settings in the shell file, read as the scripts read it.

    Raises:
        InputError: it is not there, or no shell file, or others than ``owner`` may write it: then
            it is not run here either.
    """
    if not path.is_file():
        raise InputError(f"{path}: not there; install it from {shipped()}")
    for place in (path, path.parent):
        for sentence in _only(place, owner, "root runs what is in it"):
            raise InputError(sentence)
    done = subprocess.run(
        ["/bin/sh", "-ec", 'set -a; . "$0"; env -0', path.resolve()],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=10,
        check=False,
    )
    if done.returncode:
        raise InputError(f"{path}: the shell refuses it: {done.stderr.strip()}")
    pairs = (entry.partition("=") for entry in done.stdout.split("\0"))
    return {name: value for name, _, value in pairs if name.startswith("HOPS_")}


def problems(site: Site) -> Iterator[str]:
    yield from _scripts(site)
    yield from _run_dir(site)
    yield from _state_dir(site)
    yield from _reports(site)
    yield from _profiler(site)
    yield from _agreement(site)
    if site.slurm is not None:
        yield from _slurm_conf(site, site.slurm)


def _scripts(site: Site) -> Iterator[str]:
    for name in (*SCRIPTS, *READ_BY_SCRIPTS):
        path = site.folder / name
        if not path.is_file():
            yield f"{path}: not there; install it from {shipped()}"
            continue
        yield from _only(path, site.owner, "it is read as root")
        if name in SCRIPTS and not path.stat().st_mode & stat.S_IXOTH:
            yield f"{path}: not executable by all; accepted is mode 755"
        yield from _same(path, shipped() / name)


def _only(path: Path, owner: int, why: str) -> Iterator[str]:
    status = path.stat()
    if status.st_uid != owner or status.st_mode & 0o022:
        yield (
            f"{path}: {stat.filemode(status.st_mode)} of uid {status.st_uid}; {why}, so that only"
            f" uid {owner} may write it"
        )


def _same(path: Path, ours: Path) -> Iterator[str]:
    if ours.is_file() and path.read_bytes() != ours.read_bytes():
        yield f"{path}: of another release than this hopsctl, or changed; see {ours}"


def _run_dir(site: Site) -> Iterator[str]:
    folder = site.path("HOPS_RUN_DIR")
    if folder is None:
        return
    if site.config is not None and folder.resolve() == site.config.daemon.socket.parent.resolve():
        yield f"HOPS_RUN_DIR={folder}: hopsd's own; accepted is one of root's, /run/hops-node"
    yield from _roots_own(site, folder)
    if not folder.parent.is_dir():
        yield f"HOPS_RUN_DIR={folder}: {folder.parent} is not there, and prolog.sh does not make it"


def _roots_own(site: Site, folder: Path) -> Iterator[str]:
    if folder.is_symlink():
        yield f"{folder}: a link, which the scripts refuse; accepted is a folder itself"
    elif folder.exists():
        yield from _only(folder, site.owner, "prolog.sh writes there as root")


def _state_dir(site: Site) -> Iterator[str]:
    folder = site.path("HOPS_STATE_DIR")
    if folder is None:
        return
    yield from _roots_own(site, folder)
    if not folder.parent.is_dir():
        yield f"HOPS_STATE_DIR={folder}: {folder.parent} is not there; accepted is one in memory"


def _reports(site: Site) -> Iterator[str]:
    folder = site.path("HOPS_REPORT_DIR")
    if folder is None:
        yield "HOPS_REPORT_DIR: not set; jobs do not report, and speeds stay unknown"
        return
    if not folder.is_dir():
        yield f"HOPS_REPORT_DIR={folder}: not there; accepted is a shared folder, mode 1733"
        return
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o1777 != 0o1733:
        yield (
            f"HOPS_REPORT_DIR={folder}: mode {mode:o}; accepted is 1733: jobs may add files, not"
            " list or remove others'"
        )
    daemon = site.config.daemon.socket if site.config else None
    if daemon is not None and daemon.is_socket() and daemon.stat().st_uid not in (0, status.st_uid):
        yield (
            f"HOPS_REPORT_DIR={folder}: of uid {status.st_uid}, so that hopsd, uid"
            f" {daemon.stat().st_uid}, cannot list it; accepted is hopsd's account as its owner"
        )


def _profiler(site: Site) -> Iterator[str]:
    folder = site.path("HOPS_PROFILER_PATH")
    if folder is None:
        return
    if not (folder / "sitecustomize.py").is_file():
        yield f"HOPS_PROFILER_PATH={folder}: no sitecustomize.py there, as in .../profiler/site"
        return
    package, ours = folder.parent, Path(str(files("hops_profiler")))
    for path in (package, folder, folder / "sitecustomize.py"):
        yield from _only(path, site.owner, "every user's Python runs it")
    for path in sorted(ours.rglob("*.py")):
        there = package / path.relative_to(ours)
        if not there.is_file() or there.read_bytes() != path.read_bytes():
            yield f"{there}: of another release than this hopsctl; copy {ours} anew"
            return


def _agreement(site: Site) -> Iterator[str]:
    if site.config is None:
        return
    reports, ours = site.path("HOPS_REPORT_DIR"), site.config.knowledge.report_dir
    if reports is not None and reports.resolve() != ours.resolve():
        yield f"HOPS_REPORT_DIR={reports}: hopsd reads {ours} (knowledge.report_dir)"
    cut, most = site.said.get("HOPS_RANGE_VALUES"), site.config.plan.requirements_max
    if cut is not None and cut != str(most):
        yield f"HOPS_RANGE_VALUES={cut}: hopsd takes {most} (plan.requirements_max)"


def _slurm_conf(site: Site, conf: Mapping[str, str]) -> Iterator[str]:
    for key, script in PROLOGS.items():
        if key not in conf:
            yield f"slurm.conf: no {key}; hops needs {site.folder / script}, or one that calls it"
        elif "," not in conf[key] and not Path(conf[key]).exists():
            yield f"slurm.conf: {key}={conf[key]} is not there"
    ours, theirs = site.said.get("HOPS_REQUEUE_EXIT_CODE"), conf.get("RequeueExitHold", "")
    if ours is not None and not _in_ranges(ours, theirs):
        place = f"RequeueExitHold={theirs}" if theirs else "slurm.conf: it has no RequeueExitHold"
        yield f"HOPS_REQUEUE_EXIT_CODE={ours}: not in {place}"
    if "lua" not in conf.get("JobSubmitPlugins", "").split(","):
        yield "slurm.conf: JobSubmitPlugins without lua; comments are not checked, jobs not held"
    yield from _way_to_tasks(conf)
    yield from submit_script_problems(conf)


def submit_script_problems(conf: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with job_submit.lua beside slurm.conf: ours, or a site's that calls ours."""
    path = Path(conf.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "job_submit.lua"
    if not path.is_file():
        return
    text = path.read_text(errors="replace")
    if site_script.is_ours(text):
        yield from _same(path, shipped() / "job_submit.lua")
    elif problem := site_script.call_problem(text, plugin_folder() / "job_submit.lua"):
        yield f"{path}: {problem}"


def _in_ranges(code: str, listed: str) -> bool:
    """Whether an exit code is in Slurm's list, such as ``85,90-95``."""
    for item in filter(None, listed.split(",")):
        low, _, high = item.partition("-")
        if low.isdigit() and int(low) <= int(code) <= int(high or low):
            return True
    return False


def _way_to_tasks(conf: Mapping[str, str]) -> Iterator[str]:
    lines = list(_plugstack(Path(conf.get("PlugStackConfig", "/etc/slurm/plugstack.conf"))))
    ours = [line for line in lines if "hops_spank" in line]
    containers = [name for name in CONTAINERS if any(name in line for line in lines)]
    prolog = conf.get("TaskProlog")
    if containers and prolog:
        yield (
            f"slurm.conf: TaskProlog={prolog} beside {', '.join(containers)}: every job in a"
            " container fails; accepted is hops_spank.so in plugstack.conf in its place"
        )
    if not ours and not prolog:
        yield "slurm.conf: no TaskProlog, nor hops_spank.so in plugstack.conf: jobs are not told"
    for line in ours:
        kind, *words = line.split()
        if kind != "optional":
            yield f"plugstack.conf: {line}: accepted is optional, or its fault would end every job"
        if words and words[0].startswith("/") and not Path(words[0]).is_file():
            yield f"plugstack.conf: {words[0]} is not there; it is built from hops_spank.c"


def _plugstack(path: Path, depth: int = 0) -> Iterator[str]:
    """The plugins' lines, including those of included files."""
    if not path.is_file() or depth > 8:
        return
    for line in path.read_text(errors="replace").splitlines():
        text = line.partition("#")[0].strip()
        if found := re.fullmatch(r"include\s+(\S+)", text):
            pattern = Path(path.parent, found[1])
            for more in sorted(pattern.parent.glob(pattern.name)):
                yield from _plugstack(more, depth + 1)
        elif text:
            yield text
