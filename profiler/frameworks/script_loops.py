"""Examines the source of a script's loops around a pass over its data."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from hops_profiler.timing.loops import frames

_LIBRARIES = ("accelerate", "tqdm", "rich", "multiprocessing", "runpy")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def why_not_repeated() -> str:
    """Return why the loops around the caller may not run the same number of times if passes are
    empty, since the script itself counts; "" if they do.
    """
    for frame in frames():
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _LIBRARIES:
            reason = _reason(frame.f_code.co_filename, frame.f_lineno)
            if reason:
                return f"{frame.f_code.co_filename}: {reason}"
    return ""


def _reason(path: str, line: int) -> str:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ""  # not a source file, so it has no loop of the script
    for loop in _enclosing_loops(tree, line):
        if isinstance(loop, ast.While):
            return f"the `while` in line {loop.lineno} decides how long it trains"
        for end in _ends(loop.body, is_outermost=True):
            return f"the `{end[0]}` in line {end[1]} decides how long it trains"
    return ""


def _enclosing_loops(tree: ast.AST, line: int) -> Iterator[ast.For | ast.While]:
    """Yield the loops around ``line``."""
    for node in ast.iter_child_nodes(tree):
        first, last = getattr(node, "lineno", line), getattr(node, "end_lineno", line)
        if not first <= line <= last:
            continue
        if isinstance(node, (ast.For, ast.While)):
            yield node
        yield from _enclosing_loops(node, line)


def _ends(body: list[ast.stmt], *, is_outermost: bool) -> Iterator[tuple[str, int]]:
    """Yield what leaves a loop. Unless ``is_outermost``, ``body`` is in an inner loop, to which any
    `break` belongs.
    """
    for node in body:
        if isinstance(node, ast.Return) or (is_outermost and isinstance(node, ast.Break)):
            yield type(node).__name__.lower(), node.lineno
        if isinstance(node, _FUNCTIONS):
            continue
        inner = is_outermost and not isinstance(node, (ast.For, ast.While))
        parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        for handler in getattr(node, "handlers", []):
            parts.append(handler.body)
        for part in parts:
            yield from _ends(part, is_outermost=inner)
