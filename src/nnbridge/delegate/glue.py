"""The delegate's C functions: TFLite calls them, and no exception leaves for C."""

from __future__ import annotations

import itertools
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from nnbridge import ndk
from nnbridge.clib.glue import begin_log
from nnbridge.delegate.delegating import Delegate, DelegatePartition
from nnbridge.delegate.interpreter import InterpreterContext, integers
from nnbridge.delegate.kernel import DelegateKernel
from nnbridge.delegate.options import parse
from nnbridge.errors import NnapiError, NnbridgeError, shortage_of
from nnbridge.log_lines.patterns import BY_NAME
from nnbridge.records import dataclass

OK, ERROR = 0, 1
_DYNAMIC = 3
"""Flags of a delegate: tensors of open dimensions are allowed, and TFLite infers the dimensions of replaced nodes' outputs."""
_CREATED = f"INFO: {BY_NAME['delegate-created'].format()}\n"
_LINE_END = ". "
"""TFLite joins the texts of several errors without anything between them."""


def connect(embedded: Any) -> None:
    """Define every function of the library. InputError for environment variables with a wrong value."""
    begin_log()
    ndk.check_environment()
    glue = _Glue(embedded)
    functions: dict[str, tuple[Callable[..., Any], int | None]] = {
        "create": (glue.create, 0),
        "destroy": (glue.destroy, None),
        "delegate": (glue.delegate, ERROR),
        "init": (glue.init, 0),
        "free": (glue.free, None),
        "prepare": (glue.prepare, ERROR),
        "invoke": (glue.invoke, ERROR),
    }
    for name, (function, failed) in functions.items():
        embedded.ffi.def_extern(name=f"nnbridge_{name}", **({} if failed is None else {"error": failed}))(function)


def log(text: str) -> None:
    """A line of TFLite's log."""
    os.write(2, text.encode(errors="replace"))


def message(error: Exception) -> str:
    """The text of an error for users: Android's words for NNAPI's, with the reason."""
    if isinstance(error, NnapiError):
        frame = traceback.extract_tb(error.__traceback__)
        line = frame[0].lineno if frame else 0
        values = {"code": f"ANEURALNETWORKS_{error.code.name}", "line": line, "action": error}
        return BY_NAME["api-error"].format(**values).removesuffix(".") + _LINE_END
    if isinstance(error, NnbridgeError):
        return f"{error}{_LINE_END}"
    short = "not enough memory" if isinstance(error, MemoryError) else shortage_of(error)
    if short is not None:
        return f"{short}{_LINE_END}"
    traceback.print_exception(error)
    return f"nnbridge failed: {type(error).__name__}: {error}{_LINE_END}"


@dataclass
class _Node:
    """A node of an interpreter that runs a partition."""

    record: Any
    """C's NnbridgeKernel."""
    delegate: Delegate
    partition: DelegatePartition
    kernel: DelegateKernel
    arrays: Sequence[Any] = ()
    """What the record points at."""


class _Glue:
    """The functions, with the delegates and nodes that are alive."""

    def __init__(self, embedded: Any) -> None:
        self._embedded, self._ffi, self._lib = embedded, embedded.ffi, embedded.lib
        self._delegates: dict[int, Delegate] = {}
        self._nodes: dict[int, _Node] = {}
        self._numbers = itertools.count(1)
        self._announced = False

    def create(self, keys: Any, values: Any, count: int, report: Any) -> int:
        """``tflite_plugin_create_delegate``: the delegate's address, or 0 and a message."""
        try:
            pairs = [(self._text(keys[i]), self._text(values[i])) for i in range(count)]
            options = parse(pairs)
            delegate = Delegate.of(options, log)
        except Exception as error:
            text = message(error)
            if report != self._ffi.NULL:
                report(text.encode())
            else:
                log(f"ERROR: {text}\n")
            return 0
        if not self._announced:
            log(_CREATED)
            self._announced = True
        address = int(self._ffi.cast("uintptr_t", self._lib.nnbridge_new_delegate(_DYNAMIC * options.allow_dynamic_dimensions)))
        if address:
            self._delegates[address] = delegate
        return address

    def destroy(self, address: int) -> None:
        """``tflite_plugin_destroy_delegate``. Nodes may outlive their delegate."""
        if self._delegates.pop(address, None) is not None:
            self._lib.nnbridge_free_delegate(self._ffi.cast("TfLiteDelegate*", address))

    def delegate(self, context: Any, pointer: Any) -> int:
        """``TfLiteDelegate.Prepare``."""
        graph = InterpreterContext(self._embedded, context)
        try:
            found = self._delegates[self._address(pointer)]
            return found.prepare(graph, lambda nodes: graph.replace(nodes, pointer))
        except Exception as error:
            graph.report(message(error))
            return ERROR

    def init(self, context: Any, params: Any) -> int:
        """``TfLiteRegistration.init``: the address of a kernel's record; 0 for what cannot be, which prepare reports."""
        found = self._delegates[self._address(params.delegate)]
        arrays = (params.nodes_to_replace, params.input_tensors, params.output_tensors)
        try:
            claimed = found.claim(*(integers(self._ffi, array) for array in arrays))
        except Exception as error:
            InterpreterContext(self._embedded, context).report(message(error))
            return 0
        number = next(self._numbers)
        node = self._nodes[number] = _Node(self._ffi.new("NnbridgeKernel*", {"number": number}), found, *claimed)
        self._watch(node)
        return int(self._ffi.cast("uintptr_t", node.record))

    def _watch(self, node: _Node) -> None:
        """Have C compare the addresses of a kernel's tensors from now on, beginning with none."""
        tensors = list(dict.fromkeys((*node.kernel.part.inputs, *node.kernel.part.outputs)))
        new, record, count = self._ffi.new, node.record, len(tensors)
        record.tensors, record.data, record.bytes = node.arrays = (
            new("int[]", tensors or 1),
            new("char*[]", count or 1),
            new("size_t[]", count or 1),
        )
        record.count = count

    def free(self, record: Any) -> None:
        """``TfLiteRegistration.free``."""
        self._nodes.pop(record.number, None)

    def prepare(self, context: Any, _node: Any, record: Any) -> int:
        """``TfLiteRegistration.prepare``: compile again if dimensions have changed, but for a model that lasts."""
        graph = InterpreterContext(self._embedded, context)
        try:
            node = self._node(record)
            dims = tuple(graph.dims(i) for i in node.kernel.part.inputs)
            if dims != node.kernel.dims and node.kernel.part.lasting:
                node.partition.dims = graph.all_dims(node.partition.graph.tensors)
                node.kernel.resized(dims, node.delegate.computed(node.partition))
            elif dims != node.kernel.dims:
                node.partition.dims = graph.all_dims(node.partition.graph.tensors)
                node.kernel = node.delegate.compile(node.partition)
                self._watch(node)
            for tensor, known in node.kernel.output_dims():
                if known != (graph.dims(tensor) or (1,)):
                    graph.resize(tensor, known)
            for tensor in node.kernel.dynamic:
                graph.set_dynamic(tensor)
        except Exception as error:
            graph.report(message(error))
            return ERROR
        return OK

    def invoke(self, context: Any, _node: Any, record: Any, moved: bool) -> int:
        """``TfLiteRegistration.invoke``."""
        try:
            node = self._nodes[record.number]
            node.kernel.invoke(InterpreterContext(self._embedded, context), (lambda: self._places(node)) if moved else None)
        except Exception as error:
            InterpreterContext(self._embedded, context).report(message(error))
            return ERROR
        return OK

    def _places(self, node: _Node) -> tuple[tuple[int, int], ...]:
        """The places of a node's tensors, and their sizes."""
        record, cast = node.record, self._ffi.cast
        return tuple((int(cast("uintptr_t", record.data[i])), int(record.bytes[i])) for i in range(record.count))

    def _node(self, record: Any) -> _Node:
        if record == self._ffi.NULL:
            raise NnbridgeError("a partition that could not be compiled")
        return self._nodes[record.number]

    def _address(self, pointer: Any) -> int:
        return int(self._ffi.cast("uintptr_t", pointer))

    def _text(self, pointer: Any) -> str:
        return self._ffi.string(pointer).decode(errors="replace")
