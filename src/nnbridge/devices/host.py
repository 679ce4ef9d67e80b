"""The host: runs the operations of host extensions, which no NNAPI device can.

It stands for what a TFLite or ONNX interpreter does on a phone with the operators that its delegate leaves. It
goes through the vendor-extension machinery like any other device and accepts nothing else. The bodies of its control flow
hold host operations and NNAPI's side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from nnbridge.cpu.custom import Args, CustomKernel, declared_argument, labelled
from nnbridge.cpu.executor import Executor, fully_known
from nnbridge.cpu.settings import Settings, Tier, current
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import Capabilities, Device, Performance, PreparedModel, PrepareModelConfig, Support
from nnbridge.errors import BadDataError, OpFailedError, Reason, pass_shortage
from nnbridge.extensions import (
    TYPES,
    Arg,
    Extension,
    ModelKernel,
    PreparedHostKernel,
    StatedKernel,
    host_operation,
    host_options,
    is_options,
)
from nnbridge.model import Array, Model, Operand, Operation, Source, Subgraph, known
from nnbridge.operations.numerics import current as arithmetic_in_force
from nnbridge.records import dataclass
from nnbridge.types import WRITTEN, DeviceTypeCode, Lifetime, OperandCode, is_extension

HOST_NAME = "host"
_Item = TypeVar("_Item")


class HostPreparedModel(CpuPreparedModel):
    """Host operations, and NNAPI's in bodies of control flow, which their reference kernels compute.

    Its arithmetic is the one in which it is prepared (:func:`~nnbridge.operations.numerics.using`).
    """

    def __init__(self, model: Model, *, mixed: bool = False) -> None:
        """``mixed``: NNAPI's operations in the main subgraph, too."""
        kernels, whole = host_kernels(model, model.main, mixed), mixed or bool(model.referenced)
        tier, observed = (Tier.REFERENCE, None) if whole else (current().tier, {i: i for i in range(len(model.main.operands))})
        lowered, kernels = (model, kernels) if whole else _lowered(model, kernels)
        arithmetic, custom = arithmetic_in_force().name, [kernels, *body_kernels(model)]
        super().__init__(lowered, arithmetic, tier, custom=custom, observed=observed)


def _lowered(model: Model, kernels: Mapping[int, CustomKernel]) -> tuple[Model, dict[int, CustomKernel]]:
    """The model with NNAPI's operations in the place of host operations that are models of such; operands stay as they are."""
    operands, operations, left = list(model.main.operands), list[Operation](), dict[int, CustomKernel]()
    pools, values = list(model.pools), [model.operand_values]
    for k, operation in enumerate(model.main.operations):
        as_model = kernels[k].as_model
        inner = None if as_model is None else as_model()
        if inner is None:
            left[len(operations)] = kernels[k]
            operations.append(operation)
            continue
        part, copied = inner.model.main, sum(map(len, values))
        ends = [kernels[k].inputs[place] for place in inner.places]
        index = dict(zip((*part.inputs, *part.outputs), (*ends, *operation.outputs), strict=False))
        for i, operand in enumerate(part.operands):
            if i not in index:
                index[i] = len(operands)
                at, lifetime = operand.location, operand.lifetime
                if lifetime is Lifetime.CONSTANT_COPY:
                    at = replace(at, offset=at.offset + copied)
                elif lifetime is Lifetime.CONSTANT_REFERENCE:
                    at = replace(at, pool=at.pool + len(pools))
                operands.append(operand.at(Lifetime.TEMPORARY_VARIABLE if lifetime in WRITTEN else lifetime, at))
        pools += inner.model.pools
        values.append(inner.model.operand_values)
        for one in part.operations:
            inputs, outputs = (tuple([index[i] for i in side]) for side in (one.inputs, one.outputs))
            operations.append(replace(operation, type=one.type, inputs=inputs, outputs=outputs))
    main = replace(model.main, operands=tuple(operands), operations=tuple(operations))
    return replace(model, main=main, pools=tuple(pools), operand_values=b"".join(values)), left


def _fits(inner: ModelKernel, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> bool:
    """True for a model of NNAPI's operations on just these operands, all of known dimensions."""
    main, pairs = inner.model.main, [(i, inputs[place]) for i, place in zip(inner.model.main.inputs, inner.places, strict=True)]
    pairs += zip(main.outputs, outputs, strict=False)
    return (
        not inner.model.extensions
        and not inner.model.referenced
        and len(main.outputs) >= len(outputs)
        and not any(operand.is_constant and 0 in operand.dims for operand in main.operands)
        and all(_kind(main.operands[i]) == _kind(operand) and fully_known(operand) for i, operand in pairs)
    )


def _kind(operand: Operand) -> tuple[object, ...]:
    return operand.type, operand.dims, operand.scale, operand.zero_point, operand.channel_quant


def host_kernels(model: Model, subgraph: Subgraph, mixed: bool = False) -> dict[int, CustomKernel]:
    """The kernels of a subgraph's host operations by position; BAD_DATA for other operations, unless NNAPI's are ``mixed`` in."""
    return {
        k: _host_kernel(model, subgraph, operation)
        for k, operation in enumerate(subgraph.operations)
        if is_extension(operation.type) or not mixed
    }


def body_kernels(model: Model) -> list[dict[int, CustomKernel]]:
    """The kernels of the host operations in each body."""
    return [host_kernels(model, body, True) for body in model.referenced]


_FLIP = 128


def sign_flipped(array: Array) -> Array:
    """int8 as uint8 that is offset by 128, and back."""
    return (array.view(np.uint8) ^ np.uint8(_FLIP)).view(np.int8 if array.dtype == np.uint8 else np.uint8)


def _signed(arg: Arg) -> Arg:
    """The int8 operand that a uint8 operand stands for."""
    value = None if arg.value is None else sign_flipped(arg.value)
    return replace(arg, value=value, type=OperandCode.TENSOR_QUANT8_ASYMM_SIGNED, zero_point=arg.zero_point - _FLIP)


def _in_place(items: Sequence[_Item], chosen: Sequence[bool], change: Callable[[_Item], _Item]) -> Sequence[_Item]:
    """Items of which the chosen ones are changed."""
    return [change(item) if here else item for item, here in zip(items, chosen, strict=True)] if any(chosen) else items


def _flipped_or_none(array: Array | None) -> Array | None:
    return None if array is None else sign_flipped(array)


def mixed_executor(model: Model) -> Executor:
    """An executor of NNAPI's operations and the host's, by their reference kernels."""
    return Executor(model, kernels=Tier.REFERENCE, custom=[host_kernels(model, model.main, True), *body_kernels(model)])


def _faster(prepared: PreparedHostKernel | ModelKernel | None, settings: Settings) -> PreparedHostKernel | None:
    """The same function by the executor's kernels, or by a compiled kernel of its own, where there is such."""
    if isinstance(prepared, ModelKernel):
        kernel, nnapis = prepared, not prepared.model.extensions
        executor = Executor(prepared.model, kernels=settings.tier) if nnapis else mixed_executor(prepared.model)
        return lambda arrays: kernel.results([out.data for out in executor.run(kernel.arguments(arrays))])
    if isinstance(prepared, StatedKernel) and settings.tier >= Tier.COMPILED:
        from nnbridge.cpu.compiled.routines import routine  # llvmlite is imported when it is used

        return routine(prepared, settings.threads) or prepared
    return prepared


def _host_kernel(model: Model, subgraph: Subgraph, operation: Operation) -> CustomKernel:
    """The kernel of one host operation with the options bound.

    It computes in the source file's types, as a phone's host does.
    """
    hosted = host_operation(model, operation)
    if isinstance(hosted, Reason):
        raise BadDataError(hosted)
    settings, options = current(), host_options(model, subgraph, operation)
    label, inputs = labelled(hosted.name, operation), tuple(i for i in operation.inputs if not is_options(subgraph.operands[i]))
    # On phones the delegate converts int8 back for the host.
    signed, written = ([subgraph.operands[i].is_sign_flipped for i in side] for side in (inputs, operation.outputs))

    def ends(inputs: Args, outputs: Args) -> tuple[Args, Args]:
        return _in_place(inputs, signed, _signed), _in_place(outputs, written, _signed)

    def in_models_types(results: Sequence[Array]) -> Sequence[Array]:
        """Kernels may return fewer results than there are."""
        return _in_place(results, written[: len(results)], sign_flipped)

    def compute(inputs: Args, outputs: Args) -> Sequence[Array]:
        if hosted.kernel is None:
            raise OpFailedError(Reason(hosted.reason or "an operation that the host can run", "", label))
        return in_models_types(hosted.kernel(*ends(inputs, outputs), options))

    early: list[PreparedHostKernel | ModelKernel | None] = []
    """What was prepared for the declared dimensions, which the executor asks for first."""

    def as_model() -> ModelKernel | None:
        read, results = ([subgraph.operands[i] for i in side] for side in (inputs, operation.outputs))
        stated = all(o.is_constant or o.lifetime is Lifetime.NO_VALUE or known(o.dims) for o in read)
        if hosted.prepare is None or any((*signed, *written)) or not stated:
            return None
        try:
            args, outs = ([declared_argument(model, operand) for operand in side] for side in (read, results))
            early.append(hosted.prepare(args, outs, options))
        except Exception as error:
            pass_shortage(error)
            return None
        found = early[0]
        return found if isinstance(found, ModelKernel) and _fits(found, read, results) else None

    def prepare(inputs: Args, outputs: Args) -> PreparedHostKernel | None:
        assert hosted.prepare is not None
        found = _faster(early.pop() if early else hosted.prepare(*ends(inputs, outputs), options), settings)
        if found is None or not any((*signed, *written)):
            return found
        return lambda arrays: in_models_types(found(_in_place(arrays, signed, _flipped_or_none)))

    return CustomKernel(label, inputs, compute, None if hosted.prepare is None else prepare, hosted.control, as_model)


@dataclass(frozen=True)
class Computing:
    """The runtime that computes an operator that stays with the host."""

    by: str = "nnbridge"
    """nnbridge's own kernels, or a runtime by the name of ``--host``."""
    version: str = ""
    reason: Reason | None = None
    """Why nnbridge, where the runtime was expected to."""


class HostDevice(Device):
    """Accepts the operations of installed host extensions and nothing else.

    ``why``: why nnbridge's own host computes, where an inference runtime might be expected.
    """

    name = HOST_NAME
    version = "nnbridge"
    type = DeviceTypeCode.OTHER
    kind = "host"

    def __init__(self, why: Reason | None = None) -> None:
        self.why = why

    def computing(self, source: Source) -> Computing:
        """The runtime that computes an operator of the file, once it is prepared."""
        return Computing(reason=self.why)

    @property
    def capabilities(self) -> Capabilities:
        """1.0 for all; no device competes with it."""
        return Capabilities({}, Performance(1.0, 1.0), Performance(1.0, 1.0))

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """True for operations of host extensions, also for those that will be refused when they run."""
        found = [host_operation(model, operation) for operation in model.main.operations]
        return [answer if isinstance(answer, Reason) else True for answer in found]

    def supported_extensions(self) -> Sequence[Extension]:
        """Every installed host extension."""
        return tuple(TYPES.host_extensions().values())

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        """Look up every operation, and prepare those that can be."""
        return HostPreparedModel(model)
