"""nnbridge as an ``onnx.backend.base.Backend``: ONNX's own tests and tools can run models on emulated devices.

import nnbridge_onnx.backend as backend
outputs = backend.run_model(onnx.load("model.onnx"), [image], device="nnapi-sample_float_fast")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.backend.base import Backend, BackendRep
from onnx.numpy_helper import to_array

from nnbridge.devices import device as find_device
from nnbridge.errors import InputError, Reason
from nnbridge.model import Array, Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge_onnx.host.extension import HELD
from nnbridge_onnx.host.messages import decode, encode
from nnbridge_onnx.passes.conversion import convert_proto
from nnbridge_onnx.read.graph import MESSAGES, Graph, dtype_of

_CPU = "CPU"


class NnbridgeRep(BackendRep):  # type: ignore[misc]  # the onnx package has no annotations
    """A model on its devices."""

    def __init__(self, model: Model, graph: Graph, compilation: Compilation) -> None:
        self.model = model
        self.graph = graph
        self.compilation = compilation

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Outputs in ONNX's own types and shapes, for inputs in order or by name; lists for sequences, None for no optional."""
        if isinstance(inputs, Mapping):
            unknown = [name for name in inputs if name not in self.graph.inputs]
            missing = [name for name in self.graph.inputs if name not in inputs]
            if unknown or missing:  # A default (an initialiser of the name) is a constant of the model.
                found = ", ".join([*(f"{name}, which is unknown" for name in unknown), *(f"no {name}" for name in missing)])
                raise InputError(Reason(f"the inputs {', '.join(self.graph.inputs)}", found, self.graph.name))
        arrays = [inputs[name] for name in self.graph.inputs] if isinstance(inputs, Mapping) else list(_listed(inputs))
        if len(arrays) != len(self.graph.inputs):
            rule = f"{len(self.graph.inputs)} inputs ({', '.join(self.graph.inputs)})"
            raise InputError(Reason(rule, str(len(arrays)), self.graph.name))
        for name in self.graph.inputs:
            if self.graph.tensors[name].type == 0:
                raise InputError(Reason(HELD, f"'{name}', {self.graph.tensors[name].instead}", self.graph.name))
        ready = [_as_nnapi(array, self.graph.tensors[name].type) for name, array in zip(self.graph.inputs, arrays, strict=True)]
        answers = Execution(self.compilation).run(ready)
        return tuple(self._as_onnx(name, answer) for name, answer in zip(self.graph.outputs, answers.values(), strict=True))

    def _as_onnx(self, name: str, answer: Array) -> Any:
        tensor = self.graph.tensors[name]
        if tensor.type in MESSAGES:
            return decode(answer, tensor.type, name)
        dtype = dtype_of(tensor.type)
        array = answer.astype(dtype, copy=False) if dtype is not None else answer
        return array.reshape(()) if tensor.shape == () else array


class NnbridgeBackend(Backend):  # type: ignore[misc]  # the onnx package has no annotations
    """``device`` is ``CPU`` for NNAPI's CPU and the host only, or names of devices joined by commas."""

    @classmethod
    def prepare(cls, model: Any, device: str = _CPU, **options: Any) -> NnbridgeRep:
        """Convert and compile a ``ModelProto``."""
        converted, graph, _ = convert_proto(model)
        drivers = [] if device == _CPU else [find_device(name) for name in device.split(",")]
        compilation = Compilation.create(converted, drivers)
        compilation.finish()
        return NnbridgeRep(converted, graph, compilation)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = _CPU, **options: Any) -> tuple[Any, ...]:
        """Convert, compile and run."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = _CPU, outputs_info: Any = None, **options: Any) -> tuple[Any, ...]:
        """Run one node: a model is made of it."""
        from onnx import helper

        arrays = [np.asarray(x) for x in _listed(inputs)]
        names = [name for name in node.input if name]
        kinds = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, arrays, strict=True)
        ]
        results = [helper.ValueInfoProto(name=name) for name in node.output if name]
        model = helper.make_model(helper.make_graph([node], node.op_type, kinds, results), **options)
        return cls.run_model(model, arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for CPU and for every installed device."""
        if device == _CPU:
            return True
        try:
            find_device(device)
        except InputError:
            return False
        return True


def _listed(inputs: Any) -> Sequence[Any]:
    return list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]


def _as_nnapi(array: Any, type: int) -> Array:
    """A scalar is a vector of one element in NNAPI, what is not a tensor of numbers a message. A ``TensorProto`` is its array."""
    if type in MESSAGES:
        return encode(to_array(array) if isinstance(array, TensorProto) else array, type)
    array = np.asarray(to_array(array) if isinstance(array, TensorProto) else array)
    return array.reshape(1) if array.ndim == 0 else array


prepare = NnbridgeBackend.prepare
run_model = NnbridgeBackend.run_model
run_node = NnbridgeBackend.run_node
supports_device = NnbridgeBackend.supports_device
