"""Quantised operators: QuantizeLinear and DequantizeLinear as they stand."""

from __future__ import annotations

from nnbridge.types import OperationCode
from nnbridge_onnx.lowering import Lowerer, lowers

C = OperationCode


@lowers("QuantizeLinear")
def _quantize(to: Lowerer) -> None:
    """QUANTIZE. NNAPI rounds halves away from zero, ONNX to even."""
    to.require(to.optional_constant(1) is not None and to.constant(1).size == 1, "one scale for the tensor", "several")
    (x,), images = to.alike(0)
    to.finish_alike(C.QUANTIZE, [x], images)


@lowers("DequantizeLinear")
def _dequantize(to: Lowerer) -> None:
    """DEQUANTIZE of a computed value."""
    to.require(to.constant(1).size == 1, "one scale for the tensor", "several")
    (x,), images = to.alike(0)
    to.finish_alike(C.DEQUANTIZE, [x], images)
