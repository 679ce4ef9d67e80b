"""Recurrent operations against their formulas, written gate by gate and step by step in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.errors import OpFailedError
from nnbridge.operations import definitions
from nnbridge.operations.evaluate import make_call
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import omitted, output, run, scalar, tensor, twice

Op = OperationCode
Values = npt.NDArray[Any]
Named = dict[str, Values]

GATES = ("input", "forget", "cell", "output")
ACTIVATIONS: dict[int, Callable[[Values], Values]] = {
    0: lambda x: x,
    1: lambda x: np.maximum(x, 0),
    2: lambda x: np.clip(x, -1, 1),
    3: lambda x: np.clip(x, 0, 6),
    4: np.tanh,
    6: lambda x: 1 / (1 + np.exp(-x)),
}
SCALARS = {bool: OperandCode.BOOL, int: OperandCode.INT32, float: OperandCode.FLOAT32}
# Batch and time steps; the cell's form; clips; how the auxiliary input is used.
LEADS = st.tuples(st.sampled_from([1, 1, 2, 4]), st.integers(1, 5))
FORMS = st.fixed_dictionaries({name: st.booleans() for name in ("cifg", "peephole", "projection", "bias", "norm")})
CLIPS = st.tuples(st.sampled_from([0.0, 0.4]), st.sampled_from([0.0, 0.3]))
LINKS = st.sampled_from(["none", "parallel", "cross"])
CODES, SEEDS, FLAGS = st.sampled_from(sorted(ACTIVATIONS)), st.integers(0, 2**32 - 1), st.booleans()


class Numbers:
    """Random tensors."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, *dims: int) -> Values:
        return self._rng.normal(0, 0.5, dims).astype(np.float32)

    def size(self) -> int:
        return int(self._rng.choice([1, 3, 8]))


def linked(make: Numbers, lead: tuple[int, int], major: bool, link: str) -> tuple[Named, Named]:
    """The input and the auxiliary input, if there is one: as the operation gets them, and [time, batch, size]."""
    names = ["input"] if link == "none" else ["input", "aux_input"]
    sequences = {name: make(*(lead if major else lead[::-1]), make.size()) for name in names}
    return sequences, {name: x if major else x.swapaxes(0, 1) for name, x in sequences.items()}


def results(code: OperationCode, values: Named, scalars: Mapping[str, float], outputs: int, data: set[str]) -> list[Values]:
    """An operation's outputs. What has no value by its name is omitted, and all but the data is constant.

    Computed twice, to see that what is given and what was made is left alone.
    """
    given = {name: tensor(value.copy()) for name, value in values.items()}
    given |= {name: scalar(value, SCALARS[type(value)]) for name, value in scalars.items()}
    given = {name: arg.replace(constant=name not in data) for name, arg in given.items()}
    args = [given.get(declared.name) or omitted() for declared in definitions()[code].signatures[0].inputs]
    call = make_call(definitions()[code], args, [output() for _ in range(outputs)])
    first, second = twice(call)
    for name, value in values.items():
        np.testing.assert_array_equal(call[name].data, value)
    everything = [*first, *second, *(call[name].data for name in values)]
    assert not any(np.shares_memory(a, b) for k, a in enumerate(everything) for b in everything[:k])
    return first


def agree(found: list[Values], expected: list[Values]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def over_time(steps: int, backward: bool, step: Callable[[int], Values]) -> Values:
    """One step after the other, forwards or backwards; outputs stand at their own time."""
    order = range(steps)[::-1] if backward else range(steps)
    made = {t: step(t) for t in order}
    return np.stack([made[t] for t in range(steps)])


# -- LSTMs -----------------------------------------------------------------------------------------------------------


def lstm_weights(make: Numbers, prefix: str, size: int, form: Mapping[str, bool]) -> tuple[Named, int, int]:
    """The constants of a cell by name, its units and outputs."""
    units = make.size()
    outputs = make.size() if form["projection"] else units
    gates = GATES[1:] if form["cifg"] else GATES
    made: Named = {}
    for gate in gates:
        made[f"input_to_{gate}_weights"] = make(units, size)
        made[f"recurrent_to_{gate}_weights"] = make(units, outputs)
        made["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = make(units)
        if form["peephole"] and gate != "cell":
            made[f"cell_to_{gate}_weights"] = make(units)
        if form["norm"]:
            made[f"{gate}_layer_norm_weights"] = make(units)
    if form["projection"]:
        made["projection_weights"] = make(outputs, units)
        if form["bias"]:
            made["projection_bias"] = make(outputs)
    return {prefix + name: value for name, value in made.items()}, units, outputs


class PlainLstm:
    """The formulas of the contract, for one cell."""

    def __init__(self, values: Named, prefix: str, activation: int, clips: tuple[float, float]) -> None:
        self.values = {name.removeprefix(prefix): v.astype(np.float64) for name, v in values.items() if name.startswith(prefix)}
        self.activation, self.clips = ACTIVATIONS[activation], [clip or np.inf for clip in clips]
        self.hidden = self.cell = np.zeros(0)

    def sums(self, gate: str, inputs: Mapping[str, Values], looking: Values | None) -> Values:
        """A gate's values before its activation."""
        v = self.values
        x = self.hidden @ v[f"recurrent_to_{gate}_weights"].T
        for kind, value in inputs.items():
            x = x + value @ v[f"{kind}_to_{gate}_weights"].T
        if looking is not None and f"cell_to_{gate}_weights" in v:
            x = x + v[f"cell_to_{gate}_weights"] * looking
        if f"{gate}_layer_norm_weights" in v:
            x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-8)
            x = x * v[f"{gate}_layer_norm_weights"]
        return x + v["cell_bias" if gate == "cell" else f"{gate}_gate_bias"]

    def step(self, **inputs: Values) -> Values:
        """The next output, which is the new hidden state."""
        v, sigmoid = self.values, ACTIVATIONS[6]
        forget = sigmoid(self.sums("forget", inputs, self.cell))
        cifg = "input_to_input_weights" not in v
        self.entering = 1 - forget if cifg else sigmoid(self.sums("input", inputs, self.cell))
        self.forget, self.candidate = forget, self.activation(self.sums("cell", inputs, None))
        self.cell = np.clip(forget * self.cell + self.entering * self.candidate, -self.clips[0], self.clips[0])
        self.opening = sigmoid(self.sums("output", inputs, self.cell))
        self.hidden = self.opening * self.activation(self.cell)
        if "projection_weights" in v:
            projected = self.hidden @ v["projection_weights"].T + v.get("projection_bias", 0)
            self.hidden = np.clip(projected, -self.clips[1], self.clips[1])
        return self.hidden


@given(LEADS, FORMS, CODES, CLIPS, SEEDS)
def test_an_lstm_s_step(lead: tuple[int, int], form: dict[str, bool], code: int, clips: tuple[float, float], seed: int) -> None:
    make, batch = Numbers(seed), lead[0]
    size = make.size()
    values, units, outputs = lstm_weights(make, "", size, form)
    plain = PlainLstm(values, "", code, clips)
    plain.hidden, plain.cell = make(batch, outputs), make(batch, units)
    x, states = make(batch, size), {"output_state_in": plain.hidden, "cell_state_in": plain.cell}
    scalars = {"activation": code, "cell_clip": clips[0], "proj_clip": clips[1]}
    found = results(Op.LSTM, {"input": x, **values, **states}, scalars, 4, {"input", *states})
    y = plain.step(input=x)
    gates = [plain.candidate, plain.forget, plain.opening]
    scratch = np.concatenate(gates if form["cifg"] else [plain.entering, *gates], axis=1)
    agree(found, [scratch, y, plain.cell, y])


@given(LEADS, FORMS, CODES, CLIPS, FLAGS, st.sampled_from([1, 3]), SEEDS)
def test_an_lstm_over_a_sequence(
    lead: tuple[int, int], form: dict[str, bool], code: int, clips: tuple[float, float], major: bool, count: int, seed: int
) -> None:
    make, (batch, steps) = Numbers(seed), lead
    size = make.size()
    values, units, outputs = lstm_weights(make, "", size, form)
    plain = PlainLstm(values, "", code, clips)
    plain.hidden, plain.cell = make(batch, outputs), make(batch, units)
    x = make(*((steps, batch) if major else (batch, steps)), size)
    states = {"output_state_in": plain.hidden, "cell_state_in": plain.cell}
    scalars = {"activation": code, "cell_clip": clips[0], "proj_clip": clips[1], "time_major": major}
    found = results(Op.UNIDIRECTIONAL_SEQUENCE_LSTM, {"input": x, **values, **states}, scalars, count, {"input", *states})
    by_time = x if major else x.swapaxes(0, 1)
    y = over_time(steps, False, lambda t: plain.step(input=by_time[t]))
    agree(found, [y if major else y.swapaxes(0, 1), plain.hidden, plain.cell][:count])


@given(LEADS, st.tuples(FORMS, FORMS), CODES, CLIPS, st.tuples(FLAGS, FLAGS, FLAGS), LINKS, SEEDS)
def test_lstms_over_a_sequence_in_both_directions(
    lead: tuple[int, int],
    forms: tuple[dict[str, bool], dict[str, bool]],
    code: int,
    clips: tuple[float, float],
    flags: tuple[bool, bool, bool],
    link: str,
    seed: int,
) -> None:
    make, (batch, steps), (major, merged, stateful) = Numbers(seed), lead, flags
    sequences, by_time = linked(make, (steps, batch), major, link)
    values, states, ys, lasts = dict(sequences), [], [], []
    for prefix, form in zip(("fw_", "bw_"), forms, strict=True):
        backward = prefix == "bw_"
        reads = {"input": by_time["aux_input" if backward and link == "parallel" else "input"]}
        own, units, outputs = lstm_weights(make, prefix, reads["input"].shape[2], form)
        if link == "cross":
            reads["aux_input"] = by_time["aux_input"]
            for gate in GATES[1:] if form["cifg"] else GATES:
                own[f"{prefix}aux_input_to_{gate}_weights"] = make(units, reads["aux_input"].shape[2])
        plain = PlainLstm(own, prefix, code, clips)
        plain.hidden, plain.cell = make(batch, outputs), make(batch, units)
        given_states = {f"{prefix}activation_state": plain.hidden, f"{prefix}cell_state": plain.cell}
        values |= own | given_states
        states += given_states
        ys.append(over_time(steps, backward, lambda t, p=plain, r=reads: p.step(**{k: x[t] for k, x in r.items()})))
        lasts += [plain.hidden, plain.cell]
    scalars = {"activation": code, "cell_clip": clips[0], "proj_clip": clips[1], "time_major": major, "merge_outputs": merged}
    ys = [np.concatenate(ys, axis=2)] if merged else ys
    expected = [*(y if major else y.swapaxes(0, 1) for y in ys), *(lasts if stateful else [])]
    data = {*sequences, *states}
    agree(results(Op.BIDIRECTIONAL_SEQUENCE_LSTM, values, scalars, len(expected), data), expected)


def test_a_sequence_without_steps_leaves_the_states_of_both_directions() -> None:
    make = Numbers(1)
    form = dict.fromkeys(("cifg", "peephole", "projection", "bias", "norm"), False)
    values: Named = {"input": make(0, 2, 3)}
    states = []
    for prefix in ("fw_", "bw_"):
        own, units, _ = lstm_weights(make, prefix, 3, form)
        states += [make(2, units), make(2, units)]
        values |= own | {f"{prefix}activation_state": states[-2], f"{prefix}cell_state": states[-1]}
    scalars = {"activation": 4, "cell_clip": 0.0, "proj_clip": 0.0, "time_major": True, "merge_outputs": True}
    found = results(Op.BIDIRECTIONAL_SEQUENCE_LSTM, values, scalars, 5, {"input"})
    agree(found[1:], states)
    assert found[0].shape[:2] == (0, 2)


@pytest.mark.parametrize("name", ["input_gate_bias", "forget_gate_bias", "cell_bias", "output_gate_bias"])
def test_each_bias_of_an_lstm_has_a_value_for_each_unit(name: str) -> None:
    make = Numbers(1)
    values, units, outputs = lstm_weights(make, "", 2, dict.fromkeys(("cifg", "peephole", "projection", "bias", "norm"), False))
    values |= {"input": make(2, 2), "output_state_in": make(2, outputs), "cell_state_in": make(2, units)}
    values[name] = make(units + 1)
    with pytest.raises(OpFailedError, match=rf"LSTM {name}: expected dimensions \[{units}\]"):
        results(Op.LSTM, values, {"activation": 4, "cell_clip": 0.0, "proj_clip": 0.0}, 4, {"input"})


@pytest.mark.parametrize("cifg", [True, False])
def test_a_cell_without_units_gives_its_projection_s_bias(cifg: bool) -> None:
    make, sizes = Numbers(1), iter([0, 3])
    make.size = lambda: next(sizes)  # type: ignore[method-assign]
    values, _, _ = lstm_weights(make, "", 2, dict.fromkeys(("peephole", "projection", "bias", "norm"), True) | {"cifg": cifg})
    values |= {"input": make(2, 2), "output_state_in": make(2, 3), "cell_state_in": make(2, 0)}
    _, y, cell, _ = results(Op.LSTM, values, {"activation": 4, "cell_clip": 0.0, "proj_clip": 0.0}, 4, {"input"})
    np.testing.assert_array_equal(y, [values["projection_bias"]] * 2)
    assert cell.shape == (2, 0)


# -- simple cells ----------------------------------------------------------------------------------------------------


def rnn_weights(make: Numbers, prefix: str, size: int) -> tuple[Named, int]:
    """The constants of a cell by name, and its units."""
    units = make.size()
    made = {"weights": make(units, size), "recurrent_weights": make(units, units), "bias": make(units)}
    return {prefix + name: value for name, value in made.items()}, units


def plain_rnn(values: Named, prefix: str, code: int, hidden: Values, **inputs: Values) -> Values:
    """activation(W x + R h + b); inputs by the names of their weights."""
    x = hidden @ values[f"{prefix}recurrent_weights"].astype(np.float64).T + values[f"{prefix}bias"]
    for name, value in inputs.items():
        x = x + value @ values[prefix + name].astype(np.float64).T
    return ACTIVATIONS[code](x)


@given(LEADS, CODES, SEEDS)
def test_a_simple_cell_s_step(lead: tuple[int, int], code: int, seed: int) -> None:
    make, batch = Numbers(seed), lead[0]
    x = make(batch, make.size())
    values, units = rnn_weights(make, "", x.shape[1])
    hidden = make(batch, units)
    given_values = {"input": x, **values, "hidden_state_in": hidden}
    found = results(Op.RNN, given_values, {"activation": code}, 2, {"input", "hidden_state_in"})
    agree(found, [plain_rnn(values, "", code, hidden, weights=x)] * 2)


@given(LEADS, CODES, FLAGS, st.sampled_from([1, 2]), SEEDS)
def test_a_simple_cell_over_a_sequence(lead: tuple[int, int], code: int, major: bool, count: int, seed: int) -> None:
    make, (batch, steps) = Numbers(seed), lead
    x = make(*((steps, batch) if major else (batch, steps)), make.size())
    values, units = rnn_weights(make, "", x.shape[2])
    hidden = make(batch, units)
    found = results(
        Op.UNIDIRECTIONAL_SEQUENCE_RNN,
        {"input": x, **values, "hidden_state": hidden},
        {"activation": code, "time_major": int(major)},
        count,
        {"input", "hidden_state"},
    )
    expected = []
    for step in x if major else x.swapaxes(0, 1):
        hidden = plain_rnn(values, "", code, hidden, weights=step)
        expected.append(hidden)
    y = np.stack(expected)
    agree(found, [y if major else y.swapaxes(0, 1), hidden][:count])


@given(LEADS, CODES, st.tuples(FLAGS, FLAGS, FLAGS), LINKS, SEEDS)
def test_simple_cells_over_a_sequence_in_both_directions(
    lead: tuple[int, int], code: int, flags: tuple[bool, bool, bool], link: str, seed: int
) -> None:
    make, (batch, steps), (major, merged, stateful) = Numbers(seed), lead, flags
    sequences, by_time = linked(make, (steps, batch), major, link)
    values, ys, lasts = dict(sequences), [], []
    for prefix in ("fw_", "bw_"):
        backward = prefix == "bw_"
        reads = {"weights": by_time["aux_input" if backward and link == "parallel" else "input"]}
        own, units = rnn_weights(make, prefix, reads["weights"].shape[2])
        if link == "cross":
            reads["aux_weights"] = by_time["aux_input"]
            own[f"{prefix}aux_weights"] = make(units, reads["aux_weights"].shape[2])
        hidden = own[f"{prefix}hidden_state"] = make(batch, units)
        made = []
        for t in range(steps)[::-1] if backward else range(steps):
            hidden = plain_rnn(own, prefix, code, hidden, **{name: x[t] for name, x in reads.items()})
            made.append(hidden)
        ys.append(np.stack(made[::-1] if backward else made))
        lasts.append(hidden)
        values |= own
    ys = [np.concatenate(ys, axis=2)] if merged else ys
    expected = [*(y if major else y.swapaxes(0, 1) for y in ys), *(lasts if stateful else [])]
    scalars = {"activation": code, "time_major": major, "merge_outputs": merged}
    data = {*sequences, "fw_hidden_state", "bw_hidden_state"}
    agree(results(Op.BIDIRECTIONAL_SEQUENCE_RNN, values, scalars, len(expected), data), expected)


# -- SVDF ------------------------------------------------------------------------------------------------------------


@given(st.tuples(*[st.integers(1, 4)] * 4), FLAGS, CODES, SEEDS)
def test_svdf(dims: tuple[int, int, int, int], bias: bool, code: int, seed: int) -> None:
    make, (batch, units, rank, memory) = Numbers(seed), dims
    filters, x = units * rank, make(batch, make.size())
    values = {"weights_feature": make(filters, x.shape[1]), "weights_time": make(filters, memory)}
    if bias:
        values["bias"] = make(units)
    state = make(batch, memory * filters)
    given_values = {"input": x, **values, "state_in": state}
    found = results(Op.SVDF, given_values, {"rank": rank, "activation": code}, 2, {"input", "state_in"})
    columns = state.astype(np.float64).reshape(batch, filters, memory)
    columns[..., -1] = x.astype(np.float64) @ values["weights_feature"].T
    sums = (columns * values["weights_time"]).sum(axis=2).reshape(batch, units, rank).sum(axis=2)
    moved = np.concatenate([columns[..., 1:], np.zeros((batch, filters, 1))], axis=2)
    agree(found, [moved.reshape(batch, -1), ACTIVATIONS[code](sums + values.get("bias", 0))])


def test_svdf_without_memory_is_refused() -> None:
    values = [tensor(np.ones(dims)) for dims in ((1, 2), (3, 2), (3, 0))]
    with pytest.raises(OpFailedError, match="SVDF weights_time: expected a memory of at least 1, found 0"):
        run(Op.SVDF, [*values, omitted(), tensor(np.ones((1, 0))), scalar(1), scalar(0)], output(), output())
