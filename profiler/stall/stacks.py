"""Finds a thread's place by its Python stack, and writes all stacks as text for the user."""

from __future__ import annotations

import faulthandler
import linecache
import os
import re
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

MAX_BYTES = 1 << 20
"""Files of stacks that are longer are not appended to."""

MAX_THREADS, MAX_FRAMES = 100, 100
"""`faulthandler` writes the newest threads up to this number, and so many frames of each."""

_DEBUGGERS = {
    "IPython", "bdb", "cmd", "code", "debugpy", "ipdb", "ipykernel", "pdb", "pudb", "pydevd",
    "remote_pdb", "rpdb", "web_pdb",
}  # fmt: skip
_SIDE_WORK = re.compile(
    r"(?:^|_)(?:eval|valid|test|infer|predict|generat|sav|checkpoint|ckpt|compil|trac|prepar|preproc"
    r"|download|upload|load|tokeniz|decorate_context)",
    re.IGNORECASE,
)
"""Names of functions in which a training does something other than train. PyTorch's
`decorate_context` wraps functions that build no graph."""

_CALLS_THAT_WAIT = re.compile(r"\.(wait|synchronize|item|cpu|tolist|numpy|barrier)\(")
"""Methods written in C that wait for other ranks, or for the GPU that waits for them."""

_LIBRARIES = (
    f"{Path(os.__file__).parent}{os.sep}",
    f"{os.sep}site-packages{os.sep}",
    f"{os.sep}dist-packages{os.sep}",
)


_DISTRIBUTED_FOLDER = f"torch{os.sep}distributed{os.sep}"
_LAUNCHER = f"{_DISTRIBUTED_FOLDER}elastic"
_DATA_PARALLEL = f"torch{os.sep}nn{os.sep}parallel{os.sep}distributed.py"


class StackPosition(NamedTuple):
    """``signature`` is that of the frames, and the same as long as the thread does not move.

    ``line``: the innermost line of the user's code. ``waits_in``: the call in which the thread
    waits for other ranks, "" if it does not. ``side_work``: by its functions' names, it evaluates,
    saves, compiles or prepares data.
    """

    signature: Any
    line: str
    waits_in: str
    interactive: bool
    side_work: bool


def place(frame: FrameType | None, *, several_ranks: bool) -> StackPosition:
    """Return the place of the thread that executes ``frame``."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    modules = {str(f.f_globals.get("__name__", "")).partition(".")[0] for f in frames}
    user_frame = next((f for f in frames if _is_users(f.f_code.co_filename)), None)
    line_frame = user_frame or (frames[0] if frames else None)
    line = ""
    if line_frame is not None:
        name = line_frame.f_code.co_name
        line = f"{Path(line_frame.f_code.co_filename).name}:{line_frame.f_lineno} in {name}"
    return StackPosition(
        tuple((id(f), f.f_lasti) for f in frames),
        line,
        _waits_in(frames) if several_ranks else "",
        bool(modules & _DEBUGGERS),
        any(_SIDE_WORK.search(f.f_code.co_name) for f in frames),
    )


def _is_users(file: str) -> bool:
    return not file.startswith("<") and not any(library in file for library in _LIBRARIES)


def _waits_in(frames: list[FrameType]) -> str:
    """Return the PyTorch call in which the thread waits for other ranks; "" if there is none."""
    for frame in reversed(frames):
        file = frame.f_code.co_filename
        if (
            _DISTRIBUTED_FOLDER in file
            and _LAUNCHER not in file
            and frame.f_code.co_name != "wrapper"
        ):
            return frame.f_code.co_name
    if not frames:
        return ""
    if frames[0].f_code.co_name == "_engine_run_backward":
        return "backward"
    file = frames[0].f_code.co_filename
    if file.endswith(_DATA_PARALLEL):
        return frames[0].f_code.co_name
    source = linecache.getline(file, frames[0].f_lineno)
    match = _CALLS_THAT_WAIT.search(source)
    return match.group(1) if match else ""


def write(folder: str, name: str, title: str) -> str | None:
    """Append the stacks of all threads to a file and return its path; None if that fails.

    `faulthandler` writes them. If there are too many threads for it, the main one, which mostly
    trains, is written first.
    """
    path = Path(folder, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid() or status.st_nlink != 1:
                return None  # belongs to another account, which made the folder in /tmp first
            if status.st_size <= MAX_BYTES:
                now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
                command = " ".join(sys.argv)[:500]
                text = f"{now}: {title}\n{command}\n{_main_if_many_threads()}"
                os.write(descriptor, text.encode(errors="replace"))
                faulthandler.dump_traceback(descriptor, all_threads=True)
                os.write(descriptor, b"\n")
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return str(path)


def _main_if_many_threads() -> str:
    frames = sys._current_frames()
    main_frame = frames.get(threading.main_thread().ident or 0)
    if len(frames) <= MAX_THREADS or main_frame is None:
        return ""
    stack = "".join(traceback.format_stack(main_frame, limit=-MAX_FRAMES))
    return f"Main thread (most recent call last):\n{stack}\n"


def remove(path: str) -> None:
    """Remove a file of stacks, and its folder if that was the last one."""
    with suppress(OSError):
        Path(path).unlink()
        Path(path).parent.rmdir()
