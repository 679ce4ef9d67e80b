"""One subgraph of a file on its way to drafted operations: interface, folding, lowering, the host for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import needed
from nnbridge.converters.declaration import Lowering
from nnbridge.converters.draft import Draft, Step, Unmappable, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, Reason, Stage, Why, first_line
from nnbridge.model import Source
from nnbridge.records import dataclass
from nnbridge.releases import within
from nnbridge_tflite.declaration import NO_SUBGRAPHS, TfliteOperator, definition_of
from nnbridge_tflite.host.codes import STATES, TENSORS, extension_code, options_value
from nnbridge_tflite.host.options import carried_parameters, host_options
from nnbridge_tflite.lowerer import HostFloatLowerer, Lowerer
from nnbridge_tflite.passes.folding import folded
from nnbridge_tflite.passes.prepared import with_written_types
from nnbridge_tflite.passes.shape_inference import infer_dims
from nnbridge_tflite.passes.states import Key, Variables
from nnbridge_tflite.passes.values import TensorValues
from nnbridge_tflite.read.graph import Operator, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.rules import OperatorView, refusals

MAX_DEPTH = 16
"""Subgraphs that call each other."""

MAX_REPEATS = 100
"""How often a tensor may be listed as an output: each time after the first is a copy."""

RESOURCE = "RESOURCE"

_WORK_OF_HOST = 6
"""How much of the budget of operations an operator on the host takes: its shapes are inferred by drafting all its lowerings."""


@dataclass
class Context:
    """The state that all subgraphs of a conversion share."""

    file: TfliteFile
    options: ConversionOptions
    operators_left: int
    """How many operators of called subgraphs may still be converted; a subgraph may be called from many operators."""
    tables: dict[Key, tuple[Value, Value]] = field(default_factory=dict)
    """Keys and values of hash tables."""
    inner: dict[tuple[int, int], Mapped] = field(default_factory=dict)
    """Operators of called subgraphs, by subgraph and index."""
    initialised: set[int] = field(default_factory=set)
    """Subgraphs that CALL_ONCE has run."""
    refused: Reason | None = None
    """Why TFLite refuses the delegate for every graph of the file, if it does."""
    failure: Reason | None = None
    """Why the model of what the delegate takes cannot be built, if that is so: all of it stays with TFLite."""
    relaxed: bool = False
    """True if a compiled partition may be computed in float16."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls that led to a subgraph."""

    subgraphs: tuple[int, ...] = ()
    """Calling subgraphs, outermost first."""
    inlined: tuple[int, ...] = ()
    """Indexes of the calling operators whose subgraphs are written out in the same model."""
    label: str = ""
    """The innermost of these."""


class Conversion:
    """One subgraph, or a call of one, while it is drafted."""

    def __init__(
        self, context: Context, number: int, graph: TfliteSubgraph, draft: Draft, variables: Variables, calls: Calls | None = None
    ) -> None:
        self.context = context
        self.number = number
        self.graph = graph = with_written_types(graph)
        self.draft = draft
        self.variables = variables
        self.values = TensorValues(context.file, graph.tensors, graph.written, draft, variables, number)
        self.placements: list[Mapped] = []
        self.handles: dict[int, Key] = {}
        """Resource tensors: which variable or table they stand for."""
        self._calls = calls or Calls()
        self._declared = {operator.index: definition_of(operator) for operator in graph.operators}

    def subgraph(self, number: int, operator: Operator) -> TfliteSubgraph:
        """A subgraph that an operator names."""
        subgraphs = self.context.file.graph.subgraphs
        if not 0 <= number < len(subgraphs):
            raise ConversionError(Reason(f"a subgraph below {len(subgraphs)}", str(number), operator.label))
        return subgraphs[number]

    def callee(self, number: int, operator: Operator, draft: Draft, variables: Variables) -> Conversion:
        """The conversion of a subgraph that an operator calls, inlined if it shares this one's draft."""
        called = self.subgraph(number, operator)
        callers = (*self._calls.subgraphs, self.number)
        if number in callers or len(callers) > MAX_DEPTH:
            rule = f"subgraphs that do not call themselves, at most {MAX_DEPTH} deep"
            raise ConversionError(Reason(rule, " > ".join(map(str, (*callers, number))), operator.label))
        self.context.operators_left -= len(called.operators) + 1
        if self.context.operators_left < 0:
            raise ConversionError(Reason("fewer calls of subgraphs", "more operators than the file accounts for", operator.label))
        inlined = (*self._calls.inlined, operator.index) if draft is self.draft else ()
        label = operator.label if draft is self.draft else ""
        return Conversion(self.context, number, called, draft, variables, Calls(callers, inlined, label))

    def source(self, operator: Operator) -> Source:
        """The origin of an operator's operations."""
        return Source(operator.index, operator.name, self.number, self._calls.inlined)

    @np.errstate(all="ignore")
    def convert(self) -> None:
        """Draft every operator that an output depends on; inputs have been created."""

        def lasting(operator: Operator) -> bool:
            declared = self._declared[operator.index]
            return (declared is not None and declared.effects) or any(i >= 0 and self.values.is_state(i) for i in operator.inputs)

        found = needed(
            self.graph.operators, self.graph.outputs, lambda o: [i for i in o.inputs if i >= 0], lambda o: o.outputs, lasting
        )
        alive = {operator.index for operator in found}
        self.draft.place(len(self.graph.operators), f"subgraph {self.number}")
        for operator in self.graph.operators:
            declared = self._declared[operator.index]
            self.check_operator(declared, operator)
            if operator.index in alive:
                self.placements.append(self._place_safely(declared, operator))
            else:
                self.placements.append(Mapped(operator.index, operator.name, MappingKind.DEAD))

    def check_operator(self, declared: TfliteOperator | None, operator: Operator) -> None:
        """ConversionError for an operator that makes the file wrong whatever it is mapped to."""
        if declared is not None and declared.check is not None:
            declared.check(OperatorView(operator, self.values))

    def report(self, hosted: Reason | None = None) -> None:
        """Report the outcome of a called subgraph's operators; ``hosted`` is why the host runs NNAPI's operations as well."""
        for placed in self.placements:
            outcome = replace(placed, subgraph=self.number)
            if hosted is not None and placed.mapping in (MappingKind.DELEGATE, MappingKind.WIDE):
                outcome = replace(outcome, mapping=MappingKind.HOST, reasons=(hosted,))
            self.context.inner[self.number, placed.index] = outcome

    def outputs(self) -> list[Value]:
        """The values of the subgraph's outputs that are not handles."""
        return [self.values.value(i) for i in self.graph.outputs if not self.is_handle(i)]

    def is_handle(self, index: int) -> bool:
        """True for a tensor that stands for a variable or a table."""
        return self.graph.tensors[index].type.name == RESOURCE

    # -- the file's graph -------------------------------------------------------------------------------------------

    def check_interface(self, *, main: bool = True) -> None:
        """Well-formed operators, and inputs and outputs that a model can have: some outputs, inputs listed once, not written."""
        graph = self.graph
        for operator in graph.operators:
            declared = self._declared[operator.index]
            if declared is not None:
                declared.check_operator(operator)
        if main and not graph.outputs:
            raise ConversionError(Reason(f"at least one output of subgraph {self.number}", "none"))
        if len(set(graph.inputs)) != len(graph.inputs):
            raise ConversionError(Reason(f"each input of subgraph {self.number} listed once", str(list(graph.inputs))))
        repeated = max(Counter(graph.outputs).values(), default=0)
        if repeated > MAX_REPEATS:
            rule = f"each output of subgraph {self.number} listed at most {MAX_REPEATS} times"
            raise ConversionError(Reason(rule, str(repeated)))
        self.values.make_inputs(graph.inputs)
        self._check_order()

    def _check_order(self) -> None:
        """Tensors are written once, and before they are read."""
        graph = self.graph
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

    # -- one operator -----------------------------------------------------------------------------------------------

    def _place_safely(self, declared: TfliteOperator | None, operator: Operator) -> Mapped:
        """Options and constants may hold any number; what Python cannot compute with is the file's fault."""
        try:
            return self._place(declared, operator)
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError, MemoryError) as error:
            raise ConversionError(Reason("operands that fit the operator", first_line(error), operator.label)) from error

    def _place(self, declared: TfliteOperator | None, operator: Operator) -> Mapped:
        """Fold, lower in the first way that works, or leave to the host."""
        if declared is not None and declared.handler is not None:
            mapped = declared.handler(self, operator)
            # Of these operators, the delegate's Validate knows none.
            reasons = tuple(reason if reason.stage else replace(reason, stage=Stage.DELEGATE) for reason in mapped.reasons)
            return replace(mapped, reasons=reasons) if mapped.mapping == MappingKind.HOST else mapped
        if self._fold(declared, operator):
            return Mapped(operator.index, operator.name, MappingKind.FOLDED)
        sixteen = self._has_sixteen_bits(declared, operator)
        unlowered = self._left_to_host(declared, operator, sixteen)
        return self._lower(declared, operator, through_host=sixteen) if unlowered is None else self.host(operator, [unlowered])

    def _fold(self, declared: TfliteOperator | None, operator: Operator) -> bool:
        """Compute what depends only on constants; True if no node remains, as one does where the delegate has one."""
        found = folded(declared, operator, self.values)
        node = not self._pruned(operator)
        remains = node and self.context.options.mapping == MappingKind.DELEGATE
        for index, array in zip(operator.outputs, found, strict=False):
            if remains:
                self.values.foresee(index, array)
            else:
                self.values.fold(index, array, node=node)
        return bool(found) and not remains

    def _left_to_host(self, declared: TfliteOperator | None, operator: Operator, sixteen: bool) -> Reason | None:
        """The reason why no lowering is tried at all."""
        if self.context.file.graph.is_compiled:
            return Reason("an operator of a compiled partition", operator.name, operator.label)
        if self.context.refused is not None:
            of_all = self.context.refused.stage is Stage.LOADING
            return self.context.refused if of_all else replace(self.context.refused, operation=operator.label)
        if self._calls.inlined and self.context.options.mapping == MappingKind.DELEGATE:
            # TFLite calls the subgraph, which is a graph of its own for the delegate.
            return Reason(NO_SUBGRAPHS, self._calls.label, operator.label, kind=Why.OPERATOR, stage=Stage.DELEGATE)
        # Under the delegate's mapping its own rules and NNAPI's say why.
        wide = self.context.options.mapping == MappingKind.WIDE
        if wide and sixteen and declared is not None and declared.sixteen_bits is not None:
            return Reason("8-bit or floating activations", "16-bit ones", operator.label, kind=Why.INPUT_TYPE)
        left = self.context.options.left or {}
        return left.get(operator.index) if not self._calls.subgraphs else None

    def _lower(self, declared: TfliteOperator | None, operator: Operator, *, through_host: bool) -> Mapped:
        """In the first way that works; to the host, with the reasons, if there is none."""
        options = self.context.options
        wide = options.mapping == MappingKind.WIDE
        rule = declared.delegate if declared is not None else None
        refused = refusals(rule, operator, self.values, options.feature_level, options.accelerated, options.tflite)
        if self.context.failure is not None and not refused:
            return self.host(operator, [self.context.failure])
        reasons: list[Reason] = []
        for lowering in declared.lowerings if declared is not None else ():
            # As the delegate does it where the delegate would, more freely where that is allowed.
            ways = () if lowering.wide or refused else (MappingKind.DELEGATE,)
            for mapping in (*ways, MappingKind.WIDE) if wide else ways:
                by_host = through_host and mapping == MappingKind.WIDE
                tried = self._try(declared, lowering, operator, mapping, through_host=by_host)
                if not isinstance(tried, Reason):
                    undelegated = refused if tried == MappingKind.WIDE else ()
                    return Mapped(operator.index, operator.name, tried, (*undelegated, *reasons))
                if tried not in reasons:
                    reasons.append(tried)
        if refused and not wide:
            reasons = [*refused, *reasons]
        elif not reasons:
            required = "an operator that NNAPI can express"
            reasons.append(Reason(required, operator.name, operator.label, kind=Why.OPERATOR))
        return self.host(operator, reasons)

    def _pruned(self, operator: Operator) -> bool:
        """True for what Android's delegate computes itself, since TFLite 2.6: dense and float32 forms of constants.

        Everything else stays a node of the graph, also what depends only on constants.
        """
        if self.context.options.mapping == MappingKind.DELEGATE and not within(self.context.options.tflite, "2.6", ""):
            return False
        halves = operator.name == "DEQUANTIZE" and self.graph.tensors[operator.inputs[0]].type.name == "FLOAT16"
        return halves or operator.name == "DENSIFY"

    def _has_sixteen_bits(self, declared: TfliteOperator | None, operator: Operator) -> bool:
        """True if the operator reads or writes quantised 16-bit data (states do not count)."""
        if declared is not None and declared.as_stored:
            return False
        found = [self.graph.tensors[i] for i in (*operator.inputs[:3], *operator.outputs) if i >= 0]
        return bool([t for t in found if t.type.name == "INT16" and t.quantisation.scales])

    def _try(
        self, declared: TfliteOperator | None, lowering: Lowering, operator: Operator, mapping: MappingKind, *, through_host: bool
    ) -> Reason | str:
        """Lower an operator in one way: the mapping, or why it does not apply, with nothing left in the draft."""
        steps = len(self.draft.steps)
        free = self.context.options.mapping == MappingKind.WIDE
        try:
            lowerer = (HostFloatLowerer if through_host else Lowerer)(
                declared, operator, self.values, mapping, free=free, source=self.source(operator)
            )
            lowering.lower(lowerer)
            if isinstance(lowerer, HostFloatLowerer):
                lowerer.quantise_outputs()
        except Unmappable as error:
            del self.draft.steps[steps:]
            return error.reason
        for index, value in zip(operator.outputs, lowerer.outputs, strict=True):
            self.values.commit(index, value)
        for i, value in lowerer.carried.items():
            if lowerer.is_state(i):
                self.values.carry(operator.inputs[i], value)
        return lowerer.mapping

    def host(self, operator: Operator, reasons: Sequence[Reason] = (), memory: Key | None = None) -> Mapped:
        """Emit the operator as an operation of the host extension, its options as JSON.

        ``memory`` is a variable that the operator has beside its operands: one more input, and one more output.
        """
        declared, tensors = self._declared[operator.index], self.graph.tensors
        absent = [i < 0 or self._is_workspace(operator, i) for i in operator.inputs]
        inputs = [self.draft.omitted(0) if no else self.values.value(i) for i, no in zip(operator.inputs, absent, strict=True)]
        outputs = [self.values.fresh_output(i) for i in operator.outputs]
        if not outputs:
            raise ConversionError(Reason("an operator with outputs", "none", operator.label))
        options = host_options(operator, tensors, self._body(declared, operator))
        options.update(carried_parameters(operator, tensors, inputs, outputs))
        states = [i for i, index in enumerate(operator.inputs) if index >= 0 and self.values.is_state(index)]
        if states:
            options[STATES] = states
        after = [self.values.fresh_output(operator.inputs[i]) for i in states]
        if memory is not None:
            inputs.append(self.variables.read(memory))
            options[STATES] = [*states, len(inputs) - 1]
            after.append(inputs[-1].like())
        infer_dims(declared, operator, self.values, inputs, outputs, [*outputs, *after])
        if self.context.file.graph.is_compiled and self._decided_at_run(declared, inputs):
            # LiteRT's compiler writes dimensions that a file leaves open as 1.
            for value in outputs:
                value.dims = (0,) * len(value.dims)
        self.emit_host(operator, inputs, [*outputs, *after], options)
        for index, value in zip(operator.outputs, outputs, strict=True):
            self.values.commit(index, value)
        for i, value in zip(states, after, strict=False):
            self.values.carry(operator.inputs[i], value)
        if memory is not None:
            self.variables.assign(memory, after[-1])
        return Mapped(operator.index, operator.name, MappingKind.HOST, tuple(reasons))

    def _is_workspace(self, operator: Operator, index: int) -> bool:
        """True for a tensor that nothing writes before a custom operator: memory that its kernel computes in, as Vela's does."""
        tensor, states = self.graph.tensors[index], self.values.is_state(index)
        return operator.custom and tensor.data is None and not states and index not in {*self.graph.inputs, *self.graph.written}

    @staticmethod
    def _decided_at_run(declared: TfliteOperator | None, inputs: Sequence[Value]) -> bool:
        """True if computed numbers are an output's dimensions."""
        named = zip(declared.inputs if declared is not None else (), inputs, strict=False)
        return any(one.decides_shape and not value.constant and not value.omitted for one, value in named)

    def emit_host(
        self, operator: Operator, inputs: Sequence[Value], outputs: Sequence[Value], options: dict[str, object] | None = None
    ) -> None:
        """Emit an operation of the host extension."""
        title = f"{operator.index}: {operator.name}" + (
            f" {outputs[0].name}" if options is not None and TENSORS not in options else ""
        )
        operands = (*inputs, options_value(options or {}))
        code = extension_code(operator.code)
        self.draft.place(_WORK_OF_HOST, title)
        self.draft.add(Step(code, operands, tuple(outputs), title, MappingKind.HOST, self.source(operator)))

    def _body(self, declared: TfliteOperator | None, operator: Operator) -> str:
        """The only operator of the subgraph that an operator applies to pairs of elements; empty if there is another."""
        index = operator.options.get(declared.applies) if declared is not None and declared.applies else None
        subgraphs = self.context.file.graph.subgraphs
        if index is None or not 0 <= index < len(subgraphs) or len(subgraphs[index].operators) != 1:
            return ""
        return subgraphs[index].operators[0].name
