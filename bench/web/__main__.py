"""`python -m bench.web`: response times of the web page with 1,000 jobs and 2,000 GPUs."""

from __future__ import annotations

import http.client
import statistics
import time

from bench.clock import cpu_seconds
from bench.web.browser import free_port
from bench.web.site import LARGE, serve_site
from hopsd.ctl.render import show, table

TIMES = 20


def main() -> None:
    port = free_port()
    rows = []
    with serve_site(LARGE, f"127.0.0.1:{port}") as answers:
        document = answers.document
        job = document["running"][0]["id"]
        gpus = sum(node["gpus"] for node in document["nodes"])
        jobs = len(document["running"]) + len(document["waiting"])
        for path in ("/", "/jobs", "/jobs?all=1", f"/jobs/{job}", "/plans"):
            took, cpu_spent = [], cpu_seconds()
            for _ in range(TIMES + 1):
                connection = http.client.HTTPConnection("127.0.0.1", port)
                began = time.perf_counter()
                connection.request("GET", path)
                with connection.getresponse() as answer:
                    text = answer.read()
                took.append(time.perf_counter() - began)
                connection.close()
                assert answer.status == 200, text
            cpu_spent = (cpu_seconds() - cpu_spent) / len(took)
            sorted_times = sorted(took[1:])
            rows.append(
                (
                    path,
                    f"{len(text) / 1024:.0f} KiB",
                    f"{statistics.median(sorted_times) * 1000:.0f} ms",
                    f"{sorted_times[-1] * 1000:.0f} ms",
                    f"{cpu_spent * 1000:.0f} ms",
                )
            )
    show(
        table(
            f"{jobs:,} jobs, {gpus:,} GPUs, {TIMES} times",
            ["page", "size", "median", "slowest", "processor"],
            rows,
        )
    )


if __name__ == "__main__":
    main()
