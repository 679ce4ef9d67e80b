"""Element-wise operators, reductions, shapes, and operators that move elements, drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.drawing import I8, I32, I64, TYPES, U8, B, Case, D, F, H, draws

# -- element by element ------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, tuple[str, ...]] = {
    "Elu": ("alpha",), "Celu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",), "Selu": ("alpha", "gamma"),
    "ThresholdedRelu": ("alpha",), "Shrink": ("bias", "lambd"), "Swish": ("alpha",),
}  # fmt: skip
POSITIVE = ("Log", "Sqrt", "Acosh")
UNIT = ("Acos", "Asin", "Atanh")


@draws(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Floor", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal",
    "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu", "Size", "NonZero", "Dropout",
)  # fmt: skip
def unary(case: Case) -> None:
    name = case.operator
    array = case.values(case.dims(1 if name == "NonZero" else 0, 5), case.type())
    if array.dtype.kind == "f":
        array = np.abs(array) + (1 if name == "Acosh" else 0.1) if name in POSITIVE else np.tanh(array) if name in UNIT else array
        if name in ("Reciprocal", "Tan"):
            array = np.abs(array) % 1 + 0.2
        if name in ("IsInf", "IsNaN", "Relu", "Abs", "Sign", "Sigmoid") and array.size and case.chance(0.3):
            array = np.array(array)
            array.flat[0] = case.pick(np.inf, -np.inf, np.nan) if name.startswith("Is") else case.pick(np.inf, -np.inf, -0.0)
    options = {option: case.maybe(float(case.pick(0.5, 1.0, 1.5, 0.1))) for option in OPTIONS.get(name, ())}
    if name == "Size":
        options = {}
    case.node([case.value(array, False)], **options)


@draws(
    "Gelu",
    "CumSum",
    "CumProd",
    "Softmax",
    "LogSoftmax",
    "Hardmax",
    "Flatten",
    "Shape",
    "LpNormalization",
    "Trilu",
    "Det",
    "EyeLike",
)
def along(case: Case) -> None:
    name, type = case.operator, case.type()
    shape = case.dims(2 if name in ("Trilu", "Det", "EyeLike") else 1, 2 if name == "EyeLike" else 4)
    rank = len(shape)
    if name == "Det":
        shape = (*shape[:-1], shape[-2])
    negative = name not in ("Softmax", "LogSoftmax", "Hardmax", "Flatten") or case.opset >= 11
    axis = case.maybe(case.axis(rank, negative=negative))
    x = case.data(shape, type)
    if name in ("CumSum", "CumProd"):
        axis = case.parameter(case.axis(rank), case.pick(I32, I64))
        case.node([x, axis], exclusive=case.maybe(case.whole(0, 1)), reverse=case.maybe(case.whole(0, 1)))
    elif name == "Trilu":
        k = case.parameter(case.whole(-3, 3)) if case.chance(0.6) else ""
        case.node([x, k], upper=case.maybe(case.whole(0, 1)))
    elif name == "Gelu":
        case.node([x], approximate=case.maybe(case.pick("none", "tanh")))
    elif name == "Shape":
        ends = {} if case.opset < 15 else {"start": case.maybe(case.whole(-5, 4)), "end": case.maybe(case.whole(-5, 5))}
        case.node([x], **ends)
    elif name == "LpNormalization":
        case.node([x], axis=axis, p=case.maybe(case.whole(1, 2)))
    elif name == "Det":
        case.node([x])
    elif name == "EyeLike":
        kinds = (TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.DOUBLE)
        case.node([x], k=case.maybe(case.whole(-2, 2)), dtype=case.maybe(case.pick(*kinds)))
    else:
        case.node([x], axis=axis)


def broadcast(case: Case, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast against each other."""
    full = case.dims(0, 4)
    shapes = []
    for _ in range(count):
        part = full[case.whole(0, len(full)) :] if case.chance(0.4) else full
        shapes.append(tuple(1 if case.chance(0.2) else d for d in part))
    return shapes


@draws(
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "PRelu", "Where", "Max", "Min", "Mean", "Sum",
)  # fmt: skip
def binary(case: Case) -> None:
    name = case.operator
    type = case.type(1 if name == "Where" else 0)
    count = case.whole(1, 4) if name in ("Max", "Min", "Mean", "Sum") else 3 if name == "Where" else 2
    shapes = [case.dims(0, 4)] * count if name in ("Max", "Min", "Mean", "Sum") and case.opset < 8 else broadcast(case, count)
    if name == "PRelu":
        shapes[0] = tuple(case.dims(1, 4))
        shapes[1] = tuple(1 if case.chance(0.3) else d for d in shapes[0][case.whole(0, len(shapes[0])) :])
    arrays = [case.values(shape, B if name == "Where" and i == 0 else type) for i, shape in enumerate(shapes)]
    options: dict[str, Any] = {}
    if name in ("Div", "Mod"):
        arrays[1] = np.asarray(np.where(arrays[1] == 0, 3, arrays[1]).astype(type))
        if type == I8:
            arrays[1] = np.where(arrays[1] == -1, np.int8(5), arrays[1])
    if name == "Mod" and (np.dtype(type).kind == "f" or case.chance(0.3)):
        options["fmod"] = 1
    if name == "Pow":
        arrays[0] = np.asarray((np.abs(arrays[0]) % 5 + 1).astype(type))
        arrays[1] = np.asarray((np.abs(arrays[1]) % 4).astype(type))
    if name == "BitShift":
        arrays[1] = np.asarray((arrays[1] % (8 * arrays[1].dtype.itemsize)).astype(type))
        options["direction"] = case.pick("LEFT", "RIGHT")
    computed = case.whole(0, count - 1)
    case.node([case.value(array, False if i == computed else None) for i, array in enumerate(arrays)], **options)


@draws("Clip")
def clip(case: Case) -> None:
    type = case.type(0, (F, F, H, D, I32, I64, U8, I8)) if case.opset >= 12 else F
    x, low, high = case.data(case.dims(0, 4), type), *sorted(case.values((2,), type).tolist())
    if case.chance(0.3):
        low, high = case.pick((0, 6), (-1, 1), (0, 1)) if type not in (U8, I8) else (0, 6)
    if case.opset < 11:
        case.node([x], min=case.maybe(float(low)), max=case.maybe(float(high)))
    else:
        ends = [case.value(np.asarray(end, type), not case.chance(0.2)) if case.chance(0.7) else "" for end in (low, high)]
        case.node([x, *ends])


@draws("Cast", "CastLike")
def cast(case: Case) -> None:
    source, target = case.pick(*TYPES), case.pick(*TYPES)
    array = case.values(case.dims(0, 4), source)
    if np.dtype(source).kind in "fi":
        array = np.abs(array).astype(source) if np.dtype(target).kind == "u" else array
        array = np.clip(array, -100, 100).astype(source)
    x = case.value(array, False)
    if case.operator == "CastLike":
        case.node([x, case.value(case.values((1,), target))])
    else:
        case.node([x], to=int(helper.np_dtype_to_tensor_dtype(np.dtype(target))))


# -- reductions --------------------------------------------------------------------------------------------------------------


@draws(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "ArgMax", "ArgMin",
)  # fmt: skip
def reduction(case: Case) -> None:
    name, type = case.operator, case.type()
    shape = case.dims(1 if name.startswith("Arg") or case.chance(0.9) else 0, 4)
    array = case.values(shape, type)
    if name == "ReduceProd" and array.dtype.kind != "f":
        array = np.sign(array)
    if name == "ReduceLogSum":
        array = np.asarray((np.abs(array) + 1).astype(type))
    x, rank, keep = case.value(array, False), len(shape), case.maybe(case.whole(0, 1))
    negative = case.opset >= 11
    if name.startswith("Arg"):
        last = case.maybe(case.whole(0, 1)) if case.opset >= 12 else None
        case.node([x], axis=case.maybe(case.axis(rank, negative=negative)), keepdims=keep, select_last_index=last)
        return
    axes = [int(a) for a in case.rng.permutation(rank)[: case.whole(1, rank) if rank else 0]]
    axes = [a - rank if negative and case.chance(0.3) else a for a in axes]
    if case.opset >= (13 if name == "ReduceSum" else 18):
        axes = [] if case.chance(0.15) else axes
        given = case.parameter(np.array(axes, np.int64)) if case.chance(0.75) and rank else ""
        case.node([x, given], keepdims=keep, noop_with_empty_axes=case.maybe(case.whole(0, 1)))
    else:
        case.node([x], axes=case.maybe(axes) if axes else None, keepdims=keep)


# -- shapes ------------------------------------------------------------------------------------------------------------------


@draws("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Transpose", "ConstantOfShape", "Range")
def shapes(case: Case) -> None:
    name = case.operator
    if name == "Range":
        type = case.type()
        delta = case.pick(1, 2, -1, -3)
        ends = [case.value(np.asarray(v, type)) for v in (case.whole(-5, 5), case.whole(-5, 9), delta)]
        if not case.feeds:
            ends[0] = case.value(np.asarray(2, type), False)
        case.node(ends)
        return
    if name == "ConstantOfShape":
        fill = case.maybe(numpy_helper.from_array(case.values((1,), case.pick(F, I32, I64, B, U8, H))))
        case.node([case.value(np.array(case.dims(0, 4), np.int64), case.chance(0.3))], value=fill)
        return
    type, shape = case.type(), case.dims(0 if case.chance(0.1) and name != "Transpose" else 1, 4)
    rank, x = len(shape), ""
    if name == "Squeeze":
        shape = tuple(1 if case.chance(0.5) else d for d in shape)
        ones = [i - (rank if case.opset >= 11 and case.chance(0.3) else 0) for i, d in enumerate(shape) if d == 1]
        axes: Any = ones[: case.whole(1, len(ones))] if ones else None
        axes = None if case.chance(0.25) else axes
    x = case.data(shape, type)
    if name == "Transpose":
        case.node([x], perm=case.maybe([int(a) for a in case.rng.permutation(rank)]))
    elif name == "Reshape":
        new = [int(d) for d in case.rng.permutation(shape)]
        if len(new) > 1 and case.chance(0.3):
            new[:2] = [new[0] * new[1]]
        if new and case.chance(0.4):
            new[case.whole(0, len(new) - 1)] = -1
        elif new and case.chance(0.2):
            i = case.whole(0, min(len(new), rank) - 1)
            new = [0 if j == i and new[j] == shape[j] else d for j, d in enumerate(new)]
        case.node([x, case.value(np.array(new, np.int64), not case.chance(0.35))])
    elif name in ("Squeeze", "Unsqueeze"):
        if name == "Unsqueeze":
            more = case.whole(1, 2)
            axes = [int(a) for a in case.rng.permutation(rank + more)[:more]]
            axes = [a - rank - more if case.opset >= 11 and case.chance(0.3) else a for a in axes]
        if case.opset < 13:
            case.node([x], axes=axes)
        else:
            case.node([x, case.value(np.array(axes, np.int64), not case.chance(0.35)) if axes is not None else ""])
    elif name == "Expand":
        (wide,) = (
            broadcast(case, 1) if case.chance(0.2) else [tuple(case.whole(1, 4) if d == 1 else case.pick(1, d) for d in shape)]
        )
        wide = (*case.dims(0, 1), *wide) if case.chance(0.3) else wide
        case.node([x, case.value(np.array(wide, np.int64), not case.chance(0.35))])
    else:
        case.node([x, case.parameter(np.array([case.whole(1, 3) for _ in shape], np.int64))])


@draws("Concat", "Split", "Slice", "Pad", "Compress", "ReverseSequence", "Unique", "TopK", "CenterCropPad")
def parts(case: Case) -> None:
    name, type = case.operator, case.type()
    shape = case.dims(2 if name == "ReverseSequence" else 1, 4)
    rank, negative = len(shape), case.opset >= 11
    axis = case.axis(rank, negative=negative)
    if name == "Concat":
        sizes = [tuple(case.whole(1, 3) if i == axis % rank else d for i, d in enumerate(shape)) for _ in range(case.whole(1, 4))]
        names = [case.value(case.values(s, type), None if i else False) for i, s in enumerate(sizes)]
        case.node(names, axis=axis)
    elif name == "Split":
        sizes = [case.whole(1, 3) for _ in range(case.whole(1, 4))]
        even = case.chance(0.4)
        sizes = [sizes[0]] * len(sizes) if even else sizes
        x = case.data([sum(sizes) if i == axis % rank else d for i, d in enumerate(shape)], type)
        axis = case.maybe(axis) if axis % rank == 0 else axis
        if case.opset < 13:
            case.node([x], len(sizes), axis=axis, split=None if even and case.chance(0.5) else sizes)
        elif even and case.chance(0.5):
            case.node([x], len(sizes), axis=axis, num_outputs=len(sizes) if case.opset >= 18 else None)
        else:
            case.node([x, case.parameter(sizes)], len(sizes), axis=axis)
    elif name == "Slice":
        axes = [int(a) for a in case.rng.permutation(rank)[: case.whole(1, rank)]]
        starts = [case.whole(-shape[a] - 1, shape[a]) for a in axes]
        steps = [case.pick(1, 1, 2, -1, -2) if case.opset >= 10 else 1 for _ in axes]
        far = [-(2**31) if step < 0 else 2**31 - 1 for step in steps]
        ends = [case.pick(case.whole(-shape[a], shape[a] + 2), end) for a, end in zip(axes, far, strict=True)]
        x = case.data(shape, type)
        if case.opset < 10:
            case.node([x], starts=starts, ends=ends, axes=axes)
            return
        axes = [a - rank if negative and case.chance(0.3) else a for a in axes]
        index = case.pick(I32, I64)
        given = [case.parameter(v, index) for v in (starts, ends, axes)]
        case.node([x, *given, case.parameter(steps, index) if case.chance(0.6) else ""])
    elif name == "Pad":
        mode = case.pick("constant", "constant", "reflect", "edge", *(("wrap",) if case.opset >= 19 else ()))
        axes = list(range(rank))
        chosen = case.opset >= 18 and case.chance(0.4)
        if chosen:
            axes = [int(a) for a in case.rng.permutation(rank)[: case.whole(1, rank)]]
        lowest = -1 if mode == "constant" and case.chance(0.2) else 0
        pads = [case.whole(lowest if shape[a] > 2 else 0, min(2, shape[a] - 1) if mode != "constant" else 3) for a in axes * 2]
        x = case.data(shape, type)
        if case.opset < 11:
            case.node([x], mode=case.maybe(mode) if mode == "constant" else mode, pads=pads, value=case.maybe(1.5))
        else:
            fill = case.parameter(case.values((), type), type) if case.chance(0.6) else ""
            case.node([x, case.parameter(pads), fill, case.parameter(axes) if chosen else ""], mode=mode)
    elif name == "Compress":
        axis = case.maybe(axis)
        count = int(np.prod(shape)) if axis is None else shape[axis]
        case.node([case.data(shape, type), case.value(case.values((case.whole(1, count),), B))], axis=axis)
    elif name == "ReverseSequence":
        batch = case.whole(0, 1)
        lengths = case.value(case.rng.integers(1, shape[1 - batch] + 1, shape[batch]))
        case.node([case.data(shape, type), lengths], batch_axis=batch, time_axis=1 - batch)
    elif name == "Unique":
        case.node([case.data(shape, type)], case.whole(1, 4), axis=case.maybe(axis), sorted=case.maybe(case.whole(0, 1)))
    elif name == "CenterCropPad":
        axes = [int(a) for a in case.rng.permutation(rank)[: case.whole(1, rank)]]
        case.node([case.data(shape, type), case.parameter([case.whole(1, 6) for _ in axes])], axes=axes)
    else:
        count = case.whole(1, shape[axis])
        x = case.value(case.rng.permutation(int(np.prod(shape))).reshape(shape).astype(case.pick(F, type)), False)
        more = {} if case.opset < 11 else {"largest": case.maybe(case.whole(0, 1)), "sorted": 1}
        if case.opset < 10:
            case.node([x], 2, axis=axis, k=count)
        else:
            case.node([x, case.parameter([count])], 2, axis=axis, **more)


@draws("Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "OneHot", "TensorScatter")
def gathers(case: Case) -> None:
    name, type = case.operator, case.type(2 if case.operator == "OneHot" else 0)
    shape, negative = case.dims(1, 4), case.opset >= 11
    rank, index = len(shape), case.pick(I32, I64)
    axis = case.axis(rank, negative=negative)
    x = case.data(shape, type)
    if name == "Gather":
        low = -shape[axis] if negative else 0
        case.node(
            [x, case.value(case.rng.integers(low, shape[axis], case.dims(0, 2)).astype(index))],
            axis=case.maybe(axis) if axis == 0 else axis,
        )
    elif name in ("GatherElements", "Scatter", "ScatterElements"):
        few = tuple(case.whole(1, d) for d in shape)
        indices = case.rng.integers(-shape[axis] if name != "Scatter" else 0, shape[axis], few)
        if name != "GatherElements":  # different ones along the axis
            order = np.argsort(case.rng.random(shape), axis)
            indices = order[tuple(slice(d) for d in few)]
        i = case.value(indices.astype(index))
        if name == "GatherElements":
            case.node([x, i], axis=axis)
            return
        kinds = ("add", "mul", "max", "min") if case.opset >= 18 else ("add", "mul") if case.opset >= 16 else ()
        reduction = case.maybe(case.pick(*kinds)) if kinds and name != "Scatter" and type not in (B,) else None
        case.node([x, i, case.value(case.values(few, type))], axis=axis, reduction=reduction)
    elif name == "GatherND":
        batch = case.whole(0, rank - 1) if case.opset >= 12 and case.chance(0.3) else 0
        depth = case.whole(1, rank - batch)
        middle = case.dims(0, 2, 3)
        ends = np.array(shape[batch : batch + depth])
        indices = (case.rng.random((*shape[:batch], *middle, depth)) * ends).astype(np.int64)
        case.node([x, case.value(indices)], batch_dims=batch or None)
    elif name == "ScatterND":
        depth = case.whole(1, rank)
        every = np.array(list(np.ndindex(*shape[:depth])), np.int64)
        indices = every[case.rng.permutation(len(every))[: case.whole(1, len(every))]]
        updates = case.values((len(indices), *shape[depth:]), type)
        case.node([x, case.value(indices), case.value(updates)])
    elif name == "TensorScatter":
        case.feeds.clear()
        size = (2, 3, 5, 4)
        x = case.data(size, type)
        update = case.data((2, 3, 2, 4), type)
        at = case.value(np.array([0, 3], np.int64)) if case.chance(0.7) else ""
        case.node([x, update, at], mode=case.maybe(case.pick("linear", "circular")))
    else:
        case.feeds.clear()
        depth = case.whole(2, 6)
        i = case.value(case.rng.integers(-depth, depth, shape).astype(case.pick(I32, I64)), False)
        pair = case.value(case.values((2,), type))
        case.node(
            [
                i,
                case.value(np.asarray(depth if case.chance(0.5) else [depth], case.pick(I64, I32, F)), not case.chance(0.2)),
                pair,
            ],
            axis=case.maybe(case.axis(rank + 1)),
        )


# -- products ----------------------------------------------------------------------------------------------------------------
