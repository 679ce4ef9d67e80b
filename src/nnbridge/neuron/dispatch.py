"""The dispatch library's C functions: partitions of a file are compiled for their devices, and computed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from nnbridge import devices as device_list
from nnbridge.clib.glue import begin_log
from nnbridge.errors import BadDataError, NnbridgeError, Reason
from nnbridge.extensions import value_size
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.storage.compiled import CompiledPartition, partition_in

LOG = logging.getLogger("nnbridge.dispatch")
FAILED = 3
RANK_BITS = 0x7F


class Invocation:
    """A partition, compiled for the devices that its file names."""

    def __init__(self, name: str, partition: CompiledPartition, inputs: int, outputs: int) -> None:
        main = partition.model.main
        self.sides = [main.operands[i] for i in main.inputs], [main.operands[i] for i in main.outputs]
        for side, found in zip(self.sides, (inputs, outputs), strict=True):
            if len(side) != found:
                raise BadDataError(Reason(f"{len(side)} operands of {name}, as it was compiled", str(found)))
        self.name = name
        devices = [device_list.device(device) for device in partition.devices]
        self._compilation = Compilation.create_for_devices(partition.model, devices)
        self._compilation.finish()
        self._places: tuple[int, ...] = ()
        self._execution: Execution | None = None

    def bytes_of(self, output: bool, index: int, dims: Sequence[int]) -> int:
        """The bytes of an operand. BAD_DATA for one that LiteRT has with other dimensions."""
        side = self.sides[output]
        if not 0 <= index < len(side):
            raise BadDataError(Reason(f"an operand below {len(side)}", str(index), self.name))
        operand = side[index]
        if (tuple(dims) or (1,)) != operand.dims:
            what = "output" if output else "input"
            raise BadDataError(Reason(f"{operand}, as it was compiled", str(list(dims)), self.name, f"{what} {index}"))
        return value_size(operand)

    def compute(self, places: tuple[int, ...], buffers: Callable[[], Sequence[Any]]) -> None:
        """Compute on buffers of inputs, then of outputs; ``places``: where they are."""
        if self._execution is None or places != self._places:
            execution, (inputs, outputs) = Execution(self._compilation), self.sides
            execution.set_reusable(True)
            views = [
                np.frombuffer(buffer, np.uint8)[: value_size(operand)]
                for buffer, operand in zip(buffers(), (*inputs, *outputs), strict=True)
            ]
            for i, view in enumerate(views[: len(inputs)]):
                execution.set_input_buffer(i, view)
            for i, view in enumerate(views[len(inputs) :]):
                execution.set_output(i, view)
            self._execution, self._places = execution, places
        self._execution.compute()


def connect(embedded: Any) -> None:
    """Define the library's functions."""
    begin_log()
    ffi = embedded.ffi
    invocations: dict[int, Invocation] = {}
    numbers = itertools.count(1)

    def defined(name: str, failed: int | None) -> Callable[[Callable[..., Any]], None]:
        """Define a C function; errors become a line on standard error, and ``failed``."""

        def define(body: Callable[..., Any]) -> None:
            @wraps(body)
            def call(*arguments: Any) -> Any:
                try:
                    return body(*arguments)
                except NnbridgeError as error:
                    LOG.error("%s", error)
                except Exception:
                    LOG.exception("%s failed inside nnbridge", name)
                return failed

            ffi.def_extern(name=name, **({} if failed is None else {"error": failed}))(call)

        return define

    @defined("nnbridge_open", 0)
    def opened(data: Any, size: int, name: Any, inputs: int, outputs: int) -> int:
        text = ffi.string(name).decode("utf-8", "replace")
        partition = partition_in(memoryview(ffi.buffer(data, size)), text, "DISPATCH_OP")
        number = next(numbers)
        invocations[number] = Invocation(text, partition, inputs, outputs)
        LOG.info("%s runs on %s, for which nnbridge %s compiled it", text, ", ".join(partition.devices), partition.nnbridge)
        return number

    @defined("nnbridge_close", None)
    def closed(number: int) -> None:
        invocations.pop(number, None)

    @defined("nnbridge_bytes", 0)
    def bytes_of(number: int, output: bool, index: int, type: Any) -> int:
        return invocations[number].bytes_of(output, index, list(type.dims)[: type.rank & RANK_BITS])

    @defined("nnbridge_compute", FAILED)
    def computed(number: int, addresses: Any, sizes: Any) -> int:
        invocation = invocations[number]
        operands = [operand for side in invocation.sides for operand in side]
        for i, operand in enumerate(operands):
            if sizes[i] < value_size(operand):
                raise BadDataError(
                    Reason(f"a buffer of {value_size(operand)} bytes", str(sizes[i]), invocation.name, f"operand {i}")
                )
        places = tuple(int(ffi.cast("uintptr_t", addresses[i])) for i in range(len(operands)))
        invocation.compute(places, lambda: [ffi.buffer(addresses[i], sizes[i]) for i in range(len(operands))])
        return 0
