"""Nodes of one graph, each placed by itself, as an interpreter offers them to a delegate."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.budget import ConversionBudget, conversion_budget
from nnbridge.converters import ConversionOptions
from nnbridge.converters.draft import Draft
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, NnapiError, Reason, Stage, Why
from nnbridge.extensions import TYPES
from nnbridge.model import Pool
from nnbridge_tflite.declaration import NO_SUBGRAPHS, TfliteOperator
from nnbridge_tflite.host import HOST
from nnbridge_tflite.passes.conversion import Context, Conversion
from nnbridge_tflite.passes.states import Key, Variables
from nnbridge_tflite.read.graph import Operator, TfliteSubgraph
from nnbridge_tflite.read.reader import TfliteFile

_SPARE_ELEMENTS, _PER_BYTE = 1 << 24, 4
"""How many elements of new constants a file may ask for: some, and for each byte two of 4 bits and their real numbers."""


def budget_for(pool: Pool) -> ConversionBudget:
    """The most that one conversion of a file computes."""
    return conversion_budget(len(pool), _SPARE_ELEMENTS + _PER_BYTE * len(pool))


class NodeConversion(Conversion):
    """A subgraph of which the interpreter runs whatever NNAPI does not get: one refused operator never costs the others."""

    def check_operator(self, declared: TfliteOperator | None, operator: Operator) -> None:
        """Nothing is checked for all operators before each is placed."""

    def _place_safely(self, declared: TfliteOperator | None, operator: Operator) -> Mapped:
        steps = len(self.draft.steps)
        try:
            if declared is not None:
                declared.check_operator(operator)
            super().check_operator(declared, operator)
            return super()._place_safely(declared, operator)
        except NnapiError as error:
            reason = error.reason
        except ConversionError as error:
            reason = error.reason
        del self.draft.steps[steps:]
        return self.host(operator, [reason])

    def _place(self, declared: TfliteOperator | None, operator: Operator) -> Mapped:
        if declared is not None and declared.handler is not None:
            return self.host(
                operator, [Reason(NO_SUBGRAPHS, operator.name, operator.label, kind=Why.OPERATOR, stage=Stage.DELEGATE)]
            )
        return super()._place(declared, operator)

    def host(self, operator: Operator, reasons: Sequence[Reason] = (), memory: Key | None = None) -> Mapped:
        """Leave the operator to the interpreter: its outputs are values with the dimensions that the interpreter has for them."""
        for index in operator.outputs:
            self.values.commit(index, self.values.fresh_output(index))
        return Mapped(operator.index, operator.name, MappingKind.HOST, tuple(reasons))


def of_nodes(level: int, accelerated: bool, tflite: str) -> ConversionOptions:
    """The deciding facts for nodes that a delegate is offered."""
    return ConversionOptions(level, MappingKind.DELEGATE.value, accelerated=accelerated, tflite=tflite)


def alone(
    file: TfliteFile, number: int, graph: TfliteSubgraph, options: ConversionOptions, budget: ConversionBudget | None = None
) -> NodeConversion:
    """A graph of a file as a delegate is offered it, bodies and decompositions too; only what decides for nodes counts.

    ``budget``: what other graphs of the file have left of it.
    """
    TYPES.register(HOST)
    options = of_nodes(options.feature_level, options.accelerated, options.tflite)
    draft = Draft(options.feature_level, budget or budget_for(file.pool))
    found = NodeConversion(Context(file, options, 0), number, graph, draft, Variables())
    found.values.make_inputs(graph.inputs)
    found.convert()
    return found
