"""The loops around the training step, as their source and their variables tell it.

Nothing of the program is called but the `len` of what it loops over: names and attributes are read
where they are stored, without running a property. What cannot be read so is not guessed.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import os
import stat
import sys
import types
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import torch
from hops_profiler.timing.handlers import SuppressErrors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType, FrameType
    from typing import Any

MOST_FRAMES = 100
MOST_LINES = 3000
"""Longest function, or script without one, that is parsed."""

MOST_BYTES = 2**24
"""Largest source file that is read."""

_WRAPPERS = frozenset(("tqdm", "track", "iter"))
"""Functions that pass on what they loop over."""

_NOT_THE_PROGRAM = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,  # noqa: PTH120 - imported by each job
    os.path.dirname(torch.__file__) + os.sep,  # noqa: PTH120
)

_PROCESS = BaseProcess._bootstrap.__code__  # type: ignore[attr-defined]
"""What a process of `multiprocessing` does, around the program's function."""

_WITHIN = 1
"""Lines that a function's source is preceded by when it is parsed."""

_SNAPSHOT = frozenset(
    ("locals", "vars", "dir", "eval", "exec", "currentframe", "_getframe", "f_locals")
)
"""What a function calls that may keep the dictionary of its variables."""


_OWN_REFERENCES = 4
"""To a frame's dictionary in :func:`variables`: the frame's, its own, its caller's and that of the
call that counts them."""


class Limit:
    """A number, ``value``, that ends a loop once it reaches ``end``; ``where``: any key for it."""

    def __init__(self, where: Any, value: float, end: float) -> None:
        self.where = where
        self.value = value
        self.end = end


class Loop:
    """A loop that the program is in.

    ``passes``: of a loop over a range, None of any other; ``left``: those after the present one.
    ``endless``: a `while`. ``limits``: what else ends it.
    """

    def __init__(
        self, passes: int | None, left: int, limits: list[Limit], *, endless: bool = False
    ) -> None:
        self.passes = passes
        self.left = left
        self.limits = limits
        self.endless = endless


def frames() -> Iterator[FrameType]:
    """The program's frames, from the step outwards to its script, without PyTorch's own.

    A forked process has its parent's, too, from which it does not go on.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None or frame.f_code is _PROCESS:
            return
        if not frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM):
            yield frame
            if frame.f_code.co_name == "<module>":
                return
        frame = frame.f_back


@contextmanager
def variables(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """A frame's variables, to be read at once. Empty if they cannot be read without effects.

    Before Python 3.13 a function's variables are copied into a dictionary that the frame keeps. It
    is emptied again: it would hold the step's tensors. If the function itself may keep it, it is
    not touched; if another keeps it, as one may that looks at its caller's variables, it is not
    emptied.
    """
    code = frame.f_code
    if code.co_name == "<module>":
        yield frame.f_globals
    elif not code.co_flags & inspect.CO_OPTIMIZED or sys.gettrace() is not None:
        yield {}
    elif sys.version_info >= (3, 13):
        yield frame.f_locals
    elif _SNAPSHOT.intersection(code.co_names):
        yield {}
    else:
        found = frame.f_locals
        try:
            yield found
        finally:
            if sys.getrefcount(found) <= _OWN_REFERENCES:
                found.clear()


class _Written:
    """A loop as it is written: the lines of its body, what it goes over and into which variable, if
    it is no `while`, and the comparisons that end it.
    """

    def __init__(self, loop: ast.For | ast.While) -> None:
        body = loop.body
        self.first = body[0].lineno
        self.last = body[-1].end_lineno or 0
        self.over = (loop.iter, loop.target) if isinstance(loop, ast.For) else None
        sides = [_ascending(loop.test, lasts=True)] if isinstance(loop, ast.While) else []
        sides += [
            _ascending(each.test, lasts=False)
            for each in body
            if isinstance(each, ast.If) and isinstance(each.body[-1], (ast.Break, ast.Return))
        ]
        self.limits = [side for side in sides if side is not None]


class Loops:
    """Finds the loops that a frame is in. Parses each function once, and keeps only its loops.

    ``began``: the program's start, in seconds since the epoch.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._parsed: dict[CodeType, list[_Written] | None] = {}

    def around(self, frame: FrameType, local: Mapping[str, Any]) -> list[Loop] | None:
        """From the innermost loop outwards. ``local``: the frame's :func:`variables`.

        None if the frame may be in a loop, but its source cannot be read.
        """
        code = frame.f_code
        if code not in self._parsed:
            self._parsed[code] = self._parse(code)
        written = self._parsed[code]
        if written is None:
            return None if _has_loop(code) else []
        first = 1 if code.co_name == "<module>" else code.co_firstlineno - _WITHIN
        names = _Names(local, frame.f_globals)
        line = frame.f_lineno - first + 1
        found = []
        for loop in written:
            if not loop.first <= line <= loop.last:
                continue
            limits = list(_limits(loop, names, code))
            if loop.over is None:
                found.append(Loop(None, 0, limits, endless=True))
            else:
                passes, left = _counted(*loop.over, names) or (None, 0)
                found.append(Loop(passes, left, limits))
        return found

    def _parse(self, code: CodeType) -> list[_Written] | None:
        """The loops, inner ones first. None if there is no source, or it was changed since the
        program began.
        """
        with SuppressErrors():  # tokenize and ast raise many
            file = os.stat(code.co_filename)  # noqa: PTH116
            if file.st_mtime > self._began:
                return None
            if not stat.S_ISREG(file.st_mode) or file.st_size > MOST_BYTES:
                return None
            lines = linecache.getlines(code.co_filename)
            if code.co_name != "<module>":
                lines = inspect.getblock(lines[code.co_firstlineno - 1 :][:MOST_LINES])
            if not 0 < len(lines) < MOST_LINES:
                return None
            if code.co_name != "<module>":
                # Comments and texts may begin left of the function's first line.
                header = "if True:\n" if lines[0][:1].isspace() else "\n"
                lines = [header, *lines]
            tree = ast.parse("".join(lines))
            loops = [_Written(n) for n in ast.walk(tree) if isinstance(n, (ast.For, ast.While))]
            return sorted(loops, key=lambda loop: (-loop.first, loop.last))
        return None


def _has_loop(code: CodeType) -> bool:
    return any(
        "FOR_ITER" in each.opname
        or (
            "JUMP" in each.opname
            and "NO_INTERRUPT" not in each.opname  # an await
            and isinstance(each.argval, int)
            and each.argval <= each.offset
        )
        for each in dis.get_instructions(code)
    )


class _Names:
    """Evaluates simple expressions by a frame's variables.

    Raises:
        LookupError: the expression is not a simple one.
        Exception: whatever the program's own objects raise.
    """

    def __init__(self, local: Mapping[str, Any], global_: Mapping[str, Any]) -> None:
        self._local = local
        self._global = global_

    def value(self, node: ast.AST) -> Any:
        value: Any
        if isinstance(node, ast.Constant):
            value = node.value
        elif isinstance(node, ast.Name):
            value = self._local[node.id] if node.id in self._local else self._global[node.id]
        elif isinstance(node, ast.Attribute):
            value = _stored(self.value(node.value), node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            value = _item(self.value(node.value), node.slice.value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = -self.number(node.operand)
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            value = _OPERATORS[type(node.op)](self.number(node.left), self.number(node.right))
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            value = self._called(_name(node.func), node.args[0])
        else:
            raise LookupError
        return value

    def _called(self, function: str, argument: ast.AST) -> int:
        if function == "len":
            return len(self.value(argument))
        if function == "int":
            return int(self.number(argument))
        raise LookupError

    def number(self, node: ast.AST) -> Any:
        value = self.value(node)
        kind = type(value)
        if kind is bool or not issubclass(kind, (int, float)):
            raise LookupError
        return value

    def range(self, node: ast.AST) -> range:
        """What a loop's iterable counts through."""
        if isinstance(node, ast.Call) and node.args:
            called = _name(node.func)
            if called in ("range", "trange"):
                return range(*(int(self.number(argument)) for argument in node.args))
            if called in _WRAPPERS:
                return self.range(node.args[0])
            raise LookupError
        value = self.value(node)
        if type(value) is not range:
            value = _stored(value, "iterable")  # tqdm's
        if type(value) is not range:
            raise LookupError
        return value


def _stored(owner: Any, name: str) -> Any:
    """An attribute that is stored, in the object, a slot of it or its class, or as an item of a
    dictionary or of a configuration that offers its items so.

    Raises:
        LookupError: a property, or whatever else would have to be computed.
    """
    try:
        found = inspect.getattr_static(owner, name)
    except AttributeError:
        return _item(owner, name)
    if isinstance(found, types.MemberDescriptorType):
        return found.__get__(owner)
    if hasattr(type(found), "__get__"):
        raise LookupError
    return found


def _item(owner: Any, key: Any) -> Any:
    """An item of a list, a tuple or a dictionary, OmegaConf's and `ml_collections`' among them.

    Raises:
        LookupError: there is none, or the owner's class has its own way to give it.
    """
    kind = type(owner)
    for plain in (list, tuple, dict):
        if issubclass(kind, plain):
            if kind.__getitem__ is not plain.__getitem__ or hasattr(kind, "__missing__"):
                raise LookupError
            return owner[key]
    for place in ("_content", "_fields"):
        try:
            content = inspect.getattr_static(owner, place)
        except AttributeError:
            continue
        if type(content) is dict:
            found = content[key]
            return getattr(found, "__dict__", {}).get("_val", found)
    raise LookupError


_OPERATORS: Any = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
}


def _name(node: ast.AST) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _counted(iterable: ast.expr, target: ast.expr, names: _Names) -> tuple[int, int] | None:
    """Passes in all and left; None if the loop is not over a range, or its variable was changed."""
    if isinstance(iterable, ast.Call) and _name(iterable.func) == "enumerate" and iterable.args:
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
            return None
        iterable, target = iterable.args[0], target.elts[1]
    with SuppressErrors():
        passes = names.range(iterable)
        return len(passes), len(passes) - 1 - passes.index(names.value(target))
    return None


def _limits(loop: _Written, names: _Names, code: CodeType) -> Iterator[Limit]:
    """Numbers that the loop's test compares, or branches of it that leave it."""
    for pair in loop.limits:
        with SuppressErrors():
            value, end = (float(names.number(side)) for side in pair)
            yield Limit((code, pair[0].lineno), value, end)


def _ascending(test: ast.AST, *, lasts: bool) -> tuple[ast.expr, ast.expr] | None:
    """The number that grows and its end, in a comparison that holds while the loop ``lasts``, or
    else once it ends.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return (left, right) if lasts else (right, left)
    if isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        return (right, left) if lasts else (left, right)
    return None
