"""Arguments of an execution, set before it computes: inputs, outputs and options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from nnbridge.devices.device import OutputBuffer, Request, deadline_after
from nnbridge.errors import BadDataError, BadStateError, Reason
from nnbridge.model import Operand, known
from nnbridge.runtime.arguments import MAX_LENGTH, Argument, as_array, bytes_of, fixed_dims, input_array
from nnbridge.runtime.compilation import Compilation, attribute
from nnbridge.runtime.driver_calls import size_of
from nnbridge.runtime.memory import INPUT, OUTPUT, Memory, Role
from nnbridge.types import MAX_LOOP_TIMEOUT_NS, OperandCode

Item = TypeVar("Item")


class ExecutionState(Enum):
    """The state of an execution."""

    PREPARATION = "preparation"
    COMPUTATION = "computation"
    COMPLETED = "completed"


class ExecutionArguments:
    """The part of an execution that is set in preparation."""

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation
        self._explicit_single = compilation.explicit_single
        _ = compilation.prepared_plan  # BAD_STATE if it is not finished
        main = compilation.model.main
        self._input_operands = [main.operands[i] for i in main.inputs]
        self._output_operands = [main.operands[i] for i in main.outputs]
        self._inputs: list[Argument | None] = [None] * len(self._input_operands)
        self._outputs: list[Argument | None] = [None] * len(self._output_operands)
        self._loop_timeout: int | None = None
        self._timeout: int | None = None
        self._padded = self._measured = self._reusable = self._any_set = False
        self._steps_measured = False
        self._hints: list[tuple[str, int, bytes]] = []
        self._state = ExecutionState.PREPARATION

    # -- arguments ---------------------------------------------------------------------------------------------------

    def set_input(self, index: int, value: ArrayLike | None) -> None:
        """``setInput`` of an array of the operand's element type, its shape filling in what the model leaves open.

        Numbers and lists of numbers are converted. None omits the input. BAD_STATE if it is set already or the execution has
        started; BAD_DATA for a wrong index, type or shape.
        """
        operand, _ = self._settable(self._inputs, self._input_operands, index, "setInput")
        array = None if value is None else as_array(operand, value, "setInput")
        self._inputs[index] = Argument(None, operand.dims if array is None else array.shape, None, array)
        self._any_set = True

    def set_input_buffer(self, index: int, buffer: object | None, dims: Sequence[int] | None = None) -> None:
        """``setInput`` of bytes: anything with the buffer protocol, read when computing; ``dims`` is the ``type`` argument.

        The length must be the operand's size, or more with padding enabled (facts E8 to E14).
        """
        self._set(INPUT, index, dims, "setInput", lambda: bytes_of(buffer, "setInput"))

    def set_input_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, dims: Sequence[int] | None = None
    ) -> None:
        """``setInputFromMemory``: ``length`` bytes at ``offset``; 0 and 0 mean the whole of a device memory (fact E16)."""
        call, role = "setInputFromMemory", Role(self.compilation, INPUT, index)
        self._set(INPUT, index, dims, call, lambda: memory.part(offset, length, role, call), memory)

    def set_output(self, index: int, buffer: object | None, dims: Sequence[int] | None = None) -> None:
        """``setOutput``: a writable buffer to fill; None omits the output.

        ``dims`` may fix dimensions that the model leaves open. Where they stay open, the buffer's size is its capacity.
        A buffer that overlaps an input, a constant or another output gives undefined results, as on Android.
        """
        self._set(OUTPUT, index, dims, "setOutput", lambda: bytes_of(buffer, "setOutput"))

    def set_output_from_memory(
        self, index: int, memory: Memory, offset: int = 0, length: int = 0, dims: Sequence[int] | None = None
    ) -> None:
        """``setOutputFromMemory``."""
        call, role = "setOutputFromMemory", Role(self.compilation, OUTPUT, index)
        self._set(OUTPUT, index, dims, call, lambda: memory.part(offset, length, role, call), memory)

    def _set(
        self,
        direction: str,
        index: int,
        dims: Sequence[int] | None,
        call: str,
        bytes_now: Callable[[], npt.NDArray[np.uint8] | None],
        memory: Memory | None = None,
    ) -> None:
        is_input = direction == INPUT
        arguments, operands = (self._inputs, self._input_operands) if is_input else (self._outputs, self._output_operands)
        operand, fixed = self._settable(arguments, operands, index, call, dims)
        fixed = fixed if memory is None else memory.combined(fixed, call)
        data = bytes_now()
        if data is not None:
            if not is_input and not data.flags.writeable:
                # Of memories as well: compiled kernels write to addresses, and a read-only mapping would end the process.
                rule = "a contiguous, writable buffer" if memory is None else "memory that can be written"
                raise BadDataError(Reason(rule, "another", call, operand.name))
            self._check_length(operand, fixed, len(data), call, is_input=is_input)
        arguments[index] = Argument(data, fixed, memory)
        self._any_set = True

    def _settable(
        self,
        arguments: Sequence[Argument | None],
        operands: Sequence[Operand],
        index: int,
        call: str,
        dims: Sequence[int] | None = None,
    ) -> tuple[Operand, tuple[int, ...]]:
        """The operand and its dimensions. Android's order of checks (fact E6): started, index, dimensions, already set."""
        self.require_preparation(call)
        operand = self._at(operands, index, call)
        fixed = fixed_dims(operand, dims, call)
        if arguments[index] is not None:
            what = "input" if call.startswith("setInput") else "output"
            raise BadStateError(Reason(f"an {what} that is not set", "set before", call, operand.name))
        return operand, fixed

    def _check_length(self, operand: Operand, dims: tuple[int, ...], length: int, call: str, *, is_input: bool = False) -> None:
        """Facts E9, E12, E13."""
        if length > MAX_LENGTH:
            raise BadDataError(Reason(f"{MAX_LENGTH} bytes at most", str(length), call, operand.name))
        self._any_set = True  # A refused size counts as well (fact E15).
        if operand.type == OperandCode.OEM_SCALAR:
            return
        if is_input and operand.is_tensor and not known(dims):
            raise BadDataError(Reason("known dimensions of an input", str(list(dims)), call, operand.name))
        size = size_of(operand, dims)
        if size is None:
            if length == 0:
                raise BadDataError(Reason("at least one byte", "0", call, operand.name))
            return
        if length < size or (length > size and not self._padded):
            rule = f"{size} bytes" + (" at least" if self._padded else "")
            raise BadDataError(Reason(rule, f"{length}", call, operand.name))

    # -- options -----------------------------------------------------------------------------------------------------

    def enable_input_and_output_padding(self, enable: bool) -> None:
        """``enableInputAndOutputPadding``: buffers may be longer than their operands; before anything is set (fact E15)."""
        self.require_preparation("enableInputAndOutputPadding")
        if self._any_set:
            raise BadStateError(Reason("no input or output set yet", "some are", "enableInputAndOutputPadding"))
        self._padded = bool(enable)

    def set_reusable(self, reusable: bool) -> None:
        """``setReusable``: computing may be repeated with the same arguments (feature level 5)."""
        self.require_preparation("setReusable")
        self._reusable = bool(reusable)

    def set_measure_timing(self, measure: bool) -> None:
        """``setMeasureTiming``: BAD_DATA unless the compilation has an explicit list of one device (fact E20)."""
        self._require_single("setMeasureTiming")
        self.require_preparation("setMeasureTiming")
        self._measured = bool(measure)

    def measure_steps(self) -> None:
        """Let every device of the plan measure its steps, which :attr:`report` then states; there is no such call in the NDK."""
        self.require_preparation("measure_steps")
        self._steps_measured = True

    def add_extension_attribute(self, name: str, number: int, value: bytes) -> None:
        """``addExtensionAttribute``: a hint for the driver, each once; for an explicit list of one device (fact E20; level 8)."""
        call = "addExtensionAttribute"
        self._require_single(call)
        self.require_preparation(call)
        self._hints.append(attribute(self._hints, name, number, value, call))

    def set_timeout(self, nanoseconds: int) -> None:
        """``setTimeout``: counted again for each computing; 0 for none (feature level 4, fact E20)."""
        self._require_single("setTimeout")
        self.require_preparation("setTimeout")
        self._timeout = nanoseconds or None

    def set_loop_timeout(self, nanoseconds: int) -> None:
        """``setLoopTimeout``: time for each WHILE loop, at most 15 s (more is cut down to it)."""
        self.require_preparation("setLoopTimeout")
        self._loop_timeout = min(nanoseconds, MAX_LOOP_TIMEOUT_NS)

    def request(self, limit: int | None = None) -> Request:
        """The request to a device that runs the whole model, with a time limit in nanoseconds."""
        return Request(
            tuple(map(input_array, self._inputs, self._input_operands)),
            tuple(OutputBuffer(a.data, a.dims) for a in self._outputs if a is not None),
            deadline_after(limit),
            self._loop_timeout,
            self._measured or self._steps_measured,
            tuple(self._hints),
        )

    # -- helpers -----------------------------------------------------------------------------------------------------

    def require_preparation(self, call: str) -> None:
        """BAD_STATE unless the execution has not started yet."""
        if self._state is not ExecutionState.PREPARATION:
            raise BadStateError(Reason("an execution that has not started", self._state.value, call))

    def _require_single(self, call: str) -> None:
        if not self._explicit_single:
            raise BadDataError(Reason("a compilation for exactly one device", "another", call))

    @staticmethod
    def _at(items: Sequence[Item], index: int, call: str) -> Item:
        if not 0 <= index < len(items):
            raise BadDataError(Reason(f"an index below {len(items)}", str(index), call))
        return items[index]
