"""Which rooms may import which: data flows one way, and each outside library has one room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ADAPTERS = ("psycopg", "pyslurm", "pulp", "highspy", "structlog", "click", "apscheduler")

OPEN = ("errors", "breaker", "__version__")
"""What everybody may import."""


def _rooms(package: str) -> dict[str, set[str] | None]:
    """A table of docs/architecture.md: a room, and which rooms it may import (None: all)."""
    rooms: dict[str, set[str] | None] = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = cells[0].strip("`")
        if len(cells) != 3 or name.split("/")[0] != package:
            continue
        room = name.removeprefix(f"{package}/").removesuffix(".py")
        allowed_rooms = set() if cells[2] == "nothing of ours" else set(cells[2].split(", "))
        rooms[room] = None if cells[2] == "all" else allowed_rooms
    return rooms


ROOMS = _rooms("hopsd")
PROFILER_ROOMS = _rooms("profiler")

OUTSIDE = {
    "pyslurm": {"slurm"},
    "psycopg": {"store"},
    "psycopg_pool": {"store"},
    "yoyo": {"store"},
    "pulp": {"solver"},
    "highspy": {"solver"},
    "apscheduler": {"service"},
    "prometheus_client": {"metrics"},
    "flask": {"web", "rest"},
}
"""The only rooms of ours that may import an outside library."""


def modules() -> Iterator[tuple[Path, str]]:
    """Yield every module with the folder that it lies in, or the file beside the folders."""
    for path, name in named_modules():
        yield path, name.split("/")[0]


@cache
def named_modules() -> tuple[tuple[Path, str], ...]:
    """Every module with its name, like ``core/queue/history``; a package has its folder's name."""
    paths = sorted((ROOT / "hopsd").rglob("*.py"))
    names = [path.relative_to(ROOT / "hopsd").with_suffix("").as_posix() for path in paths]
    return tuple((p, n.removesuffix("/__init__")) for p, n in zip(paths, names, strict=True))


NAMES = {name for _, name in named_modules()}


def room_of(name: str) -> str | None:
    """The innermost room of the table that contains a module."""
    parts = name.split("/")
    enclosing_folders = ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return next((room for room in enclosing_folders if room in ROOMS), None)


def _path(name: str) -> str:
    return name.removeprefix("hopsd.").replace(".", "/")


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module's syntax tree."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """What a module imports: modules and, from our own, the names imported from them."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            module_names = [f"{node.module}.{alias.name}" for alias in node.names]
            ours = [name for name in module_names if _path(name) in NAMES]
            yield from ours if len(ours) == len(module_names) else [node.module, *ours]
            if node.module in ("hopsd", "hops_profiler"):
                yield from module_names


def _is_within(name: str, rooms: Iterable[str]) -> bool:
    return any(name == room or name.startswith(f"{room}/") for room in rooms)


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_what_it_may(room: str) -> None:
    allowed_rooms = ROOMS[room]
    if allowed_rooms is None:
        return
    wrong = [
        f"{path.relative_to(ROOT)} imports {target}"
        for path, name in named_modules()
        if room_of(name) == room
        for target in (
            n.removeprefix("hopsd.").replace(".", "/")
            for n in imports(path)
            if n.startswith("hopsd.")
        )
        if room_of(target) != room and not _is_within(target, (*allowed_rooms, *OPEN))
    ]
    assert wrong == []


@pytest.mark.parametrize("room", sorted(PROFILER_ROOMS))
def test_a_room_of_the_profiler_imports_only_what_it_may(room: str) -> None:
    top = room == "profiler"
    allowed_rooms = {room, *(PROFILER_ROOMS[room] or ())}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / "profiler" / ("" if top else room)).glob("*.py")
        for name in imports(path)
        for package, _, below in [name.partition(".")]
        for target in [below.split(".")[0]]
        if package == "hops_profiler" and below and target not in allowed_rooms
        if not top or target in PROFILER_ROOMS
    ]
    assert wrong == []


def test_the_profiler_has_the_rooms_of_its_table() -> None:
    folders = {path.parent.name for path in (ROOT / "profiler").rglob("*.py")}
    assert folders == set(PROFILER_ROOMS)


def test_every_module_has_a_room_and_every_room_a_module() -> None:
    inner = {name for _, name in named_modules() if "/" in name or name in ROOMS}
    assert {name for name in inner if room_of(name) is None} == set()
    assert {room for room in ROOMS if not any(room_of(n) == room for n in NAMES)} == set()


def test_no_folder_has_too_many_files() -> None:
    """A newcomer can survey a folder of up to 20 files; a larger one should be divided."""
    folders = {path.parent for path, _ in named_modules()}
    file_counts = {str(f.relative_to(ROOT)): len(list(f.glob("*.py"))) for f in folders}
    assert {folder: files for folder, files in file_counts.items() if files > 20} == {}


@pytest.mark.parametrize("library", sorted(OUTSIDE))
def test_each_outside_library_is_used_in_one_room(library: str) -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path, place in modules()
        if place not in OUTSIDE[library]
        and any(name.split(".")[0] == library for name in imports(path))
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ["core", "model"])
def test_the_core_is_pure(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, place in modules()
        if place == room
        for name in imports(path)
        if name.split(".")[0] in (*ADAPTERS, "time", "subprocess", "socket", "os", "random")
    ]
    assert wrong == []


def test_only_the_slurm_package_runs_slurms_commands() -> None:
    commands = ("scontrol", "squeue", "sinfo", "scancel", "sbatch")
    wrong = []
    for path, place in modules():
        if place == "slurm":
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.List) and node.elts:
                head = node.elts[0]
                if isinstance(head, ast.Constant) and head.value in commands:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_the_profiler_imports_nothing_of_the_daemon() -> None:
    wrong = [
        str(path)
        for path in (ROOT / "profiler").rglob("*.py")
        if any(name.split(".")[0] == "hopsd" for name in imports(path))
    ]
    assert wrong == []


def test_rivals_import_what_policies_may_and_nobody_imports_rivals() -> None:
    allowed_rooms = ("policies", *(ROOMS["policies"] or ()), *OPEN)
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / "rivals").rglob("*.py")
        for name in imports(path)
        if name.startswith("hopsd.") and not _is_within(_path(name), allowed_rooms)
    ]
    wrong += [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, _ in named_modules()
        for name in imports(path)
        if name.split(".")[0] == "hops_rivals"
    ]
    assert wrong == []


def test_nothing_is_called_through_a_shell() -> None:
    wrong = []
    for path, _ in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                wrong.append(f"{path.relative_to(ROOT)}:{node.value.lineno}")
    assert wrong == []


@pytest.mark.slow
def test_python_is_never_started_from_the_current_folder() -> None:
    """root runs hopsctl from any folder: -P keeps out a user's json.py or hopsd/ there."""
    wrong = []
    for path, _ in modules():
        for node in nodes_of(path):
            words = node.elts if isinstance(node, ast.List) else getattr(node, "args", None)
            texts = [ast.unparse(word) for word in words] if isinstance(words, list) else []
            if "sys.executable" in texts and not {"'-P'", "'-I'"} & set(texts):
                wrong.append(f"{path.relative_to(ROOT)}: {texts}")
    assert wrong == []


def test_helper_modules_of_tests_have_unique_names() -> None:
    """Folders of tests are not packages, so two modules of one name would hide each other."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    programs = {path.name for path in (ROOT / "tests").rglob("programs/*.py")}
    assert sorted(set(names) - programs) == sorted(name for name in names if name not in programs)


WITHOUT_ROOM = {
    ".": "the repository as a whole",
    "bench": "bench/",
    "daemon": "hopsd as a process, live",
    "demo": "examples/demo",
    "examples": "examples/",
    "install": "docs/admin.md, followed on a fresh system",
    "packages": "debian/",
    "plugin": "slurm_plugin/",
    "releases": "later releases of Slurm",
    "rivals": "rivals/",
    "rivals/gavel": "rivals/gavel",
    "scripts": "the scripts of docs/users.md and what they stand for, live",
    "site": "hopsd on a site with slurmdbd, live",
}
"""Folders of tests that do not have the name of a room, and what they test."""


def _folders_of(root: Path, pattern: str) -> set[str]:
    return {path.parent.relative_to(root).as_posix() for path in root.rglob(pattern)}


def test_tests_mirror_the_rooms() -> None:
    """A room's tests lie in the folder of its name, those of profiler/ below tests/profiler.

    hopsd/api.py, which lies in hopsd/ itself, also has a folder of tests.
    """
    rooms = {folder for folder in _folders_of(ROOT / "hopsd", "[!_]*.py") if folder != "."}
    rooms |= {f"profiler/{f}".removesuffix("/.") for f in _folders_of(ROOT / "profiler", "*.py")}
    tested_folders = _folders_of(ROOT / "tests", "test_*.py") - WITHOUT_ROOM.keys()
    assert rooms - tested_folders == set(), "rooms without a folder of tests"
    assert (
        tested_folders - rooms - {path.stem for path in (ROOT / "hopsd").glob("*.py")} == set()
    ), "folders of tests without a room"


def test_no_test_imports_another() -> None:
    """What several tests need must be in a module of its own."""
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in imports(path)
        if name in tests or name.split(".")[0] == "tests"
    ]
    assert wrong == []


def test_every_test_named_on_a_page_exists() -> None:
    """A name without a folder is in the folder of the previous name on the same line."""
    missing = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        for line in page.read_text().splitlines():
            folder = "tests"
            for name in re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py)`", line):
                path = Path(name) if "/" in name else Path(folder, name)
                folder = str(path.parent)
                if not (ROOT / path).exists():
                    missing.append(f"{page.name}: {path}")
    assert missing == []
