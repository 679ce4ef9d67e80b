"""From the draft of a subgraph to a finished model: copies for outputs that need one, states behind the interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnbridge.converters.assembly import Assembly, live_steps
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model, State
from nnbridge.types import OperationCode
from nnbridge_tflite.extension import extension_code, options_value
from nnbridge_tflite.schema import builtin_codes
from nnbridge_tflite.variables import Key, Variables, first_bytes


def assemble(name: str, inputs: Sequence[Value], outputs: Sequence[Value], draft: Draft, variables: Variables) -> Model:
    """Build the model of a drafted main subgraph."""
    kept = [key for key in variables.starts if key in variables.changed]
    for key, start in variables.starts.items():
        if key not in variables.changed:
            # Nothing changes it: it is the constant that it starts as.
            start.data = variables.firsts[key].data
    taken = [variables.starts[key] for key in kept]
    left = [_same(key, variables) for key in kept]
    model = body(name, [*inputs, *taken], [*outputs, *left], draft)
    states = tuple(
        State(len(inputs) + i, len(outputs) + i, first_bytes(variables.firsts[key]) if key in variables.firsts else b"")
        for i, key in enumerate(kept)
    )
    return replace(model, states=states)


def body(name: str, inputs: Sequence[Value], outputs: Sequence[Value], draft: Draft) -> Model:
    """Build the model of a drafted subgraph as it is."""
    made = _own_outputs(outputs, draft, inputs)
    return Assembly(name).build(inputs, made, live_steps(draft.steps, made))


def _same(key: Key, variables: Variables) -> Value:
    """What a variable holds after a run; it must be of the type and dimensions that the next run takes."""
    start, end = variables.starts[key], variables.now[key]
    if (start.type, start.dims) != (end.type, end.dims) or 0 in start.dims:
        raise ConversionError(Reason(f"a variable that stays {start.operand()}", str(end.operand()), start.name))
    end.name = end.name or f"{start.name} (next)"
    return end


def _own_outputs(wanted: Sequence[Value], draft: Draft, inputs: Sequence[Value]) -> list[Value]:
    """One written value for each output: inputs, constants and outputs listed twice are copied by a RESHAPE."""
    taken = set(map(id, inputs))
    outputs = []
    for value in wanted:
        own = copy(value, draft) if id(value) in taken or value.constant else value
        taken.add(id(own))
        outputs.append(own)
    return outputs


def copy(value: Value, draft: Draft) -> Value:
    """A value of its own with the same contents."""
    made = value.like(name=value.name, source_type=value.source_type)
    if 0 in value.dims:
        raise ConversionError(Reason("known dimensions of an output that is a copy", str(list(value.dims)), value.name))
    shape, name = draft.ints(value.dims), f"copy {value.name}"
    try:
        draft.add(Step(OperationCode.RESHAPE, (value, shape), (made,), name, "wide"))
    except Unmappable:
        code = extension_code(builtin_codes()["RESHAPE"])
        draft.add(Step(code, (value, shape, options_value(b"{}")), (made,), name, "host"))
    return made
