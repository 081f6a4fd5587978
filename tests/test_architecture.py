"""Who may import whom: data flows one way, and each outside library has one room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ADAPTERS = ("psycopg", "pyslurm", "pulp", "highspy", "structlog", "click", "apscheduler")

INSIDE = {
    "model": {"model"},
    "core": {"core", "model", "errors"},
    "policies": {"policies", "core", "model", "solver", "errors"},
    "solver": {"solver", "core", "model", "errors"},
    "formats": {"formats", "core", "model", "errors"},
    "slurm": {"slurm", "core", "model", "errors", "config"},
    "store": {"store", "model", "errors"},
    "config": {"config", "core", "model", "policies", "errors"},
    "sim": {
        "sim",
        "core",
        "model",
        "policies",
        "formats",
        "observation",
        "round",
        "store",
        "errors",
    },
    "observation": {"core", "model", "slurm", "store", "errors"},
    "punctual": {"core", "model", "policies", "errors"},
    "reports": {"core", "model", "errors"},
    "fits": {"core", "model", "store"},
    "learner": {"core", "model", "store", "reports", "fits"},
    "learnt": {"core", "model", "errors"},
    "local_socket": {"errors", "__version__"},
}
"""What of ours a package or a module beside them may import."""

OUTSIDE = {
    "pyslurm": {"slurm"},
    "psycopg": {"store"},
    "psycopg_pool": {"store"},
    "yoyo": {"store"},
    "pulp": {"solver"},
    "highspy": {"solver"},
    "apscheduler": {"daemon"},
}
"""The only rooms of ours in which an outside library may be imported."""


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / "hopsd").rglob("*.py")):
        parts = path.relative_to(ROOT / "hopsd").with_suffix("").parts
        yield path, parts[0]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "hopsd":
                yield from (f"hopsd.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", sorted(INSIDE))
def test_a_package_imports_only_what_it_may(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, place in modules()
        if place == room
        for name in imports(path)
        if name.startswith("hopsd.") and name.split(".")[1] not in INSIDE[room]
    ]
    assert wrong == []


@pytest.mark.parametrize("library", sorted(OUTSIDE))
def test_an_outside_library_has_one_room(library: str) -> None:
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
        for node in ast.walk(ast.parse(path.read_text())):
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


def test_nothing_is_called_through_a_shell() -> None:
    wrong = []
    for path, _ in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                wrong.append(f"{path.relative_to(ROOT)}:{node.value.lineno}")
    assert wrong == []


def test_helpers_of_tests_have_names_of_their_own() -> None:
    """Folders of tests are no packages: two modules of one name would hide each other."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    programs = {path.name for path in (ROOT / "tests").rglob("programs/*.py")}
    assert sorted(set(names) - programs) == sorted(name for name in names if name not in programs)
