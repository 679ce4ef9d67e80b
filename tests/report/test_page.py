"""``nnbridge report``: the page's data are those of plan, cost and comparison; no name leaves its place; a browser draws it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nnbridge import storage
from nnbridge.cost import bytes_alive, run_order
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperationCode
from tests.commands import call
from tests.conftest import MODELS
from tests.graphs import unary_chain
from tests.report.networks import UNKIND, branching, conditional, looping, unkind
from tests.runtime.planning import compiled, picky

INT8, QDQ = MODELS / "digits_int8.tflite", MODELS / "digits_qdq.onnx"
DRIVER = ("--device", "nnapi-sample_minimal")


def run(*options: object) -> Any:
    return call("report", *map(str, options))


def written(folder: Path, model: Path | Model, *options: object) -> str:
    """The page of a model."""
    if isinstance(model, Model):
        storage.save(model, folder / "model.nnapi")
        model = folder / "model.nnapi"
    result = run(model, "-o", folder / "page.html", *options)
    assert result.exit_code == 0, result.stderr
    return (folder / "page.html").read_text("utf-8")


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def answer(command: str, *options: object) -> dict[str, Any]:
    result = call(command, *map(str, options), "--json")
    data: dict[str, Any] = json.loads(result.stdout)
    return data


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """A page's data, and ``plan --json`` of the same model and devices."""
    return data_in(written(tmp_path_factory.mktemp("page"), QDQ, *DRIVER)), answer("plan", QDQ, *DRIVER)


def test_places_steps_and_cost_are_those_of_plan(digits: tuple[dict[str, Any], dict[str, Any]]) -> None:
    data, plan = digits
    runners = data["plan"]["runners"]
    assert [runners[r]["name"] for r in data["plan"]["r"]] == [o["device"] for o in plan["operations"]]
    assert [data["types"][o["t"]] for o in data["ops"]] == [o["type"] for o in plan["operations"]]
    assert [step["ops"] for step in data["plan"]["steps"]] == [step["operations"] for step in plan["steps"]]
    assert [o["mac"] for o in data["ops"]] == [o["multiply_adds"] for o in plan["cost"]["operations"]]
    assert data["plan"]["crossing"] == plan["cost"]["crossing_bytes"]
    assert data["plan"]["sentence"] == plan["summary"]["sentence"]


def test_each_operation_has_the_reasons_of_plan(digits: tuple[dict[str, Any], dict[str, Any]]) -> None:
    data, plan = digits
    for why, operation in zip(data["plan"]["why"], plan["operations"], strict=True):
        found = [data["plan"]["reasons"][w] for w in why]
        if operation["place"] != "host":
            assert [r["kind"] for r in found] == [r["kind"] for r in operation["reasons"] if r["device"] != "host"]


def test_what_the_client_leaves_to_the_host_has_its_reason(digits: tuple[dict[str, Any], dict[str, Any]]) -> None:
    data, plan = digits
    (outcomes,) = plan["conversion"].values()
    stated = {outcome["index"]: outcome["reasons"][0] for outcome in outcomes["operators"] if outcome["mapping"] == "host"}
    assert stated
    for why, operation in zip(data["plan"]["why"], plan["operations"], strict=True):
        if operation["place"] == "host":
            (reason,) = (data["plan"]["reasons"][w] for w in why)
            assert reason["device"] == "ONNX Runtime's NNAPI provider"
            assert (reason["rule"], reason["kind"]) == tuple(
                stated[operation["operator"]["index"]][key] for key in ("rule", "kind")
            )


def test_outputs_are_compared_as_by_compare(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    options = (*DRIVER, "--reference", "litert", "--seeds", "0")
    found, expected = data_in(written(tmp_path, INT8, *options))["compare"], answer("compare", INT8, *options)
    assert [{k: v for k, v in row.items() if k != "operand"} for row in found["outputs"]] == expected["outputs"]
    assert (found["reference"], found["pass"], found["within"], found["which"]) == ("LiteRT", None, True, "seed 0")


def test_every_operation_has_own_error_and_drift(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    data = data_in(written(tmp_path, INT8, "--reference", "litert", "--seeds", "0"))
    rows = data["layers"]["rows"]
    assert len(rows) == len(data["ops"])
    assert all(row["drift"]["max"] == 0 for row in rows if row)
    assert any(row and row["own"] for row in rows)


def test_without_a_reference_nothing_runs(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, INT8))
    assert (data["compare"], data["layers"], data["times"]) == (None, None, None)


def test_times_are_those_of_steps(tmp_path: Path) -> None:
    times = data_in(written(tmp_path, QDQ, *DRIVER, "--repeat", "2"))["times"]
    assert times["runs"] == 2
    assert all(0 <= least <= middle <= most for middle, least, most in times["steps"])


def test_bodies_stand_behind_their_if(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, conditional(), *DRIVER))
    names = [data["types"][data["ops"][i]["t"]] for i in data["plan"]["order"]]
    assert names == ["FLOOR", "IF", "NEG", "ABS", "ABS", "FLOOR"]
    assert [(s["role"], s["parent"]) for s in data["sources"]] == [("main", None), ("then", 1), ("else", 1)]
    assert [data["ops"][i]["g"] for i in data["plan"]["order"]] == [0, 0, 1, 1, 2, 0]


def test_the_bodies_of_an_if_that_a_device_runs_are_listed(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, conditional(), "--device", "nnapi-sample_all"))
    assert data["ops"][1]["e"] == [["then", [["NEG", 1], ["ABS", 1]]], ["else", [["ABS", 1]]]]


def test_another_plan_stands_beside_the_first(tmp_path: Path) -> None:
    page = written(tmp_path, QDQ, *DRIVER, "--against-device", "nnapi-sample_quant")
    other, plan = data_in(page)["against"], answer("plan", QDQ, "--device", "nnapi-sample_quant")
    assert [other["runners"][r]["name"] for r in other["r"]] == [o["device"] for o in plan["operations"]]


def whole(folder: Path) -> Path:
    """A device that accepts everything, control flow with its bodies too."""
    path = folder / "whole.toml"
    path.write_text(
        '[[device]]\nname = "whole"\nfeature_level = 8\nsource = "none"\nperformance = { other = [0.2, 0.2] }\n\n'
        "[device.operations]\nothers = {}\n"
    )
    return path


def test_a_body_that_the_other_plan_runs_whole_is_where_its_if_is(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, conditional(), *DRIVER, "--against-device", whole(tmp_path)))
    other = data["against"]
    assert [other["runners"][r]["name"] for r in other["r"]] == ["whole"] * 6
    assert other["inner"] == []


def test_bodies_that_only_the_other_plan_interprets_stand_at_their_if(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, conditional(), "--device", whole(tmp_path), "--against-device", "nnapi-sample_minimal"))
    other = data["against"]
    assert [(o["t"], o["of"], o["within"]) for o in other["inner"]] == [
        ("NEG", 1, "then of IF 1"),
        ("ABS", 1, "then of IF 1"),
        ("ABS", 1, "else of IF 1"),
    ]
    assert [other["runners"][o["r"]]["name"] for o in other["inner"]] == ["nnapi-reference"] * 3


def test_nested_bodies_have_their_places_in_both_plans(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, looping(), *DRIVER, "--against-device", "arm-nn-18.05"))
    plan, other = data["plan"], data["against"]
    moved = [
        (data["types"][op["t"]], plan["runners"][a]["name"], other["runners"][b]["name"])
        for op, a, b in zip(data["ops"], plan["r"], other["r"], strict=True)
        if a >= 0 and plan["runners"][a]["name"] != other["runners"][b]["name"]
    ]
    assert moved == [
        ("FLOOR", "nnapi-reference", "arm-nn-18.05"),
        ("ADD", "nnapi-sample_minimal", "arm-nn-18.05"),
        ("FLOOR", "nnapi-reference", "arm-nn-18.05"),
    ]


def test_tensors_live_from_their_operation_to_their_last_reader() -> None:
    # x, t0 and y of 16 bytes each: x and t0 in the first operation, t0 and y in the second
    partition = compiled(unary_chain(OperationCode.ABS, OperationCode.NEG), picky("d", 0.5)).plan.partition
    assert run_order(partition) == ((0, 0), (0, 1))
    assert bytes_alive(partition) == (32, 32)


def test_what_an_if_reads_lives_to_the_end_of_its_bodies() -> None:
    # condition 1, x, before, chosen, t0 and after 16 bytes each
    compilation = Compilation.create(conditional(), [])
    compilation.finish()
    partition = compilation.plan.partition
    assert run_order(partition) == ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (0, 2))
    assert bytes_alive(partition) == (33, 33, 49, 49, 33, 32)


def test_names_do_not_become_markup(tmp_path: Path) -> None:
    page = written(tmp_path, unkind())
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.search(r"<(img|b)\b", page)
    data = data_in(page)
    assert [data["operands"][o["o"][0]]["n"] for o in data["ops"]] == list(UNKIND)


def test_only_its_own_script_may_run_and_nothing_is_fetched(tmp_path: Path) -> None:
    page = written(tmp_path, unkind())
    script = page.rsplit("<script>", 1)[1].rsplit("</script>", 1)[0]
    seal = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{seal}'" in page
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["']?(https?:|//)|@import|url\(""", page)


def test_names_that_are_not_unicode_are_written(tmp_path: Path) -> None:
    path = tmp_path / b"m\xff.nnapi".decode("utf-8", "surrogateescape")
    try:
        storage.save(unary_chain(OperationCode.ABS), path)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    assert data_in(written(tmp_path, path))["model"]["file"] == path.name


def test_the_page_has_no_folder_of_the_users(tmp_path: Path) -> None:
    page = written(tmp_path, INT8, *DRIVER)
    assert "nnbridge report digits_int8.tflite --output page.html --device nnapi-sample_minimal" in page
    assert str(tmp_path) not in page
    assert str(MODELS) not in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "page.txt"), "expected a file that ends in .html, found page.txt"),
        (("-o", "page.html", "--seeds", "0"), "nothing runs without --reference or --repeat"),
        (("-o", "page.html", "--no-layers"), "it belongs to --reference"),
        (("-o", "page.html", "--device", "none-such"), "none-such"),
        (("-o", "no-such-folder/page.html"), "no-such-folder"),
    ],
)
def test_a_mistake_is_stated_and_nothing_written(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    typed = [tmp_path / option if "page" in option else option for option in options]
    result = run(INT8, *typed)
    assert result.exit_code == 2
    assert said.replace("page.txt", str(tmp_path / "page.txt")) in result.stderr
    assert not list(tmp_path.iterdir())


def drawn(page: Path) -> tuple[str, str]:
    """The page as headless Chromium draws it, and its console."""
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("needs Chromium, which is not installed")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0")
    command = [browser, *options, f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", page.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode or not result.stdout:
        pytest.skip(f"Chromium does not start here: {result.stderr[-200:]}")
    return result.stdout.replace("&nbsp;", " "), "\n".join(line for line in result.stderr.splitlines() if "CONSOLE" in line)


def test_a_browser_draws_two_thousand_operations_without_a_message(tmp_path: Path) -> None:
    written(tmp_path, branching(2000), "--device", "arm-nn-18.05")
    page, console = drawn(tmp_path / "page.html")
    assert console == ""
    assert "<h1>On arm-nn-18.05: 1,716 of 2,000 operations in 143 partitions on the device, 284 on NNAPI’s CPU.</h1>" in page
    assert 'aria-rowcount="2001"' in page
    assert "MAXIMUM" in page


def test_a_browser_draws_comparison_bodies_and_unkind_names_without_a_message(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    options = ("--reference", "litert", "--seeds", "0", "--repeat", "1", "--against-device", "nnapi-sample_quant")
    for model, said in ((INT8, "equal bit for bit"), (conditional(), "NNAPI’s runtime"), (unkind(), "⟨202E⟩gnp.evil")):
        written(tmp_path, model, *DRIVER, *(options if model is INT8 else ()))
        page, console = drawn(tmp_path / "page.html")
        assert console == ""
        assert said in page
        assert page.count("<script") == 2


def test_a_file_that_is_named_like_an_option_is_none_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "--seeds=0;echo.tflite").write_bytes((MODELS / "digits_float32.tflite").read_bytes())
    data = data_in(written(tmp_path, tmp_path / "--seeds=0;echo.tflite"))
    assert any("'./--seeds=0;echo.tflite'" in command for command in data["made"]["commands"])


def test_the_command_of_a_page_has_no_options_of_the_output(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, MODELS / "digits_int8.tflite", *DRIVER, "--quiet", "--top", "3"))
    assert [command for command in data["made"]["commands"] if "--quiet" in command or "--top" in command] == []


def test_the_page_has_the_first_line_of_plan(tmp_path: Path) -> None:
    plan = data_in(written(tmp_path, MODELS / "digits_int8.tflite", *DRIVER))["plan"]
    assert plan["judgement"] == answer("plan", MODELS / "digits_int8.tflite", *DRIVER)["summary"]["judgement"]


def test_a_page_without_a_name_has_the_models_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # The second overwrites the first.
        assert run(INT8).stdout.splitlines()[-1].startswith("digits_int8.html: ")
    assert data_in((tmp_path / "digits_int8.html").read_text("utf-8"))["model"]["name"] == "digits_int8"


@pytest.mark.parametrize("content", ["notes", "<!doctype html><title>mine</title>", ""])
def test_a_file_that_is_no_page_is_overwritten_only_if_it_is_named(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "digits_int8.html"
    mine.write_text(content)
    refused = run(INT8)
    assert refused.exit_code == 2
    assert "--output: expected the name of a page to write" in refused.stderr
    assert mine.read_text() == content
    assert run(INT8, "-o", mine).exit_code == 0


@pytest.mark.parametrize(("there", "note"), [(True, ""), (False, "--open: no browser was found; page.html is the page\n")])
def test_open_shows_the_page_in_the_browser(there: bool, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: (opened.append(address), there)[1])
    result = run(INT8, "-o", "page.html", "--open")
    assert opened == [(tmp_path / "page.html").as_uri()]
    assert result.stderr == note


@pytest.mark.parametrize("options", [DRIVER, ("--device", "tflite-gpu-delegate"), ("--device", "nnapi-sample_quant"), ()])
@pytest.mark.parametrize("model", [INT8, QDQ], ids=["tflite", "onnx"])
def test_counts_are_those_of_the_sentence(model: Path, options: tuple[str, ...], tmp_path: Path) -> None:
    if "tflite-gpu-delegate" in options and model == QDQ:
        pytest.skip("that device looks at TFLite files only")
    plan = data_in(written(tmp_path, model, *options))["plan"]
    counts, sentence = plan["counts"], plan["sentence"]
    assert counts["device"] + sum(counts["elsewhere"].values()) == counts["total"]
    assert f"of {counts['total']} operator" in sentence
    for place, count in counts["elsewhere"].items():
        # The sentence says of NNAPI's CPU that it runs something only beside a device.
        assert f"{count} run on {place}" in sentence or f"{count} runs on {place}" in sentence or not counts["device"]


def test_estimates_are_those_of_plan(tmp_path: Path) -> None:
    device = ("--device", "ethos-u65-256")
    (found,), (expected,) = (
        data_in(written(tmp_path, INT8, *device))["estimates"],
        answer("plan", INT8, *device, "--estimate")["estimates"],
    )
    assert [part["us"] for part in found["partitions"]] == [part["us"] for part in expected["partitions"]]
    assert [part["peak_bytes"] for part in found["partitions"]] == [part["peak_bytes"] for part in expected["partitions"]]
    assert [(c["choice"], c["us"]) for c in found["choices"]] == [(c["choice"], c["us"]) for c in expected["choices"]]
    assert (found["pays"], found["factor"]) == (expected["pays"], expected["band"]["factor"])


def test_a_device_without_a_cost_model_has_what_its_driver_declares(tmp_path: Path) -> None:
    data = data_in(written(tmp_path, INT8, *DRIVER))
    assert data["estimates"] == []
    (driver,) = (r for r in data["plan"]["runners"] if r["place"] == "device")
    assert driver["declared"]["TENSOR_FLOAT32"] == pytest.approx(0.4)
