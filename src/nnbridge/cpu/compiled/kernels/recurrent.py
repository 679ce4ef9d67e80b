"""Recurrent cells over sequences: each member of a batch by itself, step after step, its units in blocks of a vector.

Weights lie as [block of units][value][gate][lane], a value being one float32 number or the bytes of one product step. A step
reads the hidden state from where the step before has written its output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.kernels.elementwise import FUNCTIONS
from nnbridge.cpu.compiled.values import F32, I8, I16, I32, I64, IrValue, vector

GATES = {"rnn": 1, "cifg": 3, "lstm": 4}
"""Cell → gates with weights: input (only of ``lstm``), forget, cell and output; of bytes output before cell."""

Compute: TypeAlias = "Callable[..., Sequence[IrValue]]"
"""From addresses of a step's input, the hidden state, the output and the cell state to the next cell state, if any."""

_SEQUENCE = (
    "input input_step input_batch inputs hidden output output_step output_batch steps batch units blocks weights bias last_hidden"
)


def _steps(
    e: Emitter, f: Fields, part: IrValue, parts: IrValue, element: int, begin: Callable[[IrValue], tuple[list[IrValue], Compute]]
) -> None:
    """Each batch member's steps: ``begin(member)`` is the first cell state, if any, and what computes a step."""
    first, last = e.share(f.batch, part, parts)
    row = f.units * element

    def member(n: IrValue) -> None:
        states, compute = begin(n)

        def step(t: IrValue, hidden: IrValue, *now: IrValue) -> list[IrValue]:
            target = f.output + n * f.output_batch + t * f.output_step
            after = compute(f.input + n * f.input_batch + t * f.input_step, hidden, target, *now)
            return [target, *after]

        hidden, *_ = e.loop(0, f.steps, step, carried=[f.hidden + n * row, *states])
        e.copy(f.last_hidden + n * row, hidden, row)

    e.loop(first, last, member)


def _limited(low: float, high: float) -> Callable[[Emitter, IrValue], IrValue]:
    return lambda e, x: e.clamp_real(x, e.constant(x.type, low), e.constant(x.type, high))


ACTIVATIONS: dict[int, Callable[[Emitter, IrValue], IrValue]] = {
    0: lambda e, x: x,
    1: _limited(0, float("inf")),
    2: _limited(-1, 1),
    3: _limited(0, 6),
    4: FUNCTIONS["tanh"],
    6: FUNCTIONS["logistic"],
}
"""NNAPI's code of a recurrent activation → the function."""


def _products(e: Emitter, values: IrValue, weights: IrValue, count: IrValue, sums: Sequence[IrValue]) -> list[IrValue]:
    """Sums of vectors plus a number of values times their weights, which lie as [value][sum][lane]."""
    kind, size = sums[0].type, 4 * e.instructions.lanes

    def one(i: IrValue, *now: IrValue) -> list[IrValue]:
        x, at = e.splat(e.load(values + i * 4, F32), kind.count), weights + i * (len(sums) * size)
        return [e.fma(x, e.load(at, kind, g * size), total) for g, total in enumerate(now)]

    return e.loop(0, count, one, carried=sums)


@kernel(f"{_SEQUENCE} state last_state peepholes clip gate_values")
def recurrent_real(
    e: Emitter,
    f: Fields,
    part: IrValue,
    parts: IrValue,
    *,
    cell: str,
    activation: int,
    peephole: bool = False,
    clipped: bool = False,
    shown: bool = False,
) -> None:
    """Cells of float32. ``shown``: the gates' values are stored as [batch, gates, units], the cell's before the forget gate's."""
    gates, lanes = GATES[cell], e.instructions.lanes
    kind, size = vector(F32, lanes), 4 * lanes
    activate, logistic = ACTIVATIONS[activation], FUNCTIONS["logistic"]
    row = gates * size

    def of_member(n: IrValue) -> tuple[list[IrValue], Compute]:
        after = f.last_state + n * f.units * 4

        def compute(x: IrValue, hidden: IrValue, target: IrValue, *before: IrValue) -> list[IrValue]:
            def block(k: IrValue) -> None:
                at, left = k * size, f.units - k * lanes
                weights = f.weights + k * (f.inputs + f.units) * row
                sums = [e.load(f.bias + k * row, kind, g * size) for g in range(gates)]
                sums = _products(e, x, weights, f.inputs, sums)
                sums = _products(e, hidden, weights + f.inputs * row, f.units, sums)
                if cell == "rnn":
                    e.store_first(activate(e, sums[0]), target + at, left)
                    return
                state = e.load(before[0] + at, kind)
                looking = [e.load(f.peepholes + k * row, kind, g * size) for g in range(gates)] if peephole else None
                if looking is not None:
                    sums[:-2] = [e.fma(p, state, s) for p, s in zip(looking, sums[:-2], strict=False)]
                forget, candidate = logistic(e, sums[-3]), activate(e, sums[-2])
                entering = e.constant(kind, 1) - forget if cell == "cifg" else logistic(e, sums[0])
                state = forget * state + entering * candidate
                if clipped:
                    limit = e.splat_real(f.clip, lanes)
                    state = e.clamp_real(state, -limit, limit)
                opening = logistic(e, sums[-1] if looking is None else e.fma(looking[-1], state, sums[-1]))
                e.store_first(state, after + at, left)
                e.store_first(opening * activate(e, state), target + at, left)
                if shown:
                    first = f.gate_values + n * f.units * (4 * gates) + at
                    values = [*([entering] if cell == "lstm" else []), candidate, forget, opening]
                    for g, value in enumerate(values):
                        e.store_first(value, first + f.units * (4 * g), left)

            e.loop(0, f.blocks, block)
            return [after] if before else []

        return ([] if cell == "rnn" else [f.state + n * f.units * 4]), compute

    _steps(e, f, part, parts, 4, of_member)


@kernel(f"{_SEQUENCE} candidate_weights candidate_bias scratch")
def gru_real(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, gate: int, activation: int, after: bool) -> None:
    """GRU cells of float32: the update and the reset gate of all units, then the candidates.

    ``after``: the reset gate acts on the products of the state, else on the state. ``candidate_bias``: of the inputs and of the
    state. ``scratch``: the update gates, and the reset gates or what they leave of the state, of each member.
    """
    lanes = e.instructions.lanes
    kind, size = vector(F32, lanes), 4 * lanes
    open_, activate = ACTIVATIONS[gate], ACTIVATIONS[activation]

    def of_member(n: IrValue) -> tuple[list[IrValue], Compute]:
        updates = f.scratch + n * f.blocks * (2 * size)
        resets = updates + f.blocks * size

        def compute(x: IrValue, hidden: IrValue, target: IrValue) -> list[IrValue]:
            def gates(k: IrValue) -> None:
                weights = f.weights + k * (f.inputs + f.units) * (2 * size)
                sums = [e.load(f.bias + k * (2 * size), kind, g * size) for g in range(2)]
                sums = _products(e, x, weights, f.inputs, sums)
                sums = _products(e, hidden, weights + f.inputs * (2 * size), f.units, sums)
                update, reset = (open_(e, total) for total in sums)
                e.store(update, updates + k * size)
                e.store(reset if after else reset * e.load(hidden + k * size, kind), resets + k * size)

            e.loop(0, f.blocks, gates)

            def candidates(k: IrValue) -> None:
                weights = f.candidate_weights + k * (f.inputs + f.units) * size
                direct, behind = (e.load(f.candidate_bias + k * (2 * size), kind, g * size) for g in range(2))
                total = _products(e, x, weights, f.inputs, [direct])[0]
                behind = _products(e, hidden if after else resets, weights + f.inputs * size, f.units, [behind])[0]
                total = total + (e.load(resets + k * size, kind) * behind if after else behind)
                update, state = e.load(updates + k * size, kind), e.load(hidden + k * size, kind)
                found = (e.constant(kind, 1) - update) * activate(e, total) + update * state
                e.store_first(found, target + k * size, f.units - k * lanes)

            e.loop(0, f.blocks, candidates)
            return []

        return [], compute

    _steps(e, f, part, parts, 4, of_member)


# -- 8-bit cells with 16-bit gates -----------------------------------------------------------------------------------


def halved(e: Emitter, x: IrValue, exponent: IrValue) -> IrValue:
    """``x / 2**exponent`` to nearest, ties away from zero."""
    half = (e.number(1) << exponent) >> 1
    return (x + half + e.select(half > 0, x >> 63, 0)) >> exponent


def rescaled(e: Emitter, x: IrValue, parameters: IrValue, number: int) -> IrValue:
    """``x`` times a multiplier, with two roundings; its row has the multiplier and the shifts to the left and to the right."""
    multiplier, left, right = (e.load(parameters, I64, 8 * (3 * number + k)) for k in range(3))
    shifted = (x << left).truncated(I32).signed(I64)
    return halved(e, (shifted * multiplier + (1 << 30)) >> 31, right)


def within(e: Emitter, x: IrValue, low: int | IrValue, high: int | IrValue) -> IrValue:
    return e.smin(e.smax(x, low), high)


@kernel(
    f"{_SEQUENCE} state last_state input_steps hidden_steps hidden_weights sums parameters sigmoids tanhs state_tanhs"
    " exponent hidden_point clip"
)
def lstm_bytes(e: Emitter, f: Fields, part: IrValue, parts: IrValue, *, cell: str) -> None:
    """LSTM cells of bytes, with 16-bit gates and cell state. ``parameters``: of the inputs' sums by gate, then of the hidden
    state's, then of the output."""
    gates, lanes = GATES[cell], e.instructions.lanes
    kind, size = vector(I32, lanes), 4 * lanes
    row, each = gates * size, e.instructions.step_elements
    width = f.blocks * size

    def products(values: IrValue, weights: IrValue, count: IrValue, sums: Sequence[IrValue]) -> list[IrValue]:
        def one(i: IrValue, *now: IrValue) -> list[IrValue]:
            read = e.load(values + i * each, vector(I8, each))
            x = e.splat((read if each == 4 else read.unsigned(I16)).bits(I32), lanes)
            return [e.dot(total, x, e.load(weights + i * row, kind, g * size)) for g, total in enumerate(now)]

        return e.loop(0, count, one, carried=sums)

    def looked_up(table: IrValue, value: IrValue) -> IrValue:
        return e.load(table + (value & 0xFFFF) * 2, I16).signed(I64)

    def of_member(n: IrValue) -> tuple[list[IrValue], Compute]:
        after, scratch = f.last_state + n * f.units * 2, f.sums + n * width * (2 * gates)

        def compute(x: IrValue, hidden: IrValue, target: IrValue, before: IrValue) -> list[IrValue]:
            sides = ((x, f.weights, f.input_steps, 0), (hidden, f.hidden_weights, f.hidden_steps, gates))

            def block(k: IrValue) -> None:
                for values, weights, count, at in sides:
                    start = f.bias + k * (2 * row)
                    sums = [e.load(start, kind, (at + g) * size) for g in range(gates)]
                    sums = products(values, weights + k * count * row, count, sums)
                    for g, total in enumerate(sums):
                        e.store(total, scratch + width * (at + g) + k * size)

            e.loop(0, f.blocks, block)

            def unit(u: IrValue) -> None:
                def gate(g: int) -> IrValue:
                    direct, recurrent = (
                        rescaled(e, e.load(scratch + width * k + u * 4, I32).signed(I64), f.parameters, k) for k in (g, gates + g)
                    )
                    return within(e, within(e, direct, -32768, 32767) + recurrent, -32768, 32767)

                forget = looked_up(f.sigmoids, gate(gates - 3))
                entering = looked_up(f.sigmoids, gate(0)) if cell == "lstm" else e.number(32767) - forget
                opening, candidate = looked_up(f.sigmoids, gate(gates - 2)), looked_up(f.tanhs, gate(gates - 1))
                kept = halved(e, forget * e.load(before + u * 2, I16).signed(I64), e.number(15))
                state = within(e, kept + halved(e, entering * candidate, f.exponent + 30), -32768, 32767)
                state = within(e, state, e.number(0) - f.clip, f.clip)
                e.store(state.truncated(I16), after + u * 2)
                shown = rescaled(e, opening * looked_up(f.state_tanhs, state), f.parameters, 2 * gates)
                result = within(e, shown + f.hidden_point, -128, 127)
                e.store((result + 128).truncated(I8), target + u)

            e.loop(0, f.units, unit)
            return [after]

        return [f.state + n * f.units * 2], compute

    _steps(e, f, part, parts, 1, of_member)
