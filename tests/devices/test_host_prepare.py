"""Host operations that are prepared once for the shapes of their operands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, OpFailedError
from nnbridge.extensions import OPTIONS_TYPE, TYPES, Arg, HostExtension, HostOperation, PreparedHostKernel
from nnbridge.model import Array, Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode

NAME = "test.prepared"
SCALE = 0


class Scaling:
    """y = x * scale * options["factor"], ``scale`` a constant; counts how often it is prepared."""

    def __init__(self) -> None:
        self.prepared: list[tuple[int, ...]] = []
        self.plain_runs = 0
        self.refuse = False
        self.needs_values = False

    def kernel(self, inputs: Sequence[Arg], outputs: Sequence[Arg], options: Mapping[str, Any]) -> list[Array]:
        self.plain_runs += 1
        x, scale = inputs[0].value, inputs[1].value
        assert x is not None
        assert scale is not None
        return [x * scale * np.float32(options["factor"])]

    def prepare(self, inputs: Sequence[Arg], outputs: Sequence[Arg], options: Mapping[str, Any]) -> PreparedHostKernel | None:
        if self.refuse:
            raise ValueError("no form fits")
        if self.needs_values:
            return None
        assert inputs[0].value is None
        assert inputs[0].present
        assert inputs[1].value is not None
        self.prepared.append(inputs[0].dims)
        factor = inputs[1].value * np.float32(options["factor"])
        return lambda arrays: [arrays[0] * factor]  # type: ignore[operator]  # x is never omitted


@pytest.fixture
def scaling() -> Iterator[Scaling]:
    made = Scaling()
    operation = HostOperation("SCALE", made.kernel, prepare=made.prepare)
    TYPES.register(HostExtension(NAME, (OPTIONS_TYPE,), {SCALE: operation}))
    yield made
    TYPES._extensions.pop(NAME)


def model(dims: tuple[int, ...] = (2,), options: bytes = json.dumps({"factor": 10}).encode()) -> Model:
    builder = ModelBuilder()
    x = builder.add_operand(OperandCode.TENSOR_FLOAT32, dims, name="x")
    scale = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1,))
    builder.set_operand_value(scale, np.float32([3]))
    text = builder.add_operand(TYPES.code(NAME, OPTIONS_TYPE.number), (len(options),))
    builder.set_operand_value(text, options)
    y = builder.add_operand(OperandCode.TENSOR_FLOAT32, dims, name="y")
    builder.add_operation(TYPES.code(NAME, SCALE), [x, scale, text], [y])
    builder.identify_inputs_and_outputs([x], [y])
    return builder.finish()


def finished(model: Model) -> Compilation:
    compilation = Compilation.create(model, [])
    compilation.finish()
    return compilation


def outputs(compilation: Compilation, *values: float) -> list[float]:
    return Execution(compilation).run([np.float32(values)])["y"].tolist()


def test_a_kernel_of_declared_shapes_is_prepared_when_the_model_is(scaling: Scaling) -> None:
    compilation = finished(model())
    assert scaling.prepared == [(2,)]
    assert [outputs(compilation, 1, 2), outputs(compilation, 4, 5)] == [[30, 60], [120, 150]]
    assert scaling.prepared == [(2,)]
    assert scaling.plain_runs == 0


def test_a_kernel_of_open_shapes_is_prepared_once_for_each_shape(scaling: Scaling) -> None:
    compilation = finished(model((0,)))
    assert scaling.prepared == []
    assert [outputs(compilation, 1, 2), outputs(compilation, 1), outputs(compilation, 3, 4)] == [[30, 60], [30], [90, 120]]
    assert scaling.prepared == [(2,), (1,)]


def test_only_the_shapes_used_last_stay_prepared(scaling: Scaling) -> None:
    compilation = finished(model((0,)))
    for size in (*range(1, 18), 17, 1):
        outputs(compilation, *range(size))
    assert [dims for (dims,) in scaling.prepared] == [*range(1, 18), 1]


def test_a_kernel_that_needs_values_runs_unprepared(scaling: Scaling) -> None:
    scaling.needs_values = True
    assert outputs(finished(model()), 1, 2) == [30, 60]
    assert scaling.plain_runs == 1


def test_a_refusal_to_prepare_is_raised_when_the_operation_runs(scaling: Scaling) -> None:
    scaling.refuse = True
    compilation = finished(model())
    with pytest.raises(OpFailedError, match="no form fits"):
        outputs(compilation, 1, 2)


@pytest.mark.parametrize("options", [b"\xff\xfe", b"{", b"[1]", b"[" * 100_000])
def test_options_that_are_no_json_object_are_refused_at_finish(scaling: Scaling, options: bytes) -> None:
    with pytest.raises(BadDataError, match="JSON"):
        finished(model(options=options))


def test_options_that_are_no_constant_are_refused_at_finish(scaling: Scaling) -> None:
    made = model()
    text = next(i for i, operand in enumerate(made.main.operands) if operand.type == TYPES.code(NAME, OPTIONS_TYPE.number))
    builder = ModelBuilder()
    for operand in made.main.operands:
        builder.add_operand(operand.type, operand.dims)
    builder.add_operation(made.main.operations[0].type, made.main.operations[0].inputs, made.main.operations[0].outputs)
    constant = next(i for i, operand in enumerate(made.main.operands) if operand.is_constant and i != text)
    builder.set_operand_value(constant, np.float32([3]))
    builder.identify_inputs_and_outputs([made.main.inputs[0], text], made.main.outputs)
    with pytest.raises(BadDataError, match="constant JSON object"):
        finished(replace(builder.finish(), name="input"))
