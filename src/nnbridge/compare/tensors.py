"""A reference's tensors, and how they are found for a model's operands: by name, or by position in the same model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from nnbridge import devices as device_list
from nnbridge.compare.arrays import Array, load_arrays
from nnbridge.compare.litert import NamedTensors
from nnbridge.compare.observation import Observation, Position, observed_run
from nnbridge.compare.samples import in_model, named_inputs
from nnbridge.cpu.settings import Tier
from nnbridge.devices.cpu import CpuDevice
from nnbridge.devices.device import Device
from nnbridge.errors import InputError, Reason
from nnbridge.extensions import operand_dtype
from nnbridge.model import Model, Operand, Operation
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.states import States
from nnbridge.types import OperandCode, OperationCode

LAST = " NHWC"
"""What the ONNX importer adds to the name of an image whose channels it moved to the end."""
_NEXT = " (next)"
"""What the TFLite importer adds to the name of a state's new value."""


class Tensors(Protocol):
    """A reference's values of one run."""

    def find(self, position: Position, operand: Operand, operation: Operation | None) -> Array | None:
        """The value of an operand, in the reference's own type and layout; None if the reference has none."""

    def others(self, found: Iterable[tuple[Operand, Operation]]) -> Iterator[tuple[str, int, int]]:
        """Name, operator and subgraph of each tensor that none of the found operands stands for."""


class TensorsByName:
    """Tensors of a source file, by the names that operands of a converted model carry."""

    def __init__(self, values: NamedTensors) -> None:
        self._values = values

    def find(self, position: Position, operand: Operand, operation: Operation | None) -> Array | None:
        """By operator and name, else by the name if only one tensor has it."""
        source = None if operation is None else operation.source
        subgraph = 0 if source is None else source.subgraph
        for name in file_names(operand.name):
            found = None if source is None else self._values.produced.get((subgraph, source.index, name))
            found = self._values.named.get((subgraph, name)) if found is None else found
            if found is not None:
                return found
        return None

    def others(self, found: Iterable[tuple[Operand, Operation]]) -> Iterator[tuple[str, int, int]]:
        """Outputs of operators whose names no operand has."""
        names = {name for operand, _ in found for name in file_names(operand.name)}
        return ((name, index, subgraph) for subgraph, index, name in self._values.produced if name not in names)


def file_names(name: str) -> list[str]:
    """An operand's name, then the file's names that it may come from: without what makes it unique, without the layout."""
    if not name:
        return []
    base, mark, number = name.rpartition("#")
    names = [name, base] if mark and number.isdecimal() else [name]
    return names + [found.removesuffix(ending) for found in names for ending in (LAST, _NEXT) if found.endswith(ending)]


def channels_last(operand: Operand) -> bool:
    """True for an image whose channels the ONNX importer moved to the end."""
    return operand.name.partition("#")[0].endswith(LAST)


@dataclass(frozen=True)
class TensorsByPosition:
    """The values of another run of the same model."""

    observation: Observation

    def find(self, position: Position, operand: Operand, operation: Operation | None) -> Array | None:
        """The same operand's value."""
        found = self.observation.values.get(position)
        return None if found is None else found.value

    def others(self, found: Iterable[tuple[Operand, Operation]]) -> Iterator[tuple[str, int, int]]:
        """None: it is the same model."""
        return iter(())


def as_truth(operand: Operand, value: Array) -> Array:
    """A value as booleans where its operand's type is one of these."""
    return value.astype(bool) if operand.type in (OperandCode.TENSOR_BOOL8, OperandCode.BOOL) else value


def fitted_value(model: Model, operation: Operation, operand: Operand, value: Array, shape: tuple[int, ...]) -> Array | None:
    """A file's value in the operand's type and layout; None if it has another shape or kind of numbers."""
    dtype = np.dtype(bool) if operand.type in (OperandCode.TENSOR_BOOL8, OperandCode.BOOL) else operand_dtype(operand)
    value = in_model(operand, value)
    if value.dtype.kind != dtype.kind and not {value.dtype.kind, dtype.kind} <= {"i", "u", "b"}:
        return None
    if channels_last(operand) and value.ndim > 2:
        value = np.moveaxis(value, 1, -1)
    elif operation.type == OperationCode.RESHAPE and len(shape) == 2 and value.size:
        # Rows that are flattened images stay in the order of the image that the importer has.
        image = model.main.operands[operation.inputs[0]]
        if channels_last(image) and 0 not in image.dims and shape == (image.dims[0], value.size // image.dims[0]):
            value = np.moveaxis(value.reshape(image.dims[0], image.dims[-1], *image.dims[1:-1]), 1, -1).reshape(shape)
    if value.shape != shape:
        # NNAPI has no scalars among tensors, and images of rank 3 have another axis here.
        if value.size != int(np.prod(shape)) or [d for d in value.shape if d != 1] != [d for d in shape if d != 1]:
            return None
        value = value.reshape(shape)
    if operation.type == OperationCode.SVDF and operand is model.main.operands[operation.outputs[0]]:
        value = _shifted(value, model.main.operands[operation.inputs[1]].dims[0])
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(value.astype(dtype, copy=False))


def _shifted(state: Array, filters: int) -> Array:
    """A state of SVDF with room for the next features: NNAPI shifts it when it has run (N124), LiteRT when it runs again."""
    memory = state.reshape(len(state), filters, -1)
    return np.concatenate([memory[..., 1:], np.zeros_like(memory[..., :1])], axis=-1).reshape(state.shape)


class DeviceReference:
    """Another device as reference; ``reference`` is NNAPI's CPU with its reference kernels."""

    def __init__(self, model: Model, name: str) -> None:
        self.name = name
        device: Device = CpuDevice(Tier.REFERENCE) if name == "reference" else device_list.device(name)
        self.compilation = Compilation.create(model, [device])
        self.compilation.finish()
        self._states = States(model)
        self._observation = Observation(model)

    def reset(self) -> None:
        """Reset states to their first values."""
        self._states.reset()

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Outputs by name, for inputs in the source file's types."""
        operands = named_inputs(self.compilation.model)
        values = {name: in_model(operands[name], value) for name, value in inputs.items()}
        outputs, self._observation, _ = observed_run(self.compilation, values, self._states)
        return outputs

    def tensors(self) -> TensorsByPosition:
        """The values of the last run."""
        return TensorsByPosition(self._observation)


class ShowsTensors(Protocol):
    """A reference that shows every tensor of its last run."""

    def tensors(self) -> NamedTensors | Tensors:
        """The values of the last run."""


def tensors_of(runtime: ShowsTensors) -> Callable[[int], Tensors]:
    """The tensors that :func:`compare_layers` needs of a sample, asked right after the runtime computed the sample."""

    def last_run(sample: int) -> Tensors:
        values = runtime.tensors()
        return TensorsByName(values) if isinstance(values, NamedTensors) else values

    return last_run


def stored_tensors(path: Path) -> Callable[[int], Tensors]:
    """The same for an ``.npz`` file: arrays ``tensor:<name>`` and ``output:<name>``, each a stack of samples."""
    stacks = {n.partition(":")[2]: a for n, a in load_arrays(path).items() if n.startswith(("tensor:", "output:"))}
    if not stacks:
        raise InputError(Reason("arrays tensor:NAME of intermediate values", "none", file=str(path)))
    return lambda sample: TensorsByName(
        NamedTensors({(0, name): stack[sample] for name, stack in stacks.items() if sample < len(stack)})
    )
