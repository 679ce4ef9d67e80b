"""Pages of matrices in headless Chromium: what a reader gets, and that cells of others request nothing and lead nowhere."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnbridge.devices.evidence import Evidence
from nnbridge.matrix.cells import Cell
from nnbridge.matrix.page import as_html
from tests.report.test_browser import violations


@pytest.fixture
def requested() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine, and what was requested of it."""
    found: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.append(self.path)
            self.send_response(204)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    server.server_close()


MARKUP = (
    "<meta http-equiv=refresh content='0;url={0}/meta'>",
    "<form action={0}/form id=f><button>log in</button></form>",
    "<base href={0}/base/><a href=x id=a>a</a>",
    "<script>location='{0}/script'</script>",
    "<img src={0}/img onerror=\"location='{0}/error'\">",
    '"><svg onload="location=\'{0}/svg\'">',
    "<iframe src={0}/frame></iframe><object data={0}/object></object>",
    "<style>@import url({0}/style);</style><link rel=stylesheet href={0}/link><link rel=prefetch href={0}/prefetch>",
    "<a ping={0}/ping href={0}/a autofocus onfocus=\"location='{0}/focus'\">a</a>",
    "<video poster={0}/poster></video><body background={0}/body>",
)


def opened(browser: Any, path: Path) -> tuple[Any, list[str]]:
    """A page a second after it was opened, and what it tried meanwhile."""
    tab = browser.new_page()
    tried: list[str] = []
    tab.on("request", lambda request: None if request.url == path.as_uri() else tried.append(request.url))
    tab.on("dialog", lambda dialog: tried.append(dialog.message))
    tab.on("popup", lambda page: tried.append("popup"))
    tab.goto(path.as_uri())
    tab.wait_for_timeout(1_000)
    return tab, tried


@pytest.mark.parametrize("markup", MARKUP)
def test_no_text_of_a_cell_is_markup(
    markup: str,
    browser: Any,
    requested: tuple[str, list[str]],
    tmp_path: Path,
) -> None:
    address, found = requested
    bad = markup.format(address)
    good = {"operations": 2, "on_device": 1, "within": False, "difference": 1.0, "refused": ((0, bad, bad, bad),)}
    cells = [
        Cell(bad, bad, 8, error=bad),
        Cell(f"{bad}.tflite", bad, 8, mapping=bad, fallback=bad, reference=bad, placed=((bad, bad),), **good),  # type: ignore[arg-type]
    ]
    path = tmp_path / "m.html"
    path.write_text(as_html(cells, {1: [bad]}), encoding="utf-8")
    tab, tried = opened(browser, path)
    foreign = tab.locator(
        "form, base, img, svg, iframe, object, link, a, button:not(.sort), video, main style, main script"
    ).count()
    assert (tab.url, tried, found, foreign, tab.locator("script").count()) == (path.as_uri(), [], [], 0, 1)
    assert bad in tab.locator("body").inner_text()
    tab.close()


def test_what_would_get_into_a_page_may_still_send_nothing(
    browser: Any,
    requested: tuple[str, list[str]],
    tmp_path: Path,
) -> None:
    address, found = requested
    inside = (MARKUP[i].format(address) for i in (1, 2, 3, 4, 6, 7))
    path = tmp_path / "m.html"
    path.write_text(as_html([Cell("m", "d", 8)], {}).replace("</main>", f"{''.join(inside)}</main>"), encoding="utf-8")
    tab, _ = opened(browser, path)
    tab.evaluate("document.getElementById('f').requestSubmit()")
    tab.wait_for_timeout(1_000)
    assert (tab.url, found) == (path.as_uri(), [])
    assert tab.evaluate("document.baseURI") == path.as_uri()
    assert tab.evaluate("getComputedStyle(document.querySelector('td')).textAlign") != ""
    assert tab.evaluate("getComputedStyle(document.body).margin") == "0px"  # its own styles hold
    tab.close()


MODELS = ("mobilenet_v2_1.0_224_quant.tflite", "ssd_mobilenet.onnx", "kws.tflite")
DEVICES = tuple(f"vsi-imx-android-{k}.0.0_1.0.0" for k in range(6))
EVIDENCE = [Evidence(name, "a driver's public code", "verified: 9 random operations", "numbers not emulated", k > 2)
            for k, name in enumerate(DEVICES)]  # fmt: skip


def cells_of(models: tuple[str, ...] = MODELS, devices: tuple[str, ...] = DEVICES) -> list[Cell]:
    """A share of its own for each model, and on the last device an ONNX file that does not apply and a failure."""
    found = [
        Cell(model, device, 8, "", "", 10, 10 - 3 * i, partitions=i + 1, within=True, difference=0.0, unknown=k < 3)
        for i, model in enumerate(models)
        for k, device in enumerate(devices)
    ]
    last = devices[-1]
    return [
        Cell(cell.model, last, 8, inapplicable="a TFLite file")
        if cell.device == last and cell.model.endswith("onnx")
        else Cell(cell.model, last, 8, error="it ended")
        if cell.device == last and cell.model == models[-1]
        else cell
        for cell in found
    ]


def page_of(browser: Any, folder: Path, width: int = 1440, scheme: str = "light", cells: list[Cell] | None = None) -> Any:
    """A page at a width."""
    path = folder / "m.html"
    path.write_text(as_html(cells or cells_of(), {0: ["share: 1"]}, EVIDENCE, {1: "reports/a%20b.html"}), encoding="utf-8")
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    tab.goto(path.as_uri())
    tab.wait_for_selector("#filter")
    return tab


def column(tab: Any, number: int) -> list[str]:
    """The visible texts of a column of the first table."""
    script = f"rows => rows.filter(row => row.offsetParent).map(row => row.cells[{number}].innerText.split('\\n')[0])"
    found: list[str] = tab.locator(".grid").first.locator("tbody tr").evaluate_all(script)
    return found


def heads(tab: Any) -> list[str]:
    """The visible columns of the first table."""
    script = "all => all.filter(one => one.offsetParent).map(one => one.innerText.split('\\n')[0])"
    found: list[str] = tab.locator(".grid").first.locator("thead th").evaluate_all(script)
    return found


def test_the_longer_side_is_down(browser: Any, tmp_path: Path) -> None:
    assert column(page_of(browser, tmp_path), 0) == list(DEVICES)
    assert column(page_of(browser, tmp_path, cells=cells_of(devices=DEVICES[:2])), 0) == list(MODELS)


def test_a_filter_chooses_rows_by_name_columns_by_name_and_rows_by_what_they_have(browser: Any, tmp_path: Path) -> None:
    tab = page_of(browser, tmp_path)
    tab.fill("#filter", "android-4")
    assert (column(tab, 0), tab.text_content("output")) == ([DEVICES[4]], "1 of 6 rows")
    tab.fill("#filter", "KWS")
    assert [name.strip() for name in heads(tab)] == ["device", "kws.tflite"]
    assert len(column(tab, 0)) == 6
    tab.fill("#filter", "failed")
    assert column(tab, 0) == [DEVICES[5]]
    tab.fill("#filter", "failed kws")
    assert (column(tab, 0), len(heads(tab))) == ([DEVICES[5]], 2)
    tab.fill("#filter", "nothing-like-it")
    assert (column(tab, 0), tab.text_content("output")) == ([], "0 of 6 rows")
    tab.fill("#filter", "")
    assert (len(column(tab, 0)), len(heads(tab)), tab.text_content("output")) == (6, 4, "")


def test_a_column_is_sorted_down_up_and_as_it_was(browser: Any, tmp_path: Path) -> None:
    tab = page_of(browser, tmp_path, cells=cells_of(devices=DEVICES[:2] + DEVICES[5:]))
    button = tab.locator(".grid thead th").nth(3).locator("button")
    orders = []
    for _ in range(3):
        button.click()
        orders.append((tab.locator(".grid thead th").nth(3).get_attribute("aria-sort"), column(tab, 3)))
    assert orders == [
        ("descending", ["100% in 1", "n/a", "failed"]),
        ("ascending", ["failed", "n/a", "100% in 1"]),
        (None, ["100% in 1", "n/a", "failed"]),
    ]
    tab.locator(".grid thead button").first.click()
    assert column(tab, 0) == sorted(MODELS)


def test_cells_lead_to_their_reports_and_devices_to_their_evidence(browser: Any, tmp_path: Path) -> None:
    tab = page_of(browser, tmp_path)
    assert tab.locator("td a").evaluate_all("all => all.map(a => a.getAttribute('href'))") == ["reports/a%20b.html"]
    link = tab.locator(".grid tbody th a").nth(1)
    assert link.get_attribute("title") == EVIDENCE[1].clause
    link.click()
    assert "a driver's public code" in tab.locator("tr:target").inner_text()
    assert tab.locator(".grid tbody th small").all_inner_texts() == ["numbers unknown"] * 3 + ["numbers emulated"] * 3


def test_unknown_numbers_are_never_equal(browser: Any, tmp_path: Path) -> None:
    tab = page_of(browser, tmp_path)
    found = tab.locator(".grid tbody tr").evaluate_all("rows => rows.map(row => row.cells[1].innerText)")
    assert [("numbers unknown" in text, "✓ equal" in text) for text in found] == [(True, False)] * 3 + [(False, True)] * 3


def test_columns_out_of_sight_are_announced(browser: Any, tmp_path: Path) -> None:
    names = tuple(f"model{i}.tflite" for i in range(20))
    tab = page_of(browser, tmp_path, cells=cells_of(names, tuple(f"d{k}" for k in range(25))))
    text = tab.text_content(".more")
    assert text.endswith("more columns to the right →")
    tab.locator(".wide").first.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    tab.wait_for_function("document.querySelector('.more').textContent === ''")


CUT = """() => [...document.querySelectorAll("th, td, p, h1, h2")].filter(one => one.offsetParent).flatMap(one => {
  const range = document.createRange(), cut = [];
  const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    for (const word of node.data.matchAll(/[^\\s_.\\/-]+/g)) {
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) cut.push(word[0]);
    }
  }
  return cut;
})"""
"""Words of a page that are broken over two lines."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("devices", [DEVICES, DEVICES[:2]], ids=["devices down", "models down"])
def test_at_each_width_nothing_is_cut_or_beside_the_screen_and_axe_is_content(
    browser: Any, tmp_path: Path, width: int, scheme: str, devices: tuple[str, ...]
) -> None:
    tab = page_of(browser, tmp_path, width, scheme, cells_of(devices=devices))
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(CUT) == []
    assert violations(tab) == []
    tab.add_style_tag(content="th { width: 3ch; max-width: 3ch !important; overflow-wrap: anywhere; }")
    assert tab.evaluate(CUT) != []  # the judge sees what is cut


def reasons_of(browser: Any, folder: Path, refused: list[tuple[int, str, str, str]], width: int) -> Any:
    """The page of one model that two devices refuse alike."""
    cells = [replace(cell, refused=tuple(refused)) for cell in cells_of(("a.tflite",), DEVICES[:2])]
    return page_of(browser, folder, width, cells=cells)


def test_a_reason_is_one_row_with_its_operations_and_devices(browser: Any, tmp_path: Path) -> None:
    kinds = ("org.tensorflow.lite.ADD", "ai.onnx.Add", "ADD")
    tab = reasons_of(browser, tmp_path, [(k, kind, "", "delegate: requires float") for k, kind in enumerate(kinds)], 1440)
    rows = tab.locator("section", has_text="Why operations are not on the device").locator("tbody tr")
    assert rows.count() == 1
    listed = rows.inner_text().replace("\xa0", " ")
    assert "ADD × 4, Add × 2" in listed
    assert ", ".join(DEVICES[:2]) in listed


def test_a_phone_has_the_first_reasons_and_a_button_for_all(browser: Any, tmp_path: Path) -> None:
    tab = reasons_of(browser, tmp_path, [(k, "ADD", "", f"requires rule {k}") for k in range(12)], 390)
    rows = tab.locator("table.plain tbody tr:visible", has_text="requires rule")
    assert rows.count() == 8
    tab.get_by_role("button", name="Show all 12 rows").click()
    assert rows.count() == 12


def test_versions_of_devices_do_not_break(browser: Any, tmp_path: Path) -> None:
    cells = [
        replace(cell, device="vsi-imx-1.3.0", refused=((0, "ADD", "", "requires"),))
        for cell in cells_of(("a.tflite",), DEVICES[:1])
    ]
    tab = page_of(browser, tmp_path, 390, cells=cells)
    assert "1.<wbr>3" not in tab.content()


def test_a_phone_shows_the_cells_of_a_wide_grid_row_by_row(browser: Any, tmp_path: Path) -> None:
    names = tuple(f"model{k}.tflite" for k in range(8))
    tab = page_of(browser, tmp_path, 390, cells=cells_of(names, tuple(f"device{k}" for k in range(9))))
    shown = tab.locator("table.grid tbody td:visible")
    assert shown.count() == 0
    tab.get_by_role("button", name="8 cells").first.click()
    assert shown.count() == 8
    tab.get_by_label("Filter").fill("device3")
    assert shown.count() == 8


def test_the_same_failure_on_many_devices_is_one_row(browser: Any, tmp_path: Path) -> None:
    cells = [replace(cell, error="no such operator") for cell in cells_of(("a.tflite",), tuple(f"device{k}" for k in range(7)))]
    tab = page_of(browser, tmp_path, cells=cells)
    rows = tab.locator("section", has_text="Failures and limits exceeded").locator("tbody tr")
    failed, _ = rows.all_inner_texts()  # The other row is the limit that the first cell exceeds.
    assert "all 7 devices" in failed
