"""The whole way from a path to a :class:`~nnbridge.model.Model`."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from nnbridge.converters import ConversionOptions
from nnbridge.converters.draft import Draft
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import ConversionError, NnapiError, OptionError, Reason
from nnbridge.extensions import TYPES
from nnbridge.model import Model
from nnbridge_tflite import control_flow as _control_flow  # noqa: F401 - registers its operators
from nnbridge_tflite import families
from nnbridge_tflite.assemble import assemble
from nnbridge_tflite.graph import Graph, Signature, Subgraph
from nnbridge_tflite.host import HOST
from nnbridge_tflite.reader import TfliteFile, read
from nnbridge_tflite.subgraphs import Context, SubgraphConversion
from nnbridge_tflite.variables import Variables

SPARE_ELEMENTS, PER_BYTE = 1 << 24, 2
"""How many elements of new constants a file may ask for: some, and as many as its weights unpack to."""

LOG = logging.getLogger(__name__)
CALLS, CALLS_PER_OPERATOR = 1000, 16
"""How many operators of called subgraphs a file may ask for, at first and for each operator that it has."""


def convert(path: Path, options: ConversionOptions) -> Model:
    """Convert a file. ConversionError names the file and what is wrong in it."""
    return convert_with_report(path, options)[0]


def convert_with_report(path: Path, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
    """Convert a file, and say what became of each operator, those of called subgraphs last."""
    file = read(path)
    try:
        return _Conversion(file, options).run()
    except ConversionError as error:
        raise type(error)(_in_file(error.reason, path)) from error
    except NnapiError as error:
        raise ConversionError(_in_file(error.reason, path)) from error


def _in_file(reason: Reason, path: Path) -> Reason:
    """The reason with the file's name before the place in it."""
    return replace(reason, operation=f"{path} {reason.operation}".rstrip())


def _signature(graph: Graph, key: str) -> Signature:
    found = next((s for s in graph.signatures if s.key == key), None)
    if found is None:
        keys = ", ".join(s.key for s in graph.signatures) or "no signatures"
        raise OptionError(Reason(f"a signature of the file ({keys})", key, operand="--signature"))
    return found


def _called(graph: Graph, signature: Signature | None) -> Subgraph:
    """The subgraph that is converted, with the outputs that are asked for."""
    if signature is None:
        return graph.main
    subgraph = graph.subgraphs[signature.subgraph]
    return replace(subgraph, inputs=tuple(signature.inputs.values()), outputs=tuple(signature.outputs.values()))


def distinct_signatures(graph: Graph) -> list[str]:
    """The keys of signatures that call different subgraphs, the first one for each."""
    return list({s.subgraph: s.key for s in reversed(graph.signatures)}.values())[::-1]


class _Conversion:
    """One conversion of subgraph 0, or of the subgraph that a signature calls."""

    def __init__(self, file: TfliteFile, options: ConversionOptions) -> None:
        TYPES.register(HOST)
        families.load()
        self._file = file
        self._options = options
        self._signature = _signature(file.graph, options.signature) if options.signature else None
        if self._signature is None and len(keys := distinct_signatures(file.graph)) > 1:
            LOG.warning("%s: the signatures %s differ; without --signature, its main graph is taken", file.path, ", ".join(keys))
        number = self._signature.subgraph if self._signature else 0
        draft = Draft(options.feature_level, SPARE_ELEMENTS + PER_BYTE * len(file.pool))
        operators = sum(len(subgraph.operators) for subgraph in file.graph.subgraphs)
        context = Context(file, options, CALLS + CALLS_PER_OPERATOR * operators)
        self._main = SubgraphConversion(context, number, _called(file.graph, self._signature), draft, Variables())

    def run(self) -> tuple[Model, tuple[Mapped, ...]]:
        main, values = self._main, self._main.values
        main.check_interface()
        for name, i in self._signature.inputs.items() if self._signature else ():
            values.value(i).name = name
        self._resize_inputs()
        main.convert()
        for name, i in self._signature.outputs.items() if self._signature else ():
            if i not in main.graph.inputs and not values.value(i).constant:
                values.value(i).name = name
        inputs = [values.value(i) for i in main.graph.inputs]
        outputs = [values.value(i) for i in main.graph.outputs]
        model = assemble(self._file.path.stem, inputs, outputs, main.draft, main.variables)
        placed = [replace(mapped, subgraph=main.number) for mapped in main.placements]
        return model, (*placed, *main.context.inner.values())

    def _resize_inputs(self) -> None:
        """Give inputs the dimensions that the user wants."""
        by_name = {self._main.graph.tensors[i].name: i for i in self._main.graph.inputs}
        for name, dims in self._options.shapes.items():
            if name not in by_name:
                raise OptionError(Reason(f"an input ({', '.join(by_name)})", name, operand="--shape"))
            if any(d <= 0 for d in dims):
                raise OptionError(Reason("dimensions above 0", str(list(dims)), operand=f"--shape {name}"))
            self._main.values.value(by_name[name]).dims = tuple(dims) or (1,)
