"""Nodes that the installed ONNX Runtime computes: those for which neither nnbridge nor the onnx package's evaluator has a kernel.

ONNX Runtime runs in a separate process, which a node or a value may end. It sees a file of one node, whose inputs have the types
of the values that they get; constants are constants of the file, as kernels that pack their weights expect.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from nnbridge.apart import Apart
from nnbridge.errors import InputError, OpFailedError, PackageError, Reason, first_line
from nnbridge_onnx.read.graph import BFLOAT16, ELEMENT_TYPES, STRING

_log = logging.getLogger(__name__)
TITLE = "ONNX Runtime"
_BITS = (BFLOAT16, 17, 18, 19, 20)
"""Types that NumPy does not have, which ONNX Runtime takes as bits."""
_MOST_CONSTANT = 1 << 30
"""Bytes of constants beyond which a node's are inputs: a file ends at 2 GiB."""
_TRIED = "an operator that nnbridge's own host or ONNX Runtime computes"


class HostedNode:
    """A node in ONNX Runtime, in a session for each combination of types that it reads."""

    def __init__(self, proto: Any, opsets: Mapping[str, int], constants: Mapping[str, Any], label: str) -> None:
        self._proto, self._opsets, self._label = proto, opsets, label
        fixed = {name: value for name, value in constants.items() if isinstance(value, np.ndarray)}
        self._constants = fixed if sum(array.nbytes for array in fixed.values()) < _MOST_CONSTANT else {}
        self._sessions: dict[tuple[Any, ...], int] = {}
        self._said = False

    @staticmethod
    def installed() -> bool:
        """True if there is an ONNX Runtime to ask."""
        return find_spec("onnxruntime") is not None

    def run(self, feeds: Mapping[str, Any], error: Exception | None) -> Sequence[Any]:
        """The outputs. OP_FAILED for what ONNX Runtime refuses too, or where it is not installed.

        ``error``: why nothing else computes the node, if something else was tried.
        """
        if not self.installed():
            why = "" if error is None else first_line(error)
            raise OpFailedError(PackageError.needed(_TRIED, "onnxruntime", why, operation=self._label).reason) from error
        read = {name: value for name, value in feeds.items() if name not in self._constants}
        runtime = _runtime()
        try:
            results = runtime.call("run", self._session(runtime, read), read)
        except (InputError, RuntimeError, TypeError) as refused:  # InputError: it has ended
            raise OpFailedError(Reason(_TRIED, first_line(refused), self._label)) from refused
        if not self._said:
            self._said = True
            version = runtime.call("version")
            _log.warning("%s: computed by %s %s: nnbridge's own host has no kernel for it", self._label, TITLE, version)
        return list(results)

    def _session(self, runtime: Apart, feeds: Mapping[str, Any]) -> int:
        with _LOCK:
            types = {name: _value_type(name, value) for name, value in feeds.items()}
            key = (runtime.start(), *(value.SerializeToString() for value in types.values()))
            if key not in self._sessions:
                self._sessions[key] = runtime.call("open", self._file(list(types.values())))
            return self._sessions[key]

    def _file(self, inputs: Sequence[Any]) -> bytes:
        import onnx
        from onnx import helper, numpy_helper

        outputs = [onnx.ValueInfoProto(name=name) for name in self._proto.output if name]
        weights = [numpy_helper.from_array(array, name) for name, array in self._constants.items()]
        graph = helper.make_graph([self._proto], "node", inputs, outputs, weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return content


def _value_type(name: str, value: Any) -> Any:
    """The description of a value: its type and rank. TypeError for one that ONNX Runtime takes in no form."""
    from onnx import helper

    if isinstance(value, list):
        if not value:
            raise TypeError(f"{name}: an empty sequence, whose elements have no known type")
        return helper.make_tensor_sequence_value_info(name, _element(np.asarray(value[0])), None)
    if isinstance(value, Mapping):
        keys, values = (list(part) for part in (value.keys(), value.values()))
        found = helper.make_tensor_type_proto(_element(np.asarray(values).astype(np.float32 if _real(values) else None)), [])
        return helper.make_value_info(name, helper.make_map_type_proto(_element(np.asarray(keys)), found))
    if value is None:
        raise TypeError(f"{name}: an absent optional value, which has no known type")
    array = np.asarray(value)
    return helper.make_tensor_value_info(name, _element(array), [None] * array.ndim)


def _real(values: Sequence[Any]) -> bool:
    return np.asarray(values).dtype.kind == "f"


def _element(array: Any) -> int:
    from onnx import helper

    return STRING if array.dtype.kind in "OUS" else int(helper.np_dtype_to_tensor_dtype(array.dtype))


def described(model: Any, names: Sequence[str]) -> dict[str, Any]:
    """The descriptions (``ValueInfoProto``) of values that inference knows nothing of, as ONNX Runtime has them.

    Empty where it is not installed, or refuses the model.
    """
    import onnx

    if find_spec("onnxruntime") is None:
        return {}
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    del seen.graph.output[:]
    seen.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        found = _runtime().call("describe", seen.SerializeToString())
    except (InputError, RuntimeError, ValueError) as error:  # ValueError: of models of 2 GiB
        _log.info("%s does not describe values: %s", TITLE, first_line(error))
        return {}
    made = ((name, _described(onnx.helper, name, type, shape)) for name, type, shape in found)
    return {name: value for name, value in made if value is not None}


def _described(helper: Any, name: str, type: str, shape: Sequence[Any]) -> Any:
    """A value of one of ONNX Runtime's types, such as ``seq(tensor(float))``; None for any other."""
    kind, _, element = type.removesuffix("))").removesuffix(")").rpartition("tensor(")
    number = _ELEMENTS.get(element)
    if number is None or kind not in ("", "seq("):
        return None
    if kind:
        return helper.make_tensor_sequence_value_info(name, number, None)
    # ONNX Runtime describes scalars and values of any rank alike.
    return helper.make_tensor_value_info(name, number, [side if isinstance(side, int) else None for side in shape] or None)


_ELEMENTS = {name.lower(): number for number, (name, *_) in ELEMENT_TYPES.items()}
_LOCK = threading.Lock()


@cache
def _runtime() -> Apart:
    """The process of all nodes."""
    return Apart(TITLE, f"{__name__}:Sessions")


class Sessions:
    """In the other process: sessions by their numbers."""

    def __init__(self) -> None:
        import onnxruntime

        self._module: Any = onnxruntime
        self._sessions: list[Any] = []

    def version(self) -> str:
        """ONNX Runtime's version."""
        return str(self._module.__version__)

    def open(self, content: bytes) -> int:
        """Load a file; its number."""
        from nnbridge.engines.onnx_session import open_session

        self._sessions.append(open_session(content, self._options()))
        return len(self._sessions) - 1

    def _options(self) -> Any:
        options = self._module.SessionOptions()
        options.log_severity_level = 4  # what fails is raised as well
        options.intra_op_num_threads = 1  # as nnbridge's own kernels by default: a pool for each node's session is in their way
        options.graph_optimization_level = self._module.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options

    def describe(self, content: bytes) -> list[tuple[str, str, list[Any]]]:
        """The names, types and dimensions of a file's outputs."""
        session = self._module.InferenceSession(content, self._options(), providers=["CPUExecutionProvider"])
        return [(one.name, one.type, list(one.shape or ())) for one in session.get_outputs()]

    def run(self, number: int, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs of a run."""
        session = self._sessions[number]
        found: list[Any] = session.run(None, {name: self._fed(value) for name, value in feeds.items()})
        return found

    def _fed(self, value: Any) -> Any:
        if isinstance(value, list | Mapping) or value.dtype.isbuiltin or value.dtype.kind not in "fV":
            return value
        from onnx import helper

        type = int(helper.np_dtype_to_tensor_dtype(value.dtype))
        if type not in _BITS:
            return value
        bits = np.ascontiguousarray(value).view(f"uint{8 * value.dtype.itemsize}")
        return self._module.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, type)
