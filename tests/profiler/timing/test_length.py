"""The expected length of a training, read from its loops."""

from __future__ import annotations

import argparse
import ast
import itertools
import math
import multiprocessing
import os
import pickle
import runpy
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hops_profiler.timing.length import Length, LoaderPass
from hops_profiler.timing.loops import MAX_LINES, Loops, _count_passes, _Names

pytestmark = pytest.mark.live

LOADER = range(10)
"""Stands for a loader's ten batches."""

Step = Callable[[int], None]


class Batches:
    """A loader without a range; a `LoaderPass` says how far it has been read."""

    def __init__(self) -> None:
        self.batch_index = 0

    def __iter__(self) -> Iterator[int]:
        self.batch_index = 0
        for batch in LOADER:
            self.batch_index += 1
            yield batch


class Trainer:
    """Like that of transformers: recognized by its name and its state, which counts steps done."""

    __module__ = "transformers.trainer"

    def __init__(self) -> None:
        self.state = SimpleNamespace(max_steps=300, global_step=0)

    def train(self, step: Callable[[], None]) -> None:
        while self.state.global_step < 5:
            step()
            self.state.global_step += 1


def planned_lengths(
    tmp_path: Path,
    source: str,
    reads: list[float | None] | None = None,
    *,
    step_count: float = 1.0,
    interval: int = 1,
    **variables: Any,
) -> list[float | None]:
    """Return the lengths read at each ``interval``-th call of `step` in a script of this source."""
    script = tmp_path / "train.py"
    script.write_text(source)
    os.utime(script, (1.0, 1.0))
    loader = Batches()
    length = Length(begin=2.0)
    reads = [] if reads is None else reads

    steps = itertools.count(1)

    def step(*_: object) -> None:
        text = (
            LoaderPass(loader.batch_index, len(LOADER), step_count) if loader.batch_index else None
        )
        result = next(steps)
        if result % interval == 0:
            reads.append(length.iterations(result, text))

    runpy.run_path(str(script), {"step": step, "loader": loader, **variables})
    return reads


EPOCHS = {
    "counted from 0": "for epoch in range(3):",
    "counted from 1": "for epoch in range(1, 3 + 1):",
    "of the arguments": "for epoch in range(args.epochs):",
    "of a dictionary": 'for epoch in range(config["epochs"]):',
    "of an object within": "for epoch in range(0, args.train.epochs):",
    "with a bar": "for epoch in tqdm(range(args.epochs), desc='epochs'):",
    "kept as a range": "for epoch in epochs:",
    "kept with a bar": "for epoch in bar:",
    "numbered": "for number, epoch in enumerate(range(5, 8)):",
    "downwards": "for epoch in range(3, 0, -1):",
}


@pytest.mark.parametrize("loop", EPOCHS.values(), ids=EPOCHS)
@pytest.mark.parametrize("placement", ["script", "function"])
def test_length_is_epochs_times_batches_of_the_loader(
    tmp_path: Path, loop: str, placement: str
) -> None:
    args = argparse.Namespace(epochs=3, train=SimpleNamespace(epochs=3))
    source = f"{loop}\n    for number, batch in enumerate(loader):\n        step()\n"
    if placement == "function":
        source = f"def main():\n{indent(source, '    ')}\n\nif True:\n    main()\n"
    variables = {
        "args": args,
        "config": {"epochs": 3},
        "epochs": range(3),
        "bar": SimpleNamespace(iterable=range(3), __iter__=None),
        "tqdm": lambda iterable, **_: iterable,
    }
    if "in bar" in loop:
        source = source.replace("in bar", "in bar.iterable")
    assert planned_lengths(tmp_path, source, **variables) == [30.0] * 30


def test_an_epoch_may_be_a_separate_function(tmp_path: Path) -> None:
    source = """
def train(batches):
    for batch in batches:
        if batch < 100:
            step(
                batch,
            )

for epoch in range(4):
    train(loader)
    print(end="")
"""
    assert planned_lengths(tmp_path, source) == [40.0] * 40


def test_a_resumed_training_has_fewer_remaining_iterations(tmp_path: Path) -> None:
    source = "for epoch in range(start, 5):\n    for batch in loader:\n        step()\n"
    assert planned_lengths(tmp_path, source, start=3) == [20.0] * 20


def test_an_iteration_with_accumulation_takes_several_batches(tmp_path: Path) -> None:
    source = """
for epoch in range(3):
    for number, batch in enumerate(loader, 1):
        if number % 5 == 0:
            step()
"""
    assert planned_lengths(tmp_path, source, step_count=5.0) == [6.0] * 6


def test_a_loop_may_step_without_a_loader(tmp_path: Path) -> None:
    source = "for update in range(4):\n    for minibatch in range(0, 64, 8):\n        step()\n"
    assert planned_lengths(tmp_path, source) == [None, *[32.0] * 31]


def test_passes_that_only_fill_a_buffer_are_not_iterations(tmp_path: Path) -> None:
    """Successive readings show how many passes an iteration takes."""
    source = (
        "for number in range(400):\n    if number >= 30 and number % 10 == 0:\n        step()\n"
    )
    results = planned_lengths(tmp_path, source)
    assert results[:2] == [None, None]
    assert results[2:] == pytest.approx([37.0] * 35, abs=1.0)


def test_a_steadily_growing_counter_limits_the_training(tmp_path: Path) -> None:
    source = """
done = 0
while True:
    done += 1
    step()
    if done >= limit:
        break
"""
    results = planned_lengths(tmp_path, source, limit=50)
    assert results[:2] == [None, None]
    assert results[2:] == pytest.approx([50.0] * 48)


def test_a_while_loop_may_count_samples(tmp_path: Path) -> None:
    source = "seen = 0\nwhile seen < 6400:\n    step()\n    seen += 64\n"
    assert planned_lengths(tmp_path, source)[3:] == pytest.approx([101.0] * 97)


def test_patience_is_not_a_length(tmp_path: Path) -> None:
    source = """
bad = 0
for epoch in range(6):
    for batch in loader:
        step()
    if epoch > 2:
        bad += 1
    if bad >= 5:
        break
"""
    assert planned_lengths(tmp_path, source) == [60.0] * 60


@pytest.mark.parametrize(
    "source",
    [
        "while running():\n    for batch in loader:\n        step()\n",
        "for fold in folds():\n    for batch in loader:\n        step()\n",
        "for epoch in range(secret()):\n    for batch in loader:\n        step()\n",
        "for epoch in range(3):\n    epoch = None\n    for batch in loader:\n        step()\n",
        "step()\n",
        "exec('for epoch in range(3):\\n    step()')\n",
    ],
)
def test_an_unreadable_length_is_not_guessed(tmp_path: Path, source: str) -> None:
    turns = iter([True, False])
    results = planned_lengths(
        tmp_path, source, running=lambda: next(turns), folds=lambda: [1], secret=lambda: 3
    )
    assert results
    assert set(results) == {None}


@pytest.mark.parametrize(
    "source",
    [
        "n = 0\nwhile n < most:\n    step()\n    n += 1\n    if n == 6:\n        break\n",
        "for epoch in range(10**18):\n    for batch in loader:\n        step()\n    break\n",
        "for epoch in range(int(1e18)):\n    step()\n    break\n",
    ],
)
def test_an_endless_loop_has_no_length(tmp_path: Path, source: str) -> None:
    """hopsd would reject a report with an infinite length."""
    assert set(planned_lengths(tmp_path, source, most=math.inf)) == {None}


def test_a_script_changed_after_its_start_is_not_read(tmp_path: Path) -> None:
    source = """
import os
os.utime(__file__)
for epoch in range(3):
    step()
"""
    assert planned_lengths(tmp_path, source) == [None] * 3


@pytest.mark.parametrize(
    "epoch",
    [
        "class A:\n    def b(self):\n# or\n        for _ in loader: step()\nepoch = A().b\n",
        "def epoch():\n match 1:\n  case 1:\n   for batch in loader:\n    step()\n",
    ],
    ids=["comments left of the function", "within a case"],
)
def test_every_enclosing_loop_counts(tmp_path: Path, epoch: str) -> None:
    source = f"{epoch}\nfor number in range(3):\n    epoch()\n"
    assert planned_lengths(tmp_path, source) == [30.0] * 30


@pytest.mark.parametrize(
    "epoch",
    [
        "[step() for batch in loader]",
        "list(map(step, loader))",
    ],
)
def test_a_pass_without_a_visible_loop_takes_as_many_iterations_as_the_previous_one(
    tmp_path: Path, epoch: str
) -> None:
    source = f"""
def main():
    for number in range(40):
        {epoch}

main()
"""
    results = planned_lengths(tmp_path, source, interval=30)
    assert results[:2] == [None, None]
    assert results[2:] == pytest.approx([400.0] * 11, abs=10.0)


@pytest.mark.parametrize(
    ("body", "expected_lengths"),
    [("for batch in loader: step()", [None] * 30), ("step()", [None, 3.0, 3.0])],
)
def test_a_function_without_source_may_have_a_loop(
    tmp_path: Path, body: str, expected_lengths: list[float | None]
) -> None:
    source = f"exec('def epoch(): \\n    {body}')\nfor number in range(3):\n    epoch()\n"
    assert planned_lengths(tmp_path, source) == expected_lengths


def test_a_script_from_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "script"
    os.mkfifo(pipe)
    code = compile("for epoch in range(3):\n    step()\n", str(pipe), "exec")
    length = Length(begin=time.time() + 60.0)
    results: list[float | None] = []
    exec(code, {"step": lambda: results.append(length.iterations(1, None))})  # noqa: S102
    assert results == [None] * 3


def test_a_loop_that_starts_ranks_does_not_count_for_the_ranks(tmp_path: Path) -> None:
    """A forked rank has the frames of its parent, which starts the ranks in a loop."""
    source = """
def rank():
    for epoch in range(3):
        for batch in loader:
            step()
    told.put("done" if lengths() == {30.0} else str(lengths()))

for number in range(4):
    process = fork.Process(target=rank)
    process.start()
    process.join()
    ends.append(told.get())
"""
    fork = multiprocessing.get_context("fork")
    ends: list[str] = []
    results: list[float | None] = []
    planned_lengths(
        tmp_path,
        source,
        results,
        fork=fork,
        told=fork.SimpleQueue(),
        ends=ends,
        lengths=lambda: set(results),
    )
    assert ends == ["done"] * 4


def test_analysis_of_a_long_script_is_bounded(tmp_path: Path) -> None:
    source = "\n" * MAX_LINES + "for epoch in range(3):\n    step()\n"
    assert planned_lengths(tmp_path, source) == [None] * 3


def test_a_trainer_knows_its_length(tmp_path: Path) -> None:
    source = "trainer.train(step)\n"
    assert planned_lengths(tmp_path, source, trainer=Trainer()) == [300.0] * 5


def test_a_loop_around_a_trainer_counts(tmp_path: Path) -> None:
    """Three folds of 300 iterations each, five of which are done."""
    source = """
from copy import deepcopy
for fold in range(3):
    deepcopy(trainer).train(step)
"""
    results = planned_lengths(tmp_path, source, trainer=Trainer())
    assert results[:5] == [900.0] * 5
    assert results[-1] == 10 + 300


def test_a_trainer_in_a_loop_of_unknown_length_has_no_length(tmp_path: Path) -> None:
    source = "for rate in rates():\n    trainer.train(step)\n"
    assert planned_lengths(tmp_path, source, trainer=Trainer(), rates=lambda: [0.1]) == [None] * 5


class AttributeObject:
    """Has attributes of several kinds; ``asked`` lists the computed ones."""

    __slots__ = ("__dict__", "asked", "slot")
    of_class = 3

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.slot = 3
        self.__dict__["own"] = 3

    @property
    def computed(self) -> int:
        self.asked.append("computed")
        return 3

    def __getattr__(self, name: str) -> int:
        self.asked.append(name)
        return 3

    def __getitem__(self, name: str) -> int:
        self.asked.append(name)
        return 3


class Settings(dict[str, int]):
    """A dictionary whose items are also its attributes."""

    def __getattr__(self, name: str) -> int:
        raise AssertionError(name)


class ComputedDict(dict[str, int]):
    def __getitem__(self, name: str) -> int:
        raise AssertionError(name)


class ResolvedConfig:
    """Like dictionaries of OmegaConf and `ml_collections`, which look up attributes inside."""

    def __init__(self, place: str, item: object) -> None:
        self.__dict__[place] = {"epochs": item}

    def __getattr__(self, name: str) -> int:
        raise AssertionError(name)


@pytest.mark.parametrize(
    ("read", "expected_length"),
    [
        ("stored.own", 3.0),
        ("stored.slot", 3.0),
        ("stored.of_class", 3.0),
        ("stored.computed", None),
        ("stored.missing", None),
        ("stored['missing']", None),
        ("settings.epochs", 3.0),
        ("settings['epochs']", 3.0),
        ("computed['epochs']", None),
        ("numbers[1]", 3.0),
        ("omega.epochs", 3.0),
        ("collected.epochs", 3.0),
    ],
)
def test_no_property_of_the_program_is_evaluated(
    tmp_path: Path, read: str, expected_length: float | None
) -> None:
    """The loop itself iterates over another range, so it evaluates none either."""
    stored_object = AttributeObject()
    loop = ast.parse(f"for epoch in range({read}): pass").body[0]
    assert isinstance(loop, ast.For)
    variables = {
        "epoch": 1,
        "stored": stored_object,
        "settings": Settings(epochs=3),
        "computed": ComputedDict(epochs=3),
        "numbers": [1, 3],
        "omega": ResolvedConfig("_content", SimpleNamespace(_val=3)),
        "collected": ResolvedConfig("_fields", 3),
    }
    passes = _count_passes(loop.iter, loop.target, _Names(variables, {}))
    assert passes == (None if expected_length is None else (3, 1))
    assert stored_object.asked == []


def test_a_loop_variable_used_for_something_else_is_not_searched_in_the_range() -> None:
    """As in `for _ in range(10**9): _, loss = model(batch)`: with a tensor it would take hours."""
    loop = ast.parse("for _ in range(10**9): pass").body[0]
    assert isinstance(loop, ast.For)
    for value in (torch.ones(2), torch.ones(()), 0.5):
        assert _count_passes(loop.iter, loop.target, _Names({"_": value}, {})) is None


def test_only_loops_of_parsed_functions_are_kept(tmp_path: Path) -> None:
    """The statements around them would take megabytes."""
    source = "x = 1\n" * 500 + "for epoch in range(3):\n    step()\n" + "    x = 2\n" * 500
    script = tmp_path / "train.py"
    script.write_text(source)
    loops = Loops(begin=time.time() + 60.0)
    results = loops._parse(compile(source, str(script), "exec"))
    assert results is not None
    assert len(results) == 1
    assert len(pickle.dumps(results)) < 2000


def test_local_variables_of_functions_are_not_kept(tmp_path: Path) -> None:
    """Before Python 3.13, the frame would keep a copy and thereby the tensors of the step."""
    source = """
import weakref

class Tensor:
    pass

def main():
    for epoch in range(2):
        loss = Tensor()
        watched.append(weakref.ref(loss))
        step()
        del loss
        alive.append(watched[-1]())

main()
"""
    alive: list[object] = []
    assert planned_lengths(tmp_path, source, watched=[], alive=alive) == [None, 2.0]
    assert alive == [None, None]


def test_variables_of_a_running_function_are_unchanged(tmp_path: Path) -> None:
    source = """
def main(rate=0.1):
    options = locals()
    for epoch in range(2):
        step()
    kept.update(options)

main()
"""
    namespace: dict[str, object] = {}
    assert planned_lengths(tmp_path, source, kept=namespace) == [None, None]
    assert namespace == {"rate": 0.1}


def test_variables_kept_by_another_function_are_not_cleared(tmp_path: Path) -> None:
    source = """
import inspect

def noted():
    return inspect.getargvalues(inspect.currentframe().f_back).locals

def main(rate=0.1):
    options = noted()
    for epoch in range(2):
        step()
    kept.update(options)

main()
"""
    namespace: dict[str, object] = {}
    planned_lengths(tmp_path, source, kept=namespace)
    assert namespace["rate"] == 0.1


class PreemptedError(Exception):
    """Raised by a signal handler."""


@pytest.mark.parametrize("target", [(ast, "parse"), (_Names, "range"), (_Names, "number")])
def test_an_exception_raised_by_a_handler_during_a_reading_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: tuple[object, str]
) -> None:
    """Regression: the program ignored the request to stop."""

    def handler(_: int, __: object) -> None:
        raise PreemptedError

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(*target, interrupt)
    handler_before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(PreemptedError):
            planned_lengths(
                tmp_path, "at = 0\nfor epoch in range(3):\n    while at < 9:\n        step()\n"
            )
    finally:
        signal.signal(signal.SIGUSR1, handler_before)


def test_an_elastic_loader_knows_its_length(tmp_path: Path) -> None:
    """Steps that earlier runs took on other numbers of ranks do not matter."""
    elastic = pytest.importorskip("hops_profiler.data.elastic")
    loader = elastic.ElasticLoader(range(10), global_batch=4, epochs=3, rank=0, world_size=1)
    loader.load_state_dict({**loader.state_dict(), "offset": 2, "step": 2})
    source = "for each in elastic.steps():\n    step()\nstep()\n"
    assert planned_lengths(tmp_path, source, elastic=loader) == [7.0] * 7 + [None]
