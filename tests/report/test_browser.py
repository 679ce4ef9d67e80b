"""Report pages in headless Chromium: axe-core's rules, what assistive technology gets, pages that are hard to draw."""

from __future__ import annotations

import csv
import io
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnbridge.model import Model
from nnbridge.report.page.html import page as page_html
from nnbridge.types import OperationCode
from tests.compare.test_detections import swapped_files
from tests.conftest import MODELS
from tests.graphs import unary_chain
from tests.report.networks import crowded, looping, unkind
from tests.report.test_page import DRIVER, data_in, written

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
AGAINST = (*DRIVER, "--against-device", "nnapi-sample_quant")


def opened(browser: Any, page: Path, width: int = 1440, scheme: str = "light") -> tuple[Any, list[str]]:
    """A page that has been drawn, and what went wrong meanwhile: console messages, errors, requests."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    problems: list[str] = []
    tab.on("console", lambda message: problems.append(message.text))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else problems.append(request.url)
    )
    tab.goto(page.as_uri())
    tab.wait_for_function("window.__ready || document.querySelector('main:empty')")
    return tab, problems


def accessible(tab: Any) -> list[dict[str, Any]]:
    """The nodes of the accessibility tree in their order: role, name, properties."""
    nodes = tab.context.new_cdp_session(tab).send("Accessibility.getFullAXTree")["nodes"]
    by_id = {node["nodeId"]: node for node in nodes}
    found: list[dict[str, Any]] = []

    def visit(node: dict[str, Any]) -> None:
        if not node.get("ignored"):
            properties = {p["name"]: p["value"].get("value") for p in node.get("properties", ())}
            found.append({**properties, "role": node["role"]["value"], "name": node.get("name", {}).get("value", "")})
        for child in node.get("childIds", ()):
            visit(by_id[child])

    visit(nodes[0])
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a model with control flow, beside another plan."""
    folder = tmp_path_factory.mktemp("browser")
    written(folder, looping(), *AGAINST)
    return folder / "page.html"


def violations(tab: Any) -> list[tuple[str, Any]]:
    """The violations that axe-core finds."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core: pip install 'nnbridge[dev]'")
    result = axe.Axe().run(tab, options={"runOnly": RULES})
    return [(violation["id"], violation["nodes"][0]["target"]) for violation in result.response["violations"]]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_axe_finds_no_violation(browser: Any, page: Path, width: int, scheme: str) -> None:
    tab, problems = opened(browser, page, width, scheme)
    assert violations(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert problems == []


def test_axe_finds_no_violation_with_a_comparison(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    written(tmp_path, MODELS / "digits_int8.tflite", *DRIVER, "--reference", "litert", "--seeds", "0", "--repeat", "1")
    assert violations(opened(browser, tmp_path / "page.html", 1440, "dark")[0]) == []


def test_landmarks_and_headings_are_in_order(browser: Any, page: Path) -> None:
    nodes = accessible(opened(browser, page)[0])
    roles = [node["role"] for node in nodes]
    assert [roles.count(role) for role in ("banner", "navigation", "main")] == [1, 1, 1]
    levels = [node["level"] for node in nodes if node["role"] == "heading"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))


def test_everything_to_read_or_operate_has_a_name(browser: Any, page: Path) -> None:
    named = {"table", "grid", "image", "button", "link", "searchbox", "combobox", "slider", "application", "region", "checkbox"}
    assert [node for node in accessible(opened(browser, page)[0]) if node["role"] in named and not node["name"]] == []


def test_the_drawn_parts_have_an_alternative_in_words(browser: Any, page: Path) -> None:
    tab, _ = opened(browser, page)
    tab.focus("#strip canvas")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    nodes = accessible(tab)
    assert any(n["role"] == "slider" and n["name"] == "Band of 10\u00a0operations in run order" for n in nodes)
    assert tab.get_attribute("#strip canvas", "aria-valuetext") == "operation 2, LESS, on NNAPI’s CPU"
    assert tab.text_content("#live") == "Operation 2, LESS, on nnapi-reference, refused elsewhere"
    assert next(n for n in nodes if n["role"] == "application")["name"].startswith("Graph of 10 operations.")
    assert sum(n["role"] == "row" for n in nodes) > 10


def test_bodies_of_control_flow_stand_beside_the_other_plan(browser: Any, page: Path) -> None:
    tab, _ = opened(browser, page)
    assert "1 of 10 operations" in tab.inner_text("h1").replace("\xa0", " ")
    assert "4 ADD" in tab.inner_text("#against table")


def test_the_other_plan_says_why_an_operation_left_a_device_that_would_accept_it(browser: Any, tmp_path: Path) -> None:
    written(tmp_path, looping(), *DRIVER, "--against-device", "nnapi-sample_full")
    tab, _ = opened(browser, tmp_path / "page.html")
    assert "which wins ties" in tab.inner_text("#against table")


def test_unkind_names_reach_assistive_technology_as_visible_signs(browser: Any, tmp_path: Path) -> None:
    written(tmp_path, unkind(), *DRIVER)
    tab, problems = opened(browser, tmp_path / "page.html", 390)
    names = " ".join(node["name"] for node in accessible(tab))
    assert "⟨202E⟩gnp.evil" in names
    assert "\u202e" not in names
    assert problems == []


def test_a_table_that_is_saved_holds_no_formula(browser: Any, tmp_path: Path) -> None:
    model = unary_chain(*[OperationCode.FLOOR] * 4)
    names = ("=1+1", "a;=1+1", " @SUM(A1)", "line\n=1+1")
    operations = tuple(replace(o, name=name) for o, name in zip(model.main.operations, names, strict=True))
    written(tmp_path, replace(model, main=replace(model.main, operations=operations)))
    tab, problems = opened(browser, tmp_path / "page.html")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Save as CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8"))))
    assert [row["name"] for row in rows] == ["'=1+1", "a;'=1+1", "' @SUM(A1)", "line⟨000A⟩=1+1"]
    assert problems == []


PAIRS = [
    (MODELS / "digits_int8.tflite", DRIVER),
    (MODELS / "digits_int8.tflite", ("--device", "tflite-gpu-delegate")),
    (MODELS / "digits_qdq.onnx", ("--device", "nnapi-sample_float_fast")),
    (MODELS / "digits_float32.tflite", ("--device", "nnapi-sample_full", "--fallback", "cpu")),
    (MODELS / "digits_float32.tflite", ("--device", "nnapi-sample_minimal")),
]


@pytest.mark.parametrize(("model", "options"), PAIRS)
def test_the_headline_counts_what_the_lines_below_it_do(
    browser: Any, tmp_path: Path, model: Path, options: tuple[str, ...]
) -> None:
    counts = data_in(written(tmp_path, model, *options))["plan"]["counts"]
    tab, _ = opened(browser, tmp_path / "page.html")
    head, lines = (tab.inner_text(part).replace("\xa0", " ").replace("’", "'") for part in ("h1", ".say"))
    total, device = f"{counts['total']} operators", counts["device"]
    share = "none" if not device else "all" if device == counts["total"] else str(device)
    assert re.search(rf": {share} (of )?{total}", head)
    assert re.search(rf"of {total}", lines)
    partitions = int(re.search(r"Partitions\n(\d+)", tab.inner_text(".tiles"))[1])  # type: ignore[index]
    assert [int(re.findall(r"(\d+) partition", text)[-1]) for text in (head, lines) if device] == [partitions] * 2 * bool(device)
    for place, count in counts["elsewhere"].items():
        assert f"{count} on {place}" in head
        assert re.search(rf"\b{count} runs? on {place}", lines)


def test_a_comparison_by_matched_boxes_is_the_verdict_on_the_page(browser: Any, tmp_path: Path) -> None:
    model, reference = swapped_files(tmp_path)
    tab = opened(browser, page_of(tmp_path, model, "--reference", str(reference)))[0]
    lines = tab.inner_text(".say").replace("\xa0", " ")
    assert "pass by matched boxes (3 of 3, worst IoU 1.000); by position 6 values are beyond tolerance" in lines
    tiles = tab.inner_text(".tiles").replace("\xa0", " ")
    assert "Boxes found\n3 of 3" in tiles
    assert "✓ pass worst IoU 1.000" in tiles
    assert tab.inner_text("#io").count("by matched boxes") == 5  # a row for each output, and the sentence


def page_of(folder: Path, model: Path | Model, *options: str) -> Path:
    written(folder, model, *options)
    return folder / "page.html"


def test_no_part_of_the_page_passes_a_device_whose_numbers_are_unknown(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    options = ("--device", "arm-nn-18.05", "--reference", "litert", "--seeds", "0")
    tab = opened(browser, page_of(tmp_path, MODELS / "digits_int8.tflite", *options))[0]
    assert "Numbers of arm-nn-18.05 unknown" in tab.inner_text(".say")
    for part in (".tiles", "#io"):
        assert "? outside tolerance, the device’s numbers unknown" in tab.inner_text(part)
        assert "✕ fail" not in tab.inner_text(part)


def test_no_part_of_the_page_passes_a_device_on_which_nothing_runs(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    options = ("--device", "edgetpu", "--reference", "litert", "--seeds", "0")
    tab = opened(browser, page_of(tmp_path, MODELS / "digits_float32.tflite", *options))[0]
    assert "Nothing runs on edgetpu; what TFLite’s CPU computed: within tolerance" in tab.inner_text(".say").replace("\xa0", " ")
    for part in (".tiles", "#io"):
        assert "? within tolerance, nothing on the device" in tab.inner_text(part)
        assert "✓ pass" not in tab.inner_text(part)


def test_estimates_are_marked_as_such(browser: Any, tmp_path: Path) -> None:
    tab = opened(browser, page_of(tmp_path, MODELS / "digits_int8.tflite", "--device", "ethos-u65-256"))[0]
    assert "Estimated, not measured:" in tab.inner_text(".say")
    section = tab.inner_text("#estimates")
    assert "nothing here is measured" in section
    assert "MiB" in section or "KiB" in section


def test_labels_of_the_graph_do_not_lie_over_each_other(browser: Any, tmp_path: Path) -> None:
    device = tmp_path / "joining.toml"
    device.write_text(
        '[[device]]\nname = "joining"\nfeature_level = 8\nsource = "none"\nperformance = { other = [0.2, 0.2] }\n\n'
        "[device.operations]\nCONCATENATION = {}\n"
    )
    page = page_of(tmp_path, crowded(), "--device", str(device))
    tab, problems = opened(browser, page)
    labels = tab.evaluate("window.__labels")
    assert len(labels) > 2  # bytes on the edges into the only operation on the device
    for one, other in itertools.combinations(labels, 2):
        assert one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3], (one, other)
    assert problems == []


# Text that its own box cuts, and what lies outside the page: words in a line of a sentence are whole.
CUT = """() => [...document.querySelectorAll(".nav a, .name, h1, h2, .say span, .tile *, .vt .row > div, .rows td")]
  .filter((e) => { const r = e.getBoundingClientRect(), inline = getComputedStyle(e).display === "inline";
    return r.width && (r.right > innerWidth + 1 || (!inline && e.scrollWidth > e.clientWidth + 1)); })
  .map((e) => `${e.className || e.tagName}: ${e.textContent}`)"""


def test_nothing_is_cut_at_390_pixels(browser: Any, tmp_path: Path) -> None:
    page = page_of(tmp_path, MODELS / "digits_int8.tflite", *DRIVER)
    tab = opened(browser, page, 390)[0]
    assert tab.evaluate(CUT) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_long_name_breaks_after_its_signs_alone(browser: Any, page: Path) -> None:
    tab = opened(browser, page, 390)[0]
    broken = tab.evaluate("""() => [...document.querySelectorAll(".long")].flatMap((e) => [...e.childNodes])
      .filter((n) => { const r = document.createRange(); r.selectNodeContents(n); return r.getClientRects().length > 1; })
      .map((n) => n.textContent)""")
    assert broken == []


def with_reasons(folder: Path, texts: list[tuple[str, str]]) -> Path:
    """The page of a file of which the provider refuses every operator, for these rules and what was found in turn."""
    data = data_in(written(folder, MODELS / "digits_qdq.onnx", "--device", "nnapi-sample_quant"))
    plan = data["plan"]
    reason = {key: part for key, part in plan["reasons"][0].items() if key != "kind"}
    plan["reasons"] = [{**reason, "rule": rule, "found": found} for rule, found in texts]
    plan["why"] = [[k % len(texts)] for k in range(len(data["ops"]))]
    path = folder / "page.html"
    path.write_bytes(page_html(data))
    return path


def test_reasons_that_differ_only_in_what_was_found_are_one_row(browser: Any, tmp_path: Path) -> None:
    tab, problems = opened(browser, with_reasons(tmp_path, [("known shapes", f"shape {k}") for k in range(7)]))
    assert tab.locator("#why tbody tr").count() == 1
    assert "it requires known shapes, found shape 0 and 6 other values" in tab.inner_text("#why tbody").replace("\xa0", " ")
    tab.get_by_role("button", name="Show", exact=True).click()
    assert "35 operations in all" in tab.inner_text("#ops").replace("\xa0", " ")
    assert problems == []


def test_a_phone_has_the_first_rows_of_a_long_table_and_a_button_for_all(browser: Any, tmp_path: Path) -> None:
    path = with_reasons(tmp_path, [(f"rule {k}", f"shape {k}") for k in range(9)])
    tab, problems = opened(browser, path, 390)
    rows = tab.locator("#why tbody tr:visible")
    assert rows.count() == 5
    tab.locator("#why").get_by_role("button", name="Show all 9 rows").click()
    assert rows.count() == 9
    assert problems == []
    assert opened(browser, path)[0].locator("#why tbody tr:visible").count() == 9


def test_a_column_of_nothing_is_left_out(browser: Any, tmp_path: Path) -> None:
    tab, _ = opened(browser, with_reasons(tmp_path, [("a rule", "something")]))
    assert "Bytes moved" not in tab.inner_text("#why thead")  # All is one step: nothing crosses a border.
    assert "Multiply-adds" in tab.inner_text("#why thead")


@pytest.mark.parametrize("width", [1440, 390])
def test_tiles_of_long_names_stay_on_the_screen(browser: Any, tmp_path: Path, width: int) -> None:
    data = data_in(written(tmp_path, MODELS / "digits_int8.tflite", *DRIVER))
    data["types"] = [f"{name}_OF_A_VERY_LONG_NAME_WITHOUT_A_BLANK" for name in data["types"]]
    (tmp_path / "page.html").write_bytes(page_html(data))
    tab, _ = opened(browser, tmp_path / "page.html", width)
    assert (
        tab.evaluate("Math.max(...[...document.querySelectorAll('.tile')].map((e) => e.getBoundingClientRect().right))") <= width
    )
