"""Cycles of an operator's work on an array of multipliers. docs/estimates.md explains each formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from nnbridge.estimate.blocks import SPLIT, Pass, PassCost, pass_cost
from nnbridge.estimate.buffering import NO_BUFFER, Buffer, buffer_of
from nnbridge.estimate.numbers import ArrayNumbers
from nnbridge.estimate.work import FLAT, Work
from nnbridge.records import dataclass

ARG_MAX_STEPS = 43
"""Steps for each granule of the input: read off four networks."""
HALF_PIXEL_BYTES = 21
"""Bytes moved for each element that is interpolated with half pixel centres: four passes that write every second pixel."""
LSTM_PRODUCTS = 8
"""Products of one time step: of the input and of the state, for four gates."""
ONE_PIXEL_CYCLES = 8
"""Cycles per element of an image that is blown up from one pixel."""


STREAM = 16
"""Bytes in multiples of which weights, and biases with scales, are stored."""
PRODUCTS = ("conv", "depthwise", "fully_connected")
"""Kinds with weights."""
_FORMS = {"fully_connected": "vector"}


@dataclass(frozen=True)
class Timing:
    """Cycles of an operator, those while which weights of the next one can be loaded, and the SRAM that holds its weights."""

    cycles: float
    slack: float
    buffer: Buffer = NO_BUFFER


def operation_cycles(work: Work, numbers: ArrayNumbers, *, table: bool = False, slack: float | None = None) -> Timing:
    """Cycles of one operator; ``table``: a table is looked up for each output; ``slack``: that of the operator before, if any."""
    if work.kind in PRODUCTS:
        return _product(work, numbers, table, slack)
    cycles = _FORMULAS[work.kind](work, numbers)
    return Timing(cycles, cycles)


def _ceil(a: float, b: float) -> int:
    return math.ceil(a / b)


def _pass(work: Work, numbers: ArrayNumbers, form: str, output: str, table: bool = False) -> PassCost:
    """A pass over one image of the output, for all images."""
    source = work.inputs[0] if work.inputs else work.out
    depth = work.out[3] if form in ("depthwise", "pool", "elementwise") else work.channels
    each = numbers.elementwise[output]
    found = pass_cost(
        Pass(
            form,
            work.out[1:],
            (*source[1:3], depth if form != "elementwise" else source[3]),
            work.kernel,
            work.stride,
            work.dilation,
            work.element_bytes,
            work.inputs[1][1:] if form == "elementwise" and len(work.inputs) > 1 else None,
            (any(work.plain[:-1]), any(work.plain[-1:])),
            max(each, numbers.elementwise["table"]) if table else each,
            256 * work.element_bytes**3 if table else 0,
            work.weight_bytes > 0,
        ),
        numbers,
    )
    return PassCost(found.cycles * work.out[0], found.moved * work.out[0], found.rereads, found.depth)


def _product(work: Work, numbers: ArrayNumbers, table: bool, before: float | None) -> Timing:
    """Weights that are not buffered are read from their memory for each block. Those that are take no time as far as the slack
    before is enough for the first slice, and the computation for the others; scales are read from their memory in any case."""
    found = _pass(work, numbers, _FORMS.get(work.kind, work.kind), "mul" if work.element_bytes == 2 else "other", table)
    weights, scales = _constants(work, numbers)
    memory, maps = numbers.bandwidth["weights"], numbers.bandwidth["maps"]
    buffer = buffer_of(work.out[3], weights + scales, found, numbers, before)
    if not buffer.slices:
        return Timing(max(_held(found, numbers), found.rereads * (weights + scales) / memory), buffer.slack, buffer)
    slack, first = before or 0.0, buffer.slices[0]
    later = max(weights - first * buffer.early, 0)
    copied, started = ((size / memory + numbers.weight_latency - slack) for size in (weights + scales, first))
    waited = max(copied + buffer.slack, found.cycles + max(started, 0.0))
    read = (found.moved + later + found.rereads * weights) / maps
    return Timing(max(waited, read, (later + found.rereads * scales) / memory), buffer.slack, buffer)


def weight_bytes(work: Work, numbers: ArrayNumbers) -> float:
    """Bytes of weights, biases and scales as the device stores them."""
    return float(sum(_constants(work, numbers)))


def _constants(work: Work, numbers: ArrayNumbers) -> tuple[int, int]:
    """Bytes of weights, and of biases with scales."""
    stored = work.encoded_bytes if numbers.compressed_weights else work.weight_bytes
    scales = numbers.scale_bytes * work.out[3] * (LSTM_PRODUCTS if work.kind == "lstm" else 1)
    return _ceil(stored, STREAM) * STREAM, _ceil(scales, STREAM) * STREAM


def _elements(work: Work) -> int:
    return math.prod(work.out)


def _held(found: PassCost, numbers: ArrayNumbers) -> float:
    """Cycles of a pass, no less than its maps need."""
    return max(found.cycles, found.moved / numbers.bandwidth["maps"])


def _rows(work: Work, numbers: ArrayNumbers) -> Work:
    """A value with few channels, where the shape does not matter, as whole granules."""
    if work.out[3] >= FLAT:
        return work
    shape = (1, 1, _ceil(_elements(work), FLAT), FLAT)
    return replace(work, out=shape, inputs=(shape,))


def _walked(work: Work, numbers: ArrayNumbers, kernel: tuple[int, int] = (1, 1)) -> float:
    """A pooling pass over each element, or a window of them."""
    return _held(_pass(replace(work, kernel=kernel, stride=1), numbers, "pool", "other"), numbers)


def _walk(work: Work, numbers: ArrayNumbers) -> float:
    if work.form == "arg_max":
        return _walked(work, numbers, (1, ARG_MAX_STEPS))
    return _walked(_rows(work, numbers), numbers)


def _copy(work: Work, numbers: ArrayNumbers) -> float:
    """Each part is copied by itself."""
    return sum(_walked(replace(work, out=part, inputs=(part,), kind="walk", plain=()), numbers) for part in work.parts)


def _pool(work: Work, numbers: ArrayNumbers) -> float:
    return _held(_pass(work, numbers, "pool", "pool" if work.form == "MAX_POOL_2D" else "other"), numbers)


def _resize(work: Work, numbers: ArrayNumbers) -> float:
    factor = work.kernel[0]
    if work.form == "one pixel":
        return float(_elements(work) * ONE_PIXEL_CYCLES)
    if factor == 1:
        return _walked(_rows(work, numbers), numbers)
    if work.form == "half pixel":
        return _elements(work) * work.element_bytes * HALF_PIXEL_BYTES / numbers.bandwidth["maps"]
    once = _walked(work, numbers)
    doublings = factor.bit_length() - 1
    if work.form == "nearest":
        return sum(once / 4**k for k in range(doublings))
    # The last doubling is an average over a window.
    return sum(once / 4**k for k in range(1, doublings)) + _walked(work, numbers, work.kernel)


def _elementwise(work: Work, numbers: ArrayNumbers) -> float:
    """Constants come from the weights' memory, short bursts as long as whole ones. If no input has the output's sides, one is
    added to a constant of zeros before."""
    one = work.out[3] * work.out[2] if work.out[3] in (FLAT, SPLIT) else min(SPLIT, _ceil(work.out[3], FLAT) * FLAT)
    burst = numbers.weight_burst / min(numbers.weight_burst, one)
    each = _elements(work) * work.element_bytes * burst / numbers.bandwidth["weights"]
    cycles = max(_held(_pass(work, numbers, "elementwise", work.form), numbers), each * work.constants)
    if not work.broadcast:
        return cycles
    spread = _held(_pass(work, numbers, "elementwise", "add"), numbers)
    return spread + max(cycles, each * (1 + work.constants))


def _softmax(work: Work, numbers: ArrayNumbers) -> float:
    return _elements(work) * numbers.elementwise["softmax"] + numbers.passes.get("softmax", 0) * numbers.latency


def _lstm(work: Work, numbers: ArrayNumbers) -> float:
    steps = _ceil(work.channels, numbers.depth) + _ceil(work.out[3], numbers.depth)
    column = max(numbers.step_cycles * work.out[2], numbers.weight_floor) * _ceil(work.out[3], numbers.granule[2])
    loaded = weight_bytes(work, numbers) / numbers.bandwidth["weights"]
    return work.steps * (max(loaded, 4 * column * steps) + numbers.passes.get("lstm", 0) * numbers.latency)


def _mean(work: Work, numbers: ArrayNumbers) -> float:
    return _held(_pass(work, numbers, "depthwise", "other"), numbers) + _elements(work) * numbers.elementwise["mul"]


def _view(work: Work, numbers: ArrayNumbers) -> float:
    return 0.0


_FORMULAS: Mapping[str, Callable[[Work, ArrayNumbers], float]] = {
    "pool": _pool,
    "walk": _walk,
    "resize": _resize,
    "elementwise": _elementwise,
    "softmax": _softmax,
    "lstm": _lstm,
    "mean": _mean,
    "copy": _copy,
    "view": _view,
}
