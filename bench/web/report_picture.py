"""`python -m bench.web.report_picture`: the picture in docs/history.md, of a synthetic month.

Needs Chromium with its driver, and selenium.
"""

from __future__ import annotations

import base64
import io
import random
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from bench.web.browser import chromium, view
from hopsd.ctl.history.page import page
from hopsd.ctl.history.report import sum_up
from hopsd.store.figures import RATIOS
from hopsd.store.history import DAY_SECONDS

FILE = Path(__file__).resolve().parents[2] / "docs" / "img" / "report.png"
BEGIN, DAYS = 1_772_323_200.0, 30
GPUS = {"a100": 96, "v100": 32}


def make_document() -> dict[str, Any]:
    """A month's report in the format of hopsd's answer."""
    draw = random.Random(7)
    return {
        "since": BEGIN, "until": BEGIN + DAYS * DAY_SECONDS, "user": None, "first": BEGIN,
        "shadow": False,
        "use": [use(draw, day, kind) for day in range(DAYS) for kind in GPUS],
        "spent": {"training": 2.1e8, "restarting": 1.1e6, "restarts": 2140, "profiling": 4.3e5,
                  "profile_runs": 310},
        "ranges": list(RATIOS), "ratios": [812, 240, 195, 120, 61, 22, 6, 1],
        "waits": [
            row("all", "", 1457, 2.1e8), row("hops", "", 1457, 2.1e8),
            *(row("size", str(2**i), 700 >> i, 7e7) for i in range(5)),
            *(row("user", name, 90, 2e7) for name in ("ann", "bob", "carol", "dave")),
            *(row("account", name, 400, 8e7) for name in ("lab", "phys")),
        ],
    }  # fmt: skip


def use(draw: random.Random, day: int, kind: str) -> dict[str, Any]:
    total = GPUS[kind] * DAY_SECONDS
    weekend = 0.5 if day % 7 in (5, 6) else 1.0
    hops, plain = (0.55 + 0.1 * draw.random()) * weekend, (0.2 + 0.08 * draw.random()) * weekend
    down_share = 0.08 if day in (11, 12) else 0.0
    fragmented_share = 0.03 * draw.random() * weekend
    shares = {"hops": hops, "plain": plain, "fragmented": fragmented_share, "down": down_share}
    shares["idle"] = 1.0 - sum(shares.values())
    shares["rack_fragmented"] = 0.0
    return {"hour": BEGIN + day * DAY_SECONDS, "gpu_type": kind,
            **{name: share * total for name, share in shares.items()}}  # fmt: skip


def row(by: str, name: str, jobs: int, seconds: float) -> dict[str, Any]:
    wait = 600.0 + 3000.0 * random.Random(f"{by}{name}").random()
    return {"by": by, "name": name, "jobs": jobs, "gpu_seconds": seconds, "mean_wait": wait,
            "median_wait": wait / 3, "p90_wait": wait * 2.4, "mean_ratio": wait / 6000,
            "p90_ratio": wait / 2500, "max_ratio": wait / 400, "mean_slowdown": 1.5}  # fmt: skip


def main() -> None:
    document = sum_up(make_document())
    document["before"] = {"since": BEGIN - DAYS * DAY_SECONDS, "until": BEGIN, "jobs": 1390,
                          "gpu_hours": 51200.0, "mean_wait": 5400.0, "median_wait": 900.0,
                          "p90_wait": 14400.0, "mean_slowdown": 3.4}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        path = Path(folder) / "report.html"
        path.write_text(page(document), encoding="utf-8")
        view(driver, 1000, 900)
        driver.get(path.as_uri())
        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB").save(
            FILE, optimize=True
        )
    print(f"{FILE.name}: {FILE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
