"""The operators of host operations: their tensors, and files of some of them (:mod:`nnbridge.converters.hosted`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nnbridge.converters.hosted import Ends, GraphKey, Piece, Tensor
from nnbridge.errors import ConversionError, Reason
from nnbridge.extensions import host_options, is_options
from nnbridge.model import Array, Model, Operation
from nnbridge.types import Lifetime
from nnbridge_tflite.host.codes import STATES, TENSORS
from nnbridge_tflite.part import excerpt
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.tables import Table, copied, drop_unused, listed
from nnbridge_tflite.write import encode


class Parts:
    """A TFLite file; tensors are indexes in their subgraph."""

    def __init__(self, file: TfliteFile, tables: Table) -> None:
        self._path = file.path
        self._subgraphs = file.graph.subgraphs
        self._tables = tables

    def ends(self, model: Model, operation: Operation) -> Ends | None:
        """Operands of a host operation are the operator's, then variables; None for conversions that the importer added."""
        source, found = operation.source, model.extension_of(operation.type)
        if source is None or found is None:
            return None
        graph = self._subgraphs[source.subgraph]
        operator = graph.operators[source.index]
        if operator.code != found[1]:
            return None
        data = [i for i in operation.inputs if not _is_no_tensor(model, i)]
        options = host_options(model, model.main, operation)
        states, control = options.get(STATES, ()), options.get(TENSORS)
        read, written = (operator.inputs, operator.outputs) if control is None else (control["inputs"], control["outputs"])
        after = operation.outputs[len(written) :]
        if len(data) != len(read) or len(after) != len(states) or (control is not None and -1 in (*read, *written)):
            rule = "operators whose operands are tensors of the file: no tables, streams of random numbers, variables in bodies"
            raise ConversionError(Reason(rule, operator.name, operator.label))
        return Ends(
            (source.subgraph, source.callers),
            [(i, t) for i, t in zip(data, read, strict=True) if t >= 0],
            dict(zip(operation.outputs, written, strict=False)),
            {i: read[k] for i, k in zip(after, states, strict=True)},
        )

    def piece(
        self, graph: GraphKey, inputs: Collection[Tensor], outputs: Collection[Tensor], constants: Mapping[Tensor, Array]
    ) -> Piece:
        """The operators between tensors; what would need more than the inputs is passed as ``constants``."""
        starts, ends = {int(t) for t in inputs}, [int(t) for t in outputs]
        for known in (starts, starts | {int(t) for t in constants}):
            tables = copied(self._tables)
            subgraph = tables["subgraphs"][graph[0]]
            found = excerpt(tables, subgraph, ends, known)
            if known.issuperset(found.inputs):
                break
        else:
            missing = min(set(found.inputs) - starts)
            raise ConversionError(Reason("tensors that the plan computes", f"tensor {missing}", file=str(self._path)))
        read = {t for operator in subgraph["operators"] for t in listed(operator["inputs"]) if t >= 0}
        variables = [t for t in read if subgraph["tensors"][t].get("is_variable")]
        moved = drop_unused(tables)
        return Piece(encode(tables), found.inputs, tuple(ends), {t: moved[t] for t in variables})


def _is_no_tensor(model: Model, i: int) -> bool:
    operand = model.main.operands[i]
    return is_options(operand) or operand.lifetime is Lifetime.SUBGRAPH
