"""A full file system under the log stops nothing, and the status says that lines were lost."""

from __future__ import annotations

import io

import structlog

from hopsd.service.logs import LossyStream


class Full(io.StringIO):
    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_loses_lines_and_raises_nothing() -> None:
    disk = Full()
    stream = LossyStream(disk)
    logger = structlog.PrintLogger(stream)  # type: ignore[arg-type]
    logger.info("lost")
    assert stream.problem == "No space left on device"
    disk.full = False
    logger.info("kept")
    assert stream.problem == ""
    assert disk.getvalue() == "kept\n"


def test_a_closed_stream_raises_nothing() -> None:
    disk = io.StringIO()
    disk.close()
    stream = LossyStream(disk)
    stream.write("x")
    stream.flush()
    assert stream.problem
