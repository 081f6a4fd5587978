"""What the launcher leaves out of a training's start is there as soon as anything asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hops_profiler.launch.rendezvous import free_port

if TYPE_CHECKING:
    from conftest import Node

pytestmark = pytest.mark.live

LAUNCHER = ("-m", "hops_profiler.launch")
PROGRAMS = Path(__file__).parents[1] / "programs"
TRAINING = """
        import copy, pickle, sys
        import torch
        from torch import nn
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast("cpu"):
                loss = model(torch.ones(2, 3)).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        torch.save(optimizer.state_dict(), "saved")
        other = torch.optim.AdamW(nn.Linear(3, 3).parameters())
        other.load_state_dict(torch.load("saved"))
        for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(other))):
            print([(group["lr"], len(group["params"])) for group in copied.param_groups])
        print("torch._dynamo.eval_frame" in sys.modules)
"""


def printed(folder: Path, *command: object) -> str:
    """By a Python command, a training's only rank or its launcher."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "HOPS", "PET_"))}
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, command)], cwd=folder, check=False, timeout=250,
        env=clean | rank | {"MASTER_PORT": str(free_port())}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "case",
    [
        "functions", "parallel", "names", "packages", "threads", "optimizers", "import_submodule",
        "from_submodule",
    ],
)  # fmt: skip
def test_what_is_compiled_is_what_python_compiles(tmp_path: Path, case: str) -> None:
    main = imports_compiling(tmp_path)
    plain, launched = (printed(tmp_path, *launcher, main, case) for launcher in ((), LAUNCHER))
    assert launched == plain != ""


def test_a_fork_waits_for_a_thread_that_imports_it(tmp_path: Path) -> None:
    """In plain Python the child may wait for ever."""
    assert printed(tmp_path, *LAUNCHER, imports_compiling(tmp_path), "fork") == "7\n[]\n"


def imports_compiling(folder: Path) -> Path:
    """A script that says nothing of the compiler itself."""
    script = folder / "main.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); import compiling")
    return script


def test_a_script_that_asks_whether_it_is_imported_hears_what_python_says(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch; print('torch._dynamo' in sys.modules, 'sympy' in sys.modules);"
        "torch.optim.SGD([torch.ones(1)]).zero_grad();"
        "print('torch._dynamo' in sys.modules, 'sympy' in sys.modules)"
    )
    plain, launched = (printed(tmp_path, *launcher, script) for launcher in ((), LAUNCHER))
    assert launched == plain == "False False\nTrue True\n"


OPTIMIZER = """
import torch, warnings
weight = torch.nn.Parameter(torch.ones(2))
warnings.simplefilter("ignore")
torch.optim.SGD([weight]).zero_grad()
"""
LATER = {
    "attribute PyTorch uses": """
        import torch.distributed
        from torch.nn.parallel.distributed import DistributedDataParallel, _MixedPrecision
        torch.distributed.init_process_group("gloo")
        precision = _MixedPrecision(param_dtype=torch.bfloat16)
        DistributedDataParallel(torch.nn.Linear(2, 2), mixed_precision=precision)
        print("made")
        """,
    "package": """
        import torch.distributed.tensor
        print(torch.distributed.tensor.parallel.ColwiseParallel)
        """,
    "module that comes with it": """
        import torch.distributed.fsdp.wrap as wrap
        from importlib import import_module, reload
        print(wrap.__spec__.loader.name, torch.distributed.fsdp.wrap is wrap is reload(wrap))
        print(import_module("torch.distributed.fsdp").FullyShardedDataParallel)
        """,
    "all of a package": """
        from torch.distributed import *
        print(fsdp.__name__, tensor.__name__)
        """,
    "standard library": """
        import ctypes
        print(ctypes.util.__name__, ctypes.wintypes.DWORD)
        """,
    "missing attribute": """
        try:
            getattr(torch.nn, "it's")
        except AttributeError as error:
            print(error)
        """,
    "warnings": """
        def same(): torch.optim.SGD([weight, weight])
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            same()
        print([(each.filename[-20:], each.lineno) for each in seen])
        """,
    "hook in front": """
        import sys
        from importlib.machinery import PathFinder
        class Hook:
            def find_spec(self, name, path=None, target=None):
                return PathFinder.find_spec(name, path) if name == "torch._dynamo" else None
        sys.meta_path.insert(0, Hook())
        graphs = []
        def backend(graph, _):
            graphs.append(len(graph.graph.nodes))
            return graph
        def step(x):
            optimizer.zero_grad()
            (weight * x).sum().backward()
            optimizer.step()
            return weight * x
        optimizer = torch.optim.SGD([weight], lr=0.1)
        step(torch.ones(2))
        import torch._dynamo
        print(torch.compile(step, backend=backend)(torch.ones(2)), graphs)
        """,
}


@pytest.mark.parametrize("case", LATER)
def test_what_comes_after_the_optimizer_is_what_python_sees(tmp_path: Path, case: str) -> None:
    (tmp_path / "imported.py").write_text(OPTIMIZER + textwrap.dedent(LATER[case]))
    script = tmp_path / "train.py"
    script.write_text("import imported")
    plain, launched = (printed(tmp_path, *launcher, script) for launcher in ((), LAUNCHER))
    assert launched == plain != ""


def test_before_the_optimizer_nothing_is_there_that_python_lacks(tmp_path: Path) -> None:
    text = "import torch; print(hasattr(torch.distributed, 'fsdp'))"
    assert run(tmp_path, text) == "False\n"


def test_a_module_that_is_run_imports_it_as_ever(tmp_path: Path) -> None:
    """What its file says is not looked at."""
    (tmp_path / "train.py").write_text(
        "import sys, torch; torch.optim.SGD([torch.ones(1)]).zero_grad();"
        "print('torch._dynamo' in sys.modules)"
    )
    assert printed(tmp_path, *LAUNCHER, "--module", "train") == "True\n"


def run(folder: Path, text: str) -> str:
    (folder / "imported.py").write_text(textwrap.dedent(text))
    script = folder / "train.py"
    script.write_text("import imported")
    return printed(folder, *LAUNCHER, script)


def test_a_training_that_compiles_nothing_does_without(node: Node) -> None:
    """Nor is it changed by it: what is copied, pickled and loaded is the same."""
    (node.folder / "imported.py").write_text(textwrap.dedent(TRAINING))
    script = node.folder / "train.py"
    script.write_text("import imported")
    done = node.run(*LAUNCHER, script)
    lines = done.out.splitlines()
    assert lines[0] == lines[1], done.err
    assert lines[2] == "False"


def test_one_that_cannot_be_imported_is_missed_only_by_who_compiles(tmp_path: Path) -> None:
    """And is as if it had never been asked for: the next who asks imports it."""
    done = run(
        tmp_path,
        """
        import sys
        import torch
        torch.optim.SGD([torch.ones(1)])
        class Broken:
            def find_spec(self, name, path=None, target=None):
                if name == "torch._dynamo.aot_compile":
                    raise ImportError("broken")
        sys.meta_path.insert(0, Broken())
        for _ in range(2):
            try:
                torch.compile(lambda x: x, backend="eager")
            except ImportError as error:
                print(error, "torch._dynamo" in sys.modules)
        """,
    )
    assert done == "broken False\n" * 2


def test_functions_that_import_it_in_another_way_are_left_alone(tmp_path: Path) -> None:
    """As other releases of PyTorch may. Up to 2.3 it asked at every call and kept nothing."""
    done = run(
        tmp_path,
        """
        import sys
        import torch
        from hops_profiler.launch import dynamo
        torch.optim.SGD([torch.ones(1)])
        def fetches():
            from torch._dynamo import config
            import torch._dynamo
            return torch._dynamo.config is config
        def renames():
            import torch._dynamo as dynamo
            return dynamo._dynamo
        def unrelated():
            return torch.ones(1)
        def disabled(function):
            def inner(*given):
                import torch._dynamo
                return torch._dynamo.disable(function, True)(*given)
            return inner
        def others():
            return torch._C._dynamo.eval_frame, torch._dynamo
        def asks():
            from torch import nn
            return torch._dynamo.config.verbose, torch._dynamo.utils.counters["frames"]
        for each in (fetches, renames, others, unrelated):
            print(dynamo._answered(each.__code__) is each.__code__)
        inner = disabled(lambda x: x + 1)
        for each in (inner, asks):
            each.__code__ = dynamo._answered(each.__code__)
        print(inner(1), inner(2), "torch._dynamo" in sys.modules)
        print(asks(), inner(3))
        print(torch.compile(lambda x: inner(x) * 2, backend="eager")(torch.ones(1)))
        """,
    )
    assert done.splitlines() == [
        "True", "True", "True", "True", "2 3 False", "(False, Counter()) 4", "tensor([4.])",
    ]  # fmt: skip


def test_several_ranks_share_one_import(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys; print('torch._dynamo' in sys.modules, flush=True)")
    assert printed(tmp_path, *LAUNCHER, "--nproc-per-node=2", script) == "True\n" * 2


@pytest.mark.parametrize("release", ["2.12.1", "2.13.0+cu130", "2.14.0"])
def test_only_releases_that_were_compared_do_without(tmp_path: Path, release: str) -> None:
    """Others may ask for it elsewhere; their optimizers import it as ever."""
    (tmp_path / "train.py").touch()
    program = f"""
import pathlib, sys, torch
from hops_profiler.launch import dynamo
torch.__version__ = {release!r}
dynamo.postpone(pathlib.Path("train.py"))
torch.optim.SGD([torch.ones(1, requires_grad=True)]).zero_grad()
print("torch._dynamo" in sys.modules)
"""
    assert printed(tmp_path, "-c", program) == f"{not release.startswith('2.13.')}\n"
