"""Small float models for tests, built with the ordinary builder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.extensions import Arg
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode

FLOAT = OperandCode.TENSOR_FLOAT32
_TYPES = {
    "f4": FLOAT,
    "i4": OperandCode.TENSOR_INT32,
    "i2": OperandCode.TENSOR_QUANT16_SYMM,
    "i1": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    "u1": OperandCode.TENSOR_QUANT8_ASYMM,
}
NO_TENSOR = Arg(OperandCode.TENSOR_INT32, present=False)
"""An omitted operand."""


def argument(dims: tuple[int, ...], dtype: str = "f4", scale: float = 0.0, point: int = 0, value: Any = None) -> Arg:
    """An operand as kernels see it, by its element type."""
    return Arg(_TYPES[dtype], dims, scale, point, value=value)


def unary_chain(*codes: OperationCode, dims: tuple[int, ...] = (1, 4), relaxed: bool = False) -> Model:
    """``x``, then operations of one operand each; the last result is ``y``, those before it ``t0``, ``t1``, ..."""
    builder = ModelBuilder("chain")
    x = builder.add_operand(FLOAT, dims, name="x")
    return _finished(builder, x, x, codes, dims, relaxed=relaxed)


def add_then(*codes: OperationCode, dims: tuple[int, ...] = (1, 4)) -> Model:
    """``x + 1`` (``sum``), then operations of one operand each; the last result is ``y``."""
    builder = ModelBuilder("add_then")
    x = builder.add_operand(FLOAT, dims, name="x")
    total = _plus(builder, x, np.ones(1, np.float32), "", dims, "sum" if codes else "y")
    return _finished(builder, x, total, codes, dims)


def constant_add(value: np.ndarray, *, dims: tuple[int, ...] | None = None) -> Model:
    """``x + value`` as ``y``; ``value`` is a constant."""
    builder = ModelBuilder("constant_add")
    x = builder.add_operand(FLOAT, dims or value.shape, name="x")
    y = _plus(builder, x, value, "value", dims or value.shape, "y")
    return _finished(builder, x, y, (), ())


def _plus(builder: ModelBuilder, x: int, value: np.ndarray, name: str, dims: tuple[int, ...], output: str) -> int:
    constant = builder.add_operand(FLOAT, value.shape, name=name)
    builder.set_operand_value(constant, value)
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    total = builder.add_operand(FLOAT, dims, name=output)
    builder.add_operation(OperationCode.ADD, [x, constant, none], [total])
    return total


def _finished(
    builder: ModelBuilder, x: int, last: int, codes: Sequence[OperationCode], dims: tuple[int, ...], *, relaxed: bool = False
) -> Model:
    """The model from ``x`` to the result of the last operation."""
    for i, code in enumerate(codes):
        result = builder.add_operand(FLOAT, dims, name="y" if i == len(codes) - 1 else f"t{i}")
        builder.add_operation(code, [last], [result])
        last = result
    builder.identify_inputs_and_outputs([x], [last])
    builder.relax_computation_float32_to_float16(relaxed)
    return builder.finish()


def branching(path: Path) -> Path:
    """An ONNX file: an If that always takes square roots of absolute values of x [1, 4] (the other branch floors), then Relu."""
    from onnx import helper, numpy_helper, save

    def body(operator: str) -> object:
        nodes = [
            helper.make_node(operator, ["x"], [f"{operator} inside"]),
            helper.make_node("Sqrt", [f"{operator} inside"], ["end"]),
        ]
        return helper.make_graph(nodes, operator, [], [helper.make_tensor_value_info("end", 1, [1, 4])])

    chosen = numpy_helper.from_array(np.array(True), "chosen")
    node = helper.make_node("If", ["chosen"], ["y"], then_branch=body("Abs"), else_branch=body("Floor"))
    x, z = (helper.make_tensor_value_info(name, 1, [1, 4]) for name in "xz")
    graph = helper.make_graph([node, helper.make_node("Relu", ["y"], ["z"])], "branch", [x], [z], [chosen])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path
