"""Finds the loops around the training step, from their source and their variables.

Runs no code of the program except `len` of what it loops over: names and attributes are read where
they are stored, without running properties. What cannot be read this way is not guessed.
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

MAX_FRAMES = 100
MAX_LINES = 3000
"""Maximum number of lines of a function, or of a script's top level, that is parsed."""

MAX_BYTES = 2**24
"""Maximum size of a source file that is read."""

_WRAPPERS = frozenset(("tqdm", "track", "iter"))
"""Functions that yield the items of their argument."""

_FOREIGN_FOLDERS = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,  # noqa: PTH120 - imported by each job
    os.path.dirname(torch.__file__) + os.sep,  # noqa: PTH120
)

_PROCESS = BaseProcess._bootstrap.__code__  # type: ignore[attr-defined]
"""The function of `multiprocessing` that calls the program's function in a new process."""

_HEADER_LINES = 1
"""Lines before a function's source when it is parsed."""

_SNAPSHOT = frozenset(
    ("locals", "vars", "dir", "eval", "exec", "currentframe", "_getframe", "f_locals")
)
"""Names that show that a function may keep the dictionary of its variables."""


_REFERENCES = 4
"""Expected references to a frame's dictionary in :func:`variables`: by the frame, the function
itself, its caller, and the call that counts them."""


class LoopEnd:
    """A number that ends a loop once its ``value`` reaches ``end``; ``key`` identifies it."""

    def __init__(self, key: Any, value: float, end: float) -> None:
        self.key = key
        self.value = value
        self.end = end


class Loop:
    """A loop that the program is in.

    ``passes`` is the number of passes of a loop over a range, None for any other loop;
    ``remaining`` of them come after the current one. ``endless`` marks a `while` loop. ``limits``
    are numbers that may end the loop.
    """

    def __init__(
        self, passes: int | None, remaining: int, limits: list[LoopEnd], *, endless: bool = False
    ) -> None:
        self.passes = passes
        self.remaining = remaining
        self.limits = limits
        self.endless = endless


def frames() -> Iterator[FrameType]:
    """Yield the program's frames, from the step outwards to its script, without PyTorch's.

    Stops at the function of a forked process, which never returns to its parent's frames.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame is None or frame.f_code is _PROCESS:
            return
        if not frame.f_code.co_filename.startswith(_FOREIGN_FOLDERS):
            yield frame
            if frame.f_code.co_name == "<module>":
                return
        frame = frame.f_back


@contextmanager
def variables(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """Yield a frame's variables, to be read within the block; empty if reading could affect the
    program.

    Before Python 3.13, a function's variables are copied into a dictionary that the frame keeps.
    It is cleared afterwards, as it would keep the step's tensors alive, unless other code refers to
    it. It is not read at all if the function itself may use it.
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
        copy = frame.f_locals
        try:
            yield copy
        finally:
            if sys.getrefcount(copy) <= _REFERENCES:
                copy.clear()


class _LoopSource:
    """Source of a loop: first and last line of its body, iterable and target of a `for`, and the
    comparisons that end the loop.
    """

    def __init__(self, loop: ast.For | ast.While) -> None:
        body = loop.body
        self.first = body[0].lineno
        self.last = body[-1].end_lineno or 0
        self.header = (loop.iter, loop.target) if isinstance(loop, ast.For) else None
        sides = [_ordered_sides(loop.test, lasts=True)] if isinstance(loop, ast.While) else []
        sides += [
            _ordered_sides(branch.test, lasts=False)
            for branch in body
            if isinstance(branch, ast.If) and isinstance(branch.body[-1], (ast.Break, ast.Return))
        ]
        self.limits = [side for side in sides if side is not None]


class Loops:
    """Finds the loops that a frame is in. Parses each function once, and keeps only its loops.

    ``begin`` is the program's start, in seconds since the epoch.
    """

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._sources: dict[CodeType, list[_LoopSource] | None] = {}

    def around(self, frame: FrameType, local: Mapping[str, Any]) -> list[Loop] | None:
        """The loops, from the innermost outwards; ``local`` are the frame's :func:`variables`.

        None if the frame may be in a loop, but its source cannot be read.
        """
        code = frame.f_code
        if code not in self._sources:
            self._sources[code] = self._parse(code)
        sources = self._sources[code]
        if sources is None:
            return None if _has_loop(code) else []
        first = 1 if code.co_name == "<module>" else code.co_firstlineno - _HEADER_LINES
        names = _Names(local, frame.f_globals)
        line = frame.f_lineno - first + 1
        loops = []
        for source in sources:
            if not source.first <= line <= source.last:
                continue
            limits = list(_limits(source, names, code))
            if source.header is None:
                loops.append(Loop(None, 0, limits, endless=True))
            else:
                passes, remaining = _count_passes(*source.header, names) or (None, 0)
                loops.append(Loop(passes, remaining, limits))
        return loops

    def _parse(self, code: CodeType) -> list[_LoopSource] | None:
        """The loops, inner ones first. None if there is no source, or it has changed since the
        program began.
        """
        with SuppressErrors():  # tokenize and ast raise many kinds
            file = os.stat(code.co_filename)  # noqa: PTH116
            if file.st_mtime > self._begin:
                return None
            if not stat.S_ISREG(file.st_mode) or file.st_size > MAX_BYTES:
                return None
            lines = linecache.getlines(code.co_filename)
            if code.co_name != "<module>":
                lines = inspect.getblock(lines[code.co_firstlineno - 1 :][:MAX_LINES])
            if not 0 < len(lines) < MAX_LINES:
                return None
            if code.co_name != "<module>":
                # Comments and strings may be indented less than the function's first line.
                header = "if True:\n" if lines[0][:1].isspace() else "\n"
                lines = [header, *lines]
            tree = ast.parse("".join(lines))
            loops = [_LoopSource(n) for n in ast.walk(tree) if isinstance(n, (ast.For, ast.While))]
            return sorted(loops, key=lambda loop: (-loop.first, loop.last))
        return None


def _has_loop(code: CodeType) -> bool:
    return any(
        "FOR_ITER" in instruction.opname
        or (
            "JUMP" in instruction.opname
            and "NO_INTERRUPT" not in instruction.opname  # an await
            and isinstance(instruction.argval, int)
            and instruction.argval <= instruction.offset
        )
        for instruction in dis.get_instructions(code)
    )


class _Names:
    """Evaluates simple expressions with a frame's variables.

    Raises:
        LookupError: the expression is not simple.
        Exception: any error that the program's objects raise.
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
            value = _read_attribute(self.value(node.value), node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            value = _item(self.value(node.value), node.slice.value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = -self.number(node.operand)
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            value = _OPERATORS[type(node.op)](self.number(node.left), self.number(node.right))
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            value = self._call(_name(node.func), node.args[0])
        else:
            raise LookupError
        return value

    def _call(self, function: str, argument: ast.AST) -> int:
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
        """The range that the iterable of a loop counts through."""
        if isinstance(node, ast.Call) and node.args:
            function = _name(node.func)
            if function in ("range", "trange"):
                return range(*(int(self.number(argument)) for argument in node.args))
            if function in _WRAPPERS:
                return self.range(node.args[0])
            raise LookupError
        value = self.value(node)
        if type(value) is not range:
            value = _read_attribute(value, "iterable")  # tqdm's
        if type(value) is not range:
            raise LookupError
        return value


def _read_attribute(owner: Any, name: str) -> Any:
    """Read an attribute stored in the object, in one of its slots or in its class, or an item of a
    dictionary or configuration that offers its items as attributes.

    Raises:
        LookupError: the attribute would have to be computed, like a property.
    """
    try:
        value = inspect.getattr_static(owner, name)
    except AttributeError:
        return _item(owner, name)
    if isinstance(value, types.MemberDescriptorType):
        return value.__get__(owner)
    if hasattr(type(value), "__get__"):
        raise LookupError
    return value


def _item(owner: Any, key: Any) -> Any:
    """Read an item of a list, a tuple or a dictionary, including OmegaConf and `ml_collections`.

    Raises:
        LookupError: there is no such item, or the owner's class computes it.
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
            value = content[key]
            return getattr(value, "__dict__", {}).get("_val", value)
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


def _count_passes(iterable: ast.expr, target: ast.expr, names: _Names) -> tuple[int, int] | None:
    """Passes in total, and after the current one. None if the loop is not over a range, or the
    program has changed its variable.
    """
    if isinstance(iterable, ast.Call) and _name(iterable.func) == "enumerate" and iterable.args:
        if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
            return None
        iterable, target = iterable.args[0], target.elts[1]
    with SuppressErrors():
        passes, current = names.range(iterable), names.value(target)
        if type(current) is int:  # any other value would be compared with each one of the range
            return len(passes), len(passes) - 1 - passes.index(current)
    return None


def _limits(source: _LoopSource, names: _Names, code: CodeType) -> Iterator[LoopEnd]:
    """Yield the numbers compared in the loop's test, or in branches that leave the loop."""
    for pair in source.limits:
        with SuppressErrors():
            value, end = (float(names.number(side)) for side in pair)
            yield LoopEnd((code, pair[0].lineno), value, end)


def _ordered_sides(test: ast.AST, *, lasts: bool) -> tuple[ast.expr, ast.expr] | None:
    """The growing number and its end in a comparison that is true while the loop ``lasts``, or,
    with ``lasts`` False, once it ends.
    """
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    smaller, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return (smaller, right) if lasts else (right, smaller)
    if isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        return (right, smaller) if lasts else (smaller, right)
    return None
