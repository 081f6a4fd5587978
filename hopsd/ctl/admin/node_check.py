"""Checks a node's part of hops against hopsd.toml, slurm.conf and this release.

Each check yields a sentence per problem.
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
from hopsd.setup.machine import release_folder as shipped_folder

SCRIPTS = ("prolog.sh", "task_prolog.sh", "epilog.sh")
READ_BY_SCRIPTS = ("comment.awk", "run_dir.sh", "save.sh")
PROLOGS = {"Prolog": "prolog.sh", "Epilog": "epilog.sh"}
CONTAINERS = ("pyxis",)
"""Plugins in plugstack.conf that move a task into a container before its TaskProlog."""


@dataclass(frozen=True, slots=True)
class NodeInstallation:
    """One machine's part of hops. ``config`` is None if there is no hopsd.toml here. ``slurm`` has
    slurm.conf's keys, None if slurmctld does not answer. ``owner`` is the uid that should own
    everything here, ``settings`` are those of site.sh.
    """

    folder: Path
    config: Config | None = None
    slurm: Mapping[str, str] | None = None
    owner: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> Path | None:
        return Path(self.settings[name]) if self.settings.get(name) else None


def release_plugin_folder() -> Path:
    """Return the folder with the plugin's files of this release."""
    return shipped_folder("slurm_plugin")


def read_site(path: Path, owner: int = 0) -> dict[str, str]:
    """Read the settings in the shell file as the scripts read it.

    Raises:
        InputError: if the file is missing or not a shell file, or somebody other than ``owner``
            may write it, in which case it is not run here either.
    """
    if not path.is_file():
        raise InputError(f"{path}: not there; install it from {release_plugin_folder()}")
    for checked_path in (path, path.parent):
        for sentence in _check_owner(checked_path, owner, "root runs what is in it"):
            raise InputError(sentence)
    result = subprocess.run(
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
    if result.returncode:
        raise InputError(f"{path}: the shell refuses it: {result.stderr.strip()}")
    pairs = (entry.partition("=") for entry in result.stdout.split("\0"))
    return {name: value for name, _, value in pairs if name.startswith("HOPS_")}


def problems(site: NodeInstallation) -> Iterator[str]:
    yield from _scripts(site)
    yield from _run_dir(site)
    yield from _state_dir(site)
    yield from _reports(site)
    yield from _profiler(site)
    yield from _agreement(site)
    if site.slurm is not None:
        yield from _slurm_conf(site, site.slurm)


def _scripts(site: NodeInstallation) -> Iterator[str]:
    for name in (*SCRIPTS, *READ_BY_SCRIPTS):
        path = site.folder / name
        if not path.is_file():
            yield f"{path}: not there; install it from {release_plugin_folder()}"
            continue
        yield from _check_owner(path, site.owner, "it is read as root")
        if name in SCRIPTS and not path.stat().st_mode & stat.S_IXOTH:
            yield f"{path}: not executable by all: chmod 755"
        yield from _check_release(path, release_plugin_folder() / name)


def _check_owner(path: Path, owner: int, reason: str) -> Iterator[str]:
    status = path.stat()
    if status.st_uid != owner or status.st_mode & 0o022:
        yield (
            f"{path}: {stat.filemode(status.st_mode)} of uid {status.st_uid}; {reason}, so only"
            f" uid {owner} may write it"
        )


def _check_release(path: Path, release_file: Path) -> Iterator[str]:
    if release_file.is_file() and path.read_bytes() != release_file.read_bytes():
        yield f"{path}: of another release than this hopsctl, or changed; see {release_file}"


def _run_dir(site: NodeInstallation) -> Iterator[str]:
    folder = site.path("HOPS_RUN_DIR")
    if folder is None:
        return
    if site.config is not None and folder.resolve() == site.config.daemon.socket.parent.resolve():
        yield f"HOPS_RUN_DIR={folder}: belongs to hopsd; choose one of root's, /run/hops-node"
    yield from _check_root_folder(site, folder)
    if not folder.parent.is_dir():
        yield f"HOPS_RUN_DIR={folder}: {folder.parent} is not there, and prolog.sh does not make it"


def _check_root_folder(site: NodeInstallation, folder: Path) -> Iterator[str]:
    if folder.is_symlink():
        yield f"{folder}: a link, which the scripts refuse; name the folder itself"
    elif folder.exists():
        yield from _check_owner(folder, site.owner, "prolog.sh writes there as root")


def _state_dir(site: NodeInstallation) -> Iterator[str]:
    folder = site.path("HOPS_STATE_DIR")
    if folder is None:
        return
    yield from _check_root_folder(site, folder)
    if not folder.parent.is_dir():
        yield f"HOPS_STATE_DIR={folder}: {folder.parent} is not there; choose one in memory"


def _reports(site: NodeInstallation) -> Iterator[str]:
    folder = site.path("HOPS_REPORT_DIR")
    if folder is None:
        yield "HOPS_REPORT_DIR: not set; jobs do not report, and speeds stay unknown"
        return
    if not folder.is_dir():
        yield f"HOPS_REPORT_DIR={folder}: not there; make a shared folder, mode 1733"
        return
    status = folder.stat()
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o1777 != 0o1733:
        yield (
            f"HOPS_REPORT_DIR={folder}: mode {mode:o}; chmod 1733: jobs may add files, not"
            " list or remove others'"
        )
    daemon = site.config.daemon.socket if site.config else None
    if daemon is not None and daemon.is_socket() and daemon.stat().st_uid not in (0, status.st_uid):
        yield (
            f"HOPS_REPORT_DIR={folder}: belongs to uid {status.st_uid}, so hopsd, uid"
            f" {daemon.stat().st_uid}, cannot list it; chown it to hopsd's account"
        )


def _profiler(site: NodeInstallation) -> Iterator[str]:
    folder = site.path("HOPS_PROFILER_PATH")
    if folder is None:
        return
    if not (folder / "sitecustomize.py").is_file():
        yield f"HOPS_PROFILER_PATH={folder}: no sitecustomize.py there, as in .../profiler/site"
        return
    package, release_package = folder.parent, Path(str(files("hops_profiler")))
    for path in (package, folder, folder / "sitecustomize.py"):
        yield from _check_owner(path, site.owner, "every user's Python runs it")
    for path in sorted(release_package.rglob("*.py")):
        copy = package / path.relative_to(release_package)
        if not copy.is_file() or copy.read_bytes() != path.read_bytes():
            yield f"{copy}: of another release than this hopsctl; copy {release_package} anew"
            return


def _agreement(site: NodeInstallation) -> Iterator[str]:
    if site.config is None:
        return
    reports, report_dir = site.path("HOPS_REPORT_DIR"), site.config.knowledge.report_dir
    if reports is not None and reports.resolve() != report_dir.resolve():
        yield f"HOPS_REPORT_DIR={reports}: hopsd reads {report_dir} (knowledge.report_dir)"
    range_values, requirements_max = (
        site.settings.get("HOPS_RANGE_VALUES"),
        site.config.plan.requirements_max,
    )
    if range_values is not None and range_values != str(requirements_max):
        yield (
            f"HOPS_RANGE_VALUES={range_values}: hopsd takes {requirements_max}"
            " (plan.requirements_max)"
        )


def _slurm_conf(site: NodeInstallation, conf: Mapping[str, str]) -> Iterator[str]:
    for key, script in PROLOGS.items():
        if key not in conf:
            yield f"slurm.conf: no {key}; hops needs {site.folder / script}, or one that calls it"
        elif "," not in conf[key] and not Path(conf[key]).exists():
            yield f"slurm.conf: {key}={conf[key]} is not there"
    exit_code, listed_codes = (
        site.settings.get("HOPS_REQUEUE_EXIT_CODE"),
        conf.get("RequeueExitHold", ""),
    )
    if exit_code is not None and not _in_ranges(exit_code, listed_codes):
        setting = (
            f"RequeueExitHold={listed_codes}"
            if listed_codes
            else "slurm.conf: it has no RequeueExitHold"
        )
        yield f"HOPS_REQUEUE_EXIT_CODE={exit_code}: not in {setting}"
    if "lua" not in conf.get("JobSubmitPlugins", "").split(","):
        yield "slurm.conf: JobSubmitPlugins without lua: comments are not checked, jobs not held"
    yield from _task_setup(conf)
    yield from submit_script_problems(conf)


def submit_script_problems(conf: Mapping[str, str]) -> Iterator[str]:
    """Yield problems of job_submit.lua next to slurm.conf: ours, or a site's that calls ours."""
    path = Path(conf.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "job_submit.lua"
    if not path.is_file():
        return
    text = path.read_text(errors="replace")
    if site_script.is_ours(text):
        yield from _check_release(path, release_plugin_folder() / "job_submit.lua")
    elif problem := site_script.call_problem(text, plugin_folder() / "job_submit.lua"):
        yield f"{path}: {problem}"


def _in_ranges(code: str, ranges: str) -> bool:
    """Whether an exit code is in a list of Slurm's, such as ``85,90-95``."""
    for item in filter(None, ranges.split(",")):
        low, _, high = item.partition("-")
        if low.isdigit() and int(low) <= int(code) <= int(high or low):
            return True
    return False


def _task_setup(conf: Mapping[str, str]) -> Iterator[str]:
    lines = list(_plugstack(Path(conf.get("PlugStackConfig", "/etc/slurm/plugstack.conf"))))
    plugin_lines = [line for line in lines if "hops_spank" in line]
    containers = [name for name in CONTAINERS if any(name in line for line in lines)]
    prolog = conf.get("TaskProlog")
    if containers and prolog:
        yield (
            f"slurm.conf: TaskProlog={prolog} with {', '.join(containers)}: every job in a"
            " container fails; use hops_spank.so in plugstack.conf instead"
        )
    if not plugin_lines and not prolog:
        yield "slurm.conf: no TaskProlog, nor hops_spank.so in plugstack.conf: jobs are not told"
    for line in plugin_lines:
        kind, *words = line.split()
        if kind != "optional":
            yield f"plugstack.conf: {line}: write optional, or a failure of it would end every job"
        if words and words[0].startswith("/") and not Path(words[0]).is_file():
            yield f"plugstack.conf: {words[0]} is not there; it is built from hops_spank.c"


def _plugstack(path: Path, depth: int = 0) -> Iterator[str]:
    """Yield the plugins' lines, including those of included files."""
    if not path.is_file() or depth > 8:
        return
    for line in path.read_text(errors="replace").splitlines():
        text = line.partition("#")[0].strip()
        if include := re.fullmatch(r"include\s+(\S+)", text):
            pattern = Path(path.parent, include[1])
            for included_file in sorted(pattern.parent.glob(pattern.name)):
                yield from _plugstack(included_file, depth + 1)
        elif text:
            yield text
