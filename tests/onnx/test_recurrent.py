"""RNN, GRU and LSTM as NNAPI operations, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperationCode as C

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT

STEPS, BATCH, SIZE, UNITS = 5, 2, 3, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(folder: Path, kind: str, *, bias: bool = True, states: bool = True, peepholes: bool = False, **given: Any) -> Path:
    """A file with one recurrent node and all its outputs."""
    rng = np.random.default_rng(3)
    directions, gates = (2 if given.get("direction") == "bidirectional" else 1), GATES[kind]

    def numbers(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32) * 0.5

    constants = {"w": numbers(directions, gates * UNITS, SIZE), "r": numbers(directions, gates * UNITS, UNITS)}
    names = ["x", "w", "r", "", "", "", "", ""]
    extra = [("b", bias, (directions, 2 * gates * UNITS)), ("h", states, (directions, BATCH, UNITS))]
    if kind == "LSTM":
        extra += [("c", states, (directions, BATCH, UNITS)), ("p", peepholes, (directions, 3 * UNITS))]
    for place, (name, present, shape) in zip((3, 5, 6, 7), extra, strict=False):
        if present:
            constants[name], names[place] = numbers(*shape), name
    outputs = ["y", "y_h", "y_c"][: 3 if kind == "LSTM" else 2]
    while not names[-1]:
        names.pop()
    node = helper.make_node(kind, names, outputs, hidden_size=UNITS, **given)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [STEPS, BATCH, SIZE])],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(made), str(path))
    return path


def codes_that_agree(path: Path, level: int = 8) -> set[int]:
    """The operations of a conversion that stays on NNAPI and agrees with ONNX Runtime."""
    model, mapped = ModelFile(path, ConversionOptions(level)).converted
    assert [m.mapping for m in mapped] == ["wide"], mapped[0].reasons
    compilation = Compilation.create(model, [])
    compilation.finish()
    comparison = compare(compilation, "onnxruntime", seeded_samples(model, OnnxRuntime(path), [0, 1]))
    assert comparison.passed, comparison.outputs
    return {operation.type for operation in model.main.operations}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("peepholes", [False, True])
def test_an_lstm_is_one_operation(direction: str, peepholes: bool, tmp_path: Path) -> None:
    codes = codes_that_agree(recurrent(tmp_path, "LSTM", direction=direction, peepholes=peepholes))
    both = direction == "bidirectional"
    assert (C.BIDIRECTIONAL_SEQUENCE_LSTM if both else C.UNIDIRECTIONAL_SEQUENCE_LSTM) in codes


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("activation", ["Tanh", "Relu", "Sigmoid"])
def test_a_simple_rnn_is_one_operation(direction: str, activation: str, tmp_path: Path) -> None:
    both = direction == "bidirectional"
    path = recurrent(tmp_path, "RNN", direction=direction, activations=[activation] * (1 + both))
    assert (C.BIDIRECTIONAL_SEQUENCE_RNN if both else C.UNIDIRECTIONAL_SEQUENCE_RNN) in codes_that_agree(path)


@pytest.mark.parametrize("level", [3, 4])
def test_last_states_come_from_the_sequence_where_the_feature_level_has_no_outputs_for_them(level: int, tmp_path: Path) -> None:
    for direction in ("reverse", "bidirectional"):
        codes = codes_that_agree(recurrent(tmp_path, "RNN", direction=direction), level)
        assert (C.SLICE in codes) == (level < 4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_gru_is_unrolled(direction: str, after: int, tmp_path: Path) -> None:
    codes = codes_that_agree(recurrent(tmp_path, "GRU", direction=direction, linear_before_reset=after))
    assert {C.LOGISTIC, C.TANH, C.FULLY_CONNECTED} <= codes


@pytest.mark.parametrize("kind", GATES)
def test_bias_and_states_may_be_left_out(kind: str, tmp_path: Path) -> None:
    assert codes_that_agree(recurrent(tmp_path, kind, bias=False, states=False))


@pytest.mark.parametrize(
    ("attributes", "rule"),
    [
        ({"clip": 0.5}, "no clip"),
        ({"activations": ["Sigmoid", "Tanh", "Relu"]}, "one activation of cell and output"),
        ({"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "Sigmoid gates"),
        ({"input_forget": 1}, "separate input and forget gates"),
    ],
)
def test_what_the_operation_cannot_say_is_the_hosts(attributes: dict[str, Any], rule: str, tmp_path: Path) -> None:
    _, mapped = ModelFile(recurrent(tmp_path, "LSTM", **attributes), ConversionOptions()).converted
    assert mapped[0].mapping == "host"
    assert rule in mapped[0].reasons[0].rule
