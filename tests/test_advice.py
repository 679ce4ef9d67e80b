"""Advice on operators that a device refuses: the smallest change of each, planned; of TFLite, ONNX and saved models."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import load
from nnbridge.advice import Advice, Alone, Editing, Outcome, Planner, found_by, rank
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.converters.edits import WHOLE, Adjustable, Answers, Content, Edit
from nnbridge.errors import Why
from nnbridge.file import ModelFile
from nnbridge_onnx.edits import REWRITES
from tests.conftest import MODELS, requires_recent_onnx_runtime
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_edits import call, unpack

FLOAT32, INT8 = str(MODELS / "digits_float32.tflite"), str(MODELS / "digits_int8.tflite")
FLOAT = 1
"""ONNX's number of float32."""
PROFILE = """
[[device]]
name = "npu"
feature_level = 8
[device.performance]
other = [0.1, 0.1]
[device.operations]
CONV_2D = {{ {conv} }}
DEPTHWISE_CONV_2D = {{ {depthwise} }}
AVERAGE_POOL_2D = {{ {pool} }}
ADD = {{}}
CONCATENATION = {{}}
FULLY_CONNECTED = {{}}
MAX_POOL_2D = {{}}
PAD = {{}}
RELU = {{}}
RELU6 = {{}}
RESHAPE = {{}}
SOFTMAX = {{}}
STRIDED_SLICE = {{}}
"""


def npu(folder: Path, conv: str = "", depthwise: str = "", pool: str = "") -> str:
    path = folder / "npu.toml"
    path.write_text(PROFILE.format(conv=conv, depthwise=depthwise, pool=pool), encoding="utf-8")
    return str(path)


def advised(model: str, device: str) -> Any:
    planned = call("plan", model, "--device", device, "--advice")
    return [(one["kind"], one["text"]) for one in planned["advice"]], planned["unmoved"]


def test_a_condition_on_a_product_is_met_by_the_next_smaller_kernel(tmp_path: Path) -> None:
    found, unmoved = advised(FLOAT32, npu(tmp_path, conv='rules = [{ require = "filter.h * filter.w <= 4" }]'))
    assert (found, unmoved) == ([("change", "0 CONV_2D: kernel 3 → 2")], [])


def test_a_change_that_the_rest_does_not_fit_is_named_for_the_operator_alone(tmp_path: Path) -> None:
    found, unmoved = advised(FLOAT32, npu(tmp_path, pool="at_most = { stride_w = 1 }"))
    assert found == []
    assert [(one["operator"]["operator"], one["alone"]) for one in unmoved] == [("AVERAGE_POOL_2D", "stride_w 2 → 1")]


def test_more_channels_that_are_cut_off_leave_every_bit_of_the_answers(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    device, target = npu(tmp_path, depthwise='rules = [{ require = "input.c % 16 == 0" }]'), tmp_path / "after.tflite"
    done = call("rewrite", INT8, "--device", device, "--advice", "1", "-o", str(target))
    assert done["text"] == "1 DEPTHWISE_CONV_2D: channels, sliced off afterwards 8 → 16"
    values = seeded_inputs(load(INT8), 0)
    before, after = reference("litert", Path(INT8)).run(values), reference("litert", target).run(values)
    assert [answer.tobytes() for answer in before] == [answer.tobytes() for answer in after]


def test_an_edit_that_changes_answers_is_written_only_on_request(tmp_path: Path) -> None:
    device, target = npu(tmp_path, conv="at_most = { filter_h = 2 }"), tmp_path / "after.tflite"
    request = ("rewrite", FLOAT32, "--device", device, "--advice", "1", "-o", str(target))
    assert "expected an edit that does not change outputs, or --inexact" in call(*request, status=2)
    assert not target.exists()
    assert call(*request, "--inexact")["exact"] is False
    assert call("plan", str(target), "--device", device)["summary"]["elsewhere"] == {}


def test_a_file_in_8_bits_is_planned_and_not_written(tmp_path: Path) -> None:
    device = npu(tmp_path, conv='types = ["QUANT8_ASYMM"]')
    found, _ = advised(FLOAT32, device)
    (number,) = (k for k, one in enumerate(found, 1) if one == ("calibrate", "whole file: quantised to uint8"))
    request = ("rewrite", FLOAT32, "--device", device, "--advice", str(number), "-o", str(tmp_path / "o.tflite"), "--inexact")
    assert "expected an edit that needs no data" in call(*request, status=2)


def test_int8_is_advised_as_uint8_for_devices_of_older_androids() -> None:
    assert ("change", "whole file: uint8 in place of int8, one scale for each filter") in advised(INT8, "arm-nn-19.02")[0]


def test_initialisers_that_are_inputs_become_constants(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path, target = tmp_path / "weights.onnx", tmp_path / "after.onnx"
    model = onnx.load(str(MODELS / "digits_float32.onnx"))
    made = [onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer]
    model.graph.input.extend(made)
    onnx.save(model, str(path))
    found, _ = advised(str(path), "arm-nn-21.11")
    (number,) = (k for k, one in enumerate(found, 1) if one[1] == "whole file: initialisers as constants, not as inputs")
    request = ("rewrite", str(path), "--device", "arm-nn-21.11", "--advice", str(number), "-o", str(target))
    assert "not bit-exact: outputs differ in probabilities" in call(*request, status=2)
    assert not target.exists()
    call(*request, "--inexact")
    assert load(target).main.inputs
    assert len(onnx.load(str(target)).graph.input) == 1


def test_an_edit_that_may_round_elsewhere_is_exact_where_no_bit_differs(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path, target = tmp_path / "product.onnx", tmp_path / "after.onnx"
    # A sum of one product is rounded alike, on the host or in NNAPI.
    shapes = {"x": [1, 1, 4, 4], "factor": [1, 1, 1, 1], "y": [1, 1, 4, 4]}
    x, factor, y = (onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items())
    constant = onnx.numpy_helper.from_array(np.full((1, 1, 1, 1), 0.3, np.float32), "factor")
    node = onnx.helper.make_node("Conv", ["x", "factor"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x, factor], [y], [constant])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), str(path))
    found, _ = advised(str(path), "arm-nn-21.11")
    (number,) = (k for k, one in enumerate(found, 1) if one == ("round", "whole file: initialisers as constants, not as inputs"))
    done = call("rewrite", str(path), "--device", "arm-nn-21.11", "--advice", str(number), "-o", str(target))
    assert (done["kind"], done["exact"], done["inputs"]) == ("round", True, 10)
    assert len(onnx.load(str(target)).graph.input) == 1


def test_a_clip_becomes_max_and_min_with_the_same_bits_in_onnx_runtime(tmp_path: Path) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path, target = tmp_path / "clip.onnx", tmp_path / "after.onnx"
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy")
    bounds = [onnx.numpy_helper.from_array(np.float32(v), name) for name, v in (("low", -0.5), ("high", 0.25))]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Clip", ["x", "low", "high"], ["y"])], "g", [x], [y], bounds)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), str(path))
    (edit,) = (edit for edit in ModelFile(path).edits if edit.text == "Max, then Min")
    edit.content().write(target)
    for seed in range(5):
        values = seeded_inputs(load(path), seed)
        (before,), (after,) = (reference("onnxruntime", file).run(values) for file in (path, target))
        assert before.tobytes() == after.tobytes()


@cache
def _nodes() -> Any:
    """One model for each operator that has exact rewrites, of ONNX's own node tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = pytest.importorskip("onnx.backend.test.case.node").collect_testcases(None)
    exact = {operator for rewrite in REWRITES if rewrite.answers is Answers.SAME for operator in rewrite.operators}
    return {case.name: case.model for case in cases if case.model is not None and case.model.graph.node[0].op_type in exact}


def test_exact_rewrites_of_onnxs_own_node_tests_have_the_same_bits_in_onnx_runtime(tmp_path: Path) -> None:
    requires_recent_onnx_runtime()
    path, target, proven = tmp_path / "node.onnx", tmp_path / "after.onnx", set()
    for model in (model for model in _nodes().values() if model.graph.input[0].type.tensor_type.elem_type == FLOAT):
        path.write_bytes(model.SerializeToString())
        for edit in [edit for edit in ModelFile(path).edits if edit.answers is Answers.SAME]:
            if (edit.operator, edit.text) in proven:
                continue
            edit.content().write(target)
            before, after = (reference("onnxruntime", file) for file in (path, target))
            for seed in range(5):
                values = seeded_inputs(load(path), seed)
                bits = [[array.tobytes() for array in file.run(values)] for file in (before, after)]
                assert bits[0] == bits[1], (edit.operator, edit.text)
            proven.add((edit.operator, edit.text))
    assert len(proven) >= 20


@pytest.mark.parametrize("name", ["test_clip", "test_squeeze", "test_unsqueeze_two_axes", "test_split_variable_parts_2d_opset18"])
def test_numbers_that_are_computed_are_not_rewritten(name: str, tmp_path: Path) -> None:
    path = tmp_path / "node.onnx"
    path.write_bytes(_nodes()[name].SerializeToString())
    assert [edit.text for edit in ModelFile(path).edits if edit.index == 0] == []


def test_a_saved_model_has_rewrites_too(tmp_path: Path) -> None:
    saved, target = str(tmp_path / "digits.nnapi"), tmp_path / "after.nnapi"
    call("convert", FLOAT32, "-o", saved)
    device = npu(tmp_path, depthwise="values = { activation = [0] }")
    assert advised(saved, device)[0] == [("rewrite", "1 DEPTHWISE_CONV_2D: its fused activation as an operation of its own")]
    call("rewrite", saved, "--device", device, "--advice", "1", "-o", str(target))
    assert call("plan", str(target), "--device", device)["summary"]["elsewhere"] == {}


def test_an_index_beyond_the_file_has_nothing_to_change() -> None:
    assert ModelFile(FLOAT32).adjustable(0, 99) is None
    assert ModelFile(FLOAT32).adjustable(7, 0) is None


def test_what_a_device_accepts_before_nnapi_counts_as_accepted_where_nnapi_has_no_operation(tmp_path: Path) -> None:
    file, inputs, outputs = unpack()
    planned = call("plan", str(file.write(tmp_path / "unpack.tflite", inputs, outputs)), "--device", "ethos-u85-256", "--advice")
    found = {one["text"]: one["after"]["elsewhere"] for one in planned["advice"]}
    assert found["whole file: quantised to int8"] == 0


def test_an_operator_with_a_restricted_scale_is_advised_another_scale(tmp_path: Path) -> None:
    file = TfliteBuilder()
    data = file.tensor((1, 4), "uint8", scale=0.5, zero_point=0)
    weights = file.constant(np.ones((2, 4), np.uint8), "uint8", scale=0.5, zero_point=0)
    bias, out = file.constant([0, 0], "int32", scale=0.25), file.tensor((1, 2), "uint8", scale=0.25, zero_point=0)
    file.operator("FULLY_CONNECTED", [data, weights, bias], [out], {})
    path = file.write(tmp_path / "fc.tflite", [data], [out])
    planned = call("plan", str(path), "--device", "arm-nn-19.02", "--android", "8.1", "--advice")
    assert any(one["text"].startswith("0 FULLY_CONNECTED: output 0 scale 0.25 → 0.25") for one in planned["advice"])


@pytest.mark.parametrize(("some", "kind", "planned"), [(False, Why.RANK, 1), (True, Why.RANK, 2), (False, Why.ACTIVATION, 2)])
def test_an_edit_is_planned_unless_it_is_refused_alone_alike(some: bool, kind: Why, planned: int, tmp_path: Path) -> None:
    path, measured = tmp_path / "model", []
    before = Outcome(frozenset({(0, 0)}), 0, 1, 1, 0, {(0, 0): frozenset({Why.RANK})})
    edit = Edit(0, 0, "ABS", "NEG", lambda: Content.of(b"edited"), alone=lambda: Content.of(b"replacement"))
    adjustable = Adjustable("ABS", (), lambda changes, alone: Content.of(b"alone"))

    def measure(path: Path, changed: Mapping[str, Any], prepare: bool) -> Outcome:
        measured.append(path)
        return before

    def alone(path: Path) -> Alone:
        return Alone(False, some and path.read_bytes() == b"replacement", frozenset({kind}))

    editing = Editing(path, lambda path: [edit], lambda path, subgraph, index: adjustable)
    assert found_by(editing, Planner(measure, alone), 8).advice == ()
    assert len(measured) == planned


def test_steps_are_prepared_only_for_what_helps(tmp_path: Path) -> None:
    prepared = []
    edit = Edit(0, WHOLE, "", "better", lambda: Content.of(b"edited"))

    def measure(path: Path, changed: Mapping[str, Any], prepare: bool) -> Outcome:
        prepared.append(prepare)
        return Outcome(frozenset({(0, 0)} if path.name == "model" and path.parent == tmp_path else ()), 0, 1, 1, 0)

    editing = Editing(tmp_path / "model", lambda path: [edit], lambda path, subgraph, index: None)
    (advice,) = found_by(editing, Planner(measure, lambda path: Alone(False, False, frozenset())), 8).advice
    assert (advice.text, prepared) == ("whole file: better", [True, False, True])


@pytest.mark.parametrize(
    ("gained", "parts", "slight"),
    [
        ({}, {}, True),
        ({"multiply_adds": 1}, {}, True),
        ({"multiply_adds": 20}, {}, False),
        ({}, {"partitions": 2}, False),
        ({}, {"steps": 4}, False),
        ({}, {"partitions": 4}, True),
    ],
)
def test_a_change_that_moves_next_to_no_work_is_slight_and_comes_last(
    gained: Mapping[str, int], parts: Mapping[str, int], slight: bool
) -> None:
    work = {(0, k): 5000 for k in range(2)}
    before = Outcome(frozenset({(0, 3), (0, 4)}), 0, 3, 5, 5000, work=work)
    after = replace(before, elsewhere=frozenset({(0, 3)}), multiply_adds=5000 + gained.get("multiply_adds", 0), **parts)
    found = Advice("x", before, after)
    worthwhile = Advice("y", before, replace(before, multiply_adds=10000, partitions=9))
    assert found.slight is slight
    assert sorted([found, worthwhile], key=rank)[0] is (worthwhile if slight else found)
