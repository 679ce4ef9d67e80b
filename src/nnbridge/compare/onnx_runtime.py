"""ONNX Runtime, which is imported when it is used, as a reference that answers are compared with.

The process that it runs in imports little beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnbridge.compare.litert import NamedTensors
from nnbridge.engines.onnx_session import open_session, serialised
from nnbridge.errors import InputError, PackageError, Reason, first_line, pass_shortage

if TYPE_CHECKING:
    from nnbridge.compare.arrays import Array
    from nnbridge.extensions import Codec


class OnnxRuntime:
    """ONNX Runtime's CPU provider on one thread.

    ``as_written`` runs the file's own operators: for quantised files ONNX Runtime has fused ones that approximate some of them.
    """

    name = "onnxruntime"

    def __init__(self, path: Path, signature: str = "", *, as_written: bool = False, preserve: bool = False) -> None:
        """``preserve``: retain every tensor for :meth:`tensors`, which implies ``as_written``: fused operators have fewer."""
        if signature:
            raise InputError(Reason("no signature: ONNX files have none", signature, operand="signature"))
        try:
            import onnxruntime
        except ImportError as error:
            raise PackageError.needed("ONNX Runtime", "onnxruntime", error, "reference") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # what fails is raised as well
        if as_written or preserve:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._tensors = NamedTensors()
        self._nodes: dict[str, int] = {}
        self._outputs = 0
        try:
            folder = os.path.dirname(os.path.abspath(path))
            model = self._with_outputs(path, folder) if preserve else str(path)
            self._session = open_session(model, options, folder=folder)
            self._scalars = _scalars(path) if any(i.shape == [] for i in self._session.get_inputs()) else frozenset()
        except Exception as error:
            pass_shortage(error)
            raise InputError(Reason("a model that ONNX Runtime runs", first_line(error), file=str(path))) from error

    def reset(self) -> None:
        """ONNX models have no state."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Outputs in the file's order."""
        try:
            found = self._session.run(None, self._typed(inputs))
            outputs = [_as_held(declared.type, value) for declared, value in zip(self._session.get_outputs(), found, strict=True)]
        except Exception as error:
            pass_shortage(error)
            # ONNX Runtime's errors have no common class of their own.
            raise InputError(
                Reason("inputs that ONNX Runtime runs", first_line(error), operand="reference onnxruntime")
            ) from error

        if self._nodes:
            self._tensors = NamedTensors()
            for declared, value in zip(self._session.get_outputs(), outputs, strict=True):
                self._tensors.add(0, declared.name, value)
                self._tensors.produced[0, self._nodes[declared.name], declared.name] = value
            return outputs[: self._outputs]
        return outputs

    def tensors(self) -> NamedTensors:
        """Every tensor of the last run that the main graph computes."""
        return self._tensors

    def _with_outputs(self, path: Path, folder: str) -> bytes:
        """The file with every tensor among the graph's outputs, the file's own outputs first."""
        import onnx

        model = onnx.load(str(path), load_external_data=False)
        self._outputs = len(model.graph.output)
        self._nodes = {name: index for index, node in enumerate(model.graph.node) for name in node.output if name}
        known = {output.name for output in model.graph.output}
        self._nodes |= dict.fromkeys(known - self._nodes.keys(), -1)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._nodes if name not in known)
        return serialised(model, folder)

    def _typed(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        """Inputs with ONNX's scalars, which are vectors of one element in NNAPI, and float64 where it was narrowed."""
        declared = {i.name: i for i in self._session.get_inputs()}
        doubles = {name for name, i in declared.items() if i.type == "tensor(double)"}
        typed: dict[str, Any] = {}
        for name, value in inputs.items():
            codec = _codec(declared[name].type) if name in declared else None
            if codec is not None:
                typed[name] = _given(declared[name].type, codec.unpack(value))
            elif name in declared and declared[name].type in _BITS:
                typed[name] = self._of_bits(value, _BITS[declared[name].type])
            else:
                typed[name] = value.astype(np.float64) if name in doubles else value
        return {
            name: value.reshape(()) if name in self._scalars and isinstance(value, np.ndarray) and value.size == 1 else value
            for name, value in typed.items()
        }

    @staticmethod
    def _of_bits(value: Array, type: int) -> Any:
        from onnxruntime import OrtValue

        bits = np.ascontiguousarray(value).view(f"uint{8 * value.dtype.itemsize}")
        return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, type)


def _scalars(path: Path) -> frozenset[str]:
    """A file's inputs that it declares as scalars: ONNX Runtime's description of those of any rank is the same, and it accepts
    values of any rank for both."""
    import onnx

    inputs = onnx.load(str(path), load_external_data=False).graph.input
    shaped = (i.name for i in inputs if i.type.tensor_type.HasField("shape") and not i.type.tensor_type.shape.dim)
    return frozenset(shaped)


_BITS = {
    "tensor(bfloat16)": 16, "tensor(float8e4m3fn)": 17, "tensor(float8e4m3fnuz)": 18, "tensor(float8e5m2)": 19,
    "tensor(float8e5m2fnuz)": 20,
}  # fmt: skip
"""Types that NumPy does not have, which ONNX Runtime takes as bits → ``TensorProto.DataType``."""


def _codec(declared: str) -> Codec | None:
    """The encoding of values of an ONNX Runtime type such as ``seq(tensor(float))`` as bytes; None for tensors of numbers."""
    text = "STRING" if declared == "tensor(string)" else ""
    name = {"seq": "SEQUENCE", "opt": "OPTIONAL", "map": "MAP"}.get(declared[:3], text)
    if not name:
        return None
    from nnbridge.extensions import TYPES

    extension = TYPES.host_extension("ai.onnx")
    return next((t.codec for t in extension.operand_types if t.name == name), None) if extension is not None else None


def _given(declared: str, held: list[Array]) -> Any:
    """A value as ONNX Runtime takes it: a sequence is a list of arrays, a map a dictionary, text an array of strings, an optional
    one array or None."""
    if declared.startswith("map"):
        return dict(zip(*(one.tolist() for one in held), strict=True))
    return held if declared.startswith("seq") else next(iter(held), None)


def _as_held(declared: str, value: Any) -> Array:
    """An output as models hold it."""
    codec = _codec(declared)
    if codec is None:
        if declared != "tensor(float8e4m3fn)":
            return np.asarray(value)
        from nnbridge.extensions import numpy_type

        return np.asarray(value).view(numpy_type("float8_e4m3fn"))  # The type that NumPy has not and it returns, as bits.
    values = value if isinstance(value, list) else [] if value is None else [value]
    # Of maps, such as ZipMap's, models hold the numbers in the order of the keys.
    return codec.pack([np.asarray([one[k] for k in sorted(one)] if isinstance(one, dict) else one) for one in values])


def opened(path: Path, signature: str, preserve: bool) -> OnnxRuntime:
    """The reference, with every argument by its place."""
    return OnnxRuntime(path, signature, preserve=preserve)
