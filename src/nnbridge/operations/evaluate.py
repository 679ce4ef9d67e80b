"""From a declaration to an answer: resolve the outputs of one call, run its reference kernel.

The executor, static shape inference and the tests come through here, so that what every kernel may rely on is
laid down once: required operands are present, ranks are as declared, the NCHW flag is gone (data comes as NHWC), float16
is widened unless the kernel asked for it, and results are converted to the output's element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnbridge.errors import BadDataError, NnapiError, OpFailedError, Reason
from nnbridge.operations.call import Arg, Call, Compute
from nnbridge.operations.declaration import DATA_DEPENDENT, OperationDef
from nnbridge.operations.matching import match
from nnbridge.types import OperandCode, type_name

if TYPE_CHECKING:
    from nnbridge.model import Array

_TO_NHWC = (0, 2, 3, 1)
_TO_NCHW = (0, 3, 1, 2)
_MAX_BYTES = 2**32 - 1
_HALF = (OperandCode.TENSOR_FLOAT16, OperandCode.FLOAT16)


def make_call(definition: OperationDef, inputs: Sequence[Arg], outputs: Sequence[Arg]) -> Call:
    """The call for these operands; BAD_DATA with a reason if no signature fits."""
    found = match(definition, [a.type for a in inputs], [a.type for a in outputs])
    if isinstance(found, Reason):
        raise BadDataError(found)
    return Call(definition, found.signature, inputs, outputs)


def check(call: Call) -> None:
    """What must hold before any kernel runs: operands present, none zero-sized where that is not allowed, ranks."""
    definition = call.definition
    error: type[NnapiError] = BadDataError if definition.handled == "executor" else OpFailedError
    for declared, arg in zip(call.signature.expand(len(call.args)), call.args, strict=True):
        if not arg.present:
            if not (declared.optional or definition.omitted):
                raise error(Reason("a value", "none", definition.name, declared.name))
            continue
        if not definition.zero_sized and 0 in arg.dims:
            raise error(Reason("no zero-sized input", list(arg.dims).__str__(), definition.name, declared.name))
        if declared.rank is not None and not declared.rank.admits(arg.rank):
            call.fail(f"rank {declared.rank}", arg.rank, declared.name)


def resolve(call: Call) -> list[Arg]:
    """The outputs with the dimensions and quantisation that the operation computes.

    A dimension that only the kernel's result knows is -1. Raises NeedsValue if the rule asks for a value that is
    not known yet. Outputs carry no value.
    """
    check(call)
    inner = _to_nhwc(call)
    answer = call.definition.shape(inner)
    shapes = answer if isinstance(answer, list) else [answer]
    if inner is not call and call.definition.layout is not None:
        for i in call.definition.layout.outputs:
            shapes[i] = tuple(shapes[i][axis] for axis in _TO_NCHW)
    expanded = _declared_outputs(call)
    resolved = []
    for declared, out, dims in zip(expanded, call.outs, shapes, strict=True):
        scale, zero_point = out.scale, out.zero_point
        rule = declared.quantisation
        if rule.like is not None:
            source = call[rule.like]
            scale, zero_point = source.scale, source.zero_point
        elif out.type in rule.fixed:
            scale, zero_point = rule.fixed[OperandCode(out.type)]
        made = out.replace(dims=tuple(int(d) for d in dims), scale=scale, zero_point=zero_point, value=None)
        _require_size(call, made)
        resolved.append(made)
    return resolved


def _require_size(call: Call, out: Arg) -> None:
    """OP_FAILED for an output of more than 2**32 - 1 bytes (fact E35)."""
    elements = math.prod(out.dims)
    # Nothing smaller can be too large: elements have 8 bytes at most.
    if elements >= _MAX_BYTES // 8 and elements * out.dtype.itemsize > _MAX_BYTES:
        rule = f"an output of {_MAX_BYTES} bytes at most"
        raise OpFailedError(Reason(rule, str(list(out.dims)), call.definition.name))


def evaluate(call: Call) -> list[Arg]:
    """Resolve the outputs and run the reference kernel; the outputs come back with values and true dimensions."""
    call.outs = resolve(call)
    with np.errstate(all="ignore"):
        return run_kernel(call)


def run_kernel(call: Call) -> list[Arg]:
    """Run the reference kernel of a call whose outputs are resolved, with NumPy's warnings off."""
    if all(0 in out.dims for out in call.outs) and call.outs:
        return [out.replace(value=np.zeros(out.dims, out.dtype)) for out in call.outs]
    inner = _to_nhwc(call)
    if call.definition.half == "widen":
        inner = _widen(inner)
    answer = _answer(inner)
    results: list[npt.NDArray[Any]] = [answer] if isinstance(answer, np.ndarray) else list(answer)
    if inner.definition.layout is not None and _is_nchw(call):
        for i in inner.definition.layout.outputs:
            results[i] = results[i].transpose(_TO_NCHW)
    return [_finish(call, out, result) for out, result in zip(call.outs, results, strict=True)]


def runs_directly(call: Call) -> bool:
    """True if the kernel takes the resolved call as it is: NHWC, nothing to widen, something to compute."""
    widened = call.definition.half == "widen" and any(arg.type in _HALF for arg in call.args)
    return not widened and not _is_nchw(call) and not any(0 in out.dims for out in call.outs)


def run_directly(call: Call) -> list[npt.NDArray[Any]]:
    """The results of :func:`run_kernel` for a call that :func:`runs_directly`."""
    answer = _answer(call)
    if isinstance(answer, np.ndarray):
        return [converted(call, call.outs[0], answer)]
    return [converted(call, out, result) for out, result in zip(call.outs, answer, strict=True)]


def _answer(call: Call) -> Any:
    """What the kernel makes of a call; OP_FAILED where parameters, such as products of scales, exceed what floats hold."""
    try:
        return call.definition.kernel(call)
    except OverflowError as error:
        raise OpFailedError(Reason("parameters whose products floats hold", str(error), call.definition.name)) from error


def _finish(call: Call, out: Arg, result: npt.NDArray[Any]) -> Arg:
    """The output with a kernel's result."""
    return out.with_value(converted(call, out, result), result.shape)


def converted(call: Call, out: Arg, result: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Check a kernel's result against the resolved output and convert it to the output's element type."""
    if result.shape != out.dims and not _fits(out.dims, result.shape):
        # Declared dimensions of what depends on the data may be wrong.
        raise OpFailedError(Reason(f"an output of {list(out.dims)}", str(list(result.shape)), call.definition.name))
    dtype = out.dtype
    if result.dtype != dtype:
        result = result.astype(dtype)
    return result if result.flags.c_contiguous else np.ascontiguousarray(result)


def finished(call: Call, compute: Compute) -> Callable[..., Sequence[npt.NDArray[Any]]]:
    """The second part of a prepared kernel, with its results as :func:`converted` makes them. Small operations spend their time
    here: what results should be is looked up once, and those that are so are passed on.
    """
    wanted = [(out.dims, out.dtype) for out in call.outs]
    if len(call.definition.outputs) == 1 and not call.definition.outputs[-1].repeat:
        return _finished_one(call, compute)

    def several(*data: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
        results: Any = compute(*data)
        for result, (dims, dtype) in zip(results, wanted, strict=True):
            if result.shape != dims or result.dtype != dtype or not result.flags.c_contiguous:
                return [converted(call, out, result) for out, result in zip(call.outs, results, strict=True)]
        return results

    return several


def _finished_one(call: Call, compute: Compute) -> Callable[..., Sequence[npt.NDArray[Any]]]:
    dims, dtype = call.out.dims, call.out.dtype

    def one(*data: npt.NDArray[Any]) -> Sequence[npt.NDArray[Any]]:
        result: Any = compute(*data)
        if result.shape != dims or result.dtype != dtype or not result.flags.c_contiguous:
            result = converted(call, call.out, result)
        return (result,)

    return one


def _fits(declared: tuple[int, ...], found: tuple[int, ...]) -> bool:
    return len(declared) == len(found) and all(d in (DATA_DEPENDENT, f) for d, f in zip(declared, found, strict=True))


def _declared_outputs(call: Call) -> list[Any]:
    """The declared output that stands behind each output operand."""
    outputs = call.definition.outputs
    if outputs and outputs[-1].repeat:
        return [*outputs[:-1], *[outputs[-1]] * (len(call.outs) - len(outputs) + 1)]
    return list(outputs[: len(call.outs)])


def _is_nchw(call: Call) -> bool:
    layout = call.definition.layout
    return layout is not None and call.get(layout.flag) is not None and bool(call.scalar(layout.flag))


def _to_nhwc(call: Call) -> Call:
    """The same call with the layout's inputs and outputs seen as NHWC."""
    layout = call.definition.layout
    if layout is None or not _is_nchw(call):
        return call
    flipped = []
    for arg in call.args:
        if arg.name not in layout.inputs or not arg.present:
            flipped.append(arg.replace())
            continue
        call.require(arg.rank == 4, "rank 4 for NCHW data", arg.rank, arg.name)
        value: Array | None = None if arg.value is None else np.ascontiguousarray(arg.value.transpose(_TO_NHWC))
        flipped.append(arg.replace(dims=tuple(arg.dims[axis] for axis in _TO_NHWC), value=value))
    outs = [out.replace() for out in call.outs]
    for i in layout.outputs:
        if len(outs[i].dims) == 4:
            outs[i] = outs[i].replace(dims=tuple(outs[i].dims[axis] for axis in _TO_NHWC))
    return call.with_args(flipped, outs)


def _widen(call: Call) -> Call:
    """The same call with float16 values in float32."""
    if not any(arg.type in _HALF for arg in call.args):
        return call
    args = [
        arg.replace(value=arg.value.astype(np.float32)) if arg.type in _HALF and arg.value is not None else arg.replace()
        for arg in call.args
    ]
    return call.with_args(args)


def merge_dims(declared: tuple[int, ...], computed: tuple[int, ...]) -> tuple[int, ...] | None:
    """Declared dimensions (0 = not known) filled in from computed ones; None if they contradict."""
    if not declared:
        return computed
    if len(declared) != len(computed):
        return None
    merged = []
    for want, got in zip(declared, computed, strict=True):
        if want not in (0, got) and got != DATA_DEPENDENT:
            return None
        merged.append(want if got == DATA_DEPENDENT else got)
    return tuple(merged)


def describe(arg: Arg) -> str:
    """Type and dimensions for messages."""
    return f"{type_name(arg.type)}{list(arg.dims)}"
