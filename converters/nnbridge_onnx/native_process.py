"""The process of :mod:`nnbridge_onnx.native`: the onnx package's native code, and nothing else of Python's packages.

    python -I -S native_process.py FOLDER_OF_THE_ONNX_PACKAGE SECONDS

A request is its length, its kind and a ``ModelProto``, a file's name, a folder's name, a zero and a ``ModelProto``, an opset and
a ``ModelProto``, or a domain, a zero, an operator, a zero and a ``ModelProto``; an answer is its length, a flag of success, and a
``ModelProto``, nothing, or an error's text. The process ends with its input, and where an answer takes longer than so many
seconds.
"""

from __future__ import annotations

import faulthandler
import importlib.machinery
import importlib.util
import os
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

HEAD = struct.Struct("<QB")
"""Bytes that follow, and the kind or the flag."""
INFER, FOLLOW, CHECK, CHECK_IN, CONVERT, INLINE, STRICT, WRITE_OUT = range(8)
"""Kinds of requests: infer shapes, do so and follow the elements of shapes, check a file, check a model in a folder, convert a
model to an opset, write out calls of the model's functions, infer types and shapes and refuse those that do not fit, write out
the only node of a model as its function."""
MEMORY, COPIES = 2 << 30, 8
"""Bytes of address space that an answer may take, and how often the model beside: a wild allocation becomes an error."""
FULL, SHORT = 3, 4
"""Exit statuses where following uses more memory than allowed, and where the machine, or the user's limit, allows no more
memory or threads."""
_NOT_LOADED = ("failed to map segment", "annot allocate memory", "Too many open files")
"""The loader's words for a library that is there; :mod:`nnbridge.errors` has them too, and is not imported here."""
FOLLOW_MEMORY, FOLLOW_SECONDS = 256 << 20, 30.0
"""The same for following the elements of shapes, and its time: a file whose vectors take more is inferred without."""
UNKNOWN = 1 << 30
"""Bytes of address space that the process has before, where that cannot be read."""

Acts = Mapping[int, Callable[[bytes], bytes]]


def _native(folder: str) -> Any:
    """The package's native module only, which loads in a tenth of the package's time."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = os.path.join(folder, f"onnx_cpp2py_export{suffix}")
        spec = importlib.util.spec_from_file_location("onnx.onnx_cpp2py_export", path)
        if os.path.exists(path) and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"no onnx_cpp2py_export in {folder}")


def _acts(folder: str) -> Acts:
    """The action for each kind of request; where the package's native module has another form, it says so to every request."""
    try:
        native = _native(folder)
        native.defs.has_schema("Relu")  # The first look registers every operator, while the other process still starts.
        infer, checker = native.shape_inference.infer_shapes, native.checker
        convert, inline = native.version_converter.convert_version, native.inliner.inline_local_functions
    except Exception as error:
        if isinstance(error, MemoryError) or any(words in str(error) for words in _NOT_LOADED):
            sys.exit(SHORT)
        missing = f"the onnx package's native module cannot be used: {error}"

        def refuse(_: bytes) -> bytes:
            raise ImportError(missing)

        return dict.fromkeys((INFER, FOLLOW, CHECK, CHECK_IN, CONVERT, INLINE, STRICT, WRITE_OUT), refuse)
    return {
        INFER: lambda model: infer(model, False, False, False),
        FOLLOW: lambda model: infer(model, False, False, True),
        CHECK: lambda path: checker.check_model_path(os.fsdecode(path), False, False, False) or b"",
        CHECK_IN: lambda request: checker.check_model(_entered(request), False, False, False) or b"",
        CONVERT: lambda request: convert(request[1:], request[0]),
        INLINE: lambda model: inline(model, True),
        STRICT: lambda model: infer(model, True, True, False),
        # onnx before 1.20 has no such function, which is an error of each request.
        WRITE_OUT: lambda request: _written_out(native.inliner.inline_selected_functions2, request),
    }


def _written_out(write_out: Callable[[bytes, list[tuple[str, str]], bool], bytes], request: bytes) -> bytes:
    """A model whose nodes of one operator, which the request names before the model, are written out as its function."""
    domain, name, model = request.split(b"\0", 2)
    return write_out(model, [(domain.decode(), name.decode())], False)


def _entered(request: bytes) -> bytes:
    """The model of a request; its folder is the current one from now on, in which the checker looks for external data."""
    folder, _, model = request.partition(b"\0")
    os.chdir(folder)
    return model


def _limit_memory(length: int, memory: int = MEMORY) -> bool:
    """Bound what a model of ``length`` bytes may take beside ``memory``; Windows and macOS bound no process so. False where the
    user's own limit is lower."""
    if sys.platform != "linux":
        return True
    import resource

    try:
        with open("/proc/self/statm", "rb") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # a system whose /proc is not mounted
        now = UNKNOWN
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = now + memory + COPIES * length
    is_ours = most == resource.RLIM_INFINITY or limit <= most
    resource.setrlimit(resource.RLIMIT_AS, (limit if is_ours else most, most))
    return is_ours


def serve(acts: Acts, seconds: float, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the requests end, or one takes longer than ``seconds``, or more memory for following shapes than it may."""
    while len(head := requests.read(HEAD.size)) == HEAD.size:
        length, kind = HEAD.unpack(head)
        request = requests.read(length)
        most, memory = (min(seconds, FOLLOW_SECONDS), FOLLOW_MEMORY) if kind == FOLLOW else (seconds, MEMORY)
        try:
            faulthandler.dump_traceback_later(most, exit=True)  # Its thread ends native code too.
        except RuntimeError:
            sys.exit(SHORT)
        is_ours = True
        try:
            is_ours = _limit_memory(os.path.getsize(request) if kind == CHECK else length, memory)
            good, answer = True, acts[kind](request)
        except MemoryError as error:
            if not is_ours or kind == FOLLOW:
                sys.exit(FULL if is_ours else SHORT)
            good, answer = False, str(error).encode(errors="backslashreplace")
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
    serve(_acts(sys.argv[1]), float(sys.argv[2]), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
