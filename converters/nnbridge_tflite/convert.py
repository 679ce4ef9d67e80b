"""The whole way from a path to a :class:`~nnbridge.model.Model`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.draft import Draft, Step, Unmappable
from nnbridge.errors import ConversionError, NnapiError, Reason
from nnbridge.extensions import TYPES
from nnbridge.inspection import Mapped
from nnbridge.model import Model
from nnbridge_tflite import families
from nnbridge_tflite.arity import check_arity
from nnbridge_tflite.assemble import assemble
from nnbridge_tflite.checks import check_activation, check_semantics
from nnbridge_tflite.delegate import refusal
from nnbridge_tflite.extension import extension_code, options_value
from nnbridge_tflite.fold import fold
from nnbridge_tflite.graph import Graph, Operator, Signature, Subgraph
from nnbridge_tflite.host import HOST
from nnbridge_tflite.host_reference import shapes
from nnbridge_tflite.kernels import STATES
from nnbridge_tflite.lowering import Form, Lowerer
from nnbridge_tflite.options import carried_parameters, host_options
from nnbridge_tflite.reader import TfliteFile, read
from nnbridge_tflite.through_float import FloatLowerer, has_sixteen_bits
from nnbridge_tflite.values import Values

DELEGATE, WIDE, HOST_MAPPING, FOLDED, DEAD = "delegate", "wide", "host", "folded", "dead"

SPARE_ELEMENTS, PER_BYTE = 1 << 24, 2
"""How many elements of new constants a file may ask for: some, and as many as its weights unpack to."""


def convert(path: Path, options: ConversionOptions) -> Model:
    """Convert a file. ConversionError names the file and what is wrong in it."""
    return convert_with_report(path, options)[0]


def convert_with_report(path: Path, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
    """Convert a file, and say what became of each operator."""
    file = read(path)
    try:
        return _Conversion(file, options).run()
    except ConversionError as error:
        raise ConversionError(_in_file(error.reason, path)) from error
    except NnapiError as error:
        raise ConversionError(_in_file(error.reason, path)) from error


def _in_file(reason: Reason, path: Path) -> Reason:
    """The reason with the file's name before the place in it."""
    return replace(reason, operation=f"{path} {reason.operation}".rstrip())


def _signature(graph: Graph, key: str) -> Signature:
    found = next((s for s in graph.signatures if s.key == key), None)
    if found is None:
        keys = ", ".join(s.key for s in graph.signatures) or "no signatures"
        raise ConversionError(Reason(f"a signature of the file ({keys})", key, operand="--signature"))
    return found


def _called(graph: Graph, signature: Signature | None) -> Subgraph:
    """The subgraph that is converted, with the outputs that are asked for."""
    if signature is None:
        return graph.main
    subgraph = graph.subgraphs[signature.subgraph]
    return replace(subgraph, inputs=tuple(signature.inputs.values()), outputs=tuple(signature.outputs.values()))


class _Conversion:
    """One conversion of subgraph 0, or of the subgraph that a signature calls."""

    def __init__(self, file: TfliteFile, options: ConversionOptions) -> None:
        TYPES.register(HOST)
        families.load()
        self._file = file
        self._options = options
        self._signature = _signature(file.graph, options.signature) if options.signature else None
        self._graph: Subgraph = _called(file.graph, self._signature)
        self._draft = Draft(options.feature_level, SPARE_ELEMENTS + PER_BYTE * len(file.pool))
        self._values = Values(file, self._graph.tensors, self._graph.written, self._draft)
        self._placements: list[Mapped] = []

    def run(self) -> tuple[Model, tuple[Mapped, ...]]:
        for operator in self._graph.operators:
            check_arity(operator)
            check_activation(operator)
        self._check_interface()
        self._resize_inputs()
        needed = self._needed()
        for operator in self._graph.operators:
            check_semantics(operator, self._values)
            if operator.index in needed:
                self._placements.append(self._place_safely(operator))
            else:
                self._placements.append(Mapped(operator.index, operator.name, DEAD))
        for name, i in self._signature.outputs.items() if self._signature else ():
            if i not in self._graph.inputs and not self._values.value(i).constant:
                self._values.value(i).name = name
        return assemble(self._file, self._graph, self._values, self._draft), tuple(self._placements)

    # -- the file's graph -------------------------------------------------------------------------------------------

    def _check_interface(self) -> None:
        """Inputs and outputs that a model can have: some of each, inputs listed once and not written."""
        graph = self._graph
        if not graph.outputs:
            raise ConversionError(Reason("at least one output of subgraph 0", "none"))
        if len(set(graph.inputs)) != len(graph.inputs):
            raise ConversionError(Reason("each input of subgraph 0 listed once", str(list(graph.inputs))))
        self._values.make_inputs(graph.inputs)
        for name, i in self._signature.inputs.items() if self._signature else ():
            self._values.value(i).name = name
        readable = set(graph.inputs)
        for operator in graph.operators:
            for i in operator.inputs:
                if i >= 0 and i in graph.written and i not in readable and not graph.tensors[i].is_variable:
                    raise ConversionError(
                        Reason("inputs that an earlier operator writes", graph.tensors[i].label, operator.label)
                    )
            for i in operator.outputs:
                if i in readable or graph.tensors[i].data is not None:
                    raise ConversionError(Reason("outputs that are written once", graph.tensors[i].label, operator.label))
                readable.add(i)
        for i in graph.outputs:
            if i not in readable and graph.tensors[i].data is None:
                raise ConversionError(Reason("an output of subgraph 0 that is written", graph.tensors[i].label))

    def _resize_inputs(self) -> None:
        """Give inputs the dimensions that the user wants."""
        by_name = {self._graph.tensors[i].name: i for i in self._graph.inputs}
        for name, dims in self._options.shapes.items():
            if name not in by_name:
                raise ConversionError(Reason(f"an input ({', '.join(by_name)})", name, operand="shapes"))
            if any(d <= 0 for d in dims):
                raise ConversionError(Reason("dimensions above 0", str(list(dims)), operand=name))
            self._values.value(by_name[name]).dims = tuple(dims) or (1,)

    def _needed(self) -> frozenset[int]:
        """Operators that an output depends on."""
        wanted, needed = set(self._graph.outputs), set()
        for operator in reversed(self._graph.operators):
            if wanted.intersection(operator.outputs) or any(i >= 0 and self._values.is_state(i) for i in operator.inputs):
                needed.add(operator.index)
                wanted.update(i for i in operator.inputs if i >= 0)
        return frozenset(needed)

    # -- one operator -----------------------------------------------------------------------------------------------

    def _place_safely(self, operator: Operator) -> Mapped:
        """Options and constants may hold any number; what Python cannot make sense of is the file's fault."""
        try:
            with np.errstate(all="ignore"):
                return self._place(operator)
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError, MemoryError) as error:
            raise ConversionError(Reason("operands that fit the operator", str(error), operator.label)) from error

    def _place(self, operator: Operator) -> Mapped:
        """Fold, lower in the first form that works, or hand to the host."""
        if fold(operator, self._values):
            return Mapped(operator.index, operator.name, FOLDED)
        reasons: list[Reason] = []
        refused = refusal(operator, self._values, self._options.feature_level)
        for form in families.forms(operator):
            for mapping in self._mappings(form, refused):
                tried = self._try(form, operator, mapping)
                if isinstance(tried, str):
                    return Mapped(operator.index, operator.name, tried, tuple(reasons))
                if tried not in reasons:
                    reasons.append(tried)
        if refused is not None and self._options.mapping == DELEGATE:
            reasons.insert(0, refused)
        elif not reasons:
            reasons.append(Reason("an operator that NNAPI can express", operator.name, operator.label))
        self._host(operator)
        return Mapped(operator.index, operator.name, HOST_MAPPING, tuple(reasons))

    def _mappings(self, form: Form, refused: Reason | None) -> tuple[str, ...]:
        """As what a form is tried: as the delegate does it where the delegate would, more freely where that is allowed."""
        as_delegate = () if form.wide or refused is not None else (DELEGATE,)
        return as_delegate if self._options.mapping == DELEGATE else (*as_delegate, WIDE)

    def _try(self, form: Form, operator: Operator, mapping: str) -> Reason | str:
        """Lower an operator in one form: the mapping that came of it, or why it does not work, with nothing left behind."""
        steps = len(self._draft.steps)
        try:
            lowerer = self._lowered(form, operator, mapping)
        except Unmappable as error:
            del self._draft.steps[steps:]
            return error.reason
        for index, value in zip(operator.outputs, lowerer.outputs, strict=True):
            self._values.commit(index, value)
        for place, value in lowerer.carried.items():
            if lowerer.is_state(place):
                self._values.carry(operator.inputs[place], value)
        return lowerer.mapping

    def _lowered(self, form: Form, operator: Operator, mapping: str) -> Lowerer:
        folds = self._options.mapping == WIDE
        if mapping == WIDE and has_sixteen_bits(operator, self._graph):
            through = FloatLowerer(operator, self._values, mapping, folds_weights=folds)
            quantised = through.open_outputs()
            form.lower(through)
            through.close_outputs(quantised)
            return through
        lowerer = Lowerer(operator, self._values, mapping, folds_weights=folds)
        form.lower(lowerer)
        return lowerer

    def _host(self, operator: Operator) -> None:
        """Emit the operator as an operation of the host extension, its options kept as JSON."""
        inputs = [self._values.value(i) if i >= 0 else self._draft.omitted(0) for i in operator.inputs]
        outputs = [self._values.fresh_output(i) for i in operator.outputs]
        if not outputs:
            raise ConversionError(Reason("an operator with outputs", "none", operator.label))
        sides = {"inputs": [v.extension for v in inputs], "outputs": [v.extension for v in outputs]}
        carried = carried_parameters(operator, self._graph.tensors, sides)
        options = {**host_options(operator, self._graph.tensors), **carried}
        states = [place for place, i in enumerate(operator.inputs) if i >= 0 and self._values.is_state(i)]
        if states:
            options[STATES] = states
        kept = [self._values.fresh_output(operator.inputs[place]) for place in states]
        text = json.dumps(options, separators=(",", ":"), default=str).encode()
        name = f"{operator.index}: {operator.name} {outputs[0].name}"
        step = Step(extension_code(operator.code), (*inputs, options_value(text)), (*outputs, *kept), name, HOST_MAPPING)
        found = shapes(operator, self._values)
        if found is None:
            self._values.infer_host_dims(operator, step)
        else:
            for value, dims in zip(outputs, found, strict=True):
                value.dims = dims
        self._draft.add(step)
        for index, value in zip(operator.outputs, outputs, strict=True):
            self._values.commit(index, value)
        for place, value in zip(states, kept, strict=True):
            self._values.carry(operator.inputs[place], value)
