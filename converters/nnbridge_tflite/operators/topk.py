"""Operators that find the largest, smallest or unique numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnbridge.converters.declaration import Option, lowers
from nnbridge.errors import Why
from nnbridge.types import FLOATS, OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import NEVER_KNOWN, TfliteOperator, inputs, outputs
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of, integers
from nnbridge_tflite.loads import INDEXES, SAME, PreparedOperator, constant_axes, ranked, requires, single, typed
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.read.graph import Operator, Tensor
from nnbridge_tflite.rules import NUMBERS, NUMBERS_HALF, Condition, DelegateRule, constant, first_type, type_in

_TYPE_OF_INDEX = requires(
    "output_type INT32 or INT64", lambda node: node.option("output_type") in (2, 4), lambda node: node.option("output_type")
)
_TOP_FITS = requires(
    "an input of rank 1 or more, and k of at most its last dimension",
    lambda node: (
        (k := node.numbers(1)) is None
        or -1 in node.inputs[0].signature
        or (len(k) == 1 and node.shape(0) and k[0] <= node.shape(0)[-1])
    ),
    lambda node: f"{node.numbers(1)} of {node.at(0)}",
)
_INDEXES_TYPED = requires(
    "indexes of the type that idx_out_type names",
    lambda node: (
        "idx_out_type" in node.operator.options and node.type(-2) == ("INT64" if node.option("idx_out_type") == 4 else "INT32")
    ),
    lambda node: node.type(-2),
    Why.OUTPUT_TYPE,
)
_SORTED = requires(
    "sorted boundaries", lambda node: not np.any(np.diff(np.ravel(node.operator.options.get("boundaries", ()))) < 0),
    lambda node: "others",
)  # fmt: skip

_EXTREME = DelegateRule(
    version=2,
    level=3,
    types=NUMBERS_HALF,
    conditions=(
        type_in(1, "INT32", "INT64"),
        Condition(
            "an int32 axis or a constant one",
            lambda node: node.type(1) == "INT32" or node.constant(1),
            first_type,
            kind=Why.INPUT_TYPE,
        ),
        Condition(
            "an int32 output",
            lambda node: node.output().type.name == "INT32",
            lambda node: node.output().type.name,
            kind=Why.OUTPUT_TYPE,
        ),
    ),
)
_TYPE = (Option("output_type", 0, "the output's TensorType; the tensor itself states it"),)


def _has_elements(node: PreparedOperator) -> bool:
    axis = node.numbers(1)
    return axis is None or node.shape(0)[axis[0]] > 0


_EXTREME_LOADS = (
    single(1),
    typed(1, *INDEXES),
    _TYPE_OF_INDEX,
    typed(0, "FLOAT32", "UINT8", "INT8", "INT32", "BOOL"),
    ranked(0, 1, 0),
    constant_axes(1, 0),
    requires("elements along the axis", _has_elements, kind=Why.OPERAND_SIZE),
)
ARG_MAX = TfliteOperator(
    "ARG_MAX",
    "The index of the largest number along an axis.",
    inputs("input", "axis!"),
    options=_TYPE,
    delegate=_EXTREME,
    wide_constants=True,
    versions=(1, 3),
    loads=_EXTREME_LOADS,
    dims=dims.without_axis,
    writes_type="output_type",
)
ARG_MIN = TfliteOperator(
    "ARG_MIN",
    "The index of the smallest number along an axis.",
    inputs("input", "axis!"),
    options=_TYPE,
    delegate=_EXTREME,
    wide_constants=True,
    versions=(1, 3),
    loads=_EXTREME_LOADS,
    dims=dims.without_axis,
    writes_type="output_type",
)


def _top(operator: Operator, tensors: Sequence[Tensor]) -> Sequence[int]:
    """TOPK_V2 needs k, and an input of which the file leaves no dimension open."""
    return NEVER_KNOWN if -1 in tensors[operator.inputs[0]].signature else (1,)


TOPK_V2 = TfliteOperator(
    "TOPK_V2",
    "The largest numbers of the last dimension and their indexes; of equal ones the first.",
    inputs("input", "k!"),
    outputs("values", "indices"),
    delegate=DelegateRule(version=2, level=3, types=NUMBERS, conditions=(type_in(1, "INT32"), constant(1, "k"))),
    dynamic_unless=_top,
    as_stored=True,
    versions=(1, 3),
    loads=(SAME, typed(1, "INT32", "INT16"), _TOP_FITS),
    dims=dims.top,
)
UNIQUE = TfliteOperator(
    "UNIQUE",
    "The different numbers in order of first appearance, and for each element which one it is.",
    outputs=outputs("values", "indices"),
    options=(Option("idx_out_type", 2, "the indexes' TensorType; the tensor itself states it"),),
    data_dependent=True,
    dynamic_unless=NEVER_KNOWN,
    loads=(SAME, ranked(0, 1), _INDEXES_TYPED),
)
BUCKETIZE = TfliteOperator(
    "BUCKETIZE",
    "Index of the interval between boundaries for each number.",
    options=(Option("boundaries", (), "in order"),),
    loads=(_SORTED, typed(0, "INT32", "FLOAT32", "INT64", "FLOAT64")),
    dims=dims.like(),
    writes_type="INT32",
)


@lowers(ARG_MAX, ARG_MIN)
def arg_extreme(to: Lowerer) -> None:
    """ARGMAX, ARGMIN; NNAPI answers int32."""
    code = OperationCode.ARGMAX if to.name == "ARG_MAX" else OperationCode.ARGMIN
    to.finish(code, to.input(0), to.scalar(to.axis(to.integer(1), to.input(0).rank)))


def _host_extreme(function: Callable[..., Array], declared: TfliteOperator) -> None:
    @declared.host_kernel
    def kernel(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
        return [function(data_of(inputs[0]), axis=integers(inputs[1])[0])]


_host_extreme(np.argmax, ARG_MAX)
_host_extreme(np.argmin, ARG_MIN)


@TOPK_V2.lowering()
def top_k(to: Lowerer) -> None:
    """TOPK_V2; of equal numbers NNAPI returns the last first, TFLite the first, which shows where there are few numbers."""
    to.require(to.input(0).type in FLOATS or not to.free, "floats", to.declared(0))
    to.emit_all(OperationCode.TOPK_V2, (to.input(0), to.scalar(to.integer(1))), to.outputs)


@TOPK_V2.host_kernel
def host_top_k(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    data, count = data_of(inputs[0]), integers(inputs[1])[0]
    falling = np.negative(data) if data.dtype.kind == "f" else np.invert(data)  # the bits of integers reverse their order
    order = np.argsort(falling, axis=-1, kind="stable")[..., :count]
    return [np.take_along_axis(data, order, -1), order.astype(np.int32)]


@UNIQUE.host_kernel
def host_unique(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    values, first, inverse = np.unique(data_of(inputs[0]).reshape(-1), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return [values[order], place[inverse.reshape(-1)].astype(outputs[1].dtype)]


@BUCKETIZE.host_kernel
def host_bucketize(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    return [np.searchsorted(np.asarray(options["boundaries"], np.float32), data_of(inputs[0]), "right").astype(np.int32)]
