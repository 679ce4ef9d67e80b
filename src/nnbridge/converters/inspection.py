"""The content of a model file, without running it: interface, operators, types, weights, metadata, and what maps to NNAPI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from nnbridge.errors import Reason
from nnbridge.extensions import TYPES, readable_operation
from nnbridge.model import Model, input_name, output_name
from nnbridge.records import dataclass
from nnbridge.types import Lifetime, OperationCode

ON_NNAPI = ("delegate", "provider", "wide")
"""Mappings of operators that are handed to NNAPI."""


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """The file's statement on how an input is prepared, or what an output means; empty or 0 where it states nothing."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Normalisation of pixels from 0 to 255, ``(pixel - mean) / std``: one number, or one for each channel."""
    sample_rate: int = 0
    """Samples per second of sound."""
    labels: tuple[str, ...] = ()
    """The names of classes."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of an interface. Dimensions that are not known are -1."""

    name: str
    type: str
    shape: tuple[int, ...] | None
    scale: float = 0.0
    zero_point: int = 0
    metadata: TensorMetadata = TensorMetadata()


@dataclass(frozen=True, slots=True)
class SignatureInfo:
    """A named interface of a model."""

    key: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """The outcome of one operator: its mapping, and why it has no other."""

    index: int
    operator: str
    mapping: str
    """``delegate`` or ``wide`` (NNAPI), ``host``, ``folded`` (a constant), ``state`` (stored between executions), ``inlined`` (a
    call replaced by the called operators) or ``dead`` (nothing uses it)."""
    reasons: tuple[Reason, ...] = ()
    subgraph: int = 0
    """The operator's subgraph, of files that have several."""

    @property
    def key(self) -> tuple[int, int]:
        """Subgraph and index: the operator's place in the file."""
        return self.subgraph, self.index

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        position = {"subgraph": self.subgraph, "index": self.index}
        return {**position, "operator": self.operator, "mapping": self.mapping, "reasons": [r.as_dict() for r in self.reasons]}


@dataclass(frozen=True)
class Inspection:
    """Everything about a file that is known without running it."""

    path: str
    format: str
    file_bytes: int
    weight_bytes: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: Mapping[str, int]
    """Operator → how often it occurs, the most frequent first."""
    tensor_types: Mapping[str, int]
    """Element type → how many tensors have it."""
    quantised_tensors: int = 0
    signatures: tuple[SignatureInfo, ...] = ()
    mappings: Mapping[str, tuple[Mapped, ...]] = field(default_factory=dict)
    """Mapping → the outcome of each operator under it."""
    transposes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Mapping → the number of TRANSPOSEs between operations, and at inputs and outputs."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """Notes that come before anything else: what besides its own runtime the file needs."""
    loads: bool | None = None
    """Whether its own runtime by itself loads it, by nnbridge's rules; None where they do not say."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        data = asdict(self)
        for side in (data, *data["signatures"]):
            for tensor in (*side["inputs"], *side["outputs"]):
                del tensor["metadata"]  # All that the file states is under the key of that name.
        data["mappings"] = {name: mapped_as_dict(mapped) for name, mapped in self.mappings.items()}
        data["notes"] = [*data.pop("remarks"), *data["notes"]]
        del data["loads"]
        del data["transposes"]
        for name, found in self.transposes.items():
            data["mappings"][name]["counts"] |= transposes_as_dict(found)
        return data


def mapped_as_dict(mapped: tuple[Mapped, ...]) -> dict[str, Any]:
    """The outcomes of operators, JSON-ready."""
    return {"counts": dict(Counter(m.mapping for m in mapped)), "operators": [m.as_dict() for m in mapped]}


def count_transposes(model: Model) -> tuple[int, int]:
    """The number of TRANSPOSEs of the main model between operations, and at its inputs and outputs."""
    main, border = model.main, {*model.main.inputs, *model.main.outputs}
    found = [o for o in main.operations if o.type == OperationCode.TRANSPOSE]
    outer = sum(operation.inputs[0] in border or operation.outputs[0] in border for operation in found)
    return len(found) - outer, outer


def transposes_as_dict(found: tuple[int, int]) -> dict[str, int]:
    """JSON-ready."""
    return dict(zip(("transposes", "interface_transposes"), found, strict=True))


def histogram(names: list[str]) -> dict[str, int]:
    """The count of each name, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def inspect_model(model: Model, path: Path) -> Inspection:
    """A finished NNAPI model, such as a saved one."""

    def tensor(index: int, name: str) -> TensorInfo:
        operand = model.main.operands[index]
        shape = tuple(d or -1 for d in operand.dims) if operand.dims else None
        return TensorInfo(name, TYPES.readable(operand.type), shape, operand.scale, operand.zero_point)

    operands = [operand for subgraph in model.subgraphs() for operand in subgraph.operands]
    operations = [operation for subgraph in model.subgraphs() for operation in subgraph.operations]
    constants = [o for o in operands if o.lifetime in (Lifetime.CONSTANT_COPY, Lifetime.CONSTANT_REFERENCE)]
    mapped = (Mapped(i, readable_operation(model, o), o.mapping or "wide") for i, o in enumerate(model.main.operations))
    return Inspection(
        str(path),
        "nnapi",
        path.stat().st_size,
        sum(o.location.length for o in constants),
        tuple(tensor(i, input_name(operands[i], k)) for k, i in enumerate(model.own_inputs)),
        tuple(tensor(i, output_name(operands[i], k)) for k, i in enumerate(model.own_outputs)),
        histogram([readable_operation(model, operation) for operation in operations]),
        histogram([TYPES.readable(operand.type) for operand in operands]),
        sum(operand.scale != 0 or operand.channel_quant is not None for operand in operands),
        mappings={"saved": tuple(mapped)},
        transposes={"saved": count_transposes(model)},
    )
