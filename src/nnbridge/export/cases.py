"""A model as a conformance case: the form that ``nnbridge vts`` and ``nnbridge devices ask`` read.

The inputs are drawn with seed 0 or stated; the outputs are the answers of NNAPI's CPU.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import drawn
from nnbridge.devices import CPU_NAME
from nnbridge.errors import InputError, Reason
from nnbridge.extensions import readable_operation
from nnbridge.model import Model, Operand, Subgraph
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.placement import required_level
from nnbridge.storage.atomic import atomic_write
from nnbridge.types import Lifetime, OperandCode, OperationCode, is_extension

_VERSIONS = ("", "V1_0", "V1_1", "V1_2", "V1_3", "AIDL_V1", "AIDL_V2", "AIDL_V3", "AIDL_V4", "UNKNOWN")
"""Feature level → ``min_version`` of a case."""


@dataclass(frozen=True)
class ComputedCase:
    """A model with inputs and the outputs to expect, in the model's order; None: an input that is omitted."""

    model: Model
    inputs: Sequence[Array | None]
    outputs: Sequence[Array]


def example(model: Model, inputs: Sequence[Array | None] | None = None, seed: int = 0) -> ComputedCase:
    """A model with inputs, drawn with a seed unless they are stated, and the CPU's answers. Open dimensions are drawn as 1.

    InputError for operations that NNAPI does not have: no case can name them.
    """
    foreign = [o for graph in model.subgraphs() for o in graph.operations if is_extension(o.type)]
    if foreign:
        names = ", ".join(dict.fromkeys(readable_operation(model, operation) for operation in foreign))
        raise InputError(Reason("operations of NNAPI's own", f"{len(foreign)} others: {names}", foreign[0].name))
    if inputs is None:
        rng = np.random.default_rng(seed)
        inputs = [drawn(rng, model.main.operands[i]) for i in model.main.inputs]
    compilation = Compilation.create_for_devices(model, [CPU_NAME])
    compilation.finish()
    return ComputedCase(model, inputs, list(Execution(compilation).run(list(inputs)).values()))


def write(model: Model, path: Path, title: str) -> dict[Path, int]:
    """Write a spec file with one case of the model, named after the file."""
    name = path.name.split(".")[0] or Path(title).name
    content = {
        "suite": os.path.basename(os.path.dirname(os.path.realpath(path))),
        "spec": name,
        "cases": [case_data(example(model), name)],
    }
    with atomic_write(path) as file:
        return {path: file.write(gzip.compress(json.dumps(content, allow_nan=False).encode(), mtime=0))}


def case_data(found: ComputedCase, name: str) -> dict[str, Any]:
    """A case in the form of the conformance data. Answers of RANDOM_MULTINOMIAL are not checked."""
    model = found.model
    checked = all(o.type != OperationCode.RANDOM_MULTINOMIAL for graph in model.subgraphs() for o in graph.operations)
    return {
        "name": name,
        "min_version": _VERSIONS[required_level(model)],
        "relaxed": model.relaxed,
        "expect_failure": False,
        "model": model_data(model, found.inputs),
        "inputs": [[] if value is None else numbers(value) for value in found.inputs],
        "outputs": [numbers(value) if checked else None for value in found.outputs],
    }


def model_data(model: Model, inputs: Sequence[Array | None] = ()) -> dict[str, Any]:
    """A model in the form of the conformance data, with the dimensions of ``inputs`` where its own are open."""
    shapes = {index: value.shape for index, value in zip(model.main.inputs, inputs, strict=False) if value is not None}
    content = _subgraph(model, model.main, shapes)
    return content | {"referenced": [_subgraph(model, graph, {}) for graph in model.referenced]} if model.referenced else content


def _subgraph(model: Model, graph: Subgraph, shapes: Mapping[int, tuple[int, ...]]) -> dict[str, Any]:
    return {
        "operands": [_operand(model, operand, shapes.get(i, operand.dims)) for i, operand in enumerate(graph.operands)],
        "operations": [
            {"type": OperationCode(o.type).name, "inputs": list(o.inputs), "outputs": list(o.outputs)} for o in graph.operations
        ],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
    }


def _operand(model: Model, operand: Operand, dims: Sequence[int]) -> dict[str, Any]:
    name = "SUBGRAPH" if operand.type == OperandCode.MODEL else OperandCode(operand.type).name
    content: dict[str, Any] = {"type": name, "dims": list(dims), "lifetime": operand.lifetime.name}
    if operand.scale or operand.zero_point:
        content |= {"scale": _number(operand.scale), "zero_point": operand.zero_point}
    if operand.channel_quant is not None:
        quant = operand.channel_quant
        content["channel_quant"] = {"scales": list(map(_number, quant.scales)), "channel_dim": quant.channel_dim}
    if operand.lifetime is Lifetime.SUBGRAPH:
        content["value"] = [operand.location.offset]
    elif (value := model.value(operand)) is not None:
        content["value"] = numbers(value)
    return content


def numbers(values: Array) -> list[Any]:
    """Flat numbers; those that JSON lacks as text."""
    flat = values.reshape(-1).astype(np.int64 if values.dtype.kind == "b" else values.dtype).tolist()
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return flat
    return list(map(_number, flat))


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
