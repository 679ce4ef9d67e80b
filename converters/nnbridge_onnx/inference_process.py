"""The process of :mod:`nnbridge_onnx.inference`: the onnx package's shape inference, and nothing else of Python's packages.

    python -I -S inference_process.py FOLDER_OF_THE_ONNX_PACKAGE SECONDS

A request is its length, whether inference follows elements, and a ``ModelProto``; an answer is its length, a flag of success,
and a ``ModelProto`` or an error's text. The process ends with its input, and where an answer takes longer than so many seconds.
"""

from __future__ import annotations

import faulthandler
import importlib.machinery
import importlib.util
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

HEAD = struct.Struct("<Q?")
"""Bytes that follow, and the flag."""
MEMORY, COPIES = 2 << 30, 8
"""Bytes of address space that inference may take, and how often the model beside: a wild allocation becomes an error."""

Infer = Callable[[bytes, bool], bytes]


def _native(folder: str) -> Any:
    """The package's native module alone, which loads in a tenth of the package's time."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = os.path.join(folder, f"onnx_cpp2py_export{suffix}")
        spec = importlib.util.spec_from_file_location("onnx.onnx_cpp2py_export", path)
        if os.path.exists(path) and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"no onnx_cpp2py_export in {folder}")


def _inference(folder: str) -> Infer:
    """What infers; where the package's native module has another form, it says so to every request."""
    try:
        native = _native(folder)
        native.defs.has_schema("Relu")  # The first look registers every operator, while the other process still starts.
        infer = native.shape_inference.infer_shapes
    except Exception as error:
        missing = f"the onnx package's native module cannot be used: {error}"

        def refuse(model: bytes, propagate: bool) -> bytes:
            raise ImportError(missing)

        return refuse
    return lambda model, propagate: infer(model, False, False, propagate)


def _limit_memory(length: int) -> None:
    """Bound what a model of ``length`` bytes may take, where the system bounds processes so: Windows and macOS do not."""
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm", "rb") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = now + MEMORY + COPIES * length
    resource.setrlimit(resource.RLIMIT_AS, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def serve(infer: Infer, seconds: float, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the requests end, or one takes longer than ``seconds``."""
    while len(head := requests.read(HEAD.size)) == HEAD.size:
        length, propagate = HEAD.unpack(head)
        request = requests.read(length)
        _limit_memory(length)
        faulthandler.dump_traceback_later(seconds, exit=True)  # Its thread ends native code too.
        try:
            good, answer = True, infer(request, propagate)
        except Exception as error:  # Native code's own have no common class; the caller has one for all.
            good, answer = False, str(error).encode(errors="backslashreplace")
        faulthandler.cancel_dump_traceback_later()
        answers.write(HEAD.pack(len(answer), good))
        answers.write(answer)
        answers.flush()


def main() -> None:
    """Serve standard input; whatever native code prints goes nowhere."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    infer = _inference(sys.argv[1])
    serve(infer, float(sys.argv[2]), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
