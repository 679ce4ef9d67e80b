"""Cycles of an operator's work on an array of multipliers. docs/estimates.md explains each formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from nnbridge.estimate.numbers import ArrayNumbers
from nnbridge.estimate.work import ENCODED_PER_ENTROPY, FLAT, Sides, Work

SUB_KERNEL = 8
"""Larger kernels are computed in parts of this side."""
ARG_MAX_STEPS = 43
"""Steps for each granule of the input: read off four networks."""
HALF_PIXEL_BYTES = 21
"""Bytes moved for each element that is interpolated with half pixel centres: four passes that write every second pixel."""
SOFTMAX_CYCLES = 15.6
"""Cycles for each element of a softmax, in seven passes."""
LSTM_PRODUCTS = 8
"""Products of one time step: of the input and of the state, for four gates."""
ONE_PIXEL_CYCLES = 8
"""Cycles per element of an image that is blown up from one pixel."""


def operation_cycles(work: Work, numbers: ArrayNumbers, *, table: bool = False) -> float:
    """Cycles of one operator; ``table``: a table is looked up for each output, as a fused activation's is."""
    return _FORMULAS[work.kind](work, numbers, table)


def _ceil(a: float, b: float) -> int:
    return math.ceil(a / b)


def _positions(work: Work, numbers: ArrayNumbers) -> int:
    """Granules of one plane of the output. A single row is covered by wide granules where these are two rows high."""
    batch, height, width, _ = work.out
    rows, columns, _ = numbers.granule
    flat = height == 1 and work.kernel[0] == 1 and width % 2 == 0 and rows == 2
    if flat and work.kind in ("conv", "depthwise", "fully_connected"):
        rows, columns = 1, columns * rows
    return batch * _ceil(height, rows) * _ceil(width, columns)


def _depths(work: Work, numbers: ArrayNumbers) -> int:
    return _ceil(work.out[3], numbers.granule[2])


def _column(work: Work, numbers: ArrayNumbers) -> float:
    """Cycles of all granules of one channel group, for one step."""
    return max(numbers.step_cycles * _positions(work, numbers), numbers.weight_floor) * _depths(work, numbers)


def _kernel_parts(work: Work) -> list[int]:
    """Elements of the parts in which a kernel is computed."""
    parts = ([min(SUB_KERNEL, side - k) for k in range(0, side, SUB_KERNEL)] for side in work.kernel)
    rows, columns = parts
    return [row * column for row in rows for column in columns]


def _conv_steps(work: Work, numbers: ArrayNumbers, elements: int) -> int:
    """Steps of one part of the kernel, in the better utilised of the two orders."""
    size, (kernel_step, channel_step) = work.element_bytes, numbers.kernel_step
    depth_first = elements * _ceil(work.channels, numbers.depth / size)
    brick = 2 * channel_step
    groups = 2 * _ceil(work.channels, brick) if work.channels > channel_step else 1
    part_kernel = _ceil(elements, kernel_step / size) * groups
    aligned = _ceil(work.channels, channel_step) * channel_step * _ceil(elements, kernel_step) * kernel_step
    better = aligned <= elements * _ceil(work.channels, numbers.depth) * numbers.depth
    return part_kernel if work.channels <= channel_step or better else depth_first


def _array(work: Work, numbers: ArrayNumbers) -> float:
    if work.kind == "fully_connected":
        steps = _ceil(work.channels, numbers.depth / work.element_bytes)
    elif work.kind == "conv":
        steps = sum(_conv_steps(work, numbers, elements) for elements in _kernel_parts(work))
    else:
        steps = sum(_ceil(elements, numbers.kernel_step[0]) for elements in _kernel_parts(work)) * work.element_bytes
    return _column(work, numbers) * steps / numbers.cores


def weight_bytes(work: Work, numbers: ArrayNumbers) -> float:
    """Bytes of weights, biases and scales as the device stores them."""
    stored = work.entropy_bytes * ENCODED_PER_ENTROPY if numbers.compressed_weights else float(work.weight_bytes)
    return stored + numbers.scale_bytes * work.out[3] * (LSTM_PRODUCTS if work.kind == "lstm" else 1)


def weight_cycles(work: Work, numbers: ArrayNumbers) -> float:
    """Cycles that loading the weights needs."""
    return weight_bytes(work, numbers) / numbers.bandwidth["weights"]


def stored_bytes(sides: Sides, element_bytes: int, multiple: int) -> int:
    """Bytes of a map whose channels are stored in multiples."""
    return math.prod(sides[:3]) * _ceil(sides[3], multiple) * multiple * element_bytes


def _elements(work: Work) -> int:
    return math.prod(work.out)


def _blocks(work: Work, numbers: ArrayNumbers) -> int:
    return max(1, _ceil(_elements(work), numbers.block))


def _fill(work: Work, numbers: ArrayNumbers, blocks: int) -> float:
    """Cycles to load the first block and to store the last one."""
    moved = sum(math.prod(each) for each in (*work.inputs, work.out)) * work.element_bytes
    return numbers.latency + moved / blocks / numbers.bandwidth["maps"]


def _map_cycles(work: Work, numbers: ArrayNumbers) -> float:
    """Cycles that loading inputs and storing outputs needs; windows overlap at the edges of blocks."""
    side = math.sqrt(numbers.block / numbers.channel_multiple) * work.stride
    overlap = math.prod((side + max(0, k - work.stride)) / side for k in work.kernel) if work.kind != "mean" else 1.0
    plain = work.plain or (False,) * (len(work.inputs) + 1)
    multiples = [1 if each else numbers.channel_multiple for each in plain]
    read = sum(stored_bytes(m, work.element_bytes, k) for m, k in zip(work.inputs, multiples, strict=False))
    written = stored_bytes(work.out, work.element_bytes, multiples[-1])
    return (read * overlap + written) / numbers.bandwidth["maps"]


def _pipelined(work: Work, numbers: ArrayNumbers, array: float, per_output: float) -> float:
    """Array and output stage work on neighbouring blocks at once; the first and last block pass one stage alone."""
    output, blocks = _elements(work) * per_output, _blocks(work, numbers)
    return max(array, output) + min(array, output) / blocks + _fill(work, numbers, blocks)


def _convolution(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    computed = _pipelined(work, numbers, _array(work, numbers), numbers.elementwise["table" if table else "other"])
    return max(computed, _map_cycles(work, numbers), weight_cycles(work, numbers))


def _walked(work: Work, numbers: ArrayNumbers, steps: float, per_output: float) -> float:
    array = numbers.step_cycles * _positions(work, numbers) * _depths(work, numbers) * steps / numbers.cores
    return _pipelined(work, numbers, array, per_output)


def _shaped_walk(work: Work, numbers: ArrayNumbers) -> float:
    """A walk over each element once; with few channels the value is cut into whole granules."""
    steps = numbers.kernel_step[0] * work.element_bytes
    if work.out[3] >= FLAT:
        return _walked(work, numbers, steps, numbers.elementwise["other"])
    granules = _ceil(_elements(work), math.prod(numbers.granule))
    return _pipelined(work, numbers, numbers.step_cycles * granules * steps / numbers.cores, numbers.elementwise["other"])


def _walk(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    if work.form == "arg_max":
        return _walked(work, numbers, ARG_MAX_STEPS, numbers.elementwise["other"])
    return _shaped_walk(work, numbers)


def _copy(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    """Each part is copied by itself."""
    steps = numbers.kernel_step[0] * work.element_bytes
    parts = [replace(work, out=part, inputs=(part,), kind="walk") for part in work.parts]
    return sum(_walked(part, numbers, steps, numbers.elementwise["other"]) for part in parts)


def _pool(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    steps = max(numbers.kernel_step[0], math.prod(work.kernel)) * work.element_bytes
    return max(_walked(work, numbers, steps, numbers.elementwise["pool"]), _map_cycles(work, numbers))


def _resize(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    factor, steps = work.kernel[0], numbers.kernel_step[0] * work.element_bytes
    if work.form == "one pixel":
        return float(_elements(work) * ONE_PIXEL_CYCLES)
    if factor == 1:
        return _shaped_walk(work, numbers)
    if work.form == "half pixel":
        return _elements(work) * work.element_bytes * HALF_PIXEL_BYTES / numbers.bandwidth["maps"]
    if work.form == "nearest":
        # Doubled again and again.
        return sum(_walked(work, numbers, steps, numbers.elementwise["other"]) / 4**k for k in range(factor.bit_length() - 1))
    return _walked(work, numbers, max(numbers.kernel_step[0], factor * factor) + 1, numbers.elementwise["other"])


def _elementwise(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    batch, height, width, channels = work.out
    multiple = numbers.channel_multiple
    return batch * height * width * _ceil(channels, multiple) * multiple * numbers.elementwise[work.form]


def _softmax(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    return _elements(work) * SOFTMAX_CYCLES + numbers.passes.get("softmax", 0) * numbers.latency


def _lstm(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    steps = _ceil(work.channels, numbers.depth) + _ceil(work.out[3], numbers.depth)
    gates = 4 * _column(work, numbers) * steps
    each = max(weight_cycles(work, numbers), gates) + numbers.passes.get("lstm", 0) * numbers.latency
    return work.steps * each


def _mean(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    array = _pipelined(work, numbers, _array(work, numbers), numbers.elementwise["other"])
    return max(array, _map_cycles(work, numbers)) + _elements(work) * numbers.elementwise["mul"]


def _view(work: Work, numbers: ArrayNumbers, table: bool) -> float:
    return 0.0


_FORMULAS: Mapping[str, Callable[[Work, ArrayNumbers, bool], float]] = {
    "conv": _convolution,
    "depthwise": _convolution,
    "fully_connected": _convolution,
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
