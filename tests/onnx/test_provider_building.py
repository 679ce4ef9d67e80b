"""The second half of ONNX Runtime's NNAPI provider: nodes that its check accepts, and of which no model can be built, or run.

Source: onnxruntime/core/providers/nnapi/nnapi_builtin/builders of microsoft/onnxruntime, and logs in public reports of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import refusal_of, taken
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import Stage
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.types import OperationCode

onnx = pytest.importorskip("onnx")
make, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
FLOAT, UINT8, INT32, INT64 = (getattr(onnx.TensorProto, name) for name in ("FLOAT", "UINT8", "INT32", "INT64"))


@dataclass(frozen=True)
class Network:
    """A small file."""

    nodes: Sequence[Any]
    inputs: Mapping[str, tuple[int, Sequence[int]]]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    opset: int = 18
    level: int = 8
    layout: str = "auto"
    types: Mapping[str, int] = field(default_factory=dict)
    """Types of outputs that are not float."""

    def write(self, folder: Path) -> Path:
        graph = onnx.helper.make_graph(
            self.nodes,
            "network",
            [info(name, type, dims) for name, (type, dims) in self.inputs.items()],
            [info(name, self.types.get(name, FLOAT), None) for name in self.outputs],
            [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in self.constants.items()],
        )
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=8)
        path = folder / "network.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(made), str(path))
        return path

    def converted(self, folder: Path) -> tuple[Model, tuple[Mapped, ...]]:
        return ModelFile(self.write(folder), ConversionOptions(self.level, "provider", self.layout)).converted


def of_rank_5(*nodes: Any, **facts: Any) -> Network:
    """A convolution, whose result gets five dimensions, and nodes that read ``r``."""
    before = [make("Conv", ["x", "w"], ["c"]), make("Reshape", ["c", "shape"], ["r"])]
    constants = {"w": np.ones((4, 4, 1, 1), np.float32), "shape": np.array([1, 2, 2, 4, 4]), **facts.pop("constants", {})}
    return Network([*before, *nodes], {"x": (FLOAT, [1, 4, 4, 4])}, constants, **facts)


def quantised(node: Any, weights: Mapping[str, np.ndarray], dims: Sequence[int] = (1, 4)) -> Network:
    """A product on 8-bit values: ``q``, ``w`` and ``y`` have scales and zero points."""
    scales = weights.get("w_scale", np.array(0.5, np.float32))
    constants = {
        "scale": np.array(0.1, np.float32), "zero": np.array(10, np.uint8), "w_scale": scales,
        "w_zero": np.zeros(scales.shape, weights["w"].dtype), **weights,
    }  # fmt: skip
    nodes = [
        make("DequantizeLinear", ["q", "scale", "zero"], ["x"]),
        make("DequantizeLinear", ["w", "w_scale", "w_zero"], ["v"], axis=0),
        node,
        make("QuantizeLinear", ["z", "scale", "zero"], ["y"]),
    ]
    return Network(nodes, {"q": (UINT8, dims)}, constants, types={"y": UINT8})


X = {"x": (FLOAT, [1, 2, 4, 32])}
BYTES = {"scale": np.array(0.1, np.float32), "zero": np.array(10, np.uint8), "other": np.array(0.2, np.float32)}
CONCAT = [
    make("DequantizeLinear", ["a", "scale", "zero"], ["b"]),
    make("DequantizeLinear", ["c", "scale", "zero"], ["d"]),
    make("Concat", ["b", "d"], ["e"], axis=1),
    make("QuantizeLinear", ["e", "scale", "zero"], ["y"]),
]

BUILDER: dict[str, tuple[Network, str, str]] = {
    "Split of opset 18 with sizes": (
        Network([make("Relu", ["x"], ["r"]), make("Split", ["r", "s"], ["a", "b"], axis=3), make("Add", ["a", "b"], ["y"])],
                X, {"s": np.array([16, 16])}),
        "Split", "count [0] does not evenly divide dimension 3 [32]",
    ),
    "Split of opset 20 with sizes along an axis from the end": (
        Network([make("Split", ["x", "s"], ["a", "b"], axis=-2), make("Add", ["a", "b"], ["y"])], X, {"s": np.array([2, 2])},
                opset=20),
        "Split", "count [0] does not evenly divide dimension 2 [4]",
    ),
    "Pad with a list of axes": (
        Network([make("Pad", ["x", "p", "v", "axes"], ["y"])], X,
                {"p": np.array([1, 1]), "v": np.float32(0), "axes": np.array([3])}),
        "Pad", "The input/initializer of graph doesn't have valid type, name: axes type: 7",
    ),
    "Gemm of int8 weights with transB, between quantisations": (
        quantised(make("Gemm", ["x", "v"], ["z"], transB=1), {"w": np.ones((3, 4), np.int8)}),
        "Gemm", "The input/initializer of graph doesn't have valid type, name: w type: 3",
    ),
    "Concat of two inputs of the model, between quantisations": (
        Network(CONCAT, {"a": (UINT8, [1, 4]), "c": (UINT8, [1, 4])}, BYTES, types={"y": UINT8}),
        "Concat", "The input/initializer of graph has unsupported quantized type, name: c type: 2",
    ),
    "Concat with a constant, between quantisations": (
        Network(CONCAT, {"a": (UINT8, [1, 4])}, {**BYTES, "c": np.ones((1, 4), np.uint8)}, types={"y": UINT8}),
        "Concat", "name: c type: 2",
    ),
    "bytes of two scales side by side": (
        Network([make("QuantizeLinear", ["x", "scale", "zero"], ["a"]), make("QuantizeLinear", ["x", "other", "zero"], ["c"]),
                 make("Concat", ["a", "c"], ["y"], axis=1)], X, BYTES, types={"y": UINT8}),
        "Concat", "Input[1]'s scale: 0.2 is different than input[0]'s scale: 0.1",
    ),
    "two scales for one input": (
        Network([make("DequantizeLinear", ["q", "scale", "zero"], ["a"]), make("DequantizeLinear", ["q", "other", "zero"], ["b"]),
                 make("Add", ["a", "b"], ["y"])], {"q": (UINT8, [1, 4])}, BYTES),
        "DequantizeLinear", "Input [q] NNAPI input scale: 0.1, ONNX input scale: 0.2",
    ),
    "another scale than the node before wrote": (
        Network([make("QuantizeLinear", ["x", "scale", "zero"], ["q"]), make("DequantizeLinear", ["q", "other", "zero"], ["y"])],
                X, BYTES),
        "DequantizeLinear", "Input [q] NNAPI input scale: 0.1, ONNX input scale: 0.2",
    ),
    "LRN in the file's own layout at feature level 2": (
        Network([make("LRN", ["x"], ["y"], size=3)], X, level=2, layout="nchw"),
        "LRN", "NCHW format is not supported on android api level 28",
    ),
}  # fmt: skip

BUILDING: dict[str, tuple[Network, str, str]] = {
    "Tanh of five dimensions": (of_rank_5(make("Tanh", ["r"], ["y"])), "Tanh", ""),
    "Relu of five dimensions": (of_rank_5(make("Relu", ["r"], ["y"])), "Relu", ""),
    "Floor of five dimensions": (of_rank_5(make("Floor", ["r"], ["y"])), "Floor", ""),
    "Clip of five dimensions": (
        of_rank_5(make("Clip", ["r", "l", "h"], ["y"]), constants={"l": np.float32(0), "h": np.float32(6)}), "Clip", "",
    ),
    "LeakyRelu before NNAPI has LESS": (Network([make("LeakyRelu", ["x"], ["y"])], X, level=2), "LeakyRelu", ""),
    "batches of matrices of five dimensions": (
        Network([make("MatMul", ["x", "x"], ["y"])], {"x": (FLOAT, [1, 2, 2, 3, 3])}), "MatMul", "",
    ),
    "Reshape to a scalar": (
        Network([make("Exp", ["x"], ["e"]), make("Reshape", ["e", "s"], ["y"])], {"x": (FLOAT, [1])},
                {"s": np.zeros(0, np.int64)}),
        "Reshape", "not fully specified",
    ),
    "Squeeze of nothing": (
        Network([make("Exp", ["x"], ["e"]), make("Squeeze", ["e"], ["y"])], {"x": (FLOAT, [2, 3])}),
        "Squeeze", "not fully specified",
    ),
    "Gemm of weights with a scale for each channel": (
        quantised(make("Gemm", ["x", "v"], ["z"]), {"w": np.ones((4, 3), np.int8), "w_scale": np.full(4, 0.5, np.float32)}),
        "Gemm", "ANEURALNETWORKS_BAD_DATA",
    ),
    "an input that is an output": (
        Network([make("Identity", ["x"], ["a"]), make("Exp", ["a"], ["y"])], X, outputs=("y", "a")), "Identity",
        "Can't set operand to be an input or output",
    ),
    "one value as two outputs": (
        Network([make("Exp", ["x"], ["a"]), make("Identity", ["a"], ["y"])], X, outputs=("y", "a")), "Identity",
        "Can't set operand to be an input or output",
    ),
    "one value under three names": (
        Network([make("Exp", ["x"], ["a"]), make("Identity", ["a"], ["y"]), make("Identity", ["a"], ["z"])], X,
                outputs=("y", "z")),
        "Identity", "Can't set operand to be an input or output",
    ),
    "a value of ONNX Runtime's own that is an output": (
        Network([make("Erf", ["x"], ["e"]), make("Identity", ["e"], ["a"]), make("Exp", ["e"], ["y"])], X, outputs=("y", "a")),
        "Identity", "Can't set operand to be an input or output",
    ),
}  # fmt: skip

W = {"w": np.ones((2, 2, 1, 1), np.float32)}
RUNNING: dict[str, tuple[Network, str]] = {
    "Gather by a computed scalar": (
        Network([make("Gather", ["x", "i"], ["g"], axis=1), make("Exp", ["g"], ["y"])], {**X, "i": (INT32, [])}), "Gather",
    ),
    "Gather by a constant scalar of int32": (
        Network([make("Gather", ["x", "i"], ["g"], axis=1), make("Exp", ["g"], ["y"])], X, {"i": np.int32(1)}), "Gather",
    ),
    "Gather from the end": (Network([make("Gather", ["x", "i"], ["y"], axis=1)], X, {"i": np.array([-1])}), "Gather"),
    "Gather of the last element": (Network([make("Gather", ["x", "i"], ["y"], axis=3)], X, {"i": np.array(-1)}), "Gather"),
    "Gather of one element of a vector": (
        Network([make("Exp", ["x"], ["e"]), make("Gather", ["e", "i"], ["y"])], {"x": (FLOAT, [3])}, {"i": np.array(1)}),
        "Gather",
    ),
    "a convolution of more padding than its window": (
        Network([make("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], X, W), "Conv",
    ),
    "a pool of more padding than its window": (
        Network([make("MaxPool", ["x"], ["y"], kernel_shape=[1, 2], pads=[1, 1, 1, 1])], X), "MaxPool",
    ),
}  # fmt: skip


def failure(network: Network, folder: Path) -> tuple[str, str, Stage | None]:
    """The sentence, the node that is named and the stage."""
    found = refusal_of(network.converted(folder)[1], "provider")
    return ("", "", None) if found is None else (found.sentence, found.reason.operation, found.stage)


@pytest.mark.parametrize(("network", "node", "log"), BUILDER.values(), ids=BUILDER)
def test_what_a_builder_presupposes_costs_the_session(network: Network, node: str, log: str, tmp_path: Path) -> None:
    sentence, operation, stage = failure(network, tmp_path)
    assert (operation.split()[-1], stage) == (node, Stage.BUILDER)
    assert log in sentence
    assert "building fails" in sentence
    assert sentence.endswith("no session")


@pytest.mark.parametrize(("network", "node", "log"), BUILDING.values(), ids=BUILDING)
def test_what_nnapi_refuses_of_a_builder_costs_the_session(network: Network, node: str, log: str, tmp_path: Path) -> None:
    sentence, operation, stage = failure(network, tmp_path)
    assert (operation.split()[-1], stage) == (node, Stage.BUILDING)
    assert log in sentence
    assert sentence.endswith("no session")


@pytest.mark.parametrize(("network", "node"), RUNNING.values(), ids=RUNNING)
def test_what_nnapi_cannot_run_fails_each_run(network: Network, node: str, tmp_path: Path) -> None:
    sentence, operation, stage = failure(network, tmp_path)
    assert (operation.split()[-1], stage) == (node, Stage.RUNNING)
    assert sentence.endswith("each run fails")


@pytest.mark.parametrize("device", ["nnapi-reference", "nnapi-sample_all", "nnapi-sample_minimal"])
@pytest.mark.parametrize("network", [one[0] for one in RUNNING.values()], ids=RUNNING)
def test_what_nnapi_cannot_run_is_handed_over_as_the_provider_takes_it(network: Network, device: str, tmp_path: Path) -> None:
    found = nnbridge.plan(network.write(tmp_path), device=device)
    figures = found.summary
    assert figures.handed_over + figures.merged == sum(map(taken, found.mapped))
    assert sum(figures.elsewhere.values()) + figures.on_device == figures.operators
    assert "ONNX Runtime's CPU" not in figures.elsewhere


def test_where_building_fails_nothing_is_nnapis_and_all_that_was_taken_is_counted(tmp_path: Path) -> None:
    nodes = [make("Erf", ["x"], ["f"]), make("Relu", ["f"], ["r"]), make("Split", ["r", "s"], ["a", "b"], axis=3)]
    network = Network([*nodes, make("Add", ["a", "b"], ["y"])], X, {"s": np.array([16, 16])})
    _, mapped = network.converted(tmp_path)
    assert [one.mapping for one in mapped] == ["host"] * 4
    sentence, *_ = failure(network, tmp_path)
    assert sentence.startswith("ONNX Runtime's NNAPI provider takes 3 of 4 nodes; building fails at node 2 Split: ")
    counts = nnbridge.plan(network.write(tmp_path)).summary.as_dict()
    assert (counts["handed_over"], counts["on_device"], counts["partitions"]) == (3, 0, 0)


GOOD: dict[str, tuple[Network, list[str]]] = {
    "Split of opset 13 with sizes": (
        Network([make("Split", ["x", "s"], ["a", "b"], axis=3), make("Add", ["a", "b"], ["y"])], X, {"s": np.array([16, 16])},
                opset=13),
        ["SPLIT", "ADD"],
    ),
    "Split of opset 18 by number": (
        Network([make("Split", ["x"], ["a", "b"], axis=3, num_outputs=2), make("Add", ["a", "b"], ["y"])], X), ["SPLIT", "ADD"],
    ),
    "Gather by a constant scalar of int64": (
        Network([make("Gather", ["x", "i"], ["y"], axis=1)], X, {"i": np.array(1)}), ["GATHER", "SQUEEZE"],
    ),
    "Gather by computed indexes": (
        Network([make("Gather", ["x", "i"], ["y"], axis=1)], {**X, "i": (INT32, [2])}), ["GATHER"],
    ),
    "LeakyRelu": (Network([make("LeakyRelu", ["x"], ["y"])], X), ["LESS", "MUL", "SELECT"]),
    "Squeeze": (Network([make("Exp", ["x"], ["e"]), make("Squeeze", ["e"], ["y"])], X), ["EXP", "SQUEEZE"]),
    "Slice backwards": (
        Network([make("Slice", ["x", "b", "e", "a", "s"], ["y"])], X,
                {"b": np.array([-1]), "e": np.array([-99]), "a": np.array([3]), "s": np.array([-1])}),
        ["STRIDED_SLICE"],
    ),
    "Softmax before opset 13": (
        Network([make("Softmax", ["x"], ["y"], axis=2)], X, opset=11), ["RESHAPE", "SOFTMAX", "RESHAPE"],
    ),
    "Softmax of three dimensions": (Network([make("Softmax", ["x"], ["y"])], {"x": (FLOAT, [1, 2, 3])}), ["SOFTMAX"]),
    "Gemm of a bias with two axes": (
        Network([make("Gemm", ["x", "w", "b"], ["y"])], {"x": (FLOAT, [2, 3])},
                {"w": np.ones((3, 4), np.float32), "b": np.ones((1, 4), np.float32)}),
        ["SQUEEZE", "FULLY_CONNECTED"],
    ),
    "Gemm of computed matrices": (
        Network([make("Gemm", ["x", "w"], ["y"], transB=1)], {"x": (FLOAT, [2, 3]), "w": (FLOAT, [4, 3])}), ["FULLY_CONNECTED"],
    ),
    "MatMul of batches": (
        Network([make("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, [2, 3, 4]), "w": (FLOAT, [2, 4, 5])}),
        ["TRANSPOSE", "SPLIT", "SPLIT", *["RESHAPE", "RESHAPE", "FULLY_CONNECTED", "RESHAPE"] * 2, "CONCATENATION"],
    ),
    "GlobalAveragePool": (
        Network([make("GlobalAveragePool", ["x"], ["y"])], X, layout="nchw"), ["AVERAGE_POOL_2D"],
    ),
    "GlobalMaxPool with an activation": (
        Network([make("GlobalMaxPool", ["x"], ["m"]), make("Relu", ["m"], ["y"])], X, layout="nchw"), ["MAX_POOL_2D"],
    ),
    "an output that another node reads under its own name": (
        Network([make("Exp", ["x"], ["a"]), make("Identity", ["a"], ["z"]), make("Sin", ["a"], ["y"])], X, outputs=("y", "z")),
        ["EXP", "SIN"],
    ),
    "Concat of values that nodes write": (
        Network([make("QuantizeLinear", ["x", "scale", "zero"], ["a"]), make("QuantizeLinear", ["x", "scale", "zero"], ["c"]),
                 *CONCAT], X, BYTES, types={"y": UINT8}),
        ["QUANTIZE", "QUANTIZE", "CONCATENATION"],
    ),
    "Gemm of UINT8 weights with transB": (
        quantised(make("Gemm", ["x", "v"], ["z"], transB=1), {"w": np.ones((3, 4), np.uint8)}), ["FULLY_CONNECTED"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("network", "operations"), GOOD.values(), ids=GOOD)
def test_a_model_has_the_operations_that_the_builder_adds(network: Network, operations: list[str], tmp_path: Path) -> None:
    built, mapped = network.converted(tmp_path)
    assert "host" not in {one.mapping for one in mapped}
    assert Counter(OperationCode(operation.type).name for operation in built.main.operations) == Counter(operations)


@pytest.mark.parametrize(
    ("attributes", "padding"),
    [
        ({"pads": [1, 1, 1, 1]}, [1]),  # those of SAME
        ({"pads": [0, 0, 1, 1], "strides": [2, 2]}, [1]),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, [1]),
        ({"auto_pad": "VALID"}, [2]),
        ({}, [0, 0, 0, 0]),
        ({"pads": [1, 1, 0, 0], "strides": [2, 2]}, [1, 0, 1, 0]),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, [1, 0, 1, 0]),
        ({"pads": [2, 2, 2, 2], "dilations": [2, 2]}, [2, 2, 2, 2]),
    ],
)
def test_paddings_are_stated_as_the_builder_states_them(attributes: Any, padding: list[int], tmp_path: Path) -> None:
    weights = {"w": np.ones((2, 2, 3, 3), np.float32)}
    built, _ = Network([make("Conv", ["x", "w"], ["y"], **attributes)], X, weights, layout="nchw").converted(tmp_path)
    (convolution,) = built.main.operations
    numbers = [int(np.ravel(built.value(built.main.operands[i]))[0]) for i in convolution.inputs[3 : 3 + len(padding)]]
    assert numbers == padding
    assert len(convolution.inputs) == 3 + len(padding) + 4 + 2 * ("dilations" in attributes)


def test_the_check_comes_before_what_would_fail(tmp_path: Path) -> None:
    _, mapped = of_rank_5(make("Sigmoid", ["r"], ["y"])).converted(tmp_path)
    assert [(one.operator, one.mapping) for one in mapped][-1] == ("Sigmoid", "host")
    assert mapped[-1].reasons[0].stage is Stage.PROVIDER


def test_a_mean_over_no_axes_stays_with_onnx_runtime(tmp_path: Path) -> None:
    _, mapped = Network([make("ReduceMean", ["x"], ["y"], noop_with_empty_axes=1)], X).converted(tmp_path)
    assert mapped[0].reasons[0].rule == "noop_with_empty_axes of 0 from opset 18 on"


def recurrent(operator: str, gates: int) -> Network:
    weights = {"W": np.ones((1, gates * 2, 4), np.float32), "R": np.ones((1, gates * 2, 2), np.float32)}
    nodes = [
        make("Relu", ["x"], ["r"]),
        make(operator, ["r", "W", "R"], ["h"], hidden_size=2, layout=1),
        make("Exp", ["h"], ["y"]),
    ]
    return Network(nodes, {"x": (FLOAT, [1, 3, 4])}, weights)


def test_a_layout_that_onnx_runtime_lacks_is_the_first_thing_said(tmp_path: Path) -> None:
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        network = recurrent(operator, gates)
        sentence, _, stage = failure(network, tmp_path)
        assert sentence.startswith(f"ONNX Runtime does not load this file: node 1 {operator}: ONNX Runtime requires layout 0, ")
        assert stage is Stage.LOADING
        assert {one.mapping for one in network.converted(tmp_path)[1]} == {"host"}
        with pytest.raises(Exception, match="layout == 1"):
            runtime(network.write(tmp_path))


def test_a_pool_of_more_padding_than_its_window_is_loaded_only_where_the_provider_takes_it(tmp_path: Path) -> None:
    network = Network([make("MaxPool", ["x"], ["y"], kernel_shape=[1], pads=[1, 1])], {"x": (FLOAT, [1, 2, 8])})
    assert failure(network, tmp_path)[0].startswith("ONNX Runtime does not load this file: node 0 MaxPool")
    with pytest.raises(Exception, match="Pad should be smaller than kernel"):
        runtime(network.write(tmp_path))


def runtime(path: Path) -> Any:
    """A session of ONNX Runtime alone."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def with_domain(nodes: Sequence[Any], folder: Path) -> Path:
    graph = onnx.helper.make_graph(
        nodes,
        "custom",
        [info("x", FLOAT, [1, 3]), info("c", onnx.TensorProto.BOOL, [])],
        [info("y", FLOAT, [1, 3])],
    )
    domains = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("my.dom", 1)]
    path = folder / "custom.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=domains, ir_version=8), str(path))
    return path


def test_a_domain_that_no_one_registers_is_named_wherever_it_is(tmp_path: Path) -> None:
    custom = make("MyOp", ["r"], ["y"], domain="my.dom")
    branch = onnx.helper.make_graph([make("MyOp", ["r"], ["b"], domain="my.dom")], "branch", [], [info("b", FLOAT, [1, 3])])
    inside = make("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    for node in (custom, inside):
        path = with_domain([make("Relu", ["x"], ["r"]), node], tmp_path)
        found = refusal_of(ModelFile(path, ConversionOptions(8, "provider")).mapped, "provider")
        assert found is not None
        assert "does not load this file: node 1" in found.sentence
        assert "my.dom:MyOp(-1) is not a registered function/op" in found.sentence
        assert "register_custom_ops_library" in found.sentence
        with pytest.raises(Exception, match="MyOp"):
            runtime(path)


LOADED = [one[0] for name, one in (BUILDER | BUILDING | RUNNING | GOOD).items() if not name.startswith("a pool of more")]


@pytest.mark.parametrize("network", LOADED)
def test_onnx_runtime_itself_loads_what_its_provider_fails_to_build(network: Network, tmp_path: Path) -> None:
    assert runtime(network.write(tmp_path)).get_outputs()
