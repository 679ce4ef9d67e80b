"""Files that ONNX Runtime does not load: a plan's first line says so by a rule of its own, as the installed runtime does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.errors import ConversionError
from tests.commands import call
from tests.conftest import requires_recent_onnx_runtime
from tests.differential import Fork

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from tests.onnx.loading import candidate, loading_outcome, refusal, runtime_refusal  # noqa: E402

make, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
FLOAT, INT32, INT64, DOUBLE = (getattr(onnx.TensorProto, name) for name in ("FLOAT", "INT32", "INT64", "DOUBLE"))


def model(
    *nodes: Any,
    types: tuple[int, int] = (FLOAT, FLOAT),
    opset: int = 17,
    constants: dict[str, Any] | None = None,
    change: Callable[[Any], object] = lambda model: None,
    shape: tuple[int, ...] = (2, 3),
) -> bytes:
    """x through these nodes to y."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = onnx.helper.make_graph(nodes, "graph", [info("x", types[0], list(shape))], [info("y", types[1], None)], tensors)
    found = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    change(found)
    return bytes(found.SerializeToString())


def contrib(name: str, *inputs: str, **attributes: Any) -> Any:
    return make(name, list(inputs), ["y"], domain="com.microsoft", **attributes)


def stated(name: str, type: int) -> Callable[[Any], object]:
    return lambda model: model.graph.value_info.append(info(name, type, [2, 3]))


def newer(domain: str, version: int) -> Callable[[Any], object]:
    return lambda model: model.opset_import.append(onnx.helper.make_opsetid(domain, version))


QUANTITIES = ("x", "xs", "xz", "b", "bs", "bz", "ys", "yz")


def quantised(name: str, empty: int = -1) -> Any:
    return contrib(name, *("" if i == empty else one for i, one in enumerate(QUANTITIES)))


def quantities(**shapes: tuple[int, ...]) -> dict[str, Any]:
    """Constants of a quantised sum or product, scalars without a shape."""
    return {name: np.ones(shapes.get(name, ()), np.float32 if name[1:] == "s" else np.uint8) for name in QUANTITIES[1:]}


QUANTISED: dict[str, Any] = {"types": (2, 2), "constants": quantities(), "change": newer("com.microsoft", 1)}
RELU = make("Relu", ["x"], ["y"])
TWO = (make("Relu", ["x"], ["r"]), make("Abs", ["r"], ["y"]))
FOLDED = (make("Or", ["c", "c"], ["d"]), make("Cast", ["d"], ["e"], to=FLOAT), make("Add", ["x", "e"], ["y"]))
FILES = {
    "as it should be": model(RELU),
    # names
    "two nodes of one name": model(make("Relu", ["x"], ["r"], name="a"), make("Abs", ["r"], ["y"], name="a")),
    "two nodes of other names": model(make("Relu", ["x"], ["r"], name="a"), make("Abs", ["r"], ["y"], name="b")),
    **{f"a node that writes {name}": model(
        make(type, ["x"], [name]), make("Relu", ["x"], ["y"]), constants={"c": np.ones(3, np.float32)})
       for name in ("x", "c", "d") for type in ("Neg", "Identity")},
    **{f"{type} with {count} inputs, {last!r} last": model(
        contrib(type, "x", *("xs", "xz", "ys", "yz")[: count - 2], last), types=(3, 3), change=newer("com.microsoft", 1),
        constants={n: np.ones((), np.float32 if n[1] == "s" else np.int8) for n in ("xs", "xz", "ys", "yz")})
       for type in ("QLinearLeakyRelu", "QLinearSigmoid") for count, last in ((4, "ys"), (5, "yz"), (5, ""))},
    **{f"Attention with {name} of {value}": model(
        make("Attention", ["x", "x", "x"], ["y"], **{name: value}), shape=(1, 2, 3, 4), opset=23)
       for name, value in (("scale", 0.5), ("scale", 0.0), ("scale", float("nan")))},
    **{f"Attention with {count} outputs and products of step {step}": model(
        make("Attention", ["x", "x", "x"], ["y", "", "", "p"][:count], qk_matmul_output_mode=step), shape=(1, 2, 3, 4), opset=23)
       for count in (1, 4) for step in range(-2, 6)},
    "two nodes that write one value": model(make("Relu", ["x"], ["y"]), make("Abs", ["x"], ["y"])),
    # graph
    "an output that no node makes": model(make("Relu", ["x"], ["z"])),
    "an input that no node makes": model(make("Relu", ["z"], ["y"])),
    "a cycle": model(make("Add", ["x", "y"], ["z"]), make("Relu", ["z"], ["y"])),
    "nodes in another order": model(make("Abs", ["r"], ["y"]), make("Relu", ["x"], ["r"])),
    # versions
    "no opset": model(RELU, change=lambda model: model.ClearField("opset_import")),
    "an opset that is too new": model(RELU, change=lambda model: setattr(model.opset_import[0], "version", 99)),
    "com.microsoft of version 1": model(RELU, change=newer("com.microsoft", 1)),
    "com.microsoft of version 2": model(RELU, change=newer("com.microsoft", 2)),
    "an operator that the opset lacks": model(make("Gelu", ["x"], ["y"]), opset=17),
    # operands
    **{f"{type} with an input without a name after its last": model(make(type, ["x", ""], ["y"], **more))
       for type, more in (("Relu", {}), ("Cast", {"to": FLOAT}), ("Softmax", {}), ("Slice", {}))},
    "an input that is an output of another type": model(
        make("Relu", ["x"], ["y"]), change=lambda model: model.graph.output.append(info("x", INT64, [2, 3]))),
    **{f"{type} whose input {i} has no name": model(quantised(type, empty=i), **QUANTISED)
       for type in ("QLinearAdd", "QLinearMul") for i in range(8)},
    **{f"QLinearAdd whose input {i} is of {shape}": model(
        quantised("QLinearAdd"), **QUANTISED | {"constants": quantities(**{QUANTITIES[i]: shape})})
       for i in range(1, 8) for shape in ((), (1,), (1, 3), (2, 3), (4, 3))},
    **{f"FusedMatMul of {left} and {right}, {flags}": model(
        contrib("FusedMatMul", "x", "c", **dict.fromkeys(flags, 1)), shape=left, change=newer("com.microsoft", 1),
        constants={"c": np.ones(right, np.float32)})
       for left, right, *flags in (
           ((3,), (3, 4)), ((2,), (3, 4)), ((2, 3), (3,)), ((2, 3), (4,)), ((3,), (3,)), ((), (3,)), ((3,), ()),
           ((2, 3), (2,), "transA"), ((2, 3), (3,), "transA"), ((3,), (4, 3), "transB"), ((3,), (3, 4), "transB"),
           ((5, 2, 3), (4, 3, 6)), ((5, 2, 3), (1, 3, 6)), ((2, 5, 3), (5, 3, 6), "transBatchA"),
           ((2, 5, 3), (4, 3, 6), "transBatchA"), ((2, 5, 3), (5, 2, 6), "transBatchA", "transA"),
           ((5, 2, 3), (4, 5, 6), "transBatchB"), ((5, 2, 3), (6, 5, 3), "transBatchB", "transB"))},
    **{f"losses of {scores} and {labels}": model(
        make("NegativeLogLikelihoodLoss", ["x", "c"], ["y"]), shape=scores, constants={"c": np.zeros(labels, np.int64)})
       for scores, labels in (
           ((3, 4), (3,)), ((3, 4), (2,)), ((3, 4, 5), (3, 5)), ((3, 4, 5), (3, 4)), ((3, 4, 5), (3, 1)), ((4,), ()))},
    **{f"{mode} resize by {scales}": model(
        make("Resize", ["x", "", "c"], ["y"], mode=mode), shape=(2, 3, 4), constants={"c": np.float32(scales)})
       for mode in ("linear", "cubic") for scales in ((1.5, 3, 1), (2, 1, 1), (1, 3, 3), (2, 2, 2))},
    **{f"linear resize by {scales} at opset 10": model(
        make("Resize", ["x", "c"], ["y"], mode="linear"), shape=(1, 2, 3, 4), opset=10, constants={"c": np.float32(scales)})
       for scales in ((1, 1, 2, 2), (2, 1, 2, 2), (1, 2, 2, 1))},
    # operators that ONNX writes out as functions
    **{f"MeanVarianceNormalization of {type}": model(
        make("MeanVarianceNormalization", ["x"], ["y"]), types=(code, code), shape=(1, 2, 2, 2))
       for type, code in (("float", FLOAT), ("float16", 10), ("double", DOUBLE), ("bool", 9))},
    # what kernels require of attributes
    **{f"{type} {ways} of {size}": model(make(type, ["x", "w", "r"], ["y"], direction=ways, **size), shape=(2, 1, 3), constants={
        "w": np.ones((1, 2 * gates, 3), np.float32), "r": np.ones((1, 2 * gates, 2), np.float32)})
       for type, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
       for ways in ("forward", "Forward", "") for size in ({"hidden_size": 2}, {"hidden_size": 0}, {})},
    **{f"{type} with {name} of {value}": model(
        make(type, ["x", *constants], ["y"], **{name: value}, **more), shape=(1, 4, 2, 2), constants=constants)
       for type, name, values, constants, more in (
           ("CumSum", "reverse", (0, 1, 2, -1), {"c": np.int64(0)}, {}),
           ("CumSum", "exclusive", (0, 1, 2, -1), {"c": np.int64(0)}, {}),
           *(("LRN", name, (0.0, -1.0, 1e-9), {}, {"size": 3}) for name in ("alpha", "beta", "bias")),
           ("MaxRoiPool", "spatial_scale", (0.0, -1.0, 0.5), {"c": np.zeros((1, 5), np.float32)}, {"pooled_shape": [1, 1]}),
           ("LpNormalization", "p", (0, 1, 2, 3), {}, {}),
           ("AveragePool", "auto_pad", ("NOTSET", "VALID", "", "valid", "x"), {}, {"kernel_shape": [2, 2]}),
           ("MaxPool", "storage_order", (0, 1, 2, -1), {}, {"kernel_shape": [1, 1]}),
           ("MaxPool", "pads", ([0, 0, 0, 0], [1, 1, 0, 0], [2, 0, 0, 0], [-1, 0, 0, 0]), {}, {"kernel_shape": [2, 2]}),
           ("LpPool", "auto_pad", ("SAME_LOWER", "same"), {}, {"kernel_shape": [2, 2]}),
           ("Conv", "auto_pad", ("NOTSET", "", "VALID", "SAME_UPPER", "x"), {"c": np.ones((1, 4, 1, 1), np.float32)},
            {"pads": [0, 0, 0, 0]}),
           ("ConvTranspose", "auto_pad", ("NOTSET", "VALID", "x"), {"c": np.ones((4, 1, 1, 1), np.float32)}, {}),
           ("Resize", "coordinate_transformation_mode", ("half_pixel", "asymmetric", "", "x"),
            {"c": np.float32([]), "d": np.float32([1, 1, 2, 2])}, {}),
           ("Resize", "nearest_mode", ("floor", "", "x"), {"c": np.float32([]), "d": np.float32([1, 1, 2, 2])}, {}),
           ("Resize", "exclude_outside", (0, 1, 2), {"c": np.float32([]), "d": np.float32([1, 1, 2, 2])}, {"mode": "linear"}),
           ("Resize", "exclude_outside", (0, 1), {"c": np.float32([]), "d": np.float32([1, 1, 2, 2])}, {"mode": "cubic"}),
           ("GridSample", "mode", ("bilinear", "bicubic", "linear", "", "x"), {"c": np.zeros((1, 1, 1, 2), np.float32)}, {}),
           ("GridSample", "padding_mode", ("zeros", "border", "x", ""), {"c": np.zeros((1, 1, 1, 2), np.float32)}, {}),
           ("RoiAlign", "mode", ("avg", "AVG", "max", "x"),
            {"c": np.zeros((1, 4), np.float32), "d": np.zeros(1, np.int64)}, {}),
           ("RoiAlign", "sampling_ratio", (0, 1, -1), {"c": np.zeros((1, 4), np.float32), "d": np.zeros(1, np.int64)}, {}),
           ("ReverseSequence", "batch_axis", (-3, -1, 0), {"c": np.ones(1, np.int64)}, {"time_axis": 1}),
           ("ReverseSequence", "time_axis", (1, -4), {"c": np.ones(1, np.int64)}, {"batch_axis": 1}),
           ("Mod", "fmod", (1, 2), {"c": np.ones(2, np.float32)}, {}),
           ("Pad", "mode", ("edge", "Edge", ""), {"c": np.zeros(8, np.int64)}, {}),
           ("DepthToSpace", "mode", ("CRD", "crd", ""), {}, {"blocksize": 2}),
           ("ReverseSequence", "batch_axis", (0, 2), {"c": np.ones(1, np.int64)}, {"time_axis": 1}),
           ("LayerNormalization", "own", (1,), {"c": np.ones(2, np.float32)}, {}))
       for value in values},
    **{f"Clip of opset {opset} from {least}": model(make("Clip", ["x"], ["y"], min=least, max=1.0), opset=opset)
       for opset in (5, 6, 10) for least in (0.0, 1.0, 2.0, float("nan"))},
    **{f"{type} {ways} with {names}": model(
        make(type, ["x", "w", "r"], ["y"], hidden_size=2, direction=ways, activations=names), shape=(2, 1, 3),
        constants={"w": np.ones((1 + (ways == "bidirectional"), 2 * gates, 3), np.float32),
                   "r": np.ones((1 + (ways == "bidirectional"), 2 * gates, 2), np.float32)})
       for type, gates, own in (("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3)) for ways in ("forward", "bidirectional")
       for names in (["Tanh"] * own, ["Tanh"] * 2 * own, ["tanh"] * own, ["Own"] * own, ["Tanh"] * (own + 1))},
    **{f"GroupNormalization with stash_type {type}": model(
        make("GroupNormalization", ["x", "c", "c"], ["y"], num_groups=1, stash_type=type), shape=(2, 6, 4), opset=21,
        constants={"c": np.ones(6, np.float32)}) for type in (0, 1, 2, 10, 11)},
    **{f"CastLike with saturate {one}": model(
        make("CastLike", ["x", "c"], ["y"], saturate=one), opset=19, constants={"c": np.ones(1, np.float32)})
       for one in (0, 1, 2)},
    **{f"linear Upsample of opset 8 by {scales}": model(
        make("Upsample", ["x"], ["y"], mode="linear", scales=scales), shape=(1, 2, 3, 4), opset=8)
       for scales in ([1, 1, 2, 2], [2, 1, 2, 2], [1, 2, 2, 1], [1, 1, 1, 1])},
    **{f"{type} of ai.onnx of {code}": model(make(type, ["x"], ["y"], domain="ai.onnx"), types=(code, code), opset=20)
       for type in ("HardSwish", "Gelu", "Elu") for code in (FLOAT, DOUBLE)},
    **{f"LayerNormalization of opset 14 with scales of {scales.dtype}": model(
        make("LayerNormalization", ["x", "c"], ["y"]), opset=14, constants={"c": scales})
       for scales in (np.ones(3, np.float32), np.ones(3), np.ones(3, np.int8))},
    **{f"{type} of rank {len(shape)}": model(
        contrib(type, "x", "x", "c"), shape=shape, constants={"c": np.ones(1, np.float32)}, change=newer("com.microsoft", 1))
       for type in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization") for shape in ((), (1, 1), (1, 1, 1))},
    # attributes
    "a required attribute that is missing": model(make("Cast", ["x"], ["y"])),
    "an attribute that the operator lacks": model(make("Relu", ["x"], ["y"], axis=1)),
    "an attribute of another type": model(make("Softmax", ["x"], ["y"], axis=[1])),
    "an attribute that the operator of com.microsoft lacks": model(contrib("Gelu", "x", own=1), change=newer("com.microsoft", 1)),
    # types
    "a type that the operator lacks": model(make("Or", ["x", "x"], ["y"])),
    "operands of two types": model(make("Add", ["x", "c"], ["y"]), constants={"c": np.ones(1)}),
    "another type stated than computed": model(RELU, types=(FLOAT, INT32)),
    "another inner type stated than computed": model(*TWO, change=stated("r", INT64)),
    "another shape stated than computed": model(*TWO, shape=(4, 5), change=stated("r", FLOAT)),
    "a type without a kernel": model(make("Softsign", ["x"], ["y"]), types=(DOUBLE, DOUBLE)),
    "a function of types without a kernel": model(make("HardSwish", ["x"], ["y"]), types=(DOUBLE, DOUBLE)),
    "a function of types with kernels": model(make("LessOrEqual", ["x", "x"], ["y"]), types=(DOUBLE, onnx.TensorProto.BOOL)),
    "half numbers, which are cast": model(make("Sin", ["x"], ["y"]), types=(onnx.TensorProto.FLOAT16,) * 2),
    # numbers of operands
    "an input too few": model(make("Add", ["x"], ["y"])),
    "an input too many": model(make("Relu", ["x", "x"], ["y"])),
    "an input too few of com.microsoft": model(contrib("BiasGelu", "x"), change=newer("com.microsoft", 1)),
    # shapes
    "an axis beyond the last": model(make("Concat", ["x", "x"], ["y"], axis=5)),
    "matrices that do not fit": model(make("MatMul", ["x", "x"], ["y"])),
    # constants
    **{f"a Constant whose value is {name} of {type}": model(
        make("Constant", [], ["c"], **{name: value}), make("Add", ["x", "c"], ["y"]), types=(code, code))
       for name in ("axis", "own", "value") for type, value, code in (
           ("INT", 3, INT64), ("INTS", [1, 2, 3], INT64), ("FLOAT", 0.5, FLOAT), ("FLOATS", [0.5], FLOAT),
           ("TENSOR", onnx.numpy_helper.from_array(np.int64([1])), INT64), ("STRING", "x", INT64))},
    **{f"a Constant of {array.dtype} at opset {opset}": model(
        make("Constant", [], ["c"], value=onnx.numpy_helper.from_array(array)), make("Add", ["x", "c"], ["y"]),
        types=(code, code), opset=opset)
       for array, code in ((np.int32([1]), INT32), (np.int64([1]), INT64), (np.float32([1]), FLOAT)) for opset in (7, 8, 12)},
    "a Constant of another domain with inputs": model(
        make("Constant", ["x"], ["c"], domain="my.domain", own=0.5), make("Add", ["x", "c"], ["y"])),
    "a Constant that is an output, stated as of another type": model(make("Constant", [], ["y"], value_int=1)),
    **{f"a constant stated as an input {of} of {shape}": model(
        make("Add", ["x", "c"], ["y"]), constants={"c": np.ones(3, np.float32)},
        change=lambda model, type=type, shape=shape: model.graph.input.append(info("c", type, shape)))
       for of, type in (("alike", FLOAT), ("of another type", INT32)) for shape in ([3], [1], [1, 3], ["n"], None)},
    **{f"a constant twice, the second one of {array.dtype} {array.shape}": model(
        make("Add", ["x", "c"], ["y"]), constants={"c": np.ones(3, np.float32)},
        change=lambda model, array=array: model.graph.initializer.append(onnx.numpy_helper.from_array(array, "c")))
       for array in (np.zeros(3, np.float32), np.zeros(1, np.float32), np.zeros(3), np.zeros(3, np.int64))},
    **{f"an output twice, the other time of {shape} of type {type}": model(
        RELU, change=lambda model, type=type, shape=shape: model.graph.output.append(info("y", type, shape)))
       for type in (FLOAT, INT32) for shape in ([2, 3], [4, 3])},
    "an output twice, the first time of another type": model(
        RELU, types=(FLOAT, INT32), change=lambda model: model.graph.output.append(info("y", FLOAT, [2, 3]))),
    **{f"{type} divided by {divisors}": model(
        make("Div", ["x", "c"], ["y"]), types=(code, code), constants={"c": np.asarray(divisors, dtype)})
       for type, code, dtype in (("int32", INT32, np.int32), ("int64", INT64, np.int64), ("float", FLOAT, np.float32))
       for divisors in (0, [1, 0, 2], [1, 2, 3], [-1])},
    "integers divided by a Constant of 0": model(
        make("Constant", [], ["c"], value_int=0), make("Div", ["x", "c"], ["y"]), types=(INT64, INT64)),
    # element types
    **{f"an {side} of the type {type}": model(
        make("Identity", ["x"], ["y"]), change=lambda model, side=side, type=type: setattr(
            getattr(model.graph, side)[0].type.tensor_type, "elem_type", type))
       for side in ("input", "output") for type in (0, 14, 15)},
    **{f"an unread input of the type {type}": model(RELU, change=lambda model, type=type: model.graph.input.append(
        info("u", type, [2]))) for type in (0, 13, 14, 16)},
    **{f"a cast to the undefined type, stated as of {type}": model(make("Cast", ["x"], ["y"], to=0), types=(FLOAT, type))
       for type in (FLOAT, INT32, INT64)},
    # shapes that it does not know
    **{f"a concatenated sequence along {axis}, {new}": model(
        make("SequenceConstruct", ["x", "x"], ["s"]), make("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new))
       for axis in (0, 5) for new in (0, 1, 2)},
    "a tensor of a sequence as a matrix that does not fit": model(
        make("SequenceConstruct", ["x"], ["s"]), make("SequenceAt", ["s", "i"], ["t"]), make("MatMul", ["t", "t"], ["y"]),
        constants={"i": np.int64(0)}),
    **{f"a value stated as of {shape} that is repeated": model(
        make("Neg", ["x"], ["r"]), make("Tile", ["r", "c"], ["y"]), shape=(4, 1, 5), constants={"c": np.int64(counts)},
        change=lambda model, shape=shape: model.graph.value_info.append(info("r", FLOAT, shape)))
       for shape in ([4, 1, 5], [4, 1], [4, 1, 6], ["n", 1, 5]) for counts in ([1, 1, 1], [1, 1], [2, 2, 2, 2])},
    # functions with attributes that are left out
    **{f"{type} of {code} without attributes": model(make(type, ["x"], ["y"]), types=(code, code), opset=18)
       for type in ("Elu", "Celu", "Selu", "ThresholdedRelu", "HardSigmoid", "LeakyRelu") for code in (FLOAT, 10, DOUBLE)},
    **{f"MeanVarianceNormalization of opset {opset} with {name}": model(
        make("MeanVarianceNormalization", ["x"], ["y"], **{name: value}), shape=(1, 2, 2, 2), opset=opset)
       for opset in (6, 8, 9) for name, value in (("axes", [0, 1]), ("across_channels", 1), ("axes", [9, 9]))},
    **{f"{type} of com.microsoft of {code}": model(
        contrib(type, "x"), types=(code, code), change=newer("com.microsoft", 1))
       for type in ("QuickGelu", "Gelu", "FastGelu") for code in (FLOAT, 10, DOUBLE)},
    # operands that are left out at the end
    **{f"{type} beyond its rank and a left-out input last": model(make(type, ["x", "x", ""], ["y"], axis=9))
       for type in ("Concat", "ConcatFromSequence")},
    "a sum with a left-out input last": model(make("Sum", ["x", "c", ""], ["y"]), constants={"c": np.ones((5, 7), np.float32)}),
    # half numbers in early opsets
    **{f"{type} of half numbers at opset {opset}": model(make(type, ["x"], ["y"]), types=(10, 10), opset=opset)
       for type in ("Exp", "Softplus", "GlobalMaxPool", "Relu") for opset in (1, 5, 6, 7)},
    # functions
    **{f"a function of {inner} called with {type}, stated as {stated}": model(
        make("F", ["x"], ["y"], domain="own"), types=(code, output),
        change=lambda model, inner=inner: (newer("own", 1)(model), model.functions.append(onnx.helper.make_function(
            "own", "F", ["a"], ["b"], [make(inner, ["a"], ["b"])], [onnx.helper.make_opsetid("", 17)]))))
       for inner in ("Relu", "Softsign", "Not") for type, code in (("float", FLOAT), ("double", DOUBLE))
       for stated, output in (("float", FLOAT), ("int32", INT32), ("double", DOUBLE))},
    **{f"GroupNormalization into {groups} of {scales} scales, opset {opset}": model(
        make("GroupNormalization", ["x", "c", "c"], ["y"], num_groups=groups), shape=(2, 6, 4), opset=opset,
        constants={"c": np.ones(scales, np.float32)})
       for opset in (18, 21) for groups, scales in ((3, 6), (3, 3), (0, 6), (2, 0), (2, 5))},
    **{f"GroupNormalization of {shape}": model(
        make("GroupNormalization", ["x", "c", "c"], ["y"], num_groups=1), shape=shape, opset=21,
        constants={"c": np.ones(3, np.float32)})
       for shape in ((2, 3, 4, 0), (2, 3, 0, 4), (2, 0, 4, 4), (0, 3, 4, 4), (2, 3, 0), (2, 3, 4, 4, 0), (2, 3, 4, 0, 4))},
    **{f"CenterCropPad of type {code}": model(
        make("CenterCropPad", ["x", "c"], ["y"]), types=(code, code), opset=18, constants={"c": np.int64([3, 3])})
       for code in (FLOAT, 5, INT32, 12)},
    "CenterCropPad to a shape of int32": model(make("CenterCropPad", ["x", "x"], ["y"]), types=(INT32, INT32), opset=18),
    **{f"Gelu of type {code}": model(make("Gelu", ["x"], ["y"]), types=(code, code), opset=20) for code in (FLOAT, 10, DOUBLE)},
    **{f"MeanVarianceNormalization of {type} at opset 9": model(
        make("MeanVarianceNormalization", ["x"], ["y"]), types=(code, code), shape=(1, 2, 2, 2), opset=9)
       for type, code in (("float", FLOAT), ("float16", 10))},
    # axes
    **{f"{type} along {axis} at opset {opset}": model(
        make(type, ["x", "c"], ["y"], axis=axis), opset=opset, constants={"c": np.ones(3, np.float32)})
       for type, opset in (("LayerNormalization", 12), ("LayerNormalization", 17), ("SimplifiedLayerNormalization", 12))
       for axis in (-3, -2, 1, 2)},
    # all of it folded
    "a constant of a type that the operator lacks": model(*FOLDED, constants={"c": np.ones(3, np.float32)}),
    # kernels that look at attributes
    "an even window of LRN": model(make("LRN", ["x"], ["y"], size=4), shape=(1, 4, 2, 2)),
    "a mode that Resize lacks": model(
        make("Resize", ["x", "", "s"], ["y"], mode="area"), constants={"s": np.float32([1, 1, 2, 2])}, shape=(1, 1, 2, 2)
    ),
    "dimensions that Resize does not interpolate": model(
        make("Resize", ["x", "", "s"], ["y"], mode="linear"), constants={"s": np.float32([2, 1, 2, 2])}, shape=(1, 1, 2, 2)
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runtime() -> Iterator[Fork]:
    requires_recent_onnx_runtime()
    import onnxruntime  # noqa: F401 - once, before the fork

    fork = Fork(runtime_refusal)
    yield fork
    fork.close()


@pytest.mark.parametrize("name", FILES)
def test_a_file_loads_where_onnx_runtime_loads_it(name: str, tmp_path: Path, runtime: Fork) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES[name])
    try:
        (why,) = runtime.run(str(path))
    except RuntimeError as error:  # The file ends its process.
        why = str(error)
    found, says_so = refusal(path)
    assert bool(found) == bool(why), (why, found)
    assert says_so == bool(found) or "opset" in name, found


def test_the_refusal_is_the_first_line_of_a_plan_with_the_node_and_the_rule(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES["two nodes of one name"])
    sentence = (
        "ONNX Runtime does not load this file: node 0 Relu 'a': ONNX Runtime requires nodes of different names, found 2 of the "
        "name 'a'"
    )
    assert call("plan", str(path)).stdout.startswith(sentence)
    assert nnbridge.plan(path).loads is False
    with pytest.raises(ConversionError, match="nodes of different names"):
        nnbridge.run(path, seed=0)


def test_the_wide_mapping_runs_a_file_that_onnx_runtime_does_not_load(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FILES["two nodes of one name"])
    assert nnbridge.run(path, seed=0, mapping="wide")["y"].shape == (2, 3)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_drawn_and_broken_files_load_where_onnx_runtime_loads_them(first: int, tmp_path: Path, runtime: Fork) -> None:
    """``compare_onnx_loading.py`` draws thousands more."""
    path = tmp_path / "m.onnx"
    for number in range(first, first + 50):
        content = candidate(1, number)
        if content is None:
            continue
        path.write_bytes(content)
        try:
            (why,) = runtime.run(str(path))
        except RuntimeError as error:
            why = str(error)
        found, says_so = refusal(path)
        assert not loading_outcome(why, found, stated=says_so).startswith("only"), (number, why, found)
