"""What makes a file wrong whatever it is mapped to: conditions under which LiteRT refuses an operator too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from nnbridge.errors import ConversionError, Reason
from nnbridge.types import FuseCode
from nnbridge_tflite.graph import Operator
from nnbridge_tflite.values import Values

Check: TypeAlias = "Callable[[Operator, Values], None]"


def _require(operator: Operator, condition: object, rule: str, found: object) -> None:
    if not condition:
        raise ConversionError(Reason(rule, str(found), operator.label))


def _ranks(operator: Operator, values: Values, wanted: Mapping[int, int]) -> None:
    """Ranks of inputs."""
    for i, rank in wanted.items():
        tensor = values.tensors[operator.inputs[i]]
        _require(
            operator, len(values.value(tensor.index).dims) == rank, f"an input {i} of rank {rank}", f"{tensor.label} {tensor}"
        )


def _windows(operator: Operator, options: tuple[str, ...]) -> None:
    """Strides, dilations and windows of at least 1."""
    for name in options:
        value = operator.options.get(name, 1)
        _require(operator, value >= 1, f"{name} of at least 1", value)


def _convolution(operator: Operator, values: Values) -> None:
    _ranks(operator, values, {0: 4, 1: 4})
    _windows(operator, ("stride_w", "stride_h", "dilation_w_factor", "dilation_h_factor"))


def _pool(operator: Operator, values: Values) -> None:
    _ranks(operator, values, {0: 4})
    _windows(operator, ("stride_w", "stride_h", "filter_width", "filter_height"))


def _transpose_convolution(operator: Operator, values: Values) -> None:
    _ranks(operator, values, {1: 4, 2: 4})
    _windows(operator, ("stride_w", "stride_h"))
    batch = values.value(operator.inputs[2]).dims[0]
    shape = values.constant(operator.inputs[0])
    rule = f"a constant output shape with the input's batch, {batch}"
    _require(operator, shape is not None, rule, f"computed {values.tensors[operator.inputs[0]].label}")
    assert shape is not None
    listed = shape.reshape(-1).tolist()
    _require(operator, len(listed) == 4 and listed[0] == batch and min(listed) > 0, rule, listed)


def check_activation(operator: Operator) -> None:
    """Feed-forward operators fuse what TFLite's kernels compute; they would pass over TANH and SIGN_BIT in silence."""
    fused = operator.options.get("fused_activation_function", 0)
    recurrent = any(part in operator.name for part in ("LSTM", "RNN", "SVDF"))
    known = fused in FuseCode.__members__.values() or recurrent
    _require(operator, known, f"a fused activation of {', '.join(FuseCode.__members__)}", fused)


CHECKS: Mapping[str, Check] = {
    "AVERAGE_POOL_2D": _pool,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "L2_POOL_2D": _pool,
    "MAX_POOL_2D": _pool,
    "TRANSPOSE_CONV": _transpose_convolution,
}
"""Operator → its check."""


def check_semantics(operator: Operator, values: Values) -> None:
    """What an operator's operands must be for any runtime to compute it."""
    check = None if operator.custom else CHECKS.get(operator.name)
    if check is not None:
        check(operator, values)
