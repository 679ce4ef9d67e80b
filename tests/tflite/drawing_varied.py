"""Changes to drawn operators: other types and ranks, constants that are computed and computed inputs that are constant.

Each is a draw of its own that knows next to nothing of the operator: what LiteRT refuses is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.tflite.drawing import (
    BINARY,
    F16,
    F64,
    FIXED,
    I8,
    I16,
    I32,
    I64,
    RANGES,
    TRUTH,
    U8,
    B,
    Case,
    F,
    Rng,
    Tensor,
    pick,
    tensor,
    values,
)

CELLS = ("RNN", "SVDF", "LSTM")
TYPES = (F, F16, F64, U8, I8, I16, "uint16", I32, "uint32", I64, B, "complex64")
MOVERS = (
    *("BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "DEPTH_TO_SPACE", "DYNAMIC_UPDATE_SLICE", "EXPAND_DIMS", "FILL"),
    *("GATHER", "GATHER_ND", "MIRROR_PAD", "ONE_HOT", "PACK", "PAD", "PADV2", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2"),
    *("SCATTER_ND", "SELECT", "SELECT_V2", "SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE"),
    *("STRIDED_SLICE", "TILE", "TOPK_V2", "TRANSPOSE", "UNPACK", "WHERE"),
)
"""Operators that leave numbers as they are."""
OTHER_TYPES = (
    *TRUTH,
    "RANK",
    "SHAPE",
    "WHERE",
    "DEQUANTIZE",
    "BUCKETIZE",
    "ARG_MAX",
    "ARG_MIN",
    "CAST",
    "RFFT2D",
    "BROADCAST_ARGS",
)
"""Operators whose output's type does not follow from their inputs'."""
OF_FEW_TYPES = ("POW", "PRELU", "REDUCE_PROD", *FIXED)
"""Integers overflow in ways that C leaves open, or the output's scale is one that the type states."""
OF_WEIGHTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL")
"""Integers of 8 bits have a zero point of 0 there."""
ONLY_INT32 = ("RESHAPE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "TRANSPOSE", "FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D")
ACTIVATIONS = (0, 1, 2, 3)
"""None, RELU, RELU_N1_TO_1, RELU6; others are refused, which feed-forward kernels of LiteRT ignore."""


def _operands(case: Case) -> Iterator[Tensor]:
    yield from (one for one in (*case.inputs, *case.outputs) if one is not None)


def _computed(case: Case) -> list[int]:
    """Positions of the inputs that a caller gives."""
    return [i for i, one in enumerate(case.inputs) if one is not None and one.value is None and not one.variable]


def _type_of_data(rng: Rng, case: Case) -> str:
    """The type of an input that is no list of indexes."""
    data = [one.type for one in case.inputs if one is not None and (one.value is None or one.type != I32)]
    return str(pick(rng, *data or [I32]))


def _retyped(rng: Rng, case: Case) -> None:
    """All operands of one type have another; LiteRT leaves diagonals of most types unwritten."""
    if case.operator in OF_FEW_TYPES or case.operator.startswith("MATRIX_"):
        return
    before, after = _type_of_data(rng, case), pick(rng, *TYPES)
    if case.operator in ONLY_INT32 and before == I32:
        return
    if case.operator in OF_WEIGHTS and (before in (I32, I64) or after in (I16, U8)):  # LiteRT's kernels read what they expect.
        return
    if case.operator == "BATCH_MATMUL" and case.outputs[0].type != before:  # Products of floats are written as they are.
        return
    if case.operator == "SVDF" and after in RANGES:  # Weights in time and the state have 16 bits there, the bias 32.
        return
    model = tensor(rng, (), after)
    whole = case.outputs if case.operator not in OTHER_TYPES else []
    for one in (*case.inputs, *whole):
        if one is None or one.type != before:
            continue
        one.type, one.scale, one.zero_point = after, model.scale, model.zero_point if case.operator not in OF_WEIGHTS else 0
        one.value = None if one.value is None else np.asarray(one.value).astype(after)
        one.feed = None if one.feed is None else np.asarray(one.feed).astype(after)


def _wide_indexes(rng: Rng, case: Case) -> None:
    """Constants of int32 are of int64, where LiteRT does not read them as int32 all the same."""
    if case.operator in (*ONLY_INT32, *BINARY):
        return
    for one in case.inputs:
        if one is not None and one.type == I32 and one.value is not None and rng.random() < 0.7:
            one.type, one.value = I64, one.value.astype(I64)


def _ranked(rng: Rng, case: Case) -> None:
    """Dimensions in front of the inputs, or none at all."""
    front = pick(rng, (1,), (2,), (1, 1), (2, 1), (1, 1, 1), (2, 1, 2, 1), None)
    chosen = _computed(case)
    # LiteRT reads numbers that are not there: the last ends of offsets, what softmax is taken over of a scalar, dropped indexes,
    # the ends of sequences that are longer than they may be.
    beyond = case.options.get("offset") or case.options.get("shrink_axis_mask")
    if beyond or case.operator.endswith((*CELLS, "MATRIX_SET_DIAG", "SOFTMAX", "REVERSE_SEQUENCE")):
        return
    for i in chosen if rng.random() < 0.7 else chosen[:1]:
        one = case.inputs[i]
        assert one is not None
        if one.feed is None:
            one.shape = () if front is None else (*front, *one.shape)
    shapes = {one.shape for one in case.inputs if one is not None}
    if case.operator == "SELECT" or (case.operator == "SELECT_V2" and len(shapes) == 1):
        # Of one element, LiteRT leaves the shape that the file states.
        case.outputs[0].shape = next((one.shape for one in case.inputs[1:] if one is not None), ())


def _given(rng: Rng, case: Case) -> None:
    """A constant is computed."""
    for one in case.inputs:
        if one is not None and one.value is not None and rng.random() < 0.5:
            one.value, one.feed = None, np.asarray(one.value)


def _stored(rng: Rng, case: Case) -> None:
    """An input is constant, perhaps all are; LiteRT computes such products before it knows their multiplier."""
    if case.operator == "REDUCE_PROD":
        return
    chosen = _computed(case)
    everything = rng.random() < 0.3
    for i in chosen:
        one = case.inputs[i]
        if one is not None and (everything or rng.random() < 0.5):
            one.value = values(rng, one.shape, one.type) if one.feed is None else np.asarray(one.feed)


def _twice(rng: Rng, case: Case) -> None:
    """One tensor is two inputs."""
    first, *others = _computed(case) or [0]
    one = case.inputs[first]
    for i in others:
        other = case.inputs[i]
        if one is not None and other is not None and (other.type, other.shape) == (one.type, one.shape):
            case.inputs[i] = one


def _activated(rng: Rng, case: Case) -> None:
    """Another fused activation."""
    if "fused_activation_function" in case.options and not case.operator.endswith(CELLS):
        case.options["fused_activation_function"] = int(pick(rng, *ACTIVATIONS))


def _without_parameters(rng: Rng, case: Case) -> None:
    """Integers that say nothing of scales, where no kernel looks at them."""
    if case.operator not in MOVERS:
        return
    for one in _operands(case):
        if one.type in RANGES:
            one.scale, one.zero_point = 0.0, 0


def _open(rng: Rng, case: Case) -> None:
    """Dimensions that the file leaves open."""
    for i in _computed(case):
        one = case.inputs[i]
        if one is not None:
            one.open = tuple(-1 if rng.random() < 0.5 else d for d in one.shape)


def _beyond(rng: Rng, case: Case) -> None:
    """Some numbers are infinite, or so large that sums and products of them are.

    Not of recurrent cells, which keep NaN or not as each clip is written, nor of windows and waves of which LiteRT's kernels add
    up other terms.
    """
    if case.operator.endswith(CELLS) or case.operator in ("LOCAL_RESPONSE_NORMALIZATION", "RFFT2D"):
        return
    for i in _computed(case):
        one = case.inputs[i]
        if one is not None and one.type == F and one.feed is None and rng.random() < 0.7:
            numbers = values(rng, one.shape, F)
            one.feed = np.where(rng.random(one.shape) < 0.2, pick(rng, np.inf, -np.inf, 2e38, -3e38), numbers).astype(F)


_CHANGES: tuple[Callable[[Rng, Case], None], ...] = (
    _retyped,
    _retyped,
    _wide_indexes,
    _ranked,
    _ranked,
    _given,
    _stored,
    _twice,
    _activated,
    _without_parameters,
    _open,
    _beyond,
)


def varied(rng: Rng, case: Case) -> Case:
    """The case after one change, or after two."""
    for _ in range(int(pick(rng, 1, 1, 2))):
        pick(rng, *_CHANGES)(rng, case)
    if case.options.get("fused_activation_function") == 2 and any(one.type == "uint32" for one in _operands(case)):
        case.options["fused_activation_function"] = 0  # LiteRT's -1 is the largest of unsigned numbers.
    return case
