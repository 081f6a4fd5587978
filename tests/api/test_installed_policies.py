"""Policies of installed packages: the entry points `hops.policies`."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hopsd.config import load
from hopsd.ctl import main
from hopsd.errors import ConfigError, InputError
from hopsd.policies.registry import POLICIES, get, names, packaged_policies, rivals

ROOT = Path(__file__).resolve().parents[2]
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package with one entry point, as pip does before hopsd starts."""
    packaged_policies.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path))

    def add_package(name: str, target: str, code: str) -> None:
        module = target.partition(":")[0]
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[hops.policies]\n{name} = {target}\n")

    yield add_package
    packaged_policies.cache_clear()


PLAN_CODE = "from hopsd.api import Plan\ndef plan(snapshot, settings):\n    return Plan({})\n"


def test_an_installed_policy_is_found_by_name(install: Install, tmp_path: Path) -> None:
    install("own", "own_one:plan", PLAN_CODE)
    assert names() == [*POLICIES, "own", *sorted(rivals())]
    assert callable(get("own"))
    path = tmp_path / "hopsd.toml"
    path.write_text('[plan]\npolicy = "own"\n')
    assert load(path).plan.policy == "own"
    path.write_text('[plan]\npolicy = "other"\n')
    with pytest.raises(ConfigError, match=r"plan.policy.*other.*installed package"):
        load(path)


def test_an_installed_policy_cannot_replace_ours_or_be_named_like_a_path(install: Install) -> None:
    install("fifo", "own_two:plan", "raise RuntimeError")
    install("hops", "own_four:plan", "raise RuntimeError")
    install("../x", "own_three:plan", PLAN_CODE)
    assert names() == [*POLICIES, *sorted(rivals())]
    assert callable(get("fifo"))
    assert callable(get("hops"))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nowhere", "policy 'own' cannot be loaded from own_bad:plan: ModuleNotFound"),
        ("1 / 0", "ZeroDivisionError"),
        ("", "AttributeError"),
        ("plan = 3", "own_bad:plan is not callable"),
    ],
)
def test_a_policy_that_fails_to_load_is_named(install: Install, code: str, message: str) -> None:
    sys.modules.pop("own_bad", None)
    install("own", "own_bad:plan", code)
    with pytest.raises(InputError, match=message):
        get("own")


def test_hopsctl_simulates_the_policy_of_the_example_package(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = ROOT / "examples" / "policy"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    code = (folder / "largest_first.py").read_text()
    assert len(code.splitlines()) <= 30
    ((name, target),) = project["entry-points"]["hops.policies"].items()
    install(name, target, code)
    monkeypatch.setattr(
        sys, "argv",
        ["hopsctl", "simulate", "--cluster", "paper-64", "--workload", "paper-64", "--jobs", "5",
         "--policy", name, "--out", str(tmp_path / "out"), "--json"],
    )  # fmt: skip
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 0
    assert list(json.loads(capsys.readouterr().out)["policies"]) == [name]
