"""Rewrites for engines that take an operator and compute it otherwise, such as LiteRT's GPU accelerator: the same in a form that
they compute right, bit for bit where nothing else is said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge_tflite.tables import EditedGraph

_RANK = 4
ELEMENTWISE = (
    "ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "POW", "ATAN2", "EQUAL",
    "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "LOGICAL_AND", "LOGICAL_OR", "RIGHT_SHIFT", "ADD_N",
)  # fmt: skip
"""Operators of two inputs that are broadcast."""
PADDING = ("PAD", "PADV2", "MIRROR_PAD")
ALONG_AXES = ("CUMSUM", "ARG_MAX")
MERGED = ("ADD", "MUL")
"""Operators that are computed as a part of the one that reads them."""


def reshape(graph: EditedGraph, data: int, output: int) -> None:
    """A RESHAPE to an output's dimensions."""
    shape = np.asarray(graph.shape(output), "<i4")
    graph.place("RESHAPE", [data, graph.data(shape, "INT32", "shape")], [output], new_shape=shape)


def _raised(graph: EditedGraph, tensor: int, shape: Sequence[int]) -> int:
    """A tensor in other dimensions: a constant with the same numbers, or computed by a RESHAPE."""
    if graph.stored(tensor):
        made = {**graph.subgraph["tensors"][tensor], "shape": np.asarray(shape, "<i4"), "shape_signature": None}
        return graph.append(made)
    result = graph.tensor(tensor, shape, "four dimensions")
    reshape(graph, tensor, result)
    return result


def _four(shape: Sequence[int]) -> list[int]:
    return [1] * (_RANK - len(shape)) + list(shape)


def _between_reshapes(graph: EditedGraph, inputs: Sequence[int], shape: Sequence[int]) -> None:
    """The operator with these inputs and an output of this shape, which a RESHAPE brings to the old one's."""
    within = graph.tensor(graph.out, shape, "four dimensions")
    changed = {"inputs": np.asarray(inputs, "<i4"), "outputs": np.asarray([within], "<i4")}
    graph.placed.append({**graph.operator, **changed})
    reshape(graph, within, graph.out)


def in_rank_4(graph: EditedGraph) -> bool:
    """Two inputs that are broadcast, all in four dimensions: 1s are put before the others."""
    inputs = [int(t) for t in graph.operator["inputs"]]
    sides = [*inputs, graph.out]
    if not graph.fixed(*(t for t in sides if graph.shape(t))) or not graph.shape(graph.out):
        return False
    ranks = [len(graph.shape(t)) for t in sides]
    if max(ranks) > _RANK or min(ranks) == _RANK or all(graph.stored(t) for t in inputs):
        return False
    if any(len(graph.scales(t)) > 1 for t in sides):
        return False
    known = {t: _raised(graph, t, _four(graph.shape(t))) for t in dict.fromkeys(inputs)}
    _between_reshapes(graph, [known[t] for t in inputs], _four(graph.shape(graph.out)))
    return True


def padded_in_rank_4(graph: EditedGraph) -> bool:
    """Padding in four dimensions, of which those before the old ones are not padded."""
    data, paddings = graph.input(0), graph.values(graph.input(1))
    rank = len(graph.shape(data))
    if paddings is None or not 0 < rank < _RANK or not graph.fixed(data, graph.out) or graph.stored(data):
        return False
    sides = np.concatenate([np.zeros((_RANK - rank, 2), paddings.dtype), paddings.reshape(rank, 2)])
    others = [graph.data(sides, graph.type(graph.input(1)), "paddings"), *(int(t) for t in graph.operator["inputs"][2:])]
    _between_reshapes(graph, [_raised(graph, data, _four(graph.shape(data))), *others], _four(graph.shape(graph.out)))
    return True


def axes_in_rank_4(graph: EditedGraph) -> bool:
    """An operator along axes in four dimensions."""
    data, axes = graph.input(0), graph.values(graph.input(1))
    rank = len(graph.shape(data))
    if axes is None or axes.dtype.kind != "i" or not 0 < rank < _RANK or graph.stored(data):
        return False
    if not graph.fixed(data) or not (graph.fixed(graph.out) or not graph.shape(graph.out)):
        return False
    moved = graph.data((axes % rank + (_RANK - rank)).astype(axes.dtype), graph.type(graph.input(1)), "axes")
    shape = list(graph.shape(graph.out))
    shape = [1] * (_RANK - rank) + shape
    _between_reshapes(graph, [_raised(graph, data, _four(graph.shape(data))), moved], shape)
    return True


def reversed_before_one(graph: EditedGraph) -> bool:
    """REVERSE_V2 with a dimension of 1 after the others, so that the last one is not reversed."""
    data, axes, shape = graph.input(0), graph.values(graph.input(1)), list(graph.shape(graph.input(0)))
    if axes is None or not shape or not graph.fixed(data, graph.out) or graph.stored(data):
        return False
    first = len(shape) == _RANK and shape[0] == 1
    if len(shape) > _RANK - 1 and not first:
        return False
    longer = _four([*(shape[1:] if first else shape), 1])
    moved = axes % len(shape) + _RANK - 1 - len(shape)
    if moved.min() < 0:
        return False
    numbers = graph.data(moved.astype(axes.dtype), graph.type(graph.input(1)), "axes")
    _between_reshapes(graph, [_raised(graph, data, longer), numbers], longer)
    return True


def batches_as_rows(graph: EditedGraph) -> bool:
    """Blocks of several images as those of one with all their rows: no block reaches over two images."""
    data = graph.input(0)
    if not graph.fixed(data, graph.out) or len(graph.shape(data)) != _RANK or graph.shape(data)[0] == 1 or graph.stored(data):
        return False

    def rows(tensor: int) -> list[int]:
        batch, height, *rest = graph.shape(tensor)
        return [1, batch * height, *rest]

    _between_reshapes(graph, [_raised(graph, data, rows(data))], rows(graph.out))
    return True


def one_part(graph: EditedGraph) -> bool:
    """CONCATENATION of one tensor as RESHAPE to its own dimensions."""
    if len(graph.operator["inputs"]) != 1 or not graph.fixed(graph.out) or graph.option("fused_activation_function"):
        return False
    if graph.stored(graph.input(0)):
        return False
    reshape(graph, graph.input(0), graph.out)
    return True


def output_copied(graph: EditedGraph) -> bool:
    """An output of the file that others read, copied by a RESHAPE to its own dimensions: readers have the original."""
    outputs = [int(t) for t in graph.subgraph["outputs"]]
    read = any(graph.out in map(int, _inputs(o)) for o in graph.subgraph["operators"])
    if graph.out not in outputs or not read or not graph.fixed(graph.out):
        return False
    original = graph.tensor(graph.out, graph.shape(graph.out), "before copy")
    graph.placed.append({**graph.operator, "outputs": np.asarray([original], "<i4")})
    reshape(graph, original, graph.out)
    for place, operator in enumerate(graph.subgraph["operators"]):
        inputs = list(map(int, _inputs(operator)))
        if graph.out in inputs:
            changed = np.asarray([original if t == graph.out else t for t in inputs], "<i4")
            graph.subgraph["operators"][place] = {**operator, "inputs": changed}
    return True


def _inputs(operator: object) -> Sequence[int]:
    found = operator.get("inputs") if isinstance(operator, dict) else None
    return () if found is None else found


def dequantised_constant(graph: EditedGraph) -> bool:
    """DEQUANTIZE of a constant as a constant of float32 numbers."""
    data, scales = graph.input(0), graph.scales(graph.input(0))
    steps = graph.values(data)
    if steps is None or graph.type(graph.out) != "FLOAT32" or graph.out in map(int, graph.subgraph["outputs"]):
        return False
    if graph.type(data) != "FLOAT16":
        if len(scales) != 1:
            return False
        steps = np.float32(scales[0]) * (steps.astype(np.int32) - graph.zero_point(data)).astype(np.float32)
    made = {**graph.subgraph["tensors"][graph.data(steps.astype("<f4"), "FLOAT32", "real numbers")]}
    made["name"] = graph.subgraph["tensors"][graph.out].get("name")
    graph.subgraph["tensors"][graph.out] = made
    graph.gone = True
    return True


def flattened_rows(graph: EditedGraph) -> bool:
    """FULLY_CONNECTED of an input that is flattened first, by a RESHAPE."""
    data, weights = graph.input(0), graph.input(1)
    if graph.option("keep_num_dims") or not graph.fixed(data, weights) or graph.stored(data):
        return False
    shape, columns = graph.shape(data), graph.shape(weights)[-1]
    if len(shape) == 2 and shape[-1] == columns:
        return False
    inputs = [_raised(graph, data, [int(np.prod(shape)) // columns, columns]), *map(int, graph.operator["inputs"][1:])]
    graph.placed.append({**graph.operator, "inputs": np.asarray(inputs, "<i4")})
    return True


def constant_right(graph: EditedGraph) -> bool:
    """A product whose left matrix is a constant as the transposed product, transposed back."""
    left, right, rank = graph.input(0), graph.input(1), len(graph.shape(graph.out))
    if not graph.stored(left) or graph.stored(right) or graph.type(graph.out) != "FLOAT32" or rank < 2:
        return False
    if not graph.fixed(left, right, graph.out):
        return False
    *outer, rows, columns = graph.shape(graph.out)
    product = graph.tensor(graph.out, [*outer, columns, rows], "transposed")
    # (A B)ᵀ = Bᵀ Aᵀ: what was transposed is not, and the other way round.
    flags = {"adj_x": not graph.option("adj_y", False), "adj_y": not graph.option("adj_x", False)}
    options = {**(graph.operator.get("builtin_options") or {}), **flags}
    changed = {"inputs": np.asarray([right, left], "<i4"), "outputs": np.asarray([product], "<i4"), "builtin_options": options}
    graph.placed.append({**graph.operator, **changed})
    order = graph.data(np.asarray([*range(rank - 2), rank - 1, rank - 2], "<i4"), "INT32", "order")
    graph.place("TRANSPOSE", [product, order], [graph.out])
    return True
