"""From a declaration to results: resolve the outputs of one call, prepare or run its kernel.

Kernels may rely on what is done here: required operands are present, ranks are as declared, data comes as NHWC (the NCHW flag is
gone), float16 is widened unless the declaration says ``native``, and results are converted to the output's element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnbridge.errors import BadDataError, NnapiError, OpFailedError, Reason, pass_shortage
from nnbridge.model import Array
from nnbridge.operations.call import Arg, Call
from nnbridge.operations.declaration import DATA_DEPENDENT, OperationDef
from nnbridge.operations.kernels import Compute, InPlace, Kernel, Prepared
from nnbridge.operations.matching import Match, match
from nnbridge.types import OperandCode

_TO_NHWC = (0, 2, 3, 1)
_TO_NCHW = (0, 3, 1, 2)
_MAX_BYTES = 2**32 - 1
_HALF = (OperandCode.TENSOR_FLOAT16, OperandCode.FLOAT16)


def make_call(definition: OperationDef, inputs: Sequence[Arg], outputs: Sequence[Arg], matched: Match | None = None) -> Call:
    """The call for these operands; BAD_DATA with a reason if no signature fits. ``matched`` saves matching them again."""
    found = matched or match(definition, [a.type for a in inputs], [a.type for a in outputs])
    if isinstance(found, Reason):
        raise BadDataError(found)
    return Call(definition, found.signature, tuple(inputs), tuple(outputs))


def check(call: Call) -> None:
    """Check the conditions of every kernel: operands present, none zero-sized where that is not allowed, ranks."""
    definition = call.definition
    error: type[NnapiError] = BadDataError if definition.handled == "executor" else OpFailedError
    for declared, arg in zip(call.signature.expand(len(call.args)), call.args, strict=True):
        if not arg.present:
            if not (declared.optional or definition.omitted):
                raise error(Reason("a value", "none", definition.name, declared.name))
            continue
        if not definition.zero_sized and 0 in arg.dims:
            raise error(Reason("no zero-sized input", str(list(arg.dims)), definition.name, declared.name))
        if declared.rank is not None and not declared.rank.admits(arg.rank):
            call.fail(f"rank {declared.rank}", arg.rank, declared.name)


def resolve(call: Call) -> tuple[Arg, ...]:
    """The outputs with the dimensions and quantisation that the operation computes, without values.

    A dimension that only the kernel's result knows is -1. NeedsValue if the shape rule reads a value that is not known yet.
    """
    check(call)
    inner = to_nhwc(call)
    answer = call.definition.shape(inner)
    shapes = answer if isinstance(answer, list) else [answer]
    if inner is not call and call.definition.layout is not None:
        for i in call.definition.layout.outputs:
            shapes[i] = _permuted(shapes[i], _TO_NCHW)
    declared_outputs = call.definition.expand_outputs(len(call.outs)) or ()
    resolved = []
    for declared, out, dims in zip(declared_outputs, call.outs, shapes, strict=True):
        scale, zero_point = out.scale, out.zero_point
        rule = declared.quantisation
        if rule.like is not None:
            source = call[rule.like]
            scale, zero_point = source.scale, source.zero_point
        elif out.type in rule.fixed:
            scale, zero_point = rule.fixed[OperandCode(out.type)]
        dims = tuple(map(int, dims))
        elements = math.prod(dims) or math.prod(filter(None, dims))  # NumPy holds no more beside a dimension of 0 either.
        # Nothing smaller can be too large: elements have 8 bytes at most (fact E35).
        if elements >= _MAX_BYTES // 8 and elements * out.dtype.itemsize > _MAX_BYTES:
            call.fail(f"an output of {_MAX_BYTES} bytes at most", list(dims))
        resolved.append(Arg(out.type, dims, scale, zero_point, out.channel_quant, None, out.present, out.constant))
    return tuple(resolved)


def evaluate(call: Call) -> list[Arg]:
    """Resolve the outputs and run the reference kernel; the outputs are returned with values and true dimensions."""
    call = replace(call, outs=resolve(call))
    with np.errstate(all="ignore"):
        results = run_kernel(call)
    return [out.with_value(result, result.shape) for out, result in zip(call.outs, results, strict=True)]


def run_kernel(call: Call) -> list[Array]:
    """The results of the reference kernel for a call whose outputs are resolved, with NumPy's warnings off."""
    if all(0 in out.dims for out in call.outs) and call.outs:
        return [np.zeros(out.dims, out.dtype) for out in call.outs]
    inner = widened(to_nhwc(call))
    kernel: Kernel = call.definition.kernel
    try:
        if isinstance(kernel, Prepared):
            second = kernel.first_part(inner)
            compute = second.allocating(_buffers(inner)) if isinstance(second, InPlace) else second
            answer = compute(*(inner.args[i].data for i in kernel.positions(inner)))
        else:
            answer = kernel(inner)
    except OverflowError as error:
        # Parameters, such as products of scales, exceed what floats hold.
        raise OpFailedError(Reason("parameters whose products floats hold", str(error), call.definition.name)) from error
    return _finished(call, answer, _nchw_outputs(call))


def prepare(call: Call) -> tuple[list[int], Callable[..., Sequence[Array]] | InPlace] | None:
    """The second part of the call's kernel, and the positions of its data among the arguments.

    None if there is none: values decide, or the call is refused, which :func:`run_kernel` reports. The outputs must be resolved.
    """
    inner = widened(to_nhwc(call))
    kernel: Kernel = call.definition.kernel
    if not isinstance(kernel, Prepared) or not kernel.ready(inner):
        return None
    try:
        second = kernel.first_part(inner)
    except Exception as error:
        pass_shortage(error)
        return None
    positions = kernel.positions(call)
    if inner is call:
        return positions, second if isinstance(second, InPlace) else _checked(call, second)
    compute = second.allocating(_buffers(inner)) if isinstance(second, InPlace) else second
    nchw = _nchw_outputs(call)
    adapters = [_adapter(call, i) for i in positions]

    def adapted(*data: Array) -> Sequence[Array]:
        return _finished(call, compute(*(adapt(x) for adapt, x in zip(adapters, data, strict=True))), nchw)

    return positions, adapted


def _adapter(call: Call, position: int) -> Callable[[Array], Array]:
    """The conversion of an argument's data to the form that the kernel computes in."""
    layout = call.definition.layout
    nhwc = layout is not None and is_nchw(call) and call.names[position] in layout.inputs
    wide = call.definition.half == "widen" and call.args[position].type in _HALF

    def adapt(x: Array) -> Array:
        x = np.ascontiguousarray(x.transpose(_TO_NHWC)) if nhwc else x
        return x.astype(np.float32) if wide else x

    return adapt


def _checked(call: Call, compute: Compute) -> Callable[..., Sequence[Array]]:
    """A second part with its results as :func:`_finished` leaves them. Small operations spend their time here: what results
    should be is looked up once, and those that are so are passed on.
    """
    expected = [(out.dims, out.dtype) for out in call.outs]
    if len(call.definition.outputs) == 1 and not call.definition.outputs[-1].repeat:
        dims, dtype = expected[0]

        def one(*data: Array) -> Sequence[Array]:
            result: Any = compute(*data)
            if result.shape != dims or result.dtype != dtype or not result.flags.c_contiguous:
                return _finished(call, result)
            return (result,)

        return one

    def several(*data: Array) -> Sequence[Array]:
        results: Any = compute(*data)
        for result, (dims, dtype) in zip(results, expected, strict=True):
            if result.shape != dims or result.dtype != dtype or not result.flags.c_contiguous:
                return _finished(call, results)
        return results

    return several


def _finished(call: Call, answer: Any, nchw: Sequence[int] = ()) -> list[Array]:
    """A kernel's results checked against the resolved outputs, and converted to their element types and layout."""
    results: list[Array] = [answer] if isinstance(answer, np.ndarray) else list(answer)
    for i in nchw:
        results[i] = results[i].transpose(_TO_NCHW)
    finished = []
    for out, result in zip(call.outs, results, strict=True):
        same_rank = len(out.dims) == result.ndim
        if not (same_rank and all(d in (DATA_DEPENDENT, found) for d, found in zip(out.dims, result.shape, strict=True))):
            # Declared dimensions of what depends on the data may be wrong.
            call.fail(f"an output of {list(out.dims)}", list(result.shape))
        finished.append(np.asarray(result, out.dtype, order="C"))
    return finished


def is_nchw(call: Call) -> bool:
    """True if the data of the call's layout comes as NCHW."""
    return call.definition.layout is not None and call.get("nchw") is not None and bool(call.scalar("nchw"))


def _nchw_outputs(call: Call) -> Sequence[int]:
    layout = call.definition.layout
    return layout.outputs if layout is not None and is_nchw(call) else ()


def _buffers(call: Call) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and element type of the outputs as the kernel computes them."""
    wide = call.definition.half == "widen"
    return [(out.dims, np.float32 if wide and out.type in _HALF else out.dtype) for out in call.outs]


def _permuted(dims: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    return tuple(dims[axis] for axis in order)


def to_nhwc(call: Call) -> Call:
    """The same call with the layout's inputs and outputs seen as NHWC; the call itself where they are so already."""
    layout = call.definition.layout
    if layout is None or not is_nchw(call):
        return call
    args = list(call.args)
    for i, (name, arg) in enumerate(zip(call.names, call.args, strict=True)):
        if name in layout.inputs and arg.present:
            call.require(arg.rank == 4, "rank 4 for NCHW data", arg.rank, name)
            value = None if arg.value is None else np.ascontiguousarray(arg.value.transpose(_TO_NHWC))
            args[i] = arg.with_value(value, _permuted(arg.dims, _TO_NHWC))
    outs = list(call.outs)
    for i in layout.outputs:
        if outs[i].rank == 4:
            outs[i] = outs[i].replace(dims=_permuted(outs[i].dims, _TO_NHWC))
    return replace(call, args=tuple(args), outs=tuple(outs))


def widened(call: Call) -> Call:
    """The same call with float16 values in float32; the call itself where there are none or it is ``native``."""
    if call.definition.half != "widen" or not any(arg.type in _HALF for arg in call.args):
        return call
    args = (
        arg.with_value(arg.value.astype(np.float32), arg.dims) if arg.type in _HALF and arg.value is not None else arg
        for arg in call.args
    )
    return replace(call, args=tuple(args))


def merge_dims(declared: tuple[int, ...], computed: tuple[int, ...]) -> tuple[int, ...] | None:
    """Declared dimensions (0 = not known) filled in from computed ones; None if they contradict."""
    if not declared:
        return computed
    if len(declared) != len(computed):
        return None
    merged = []
    for fixed, found in zip(declared, computed, strict=True):
        if fixed not in (0, found) and found != DATA_DEPENDENT:
            return None
        merged.append(fixed if found == DATA_DEPENDENT else found)
    return tuple(merged)
