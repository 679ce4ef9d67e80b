"""Further operators drawn at random: recurrent cells, scattering, look-ups, segments, signals and bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.tflite.drawing import (
    DRAWS,
    I8,
    I16,
    I32,
    I64,
    U8,
    B,
    Case,
    F,
    Rng,
    Tensor,
    constant,
    dims,
    draws,
    pick,
    same,
    source,
    tensor,
    values,
)

__all__ = ["DRAWS"]


def floats(rng: Rng, *shape: int) -> Tensor:
    return constant(rng.standard_normal(shape) / 2, F)


def state(*shape: int) -> Tensor:
    return Tensor(shape, F, variable=True)


# -- elements --------------------------------------------------------------------------------------------------------------

_UNARY = {
    "GELU": (F, U8, I8, I16),
    "RELU_0_TO_1": (F, U8, I8),
    "SIGN": (F, I32),
    "ZEROS_LIKE": (F, I32, I64),
    "SHAPE": (F, U8, I32),
    "RANK": (F, I32),
    "WHERE": (B, F, I32),
}


@draws(*_UNARY)
def unary(rng: Rng, name: str) -> Case:
    x = source(rng, types=_UNARY[name])
    y = tensor(rng, x.shape, x.type)
    if name in ("SHAPE", "RANK"):
        y = Tensor((), I32)
    if name == "WHERE":
        y = Tensor((), I64)
        x.value = values(rng, x.shape, x.type) if rng.random() < 0.5 else None
    options = {"GELU": {"approximate": bool(rng.integers(2))}, "SHAPE": {"out_type": 2}}.get(name, {})
    return Case(name, [x], [y], options)


@draws("ATAN2", "BITWISE_XOR", "RIGHT_SHIFT")
def pairs(rng: Rng, name: str) -> Case:
    type = F if name == "ATAN2" else pick(rng, I32, "uint32", I16, "uint16")
    shape = dims(rng, int(rng.integers(1, 5)))
    other = shape if name == "ATAN2" else tuple(1 if rng.random() < 0.3 else d for d in shape)
    b = constant(rng.integers(0, 8, other), type) if name == "RIGHT_SHIFT" else Tensor(other, type)
    return Case(name, [Tensor(shape, type), b], [Tensor((), type)])


# -- tensors that others shape -----------------------------------------------------------------------------------------------


@draws("FILL", "RANGE", "BROADCAST_ARGS", "REVERSE_SEQUENCE", "DYNAMIC_UPDATE_SLICE", "MATRIX_DIAG", "MATRIX_SET_DIAG")
def shaped(rng: Rng, name: str) -> Case:
    if name == "FILL":
        type = pick(rng, F, I32, I64, B)
        number = Tensor((), type) if rng.random() < 0.5 else constant(values(rng, (), type), type)
        return Case(name, [constant(dims(rng, int(rng.integers(1, 4)))), number], [Tensor((), type)])
    if name == "RANGE":
        type, start, step = pick(rng, F, I32), int(rng.integers(-9, 10)), int(pick(rng, 1, 2, 3, -1, -2))
        end = start + step * int(rng.integers(1, 6)) + int(rng.integers(0, 2)) * (1 if step > 0 else -1)
        factor = pick(rng, 1, 0.25, 0.1) if type == F else 1
        return Case(name, [constant(v * factor, type) for v in (start, end, step)], [Tensor((), type)])
    if name == "BROADCAST_ARGS":
        shape = dims(rng, int(rng.integers(1, 5)))
        other = tuple(1 if rng.random() < 0.3 else d for d in shape)[int(rng.integers(len(shape))) :]
        return Case(name, [Tensor((len(s),), I32, feed=np.array(s, I32)) for s in (shape, other)], [Tensor((), I32)])
    if name == "REVERSE_SEQUENCE":
        x = source(rng, int(rng.integers(2, 5)))
        sequence, batch = (int(a) for a in rng.permutation(len(x.shape))[:2])
        lengths = constant(rng.integers(1, x.shape[sequence] + 1, x.shape[batch]), pick(rng, I32, I64))
        return Case(name, [x, lengths], [same(rng, x.type, x)], {"seq_dim": sequence, "batch_dim": batch})
    if name == "DYNAMIC_UPDATE_SLICE":
        x = source(rng, types=(F, I8, I32, I64, B))
        block = tuple(int(rng.integers(1, d + 1)) for d in x.shape)
        starts = constant(rng.integers(-2, 6, len(x.shape)))
        return Case(name, [x, tensor(rng, block, x.type, like=x), starts], [same(rng, x.type, x)])
    x = source(rng, int(rng.integers(1, 4)) if name == "MATRIX_DIAG" else int(rng.integers(2, 5)), (F, I32, U8, I8))
    if name == "MATRIX_DIAG":
        return Case(name, [x], [same(rng, x.type, x)])
    diagonal = tensor(rng, (*x.shape[:-2], min(x.shape[-2:])), x.type, like=x)
    return Case(name, [x, diagonal], [same(rng, x.type, x)])


@draws("SCATTER_ND", "SPARSE_TO_DENSE", "EMBEDDING_LOOKUP", "HASHTABLE_LOOKUP", "UNIQUE", "BUCKETIZE")
def scattered(rng: Rng, name: str) -> Case:
    if name == "UNIQUE":
        type = pick(rng, F, I32, I64)
        x = Tensor((int(rng.integers(1, 12)),), type)
        x.value = rng.integers(-2, 3, x.shape).astype(type)
        return Case(name, [x], [Tensor((), type), Tensor((), I32)], {"idx_out_type": 2})
    if name == "BUCKETIZE":
        bounds = sorted(float(np.float32(b)) for b in rng.normal(0, 2, int(rng.integers(1, 5))))
        return Case(name, [Tensor(dims(rng, 2), pick(rng, F, I32))], [Tensor((), I32)], {"boundaries": bounds})
    x = source(rng, int(rng.integers(2, 4)), (F, U8, I8, I32))
    y = same(rng, x.type, x)
    if name == "EMBEDDING_LOOKUP":
        x = tensor(rng, x.shape, F)
        return Case(name, [constant(rng.integers(0, x.shape[0], int(rng.integers(1, 6)))), x], [Tensor((), F)])
    if name == "HASHTABLE_LOOKUP":
        x = tensor(rng, x.shape, F)
        keys = np.sort(rng.permutation(20)[: x.shape[0]])
        asked = rng.permutation(20)[: int(rng.integers(1, 9))]
        return Case(name, [constant(asked), constant(keys), x], [Tensor((), F), Tensor((len(asked),), U8, 1.0)], {}, 1)
    if name == "SPARSE_TO_DENSE":
        type, shape = pick(rng, F, I32, I64, U8, I8), dims(rng, int(rng.integers(1, 4)), 5)
        flat = np.sort(rng.permutation(int(np.prod(shape)))[: int(rng.integers(1, 6))])
        indices = np.stack(np.unravel_index(flat, shape), 1)
        found, default = tensor(rng, (len(flat),), type), constant(values(rng, (), type), type)
        default.scale, default.zero_point = found.scale, found.zero_point
        return Case(name, [constant(indices), constant(shape), found, default], [same(rng, type, found)], {}, 3)
    depth = int(rng.integers(1, len(x.shape)))
    indices = np.stack([rng.integers(0, d, 4) for d in x.shape[:depth]], 1)
    updates = tensor(rng, (4, *x.shape[depth:]), x.type, like=x)
    return Case(name, [constant(indices), updates, constant(x.shape)], [y])


@draws("SEGMENT_SUM", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_SUM")
def segments(rng: Rng, name: str) -> Case:
    x = source(rng, types=(F, I32))
    if name == "SEGMENT_SUM":
        numbers = np.cumsum(rng.integers(0, 2, x.shape[0]) * (np.arange(x.shape[0]) > 0))
        return Case(name, [x, constant(numbers)], [Tensor((), x.type)])
    count = int(rng.integers(1, 5))
    return Case(name, [x, constant(rng.integers(0, count, x.shape[0])), constant(count)], [Tensor((), x.type)])


# -- signals and volumes -----------------------------------------------------------------------------------------------------


@draws("CONV_3D", "CONV_3D_TRANSPOSE", "RFFT2D")
def volumes(rng: Rng, name: str) -> Case:
    if name == "RFFT2D":
        height, width = int(pick(rng, 1, 2, 4, 8)), int(pick(rng, 2, 4, 8))  # LiteRT's answer for a width of 1 is no transform.
        x = Tensor((*dims(rng, int(rng.integers(0, 2)), 3), *dims(rng, 2, 9)), F)
        return Case(name, [x, constant([height, width])], [Tensor((), "complex64")])
    batch, depth, units = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    sides, window, strides = dims(rng, 3), dims(rng, 3, 3), dims(rng, 3, 2)
    padding, act = int(rng.integers(2)), int(pick(rng, 0, 1, 3))
    options: dict[str, Any] = {"padding": padding, **{f"stride_{a}": s for a, s in zip("dhw", strides, strict=True)}}
    bias = pick(rng, [floats(rng, units)], [])
    x, options = Tensor((batch, *sides, depth), F), {**options, "fused_activation_function": act}
    if name == "CONV_3D":
        options |= {f"dilation_{a}_factor": int(pick(rng, 1, 1, 2)) for a in "dhw"}
        return Case(name, [x, floats(rng, *window, depth, units), *bias], [Tensor((), F)], options)
    target = [n * s + (0 if padding == 0 else max(k - s, 0)) for n, s, k in zip(sides, strides, window, strict=True)]
    options |= {f"dilation_{a}_factor": 1 for a in "dhw"} | {"fused_activation_function": 0}
    inputs = [constant([batch, *target, units]), floats(rng, *window, units, depth), x, *bias]
    return Case(name, list(inputs), [Tensor((), F)], options)


# -- recurrent cells ---------------------------------------------------------------------------------------------------------


@draws("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "SVDF")
def recurrent(rng: Rng, name: str) -> Case:
    batch, steps, width, units = dims(rng, 4, 4)
    options: dict[str, Any] = {"fused_activation_function": int(pick(rng, 0, 1, 4))}
    if name == "SVDF":
        rank, memory = int(rng.integers(1, 3)), int(rng.integers(1, 5))
        bias = pick(rng, floats(rng, units), None)
        kernels = [floats(rng, units * rank, width), floats(rng, units * rank, memory), bias]
        options = {"rank": rank, "fused_activation_function": int(pick(rng, 0, 1))}
        return Case(name, [Tensor((batch, width), F), *kernels, state(batch, units * rank * memory)], [Tensor((), F)], options)

    def cell() -> list[Tensor | None]:
        return [floats(rng, units, width), floats(rng, units, units), floats(rng, units), state(batch, units)]

    major = bool(rng.integers(2))
    x = Tensor((batch, width) if name == "RNN" else (steps, batch, width) if major else (batch, steps, width), F)
    if name != "RNN":
        options["time_major"] = major
    if name.startswith("BI"):
        merged = bool(rng.integers(2))
        outs = [Tensor((), F) for _ in range(1 if merged else 2)]
        return Case(name, [x, *cell(), *cell(), None, None, None], outs, {**options, "merge_outputs": merged})
    return Case(name, [x, *cell()], [Tensor((), F)], options)


@draws("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(rng: Rng, name: str) -> Case:
    batch, steps, width, units = dims(rng, 4, 4)
    coupled, peephole, normed = (bool(rng.random() < 0.3) for _ in range(3))
    out = int(rng.integers(1, 5)) if (projected := rng.random() < 0.3) else units
    normed = normed and not name.startswith("BI")
    gates = [not coupled, True, True, True]

    def weights() -> list[Tensor | None]:
        def some(shape: Sequence[int], chosen: Sequence[bool]) -> list[Tensor | None]:
            return [floats(rng, *shape) if one else None for one in chosen]

        peepholes = some((units,), [peephole and not coupled, peephole, peephole])
        projection = [floats(rng, out, units) if projected else None, floats(rng, out) if projected and batch > 1 else None]
        return [*some((units, width), gates), *some((units, out), gates), *peepholes, *some((units,), gates), *projection]

    activation = int(pick(rng, 1, 2, 3, 4, 4))  # With 0 LiteRT's output leaves the cell's state out.
    options: dict[str, Any] = {
        "fused_activation_function": activation,
        "cell_clip": pick(rng, 0.0, 0.5),
        "proj_clip": pick(rng, 0.0, 0.5),
    }
    states = [state(batch, out), state(batch, units)]
    if name == "LSTM":
        norms = [floats(rng, units) if gate else None for gate in gates] if normed else []
        return Case(name, [Tensor((batch, width), F), *weights(), *states, *norms], [Tensor((), F)], options)
    options["time_major"] = bool(rng.integers(2))
    x = Tensor((steps, batch, width) if options["time_major"] else (batch, steps, width), F)
    if name.startswith("BI"):
        # LiteRT's merged outputs are not its own separate ones where the batch comes first.
        options["merge_outputs"] = merged = options["time_major"] and bool(rng.integers(2))
        both = [*states, state(batch, out), state(batch, units)]
        outs = [Tensor((), F) for _ in range(1 if merged else 2)]
        return Case(name, [x, *weights(), *weights(), *both, *[None] * 9], outs, options)
    norms = [floats(rng, units) if gate else None for gate in gates] if normed else []
    return Case(name, [x, *weights(), *states, *norms], [Tensor((), F)], options)
