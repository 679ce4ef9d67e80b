"""Pages of matrices in headless Chromium: cells that others wrote request nothing, run nothing and lead nowhere."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnbridge.matrix.cells import Cell
from nnbridge.matrix.page import as_html


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
    good = {"operations": 2, "on_device": 1, "passed": False, "difference": 1.0, "refused": ((0, bad, bad, bad),)}
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
