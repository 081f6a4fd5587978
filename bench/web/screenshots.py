"""`python -m bench.web.screenshots`: take the pictures of docs/web.md, into docs/img.

Needs Chromium with its driver, and selenium.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image

from bench.web.browser import chromium, free_port, view
from bench.web.site import SMALL, serve_site

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "img"
DESKTOP, PHONE = (1200, 860), (390, 844)


def main() -> None:
    listen = f"127.0.0.1:{free_port()}"
    with serve_site(SMALL, listen) as answers, chromium() as driver:
        document = answers.document
        example = max(document["running"], key=lambda row: (row["restarts"], len(row["reqs"])))
        for name, path, size, dark in (
            ("cluster", "/", DESKTOP, False),
            ("cluster-dark", "/", DESKTOP, True),
            ("cluster-phone", "/", PHONE, False),
            ("jobs", "/jobs", DESKTOP, False),
            ("jobs-phone", "/jobs", PHONE, True),
            ("job", f"/jobs/{example['id']}", (1200, 1200), False),
            ("job-phone", f"/jobs/{example['id']}", PHONE, False),
            ("plans", "/plans", DESKTOP, False),
            ("what-if", "/what-if?drain=gpu001", DESKTOP, False),
        ):
            view(driver, *size, phone=size == PHONE, dark=dark)
            driver.get(f"http://{listen}{path}")
            shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            picture = Image.open(io.BytesIO(base64.b64decode(shot["data"])))
            file = FOLDER / f"web-{name}.png"
            picture.convert("RGB").save(file, optimize=True)
            print(f"{file.relative_to(FOLDER.parents[1])}: {file.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
