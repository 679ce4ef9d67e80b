"""Attention: two products with a softmax between, heads beside batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Value
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge.types import OperandCode
from nnbridge_onnx.declaration import operator
from nnbridge_onnx.host.evaluator import HostCall, evaluator
from nnbridge_onnx.lowerer import C, Lowerer
from nnbridge_onnx.read.graph import Dims

_HIDDEN = -1e30
"""What is added where nothing may be seen: its exponential is 0."""

ATTENTION = operator(
    "Attention", 13,
    "Q K V attn_mask? past_key? past_value? nonpad_kv_seqlen? -> Y present_key? present_value? qk_matmul_output?",
    "Values, weighted by how well keys match queries.",
    options=(
        Option("is_causal", 0, "1 to see only what came before"),
        Option("kv_num_heads", 0, "heads of keys and values of rank 3"),
        Option("left_window_size", -1, "how far back a query sees, -1 for all"),
        Option("q_num_heads", 0, "heads of queries of rank 3"),
        Option("right_window_size", -1, "how far ahead a query sees, -1 for all"),
        Option("scale", None, "factor of the scores, 1 / sqrt(size of a head) by default"),
        Option("softcap", 0.0, "bound of the scores, 0 for none"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class _Heads:
    """Queries, keys or values as [batch, heads, places, size]."""

    value: Value
    dims: Dims


def _heads(to: Lowerer, position: int, attribute: str) -> _Heads:
    """An input by heads, which stand side by side in inputs of rank 3."""
    shape, x = to.shape(position), to.input(position)
    to.require(x.type == OperandCode.TENSOR_FLOAT32 and 0 not in shape, "float32 values", OperandCode(x.type).name, x.name)
    if len(shape) == 4:
        return _Heads(x, shape)
    count = to.option(attribute)
    to.require(len(shape) == 3 and count > 0 and shape[2] % count == 0, f"rank 4, or rank 3 with {attribute}", list(shape))
    batch, places, size = shape[0], shape[1], shape[2] // count
    apart = to.emit(C.RESHAPE, x, to.vector([batch, places, count, size]))
    transposed = to.emit(C.TRANSPOSE, apart, to.vector([0, 2, 1, 3]), like=x)
    return _Heads(transposed, (batch, count, places, size))


def _repeated(to: Lowerer, shared: _Heads, count: int) -> _Heads:
    """Heads that several queries share, once for each."""
    batch, heads, places, size = shared.dims
    to.require(count % heads == 0, "whole groups of heads", [count, heads])
    if count == heads:
        return shared
    flat = to.emit(C.RESHAPE, shared.value, to.vector([batch * heads, 1, places, size]))
    tiled = to.emit(C.TILE, flat, to.vector([1, count // heads, 1, 1]))
    dims = (batch, count, places, size)
    return _Heads(to.emit(C.RESHAPE, tiled, to.vector(dims), like=flat), dims)


@ATTENTION.lowering()
def _attention(to: Lowerer) -> None:
    """Without a past, and without results beside the first."""
    to.require_one_output()
    to.require(not any(to.name(i) for i in (4, 5, 6)), "no past, and no lengths of its own", "others")
    to.require(not to.option("softcap"), "no softcap", to.option("softcap"))
    windows = [to.option(name) for name in ("left_window_size", "right_window_size")]
    to.require(max(windows) < 0, "no local windows", windows)
    queries = _heads(to, 0, "q_num_heads")
    keys, values = (_repeated(to, _heads(to, i, "kv_num_heads"), queries.dims[1]) for i in (1, 2))
    scale = to.option("scale", 1 / math.sqrt(queries.dims[3]))
    x = queries.value
    scaled = to.emit(C.MUL, x, to.float_tensor([scale], x))
    scores = to.emit(C.BATCH_MATMUL, scaled, keys.value, to.flag(False), to.flag(True), like=x)
    for mask in _masks(to, x, queries.dims[2], keys.dims[2]):
        scores = to.emit(C.ADD, scores, mask, like=x)
    weights = to.emit(C.SOFTMAX, scores, to.float_scalar(1.0, x), to.scalar(-1), like=x)
    operands = [weights, values.value, to.flag(False), to.flag(False)]
    if len(to.shape()) == 4:
        to.finish(C.BATCH_MATMUL, *operands)
        return
    made = to.emit(C.BATCH_MATMUL, *operands, like=x)
    together = to.emit(C.TRANSPOSE, made, to.vector([0, 2, 1, 3]), like=x)
    batch, heads, places, _ = queries.dims
    to.finish(C.RESHAPE, together, to.vector([batch, places, heads * values.dims[3]]))


def _masks(to: Lowerer, x: Value, queries: int, keys: int) -> list[Value]:
    """The masks that are added to the scores."""
    masks = []
    if to.option("is_causal"):
        to.draft.spend(queries * keys)
        hidden = np.triu(np.full((queries, keys), _HIDDEN), 1)
        masks.append(to.float_tensor(hidden, x, (1, 1, queries, keys)))
    if not to.has(3):
        return masks
    shape = to.shape(3)
    to.require(2 <= len(shape) <= 4 and shape[-1] == keys, f"a mask of {keys} keys, of rank 2 to 4", list(shape))
    wide = (1,) * (4 - len(shape)) + shape
    constant = to.known(3)
    if constant is not None and constant.dtype == np.bool_:
        to.require(constant.any(axis=-1).all(), "a mask under which each query sees a key", "a query that sees none")
        constant = np.where(constant, 0.0, _HIDDEN)
    if constant is not None:
        masks.append(to.float_tensor(np.maximum(constant, _HIDDEN), x, wide))
        return masks
    value = to.input(3)
    to.require(value.type == x.type, "a float32 mask, or a constant one", OperandCode(value.type).name, value.name)
    masks.append(to.operand(3, x, wide))
    return masks


@ATTENTION.host_kernel
def _scores(call: HostCall) -> Sequence[Array] | None:
    """Output 3 of mode 0 holds the scores before softcap, which the evaluator returns after it."""
    import onnx

    node, names = call.node, list(call.node.proto.output)
    if len(names) < 4 or not names[3] or call.option("qk_matmul_output_mode", 0) or not call.option("softcap", 0.0):
        return None
    plain = onnx.NodeProto()
    plain.CopyFrom(node.proto)
    for attribute in [a for a in plain.attribute if a.name == "softcap"]:
        plain.attribute.remove(attribute)
    before = node.prepared("scores", lambda: evaluator(plain, node.domain, node.version, node.types))
    return [*node.evaluate(call.feeds)[:-1], before.run(None, dict(call.feeds))[-1]]


operator(
    "LinearAttention", 91, "query key value past_state? decay? beta? -> output present_state",
    "Attention without a softmax, by a state that is updated.",
)  # fmt: skip
operator("RotaryEmbedding", 151, "X cos_cache sin_cache position_ids? -> Y", "Pairs of numbers, rotated by their position.")
