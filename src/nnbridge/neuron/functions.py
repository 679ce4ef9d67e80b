"""The functions of libneuron_adapter.so: models are recorded, compilations answered by nnbridge's devices.

Everything that describes a model is accepted; an operator that nnbridge or its devices do not accept is refused where the
compiler asks for it, because any other failure costs the whole file.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from nnbridge.clib.glue import ArgumentConverter
from nnbridge.converters.recorded import RecordedOperand, RecordedOperation, Recording
from nnbridge.errors import BadDataError, BadStateError, Reason
from nnbridge.json_data import json_text
from nnbridge.ndk.core import HANDLES, Buffer, Handle, OperandType, SymmPerChannelQuantParams, exactly, free, function, not_null
from nnbridge.neuron.answers import answered, compiled, route, target
from nnbridge.neuron.signatures import NEURON, NEURON_SIGNATURES
from nnbridge.records import dataclass
from nnbridge.types import EXTENSION_PREFIX_SHIFT

LOG = logging.getLogger("nnbridge.neuron")
VERSION = (8, 2, 24)
"""The lowest version of Neuron for which the compiler asks for the support of operations."""
EXTENSION_PREFIX = 1
FILE_VARIABLE = "NNBRIDGE_NEURON_FILE"
"""The TFLite file that is compiled, where it is known: what calls lose of it is refused."""

REPORT_VARIABLE = "NNBRIDGE_NEURON_REPORT"
"""A file to which each answer and each compiled partition is written, one JSON object in each line."""
_QUESTIONS = itertools.count()
"""Questions so far: the compiler asks once for each subgraph of a file, in order."""

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Every function of the library by name."""


@dataclass
class RecordedModel:
    """``NeuronModel``: a model as it is passed."""

    name: str = ""
    operands: list[RecordedOperand] = field(default_factory=list)
    operations: list[RecordedOperation] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    relaxed: bool = False
    finished: bool = False
    extension: int = 0

    def operand(self, index: int, call: str) -> RecordedOperand:
        """An operand; BAD_DATA for one that was not added."""
        self.check((index,), call)
        return self.operands[index]

    def check(self, indexes: Sequence[int], call: str) -> None:
        """BAD_DATA for operands that were not added."""
        for index in indexes:
            if not 0 <= index < len(self.operands):
                raise BadDataError(Reason(f"an operand below {len(self.operands)}", str(index), call))

    def recording(self) -> Recording:
        """The finished model; BAD_STATE before."""
        if not self.finished:
            raise BadStateError(Reason("a model that finished", "one that did not", self.name))
        return Recording(
            self.name, tuple(self.operands), tuple(self.operations), self.inputs, self.outputs, extension=self.extension
        )


@dataclass
class RecordedCompilation:
    """``NeuronCompilation``: a recorded model, and what was compiled of it."""

    model: RecordedModel
    stored: bytes | None = None

    def content(self) -> bytes:
        """The stored bytes; BAD_STATE before a finish that succeeded."""
        if self.stored is None:
            raise BadStateError(Reason("a compilation that finished", "one that did not"))
        return self.stored


def neuron(*failed: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function of the library, whose name it has without the prefix; ``failed`` as in :func:`nnbridge.ndk.core.function`."""

    def export(body: Callable[..., Any]) -> Callable[..., Any]:
        # No function of NNAPI's: those have public names.
        call = FUNCTIONS[NEURON + body.__name__.removeprefix("_")] = function(*failed)(body)
        return call

    return export


# -- the library ---------------------------------------------------------------------------------------------------------


@neuron(None)
def __getVersion() -> list[int]:
    return list(VERSION)


@neuron(0)
def __getL1MemorySizeKb() -> int:
    """No such memory is emulated."""
    return 0


# -- models --------------------------------------------------------------------------------------------------------------


def _model(handle: Handle | None) -> RecordedModel:
    return HANDLES.get(handle, RecordedModel)


@neuron(None)
def _Model_create() -> Handle:
    return HANDLES.add(RecordedModel())


@neuron()
def _Model_setName(model: Handle, name: str) -> None:
    _model(model).name = not_null(name, "a name")


@neuron()
def _Model_addOperand(model: Handle, type: OperandType) -> None:
    type = not_null(type, "an operand type")
    dims = tuple(d if d < 1 << 31 else -1 for d in type.dimensions or ())
    _model(model).operands.append(RecordedOperand(type.type, dims, type.scale, type.zeroPoint))


@neuron()
def _Model_setOperandValue(model: Handle, index: int, buffer: Buffer, length: int) -> None:
    found = _model(model)
    operand = found.operand(index, "setOperandValue")
    # What the buffer holds may be gone when the call returns.
    value = exactly(buffer, length)
    found.operands[index] = replace(operand, value=None if value is None else bytes(value))


@neuron()
def _Model_setOperandSymmPerChannelQuantParams(model: Handle, index: int, params: SymmPerChannelQuantParams) -> None:
    params = not_null(params, "parameters")
    _per_channel(model, index, params.channelDim, params.scales or (), ())


@neuron()
def _Model_setOperandPerChannelQuantParams(
    model: Handle, index: int, params: tuple[int, tuple[float, ...], tuple[int, ...]]
) -> None:
    _per_channel(model, index, *not_null(params, "parameters"))


def _per_channel(model: Handle, index: int, dim: int, scales: Sequence[float], points: Sequence[int]) -> None:
    found = _model(model)
    operand = found.operand(index, "setOperandPerChannelQuantParams")
    found.operands[index] = replace(operand, scales=tuple(scales), zero_points=tuple(points), channel_dim=dim)


@neuron()
def _Model_addOperation(model: Handle, type: int, inputs: Sequence[int] | None, outputs: Sequence[int] | None) -> None:
    found = _model(model)
    found.check((*(inputs or ()), *(outputs or ())), "addOperation")
    found.operations.append(RecordedOperation(type, tuple(inputs or ()), tuple(outputs or ())))


@neuron()
def _Model_identifyInputsAndOutputs(model: Handle, inputs: Sequence[int] | None, outputs: Sequence[int] | None) -> None:
    """Called before any operation is added."""
    found = _model(model)
    found.inputs, found.outputs = tuple(inputs or ()), tuple(outputs or ())
    found.check((*found.inputs, *found.outputs), "identifyInputsAndOutputs")


@neuron()
def _Model_finish(model: Handle) -> None:
    _model(model).finished = True


@neuron()
def _Model_relaxComputationFloat32toFloat16(model: Handle, allow: bool) -> None:
    """Called after finish, where NNAPI would refuse it."""
    _model(model).relaxed = bool(allow)


@neuron(None)
def _Model_getExtensionOperandType(model: Handle, name: str, number: int) -> int:
    return _extension_code(model, number)


@neuron(None)
def _Model_getExtensionOperationType(model: Handle, name: str, number: int) -> int:
    return _extension_code(model, number)


def _extension_code(model: Handle, number: int) -> int:
    """A code of the compiler's only extension, whose name is not needed."""
    _model(model).extension = EXTENSION_PREFIX
    return EXTENSION_PREFIX << EXTENSION_PREFIX_SHIFT | number


# -- compilations --------------------------------------------------------------------------------------------------------


def _compilation(handle: Handle | None) -> RecordedCompilation:
    return HANDLES.get(handle, RecordedCompilation)


@neuron(None)
def _Compilation_create(model: Handle) -> Handle:
    return HANDLES.add(RecordedCompilation(_model(model)))


@neuron(None)
def _Compilation_createWithOptions(model: Handle, options: str) -> Handle:
    """The options are those of MediaTek's compiler, of which an emulated device knows nothing."""
    return HANDLES.add(RecordedCompilation(_model(model)))


@neuron([])
def _Compilation_getSupportedOperations(compilation: Handle, count: int) -> list[bool]:
    """Asked of a compilation that is not finished."""
    recording = _compilation(compilation).model.recording()
    if count != len(recording.operations):
        raise BadDataError(Reason(f"{len(recording.operations)} operations", str(count), "getSupportedOperations"))
    answer = answered(route().express(recording), target().devices, _lost(next(_QUESTIONS)))
    for number, reason in sorted(answer.refused.items()):
        LOG.info("operation %d is refused: %s", number, reason)
    report({"names": answer.names, "refused": {number: str(reason) for number, reason in answer.refused.items()}})
    return [number not in answer.refused for number in range(count)]


def _lost(subgraph: int) -> Mapping[int, Reason]:
    """The facts that calls leave out about a subgraph of the compiled file, where the file is known."""
    path = os.environ.get(FILE_VARIABLE, "")
    passed = route().passed(Path(path)) if path else ()
    return passed[subgraph].lost if subgraph < len(passed) else {}


def report(entry: Mapping[str, object]) -> None:
    """Add a line to the report that the environment names."""
    path = os.environ.get(REPORT_VARIABLE, "")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json_text(entry) + "\n")


@neuron()
def _Compilation_finish(compilation: Handle) -> None:
    found = _compilation(compilation)
    expressed = route().express(found.model.recording())
    partition = compiled(expressed, found.model.relaxed)
    report({"partition": found.model.name, "names": expressed.names})
    LOG.info("%s is compiled for %s", found.model.name, ", ".join(partition.devices))
    found.stored = partition.stored()


@neuron(0)
def _Compilation_getCompiledNetworkSize(compilation: Handle) -> int:
    return len(_compilation(compilation).content())


@neuron()
def _Compilation_storeCompiledNetwork(compilation: Handle, buffer: Buffer, length: int) -> None:
    content = _compilation(compilation).content()
    view = not_null(exactly(buffer, length), "a buffer")
    if len(view) < len(content):
        raise BadDataError(Reason(f"a buffer of {len(content)} bytes", str(len(view)), "storeCompiledNetwork"))
    view[: len(content)] = content


def _accepted(*_: object) -> None:
    """A hint, or a setting, that no emulated device reads."""


for _name in ("setPriority", "setPreference", "setOptimizationHint", "setOptimizationString", "setL1MemorySizeKb"):
    _accepted.__name__ = f"_Compilation_{_name}"
    neuron()(_accepted)
for _kind, _class in {"Model": RecordedModel, "Compilation": RecordedCompilation}.items():
    FUNCTIONS[f"{NEURON}{_kind}_free"] = lambda handle, kind=_class: free(handle, kind)


def _missing(name: str, results: int) -> Callable[..., Any]:
    def refuse(*_: object) -> None:
        rule = "the dispatch library of nnbridge (libLiteRtDispatch_nnbridge.so), which runs what was compiled"
        raise BadStateError(Reason(rule, name))

    refuse.__name__ = "_" + name
    return function(*[None] * results)(refuse)


for _signature in NEURON_SIGNATURES:
    if _signature.name not in FUNCTIONS:
        # What runs a compiled network on a phone.
        _results = sum(parameter.is_result for parameter in _signature.parameters)
        _body = _missing(_signature.name, _results)
        FUNCTIONS[_signature.name] = (lambda *_: None) if _signature.returns == "void" else _body


class NeuronConverter(ArgumentConverter):
    """Between C's values and Python's, with the structure that NNAPI does not have."""

    def __init__(self, ffi: Any) -> None:
        super().__init__(ffi)
        self.conversions["channelPoints"] = self._channel_points

    def _channel_points(self, pointer: Any) -> tuple[int, tuple[Any, ...], tuple[Any, ...]] | None:
        if pointer == self.null:
            return None
        found = self.ffi.cast("const NeuronPerChannelQuantParams*", pointer)
        scales = self.sized(found.scales, found.scaleCount) or ()
        return found.channelDim, scales, self.sized(found.zeroPoints, found.zeroPointCount) or ()
