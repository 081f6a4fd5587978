"""docs/admin.md's installation by pip, command by command, over this machine's files: what it
writes goes to a folder that is removed, and only the commands see it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fixtures_cluster import running_cluster
from page import commands

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "Without Debian's packages"
INSIDE = """
root=$1 cluster=$2
shift 2
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/all"
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" overlay "$root/all"
for folder in /dev /proc /sys "$cluster"; do mount --rbind "$folder" "$root/all$folder"; done
chroot "$root/all" "$@"
"""
pytestmark = [
    pytest.mark.live,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="installs as root"),
    pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="needs systemd's programs"),
]

# What an administrator would check afterwards.
CHECKS = """
file=/opt/hops/share/hops/conf/hopsd.toml
hopsctl --version
setpriv --reuid=65534 --regid=65534 --clear-groups hopsctl config check --account none $file
SLURM_CONF=/none hopsctl config check --node $file
systemd-analyze verify /etc/systemd/system/hopsd.service
id hops
stat -c %a:%U /var/spool/hops/reports
cd / && hops-run --help
hops-lane --help
/opt/hops/bin/python -m hopsd.ctl.shell.manual /root/pages
hopsctl completion bash
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This tree, as a site would have it."""
    folder = tmp_path / "hops"
    subprocess.run(["make", "-s", "-C", ROOT, "deb-source", f"FOLDER={folder}"], check=True)
    return folder


@pytest.fixture
def inside(clone: Path, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs a script as root over this machine's files, in the clone."""
    root = tmp_path / "root"
    root.mkdir()
    path = f"{sys.base_prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with running_cluster(plugin=False) as cluster:

        def run(script: str) -> str:
            result = subprocess.run(
                [
                    *(
                        "unshare",
                        "--mount",
                        "bash",
                        "-ec",
                        INSIDE,
                        "inside",
                        root,
                        cluster.directory,
                    ),
                    *("env", f"--chdir={clone}", f"PATH={path}", f"SLURM_CONF={cluster.conf}"),
                    *("bash", "-exc", script),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
            return result.stdout

        yield run


def test_the_page_installs_hops_without_packages(inside: Callable[[str], str]) -> None:
    page = [command.text for command in commands(CHAPTER) if command.root]
    position = page.index("hopsctl setup")
    page[position] += " --dry-run --keep database"  # this test must not change the cluster
    text = inside("\n".join(page) + CHECKS)
    assert "/opt/hops/share/hops/slurm_plugin/job_submit.lua" in text
    assert "/opt/hops/share/hops/conf/hopsd.toml: good, 0 settings given" in text
    assert "/etc/hops: good as far as can be said without Slurm" in text
    assert "\n1733:hops\n" in text
