# SPDX-License-Identifier: Apache-2.0
"""The page of a run's report in a real browser: it loads, searches, sorts, and draws its plots.

The page is put together from headrace/flow/report_page/ as render_report does, which report_test.cc
checks, around data for all 414 series of M4 Hourly with made-up forecasts.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="chromium and chromium-driver are not installed",
    ),
]

FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
]
HORIZON, HISTORY, FAILED_EVERY = 48, 336, 97
ITEM_ERROR = 'forecast: item "{}": all values are missing <img src=x onerror=window.hacked=1>'


def page_text(root: Path, data: dict) -> str:
    folder = root / "headrace" / "flow" / "report_page"
    listed = (root / "headrace" / "flow" / "CMakeLists.txt").read_text()
    scripts = re.findall(r"report_page/(\w+\.js)", listed)
    assert scripts[-1] == "page.js"
    parts = {
        "title": "report",
        "style": (folder / "page.css").read_text(),
        "script": "".join((folder / name).read_text() for name in scripts),
        "data": json.dumps(data).replace("<", "\\u003c"),
    }
    return re.sub(r"{{(\w+)}}", lambda place: parts[place[1]], (folder / "page.html").read_text())


def column(name: str, title: str) -> dict:
    return {"name": name, "title": title, "help": f"what {title} means"}


def run_of(items: list[dict], **more: object) -> dict:
    activity = {"path": "train", "type": "ForEach", "status": "Succeeded", "attempts": 1}
    return {
        "title": "m4_hourly",
        "run": "20261130-1",
        "document": "examples/m4_hourly/pipeline.json",
        "status": "Succeeded",
        "started": "2026-11-30T00:00:00Z",
        "ended": "2026-11-30T00:05:11Z",
        "written": "2026-11-30T00:05:12Z",
        "seconds": 311.0,
        "parameters": [["horizon", "48"]],
        "facts": [{"label": "mean_wQL", "value": "0.0312", "note": "seasonal naive 0.0483"}],
        "columns": [column("mase", "MASE"), column("wql", "wQL")],
        "labels": [column("winner", "Chosen")],
        "scores": [
            {
                "title": "MASE",
                "help": "lower is better",
                "methods": [column("mase", "headrace"), column("naive", "seasonal naive")],
            }
        ],
        "metricNames": ["mase", "wql", "naive"],
        "activities": [
            {**activity, "started": 0.4, "seconds": 300.0, "items": len(items)},
        ],
        "items": items,
        **more,
    }


def rounded(values: np.ndarray) -> list:
    return [float(f"{value:.4g}") for value in values]


def item_of(key: str, past: np.ndarray, actual: np.ndarray, index: int) -> dict:
    wobble = np.random.default_rng(index).standard_normal(HORIZON)
    spread = np.abs(past[24:] - past[:-24]).mean() + 1e-9
    median = 0.7 * actual + 0.3 * np.tile(past[-24:], 2) + 0.2 * spread * wobble
    naive = np.abs(actual - np.tile(past[-24:], 2)).mean() / spread
    item = {
        "key": key,
        "activity": "train",
        "status": "Succeeded",
        "seconds": 0.5 + (index * 37 % 101) / 50,
        "cpu": 0.5,
        "attempts": 1,
        "log": f"items/{key}/train.log",
        "metrics": rounded(
            np.array(
                [np.abs(actual - median).mean() / spread, 0.03 * math.exp(wobble[0]), naive],
            )
        ),
        "labels": [["local", "global", "seasonal naive"][index % 3]],
    }
    if index % FAILED_EVERY == 5:
        error = {"code": "invalid_argument", "message": ITEM_ERROR.format(key), "target": "train"}
        nothing = {"metrics": [None] * 3, "labels": [""], "attempts": 2}
        return {**item, "status": "Failed", "error": error, **nothing}
    item["plot"] = {
        "start": "2015-07-16T08:00:00",
        "stepSeconds": 3600,
        "stepMonths": 0,
        "history": rounded(past[-HISTORY:]),
        "actual": rounded(actual),
        "median": rounded(median),
        "bands": [
            {
                "percent": percent,
                "low": rounded(median - width * spread),
                "high": rounded(median + width * spread),
            }
            for percent, width in ((95, 1.96), (80, 1.28), (50, 0.67))
        ],
    }
    return item


@pytest.fixture(scope="session")
def items(source_root: Path) -> list[dict]:
    example = source_root / "examples" / "m4_hourly"
    past, actual = (
        pq.read_table(example / name).to_pandas().groupby("item_id")["target"].apply(np.array)
        for name in ("lake", "test.parquet")
    )
    keys = sorted(past.index, key=lambda key: int(key[1:]))
    assert len(keys) == 414
    return [item_of(key, past[key], actual[key], index) for index, key in enumerate(keys)]


class Page:
    """One tab with the report in it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def load(self, path: Path, width: int = 1280) -> Page:
        self.driver.set_window_size(width, 900)
        self.driver.get("about:blank")  # the next address may differ in its fragment alone
        self.driver.get_log("browser")
        self.driver.get(path.as_uri())
        return self

    def js(self, script: str, *arguments: object) -> object:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> object:
        """Wait until a JavaScript expression holds; the page draws when the browser is idle."""
        return WebDriverWait(self.driver, 20).until(lambda _: self.js(f"return {condition}"))

    def one(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def keys(self) -> list[str]:
        return self.js("return [...document.querySelectorAll('tr.item')].map(r => r.dataset.key)")

    def search(self, text: str) -> str:
        box = self.one("#search")
        box.clear()
        box.send_keys(text)
        return self.one("#count").text

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    profile = tmp_path_factory.mktemp("profile")
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    browser.set_page_load_timeout(60)
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def report(items: list[dict], source_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page_text(source_root, run_of(items)))
    assert path.stat().st_size < 6_000_000
    return path


@pytest.fixture
def page(driver: webdriver.Chrome, report: Path) -> Page:
    return Page(driver).load(report)


def drawn(page: Page, selector: str) -> list[int]:
    """Lengths of the path data under `selector`."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(p => p.getAttribute('d').length)"
    )
    return page.js(script, selector)


def test_the_page_loads_without_a_message_on_the_console_and_without_network(page: Page):
    page.wait("document.querySelectorAll('#scores svg').length === 2")

    assert page.errors() == []
    assert page.js("return performance.getEntriesByType('resource').length") == 0
    assert page.one("h1").text.startswith("m4_hourly")
    assert "409 of 414" in page.one("#summary").text
    assert page.one("#count").text == "414 items"


def test_search_narrows_by_key_error_and_label(page: Page):
    assert page.search("H5") == "11 of 414 items"
    assert page.keys() == ["H5", *(f"H{k}" for k in range(50, 60))]
    assert page.search('"H5"') == "1 of 414 items"
    assert page.keys() == ["H5"]
    assert page.search("values are missing") == "5 of 414 items"
    assert page.search("seasonal naive").endswith("of 414 items")
    assert page.search("no such thing") == "0 of 414 items"
    page.one("#search").send_keys(Keys.ESCAPE)
    assert page.one("#count").text == "414 items"


def test_filters_narrow_by_status_and_label(page: Page, items: list[dict]):
    Select(page.one("#filter-status")).select_by_value("Failed")
    assert page.one("#count").text == "5 of 414 items"
    assert page.keys() == [item["key"] for item in items if item["status"] == "Failed"]
    Select(page.one("#filter-status")).select_by_value("")
    Select(page.one("#filter-winner")).select_by_value("local")
    expected = sum(item["labels"] == ["local"] for item in items)
    assert page.one("#count").text == f"{expected} of 414 items"


def test_a_column_sorts_both_ways_and_says_so(page: Page, items: list[dict]):
    scored = [item for item in items if item["metrics"][0] is not None]
    by_mase = sorted(scored, key=lambda item: item["metrics"][0])

    page.one("th[data-name=mase] button").click()
    assert page.keys()[:5] == [item["key"] for item in by_mase[::-1][:5]]
    assert page.one("th[data-name=mase]").get_attribute("aria-sort") == "descending"
    page.one("th[data-name=mase] button").click()
    assert page.keys()[:5] == [item["key"] for item in by_mase[:5]]
    assert page.one("th[data-name=mase]").get_attribute("aria-sort") == "ascending"


def test_all_rows_come_in_as_the_reader_scrolls(page: Page):
    assert len(page.keys()) == 200
    for expected in (400, 414):
        page.js("document.getElementById('more').scrollIntoView()")
        page.wait(f"document.querySelectorAll('tr.item').length === {expected}")


def test_a_row_opens_to_a_plot_with_history_median_actual_and_three_bands(page: Page):
    page.search('"H7"')
    page.one("tr.item").click()
    page.wait("document.querySelector('tr.detail svg')")

    assert len(drawn(page, "tr.detail .band")) == 3
    assert min(drawn(page, "tr.detail .band")) > 48 * 10
    for line in ("history", "median", "actual"):
        assert drawn(page, f"tr.detail .{line}")[0] > 48 * 8
    shown = drawn(page, "tr.detail .history")[0]
    page.all("tr.detail .window button")[-1].click()
    assert drawn(page, "tr.detail .history")[0] > shown
    assert "seasonal naive" in page.one("tr.detail .facts").text
    page.one("tr.item").click()
    assert page.all("tr.detail") == []


def test_plots_are_drawn_when_they_come_into_sight(page: Page):
    page.one("#as-plots").click()
    page.js("document.getElementById('items').scrollIntoView()")
    page.wait("document.querySelectorAll('#plots svg').length > 2")

    first = len(page.all("#plots svg"))
    assert first < len(page.all("#plots .card")) <= 120
    page.js("document.getElementById('more').scrollIntoView()")
    page.wait(f"document.querySelectorAll('#plots svg').length > {first}")
    assert min(drawn(page, "#plots .median")) > 48 * 8


def test_the_keyboard_reaches_search_rows_and_the_plot(page: Page):
    page.one("body").send_keys("/")
    assert page.js("return document.activeElement.id") == "search"
    page.search('"H7"')
    page.one("tr.item .twist").send_keys(Keys.ENTER)
    page.wait("document.querySelector('tr.detail svg')")
    assert page.one(".twist").get_attribute("aria-expanded") == "true"
    plot = page.one("tr.detail svg")
    plot.send_keys(Keys.ARROW_RIGHT)
    told = page.one("tr.detail .tip").text
    assert "median" in told and "80 %" in told and "actual" in told and "2015" in told
    plot.send_keys(Keys.SHIFT, Keys.ARROW_LEFT)
    assert "value" in page.one("tr.detail .tip").text
    plot.send_keys(Keys.ESCAPE)
    assert page.all("tr.detail .tip") == []


def test_texts_from_the_run_are_shown_as_text(page: Page):
    assert page.js("return window.hacked") is None
    assert "<img src=x" in page.one("#failure-list").text
    assert page.all("#failure-list img") == []


def test_failures_lead_to_the_item(page: Page):
    assert "5" in page.one("#failure-list tbody td").text
    page.one("#failure-list .link").click()
    assert page.keys() == ["H6"]
    assert "all values are missing" in page.one("tr.detail").text


def test_an_address_with_a_key_opens_that_item(driver: webdriver.Chrome, report: Path):
    page = Page(driver).load(report)
    driver.get("about:blank")
    driver.get(report.as_uri() + "#H9")
    page.wait("document.querySelector('tr.detail svg')")
    assert page.keys() == ["H9"]


@pytest.mark.parametrize("width", [1280, 800, 500])
def test_nothing_is_wider_than_the_window(driver: webdriver.Chrome, report: Path, width: int):
    page = Page(driver).load(report, width)
    page.wait("document.querySelectorAll('#scores svg').length === 2")
    assert page.js("return document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("width", [1300, 800])
def test_long_texts_of_tiles_and_labels_wrap(
    driver: webdriver.Chrome, source_root: Path, tmp_path: Path, items: list[dict], width: int
):
    long = "DeepAR global, averaged with seasonal naive"
    chosen = f"202 {long}; 72 seasonal naive (intervals)"
    facts = [{"label": "chosen", "value": chosen, "note": "by backtest, per item"}]
    labelled = [{**item, "labels": [long]} for item in items[:30]]
    path = tmp_path / "report.html"
    path.write_text(page_text(source_root, run_of(labelled, facts=facts)))
    page = Page(driver).load(path, width)

    assert page.one("#summary .tile.text .value").text == chosen
    box = "return document.querySelector(arguments[0]).getBoundingClientRect().width"
    assert page.js(box, "#summary .tile.text") == page.js(box, "#summary")
    assert page.js(box, "#filter-winner") <= 240
    rows = "return Math.max(...[...document.querySelectorAll('tr.item')].map(r => r.clientHeight))"
    assert page.js(rows) < 90  # two lines of a label, or three
    assert page.js("return document.documentElement.scrollWidth - innerWidth") <= 0


def test_dark_and_light_follow_the_button(page: Page):
    button = page.one("#theme")
    backs = {}
    for _ in range(3):
        backs[button.text] = page.js("return getComputedStyle(document.body).backgroundColor")
        button.click()
    assert backs["Theme: dark"] != backs["Theme: light"]
    assert backs["Theme: system"] in (backs["Theme: dark"], backs["Theme: light"])


def test_print_leaves_the_controls_out(driver: webdriver.Chrome, page: Page):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        display = "return getComputedStyle(document.querySelector(arguments[0])).display"
        assert page.js(display, ".controls") == "none"
        assert page.js(display, "#theme") == "none"
        assert page.js(display, "#summary") == "grid"
        pdf = driver.execute_cdp_cmd("Page.printToPDF", {})["data"]
        assert len(pdf) > 20_000
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_run_without_forecasts_shows_its_activities_and_items(
    driver: webdriver.Chrome, source_root: Path, tmp_path: Path
):
    plain = [
        {
            "key": f"file-{k}.csv",
            "activity": "copy" if k % 2 else "check",
            "status": "Succeeded",
            "seconds": 1.0 + k,
            "cpu": 0.0,
            "attempts": 1,
            "metrics": [],
            "labels": [],
        }
        for k in range(6)
    ]
    data = run_of(plain, columns=[], labels=[], scores=[], metricNames=[], facts=[])
    path = tmp_path / "plain.html"
    path.write_text(page_text(source_root, data))
    page = Page(driver).load(path)
    assert page.keys() == [item["key"] for item in plain]
    assert not page.one("#accuracy").is_displayed()
    assert not page.one("#as-plots").is_displayed()
    Select(page.one("#filter-activity")).select_by_value("copy")
    assert page.one("#count").text == "3 of 6 items"
    assert page.errors() == []

    path.write_text(page_text(source_root, {**data, "items": [], "status": "InProgress"}))
    page.load(path)
    assert page.one("#activities").text.count("train") == 1
    assert not page.one("#items").is_displayed()
    assert page.errors() == []


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ({"start": "2015-01-01T00:00:00", "stepSeconds": 0, "stepMonths": 1}, "2030"),
        ({"start": "2015-01-01T00:00:00", "stepSeconds": 86400, "stepMonths": 0}, "Jan"),
        ({"start": "2015-01-01T00:00:00", "stepSeconds": 900, "stepMonths": 0}, "3 Jan"),
        ({"start": "", "stepSeconds": 0, "stepMonths": 0}, "50"),
    ],
)
def test_the_time_axis_fits_the_frequency(
    driver: webdriver.Chrome,
    source_root: Path,
    tmp_path: Path,
    items: list[dict],
    time: dict,
    expected: str,
):
    item = {**items[0], "plot": {**items[0]["plot"], **time}}
    path = tmp_path / "one.html"
    path.write_text(page_text(source_root, run_of([item])))
    page = Page(driver).load(path)
    page.one("tr.item").click()
    page.wait("document.querySelector('tr.detail svg')")
    texts = [text.text for text in page.all("tr.detail svg text")]
    ticks = [text for text in texts if expected in text]
    assert ticks, texts
    assert len(texts) < 30
    assert page.errors() == []
