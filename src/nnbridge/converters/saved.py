"""The importer of saved models (``.nnapi`` files), and their edits.

Edits: fused activations as operations, and other values of the scalars that operations have as inputs.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from nnbridge import storage
from nnbridge.builder import ModelBuilder
from nnbridge.converters import ConversionOptions, Importer
from nnbridge.converters.edits import Adjustable, Content, Edit, Parameter, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model, Operand, Operation
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, NeedsValue
from nnbridge.operations.evaluate import make_call, resolve
from nnbridge.operations.matching import input_places
from nnbridge.storage.saved_model import write_model
from nnbridge.types import FuseCode, Lifetime, OperandCode, OperationCode, operation_name

_SCALARS = (OperandCode.INT32, OperandCode.UINT32, OperandCode.BOOL, OperandCode.FLOAT32)
_ACTIVATION = "activation"
_APART = {FuseCode.RELU: OperationCode.RELU, FuseCode.RELU1: OperationCode.RELU1, FuseCode.RELU6: OperationCode.RELU6}
_WORDS: Mapping[str, Mapping[int, str]] = {
    _ACTIVATION: {int(code): code.name for code in FuseCode},
    "padding_scheme": {1: "SAME", 2: "VALID"},
    "padding": {1: "SAME", 2: "VALID"},
}
"""Scalars whose numbers have names."""
_HIGH = 4096


class SavedModelFile(Importer):
    """A model that ``nnbridge convert`` wrote; no option changes it."""

    name = "nnapi"
    suffixes = (storage.SUFFIX,)
    magic = ((4, storage.MAGIC),)
    options = ()

    @cached_property
    def model(self) -> Model:
        """The model; clients of the C library give theirs no name."""
        model = storage.load(self.path)
        return model if model.name else replace(model, name=self.path.stem)

    def convert(self, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
        """The model as it was saved."""
        return self.model, ()

    def edits(self, options: ConversionOptions) -> Iterator[Edit]:
        """Every rewrite that applies to an operation of the main model."""
        model = self._editable
        for index, operation in enumerate(model.main.operations if model else ()):
            if model and _activation(model, operation) in _APART:
                content, single = (partial(_content, model, index, {}, True, one) for one in (False, True))
                name = operation_name(operation.type)
                yield Edit(
                    *_key(operation, index), name, "its fused activation as an operation of its own", content, alone=single
                )

    def adjustable(self, subgraph: int, index: int) -> Adjustable | None:
        """An operation's scalars; None for operations of bodies, and in models with control flow or extensions."""
        model = self._editable
        operations = model.main.operations if model else ()
        place = next((k for k, operation in enumerate(operations) if _key(operation, k) == (subgraph, index)), None)
        if model is None or place is None:
            return None
        operation = operations[place]
        parameters = tuple(_parameters(model, operation))

        def content(changes: Mapping[str, Value], alone: bool) -> Content:
            return _content(model, place, changes, False, alone)

        return Adjustable(operation_name(operation.type), parameters, content)

    @property
    def _editable(self) -> Model | None:
        return None if self.model.referenced or self.model.extensions else self.model


def _key(operation: Operation, index: int) -> tuple[int, int]:
    """The key that reports count operations by: the operator of the file that one came from, or its own index."""
    return (0, index) if operation.source is None else operation.source.key


def _activation(model: Model, operation: Operation) -> int:
    place = input_places(model, operation).get(_ACTIVATION, -1)
    value = model.value(model.main.operands[operation.inputs[place]]) if place >= 0 else None
    return -1 if value is None else int(value)


def _parameters(model: Model, operation: Operation) -> Iterator[Parameter]:
    for name, place in input_places(model, operation).items():
        operand = model.main.operands[operation.inputs[place]]
        value = model.value(operand) if operand.is_constant and operand.type in _SCALARS else None
        if value is None:
            continue
        old, words = value.item(), _WORDS.get(name, {})
        if old in words:
            yield Parameter(name, words[old], tuple(word for code, word in words.items() if code != old))
        elif operand.type == OperandCode.BOOL:
            yield Parameter(name, int(old), (1 - int(old),))
        elif operand.type != OperandCode.FLOAT32:
            yield Parameter(name, int(old), low=0, high=_HIGH)


def _content(model: Model, index: int, changes: Mapping[str, Value], apart: bool, alone: bool) -> Content:
    file = io.BytesIO()
    write_model(_Edited(model, index, changes, apart, alone).built(), file)
    return Content.of(file.getvalue())


class _Edited:
    """A model being built again; dimensions after the edit are recomputed."""

    def __init__(self, model: Model, index: int, changes: Mapping[str, Value], apart: bool, alone: bool) -> None:
        self._model, self._index, self._changes, self._apart = model, index, changes, apart
        self._operations = [index] if alone else list(range(len(model.main.operations)))
        self._alone = alone
        self._builder = ModelBuilder(model.name)
        self._copies: dict[int, int] = {}
        self._dims: dict[int, tuple[int, ...]] = {}

    def built(self) -> Model:
        """The edited model."""
        main = self._model.main
        for i in () if self._alone else main.inputs:
            self._copy(i)
        for k in self._operations:
            self._add(main.operations[k], k == self._index)
        inputs = list(main.inputs) if not self._alone else self._open_inputs()
        outputs = main.operations[self._index].outputs if self._alone else main.outputs
        self._builder.identify_inputs_and_outputs([self._copies[i] for i in inputs], [self._copies[i] for i in outputs])
        self._builder.relax_computation_float32_to_float16(self._model.relaxed)
        return self._builder.finish()

    def _open_inputs(self) -> list[int]:
        operation, operands = self._model.main.operations[self._index], self._model.main.operands
        read = dict.fromkeys(operation.inputs)
        return [i for i in read if not operands[i].is_constant and operands[i].lifetime is not Lifetime.NO_VALUE]

    def _copy(self, i: int, dims: tuple[int, ...] | None = None) -> int:
        if i not in self._copies:
            operand = self._model.main.operands[i]
            self._dims[i] = operand.dims if dims is None else dims
            self._copies[i] = self._declared(operand, self._dims[i])
            if operand.lifetime is Lifetime.NO_VALUE:
                self._builder.set_operand_value(self._copies[i], None)
            elif operand.is_constant:
                self._builder.set_operand_value(self._copies[i], self._model.bytes_of(operand))
        return self._copies[i]

    def _declared(self, operand: Operand, dims: tuple[int, ...], name: str = "") -> int:
        quantisation = {"scale": operand.scale, "zero_point": operand.zero_point}
        index = self._builder.add_operand(operand.type, dims, **quantisation, name=name or operand.name)  # type: ignore[arg-type]
        if operand.channel_quant is not None:
            scales, axis = operand.channel_quant.scales, operand.channel_quant.channel_dim
            self._builder.set_operand_symm_per_channel_quant_params(index, scales, axis)
        return index

    def _add(self, operation: Operation, edited: bool) -> None:
        inputs = [self._copy(i) for i in operation.inputs]
        operands, args = self._model.main.operands, []
        changed = self._changed(operation) if edited else {}
        for place, i in enumerate(operation.inputs):
            operand = operands[i]
            value = self._model.value(operand) if operand.is_constant else None
            if place in changed:
                inputs[place] = self._declared(operand, ())
                self._builder.set_operand_value(inputs[place], changed[place])
                value = None if value is None else value.dtype.type(changed[place]).reshape(value.shape)
            present = operand.lifetime is not Lifetime.NO_VALUE
            args.append(Arg.of(operand, value, present=present).replace(dims=self._dims[i]))
        outputs = [self._copy(i, dims) for i, dims in zip(operation.outputs, self._shapes(operation, args), strict=True)]
        if edited and self._apart:
            out = operands[operation.outputs[0]]
            before = self._declared(out, self._dims[operation.outputs[0]], "before activation")
            activation = _APART[FuseCode(_activation(self._model, operation))]
            steps = [(operation.type, inputs, [before]), (activation, [before], outputs)]
        else:
            steps = [(operation.type, inputs, outputs)]
        for step in steps:
            self._builder.add_operation(*step, name=operation.name, mapping=operation.mapping, source=operation.source)

    def _changed(self, operation: Operation) -> dict[int, float]:
        """Positions of inputs → new values."""
        places = input_places(self._model, operation)
        if self._apart:
            return {places[_ACTIVATION]: int(FuseCode.NONE)}
        codes = {name: {word: code for code, word in words.items()} for name, words in _WORDS.items()}
        return {places[n]: codes[n][value] if isinstance(value, str) else value for n, value in self._changes.items()}

    def _shapes(self, operation: Operation, args: Sequence[Arg]) -> list[tuple[int, ...]]:
        declared, outs = definition(operation.type), [self._model.main.operands[i] for i in operation.outputs]
        if declared is None:
            raise ConversionError(Reason("an operation that NNAPI defines", operation_name(operation.type)))
        if any(arg.present and 0 in arg.dims for arg in args):
            return [out.dims for out in outs]
        try:
            found = resolve(make_call(declared, args, [Arg.of(out) for out in outs]))
        except NeedsValue:
            return [out.dims for out in outs]
        return [tuple(max(d, 0) for d in arg.dims) for arg in found]
