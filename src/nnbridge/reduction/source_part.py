"""The part of a model's source file that stands for a part of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import named_inputs, sign_flipped
from nnbridge.compare.tensors import channels_last, file_names
from nnbridge.converters import ConversionOptions, opened
from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import operand_dtype
from nnbridge.file import load
from nnbridge.model import Model, Operand, Subgraph
from nnbridge.reduction.parts import ReductionCandidate, part
from nnbridge.types import OperationCode


def source_part(path: Path, model: Model, operations: Iterable[int]) -> bytes:
    """A file with the operators that some operations of its model come from.

    Operators that became several operations are whole; so are those whose results the file has no name for. ConversionError
    where the file's format is not written, or where the part cannot be cut out of it.
    """
    found = part(model, _whole_operators(model.main, set(operations)))
    names = {operand.name for operand in model.main.operands}
    starts = [found.main.operands[i] for i in found.main.inputs]
    inputs = {_in_file(operand, names): () if channels_last(operand) else operand.dims for operand in starts}
    outputs = dict.fromkeys(_in_file(found.main.operands[i], names) for i in found.main.outputs)
    # An input in another layout is the same tensor of the file; results that no one reads may have no name there.
    ends = [name for name in outputs if name and name not in inputs]
    if not ends:
        raise ConversionError(Reason("operations that come from operators of the file", "none", file=str(path)))
    return opened(path).part(inputs, ends)


def _in_file(operand: Operand, names: Collection[str]) -> str:
    """The name of an operand's tensor in the file."""
    base, mark, number = operand.name.rpartition("#")
    unique = bool(mark) and number.isdecimal() and base in names
    found = file_names(base if unique else operand.name)
    return found[-1] if found else ""


def _whole_operators(main: Subgraph, chosen: set[int]) -> set[int]:
    """The operations, all others of the same operators, and those between which the file has no tensor."""
    by_source: dict[object, list[int]] = {}
    for k, operation in enumerate(main.operations):
        if operation.source is not None:
            by_source.setdefault(_outermost(operation.source), []).append(k)
    while True:
        grown = set(chosen)
        for k in chosen:
            operation = main.operations[k]
            if operation.source is not None:
                grown.update(by_source[_outermost(operation.source)])
            unnamed = [i for i in (*operation.inputs, *operation.outputs) if not main.operands[i].name]
            grown.update(main.producers[i] for i in unnamed if i in main.producers)
            grown.update(reader for i in unnamed if i in main.producers for reader in main.consumers.get(i, ()))
        if grown == chosen:
            return chosen
        chosen = grown


def _outermost(source: object) -> object:
    """The operator of the main subgraph: what an inlined subgraph's operators were called by."""
    callers = getattr(source, "callers", ())
    return callers[0] if callers else getattr(source, "index", None)


def loaded_part(
    path: Path, whole: Model, values: Mapping[int, Array], options: ConversionOptions
) -> Iterator[ReductionCandidate]:
    """The model of a part's file with values of a run of the whole for its inputs, none if one is missing.

    Where the file leaves dimensions open, the model with those of the values, then with open ones, converted otherwise maybe.
    """
    options = replace(options, signature="", shapes={})
    model = load(path, options)
    found = inputs_of_part(model, whole, values)
    if found is not None and any(0 in operand.dims for operand in named_inputs(model).values()):
        stated = load(path, replace(options, shapes={name: value.shape for name, value in found.items()}))
        fitted = inputs_of_part(stated, whole, values)
        if fitted is not None:
            yield ReductionCandidate(stated, fitted)
    if found is not None:
        yield ReductionCandidate(model, found)


def inputs_of_part(found: Model, whole: Model, values: Mapping[int, Array]) -> dict[str, Array] | None:
    """Values of a run of the whole for the inputs of a file's part, in its types and layouts; None if one is missing."""
    names = {operand.name for operand in whole.main.operands}
    known = {_in_file(operand, names): i for i, operand in reversed(list(enumerate(whole.main.operands))) if i in values}
    inputs = {}
    for name, operand in named_inputs(found).items():
        i = known.get(_in_file(operand, ()))
        if i is None:
            return None
        value = _converted(operand, whole.main.operands[i], _as_file_has_it(whole.main, i, values[i]))
        if value is None:
            return None
        inputs[name] = value
    return inputs


def _as_file_has_it(main: Subgraph, i: int, value: Array) -> Array:
    """Rows that were flattened from images with channels last are in that order here, in the file in its own."""
    operation = main.operations[main.producers[i]] if i in main.producers else None
    if operation is None or operation.type != OperationCode.RESHAPE or value.ndim != 2:
        return value
    image = main.operands[operation.inputs[0]]
    if not channels_last(image) or len(image.dims) < 3 or 0 in image.dims or image.dims[0] != value.shape[0]:
        return value
    return np.moveaxis(value.reshape(image.dims), -1, 1).reshape(value.shape)


def _converted(operand: Operand, source: Operand, value: Array) -> Array | None:
    if channels_last(source) and not channels_last(operand) and value.ndim > 2:
        value = np.moveaxis(value, -1, 1)
    dtype = operand_dtype(operand)
    if value.dtype != dtype and {value.dtype, dtype} == {np.dtype(np.int8), np.dtype(np.uint8)}:
        value = sign_flipped(operand if operand.source_type else source, value)
    return np.ascontiguousarray(value) if value.dtype == dtype else None
