"""Running one operation straight through its declaration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.model import ChannelQuant
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.evaluate import evaluate, make_call, prepare, resolve
from nnbridge.operations.kernels import InPlace
from nnbridge.types import TYPE_FACTS, OperandCode, OperationCode

FLOAT = OperandCode.TENSOR_FLOAT32
U8 = OperandCode.TENSOR_QUANT8_ASYMM
I8 = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def tensor(
    values: Any,
    kind: OperandCode = FLOAT,
    *,
    scale: float = 0.0,
    zero_point: int = 0,
    channel_quant: ChannelQuant | None = None,
) -> Arg:
    """A tensor argument with a value."""
    data = np.asarray(values, TYPE_FACTS[kind].dtype)
    return Arg(kind, data.shape, scale, zero_point, channel_quant, data)


def scalar(value: float | bool, kind: OperandCode = OperandCode.INT32) -> Arg:
    """A scalar argument."""
    return Arg(kind, (), value=np.asarray(value, TYPE_FACTS[kind].dtype))


def integers(values: Any) -> Arg:
    """A TENSOR_INT32 argument."""
    return tensor(values, OperandCode.TENSOR_INT32)


def omitted(kind: OperandCode = FLOAT) -> Arg:
    """An optional operand without value."""
    return Arg(kind, (0,), present=False)


def output(kind: OperandCode = FLOAT, *, scale: float = 0.0, zero_point: int = 0) -> Arg:
    """An output of unknown dimensions."""
    return Arg(kind, (), scale, zero_point)


def computed(call: Call) -> Callable[[], list[npt.NDArray[Any]]]:
    """The function that computes the outputs: the prepared second part, where all but the data is constant, or the whole call."""
    call = replace(call, outs=resolve(call))
    found = prepare(call)
    if found is None:
        return lambda: [result.data for result in evaluate(call)]
    positions, second = found
    compute = second.allocating([(out.dims, out.dtype) for out in call.outs]) if isinstance(second, InPlace) else second

    def run() -> list[npt.NDArray[Any]]:
        with np.errstate(all="ignore"):
            return list(compute(*(call.args[i].data for i in positions)))

    return run


def twice(call: Call) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
    """The outputs' values of two runs; the second one leaves the first one's alone and gives the same."""
    compute = computed(call)
    first = compute()
    kept = [result.copy() for result in first]
    second = compute()
    for a, b, c in zip(first, kept, second, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(b, c)
    return first, second


def run(code: OperationCode, inputs: Sequence[Arg], *outputs: Arg) -> list[npt.NDArray[Any]]:
    """The outputs' values; one float output unless said otherwise."""
    declared = definition(code)
    assert declared is not None
    results = evaluate(make_call(declared, inputs, outputs or (output(),)))
    return [result.data for result in results]
