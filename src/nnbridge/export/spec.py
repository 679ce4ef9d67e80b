"""A model as a spec of Android's test generator, ``NAME.mod.py``, from which CTS and VTS tests are made.

The names are those of ``test_generator.py`` in AOSP's ``packages/modules/NeuralNetworks/tools`` (feature level 4 and later):
types are tuples of code, dimensions, scale and zero point, and a parameter of None is an omitted operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nnbridge.export.cases import ComputedCase, example, numbers
from nnbridge.model import Model, Operand, Subgraph
from nnbridge.storage.atomic import atomic_write
from nnbridge.types import Lifetime, OperandCode, OperationCode

_SPECIAL = {"NaN": 'float("nan")', "Infinity": 'float("inf")', "-Infinity": 'float("-inf")'}
_ROLES = {Lifetime.SUBGRAPH_INPUT: "Input", Lifetime.SUBGRAPH_OUTPUT: "Output"}


def write(model: Model, path: Path, title: str) -> dict[Path, int]:
    """Write a spec with one example: inputs drawn with seed 0, outputs of NNAPI's CPU."""
    text = "\n".join(_lines(example(model), title)) + "\n"
    with atomic_write(path) as file:
        return {path: file.write(text.encode())}


def _lines(found: ComputedCase, title: str) -> Iterator[str]:
    model = found.model
    source = Path(title).name.encode("unicode_escape").decode()
    yield f"# {source}: inputs drawn with seed 0, outputs of NNAPI's CPU as nnbridge computes it."
    shapes = {i: value.shape for i, value in zip(model.main.inputs, found.inputs, strict=True) if value is not None}
    graphs = model.subgraphs()
    # A graph refers to later ones only.
    for g in reversed(range(len(graphs))):
        for i, operand in enumerate(graphs[g].operands):
            if operand.lifetime is not Lifetime.SUBGRAPH:
                dims = shapes.get(i, operand.dims) if g == 0 else operand.dims
                yield f"{_name(g, i)} = {_operand(model, _name(g, i), operand, dims)}"
        yield f"model{g} = {_model(graphs[g], g)}"
        if model.relaxed:
            yield f"model{g}.RelaxedExecution(True)"
    pairs = [*zip(model.main.inputs, found.inputs, strict=True), *zip(model.main.outputs, found.outputs, strict=True)]
    values = (f"    {_name(0, i)}: [{_values([] if value is None else numbers(value))}]," for i, value in pairs)
    yield "\n".join(["Example({", *values, "}, model=model0)"])


def _name(graph: int, index: int) -> str:
    return f"op{index}" if graph == 0 else f"body{graph}_op{index}"


def _model(graph: Subgraph, number: int) -> str:
    """Inputs and outputs first: the generator orders them as they are named to it."""

    def listed(indexes: Sequence[int]) -> str:
        return ", ".join(_name(number, i) for i in indexes)

    text = f"Model().IdentifyInputs({listed(graph.inputs)}).IdentifyOutputs({listed(graph.outputs)})"
    for operation in graph.operations:
        arguments = ", ".join(_argument(graph, number, i) for i in operation.inputs)
        text += f'.Operation("{OperationCode(operation.type).name}", {arguments}).To([{listed(operation.outputs)}])'
    return text


def _argument(graph: Subgraph, number: int, index: int) -> str:
    operand = graph.operands[index]
    return f"model{operand.location.offset + 1}" if operand.lifetime is Lifetime.SUBGRAPH else _name(number, index)


def _operand(model: Model, name: str, operand: Operand, dims: Sequence[int]) -> str:
    """An operand's declaration, by its role."""
    scale = _values(numbers(np.array([operand.scale])))
    shown = f'"{name}", ("{OperandCode(operand.type).name}", {list(dims)}, {scale}, {operand.zero_point})'
    quant = operand.channel_quant
    if quant is not None:
        scales = _values(numbers(np.array(quant.scales)))
        shown_quant = f", extraParams=SymmPerChannelQuantParams(channelDim={quant.channel_dim}, scales=[{scales}])"
    else:
        shown_quant = ""
    if operand.lifetime is Lifetime.NO_VALUE:
        return f"Parameter({shown}, None{shown_quant})"
    value = model.value(operand)
    if value is not None:
        return f"Parameter({shown}, [{_values(numbers(value))}]{shown_quant})"
    return f"{_ROLES.get(operand.lifetime, 'Internal')}({shown}{shown_quant})"


def _values(flat: Sequence[object]) -> str:
    return ", ".join(_SPECIAL.get(v, v) if isinstance(v, str) else repr(v) for v in flat)
