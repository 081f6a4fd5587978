"""The pictures of docs/tutorial.md, of what `hopsctl` shows: ``python -m examples.demo.pictures``.

Run it in `make demo-shell` while jobs run; HOPS_SOCKET names the daemon.
"""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from hopsd.ctl import render
from hopsd.ctl.daemon import ask
from hopsd.ctl.user.top import page

WITHOUT_FONTS = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Pictures fetch nothing from anywhere: the viewer's own font will do."""


def main() -> None:
    folder = Path(*sys.argv[1:] or ["docs/img"])
    console = Console(
        record=True, width=80, height=24, file=io.StringIO(), highlight=False, force_terminal=True
    )
    render.console = console
    console.print(page(ask(Path(os.environ["HOPS_SOCKET"]), "status")))
    console.save_svg(
        str(folder / "tutorial-top.svg"), title="hopsctl top", code_format=WITHOUT_FONTS
    )


if __name__ == "__main__":
    main()
