"""Element types and quantisations that LiteRT has no kernel for: the host refuses them, as LiteRT does.

Found by asking LiteRT 2.3.0 for every operator and type; ``tests/tflite/test_kinds.py`` asks again. NNAPI computes what it can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnbridge.model import Array
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.host.numbers import Tensors, quantised
from nnbridge_tflite.read.graph import Graph, Operator, Tensor

Run = Callable[[Sequence["Array | None"]], Sequence[Array]]

_WITHOUT: Mapping[str, str] = {
    "uint8": "NEG",
    "float16": "AVERAGE_POOL_2D BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN CONV_2D DEPTHWISE_CONV_2D DIV "
    "FULLY_CONNECTED L2_POOL_2D LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LSTM MAX_POOL_2D MEAN PACK QUANTIZE REDUCE_MAX "
    "REDUCE_MIN RELU RELU6 RESIZE_BILINEAR RNN SPLIT SPLIT_V SUB SUM TOPK_V2 TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM "
    "UNIDIRECTIONAL_SEQUENCE_RNN UNIQUE",
    "uint8 float16": "ABS BATCH_MATMUL EXP FLOOR_DIV FLOOR_MOD LOG REDUCE_PROD RSQRT SQRT SVDF",
    "int16 float16": "ARG_MAX ARG_MIN DEPTH_TO_SPACE HARD_SWISH L2_NORMALIZATION LOG_SOFTMAX ONE_HOT RELU_0_TO_1 RELU_N1_TO_1 "
    "SPACE_TO_DEPTH SPARSE_TO_DENSE",
    "uint8 int16 float16": "ELU SQUARED_DIFFERENCE",
    "uint8 int8 int16": "BROADCAST_ARGS COS CUMSUM FLOOR ROUND SEGMENT_SUM SIN",
    "uint8 int8 int16 float16": "ADD_N CEIL CONV_3D_TRANSPOSE LOGICAL_NOT POW RANGE REDUCE_ALL REDUCE_ANY SIGN SQUARE ZEROS_LIKE",
}
"""Element types of an input -> operators without a kernel for them."""
_MISSING = {(name, type) for types, names in _WITHOUT.items() for type in types.split() for name in names.split()}


def without_kernel(graph: Graph) -> frozenset[tuple[int, int]]:
    """Subgraph and index of each operator whose types LiteRT has no kernel for."""

    def missing(operator: Operator, tensors: Sequence[Tensor]) -> bool:
        read = [tensors[i] for i in operator.inputs if i >= 0]
        return any(
            (operator.name, type) in _MISSING and (type == "float16" or bool(tensor.quantisation.scales))
            for tensor in read
            for type in [tensor.type.name.lower()]
        )

    return frozenset(
        (k, operator.index)
        for k, subgraph in enumerate(graph.subgraphs)
        for operator in subgraph.operators
        if missing(operator, subgraph.tensors)
    )


_LEAST = ("SQRT", "RSQRT")
"""Operators whose kernels end a run at numbers below 0, if they are quantised."""


def check_kind(name: str, inputs: Tensors, outputs: Tensors) -> None:
    """ValueError for element types and quantisations that LiteRT's kernel of an operator refuses."""
    for tensor in inputs:
        type = str(tensor.dtype)
        if (name, type) in _MISSING and (type == "float16" or quantised(tensor)):
            raise ValueError(f"an element type that LiteRT has a kernel of {name} for, found {type.upper()}")
    declared = REGISTRY.get(name)
    if declared is None or not inputs or not quantised(inputs[0]) or inputs[0].dtype != outputs[0].dtype:
        return
    stated, out = declared.written.get(str(inputs[0].dtype).upper()), outputs[0]
    if stated is not None and not (np.isclose(out.scale, stated[0], rtol=1e-3) and stated[1] in (None, out.zero_point)):
        required = f"an output of scale {stated[0]:g}" + ("" if stated[1] is None else f" and zero point {stated[1]}")
        raise ValueError(f"{required}, found {out.scale:g} and {out.zero_point}")


def within_domain(name: str, inputs: Tensors, run: Run) -> Run:
    """The kernel of an operator; with a check of its numbers where LiteRT's kernel has one."""
    if name not in _LEAST or not quantised(inputs[0]):
        return run
    least = inputs[0].zero_point

    def checked(arrays: Sequence[Array | None]) -> Sequence[Array]:
        steps = arrays[0] if arrays[0] is not None else inputs[0].value
        if steps is not None and np.any(steps < least):
            raise ValueError(f"numbers of at least 0, found {(int(steps.min()) - least) * inputs[0].scale:g}")
        return run(arrays)

    return checked
