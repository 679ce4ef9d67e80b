"""From the draft of a subgraph to the finished model: copies for outputs that need one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnbridge.converters.assembly import Assembly, live_steps
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model, State
from nnbridge.types import OperationCode
from nnbridge_tflite.extension import extension_code, options_value
from nnbridge_tflite.graph import Subgraph
from nnbridge_tflite.reader import TfliteFile
from nnbridge_tflite.schema import builtin_codes
from nnbridge_tflite.values import Values


def assemble(file: TfliteFile, graph: Subgraph, values: Values, draft: Draft) -> Model:
    """Build the model of a drafted subgraph."""
    inputs = [values.value(i) for i in graph.inputs]
    outputs = _own_outputs(graph, values, draft, inputs)
    firsts, states = _states(values, len(inputs), len(outputs))
    taken = [values.states[i] for i in firsts]
    left = [values.next_states[i] for i in firsts]
    steps = live_steps(draft.steps, [*outputs, *left])
    model = Assembly(file.path.stem).build([*inputs, *taken], [*outputs, *left], steps)
    return replace(model, states=states)


def _states(values: Values, inputs: int, outputs: int) -> tuple[list[int], tuple[State, ...]]:
    """The tensors that runs hand on, and where they go behind the other inputs and outputs.

    What nothing changes is the constant that it starts as.
    """
    kept: list[int] = []
    states: list[State] = []
    for i, value in values.states.items():
        first = values.first_state(i).reshape(value.dims)
        if i not in values.next_states:
            value.data = first
            continue
        states.append(State(inputs + len(kept), outputs + len(kept), first.tobytes() if first.any() else b""))
        kept.append(i)
    return kept, tuple(states)


def _own_outputs(graph: Subgraph, values: Values, draft: Draft, inputs: Sequence[Value]) -> list[Value]:
    """One written value for each output: inputs, constants and outputs listed twice are copied by a RESHAPE."""
    taken = set(map(id, inputs))
    outputs = []
    for i in graph.outputs:
        value = values.value(i)
        if id(value) in taken or value.constant:
            value = _copy(value, graph.tensors[i].label, draft)
        taken.add(id(value))
        outputs.append(value)
    return outputs


def _copy(value: Value, label: str, draft: Draft) -> Value:
    copy = value.like(name=value.name, source_type=value.source_type)
    if 0 in value.dims:
        raise ConversionError(Reason("known dimensions of an output that is a copy", str(list(value.dims)), label))
    shape, name = draft.ints(value.dims), f"copy {value.name}"
    try:
        draft.add(Step(OperationCode.RESHAPE, (value, shape), (copy,), name, "wide"))
    except Unmappable:
        code = extension_code(builtin_codes()["RESHAPE"])
        draft.add(Step(code, (value, shape, options_value(b"{}")), (copy,), name, "host"))
    return copy
