"""The first answer of a fresh process: what it takes to import, read, prepare and run, and its memory.

    python -m nnbridge.bench.first nnbridge model.tflite

prints one line of JSON. The parent process measures the whole.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnbridge.platforms import collect_rarely

_BYTES_IN_KIB = 1024


def peak_memory() -> int | None:
    """The largest resident memory of this process in bytes; None where the system does not state it (it is Linux's)."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * _BYTES_IN_KIB for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError):
        return None


def answered(side: str, path: Path) -> dict[str, Any]:
    """Milliseconds of each part, by its name, and bytes of memory."""
    start = time.perf_counter()
    if side == "nnbridge":
        collect_rarely()  # as the command line does
    import nnbridge.bench.contenders as sides
    from nnbridge.compare.samples import seeded_inputs
    from nnbridge.converters import ConversionOptions, opened
    from nnbridge.errors import ConversionError
    from nnbridge.file import load

    if side == "nnbridge":
        import numpy.random  # noqa: F401 - inputs are drawn by it

        from nnbridge.cpu import compiled
        from nnbridge.runtime.compilation import Compilation
        from nnbridge.runtime.execution import Execution

        if compiled.unavailable() is None:
            import nnbridge.cpu.compiled.bindings  # noqa: F401
        # An importer imports all that it needs before it refuses a file.
        with suppress(ConversionError):
            type(opened(path))(Path(os.devnull)).convert(ConversionOptions())
    elif side == sides.ONNXRUNTIME:
        import onnxruntime  # noqa: F401
    else:
        import ai_edge_litert.interpreter  # noqa: F401
    imported, memory = time.perf_counter(), peak_memory()
    if side == "nnbridge":
        model = load(path)
        loaded = time.perf_counter()
        compilation = Compilation.create(model, [])
        compilation.finish()
        inputs = sides.file_inputs(model, seeded_inputs(model, 0))
        prepared = time.perf_counter()
        Execution(compilation).run(inputs)
    else:
        # Peers draw no inputs of their own: an interpreter with zeros in its tensors answers as soon.
        loaded = imported
        run = _peer(side, path)
        prepared = time.perf_counter()
        run()
    end = time.perf_counter()
    times = {"import": imported - start, "load": loaded - imported, "prepare": prepared - loaded, "run": end - prepared}
    return {
        **{name: seconds * 1e3 for name, seconds in times.items()},
        "imports_bytes": memory,
        "peak_bytes": peak_memory(),
    }


def _peer(side: str, path: Path) -> Any:
    import nnbridge.bench.contenders as sides

    if side == sides.ONNXRUNTIME:
        import numpy as np
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        kinds = {"float": "float32", "double": "float64"}
        zeros = {
            i.name: np.zeros([d if isinstance(d, int) and d > 0 else 1 for d in i.shape], kinds.get(i.type[7:-1], i.type[7:-1]))
            for i in session.get_inputs()
        }
        return lambda: session.run(None, zeros)
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = getattr(OpResolverType, sides.LITERT[side])
    interpreter = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    return interpreter.invoke


def main() -> None:
    """Print the first answer."""
    print(json.dumps(answered(sys.argv[1], Path(sys.argv[2]))))


if __name__ == "__main__":
    main()
