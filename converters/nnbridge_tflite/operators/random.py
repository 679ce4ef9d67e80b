"""Random numbers: the streams that two seeds name, as TFLite draws them; unpredictable without seeds."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Value
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import Reason, Why
from nnbridge.operations.philox import philox
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import TfliteOperator, inputs, outputs
from nnbridge_tflite.host.codes import STATES, extension_code
from nnbridge_tflite.host.numbers import Array, Options, Tensors, data_of, integers
from nnbridge_tflite.loads import OUT, if_known, ranked, same_shape, sized, typed
from nnbridge_tflite.passes.conversion import Conversion
from nnbridge_tflite.read.graph import Operator, element_type

_SEEDS = (Option("seed", 0, "names the stream"), Option("seed2", 0, "names the stream; without both it is unpredictable"))
_SHAPED = (typed(0, "INT32"), ranked(0, 1), sized(lambda node: node.numbers(0)))
RANDOM_UNIFORM = TfliteOperator(
    "RANDOM_UNIFORM", "Uniform numbers in [0, 1).", inputs("shape!"), options=_SEEDS, loads=_SHAPED, dims=dims.stated_by(0)
)
RANDOM_STANDARD_NORMAL = TfliteOperator(
    "RANDOM_STANDARD_NORMAL",
    "Normal numbers, by Box and Muller.",
    inputs("shape!"),
    options=_SEEDS,
    loads=_SHAPED,
    dims=dims.stated_by(0),
)
MULTINOMIAL = TfliteOperator(
    "MULTINOMIAL",
    "For each row of logits so many classes, each as likely as its logit states.",
    inputs("logits", "count!"),
    options=_SEEDS,
    dynamic_unless=(0, 1),
    loads=(*if_known(0, *if_known(1, ranked(0, 2))), typed(0, "FLOAT32"), typed(1, "INT32")),
)
STABLEHLO_RNG_BIT_GENERATOR = TfliteOperator(
    "STABLEHLO_RNG_BIT_GENERATOR",
    "Random words from a state of key and counter, and the state afterwards: Philox 4x32-10, or Threefry 2x32-20.",
    inputs("state"),
    outputs("new_state", "words"),
    options=(Option("algorithm", 0, "0 and 1 Philox, 2 Threefry"),),
    loads=(
        typed(0, "UINT64"),
        ranked(0, 1),
        typed(OUT, "UINT64"),
        same_shape(0, OUT),
        typed(-2, "INT32", "INT64", "UINT32", "UINT64"),
    ),
)


@MULTINOMIAL.handles
@RANDOM_STANDARD_NORMAL.handles
@RANDOM_UNIFORM.handles
def random_numbers(c: Conversion, operator: Operator) -> Mapped:
    """Draws on the host; of a stream that seeds name, the position is carried from run to run."""
    reasons = [Reason("an operator that NNAPI can express", operator.name, operator.label, kind=Why.OPERATOR)]
    if not any(operator.options.get(name) for name in ("seed", "seed2")):
        return c.host(operator, reasons)
    key = (c.number, f"operator {operator.index}")
    int64 = extension_code(element_type("INT64").code)
    c.variables.begin(key, Value(int64, (1,), name=f"{operator.name} {key[1]}", data=np.zeros(1, np.int64)))
    return c.host(operator, reasons, key)


def _seeds(options: Options) -> tuple[int, int]:
    low, high = (_signed_32(int(options.get(name) or 0)) % 2**64 for name in ("seed", "seed2"))
    return (low, high) if low or high else (secrets.randbits(64), secrets.randbits(64))


def _signed_32(seed: int) -> int:
    """LiteRT reads 32 bits of a file's 64."""
    return (seed + 2**31) % 2**32 - 2**31


def _start(inputs: Tensors, options: Options) -> int:
    """The number of blocks of the stream that earlier runs have used: the last input, where that is a state."""
    return int(data_of(inputs[-1]).reshape(-1)[0]) if options.get(STATES) else 0


def _words(start: int, blocks: int, seeds: tuple[int, int]) -> Array:
    """Random 32-bit words, four from each block."""
    low, high = seeds
    block = start + np.arange(blocks, dtype=np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    upper = [np.full(blocks, part, np.uint64) for part in (high & 0xFFFFFFFF, high >> 32)]
    return philox(np.stack([block & mask, block >> half, *upper], axis=-1), (low & 0xFFFFFFFF, low >> 32)).reshape(-1)


def _floats(words: Array) -> Array:
    """Floats in [0, 1) of 23 random bits each."""
    return ((words & np.uint64(0x7FFFFF)) * 2.0**-23).astype(np.float32)


def _used(start: int, blocks: int) -> Array:
    return np.array([start + blocks], np.int64)


def _next_floats(count: int, inputs: Tensors, options: Options) -> tuple[Array, Array]:
    """Floats of whole blocks, so many at least, and the state after them."""
    start, blocks = _start(inputs, options), -(-count // 4)
    return _floats(_words(start, blocks, _seeds(options))), _used(start, blocks)


@RANDOM_UNIFORM.host_kernel
def host_random_uniform(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    shape = integers(inputs[0])
    numbers, state = _next_floats(math.prod(shape), inputs, options)
    return [numbers[: math.prod(shape)].reshape(shape), state]


@RANDOM_STANDARD_NORMAL.host_kernel
def host_random_normal(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    shape = integers(inputs[0])
    numbers, state = _next_floats(math.prod(shape), inputs, options)
    pairs = numbers.reshape(-1, 2)
    radius = np.sqrt(-2 * np.log(np.maximum(pairs[:, 0], np.float32(1e-7))))
    angle = np.float32(2 * np.pi) * pairs[:, 1]
    normal = np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=-1).reshape(-1)
    return [normal[: math.prod(shape)].reshape(shape), state]


SKIPPED = 2 * 256
"""Blocks that LiteRT's MULTINOMIAL skips for each sample, of which a run counts whole fours."""


@MULTINOMIAL.host_kernel
def host_multinomial(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    logits, count, start = data_of(inputs[0]).astype(np.float64), integers(inputs[1])[0], _start(inputs, options)
    possible = np.where(np.isfinite(logits), logits, -np.inf)
    sums = np.cumsum(np.exp(possible - possible.max(axis=1, keepdims=True)), axis=1)
    drawn_count = len(logits) * count
    pairs = _words(start, -(-drawn_count // 2), _seeds(options)).reshape(-1, 2)[:drawn_count]
    # Two words hold the 52 bits of a double.
    doubles = ((pairs[:, 0] & np.uint64(0xFFFFF)) * 2.0**32 + pairs[:, 1]) * 2.0**-52
    draws = doubles.reshape(len(logits), count) * sums[:, -1:]
    chosen = np.stack([np.searchsorted(row, drawn, "right") for row, drawn in zip(sums, draws, strict=True)])
    return [chosen, _used(start, len(logits) * ((count + 3) // 4 * 4) * SKIPPED)]


_THREEFRY, _ROTATIONS, _PARITY = 2, (13, 15, 26, 6, 17, 29, 16, 24), 0x1BD11BDA


@STABLEHLO_RNG_BIT_GENERATOR.host_kernel
def host_random_bits(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    state, out = data_of(inputs[0]).reshape(-1).astype(np.uint64), outputs[1]
    size = int(np.prod(out.dims)) * out.dtype.itemsize
    threefry = options["algorithm"] == _THREEFRY
    blocks = -(-size // (8 if threefry else 16))
    counters = state[1] + np.arange(blocks, dtype=np.uint64)
    low, high = counters & np.uint64(0xFFFFFFFF), counters >> np.uint64(32)
    key = (int(state[0]) & 0xFFFFFFFF, int(state[0]) >> 32)
    if threefry:
        words = _threefry(low, high, key)
    else:
        upper = int(state[2 if state.size > 2 else 0])
        rest = [np.full(blocks, part, np.uint64) for part in (upper & 0xFFFFFFFF, upper >> 32)]
        words = philox(np.stack([low, high, *rest], axis=-1), key)
    after = state.copy()
    after[1] += np.uint64(blocks)
    raw = words.astype(np.uint32).reshape(-1).view(np.uint8)[:size]
    return [after, raw.view(out.dtype).reshape(out.dims)]


def _threefry(low: Array, high: Array, key: tuple[int, int]) -> Array:
    mask = np.uint64(0xFFFFFFFF)
    keys = [np.uint64(k) for k in (*key, key[0] ^ key[1] ^ _PARITY)]
    a, b = (low + keys[0]) & mask, (high + keys[1]) & mask
    for turn in range(5):
        for rotation in _ROTATIONS[4 * (turn % 2) : 4 * (turn % 2) + 4]:
            a = (a + b) & mask
            b = ((b << np.uint64(rotation)) | (b >> np.uint64(32 - rotation))) & mask ^ a
        a = (a + keys[(turn + 1) % 3]) & mask
        b = (b + keys[(turn + 2) % 3] + np.uint64(turn + 1)) & mask
    return np.stack([a, b], axis=-1)
