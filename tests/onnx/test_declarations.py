"""Declarations of operators: complete, true to ONNX's own schemas, and all that an operator needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from nnbridge.converters.declaration import Option  # noqa: E402
from nnbridge_onnx.declaration import CONTRIB, REGISTRY, OnnxOperator  # noqa: E402
from nnbridge_onnx.rules import Provider  # noqa: E402

NUMBERED = """
    Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization
    Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike CausalConvWithState
    Ceil Celu CenterCropPad Clip Col2Im Compress Concat ConcatFromSequence Constant ConstantOfShape Conv ConvInteger
    ConvTranspose Cos Cosh CumProd CumSum DFT DeformConv DepthToSpace DequantizeLinear Det Div Dropout
    DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu
    Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization HammingWindow
    HannWindow HardSigmoid HardSwish Hardmax Identity If ImageDecoder InstanceNormalization IsInf IsNaN LRN LSTM
    LayerNormalization LeakyRelu Less LessOrEqual LinearAttention Log LogSoftmax Loop LpNormalization LpPool MatMul
    MatMulInteger Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization MelWeightMatrix Min Mish Mod Mul
    Multinomial Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not OneHot Optional OptionalGetElement
    OptionalHasElement Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare RegexFullMatch Relu Reshape Resize ReverseSequence
    RoiAlign RotaryEmbedding Round STFT Scan Scatter ScatterElements ScatterND Selu SequenceAt SequenceConstruct
    SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap Shape Shrink Sigmoid Sign Sin Sinh Size Slice
    Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze StringConcat
    StringNormalizer StringSplit Sub Sum SwiGLU Swish Tan Tanh TensorScatter TfIdfVectorizer ThresholdedRelu Tile TopK
    Transpose Trilu Unique Unsqueeze Upsample Where Xor
"""
"""Operators by their number in the host extension, from 1 on: saved models hold it."""


def own() -> list[OnnxOperator]:
    return [definition for definition in REGISTRY if not definition.domain]


def schemas(name: str) -> Iterator[onnx.defs.OpSchema]:
    """All versions of an operator, the newest first."""
    found = [schema for schema in onnx.defs.get_all_schemas_with_history() if schema.name == name and not schema.domain]
    return iter(sorted(found, key=lambda schema: -schema.since_version))


def test_numbers_stay() -> None:
    assert {d.name: d.number for d in own()} == {name: number for number, name in enumerate(NUMBERED.split(), 1)}


def test_every_operator_has_a_line_of_documentation() -> None:
    assert [d.name for d in REGISTRY if not d.summary.endswith(".") or "\n" in d.summary or len(d.summary) > 110] == []


def test_every_operator_can_be_computed_or_written_out() -> None:
    for definition in REGISTRY:
        evaluated = not definition.domain and onnx.defs.has(definition.type)
        expanded = definition.domain == CONTRIB and definition.expand is not None
        assert definition.lowerings or definition.kernel or evaluated or expanded, definition.name


def test_the_provider_accepts_by_a_rule_or_never_for_a_reason() -> None:
    for definition in REGISTRY:
        assert isinstance(definition.provider, Provider) or definition.provider, definition.name
        if isinstance(definition.provider, Provider):
            assert definition.lowerings or definition.expand or definition.quantised_io, definition.name


@pytest.mark.parametrize("definition", own(), ids=lambda d: d.name)
def test_inputs_and_outputs_are_those_of_the_schema(definition: OnnxOperator) -> None:
    versions = list(schemas(definition.name))
    option = onnx.defs.OpSchema.FormalParameterOption
    for declared, listed in ((definition.inputs, versions[0].inputs), (definition.outputs, versions[0].outputs)):
        assert [(d.name, d.repeat) for d in declared] == [(f.name, f.option == option.Variadic) for f in listed]
    # An input that an older opset has as an attribute is optional.
    for i, declared in enumerate(definition.inputs):
        listed = [version.inputs[i] if i < len(version.inputs) else None for version in versions]
        optional = any(
            f is None or f.option == option.Optional or (f.option == option.Variadic and not f.min_arity) for f in listed
        )
        assert declared.optional <= optional, declared.name


@pytest.mark.parametrize("definition", [d for d in own() if d.options], ids=lambda d: d.name)
def test_options_are_attributes_of_a_schema_with_its_default(definition: OnnxOperator) -> None:
    for option in definition.options:
        assert option.meaning, option.name
        found = next(v.attributes[option.name] for v in schemas(definition.name) if option.name in v.attributes)
        if found.default_value.type and option.default is not None:
            default = onnx.helper.get_attribute_value(found.default_value)
            default = default.decode() if isinstance(default, bytes) else default
            stated = list(option.default) if isinstance(option.default, tuple) else option.default
            assert stated == (pytest.approx(default, rel=1e-6) if isinstance(default, float) else default), option.name


TOY = """
from nnbridge_onnx.declaration import operator
from nnbridge_onnx.lowerer import C, Lowerer

DOUBLE = operator("Double", 0, "X -> Y", "Twice a number.", domain="toy.example")


@DOUBLE.lowering()
def _double(to: Lowerer) -> None:
    to.finish(C.ADD, to.input(), to.input())
"""
CONVERT = """
import sys
import nnbridge_onnx.operators
nnbridge_onnx.operators.__path__.append(sys.argv[1])
import numpy as np
import onnx
from onnx import TensorProto, helper
from nnbridge_onnx import backend
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Double", ["x"], ["y"], domain="toy.example")], "graph", ends[:1], ends[1:])
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("toy.example", 1)]
rep = backend.prepare(helper.make_model(graph, opset_imports=opsets, ir_version=8))
print([rep.model.operation_name(o) for o in rep.model.main.operations], *rep.run([np.float32([1, 2])])[0])
"""


def test_a_further_operator_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY)
    ran = subprocess.run([sys.executable, "-c", CONVERT, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == "['ADD'] 2.0 4.0\n"


def test_a_text_is_one_choice() -> None:
    option = Option("auto_pad", "NOTSET", "", choices=("NOTSET", "VALID"))
    assert [option.violation(text) for text in ("VALID", "NOTSET", "V")] == ["", "", "auto_pad of NOTSET or VALID"]
