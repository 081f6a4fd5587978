"""Take the pictures of `hopsctl` in docs/tutorial.md: ``python -m examples.demo.pictures``.

Run it in `make demo-shell` while jobs run; HOPS_SOCKET names the daemon.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from hopsd.ctl.daemon_client import ask
from hopsd.ctl.user.screen import Top

FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Pictures must not fetch anything, so we remove the fonts; the viewer's own font will do."""


def main() -> None:
    folder = Path(*sys.argv[1:] or ["docs/img"])
    socket = Path(os.environ["HOPS_SOCKET"])
    doc = ask(socket, "status")
    top = Top(doc, 3600.0, status=lambda: doc, explain=lambda job: ask(socket, "explain", job=job))
    picture = FONTS.sub("", asyncio.run(_picture(top)))
    (folder / "tutorial-top.svg").write_text(picture, encoding="utf-8")


async def _picture(top: Top) -> str:
    async with top.run_test(size=(80, 24)) as pilot:
        while not top.screen.query("FooterKey"):  # the key bar at the bottom appears last
            await pilot.pause(0.1)
        await pilot.pause()
        return top.export_screenshot(title="hopsctl top")


if __name__ == "__main__":
    main()
