"""Drafted operations run at conversion: NNAPI's by their reference kernels, the host's by theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.converters.draft import Step, Value
from nnbridge.extensions import OPTIONS_TYPE, TYPES, HostOperation, HostTensor
from nnbridge.operations import definition
from nnbridge.operations.call import Arg
from nnbridge.operations.evaluate import evaluate, make_call
from nnbridge.types import TYPE_FACTS, is_extension, split_extension_code
from nnbridge_tflite.kernels import Array


def evaluated(
    steps: Sequence[Step], outputs: Sequence[Value], operations: Mapping[int, HostOperation] | None = None
) -> list[Array]:
    """What the outputs become; ValueError for an operation that cannot be computed here."""
    known: dict[int, Array] = {}
    for step in steps:
        values = [known.get(id(value), value.data) for value in step.inputs]
        extension = is_extension(step.code)
        answers = _hosted(step, values, operations or {}) if extension else _nnapi(step, values)
        for value, answer in zip(step.outputs, answers, strict=True):
            known[id(value)] = np.asarray(answer)
    found = [known.get(id(value), value.data) for value in outputs]
    if any(array is None for array in found):
        raise ValueError("values that do not depend on inputs")
    return [array for array in found if array is not None]


def _nnapi(step: Step, values: Sequence[Array | None]) -> Sequence[Array | None]:
    declared = definition(step.code)
    if declared is None:
        raise ValueError("an operator of NNAPI's operations alone")
    args = [_arg(value, array) for value, array in zip(step.inputs, values, strict=True)]
    return [answer.value for answer in evaluate(make_call(declared, args, [_arg(v, None) for v in step.outputs]))]


def _arg(value: Value, array: Array | None) -> Arg:
    argument = Arg.of(value.operand(), array, present=not value.omitted)
    return argument if array is None else argument.replace(dims=array.shape)


def _hosted(step: Step, values: Sequence[Array | None], operations: Mapping[int, HostOperation]) -> Sequence[Array]:
    found = operations.get(split_extension_code(step.code)[1])
    if found is None or found.kernel is None:
        raise ValueError(found.reason if found is not None else "an operator of NNAPI's operations alone")
    options = next((a for v, a in zip(step.inputs, values, strict=True) if _is_options(v)), None)
    inputs = [_tensor(v, a) for v, a in zip(step.inputs, values, strict=True) if not _is_options(v)]
    parsed = {} if options is None else json.loads(options.tobytes())
    return found.kernel(inputs, [_tensor(v, None) for v in step.outputs], parsed)


def _is_options(value: Value) -> bool:
    return value.extension and split_extension_code(value.type)[1] == OPTIONS_TYPE.number


def _tensor(value: Value, array: Array | None) -> HostTensor:
    return HostTensor(array, value.dims if array is None else array.shape, element_type(value), value.scale, value.zero_point)


def element_type(value: Value) -> np.dtype[Any]:
    """NumPy's element type of a value; bytes where none is declared."""
    declared = TYPES.operand_type(value.type) if value.extension else TYPE_FACTS.get(value.type)
    return np.dtype((declared.dtype if declared is not None else None) or "u1")
