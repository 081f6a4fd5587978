#!/usr/bin/python3
"""Splits hops' requirements: what this Debian release has is depended on, pip installs the rest.

dependencies missing           requirements of setup.cfg that Debian's packages do not meet
dependencies constraints       the releases of requirements.lock, but for what Debian has
dependencies pinned REPORT     what pip says it would install for them, as requirements with hashes
dependencies packages FOLDER   the Debian packages that the distributions in FOLDER need
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DEBIAN = "/usr/lib/python3/dist-packages"
EXTRAS = ("highs",)


def found(folder: str) -> dict[str, Distribution]:
    return {canonicalize_name(d.metadata["Name"]): d for d in distributions(path=[folder])}


def missing() -> Iterator[str]:
    setup = ConfigParser()
    setup.read("setup.cfg")
    lines = setup["options"]["install_requires"].split("\n")
    for extra in EXTRAS:
        lines += setup["options.extras_require"][extra].split("\n")
    there = found(DEBIAN)
    for line in filter(None, map(str.strip, lines)):
        wanted = Requirement(line)
        ours = there.get(canonicalize_name(wanted.name))
        if ours is None or not wanted.specifier.contains(ours.version):
            yield line


def locked() -> dict[str, str]:
    """The lines of requirements.lock by project: a release with its hashes, or several."""
    text = Path("requirements.lock").read_text()
    lines: dict[str, str] = {}
    for part in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]:
        name = part.partition("==")[0]
        lines[name] = lines.get(name, "") + part
    return lines


def constraints() -> Iterator[str]:
    """What Debian has in a release that is good enough stays Debian's."""
    wanted = {canonicalize_name(Requirement(line).name) for line in missing()}
    there = found(DEBIAN).keys() - wanted
    for name, lines in locked().items():
        if name not in there:
            yield from (line.rstrip(" \\") for line in lines.splitlines() if "==" in line)


def pinned(report: str) -> Iterator[str]:
    """Lines of requirements.lock; a project that is missing there stops the build."""
    lines = locked()
    for item in json.loads(Path(report).read_text())["install"]:
        name = canonicalize_name(item["metadata"]["name"])
        if name not in lines:
            sys.exit(f"requirements.lock has no {name}: make lock")
        yield lines[name]


def packages(folder: str) -> set[str]:
    """Of Debian, beside those that they depend on themselves."""
    private, there = found(folder), found(DEBIAN)
    result = set()
    for ours in private.values():
        for line in ours.requires or ():
            wanted = Requirement(line)
            name = canonicalize_name(wanted.name)
            if name in private or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
                continue
            if name not in there:
                sys.exit(f"{ours.metadata['Name']} needs {line}, which is not installed")
            result.add(package_of(Path(str(there[name]._path))))
    return result


def package_of(path: Path) -> str:
    said = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=True)
    return said.stdout.partition(":")[0]


match sys.argv[1:]:
    case ["missing"]:
        print("\n".join(missing()))
    case ["constraints"]:
        print("\n".join(constraints()))
    case ["pinned", report]:
        print("".join(pinned(report)))
    case ["packages", folder]:
        print(", ".join(sorted(packages(folder))))
    case _:
        sys.exit(__doc__)
