"""Headless Chromium through selenium, for pictures and for the tests."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@contextmanager
def chromium(*, dark: bool = False, script: bool = True) -> Iterator[Chrome]:
    """A browser without a window; with ``script`` False, without JavaScript."""
    from selenium.webdriver import Chrome, ChromeOptions  # noqa: PLC0415 - of the tests alone
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root has no sandbox; we open only our own page
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--disable-background-networking",
        *(["--force-dark-mode"] if dark else []),
    ):
        options.add_argument(argument)
    if not script:
        options.add_experimental_option(
            "prefs", {"profile.managed_default_content_settings.javascript": 2}
        )
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def view(
    driver: Chrome, width: int, height: int, *, phone: bool = False, dark: bool = False
) -> None:
    """Resize the window to CSS pixels; ``phone`` emulates a touch screen."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone},
    )
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
