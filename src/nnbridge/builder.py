"""NNAPI's construction protocol: operands, values and operations go in, ``finish`` returns an immutable Model.

The rules and their result codes are those of Android's ``ModelBuilder``; each refusal is an exception that carries the
code. A refused call leaves the builder as it was; only ``finish`` can make it invalid for good.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import cache, lru_cache

import numpy as np

from nnbridge.device_view import device_view, pad, small_alignment
from nnbridge.errors import BadDataError, BadStateError, Reason, UnexpectedNullError
from nnbridge.extensions import TYPES
from nnbridge.model import ChannelQuant, Location, Model, Operand, Operation, Pool, Source, Subgraph, float32
from nnbridge.operations import definition
from nnbridge.operations.declaration import Input
from nnbridge.operations.validation import (
    Verdict,
    byte_size,
    check_operand_type,
    state_verdicts,
    validate_model,
    validate_operation,
)
from nnbridge.types import (
    CONTROL_FLOW,
    MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES,
    POOL_ALIGNMENT,
    RUNTIME_FEATURE_LEVEL,
    TYPE_FACTS,
    WRITTEN,
    FeatureLevel,
    Lifetime,
    OperandCode,
    OperationCode,
    is_extension,
    operation_name,
    split_extension_code,
)

_MAX_OPERANDS = 2**32 - 2
_OPERATIONS = frozenset(OperationCode)


LOG = logging.getLogger(__name__)


@cache
def warn_of_oem() -> None:
    """Once for a process (fact X25)."""
    LOG.warning("OEM types and operations are deprecated since Android 10; use vendor extensions")


class _State(Enum):
    OPEN = "open"
    COMPLETED = "completed"
    INVALID = "invalid"


class ModelBuilder:
    """Builds one model. Indexes of operands count from 0 in order of addition.

    Methods follow ``ANeuralNetworksModel_*``; sizes are bytes, dimensions element counts with 0 for "not known".
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._state = _State.OPEN
        self._operands: list[Operand] = []
        self._operations: list[Operation] = []
        self._verdicts: list[Verdict | None] = []
        self._inputs: tuple[int, ...] = ()
        self._outputs: tuple[int, ...] = ()
        self._small = bytearray()
        self._large: dict[int, memoryview] = {}
        """Operand → value that is read at finish."""
        self._pools: list[Pool] = []
        self._pool_numbers: dict[int, int] = {}
        self._referenced: list[Model] = []
        self._relaxed = False
        self._order: tuple[int, ...] = ()

    # -- operands and values ----------------------------------------------------------------------------------------

    def add_operand(
        self,
        type: int,
        dims: Sequence[int] = (),
        *,
        scale: float = 0.0,
        zero_point: int = 0,
        name: str = "",
        source_type: str = "",
    ) -> int:
        """``addOperand``: declare an operand, return its index.

        BAD_DATA for unknown types, scalars with dimensions, wrong quantisation or more than 2**32 - 1 bytes.
        """
        self.require_open("addOperand")
        TYPES.check_allowed(type, "addOperand")
        if type in (OperandCode.OEM_SCALAR, OperandCode.TENSOR_OEM_BYTE):
            warn_of_oem()
        dims, scale = tuple(map(int, dims)), float32(scale)
        reason = check_operand_type(type, dims, scale, zero_point)
        if reason is not None:
            raise BadDataError(Reason(reason.rule, reason.found, "addOperand", reason.operand or name))
        if len(self._operands) > _MAX_OPERANDS:
            raise BadDataError(Reason(f"at most {_MAX_OPERANDS} operands", operation="addOperand"))
        self._operands.append(Operand(type, dims, scale, int(zero_point), name=name, source_type=source_type))
        return len(self._operands) - 1

    def set_operand_value(self, index: int, value: object) -> None:
        """``setOperandValue``: a constant, or None for an omitted optional operand.

        ``value`` is anything with the buffer protocol, a number or a sequence of numbers. Up to 128 bytes are copied
        now; more are read at finish, so the buffer must stay as it is until then.
        """
        operand = self._open_operand(index, "setOperandValue")
        if value is None:
            self._operands[index] = operand.at(Lifetime.NO_VALUE)
            self._large.pop(index, None)
            return
        data = _bytes_of(operand, value)
        if len(data) == 0:
            raise BadDataError(Reason("a value of at least one byte", "0 bytes", "setOperandValue", f"operand {index}"))
        self._require_length(operand, index, len(data), "setOperandValue")
        if len(data) > MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES:
            self._operands[index] = operand.at(Lifetime.CONSTANT_REFERENCE, Location(-1, 0, len(data)))
            self._large[index] = data
            return
        self._large.pop(index, None)
        self._operands[index] = operand.at(Lifetime.CONSTANT_COPY, self._copied(data))

    def set_operand_value_from_memory(self, index: int, memory: Pool, offset: int, length: int) -> None:
        """``setOperandValueFromMemory``: a constant of ``length`` bytes at ``offset`` of a pool; nothing is copied."""
        call = "setOperandValueFromMemory"
        operand = self._open_operand(index, call)
        self._require_length(operand, index, length, call)
        if offset < 0 or offset + length > len(memory) or (offset == 0 and length == 0):
            raise BadDataError(Reason(f"a place inside {len(memory)} bytes", f"{offset}+{length}", call, operand.name))
        self._large.pop(index, None)
        self._operands[index] = operand.at(Lifetime.CONSTANT_REFERENCE, Location(self.pool_number(memory), offset, length))

    def set_operand_value_from_model(self, index: int, model: Model) -> None:
        """``setOperandValueFromModel``: the finished model that a MODEL operand of IF or WHILE stands for."""
        operand = self._open_operand(index, "setOperandValueFromModel")
        if model is None:
            raise UnexpectedNullError(Reason("a model", "None", "setOperandValueFromModel"))
        self._operands[index] = operand.at(Lifetime.SUBGRAPH, Location(offset=len(self._referenced)))
        self._referenced.append(model)

    def set_operand_symm_per_channel_quant_params(self, index: int, scales: Sequence[float], channel_dim: int) -> None:
        """``setOperandSymmPerChannelQuantParams``: one scale above 0 for each index along ``channel_dim``."""
        call = "setOperandSymmPerChannelQuantParams"
        operand = self._open_operand(index, call)
        label = operand.name or f"operand {index}"
        if operand.type != OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
            raise BadDataError(Reason("TENSOR_QUANT8_SYMM_PER_CHANNEL", str(operand), call, label))
        if not 0 <= channel_dim < len(operand.dims):
            raise BadDataError(Reason(f"channel_dim below {len(operand.dims)}", str(channel_dim), call, label))
        if len(scales) != operand.dims[channel_dim] or not scales:
            raise BadDataError(Reason(f"{operand.dims[channel_dim]} scales", str(len(scales)), call, label))
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.asarray(scales, np.float64).astype(np.float32)
        if not (rounded > 0).all():
            raise BadDataError(Reason("scales above 0", str(min(scales)), call, label))
        self._operands[index] = replace(operand, channel_quant=ChannelQuant(tuple(rounded.tolist()), channel_dim))

    def set_operand_extension_data(self, index: int, data: bytes | None) -> None:
        """``setOperandExtensionData``: opaque bytes that go to the driver with an extension operand; None removes them."""
        operand = self._open_operand(index, "setOperandExtensionData")
        if not is_extension(operand.type):
            raise BadDataError(Reason("an extension operand", str(operand), "setOperandExtensionData", operand.name))
        if data is not None and len(data) == 0:
            raise BadDataError(Reason("data of at least one byte, or none", "0 bytes", "setOperandExtensionData", operand.name))
        self._operands[index] = replace(operand, extension_data=data)

    def add_drafted(
        self,
        type: int,
        dims: Sequence[int],
        scale: float,
        zero_point: int,
        lifetime: Lifetime,
        value: bytes | Location,
        *,
        channel_quant: ChannelQuant | None = None,
        name: str = "",
        source_type: str = "",
    ) -> int:
        """An operand of one value in one call, which only :meth:`finish` checks: for clients that have checked it before.

        ``value``: the bytes of a small constant, else where the value lies in a pool of :meth:`pool_number`, or nowhere.
        """
        location = value if isinstance(value, Location) else self._copied(value)
        dims, scale, zero_point = tuple(map(int, dims)), float32(scale), int(zero_point)
        operand = Operand(type, dims, scale, zero_point, channel_quant, lifetime, location, None, name, source_type)
        self._operands.append(operand)
        return len(self._operands) - 1

    def add_drafted_scalar(self, type: int, content: bytes) -> int:
        """:meth:`add_drafted` of a scalar constant."""
        self._operands.append(Operand(type, (), 0.0, 0, None, Lifetime.CONSTANT_COPY, self._copied(content)))
        return len(self._operands) - 1

    def pool_number(self, memory: Pool) -> int:
        """The index of a pool among the model's."""
        number = self._pool_numbers.setdefault(id(memory), len(self._pools))
        if number == len(self._pools):
            self._pools.append(memory)
        return number

    # -- operations and interface -----------------------------------------------------------------------------------

    def add_operation(
        self,
        type: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        name: str = "",
        mapping: str = "",
        source: Source | None = None,
        checked: bool = True,
        verdict: Verdict | None = None,
    ) -> int:
        """``addOperation``: in any order; BAD_DATA if the operands, as declared so far, fit no signature.

        Without ``checked``, operands are left to :meth:`finish`, which takes over the ``verdict`` of a client that has one.
        """
        self.require_open("addOperation")
        TYPES.check_allowed(type, "addOperation")
        if type == OperationCode.OEM_OPERATION:
            warn_of_oem()
        if type not in _OPERATIONS and not (is_extension(type) and TYPES.name(type)):
            raise BadDataError(Reason("a known operation", operation_name(type), "addOperation"))
        operation = Operation(type, tuple(inputs), tuple(outputs), name, mapping, source)
        if checked:
            self._check_operation(operation)
        self._operations.append(operation)
        self._verdicts.append(verdict)
        return len(self._operations) - 1

    def _check_operation(self, operation: Operation) -> None:
        type, count = operation.type, len(self._operands)
        for index in (*operation.inputs, *operation.outputs):
            if index is None or not 0 <= index < count:
                self._operand(index, f"addOperation({operation_name(type)})")
        model = self._assemble(self._operands, (operation,), ()) if type in CONTROL_FLOW else None
        verdict = validate_operation(operation, self._operands, model, None if model is None else model.main)
        if verdict.reason is not None:
            raise BadDataError(self._readable(verdict.reason, operation))

    def identify_inputs_and_outputs(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """``identifyInputsAndOutputs``: each must be without value and without role so far."""
        call = "identifyInputsAndOutputs"
        self.require_open(call)
        for index in (*inputs, *outputs):
            self._operand(index, call)
        for listed, lifetime in ((inputs, Lifetime.SUBGRAPH_INPUT), (outputs, Lifetime.SUBGRAPH_OUTPUT)):
            for index in listed:
                operand = self._operands[index]
                if operand.lifetime is not Lifetime.TEMPORARY_VARIABLE:
                    label = operand.name or f"operand {index}"
                    raise BadDataError(Reason("an operand without value or role", operand.lifetime.name, call, label))
                self._operands[index] = operand.at(lifetime, operand.location)
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)

    def relax_computation_float32_to_float16(self, allow: bool) -> None:
        """``relaxComputationFloat32toFloat16``: allow float32 to be computed with float16's range and precision."""
        self.require_open("relaxComputationFloat32toFloat16")
        self._relaxed = bool(allow)

    # -- finish -----------------------------------------------------------------------------------------------------

    def finish(self) -> Model:
        """``finish``: lay out large values, sort into run order, validate, freeze. BAD_DATA makes the builder invalid."""
        self.require_open("finish")
        self._state = _State.INVALID
        operands = self._place_large_values()
        order = run_order(operands, self._operations)
        self._order = tuple(order)
        model = self._assemble(operands, tuple(self._operations[i] for i in order), tuple(self._pools))
        found = [verdict for i in order if (verdict := self._verdicts[i]) is not None]
        if len(found) == len(order):
            state_verdicts(model.main, found)
        verdict = validate_model(model)
        if verdict.reason is not None:
            raise BadDataError(verdict.reason)
        experimental = any(o.type == OperationCode.DENSIFY for o in self._operations)
        allowed = FeatureLevel.EXPERIMENTAL if experimental else RUNTIME_FEATURE_LEVEL
        if verdict.level > allowed:
            raise BadDataError(Reason(f"feature level {allowed} at most", str(verdict.level)))
        self._state = _State.COMPLETED
        trimmed = tuple([_without_trailing_defaults(o, model) for o in model.main.operations])
        finished = device_view(replace(model, main=replace(model.main, operations=trimmed)))
        if all(a is b for a, b in zip(trimmed, model.main.operations, strict=True)):
            # What devices see has other indexes and places of values, which verdicts do not depend on.
            finished.main.known.update(model.main.known)
        return finished

    @property
    def run_order(self) -> tuple[int, ...]:
        """After finish: for each operation of the model, its index in order of addition."""
        return self._order

    def _place_large_values(self) -> list[Operand]:
        """One pool for all values that are referenced until finish, each 64-byte aligned."""
        operands = list(self._operands)
        blob = bytearray()
        for index, value in self._large.items():
            pad(blob, POOL_ALIGNMENT)
            operands[index] = operands[index].at(Lifetime.CONSTANT_REFERENCE, Location(len(self._pools), len(blob), len(value)))
            blob += value
        if blob:
            self._pools.append(Pool.of(bytes(blob)))
        return operands

    def _assemble(self, operands: Sequence[Operand], operations: tuple[Operation, ...], pools: tuple[Pool, ...]) -> Model:
        """The model with its referenced models flattened into one list of subgraphs."""
        main = Subgraph(tuple(operands), operations, self._inputs, self._outputs)
        small, all_pools = bytearray(self._small), list(pools)
        referenced: list[Subgraph] = []
        bodies: list[int] = []
        for model in self._referenced:
            bodies.append(len(referenced))
            pad(small, POOL_ALIGNMENT)
            moved = (len(small), len(all_pools), len(referenced) + 1)
            referenced.append(_moved(replace(model.main, relaxed=model.relaxed), *moved))
            referenced.extend(_moved(s, *moved) for s in model.referenced)
            small += model.operand_values
            all_pools.extend(model.pools)
        if bodies:
            placed = (
                o.at(o.lifetime, Location(offset=bodies[o.location.offset])) if o.lifetime is Lifetime.SUBGRAPH else o
                for o in operands
            )
            main = replace(main, operands=tuple(placed))
        extensions = _extensions_in_use((main, *referenced))
        return Model(main, tuple(referenced), bytes(small), tuple(all_pools), self._relaxed, extensions, self._name)

    def _copied(self, data: bytes | memoryview) -> Location:
        """The offset of a small value among those that are copied."""
        small, length = self._small, len(data)
        if len(small) % 4 or length < 4:
            pad(small, small_alignment(length))
        small += data
        return Location(0, len(small) - length, length)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def require_open(self, call: str) -> None:
        """BAD_STATE once the model is finished, or has failed to."""
        if self._state is not _State.OPEN:
            raise BadStateError(Reason("a model that is not finished", self._state.value, call))

    def _open_operand(self, index: int, call: str) -> Operand:
        self.require_open(call)
        return self._operand(index, call)

    def _operand(self, index: int, call: str) -> Operand:
        if index is None:
            raise UnexpectedNullError(Reason("an operand index", "None", call))
        if not 0 <= index < len(self._operands):
            raise BadDataError(Reason(f"an operand index below {len(self._operands)}", str(index), call))
        return self._operands[index]

    def _require_length(self, operand: Operand, index: int, length: int, call: str) -> None:
        label = operand.name or f"operand {index}"
        if operand.type == OperandCode.OEM_SCALAR and call == "setOperandValue":
            return
        size = byte_size(operand)
        if size is None:
            raise BadDataError(Reason("known, non-zero dimensions of a constant", str(operand), call, label))
        if length != size:
            raise BadDataError(Reason(f"{size} bytes for {operand}", f"{length} bytes", call, label))

    def _readable(self, reason: Reason, operation: Operation) -> Reason:
        """The reason with the operation's place in the source file, where there is one."""
        return replace(reason, operation=f"{reason.operation} ({operation.name})") if operation.name else reason


def _bytes_of(operand: Operand, value: object) -> memoryview:
    """A value's bytes, without a copy where it already is a contiguous buffer."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return memoryview(value).cast("B")
    dtype = None if is_extension(operand.type) else TYPE_FACTS[operand.type].dtype
    array = np.ascontiguousarray(value, None if isinstance(value, np.ndarray) else dtype)
    return array.reshape(-1).view(np.uint8).data


def run_order(operands: Sequence[Operand], operations: Sequence[Operation]) -> list[int]:
    """Android's order: a stack of ready operations, the last one first (facts M40 to M43)."""
    waiting: dict[int, list[int]] = {}
    missing = []
    for i, operation in enumerate(operations):
        unknown = [operand for operand in operation.inputs if operands[operand].lifetime in WRITTEN]
        for operand in unknown:
            waiting.setdefault(operand, []).append(i)
        missing.append(len(unknown))
    ready = [i for i, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        i = ready.pop()
        order.append(i)
        for operand in operations[i].outputs:
            for reader in waiting.get(operand, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    ready.append(reader)
    if len(order) != len(operations):
        stuck = next(i for i, count in enumerate(missing) if count > 0)
        name = operations[stuck].name or operation_name(operations[stuck].type)
        raise BadDataError(Reason("operations without a cycle whose inputs are all produced", f"{name} never ready"))
    return order


def _moved(subgraph: Subgraph, small_base: int, pool_base: int, subgraph_base: int) -> Subgraph:
    """A referenced subgraph with its constants and bodies at their places in the outer model."""

    def moved(operand: Operand) -> Operand:
        at = operand.location
        if operand.lifetime is Lifetime.CONSTANT_COPY:
            return operand.at(operand.lifetime, replace(at, offset=at.offset + small_base))
        if operand.lifetime is Lifetime.CONSTANT_REFERENCE:
            return operand.at(operand.lifetime, replace(at, pool=at.pool + pool_base))
        if operand.lifetime is Lifetime.SUBGRAPH:
            return operand.at(operand.lifetime, replace(at, offset=at.offset + subgraph_base))
        return operand

    return replace(subgraph, operands=tuple(moved(o) for o in subgraph.operands))


def _extensions_in_use(subgraphs: Sequence[Subgraph]) -> dict[str, int]:
    """Extension name → prefix: of operands first, then of operations, subgraph by subgraph."""
    codes = [o.type for s in subgraphs for group in (s.operands, s.operations) for o in group]
    if not is_extension(max(codes, default=0)):
        return {}
    return {TYPES.registered_name(code): split_extension_code(code)[0] for code in codes if is_extension(code)}


def _without_trailing_defaults(operation: Operation, model: Model) -> Operation:
    """Trailing inputs that hold their default are dropped, so that older devices can run the operation (M45 to M48)."""
    operands, inputs = model.main.operands, operation.inputs
    for expanded, shorter in _shorter_forms(operation.type, tuple([operands[i].type for i in inputs])):
        keep = len(expanded)
        for count in shorter:
            if all(_is_default(operands[inputs[i]], expanded[i].default, model) for i in range(count, keep)):
                keep = count
        return operation if keep == len(expanded) else replace(operation, inputs=inputs[:keep])
    return operation


@lru_cache(maxsize=1024)
def _shorter_forms(code: int, types: tuple[int, ...]) -> Sequence[tuple[Sequence[Input], Sequence[int]]]:
    """The inputs of each form of an operation that has these types, and the smaller numbers of inputs that it admits."""
    found, declared = [], definition(code)
    for form in declared.signatures if declared is not None else ():
        if len(types) not in form.counts:
            continue
        expanded = form.expand(len(types))
        # Two forms of equal length differ in a type, such as CONV_2D's explicit and implicit padding.
        if not [d for d, type in zip(expanded, types, strict=True) if isinstance(d.type, OperandCode) and d.type != type]:
            found.append((expanded, sorted((count for count in form.counts if count < len(types)), reverse=True)))
    return found


def _is_default(operand: Operand, default: float | None, model: Model) -> bool:
    if default is None or operand.lifetime is not Lifetime.CONSTANT_COPY or operand.is_tensor:
        return False
    value = model.value(operand)
    return value is not None and bool(value == default)
