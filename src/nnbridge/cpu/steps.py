"""A reference kernel as a step of a bound program: as it comes, on its frame's own call, or prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.cpu.binding import Frame, Step
from nnbridge.model import Operation
from nnbridge.operations.call import Arg, Call, Prepared
from nnbridge.operations.evaluate import finished, run_directly, run_kernel


def reference_step(call: Call, operation: Operation, rounded: Callable[[Arg], Arg] | None) -> Step:
    """The reference kernel on resolved shapes, and what the executor's numerics leave of its results."""
    outputs = operation.outputs
    varying = _varying(call, operation)

    def step(frame: Frame) -> None:
        args = list(call.args)
        for k, i in varying:
            args[k] = args[k].with_value(frame[i], args[k].dims)
        results = run_kernel(call.with_args(args))
        for i, result in zip(outputs, results, strict=True):
            value = result.value if rounded is None else rounded(result).value
            assert value is not None
            _place(frame, i, value, operation.inputs)

    return step


def prepared_step(call: Call, operation: Operation) -> Step | None:
    """The second part of a reference kernel that comes in two, if all but its data is known; a refusal waits for the run."""
    kernel = call.definition.kernel
    if not isinstance(kernel, Prepared) or not kernel.ready(call):
        return None
    try:
        compute = finished(call, kernel.first_part(call))
    except Exception:
        # Whatever it is, the kernel as a whole meets it again in the run, which tells it.
        return None
    sources = [operation.inputs[k] for k, _ in kernel.places(call)]

    def step(frame: Frame) -> None:
        for i, value in zip(operation.outputs, compute(*[frame[i] for i in sources]), strict=True):
            _place(frame, i, value, operation.inputs)

    return step


def direct_step(call: Call, operation: Operation, slot: int) -> Step:
    """The reference kernel on the frame's own call, which lies at ``slot``: nothing is built for a run."""
    outputs = operation.outputs
    varying = _varying(call, operation)

    def step(frame: Frame) -> None:
        own: Call = frame[slot]
        for k, i in varying:
            own.args[k].value = frame[i]
        for i, value in zip(outputs, run_directly(own), strict=True):
            _place(frame, i, value, operation.inputs)
        for k, _ in varying:
            own.args[k].value = None

    return step


def _varying(call: Call, operation: Operation) -> list[tuple[int, int]]:
    """What comes with each run: position among the arguments, frame index."""
    pairs = enumerate(zip(operation.inputs, call.args, strict=True))
    return [(k, i) for k, (i, arg) in pairs if not arg.constant and arg.present]


def _place(frame: Frame, i: int, value: npt.NDArray[Any], inputs: Sequence[int]) -> None:
    """Put a result where it belongs."""
    if frame[i] is not None:
        np.copyto(frame[i], value)
    else:
        frame[i] = value.copy() if shares_memory(value, frame, inputs) else value


def shares_memory(value: npt.NDArray[Any], frame: Frame, inputs: Sequence[int]) -> bool:
    """True if a result is a view of an input.

    It has to be copied then: the arena may give the input's place to another operand while the result still lives, and the
    caller may change what it gave, or what it was given.
    """
    if value.base is None:
        # Nearly all results, and some operations have dozens of inputs: a generator takes twice as long.
        for k in inputs:  # noqa: SIM110
            if frame[k] is value:
                return True
        return False
    return any(np.may_share_memory(frame[k], value) for k in inputs if frame[k] is not None)
