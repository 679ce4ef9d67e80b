"""A partition: a compiled model, bound to the tensors of an interpreter."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt

from nnbridge.converters.delegation import Part
from nnbridge.delegate.interpreter import InterpreterContext
from nnbridge.delegate.options import DelegateOptions
from nnbridge.devices.device import Device
from nnbridge.extensions import operand_dtype
from nnbridge.model import Array, Model, Operand
from nnbridge.ndk.core import TRACE, traced
from nnbridge.ndk.device_functions import partitioning_mode
from nnbridge.records import dataclass
from nnbridge.runtime.burst import Burst
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution

_FLIP = 0x80


def compiled(
    model: Model, options: DelegateOptions, devices: Sequence[Device], target: Sequence[Device], key: str
) -> Compilation:
    """Compile a partition as Android's delegate does: for target devices only, or without them for all with fallback.

    ``key`` says which partition it is, for the cache.
    """
    if TRACE is not None:
        traced("Model_finish", lambda: None, saved=lambda: TRACE.model(model) if TRACE is not None else "")
    compilation = _created(model, devices, target)
    if options.execution_preference >= 0:
        compilation.set_preference(options.execution_preference)
    compilation.set_priority(options.execution_priority)
    if options.max_compilation_timeout_duration_ns:
        compilation.set_timeout(options.max_compilation_timeout_duration_ns)
    if options.cache_dir and options.model_token:
        compilation.set_caching(options.cache_dir, hashlib.sha256(f"{options.model_token}\0{key}".encode()).digest())
    for hint in options.vendor_compilation_hints:
        compilation.add_extension_attribute(*hint)
    traced("Compilation_finish", compilation.finish, plan=lambda: TRACE.plan(compilation) if TRACE is not None else [])
    return compilation


def _created(model: Model, devices: Sequence[Device], target: Sequence[Device]) -> Compilation:
    return Compilation.create_for_devices(model, target) if target else Compilation.create(model, devices, partitioning_mode())


@dataclass
class _Bound:
    """An execution with the interpreter's buffers, and what is to be copied before and after it."""

    execution: Execution
    before: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], bool]] = field(default_factory=list)
    """Target, source, and whether signs are flipped."""
    after: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], bool]] = field(default_factory=list)


class DelegateKernel:
    """A partition of one interpreter, compiled."""

    def __init__(self, part: Part, compilation: Compilation, options: DelegateOptions, dims: Sequence[tuple[int, ...]]) -> None:
        self.part, self.compilation, self._options = part, compilation, options
        self.dims = tuple(dims)
        """The dimensions of the partition's inputs that it was compiled for."""
        self._own = len(part.outputs) - part.variables
        main = part.model.main
        self._operands = ([main.operands[i] for i in main.inputs], [main.operands[i] for i in main.outputs])
        self._bound: OrderedDict[tuple[tuple[int, int], ...], _Bound] = OrderedDict()
        self._now: _Bound | None
        self._burst = Burst(compilation) if self._in_bursts() else None
        self.resized(self.dims, [operand.dims for operand in self._operands[1]])

    def resized(self, dims: Sequence[tuple[int, ...]], computed: Sequence[tuple[int, ...]]) -> None:
        """The interpreter has other dimensions for the inputs, so outputs have others: executions are bound again."""
        self.dims, self._computed = tuple(dims), tuple(computed)
        self.dynamic = [tensor for tensor, known in zip(self.part.outputs, computed, strict=True) if 0 in known]
        """Outputs whose dimensions only a run knows."""
        self._now = None
        self._bound.clear()

    def _in_bursts(self) -> bool:
        """As asked, and by itself where Android's delegate does so: chosen devices of feature level 5 to 7."""
        levels = [device.level for device in self.compilation.plan.devices if device.kind == "device"]
        return self._options.use_burst_computation or (self.compilation.explicit and bool(levels) and 5 <= min(levels) <= 7)

    def output_dims(self) -> list[tuple[int, tuple[int, ...]]]:
        """The tensors of known dimensions that the partition writes, without variables."""
        pairs = zip(self.part.outputs[: self._own], self._computed, strict=False)
        return [(tensor, dims) for tensor, dims in pairs if 0 not in dims]

    def invoke(self, context: InterpreterContext, places: Callable[[], tuple[tuple[int, int], ...]] | None) -> None:
        """Compute. ``places``: where the tensors lie, if they have moved since the last time."""
        if self.dynamic:
            self._run(context)
            return
        if places is not None or self._now is None:
            self._now = None  # Should the tensors not fit, the next invoke must not compute with the old ones.
            self._now = self._at(context, places() if places is not None else ())
        for copy in self._now.before:
            _copy(*copy)
        self.compute()
        for copy in self._now.after:
            _copy(*copy)

    def compute(self) -> None:
        """Run NNAPI's execution once more on the buffers of the last invoke."""
        assert self._now is not None
        execution, burst = self._now.execution, self._burst
        if TRACE is None:
            execution.compute() if burst is None else burst.compute(execution)
        elif burst is None:
            traced("Execution_compute", execution.compute)
        else:
            traced("Execution_burstCompute", lambda: burst.compute(execution))

    def _at(self, context: InterpreterContext, places: tuple[tuple[int, int], ...]) -> _Bound:
        """The execution for these addresses, one of those that are stored or a new one."""
        bound = self._bound.pop(places, None) or self._bind(context)
        if self._options.max_execution_cache_size:
            self._bound[places] = bound
            while len(self._bound) > self._options.max_execution_cache_size:
                self._bound.popitem(last=False)
        return bound

    def _execution(self) -> Execution:
        execution, options = Execution(self.compilation), self._options
        if options.max_execution_timeout_duration_ns:
            execution.set_timeout(options.max_execution_timeout_duration_ns)
        if options.max_execution_loop_timeout_duration_ns:
            execution.set_loop_timeout(options.max_execution_loop_timeout_duration_ns)
        for hint in options.vendor_execution_hints:
            execution.add_extension_attribute(*hint)
        return execution

    def _bind(self, context: InterpreterContext) -> _Bound:
        bound = _Bound(self._execution())
        bound.execution.set_reusable(True)
        inputs, outputs = self._operands
        for i, (tensor, operand) in enumerate(zip(self.part.inputs, inputs, strict=True)):
            data = np.frombuffer(context.buffer(tensor), np.uint8)
            if operand.is_sign_flipped:
                own = np.empty(len(data), np.uint8)
                bound.before.append((own, data, True))
                data = own
            bound.execution.set_input_buffer(i, data, self._missing(context, tensor, operand))
        for i, (tensor, operand) in enumerate(zip(self.part.outputs, outputs, strict=True)):
            data = np.frombuffer(context.buffer(tensor), np.uint8)
            # A variable is read as it was before while its next value is computed.
            if i >= self._own or operand.is_sign_flipped:
                own = np.empty(len(data), np.uint8)
                bound.after.append((data, own, operand.is_sign_flipped))
                data = own
            bound.execution.set_output(i, data, self._missing(context, tensor, operand))
        return bound

    @staticmethod
    def _missing(context: InterpreterContext, tensor: int, operand: Operand) -> tuple[int, ...] | None:
        """The interpreter's dimensions where the model leaves some open."""
        return (context.dims(tensor) or (1,)) if 0 in operand.dims else None

    def _run(self, context: InterpreterContext) -> None:
        """Compute where outputs have dimensions that only the run knows."""
        arrays = [self._array(context, t, o) for t, o in zip(self.part.inputs, self._operands[0], strict=True)]
        execution = self._execution()
        outputs = traced("Execution_compute", lambda: execution.run(arrays))
        for (tensor, operand), array in zip(
            zip(self.part.outputs, self._operands[1], strict=True), outputs.values(), strict=True
        ):
            if tensor in self.dynamic:
                context.resize(tensor, array.shape)
            target = np.frombuffer(context.buffer(tensor), np.uint8)
            _copy(target, np.ascontiguousarray(array).view(np.uint8).reshape(-1), operand.is_sign_flipped)

    @staticmethod
    def _array(context: InterpreterContext, tensor: int, operand: Operand) -> Array:
        data = np.frombuffer(context.buffer(tensor), np.uint8)
        array = (data ^ np.uint8(_FLIP) if operand.is_sign_flipped else data).view(operand_dtype(operand))
        return array.reshape(context.dims(tensor) or (1,))


def _copy(target: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8], flip: bool) -> None:
    if flip:
        np.bitwise_xor(source, np.uint8(_FLIP), out=target)
    else:
        target[...] = source
