"""Small models for tests, through the ordinary builder."""

from __future__ import annotations

import numpy as np

from nnbridge.builder import ModelBuilder
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode

FLOAT = OperandCode.TENSOR_FLOAT32


def unary_chain(*codes: OperationCode, dims: tuple[int, ...] = (1, 4), relaxed: bool = False) -> Model:
    """Operations of one float operand after one another."""
    builder = ModelBuilder("chain")
    previous = first = builder.add_operand(FLOAT, dims, name="x")
    for i, code in enumerate(codes):
        made = builder.add_operand(FLOAT, dims, name="y" if i == len(codes) - 1 else f"t{i}")
        builder.add_operation(code, [previous], [made])
        previous = made
    builder.identify_inputs_and_outputs([first], [previous])
    builder.relax_computation_float32_to_float16(relaxed)
    return builder.finish()


def add_then(*codes: OperationCode, dims: tuple[int, ...] = (1, 4)) -> Model:
    """x + 1, then operations of one operand."""
    builder = ModelBuilder("add_then")
    x = builder.add_operand(FLOAT, dims, name="x")
    one = builder.add_operand(FLOAT, (1,))
    builder.set_operand_value(one, np.ones(1, np.float32))
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    previous = builder.add_operand(FLOAT, dims, name="sum" if codes else "y")
    builder.add_operation(OperationCode.ADD, [x, one, none], [previous])
    for i, code in enumerate(codes):
        made = builder.add_operand(FLOAT, dims, name="y" if i == len(codes) - 1 else f"t{i}")
        builder.add_operation(code, [previous], [made])
        previous = made
    builder.identify_inputs_and_outputs([x], [previous])
    return builder.finish()


def constant_add(value: np.ndarray, *, dims: tuple[int, ...] | None = None) -> Model:
    """x + value, with the value as a constant."""
    builder = ModelBuilder("constant_add")
    x = builder.add_operand(FLOAT, dims or value.shape, name="x")
    constant = builder.add_operand(FLOAT, value.shape, name="value")
    builder.set_operand_value(constant, value)
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    y = builder.add_operand(FLOAT, dims or value.shape, name="y")
    builder.add_operation(OperationCode.ADD, [x, constant, none], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()
