"""The pages in a real browser: no errors, nothing cut off, readable, usable by keyboard, live."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_rig import Rig, job

from bench.web.browser import CHROMIUM, DRIVER, chromium, view

pytest.importorskip("flask")
pytest.importorskip("selenium")
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from web_site import WebSite

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="chromium, chromium-driver"),
]

PATHS = ("/", "/jobs", "/jobs/1", "/jobs/2", "/plans", "/what-if")

UNREADABLE = """
const pen = Object.assign(document.createElement("canvas"), {width: 1, height: 1})
  .getContext("2d", {willReadFrequently: true});
function rgb(colour) {
  pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data];
}
function light(colour) {
  const [r, g, b] = colour.map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(a, b) {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}
function ground(at) {
  for (; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255, 255];
}
const found = [];
for (const at of document.querySelectorAll("body *")) {
  const style = getComputedStyle(at);
  const text = [...at.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (text && !at.closest("svg")) {
    const ratio = contrast(rgb(style.color), ground(at));
    if (ratio < 4.5) found.push(`${at.tagName} ${at.textContent.trim().slice(0, 30)} ${ratio}`);
  }
  if (at.matches(".gpus rect, .dot") && style.fill !== "none") {
    const edge = style.stroke === "none" ? style.fill : style.stroke;
    const ratio = contrast(rgb(edge), ground(at));
    if (ratio < 3) found.push(`${at.getAttribute("class")} ${ratio}`);
  }
}
return found;
"""
"""Script that returns texts and graphics below WCAG 2.2's contrasts: 4.5 (1.4.3), 3 (1.4.11)."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    folder: Path = tmp_path_factory.mktemp("web")
    (folder / "reports").mkdir()
    comments = ("hops:reqs=2", "hops:reqs=32", *["hops:reqs=1"] * 24)
    jobs = [job(number, comment) for number, comment in enumerate(comments, start=1)]
    web_site = WebSite(folder, Rig(folder / "reports", *jobs), on_port=True)
    web_site.rig.tick(2)
    yield web_site
    web_site.close()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "phone"), [(1200, False), (360, True)], ids=["desktop", "phone"])
def test_every_page_is_readable(
    site: WebSite, driver: Any, width: int, phone: bool, dark: bool
) -> None:
    view(driver, width, 800, phone=phone, dark=dark)
    for path in PATHS:
        driver.get(site.url + path)
        assert driver.execute_script(UNREADABLE) == [], path
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, path
        # The log would also show what the security policy refuses.
        assert driver.get_log("browser") == []
    driver.execute_script("document.querySelector('h1').style.color = '#888'")
    assert len(driver.execute_script(UNREADABLE)) == (0 if dark else 1)  # the check works


def test_every_page_is_usable_by_keyboard(site: WebSite, driver: Any) -> None:
    view(driver, 1200, 800)
    driver.get(f"{site.url}/jobs")

    def tab() -> Any:
        driver.switch_to.active_element.send_keys(Keys.TAB)
        return driver.switch_to.active_element

    skip = tab()
    assert skip.text == "Skip to the content"
    assert skip.is_displayed()
    pages = ["hops", "Cluster", "Jobs", "Finished", "History", "Plans", "What if"]
    assert [tab().text for _ in pages] == pages
    driver.get(f"{site.url}/jobs")
    tab().send_keys(Keys.ENTER)
    assert driver.switch_to.active_element.get_attribute("id") == "main"
    links = (tab().get_attribute("href") or "" for _ in range(40))  # filters, headings first
    assert any(re.search(r"/jobs/\d", link) for link in links)
    job = driver.switch_to.active_element
    assert (
        driver.execute_script("return getComputedStyle(arguments[0]).outlineStyle", job) != "none"
    )
    job.send_keys(Keys.ENTER)
    WebDriverWait(driver, 60).until(lambda d: d.title.startswith("Job "))


def test_the_page_refreshes_itself_and_keeps_the_readers_place(site: WebSite, driver: Any) -> None:
    view(driver, 1200, 800)
    driver.get(f"{site.url}/jobs")
    state_script = (
        "return document.getElementById('state').textContent"  # the element itself is replaced
    )
    old_state = driver.execute_script(state_script)
    driver.execute_script("window.here = true; document.querySelector('main .chip').focus()")
    focused_link = driver.switch_to.active_element.get_attribute("href")
    site.rig.tick()
    WebDriverWait(driver, 90).until(lambda d: d.execute_script(state_script) != old_state)
    assert driver.execute_script("return window.here")  # the page was not reloaded
    assert driver.switch_to.active_element.get_attribute("href") == focused_link


@pytest.mark.long
def test_a_page_without_its_hopsd_says_so(site: WebSite, driver: Any) -> None:
    driver.get(f"{site.url}/")
    driver.execute_script("window.fetch = () => Promise.reject(new Error())")
    WebDriverWait(driver, 60).until(
        lambda d: d.execute_script("return document.body.dataset.stale") == "away"
    )
