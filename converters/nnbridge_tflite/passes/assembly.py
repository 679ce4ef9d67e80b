"""From drafted subgraphs to finished models: copies for outputs that need one, states after the interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnbridge.converters.assembly import Assembly, live_steps, own_outputs
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model, State
from nnbridge.types import OperationCode
from nnbridge_tflite.host.codes import builtin_code, options_value
from nnbridge_tflite.passes.states import Key, Variables


def subgraph_model(name: str, inputs: Sequence[Value], outputs: Sequence[Value], draft: Draft, *, hosted: bool = False) -> Model:
    """The model of a drafted subgraph; ``hosted``: copies are the host's."""

    def copy(value: Value) -> Value:
        """A value of its own with the same contents, by a RESHAPE."""
        own = value.like(name=value.name, source_type=value.source_type)
        if 0 in value.dims:
            raise ConversionError(Reason("known dimensions of an output that is a copy", str(list(value.dims)), value.name))
        step = Step(OperationCode.RESHAPE, (value, draft.ints(value.dims)), (own,), f"copy {value.name}", MappingKind.WIDE)
        by_host = replace(step, code=builtin_code("RESHAPE"), inputs=(*step.inputs, options_value({})), mapping=MappingKind.HOST)
        try:
            draft.add(by_host if hosted else step)
        except Unmappable:
            draft.add(by_host)
        return own

    own = own_outputs(outputs, set(map(id, inputs)), copy)
    return Assembly(name).build(inputs, own, live_steps(draft.steps, own), draft.checked)


def model_with_states(
    name: str,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    draft: Draft,
    variables: Variables,
    *,
    hosted: bool = False,
) -> Model:
    """The model of a drafted main subgraph, with its variables as states after the interface."""
    carried = [key for key in variables.starts if key in variables.changed]
    for key, start in variables.starts.items():
        if key not in variables.changed:
            # Nothing changes it: it is the constant that it starts as.
            start.data = variables.firsts[key].data
    before = [variables.starts[key] for key in carried]
    after = [_next(key, variables) for key in carried]
    model = subgraph_model(name, [*inputs, *before], [*outputs, *after], draft, hosted=hosted)
    states = tuple(State(len(inputs) + i, len(outputs) + i, _first_bytes(variables, key)) for i, key in enumerate(carried))
    return replace(model, states=states)


def _first_bytes(variables: Variables, key: Key) -> bytes:
    """The bytes of what a variable holds before the first run; empty for zeros."""
    first = variables.firsts.get(key)
    if first is None or first.data is None or not first.data.any():
        return b""
    return np.ascontiguousarray(first.data).tobytes()


def _next(key: Key, variables: Variables) -> Value:
    """The next value of a variable after a run; it must be of the type and dimensions that the next run starts with."""
    start, end = variables.starts[key], variables.now[key]
    if (start.type, start.dims) != (end.type, end.dims) or 0 in start.dims:
        raise ConversionError(Reason(f"a variable that stays {start.operand()}", str(end.operand()), start.name))
    end.name = end.name or f"{start.name} (next)"
    return end
