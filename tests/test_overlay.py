"""Node data for Model Explorer, and its adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nnbridge.converters.structure import FileGraph, FileOperator
from nnbridge.explorer.graphs import planned_graphs, tint
from nnbridge.report.overlay import BEYOND, DEVICES, EQUAL, PLACES, WITHIN, operator_key
from tests.commands import call
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder

INT8, FLOAT_ONNX = MODELS / "digits_int8.tflite", MODELS / "digits_float32.onnx"
CPU = PLACES["cpu"]


def export(folder: Path, model: Path, *options: str) -> dict[str, Any]:
    """Kind of facts → the node data that is written."""
    typed = ["report", str(model), "-o", str(folder / "overlay.json"), "--json", *options]
    result = call(*typed, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return {kind: json.loads(Path(file).read_text()) for kind, file in json.loads(result.stdout)["files"].items()}


def abs_then_custom(folder: Path) -> Path:
    """ABS, which aosp-float-fast takes and aosp-minimal does not, and ADD, which both take."""
    file = TfliteBuilder()
    x, y, z = (file.tensor((2,), name=name) for name in ("x", "absolute", "sum"))
    file.operator("ABS", [x], [y], {})
    file.operator("ADD", [y, x], [z], {"fused_activation_function": 0})
    return file.write(folder / "m.tflite", [x], [z])


def test_placement_stands_at_the_name_of_each_operator_s_output(tmp_path: Path) -> None:
    data = export(tmp_path, abs_then_custom(tmp_path), "--device", "aosp-minimal", "--mapping", "wide")
    assert data["placement"]["main"]["results"] == {
        "absolute": {"value": "nnapi-reference", "bgColor": CPU},
        "sum": {"value": "aosp-minimal", "bgColor": DEVICES[0]},
    }


def test_reasons_stand_where_a_device_refuses(tmp_path: Path) -> None:
    data = export(tmp_path, abs_then_custom(tmp_path), "--device", "aosp-minimal", "--mapping", "wide")
    results = data["reason"]["main"]["results"]
    assert list(results) == ["absolute"]
    assert results["absolute"]["value"].startswith("aosp-minimal: requires")


def test_errors_are_in_steps_and_coloured_by_the_verdict(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    data = export(tmp_path, INT8, "--reference", "litert")
    for kind, name in (("own-error", "own error (steps)"), ("drift", "drift (steps)")):
        graph = data[kind]["main"]
        assert graph["name"] == name
        assert {each["bgColor"] for each in graph["results"].values()} <= {EQUAL, WITHIN, BEYOND}
        assert all(each["bgColor"] == EQUAL for each in graph["results"].values() if each["value"] == 0)


def test_errors_of_channels_last_values_find_their_onnx_operators(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    data = export(tmp_path, FLOAT_ONNX, "--reference", "onnxruntime")
    (graph,) = data["drift"].values()
    (placed,) = data["placement"].values()
    assert graph["name"] == "drift (largest difference)"
    assert len(graph["results"]) >= 4
    assert graph["results"].keys() <= placed["results"].keys()


def test_times_have_a_gradient_and_no_colours_of_their_own(tmp_path: Path) -> None:
    graph = export(tmp_path, INT8, "--time")["time"]["main"]
    assert [each["stop"] for each in graph["gradient"]] == [0, 1]
    assert all(each["value"] > 0 and each.keys() == {"value"} for each in graph["results"].values())


def test_an_operator_merged_into_another_is_where_that_one_is(tmp_path: Path) -> None:
    (graph,) = export(tmp_path, FLOAT_ONNX, "--device", "nnapi-sample_full", "--mapping", "wide")["placement"].values()
    merged = [each for each in graph["results"].values() if each["value"].endswith("(merged)")]
    assert merged
    assert {each["bgColor"] for each in merged} <= {DEVICES[0], CPU}


def test_bodies_have_data_of_their_own_under_the_viewer_s_names(tmp_path: Path) -> None:
    main = TfliteBuilder()
    condition, x, y = main.tensor((), "bool", name="condition"), main.tensor((2,), name="x"), main.tensor((2,), name="y")
    numbers = []
    for operator in ("ABS", "NEG"):
        body = main.beside()
        a, b = body.tensor((2,), name="a"), body.tensor((2,), name="b")
        body.operator(operator, [a], [b], {})
        numbers.append(main.add(body, [a], [b]))
        main.others[-1]["name"] = ""
    main.operator("IF", [condition, x], [y], {"then_subgraph_index": numbers[0], "else_subgraph_index": numbers[1]})
    model = main.write(tmp_path / "m.tflite", [condition, x], [y])
    data = export(tmp_path, model, "--device", "aosp-float-fast", "--mapping", "wide")["placement"]
    places = {name: {key: each["value"] for key, each in graph["results"].items()} for name, graph in data.items()}
    assert places == {"main": {"y": "NNAPI"}, "subgraph_1": {"b": "aosp-float-fast"}, "subgraph_2": {"b": "aosp-float-fast"}}


@pytest.mark.parametrize(
    ("tensors", "key"),
    [(("x", "y"), "y"), (("x", ""), "0"), (("y", "y"), "0"), (("0", ""), None)],
    ids=["a name", "no name", "a name of two", "a number that is a name"],
)
def test_the_key_is_an_output_s_name_if_it_has_one_alone(tensors: tuple[str, ...], key: str | None) -> None:
    operator = FileOperator(0, "ABS", (0,), (1,))
    assert operator_key(FileGraph(0, "main", tensors, (operator,), (0,), (1,)), operator) == key


def test_a_plan_s_partitions_are_the_groups_of_a_saved_model(tmp_path: Path) -> None:
    saved = tmp_path / "m.nnapi"
    typed = ["convert", str(abs_then_custom(tmp_path)), "-o", str(saved), "--mapping", "wide"]
    assert call(*typed).exit_code == 0
    (graph,) = planned_graphs(saved, "--device aosp-minimal")
    assert [(node.id, node.group) for node in graph.nodes] == [
        ("inputs", ""),
        ("0", "partition 0 on nnapi-reference"),
        ("1", "partition 1 on aosp-minimal"),
        ("outputs", ""),
    ]
    assert [(edge.source, edge.input) for edge in graph.nodes[2].edges] == [("0", 0), ("inputs", 1)]


def test_bodies_of_an_onnx_file_are_graphs_of_their_own(tmp_path: Path) -> None:
    from tests.onnx.test_control import choice

    main, *bodies = planned_graphs(choice(tmp_path), "--mapping wide --device arm-nn-18.05")
    assert [node.label for node in main.nodes] == ["inputs", "ReduceSum", "Greater", "If", "outputs"]
    assert [graph.name for graph in bodies] == ["then of IF 2", "else of IF 2"]
    assert [[(node.label, node.group) for node in graph.nodes if node.group] for graph in bodies] == [
        [("MUL", "partition 1 on arm-nn-18.05")],
        [("NEG", "partition 2 on nnapi-reference")],
    ]


def test_black_can_be_read_on_a_tint() -> None:
    assert tint("#000000") == "#a6a6a6"  # 255 - 255 * 0.35, rounded up
    assert tint("#ffffff") == "#ffffff"


def test_the_adapter_returns_graphs_that_the_viewer_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = pytest.importorskip("model_explorer", reason="ai-edge-model-explorer is not installed (extra explorer)")
    from nnbridge.explorer.main import NnbridgeAdapter

    monkeypatch.setenv("NNBRIDGE_EXPLORER", "--device nnapi-sample_full --mapping wide")
    (graph,) = NnbridgeAdapter().convert(str(FLOAT_ONNX), {})["graphs"]
    assert isinstance(graph, explorer.graph_builder.Graph)
    assert {edge.sourceNodeId for node in graph.nodes for edge in node.incomingEdges} <= {node.id for node in graph.nodes}
    assert any(node.namespace.startswith("partition") for node in graph.nodes)
