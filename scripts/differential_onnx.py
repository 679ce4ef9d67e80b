"""Random small ONNX files: nnbridge's answer beside ONNX Runtime's.

    python scripts/differential_onnx.py --cases 20000
    python scripts/differential_onnx.py --cases 500 --seed 3 --operators Conv Resize --keep found

Types, shapes, attributes, opsets, broadcasting, negative axes, scalars, omitted inputs, constants and computed inputs, open and
missing declarations are drawn at random: single operators, groups between DequantizeLinear and QuantizeLinear, and chains of two
or three. ONNX Runtime's CPU provider computes the reference without optimisations, the ``onnx`` package's evaluator what it has
no kernel for. Integers must be equal, floats within 1e-5 of the reference plus 1e-5 of the output's range (float16: 4e-3).
Differences that a rule of docs/onnx.md explains are counted as such (`explanation`). Exit status 1 if one is left.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nnbridge import Compilation, Execution, load
from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError
from nnbridge_onnx.declaration import REGISTRY

F, H, D, U8, I8, I32, I64, B = "float32", "float16", "float64", "uint8", "int8", "int32", "int64", "bool"
TYPES = (F, F, F, F, H, D, U8, I8, "int16", "uint16", I32, I32, I64, I64, "uint32", "uint64", B)
MICROSOFT = "com.microsoft"
NEWEST = 23
"""The newest opset that the reference runs; operators that came later are drawn at their own."""
SECONDS = 60
LOWEST = 1e38
"""Numbers beyond this stand for infinity."""
BATCH = 100
FORK = get_context("fork")
Rng = np.random.Generator


@cache
def first_version(operator: str) -> int:
    """The opset that has an operator first; GroupNormalization was withdrawn before 21."""
    if operator == "GroupNormalization":
        return 21
    return min(
        (s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == operator and not s.domain), default=1
    )


class Case:
    """A model under construction, with the values that it is run on."""

    def __init__(self, rng: Rng, operator: str, opset: int = 0) -> None:
        self.rng = rng
        self.operator = operator
        self.opset = max(opset or int(rng.integers(7, NEWEST + 1)), first_version(operator))
        self.nodes: list[Any] = []
        self.feeds: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.outputs: list[str] = []
        self.quantised = False

    # -- drawing

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def whole(self, low: int, high: int) -> int:
        """A number from low to high."""
        return int(self.rng.integers(low, high + 1))

    def dims(self, low: int = 1, high: int = 4, most: int = 5) -> tuple[int, ...]:
        return tuple(int(d) for d in self.rng.integers(1, most + 1, self.whole(low, high)))

    def axis(self, rank: int, *, negative: bool = True) -> int:
        return self.whole(-rank if negative else 0, rank - 1)

    def type(self, i: int = 0, of: Sequence[str] = TYPES) -> str:
        """An element type that the operator's input accepts in this opset."""
        schema = onnx.defs.get_schema(self.operator, self.opset)
        allowed = {name[7:-1] for name in schema.inputs[min(i, len(schema.inputs) - 1)].types}
        names = {"float": F, "double": D}
        allowed = {names.get(name, name) for name in allowed}
        return str(self.pick(*([t for t in of if t in allowed] or [F])))

    def values(self, shape: Sequence[int], type: str = F) -> Any:
        kind = np.dtype(type).kind
        if kind == "f":
            array = self.rng.standard_normal(shape) * self.pick(1.0, 1.0, 1.0, 4.0)
            return np.asarray(np.round(array) if self.chance(0.1) else array).astype(type)
        if kind == "b":
            return np.asarray(self.rng.integers(0, 2, shape)).astype(bool)
        ends = (0, 255) if type == U8 else (-128, 127) if type == I8 else (0, 20) if kind == "u" else (-20, 20)
        if self.chance(0.1):
            return np.full(shape, self.pick(*ends), type)
        return np.asarray(self.rng.integers(ends[0], ends[1] + 1, shape)).astype(type)

    # -- building

    def value(self, array: Any, constant: bool | None = None) -> str:
        """A constant or an input, by chance if not stated."""
        array = np.asarray(array)
        constant = self.chance(0.3) if constant is None else constant
        table = self.constants if constant else self.feeds
        name = f"{'c' if constant else 'x'}{len(table)}"
        table[name] = array
        return name

    def data(self, shape: Sequence[int], type: str = F) -> str:
        return self.value(self.values(shape, type), False)

    def parameter(self, values: Any, type: str = I64) -> str:
        """Sizes or axes: constants as a rule."""
        return self.value(np.asarray(values, type), not self.chance(0.2))

    def node(self, inputs: Sequence[str], outputs: int = 1, operator: str = "", domain: str = "", **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        kept = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(operator or self.operator, inputs, names, domain=domain, **kept))
        self.outputs = names
        return names

    def maybe(self, value: Any) -> Any:
        """An attribute that may be left out."""
        return value if self.chance(0.7) else None

    def __str__(self) -> str:
        kinds = {n: f"{a.dtype}{list(a.shape)}" for n, a in self.feeds.items()}
        fixed = {n: a.tolist() if a.size <= 8 else f"{a.dtype}{list(a.shape)}" for n, a in self.constants.items()}
        nodes = "; ".join(
            f"{n.op_type}({', '.join(n.input)}; " + ", ".join(f"{a.name}={_shown(a)}" for a in n.attribute) + ")"
            for n in self.nodes
        )
        return f"opset {self.opset}: {nodes} {kinds} {fixed}"

    def model(self, outputs: Sequence[Any] | None = None) -> Any:
        """The model; ``outputs`` are the reference's, whose types are declared, and by chance their shapes."""
        kinds = []
        for i, name in enumerate(self.outputs):
            if outputs is None:
                kinds.append(onnx.ValueInfoProto(name=name))
                continue
            shape = self.pick(list(outputs[i].shape), list(outputs[i].shape), [None] * outputs[i].ndim)
            kinds.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(outputs[i].dtype), shape))
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape))
            for name, a in self.feeds.items()
        ]
        tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in self.constants.items()]
        graph = helper.make_graph(self.nodes, self.operator, inputs, kinds, tensors)
        domains = {node.domain for node in self.nodes} - {""}
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _shown(attribute: Any) -> Any:
    value = helper.get_attribute_value(attribute)
    return value if isinstance(value, (int, float, bytes, list)) else list(value) if hasattr(value, "append") else "..."


Draw = Callable[[Case], object]
DRAWS: dict[str, Draw] = {}


def draws(*names: str) -> Callable[[Draw], Draw]:
    def register(function: Draw) -> Draw:
        DRAWS.update(dict.fromkeys(names, function))
        return function

    return register


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


@draws("MatMul", "Gemm", "MatMulInteger", "Einsum", "QLinearMatMul")
def products(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, H, D, I32, I64, U8, I8))
    n, k, m = (case.whole(1, 5) for _ in range(3))
    if name == "Gemm":
        flips = case.whole(0, 1), case.whole(0, 1)
        a, b = case.data((k, n) if flips[0] else (n, k), type), case.value(case.values((m, k) if flips[1] else (k, m), type))
        c = (
            case.value(case.values(case.pick((), (1,), (m,), (1, m), (n, 1), (n, m)), type))
            if case.opset < 11 or case.chance(0.7)
            else ""
        )
        factor = {key: case.maybe(float(case.pick(1, 0.5, 2))) for key in ("alpha", "beta")}
        case.node([a, b, c], transA=case.maybe(1) if flips[0] else 0, transB=flips[1], **factor)
        if flips[0] and all(x.name != "transA" for x in case.nodes[0].attribute):
            case.nodes[0].attribute.append(helper.make_attribute("transA", 1))
        return
    if name == "Einsum":
        equation, sizes = case.pick(
            ("ij,jk->ik", ((n, k), (k, m))), ("bij,bjk->bik", ((2, n, k), (2, k, m))), ("ij->ji", ((n, k),)), ("ij->", ((n, k),)),
            ("i,j->ij", ((n,), (m,))), ("...ij,...kj->...ik", ((2, n, k), (2, m, k))),
            ("bhwc,hkc->bhwk", ((2, 3, n, k), (3, m, k))), ("ij,ij->i", ((n, k), (n, k))), ("ii->i", ((n, n),)),
        )  # fmt: skip
        case.node([case.value(case.values(s, type), None if i else False) for i, s in enumerate(sizes)], equation=equation)
        return
    outer = case.dims(0, 2, 3)
    left = (*(1 if case.chance(0.2) else d for d in outer), n, k) if case.chance(0.9) else (k,)
    right = (*(outer if case.chance(0.5) else ()), k, m) if case.chance(0.9) else (k,)
    if name == "MatMul":
        case.node([case.data(left, type), case.value(case.values(right, type))])
        return
    right = right if case.chance(0.3) else (k, m)
    left = left if len(left) > 1 else (n, k)
    right = right if len(right) > 1 else (k, m)
    kinds = case.pick(U8, I8), case.pick(U8, I8)
    a, b = case.data(left, kinds[0]), case.value(case.values(right, kinds[1]))
    points = [case.value(case.values((), kind), True) for kind in kinds]
    if name == "MatMulInteger":
        case.node([a, b, *(point if case.chance(0.7) else "" for point in points)])
        return
    case.quantised = True
    steps = [case.value(np.float32(s), True) for s in (0.02, 0.03, 0.01)]
    out = case.value(case.values((), kinds[0]), True)
    case.node([a, steps[0], points[0], b, steps[1], points[1], steps[2], out])


@draws("Conv", "ConvTranspose", "ConvInteger", "QLinearConv")
def convolutions(case: Case) -> None:
    name, lines = case.operator, case.pick(1, 2, 2, 2, 3)
    type = case.type(0, (F, F, F, F, H, D)) if name.startswith("Conv") and name != "ConvInteger" else F
    group = case.pick(1, 1, 1, 2, 3)
    cin, cout = group * case.whole(1, 2), group * case.whole(1, 3)
    if case.chance(0.2):
        group = cin
        cout = cin * case.whole(1, 2)
    kernel = [case.whole(1, 3) for _ in range(lines)]
    dilations = [case.pick(1, 1, 2) for _ in range(lines)]
    strides = [case.pick(1, 1, 2, 3) for _ in range(lines)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [r + case.whole(0, 5) for r in reach]
    padding: dict[str, Any] = {}
    if case.chance(0.6):
        padding["pads"] = [case.whole(0, min(2, r)) for r in reach * 2]
    elif case.chance(0.6):
        # ONNX Runtime's transposed convolutions end early where windows leave gaps.
        gaps = name == "ConvTranspose" and any(s > r for s, r in zip(strides, reach, strict=True))
        padding["auto_pad"] = case.pick("VALID", "NOTSET", *(() if gaps else ("SAME_UPPER", "SAME_LOWER")))
    common = {
        "dilations": case.maybe(dilations) if max(dilations) == 1 else dilations,
        "group": group,
        "kernel_shape": case.maybe(kernel),
    }
    common |= {"strides": strides, **padding}
    shape, weights = (case.whole(1, 2), cin, *size), (cout, cin // group, *kernel)
    if name == "ConvTranspose":
        weights = (cin, cout // group, *kernel)
        if case.chance(0.3) and "auto_pad" not in padding:
            common["output_padding"] = [case.whole(0, max(s, d) - 1) for s, d in zip(strides, dilations, strict=True)]
    if name in ("Conv", "ConvTranspose"):
        bias = case.value(case.values((cout,), type)) if case.chance(0.6) else ""
        case.node([case.data(shape, type), case.value(case.values(weights, type), case.chance(0.8)), bias], **common)
        return
    kinds = case.pick((U8, U8), (U8, I8), (I8, I8))
    x, w = case.data(shape, kinds[0]), case.value(case.values(weights, kinds[1]), case.chance(0.8))
    points = [case.value(case.values((), kind), True) for kind in kinds]
    if kinds[1] == I8:
        points[1] = case.value(np.int8(0), True)
    if name == "ConvInteger":
        case.node([x, w, *(point if case.chance(0.7) else "" for point in points)], **common)
        return
    case.quantised = True
    bias = case.value(case.rng.integers(-500, 500, cout).astype(np.int32), True) if case.chance(0.6) else ""
    many = kinds[1] == I8 and case.chance(0.4)
    step = case.value(case.rng.uniform(0.005, 0.05, cout).astype(F) if many else np.float32(0.03), True)
    if many:
        points[1] = case.value(np.zeros(cout, np.int8), True)
    out = case.value(case.values((), kinds[0]), True)
    case.node(
        [x, case.value(np.float32(0.02), True), points[0], w, step, points[1], case.value(np.float32(0.1), True), out, bias],
        **common,
    )


@draws("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "LRN")
def pools(case: Case) -> None:
    name, lines, type = case.operator, case.pick(1, 2, 2, 2, 3), case.type(0, (F, F, F, H, D, U8, I8))
    kernel = [case.whole(1, 3) for _ in range(lines)]
    shape = (case.whole(1, 2), case.whole(1, 4), *(k + case.whole(1, 6) for k in kernel))
    x = case.data(shape, type)
    if name == "LRN":
        options = {"alpha": 0.1, "beta": case.maybe(0.5), "bias": case.maybe(2.0)}
        case.node([x], size=case.whole(1, 5), **options)
        return
    if name.startswith("Global"):
        case.node([x], **({"p": case.maybe(case.whole(1, 3))} if name == "GlobalLpPool" else {}))
        return
    options = {"kernel_shape": kernel, "strides": case.maybe([case.whole(1, 3) for _ in kernel])}
    if case.chance(0.5):
        options["pads"] = [case.whole(0, k - 1) for k in kernel * 2]
    elif case.chance(0.5):
        options["auto_pad"] = case.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    if case.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[name]:
        options["ceil_mode"] = case.maybe(case.whole(0, 1))
    if case.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name] and "auto_pad" not in options:
        options["dilations"] = [case.pick(1, 1, 2) if k + case.whole(0, 1) else 1 for k in kernel] if case.chance(0.3) else None
    if name == "AveragePool":
        options["count_include_pad"] = case.maybe(case.whole(0, 1))
    if name == "LpPool":
        options["p"] = case.maybe(case.whole(1, 3))
    both = name == "MaxPool" and case.opset >= 8 and case.chance(0.2)
    case.node([x], 2 if both else 1, **options)


@draws(
    "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization",
    "MeanVarianceNormalization",
)  # fmt: skip
def normalisations(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, H, D))
    shape = case.dims(3, 4) if name != "BatchNormalization" else case.dims(2, 5, 4)
    shape = (2, 3, 2, 4) if name == "MeanVarianceNormalization" else (*shape[:2], *(d + 1 for d in shape[2:]))
    x, channels = case.data(shape, type), shape[1]
    epsilon = case.maybe(float(case.pick(1e-5, 1e-3, 0.1)))

    def numbers(*dims: int) -> str:
        return case.value(case.values(dims, type), not case.chance(0.2))

    if name == "MeanVarianceNormalization":
        case.node([x], axes=case.maybe([int(a) for a in case.rng.permutation(4)[: case.whole(1, 4)]]))
    elif name == "BatchNormalization":
        variance = case.value(np.abs(case.values((channels,), type)) + np.asarray(0.1, type), not case.chance(0.2))
        case.node([x, numbers(channels), numbers(channels), numbers(channels), variance], epsilon=epsilon)
    elif name == "InstanceNormalization":
        case.node([x, numbers(channels), numbers(channels)], epsilon=epsilon)
    elif name == "GroupNormalization":
        case.feeds.clear()
        groups, each = case.whole(1, 3), case.whole(1, 3)
        x = case.data((2, groups * each, *case.dims(1, 2)), type)
        count = groups if case.opset < 21 else groups * each
        case.node([x, numbers(count), numbers(count)], num_groups=groups, epsilon=epsilon)
    else:
        axis = case.axis(len(shape))
        tail = shape[axis:]
        bias = numbers(*tail) if name == "LayerNormalization" and case.chance(0.6) else ""
        case.node([x, numbers(*tail), bias], axis=axis, epsilon=epsilon)


# -- images ------------------------------------------------------------------------------------------------------------------


@draws("Resize", "Upsample")
def resizes(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, U8, I8, I32))
    if name == "Upsample":
        case.opset = case.whole(7, 9)
    rank = case.pick(2, 3, 4, 4, 4, 4)
    images = rank == 4 and case.chance(0.8)
    shape = (case.whole(1, 2), case.whole(1, 3), case.whole(1, 6), case.whole(1, 6))[4 - rank :]
    scales = [1.0 if images and i < 2 else float(case.pick(1, 2, 3, 0.5, 1.5, 2.5)) for i in range(rank)]
    scales = [max(s, 1.0) if name == "Upsample" else max(s, 1.01 / d) for s, d in zip(scales, shape, strict=True)]
    mode = case.pick("nearest", "linear", *(("cubic",) if case.opset >= 11 and type == F and images else ()))
    x = case.data(shape, type)
    if name == "Upsample" or case.opset < 11:
        if case.opset < 9:
            case.node([x], mode=mode, scales=scales)
        else:
            case.node([x, case.parameter(scales, F)], mode=mode)
        return
    more: dict[str, Any] = {"mode": mode}
    ways = (
        "half_pixel",
        "asymmetric",
        "align_corners",
        "pytorch_half_pixel",
        *(("half_pixel_symmetric",) if case.opset >= 19 else ()),
    )
    more["coordinate_transformation_mode"] = case.maybe(case.pick(*ways))
    if mode == "nearest":
        more["nearest_mode"] = case.maybe(case.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        more |= {"cubic_coeff_a": case.maybe(-0.5), "exclude_outside": case.maybe(case.whole(0, 1))}
    if case.opset >= 18 and case.chance(0.3) and mode != "cubic":
        more["antialias"] = case.whole(0, 1) if mode == "linear" else None
    empty = case.value(np.zeros(0, np.float32), True) if case.opset < 13 else ""
    if case.chance(0.5):
        case.node([x, empty, case.parameter(scales, F)], **more)
    else:
        sizes = [d if images and i < 2 else case.whole(1, 9) for i, d in enumerate(shape)]
        case.node([x, empty, case.value(np.zeros(0, np.float32), True) if case.opset < 13 else "", case.parameter(sizes)], **more)


@draws("DepthToSpace", "SpaceToDepth", "GridSample", "AffineGrid", "RoiAlign", "MaxRoiPool", "Col2Im")
def images(case: Case) -> None:
    name, type, block = case.operator, case.type(0, (F, F, F, H, D, U8, I32)), case.whole(1, 3)
    n, c, h, w = case.whole(1, 2), case.whole(1, 3), case.whole(2, 5), case.whole(2, 5)
    if name == "DepthToSpace":
        mode = case.maybe(case.pick("DCR", "CRD")) if case.opset >= 11 else None
        case.node([case.data((n, c * block * block, h, w), type)], blocksize=block, mode=mode)
    elif name == "SpaceToDepth":
        case.node([case.data((n, c, h * block, w * block), type)], blocksize=block)
    elif name == "GridSample":
        type = case.pick(F, F, D)
        grid = case.values((n, *case.dims(2, 2), 2), type) * np.asarray(0.7, type)
        ways = ("bilinear", "nearest", "bicubic") if case.opset < 20 else ("linear", "nearest", "cubic")
        more = {"mode": case.maybe(case.pick(*ways)), "padding_mode": case.maybe(case.pick("zeros", "border", "reflection"))}
        case.node([case.data((n, c, h, w), type), case.value(grid)], align_corners=case.maybe(case.whole(0, 1)), **more)
    elif name == "AffineGrid":
        type = case.pick(F, D)
        size = (n, c, h, w) if case.chance(0.7) else (n, c, h, w, 2)
        rows = len(size) - 2
        case.node([case.data((n, rows, rows + 1), type), case.parameter(size)], align_corners=case.maybe(case.whole(0, 1)))
    elif name == "Col2Im":
        type = case.pick(F, F, D)
        kernel = [case.whole(1, 2), case.whole(1, 2)]
        blocks = (h - kernel[0] + 1) * (w - kernel[1] + 1)
        case.node([case.data((n, c * kernel[0] * kernel[1], blocks), type), case.parameter([h, w]), case.parameter(kernel)])
    else:
        boxes = np.sort(case.rng.uniform(0, 5, (3, 2, 2)), axis=1).reshape(3, 4).astype(F)
        batch = case.rng.integers(0, n, 3)
        x = case.data((n, c, h + 3, w + 3), F)
        if name == "MaxRoiPool":
            rois = np.concatenate([batch[:, None], np.round(boxes)], axis=1).astype(F)
            case.node([x, case.value(rois)], pooled_shape=[case.whole(1, 3), case.whole(1, 3)], spatial_scale=case.maybe(1.0))
            return
        half = (
            {"coordinate_transformation_mode": case.maybe(case.pick("half_pixel", "output_half_pixel"))}
            if case.opset >= 16
            else {}
        )
        sizes = {key: case.whole(1, 3) for key in ("output_height", "output_width")}
        ratio = case.maybe(case.whole(1, 3))
        case.node(
            [x, case.value(boxes), case.value(batch)],
            mode=case.maybe("avg"),
            sampling_ratio=ratio,
            **sizes,
            **half,
        )


# -- sequences ---------------------------------------------------------------------------------------------------------------


@draws("LSTM", "GRU", "RNN")
def recurrent(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, D))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    steps, batch, size, hidden = (case.whole(1, 3) for _ in range(4))
    direction = case.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    last = case.opset >= 14 and case.chance(0.2)
    x = case.data((batch, steps, size) if last else (steps, batch, size), type)

    def weights(*dims: int) -> str:
        return case.value(case.values(dims, type) * np.asarray(0.5, type), not case.chance(0.15))

    inputs = [x, weights(ways, gates * hidden, size), weights(ways, gates * hidden, hidden)]
    inputs.append(weights(ways, 2 * gates * hidden) if case.chance(0.7) else "")
    lengths = case.value(case.rng.integers(1, steps + 1, batch).astype(np.int32), True) if case.chance(0.2) else ""
    state = (batch, ways, hidden) if last else (ways, batch, hidden)
    inputs += [lengths, case.value(case.values(state, type)) if case.chance(0.4) else ""]
    if name == "LSTM":
        inputs.append(case.value(case.values(state, type)) if case.chance(0.4) else "")
        inputs.append(weights(ways, 3 * hidden) if case.chance(0.3) else "")
    more: dict[str, Any] = {"direction": case.maybe(direction) if ways == 1 and direction == "forward" else direction}
    more |= {"hidden_size": hidden, "layout": 1 if last else None}
    if name == "GRU":
        more["linear_before_reset"] = case.maybe(case.whole(0, 1))
    if case.chance(0.2):
        kinds = {"LSTM": ["Sigmoid", "Tanh", "Relu"], "GRU": ["HardSigmoid", "Tanh"], "RNN": ["Relu"]}[name]
        more["activations"] = kinds * ways
    if case.chance(0.1):
        more["clip"] = 0.5
    case.node(inputs, case.whole(1, 3 if name == "LSTM" else 2), **more)


@draws("Attention", "RotaryEmbedding")
def attention(case: Case) -> None:
    type, heads, width = case.pick(F, F, F, H), case.pick(2, 4), case.pick(2, 4)
    batch, queries, keys = case.whole(1, 2), case.whole(1, 4), case.whole(1, 5)
    if case.operator == "RotaryEmbedding":
        flat = case.chance(0.3)
        x = case.data((batch, queries, heads * width) if flat else (batch, heads, queries, width), type)
        tables = [case.value(case.values((8, width // 2), type)) for _ in range(2)]
        places = case.value(case.rng.integers(0, 8, (batch, queries)))
        case.node([x, *tables, places], interleaved=case.maybe(case.whole(0, 1)), num_heads=heads if flat else None)
        return
    groups = case.pick(heads, heads, heads // 2)
    flat, wide = case.chance(0.3), case.pick(width, 3)

    def operand(many: int, length: int, size: int) -> str:
        return case.data((batch, length, many * size) if flat else (batch, many, length, size), type)

    inputs = [operand(heads, queries, width), operand(groups, keys, width), operand(groups, keys, wide)]
    past = case.chance(0.2)
    total = keys + (2 if past else 0)
    mask = ""
    if case.chance(0.4):
        shape = case.pick((queries, total), (batch, 1, queries, total), (batch, heads, queries, total))
        array = case.values(shape, case.pick(B, type))
        if array.dtype == bool:
            array[..., 0] = True
        mask = case.value(array)
    inputs.append(mask)
    if past:
        inputs += [case.data((batch, groups, 2, width), type), case.data((batch, groups, 2, wide), type)]
    more: dict[str, Any] = {
        "is_causal": None if past else case.maybe(case.whole(0, 1)),
        "scale": 0.3 if case.chance(0.3) else None,
    }
    more["softcap"] = 2.0 if case.chance(0.2) else None
    if flat:
        more |= {"q_num_heads": heads, "kv_num_heads": groups}
    scores = case.chance(0.25)
    more["qk_matmul_output_mode"] = case.whole(0, 3) if scores else None
    outputs = 4 if scores else 3 if past else 1
    case.node(inputs, outputs, **more)
    if scores and not past:
        node = case.nodes[-1]
        node.output[1] = node.output[2] = ""
        case.outputs = [node.output[0], node.output[3]]


@draws("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(case: Case) -> None:
    batch, classes, more = case.whole(1, 3), case.whole(2, 4), case.dims(0, 2, 3)
    x = case.data((batch, classes, *more), F)
    labels = case.value(case.rng.integers(0, classes, (batch, *more)))
    weights = case.value(np.abs(case.values((classes,), F)) + np.float32(0.1)) if case.chance(0.4) else ""
    case.node([x, labels, weights], reduction=case.maybe(case.pick("none", "sum", "mean")), ignore_index=case.maybe(0))


# -- quantisation ------------------------------------------------------------------------------------------------------------


def step(case: Case) -> np.ndarray:
    return np.float32(case.pick(0.02, 1.0, 0.5, 1 / 3, 10.0 ** case.rng.uniform(-3, 0), 2.0 ** case.whole(-6, 1), 0.999999))


def point(case: Case, type: str) -> np.ndarray:
    low, high = (0, 255) if type == U8 else (-128, 127)
    return np.asarray(case.pick(low, high, (low + high + 1) // 2, case.whole(low, high)), type)


@draws("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
def quantisation(case: Case) -> None:
    case.quantised, type, name = True, case.pick(U8, I8), case.operator
    case.opset = max(case.opset, 10)
    shape = case.dims(1, 4)
    if name == "DynamicQuantizeLinear":
        case.node([case.data(shape)], 3)
        return
    many = case.opset >= 13 and case.chance(0.3)
    axis = case.axis(len(shape))
    steps = np.array([step(case) for _ in range(shape[axis])], F) if many else step(case)
    points = np.array([point(case, type) for _ in range(shape[axis])], type) if many else point(case, type)
    x = case.data(shape, F) if name == "QuantizeLinear" else case.data(shape, type)
    left = name == "QuantizeLinear" and type == I8
    inputs = [x, case.parameter(steps, F), case.value(points, True) if left or case.chance(0.8) else ""]
    if name == "DequantizeLinear" and not inputs[2] and type == I8:
        inputs[2] = case.value(points, True)
    case.node(inputs, axis=axis if many else None)


GROUPED = (
    "Add", "Mul", "Sub", "Relu", "Sigmoid", "Tanh", "Softmax", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Conv",
    "MatMul", "Gemm", "Concat", "Reshape", "Transpose", "Clip", "Resize", "Pad", "Slice", "ReduceMean", "HardSwish", "Elu",
)  # fmt: skip


@draws(*(f"QDQ {name}" for name in GROUPED))
def group(case: Case) -> None:
    name = case.operator.split()[1]
    case.quantised, case.opset = True, case.pick(13, 14, 17, 19, 21)
    type = case.pick(U8, I8)
    signed = type

    def dequantised(shape: Sequence[int], kind: str = "", constant: bool = False, like: Sequence[str] = ()) -> list[str]:
        kind = kind or signed
        zero = np.asarray(0, kind) if constant and kind == I8 else point(case, kind)
        pair = list(like) or [case.value(step(case), True), case.value(zero, True)]
        return [*case.node([case.value(case.values(shape, kind), constant), *pair], operator="DequantizeLinear"), *pair]

    shape = (case.whole(1, 2), case.whole(1, 4), case.whole(2, 5), case.whole(2, 5))
    x, *pair = dequantised(shape)
    out: list[str] = []
    if name in ("Add", "Mul", "Sub"):
        other = tuple(1 if case.chance(0.3) else d for d in shape)
        y, *_ = dequantised(other, constant=case.chance(0.3))
        (y,) = case.node([x, y], operator=name)
    elif name == "Concat":
        more = [dequantised(shape, like=pair if case.chance(0.5) else ())[0] for _ in range(case.whole(1, 2))]
        (y,) = case.node([x, *more], operator=name, axis=case.axis(4))
    elif name == "Conv":
        many = case.whole(1, 3)
        w, *_ = dequantised((many, shape[1], case.whole(1, 2), case.whole(1, 2)), case.pick(signed, I8), True)
        (y,) = case.node([x, w], operator=name, pads=[case.whole(0, 1)] * 4)
    elif name in ("MatMul", "Gemm"):
        if name == "Gemm":
            case.__init__(case.rng, case.operator, case.opset)  # type: ignore[misc]  # drawn anew, with inputs of rank 2
            case.quantised = True
            x, *pair = dequantised(shape[2:])
        w, *_ = dequantised((shape[3], case.whole(1, 4)), case.pick(signed, I8), case.chance(0.8))
        (y,) = case.node([x, w], operator=name)
    elif name == "Reshape":
        (y,) = case.node([x, case.value(np.array([shape[0], -1]), True)], operator=name)
        out = pair
    elif name in ("Clip", "Pad", "Slice", "Resize"):
        inputs = {
            "Clip": [case.value(np.float32(0), True), case.value(np.float32(6), True)],
            "Pad": [case.value(np.array([0, 0, 1, 1, 0, 0, 0, 2]), True)],
            "Slice": [case.value(np.array([1]), True), case.value(np.array([9]), True), case.value(np.array([2]), True)],
            "Resize": ["", "", case.value(np.array([*shape[:2], case.whole(1, 7), case.whole(1, 7)]), True)],
        }[name]
        more = {"mode": case.pick("nearest", "linear")} if name == "Resize" else {}
        (y,) = case.node([x, *inputs], operator=name, **more)
        out = pair if case.chance(0.6) else []
    else:
        options = {
            "MaxPool": {"kernel_shape": [2, 2]}, "AveragePool": {"kernel_shape": [2, 2]}, "Transpose": {"perm": [0, 2, 3, 1]},
            "ReduceMean": {"axes": [2, 3], "keepdims": case.whole(0, 1)} if case.opset < 18 else {},
        }  # fmt: skip
        (y,) = case.node([x], operator=name, **options.get(name, {}))
        out = pair if name in ("MaxPool", "Transpose") and case.chance(0.8) else []
    out = out or [case.value(step(case), True), case.value(point(case, signed), True)]
    if name in ("Sigmoid", "Softmax") and case.chance(0.6):
        out = [case.value(np.float32(1 / 256), True), case.value(np.asarray(0 if signed == U8 else -128, signed), True)]
    case.node([y, *out], operator="QuantizeLinear")


# -- operators of com.microsoft -------------------------------------------------------------------------------------------------


MICROSOFTS = (
    "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "FusedMatMul", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu",
    "SkipLayerNormalization",
)  # fmt: skip


@draws(*(f"ms {name}" for name in MICROSOFTS))
def microsoft(case: Case) -> None:
    name = case.operator.split()[1]
    case.opset = case.whole(12, 20)
    shape = case.dims(2, 4)
    if name.startswith("QLinear"):
        case.quantised, type = True, case.pick(U8, I8)
        operands = []
        for i in range(3 if name in ("QLinearAdd", "QLinearMul") else 2):
            operands += [] if i + 1 == (3 if name in ("QLinearAdd", "QLinearMul") else 2) else [case.data(shape, type)]
            operands += [case.value(step(case), True), case.value(point(case, type), True)]
        case.node(operands, operator=name, domain=MICROSOFT)
    elif name == "FusedMatMul":
        n, k, m = (case.whole(1, 4) for _ in range(3))
        flips = case.whole(0, 1), case.whole(0, 1)
        a, b = case.data((k, n) if flips[0] else (n, k)), case.value(case.values((m, k) if flips[1] else (k, m)))
        case.node([a, b], operator=name, domain=MICROSOFT, transA=flips[0], transB=flips[1], alpha=case.maybe(0.5))
    elif name == "SkipLayerNormalization":
        shape = case.dims(3, 3)
        rows = [case.value(case.values(shape[-1:])) for _ in range(case.whole(1, 3))]
        case.node([case.data(shape), case.data(shape), *rows], operator=name, domain=MICROSOFT, epsilon=1e-5)
    else:
        bias = [case.value(case.values(shape[-1:]))] if name == "BiasGelu" or (name == "FastGelu" and case.chance(0.5)) else []
        case.node([case.data(shape), *bias], operator=name, domain=MICROSOFT, **({"alpha": 1.7} if name == "QuickGelu" else {}))


# -- chains ------------------------------------------------------------------------------------------------------------------


@draws("chain", "chain of images")
def chain(case: Case) -> None:
    shape = (
        case.dims(1, 4) if case.operator == "chain" else (case.whole(1, 2), case.whole(1, 4), case.whole(3, 6), case.whole(3, 6))
    )
    case.opset = case.pick(9, 11, 13, 17, 20)
    kinds = ["unary", "add", "transpose", "reshape", "softmax", "concat", "twice"]
    kinds += ["conv", "pool", "norm", "conv"] if case.operator != "chain" else ["matmul"]
    x = case.data(shape, F)
    for _ in range(case.whole(2, 4)):
        kind = case.pick(*kinds)
        if kind == "unary":
            (x,) = case.node([x], operator=case.pick("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Identity", "Floor"))
        elif kind == "add":
            other = case.value(case.values(tuple(1 if case.chance(0.4) else d for d in shape)))
            pair = [x, other] if case.chance(0.7) else [other, x]
            (x,) = case.node(pair, operator=case.pick("Add", "Mul", "Sub", "Max"))
        elif kind == "twice":
            (y,) = case.node([x], operator=case.pick("Relu", "Sigmoid"))
            (x,) = case.node([x, y], operator=case.pick("Mul", "Add"))
        elif kind == "transpose":
            order = [int(a) for a in case.rng.permutation(len(shape))]
            (x,) = case.node([x], operator="Transpose", perm=order)
            shape = tuple(shape[a] for a in order)
        elif kind == "reshape":
            new = tuple(int(d) for d in case.rng.permutation(shape))
            (x,) = case.node([x, case.value(np.array(new, np.int64))], operator="Reshape")
            shape = new
        elif kind == "softmax":
            (x,) = case.node([x], operator="Softmax", axis=case.axis(len(shape), negative=case.opset >= 11))
        elif kind == "concat":
            axis = case.axis(len(shape), negative=case.opset >= 11)
            (x,) = case.node([x, x], operator="Concat", axis=axis)
            shape = tuple(2 * d if i == axis % len(shape) else d for i, d in enumerate(shape))
        elif kind == "matmul" and len(shape) > 1:
            many = case.whole(1, 4)
            (x,) = case.node([x, case.value(case.values((shape[-1], many)))], operator="MatMul")
            shape = (*shape[:-1], many)
        elif kind == "conv" and len(shape) == 4:
            many = case.whole(1, 4)
            weights = case.value(case.values((many, shape[1], 3, 1)), True)
            (x,) = case.node([x, weights], operator="Conv", pads=[1, 0, 1, 0])
            shape = (shape[0], many, *shape[2:])
        elif kind == "pool" and len(shape) == 4:
            options = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
            (x,) = case.node([x], operator=case.pick("MaxPool", "AveragePool"), **options)
        elif kind == "norm" and len(shape) == 4:
            numbers = [case.value(np.abs(case.values((shape[1],))) + np.float32(0.1), True) for _ in range(4)]
            (x,) = case.node([x, *numbers], operator="BatchNormalization")
    if not case.nodes:
        case.node([x], operator="Relu")


# -- evaluation ----------------------------------------------------------------------------------------------------------------


class Reference:
    """ONNX Runtime in a fork of this process: a kernel that ends the process ends the fork alone."""

    def __init__(self) -> None:
        self._child: Any = None
        self._pipe: Any = None

    def run(self, model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
        """The reference's outputs; RuntimeError if it refuses."""
        if self._child is None:
            import onnxruntime  # noqa: F401 - once, before the fork

            self._pipe, inner = FORK.Pipe()
            self._child = FORK.Process(target=_serve, args=(inner,), daemon=True)
            self._child.start()
            inner.close()
        self._pipe.send((model, feeds))
        try:
            found = self._pipe.recv() if self._pipe.poll(SECONDS) else None
        except EOFError:
            found = None
        if found is None:
            self.close()
            raise RuntimeError("ONNX Runtime ended the process, or took too long")
        if isinstance(found, str):
            raise RuntimeError(found)
        return list(found)

    def close(self) -> None:
        """End the fork."""
        if self._child is not None:
            self._child.kill()
            self._child.join()
            self._pipe.close()
            self._child = None


def _serve(pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    while True:
        model, feeds = pipe.recv()
        try:
            pipe.send(_interpret(model, feeds))
        except Exception as error:
            pipe.send(str(error) or "refused")


def _interpret(model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        nodes = onnx.load_from_string(model).graph.node
        # Where nnbridge has a kernel of its own, the evaluator is wrong for some forms.
        own = any(definition.kernel is not None for n in nodes if (definition := REGISTRY.get(n.op_type)) is not None)
        if own or ("NOT_IMPLEMENTED" not in str(error) and "not a registered" not in str(error)):
            raise
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            return [np.asarray(value) for value in ReferenceEvaluator(onnx.load_from_string(model)).run(None, dict(feeds))]
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def unlike(ours: Any, theirs: Any, largest: float) -> str:
    """How two outputs differ; empty if they do not. ``largest`` is the largest number of all outputs."""
    if ours.shape != theirs.shape and not (theirs.ndim == 0 and ours.size == 1):
        return f"shape {ours.shape} for {theirs.shape}"
    ours = ours.reshape(theirs.shape)
    if theirs.dtype.kind == "f":
        half = theirs.dtype == np.float16
        share = 4e-3 if half else 1e-5
        lowest = np.finfo(theirs.dtype).min  # which stands for minus infinity in the masks of ONNX Runtime
        ours, theirs = (np.where(array <= lowest, -np.inf, array.astype(np.float64)) for array in (ours, theirs))
        with np.errstate(all="ignore"):
            allowed = share * np.abs(theirs) + share * (max(largest, 1.0) if half else largest) + 1e-30
            close = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | (np.abs(ours - theirs) <= allowed)
        return "" if close.all() else f"{(~close).sum()} of {close.size} floats"
    steps = np.abs(ours.astype(object) - theirs.astype(object)).astype(float) if theirs.dtype != bool else (ours != 0) ^ theirs
    return "" if not np.any(steps) else f"{np.count_nonzero(steps)} of {steps.size} integers, {int(np.max(steps))} steps at most"


def explanation(case: Case, found: str) -> str:
    """The rule of docs/onnx.md that explains a difference; empty if there is none."""
    if case.quantised and found.endswith(" 1 steps at most"):
        return "NNAPI rounds halves away from zero where ONNX rounds them to even"
    if case.operator in ("Resize", "Upsample", "ReduceLogSum", "ReduceLogSumExp") and found.endswith(" 1 steps at most"):
        return "ONNX does not say how interpolated numbers and logarithms become whole numbers"
    if case.operator == "MeanVarianceNormalization" and found.endswith("floats"):
        return "ONNX Runtime subtracts the square of the mean from the mean of squares"
    return ""


@dataclass(frozen=True)
class Verdict:
    """One case: ``outcome`` is ``equal``, ``refused`` (by the reference), ``explained``, ``differs``, ``fails``."""

    number: int
    operator: str
    outcome: str
    message: str = ""


def evaluate(
    number: int, seed: int, names: Sequence[str], folder: Path, mapping: str, keep: Path | None, reference: Reference
) -> Verdict:
    rng = np.random.default_rng([seed, number])
    name = names[int(rng.integers(len(names)))]
    case = Case(rng, name)
    DRAWS[name](case)
    path = folder / "case.onnx"
    try:
        theirs = reference.run(case.model().SerializeToString(), case.feeds)
    except RuntimeError as error:
        return Verdict(number, name, "refused", str(error)[:200])
    path.write_bytes(case.model(theirs).SerializeToString())
    try:
        model = load(path, ConversionOptions(mapping=mapping))
        compilation = Compilation.create(model, [])
        compilation.finish()
        feeds = [array.reshape(array.shape or (1,)) for array in case.feeds.values()]
        ours = list(Execution(compilation).run(feeds).values())
    except NnbridgeError as error:
        outcome, message = "fails", f"{case}: {str(error)[-300:]}"
    except Exception as error:
        outcome, message = "fails", f"{case}: not an error of nnbridge's: {error.__class__.__name__}: {error}"
    else:
        finite = [np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=0) for a in theirs if a.dtype.kind == "f"]
        if name == "GridSample":  # weights of either sign cancel each other
            finite += [np.abs(case.feeds["x0"]).max()]
        largest = max([a for a in finite if a < LOWEST], default=1.0)
        found = "; ".join(found for pair in zip(ours, theirs, strict=True) if (found := unlike(*pair, largest)))
        why = explanation(case, found)
        outcome = "equal" if not found else "explained" if why else "differs"
        message = why or (f"{case}: {found}" if found else "")
    if keep is not None and outcome in ("differs", "fails"):
        path.rename(keep / f"{seed}-{number}-{name}.onnx")
    return Verdict(number, name, outcome, message)


def batch(first: int, count: int, seed: int, names: Sequence[str], mapping: str, keep: Path | None) -> list[Verdict]:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    reference = Reference()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return [evaluate(n, seed, names, Path(folder), mapping, keep, reference) for n in range(first, first + count)]
        finally:
            reference.close()


def verdicts(options: argparse.Namespace) -> Iterator[Verdict]:
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        starts = range(options.first, options.first + options.cases, BATCH)
        common = (options.seed, options.operators, options.mapping, options.keep)
        ends = options.first + options.cases
        for future in [pool.submit(batch, n, min(BATCH, ends - n), *common) for n in starts]:
            yield from future.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mapping", choices=("wide", "provider"), default="wide")
    parser.add_argument("--operators", nargs="+", choices=sorted(DRAWS), default=sorted(DRAWS), metavar="NAME")
    parser.add_argument("--keep", type=Path, help="a folder for the files that differ or fail")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    counts: Counter[tuple[str, str]] = Counter()
    for verdict in verdicts(options):
        counts[verdict.operator, verdict.outcome] += 1
        if verdict.outcome in ("differs", "fails") and counts[verdict.operator, verdict.outcome] <= 2:
            print(f"case {verdict.number} {verdict.outcome}: {verdict.message}", flush=True)
    outcomes = ("equal", "explained", "refused", "differs", "fails")
    for name in options.operators:
        found = {outcome: counts[name, outcome] for outcome in outcomes if counts[name, outcome]}
        if options.cases <= 2000 or "differs" in found or "fails" in found or not found.get("equal"):
            print(f"{name:<32} {found}")
    total = {outcome: sum(n for (_, o), n in counts.items() if o == outcome) for outcome in outcomes}
    print(f"{sum(total.values())} cases of {len(options.operators)} operators: {total}")
    sys.exit(1 if total["differs"] or total["fails"] else 0)


if __name__ == "__main__":
    main()
