"""SVDF of real numbers; TFLite's integer SVDF."""

from __future__ import annotations

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import Binding, binds, constant_data, require, require_types, zero_of
from nnbridge.cpu.compiled.bindings.products import multiply_words, rows_of_matrix
from nnbridge.cpu.compiled.kernels.recurrent import ACTIVATIONS
from nnbridge.cpu.compiled.program import Argument, Place
from nnbridge.model import Array
from nnbridge.operations.call import Arg
from nnbridge.operations.integer_svdf import IntegerSvdf
from nnbridge.types import OperationCode


def _filters(
    b: Binding, x: Arg, source: Place | Array, features: Array, offset: Array, weights: Array, bias: Array
) -> dict[str, Argument]:
    """The projections of the input by the filters, plus an offset of each; what both kernels read."""
    batch, (filters, size), memory, units = x.dims[0], features.shape, weights.shape[1], len(bias)
    projected = b.scratch(4 * batch * filters)
    left = rows_of_matrix(b, x, source, size, quantised=False)
    multiply_words(b, left, np.ascontiguousarray(features[:, None]), offset, projected, 4 * filters)
    return {
        "projected": projected,
        "weights": weights,
        "bias": bias,
        "filters": filters,
        "memory": memory,
        "units": units,
        "length": filters // units * memory,
        "batch": batch,
    }


def _microseconds(batch: int, weights: Array) -> float:
    """Only members of a batch are shared."""
    return batch * weights.size / 2_000 if batch > 1 else 0.0


@binds(OperationCode.SVDF, omitting=True)
def svdf(b: Binding) -> None:
    """SVDF."""
    call, x = b.call, b.call["input"]
    require(all(require_types(arg) for arg in (x, *call.outs)), "real numbers")
    activation = int(call.scalar("activation"))
    require(activation in ACTIVATIONS, "a known activation")
    features, weights = constant_data(call["weights_feature"]), constant_data(call["weights_time"])
    nothing, bias = np.zeros(len(features), np.float32), call.get("bias")
    added = nothing[: len(features) // int(call.scalar("rank"))] if bias is None else constant_data(bias)
    arguments = _filters(b, x, b.source(x), features, nothing, weights, added)
    state = b.source(call["state_in"])
    line = b.scratch(4 * x.dims[0] * weights.size)
    arguments.update(state=state, last_state=b.target(0), output=b.target(1), line=line)
    b.step("svdf_real", _microseconds(x.dims[0], weights), arguments, activation=activation)


def integer_svdf(b: Binding, layer: IntegerSvdf) -> None:
    """A step. Operands: input and state; outputs: the output, then the new state."""
    x, state = b.call.args
    require(x.dtype.itemsize == 1 and b.out.dtype.itemsize == 1, "8-bit activations")
    require((state.dtype.str, state.zero_point, layer.time.dtype.str) == ("<i2", 0, "<i2"), "a 16-bit state and weights in time")
    features, bias = layer.features.astype(np.int32), layer.bias.astype(np.int64)
    # Beyond these limits sums wrap, or roundings do.
    largest = np.abs(layer.time.astype(np.int64)).reshape(len(bias), -1).sum(axis=1) * 32768 + np.abs(bias)
    require(int(largest.max()) < 2**31, "sums that 32 bits hold")
    require(features.shape[1] < 2**15, "products that 32 bits hold")
    words = b.scratch(4 * x.dims[0] * x.dims[1])
    count = x.dims[0] * x.dims[1]
    b.step("cast", count / 5_000, {"source": b.source(x), "target": words, "count": count}, bytes_=True, real=False)
    offset = (-zero_of(x) * features.sum(axis=1)).astype(np.int32)
    arguments = _filters(b, x, words, features, offset, layer.time, layer.bias.astype(np.int32))
    shifts = [(multiplier, max(shift, 0), max(-shift, 0)) for multiplier, shift in layer.factors]
    last_state = b.target(1) if len(b.call.outs) > 1 else b.scratch(2 * x.dims[0] * layer.time.size)
    arguments.update(state=b.source(state), last_state=last_state, output=b.target(0))
    arguments.update(parameters=np.array(shifts, np.int64), zero_point=zero_of(b.out))
    b.step("svdf_bytes", _microseconds(x.dims[0], layer.time), arguments)
