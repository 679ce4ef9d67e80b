"""Small models, and ONNX Runtime's sessions with the provider."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnbridge import provider
from nnbridge.engines.onnx_session import open_session

Array = npt.NDArray[Any]
DEVICE = "nnapi-sample_all"


def needs() -> None:
    """Skip a module of tests where something is missing."""
    pytest.importorskip("cffi")
    pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
        pytest.skip("ONNX Runtime is older than 1.24, and does not report where nodes run", allow_module_level=True)
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler on this machine", allow_module_level=True)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node named after its first output."""
    from onnx import helper

    return helper.make_node(operator, inputs.split(), outputs.split(), name=outputs.split()[0], **attributes)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: dict[str, Array] | None = None,
    *,
    dtype: str = "float32",
    ir: int = 8,
    overridable: bool = False,
) -> bytes:
    """A file. Inputs have one element type; ONNX's inference finds the types of the outputs."""
    import onnx
    from onnx import helper, numpy_helper

    constants = constants or {}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = [helper.make_tensor_value_info(name, kind, list(dims)) for name, dims in inputs.items()]
    if overridable:
        kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in constants.items()}
        values += [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in constants.items()]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "small", values, results, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=ir)
    found = {value.name: value for value in onnx.shape_inference.infer_shapes(made).graph.output}
    del made.graph.output[:]
    made.graph.output.extend(found[name] for name in outputs)
    data: bytes = made.SerializeToString()
    return data


def chain(*operators: str, dims: Sequence[int | str] = (2, 3)) -> bytes:
    """Unary operators from x to the last one's value, which has its name in small letters with its number."""
    names = ["x", *(f"{operator.lower()}{i}" for i, operator in enumerate(operators))]
    nodes = [node(operator, a, b) for operator, a, b in zip(operators, names, names[1:], strict=False)]
    return model(nodes, {"x": dims}, names[-1:])


def session(data: bytes | str, device: Any = DEVICE, *, options: Any = None, optimised: bool = True, **settings: object) -> Any:
    """A session that never falls back to the CPU."""
    import onnxruntime as ort

    options = options or ort.SessionOptions()
    options.intra_op_num_threads = 1  # waiting threads of ONNX Runtime's spin
    options.log_severity_level = settings.pop("log", 4)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(data, provider.session_options(device, options=options, **settings), enable_fallback=0)


def claimed(running: Any) -> list[list[str]]:
    """The names of the nodes of each partition."""
    found = running.get_provider_graph_assignment_info()
    return [sorted(n.name for n in group.get_nodes()) for group in found if group.ep_name in provider.NAMES]


def alone(data: bytes, feeds: dict[str, Array]) -> list[Array]:
    """The results of ONNX Runtime's CPU."""
    answers: list[Array] = open_session(data).run(None, feeds)
    return answers
