"""Remedies for files that a phone refuses as a whole, or in many places: each is planned, and runs beside the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import load
from nnbridge.advice import Advice, Alone, Editing, Outcome, Planner, advise, found_by
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.converters.edits import WHOLE, Answers, Edit
from nnbridge.errors import ConversionError, InputError, OptionError
from nnbridge.file import ModelFile
from nnbridge.plan import plan
from nnbridge.target import Target
from nnbridge_onnx import edits as onnx_edits
from nnbridge_tflite import edits as tflite_edits
from nnbridge_tflite.edits import FIXED
from nnbridge_tflite.read.reader import read
from nnbridge_tflite.retyping import RETYPINGS
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_edits import call

PHONE = ConversionOptions(mapping="phone")
NPU = """
[[device]]
name = "npu"
feature_level = 8
[device.performance]
other = [0.1, 0.1]
[device.operations]
{operations}
"""


def npu(folder: Path, *operations: str) -> str:
    """A device that accepts the named operations."""
    path = folder / "npu.toml"
    path.write_text(NPU.format(operations="\n".join(f"{name} = {{}}" for name in operations)), encoding="utf-8")
    return str(path)


def advice(path: Path, device: str, **options: Any) -> tuple[Advice, ...]:
    """The changes that ``plan --advice`` lists, without NNAPI's CPU."""
    file = ModelFile(path, ConversionOptions(mapping="phone", **options))
    return advise(file, Target.of(device, fallback="app" if path.suffix == ".tflite" else None)).advice


def same_bits(runtime: str, before: Path, after: Path, seeds: int = 5) -> bool:
    """Both files have equal outputs in their own runtime."""
    model, files = load(before), [reference(runtime, one) for one in (before, after)]
    runs = [[[array.tobytes() for array in file.run(seeded_inputs(model, seed))] for file in files] for seed in range(seeds)]
    return all(one == other for one, other in runs)


def written(found: Advice, folder: Path, suffix: str) -> Path:
    """The file that ``rewrite`` writes."""
    assert found.edit is not None
    path = folder / f"after{suffix}"
    path.write_bytes(found.edit.content())
    return path


# -- ranking -------------------------------------------------------------------------------------------------------------------


def outcome(elsewhere: int, standing: int = 0) -> Outcome:
    return Outcome(frozenset((0, k) for k in range(elsewhere)), 0, 1, 1, 0, {}, "refused" * bool(standing), standing)


@pytest.mark.parametrize(
    ("one", "other", "better"),
    [
        (outcome(3), outcome(3, 1), True),
        # An interpreter that leaves everything to TFLite's CPU is better than none.
        (outcome(9), outcome(3, 1), True),
        (outcome(3, 1), outcome(9), False),
        # A delegate that TFLite refuses is better than a file that it does not load.
        (outcome(3, 1), outcome(3, 2), True),
        (outcome(2, 1), outcome(3, 1), True),
        (outcome(3, 1), outcome(3, 1), False),
        (outcome(2), outcome(3), True),
    ],
)
def test_an_outcome_with_an_interpreter_is_better_than_one_without(one: Outcome, other: Outcome, better: bool) -> None:
    assert one.better_than(other) is better


def test_what_creates_the_interpreter_ranks_first(tmp_path: Path) -> None:
    path = tmp_path / "model"
    outcomes = {"model": outcome(5, 1), "fewer": outcome(1, 1), "created": outcome(4)}

    def measure(path: Path, changed: Mapping[str, Any], prepare: bool) -> Outcome:
        return outcomes[path.read_text() if path.exists() else "model"]

    edits = [Edit(0, WHOLE, "", text, lambda text=text: text.encode()) for text in ("fewer", "created")]
    editing = Editing(path, lambda path: edits, lambda path, subgraph, index: None)
    found = found_by(editing, Planner(measure, lambda path: Alone(False, False, frozenset())), 8).advice
    assert [one.text for one in found] == ["whole file: created", "whole file: fewer"]


def tile(folder: Path) -> Path:
    """MUL, then a TILE of computed multiples: TFLite refuses the delegate."""
    file = TfliteBuilder()
    x, m, times, y = file.tensor((1, 8)), file.tensor((1, 8)), file.tensor((2,), "int32"), file.tensor((1, 8))
    file.operator("MUL", [x, file.constant(np.float32(2))], [m], {"fused_activation_function": 0})
    file.operator("TILE", [m, times], [y], {})
    return file.write(folder / "tile.tflite", [x, times], [y])


def test_a_refused_graph_is_advised_the_delegates_option(tmp_path: Path) -> None:
    found = advice(tile(tmp_path), npu(tmp_path, "MUL"))
    (allowed,) = (one for one in found if one.options == {"allow_dynamic_dimensions": True})
    assert (allowed.before.standing, allowed.after.standing) == (1, 0)
    assert allowed.as_dict()["before"]["refusal"].startswith("TFLite refuses the delegate: operator 1 TILE")
    assert allowed.as_dict()["after"]["refusal"] == ""


def test_of_a_refused_graph_only_the_operator_that_is_why_is_searched(tmp_path: Path) -> None:
    advised = advise(ModelFile(tile(tmp_path), PHONE), Target.of(npu(tmp_path, "ADD"), fallback="app"))
    assert [one.operator for one in advised.unmoved] == ["TILE"]


# -- several operators ---------------------------------------------------------------------------------------------------------


def splits(folder: Path) -> Path:
    """Two SPLITs with an ADD between, so that each device step is cut twice."""
    file = TfliteBuilder()
    x, halves, sums = file.tensor((2, 4)), [file.tensor((2, 2)) for _ in range(2)], file.tensor((2, 2))
    file.operator("SPLIT", [file.constant(1, "int32"), x], halves, {"num_splits": 2})
    file.operator("ADD", halves, [sums], {"fused_activation_function": 0})
    parts = [file.tensor((2, 1)) for _ in range(2)]
    file.operator("SPLIT", [file.constant(1, "int32"), sums], parts, {"num_splits": 2})
    return file.write(folder / "splits.tflite", [x], parts)


def test_operators_that_are_refused_alike_have_one_advice(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = splits(tmp_path)
    (found,) = (one for one in advice(path, npu(tmp_path, "ADD", "STRIDED_SLICE")) if one.kind == "rewrite")
    assert (found.text, len(found.after.elsewhere)) == ("2 SPLIT: a STRIDED_SLICE for each part", 0)
    assert same_bits("litert", path, written(found, tmp_path, ".tflite"))


def test_nodes_that_are_refused_alike_have_one_advice(tmp_path: Path) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path = tmp_path / "clips.onnx"
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy")
    bounds = [onnx.numpy_helper.from_array(np.float32(v), name) for name, v in (("low", -0.5), ("high", 0.25))]
    nodes = [("Clip", ["x", "low", "high"], ["a"]), ("Neg", ["a"], ["b"]), ("Clip", ["b", "low", "high"], ["y"])]
    graph = onnx.helper.make_graph([onnx.helper.make_node(*one) for one in nodes], "g", [x], [y], bounds)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), str(path))
    clips = [edit for edit in ModelFile(path).edits if edit.text == "Max, then Min"]
    assert [edit.index for edit in clips] == [0, 2]
    assert clips[0].several is not None
    after = tmp_path / "after.onnx"
    after.write_bytes(clips[0].several([(0, 0), (0, 2)]))
    assert [node.op_type for node in onnx.load(str(after)).graph.node] == ["Max", "Min", "Neg", "Max", "Min"]
    assert same_bits("onnxruntime", path, after)


# -- the same at the source ----------------------------------------------------------------------------------------------------


def test_every_edit_of_a_file_says_what_does_the_same_at_the_source() -> None:
    rows = (*tflite_edits.REWRITES, *RETYPINGS, *onnx_edits.REWRITES, *onnx_edits.WHOLE_FILE)
    assert [row.text for row in rows if not row.converter] == []


def test_advice_as_data_has_the_sentence() -> None:
    edit = Edit(0, WHOLE, "", "text", lambda: b"", Answers.SAME, converter="there")
    assert Advice("text", outcome(1), outcome(0), edit=edit).as_dict()["converter"] == "there"


# -- dimensions of TFLite files ------------------------------------------------------------------------------------------------

MASKS = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
RELU = {"fused_activation_function": 0}


@dataclass
class Chain:
    """A file that computes numbers of its input's dimensions, (1, 4, 4, 2) with an open batch or (2, 4, 4, 2)."""

    open_batch: bool
    file: TfliteBuilder = field(default_factory=TfliteBuilder)

    def __post_init__(self) -> None:
        self.batch = 1 if self.open_batch else 2
        self.x, self.m = self.value(4, 4, 2), self.value(4, 4, 2)
        self.file.operator("MUL", [self.x, self.file.constant(np.float32(2))], [self.m], RELU)
        self.dims = self.file.tensor((4,), "int32")
        self.file.operator("SHAPE", [self.m], [self.dims], {"out_type": 2})

    def value(self, *shape: int) -> int:
        more = {"shape_signature": [-1, *shape]} if self.open_batch else {}
        return self.file.tensor((self.batch, *shape), **more)

    def part(self, begin: int, end: int, shrink: bool = False) -> int:
        out = self.file.tensor(() if shrink else (end - begin,), "int32")
        ranges = [self.file.constant(np.int32([number])) for number in (begin, end, 1)]
        self.file.operator("STRIDED_SLICE", [self.dims, *ranges], [out], {**MASKS, "shrink_axis_mask": int(shrink)})
        return out

    def joined(self, *numbers: int) -> int:
        out = self.file.tensor((len(numbers) + 1,), "int32")
        parts = [self.part(0, 1, True), *(self.file.constant(np.int32(n)) for n in numbers)]
        self.file.operator("PACK", parts, [out], {"values_count": len(parts), "axis": 0})
        return out


def reshape(chain: Chain) -> int:
    y = chain.value(32)
    chain.file.operator("RESHAPE", [chain.m, chain.joined(32)], [y], {})
    return y


def resize(chain: Chain) -> int:
    """Twice as high and wide, as exporters write ``interpolate(scale_factor=2)``: by way of float32."""
    f, sides, y = chain.file, chain.part(1, 3), chain.value(8, 8, 2)
    real, twice, whole = f.tensor((2,)), f.tensor((2,)), f.tensor((2,), "int32")
    f.operator("CAST", [sides], [real], {"in_data_type": 2, "out_data_type": 0})
    f.operator("MUL", [real, f.constant(np.float32(2))], [twice], RELU)
    f.operator("CAST", [twice], [whole], {"in_data_type": 0, "out_data_type": 2})
    f.operator("RESIZE_NEAREST_NEIGHBOR", [chain.m, whole], [y], {"align_corners": False, "half_pixel_centers": False})
    return y


def filled(chain: Chain) -> int:
    f, z, y = chain.file, chain.value(4, 4, 2), chain.value(4, 4, 2)
    f.operator("FILL", [chain.joined(4, 4, 2), f.constant(np.float32(0.5))], [z], {})
    f.operator("ADD", [chain.m, z], [y], RELU)
    return y


def tiled(chain: Chain) -> int:
    y, ones = chain.value(4, 4, 2), chain.file.tensor((4,), "int32")
    chain.file.operator("FLOOR_DIV", [chain.dims, chain.dims], [ones], {})
    chain.file.operator("TILE", [chain.m, ones], [y], {})
    return y


def padded(chain: Chain) -> int:
    f, y, sides, flat = chain.file, chain.value(5, 4, 2), f_tensor(chain, 4, 2), f_tensor(chain, 8)
    zeros = f.tensor((4,), "int32")
    f.operator("SUB", [chain.dims, chain.dims], [zeros], RELU)
    f.operator("CONCATENATION", [zeros, f.constant(np.int32([0, 0, 0, 0]))], [flat], {"axis": 0, **RELU})
    f.operator("RESHAPE", [flat, f.constant(np.int32([4, 2]))], [sides], {})
    more = f_tensor(chain, 4, 2)
    f.operator("ADD", [sides, f.constant(np.int32([[0, 0], [0, 1], [0, 0], [0, 0]]))], [more], RELU)
    f.operator("PAD", [chain.m, more], [y], {})
    return y


def f_tensor(chain: Chain, *shape: int) -> int:
    return chain.file.tensor(shape, "int32")


def broadcast(chain: Chain) -> int:
    f, y = chain.file, chain.value(4, 4, 2)
    f.operator("BROADCAST_TO", [f.constant(np.float32([[[[1, 2]]]])), chain.dims], [y], {}, 2)
    return y


def ranged(chain: Chain) -> int:
    """A row of places, as position embeddings have."""
    f, count, places, y = chain.file, chain.part(1, 2, True), chain.file.tensor((4,), "int32"), chain.value(4, 4, 2)
    f.operator("RANGE", [f.constant(np.int32(0)), count, f.constant(np.int32(1))], [places], {})
    f.operator("GATHER", [chain.m, places], [y], {"axis": 1, "batch_dims": 0})
    return y


CHAINS = (reshape, resize, filled, tiled, padded, broadcast, ranged)
ALL = ("MUL", "ADD", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "TILE", "PAD", "GATHER")


@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("make", CHAINS)
def test_numbers_computed_of_dimensions_become_constants_with_the_same_bits(
    make: Callable[[Chain], int], open_batch: bool, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    chain = Chain(open_batch)
    out = make(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    (edit,) = (one for one in ModelFile(path, PHONE).edits if FIXED in one.text)
    assert open_batch == ("inputs of only these dimensions (t0=1,4,4,2)" in edit.text)
    after = tmp_path / "after.tflite"
    after.write_bytes(edit.content())
    graph = ModelFile(after, PHONE).source_graph
    assert "SHAPE" not in {operator.name for operator in graph.operators}
    assert not [tensor for operator in graph.operators for tensor in operator.outputs if tensor.open_dims]
    assert same_bits("litert", path, after)


def test_a_graph_that_tflite_refuses_for_computed_shapes_is_advised_constants_first(tmp_path: Path) -> None:
    chain = Chain(True)
    out = resize(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    first = advice(path, npu(tmp_path, *ALL))[0]
    assert (first.kind, FIXED in first.text) == ("rewrite", True)
    assert (first.before.standing, first.after.standing, len(first.after.elsewhere)) == (1, 0, 0)
    after = written(first, tmp_path, ".tflite")
    assert "hands over 2 of 2 operators" in plan(ModelFile(after, PHONE), Target.of(npu(tmp_path, *ALL))).summary.sentence


def test_rewrite_proves_it_under_requested_dimensions(tmp_path: Path) -> None:
    chain = Chain(True)
    out = reshape(chain)
    path, target = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out]), tmp_path / "after.tflite"
    device = ("--device", npu(tmp_path, *ALL), "--shape", "t0=3,4,4,2")
    done = call("rewrite", str(path), *device, "--advice", "1", "-o", str(target))
    assert done["text"].startswith("whole file: inputs of only these dimensions (t0=3,4,4,2)")
    graph = ModelFile(target, PHONE).source_graph
    assert [tensor.shape for tensor in (*graph.inputs, *graph.outputs)] == [(3, 4, 4, 2), (3, 32)]


def test_an_output_that_is_dimensions_stays_computed(tmp_path: Path) -> None:
    chain = Chain(False)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [chain.m, chain.dims])
    assert [one.text for one in ModelFile(path, PHONE).edits if FIXED in one.text] == []


def test_float16_weights_stay_as_they_are(tmp_path: Path) -> None:
    chain = Chain(False)
    out, weights = reshape(chain), chain.file.tensor((32,))
    chain.file.operator("DEQUANTIZE", [chain.file.constant(np.ones(32, np.float16))], [weights], {})
    last = chain.file.tensor((2, 32))
    chain.file.operator("ADD", [out, weights], [last], RELU)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [last])
    (edit,) = (one for one in ModelFile(path, PHONE).edits if FIXED in one.text)
    after = tmp_path / "after.tflite"
    after.write_bytes(edit.content())
    assert [one.name for one in ModelFile(after, PHONE).source_graph.operators] == ["MUL", "RESHAPE", "DEQUANTIZE", "ADD"]


@pytest.mark.parametrize("device", ["ethos-u55-128", "ethos-u85-256", "edgetpu", "gpu-delegate", "xnnpack", "hexagon"])
def test_devices_before_nnapi_see_requested_dimensions(device: str, tmp_path: Path) -> None:
    chain = Chain(True)
    out = reshape(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    asked = replace(PHONE, shapes={"t0": (2, 4, 4, 2)})
    graph = ModelFile(path, asked).source_graph
    assert [(t.shape, t.open_dims) for t in (*graph.inputs, *graph.outputs)] == [((2, 4, 4, 2), ()), ((2, 32), ())]
    assert plan(ModelFile(path, asked), Target.of(device)).summary.operators == 5


def test_devices_before_nnapi_refuse_dimensions_of_what_is_no_input(tmp_path: Path) -> None:
    chain = Chain(True)
    out = reshape(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    with pytest.raises(OptionError, match="expected an input"):
        _ = ModelFile(path, replace(PHONE, shapes={"other": (2, 4, 4, 2)})).source_graph


# -- dimensions of ONNX files --------------------------------------------------------------------------------------------------

Nodes = list[tuple[Any, ...]]


def onnx_file(path: Path, nodes: Nodes, x: list[Any], y: list[Any], constants: Mapping[str, Any], opset: int = 17) -> Path:
    """A file of nodes, (type, inputs, outputs, attributes); attributes may be left out."""
    onnx = pytest.importorskip("onnx")
    made = [onnx.helper.make_node(one[0], one[1], one[2], **(one[3] if len(one) > 3 else {})) for one in nodes]
    ends = [onnx.helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", x), ("y", y))]
    stored = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = onnx.helper.make_graph(made, "g", ends[:1], ends[1:], stored)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


def flattened() -> tuple[Nodes, dict[str, Any]]:
    """``x.view(x.size(0), -1)`` as PyTorch exports it."""
    nodes: Nodes = [
        ("Shape", ["x"], ["s"]),
        ("Gather", ["s", "zero"], ["n"], {"axis": 0}),
        ("Unsqueeze", ["n", "axes"], ["n1"]),
        ("Concat", ["n1", "rest"], ["dims"], {"axis": 0}),
        ("Reshape", ["x", "dims"], ["y"]),
    ]
    return nodes, {"zero": np.int64(0), "axes": np.int64([0]), "rest": np.int64([-1])}


def enlarged() -> tuple[Nodes, dict[str, Any]]:
    """``interpolate(x, size=(2 * h, 2 * w))``."""
    nodes: Nodes = [
        ("Shape", ["x"], ["s"]),
        ("Slice", ["s", "two", "four"], ["sides"]),
        ("Slice", ["s", "none", "two"], ["front"]),
        ("Mul", ["sides", "two"], ["twice"]),
        ("Concat", ["front", "twice"], ["dims"], {"axis": 0}),
        (
            "Resize",
            ["x", "", "", "dims"],
            ["y"],
            {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        ),
    ]
    return nodes, {"none": np.int64([0]), "two": np.int64([2]), "four": np.int64([4])}


def by_float() -> tuple[Nodes, dict[str, Any]]:
    """A Reshape to dimensions that went through float32, the last one in a Constant node."""
    onnx = pytest.importorskip("onnx")
    last = onnx.numpy_helper.from_array(np.int64([-1]))
    nodes: Nodes = [
        ("Constant", [], ["rest"], {"value": last}),
        ("Shape", ["x"], ["s"]),
        ("Slice", ["s", "zero", "one"], ["n"]),
        ("Cast", ["n"], ["real"], {"to": 1}),
        ("Div", ["real", "unit"], ["same"]),
        ("Floor", ["same"], ["whole"]),
        ("Cast", ["whole"], ["count"], {"to": 7}),
        ("Concat", ["count", "rest"], ["dims"], {"axis": 0}),
        ("Reshape", ["x", "dims"], ["y"]),
    ]
    return nodes, {"zero": np.int64([0]), "one": np.int64([1]), "unit": np.float32([1])}


def expanded() -> tuple[Nodes, dict[str, Any]]:
    """Zeros of the input's dimensions, added to it."""
    onnx = pytest.importorskip("onnx")
    zeros = onnx.numpy_helper.from_array(np.float32([0.5]))
    return [("Shape", ["x"], ["s"]), ("ConstantOfShape", ["s"], ["z"], {"value": zeros}), ("Add", ["x", "z"], ["y"])], {}


@pytest.mark.parametrize("batch", [2, "batch"])
@pytest.mark.parametrize("make", [flattened, enlarged, by_float, expanded])
def test_what_nodes_compute_of_dimensions_becomes_constants_with_the_same_bits(
    make: Callable[[], tuple[Nodes, dict[str, Any]]], batch: int | str, tmp_path: Path
) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    nodes, constants = make()
    path = onnx_file(tmp_path / "chain.onnx", nodes, [batch, 2, 4, 4], [None] * (2 if "Reshape" in nodes[-1] else 4), constants)
    (edit,) = (one for one in ModelFile(path, PHONE).edits if FIXED in one.text)
    after = tmp_path / "after.onnx"
    after.write_bytes(edit.content())
    made = onnx.load(str(after))
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node] == [nodes[-1][0]]
    dims = [dim.dim_value for value in (*made.graph.input, *made.graph.output) for dim in value.type.tensor_type.shape.dim]
    assert (min(dims), dims[0]) == ((2 if batch == 2 else 1), (2 if batch == 2 else 1))
    assert same_bits("onnxruntime", path, after)


def test_a_graph_of_open_dimensions_is_advised_the_file_of_stated_ones(tmp_path: Path) -> None:
    nodes, constants = flattened()
    path = onnx_file(
        tmp_path / "chain.onnx", [("Relu", ["x"], ["r"]), *_of("r", nodes)], ["batch", 2, 4, 4], [None, None], constants
    )
    device = npu(tmp_path, "RELU", "RESHAPE")
    (found,) = (one for one in advice(path, device) if one.edit is not None and FIXED in one.text)
    assert len(found.after.elsewhere) == 0 < len(found.before.elsewhere)
    assert "make_dynamic_shape_fixed" in found.converter
    after = written(found, tmp_path, ".onnx")
    assert plan(ModelFile(after, PHONE), Target.of(device)).summary.elsewhere == {}


def _of(name: str, nodes: Nodes) -> Nodes:
    """Nodes that read another value than ``x``."""
    return [(kind, [name if one == "x" else one for one in inputs], *rest) for kind, inputs, *rest in nodes]


def test_requested_dimensions_are_those_of_the_file_that_is_written(tmp_path: Path) -> None:
    nodes, constants = flattened()
    path = onnx_file(tmp_path / "chain.onnx", nodes, ["batch", 2, "h", "w"], [None, None], constants)
    (edit,) = (one for one in ModelFile(path, replace(PHONE, shapes={"x": (3, 2, 5, 5)})).edits if FIXED in one.text)
    after = tmp_path / "after.onnx"
    after.write_bytes(edit.content())
    assert [tensor.shape for tensor in ModelFile(after, PHONE).inspection.inputs] == [(3, 2, 5, 5)]


# -- one scale, a bias, fewer dimensions ---------------------------------------------------------------------------------------


def dense(folder: Path, *, layers: int = 2, bias: bool = True) -> Path:
    """Int8 FULLY_CONNECTEDs with a scale for each unit, as today's converter writes them."""
    file, random = TfliteBuilder(), np.random.default_rng(0)
    data = first = file.tensor((1, 16), "int8", scale=0.05)
    for _ in range(layers):
        scales = [float(s) for s in np.float32(random.uniform(0.004, 0.008, 16))]
        weights = file.constant(random.integers(-127, 128, (16, 16)), "int8", scale=scales)
        steps = [float(np.float32(0.05) * np.float32(s)) for s in scales]
        added = file.constant(random.integers(-500, 500, 16), "int32", scale=steps) if bias else -1
        out = file.tensor((1, 16), "int8", scale=0.05)
        file.operator("FULLY_CONNECTED", [data, weights, added], [out], {"fused_activation_function": 0, "weights_format": 0}, 5)
        data = out
    return file.write(folder / "dense.tflite", [first], [data])


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_dense_layers_with_a_scale_for_each_unit_get_one_that_nnapi_builds(layers: int, bias: bool, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = dense(tmp_path, layers=layers, bias=bias)
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED"))
    first = found[0]
    title = "0 FULLY_CONNECTED" if layers == 1 else f"{layers} FULLY_CONNECTED"
    assert (first.text, first.kind) == (f"{title}: one scale for the filter", "change")
    assert (first.before.standing, first.after.standing, len(first.after.elsewhere)) == (1, 0, 0)
    assert "_experimental_disable_per_channel_quantization_for_dense_layers" in first.converter
    after, model = written(first, tmp_path, ".tflite"), load(path)
    one, other = (reference("litert", file).run(seeded_inputs(model, 0))[0].astype(int) for file in (path, after))
    # Weights move by half a step of the largest scale at most: 16 products of inputs of up to 6.4.
    assert np.abs(one - other).max() <= 3 * layers


def test_rewrite_measures_what_an_edit_that_changes_results_does(tmp_path: Path) -> None:
    path, target, device = dense(tmp_path), tmp_path / "after.tflite", npu(tmp_path, "FULLY_CONNECTED")
    done = call("rewrite", str(path), "--device", device, "--advice", "1", "-o", str(target), "--inexact")
    (measured,) = done["deviations"].values()
    assert done["inputs"] == 10
    assert 0 < measured["rmse"] < 3
    assert measured["sqnr_db"] > 20


def test_a_hybrid_filter_gets_one_scale_and_its_bias_stays_float(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file, random = TfliteBuilder(), np.random.default_rng(0)
    x, y = file.tensor((2, 16)), file.tensor((2, 4))
    weights = file.constant(random.integers(-127, 128, (4, 16)), "int8", scale=[0.01, 0.02, 0.015, 0.012])
    file.operator("FULLY_CONNECTED", [x, weights, file.constant(np.float32([1, 2, 3, 4]))], [y], {"weights_format": 0}, 5)
    path = file.write(tmp_path / "hybrid.tflite", [x], [y])
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text == "one scale for the filter")
    after = tmp_path / "after.tflite"
    after.write_bytes(edit.content())
    values = seeded_inputs(load(path), 0)
    one, other = (reference("litert", file).run(values)[0] for file in (path, after))
    assert np.abs(one - other).max() < 0.05 * np.abs(one).max()


def test_a_convolution_without_bias_that_litert_does_not_load_gets_one(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, y = file.tensor((1, 3, 3, 2), "int8", scale=0.5), file.tensor((1, 2, 2, 2), "int8", scale=2.0)
    filter = file.constant(np.arange(-8, 8).reshape(2, 2, 2, 2), "int8", scale=[0.25, 0.5])
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"), 1)
    file.operator("CONV_2D", [x, filter], [y], {"padding": 1, **ones}, 3)
    path = file.write(tmp_path / "conv.tflite", [x], [y])
    values = {"t0": np.arange(18, dtype=np.int8).reshape(1, 3, 3, 2)}
    with pytest.raises(InputError, match="has_bias was not true"):
        reference("litert", path)
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text == "a bias of zeros")
    after = tmp_path / "after.tflite"
    after.write_bytes(edit.content())
    # The first window is x = 0 1 2 3 6 7 8 9; its sum with -8 … -1 is -104, with 0 … 7 it is 184: -6.5 and 23 steps.
    assert reference("litert", after).run(values)[0][0, 0, 0].tolist() == [-7, 23]


def test_a_transpose_of_five_dimensions_that_nnapi_does_not_build_gets_three(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, y = file.tensor((1, 4, 4, 2, 3)), file.tensor((1, 4, 4, 3, 2))
    file.operator("TRANSPOSE", [x, file.constant(np.int32([0, 1, 2, 4, 3]))], [y], {})
    path = file.write(tmp_path / "shuffle.tflite", [x], [y])
    first = advice(path, npu(tmp_path, "TRANSPOSE", "RESHAPE"))[0]
    # RESHAPE from and to five dimensions stays with TFLite.
    assert (first.kind, first.before.standing, first.after.standing, len(first.after.elsewhere)) == ("rewrite", 1, 0, 2)
    after = written(first, tmp_path, ".tflite")
    assert [len(one.outputs[0].shape) for one in ModelFile(after, PHONE).source_graph.operators] == [3, 3, 5]
    assert same_bits("litert", path, after)


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (2, 0, 1, 3), (3, 2, 1, 0), (1, 0, 3, 2), (0, 1, 3, 2), (1, 2, 3, 0)])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 5), (2, 1, 1, 5)])
def test_a_transpose_of_fewer_dimensions_moves_elements_alike(
    order: tuple[int, ...], shape: tuple[int, ...], tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, y = file.tensor(shape), file.tensor([shape[axis] for axis in order])
    file.operator("TRANSPOSE", [x, file.constant(np.int32(order))], [y], {})
    path, after = file.write(tmp_path / "transpose.tflite", [x], [y]), tmp_path / "after.tflite"
    for edit in (one for one in ModelFile(path, PHONE).edits if "fewer dimensions" in one.text):
        after.write_bytes(edit.content())
        assert same_bits("litert", path, after, seeds=1)


# -- QLinear operators ---------------------------------------------------------------------------------------------------------

STEPS = {"s": np.float32(0.05), "z": np.int8(3), "t": np.float32(0.1), "p": np.int8(-5), "ws": np.float32(0.01), "wz": np.int8(0)}
"""Scales and zero points of values (s, z), of other values (t, p) and of weights."""


def quantised(*nodes: tuple[Any, ...], **constants: Any) -> tuple[Nodes, dict[str, Any]]:
    """Nodes on 8-bit values from ``x8`` of scale s to ``y8`` of scale t, between QuantizeLinear and DequantizeLinear."""
    ends: Nodes = [("QuantizeLinear", ["x", "s", "z"], ["x8"]), *nodes, ("DequantizeLinear", ["y8", "t", "p"], ["y"])]
    return ends, {**STEPS, **constants}


def q_convolution(channels: bool = False) -> tuple[Nodes, dict[str, Any]]:
    weights = np.random.default_rng(0).integers(-127, 128, (3, 2, 3, 3)).astype(np.int8)
    scales = np.float32([0.01, 0.02, 0.015]) if channels else STEPS["ws"]
    points = np.zeros(3, np.int8) if channels else STEPS["wz"]
    node = (
        "QLinearConv",
        ["x8", "s", "z", "w", "ws", "wz", "t", "p", "b"],
        ["y8"],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    )
    return quantised(node, w=weights, b=np.int32([100, -200, 300]), ws=scales, wz=points)


def q_convolution_by_channel() -> tuple[Nodes, dict[str, Any]]:
    return q_convolution(True)


def q_pair(kind: str = "QLinearAdd") -> tuple[Nodes, dict[str, Any]]:
    return quantised((kind, ["x8", "s", "z", "x8", "s", "z", "t", "p"], ["y8"]))


def q_product() -> tuple[Nodes, dict[str, Any]]:
    return q_pair("QLinearMul")


def q_moves() -> tuple[Nodes, dict[str, Any]]:
    """MaxPool, Transpose and Flatten of 8-bit values, then a product with weights."""
    weights = np.random.default_rng(0).integers(-127, 128, (8, 4)).astype(np.int8)
    nodes: Nodes = [
        ("MaxPool", ["x8"], ["m8"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Transpose", ["m8"], ["n8"], {"perm": [0, 2, 3, 1]}),
        ("Flatten", ["n8"], ["f8"]),
        ("QLinearMatMul", ["f8", "s", "z", "w", "ws", "wz", "t", "p"], ["y8"]),
    ]
    return quantised(*nodes, w=weights)


def q_chain() -> tuple[Nodes, dict[str, Any]]:
    """Average, concatenation, logistic function and Gemm of ONNX Runtime."""
    weights = np.random.default_rng(0).integers(-127, 128, (4, 5)).astype(np.int8)
    nodes: Nodes = [
        ("QLinearGlobalAveragePool", ["x8", "s", "z", "s", "z"], ["g8"]),
        ("QLinearSigmoid", ["x8", "s", "z", "u", "low"], ["l8"]),
        ("QLinearGlobalAveragePool", ["l8", "u", "low", "s", "z"], ["h8"]),
        ("QLinearConcat", ["s", "z", "g8", "s", "z", "h8", "s", "z"], ["c8"], {"axis": 1}),
        ("Flatten", ["c8"], ["f8"]),
        ("QGemm", ["f8", "s", "z", "w", "ws", "wz", "b", "t", "p"], ["y8"]),
    ]
    return quantised(*nodes, w=weights, b=np.int32([1, 2, 3, 4, 5]), u=np.float32(1 / 256), low=np.int8(-128))


QLINEAR = (q_convolution, q_convolution_by_channel, q_pair, q_product, q_moves, q_chain)


def q_file(path: Path, make: Callable[[], tuple[Nodes, dict[str, Any]]]) -> Path:
    """A file of 8-bit operators, those of ONNX Runtime in its domain."""
    onnx = pytest.importorskip("onnx")
    nodes, constants = make()
    rank = 2 if "QGemm" in [one[0] for one in nodes] or "QLinearMatMul" in [one[0] for one in nodes] else 4
    model = onnx.load(str(onnx_file(path, nodes, [1, 2, 4, 4], [None] * rank, constants)))
    standard = {"QLinearConv", "QLinearMatMul"}
    for node in model.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm")) and node.op_type not in standard:
            node.domain = "com.microsoft"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("make", QLINEAR)
def test_qlinear_operators_become_onnxs_own_and_uint8_within_one_step(
    make: Callable[[], tuple[Nodes, dict[str, Any]]], tmp_path: Path
) -> None:
    onnx, _ = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    path, after = q_file(tmp_path / "q.onnx", make), tmp_path / "after.onnx"
    edits = [one for one in ModelFile(path, PHONE).edits if one.text.startswith(onnx_edits.QDQ)]
    assert len(edits) == 2
    samples = [seeded_inputs(load(path), seed) for seed in range(5)]
    original = reference("onnxruntime", path)
    before = [original.run(values)[0] for values in samples]
    for edit in edits:
        after.write_bytes(edit.content())
        kinds = {node.op_type for node in onnx.load(str(after)).graph.node}
        assert not {kind for kind in kinds if kind.startswith(("QLinear", "QGemm"))}
        runtime = reference("onnxruntime", after)
        assert max(np.abs(one - runtime.run(values)[0]).max() for one, values in zip(before, samples, strict=True)) <= 0.1001


def test_int8_qlinear_operators_are_advised_as_their_uint8_twins_are(tmp_path: Path) -> None:
    path, device = q_file(tmp_path / "q.onnx", q_convolution), npu(tmp_path, "CONV_2D", "QUANTIZE", "DEQUANTIZE", "TRANSPOSE")
    found = [one for one in advice(path, device) if one.kind == "round"]
    assert found[0].text == f"whole file: {onnx_edits.QDQ}, with uint8 in place of int8"
    assert len(found[0].after.elsewhere) == 0 < len(found[0].before.elsewhere)
    assert "QuantFormat.QDQ" in found[0].converter


def test_int8_weights_that_leave_no_session_become_uint8(tmp_path: Path) -> None:
    """ONNX Runtime's builder leaves transposed weights as they are, and knows no int8 there."""
    weights = np.random.default_rng(0).integers(-127, 128, (3, 4)).astype(np.int8)
    nodes: Nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["x8"]),
        ("DequantizeLinear", ["x8", "s", "z"], ["xr"]),
        ("DequantizeLinear", ["w", "ws", "wz"], ["wr"]),
        ("DequantizeLinear", ["b", "bs"], ["br"]),
        ("Gemm", ["xr", "wr", "br"], ["g"], {"transB": 1}),
        ("QuantizeLinear", ["g", "t", "p"], ["g8"]),
        ("DequantizeLinear", ["g8", "t", "p"], ["y"]),
    ]
    more = {
        "z": np.uint8(3),
        "p": np.uint8(120),
        "w": weights,
        "b": np.int32([1, 2, 3]),
        "bs": np.float32(0.05) * np.float32(0.01),
    }
    path = onnx_file(tmp_path / "gemm.onnx", nodes, [2, 4], [2, 3], {**STEPS, **more})
    first = advice(path, npu(tmp_path, "FULLY_CONNECTED", "QUANTIZE", "DEQUANTIZE"))[0]
    assert (first.text, first.before.standing, first.after.standing) == (f"whole file: {onnx_edits.UNSIGNED}", 1, 0)
    assert same_bits("onnxruntime", path, written(first, tmp_path, ".onnx"))


# -- products of transformers --------------------------------------------------------------------------------------------------


def products(path: Path, x: list[int], *weights: tuple[int, ...]) -> Path:
    """MatMuls by matrices of weights, one after the other, with a Relu after each."""
    random, nodes, name, stored = np.random.default_rng(0), Nodes(), "x", {}
    for k, sides in enumerate(weights):
        stored[f"w{k}"] = random.standard_normal(sides).astype(np.float32)
        last = "y" if k == len(weights) - 1 else f"r{k}"
        nodes += [("MatMul", [name, f"w{k}"], [f"m{k}"]), ("Relu", [f"m{k}"], [last])]
        name = last
    return onnx_file(path, nodes, x, [None] * max(len(x), *map(len, weights)), stored)


@pytest.mark.parametrize(
    ("x", "weights"),
    [
        ([1, 32, 16], [(16, 8), (8, 4)]),
        ([2, 3, 4, 16], [(16, 8)]),
        ([1, 5, 16], [(1, 16, 8)]),
        ([7, 16], [(1, 16, 8)]),
        ([2, 3, 16], [(16, 1)]),
    ],
)
def test_products_by_one_matrix_run_on_a_device_of_two_dimensions(
    x: list[int], weights: list[tuple[int, ...]], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    path = products(tmp_path / "products.onnx", x, *weights)
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "RESHAPE", "RELU"))[0]
    title = f"{len(weights)} MatMul" if len(weights) > 1 else "0 MatMul"
    assert (found.text, found.kind) == (f"{title}: MatMul of two matrices, between Reshapes", "round")
    assert len(found.after.elsewhere) == 0 < len(found.before.elsewhere)
    assert same_bits("onnxruntime", path, written(found, tmp_path, ".onnx"))


def test_products_of_two_computed_batches_stay(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "a.onnx", [("MatMul", ["x", "x"], ["y"])], [2, 4, 4], [2, 4, 4], {})
    assert [one.text for one in ModelFile(path, PHONE).edits if one.index == 0] == []


@pytest.mark.parametrize("transposed", [False, True])
def test_a_batch_matmul_by_a_constant_matrix_becomes_fully_connected(transposed: bool, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    file, random = TfliteBuilder(), np.random.default_rng(0)
    x, y = file.tensor((2, 3, 8)), file.tensor((2, 3, 4))
    weights = file.constant(random.standard_normal((1, 4, 8) if transposed else (1, 8, 4)).astype(np.float32))
    file.operator("BATCH_MATMUL", [x, weights], [y], {"adj_x": False, "adj_y": transposed})
    path = file.write(tmp_path / "matmul.tflite", [x], [y])
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "RESHAPE"))[0]
    assert (found.kind, len(found.after.elsewhere)) == ("round", 0)
    values, after = seeded_inputs(load(path), 0), written(found, tmp_path, ".tflite")
    one, other = (reference("litert", each).run(values)[0] for each in (path, after))
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


# -- large files ---------------------------------------------------------------------------------------------------------------


def test_a_file_beyond_what_is_edited_has_settings_and_is_read_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1 for its open batch, more runs on the device."""
    nodes, constants = flattened()
    path = onnx_file(tmp_path / "chain.onnx", nodes, ["batch", 2, 4, 4], [None, None], constants)
    monkeypatch.setattr("nnbridge.converters.edits.MOST_EDITED", path.stat().st_size - 1)
    found = advice(path, npu(tmp_path, "RESHAPE"))
    assert {one.kind for one in found} == {"setting"}
    assert "to be edited, found" in caplog.text
    assert caplog.text.count("only settings are tried") == 1


def test_weights_in_another_file_count(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path = products(tmp_path / "a.onnx", [1, 4, 4], (4, 4))
    model = onnx.load(str(path))
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("length", str(1 << 31))):
        weights.external_data.add(key=key, value=value)
    onnx.save_model(model, str(path))
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 31)  # takes no place on the disk
    with pytest.raises(ConversionError, match="at most 1,073,741,824 bytes with all weights, to be edited, found 2,147,48"):
        _ = ModelFile(path, PHONE).edits


def test_a_large_tflite_file_is_not_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = splits(tmp_path)
    monkeypatch.setattr("nnbridge.converters.edits.MOST_EDITED", path.stat().st_size - 1)
    with pytest.raises(ConversionError, match="to be edited"):
        _ = ModelFile(path, PHONE).edits


# -- loops ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Loop:
    """y = y / 2 + x[i] for some steps, as converters write recurrent layers: a WHILE of counter, state and sequence."""

    first: int = 0
    step: int = 1
    least: int = 5
    both: bool = False
    """The condition is a LOGICAL_AND of two."""
    computed: bool = False
    """The first counter is an input of the file."""

    def write(self, folder: Path, loops: int = 1) -> Path:
        file = TfliteBuilder()
        x, start = file.tensor((5, 1, 3), name="x"), file.tensor((), "int32", name="start")
        state = file.constant(np.zeros((1, 3), np.float32))
        counter = start if self.computed else file.constant(np.int32(self.first))
        for _ in range(loops):
            numbers = self._condition(file), self._body(file)
            outs = [file.tensor((), "int32"), file.tensor((1, 3)), file.tensor((5, 1, 3))]
            options = dict(zip(("cond_subgraph_index", "body_subgraph_index"), numbers, strict=True))
            file.operator("WHILE", [counter, state, x], outs, options)
            state = file.tensor((1, 3))
            file.operator("MUL", [outs[1], file.constant(np.float32(2))], [state], RELU)
        return file.write(folder / "loop.tflite", [x, *[start] * self.computed], [state, outs[1], outs[0]])

    def _condition(self, file: TfliteBuilder) -> int:
        test = file.beside()
        ends = [test.tensor((), "int32"), test.tensor((1, 3)), test.tensor((5, 1, 3))]
        less, out = test.tensor((), "bool"), test.tensor((), "bool")
        test.operator("LESS", [ends[0], test.constant(np.int32(self.least))], [less], {})
        if self.both:
            other = test.tensor((), "bool")
            test.operator("LESS", [ends[0], test.constant(np.int32(100))], [other], {})
            test.operator("LOGICAL_AND", [less, other], [out], {})
        return file.add(test, ends, [out if self.both else less])

    def _body(self, file: TfliteBuilder) -> int:
        body = file.beside()
        i, y, x = body.tensor((), "int32"), body.tensor((1, 3)), body.tensor((5, 1, 3))
        row, half, total, after = body.tensor((1, 3)), body.tensor((1, 3)), body.tensor((1, 3)), body.tensor((), "int32")
        body.operator("GATHER", [x, i], [row], {"axis": 0, "batch_dims": 0})
        body.operator("MUL", [y, body.constant(np.float32(0.5))], [half], RELU)
        body.operator("ADD", [half, row], [total], RELU)
        body.operator("ADD", [i, body.constant(np.int32(self.step))], [after], RELU)
        return file.add(body, [i, y, x], [after, total, x])


@pytest.mark.parametrize(
    ("loop", "steps"),
    [(Loop(), 5), (Loop(first=1, step=2), 2), (Loop(both=True), 5), (Loop(least=1), 1), (Loop(first=3, least=4, both=True), 1)],
)
def test_a_loop_of_known_steps_is_written_out_with_the_same_bits(loop: Loop, steps: int, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = loop.write(tmp_path)
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text == "its body for each step")
    assert "unroll=True" in edit.converter
    after = tmp_path / "after.tflite"
    after.write_bytes(edit.content())
    made = read(after).graph
    assert len(made.subgraphs) == 1
    names = [operator.name for operator in made.main.operators]
    assert (names.count("GATHER"), names.count("WHILE")) == (steps, 0)
    assert same_bits("litert", path, after)


def test_two_loops_are_written_out_together(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = Loop(least=2).write(tmp_path, loops=2)
    found = advice(path, npu(tmp_path, "MUL", "ADD", "GATHER", "RESHAPE"))[0]
    assert (found.text, found.kind) == ("2 WHILE: its body for each step", "round")
    assert len(found.after.elsewhere) < len(found.before.elsewhere)
    after = written(found, tmp_path, ".tflite")
    assert len(read(after).graph.subgraphs) == 1
    assert same_bits("litert", path, after)


@pytest.mark.parametrize("loop", [Loop(computed=True), Loop(step=0), Loop(first=9)])
def test_loops_of_unknown_endless_or_no_steps_stay(loop: Loop, tmp_path: Path) -> None:
    assert [
        one.text for one in ModelFile(loop.write(tmp_path), PHONE).edits if one.operator == "WHILE" and "body" in one.text
    ] == []


def test_the_last_step_of_a_sequence_is_counted_from_the_front(tmp_path: Path) -> None:
    """``x[:, -1]``, of which NNAPI's kernel finds no element from -1 to 0."""
    pytest.importorskip("ai_edge_litert")
    file = TfliteBuilder()
    x, m, y = file.tensor((1, 4, 3)), file.tensor((1, 4, 3)), file.tensor((1, 3))
    file.operator("MUL", [x, file.constant(np.float32(2))], [m], RELU)
    ranges = [file.constant(np.int32(v)) for v in ([0, -1, 0], [0, 0, 0], [1, 1, 1])]
    file.operator("STRIDED_SLICE", [m, *ranges], [y], {**MASKS, "begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 2})
    path = file.write(tmp_path / "last.tflite", [x], [y])
    found = advice(path, npu(tmp_path, "MUL", "STRIDED_SLICE"))[0]
    assert (found.kind, len(found.before.elsewhere), len(found.after.elsewhere)) == ("rewrite", 1, 0)
    assert same_bits("litert", path, written(found, tmp_path, ".tflite"))


def test_an_operator_on_a_sequence_that_no_edit_moves_names_the_option_of_keras(tmp_path: Path) -> None:
    found = advise(ModelFile(Loop(computed=True).write(tmp_path), PHONE), Target.of(npu(tmp_path, "MUL"), fallback="app"))
    (loop,) = (one for one in found.unmoved if one.operator == "WHILE")
    assert "unroll=True" in loop.as_dict()["converter"]


@pytest.mark.parametrize("device", ["ethos-u55-128", "edgetpu", "gpu-delegate"])
def test_compilers_are_advised_stated_dimensions_that_rewrite_proves(device: str, tmp_path: Path) -> None:
    """A convolution, its rows, and a product: with an open batch, or a computed shape, compilers leave some of it to the CPU."""
    eight = {"type": "float32"} if device == "gpu-delegate" else {"type": "int8", "scale": 0.05}
    file, random = TfliteBuilder(), np.random.default_rng(0)
    x, y = (file.tensor((1, 4, 4, 2), shape_signature=[-1, 4, 4, 2], **eight) for _ in range(2))
    rows, out = (file.tensor((1, n), shape_signature=[-1, n], **eight) for n in (32, 4))
    kind = str(eight["type"])
    weights = [random.standard_normal(s) if kind == "float32" else random.integers(-99, 99, s) for s in ((2, 1, 1, 2), (4, 32))]
    scaled = {} if kind == "float32" else {"scale": 0.01}
    filters = [file.constant(w, kind, **scaled) for w in weights]
    step = {} if kind == "float32" else {"scale": float(np.float32(0.05) * np.float32(0.01))}
    biases = [file.constant(np.zeros(n), "float32" if kind == "float32" else "int32", **step) for n in (2, 4)]
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"), 1)
    file.operator("CONV_2D", [x, filters[0], biases[0]], [y], {"padding": 1, **ones, **RELU}, 1 if kind == "float32" else 3)
    dims, first, both = file.tensor((4,), "int32"), file.tensor((), "int32"), file.tensor((2,), "int32")
    file.operator("SHAPE", [y], [dims], {"out_type": 2})
    ranges = [file.constant(np.int32([number])) for number in (0, 1, 1)]
    file.operator("STRIDED_SLICE", [dims, *ranges], [first], {**MASKS, "shrink_axis_mask": 1})
    file.operator("PACK", [first, file.constant(np.int32(32))], [both], {"values_count": 2, "axis": 0})
    file.operator("RESHAPE", [y, both], [rows], {})
    product = [rows, filters[1], biases[1]]
    file.operator("FULLY_CONNECTED", product, [out], {"weights_format": 0, **RELU}, 1 if kind == "float32" else 4)
    path, target = file.write(tmp_path / "net.tflite", [x], [out]), tmp_path / "after.tflite"
    planned = call("plan", str(path), "--device", device, "--advice")
    number, found = next((k, one) for k, one in enumerate(planned["advice"], 1) if FIXED in one["text"])
    assert found["after"]["elsewhere"] < found["before"]["elsewhere"]
    call("rewrite", str(path), "--device", device, "--advice", str(number), "-o", str(target))
    assert same_bits("litert", path, target)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_a_bias_of_one_element_that_tflite_does_not_load_is_written_out(kind: str, tmp_path: Path) -> None:
    """Each output is the sum of one window: of an image of ones and weights of ones, with a bias of 3."""
    pytest.importorskip("ai_edge_litert")
    file, ones = TfliteBuilder(), dict.fromkeys(("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"), 1)
    flat = kind == "FULLY_CONNECTED"
    x = file.tensor((1, 2) if flat else (1, 1, 1, 2))
    y = file.tensor((1, 4) if flat else (1, 1, 1, 4))
    sides = {"FULLY_CONNECTED": (4, 2), "DEPTHWISE_CONV_2D": (1, 1, 1, 4)}.get(kind, (4, 1, 1, 2))
    filter, bias = file.constant(np.ones(sides, np.float32)), file.constant(np.float32([3]))
    inputs = [x, filter, bias]
    options = {"weights_format": 0, **RELU} if flat else {"padding": 1, **ones, **RELU}
    if kind == "DEPTHWISE_CONV_2D":
        options["depth_multiplier"] = 2
    if kind == "TRANSPOSE_CONV":
        inputs = [file.constant(np.int32([1, 1, 1, 4])), filter, x, bias]
        options = {"padding": 1, "stride_h": 1, "stride_w": 1}
    file.operator(kind, inputs, [y], options, 3 if kind == "TRANSPOSE_CONV" else 1)
    path, target = file.write(tmp_path / "bias.tflite", [x], [y]), tmp_path / "after.tflite"
    device = npu(tmp_path, "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV_2D")
    first = advice(path, device)[0]
    assert (first.text, first.before.loads, first.after.standing) == (
        f"0 {kind}: a bias for each output channel in place of one for all",
        False,
        0,
    )
    done = call("rewrite", str(path), "--device", device, "--advice", "1", "-o", str(target))
    assert done["inputs"] == 0
    (found,) = reference("litert", target).run({"t0": np.ones((1, 2) if flat else (1, 1, 1, 2), np.float32)})
    assert found.ravel().tolist() == [4 if kind == "DEPTHWISE_CONV_2D" else 5] * 4


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_weights_with_a_scale_for_each_channel_get_one(signed: bool, transposed: bool, tmp_path: Path) -> None:
    """As quantize_static(per_channel=True) writes Gemm, for which ONNX Runtime's provider has no session."""
    pytest.importorskip("onnxruntime")
    random, axis = np.random.default_rng(0), 0 if transposed else 1
    weights, scales = random.integers(-127, 128, (3, 4)).astype(np.int8), np.float32([0.01, 0.02, 0.015])
    stored = weights if transposed else np.ascontiguousarray(weights.T)
    nodes: Nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["x8"]),
        ("DequantizeLinear", ["x8", "s", "z"], ["xr"]),
        ("DequantizeLinear", ["w", "ws", "wz"], ["wr"], {"axis": axis}),
        ("DequantizeLinear", ["b", "bs"], ["br"], {"axis": 0}),
        ("Gemm", ["xr", "wr", "br"], ["g"], {"transB": int(transposed)}),
        ("QuantizeLinear", ["g", "t", "p"], ["g8"]),
        ("DequantizeLinear", ["g8", "t", "p"], ["y"]),
    ]
    points = {"z": np.int8(3), "p": np.int8(5)} if signed else {"z": np.uint8(131), "p": np.uint8(133)}
    more = {"w": stored, "ws": scales, "wz": np.zeros(3, np.int8), "b": np.int32([50, 60, 70]), "bs": np.float32(0.05) * scales}
    path = onnx_file(tmp_path / "gemm.onnx", nodes, [2, 4], [2, 3], {**STEPS, **points, **more})
    found = advice(path, npu(tmp_path, "FULLY_CONNECTED", "QUANTIZE", "DEQUANTIZE"))
    first = next(one for one in found if one.text == f"whole file: {onnx_edits.ONE_SCALE}")
    assert (first.kind, first.after.standing, len(first.after.elsewhere)) == ("change", 0, 0)
    assert "per_channel=False" in first.converter
    values, after = seeded_inputs(load(path), 0), written(first, tmp_path, ".onnx")
    one, other = (reference("onnxruntime", file).run(values)[0] for file in (path, after))
    assert np.abs(one - other).max() <= 0.1001


def test_nodes_that_conversion_writes_out_in_several_are_the_files_own_to_advice(tmp_path: Path) -> None:
    """QLinearAdd is four nodes to the importer; LeakyRelu after it has its own rewrite all the same."""
    nodes, constants = q_pair()
    nodes = [*nodes[:-1], ("DequantizeLinear", ["y8", "t", "p"], ["r"]), ("LeakyRelu", ["r"], ["y"], {"alpha": 0.1})]
    path = q_file(tmp_path / "q.onnx", lambda: (nodes, constants))
    file, device = ModelFile(path, PHONE), npu(tmp_path, "PRELU")
    assert list(file.importer.positions(file.options).values())[::-1] == [0, 1, 1, 1, 1, 2, 3]
    advised = advise(file, Target.of(device))
    assert "3 LeakyRelu: PRelu with its alpha as a constant" in [one.text for one in advised.advice]
    found = {(one.index, one.operator) for one in advised.unmoved}
    assert found <= {(0, "QuantizeLinear"), (1, "QLinearAdd"), (2, "DequantizeLinear")}
