"""The time of each operation in isolation, on the device that runs it in a plan: what the emulation needs on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from numpy.typing import ArrayLike

from nnbridge.compare.observation import observed_run
from nnbridge.devices.device import Device
from nnbridge.errors import RefusalError
from nnbridge.model import input_name
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.partitioner import extract
from nnbridge.runtime.states import States
from nnbridge.types import WRITTEN, Lifetime

_RUNS = 3


def operation_times(compilation: Compilation, inputs: Mapping[str, ArrayLike]) -> dict[int, float]:
    """Index of each operation of the main subgraph → milliseconds, the least of three runs on the values of a run of the whole.

    Operations that cannot run by themselves are left out: the runtime's own control flow, and those whose inputs are not shown.
    """
    _, observation, _ = observed_run(compilation, inputs, States(compilation.model))
    main, found = compilation.model.main, {}
    for index, operation in enumerate(main.operations):
        device = compilation.plan.device_of(index)
        reads = [i for i in dict.fromkeys(operation.inputs) if main.operands[i].lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)]
        values = [observation.values.get(("", i)) for i in reads]
        if not isinstance(device, Device):
            continue
        try:
            part = extract(compilation.model, [index], reads, list(operation.outputs))
            alone = Compilation.create_for_devices(part, [device])
            alone.finish()
            fed = {
                input_name(part.main.operands[i], k): seen.value
                for k, (i, seen) in enumerate(zip(part.main.inputs, values, strict=True))
                if seen is not None
            }
            found[index] = min(_milliseconds(alone, fed) for _ in range(_RUNS))
        except RefusalError:
            continue
    return found


def _milliseconds(compilation: Compilation, inputs: Mapping[str, ArrayLike]) -> float:
    started = time.perf_counter()
    Execution(compilation).run(inputs)
    return (time.perf_counter() - started) * 1e3
