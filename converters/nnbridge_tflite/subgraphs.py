"""One subgraph of a file on its way to drafted operations: interface, folding, lowering, the host for the rest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import ConversionError, Reason
from nnbridge_tflite import families
from nnbridge_tflite.arity import check_arity
from nnbridge_tflite.checks import check_activation, check_semantics
from nnbridge_tflite.delegate import refusal
from nnbridge_tflite.extension import extension_code, options_value
from nnbridge_tflite.fold import fold
from nnbridge_tflite.graph import Operator, Subgraph
from nnbridge_tflite.host_reference import shapes
from nnbridge_tflite.kernels import STATES
from nnbridge_tflite.kernels_sixteen import SIXTEEN
from nnbridge_tflite.lowering import Form, Lowerer
from nnbridge_tflite.options import carried_parameters, host_options
from nnbridge_tflite.reader import TfliteFile
from nnbridge_tflite.through_float import FloatLowerer, has_sixteen_bits
from nnbridge_tflite.values import Values
from nnbridge_tflite.variables import Key, Variables

DELEGATE, WIDE, HOST_MAPPING, FOLDED, DEAD = "delegate", "wide", "host", "folded", "dead"
STATE, INLINED = "state", "inlined"

MAX_DEPTH = 16
"""Subgraphs that call each other."""

MAX_REPEATS = 100
"""How often a tensor may be listed as an output: each time after the first is a copy."""

EFFECTS = frozenset(
    {"ASSIGN_VARIABLE", "CALL", "CALL_ONCE", "HASHTABLE_IMPORT", "IF", "STABLEHLO_COMPOSITE", "VAR_HANDLE", "WHILE"}
)
"""Operators that may change more than their outputs."""

RESOURCE = "RESOURCE"

APPLIED = ("body_subgraph_index", "update_computation_subgraph_index")
"""Options of operators that apply a subgraph to pairs of elements."""


@dataclass
class Context:
    """What all subgraphs of a conversion share."""

    file: TfliteFile
    options: ConversionOptions
    operators_left: int
    """How many operators of called subgraphs may still be converted; a subgraph may be called from many places."""
    tables: dict[Key, tuple[Value, Value]] = field(default_factory=dict)
    """Keys and values of hash tables."""
    inner: dict[tuple[int, int], Mapped] = field(default_factory=dict)
    """Operators of called subgraphs, by subgraph and index."""
    initialised: set[int] = field(default_factory=set)
    """Subgraphs that CALL_ONCE has run."""


Handler: TypeAlias = "Callable[[SubgraphConversion, Operator], Mapped]"

HANDLERS: dict[str, Handler] = {}
"""Operators that need more of a conversion than their operands: control flow, variables, tables."""


class SubgraphConversion:
    """One subgraph, or a call of one, being drafted."""

    def __init__(
        self, context: Context, number: int, graph: Subgraph, draft: Draft, variables: Variables, callers: tuple[int, ...] = ()
    ) -> None:
        self.context = context
        self.number = number
        self.graph = graph
        self.draft = draft
        self.variables = variables
        self.values = Values(context.file, graph.tensors, graph.written, draft, variables, number)
        self.placements: list[Mapped] = []
        self.handles: dict[int, Key] = {}
        """Resource tensors: which variable or table they stand for."""
        self._callers = callers

    def subgraph(self, number: int, operator: Operator) -> Subgraph:
        """A subgraph that an operator names."""
        subgraphs = self.context.file.graph.subgraphs
        if not 0 <= number < len(subgraphs):
            raise ConversionError(Reason(f"a subgraph below {len(subgraphs)}", str(number), operator.label))
        return subgraphs[number]

    def callee(self, number: int, operator: Operator, draft: Draft, variables: Variables) -> SubgraphConversion:
        """The conversion of a subgraph that an operator calls."""
        called = self.subgraph(number, operator)
        callers = (*self._callers, self.number)
        if number in callers or len(callers) > MAX_DEPTH:
            rule = f"subgraphs that do not call themselves, at most {MAX_DEPTH} deep"
            raise ConversionError(Reason(rule, " > ".join(map(str, (*callers, number))), operator.label))
        self.context.operators_left -= len(called.operators) + 1
        if self.context.operators_left < 0:
            raise ConversionError(Reason("fewer calls of subgraphs", "more operators than the file accounts for", operator.label))
        return SubgraphConversion(self.context, number, called, draft, variables, callers)

    def convert(self) -> None:
        """Draft every operator; inputs have been made."""
        needed = self._needed()
        for operator in self.graph.operators:
            check_semantics(operator, self.values)
            if operator.index in needed:
                self.placements.append(self._place_safely(operator))
            else:
                self.placements.append(Mapped(operator.index, operator.name, DEAD))

    def report(self, hosted: Reason | None = None) -> None:
        """Tell what became of a called subgraph's operators; ``hosted`` is why the host runs it, NNAPI's operations included."""
        for placed in self.placements:
            told = replace(placed, subgraph=self.number)
            if hosted is not None and placed.mapping in (DELEGATE, WIDE):
                told = replace(told, mapping=HOST_MAPPING, reasons=(hosted,))
            self.context.inner[self.number, placed.index] = told

    def outputs(self) -> list[Value]:
        """The values of the subgraph's outputs that are not handles."""
        return [self.values.value(i) for i in self.graph.outputs if not self.is_handle(i)]

    def is_handle(self, index: int) -> bool:
        """True for a tensor that stands for a variable or a table."""
        return self.graph.tensors[index].type.name == RESOURCE

    # -- the file's graph -------------------------------------------------------------------------------------------

    def check_interface(self, *, main: bool = True) -> None:
        """Arities, and inputs and outputs that a model can have: some outputs, inputs listed once and not written."""
        for operator in self.graph.operators:
            check_arity(operator)
            check_activation(operator)
        graph = self.graph
        if main and not graph.outputs:
            raise ConversionError(Reason(f"at least one output of subgraph {self.number}", "none"))
        if len(set(graph.inputs)) != len(graph.inputs):
            raise ConversionError(Reason(f"each input of subgraph {self.number} listed once", str(list(graph.inputs))))
        repeated = max(Counter(graph.outputs).values(), default=0)
        if repeated > MAX_REPEATS:
            rule = f"each output of subgraph {self.number} listed at most {MAX_REPEATS} times"
            raise ConversionError(Reason(rule, str(repeated)))
        self.values.make_inputs(graph.inputs)
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
                raise ConversionError(Reason(f"an output of subgraph {self.number} that is written", graph.tensors[i].label))

    def _needed(self) -> frozenset[int]:
        """Operators that an output depends on."""
        wanted, needed = set(self.graph.outputs), set()
        for operator in reversed(self.graph.operators):
            effects = operator.name in EFFECTS and not operator.custom
            if (
                effects
                or wanted.intersection(operator.outputs)
                or any(i >= 0 and self.values.is_state(i) for i in operator.inputs)
            ):
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
        handler = None if operator.custom else HANDLERS.get(operator.name)
        if handler is not None:
            return handler(self, operator)
        if fold(operator, self.values):
            return Mapped(operator.index, operator.name, FOLDED)
        reasons: list[Reason] = []
        if has_sixteen_bits(operator, self.graph) and operator.name in SIXTEEN and not operator.custom:
            return self.host(operator, [Reason("8-bit or floating activations", "16-bit ones", operator.label)])
        refused = refusal(operator, self.values, self.context.options.feature_level)
        for form in families.forms(operator):
            for mapping in self._mappings(form, refused):
                tried = self._try(form, operator, mapping)
                if isinstance(tried, str):
                    return Mapped(operator.index, operator.name, tried, tuple(reasons))
                if tried not in reasons:
                    reasons.append(tried)
        if refused is not None and self.context.options.mapping == DELEGATE:
            reasons.insert(0, refused)
        elif not reasons:
            reasons.append(Reason("an operator that NNAPI can express", operator.name, operator.label))
        return self.host(operator, reasons)

    def _body(self, operator: Operator) -> str:
        """The only operator of the subgraph that an operator applies to pairs of elements; empty if there is another."""
        index = next((operator.options[name] for name in APPLIED if name in operator.options), None)
        subgraphs = self.context.file.graph.subgraphs
        if index is None or not 0 <= index < len(subgraphs) or len(subgraphs[index].operators) != 1:
            return ""
        return subgraphs[index].operators[0].name

    def _mappings(self, form: Form, refused: Reason | None) -> tuple[str, ...]:
        """As what a form is tried: as the delegate does it where the delegate would, more freely where that is allowed."""
        as_delegate = () if form.wide or refused is not None else (DELEGATE,)
        return as_delegate if self.context.options.mapping == DELEGATE else (*as_delegate, WIDE)

    def _try(self, form: Form, operator: Operator, mapping: str) -> Reason | str:
        """Lower an operator in one form: the mapping that came of it, or why it does not work, with nothing left behind."""
        steps = len(self.draft.steps)
        try:
            lowerer = self._lowered(form, operator, mapping)
        except Unmappable as error:
            del self.draft.steps[steps:]
            return error.reason
        for index, value in zip(operator.outputs, lowerer.outputs, strict=True):
            self.values.commit(index, value)
        for place, value in lowerer.carried.items():
            if lowerer.is_state(place):
                self.values.carry(operator.inputs[place], value)
        return lowerer.mapping

    def _lowered(self, form: Form, operator: Operator, mapping: str) -> Lowerer:
        folds = self.context.options.mapping == WIDE
        if mapping == WIDE and has_sixteen_bits(operator, self.graph):
            through = FloatLowerer(operator, self.values, mapping, free=folds)
            quantised = through.open_outputs()
            form.lower(through)
            through.close_outputs(quantised)
            return through
        lowerer = Lowerer(operator, self.values, mapping, free=folds)
        form.lower(lowerer)
        return lowerer

    def host(self, operator: Operator, reasons: Sequence[Reason] = (), memory: Key | None = None) -> Mapped:
        """Emit the operator as an operation of the host extension, its options kept as JSON.

        ``memory`` is a variable that the operator has beside its operands: one more input, and one more output.
        """
        inputs = [self.values.value(i) if i >= 0 else self.draft.omitted(0) for i in operator.inputs]
        outputs = [self.values.fresh_output(i) for i in operator.outputs]
        if not outputs:
            raise ConversionError(Reason("an operator with outputs", "none", operator.label))
        sides = {"inputs": [v.extension for v in inputs], "outputs": [v.extension for v in outputs]}
        carried = carried_parameters(operator, self.graph.tensors, sides)
        options = {**host_options(operator, self.graph.tensors, self._body(operator)), **carried}
        states = [place for place, i in enumerate(operator.inputs) if i >= 0 and self.values.is_state(i)]
        if states:
            options[STATES] = states
        kept = [self.values.fresh_output(operator.inputs[place]) for place in states]
        if memory is not None:
            inputs.append(self.variables.read(memory))
            options[STATES] = [*states, len(inputs) - 1]
            kept.append(inputs[-1].like())
        text = json.dumps(options, separators=(",", ":"), default=str).encode()
        name = f"{operator.index}: {operator.name} {outputs[0].name}"
        step = Step(extension_code(operator.code), (*inputs, options_value(text)), (*outputs, *kept), name, HOST_MAPPING)
        found = shapes(operator, self.values)
        if found is None:
            self.values.infer_host_dims(operator, step)
        else:
            for value, dims in zip(outputs, found, strict=True):
                value.dims = dims
        self.draft.add(step)
        for index, value in zip(operator.outputs, outputs, strict=True):
            self.values.commit(index, value)
        for place, value in zip(states, kept, strict=False):
            self.values.carry(operator.inputs[place], value)
        if memory is not None:
            self.variables.assign(memory, kept[-1])
        return Mapped(operator.index, operator.name, HOST_MAPPING, tuple(reasons))
